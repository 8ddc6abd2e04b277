"""The CUDA backend: labels, K-Means and the survey as raw kernels over device memory, with the bits of NumPy."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from gputabu.backend.arithmetic.certified import floor, unit_for
from gputabu.backend.arithmetic.constants import CUDA_DOUBT_TERMS, DOUBT_FACTOR, LIMB
from gputabu.backend.arithmetic.fixed_point import power
from gputabu.backend.arithmetic.keys import NO_KEY, NOBODY
from gputabu.backend.contract import FAR, Assignment, SurveyPartial
from gputabu.backend.cuda import structs
from gputabu.backend.cuda.device import THREADS, filled, on_device, to_device
from gputabu.backend.cuda.hartigan import CudaHartigan
from gputabu.backend.cuda.launch import static_shared_bytes
from gputabu.backend.cuda.points import DeviceChunk
from gputabu.backend.cuda.reassignment import CudaReassignment
from gputabu.backend.cuda.relocation import CudaRelocation
from gputabu.backend.cuda.search import CudaLoops
from gputabu.backend.cuda.seeding import CudaSeeding
from gputabu.backend.loops import Loops
from gputabu.core.caching import cached_property

#: Coordinates up to which a point is held in registers.
REGISTER_D = 32
#: Points that a block of assign_tiled has at a time.
TILE = 64
#: Restarts that share one read of a point in the survey.
GROUP = 8


class CudaBackend(CudaSeeding, CudaHartigan, CudaRelocation, CudaReassignment):
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

    @on_device
    def objective_partial(self, centers: np.ndarray, labels: Any, exponent: int) -> np.ndarray:
        costs, device_centers = cupy.zeros((len(centers), 3), np.int64), to_device(centers)
        scale = float(power(LIMB - exponent))
        for chunk in self.chunks:
            self.launch_survey(chunk, device_centers, labels, costs, cost_scale=scale)
        return costs.get().T

    @on_device
    def spreads_partial(self, centers: np.ndarray, labels: Any, exponent: int) -> np.ndarray:
        r, k, d = centers.shape
        device_centers, sums = to_device(centers), cupy.zeros((2, r, k), np.int64)
        for chunk in self.chunks:
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
            for chunk in self.chunks:
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
            for chunk in self.chunks:
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
        for chunk in self.chunks:
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

    # -- survey ------------------------------------------------------------------------------------

    @on_device
    def survey_partial(
        self, centers: np.ndarray, labels: Any, tabu: np.ndarray, shared: bool, best: int
    ) -> SurveyPartial:
        r, k, _ = centers.shape
        device_centers = to_device(centers)
        stamps, age = cupy.zeros((r, self.points.n), np.int32), filled(r, np.int32(1))
        inside = self._mark(labels, tabu, shared, stamps, age)
        value, index = np.empty((r, k, best), np.uint64), np.empty((r, k, best), np.int64)
        bar, limbs = None, None
        for i in range(best):  # the runners-up by further surveys, each above the last
            costs, keys = cupy.zeros((r, 3), np.int64), filled((r, k), NO_KEY)
            for chunk in self.chunks:
                self.launch_survey(chunk, device_centers, labels, costs, keys, stamps, age, bar)
            found = keys.get()
            value[..., i] = np.where(found == NO_KEY, NOBODY, found >> np.uint64(32))
            index[..., i] = np.where(found == NO_KEY, -1, (found & np.uint64(0xFFFFFFFF)).astype(np.int64))
            limbs = costs.get().T if limbs is None else limbs
            bar = keys
        assert limbs is not None
        return SurveyPartial(limbs, value, index, inside)

    def _mark(self, labels: Any, tabu: np.ndarray, shared: bool, stamps: Any, age: Any) -> np.ndarray:
        """Stamp the points that tabu (R, K, L) forbids; which entries are inside their cluster, (R, K, L) bool."""
        inside = np.zeros(tabu.shape, bool)
        if not tabu.size:
            return inside
        (r, k, entries), n = tabu.shape, self.points.n
        rows, owners = to_device(tabu), cupy.empty(tabu.shape, np.int32)
        self.launch("labels.cu", "labels_of", self.spread(tabu.size), (
            labels, rows, owners, n, r, tabu.size // r))  # fmt: skip
        self.launch("labels.cu", "mark", self.spread(tabu.size), (
            labels, rows, stamps, age, n, r, k, entries, shared))  # fmt: skip
        inside = (owners.get() == np.arange(k)[:, None]) & (tabu >= 0)
        if self.points.weights is not None:
            inside &= self.points.weights_at(tabu) > 0
        return inside

    def _labels_of(self, labels: Any, restart: int, rows: np.ndarray) -> np.ndarray:
        if len(rows) == 0:
            return np.empty(0, np.int32)
        found = cupy.empty(len(rows), np.int32)
        self.launch("labels.cu", "labels_of", self.spread(len(rows)), (
            labels[restart], cupy.asarray(rows), found, self.points.n, 1, len(rows)))  # fmt: skip
        return found.get()

    # -- launches that a search shares -------------------------------------------------------------

    def doubt(self, offset: np.ndarray, centers: np.ndarray) -> structs.Doubt:
        """How far fast distances to such centres can be trusted."""
        dtype, d = self.points.dtype, self.points.d
        unit = unit_for(float(np.abs(centers - offset).max()), dtype)
        fast, exact = (DOUBT_FACTOR * (d + CUDA_DOUBT_TERMS) * np.finfo(t).eps / 2 for t in (dtype, np.float64))
        return structs.Doubt(unit, float(fast), float(exact), floor(d, unit, dtype))

    def empty_fast(self, r: int, k: int) -> structs.FastCenters:
        return structs.FastCenters.empty(r, k, self.points.d, self.points.dtype)

    def make_fast(self, centers: Any, fast: structs.FastCenters, offset: Any, doubt: structs.Doubt) -> None:
        """Write the fast form of device centres (R, K, d)."""
        r, k, d = centers.shape
        self.launch("fast_centers.cu", "fast_centers", (r,), (centers, fast, offset, k, d, doubt))

    def _assign(
        self, centers: np.ndarray, labels: Any, totals: Any, changed: Any, grid: structs.Grid, offset: np.ndarray
    ) -> None:
        """Labels of all chunks by the nearest of `centers`; `offset` is that of the grid, on the host."""
        r, k, _ = centers.shape
        device_centers, fast = to_device(centers), self.empty_fast(r, k)
        doubt = self.doubt(offset, centers)
        self.make_fast(device_centers, fast, grid.offset, doubt)
        for chunk in self.chunks:
            self.launch_assign(chunk, device_centers, fast, grid, labels, totals, changed, None, doubt.unit)

    def launch_assign(
        self, chunk: DeviceChunk, centers: Any, fast: structs.FastCenters, grid: structs.Grid, labels: Any, totals: Any,
        changed: Any, done: Any, unit: float,
    ) -> None:  # fmt: skip
        """Assign the points of a chunk; without totals only labels are wanted, and none are there before."""
        r, k, d = centers.shape
        tiled = d > REGISTER_D
        count = r if tiled else self._restarts_at_once(r, k, d)
        for first in range(0, r, count):
            here = slice(first, first + count)
            shape = structs.Shape(min(count, r - first), k, d)
            args = (
                chunk.X, chunk.weights, centers[here], structs.FastCenters(*(array[here] for array in fast)),
                labels[here], None if totals is None else totals[here], changed[here],
                None if done is None else done[here], grid, self.rows_of(chunk), shape, unit, totals is None,
            )  # fmt: skip
            launch = self._launch_assign_tiled if tiled else self._launch_assign
            launch(chunk.n, shape, args, totals is not None)

    def _restarts_at_once(self, r: int, k: int, d: int) -> int:
        """How many of R restarts one launch of `assign` can have: each needs a little shared memory."""
        while r > 1 and self._assign_bytes(structs.Shape(r, k, d), False, False) > self.shared_limit:
            r = -(-r // 2)
        return r

    def _assign_bytes(self, shape: structs.Shape, resident: bool, private: bool) -> int:
        r, k, d = shape
        sizes = {"r": r, "k": k, "D": d, "columns": self.n_columns, "threads": self._assign_threads}
        return self.shared_bytes("assign.cu", "ASSIGN_SHARED", resident=resident, private_totals=private, **sizes)

    @property
    def _assign_threads(self) -> int:
        return THREADS if self.points.d * self.points.dtype.itemsize <= 128 else THREADS // 2

    def _launch_assign(self, n: int, shape: structs.Shape, args: tuple[Any, ...], summed: bool) -> None:
        threads = self._assign_threads
        resident = self._assign_bytes(shape, True, False) <= self.shared_limit
        private = summed and self._assign_bytes(shape, resident, True) <= self.shared_limit
        blocks = max(1, min(-(-n // threads), self.blocks))
        shared = self._assign_bytes(shape, resident, private)
        self.launch("assign.cu", "assign", (blocks,), (*args, resident, private), shared, threads, D=shape.d)

    def _launch_assign_tiled(self, n: int, shape: structs.Shape, args: tuple[Any, ...], summed: bool) -> None:
        file, name = "assign_tiled.cu", "assign_tiled"
        shared = self.shared_bytes(
            file, "ASSIGN_TILED_SHARED", r=shape.r, k=shape.k, columns=self.n_columns, private_totals=1)  # fmt: skip
        private = summed and shared <= self.shared_limit - static_shared_bytes(file, name, self.points.dtype)
        blocks = max(1, min(-(-n // TILE), 4 * self.blocks))
        self.launch(file, name, (blocks,), (*args, private), private * shared)

    def launch_survey(
        self, chunk: DeviceChunk, centers: Any, labels: Any, costs: Any, keys: Any = None, stamps: Any = None,
        age: Any = None, bar: Any = None, done: Any = None, cost_scale: float | None = None,
    ) -> None:  # fmt: skip
        """Survey the points of a chunk: costs and, if they are given, keys. J is on the grid unless it has a scale."""
        r, k, d = centers.shape
        group, threads = 1 if r == 1 else GROUP, THREADS

        def bytes_if(resident: bool, private: bool) -> int:
            sizes = {"group": min(group, r), "k": k, "d": d, "threads": threads}
            return self.shared_bytes("survey.cu", "SURVEY_SHARED", resident=resident, private_keys=private, **sizes)

        while bytes_if(False, False) > self.shared_limit:  # float64 where a block has 64 KiB, as on Turing
            threads //= 2
        private = keys is not None and bytes_if(False, True) <= self.shared_limit
        resident = bytes_if(True, private) <= self.shared_limit
        blocks = max(1, min(-(-chunk.n // threads), self.blocks))
        grid = self.device_grid
        self.launch("survey.cu", "survey", (-(-r // group), blocks), (
            chunk.X, chunk.weights, centers, labels, stamps, age, bar, costs, keys, done, self.rows_of(chunk),
            structs.Shape(r, k, d), grid.cost_scale if cost_scale is None else cost_scale, grid.key_scale, resident,
            private), bytes_if(resident, private), threads, RG=group)  # fmt: skip
