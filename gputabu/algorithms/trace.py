"""The trace of a search while it grows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from gputabu.core.results import Trace


class TraceRecorder:
    """Records what each of R restarts did, iteration by iteration, while it was active: a trace that grows."""

    def __init__(self, restarts: int) -> None:
        self.length = 0  # columns that are filled
        self._current, self._best = (np.full((restarts, 0), np.nan) for _ in range(2))  # (R, room)
        self._moves = np.full((restarts, 0), -1, np.int64)  # (R, room); the start has none
        self._means: np.ndarray | None = None  # (R, room, K)

    @classmethod
    def resumed(cls, trace: Trace) -> TraceRecorder:
        """The course that led to a trace."""
        course = cls(trace.n_restarts)
        course.length = trace.current.shape[1]
        course._current, course._best, course._means = trace.current, trace.best, trace.means
        course._moves = np.pad(trace.moves, ((0, 0), (course.length - trace.moves.shape[1], 0)), constant_values=-1)
        return course

    @property
    def kept(self) -> Callable[[], Trace]:
        """A function that makes the trace as it is now, also later."""
        return partial(self.trace, self.length)

    def start(self, cost: np.ndarray, means: np.ndarray | None = None) -> None:
        i = self._column()
        self._current[:, i] = self._best[:, i] = cost
        if means is not None:
            self._means = np.full((*self._current.shape, means.shape[1]), -1, np.int64)
            self._means[:, i] = means

    def add(
        self,
        active: np.ndarray,
        cost: np.ndarray,
        moves: np.ndarray,
        means: np.ndarray | None = None,
        best: np.ndarray | None = None,
    ) -> None:
        """What the `active` restarts (A,) did: J, J_b or None for the least so far, moves (A,), M_c (A, K) if any."""
        i = self._column()
        self._current[active, i] = cost
        self._best[active, i] = np.minimum(self._best[active, i - 1], cost) if best is None else best
        self._moves[active, i] = moves
        if self._means is not None:
            self._means[active, i] = means

    def trace(self, length: int | None = None) -> Trace:
        """Of all iterations, or of the first so many columns."""
        end = self.length if length is None else length
        means = None if self._means is None else self._means[:, :end].copy()
        return Trace(self._current[:, :end].copy(), self._best[:, :end].copy(), self._moves[:, 1:end].copy(), means)

    def _column(self) -> int:
        """The number of the next column. Room doubles: a list of small arrays would take ten times as much."""
        if self.length == self._current.shape[1]:
            more = (0, max(16, self.length))
            self._current, self._best = (
                np.pad(array, ((0, 0), more), constant_values=np.nan) for array in (self._current, self._best)
            )
            self._moves = np.pad(self._moves, ((0, 0), more), constant_values=-1)
            if self._means is not None:
                self._means = np.pad(self._means, ((0, 0), more, (0, 0)), constant_values=-1)
        self.length += 1
        return self.length - 1
