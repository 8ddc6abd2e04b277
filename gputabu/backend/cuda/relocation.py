"""Relocation on a GPU: the two nearest centres of every point stay there; sums over them come to the host."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from gputabu.backend.arithmetic import rules
from gputabu.backend.contract import Assignment, NearestTwo
from gputabu.backend.cuda import structs
from gputabu.backend.cuda.device import DeviceBackend, on_device, to_device


class CudaRelocation(DeviceBackend):
    """The passes of relocation. Names and shapes are those of kernels/relocation.cu."""

    @on_device
    def nearest_two(self, centers: np.ndarray, previous: NearestTwo | None = None) -> NearestTwo:
        r, k, d = centers.shape
        nearest = self._no_nearest(r, k, d) if previous is None else previous
        stale = np.flatnonzero(rules.moved(centers, nearest.at).any(axis=1))  # restarts
        if len(stale):
            device_centers, which = to_device(centers), cupy.asarray(stale)
            for chunk in self.pieces(len(stale) * k * d):
                self.launch("relocation.cu", "nearest_two", self.spread(len(stale) * chunk.n), (
                    chunk.X, device_centers, which, _arrays(nearest), self.rows_of(chunk), len(stale), k,
                    d))  # fmt: skip
            nearest.at[stale] = centers[stale]
        return nearest

    @on_device
    def reassign_partial(
        self, nearest: NearestTwo, labels: Any, mass: np.ndarray | None, active: np.ndarray
    ) -> tuple[Assignment, np.ndarray]:
        (r, k, d), numbers = nearest.at.shape, np.flatnonzero(active)
        totals, changed = cupy.zeros((r, k, self.n_columns), np.int64), cupy.zeros(r, np.int64)
        costs, device_mass = cupy.zeros((r, 3), np.int64), None if mass is None else to_device(mass)
        which, grid = cupy.asarray(numbers), self.device_grid
        for chunk in self.pieces(len(numbers) * d) if len(numbers) else ():
            self.launch("relocation.cu", "reassign", (len(numbers), *self.spread(chunk.n)), (
                chunk.X, chunk.weights, device_mass, which, _arrays(nearest), labels, totals, changed, costs, grid,
                self.rows_of(chunk), k, d))  # fmt: skip
        return Assignment(totals.get(), changed.get()), costs.get().T

    @on_device
    def swap_gains_partial(self, candidates: np.ndarray, nearest: NearestTwo) -> tuple[np.ndarray, np.ndarray]:
        (r, t, d), k = candidates.shape, nearest.at.shape[1]
        device_candidates, cost_scale = to_device(candidates), self.device_grid.cost_scale
        loss, change = cupy.zeros((r, k, 3), np.int64), cupy.zeros((r, t, k + 1, 3), np.int64)
        for chunk in self.pieces(r * t * d):
            self.launch("relocation.cu", "swap_gains", self.spread(r * chunk.n), (
                chunk.X, chunk.weights, device_candidates, _arrays(nearest), loss, change, self.rows_of(chunk),
                structs.Shape(r, k, d), t, cost_scale))  # fmt: skip
        return loss.get(), change.get()

    def _no_nearest(self, r: int, k: int, d: int) -> NearestTwo:
        """Memory for the nearest centres, and centres that equal no others."""
        first, second, near, far = (cupy.zeros((r, self.points.n), t) for t in (np.int32, np.int32, float, float))
        return NearestTwo(first, second, near, far, np.full((r, k, d), np.nan))


def _arrays(nearest: NearestTwo) -> structs.NearestTwo:
    return structs.NearestTwo(nearest.first, nearest.second, nearest.near, nearest.far)
