"""Powers of the fuzzifier m, with the same bits everywhere: no `pow`, whose last bits are those of a C library.

Fuzzy c-means needs x^p for p of 1/(m − 1), m and m − 1, and x >= 0. Where 4p is a whole number up to 4·MOST, x^p is
made of products and square roots, which IEEE 754 rounds exactly: so for m = 1.25, 1.5, 2 and 3. Any other power is
2^(p log₂ x), by series of products, sums and one quotient in a fixed order, without fused multiply-add; it errs by some
10⁻¹⁶ times 1 + |p log₂ x|. What is below 2^LEAST counts as zero. `numba.kernels.powers` and kernels/powers.cuh are the
same line by line.

With d_k the squared distance of a point to centre k and d the least of them, its membership is

    u_k = g_k · (1 / Σ g),  g_k = (d / d_k)^(1/(m − 1)),

the sum in the order of k, g_k = 1 where d_k = d. Ratios never overflow. Its share of J is w d / (Σ g)^(m − 1).
"""

from __future__ import annotations

import math
from itertools import accumulate
from typing import NamedTuple

import numpy as np

#: The largest power that is made of products.
MOST = 16
#: Numbers below 2^LEAST are taken for zero by the series.
LEAST = -1000
#: ln 2; what follows is made of it by products and quotients alone.
LN2 = 0.6931471805599453
#: 2 / ((2i + 1) ln 2), for the logarithm; the last first.
LOG_SERIES = tuple(2.0 / ((2 * i + 1) * LN2) for i in range(11, -1, -1))
#: (ln 2)^i / i!, for the exponential function; the last first.
EXP_SERIES = tuple(accumulate(range(1, 16), lambda term, i: term * LN2 / i, initial=1.0))[::-1]
#: Bits of a sum of memberships and of moments: terms are rounded to 2^-TERM of the largest.
TERM = 46


class Exponent(NamedTuple):
    """A power p, as the kernels take it."""

    value: float
    whole: int  # factors x, or -1 for the series
    half: int  # whether √x is one more
    quarter: int  # whether √√x is

    @classmethod
    def of(cls, p: float) -> Exponent:
        quarters = 4 * p
        if quarters != int(quarters) or quarters > 4 * MOST:
            return cls(p, -1, 0, 0)
        return cls(p, int(quarters) // 4, int(quarters) // 2 % 2, int(quarters) % 2)


class Fuzzifier(NamedTuple):
    """The three powers of m."""

    ratio: Exponent  # 1/(m − 1)
    share: Exponent  # m
    total: Exponent  # m − 1

    @classmethod
    def of(cls, m: float) -> Fuzzifier:
        return cls(Exponent.of(1.0 / (m - 1.0)), Exponent.of(m), Exponent.of(m - 1.0))


def power(x: np.ndarray, p: Exponent) -> np.ndarray:
    """x^p for x >= 0, p > 0."""
    if p.whole < 0:
        return by_series(x, p.value)
    factors = [x] * p.whole
    if p.half:
        factors.append(np.sqrt(x))
    if p.quarter:
        factors.append(np.sqrt(np.sqrt(x)))
    result = factors[0]
    for factor in factors[1:]:
        result = result * factor
    return result


def by_series(x: np.ndarray, p: float) -> np.ndarray:
    """2^(p log₂ x), 0 where x or the result is below 2^LEAST."""
    live = x >= math.ldexp(1.0, LEAST)
    fraction, exponent = np.frexp(np.where(live, x, 1.0))  # from ½ to 1
    low = fraction < 0.70703125
    fraction = np.where(low, fraction * 2.0, fraction)
    exponent = exponent - low
    t = (fraction - 1.0) / (fraction + 1.0)
    square = t * t
    series = np.full_like(t, LOG_SERIES[0])
    for coefficient in LOG_SERIES[1:]:
        series = series * square + coefficient
    y = (series * t + exponent) * p
    whole = np.rint(y)
    rest = y - whole
    series = np.full_like(t, EXP_SERIES[0])
    for coefficient in EXP_SERIES[1:]:
        series = series * rest + coefficient
    live = live & (whole >= LEAST)
    return np.where(live, np.ldexp(series, np.where(live, whole, 0).astype(np.int32)), 0.0)


def memberships(squares: np.ndarray, m: Fuzzifier) -> tuple[np.ndarray, np.ndarray]:
    """u and (Σ g)^(m − 1) of every point: squared distances (K, n) -> (K, n), (n,)."""
    least = squares.min(axis=0)
    same = squares == least
    ratios = np.where(same, 1.0, least / np.where(same, 1.0, squares))
    g = power(ratios, m.ratio)
    total = g[0].copy()
    for row in g[1:]:
        total += row
    return g * (1.0 / total), power(total, m.total)
