"""Relocation on a GPU: the two nearest centres of every point stay there; sums over them come to the host."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from gputabu.backend.arithmetic import rules
from gputabu.backend.arithmetic.fixed_point import LIMB, power
from gputabu.backend.contract import Assigned, Pairs
from gputabu.backend.cuda.device import DeviceData, on_device, scales


class DevicePairs(DeviceData):
    """The operations of `Ops` for relocation. Names and shapes are those of kernels/relocation.cu."""

    @on_device
    def pairs(self, centers: np.ndarray, held: Pairs | None = None) -> Pairs:
        (r, k, d), n = centers.shape, self.points.n
        if held is None:
            first, second = cupy.zeros((r, n), np.int32), cupy.zeros((r, n), np.int32)
            held = Pairs(first, second, cupy.zeros((r, n)), cupy.zeros((r, n)), np.full(centers.shape, np.nan))
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
    def settled(
        self, pairs: Pairs, labels: Any, mass: np.ndarray | None, who: np.ndarray
    ) -> tuple[Assigned, np.ndarray]:
        (r, k, d), which, cost = pairs.at.shape, np.flatnonzero(who), self.grid.cost
        totals, changed = cupy.zeros((r, k, self.n_columns), np.int64), cupy.zeros(r, np.int64)
        costs, weighed = (
            cupy.zeros((r, 3), np.int64),
            None if mass is None else cupy.asarray(np.ascontiguousarray(mass)),
        )
        some, origin, scale = cupy.asarray(which), cupy.asarray(self.grid.offset), cupy.asarray(scales(self.grid))
        heavy, to_limbs = float(power(LIMB - self.grid.weight)), float(power(LIMB - cost))
        for chunk in self.chunks if len(which) else ():
            self.launch("relocation.cu", "settle", (len(which), *self.spread(chunk.n)), (
                chunk.X, chunk.weights, weighed, some, pairs.first, pairs.second, pairs.near, pairs.far, labels, totals,
                changed, costs, origin, scale, chunk.n, chunk.start, self.points.n, k, d, self.n_columns, heavy,
                to_limbs))  # fmt: skip
        return Assigned(totals.get(), changed.get()), costs.get().T

    @on_device
    def swaps(self, candidates: np.ndarray, pairs: Pairs) -> tuple[np.ndarray, np.ndarray]:
        (r, t, d), k = candidates.shape, pairs.at.shape[1]
        where = cupy.asarray(np.ascontiguousarray(candidates))
        loss, change = cupy.zeros((r, k, 3), np.int64), cupy.zeros((r, t, k + 1, 3), np.int64)
        for chunk in self.chunks:
            self.launch("relocation.cu", "swap_gains", self.spread(r * chunk.n), (
                chunk.X, chunk.weights, where, pairs.first, pairs.near, pairs.far, loss, change, chunk.n, chunk.start,
                self.points.n, r, t, k, d, float(power(LIMB - self.grid.cost))))  # fmt: skip
        return loss.get(), change.get()
