"""The two nearest centres of every point: `NumpyRelocation.nearest_two`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gputabu.backend.numba.kernels.canonical import square, squares_to_all, squares_to_one, transpose
from gputabu.backend.numba.kernels.jit import compiled, inner
from gputabu.backend.numba.kernels.scores import BLOCK, TILE, WIDE, prepare_centers, prepare_points, score

#: Where one in this many centres moved, all points look for their two nearest anew.
FEW = 6


class NearestTwoArrays(NamedTuple):
    """The two nearest centres of every point in R restarts: `contract.NearestTwo`."""

    first: np.ndarray  # (R, N) int32
    second: np.ndarray  # (R, N) int32
    near: np.ndarray  # (R, N) float64
    far: np.ndarray  # (R, N) float64


@inner
def canonical_two(x, across, squares):
    """The two nearest centres of a point, the lowest numbers on ties: (d,), (d, K), squares (K,) out."""
    squares_to_all(x, across, squares)
    first, second = 0, 1
    near, far = squares[0], squares[1]
    if far < near:
        first, second, near, far = 1, 0, far, near
    for a in range(2, across.shape[1]):
        s = squares[a]
        if s < far:
            if s < near:
                first, second, near, far = a, first, s, near
            else:
                second, far = a, s
    return first, second


@inner
def insert_center(squares, a, first, second, near, far, n):
    """Insert centre a, from which the points are `squares` (n,) away, into their two nearest; selections only."""
    for i in range(n):
        s, p, q, f, g = squares[i], near[i], far[i], first[i], second[i]
        ahead = (s < p) | ((s == p) & (a < f))
        between = (s < q) | ((s == q) & (a < g))
        runner, number = s if between else q, a if between else g
        far[i] = p if ahead else runner
        second[i] = f if ahead else number
        near[i] = s if ahead else p
        first[i] = a if ahead else f


# -- the three best scores -------------------------------------------------------------------------


@inner
def insert_score(s, a, best, second, third, best_center, second_center):
    """The three best scores and the centres of two, with score s of centre a among them; selections only."""
    third = s if s < third else third
    third = third if third > second else second
    second_center = a if s < second else second_center
    second_center = best_center if s < best else second_center
    second = s if s < second else second
    second = second if second > best else best
    return s if s < best else best, second, third, a if s < best else best_center, second_center


@inner
def contend_three(scores, norms, a, best, second, third, best_center, second_center, n):
    """Let the centres from a on, scores (1 or 4, BLOCK) + norms, contend for the three best: as `scores.contend`."""
    s0, n0 = scores[0], norms[0]
    if len(norms) == 1:
        for i in range(n):
            best[i], second[i], third[i], best_center[i], second_center[i] = insert_score(
                s0[i] + n0, a, best[i], second[i], third[i], best_center[i], second_center[i]
            )
        return
    s1, s2, s3, n1, n2, n3 = scores[1], scores[2], scores[3], norms[1], norms[2], norms[3]
    a1, a2, a3 = np.int32(a + 1), np.int32(a + 2), np.int32(a + 3)
    for i in range(n):
        b, t, u, f, g = insert_score(s0[i] + n0, a, best[i], second[i], third[i], best_center[i], second_center[i])
        b, t, u, f, g = insert_score(s1[i] + n1, a1, b, t, u, f, g)
        b, t, u, f, g = insert_score(s2[i] + n2, a2, b, t, u, f, g)
        best[i], second[i], third[i], best_center[i], second_center[i] = insert_score(s3[i] + n3, a3, b, t, u, f, g)


@inner
def rank_three(factors, norms, coords, scoring, n):
    """The three best scores of n points, and the centres with the two best: (K, d), (K,), (d, BLOCK)."""
    k, d = factors.shape
    for i in range(n):
        scoring.best[i] = scoring.second[i] = scoring.third[i] = np.float32(np.inf)
        scoring.best_center[i] = scoring.second_center[i] = np.int32(0)
    wide = d >= WIDE and 2 * n > BLOCK
    step = TILE if wide else 4
    for start in range(0, k, step):
        stop = min(k, start + step)
        if wide:
            np.dot(factors[start:stop], coords, scoring.scores[: stop - start])
        else:
            for a in range(start, stop):
                score(factors[a], np.float32(0), coords, scoring.scores[a - start], n)
        a = start
        while a < stop:
            count = 4 if a + 4 <= stop else 1
            contend_three(
                scoring.scores[a - start :], norms[a : a + count], np.int32(a), scoring.best, scoring.second,
                scoring.third, scoring.best_center, scoring.second_center, n,
            )  # fmt: skip
            a += count


# -- points, brought up to date --------------------------------------------------------------------


@inner
def nearest_two_block(
    X, columns, coords, length, centers, fast, r, moved, first, second, near, far, affected, affected_coords, scoring
):  # fmt: skip
    """Bring the two nearest centres of the points X (n, d) up to date with the centres that moved, (K,) bool.

    The points are also columns (d, BLOCK) and coords (d, BLOCK); the centres are centers (K, d) and fast[r]. Where few
    centres moved, they are inserted, and only the points that had one of them among their two look anew.
    """
    n, k = len(X), len(centers)
    count, n_moved = 0, 0
    for a in range(k):
        n_moved += moved[a]
    all_anew = FEW * n_moved > k
    if not all_anew:
        for i in range(n):
            affected[count] = i
            count += moved[first[i]] | moved[second[i]]
        for a in range(k):
            if moved[a]:
                squares_to_one(columns, centers[a], scoring.squares, n)
                insert_center(scoring.squares, np.int32(a), first, second, near, far, n)
        for j in range(len(coords)):
            source, target = coords[j], affected_coords[j]
            for c in range(count):
                target[c] = source[affected[c]]
        coords = affected_coords
    else:
        count = n
    rank_three(fast.factors[r], fast.norms[r], coords, scoring, count)
    doubt0, doubt1, doubt2 = fast.doubt[r, 0], fast.doubt[r, 1], fast.doubt[r, 2]
    for c in range(count):
        i = c if all_anew else affected[c]
        if scoring.third[c] - scoring.second[c] > doubt0 + length[i] * (doubt1 + length[i] * doubt2):
            a, b = scoring.best_center[c], scoring.second_center[c]
            p, q = square(X[i], centers[a]), square(X[i], centers[b])
            if q < p or (q == p and b < a):
                a, b, p, q = b, a, q, p
        else:
            a, b = canonical_two(X[i], fast.across[r], scoring.squares)
            p, q = scoring.squares[a], scoring.squares[b]
        first[i], second[i], near[i], far[i] = a, b, p, q


@compiled
def nearest_two_rows(X, first, centers, fast, moved, nearest, scales, scratch, scoring):
    """`Backend.nearest_two` for the rows from `first` on: centers (R, K, d), moved (R, K)."""
    n = len(X)
    for start in range(0, n, BLOCK):
        stop = min(n, start + BLOCK)
        a, b = first + start, first + stop
        rows = X[start:stop]
        transpose(rows, scratch.columns)
        prepare_points(rows, scales.origin, scales.unit, scoring.coords, scoring.length)
        for r in range(len(centers)):
            if moved[r].any():
                nearest_two_block(
                    rows, scratch.columns, scoring.coords, scoring.length, centers[r], fast, r, moved[r],
                    nearest.first[r, a:b], nearest.second[r, a:b], nearest.near[r, a:b], nearest.far[r, a:b],
                    scratch.affected, scratch.affected_coords, scoring,
                )  # fmt: skip


@inner
def take_moved(centers, at, moved):
    """Note which centers (K, d) are not `at`, and put `at` there; returns how many."""
    k, d = centers.shape
    count = 0
    for a in range(k):
        moved[a] = False
        for j in range(d):
            if centers[a, j] != at[a, j]:
                moved[a] = True
            at[a, j] = centers[a, j]
        count += moved[a]
    return count


@inner
def nearest_two_all(data, columns, centers, at, first, second, near, far, scales, fast, scratch, scoring):
    """The two nearest for all points of one restart: columns (N / BLOCK, d, BLOCK), centers and at (1, K, d)."""
    if take_moved(centers[0], at[0], scratch.moved) == 0:
        return
    prepare_centers(centers, scales, fast)
    for b in range(len(columns)):
        i = b * BLOCK
        j = min(len(data.X), i + BLOCK)
        nearest_two_block(
            data.X[i:j], columns[b], data.coords[b], data.length[b], centers[0], fast, 0, scratch.moved, first[i:j],
            second[i:j], near[i:j], far[i:j], scratch.affected, scratch.affected_coords, scoring,
        )  # fmt: skip
