"""Fuzzy memberships in compiled code, and what they sum up to: `NumpyFuzzy`."""

from __future__ import annotations

import numpy as np

from gputabu.backend.numba.kernels.fixed_point import ROUNDER, ROUNDER_BITS, add_costs
from gputabu.backend.numba.kernels.jit import compiled, inner
from gputabu.backend.numba.kernels.powers import raise_to

#: Points at a time. Scratch is in rows of so many numbers, and loops go over all of them, as many as the compiler
#: knows: behind the last point a row has copies of it, which weigh nothing. Not a power of two: features that are one
#: apart would compete for the same lines of the cache.
ROWS = 136
#: Centres, and features, at a time: so many numbers stay in registers.
TILE = 4
#: Rows of scratch are one behind the other in flat arrays, and known by where they begin; functions go over many. For
#: a view of a row, and for an array that a call is given, numba counts references by atomic instructions, which take as
#: long as a good part of the work on a row. Unsigned, as then there is no check for "from the end".
ONE, TWO, THREE = (np.uint64(n * ROWS) for n in (1, 2, 3))


@inner
def row(number):
    """Where a row of scratch begins."""
    return np.uint64(number) * ONE


@inner
def take_columns(X, start, n, columns, offset, scale, moved):
    """n points X (N, d) by feature, and what they add to the sums: columns (d · ROWS,), moved ((d + 1) · ROWS,)."""
    d = X.shape[1]
    for i in range(ROWS):
        point = start + min(i, n - 1)
        for j in range(d):
            columns[row(j) + np.uint64(i)] = X[point, j]
    for j in range(d):
        for i in range(ROWS):
            at = row(j) + np.uint64(i)
            moved[at] = (columns[at] - offset[j]) * scale[j]
    for i in range(ROWS):
        moved[row(d) + np.uint64(i)] = scale[d]


@inner
def square_block(centers, k, columns, squares, least):
    """Canonical d² to centers (K', d), four features of four at a time in their order, and the least of them.

    Those behind centre k - 1 are infinitely far.
    """
    wide, d = centers.shape
    for a in range(0, wide, TILE):
        at = row(a)
        for i in range(TILE * ROWS):
            squares[at + np.uint64(i)] = 0.0
        for j in range(0, d - 3, TILE):
            a0, a1, a2, a3 = centers[a, j], centers[a, j + 1], centers[a, j + 2], centers[a, j + 3]
            b0, b1, b2, b3 = centers[a + 1, j], centers[a + 1, j + 1], centers[a + 1, j + 2], centers[a + 1, j + 3]
            c0, c1, c2, c3 = centers[a + 2, j], centers[a + 2, j + 1], centers[a + 2, j + 2], centers[a + 2, j + 3]
            d0, d1, d2, d3 = centers[a + 3, j], centers[a + 3, j + 1], centers[a + 3, j + 2], centers[a + 3, j + 3]
            first = row(j)
            for i in range(ROWS):
                x, u = first + np.uint64(i), at + np.uint64(i)
                x0, x1, x2, x3 = columns[x], columns[x + ONE], columns[x + TWO], columns[x + THREE]
                p, q, r, s = x0 - a0, x1 - a1, x2 - a2, x3 - a3
                squares[u] = (((squares[u] + p * p) + q * q) + r * r) + s * s
                p, q, r, s = x0 - b0, x1 - b1, x2 - b2, x3 - b3
                squares[u + ONE] = (((squares[u + ONE] + p * p) + q * q) + r * r) + s * s
                p, q, r, s = x0 - c0, x1 - c1, x2 - c2, x3 - c3
                squares[u + TWO] = (((squares[u + TWO] + p * p) + q * q) + r * r) + s * s
                p, q, r, s = x0 - d0, x1 - d1, x2 - d2, x3 - d3
                squares[u + THREE] = (((squares[u + THREE] + p * p) + q * q) + r * r) + s * s
        for j in range(d // TILE * TILE, d):
            c0, c1, c2, c3 = centers[a, j], centers[a + 1, j], centers[a + 2, j], centers[a + 3, j]
            for i in range(ROWS):
                x, u = columns[row(j) + np.uint64(i)], at + np.uint64(i)
                p, q, r, s = x - c0, x - c1, x - c2, x - c3
                squares[u] += p * p
                squares[u + ONE] += q * q
                squares[u + TWO] += r * r
                squares[u + THREE] += s * s
    for u in range(k * ROWS, wide * ROWS):
        squares[np.uint64(u)] = np.inf
    for i in range(ROWS):
        least[i] = np.inf
    for a in range(0, wide, TILE):
        for i in range(ROWS):
            u = row(a) + np.uint64(i)
            one, two = min(squares[u], squares[u + ONE]), min(squares[u + TWO], squares[u + THREE])
            least[i] = min(least[i], min(one, two))


@inner
def member_block(wide, m, shares, least, total, inverse):
    """From d², shares (K' · ROWS,), and the least: g in its place, 1 / Σ g and (Σ g)^(m − 1)."""
    for a in range(0, wide, TILE):
        for i in range(ROWS):
            u, near = row(a) + np.uint64(i), least[i]
            p, q, r, s = shares[u], shares[u + ONE], shares[u + TWO], shares[u + THREE]
            shares[u] = 1.0 if p == near else near / p
            shares[u + ONE] = 1.0 if q == near else near / q
            shares[u + TWO] = 1.0 if r == near else near / r
            shares[u + THREE] = 1.0 if s == near else near / s
    raise_to(shares, m.ratio, wide * ROWS)
    for i in range(ROWS):
        total[i] = 0.0
    for a in range(0, wide, TILE):
        for i in range(ROWS):
            u = row(a) + np.uint64(i)
            total[i] = (((total[i] + shares[u]) + shares[u + ONE]) + shares[u + TWO]) + shares[u + THREE]
    for i in range(ROWS):
        inverse[i] = 1.0 / total[i]
    raise_to(total, m.total, ROWS)


@inner
def raise_shares(k, m, inverse, weights, start, n, shares):
    """g becomes (g / Σ g)^m, times the weights of n points from `start` on, and zero behind them."""
    for a in range(k):
        for i in range(ROWS):
            shares[row(a) + np.uint64(i)] *= inverse[i]
    raise_to(shares, m, k * ROWS)
    if len(weights) > 0:
        for a in range(k):
            for i in range(n):
                shares[row(a) + np.uint64(i)] *= weights[start + i]
    for a in range(k if n < ROWS else 0):
        for i in range(n, ROWS):
            shares[row(a) + np.uint64(i)] = 0.0


@inner
def term_bits(value):
    """The nearest integer, in the low bits; those of ROUNDER are taken off the sum of all."""
    return np.float64(value + ROUNDER).view(np.int64)


@inner
def add_terms(shares, moved, sums, r):
    """Add Σ rint(share · moved) to sums (R, K', C) int64: shares (K' · ROWS,), moved (C · ROWS,)."""
    _, wide, columns = sums.shape
    rounders = ROWS * ROUNDER_BITS  # modulo 2^64, as the sums are
    for a in range(0, wide, 2):
        for j in range(0, columns - 3, TILE):
            s0, s1, s2, s3 = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
            t0, t1, t2, t3 = np.int64(0), np.int64(0), np.int64(0), np.int64(0)
            first, at = row(j), row(a)
            for i in range(ROWS):
                x, u = first + np.uint64(i), at + np.uint64(i)
                x0, x1, x2, x3 = moved[x], moved[x + ONE], moved[x + TWO], moved[x + THREE]
                one, two = shares[u], shares[u + ONE]
                s0 += term_bits(one * x0)
                s1 += term_bits(one * x1)
                s2 += term_bits(one * x2)
                s3 += term_bits(one * x3)
                t0 += term_bits(two * x0)
                t1 += term_bits(two * x1)
                t2 += term_bits(two * x2)
                t3 += term_bits(two * x3)
            for c, (s, t) in enumerate(((s0, t0), (s1, t1), (s2, t2), (s3, t3))):
                sums[r, a, j + c] += s - rounders
                sums[r, a + 1, j + c] += t - rounders
        for j in range(columns // TILE * TILE, columns):
            s, t = np.int64(0), np.int64(0)
            for i in range(ROWS):
                x, u = moved[row(j) + np.uint64(i)], row(a) + np.uint64(i)
                s += term_bits(shares[u] * x)
                t += term_bits(shares[u + ONE] * x)
            sums[r, a, j] += s - rounders
            sums[r, a + 1, j] += t - rounders


@compiled
def fuzzy_rows(
    X, weights, centers, k, m, offset, scale, to_limbs, columns, moved, shares, least, total, inverse, sums, costs
):
    """`Backend.fuzzy_partial` for at most 2^16 points X (n, d): sums (R, K', d + 1), costs (R, 3) int64.

    centers (R, K', d): K of them, and any others behind, so that K' is a multiple of TILE.
    """
    for start in range(0, len(X), ROWS):
        n = min(ROWS, len(X) - start)
        take_columns(X, start, n, columns, offset, scale, moved)
        for r in range(len(centers)):
            square_block(centers[r], k, columns, shares, least)
            member_block(centers.shape[1], m, shares, least, total, inverse)
            raise_shares(k, m.share, inverse, weights, start, n, shares)
            add_terms(shares, moved, sums, r)
            for i in range(n):
                least[i] = least[i] / total[i]
            add_costs(least, weights[start : start + n], to_limbs, costs[r], n)
