"""Progress on stderr: a bar in a terminal or a notebook, and elsewhere a line every few seconds."""

from __future__ import annotations

import logging
import math
import sys
import time
import warnings
from contextlib import ExitStack
from typing import Any, Self

from gputabu.core.log import log

#: Seconds between two looks of a bar.
INTERVAL = 0.1
#: Seconds between two lines where there is no terminal.
LINE_INTERVAL = 5.0
DAY = 86_400


def open_bar() -> Bar | Lines:
    """What shows progress where stderr goes to. In a notebook without ipywidgets these are lines."""
    from tqdm import TqdmWarning
    from tqdm.asyncio import tqdm_asyncio

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", TqdmWarning)
        from tqdm.auto import tqdm

    notebook = tqdm is not tqdm_asyncio
    return Bar(tqdm) if notebook or sys.stderr.isatty() else Lines()


class Bar:
    """A bar of tqdm. Messages of the logger are written above it."""

    def __init__(self, tqdm: Any) -> None:
        self._tqdm = tqdm
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        from tqdm.contrib.logging import logging_redirect_tqdm

        self._bar = self._stack.enter_context(
            self._tqdm(total=1.0, bar_format="|{bar}|", dynamic_ncols=True, mininterval=0)
        )
        shown = [logger for logger in (log, logging.getLogger()) if any(map(_on_console, logger.handlers))]
        self._stack.enter_context(logging_redirect_tqdm(shown, self._tqdm))
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def show(self, fraction: float, text: str, left: float, limit: str = "") -> None:
        self._draw(fraction, text if math.isinf(left) else f"{text}, {duration(left)} {words(limit)}")

    def say(self, text: str) -> None:
        """Show a text until there is something else to show."""
        self._draw(self._bar.n, text)

    def finish(self, text: str, elapsed: float, complete: bool) -> None:
        self._draw(1.0 if complete else self._bar.n, f"{text}, {duration(elapsed)}")

    def _draw(self, fraction: float, text: str) -> None:
        self._bar.n = fraction
        self._bar.bar_format = "|{bar}| " + text.replace(" of ", "/")  # so that it fits 80 columns
        self._bar.refresh()


class Lines:
    """A line every few seconds; none of a search that takes less."""

    def __init__(self) -> None:
        self._last = time.monotonic()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def show(self, fraction: float, text: str, left: float, limit: str = "") -> None:
        now = time.monotonic()
        if now - self._last >= LINE_INTERVAL:
            self.say(f"{text}{'' if math.isinf(left) else f', {duration(left)} {words(limit)}'}")

    def say(self, text: str) -> None:
        """Write a line at once."""
        self._last = time.monotonic()
        sys.stderr.write(f"gputabu: {text}\n")
        sys.stderr.flush()

    def finish(self, text: str, elapsed: float, complete: bool) -> None:
        pass


def words(limit: str) -> str:
    """What time is left to."""
    return f"to {limit}" if limit else "left"


def duration(seconds: float) -> str:
    """Seconds as 00:05 or 1:00:05; nobody wants to know how many days exactly."""
    if seconds >= DAY:
        return "more than a day"
    from tqdm import tqdm

    return tqdm.format_interval(seconds)


def _on_console(handler: logging.Handler) -> bool:
    return getattr(handler, "stream", None) in (sys.stdout, sys.stderr)
