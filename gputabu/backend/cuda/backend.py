"""The CUDA backend: every operation of `BackendBase` as raw kernels over device memory, with the bits of NumPy."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from gputabu.backend.arithmetic.certified import floor, unit_for
from gputabu.backend.arithmetic.constants import LIMB
from gputabu.backend.arithmetic.fixed_point import power
from gputabu.backend.arithmetic.keys import NOBODY
from gputabu.backend.base import TrialCosts
from gputabu.backend.contract import FAR, Assignment, SurveyPartial, TrialBatch
from gputabu.backend.cuda import search as device_search
from gputabu.backend.cuda.device import NO_KEY, THREADS, filled, on_device, scales
from gputabu.backend.cuda.hartigan import CudaHartigan
from gputabu.backend.cuda.reassignment import CudaTrials
from gputabu.backend.cuda.relocation import CudaRelocation
from gputabu.backend.cuda.seeding import CudaSeeding
from gputabu.backend.loops import Loops, QuantizedRun, QuantizedSettings
from gputabu.core.caching import cached_property

#: Coordinates up to which a point is held in registers.
REGISTER_D = 32
#: Numbers in the static tiles of assign_tiled, with something to spare.
TILES = 6 * 1024
#: Restarts that share one read of a point in the survey.
GROUP = 8


class CudaBackend(CudaSeeding, CudaHartigan, CudaRelocation):
    """A data set on a GPU. See `gputabu.backend.contract.BackendBase` for what each operation promises."""

    name = "cuda"

    @on_device
    def blank_labels(self, restarts: int) -> Any:
        return filled((restarts, self.points.n), np.int32(-1))

    @on_device
    def take_labels(self, labels: Any, restarts: np.ndarray) -> Any:
        to = cupy.empty((len(restarts), self.points.n), np.int32)
        if len(restarts):
            picks = cupy.asarray(np.asarray(restarts, np.int64))
            self.launch("measure.cu", "pick_labels", self.spread(to.size), (
                labels, to, picks, len(restarts), self.points.n))  # fmt: skip
        return to

    @on_device
    def fetch_labels(self, labels: Any, restart: int) -> np.ndarray:
        return labels[restart].get(out=self.allocate((self.points.n,), labels.dtype, 0))

    @on_device
    def assign(self, centers: np.ndarray, labels: Any) -> Assignment:
        r, k, _ = centers.shape
        totals = cupy.zeros((r, k, self.n_columns), np.int64)
        changed = cupy.zeros(r, np.int64)
        self._relabel(centers, labels, totals, changed, self.grid.offset)
        return Assignment(totals.get(), changed.get())

    @on_device
    def label(self, centers: np.ndarray) -> Any:
        r, _, d = centers.shape
        if self.points.on_device:
            self.bounds  # noqa: B018 (says so where X is not finite)
        middle = centers.reshape(-1, d).mean(axis=0).astype(self.points.dtype).astype(float)
        labels = cupy.empty((r, self.points.n), np.int32)
        self._relabel(centers, labels, None, cupy.zeros(r, np.int64), middle)
        return labels

    @on_device
    def survey_partial(
        self, centers: np.ndarray, labels: Any, tabu: np.ndarray, shared: bool, best: int
    ) -> SurveyPartial:
        r, k, _ = centers.shape
        n = self.points.n
        where = cupy.asarray(np.ascontiguousarray(centers))
        entries = cupy.asarray(np.ascontiguousarray(tabu))
        stamps, age = cupy.zeros((r, n), np.int32), filled(r, np.int32(1))
        inside = np.zeros(tabu.shape, bool)
        if tabu.size:
            owners = cupy.empty(tabu.shape, np.int32)
            self.launch("measure.cu", "labels_of", self.spread(tabu.size), (
                labels, entries, owners, n, r, tabu.size // r))  # fmt: skip
            self.launch("measure.cu", "mark", self.spread(tabu.size), (
                labels, entries, stamps, age, n, r, k, tabu.shape[2], int(shared)))  # fmt: skip
            inside = (owners.get() == np.arange(k)[:, None]) & (tabu >= 0)
            if self.points.weights is not None:
                inside &= self.points.weights_at(tabu) > 0
        value, index = np.empty((r, k, best), np.uint64), np.empty((r, k, best), np.int64)
        bar, limbs = None, None
        for i in range(best):  # the runners-up by further surveys, each above the last
            costs, keys = cupy.zeros((r, 3), np.int64), filled((r, k), NO_KEY)
            self._survey(where, labels, self.grid.cost, self.grid.square, costs, keys, stamps, age, bar)
            found = keys.get()
            value[..., i] = np.where(found == NO_KEY, NOBODY, found >> np.uint64(32))
            index[..., i] = np.where(found == NO_KEY, -1, (found & np.uint64(0xFFFFFFFF)).astype(np.int64))
            limbs = costs.get().T if limbs is None else limbs
            bar = keys
        assert limbs is not None
        return SurveyPartial(limbs, value, index, inside)

    @on_device
    def explore(self, means: np.ndarray, settings: QuantizedSettings) -> QuantizedRun | None:
        return device_search.explore(self, means, settings)

    @cached_property
    def loops(self) -> Loops:
        return CudaLoops(self)

    @cached_property
    @on_device
    def labellings(self) -> CudaTrials:
        return CudaTrials(self)

    @on_device
    def evaluate_trials(self, labels: Any, totals: np.ndarray, lot: TrialBatch) -> TrialCosts:
        return self.labellings.evaluate(labels, totals, lot)

    @on_device
    def apply_trial(
        self, labels: Any, best: Any, lot: TrialBatch, chosen: np.ndarray, better: np.ndarray
    ) -> Assignment:
        return self.labellings.apply_trial(labels, best, lot, chosen, better)

    @on_device
    def evaluate_trials_partial(self, labels: Any, lot: TrialBatch) -> tuple[np.ndarray, np.ndarray]:
        change, prints = self.labellings.draw(labels, lot)
        return change.get(), prints.get()

    @on_device
    def objective_partial(self, centers: np.ndarray, labels: Any, exponent: int) -> np.ndarray:
        costs = cupy.zeros((len(centers), 3), np.int64)
        where = cupy.asarray(np.ascontiguousarray(centers))
        self._survey(where, labels, exponent, self.grid.square, costs)
        return costs.get().T

    @on_device
    def spreads_partial(self, centers: np.ndarray, labels: Any, exponent: int) -> np.ndarray:
        r, k, d = centers.shape
        where, sums = cupy.asarray(np.ascontiguousarray(centers)), cupy.zeros((2, r, k), np.int64)
        for chunk in self.chunks:
            self.launch("measure.cu", "spreads", self.spread(r * chunk.n), (
                chunk.X, chunk.weights, where, labels, sums, chunk.n, chunk.start, self.points.n, r, k, d,
                float(power(LIMB - exponent))))  # fmt: skip
        return sums.get()

    @on_device
    def farthest_partial(self, centers: np.ndarray, labels: Any, restart: int, count: int, scale: int) -> np.ndarray:
        where = cupy.asarray(np.ascontiguousarray(centers))
        bar, keys = 2**64 - 1, []
        for _ in range(count):
            key = cupy.zeros(1, np.uint64)
            for chunk in self.chunks:
                self.launch("measure.cu", "farthest", self.spread(chunk.n), (
                    chunk.X, chunk.weights, where, labels[restart], key, chunk.n, chunk.start, 0,
                    self.points.d, float(power(scale)), 2.0**20, bar))  # fmt: skip
            bar = int(key.get()[0])
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
        k = len(centers)
        where = cupy.asarray(np.ascontiguousarray(centers))
        least, row = filled(k, NO_KEY), filled(k, NO_KEY)
        for phase in (0, 1):
            for chunk in self.chunks:
                self.launch("measure.cu", "closest", self.spread(chunk.n * k), (
                    chunk.X, chunk.weights, where, least, row, chunk.n, chunk.start, k,
                    self.points.d, phase))  # fmt: skip
        bits = least.get()
        return np.where(bits == NO_KEY, np.inf, bits.view(np.float64)), row.get().astype(np.int64)

    @on_device
    def distances(self, centers: np.ndarray) -> Any:
        k = len(centers)
        where = cupy.asarray(np.ascontiguousarray(centers))
        out = np.empty((self.points.n, k), self.points.dtype)
        parts = []
        for chunk in self.chunks:
            part = cupy.empty((chunk.n, k), self.points.dtype)
            self.launch("measure.cu", "distances", self.spread(part.size), (
                chunk.X, where, part, chunk.n, k, self.points.d))  # fmt: skip
            if self.points.on_device:
                parts.append(part)
            else:
                out[chunk.start : chunk.start + chunk.n] = part.get()
        if self.points.on_device:
            return parts[0] if len(parts) == 1 else cupy.concatenate(parts)
        return out

    def trust(self, offset: np.ndarray, centers: np.ndarray) -> tuple[float, float, float, float]:
        """unit, and the coefficients of the doubt: of the fast distances, of the canonical ones, of underflow."""
        dtype, d = self.points.dtype, self.points.d
        unit = unit_for(float(np.abs(centers - offset).max()), dtype)
        fast, exact = (2.2 * (d + 8) * np.finfo(t).eps / 2 for t in (dtype, np.float64))
        return unit, float(fast), float(exact), floor(d, unit, dtype)

    def empty_fast(self, r: int, k: int) -> Fast:
        return Fast.empty(r, k, self.points.d, self.points.dtype)

    def _relabel(self, centers: np.ndarray, labels: Any, totals: Any, changed: Any, offset: np.ndarray) -> None:
        r, k, d = centers.shape
        where = cupy.asarray(np.ascontiguousarray(centers))
        fast = self.empty_fast(r, k)
        unit, *trust = self.trust(offset, centers)
        origin = cupy.asarray(offset)
        self.launch("step.cu", "ready", (r,), (where, *fast, origin, k, d, unit, *trust))
        scale = None if totals is None else cupy.asarray(scales(self.grid))
        for chunk in self.chunks:
            self.launch_assign(
                chunk, where, fast, origin, scale, labels, totals, changed, None, unit, fresh=totals is None
            )

    def launch_assign(
        self, chunk: Any, centers: Any, fast: Any, origin: Any, scale: Any, labels: Any, totals: Any,
        changed: Any, done: Any, unit: float, fresh: bool = False,
    ) -> None:  # fmt: skip
        r, k, d = centers.shape
        heavy = 1.0 if totals is None else float(power(LIMB - self.grid.weight))
        tables = 0 if totals is None else 8 * r * k * self.n_columns
        if d > REGISTER_D:
            tiles = min(-(-chunk.n // 64), 4 * self.blocks)
            private = 0 < tables <= self.shared_limit - TILES * self.points.dtype.itemsize
            self.launch("assign.cu", "assign_tiled", (max(1, tiles),), (
                chunk.X, chunk.weights, centers, fast.near, fast.norms, fast.doubt, origin, scale, labels, totals,
                changed, done, chunk.n, chunk.start, self.points.n, r, k, d, unit, heavy, int(fresh),
                int(private)), private * tables)  # fmt: skip
            return
        size = self.points.dtype.itemsize
        threads = THREADS if d * size <= 128 else THREADS // 2
        always = 8 * (r + 2 * d) + (3 * r + threads * (d | 1)) * size + 4 * r + 16
        near = r * k * d * size
        resident = always + near <= self.shared_limit
        private = totals is not None and always + resident * near + tables <= self.shared_limit
        shared = always + resident * near + private * tables
        blocks = max(1, min(-(-chunk.n // threads), self.blocks))
        self.launch("assign.cu", "assign", (blocks,), (
            chunk.X, chunk.weights, centers, fast.near, fast.doubt, origin, scale, labels, totals, changed,
            done, chunk.n, chunk.start, self.points.n, r, k, unit, heavy, int(fresh), int(resident), int(private),
        ), shared, threads, D=d)  # fmt: skip

    def _survey(
        self, centers: Any, labels: Any, cost: int, square: int, costs: Any, keys: Any = None,
        stamps: Any = None, age: Any = None, bar: Any = None, done: Any = None,
    ) -> None:  # fmt: skip
        for chunk in self.chunks:
            self.launch_survey(chunk, centers, labels, cost, square, costs, keys, stamps, age, bar, done)

    def launch_survey(
        self, chunk: Any, centers: Any, labels: Any, cost: int, square: int, costs: Any, keys: Any,
        stamps: Any, age: Any, bar: Any, done: Any,
    ) -> None:  # fmt: skip
        r, k, d = centers.shape
        group = 1 if r == 1 else GROUP
        tile = THREADS * 33 * self.points.dtype.itemsize
        table, least = 8 * min(group, r) * k * d, 0 if keys is None else 8 * min(group, r) * k
        private = keys is not None and tile + least <= self.shared_limit
        resident = tile + private * least + table <= self.shared_limit
        shared = tile + private * least + resident * table
        blocks = max(1, min(-(-chunk.n // THREADS), self.blocks))
        self.launch("survey.cu", "survey", (-(-r // group), blocks), (
            chunk.X, chunk.weights, centers, labels, stamps, age, bar, costs, keys, done, chunk.n, chunk.start,
            0, self.points.n, r, k, d, float(power(LIMB - cost)), float(power(100 - square)),
            int(resident), int(private)), shared, RG=group)  # fmt: skip

    def _labels_of(self, labels: Any, restart: int, rows: np.ndarray) -> np.ndarray:
        if len(rows) == 0:
            return np.empty(0, np.int32)
        found = cupy.empty(len(rows), np.int32)
        self.launch("measure.cu", "labels_of", self.spread(len(rows)), (
            labels[restart], cupy.asarray(rows), found, self.points.n, 1, len(rows)))  # fmt: skip
        return found.get()


class Fast(tuple):
    """Device arrays of the fast distances: centres relative to the offset, their norms, the doubt."""

    near = property(lambda self: self[0])
    norms = property(lambda self: self[1])
    doubt = property(lambda self: self[2])

    @classmethod
    def empty(cls, r: int, k: int, d: int, dtype: np.dtype) -> Fast:
        return cls(cupy.empty(shape, dtype) for shape in ((r, k, d), (r, k), (r, 3)))


class CudaLoops(Loops):
    """Searches on the device: in one launch, or as a graph that is replayed."""

    def __init__(self, backend: CudaBackend) -> None:
        self.backend = backend

    def quantized(self, means: np.ndarray, settings: QuantizedSettings) -> QuantizedRun | None:
        return self.backend.explore(means, settings)
