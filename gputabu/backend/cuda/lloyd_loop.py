"""K-Means on the device: an iteration is a graph (assign, lloyd_means, lloyd_step) that is replayed.

The host looks at the stop flags now and then. Empty clusters are its work: it finds the farthest points, lends them and
makes that one step, while the restart waits. As a restart that has had one empty cluster may soon have another, the
next looks come sooner.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cupy
import numpy as np

from gputabu.backend.cuda.assign import AssignCenters
from gputabu.backend.cuda.graphs import captured
from gputabu.backend.cuda.memory import upload
from gputabu.backend.cuda.points import DeviceChunk
from gputabu.backend.cuda.structs import PAUSED, STOPS, DescentLimits, Descents, Shape
from gputabu.backend.loops import LloydRun, LloydSettings

if TYPE_CHECKING:
    from gputabu.backend.cuda.backend import CudaBackend


class DeviceDescent:
    """R descents in device memory. Names and shapes are those of kernels/lloyd_loop.cu."""

    ready: AssignCenters

    def __init__(self, backend: CudaBackend, chunk: DeviceChunk, centers: np.ndarray, settings: LloydSettings) -> None:
        self.backend, self.chunk, self.settings = backend, chunk, settings
        self.start = np.ascontiguousarray(centers, np.float64)
        self.shape = Shape(*centers.shape)
        scatter = backend.scatter if settings.traced else 0.0
        self.limits = DescentLimits(float(settings.allowed), scatter, settings.max_iter)
        # Centres stay between the points and the first centres, which may be anywhere.
        corners = np.stack([backend.bounds.low, backend.bounds.high])
        self.doubt = backend.doubt(backend.grid.offset, np.concatenate([corners, self.start.reshape(-1, self.shape.d)]))

    @property
    def bytes(self) -> int:
        """Device memory of the state."""
        r, k, d = self.shape
        trace = (24 if self.settings.traced else 8) * (self.limits.max_iter + 1)
        return r * (8 * k * (3 * d + self.backend.n_columns + 4) + trace + 4 * self.chunk.n)

    def run(self, poll: int) -> LloydRun:
        """All restarts to their end, with a look at them every `poll` iterations."""
        backend, settings = self.backend, self.settings
        self._allocate()
        self._iteration()  # compiles what the capture must not
        self.ready = backend.adapted(self.state.centers, self.ready, backend.device_grid.offset, self.doubt)
        if settings.traced:
            self.state.current[:, 0] = cupy.asarray(backend.objective(self.start, self.labels))
        every = poll
        graph = None
        status = self.status.get()
        while True:
            waiting = np.flatnonzero(status[0] == PAUSED)
            if len(waiting):
                self._step_by_host(waiting)
                status = self.status.get()
            every = 1 if len(waiting) else min(poll, 2 * every)
            if settings.monitor.report_due():
                self._report(status)
            going = status[0] == 0
            if not going.any() or settings.monitor.should_hurry():
                return self._found(status)
            graph = graph or captured(backend.stream, self._iteration)
            for _ in range(min(every, self.limits.max_iter - int(status[1][going].min()))):
                graph.launch(backend.stream)
            status = self.status.get()  # the loop's one copy and synchronisation

    def _allocate(self) -> None:
        backend, (r, k, d), t = self.backend, self.shape, self.limits.max_iter
        traced = self.settings.traced
        self.labels = backend.blank_labels(r)
        self.totals = cupy.zeros((r, k, backend.n_columns), np.int64)
        self.changed = cupy.zeros(r, np.int64)
        self.status = cupy.zeros((2, r), np.int32)
        self.state = Descents(
            centers=upload(self.start),
            means=cupy.empty((r, k, d), np.float64),
            sums=cupy.empty((r, 2, k), np.float64),
            marks=cupy.empty((r, k), np.uint64),
            prints=cupy.empty((r, t), np.uint64),
            done=self.status[0],
            age=self.status[1],
            current=upload(np.full((r, t + 1), np.nan)) if traced else None,
            moves=upload(np.full((r, t), -1, np.int64)) if traced else None,
        )
        self.ready = backend.empty_centers(r, k)
        backend.make_fast(self.state.centers, self.ready.fast, backend.device_grid.offset, self.doubt)

    def _iteration(self) -> None:
        self.backend.launch_assign(
            self.chunk, self.state.centers, self.ready, self.backend.device_grid, self.labels, self.totals,
            self.changed, self.state.done, self.doubt)  # fmt: skip
        self._step(self.totals, 0)

    def _step(self, lent: cupy.ndarray, turn: int) -> None:
        backend, (r, k, _) = self.backend, self.shape
        grid, weighted = backend.device_grid, backend.weighted
        backend.launch("lloyd_loop.cu", "lloyd_means", backend.spread(r * k), (
            self.totals, lent, self.state, grid, self.shape, weighted, turn))  # fmt: skip
        backend.launch("lloyd_loop.cu", "lloyd_step", (r,), (
            self.totals, self.changed, self.state, self.ready.fast, grid, self.doubt, self.limits, self.shape, weighted,
            turn))  # fmt: skip

    def _step_by_host(self, waiting: np.ndarray) -> None:
        """The step of restarts that have empty clusters."""
        lent = self.backend.fill_empty(self.state.centers.get(), self.labels, self.totals.get(), waiting)
        self._step(upload(lent), PAUSED)

    def _report(self, status: np.ndarray) -> None:
        """Tell how far the restarts are."""
        done, made = status
        best = np.full(len(made), np.nan)
        if self.settings.traced:
            best = self.state.current.get()[np.arange(len(made)), made]
        self.settings.monitor.report_restarts(made, best, done != 0)

    def _found(self, status: np.ndarray) -> LloydRun:
        (done, made), state = status, self.state
        if self.settings.traced:
            current, moves = state.current.get()[:, : made.max() + 1], state.moves.get()[:, : made.max()]
        else:
            current, moves = np.empty((len(made), 0)), np.empty((len(made), 0), np.int64)
        return LloydRun(state.centers.get(), [STOPS[code] for code in done], current, moves)
