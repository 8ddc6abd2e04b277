"""Ctrl-C as a question: searches look at it between iterations and return the best found so far."""

from __future__ import annotations

import signal
import threading
from types import FrameType


class Interrupts:
    """While this context is open, a first Ctrl-C sets `asked`; a second one interrupts as always.

    A KeyboardInterrupt in the middle of an iteration would leave half of it done. Only Python's own handler
    is replaced, and only in the main thread, where signals arrive; a program's own handler is its business.
    """

    def __init__(self) -> None:
        self.asked = False
        self._before: object = None

    def __enter__(self) -> Interrupts:
        main = threading.current_thread() is threading.main_thread()
        if main and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            self._before = signal.signal(signal.SIGINT, self._ask)
        return self

    def __exit__(self, *_: object) -> None:
        if self._before is not None:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    def _ask(self, number: int, frame: FrameType | None) -> None:
        if self.asked:
            signal.default_int_handler(number, frame)
        self.asked = True
