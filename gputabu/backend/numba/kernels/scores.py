"""Fast scores ‖c‖² − 2 c·x in float32, of blocks of points, and the best of them: `arithmetic.certified.Product`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gputabu.backend.numba.kernels.jit import compiled, inner

#: Points in a block: a feature of them is 2 KB, and the scores of TILE centres 512 KB. Not a power of two: features
#: that are one apart would compete for the same lines of the cache. A multiple of LINE.
BLOCK = 528
#: Numbers in a line of the cache.
LINE = 16
#: Centres whose scores are in memory at a time.
TILE = 256
#: From this many features on, BLAS is faster than sweeps over features.
WIDE = 16
#: ‖c‖² above which scores are not trusted. Below, and with a length of x that is finite in float32, no score overflows.
FAR = 2.0**80


class FastCenters(NamedTuple):
    """The centres of R restarts, ready for the fast scores."""

    across: np.ndarray  # (R, d, K) float64
    factors: np.ndarray  # (R, K, d) float32: -2 (c - offset)
    norms: np.ndarray  # (R, K) float32: ‖c - offset‖²
    doubt: np.ndarray  # (R, 3) float32: of a score, [0] + [1] ‖x‖ + [2] ‖x‖²

    @classmethod
    def empty(cls, r: int, k: int, d: int) -> FastCenters:
        single = np.float32
        return cls(np.empty((r, d, k)), np.empty((r, k, d), single), np.empty((r, k), single), np.empty((r, 3), single))


class ScoreScratch(NamedTuple):
    """Scratch memory of one thread for scores of a block."""

    coords: np.ndarray  # (d, BLOCK) float32: x - offset
    length: np.ndarray  # (BLOCK,) float32: ‖x - offset‖
    scores: np.ndarray  # (TILE, BLOCK) float32
    best: np.ndarray  # (BLOCK,) float32: score
    second: np.ndarray  # (BLOCK,) float32: score. Not a row beside `best`: loops over both would not be vectorised
    third: np.ndarray  # (BLOCK,) float32: score
    best_center: np.ndarray  # (BLOCK,) int32
    second_center: np.ndarray  # (BLOCK,) int32
    squares: np.ndarray  # (max(BLOCK, K),) float64
    shares: np.ndarray  # (K,) float32
    term: np.ndarray  # (C,) int64


@compiled
def prepare_centers(centers, scales, fast):
    """Prepare centers (R, K, d) for the fast scores, in place of `fast`: `certified.Product.of` in float32."""
    restarts, k, d = centers.shape
    for r in range(restarts):
        widest = 0.0
        for a in range(k):
            norm = 0.0
            for j in range(d):
                c = (centers[r, a, j] - scales.axes[0, j]) * scales.unit
                norm += c * c
                fast.factors[r, a, j] = np.float32(-2.0 * c)
                fast.across[r, j, a] = centers[r, a, j]
            fast.norms[r, a] = np.float32(norm)
            widest = max(widest, norm)
        if not widest < FAR:  # products might overflow
            widest = np.inf
        relative = scales.trust + scales.exact
        fast.doubt[r, 0] = np.float32(relative * widest + scales.floor)
        fast.doubt[r, 1] = np.float32(2.0 * relative * np.sqrt(widest))
        fast.doubt[r, 2] = np.float32(scales.exact)


@inner
def prepare_points(X, origin, unit, coords, length):
    """Points relative to the offset, feature by feature, and their lengths: (n, d) -> coords (d, BLOCK) float32."""
    n, d = X.shape
    even = n - n % LINE
    for start in range(0, even, LINE):
        for j in range(d):
            row, middle = coords[j, start : start + LINE], origin[j]
            for i in range(LINE):  # so many, known to the compiler, are vectorised
                row[i] = np.float32((X[start + i, j] - middle) * unit)
    for i in range(even, n):
        for j in range(d):
            coords[j, i] = np.float32((X[i, j] - origin[j]) * unit)
    for i in range(n):
        length[i] = np.float32(0)
    for j in range(d):
        row = coords[j]
        for i in range(n):
            length[i] += row[i] * row[i]
    for i in range(n):
        length[i] = np.sqrt(length[i])


@inner
def score(factors, norm, coords, scores, n):
    """norm + factors · coords, (d,) times (d, n), four features at a time."""
    d = len(factors)
    for i in range(n):
        scores[i] = norm
    j = 0
    while j + 4 <= d:
        f0, f1, f2, f3 = factors[j], factors[j + 1], factors[j + 2], factors[j + 3]
        m0, m1, m2, m3 = coords[j], coords[j + 1], coords[j + 2], coords[j + 3]
        for i in range(n):
            scores[i] += (f0 * m0[i] + f1 * m1[i]) + (f2 * m2[i] + f3 * m3[i])
        j += 4
    while j < d:
        f0, m0 = factors[j], coords[j]
        for i in range(n):
            scores[i] += f0 * m0[i]
        j += 1


@inner
def contend(scores, norm, a, best, second, best_center, n):
    """Let centre a with scores + norm contend for the two best of every point.

    Selections only, they are vectorised; and written so that no value is stored where it was loaded from, which would
    become a store under a mask, the slowest of instructions.
    """
    for i in range(n):
        s, b, t, f = scores[i] + norm, best[i], second[i], best_center[i]
        t = s if s < t else t
        second[i] = t if t > b else b
        best_center[i] = a if s < b else f
        best[i] = s if s < b else b


@inner
def contend_four(scores, norms, a, best, second, best_center, n):
    """`contend` for the centres a to a + 3 at once, scores (4, BLOCK): a match of two pairs, then with the holders."""
    s0, s1, s2, s3 = scores[0], scores[1], scores[2], scores[3]
    n0, n1, n2, n3 = norms[0], norms[1], norms[2], norms[3]
    a1, a2, a3 = a + np.int32(1), a + np.int32(2), a + np.int32(3)
    for i in range(n):
        p, q, u, v = s0[i] + n0, s1[i] + n1, s2[i] + n2, s3[i] + n3
        low, high, first = q if q < p else p, p if q < p else q, a1 if q < p else a
        low2, high2, first2 = v if v < u else u, u if v < u else v, a3 if v < u else a2
        winner, loser, number = (
            low2 if low2 < low else low,
            low if low2 < low else low2,
            first2 if low2 < low else first,
        )
        runner = high2 if high2 < high else high
        runner = loser if loser < runner else runner
        b, t, f = best[i], second[i], best_center[i]
        t = winner if winner < t else t
        t = t if t > b else b
        second[i] = runner if runner < t else t
        best_center[i] = number if winner < b else f
        best[i] = winner if winner < b else b


@inner
def rank(factors, norms, coords, scores, best, second, best_center, n):
    """The two best scores of n points, and the centre with the best: (K, d), (K,), (d, BLOCK)."""
    k, d = factors.shape
    best[:] = np.float32(np.inf)
    second[:] = np.float32(np.inf)
    best_center[:] = np.int32(0)
    wide = d >= WIDE
    step = TILE if wide else 4
    for start in range(0, k, step):
        stop = min(k, start + step)
        if wide:
            np.dot(factors[start:stop], coords, scores[: stop - start])
        else:
            for a in range(start, stop):
                score(factors[a], np.float32(0), coords, scores[a - start], n)
        a = start
        while a + 4 <= stop:
            contend_four(scores[a - start : a - start + 4], norms[a : a + 4], np.int32(a), best, second, best_center, n)
            a += 4
        while a < stop:
            contend(scores[a - start], norms[a], np.int32(a), best, second, best_center, n)
            a += 1


@inner
def square_doubt(size, doubt, d):
    """How far score + ‖x‖², for ‖x‖ = size in float64, may be from the canonical d²: `NumpySeeding.nearer`."""
    return doubt[0] + size * (doubt[1] + size * (doubt[2] + 4.0 * (d + 2) * 2.0**-23))
