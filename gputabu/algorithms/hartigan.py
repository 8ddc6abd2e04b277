"""Hartigan's descent: single points move to another cluster while that lowers J (Hartigan 1975, ch. 4).

K-Means ends where every point is nearest to the centroid of its own cluster. A move of one point also shifts the two
centroids; counting that in (`backend.arithmetic.rules`), it may lower J still. Where no single move does, K-Means has
nothing to do either, so minima of this kind are fewer and better.

A round looks for every point's best move, with all centroids fixed, and then makes these moves in the order of rows,
each only if it lowers J by more than rounding at the centroids of that moment. The first always does. So J falls with
every move, and the descent ends when a round finds none.

By then every point is nearest to its own centroid, or on two of them that coincide. If labelling by the lowest of those
leaves a cluster empty, there may be moves again, to that one.
"""

from __future__ import annotations

import numpy as np

from gputabu.algorithms.monitor import Monitor
from gputabu.backend.base import BackendBase
from gputabu.backend.contract import Moves
from gputabu.backend.loops import HartiganRun, HartiganSettings
from gputabu.core.log import log

#: Rounds until a labelling is settled. It is long before; it is there so that nothing runs for ever.
ROUNDS = 10_000


def improve(
    backend: BackendBase,
    centers: np.ndarray,
    monitor: Monitor | None = None,
    max_rounds: int = ROUNDS,
    positions: np.ndarray | None = None,
) -> HartiganRun:
    """Label the points by centers (R, K, d), go to the centroids, and make single moves until none lowers J.

    A cluster that is empty takes the first point that gains by moving there. `positions` (R,) of the restarts in their
    batch are for those who watch; by default it is all of them.
    """
    monitor = Monitor() if monitor is None else monitor
    own = None if monitor.every_iteration else backend.loops.hartigan(centers, HartiganSettings(max_rounds, monitor))
    if own is not None:
        return own
    r = len(centers)
    positions = np.arange(r) if positions is None else positions
    labels = backend.blank_labels(r)
    totals = backend.assign(centers, labels).totals
    centers = backend.grid.centroids(totals, centers)
    found, ended = HartiganRun(centers.copy(), np.zeros(r, np.int64)), totals.copy()
    active = np.arange(r)
    for number in range(1, max_rounds + 1):
        moves = backend.find_moves(centers, totals, labels)
        going = np.unique(moves.restart)
        if len(going) < len(active):
            active, centers, totals, labels = (
                active[going],
                centers[going],
                totals[going],
                backend.take_labels(labels, going),
            )
            moves = Moves(np.searchsorted(going, moves.restart), moves.row, moves.source, moves.target)
        if len(active) == 0:
            break
        found.moves[active] += backend.make_moves(centers, totals, labels, moves)
        found.centers[active], ended[active] = centers, totals
        log.debug("single moves, round %d: %d restarts, %d points looked at", number, len(active), len(moves))
        if monitor.every_iteration:
            cost = np.maximum(backend.scatter - backend.grid.explained(totals), 0.0)
            monitor.report(number, positions[active], cost, cost, np.zeros(len(active), np.bool_))
        if monitor.should_hurry():
            return found
    settled = np.setdiff1d(np.flatnonzero(found.moves), active)
    again = settled[_relabelled(backend, found.centers[settled], ended[settled])]
    if len(again):
        more = improve(backend, found.centers[again], monitor, max_rounds, positions[again])
        found.centers[again] = more.centers
        found.moves[again] += more.moves
    return found


def _relabelled(backend: BackendBase, centers: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """Whether labelling by centers (R, K, d) gives other clusters than those of totals (R, K, C): (R,) bool."""
    if len(centers) == 0:
        return np.zeros(0, np.bool_)
    return (backend.assign(centers, backend.blank_labels(len(centers))).totals != totals).any(axis=(1, 2))
