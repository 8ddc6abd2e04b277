"""Whole restarts in compiled code, a thread for each: for data so small that Python would take most of the time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

from gputabu.backend.arithmetic import rules
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
    StopSignal,
)
from gputabu.backend.numba.kernels import state as status
from gputabu.backend.numba.kernels.hartigan import HartiganState, hartigan_restart
from gputabu.backend.numba.kernels.relocation import (
    RelocationRules,
    RelocationScratch,
    RelocationState,
    relocation_restart,
)
from gputabu.backend.numba.kernels.restart import RestartLimits, RestartState, run_restart
from gputabu.backend.numba.kernels.scores import BLOCK, FastCenters, ScoreScratch
from gputabu.backend.numba.kernels.seeding import SeedScratch, seed_restart
from gputabu.backend.numba.kernels.state import Data, RestartScratch
from gputabu.backend.numba.relocation import NumbaRelocation, arrays_of
from gputabu.backend.numba.tiling import block_arguments
from gputabu.core import random
from gputabu.core.caching import cached_property
from gputabu.core.random import Purpose
from gputabu.core.results import Stop

#: Points up to which data is small.
MAX_POINTS = 1 << 16
#: Points times features up to which relocation searches have copies of the points.
COPIED = 1 << 22
#: Passes over the points in an iteration of relocation, about.
PASSES = 8

STOPS = {
    status.PATIENCE: Stop.PATIENCE,
    status.TARGET: Stop.TARGET,
    status.CONVERGED: Stop.CONVERGED,
    status.TOLERANCE: Stop.TOLERANCE,
    status.MAX_ITER: Stop.MAX_ITER,
    status.EFFORT: Stop.EFFORT,
}


class NumbaLoops(Loops):
    """Whole restarts of small data in compiled code, a thread for each."""

    def __init__(self, backend: NumbaRelocation) -> None:
        self.backend, self.points, self.tuning = backend, backend.points, backend.tuning

    # -- seeds -------------------------------------------------------------------------------------

    def plus_plus(self, first: np.ndarray, words: np.ndarray) -> np.ndarray | None:
        (r, count, _), n = words.shape, self.points.n
        if not (self.is_small(count + 1) or self.is_medium(count + 1, r)):
            return None
        data, grid = self.data, self.backend.grid
        columns, limits = self.columns, (grid.coarsest(n), grid.finest)
        chosen = np.empty((r, count), np.int64)

        def draw(restarts: Iterable[int]) -> None:
            scratch = SeedScratch(np.empty(n), np.empty(n, np.int64), np.empty(len(columns), np.int64), np.empty(BLOCK))
            for i in restarts:
                drawn = seed_restart(data, columns, first[i], words[i], *limits, scratch, chosen[i])
                chosen[i, drawn:] = -1

        self.backend.workers.map(draw, range(r))
        return chosen

    # -- QM-TS, K-Means, single moves --------------------------------------------------------------

    def quantized(self, means: np.ndarray, settings: QuantizedSettings) -> QuantizedRun | None:
        (r, k), n, t = means.shape, self.points.n, settings.max_iter + 1
        capacity = min(t, n + 1)  # a tabu row holds each point once at the most, and gains one entry per iteration
        if not self.is_small(k) or 8 * r * k * (capacity + t) > self.tuning.state_bytes or settings.n_neighbors > 1:
            return None
        state = self._blank_state(r, k)._replace(
            cost=np.full((r, 2, t), np.nan),
            means=np.stack([means, means], axis=1),
            tabu=np.empty((r, k, capacity), np.int64),
            path=np.full((r, t, k), -1, np.int64),
        )
        limits = RestartLimits(settings.max_iter, settings.patience, float(settings.target), settings.shared, 0.0, 0.0)
        monitor = settings.monitor
        self._run(run_restart, state, (limits,), monitor.should_stop, lambda: report(state.status, state.cost, monitor))
        t = int(state.status[:, status.AGE].max())
        current, best = state.cost[:, 0, :t], state.cost[:, 1, :t]
        return QuantizedRun(state.means[:, 1], stops(state.status), current, best, state.path[:, :t], centers=None)

    def lloyd(self, centers: np.ndarray, settings: LloydSettings) -> LloydRun | None:
        (r, k, _), t, traced = centers.shape, settings.max_iter, settings.traced
        bounds = self.backend.bounds
        if not self.is_small(k) or 24 * r * t > self.tuning.state_bytes:
            return None
        if (centers < bounds.low).any() or (centers > bounds.high).any():  # scores so far out are not to be trusted
            return None
        state = self._blank_state(r, k)._replace(
            cost=np.full((r, 1, t + 1) if traced else (r, 0, 0), np.nan),
            path=np.full((r, t if traced else 0, 1), -1, np.int64),
            centers=np.array(centers, np.float64),
            fingerprints=np.empty((r, t), np.uint64),
        )
        scatter = self.backend.scatter if traced else 0.0
        limits, monitor = RestartLimits(t, 0, -1.0, False, float(settings.allowed), scatter), settings.monitor
        self._run(
            run_restart, state, (limits,), monitor.should_hurry, lambda: report(state.status, state.cost, monitor)
        )
        t = int(state.status[:, status.AGE].max())
        current = state.cost[:, 0, : t + 1] if traced else np.empty((r, 0))
        return LloydRun(state.centers, stops(state.status), current, state.path[:, :t, 0])

    def hartigan(self, centers: np.ndarray, settings: HartiganSettings) -> HartiganRun | None:
        r, k, _ = centers.shape
        if not self.is_small(k):
            return None
        state = HartiganState(
            labels=np.full((r, self.points.n), -1, np.int32),
            totals=np.zeros((r, k, self.backend.n_columns), np.int64),
            centers=np.array(centers, np.float64),
            status=np.zeros((r, 5), np.int64),
        )
        limits = settings.max_rounds, rules.slack(self.backend.bounds)
        self._run(hartigan_restart, state, limits, settings.monitor.should_hurry)
        return HartiganRun(state.centers, state.status[:, status.MOVES])

    def is_small(self, k: int) -> bool:
        """Whether a restart with k clusters is for one thread, in compiled code alone."""
        points = self.points
        whole = len(points.chunks) == 1 and not points.out_of_core
        return whole and points.n <= MAX_POINTS and points.n * k * points.d <= self.tuning.small_data

    def _run(
        self,
        kernel: Callable[..., None],
        state: RestartState | HartiganState,
        limits: tuple[Any, ...],
        is_over: Callable[[], bool],
        report: Callable[[], None] = lambda: None,
    ) -> None:
        """Deal the restarts to the threads. Each is taken to its end, or, once time is over, to a first result."""
        data, scales, k, d = self.data, self.backend.scales, state.totals.shape[1], self.points.d
        stride = max(1, self.tuning.slice_work // (self.points.n * k * d))

        def work(restarts: Iterable[int]) -> None:
            scratch = FastCenters.empty(1, k, d), self._restart_scratch(k), self.backend.score_scratch(k)
            for r in restarts:
                row = state.status[r]
                while not row[status.DONE] and not (row[status.AGE] and is_over()):
                    until = 1 if is_over() else int(row[status.AGE]) + stride
                    kernel(data, state, r, *limits, until, scales, *scratch)
                    report()

        self.backend.workers.map(work, range(len(state.status)))

    def _blank_state(self, r: int, k: int) -> RestartState:
        """R restarts that have not begun."""
        return RestartState(
            labels=np.full((r, self.points.n), -1, np.int32),
            totals=np.zeros((r, k, self.backend.n_columns), np.int64),
            status=np.zeros((r, 3), np.int64),
            cost=np.empty((r, 0, 0)),
            means=np.empty((r, 2, 0), np.int64),
            tabu=np.empty((r, k, 0), np.int64),
            tabu_length=np.zeros((r, k), np.int64),
            path=np.empty((r, 0, 0), np.int64),
            centers=np.empty((r, 0, 0)),
            fingerprints=np.empty((r, 0), np.uint64),
        )

    def _restart_scratch(self, k: int) -> RestartScratch:
        """Scratch memory of the calling thread."""
        n, d = self.points.n, self.points.d
        return RestartScratch(
            centers=np.empty((1, k, d)),
            means=np.empty((k, d)),
            forbidden=np.zeros(n, np.bool_),
            keys=np.empty((k, 1), np.uint64),
            sums=np.empty(3, np.int64),
            chosen=np.empty((2, k), np.int64),
            farthest=np.empty(k, np.int64),
            changed=np.empty(k, np.int64),
            mass=np.empty((4, k)),
            target=np.empty(n, np.int32),
            leave=np.empty(n),
            bound=np.empty(n),
        )

    @cached_property
    def columns(self) -> np.ndarray:
        """The points feature by feature, (N / BLOCK, d, BLOCK) float64."""
        return columns_of(self.data)

    @cached_property
    def data(self) -> Data:
        """The points with what the fast scores need of them, which all restarts share."""
        (block,) = self.points.blocks(self.points.n)
        X, weights, _ = block_arguments(block)
        (n, d), blocks = X.shape, -(-len(X) // BLOCK)
        coords = np.zeros((blocks * BLOCK, d), np.float32)
        with np.errstate(over="ignore", invalid="ignore"):  # what overflows is in doubt, and decided canonically
            coords[:n] = (X - self.backend.scales.origin) * self.backend.scales.unit
            length = np.sqrt((coords * coords).sum(axis=1)).reshape(blocks, BLOCK)
        return Data(X, weights, np.ascontiguousarray(coords.reshape(blocks, BLOCK, d).transpose(0, 2, 1)), length)

    # -- relocation --------------------------------------------------------------------------------

    def relocation(self, centers: np.ndarray, settings: RelocationSettings) -> RelocationRun | None:
        """Threads go round the restarts that are theirs, so that all have gone equally far when the time is over."""
        (r, k, d), n = centers.shape, self.points.n
        if not (self.is_small(k) or self.is_medium(k, r)):
            return None
        nearest = self.backend.no_nearest_two(centers)
        state = self._relocation_state(centers, nearest.at, settings)
        data, scales, monitor = self.data, self.backend.scales, settings.monitor
        columns, arrays, limits = self.columns, arrays_of(nearest), self._relocation_rules(settings)
        stride = min(self.tuning.longest_slice, max(1, self.tuning.relocation_slice_work // (PASSES * n * k * d)))
        traces = [np.empty((3, 0))] * r  # which grow: nobody knows how many iterations there will be

        def work(shares: Iterable[list[int]]) -> None:
            relocation_scratch = self.backend.relocation_scratch(k, settings.candidates, n)
            scratch = FastCenters.empty(1, k, d), relocation_scratch, self.backend.score_scratch(k)
            for share in shares:
                go_round(share, scratch)

        def go_round(running: list[int], scratch: tuple[FastCenters, RelocationScratch, ScoreScratch]) -> None:
            while running:
                for restart in running:
                    age = int(state.status[restart, status.AGE])
                    over = monitor.should_stop()
                    if over and age:
                        continue
                    begun, until = max(age - 1, 0), 1 if over else age + stride
                    traces[restart] = grown(traces[restart], until)
                    words = random.words(
                        settings.seed, int(settings.numbers[restart]), (until - begun) * settings.candidates,
                        purpose=Purpose.CANDIDATE, first=begun * settings.candidates,
                    ).reshape(-1, settings.candidates)  # fmt: skip
                    relocation_restart(
                        data, columns, state, traces[restart], arrays, restart, words, begun, limits, until, scales,
                        *scratch,
                    )  # fmt: skip
                if monitor.report_due():
                    report_relocation(state, traces, monitor)
                over = monitor.should_stop()
                running = [restart for restart in running if not state.status[restart, status.DONE] and not over]

        threads = self.backend.workers.threads
        self.backend.workers.map(work, [list(range(i, r, threads)) for i in range(threads)])
        return relocation_run(state, traces)

    def is_medium(self, k: int, restarts: int) -> bool:
        """Whether relocation has a search for every thread, and data that each can go over alone."""
        points, work = self.points, self.points.n * self.points.d
        whole = len(points.chunks) == 1 and not points.out_of_core
        busy = restarts >= self.backend.workers.threads
        return whole and busy and work <= COPIED and work * k <= self.tuning.medium_data

    def _relocation_state(self, centers: np.ndarray, at: np.ndarray, settings: RelocationSettings) -> RelocationState:
        """R searches that have not begun."""
        r, k, _ = centers.shape
        return RelocationState(
            labels=np.full((r, self.points.n), -1, np.int32),
            totals=np.zeros((r, k, self.backend.n_columns), np.int64),
            centers=np.array(centers, np.float64),
            at=at,
            best_centers=np.array(centers, np.float64),
            elite_centers=np.array(centers, np.float64),
            elite=np.full(r, np.inf),
            placed=np.full((r, settings.tenure), -1, np.int64),
            used=np.full((r, k), -1, np.int64),
            status=np.zeros((r, 5), np.int64),
            max_passes=settings.max_passes,
        )

    def _relocation_rules(self, settings: RelocationSettings) -> RelocationRules:
        return RelocationRules(
            max_iter=settings.max_iter,
            patience=settings.patience,
            go_back=settings.go_back,
            returns=settings.returns,
            steps=settings.steps,
            more_steps=settings.more_steps,
            calm=settings.calm,
            reach=float(settings.reach),
            target=float(settings.target),
            coarsest=self.backend.grid.coarsest(self.points.n),
            finest=self.backend.grid.finest,
        )


def columns_of(data: Data) -> np.ndarray:
    """The points of a small data set feature by feature, (N / BLOCK, d, BLOCK) float64."""
    columns = np.zeros((len(data.coords), data.X.shape[1], BLOCK))
    for b in range(len(columns)):
        rows = data.X[b * BLOCK : (b + 1) * BLOCK]
        columns[b, :, : len(rows)] = rows.T
    return columns


def grown(trace: np.ndarray, length: int) -> np.ndarray:
    """A trace (3, T) with room for so many entries."""
    if length <= trace.shape[1]:
        return trace
    longer = np.empty((3, 2 * length))
    longer[:, : trace.shape[1]] = trace
    return longer


def relocation_run(state: RelocationState, traces: list[np.ndarray]) -> RelocationRun:
    """Where searches ended, and their traces."""
    age = state.status[:, status.AGE]
    joined = np.full((3, len(age), age.max()), np.nan)
    joined[2] = -1
    for r, trace in enumerate(traces):
        joined[:, r, : age[r]] = trace[:, : age[r]]
    current, best, moves = joined
    return RelocationRun(
        state.best_centers, stops(state.status), current, best, moves[:, 1:].astype(np.int64),
        state.status[:, status.PASSES],
    )  # fmt: skip


def report_relocation(state: RelocationState, traces: list[np.ndarray], monitor: StopSignal) -> None:
    """Tell how far relocation searches are."""
    rows = state.status
    made = rows[:, status.AGE] - 1
    best = [trace[1, m] if m >= 0 else np.nan for trace, m in zip(traces, made, strict=True)]
    share = rows[:, status.PASSES] / state.max_passes
    monitor.report_restarts(np.maximum(made, 0), np.array(best), rows[:, status.DONE] != status.GOING, share)


def stops(rows: np.ndarray) -> list[Stop | None]:
    """Why restarts ended; None where they were stopped early."""
    return [STOPS.get(int(code)) for code in rows[:, status.DONE]]


def report(rows: np.ndarray, cost: np.ndarray, monitor: StopSignal) -> None:
    """Tell how far restarts are, now and then. Costs (R, 1, T + 1) of descents are J, others J and the best J."""
    if not monitor.report_due():
        return
    last = max(cost.shape[1] - 1, 0)
    made, best = rows[:, status.AGE] - last, np.full(len(rows), np.nan)
    if cost.size:
        best = np.where(made >= 0, cost[np.arange(len(made)), last, np.maximum(made, 0)], np.nan)
    monitor.report_restarts(np.maximum(made, 0), best, rows[:, status.DONE] != status.GOING)
