"""Single moves of points between clusters in NumPy: which of them lower J by Hartigan's rule (`arithmetic.rules`)."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from gputabu.backend.arithmetic import canonical, certified, rules
from gputabu.backend.arithmetic.certified import Product
from gputabu.backend.arithmetic.constants import BEYOND, NOISE
from gputabu.backend.arithmetic.scratch import Scratch
from gputabu.backend.contract import Moves
from gputabu.backend.numpy.tiling import Task, TiledBackend
from gputabu.data.points import Block


class NumpyHartigan(TiledBackend):
    """The passes of single moves."""

    def find_moves(self, centers: np.ndarray, totals: np.ndarray, labels: np.ndarray) -> Moves:
        r, k, _ = centers.shape
        mass, slack = rules.masses(self.grid, totals), rules.slack(self.bounds)
        fast = self.product(centers, self.grid.offset)
        target = self.allocate(labels.shape, np.int32, -1)

        def look(tasks: Iterable[Task]) -> None:
            scratch = self.workers.scratch
            for block, group in tasks:
                here = labels[group, block.rows]
                restart, point, where = find(block, fast.select(group), mass[group], here, slack, scratch)
                target[group.start + restart, block.start + point] = where

        self.workers.map(look, self.tasks(r, k))
        return listed(labels, target)

    def relabel(self, labels: np.ndarray, moves: Moves) -> None:
        labels[moves.restart, moves.row] = moves.target


def listed(labels: np.ndarray, target: np.ndarray) -> Moves:
    """The moves that `target` (R, N) holds, -1 for none."""
    restart, row = np.nonzero(target >= 0)
    return Moves(restart, row, labels[restart, row], target[restart, row])


def find(
    block: Block, fast: Product, mass: np.ndarray, labels: np.ndarray, slack: float, scratch: Scratch
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The moves of a block's points that lower J: (R, 2, K), (R, n) -> restarts, points and their targets, (m,) each.

    The fast product says which clusters may cost less than the own one; only for those is it computed canonically.
    """
    r, k, d = fast.centers.shape
    flat, restarts = fast.centers.reshape(r * k, d), np.arange(r)[:, None]
    weights = np.ones(len(block.X)) if block.weights is None else block.weights
    squares = canonical.to_own_center(block.X, flat, labels + restarts * k, scratch)  # (R, n)
    left = mass[:, 0][restarts, labels]
    rest = left - weights
    with np.errstate(divide="ignore", invalid="ignore"):  # where a point may not leave
        factor = left / rest
        leave = np.where((rest > 0) & (weights > 0), factor * squares, -1.0)
    maybe = _affordable(block, fast, mass[:, 1], leave, weights.max(), scratch)  # (R, K, n)
    maybe[restarts, labels, np.arange(len(block.X))] = False
    restart, point, cluster = np.nonzero(maybe.transpose(0, 2, 1))  # by point, then by cluster
    own = leave[restart, point] >= 0
    restart, point, cluster = restart[own], point[own], cluster[own]
    if len(point) == 0:
        return restart, point, cluster
    entered = mass[restart, 1, cluster]
    enter = canonical.of_pairs(block.X, point, flat, restart * k + cluster) * (entered / (entered + weights[point]))
    leave, factor = leave[restart, point], factor[restart, point]
    first = np.flatnonzero(np.diff(restart * len(block.X) + point, prepend=-1))
    sizes = np.diff(first, append=len(point))
    least = enter == np.repeat(np.minimum.reduceat(enter, first), sizes)
    chosen = np.flatnonzero(least & (leave - enter > NOISE * leave + slack * np.sqrt(factor * leave)))
    _, lowest = np.unique(restart[chosen] * len(block.X) + point[chosen], return_index=True)  # the first of equals
    chosen = chosen[lowest]
    return restart[chosen], point[chosen], cluster[chosen]


def _affordable(
    block: Block, fast: Product, entered: np.ndarray, leave: np.ndarray, heaviest: float, scratch: Scratch
) -> np.ndarray:
    """Where W / (W + w) · d² may be at most `leave`: (R, K), (R, n) -> (R, K, n) bool, as `NumpySeeding._nearer`."""
    d = block.X.shape[1]
    scores, norms = certified.scores(block.X, fast, scratch)
    norms = norms.astype(np.float64)
    with np.errstate(divide="ignore", over="ignore", invalid="ignore"):  # an empty cluster is for everyone
        times = (entered + heaviest) / entered  # (R, K), most for the heaviest point
        doubt = fast.doubt[0] + norms * (fast.doubt[1] + norms * fast.doubt[2])
        doubt += 4 * (d + 2) * np.finfo(fast.dtype).eps * norms**2
        limit = scratch("limit", scores.shape, np.float64)
        np.multiply(times[..., None], (leave * (fast.unit**2 * BEYOND))[:, None], out=limit)
        limit += (doubt - norms**2)[:, None]
        return ~(scores > limit)  # NaN is a maybe
