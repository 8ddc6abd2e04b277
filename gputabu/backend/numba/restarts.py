"""Whole restarts in compiled code, a thread for each: for data so small that Python would take most of the time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from gputabu.backend.arithmetic import rules
from gputabu.backend.loops import (
    HartiganRun,
    HartiganSettings,
    LloydRun,
    LloydSettings,
    QuantizedRun,
    QuantizedSettings,
    StopSignal,
)
from gputabu.backend.numba import kernels
from gputabu.backend.numba.kernels import BLOCK, Centers, Data, Improvements, Limits, Restarts, RestartScratch
from gputabu.core.results import Stop

if TYPE_CHECKING:
    from gputabu.backend.numba.backend import NumbaBackend

#: Points up to which data is small.
MAX_POINTS = 1 << 16
#: Work between two looks at whether to stop early: about a twentieth of a second.
SLICE = 1 << 27
#: Bytes that the tabu rows and traces of a batch of searches may take.
STATE_BYTES = 1 << 29

STOPS = {
    kernels.PATIENCE: Stop.PATIENCE,
    kernels.TARGET: Stop.TARGET,
    kernels.CONVERGED: Stop.CONVERGED,
    kernels.TOLERANCE: Stop.TOLERANCE,
    kernels.MAX_ITER: Stop.MAX_ITER,
}


def explore(backend: NumbaBackend, means: np.ndarray, orders: QuantizedSettings) -> QuantizedRun | None:
    """Run R searches from means (R, K); None where the data is not small."""
    (r, k), n, t = means.shape, backend.points.n, orders.max_iter + 1
    capacity = min(t, n + 1)  # a tabu row holds each point once at the most, and gains one entry per iteration
    if not small(backend, k) or 8 * r * k * (capacity + t) > STATE_BYTES:
        return None
    its = blank(backend, r, k)._replace(
        cost=np.full((r, 2, t), np.nan),
        means=np.stack([means, means], axis=1),
        rows=np.empty((r, k, capacity), np.int64),
        path=np.full((r, t, k), -1, np.int64),
    )
    limits = Limits(orders.max_iter, orders.patience, float(orders.target), orders.shared, 0.0, 0.0)
    run(
        backend,
        kernels.run_restart,
        its,
        (limits,),
        orders.monitor.should_stop,
        lambda: show(its.status, its.cost, orders.monitor),
    )
    age = its.status[:, kernels.AGE]
    t = int(age.max())
    current, best = its.cost[:, 0, :t], its.cost[:, 1, :t]
    return QuantizedRun(its.means[:, 1], stops(its.status), current, best, its.path[:, :t], centers=None)


def descend(backend: NumbaBackend, centers: np.ndarray, orders: LloydSettings) -> LloydRun | None:
    """Run K-Means from centers (R, K, d); None where the data is not small, or the centres not within its box."""
    (r, k, _), t = centers.shape, orders.max_iter
    bounds = backend.bounds
    if not small(backend, k) or 24 * r * t > STATE_BYTES:
        return None
    if (centers < bounds.low).any() or (centers > bounds.high).any():
        return None
    traced = orders.traced
    its = blank(backend, r, k)._replace(
        cost=np.full((r, 1, t + 1) if traced else (r, 0, 0), np.nan),
        path=np.full((r, t if traced else 0, 1), -1, np.int64),
        centers=np.array(centers, np.float64),
        prints=np.empty((r, t), np.uint64),
    )
    limits = Limits(t, 0, -1.0, False, float(orders.allowed), backend.scatter if traced else 0.0)
    run(
        backend,
        kernels.run_restart,
        its,
        (limits,),
        orders.monitor.should_hurry,
        lambda: show(its.status, its.cost, orders.monitor),
    )
    t = int(its.status[:, kernels.AGE].max())
    current = its.cost[:, 0, : t + 1] if traced else np.empty((r, 0))
    return LloydRun(its.centers, stops(its.status), current, its.path[:, :t, 0])


def stops(status: np.ndarray) -> list[Stop | None]:
    """Why restarts ended; None where they were stopped early."""
    return [STOPS.get(int(code)) for code in status[:, kernels.DONE]]


def show(status: np.ndarray, cost: np.ndarray, monitor: StopSignal) -> None:
    """Tell how far restarts are, now and then. Costs (R, 1, T + 1) of descents are J, others J and the best J."""
    if not monitor.report_due():
        return
    row = max(cost.shape[1] - 1, 0)
    made, best = status[:, kernels.AGE] - row, np.full(len(status), np.nan)
    if cost.size:
        best = np.where(made >= 0, cost[np.arange(len(made)), row, np.maximum(made, 0)], np.nan)
    monitor.report_restarts(np.maximum(made, 0), best, status[:, kernels.DONE] != kernels.GOING)


def blank(backend: NumbaBackend, r: int, k: int) -> Restarts:
    """R restarts that have not begun."""
    return Restarts(
        labels=np.full((r, backend.points.n), -1, np.int32),
        totals=np.zeros((r, k, backend.columns), np.int64),
        status=np.zeros((r, 3), np.int64),
        cost=np.empty((r, 0, 0)),
        means=np.empty((r, 2, 0), np.int64),
        rows=np.empty((r, k, 0), np.int64),
        length=np.zeros((r, k), np.int64),
        path=np.empty((r, 0, 0), np.int64),
        centers=np.empty((r, 0, 0)),
        prints=np.empty((r, 0), np.uint64),
    )


def improve(backend: NumbaBackend, centers: np.ndarray, settings: HartiganSettings) -> HartiganRun | None:
    """Make single moves from centers (R, K, d); None where the data is not small."""
    r, k, _ = centers.shape
    if not small(backend, k):
        return None
    its = Improvements(
        labels=np.full((r, backend.points.n), -1, np.int32),
        totals=np.zeros((r, k, backend.columns), np.int64),
        centers=np.array(centers, np.float64),
        status=np.zeros((r, 5), np.int64),
    )
    run(
        backend,
        kernels.improve_restart,
        its,
        (settings.max_rounds, rules.slack(backend.bounds)),
        settings.monitor.should_hurry,
    )
    return HartiganRun(its.centers, its.status[:, kernels.MOVES])


def small(backend: NumbaBackend, k: int) -> bool:
    points, n = backend.points, backend.points.n
    return (
        len(points.chunks) == 1
        and not points.out_of_core
        and n <= MAX_POINTS
        and n * k * points.d <= backend.tuning.small_data
    )


def run(
    backend: NumbaBackend,
    kernel: Callable[..., None],
    its: Restarts | Improvements,
    limits: tuple[Any, ...],
    over: Callable[[], bool],
    tell: Callable[[], None] = lambda: None,
) -> None:
    """Deal the restarts to the threads; each is taken to its end, or, once it is over, at least to a first result."""
    data, scales, k, d = held(backend), backend.scales, its.totals.shape[1], backend.points.d
    stride = max(1, SLICE // (backend.points.n * k * d))

    def work(restarts: Iterable[int]) -> None:
        fast, bench, desk = Centers.empty(1, k, d), place(backend, k), backend.desk(k)
        for r in restarts:
            status = its.status[r]
            while not status[kernels.DONE] and not (status[kernels.AGE] and over()):
                until = 1 if over() else int(status[kernels.AGE]) + stride
                kernel(data, its, r, *limits, until, scales, fast, bench, desk)
                tell()

    backend.workers.map(work, range(len(its.status)))


def held(backend: NumbaBackend) -> Data:
    """The points with what the fast scores need of them, which all restarts share."""
    (block,) = backend.points.blocks(backend.points.n)
    X, weights, _ = backend.given(block)
    (n, d), blocks = X.shape, -(-len(X) // BLOCK)
    moved = np.zeros((blocks * BLOCK, d), np.float32)
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is in doubt, and decided canonically
        moved[:n] = (X - backend.scales.origin) * backend.scales.unit
        length = np.sqrt((moved * moved).sum(axis=1)).reshape(blocks, BLOCK)
    return Data(X, weights, np.ascontiguousarray(moved.reshape(blocks, BLOCK, d).transpose(0, 2, 1)), length)


def place(backend: NumbaBackend, k: int) -> RestartScratch:
    """Scratch memory of the calling thread."""
    d = backend.points.d
    return RestartScratch(
        centers=np.empty((1, k, d)),
        means=np.empty((k, d)),
        barred=np.zeros(backend.points.n, np.bool_),
        keys=np.empty((k, 1), np.uint64),
        sums=np.empty(3, np.int64),
        next=np.empty((2, k), np.int64),
        mass=np.empty((4, k)),
        target=np.empty(backend.points.n, np.int32),
        leave=np.empty(backend.points.n),
        reach=np.empty(backend.points.n),
    )
