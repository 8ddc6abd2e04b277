"""The two nearest centres of every point, and what relocation makes of them, in compiled code.

`gputabu.backend.numpy.relocation` has the formulas.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from gputabu.backend.arithmetic import rules
from gputabu.backend.contract import Assignment, NearestTwo
from gputabu.backend.numba.kernels.nearest_two import NearestTwoArrays, nearest_two_rows
from gputabu.backend.numba.kernels.relocation import RelocationScratch, reassign_rows, swap_gain_rows
from gputabu.backend.numba.kernels.scores import BLOCK
from gputabu.backend.numba.seeding import NumbaSeeding
from gputabu.backend.numba.tiling import block_arguments
from gputabu.backend.numpy.relocation import NumpyRelocation
from gputabu.data.points import Block


class NumbaRelocation(NumbaSeeding, NumpyRelocation):
    """The passes of relocation."""

    def nearest_two(self, centers: np.ndarray, previous: NearestTwo | None = None) -> NearestTwo:
        nearest = self.no_nearest_two(centers) if previous is None else previous
        moved = rules.moved(centers, nearest.at)
        if not moved.any():
            return nearest
        k, scales, arrays = centers.shape[1], self.scales, arrays_of(nearest)
        centers, fast = np.ascontiguousarray(centers), self.fast_centers(centers, scales)

        def look(pieces: Iterable[Block]) -> None:
            scratch, scoring = self.relocation_scratch(k), self.score_scratch(k)
            for block in pieces:
                X, _, first = block_arguments(block)
                nearest_two_rows(X, first, centers, fast, moved, arrays, scales, scratch, scoring)

        self.workers.map(look, self.pieces())
        nearest.at[...] = centers
        return nearest

    def reassign_partial(
        self, nearest: NearestTwo, labels: np.ndarray, mass: np.ndarray | None, active: np.ndarray
    ) -> tuple[Assignment, np.ndarray]:
        r, k, _ = nearest.at.shape
        scales, arrays, to_nearest = self.scales, arrays_of(nearest), mass is None
        masses = np.zeros((r, 2, k)) if mass is None else np.ascontiguousarray(mass)

        def relabel(pieces: Iterable[Block]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
            totals, changed = np.zeros((r, k, self.n_columns), np.int64), np.zeros(r, np.int64)
            scratch, costs = self.relocation_scratch(k), np.zeros((r, 3), np.int64)
            for block in pieces:
                for restart in np.flatnonzero(active):
                    reassign_rows(
                        *block_arguments(block), labels, arrays, restart, masses[restart], to_nearest, scales, totals,
                        changed, costs, scratch,
                    )  # fmt: skip
            return totals, changed, costs

        parts = self.workers.map(relabel, self.pieces())
        totals, changed, costs = (np.sum(part, axis=0) for part in zip(*parts, strict=True))
        return Assignment(totals, changed), costs.T

    def swap_gains_partial(self, candidates: np.ndarray, nearest: NearestTwo) -> tuple[np.ndarray, np.ndarray]:
        (r, t, _), k = candidates.shape, nearest.at.shape[1]
        candidates, to_limbs, arrays = np.ascontiguousarray(candidates), self.scales.cost[0], arrays_of(nearest)

        def add(pieces: Iterable[Block]) -> tuple[np.ndarray, np.ndarray]:
            scratch = self.relocation_scratch(k)
            loss, change = np.zeros((r, k, 3), np.int64), np.zeros((r, t, k + 1, 3), np.int64)
            for block in pieces:
                swap_gain_rows(*block_arguments(block), candidates, arrays, to_limbs, loss, change, scratch)
            return loss, change

        parts = self.workers.map(add, self.pieces())
        loss, change = (np.sum(part, axis=0) for part in zip(*parts, strict=True))
        return loss, change

    def relocation_scratch(self, k: int, candidates: int = 1, n: int = 0) -> RelocationScratch:
        """Scratch memory of the calling thread; whole searches need room for candidates and n points."""
        d = self.points.d
        return RelocationScratch(
            columns=np.empty((d, BLOCK)),
            squares=np.empty(max(BLOCK, k)),
            affected=np.empty(BLOCK + 1, np.int64),
            affected_coords=np.empty((d, BLOCK), np.float32),
            moved=np.empty(k, np.bool_),
            mass=np.empty((2, k)),
            new_labels=np.empty(BLOCK, np.int32),
            term=np.empty(self.n_columns, np.int64),
            points=np.empty((candidates, d)),
            rows=np.empty(candidates, np.int64),
            loss=np.empty((k, 3), np.int64),
            change=np.empty((candidates, k + 1, 3), np.int64),
            running=np.empty(n, np.int64),
            sums=np.empty(3, np.int64),
        )


def arrays_of(nearest: NearestTwo) -> NearestTwoArrays:
    """The two nearest as kernels take them."""
    return NearestTwoArrays(nearest.first, nearest.second, nearest.near, nearest.far)
