"""The CUDA backend: every operation of `Ops` as raw kernels over device memory, with the bits of NumPy."""

from __future__ import annotations

import functools
from collections.abc import Callable
from functools import cached_property
from typing import Any, Self, TypeVar

import cupy
import numpy as np

from gputabu.backend import device_search
from gputabu.backend.certified import unit_for
from gputabu.backend.device_points import DevicePoints
from gputabu.backend.kernels import launch
from gputabu.backend.ops import Assigned, Explored, Orders, Surveyed
from gputabu.points import LIMB, Bounds, Grid, Points, Totals, check_span, from_limbs, power
from gputabu.validation import check_range

THREADS = 256
#: Blocks per multiprocessor: enough to hide latency, few enough that private tables are written back seldom.
BLOCKS_PER_SM = 2
#: Coordinates up to which a point is held in registers.
REGISTER_D = 32
#: Restarts that share one read of a point in the survey.
GROUP = 8
#: Rows of a tile in which K-Means++ looks up a draw.
TILE = 1024
NO_KEY = np.uint64(2**64 - 1)

Method = TypeVar("Method", bound=Callable[..., Any])


def on_device(method: Method) -> Method:
    """Run a method with the device and the stream of its ops current; with fewer points there if memory is short.

    Operations allocate before they change anything, so that one that ran out of memory can begin again.
    """

    @functools.wraps(method)
    def run(self: CudaOps, *args: Any, **kwargs: Any) -> Any:
        with self.device, self.stream:
            while True:
                try:
                    return method(self, *args, **kwargs)
                except cupy.cuda.memory.OutOfMemoryError as error:
                    held = self.__dict__.get("chunks")
                    if held is None or not held.shrink():
                        raise MemoryError(
                            f"Out of device memory on device {self.device.id} ({error}) even with the points streamed "
                            "in small chunks; use fewer restarts at once, or a device with more memory."
                        ) from None

    return run  # type: ignore[return-value]


class CudaOps:
    """A data set on a GPU. See `gputabu.backend.ops.Ops` for what each operation promises."""

    name = "cuda"

    def __init__(self, points: Points, device: int | None = None) -> None:
        if points.n >= 2**32:
            raise ValueError(f"n_samples={points.n} must be below 2^32 on backend='cuda'.")
        self.points = points
        if points.on_device and device not in (None, points.chunks[0].device.id):
            raise ValueError(f"device={device} is not where X is: device {points.chunks[0].device.id}.")
        self.device = points.chunks[0].device if points.on_device else cupy.cuda.Device(device)
        with self.device:
            before = cupy.cuda.Event()
            before.record(cupy.cuda.get_current_stream())
            self.stream = cupy.cuda.Stream(non_blocking=True)
            self.stream.wait_event(before)  # whatever is still writing X
            attributes = self.device.attributes
            self.blocks = BLOCKS_PER_SM * attributes["MultiProcessorCount"]
            self.shared_limit = attributes.get("MaxSharedMemoryPerBlockOptin", 48 * 1024)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stream.synchronize()

    @cached_property
    def chunks(self) -> DevicePoints:
        with self.device, self.stream:
            return DevicePoints(self.points)

    # -- the data set ----------------------------------------------------------------------------

    @cached_property
    @on_device
    def bounds(self) -> Bounds:
        d = self.points.d
        low, high = _uploaded(d, NO_KEY), cupy.zeros(d, np.uint64)
        bad = cupy.zeros(1, np.int64)
        for chunk in self.chunks:
            self._launch("measure.cu", "bounds", self._columns(chunk), (
                chunk.X, chunk.weights, low, high, bad, chunk.n, d))  # fmt: skip
        if int(bad.get()[0]):
            raise ValueError("X contains NaN or infinity; every value must be a finite number.")
        weight = 1.0 if self.points.weights is None else max(float(w.max()) for w in self.points.weights)
        bounds = Bounds(_unsorted(low.get()), _unsorted(high.get()), weight)
        check_range(float(bounds.low.min()), float(bounds.high.max()), "X")
        check_span(bounds)
        return bounds

    @cached_property
    @on_device
    def grid(self) -> Grid:
        bounds, dtype = self.bounds, self.points.dtype
        middle = (bounds.low / 2 + bounds.high / 2).astype(dtype).astype(float)
        first = Grid.around(bounds, middle)
        totals = cupy.zeros(self._n_columns, np.int64)
        offset, scale = cupy.asarray(middle), cupy.asarray(_scales(first))
        for chunk in self.chunks:
            self._launch("measure.cu", "total", self._columns(chunk), (
                chunk.X, chunk.weights, offset, scale, totals, chunk.n, self.points.d,
                float(power(LIMB - first.weight))))  # fmt: skip
        mean = first.centroids(totals.get()[None, None], middle)[0, 0].astype(dtype).astype(float)
        return Grid.around(bounds, np.clip(mean, bounds.low, bounds.high))

    @cached_property
    @on_device
    def scatter(self) -> float:
        labels = cupy.zeros((1, self.points.n), np.int32)
        return float(self.objective(self.grid.offset[None, None], labels)[0])

    @on_device
    def rows(self, indices: np.ndarray) -> np.ndarray:
        if not self.points.on_device:
            return self.points.rows(indices)
        wanted = cupy.asarray(np.ascontiguousarray(indices).ravel())
        found = cupy.empty((wanted.size, self.points.d), np.float64)
        for chunk in self.chunks:
            self._launch("measure.cu", "fetch_rows", self._spread(found.size), (
                chunk.X, wanted, found, chunk.n, chunk.start, wanted.size, self.points.d))  # fmt: skip
        return found.get().reshape(*indices.shape, self.points.d)

    # -- labels ----------------------------------------------------------------------------------

    @on_device
    def blank(self, restarts: int) -> Any:
        return _filled((restarts, self.points.n), np.int32(-1))

    @on_device
    def take(self, labels: Any, restarts: np.ndarray) -> Any:
        to = cupy.empty((len(restarts), self.points.n), np.int32)
        if len(restarts):
            picks = cupy.asarray(np.asarray(restarts, np.int64))
            self._launch("measure.cu", "pick_labels", self._spread(to.size), (
                labels, to, picks, len(restarts), self.points.n))  # fmt: skip
        return to

    @on_device
    def fetch(self, labels: Any, restart: int) -> np.ndarray:
        return labels[restart].get()

    # -- passes ----------------------------------------------------------------------------------

    @on_device
    def assign(self, centers: np.ndarray, labels: Any) -> Assigned:
        r, k, _ = centers.shape
        totals = cupy.zeros((r, k, self._n_columns), np.int64)
        changed = cupy.zeros(r, np.int64)
        self._relabel(centers, labels, totals, changed, self.grid.offset)
        return Assigned(totals.get(), changed.get())

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
    def survey(self, centers: np.ndarray, labels: Any, tabu: np.ndarray, shared: bool, best: int) -> Surveyed:
        r, k, _ = centers.shape
        n = self.points.n
        where = cupy.asarray(np.ascontiguousarray(centers))
        entries = cupy.asarray(np.ascontiguousarray(tabu))
        stamps, age = cupy.zeros((r, n), np.int32), _filled(r, np.int32(1))
        inside = np.zeros(tabu.shape, bool)
        if tabu.size:
            owners = cupy.empty(tabu.shape, np.int32)
            self._launch("measure.cu", "labels_of", self._spread(tabu.size), (
                labels, entries, owners, n, r, tabu.size // r))  # fmt: skip
            self._launch("measure.cu", "mark", self._spread(tabu.size), (
                labels, entries, stamps, age, n, r, k, tabu.shape[2], int(shared)))  # fmt: skip
            inside = (owners.get() == np.arange(k)[:, None]) & (tabu >= 0)
            if self.points.weights is not None:
                inside &= self.points.weights_at(tabu) > 0
        index = np.empty((r, k, best), np.int64)
        bar, cost = None, None
        for i in range(best):  # the runners-up by further surveys, each above the last
            costs, keys = cupy.zeros((r, 3), np.int64), _filled((r, k), NO_KEY)
            self._survey(where, labels, self.grid.cost, self.grid.square, costs, keys, stamps, age, bar)
            found = keys.get()
            index[..., i] = np.where(found == NO_KEY, -1, (found & np.uint64(0xFFFFFFFF)).astype(np.int64))
            cost = from_limbs(*costs.get().T, exponents=self.grid.cost) if cost is None else cost
            bar = keys
        assert cost is not None
        return Surveyed(cost, index, inside)

    @on_device
    def explore(self, means: np.ndarray, orders: Orders) -> Explored | None:
        return device_search.explore(self, means, orders)

    @on_device
    def objective(self, centers: np.ndarray, labels: Any) -> np.ndarray:
        cost = Grid.around(self.bounds.joined(centers), self.grid.offset).cost
        costs = cupy.zeros((len(centers), 3), np.int64)
        where = cupy.asarray(np.ascontiguousarray(centers))
        self._survey(where, labels, cost, self.grid.square, costs)
        return from_limbs(*costs.get().T, exponents=cost)

    @on_device
    def farthest(self, centers: np.ndarray, labels: Any, restart: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        scale = float(power(100 - Grid.around(self.bounds.joined(centers), self.grid.offset).square))
        where = cupy.asarray(np.ascontiguousarray(centers))
        bar, rows = 2**64 - 1, []
        for _ in range(count):
            key = cupy.zeros(1, np.uint64)
            for chunk in self.chunks:
                self._launch("measure.cu", "farthest", self._spread(chunk.n), (
                    chunk.X, chunk.weights, where, labels[restart], key, chunk.n, chunk.start, 0,
                    self.points.d, scale, 2.0**20, bar))  # fmt: skip
            bar = int(key.get()[0])
            if bar == 0:
                break
            rows.append(0xFFFFFFFF - (bar & 0xFFFFFFFF))
        found = np.array(rows, np.int64)
        return found, self._labels_of(labels, restart, found)

    @on_device
    def closest(self, centers: np.ndarray) -> np.ndarray:
        k = len(centers)
        where = cupy.asarray(np.ascontiguousarray(centers))
        least, row = _filled(k, NO_KEY), _filled(k, NO_KEY)
        for phase in (0, 1):
            for chunk in self.chunks:
                self._launch("measure.cu", "closest", self._spread(chunk.n * k), (
                    chunk.X, chunk.weights, where, least, row, chunk.n, chunk.start, k,
                    self.points.d, phase))  # fmt: skip
        return row.get().astype(np.int64)

    @on_device
    def distances(self, centers: np.ndarray) -> Any:
        k = len(centers)
        where = cupy.asarray(np.ascontiguousarray(centers))
        out = np.empty((self.points.n, k), self.points.dtype)
        parts = []
        for chunk in self.chunks:
            part = cupy.empty((chunk.n, k), self.points.dtype)
            self._launch("measure.cu", "distances", self._spread(part.size), (
                chunk.X, where, part, chunk.n, k, self.points.d))  # fmt: skip
            if self.points.on_device:
                parts.append(part)
            else:
                out[chunk.start : chunk.start + chunk.n] = part.get()
        if self.points.on_device:
            return parts[0] if len(parts) == 1 else cupy.concatenate(parts)
        return out

    # -- seeding ---------------------------------------------------------------------------------

    @on_device
    def nothing_covered(self, restarts: int) -> Any:
        return _filled((restarts, self.points.n), np.inf)

    @on_device
    def cover(self, seeds: np.ndarray, covered: Any) -> None:
        where = cupy.asarray(np.ascontiguousarray(seeds))
        for chunk in self.chunks:
            self._launch("seeding.cu", "cover", (*self._spread(chunk.n), len(seeds)), (
                chunk.X, where, covered, chunk.n, chunk.start, self.points.n, self.points.d))  # fmt: skip

    @on_device
    def potential(self, covered: Any, shift: np.ndarray) -> np.ndarray:
        return self._tile_potentials(covered, shift).sum(axis=1)

    @on_device
    def trial_gains(self, seeds: np.ndarray, covered: Any, shift: np.ndarray) -> np.ndarray:
        r, t, d = seeds.shape
        where, scale = cupy.asarray(np.ascontiguousarray(seeds)), cupy.asarray(power(shift))
        gains = cupy.zeros((r, t), np.int64)
        for chunk in self.chunks:
            self._launch("seeding.cu", "trial_gains", (*self._spread(chunk.n), r * t), (
                chunk.X, chunk.weights, where, covered, scale, gains, chunk.n, chunk.start,
                self.points.n, d, t))  # fmt: skip
        return gains.get()

    @on_device
    def sample(self, covered: Any, shift: np.ndarray, targets: np.ndarray) -> np.ndarray:
        r, t = targets.shape
        running = self._tile_potentials(covered, shift).cumsum(axis=1)  # (R, tiles)
        tile = np.stack(
            [np.searchsorted(mine, wanted, side="right") for mine, wanted in zip(running, targets, strict=True)]
        )
        tile = np.minimum(tile, running.shape[1] - 1)
        passed = np.where(tile > 0, np.take_along_axis(running, np.maximum(tile - 1, 0), axis=1), 0)
        restart = cupy.asarray(np.repeat(np.arange(r), t))
        first, beyond = cupy.asarray((tile * TILE).ravel()), cupy.asarray((targets - passed).ravel())
        found = _filled(r * t, np.int64(-1))
        scale = cupy.asarray(power(shift))
        for chunk in self.chunks:
            self._launch("seeding.cu", "locate", self._spread(r * t), (
                covered, chunk.weights, scale, restart, first, beyond, found, chunk.n, chunk.start,
                self.points.n, TILE, r * t))  # fmt: skip
        return found.get().reshape(r, t)

    def _tile_potentials(self, covered: Any, shift: np.ndarray) -> np.ndarray:
        """Potential of every tile of rows, (R, tiles) int64 on the host."""
        r, tiles = covered.shape[0], -(-self.points.n // TILE)
        sums, scale = cupy.zeros((r, tiles), np.int64), cupy.asarray(power(shift))
        for chunk in self.chunks:
            touched = (chunk.start + chunk.n - 1) // TILE - chunk.start // TILE + 1
            self._launch("seeding.cu", "potential", (touched, r), (
                covered, chunk.weights, scale, sums, chunk.n, chunk.start, self.points.n, TILE, tiles))  # fmt: skip
        return sums.get()

    # -- the pieces ------------------------------------------------------------------------------

    @property
    def _n_columns(self) -> int:
        return Totals.columns(self.points.d, self.points.weights is not None)

    def _launch(
        self,
        file: str,
        name: str,
        grid: tuple[int, ...],
        args: tuple[Any, ...],
        shared: int = 0,
        **defines: int,
    ) -> None:
        launch(file, name, self.points.dtype, grid, THREADS, args, shared, **defines)

    def _spread(self, elements: int) -> tuple[int]:
        """Blocks for a loop that strides over `elements`."""
        return (max(1, min(-(-elements // THREADS), 8 * self.blocks)),)

    def _columns(self, chunk: Any) -> tuple[int, int]:
        """Blocks for kernels with a thread per column that stride over the rows."""
        return (max(1, min(chunk.n, 4 * self.blocks)), -(-self.points.d // THREADS))

    def trust(self, offset: np.ndarray, centers: np.ndarray) -> tuple[float, float, float, float]:
        """unit, and the coefficients of the doubt: of the fast distances, of the canonical ones, of underflow."""
        dtype, d = self.points.dtype, self.points.d
        unit = unit_for(float(np.abs(centers - offset).max()), dtype)
        fast, exact = (2.2 * (d + 8) * np.finfo(t).eps / 2 for t in (dtype, np.float64))
        return unit, float(fast), float(exact), float((d + 2) * np.finfo(dtype).tiny)

    def empty_fast(self, r: int, k: int) -> Fast:
        return Fast.empty(r, k, self.points.d, self.points.dtype)

    def _relabel(self, centers: np.ndarray, labels: Any, totals: Any, changed: Any, offset: np.ndarray) -> None:
        r, k, d = centers.shape
        where = cupy.asarray(np.ascontiguousarray(centers))
        fast = self.empty_fast(r, k)
        unit, *trust = self.trust(offset, centers)
        origin = cupy.asarray(offset)
        self._launch("step.cu", "ready", (r,), (where, *fast, origin, k, d, unit, *trust))
        scale = None if totals is None else cupy.asarray(_scales(self.grid))
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
        if d > REGISTER_D:
            tiles = min(-(-chunk.n // 64), 4 * self.blocks)
            self._launch("assign.cu", "assign_tiled", (max(1, tiles),), (
                chunk.X, chunk.weights, centers, fast.near, fast.norms, fast.doubt, origin, scale, labels,
                totals, changed, done, chunk.n, chunk.start, self.points.n, r, k, d, unit, heavy, int(fresh)))  # fmt: skip
            return
        size = self.points.dtype.itemsize
        always = 8 * (r + 2 * d) + 3 * r * size + 4 * r + 16
        near = r * k * d * size
        resident = always + near <= self.shared_limit
        tables = 0 if totals is None else 8 * r * k * self._n_columns
        private = totals is not None and always + resident * near + tables <= self.shared_limit
        shared = always + resident * near + private * tables
        blocks = max(1, min(-(-chunk.n // THREADS), self.blocks))
        self._launch("assign.cu", "assign", (blocks,), (
            chunk.X, chunk.weights, centers, fast.near, fast.doubt, origin, scale, labels, totals, changed,
            done, chunk.n, chunk.start, self.points.n, r, k, unit, heavy, int(fresh), int(resident), int(private),
        ), shared, D=d)  # fmt: skip

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
        self._launch("survey.cu", "survey", (blocks, -(-r // group)), (
            chunk.X, chunk.weights, centers, labels, stamps, age, bar, costs, keys, done, chunk.n, chunk.start,
            0, self.points.n, r, k, d, float(power(LIMB - cost)), float(power(100 - square)),
            int(resident), int(private)), shared, RG=group)  # fmt: skip

    def _labels_of(self, labels: Any, restart: int, rows: np.ndarray) -> np.ndarray:
        if len(rows) == 0:
            return np.empty(0, np.int32)
        found = cupy.empty(len(rows), np.int32)
        self._launch("measure.cu", "labels_of", self._spread(len(rows)), (
            labels[restart], cupy.asarray(rows), found, self.points.n, 1, len(rows)))  # fmt: skip
        return found.get()


def device_count() -> int:
    """GPUs that CuPy can see."""
    return int(cupy.cuda.runtime.getDeviceCount())


class Fast(tuple):
    """Device arrays of the fast distances: centres relative to the offset, their norms, the doubt."""

    near = property(lambda self: self[0])
    norms = property(lambda self: self[1])
    doubt = property(lambda self: self[2])

    @classmethod
    def empty(cls, r: int, k: int, d: int, dtype: np.dtype) -> Fast:
        return cls(cupy.empty(shape, dtype) for shape in ((r, k, d), (r, k), (r, 3)))


def _filled(shape: Any, value: Any) -> Any:
    return cupy.full(shape, value, np.asarray(value).dtype)


def _uploaded(shape: Any, value: Any) -> Any:
    """As `_filled`, for small arrays: a copy instead of a launch."""
    return cupy.asarray(np.full(shape, value))


def _scales(grid: Grid) -> np.ndarray:
    return np.asarray(power(LIMB - grid.coordinate), np.float64)


def _unsorted(bits: np.ndarray) -> np.ndarray:
    """Undo `sortable` of measure.cu."""
    top = np.uint64(2**63)
    return np.where(bits & top, bits ^ top, ~bits).view(np.float64)
