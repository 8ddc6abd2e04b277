"""The CUDA backend: labels and K-Means as raw kernels over device memory, with the bits of NumPy."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from gputabu.backend.arithmetic.constants import LIMB
from gputabu.backend.arithmetic.fixed_point import power
from gputabu.backend.arithmetic.keys import NO_KEY
from gputabu.backend.contract import FAR, Assignment
from gputabu.backend.cuda import structs
from gputabu.backend.cuda.assign import CudaAssign
from gputabu.backend.cuda.device import filled, on_device, to_device
from gputabu.backend.cuda.fuzzy import CudaFuzzy
from gputabu.backend.cuda.hartigan import CudaHartigan
from gputabu.backend.cuda.reassignment import CudaReassignment
from gputabu.backend.cuda.relocation import CudaRelocation
from gputabu.backend.cuda.search import CudaLoops
from gputabu.backend.cuda.seeding import CudaSeeding
from gputabu.backend.cuda.splits import CudaSplits
from gputabu.backend.cuda.tabu_argmin import CudaTabuArgmin
from gputabu.backend.cuda.transfers import CudaTransfers
from gputabu.backend.loops import Loops
from gputabu.core.caching import cached_property


class CudaBackend(
    CudaAssign,
    CudaTabuArgmin,
    CudaSeeding,
    CudaHartigan,
    CudaRelocation,
    CudaReassignment,
    CudaSplits,
    CudaTransfers,
    CudaFuzzy,
):
    """A data set on a GPU. See `gputabu.backend.contract.Backend` for what each pass promises."""

    name = "cuda"

    @cached_property
    def loops(self) -> Loops:
        return CudaLoops(self)

    # -- labels ------------------------------------------------------------------------------------

    @on_device
    def blank_labels(self, restarts: int) -> Any:
        return filled((restarts, self.points.n), np.int32(-1))

    @on_device
    def take_labels(self, labels: Any, restarts: np.ndarray) -> Any:
        taken = cupy.empty((len(restarts), self.points.n), np.int32)
        if len(restarts):
            picks = cupy.asarray(np.asarray(restarts, np.int64))
            self.launch("labels.cu", "pick_labels", self.spread(taken.size), (
                labels, taken, picks, len(restarts), self.points.n))  # fmt: skip
        return taken

    @on_device
    def fetch_labels(self, labels: Any, restart: int) -> np.ndarray:
        return labels[restart].get(out=self.allocate((self.points.n,), labels.dtype, 0))

    @on_device
    def label(self, centers: np.ndarray) -> Any:
        r, _, d = centers.shape
        if self.points.on_device:
            self.bounds  # noqa: B018 (says so where X is not finite)
        middle = centers.reshape(-1, d).mean(axis=0).astype(self.points.dtype).astype(float)
        labels = cupy.empty((r, self.points.n), np.int32)
        only_offset = structs.Grid(cupy.asarray(middle))
        self._assign(centers, labels, None, cupy.zeros(r, np.int64), only_offset, middle)
        return labels

    # -- K-Means -----------------------------------------------------------------------------------

    @on_device
    def assign(self, centers: np.ndarray, labels: Any) -> Assignment:
        r, k, _ = centers.shape
        totals = cupy.zeros((r, k, self.n_columns), np.int64)
        changed = cupy.zeros(r, np.int64)
        self._assign(centers, labels, totals, changed, self.device_grid, self.grid.offset)
        return Assignment(totals.get(), changed.get())

    def _assign(
        self, centers: np.ndarray, labels: Any, totals: Any, changed: Any, grid: structs.Grid, offset: np.ndarray
    ) -> None:
        """Labels of all chunks by the nearest of `centers`; `offset` is that of the grid, on the host."""
        device_centers, ready = to_device(centers), self.empty_centers(*centers.shape[:2])
        doubt = self.doubt(offset, centers)
        self.make_fast(device_centers, ready.fast, grid.offset, doubt)
        for chunk in self.chunks:
            self.launch_assign(chunk, device_centers, ready, grid, labels, totals, changed, None, doubt)
        self.adapted(device_centers, ready, grid.offset, doubt)

    @on_device
    def spreads_partial(self, centers: np.ndarray, labels: Any, exponent: int) -> np.ndarray:
        r, k, d = centers.shape
        device_centers, sums = to_device(centers), cupy.zeros((2, r, k), np.int64)
        for chunk in self.pieces(r * d):
            self.launch("measure.cu", "spreads", self.spread(r * chunk.n), (
                chunk.X, chunk.weights, device_centers, labels, sums, chunk.n, chunk.start, self.points.n, r, k, d,
                float(power(LIMB - exponent))))  # fmt: skip
        return sums.get()

    @on_device
    def farthest_partial(self, centers: np.ndarray, labels: Any, restart: int, count: int, scale: int) -> np.ndarray:
        device_centers = to_device(centers)
        bar, keys = 2**64 - 1, []
        for _ in range(count):
            best = cupy.zeros(1, np.uint64)
            for chunk in self.pieces(self.points.d):
                self.launch("measure.cu", "farthest", self.spread(chunk.n), (
                    chunk.X, chunk.weights, device_centers, labels[restart], best, chunk.n, chunk.start,
                    self.points.d, float(power(scale)), bar))  # fmt: skip
            bar = int(best.get()[0])
            if bar == 0:
                break
            keys.append(bar)
        key, found = np.array(keys, np.uint64), np.empty(len(keys), FAR)
        found["value"] = (key >> np.uint64(32)).astype(np.uint32).view(np.float32)
        found["row"] = 0xFFFFFFFF - (key & np.uint64(0xFFFFFFFF)).astype(np.int64)
        found["owner"] = self._labels_of(labels, restart, found["row"].copy())
        return found

    @on_device
    def closest_partial(self, centers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        k, device_centers = len(centers), to_device(centers)
        least, row = filled(k, NO_KEY), filled(k, NO_KEY)
        for phase in (0, 1):
            for chunk in self.pieces(k * self.points.d):
                self.launch("measure.cu", "closest", self.spread(chunk.n * k), (
                    chunk.X, chunk.weights, device_centers, least, row, chunk.n, chunk.start, k,
                    self.points.d, phase))  # fmt: skip
        bits = least.get()
        return np.where(bits == NO_KEY, np.inf, bits.view(np.float64)), row.get().astype(np.int64)

    @on_device
    def distances(self, centers: np.ndarray) -> Any:
        k, device_centers = len(centers), to_device(centers)
        found = np.empty((self.points.n, k), self.points.dtype)
        parts = []
        for chunk in self.pieces(k * self.points.d):
            part = cupy.empty((chunk.n, k), self.points.dtype)
            self.launch("measure.cu", "distances", self.spread(part.size), (
                chunk.X, device_centers, part, chunk.n, k, self.points.d))  # fmt: skip
            if self.points.on_device:
                parts.append(part)
            else:
                found[chunk.start : chunk.start + chunk.n] = part.get()
        if self.points.on_device:
            return parts[0] if len(parts) == 1 else cupy.concatenate(parts)
        return found

    def _labels_of(self, labels: Any, restart: int, rows: np.ndarray) -> np.ndarray:
        if len(rows) == 0:
            return np.empty(0, np.int32)
        found = cupy.empty(len(rows), np.int32)
        self.launch("labels.cu", "labels_of", self.spread(len(rows)), (
            labels[restart], cupy.asarray(rows), found, self.points.n, 1, len(rows)))  # fmt: skip
        return found.get()
