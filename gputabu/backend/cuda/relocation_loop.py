"""Relocation on the device: a turn is a graph (kernels/relocation_loop.cu) that is replayed.

How many steps an iteration has is known on the device alone. So a turn has room for a few, and a restart that needs
more goes on in the next. The host looks at the stop flags about once in so many iterations as it is told to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import cupy
import numpy as np

from gputabu.backend.cuda.device import filled
from gputabu.backend.cuda.graphs import captured
from gputabu.backend.cuda.launch import POTENTIAL_TILE
from gputabu.backend.cuda.memory import upload
from gputabu.backend.cuda.points import DeviceChunk
from gputabu.backend.cuda.structs import STOPS, NearestTwo, RelocationRules, Relocations, Shape, Swaps
from gputabu.backend.loops import RelocationRun, RelocationSettings

if TYPE_CHECKING:
    from gputabu.backend.cuda.backend import CudaBackend

#: Steps that a turn has room for beyond those that every iteration makes. A step that is not made costs the launches of
#: three kernels, a turn that only makes more steps those of five.
MORE = 2
#: Iterations of the trace that the device keeps until the host fetches them.
WINDOW = 4096
#: More than any count here.
MANY = 2**31 - 1
#: Of the state, numbers that are zero at first.
COUNTS = ("stale", "since_elite", "news", "number", "settled", "unmoved", "idle")


class DeviceRelocation:
    """R searches in device memory. Names and shapes are those of kernels/relocation_loop.cu."""

    def __init__(
        self, backend: CudaBackend, chunk: DeviceChunk, centers: np.ndarray, settings: RelocationSettings
    ) -> None:
        self.backend, self.chunk, self.settings = backend, chunk, settings
        self.start = np.ascontiguousarray(centers, np.float64)
        self.shape = Shape(*centers.shape)
        self.tiles = -(-chunk.n // POTENTIAL_TILE)
        self.rules = RelocationRules(
            target=float(settings.target),
            reach=float(settings.reach),
            seed=settings.seed,
            give_up=min(settings.go_back * settings.returns, MANY),
            max_iter=settings.max_iter,
            patience=min(settings.patience, MANY),
            tenure=settings.tenure,
            trials=settings.candidates,
            go_back=min(settings.go_back, MANY),
            steps=settings.steps,
            more_steps=settings.more_steps,
            calm=min(settings.calm, MANY),
            window=min(WINDOW, settings.max_iter + 1),
            coarsest=backend.grid.coarsest(backend.points.n),
            finest=backend.grid.finest,
        )
        self.slots = settings.steps + MORE
        # Turns of the longest iteration: the first step of a turn is not for one that goes on.
        self.longest = 1 + -(-(settings.more_steps - MORE) // (self.slots - 1))

    @property
    def bytes(self) -> int:
        """Device memory of the state."""
        (r, k, d), t, n = self.shape, self.rules.trials, self.chunk.n
        clusters = 8 * k * (5 * d + self.backend.n_columns + 9)
        return r * (clusters + 8 * t * (d + 3 * k + 5) + 24 * self.rules.window + 28 * n + 8 * self.tiles)

    def run(self, poll: int) -> RelocationRun:
        """All restarts to their end, with a look at them every `poll` iterations."""
        backend, monitor = self.backend, self.settings.monitor
        self._allocate()
        self._step(None, self.state.unmoved)  # judges the start
        self._turn()  # compiles what the capture must not
        graph, looks = None, 0
        while True:
            status = self.status.get()  # the loop's one copy and synchronisation
            done, made = status
            if monitor.report_due():
                share = 1 - self.state.left.get() / self.settings.max_passes
                monitor.report_restarts(np.maximum(made, 0), self.state.best_cost.get(), done != 0, share)
            going = done == 0
            if not going.any() or monitor.should_stop():
                return self._found(status)
            graph = graph or captured(backend.stream, self._turn)
            looks += 1
            # As many turns as iterations, and as many more as the slowest restart has fallen behind.
            slowest = int(made[going].min())
            behind = min(max(0, poll * (looks - 1) + 1 - slowest), poll * (self.longest - 1))
            turns = min(poll + behind, self.longest * (self.rules.max_iter - slowest), self.rules.window)
            if int((made - self.fetched).max()) + turns > self.rules.window:
                self._fetch(made)
            for _ in range(turns):
                graph.launch(backend.stream)

    def _allocate(self) -> None:
        backend, (r, k, d), t, n = self.backend, self.shape, self.rules.trials, self.chunk.n
        window = self.rules.window
        self.traces: list[tuple[np.ndarray, np.ndarray, np.ndarray]] = []  # first and last iteration (R,), the ring
        self.fetched = np.full(r, -1)  # the last iteration that is in it
        self.labels = backend.blank_labels(r)
        self.nearest = NearestTwo(*(cupy.empty((r, n), kind) for kind in (np.int32, np.int32, float, float)))
        self.which = cupy.asarray(np.arange(r))
        self.status = upload(np.stack([np.zeros(r, np.int32), np.full(r, -1, np.int32)]))

        def numbers(value: Any) -> Any:
            return cupy.asarray(np.full(r, value))

        self.state = Relocations(
            centers=upload(self.start),
            means=cupy.empty((r, k, d), np.float64),
            shares=cupy.empty((r, k), np.float64),
            best_centers=upload(self.start),
            elite_centers=upload(self.start),
            totals=cupy.zeros((r, k, backend.n_columns), np.int64),
            mass=cupy.empty((r, 2, k), np.float64),
            costs=cupy.zeros((r, 3), np.int64),
            changed=cupy.zeros(r, np.int64),
            cost=numbers(np.inf),
            best_cost=numbers(np.inf),
            elite=numbers(np.inf),
            aim=numbers(np.inf),
            **{name: numbers(np.int32(0)) for name in COUNTS},
            done=self.status[0],
            age=self.status[1],
            left=upload(self.settings.max_passes),
            current=cupy.zeros((r, window), np.float64),
            best=cupy.zeros((r, window), np.float64),
            moves=cupy.zeros((r, window), np.int64),
        )
        self.swaps = Swaps(
            restarts=cupy.asarray(np.asarray(self.settings.numbers, np.uint64)),
            tiles=cupy.empty((r, self.tiles), np.int64),
            shift=numbers(np.int32(self.rules.coarsest)),
            rows=cupy.empty((r, t), np.int64),
            candidates=cupy.empty((r, t, d), np.float64),
            barred=cupy.empty((r, t), np.int32),
            loss=cupy.empty((r, k, 3), np.int64),
            change=cupy.empty((r, t, k + 1, 3), np.int64),
            placed=filled((r, k), np.int32(-MANY)),
            used=filled((r, k), np.int64(-1)),
        )

    def _turn(self) -> None:
        """Candidates and a relocation, where one is due, and some steps."""
        self._relocate()
        self._step(None, self.state.unmoved)
        for _ in range(1, self.slots):
            self._step(self.state.mass, self.state.idle)

    def _relocate(self) -> None:
        backend, chunk, state, swaps, (r, _, _) = self.backend, self.chunk, self.state, self.swaps, self.shape
        near, file = self.nearest.near, "relocation_loop.cu"
        backend.launch_nearest_two(chunk, state.centers, self.which, self.nearest, state.settled)
        backend.launch(file, "relocation_potential", (r * self.tiles,), (
            near, chunk.weights, state, swaps, chunk.n, self.tiles))  # fmt: skip
        backend.launch(file, "relocation_draw", (r,), (
            chunk.X, chunk.weights, near, state, swaps, self.rules, self.shape, chunk.n, self.tiles))  # fmt: skip
        backend.launch_swap_gains(chunk, swaps.candidates, self.nearest, swaps.loss, swaps.change, state.unmoved)
        backend.launch(file, "relocation_move", (r,), (state, swaps, backend.device_grid, self.rules, self.shape))

    def _step(self, mass: Any, skip: Any) -> None:
        """A step of the restarts that `skip` (R) does not mark: to the nearest centre, or by Hartigan's rule."""
        backend, chunk, state = self.backend, self.chunk, self.state
        backend.launch_nearest_two(chunk, state.centers, self.which, self.nearest, state.settled)
        backend.launch_reassign(
            chunk, mass, self.which, self.nearest, self.labels, state.totals, state.changed, state.costs, skip
        )
        backend.launch("relocation_loop.cu", "relocation_step", (self.shape.r,), (
            state, skip, backend.device_grid, self.rules, self.shape, backend.weighted))  # fmt: skip

    def _fetch(self, made: np.ndarray) -> None:
        """Append what the device has of the trace, up to the iterations made (R,)."""
        ring = np.stack([self.state.current.get(), self.state.best.get(), self.state.moves.get()])
        self.traces.append((self.fetched + 1, made + 1, ring))
        self.fetched = made.copy()

    def _found(self, status: np.ndarray) -> RelocationRun:
        done, made = status
        self._fetch(made)
        trace = np.full((3, len(made), int(made.max()) + 1), np.nan)
        trace[2] = -1
        for begun, ended, ring in self.traces:
            for r, (first, last) in enumerate(zip(begun, ended, strict=True)):
                ages = np.arange(first, last)
                trace[:, r, ages] = ring[:, r, ages % self.rules.window]
        return RelocationRun(
            centers=self.state.best_centers.get(),
            stop=[STOPS[code] for code in done],
            current=trace[0],
            best=trace[1],
            moves=trace[2, :, 1:].astype(np.int64),
            passes=self.settings.max_passes - self.state.left.get(),
        )
