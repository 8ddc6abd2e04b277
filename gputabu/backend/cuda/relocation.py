"""Relocation on a GPU: the two nearest centres of every point stay there; sums over them come to the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cupy
import numpy as np

from gputabu.backend.arithmetic import rules
from gputabu.backend.contract import Assignment, NearestTwo
from gputabu.backend.cuda import structs
from gputabu.backend.cuda.device import DeviceBackend, on_device, to_device
from gputabu.backend.cuda.points import DeviceChunk


class CudaRelocation(DeviceBackend):
    """The passes of relocation. Names and shapes are those of kernels/relocation.cu."""

    doubt: Callable[[np.ndarray, np.ndarray], structs.Doubt]  # of the whole backend
    _fast: structs.FastCenters | None = None  # room for the fast form of centres

    @on_device
    def nearest_two(self, centers: np.ndarray, previous: NearestTwo | None = None) -> NearestTwo:
        nearest = self._no_nearest(*centers.shape) if previous is None else previous
        stale = np.flatnonzero(rules.moved(centers, nearest.at).any(axis=1))  # restarts
        if len(stale):
            device_centers, which, arrays = to_device(centers), cupy.asarray(stale), _arrays(nearest)
            for chunk in self.chunks:
                self.launch_nearest_two(chunk, device_centers, which, arrays)
            nearest.at[stale] = centers[stale]
        return nearest

    @on_device
    def reassign_partial(
        self, nearest: NearestTwo, labels: Any, mass: np.ndarray | None, active: np.ndarray
    ) -> tuple[Assignment, np.ndarray]:
        (r, k, _), numbers, arrays = nearest.at.shape, np.flatnonzero(active), _arrays(nearest)
        totals, changed = cupy.zeros((r, k, self.n_columns), np.int64), cupy.zeros(r, np.int64)
        costs, device_mass = cupy.zeros((r, 3), np.int64), None if mass is None else to_device(mass)
        which = cupy.asarray(numbers)
        for chunk in self.chunks if len(numbers) else ():
            self.launch_reassign(chunk, device_mass, which, arrays, labels, totals, changed, costs)
        return Assignment(totals.get(), changed.get()), costs.get().T

    @on_device
    def swap_gains_partial(self, candidates: np.ndarray, nearest: NearestTwo) -> tuple[np.ndarray, np.ndarray]:
        (r, t, _), k = candidates.shape, nearest.at.shape[1]
        device_candidates, arrays = to_device(candidates), _arrays(nearest)
        loss, change = cupy.zeros((r, k, 3), np.int64), cupy.zeros((r, t, k + 1, 3), np.int64)
        for chunk in self.chunks:
            self.launch_swap_gains(chunk, device_candidates, arrays, loss, change)
        return loss.get(), change.get()

    # -- launches that a search shares: all arrays are on the device; `done` (R) says which restarts to leave alone --

    def launch_nearest_two(
        self, chunk: DeviceChunk, centers: Any, which: Any, nearest: structs.NearestTwo, done: Any = None
    ) -> None:
        """The two nearest of centers (R, K, d) for the points of a chunk, in the restarts `which` (m) int64.

        Allocates at the first call with a shape only, so that a later one can be captured.
        """
        (r, k, d), m = centers.shape, len(which)
        offset, doubt = (
            self.device_grid.offset,
            self.doubt(self.grid.offset, np.stack([self.bounds.low, self.bounds.high])),
        )
        if self._fast is None or self._fast.norms.shape != (r, k):
            self._fast = structs.FastCenters.empty(r, k, d, self.points.dtype)
        self.launch("fast_centers.cu", "fast_centers", (r,), (centers, self._fast, offset, k, d, doubt))
        for part in self.parts(chunk, m * k * d):
            self.launch("relocation.cu", "nearest_two", self.spread(m * part.n), (
                part.X, centers, self._fast, offset, which, nearest, done, self.rows_of(part), m, k, d,
                doubt.unit))  # fmt: skip

    def launch_reassign(
        self, chunk: DeviceChunk, mass: Any, which: Any, nearest: structs.NearestTwo, labels: Any, totals: Any,
        changed: Any, costs: Any, done: Any = None,
    ) -> None:  # fmt: skip
        """Labels of the points of a chunk by Hartigan's rule, or without masses by the nearest centre."""
        k, d, m = totals.shape[1], self.points.d, len(which)
        for part in self.parts(chunk, m * d):
            self.launch("relocation.cu", "reassign", (m, *self.spread(part.n)), (
                part.X, part.weights, mass, which, nearest, labels, totals, changed, costs, done, self.device_grid,
                self.rows_of(part), k, d))  # fmt: skip

    def launch_swap_gains(
        self, chunk: DeviceChunk, candidates: Any, nearest: structs.NearestTwo, loss: Any, change: Any, done: Any = None
    ) -> None:
        """What the points of a chunk add to the loss of centres and to how candidates (R, T, d) change it."""
        (r, t, d), k = candidates.shape, loss.shape[1]
        for part in self.parts(chunk, r * t * d):
            self.launch("relocation.cu", "swap_gains", self.spread(r * part.n), (
                part.X, part.weights, candidates, nearest, loss, change, done, self.rows_of(part),
                structs.Shape(r, k, d), t, self.device_grid.cost_scale))  # fmt: skip

    def _no_nearest(self, r: int, k: int, d: int) -> NearestTwo:
        """Memory for the nearest centres, and centres that equal no others."""
        first, second, near, far = (cupy.zeros((r, self.points.n), t) for t in (np.int32, np.int32, float, float))
        return NearestTwo(first, second, near, far, np.full((r, k, d), np.nan))


def _arrays(nearest: NearestTwo) -> structs.NearestTwo:
    return structs.NearestTwo(nearest.first, nearest.second, nearest.near, nearest.far)
