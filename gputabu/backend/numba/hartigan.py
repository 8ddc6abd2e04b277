"""Single moves of points between clusters (Hartigan 1975), in compiled code: see `gputabu.backend.numpy.hartigan`."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from gputabu.backend.arithmetic import rules
from gputabu.backend.contract import Moves
from gputabu.backend.numba.kernels.hartigan import move_rows, walk_moves
from gputabu.backend.numba.kernels.scores import BLOCK
from gputabu.backend.numba.tiling import NumbaTiling, block_arguments
from gputabu.backend.numpy.hartigan import NumpyHartigan, listed
from gputabu.data.points import Block


class NumbaHartigan(NumbaTiling, NumpyHartigan):
    """The passes of single moves."""

    def find_moves(self, centers: np.ndarray, totals: np.ndarray, labels: np.ndarray) -> Moves:
        k, scales = centers.shape[1], self.scales
        centers, fast = np.ascontiguousarray(centers), self.fast_centers(centers, scales)
        mass, slack = rules.masses(self.grid, totals), rules.slack(self.bounds)
        target, all_changed = self.allocate(labels.shape, np.int32, -1), np.ones(k, np.int64)

        def look(pieces: Iterable[Block]) -> None:
            scoring, leave = self.score_scratch(k), np.empty(BLOCK)
            for block in pieces:
                move_rows(
                    *block_arguments(block), labels, centers, mass, slack, fast, scales, all_changed, target, leave,
                    scoring,
                )  # fmt: skip

        self.workers.map(look, self.pieces())
        return listed(labels, target)

    def walk_moves(self, X: np.ndarray, moves: Moves, centers: np.ndarray, totals: np.ndarray) -> np.ndarray:
        weights = np.empty(0) if self.points.weights is None else self.points.weights_at(moves.row)
        mass, made = rules.masses(self.grid, totals), np.empty(len(moves), np.bool_)
        walk_moves(
            X, weights, moves.restart, moves.source, moves.target, centers, totals, mass, rules.slack(self.bounds),
            self.scales, self.score_scratch(1).term, made,
        )  # fmt: skip
        return made
