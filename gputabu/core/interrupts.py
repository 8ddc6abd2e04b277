"""Ctrl-C as a request: searches check it between iterations and return the best found so far."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any


class Termination:
    """A handler that makes SIGTERM act like Ctrl-C, and remembers that it was called."""

    def __init__(self) -> None:
        self.received = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.received = True
        raise KeyboardInterrupt


class Interrupts:
    """In this context, the first Ctrl-C sets `asked`; the second one interrupts as usual.

    A KeyboardInterrupt in the middle of an iteration would leave it half done. Only Python's default handler and a
    `Termination` are replaced, and only in the main thread, where signals arrive. A program's own handler stays.
    """

    def __init__(self) -> None:
        self.asked = False
        self._previous: dict[int, Callable[[int, FrameType | None], Any]] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                handler = signal.getsignal(number)
                if handler is signal.default_int_handler or isinstance(handler, Termination):
                    self._previous[number] = handler
                    signal.signal(number, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        previous = self._previous[number]
        if isinstance(previous, Termination):
            previous.received = True
        if self.asked:
            previous(number, frame)
        self.asked = True
