"""Squared distances to the nearest seed, their potential, and draws from it: `NumpySeeding`."""

from __future__ import annotations

import math

import numpy as np

from gputabu.backend.arithmetic.constants import ENOUGH_BITS, POTENTIAL_BITS
from gputabu.backend.numba.kernels.canonical import square
from gputabu.backend.numba.kernels.jit import compiled, inner
from gputabu.backend.numba.kernels.scores import BLOCK, prepare_points, score, square_doubt


@inner
def potential_term(min_sq_dist, weight, scale):
    """w · d² on the grid of the potential: up to 2^60, which is too large for `rounded`."""
    return np.int64(np.rint(min_sq_dist * weight * scale))


@compiled
def seed_rows(X, weights, first, min_sq_dist, seeds, powers, fast, scales, gains, lower, coords, length, scores):
    """`Backend.seed_gains` for the rows from `first` on: min_sq_dist (R, N), seeds (R, T, d), powers (R,); adds to
    gains (R, T).

    Where `lower`, it is `Backend.lower_sq_dist` instead: less d² are written to `min_sq_dist`.
    Few points are nearer to a new seed; the fast score of the others says so, as in `NumpySeeding.nearer`.
    """
    n, d = X.shape
    for start in range(0, n, BLOCK):
        stop = min(n, start + BLOCK)
        prepare_points(X[start:stop], scales.origin, scales.unit, coords, length)
        for r in range(seeds.shape[0]):
            least, doubt = min_sq_dist[r, first + start : first + stop], fast.doubt[r]
            for t in range(seeds.shape[1]):
                score(fast.factors[r, t], fast.norms[r, t], coords, scores, stop - start)
                gain = 0
                for i in range(stop - start):
                    size = np.float64(length[i])
                    slack = square_doubt(size, doubt, d)
                    if scores[i] > least[i] * scales.unit * scales.unit - size * size + slack:
                        continue
                    found = square(X[start + i], seeds[r, t])
                    if not found < least[i]:
                        continue
                    if lower:
                        least[i] = found
                    else:
                        weight = weights[start + i] if len(weights) else 1.0
                        gain += potential_term(least[i], weight, powers[r]) - potential_term(found, weight, powers[r])
                gains[r, t] += gain


@compiled
def potential_rows(weights, first, stop, min_sq_dist, powers, sums):
    """`Backend.potential` for the rows from `first` to `stop`: min_sq_dist (R, N), powers (R,) -> sums (R,) int64."""
    for r in range(len(min_sq_dist)):
        least, total = min_sq_dist[r, first:stop], 0
        for i in range(len(least)):
            total += potential_term(least[i], weights[i] if len(weights) else 1.0, powers[r])
        sums[r] = total


@inner
def running_potential(min_sq_dist, weights, scale, running):
    """Running totals of the potential, (N,) int64; returns the last."""
    total = 0
    for i in range(len(min_sq_dist)):
        total += potential_term(min_sq_dist[i], weights[i] if len(weights) else 1.0, scale)
        running[i] = total
    return total


@inner
def high_product(a, b):
    """The high half of the 128-bit product of two words: `random.below`."""
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    a1, a0, b1, b0 = a >> half, a & low, b >> half, b & low
    middle = a1 * b0 + ((a0 * b0) >> half)
    return a1 * b1 + (middle >> half) + ((a0 * b1 + (middle & low)) >> half)


@inner
def draw_rows(min_sq_dist, weights, words, coarsest, finest, running, rows):
    """Draw rows (T,) by words (T,), in proportion to w d²: `seeding.refine`, `Backend.sample`.

    Returns whether there was anything to draw from.
    """
    shift = coarsest
    while True:
        total = running_potential(min_sq_dist, weights, math.ldexp(1.0, shift), running)
        bits, rest = 0, total
        while rest > 0:
            bits += 1
            rest >>= 1
        if bits >= ENOUGH_BITS or shift >= finest:
            break
        shift = min(shift + POTENTIAL_BITS - max(bits, 4), finest)
    if total == 0:
        return False
    for t in range(len(words)):
        wanted = np.int64(high_product(words[t], np.uint64(total)))
        low, high = 0, len(running)
        while low < high:  # the first row beyond
            middle = (low + high) // 2
            if running[middle] > wanted:
                high = middle
            else:
                low = middle + 1
        rows[t] = low
    return True
