"""Hartigan's descent: single points move to another cluster while that lowers J (Hartigan 1975, ch. 4).

K-Means ends where every point is nearest to the centroid of its own cluster. A move of one point also shifts the two
centroids; counting that in (`gputabu.backend.numpy.hartigan`), it may lower J still. Where no single move does, K-Means has
nothing to do either, so minima of this kind are fewer and better.

A round looks for every point's best move, with all centroids fixed, and then makes these moves in the order of rows,
each only if it lowers J by more than rounding at the centroids of that moment. The first always does. So J falls with
every move, and the descent ends when a round finds none.

By then every point is nearest to its own centroid, or on two of them that coincide. If labelling by the lowest of those
leaves a cluster empty, there may be moves again, to that one.
"""

from __future__ import annotations

import numpy as np

from gputabu.algorithms.monitor import Watch
from gputabu.backend.contract import Improved, Moves, Ops
from gputabu.core.log import log

#: Rounds until a labelling is settled. It is long before; it is there so that nothing runs for ever.
ROUNDS = 10_000


def improve(
    ops: Ops,
    centers: np.ndarray,
    watch: Watch | None = None,
    max_rounds: int = ROUNDS,
    positions: np.ndarray | None = None,
) -> Improved:
    """Label the points by centers (R, K, d), go to the centroids, and make single moves until none lowers J.

    A cluster that is empty takes the first point that gains by moving there. `positions` (R,) of the restarts in their
    batch are for those who watch; by default it is all of them.
    """
    watch = Watch() if watch is None else watch
    own = None if watch.each else ops.improve(centers, max_rounds, watch.hurried)
    if own is not None:
        return own
    r = len(centers)
    positions = np.arange(r) if positions is None else positions
    labels = ops.blank(r)
    totals = ops.assign(centers, labels).totals
    centers = ops.grid.centroids(totals, centers)
    found, ended = Improved(centers.copy(), np.zeros(r, np.int64)), totals.copy()
    active = np.arange(r)
    for number in range(1, max_rounds + 1):
        moves = ops.moves(centers, totals, labels)
        going = np.unique(moves.restart)
        if len(going) < len(active):
            active, centers, totals, labels = active[going], centers[going], totals[going], ops.take(labels, going)
            moves = Moves(np.searchsorted(going, moves.restart), moves.row, moves.source, moves.target)
        if len(active) == 0:
            break
        found.moves[active] += ops.shift(centers, totals, labels, moves)
        found.centers[active], ended[active] = centers, totals
        log.debug("single moves, round %d: %d restarts, %d points looked at", number, len(active), len(moves))
        if watch.each:
            cost = np.maximum(ops.scatter - ops.grid.explained(totals), 0.0)
            watch.tell(number, positions[active], cost, cost, np.zeros(len(active), np.bool_))
        if watch.hurried():
            return found
    settled = np.setdiff1d(np.flatnonzero(found.moves), active)
    again = settled[_relabelled(ops, found.centers[settled], ended[settled])]
    if len(again):
        more = improve(ops, found.centers[again], watch, max_rounds, positions[again])
        found.centers[again] = more.centers
        found.moves[again] += more.moves
    return found


def _relabelled(ops: Ops, centers: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """Whether labelling by centers (R, K, d) gives other clusters than those of totals (R, K, C): (R,) bool."""
    if len(centers) == 0:
        return np.zeros(0, np.bool_)
    return (ops.assign(centers, ops.blank(len(centers))).totals != totals).any(axis=(1, 2))
