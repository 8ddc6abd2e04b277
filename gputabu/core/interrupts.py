"""Ctrl-C as a question: searches look at it between iterations and return the best found so far."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any


class Termination:
    """A handler of SIGTERM for programs that want it to be as Ctrl-C; it remembers that it was called."""

    def __init__(self) -> None:
        self.received = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.received = True
        raise KeyboardInterrupt


class Interrupts:
    """While this context is open, a first Ctrl-C sets `asked`; a second one interrupts as always.

    A KeyboardInterrupt in the middle of an iteration would leave half of it done. Only Python's own handler
    is replaced, and a `Termination`, and only in the main thread, where signals arrive; a program's own handler is
    its business.
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: dict[int, Callable[[int, FrameType | None], Any]] = {}

    def __enter__(self) -> Interrupts:
        if threading.current_thread() is threading.main_thread():
            for number in (signal.SIGINT, signal.SIGTERM):
                handler = signal.getsignal(number)
                if handler is signal.default_int_handler or isinstance(handler, Termination):
                    self._before[number] = handler
                    signal.signal(number, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        before = self._before[number]
        if isinstance(before, Termination):
            before.received = True
        if self.asked:
            before(number, frame)
        self.asked = True
