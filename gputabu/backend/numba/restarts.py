"""Whole restarts in compiled code, a thread for each: for data so small that Python would take most of the time."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from gputabu.algorithms.monitor import Watch
from gputabu.backend.arithmetic import rules
from gputabu.backend.contract import Descended, Descending, Explored, Improved, Orders
from gputabu.backend.numba import kernels
from gputabu.backend.numba.kernels import BLOCK, Bench, Centers, Data, Improvements, Limits, Restarts
from gputabu.core.results import Stop

if TYPE_CHECKING:
    from gputabu.backend.numba.backend import NumbaOps

#: Work of an iteration (points times centres times features) up to which data is small: about a millisecond.
SMALL = 1 << 22
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


def explore(ops: NumbaOps, means: np.ndarray, orders: Orders) -> Explored | None:
    """Run R searches from means (R, K); None where the data is not small."""
    (r, k), n, t = means.shape, ops.points.n, orders.max_iter + 1
    capacity = min(t, n + 1)  # a tabu row holds each point once at the most, and gains one entry per iteration
    if not small(ops, k) or 8 * r * k * (capacity + t) > STATE_BYTES:
        return None
    its = blank(ops, r, k)._replace(
        cost=np.full((r, 2, t), np.nan),
        means=np.stack([means, means], axis=1),
        rows=np.empty((r, k, capacity), np.int64),
        path=np.full((r, t, k), -1, np.int64),
    )
    limits = Limits(orders.max_iter, orders.patience, float(orders.target), orders.shared, 0.0, 0.0)
    run(ops, kernels.run_restart, its, (limits,), orders.watch.over, lambda: show(its.status, its.cost, orders.watch))
    age = its.status[:, kernels.AGE]
    t = int(age.max())
    current, best = its.cost[:, 0, :t], its.cost[:, 1, :t]
    found = best[np.arange(r), age - 1]
    return Explored(found, its.means[:, 1], stops(its.status), current, best, its.path[:, :t], centers=None)


def descend(ops: NumbaOps, centers: np.ndarray, orders: Descending) -> Descended | None:
    """Run K-Means from centers (R, K, d); None where the data is not small, or the centres not within its box."""
    (r, k, _), t = centers.shape, orders.max_iter
    bounds = ops.bounds
    if not small(ops, k) or 24 * r * t > STATE_BYTES:
        return None
    if (centers < bounds.low).any() or (centers > bounds.high).any():
        return None
    traced = orders.traced
    its = blank(ops, r, k)._replace(
        cost=np.full((r, 1, t + 1) if traced else (r, 0, 0), np.nan),
        path=np.full((r, t if traced else 0, 1), -1, np.int64),
        centers=np.array(centers, np.float64),
        prints=np.empty((r, t), np.uint64),
    )
    limits = Limits(t, 0, -1.0, False, float(orders.allowed), ops.scatter if traced else 0.0)
    run(
        ops, kernels.run_restart, its, (limits,), orders.watch.hurried, lambda: show(its.status, its.cost, orders.watch)
    )
    t = int(its.status[:, kernels.AGE].max())
    current = its.cost[:, 0, : t + 1] if traced else np.empty((r, 0))
    return Descended(its.centers, stops(its.status), current, its.path[:, :t, 0])


def stops(status: np.ndarray) -> list[Stop | None]:
    """Why restarts ended; None where they were stopped early."""
    return [STOPS.get(int(code)) for code in status[:, kernels.DONE]]


def show(status: np.ndarray, cost: np.ndarray, watch: Watch) -> None:
    """Tell how far restarts are, now and then. Costs (R, 1, T + 1) of descents are J, others J and the best J."""
    if not watch.due():
        return
    row = max(cost.shape[1] - 1, 0)
    made, best = status[:, kernels.AGE] - row, np.full(len(status), np.nan)
    if cost.size:
        best = np.where(made >= 0, cost[np.arange(len(made)), row, np.maximum(made, 0)], np.nan)
    watch.glance(np.maximum(made, 0), best, status[:, kernels.DONE] != kernels.GOING)


def blank(ops: NumbaOps, r: int, k: int) -> Restarts:
    """R restarts that have not begun."""
    return Restarts(
        labels=np.full((r, ops.points.n), -1, np.int32),
        totals=np.zeros((r, k, ops.columns), np.int64),
        status=np.zeros((r, 3), np.int64),
        cost=np.empty((r, 0, 0)),
        means=np.empty((r, 2, 0), np.int64),
        rows=np.empty((r, k, 0), np.int64),
        length=np.zeros((r, k), np.int64),
        path=np.empty((r, 0, 0), np.int64),
        centers=np.empty((r, 0, 0)),
        prints=np.empty((r, 0), np.uint64),
    )


def improve(ops: NumbaOps, centers: np.ndarray, max_rounds: int, interrupted: Callable[[], bool]) -> Improved | None:
    """Make single moves from centers (R, K, d); None where the data is not small."""
    r, k, _ = centers.shape
    if not small(ops, k):
        return None
    its = Improvements(
        labels=np.full((r, ops.points.n), -1, np.int32),
        totals=np.zeros((r, k, ops.columns), np.int64),
        centers=np.array(centers, np.float64),
        status=np.zeros((r, 5), np.int64),
    )
    run(ops, kernels.improve_restart, its, (max_rounds, rules.slack(ops.bounds)), interrupted)
    return Improved(its.centers, its.status[:, kernels.MOVES])


def small(ops: NumbaOps, k: int) -> bool:
    points, n = ops.points, ops.points.n
    return len(points.chunks) == 1 and not points.out_of_core and n <= MAX_POINTS and n * k * points.d <= SMALL


def run(
    ops: NumbaOps,
    kernel: Callable[..., None],
    its: Restarts | Improvements,
    limits: tuple[Any, ...],
    over: Callable[[], bool],
    tell: Callable[[], None] = lambda: None,
) -> None:
    """Deal the restarts to the threads; each is taken to its end, or, once it is over, at least to a first result."""
    data, scales, k, d = held(ops), ops.scales, its.totals.shape[1], ops.points.d
    stride = max(1, SLICE // (ops.points.n * k * d))

    def work(restarts: Iterable[int]) -> None:
        fast, bench, desk = Centers.empty(1, k, d), place(ops, k), ops.desk(k)
        for r in restarts:
            status = its.status[r]
            while not status[kernels.DONE] and not (status[kernels.AGE] and over()):
                until = 1 if over() else int(status[kernels.AGE]) + stride
                kernel(data, its, r, *limits, until, scales, fast, bench, desk)
                tell()

    ops.workers.map(work, range(len(its.status)))


def held(ops: NumbaOps) -> Data:
    """The points with what the fast scores need of them, which all restarts share."""
    (block,) = ops.points.blocks(ops.points.n)
    X, weights, _ = ops.given(block)
    (n, d), blocks = X.shape, -(-len(X) // BLOCK)
    moved = np.zeros((blocks * BLOCK, d), np.float32)
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is in doubt, and decided canonically
        moved[:n] = (X - ops.scales.origin) * ops.scales.unit
        length = np.sqrt((moved * moved).sum(axis=1)).reshape(blocks, BLOCK)
    return Data(X, weights, np.ascontiguousarray(moved.reshape(blocks, BLOCK, d).transpose(0, 2, 1)), length)


def place(ops: NumbaOps, k: int) -> Bench:
    """Scratch memory of the calling thread."""
    d = ops.points.d
    return Bench(
        centers=np.empty((1, k, d)),
        means=np.empty((k, d)),
        barred=np.zeros(ops.points.n, np.bool_),
        keys=np.empty((k, 1), np.uint64),
        sums=np.empty(3, np.int64),
        next=np.empty((2, k), np.int64),
        mass=np.empty((4, k)),
        target=np.empty(ops.points.n, np.int32),
        leave=np.empty(ops.points.n),
        reach=np.empty(ops.points.n),
    )
