"""Single moves on a GPU: every point's best move is found there; the few that improve come to the host in turn."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from gputabu.backend.arithmetic import rules
from gputabu.backend.contract import Moves
from gputabu.backend.cuda.device import DeviceBackend, on_device, to_device

#: Moves that there is room for at first; after K-Means few points have one.
ROOM = 1 << 14


class CudaHartigan(DeviceBackend):
    """The passes of single moves. Names and shapes are those of kernels/hartigan.cu."""

    @on_device
    def find_moves(self, centers: np.ndarray, totals: np.ndarray, labels: Any) -> Moves:
        r, k, d = centers.shape
        n = self.points.n
        device_centers, mass = to_device(centers), to_device(rules.masses(self.grid, totals))
        slack, room = rules.slack(self.bounds), min(ROOM, r * n)
        while True:
            count = cupy.zeros(1, np.uint64)
            places, moves = cupy.empty(room, np.int64), cupy.empty((room, 2), np.int32)
            for chunk in self.pieces(r * k * d):
                self.launch("hartigan.cu", "find_moves", self.spread(r * chunk.n), (
                    chunk.X, chunk.weights, device_centers, mass, labels, count, places, moves, chunk.n, chunk.start, n,
                    r, k, d, slack, room))  # fmt: skip
            found = int(count.get()[0])
            if found <= room:
                break
            room = found  # now it is known how many there are
        place, move = places[:found].get(), moves[:found].get()
        order = place.argsort()  # they were entered in any order
        place, move = place[order], move[order]
        return Moves(place // n, place % n, move[:, 0], move[:, 1])

    @on_device
    def relabel(self, labels: Any, moves: Moves) -> None:
        if len(moves):
            places = to_device(moves.restart * self.points.n + moves.row)
            self.launch("labels.cu", "relabel", self.spread(len(moves)), (
                labels, places, to_device(moves.target), len(moves)))  # fmt: skip
