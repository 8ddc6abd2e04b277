"""Relocation on a GPU: the two nearest centres of every point stay there; sums over them come to the host."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from gputabu.backend.arithmetic import rules
from gputabu.backend.arithmetic.constants import LIMB
from gputabu.backend.arithmetic.fixed_point import power
from gputabu.backend.contract import Assignment, NearestTwo
from gputabu.backend.cuda.device import DeviceBackend, on_device, scales


class CudaRelocation(DeviceBackend):
    """The operations of `BackendBase` for relocation. Names and shapes are those of kernels/relocation.cu."""

    @on_device
    def nearest_two(self, centers: np.ndarray, previous: NearestTwo | None = None) -> NearestTwo:
        (r, k, d), n = centers.shape, self.points.n
        held = previous
        if held is None:
            first, second = cupy.zeros((r, n), np.int32), cupy.zeros((r, n), np.int32)
            held = NearestTwo(first, second, cupy.zeros((r, n)), cupy.zeros((r, n)), np.full(centers.shape, np.nan))
        which = np.flatnonzero(rules.moved(centers, held.at).any(axis=1))
        if len(which):
            where, some = cupy.asarray(np.ascontiguousarray(centers)), cupy.asarray(which)
            for chunk in self.chunks:
                self.launch("relocation.cu", "pair_nearest", self.spread(len(which) * chunk.n), (
                    chunk.X, where, some, held.first, held.second, held.near, held.far, chunk.n, chunk.start, n,
                    len(which), k, d))  # fmt: skip
            held.at[which] = centers[which]
        return held

    @on_device
    def reassign_partial(
        self, nearest: NearestTwo, labels: Any, mass: np.ndarray | None, active: np.ndarray
    ) -> tuple[Assignment, np.ndarray]:
        (r, k, d), which, cost = nearest.at.shape, np.flatnonzero(active), self.grid.cost
        totals, changed = cupy.zeros((r, k, self.n_columns), np.int64), cupy.zeros(r, np.int64)
        costs, weighed = (
            cupy.zeros((r, 3), np.int64),
            None if mass is None else cupy.asarray(np.ascontiguousarray(mass)),
        )
        some, origin, scale = cupy.asarray(which), cupy.asarray(self.grid.offset), cupy.asarray(scales(self.grid))
        heavy, to_limbs = float(power(LIMB - self.grid.weight)), float(power(LIMB - cost))
        for chunk in self.chunks if len(which) else ():
            self.launch("relocation.cu", "settle", (len(which), *self.spread(chunk.n)), (
                chunk.X, chunk.weights, weighed, some, nearest.first, nearest.second, nearest.near, nearest.far, labels, totals,
                changed, costs, origin, scale, chunk.n, chunk.start, self.points.n, k, d, self.n_columns, heavy,
                to_limbs))  # fmt: skip
        return Assignment(totals.get(), changed.get()), costs.get().T

    @on_device
    def swap_gains_partial(self, candidates: np.ndarray, nearest: NearestTwo) -> tuple[np.ndarray, np.ndarray]:
        (r, t, d), k = candidates.shape, nearest.at.shape[1]
        where = cupy.asarray(np.ascontiguousarray(candidates))
        loss, change = cupy.zeros((r, k, 3), np.int64), cupy.zeros((r, t, k + 1, 3), np.int64)
        for chunk in self.chunks:
            self.launch("relocation.cu", "swap_gains", self.spread(r * chunk.n), (
                chunk.X, chunk.weights, where, nearest.first, nearest.near, nearest.far, loss, change, chunk.n, chunk.start,
                self.points.n, r, t, k, d, float(power(LIMB - self.grid.cost))))  # fmt: skip
        return loss.get(), change.get()
