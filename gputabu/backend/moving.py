"""Single moves of points between clusters (Hartigan 1975): when one lowers J, and a walk over many, in NumPy.

To take x of weight w from cluster a of weight W_a to b of weight W_b changes J, at the centroids, by
w (enter_b − leave_a), with

    leave_a = W_a / (W_a − w) · d²(x, c_a),    enter_b = W_b / (W_b + w) · d²(x, c_b).

The best b is that of the least `enter`, the lowest number on ties; an empty one costs nothing. A point of weight zero,
or alone in its cluster, stays. Distances are canonical, and all is float64 in the order written: every backend must
reproduce it bit for bit.
"""

from __future__ import annotations

import math

import numpy as np

from gputabu.backend import canonical
from gputabu.backend.ops import Moves
from gputabu.backend.reductions import quantize
from gputabu.backend.workers import Scratch
from gputabu.points import Block, Bounds, Grid, Totals
from gputabu.results import NOISE


def slack(bounds: Bounds) -> float:
    """What a centroid may be off by, as a length, eight times over.

    A distance r then errs by at most a quarter of that, r² by half of it times r, and leave − enter, with
    f = W_a / (W_a − w) >= 1, by less than `slack` · sqrt(f · leave).
    """
    reach = float(np.maximum(np.abs(bounds.low), np.abs(bounds.high)).max())
    return 8.0 * math.sqrt(len(bounds.low)) * 2.0**-52 * reach


def masses(grid: Grid, totals: np.ndarray) -> np.ndarray:
    """Weights of the clusters twice, (R, K, C) -> (R, 2, K): to leave, zero where a point would be alone; to enter."""
    weights = grid.weights(totals)
    return np.stack([np.where(Totals.counts(totals) >= 2, weights, 0.0), weights], axis=1)


def find(
    block: Block, centers: np.ndarray, mass: np.ndarray, labels: np.ndarray, slack: float, scratch: Scratch
) -> tuple[np.ndarray, np.ndarray]:
    """The points of a block that a move improves, and where to: (K, d), (2, K), (n,) -> (m,), (m,)."""
    weights = np.ones(1) if block.weights is None else block.weights
    with np.errstate(divide="ignore", invalid="ignore"):  # where a point may not leave, or has no weight
        left = mass[0, labels]
        rest = left - weights
        factor = left / rest
        share = mass[1, :, None] / (mass[1, :, None] + weights)  # (K, n) or (K, 1)
        squares = canonical.to_all(block.X, centers, scratch)  # (K, n)
        everyone = np.arange(len(labels))
        leave = factor * squares[labels, everyone]
        squares *= share
        squares[labels, everyone] = np.inf
        target = squares.argmin(axis=0)  # the first of equals
        enter = squares[target, everyone]
        better = leave - enter > NOISE * leave + slack * np.sqrt(factor * leave)
    found = np.flatnonzero(better & (rest > 0) & (weights > 0))
    return found, target[found]


def walk(
    grid: Grid,
    slack: float,
    X: np.ndarray,
    weights: np.ndarray | None,
    moves: Moves,
    centers: np.ndarray,
    totals: np.ndarray,
) -> np.ndarray:
    """Make the moves of points X (M, d) in turn, each if it still lowers J; centers and totals follow: -> (M,) bool."""
    terms = np.concatenate(quantize(X, weights, grid), axis=1).astype(np.int64)
    mass = masses(grid, totals)
    heavy = np.ones(len(X)) if weights is None else weights
    made = np.zeros(len(X), np.bool_)
    for m, (r, a, b) in enumerate(zip(moves.restart, moves.source, moves.target, strict=True)):
        weight, left, right = float(heavy[m]), float(mass[r, 0, a]), float(mass[r, 1, b])
        rest = left - weight
        if not rest > 0.0:
            continue
        pair = [a, b]
        away = X[m] - centers[r, pair]
        own, other = np.cumsum(away * away, axis=1)[:, -1].tolist()  # in order, in one call
        factor = left / rest
        leave, enter = factor * own, right / (right + weight) * other
        if leave - enter > NOISE * leave + slack * math.sqrt(factor * leave):
            totals[r, a] -= terms[m]
            totals[r, b] += terms[m]
            centers[r, pair] = grid.centroids(totals[r, pair], centers[r, pair])
            mass[r][:, pair] = masses(grid, totals[r, pair][None])[0]
            made[m] = True
    return made
