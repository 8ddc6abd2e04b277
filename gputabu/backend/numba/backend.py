"""The compiled CPU backend: the passes of the NumPy backend as machine code, by numba.

Threads are those of `Workers`, each in a compiled call that does not hold the GIL: no parallel regions of numba's, so
none of its threading layers is started, and a fork is as safe as with NumPy. What is not overridden here is NumPy's.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable

import numpy as np

from gputabu.backend.contract import Assignment
from gputabu.backend.loops import Loops
from gputabu.backend.numba.fuzzy import NumbaFuzzy
from gputabu.backend.numba.hartigan import NumbaHartigan
from gputabu.backend.numba.kernels.assign import assign_rows
from gputabu.backend.numba.relocation import NumbaRelocation
from gputabu.backend.numba.restarts import NumbaLoops
from gputabu.backend.numba.splits import NumbaSplits
from gputabu.backend.numba.tabu_argmin import NumbaTabuArgmin
from gputabu.backend.numba.tiling import block_arguments
from gputabu.backend.numba.transfers import NumbaTransfers
from gputabu.backend.numpy.backend import NumpyBackend
from gputabu.core.caching import cached_property
from gputabu.data.points import Block


class NumbaBackend(
    NumbaTabuArgmin, NumbaRelocation, NumbaHartigan, NumbaSplits, NumbaTransfers, NumbaFuzzy, NumpyBackend
):
    """A data set on the host: labels and K-Means; seeding comes with relocation."""

    name = "numba"

    @cached_property
    def loops(self) -> Loops:
        # Not held by what it holds: a fit that Ctrl-C ends lets go of BLAS when its backend goes, not some time later.
        return NumbaLoops(weakref.proxy(self))

    def assign(self, centers: np.ndarray, labels: np.ndarray) -> Assignment:
        r, k, _ = centers.shape
        if self.is_short(r, k):
            return super().assign(centers, labels)
        scales = self.scales
        fast = self.fast_centers(centers, scales)

        def relabel(pieces: Iterable[Block]) -> tuple[np.ndarray, np.ndarray]:
            totals, changed = np.zeros((r, k, self.n_columns), np.int64), np.zeros(r, np.int64)
            scoring = self.score_scratch(k)
            for block in pieces:
                assign_rows(*block_arguments(block), labels, fast, scales, totals, changed, scoring)
            return totals, changed

        parts = self.workers.map(relabel, self.pieces())
        return Assignment(*(np.sum(part, axis=0) for part in zip(*parts, strict=True)))

    def label(self, centers: np.ndarray) -> np.ndarray:
        r, k, d = centers.shape
        if k == 1 or self.is_short(r, k):
            return super().label(centers)
        labels, no_totals = self.blank_labels(r), np.empty((r, 0, 0), np.int64)
        middle = centers.reshape(-1, d).mean(axis=0).astype(self.points.dtype).astype(float)
        scales = self.scales_around(middle, float(np.abs(centers - middle).max()))
        fast = self.fast_centers(centers, scales)

        def look(pieces: Iterable[Block]) -> None:
            scoring, changed = self.score_scratch(k), np.zeros(r, np.int64)
            for block in pieces:
                assign_rows(*block_arguments(block), labels, fast, scales, no_totals, changed, scoring)

        self.workers.map(look, self.pieces())
        return labels
