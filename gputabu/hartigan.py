"""Hartigan's descent: single points move to another cluster while that lowers J (Hartigan 1975, ch. 4).

K-Means ends where every point is nearest to the centroid of its own cluster. A move of one point also shifts the two
centroids; counting that in (`gputabu.backend.moving`), it may lower J still. Where no single move does, K-Means has
nothing to do either, so minima of this kind are fewer and better.

A round looks for every point's best move, with all centroids fixed, and then makes these moves in the order of rows,
each only if it lowers J by more than rounding at the centroids of that moment. The first always does. So J falls with
every move, and the descent ends when a round finds none.
"""

from __future__ import annotations

import numpy as np

from gputabu.backend.ops import Improved, Moves, Ops
from gputabu.interrupts import Interrupts
from gputabu.reporting import log

#: Rounds of a descent. It ends long before; it is there so that nothing runs for ever.
ROUNDS = 10_000


def improve(ops: Ops, centers: np.ndarray, interrupts: Interrupts | None = None, max_rounds: int = ROUNDS) -> Improved:
    """Label the points by centers (R, K, d), go to the centroids, and make single moves until none lowers J.

    A cluster that is empty takes the first point that gains by moving there.
    """

    def interrupted() -> bool:
        return interrupts is not None and interrupts.asked

    own = ops.improve(centers, max_rounds, interrupted)
    if own is not None:
        return own
    r = len(centers)
    labels = ops.blank(r)
    totals = ops.assign(centers, labels).totals
    centers = ops.grid.centroids(totals, centers)
    ended, made = centers.copy(), np.zeros(r, np.int64)
    active = np.arange(r)
    for number in range(1, max_rounds + 1):
        moves = ops.moves(centers, totals, labels)
        going = np.unique(moves.restart)
        if len(going) == 0:
            break
        if len(going) < len(active):
            active, centers, totals, labels = active[going], centers[going], totals[going], ops.take(labels, going)
            moves = Moves(np.searchsorted(going, moves.restart), moves.row, moves.source, moves.target)
        made[active] += ops.shift(centers, totals, labels, moves)
        ended[active] = centers
        log.debug("single moves, round %d: %d restarts, %d points looked at", number, len(active), len(moves))
        if interrupted():
            break
    return Improved(ended, made)
