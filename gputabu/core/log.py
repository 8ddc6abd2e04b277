"""The logger "gputabu": messages of a running fit, shown on stderr for `verbose`."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

log = logging.getLogger("gputabu")
log.addHandler(logging.NullHandler())


@contextmanager
def shown(verbose: int) -> Iterator[None]:
    """Show messages (verbose=1) or every iteration (2) on stderr, unless the program handles them itself."""
    level = logging.WARNING if verbose <= 0 else logging.INFO if verbose == 1 else logging.DEBUG
    if verbose <= 0 or log.isEnabledFor(level):
        yield
        return
    previous, handler = log.level, logging.StreamHandler()
    handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
    if not logging.getLogger().handlers:  # a configured root logger prints them already
        log.addHandler(handler)
    log.setLevel(level)
    try:
        yield
    finally:
        log.setLevel(previous)
        log.removeHandler(handler)
