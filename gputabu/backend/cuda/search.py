"""The tabu search on the device: nothing is allocated and nothing waits for the host inside the loop.

Small data (all of it in the shared memory of a block): one launch runs every restart to its end. Otherwise one
iteration (assign, prepare, survey, step) is captured as a graph and replayed; the host looks at the restarts' stop
flags every POLL iterations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cupy
import numpy as np

from gputabu.backend.arithmetic.constants import LIMB, NOISE
from gputabu.backend.arithmetic.fixed_point import power
from gputabu.backend.loops import QuantizedRun, QuantizedSettings
from gputabu.core.results import Stop

if TYPE_CHECKING:
    from gputabu.backend.cuda.backend import CudaBackend

#: Iterations between two looks at the stop flags.
POLL = 16
#: What kernels/search.cuh says of the end of a restart.
STOPS: tuple[Stop | None, ...] = (None, Stop.PATIENCE, Stop.MAX_ITER, Stop.TARGET)
#: Share of the free memory that the state of a search may take.
STATE_SHARE = 0.25


def explore(backend: CudaBackend, means: np.ndarray, orders: QuantizedSettings) -> QuantizedRun | None:
    """Run R searches from means (R, K); None where that needs the host: streamed points, or no room."""
    chunks = backend.chunks.resident
    if chunks is None or len(chunks) != 1:
        return None
    search = DeviceSearch(backend, chunks[0], means, orders)
    if search.bytes > STATE_SHARE * backend.device.mem_info[0]:
        return None
    search.allocate()
    if search.block_bytes <= backend.shared_limit and not orders.monitor.timed:  # nothing ends a launch
        return search.in_blocks()
    return search.in_graph()


class DeviceSearch:
    """The state of R restarts in device memory. Names and shapes are those of kernels/step.cu."""

    def __init__(self, backend: CudaBackend, chunk: Any, means: np.ndarray, orders: QuantizedSettings) -> None:
        self.backend, self.chunk, self.orders = backend, chunk, orders
        self.start = np.ascontiguousarray(means, np.int64)
        self.r, self.k = means.shape
        self.n, self.d = backend.points.n, backend.points.d
        self.columns = backend.n_columns
        # A row holds each point once at the most, and gains one entry per iteration.
        self.capacity = min(orders.max_iter + 1, self.n + 1)

    @property
    def bytes(self) -> int:
        """Device memory of the state."""
        trace = (orders_t := self.orders.max_iter + 1) * (16 + 8 * self.k)
        rows = 8 * self.k * (self.capacity + self.columns + 3 * self.d)
        return self.r * (trace + rows + 8 * self.n + orders_t)

    @property
    def block_bytes(self) -> int:
        """Shared memory that a whole search in one block needs; see block_search."""
        size, n, k, d = self.backend.points.dtype.itemsize, self.n, self.k, self.d
        doubles = 4 * d + 2 * k * d + k * self.columns + 3 * k
        return 8 * doubles + size * (n * d + k * d + k + 3) + 4 * n + 4 * (-(-n // 32)) + 64

    def allocate(self) -> None:
        r, k, t = self.r, self.k, self.orders.max_iter + 1
        self.means = cupy.asarray(self.start)
        self.rows = cupy.empty((r, k, self.capacity), np.int64)
        self.length = cupy.zeros((r, k), np.int32)
        self.best_means = cupy.empty((r, k), np.int64)
        self.best_cost = cupy.empty(r, np.float64)
        self.stale, self.done = cupy.zeros(r, np.int32), cupy.zeros(r, np.int32)
        self.age = cupy.asarray(np.ones(r, np.int32))
        self.current = cupy.asarray(np.full((r, t), np.nan))
        self.best = cupy.asarray(np.full((r, t), np.nan))
        self.path = cupy.asarray(np.full((r, t, k), -1, np.int64))

    # -- one launch ------------------------------------------------------------------------------

    def in_blocks(self) -> QuantizedRun:
        backend, grid = self.backend, self.backend.grid
        refined = cupy.empty((self.r, self.k, self.d), np.float64)
        passed = cupy.empty((self.r, self.orders.rounds), np.uint64)
        backend.launch("block.cu", "block_search", (self.r,), (
            self.chunk.X, self.chunk.weights, *self._restart(), refined, passed, *self._grid_arrays(),
            float(power(LIMB - grid.weight)), *self._weight_powers(), float(power(LIMB - grid.cost)),
            *self._cost_powers(), float(power(100 - grid.square)), *self._marks(), *self._trust(), self.n, self.k,
            self.d, *self._limits(), self.orders.rounds), self.block_bytes)  # fmt: skip
        return self._explored(refined.get())

    # -- a graph ---------------------------------------------------------------------------------

    def in_graph(self) -> QuantizedRun:
        backend, r, k, d = self.backend, self.r, self.k, self.d
        self.labels = backend.blank_labels(r)
        self.stamps = cupy.zeros((r, self.n), np.int32)
        self.totals = cupy.zeros((r, k, self.columns), np.int64)
        self.changed = cupy.zeros(r, np.int64)
        self.centers = cupy.asarray(np.ascontiguousarray(backend.rows(self.start)))
        self.centroids = cupy.empty((r, k, d), np.float64)
        self.costs, self.keys = cupy.zeros((r, 3), np.int64), cupy.empty((r, k), np.uint64)
        self.fast = backend.empty_fast(r, k)
        self.offset, self.scale, self.high, self.low = self._grid_arrays()
        unit, *trust = self._trust()
        backend.launch("step.cu", "ready", (r,), (self.centers, *self.fast, self.offset, k, d, unit, *trust))
        self._iteration()  # judges the start; compiles what the capture must not
        stream = backend.stream
        stream.begin_capture()
        self._iteration()
        graph = stream.end_capture()
        for iteration in range(1, self.orders.max_iter + 1):
            graph.launch(stream)
            # The loop's one copy and synchronisation.
            if iteration % POLL == 0 and (self.done.get().all() or self.orders.monitor.should_stop()):
                break
            if iteration % POLL == 0 and self.orders.monitor.report_due():
                self._show()
        return self._explored(None)

    def _iteration(self) -> None:
        backend, grid, r, k, d = self.backend, self.backend.grid, self.r, self.k, self.d
        unit, *trust = self._trust()
        backend.launch_assign(self.chunk, self.centers, self.fast, self.offset, self.scale, self.labels, self.totals,
                          self.changed, self.done, unit)  # fmt: skip
        backend.launch("step.cu", "prepare", backend.spread(r * k * max(d, self.capacity)), (
            self.totals, self.centers, self.centroids, self.rows, self.length, self.labels, self.stamps, self.age,
            self.costs, self.keys, self.done, self.offset, self.high, self.low, *self._weight_powers(), self.n, r, k,
            d, self.capacity, int(self.chunk.weights is not None), int(self.orders.shared)))  # fmt: skip
        backend.launch_survey(self.chunk, self.centroids, self.labels, grid.cost, grid.square, self.costs, self.keys,
                          self.stamps, self.age, None, self.done)  # fmt: skip
        backend.launch("step.cu", "step", (r,), (
            self.chunk.X, self.chunk.weights, self.labels, self.totals, self.keys, self.costs, *self._restart(),
            self.centers, *self.fast,
            self.offset, *self._cost_powers(), *self._marks(), unit, *trust, self.n, k, d, self.columns,
            *self._limits()), 16 * k)  # fmt: skip

    def _show(self) -> None:
        """Tell how far the restarts are."""
        self.orders.monitor.report_restarts(self.age.get() - 2, self.best_cost.get(), self.done.get() != 0)

    # -- arguments -------------------------------------------------------------------------------

    def _restart(self) -> tuple[Any, ...]:
        return (self.means, self.rows, self.length, self.best_means, self.best_cost, self.stale, self.age, self.done,
                self.current, self.best, self.path)  # fmt: skip

    def _limits(self) -> tuple[int, ...]:
        orders = self.orders
        return self.capacity, orders.max_iter, orders.patience, int(orders.shared)

    def _marks(self) -> tuple[float, float]:
        """What J is compared with: the factor to be undercut, and the target."""
        return 1 - NOISE, float(self.orders.target)

    def _grid_arrays(self) -> tuple[Any, ...]:
        """Offset, and the powers of two to and from the limbs of the coordinates, (d) each."""
        grid = self.backend.grid
        powers = (
            power(LIMB - grid.coordinate),
            power(grid.coordinate - LIMB),
            power(grid.coordinate - 2 * LIMB),
        )
        return tuple(cupy.asarray(np.asarray(array, np.float64)) for array in (grid.offset, *powers))

    def _weight_powers(self) -> tuple[float, float]:
        e = self.backend.grid.weight
        return float(power(e - LIMB)), float(power(e - 2 * LIMB))

    def _cost_powers(self) -> tuple[float, float, float]:
        e = self.backend.grid.cost
        return float(power(e - LIMB)), float(power(e - 2 * LIMB)), float(power(e - 3 * LIMB))

    def _trust(self) -> tuple[float, float, float, float]:
        """All centres are data points or their means: they lie in the box."""
        bounds = self.backend.bounds
        return self.backend.trust(self.backend.grid.offset, np.stack([bounds.low, bounds.high]))

    def _explored(self, centers: np.ndarray | None) -> QuantizedRun:
        length = int(np.isfinite(self.current.get()).sum(axis=1).max())
        return QuantizedRun(
            means=self.best_means.get(),
            stop=[STOPS[code] for code in self.done.get()],
            current=self.current.get()[:, :length],
            best=self.best.get()[:, :length],
            path=self.path.get()[:, :length],
            centers=centers,
        )
