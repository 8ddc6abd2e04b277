"""The two nearest centres of every point and what relocation makes of them, compiled; whole searches of small data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from gputabu.backend.arithmetic import rules
from gputabu.backend.arithmetic.constants import ENOUGH_BITS, POTENTIAL_BITS
from gputabu.backend.contract import Assignment, NearestTwo
from gputabu.backend.loops import RelocationRun, RelocationSettings
from gputabu.backend.numba import kernels
from gputabu.backend.numba.kernels import (
    BLOCK,
    Centers,
    NearestTwoArrays,
    RelocationRules,
    RelocationScratch,
    RelocationState,
    ScoreScratch,
)
from gputabu.backend.numba.restarts import STATE_BYTES, held, show, small, stops
from gputabu.core import random as draws
from gputabu.core.random import Purpose
from gputabu.data.points import Block

if TYPE_CHECKING:
    from gputabu.backend.numba.backend import NumbaBackend

#: Passes over the points in an iteration, about, and work (points times centres times features) between two looks at
#: whether to stop early: some milliseconds, as these searches are mostly ended by `max_time`.
PASSES = 8
SLICE = 1 << 23
#: Points times features up to which searches have copies of the points.
COPIED = 1 << 22


def update(backend: NumbaBackend, centers: np.ndarray, held: NearestTwo) -> None:
    """See `BackendBase.pairs`."""
    moved = rules.moved(centers, held.at)
    if not moved.any():
        return
    k, scales = centers.shape[1], backend.scales
    centers, fast = np.ascontiguousarray(centers), backend.ready(centers, scales)
    twos = NearestTwoArrays(held.first, held.second, held.near, held.far)

    def look(pieces: Iterable[Block]) -> None:
        mine, desk = stand(backend, k), backend.desk(k)
        for block in pieces:
            X, _, first = backend.given(block)
            kernels.pair_rows(X, first, centers, fast, moved, twos, scales, mine, desk)

    backend.workers.map(look, backend.pieces())
    held.at[...] = centers


def settle(
    backend: NumbaBackend, pairs: NearestTwo, labels: np.ndarray, mass: np.ndarray | None, who: np.ndarray
) -> tuple[Assignment, np.ndarray]:
    """See `BackendBase.settled`."""
    r, k, _ = pairs.at.shape
    scales, nearest = backend.scales, mass is None
    masses = np.zeros((r, 2, k)) if mass is None else np.ascontiguousarray(mass)
    twos = NearestTwoArrays(pairs.first, pairs.second, pairs.near, pairs.far)

    def relabel(pieces: Iterable[Block]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        mine, totals, changed = stand(backend, k), np.zeros((r, k, backend.columns), np.int64), np.zeros(r, np.int64)
        costs = np.zeros((r, 3), np.int64)
        for block in pieces:
            for one in np.flatnonzero(who):
                kernels.settle_rows(*backend.given(block), labels, twos, one, masses[one], nearest, scales, totals,
                                    changed, costs, mine)  # fmt: skip
        return totals, changed, costs

    parts = backend.workers.map(relabel, backend.pieces())
    totals, changed, costs = (np.sum(side, axis=0) for side in zip(*parts, strict=True))
    return Assignment(totals, changed), costs.T


def swaps(backend: NumbaBackend, candidates: np.ndarray, pairs: NearestTwo) -> tuple[np.ndarray, np.ndarray]:
    """See `BackendBase.swaps`."""
    (r, t, _), k = candidates.shape, pairs.at.shape[1]
    candidates, to_limbs = np.ascontiguousarray(candidates), backend.scales.cost[0]
    twos = NearestTwoArrays(pairs.first, pairs.second, pairs.near, pairs.far)

    def add(pieces: Iterable[Block]) -> tuple[np.ndarray, np.ndarray]:
        mine, loss, change = stand(backend, k), np.zeros((r, k, 3), np.int64), np.zeros((r, t, k + 1, 3), np.int64)
        for block in pieces:
            kernels.gain_rows(*backend.given(block), candidates, twos, to_limbs, loss, change, mine)
        return loss, change

    parts = backend.workers.map(add, backend.pieces())
    loss, change = (np.sum(side, axis=0) for side in zip(*parts, strict=True))
    return loss, change


def roam(backend: NumbaBackend, centers: np.ndarray, orders: RelocationSettings) -> RelocationRun | None:
    """Run R searches from centers (R, K, d); None where the data is too large for that.

    Threads go round the restarts that are theirs, so that all have gone equally far when the time is over.
    """
    (r, k, d), n, t = centers.shape, backend.points.n, orders.max_iter + 1
    if not (small(backend, k) or medium(backend, k, r)) or 24 * r * t > STATE_BYTES:
        return None
    pairs = backend.no_nearest_two(centers)
    twos = NearestTwoArrays(pairs.first, pairs.second, pairs.near, pairs.far)
    its = RelocationState(
        labels=np.full((r, n), -1, np.int32),
        totals=np.zeros((r, k, backend.columns), np.int64),
        centers=np.array(centers, np.float64),
        at=pairs.at,
        best=np.array(centers, np.float64),
        home=np.array(centers, np.float64),
        home_cost=np.full(r, np.inf),
        placed=np.full((r, orders.tenure), -1, np.int64),
        used=np.full((r, k), -1, np.int64),
        status=np.zeros((r, 4), np.int64),
        cost=np.empty((r, 2, t)),  # of which most may never be needed
        moves=np.empty((r, orders.max_iter), np.int64),
    )
    data, scales = held(backend), backend.scales
    columns = np.zeros((len(data.moved), d, BLOCK))
    for b in range(len(columns)):
        rows = data.X[b * BLOCK : (b + 1) * BLOCK]
        columns[b, :, : len(rows)] = rows.T
    rules, stride = rules_of(backend, orders), min(backend.tuning.longest_slice, max(1, SLICE // (PASSES * n * k * d)))

    def work(hands: Iterable[list[int]]) -> None:
        tools = Centers.empty(1, k, d), stand(backend, k, orders.candidates, n), backend.desk(k)
        for hand in hands:
            go_round(hand, tools)

    def go_round(going: list[int], tools: tuple[Centers, RelocationScratch, ScoreScratch]) -> None:
        while going:
            for one in going:
                age = int(its.status[one, kernels.AGE])
                over = orders.monitor.should_stop()
                if over and age:
                    continue
                begun, until = max(age - 1, 0), 1 if over else age + stride
                words = draws.words(
                    orders.seed, int(orders.numbers[one]), (until - begun) * orders.candidates,
                    purpose=Purpose.CANDIDATE, first=begun * orders.candidates,
                ).reshape(-1, orders.candidates)  # fmt: skip
                kernels.roam_restart(data, columns, its, twos, one, words, begun, rules, until, scales, *tools)
            show(its.status, its.cost, orders.monitor)
            over = orders.monitor.should_stop()
            going = [one for one in going if not its.status[one, kernels.DONE] and not over]

    backend.workers.map(work, [list(range(i, r, backend.workers.threads)) for i in range(backend.workers.threads)])
    age = its.status[:, kernels.AGE]
    made = np.arange(age.max()) < age[:, None]  # (R, T + 1)
    current, best = (np.where(made, its.cost[:, i, : age.max()], np.nan) for i in (0, 1))
    moves = np.where(made[:, 1:], its.moves[:, : age.max() - 1], -1)
    return RelocationRun(its.best, stops(its.status), current, best, moves)


def medium(backend: NumbaBackend, k: int, restarts: int) -> bool:
    points, work = backend.points, backend.points.n * backend.points.d
    whole = len(points.chunks) == 1 and not points.out_of_core
    return whole and restarts >= backend.workers.threads and work <= COPIED and work * k <= backend.tuning.medium_data


def rules_of(backend: NumbaBackend, orders: RelocationSettings) -> RelocationRules:
    return RelocationRules(
        orders.max_iter, orders.patience, orders.go_back, orders.returns, orders.steps, orders.more_steps,
        float(orders.reach), float(orders.target), backend.grid.coarsest(backend.points.n), backend.grid.finest, ENOUGH_BITS,
        POTENTIAL_BITS,
    )  # fmt: skip


def stand(backend: NumbaBackend, k: int, candidates: int = 1, n: int = 0) -> RelocationScratch:
    """Scratch memory of the calling thread."""
    d = backend.points.d
    return RelocationScratch(
        columns=np.empty((d, BLOCK)),
        squares=np.empty(max(BLOCK, k)),
        affected=np.empty(BLOCK + 1, np.int64),
        crowd=np.empty((d, BLOCK), np.float32),
        moved=np.empty(k, np.bool_),
        mass=np.empty((2, k)),
        found=np.empty(BLOCK, np.int32),
        term=np.empty(backend.columns, np.int64),
        points=np.empty((candidates, d)),
        rows=np.empty(candidates, np.int64),
        loss=np.empty((k, 3), np.int64),
        change=np.empty((candidates, k + 1, 3), np.int64),
        running=np.empty(n, np.int64),
        sums=np.empty(3, np.int64),
    )
