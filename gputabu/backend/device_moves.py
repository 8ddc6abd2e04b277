"""Single moves on a GPU: every point's best move is found there; the few that improve come to the host in turn."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from gputabu.backend import moving
from gputabu.backend.cuda_data import DeviceData, on_device
from gputabu.backend.ops import Moves

#: Moves that there is room for at first; after K-Means few points have one.
ROOM = 1 << 14


class DeviceMoves(DeviceData):
    """The operations of `Ops` for single moves. Names and shapes are those of kernels/hartigan.cu."""

    @on_device
    def moves(self, centers: np.ndarray, totals: np.ndarray, labels: Any) -> Moves:
        r, k, d = centers.shape
        n = self.points.n
        where, mass = (cupy.asarray(np.ascontiguousarray(a)) for a in (centers, moving.masses(self.grid, totals)))
        slack, room = moving.slack(self.bounds), min(ROOM, r * n)
        while True:
            count = cupy.zeros(1, np.uint64)
            places, pairs = cupy.empty(room, np.int64), cupy.empty((room, 2), np.int32)
            for chunk in self.chunks:
                self.launch("hartigan.cu", "find_moves", self.spread(r * chunk.n), (
                    chunk.X, chunk.weights, where, mass, labels, count, places, pairs, chunk.n, chunk.start, n, r, k,
                    d, slack, room))  # fmt: skip
            found = int(count.get()[0])
            if found <= room:
                break
            room = found  # now it is known how many there are
        place, pair = places[:found].get(), pairs[:found].get()
        order = place.argsort()  # they were entered in any order
        place, pair = place[order], pair[order]
        return Moves(place // n, place % n, pair[:, 0], pair[:, 1])

    def shift(self, centers: np.ndarray, totals: np.ndarray, labels: Any, moves: Moves) -> np.ndarray:
        weights = None if self.points.weights is None else self.points.weights_at(moves.row)
        slack = moving.slack(self.bounds)
        made = moves.some(moving.walk(self.grid, slack, self.rows(moves.row), weights, moves, centers, totals))
        self._relabel_some(labels, made)
        return np.bincount(made.restart, minlength=len(centers))

    @on_device
    def _relabel_some(self, labels: Any, made: Moves) -> None:
        """Apart from `shift`: what runs out of memory begins again."""
        where = cupy.asarray(made.restart * self.points.n + made.row)
        self.launch("hartigan.cu", "relabel", self.spread(len(made)), (
            labels, where, cupy.asarray(made.target), len(made)))  # fmt: skip
