"""Loops on the device, and the tabu search, the first of them: nothing is allocated or waits for the host inside.

Small data (all of it in the shared memory of a block): one launch runs every restart to its end. Otherwise one
iteration (assign, prepare, survey, step) is captured as a graph and replayed; the host looks at the restarts' stop
flags every POLL iterations. With several neighbours there are as many lanes per restart, and the surveys that the
runners-up come from.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import cupy
import numpy as np

from gputabu.backend.cuda import shapes
from gputabu.backend.cuda.assign import AssignCenters
from gputabu.backend.cuda.graphs import captured
from gputabu.backend.cuda.hartigan_loop import DeviceMoves
from gputabu.backend.cuda.lloyd_loop import DeviceDescent
from gputabu.backend.cuda.memory import available, upload
from gputabu.backend.cuda.points import DeviceChunk
from gputabu.backend.cuda.relocation_loop import DeviceRelocation
from gputabu.backend.cuda.structs import STOPS, Doubt, Lanes, Limits, Restarts, Shape
from gputabu.backend.loops import (
    HartiganRun,
    HartiganSettings,
    LloydRun,
    LloydSettings,
    Loops,
    QuantizedRun,
    QuantizedSettings,
    RelocationRun,
    RelocationSettings,
)
from gputabu.core.log import log

if TYPE_CHECKING:
    from gputabu.backend.cuda.backend import CudaBackend

#: Iterations between two looks at the stop flags.
POLL = 16
#: Numbers of the centres of a restart from which on one block takes longer to fetch them than a launch does.
GATHERED = 2048
#: Share of the free memory that the state of a search may take.
STATE_SHARE = 0.25


class CudaLoops(Loops):
    """Searches on the device: in one launch, or as a graph that is replayed."""

    def __init__(self, backend: CudaBackend) -> None:
        self.backend = backend

    def quantized(self, means: np.ndarray, settings: QuantizedSettings) -> QuantizedRun | None:
        """None where a search needs the host: streamed points, or no room."""
        return self.backend.run(partial(self._quantized, means, settings))

    def _quantized(self, means: np.ndarray, settings: QuantizedSettings) -> QuantizedRun | None:
        chunk = self._chunk()
        if chunk is None:
            return None
        kind = DeviceSearch if settings.n_neighbors == 1 else DeviceNeighbours
        search = kind(self.backend, chunk, means, settings)
        if not self._has_room(search.bytes):
            return None
        search.allocate()
        return search.in_blocks() if search.fits_a_launch else search.in_graph()

    def lloyd(self, centers: np.ndarray, settings: LloydSettings) -> LloydRun | None:
        """None where K-Means needs the host: streamed points, or no room."""
        return self.backend.run(partial(self._lloyd, centers, settings))

    def _lloyd(self, centers: np.ndarray, settings: LloydSettings) -> LloydRun | None:
        chunk = self._chunk()
        if chunk is None:
            return None
        descent = DeviceDescent(self.backend, chunk, centers, settings)
        return descent.run(POLL) if self._has_room(descent.bytes) else None

    def hartigan(self, centers: np.ndarray, settings: HartiganSettings) -> HartiganRun | None:
        """None where single moves need the host: streamed points, no room, or a watchdog, as one launch makes all."""
        return self.backend.run(partial(self._hartigan, centers, settings))

    def _hartigan(self, centers: np.ndarray, settings: HartiganSettings) -> HartiganRun | None:
        chunk = self._chunk()
        if chunk is None or self.backend.watched:
            return None
        moves = DeviceMoves(self.backend, chunk, centers, settings)
        return moves.run(POLL) if self._has_room(moves.bytes) else None

    def relocation(self, centers: np.ndarray, settings: RelocationSettings) -> RelocationRun | None:
        """None where relocation needs the host: streamed points, or no room."""
        return self.backend.run(partial(self._relocation, centers, settings))

    def _relocation(self, centers: np.ndarray, settings: RelocationSettings) -> RelocationRun | None:
        chunk = self._chunk()
        if chunk is None:
            return None
        search = DeviceRelocation(self.backend, chunk, centers, settings)
        return search.run(POLL) if self._has_room(search.bytes) else None

    def _chunk(self) -> DeviceChunk | None:
        """All points, if they are on the device in one piece."""
        chunks = self.backend.chunks.resident
        return None if chunks is None or len(chunks) != 1 else chunks[0]

    def _has_room(self, size: int) -> bool:
        """Whether the state of a search, in bytes, may stay on the device."""
        free = available()
        if size <= STATE_SHARE * free:
            return True
        log.info(
            "the search runs pass by pass: its state takes %.1f MB, the device has %.1f MB free",
            size / 2**20,
            free / 2**20,
        )
        return False


class DeviceSearch:
    """R restarts in device memory. Names and shapes are those of kernels/iteration.cu."""

    ready: AssignCenters

    def __init__(
        self, backend: CudaBackend, chunk: DeviceChunk, means: np.ndarray, settings: QuantizedSettings
    ) -> None:
        self.backend, self.chunk, self.settings = backend, chunk, settings
        self.start = np.ascontiguousarray(means, np.int64)
        r, k = means.shape
        self.shape = Shape(r, k, backend.points.d)
        # A row holds each point once at the most, and gains one entry per iteration.
        capacity = min(settings.max_iter + 1, backend.points.n + 1)
        self.limits = Limits(float(settings.target), capacity, settings.max_iter, settings.patience, settings.shared)

    @property
    def bytes(self) -> int:
        """Device memory of the state."""
        (r, k, d), columns = self.shape, self.limits.max_iter + 1
        trace = columns * (16 + 8 * k)
        rows = 8 * k * (self.limits.capacity + self.backend.n_columns + 3 * d + 2)
        return r * (trace + rows + 8 * self.backend.points.n + columns)

    @property
    def block_bytes(self) -> int:
        """Shared memory that a whole search in one block needs."""
        points = self.backend.points
        return shapes.block_search_bytes(points.n, self.shape, self.backend.n_columns, points.dtype)

    @property
    def fits_a_launch(self) -> bool:
        """Whether a block can hold the search, and nobody need end it: no clock, no watchdog, no Ctrl-C for long."""
        backend, iterations = self.backend, self.limits.max_iter + 1 + self.settings.rounds
        if backend.watched or self.settings.monitor.timed:
            return False
        work = shapes.block_search_work(backend.points.n, self.shape, iterations, backend.blocks)
        return work <= shapes.BLOCK_WORK and self.block_bytes <= backend.room("block_search.cu", "block_search")

    @property
    def doubt(self) -> Doubt:
        """All centres are data points or their means: they lie in the box."""
        bounds = self.backend.bounds
        return self.backend.doubt(self.backend.grid.offset, np.stack([bounds.low, bounds.high]))

    def allocate(self) -> None:
        self.restarts = Restarts.begin(self.start, self.limits.capacity, self.limits.max_iter)

    # -- one launch ------------------------------------------------------------------------------

    def in_blocks(self) -> QuantizedRun:
        backend, rounds = self.backend, self.settings.rounds
        refined = cupy.empty(tuple(self.shape), np.float64)
        passed = cupy.empty((self.shape.r, rounds), np.uint64)
        backend.launch("block_search.cu", "block_search", (self.shape.r,), (
            self.chunk.X, self.chunk.weights, self.restarts, refined, passed, backend.device_grid, self.doubt,
            self.limits, self.shape, backend.points.n, rounds), self.block_bytes)  # fmt: skip
        return self._found(refined.get())

    # -- a graph ---------------------------------------------------------------------------------

    def in_graph(self) -> QuantizedRun:
        backend = self.backend
        self._allocate_passes(self.start)
        self._iteration()  # judges the start; compiles what the capture must not
        self.ready = backend.adapted(self.centers, self.ready, backend.device_grid.offset, self.doubt)
        stream, graph = backend.stream, captured(backend.stream, self._iteration)
        monitor = self.settings.monitor
        for iteration in range(1, self.limits.max_iter + 1):
            graph.launch(stream)
            # The loop's one copy and synchronisation.
            if iteration % POLL == 0 and (self.restarts.done.get().all() or monitor.should_stop()):
                break
            if iteration % POLL == 0 and monitor.report_due():
                self._report()
        return self._found(None)

    def _allocate_passes(self, means: np.ndarray) -> None:
        """What the passes over the points need, from means (R, K) on; of all neighbours, (R·M, K)."""
        backend, (r, k), d = self.backend, means.shape, self.shape.d
        self.labels = backend.blank_labels(r)
        self.stamps = cupy.zeros((r, backend.points.n), np.int32)
        self.totals = cupy.zeros((r, k, backend.n_columns), np.int64)
        self.changed = cupy.zeros(r, np.int64)
        self.centers = cupy.asarray(np.ascontiguousarray(backend.rows(means)))
        self.centroids = cupy.empty((r, k, d), np.float64)
        self.costs, self.keys = cupy.zeros((r, 3), np.int64), cupy.empty((r, k), np.uint64)
        self.scratch = cupy.empty((self.shape.r, 2, k), np.int64)
        self.ready = backend.empty_centers(r, k)
        backend.make_fast(self.centers, self.ready.fast, backend.device_grid.offset, self.doubt)

    def _iteration(self) -> None:
        backend, restarts, (r, k, d) = self.backend, self.restarts, self.shape
        grid, doubt, n = backend.device_grid, self.doubt, backend.points.n
        backend.launch_assign(
            self.chunk, self.centers, self.ready, grid, self.labels, self.totals, self.changed, restarts.done,
            doubt)  # fmt: skip
        backend.launch("iteration.cu", "prepare", backend.spread(r * k * max(d, self.limits.capacity)), (
            self.totals, self.centers, self.centroids, self.labels, self.stamps, self.costs, self.keys, restarts, grid,
            self.limits, self.shape, n, backend.weighted, 1))  # fmt: skip
        backend.launch_survey(
            self.chunk, self.centroids, self.labels, self.costs, self.keys, self.stamps, restarts.age,
            done=restarts.done)  # fmt: skip
        backend.launch("iteration.cu", "step", (r,), (
            self.chunk.X, self.chunk.weights, self.labels, self.totals, self.keys, self.costs, self.centers,
            self.ready.fast, self.scratch, restarts, grid, doubt, self.limits, self.shape, n,
            not self.gathered))  # fmt: skip
        if self.gathered:
            backend.launch("iteration.cu", "gather", backend.spread(r * k * d), (
                self.chunk.X, self.centers, restarts, self.shape))  # fmt: skip

    @property
    def gathered(self) -> bool:
        """Whether the next centres are fetched by a launch of its own, as they are many numbers."""
        return self.ready.fast.centers is None and self.shape.k * self.shape.d > GATHERED

    def _report(self) -> None:
        """Tell how far the restarts are."""
        made, best, done = (array.get() for array in (self.restarts.age, self.restarts.best_cost, self.restarts.done))
        self.settings.monitor.report_restarts(made - 2, best, done != 0)

    def _found(self, centers: np.ndarray | None) -> QuantizedRun:
        restarts = self.restarts
        current = restarts.current.get()
        length = int(np.isfinite(current).sum(axis=1).max())
        return QuantizedRun(
            means=restarts.best_means.get(),
            stop=[STOPS[code] for code in restarts.done.get()],
            current=current[:, :length],
            best=restarts.best.get()[:, :length],
            path=restarts.path.get()[:, :length],
            centers=centers,
        )


class DeviceNeighbours(DeviceSearch):
    """The same with M neighbours of every restart: R·M lanes. Names and shapes are those of kernels/neighbours.cu."""

    fits_a_launch = False

    @property
    def bytes(self) -> int:
        (r, k, d), m = self.shape, self.settings.n_neighbors
        return super().bytes + r * m * (8 * k * (self.backend.n_columns + 3 * d + m + 2) + 8 * self.backend.points.n)

    def _allocate_passes(self, means: np.ndarray) -> None:
        m = self.settings.n_neighbors
        means = np.repeat(means, m, axis=0)  # (R·M, K)
        super()._allocate_passes(means)
        n_lanes, k = means.shape
        self.keys, self.unused = cupy.empty((m, n_lanes, k), np.uint64), cupy.zeros((n_lanes, 3), np.int64)
        self.lanes = Lanes(
            means=upload(means),
            winner=cupy.zeros(self.shape.r, np.int32),
            lost=cupy.zeros(n_lanes, np.int32),
            done=cupy.zeros(n_lanes, np.int32),
            age=cupy.asarray(np.ones(n_lanes, np.int32)),
        )

    def _iteration(self) -> None:
        backend, restarts, lanes, m = self.backend, self.restarts, self.lanes, self.settings.n_neighbors
        (r, k, d), grid, doubt, n = self.shape, backend.device_grid, self.doubt, backend.points.n
        backend.launch_assign(
            self.chunk, self.centers, self.ready, grid, self.labels, self.totals, self.changed, lanes.done,
            doubt)  # fmt: skip
        backend.launch("iteration.cu", "prepare", backend.spread(r * m * k * max(d, self.limits.capacity)), (
            self.totals, self.centers, self.centroids, self.labels, self.stamps, self.costs, self.keys, restarts, grid,
            self.limits, self.shape._replace(r=r * m), n, backend.weighted, m))  # fmt: skip
        backend.launch_survey(
            self.chunk, self.centroids, self.labels, self.costs, self.keys[0], self.stamps, lanes.age,
            done=lanes.done)  # fmt: skip
        backend.launch("neighbours.cu", "neighbours_choose", backend.spread(r), (
            self.costs, restarts, lanes, grid, r, m))  # fmt: skip
        for i in range(1, m):  # each above the last
            backend.launch_survey(
                self.chunk, self.centroids, self.labels, self.unused, self.keys[i], self.stamps, lanes.age,
                self.keys[i - 1], lanes.lost)  # fmt: skip
        backend.launch("neighbours.cu", "neighbours_step", (r,), (
            self.chunk.X, self.chunk.weights, self.labels, self.totals, self.keys, self.costs, self.centers,
            self.ready.fast, self.scratch, restarts, lanes, grid, doubt, self.limits, self.shape, m, n))  # fmt: skip
