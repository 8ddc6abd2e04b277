"""Single moves on the device: a round is a graph (hartigan_prepare, find_moves, hartigan_mark, hartigan_walk).

The host looks now and then at who has ended, and at the end whether labelling anew leaves more to do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import cupy
import numpy as np

from gputabu.backend.arithmetic import rules
from gputabu.backend.cuda.graphs import captured
from gputabu.backend.cuda.memory import upload
from gputabu.backend.cuda.points import DeviceChunk
from gputabu.backend.cuda.structs import STOPS, Shape, SingleMoves
from gputabu.backend.loops import HartiganRun, HartiganSettings
from gputabu.core.results import Stop

if TYPE_CHECKING:
    from gputabu.backend.cuda.backend import CudaBackend


class DeviceMoves:
    """R descents by single moves in device memory. Names and shapes are those of kernels/hartigan_loop.cu."""

    def __init__(
        self, backend: CudaBackend, chunk: DeviceChunk, centers: np.ndarray, settings: HartiganSettings
    ) -> None:
        self.backend, self.chunk, self.settings, self.start = backend, chunk, settings, centers
        self.shape = Shape(*centers.shape)
        self.slack = rules.slack(backend.bounds)

    @property
    def bytes(self) -> int:
        """Device memory of the state."""
        r, k, d = self.shape
        return r * (8 * k * (d + self.backend.n_columns + 2) + 24 * self.chunk.n)

    def run(self, poll: int) -> HartiganRun:
        """All restarts to their end, with a look at them every `poll` rounds."""
        backend, monitor = self.backend, self.settings.monitor
        self._allocate()
        self._round()  # compiles what the capture must not
        graph, hurried = None, False
        while ((status := self.status.get())[0] == 0).any():  # the loop's one copy and synchronisation
            hurried = monitor.should_hurry()
            if hurried:
                break
            graph = graph or captured(backend.stream, self._round)
            for _ in range(poll):
                graph.launch(backend.stream)
        found = HartiganRun(self.state.centers.get(), self.state.made.get())
        if not hurried:
            self._again(found, status[0], poll)
        return found

    def _allocate(self) -> None:
        backend, (r, k, _), n = self.backend, self.shape, self.chunk.n
        labels = backend.blank_labels(r)
        totals = backend.assign(self.start, labels).totals
        self.status = cupy.zeros((2, r), np.int32)
        self.state = SingleMoves(
            totals=upload(totals),
            centers=upload(backend.grid.centroids(totals, self.start)),
            labels=labels,
            mass=cupy.empty((r, 2, k), np.float64),
            targets=backend.blank_labels(r),
            made=cupy.zeros(r, np.int64),
            done=self.status[0],
            age=self.status[1],
        )
        self.count, self.places = cupy.zeros(1, np.uint64), cupy.empty(r * n, np.int64)
        self.moves = cupy.empty((r * n, 2), np.int32)

    def _round(self) -> None:
        backend, chunk, state, (r, k, d), n = self.backend, self.chunk, self.state, self.shape, self.chunk.n
        grid = backend.device_grid
        backend.launch("hartigan_loop.cu", "hartigan_prepare", backend.spread(r * k), (
            state, self.count, grid, self.shape, backend.weighted))  # fmt: skip
        for part in backend.parts(chunk, r * k * d):
            backend.launch("hartigan.cu", "find_moves", backend.spread(r * part.n), (
                part.X, part.weights, state.centers, state.mass, state.labels, self.count, self.places, self.moves,
                part.n, part.start, n, r, k, d, self.slack, r * n))  # fmt: skip
        backend.launch("hartigan_loop.cu", "hartigan_mark", backend.spread(r * n), (
            self.count, self.places, self.moves, state.targets))  # fmt: skip
        backend.launch("hartigan_loop.cu", "hartigan_walk", (r,), (
            chunk.X, chunk.weights, state, grid, self.shape, n, self.slack, self.settings.max_rounds))  # fmt: skip

    def _again(self, found: HartiganRun, done: np.ndarray, poll: int) -> None:
        """Go on where labelling by the centres found gives other clusters: see `algorithms.hartigan`."""
        backend, settled = self.backend, np.flatnonzero((done == STOPS.index(Stop.CONVERGED)) & (found.moves > 0))
        if len(settled) == 0:
            return
        anew = backend.assign(found.centers[settled], backend.blank_labels(len(settled))).totals
        again = settled[(anew != self.state.totals.get()[settled]).any(axis=(1, 2))]
        if len(again):
            more = DeviceMoves(backend, self.chunk, found.centers[again], self.settings).run(poll)
            found.centers[again] = more.centers
            found.moves[again] += more.moves
