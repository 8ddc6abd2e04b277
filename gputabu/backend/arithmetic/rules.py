"""Rules that decide moves, in the order every backend must compute them: float64, as written.

*Hartigan's rule.* Taking x of weight w from cluster a of weight W_a to b of weight W_b changes J, at the centroids, by
w (enter_b − leave_a), with

    leave_a = W_a / (W_a − w) · d²(x, c_a),    enter_b = W_b / (W_b + w) · d²(x, c_b).

The best b is that of the least `enter`, the lowest number on ties; an empty one costs nothing. A point of weight zero,
or alone in its cluster, stays.

*Relocation.* If point c becomes a centre in place of centre k, J at the centres changes by

    Σ_{x ∈ C_k} w [min(d₂, d_c) − min(d₁, d_c)] − Σ_x w max(0, d₁ − d_c),

d₁ and d₂ being the squared distances of x to its two nearest centres, and d_c to c. After a move, all points at once
are reassigned by Hartigan's rule between their two nearest centres; from a cluster that is neither of the two, or
without weight, a point goes to the nearest.
"""

from __future__ import annotations

import math

import numpy as np

from gputabu.backend.arithmetic.constants import NOISE
from gputabu.backend.arithmetic.fixed_point import Bounds, Grid, Totals, from_limbs, quantize


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


def moved(centers: np.ndarray, at: np.ndarray) -> np.ndarray:
    """Which of centers (R, K, d) are elsewhere than `at` (R, K, d): (R, K) bool."""
    return (centers != at).any(axis=2)


def swapped(loss: np.ndarray, change: np.ndarray, cost: int) -> np.ndarray:
    """ΔJ of every candidate in place of every centre, from its limbs: (R, K, 3), (R, T, K + 1, 3) -> (R, T, K).

    loss is that of a centre if nothing takes its place; change, how a candidate changes that, and last what it saves.
    """
    sums = loss[:, None] + change[:, :, :-1] - change[:, :, -1:]
    return from_limbs(*np.moveaxis(sums, -1, 0), exponents=cost)


def lowest(cost: np.ndarray) -> np.ndarray:
    """Position of the lowest J along the last axis: the first of those that differ only by rounding."""
    least = cost.min(axis=-1, keepdims=True)
    return (cost <= least * (1 + NOISE)).argmax(axis=-1)


def walk(
    grid: Grid,
    slack: float,
    X: np.ndarray,
    weights: np.ndarray | None,
    restart: np.ndarray,
    source: np.ndarray,
    target: np.ndarray,
    centers: np.ndarray,
    totals: np.ndarray,
) -> np.ndarray:
    """Make the moves of points X (M, d) in turn, each if it still lowers J; centers and totals follow: -> (M,) bool."""
    terms = np.concatenate(quantize(X, weights, grid), axis=1).astype(np.int64)
    mass = masses(grid, totals)
    heavy = np.ones(len(X)) if weights is None else weights
    made = np.zeros(len(X), np.bool_)
    for m, (r, a, b) in enumerate(zip(restart, source, target, strict=True)):
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
