"""The two nearest centres of every point and what relocation makes of them, compiled; whole searches of small data."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

import numpy as np

from gputabu.backend.arithmetic import rules
from gputabu.backend.arithmetic.fixed_point import ENOUGH_BITS, POTENTIAL_BITS
from gputabu.backend.contract import Assigned, Pairs, Roamed, Roaming
from gputabu.backend.numba import kernels
from gputabu.backend.numba.kernels import BLOCK, Centers, Desk, Roams, Rules, Stand, Twos
from gputabu.backend.numba.restarts import STATE_BYTES, held, show, small, stops
from gputabu.backend.numpy import relocation
from gputabu.core import random as draws
from gputabu.core.random import Purpose
from gputabu.data.points import Block

if TYPE_CHECKING:
    from gputabu.backend.numba.backend import NumbaOps

#: Passes over the points in an iteration, about, and work (points times centres times features) between two looks at
#: whether to stop early: some milliseconds, as these searches are mostly ended by `max_time`.
PASSES = 8
SLICE = 1 << 23
#: Iterations between two looks at whether to stop early, at the most.
LONGEST = 256
#: Work of a pass (points times centres times features) up to which a thread may have a search for itself, if there are
#: searches for all threads; and points times features, of which the searches then have copies.
MEDIUM = 1 << 26
COPIED = 1 << 22


def update(ops: NumbaOps, centers: np.ndarray, held: Pairs) -> None:
    """See `Ops.pairs`."""
    moved = rules.moved(centers, held.at)
    if not moved.any():
        return
    k, scales = centers.shape[1], ops.scales
    centers, fast = np.ascontiguousarray(centers), ops.ready(centers, scales)
    twos = Twos(held.first, held.second, held.near, held.far)

    def look(pieces: Iterable[Block]) -> None:
        mine, desk = stand(ops, k), ops.desk(k)
        for block in pieces:
            X, _, first = ops.given(block)
            kernels.pair_rows(X, first, centers, fast, moved, twos, scales, mine, desk)

    ops.workers.map(look, ops.pieces())
    held.at[...] = centers


def settle(
    ops: NumbaOps, pairs: Pairs, labels: np.ndarray, mass: np.ndarray | None, who: np.ndarray
) -> tuple[Assigned, np.ndarray]:
    """See `Exact.settled`."""
    r, k, _ = pairs.at.shape
    scales, nearest = ops.scales, mass is None
    masses = np.zeros((r, 2, k)) if mass is None else np.ascontiguousarray(mass)
    twos = Twos(pairs.first, pairs.second, pairs.near, pairs.far)

    def relabel(pieces: Iterable[Block]) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        mine, totals, changed = stand(ops, k), np.zeros((r, k, ops.columns), np.int64), np.zeros(r, np.int64)
        costs = np.zeros((r, 3), np.int64)
        for block in pieces:
            for one in np.flatnonzero(who):
                kernels.settle_rows(*ops.given(block), labels, twos, one, masses[one], nearest, scales, totals,
                                    changed, costs, mine)  # fmt: skip
        return totals, changed, costs

    parts = ops.workers.map(relabel, ops.pieces())
    totals, changed, costs = (np.sum(side, axis=0) for side in zip(*parts, strict=True))
    return Assigned(totals, changed), costs.T


def swaps(ops: NumbaOps, candidates: np.ndarray, pairs: Pairs) -> tuple[np.ndarray, np.ndarray]:
    """See `Exact.swaps`."""
    (r, t, _), k = candidates.shape, pairs.at.shape[1]
    candidates, to_limbs = np.ascontiguousarray(candidates), ops.scales.cost[0]
    twos = Twos(pairs.first, pairs.second, pairs.near, pairs.far)

    def add(pieces: Iterable[Block]) -> tuple[np.ndarray, np.ndarray]:
        mine, loss, change = stand(ops, k), np.zeros((r, k, 3), np.int64), np.zeros((r, t, k + 1, 3), np.int64)
        for block in pieces:
            kernels.gain_rows(*ops.given(block), candidates, twos, to_limbs, loss, change, mine)
        return loss, change

    parts = ops.workers.map(add, ops.pieces())
    loss, change = (np.sum(side, axis=0) for side in zip(*parts, strict=True))
    return loss, change


def roam(ops: NumbaOps, centers: np.ndarray, orders: Roaming) -> Roamed | None:
    """Run R searches from centers (R, K, d); None where the data is too large for that.

    Threads go round the restarts that are theirs, so that all have gone equally far when the time is over.
    """
    (r, k, d), n, t = centers.shape, ops.points.n, orders.max_iter + 1
    if not (small(ops, k) or medium(ops, k, r)) or 24 * r * t > STATE_BYTES:
        return None
    pairs = relocation.empty(ops.room, centers, n)
    twos = Twos(pairs.first, pairs.second, pairs.near, pairs.far)
    its = Roams(
        labels=np.full((r, n), -1, np.int32),
        totals=np.zeros((r, k, ops.columns), np.int64),
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
    data, scales = held(ops), ops.scales
    columns = np.zeros((len(data.moved), d, BLOCK))
    for b in range(len(columns)):
        rows = data.X[b * BLOCK : (b + 1) * BLOCK]
        columns[b, :, : len(rows)] = rows.T
    rules, stride = rules_of(ops, orders), min(LONGEST, max(1, SLICE // (PASSES * n * k * d)))

    def work(hands: Iterable[list[int]]) -> None:
        tools = Centers.empty(1, k, d), stand(ops, k, orders.candidates, n), ops.desk(k)
        for hand in hands:
            go_round(hand, tools)

    def go_round(going: list[int], tools: tuple[Centers, Stand, Desk]) -> None:
        while going:
            for one in going:
                age = int(its.status[one, kernels.AGE])
                over = orders.watch.over()
                if over and age:
                    continue
                begun, until = max(age - 1, 0), 1 if over else age + stride
                words = draws.words(
                    orders.seed, int(orders.numbers[one]), (until - begun) * orders.candidates,
                    purpose=Purpose.CANDIDATE, first=begun * orders.candidates,
                ).reshape(-1, orders.candidates)  # fmt: skip
                kernels.roam_restart(data, columns, its, twos, one, words, begun, rules, until, scales, *tools)
            show(its.status, its.cost, orders.watch)
            over = orders.watch.over()
            going = [one for one in going if not its.status[one, kernels.DONE] and not over]

    ops.workers.map(work, [list(range(i, r, ops.workers.threads)) for i in range(ops.workers.threads)])
    age = its.status[:, kernels.AGE]
    made = np.arange(age.max()) < age[:, None]  # (R, T + 1)
    current, best = (np.where(made, its.cost[:, i, : age.max()], np.nan) for i in (0, 1))
    moves = np.where(made[:, 1:], its.moves[:, : age.max() - 1], -1)
    return Roamed(its.best, stops(its.status), current, best, moves)


def medium(ops: NumbaOps, k: int, restarts: int) -> bool:
    points, work = ops.points, ops.points.n * ops.points.d
    whole = len(points.chunks) == 1 and not points.out_of_core
    return whole and restarts >= ops.workers.threads and work <= COPIED and work * k <= MEDIUM


def rules_of(ops: NumbaOps, orders: Roaming) -> Rules:
    return Rules(
        orders.max_iter, orders.patience, orders.go_back, orders.returns, orders.steps, orders.more_steps,
        float(orders.reach), float(orders.target), ops.grid.coarsest(ops.points.n), ops.grid.finest, ENOUGH_BITS,
        POTENTIAL_BITS,
    )  # fmt: skip


def stand(ops: NumbaOps, k: int, candidates: int = 1, n: int = 0) -> Stand:
    """Scratch memory of the calling thread."""
    d = ops.points.d
    return Stand(
        columns=np.empty((d, BLOCK)),
        squares=np.empty(max(BLOCK, k)),
        affected=np.empty(BLOCK + 1, np.int64),
        crowd=np.empty((d, BLOCK), np.float32),
        moved=np.empty(k, np.bool_),
        mass=np.empty((2, k)),
        found=np.empty(BLOCK, np.int32),
        term=np.empty(ops.columns, np.int64),
        points=np.empty((candidates, d)),
        rows=np.empty(candidates, np.int64),
        loss=np.empty((k, 3), np.int64),
        change=np.empty((candidates, k + 1, 3), np.int64),
        running=np.empty(n, np.int64),
        sums=np.empty(3, np.int64),
    )
