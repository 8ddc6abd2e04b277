"""Sums over points as integers on the grid: `arithmetic.fixed_point`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gputabu.backend.arithmetic.constants import LIMB
from gputabu.backend.numba.kernels.jit import inner

LIMB_UNIT = 2.0**LIMB
#: Added to a number below 2^51, it leaves its nearest integer in the low bits, ties to even.
ROUNDER = 1.5 * 2.0**52
ROUNDER_BITS = np.float64(ROUNDER).view(np.int64)


class Scales(NamedTuple):
    """The grid (`arithmetic.fixed_point.Grid`) as powers of two, and how far the fast scores can be trusted."""

    origin: np.ndarray  # (d,) the offset in the dtype of the points
    axes: np.ndarray  # (4, d): offset, 2^(LIMB - coordinate), 2^(coordinate - LIMB), 2^(coordinate - 2 LIMB)
    weight: tuple[float, ...]  # (3,): 2^(LIMB - weight), 2^(weight - LIMB), 2^(weight - 2 LIMB)
    cost: tuple[float, ...]  # (4,): 2^(LIMB - cost), and of the three limbs of J
    key: float  # 2^(KEY_BITS - square)
    unit: float  # of the fast coordinates
    trust: float  # relative error of a fast score
    exact: float  # relative error of the canonical formula
    floor: float  # absolute error, where numbers underflow


@inner
def rounded(value):
    """The nearest integer, ties to even, of |value| < 2^51, as float64: two additions are always vectorised."""
    return (value + ROUNDER) - ROUNDER


@inner
def quantize_point(x, weight, weighted, axes, weight_scale, term):
    """What a point adds to the totals of its cluster, term (C,) int64: `fixed_point.quantize`."""
    d = len(x)
    offset, scale, highs, lows = axes[0], axes[1], term[:d], term[d : 2 * d]
    for j in range(d):
        value = np.float64(x[j]) - offset[j]
        if weighted:
            value = value * weight
        value = value * scale[j]
        high = value + ROUNDER
        low = (value - (high - ROUNDER)) * LIMB_UNIT + ROUNDER
        highs[j] = np.float64(high).view(np.int64) - ROUNDER_BITS  # the integer: conversions are not vectorised
        lows[j] = np.float64(low).view(np.int64) - ROUNDER_BITS
    if weighted:
        value = weight * weight_scale[0]
        high = rounded(value)
        term[2 * d] = np.int64(high)
        term[2 * d + 1] = np.int64(rounded((value - high) * LIMB_UNIT))
    term[-1] = 1 if weight > 0.0 else 0


@inner
def weight_of(total, d, weight_scale):
    """Weight of a cluster from its totals (C,): `Grid.weights`."""
    if len(total) == 2 * d + 1:
        return np.float64(total[2 * d])
    return np.float64(total[2 * d]) * weight_scale[1] + np.float64(total[2 * d + 1]) * weight_scale[2]


@inner
def take_means(totals, axes, weight_scale, fallback, means):
    """The centroids (eq. 3), `fallback` for empty clusters: `Grid.centroids`. (K, C), (K, d) -> means (K, d)."""
    k, d = means.shape
    for a in range(k):
        weight = weight_of(totals[a], d, weight_scale)
        for j in range(d):
            moment = np.float64(totals[a, j]) * axes[2, j] + np.float64(totals[a, d + j]) * axes[3, j]
            means[a, j] = axes[0, j] + moment / weight if weight > 0.0 else fallback[a, j]


@inner
def update_mass(totals, a, d, weight_scale, mass):
    """Bring the weight of cluster a in mass (2, K) up to date with totals (K, C): `rules.masses`."""
    mass[1, a] = weight_of(totals[a], d, weight_scale)
    mass[0, a] = mass[1, a] if totals[a, -1] >= 2 else 0.0


@inner
def scatter_between(totals, axes, weight_scale):
    """Scatter between the clusters, from their totals (K, C): `lloyd._traced_inertia`."""
    d = axes.shape[1]
    scatter = 0.0
    for a in range(len(totals)):
        weight = weight_of(totals[a], d, weight_scale)
        if not weight > 0.0:
            continue
        squares = 0.0
        for j in range(d):
            moment = np.float64(totals[a, j]) * axes[2, j] + np.float64(totals[a, d + j]) * axes[3, j]
            away = (axes[0, j] + moment / weight) - axes[0, j]
            squares += away * away
        scatter += weight * squares
    return scatter


@inner
def add_costs(squares, weights, to_limbs, sums, n):
    """Add the limbs of w·d² of n points to sums (3,) int64: `fixed_point.limbs`."""
    first, second, third = 0, 0, 0
    weighted = len(weights) > 0
    for i in range(n):
        value = squares[i] * weights[i] if weighted else squares[i]
        value = value * to_limbs
        limb = rounded(value)
        first += np.int64(np.int32(limb))
        value = (value - limb) * LIMB_UNIT
        limb = rounded(value)
        second += np.int64(np.int32(limb))
        value = (value - limb) * LIMB_UNIT
        third += np.int64(np.int32(rounded(value)))
    sums[0] += first
    sums[1] += second
    sums[2] += third


@inner
def add_limbs(value, to_limbs, sums, sign):
    """Add the limbs of one term of J to sums (3,) int64, or take them away: `fixed_point.limbs`."""
    value = value * to_limbs
    limb = rounded(value)
    sums[0] += sign * np.int64(limb)
    value = (value - limb) * LIMB_UNIT
    limb = rounded(value)
    sums[1] += sign * np.int64(limb)
    sums[2] += sign * np.int64(rounded((value - limb) * LIMB_UNIT))


@inner
def cost_from(high, middle, low, cost):
    """A cost from the sums of its three limbs: `fixed_point.from_limbs`."""
    total = np.float64(high) * cost[1]
    total = total + np.float64(middle) * cost[2]
    return total + np.float64(low) * cost[3]
