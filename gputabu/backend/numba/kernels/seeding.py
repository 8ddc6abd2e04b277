"""Squared distances to the nearest seed, their potential, and draws from it: `NumpySeeding`."""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np

from gputabu.backend.arithmetic.constants import ENOUGH_BITS, POTENTIAL_BITS
from gputabu.backend.numba.kernels.canonical import square, squares_to_one
from gputabu.backend.numba.kernels.jit import compiled, inner
from gputabu.backend.numba.kernels.scores import BLOCK, prepare_points, score, square_doubt


class SeedScratch(NamedTuple):
    """Scratch memory of one thread for seeds of a restart."""

    least: np.ndarray  # (N,) float64: d² to the nearest seed
    terms: np.ndarray  # (N,) int64: what points add to the potential
    sums: np.ndarray  # (N / BLOCK,) int64: what blocks add
    squares: np.ndarray  # (BLOCK,) float64


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
def bit_length(total):
    """Bits of a number that is not negative."""
    bits = 0
    while total > 0:
        bits += 1
        total >>= 1
    return bits


@inner
def finer(shift, bits, finest):
    """The next shift of a potential with few bits: `seeding.refine`."""
    return min(shift + POTENTIAL_BITS - max(bits, 4), finest)


@inner
def draw_rows(min_sq_dist, weights, words, coarsest, finest, running, rows):
    """Draw rows (T,) by words (T,), in proportion to w d²: `seeding.refine`, `Backend.sample`.

    Returns whether there was anything to draw from.
    """
    shift = coarsest
    while True:
        total = running_potential(min_sq_dist, weights, math.ldexp(1.0, shift), running)
        bits = bit_length(total)
        if bits >= ENOUGH_BITS or shift >= finest:
            break
        shift = finer(shift, bits, finest)
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


# -- all seeds of a restart ------------------------------------------------------------------------


@inner
def lower_to(x, weights, columns, scratch, scale):
    """Lower the d² to those to a new seed, x (d,); terms and sums follow. Returns by how much the potential falls."""
    gain = 0
    for b in range(len(columns)):
        first = b * BLOCK
        n = min(len(scratch.least) - first, BLOCK)
        squares_to_one(columns[b], x, scratch.squares, n)
        before = gain
        for i in range(n):
            if scratch.squares[i] < scratch.least[first + i]:
                scratch.least[first + i] = scratch.squares[i]
                weight = weights[first + i] if len(weights) else 1.0
                term = potential_term(scratch.squares[i], weight, scale)
                gain += scratch.terms[first + i] - term
                scratch.terms[first + i] = term
        scratch.sums[b] -= gain - before
    return gain


@inner
def gain_of(x, weights, columns, scratch, scale):
    """By how much less the potential would be with one more seed, x (d,): `Backend.seed_gains`."""
    gain = 0
    for b in range(len(columns)):
        first = b * BLOCK
        n = min(len(scratch.least) - first, BLOCK)
        squares_to_one(columns[b], x, scratch.squares, n)
        for i in range(n):
            if scratch.squares[i] < scratch.least[first + i]:
                weight = weights[first + i] if len(weights) else 1.0
                gain += scratch.terms[first + i] - potential_term(scratch.squares[i], weight, scale)
    return gain


@inner
def take_terms(weights, scratch, scale):
    """What points and blocks add to the potential on another grid; returns the potential."""
    potential = 0
    for b in range(len(scratch.sums)):
        first, before = b * BLOCK, potential
        for i in range(first, min(len(scratch.least), first + BLOCK)):
            scratch.terms[i] = potential_term(scratch.least[i], weights[i] if len(weights) else 1.0, scale)
            potential += scratch.terms[i]
        scratch.sums[b] = potential - before
    return potential


@inner
def row_beyond(scratch, wanted):
    """The first row at which the running potential exceeds what is wanted."""
    b = 0
    while scratch.sums[b] <= wanted:
        wanted -= scratch.sums[b]
        b += 1
    i = b * BLOCK
    while scratch.terms[i] <= wanted:
        wanted -= scratch.terms[i]
        i += 1
    return i


@compiled
def seed_restart(data, columns, first, words, coarsest, finest, scratch, chosen):
    """K-Means++ of one restart behind its first row: `algorithms.seeding.grow`. words (K - 1, T) -> chosen (K - 1,).

    Returns how many could be drawn: the rest where every point is on a seed.
    """
    X, weights, d = data.X, data.weights, data.X.shape[1]
    seed, shift = np.empty(d), coarsest
    scratch.least[:] = np.inf
    scratch.terms[:] = 0
    scratch.sums[:] = 0
    last, potential = first, np.int64(-1)
    for i in range(len(chosen)):
        for j in range(d):
            seed[j] = np.float64(X[last, j])
        gain = lower_to(seed, weights, columns, scratch, math.ldexp(1.0, shift))
        potential = -gain if i == 0 else potential - gain
        bits = bit_length(potential)
        while bits < ENOUGH_BITS and shift < finest:
            shift = finer(shift, bits, finest)
            potential = take_terms(weights, scratch, math.ldexp(1.0, shift))
            bits = bit_length(potential)
        if potential == 0:
            return i
        most = np.int64(-1)
        for t in range(words.shape[1]):
            row = row_beyond(scratch, np.int64(high_product(words[i, t], np.uint64(potential))))
            for j in range(d):
                seed[j] = np.float64(X[row, j])
            gain = gain_of(seed, weights, columns, scratch, math.ldexp(1.0, shift))
            if gain > most:
                most, last = gain, row
        chosen[i] = last
    return len(chosen)
