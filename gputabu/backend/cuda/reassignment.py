"""Trial labellings on a GPU: words are made on the device, and of a trial only J and its print come back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cupy
import numpy as np

from gputabu.backend.arithmetic.constants import LIMB
from gputabu.backend.arithmetic.fixed_point import power
from gputabu.backend.base import TrialCosts
from gputabu.backend.contract import Assignment, TrialBatch
from gputabu.backend.cuda.device import THREADS, scales

if TYPE_CHECKING:
    from gputabu.backend.cuda.backend import CudaBackend

#: Points that share a block of random words, and a thread.
QUAD = 4
#: Threads that judge a trial.
EXPLAINERS = 32


class CudaTrials:
    """The operations of `BackendBase` for searches over labels. Names and shapes are those of kernels/reassign.cu."""

    def __init__(self, backend: CudaBackend) -> None:
        self.backend, grid = backend, backend.grid
        powers = (power(grid.coordinate - LIMB), power(grid.coordinate - 2 * LIMB))
        arrays = (grid.offset, scales(grid), *powers)
        self.offset, self.scale, self.high, self.low = (cupy.asarray(np.asarray(a, np.float64)) for a in arrays)
        self.weight_scale = float(power(LIMB - grid.weight))

    def draw(self, labels: Any, lot: TrialBatch) -> tuple[Any, Any]:
        """What each trial changes, on the device: totals (R, T, K, C) and prints (R, T, 2)."""
        backend, r, t, k = self.backend, len(lot.restarts), lot.n_trials, lot.k
        restarts, c = cupy.asarray(lot.restarts), backend.n_columns
        change, prints = cupy.zeros((r, t, k, c), np.int64), cupy.zeros((r, t, 2), np.uint64)
        table = 8 * t * (k * c + 2)
        private = table <= backend.shared_limit
        for chunk in backend.chunks:
            blocks = max(1, min(-(-chunk.n // (QUAD * THREADS)), -(-backend.blocks // r)))
            backend.launch("reassign.cu", "try_labels", (r * blocks,), (
                chunk.X, chunk.weights, labels, restarts, self.offset, self.scale, change, prints, lot.seed, lot.step,
                lot.limit, chunk.n, chunk.start, backend.points.n, lot.first, lot.pitch(backend.points.n) // QUAD, k,
                backend.points.d, t, blocks, self.weight_scale, int(private)), private * table)  # fmt: skip
        return change, prints

    def evaluate(self, labels: Any, totals: np.ndarray, lot: TrialBatch) -> TrialCosts:
        backend, t = self.backend, lot.n_trials
        r, k, _ = totals.shape
        held, explained = cupy.asarray(np.ascontiguousarray(totals)), cupy.empty((r, t), np.float64)
        change, prints = self.draw(labels, lot)
        e = backend.grid.weight
        backend.launch("reassign.cu", "explain", (r * t,), (
            change, held, self.high, self.low, explained, float(power(e - LIMB)), float(power(e - 2 * LIMB)), k,
            backend.points.d, t, int(backend.points.weights is not None)), threads=EXPLAINERS)  # fmt: skip
        return TrialCosts(np.maximum(backend.scatter - explained.get(), 0.0), prints.get())

    def apply_trial(
        self, labels: Any, best: Any, lot: TrialBatch, chosen: np.ndarray, better: np.ndarray
    ) -> Assignment:
        backend, r = self.backend, len(lot.restarts)
        restarts = cupy.asarray(lot.restarts)
        given = None if lot.given is None else cupy.asarray(lot.given)
        which, noted = (cupy.asarray(np.asarray(array, np.int32)) for array in (chosen, better))
        totals, changed = cupy.zeros((r, lot.k, backend.n_columns), np.int64), cupy.zeros(r, np.int64)
        for chunk in backend.chunks:
            backend.launch("reassign.cu", "adopt", backend.spread(r * -(-chunk.n // QUAD)), (
                chunk.X, chunk.weights, labels, best, given, restarts, which, noted, self.offset, self.scale, totals,
                changed, lot.seed, lot.step, lot.limit, chunk.n, chunk.start, backend.points.n, lot.first,
                lot.pitch(backend.points.n) // QUAD, r, lot.k, backend.points.d, self.weight_scale))  # fmt: skip
        return Assignment(totals.get(), changed.get())
