"""Relocation on a GPU: the two nearest centres of every point stay there; sums over them come to the host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import cupy
import numpy as np

from gputabu.backend.arithmetic import rules
from gputabu.backend.contract import Assignment, NearestTwo
from gputabu.backend.cuda import shapes, structs, tensor
from gputabu.backend.cuda.device import DeviceBackend, on_device, to_device
from gputabu.backend.cuda.points import DeviceChunk
from gputabu.backend.cuda.shapes import THREADS
from gputabu.backend.cuda.sources import number


class CudaRelocation(DeviceBackend):
    """The passes of relocation. Names and shapes are those of kernels/relocation.cu."""

    doubt: Callable[[np.ndarray, np.ndarray], structs.Doubt]  # of the whole backend
    _fast: structs.FastCenters | None = None  # room for the fast form of centres,
    _halves: structs.HalfCenters | None = None  # and for halves of them

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
        offset = self.device_grid.offset
        doubt = self._doubt_of_two()
        if self._fast is None or self._fast.norms.shape != (r, k):
            self._fast, self._halves = structs.FastCenters.empty(r, k, d, self.points.dtype), None
        self.launch("fast_centers.cu", "fast_centers", (r,), (centers, self._fast, offset, k, d, doubt))
        tiles = self._tiles(d)
        form = shapes.nearest_two(tensor.room_of(self.device), d, self.points.dtype, tiles is not None)
        halves, trust, padded = structs.NO_HALVES, structs.HalfDoubt(0.0, 0.0, 0.0, 0.0), k
        if tiles is not None:
            padded, trust = tiles.padded(k), tensor.half_doubt(tiles)
            if self._halves is None:
                self._halves = structs.HalfCenters.empty(
                    r, tiles.words_of(k), padded, tiles.tile_n, tiles.qs, tiles.stages, tiles.words
                )
            halves = self._halves._replace(unit=doubt.half)
            shape = structs.Shape(r, k, d)
            self.launch(
                "half_centers.cu", "half_centers", self.spread(32 * r * k), (centers, halves, offset, done, shape)
            )
        mask = (1 << (padded - 1).bit_length()) - 1
        defines = form.defines | {"TENSOR": int(tiles is not None)}
        for part in self.parts(chunk, m * k * d):
            self.launch("nearest_two.cu", "nearest_two", (form.grid(part.n, 16 * self.blocks),), (
                part.X, centers, self._fast, halves, trust, offset, which, nearest, done, self.rows_of(part), m, k, d,
                doubt.unit, padded, mask), form.shared, form.threads, **defines)  # fmt: skip

    def _tiles(self, d: int) -> tensor.TensorForm | None:
        """How the products of `nearest_two` are cut into tiles; None where there are no tensor cores for them."""
        if d < tensor.LEAST_D or not tensor.usable(self.device):
            return None
        return tensor.TensorForm(mi=2, ni=number("nearest_two.cu", "NI"), warps_m=tensor.WARPS, qs=1, words=1, d=d)

    def launch_reassign(
        self, chunk: DeviceChunk, mass: Any, which: Any, nearest: structs.NearestTwo, labels: Any, totals: Any,
        changed: Any, costs: Any, done: Any = None,
    ) -> None:  # fmt: skip
        """Labels of the points of a chunk by Hartigan's rule, or without masses by the nearest centre."""
        k, d, m = totals.shape[1], self.points.d, len(which)
        room = self.room("relocation.cu", "reassign")
        tabled, shared = shapes.reassign(room, k, mass is not None and not self.weighted)
        for part in self.parts(chunk, m * d):
            grid = (m, max(1, min(-(-part.n // THREADS), 4 * self.blocks)))
            self.launch("relocation.cu", "reassign", grid, (
                part.X, part.weights, mass, which, nearest, labels, totals, changed, costs, done, self.device_grid,
                self.rows_of(part), k, d, tabled), shared)  # fmt: skip

    def launch_swap_gains(
        self, chunk: DeviceChunk, candidates: Any, nearest: structs.NearestTwo, loss: Any, change: Any, done: Any = None
    ) -> None:
        """What the points of a chunk add to the loss of centres and to how candidates (R, T, d) change it."""
        (r, t, d), k, grid = candidates.shape, loss.shape[1], self.device_grid
        form = shapes.swap_gains(tensor.room_of(self.device), t, k, d, self.points.dtype)
        for part in self.parts(chunk, r * t * d):
            self.launch("swap_gains.cu", "swap_gains", (r, form.grid(part.n, 4 * self.blocks)), (
                part.X, part.weights, candidates, nearest, loss, change, done, grid.offset, self.rows_of(part),
                structs.Shape(r, k, d), self._doubt_of_two(), t, -(-t // 8), form.private, grid.cost_scale,
                ), form.shared, form.threads, **form.defines)  # fmt: skip

    def _doubt_of_two(self) -> structs.Doubt:
        """How far fast distances to centres within the box of the points can be trusted."""
        return self.doubt(self.grid.offset, np.stack([self.bounds.low, self.bounds.high]))

    def _no_nearest(self, r: int, k: int, d: int) -> NearestTwo:
        """Memory for the nearest centres, and centres that equal no others."""
        first, second, near, far = (cupy.zeros((r, self.points.n), t) for t in (np.int32, np.int32, float, float))
        return NearestTwo(first, second, near, far, np.full((r, k, d), np.nan))


def _arrays(nearest: NearestTwo) -> structs.NearestTwo:
    return structs.NearestTwo(nearest.first, nearest.second, nearest.near, nearest.far)
