"""Trial labellings on a GPU: words are made on the device, and of a trial only J and its print come back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cupy
import numpy as np

from gputabu.backend.arithmetic.fixed_point import LIMB, power
from gputabu.backend.contract import Assigned, Lot, Tried
from gputabu.backend.cuda.device import THREADS, scales

if TYPE_CHECKING:
    from gputabu.backend.cuda.backend import CudaOps

#: Points that share a block of random words, and a thread.
QUAD = 4
#: Threads that judge a trial.
EXPLAINERS = 32


class DeviceTrials:
    """The operations of `Ops` for searches over labels. Names and shapes are those of kernels/reassign.cu."""

    def __init__(self, ops: CudaOps) -> None:
        self.ops, grid = ops, ops.grid
        powers = (power(grid.coordinate - LIMB), power(grid.coordinate - 2 * LIMB))
        arrays = (grid.offset, scales(grid), *powers)
        self.offset, self.scale, self.high, self.low = (cupy.asarray(np.asarray(a, np.float64)) for a in arrays)
        self.weight_scale = float(power(LIMB - grid.weight))

    def draw(self, labels: Any, lot: Lot) -> tuple[Any, Any]:
        """What each trial changes, on the device: totals (R, T, K, C) and prints (R, T, 2)."""
        ops, r, t, k = self.ops, len(lot.restarts), lot.n_trials, lot.k
        restarts, c = cupy.asarray(lot.restarts), ops.n_columns
        change, prints = cupy.zeros((r, t, k, c), np.int64), cupy.zeros((r, t, 2), np.uint64)
        table = 8 * t * (k * c + 2)
        private = table <= ops.shared_limit
        for chunk in ops.chunks:
            blocks = max(1, min(-(-chunk.n // (QUAD * THREADS)), -(-ops.blocks // r)))
            ops.launch("reassign.cu", "try_labels", (r * blocks,), (
                chunk.X, chunk.weights, labels, restarts, self.offset, self.scale, change, prints, lot.seed, lot.step,
                lot.limit, chunk.n, chunk.start, ops.points.n, lot.first, lot.pitch(ops.points.n) // QUAD, k,
                ops.points.d, t, blocks, self.weight_scale, int(private)), private * table)  # fmt: skip
        return change, prints

    def evaluate(self, labels: Any, totals: np.ndarray, lot: Lot) -> Tried:
        ops, t = self.ops, lot.n_trials
        r, k, _ = totals.shape
        held, explained = cupy.asarray(np.ascontiguousarray(totals)), cupy.empty((r, t), np.float64)
        change, prints = self.draw(labels, lot)
        e = ops.grid.weight
        ops.launch("reassign.cu", "explain", (r * t,), (
            change, held, self.high, self.low, explained, float(power(e - LIMB)), float(power(e - 2 * LIMB)), k,
            ops.points.d, t, int(ops.points.weights is not None)), threads=EXPLAINERS)  # fmt: skip
        return Tried(np.maximum(ops.scatter - explained.get(), 0.0), prints.get())

    def adopt(self, labels: Any, best: Any, lot: Lot, chosen: np.ndarray, better: np.ndarray) -> Assigned:
        ops, r = self.ops, len(lot.restarts)
        restarts = cupy.asarray(lot.restarts)
        given = None if lot.given is None else cupy.asarray(lot.given)
        which, noted = (cupy.asarray(np.asarray(array, np.int32)) for array in (chosen, better))
        totals, changed = cupy.zeros((r, lot.k, ops.n_columns), np.int64), cupy.zeros(r, np.int64)
        for chunk in ops.chunks:
            ops.launch("reassign.cu", "adopt", ops.spread(r * -(-chunk.n // QUAD)), (
                chunk.X, chunk.weights, labels, best, given, restarts, which, noted, self.offset, self.scale, totals,
                changed, lot.seed, lot.step, lot.limit, chunk.n, chunk.start, ops.points.n, lot.first,
                lot.pitch(ops.points.n) // QUAD, r, lot.k, ops.points.d, self.weight_scale))  # fmt: skip
        return Assigned(totals.get(), changed.get())
