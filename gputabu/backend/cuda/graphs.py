"""Launches recorded as a graph, to be replayed without the host."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any


def captured(stream: Any, work: Callable[[], None]) -> Any:
    """What `work` launches, as a graph. Whatever happens, the stream does not stay in capture: nobody could use it.

    Kernels must have been compiled before, and nothing may be allocated.
    """
    try:
        stream.begin_capture()
        work()
        return stream.end_capture()
    except BaseException:
        with suppress(Exception):  # that the capture is broken is no news; the cause is
            stream.end_capture()
        raise
