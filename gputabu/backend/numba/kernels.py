"""What the compiled CPU backend compiles: passes over rows of points, and whole searches of small data sets.

Each function is the twin of one in NumPy, named in its docstring, and gives the same bits. Floating-point operations
that decide anything are in float64, in the order written (numba neither reorders nor contracts them); the fast scores
are float32 whatever the points are, and what they cannot tell apart is decided canonically, as in
`gputabu.backend.arithmetic.certified`.

Everything is in one module because numba's cache of compiled code notices changes of a function's own module only.
Array arguments that are only read arrive read-only, so that there is one form of each function per dtype of points.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numba import njit

from gputabu.backend.arithmetic.constants import LIMB, NOISE

#: Points in a block: a feature of them is 2 KB, and the scores of TILE centres 512 KB. Not a power of two: features
#: that are one apart would compete for the same lines of the cache. A multiple of LINE.
BLOCK = 528
#: Numbers in a line of the cache.
LINE = 16
TILE = 256
#: From this many features on, BLAS is faster than sweeps over features.
WIDE = 16
#: ‖c‖² above which scores are not trusted. Below, and with a length of x that is finite in float32, no score overflows.
FAR = 2.0**80
#: The key of no point, as `gputabu.backend.arithmetic.keys.NO_KEY`.
NO_KEY = np.uint64(2**64 - 1)
LIMB_UNIT = 2.0**LIMB
#: Added to a number below 2^51, it leaves its nearest integer in the low bits, ties to even.
ROUNDER = 1.5 * 2.0**52
ROUNDER_BITS = np.float64(ROUNDER).view(np.int64)
#: Bounds of costs that are farther apart than this do not hang on rounding.
BEYOND = 1.0 + 2.0**-20
#: One in this many points is looked at by itself.
SPARSE = 16
#: Where one in this many centres moved, all points look for their two nearest anew.
FEW = 6
#: A point whose scaled d² is less is on its centre (see `BackendBase.farthest`).
ON_CENTER = np.float32(2.0**20)

#: Why a restart stopped, and the columns of its status.
GOING, PATIENCE, MAX_ITER, CONVERGED, TOLERANCE, TARGET = 0, 1, 2, 3, 4, 5
AGE, DONE, STALE, AWAY = 0, 1, 2, 3
MOVES, ROUNDS, HELD = 2, 3, 4


def inner(function: Callable[..., Any]) -> Any:
    """A function that compiled code calls."""
    return njit(nogil=True, error_model="numpy")(function)


def compiled(function: Callable[..., Any]) -> Any:
    """A function that Python calls, without the GIL. The code is kept on disk for the next process, where it can be."""
    try:
        return njit(nogil=True, cache=True, error_model="numpy")(function)
    except RuntimeError:  # no folder can be written to
        return inner(function)


class Scales(NamedTuple):
    """The grid (`gputabu.backend.arithmetic.fixed_point.Grid`) as powers of two, and how far the fast scores can be trusted."""

    origin: np.ndarray  # (d,) the offset in the dtype of the points
    axes: np.ndarray  # (4, d): offset, 2^(LIMB - coordinate), 2^(coordinate - LIMB), 2^(coordinate - 2 LIMB)
    weight: tuple[float, ...]  # (3,): 2^(LIMB - weight), 2^(weight - LIMB), 2^(weight - 2 LIMB)
    cost: tuple[float, ...]  # (4,): 2^(LIMB - cost), and of the three limbs of J
    key: float  # 2^(100 - square)
    unit: float  # of the fast coordinates
    trust: float  # relative error of a fast score
    exact: float  # relative error of the canonical formula
    floor: float  # absolute error, where numbers underflow


class Centers(NamedTuple):
    """The centres of R restarts, ready for the fast scores."""

    across: np.ndarray  # (R, d, K) float64
    factors: np.ndarray  # (R, K, d) float32: -2 (c - offset)
    norms: np.ndarray  # (R, K) float32: ‖c - offset‖²
    doubt: np.ndarray  # (R, 3) float32: of a score, [0] + [1] ‖x‖ + [2] ‖x‖²

    @classmethod
    def empty(cls, r: int, k: int, d: int) -> Centers:
        single = np.float32
        return cls(np.empty((r, d, k)), np.empty((r, k, d), single), np.empty((r, k), single), np.empty((r, 3), single))


class ScoreScratch(NamedTuple):
    """Scratch memory of one thread."""

    moved: np.ndarray  # (d, BLOCK) float32
    length: np.ndarray  # (BLOCK,) float32: ‖x - offset‖
    scores: np.ndarray  # (TILE, BLOCK) float32
    best: np.ndarray  # (BLOCK,) float32: score
    second: np.ndarray  # (BLOCK,) float32: score. Not a row beside `best`: loops over both would not be vectorised
    third: np.ndarray  # (BLOCK,) float32: score
    found: np.ndarray  # (BLOCK,) int32, of the best
    other: np.ndarray  # (BLOCK,) int32, of the second
    squares: np.ndarray  # (max(BLOCK, K),) float64
    shares: np.ndarray  # (K,) float32
    term: np.ndarray  # (C,) int64


@inner
def rounded(value):
    """The nearest integer, ties to even, of |value| < 2^51, as float64: two additions are always vectorised."""
    return (value + ROUNDER) - ROUNDER


# -- fast scores ---------------------------------------------------------------------------------


@compiled
def ready(centers, scales, to):
    """Prepare centers (R, K, d) for the fast scores, in place of `to`: `certified.Product.of` in float32."""
    restarts, k, d = centers.shape
    for r in range(restarts):
        widest = 0.0
        for a in range(k):
            norm = 0.0
            for j in range(d):
                c = (centers[r, a, j] - scales.axes[0, j]) * scales.unit
                norm += c * c
                to.factors[r, a, j] = np.float32(-2.0 * c)
                to.across[r, j, a] = centers[r, a, j]
            to.norms[r, a] = np.float32(norm)
            widest = max(widest, norm)
        if not widest < FAR:  # products might overflow
            widest = np.inf
        relative = scales.trust + scales.exact
        to.doubt[r, 0] = np.float32(relative * widest + scales.floor)
        to.doubt[r, 1] = np.float32(2.0 * relative * np.sqrt(widest))
        to.doubt[r, 2] = np.float32(scales.exact)


@inner
def move(X, origin, unit, moved, length):
    """Points relative to the offset, feature by feature: (n, d) -> (d, BLOCK) float32 and their lengths."""
    n, d = X.shape
    even = n - n % LINE
    for start in range(0, even, LINE):
        for j in range(d):
            row, middle = moved[j, start : start + LINE], origin[j]
            for i in range(LINE):  # so many, known to the compiler, are vectorised
                row[i] = np.float32((X[start + i, j] - middle) * unit)
    for i in range(even, n):
        for j in range(d):
            moved[j, i] = np.float32((X[i, j] - origin[j]) * unit)
    for i in range(n):
        length[i] = np.float32(0)
    for j in range(d):
        row = moved[j]
        for i in range(n):
            length[i] += row[i] * row[i]
    for i in range(n):
        length[i] = np.sqrt(length[i])


@inner
def score(factors, norm, moved, scores, n):
    """norm + factors · moved, (d,) times (d, n), four features at a time."""
    d = len(factors)
    for i in range(n):
        scores[i] = norm
    j = 0
    while j + 4 <= d:
        f0, f1, f2, f3 = factors[j], factors[j + 1], factors[j + 2], factors[j + 3]
        m0, m1, m2, m3 = moved[j], moved[j + 1], moved[j + 2], moved[j + 3]
        for i in range(n):
            scores[i] += (f0 * m0[i] + f1 * m1[i]) + (f2 * m2[i] + f3 * m3[i])
        j += 4
    while j < d:
        f0, m0 = factors[j], moved[j]
        for i in range(n):
            scores[i] += f0 * m0[i]
        j += 1


@inner
def contend(scores, norm, a, best, second, found, n):
    """Enter centre a with scores + norm into the two best of every point.

    Selections only, they are vectorised; and written so that no value is stored where it was loaded from, which would
    become a store under a mask, the slowest of instructions.
    """
    for i in range(n):
        s, b, t, f = scores[i] + norm, best[i], second[i], found[i]
        t = s if s < t else t
        second[i] = t if t > b else b
        found[i] = a if s < b else f
        best[i] = s if s < b else b


@inner
def contend_four(scores, norms, a, best, second, found, n):
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
        b, t, f = best[i], second[i], found[i]
        t = winner if winner < t else t
        t = t if t > b else b
        second[i] = runner if runner < t else t
        found[i] = number if winner < b else f
        best[i] = winner if winner < b else b


@inner
def rank(factors, norms, moved, scores, best, second, found, n):
    """The two best scores of n points, and the centre with the best: (K, d), (K,), (d, BLOCK)."""
    k, d = factors.shape
    best[:] = np.float32(np.inf)
    second[:] = np.float32(np.inf)
    found[:] = np.int32(0)
    wide = d >= WIDE
    step = TILE if wide else 4
    for start in range(0, k, step):
        stop = min(k, start + step)
        if wide:
            np.dot(factors[start:stop], moved, scores[: stop - start])
        else:
            for a in range(start, stop):
                score(factors[a], np.float32(0), moved, scores[a - start], n)
        a = start
        while a + 4 <= stop:
            contend_four(scores[a - start : a - start + 4], norms[a : a + 4], np.int32(a), best, second, found, n)
            a += 4
        while a < stop:
            contend(scores[a - start], norms[a], np.int32(a), best, second, found, n)
            a += 1


@inner
def decide(x, across, squares):
    """The nearest centre by the canonical formula, the lowest number on ties: (d,), (d, K) -> a."""
    d, k = across.shape
    for a in range(k):
        squares[a] = 0.0
    for j in range(d):
        value, row = np.float64(x[j]), across[j]
        for a in range(k):
            difference = value - row[a]
            squares[a] += difference * difference
    least = 0
    for a in range(1, k):
        if squares[a] < squares[least]:
            least = a
    return np.int32(least)


@inner
def settle(X, length, doubt, across, best, second, found, squares):
    """Decide canonically what the two best scores of the points X (n, d) leave in doubt: `certified.nearest`."""
    n = len(X)
    doubt0, doubt1, doubt2 = doubt[0], doubt[1], doubt[2]
    certain = 0  # counted first, in vector instructions: most blocks have no point in doubt
    for i in range(n):
        certain += second[i] - best[i] > doubt0 + length[i] * (doubt1 + length[i] * doubt2)
    if certain == n:
        return
    for i in range(n):
        # An infinite doubt is none that a score can be above.
        if not (second[i] - best[i] > doubt0 + length[i] * (doubt1 + length[i] * doubt2)):
            found[i] = decide(X[i], across, squares)


# -- passes --------------------------------------------------------------------------------------


@inner
def contribute(x, weight, weighted, axes, to_limbs, term):
    """What a point adds to the totals of its cluster, (C,) int64: `reductions.quantize`."""
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
        value = weight * to_limbs
        high = rounded(value)
        term[2 * d] = np.int64(high)
        term[2 * d + 1] = np.int64(rounded((value - high) * LIMB_UNIT))
    term[-1] = 1 if weight > 0.0 else 0


@inner
def relabel(X, weights, labels, found, totals, axes, to_limbs, term):
    """Take `found` as the labels (n,) and move what changed between totals (K, C); returns how many did."""
    changed = 0
    for i in range(len(X)):
        old, new = labels[i], found[i]
        if old == new:
            continue
        changed += 1
        labels[i] = new
        if len(totals) == 0:  # only labels are wanted
            continue
        contribute(X[i], weights[i] if len(weights) else 1.0, len(weights) > 0, axes, to_limbs, term)
        gains = totals[np.uint64(new)]
        for c in range(len(term)):
            gains[c] += term[c]
        if old >= 0:
            loses = totals[np.uint64(old)]
            for c in range(len(term)):
                loses[c] -= term[c]
    return changed


@compiled
def assign_rows(X, weights, first, labels, centers, scales, totals, changed, desk):
    """`BackendBase.assign` for the rows from `first` on: X (n, d), labels (R, N); adds to totals (R, K, C), changed (R,).

    Without totals, (R, 0, 0), it is `BackendBase.label`.
    """
    n = len(X)
    for start in range(0, n, BLOCK):
        stop = min(n, start + BLOCK)
        rows, some = X[start:stop], weights[start:stop]
        move(rows, scales.origin, scales.unit, desk.moved, desk.length)
        for r in range(len(labels)):
            here = labels[r, first + start : first + stop]
            rank(
                centers.factors[r],
                centers.norms[r],
                desk.moved,
                desk.scores,
                desk.best,
                desk.second,
                desk.found,
                len(rows),
            )
            settle(
                rows, desk.length, centers.doubt[r], centers.across[r], desk.best, desk.second, desk.found, desk.squares
            )
            changed[r] += relabel(rows, some, here, desk.found, totals[r], scales.axes, scales.weight[0], desk.term)


@inner
def own_squares(X, labels, centers, squares):
    """Canonical d² of every point to its own centre: (n, d), (n,), (K, d) -> (n,)."""
    n, d = X.shape
    for i in range(n):
        own = np.uint64(labels[i])  # unsigned numbers need not be looked at for "from the end"
        total = 0.0
        for j in range(d):
            difference = np.float64(X[i, j]) - centers[own, j]
            total += difference * difference
        squares[i] = total


@inner
def add_costs(squares, weights, to_limbs, sums, n):
    """Add the limbs of w·d² to sums (3,) int64: `points.limbs`."""
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
def propose(squares, weights, labels, barred, scale, row, keys, n):
    """Enter the free points among n into the least keys of their clusters, (K, M): `reductions.keys_of`, `Least`."""
    weighted, last = len(weights) > 0, keys.shape[1] - 1
    for i in range(n):
        bits = np.float32(squares[i] * scale).view(np.uint32)
        key = np.uint64(bits) << np.uint64(32) | np.uint64(row + i)
        own = np.uint64(labels[i])
        if key < keys[own, last] and not barred[i] and not (weighted and weights[i] == 0.0):
            m = last
            while m > 0 and key < keys[own, m - 1]:
                keys[own, m] = keys[own, m - 1]
                m -= 1
            keys[own, m] = key


@compiled
def survey_rows(X, weights, first, labels, barred, span, centers, cost_to_limbs, key_scale, sums, keys, squares):
    """`BackendBase.survey` for the rows from `first` on: X (n, d), labels and barred (R, N), sums (R, 3), keys (R, K, M).

    Rows in keys are counted from `span`. M = 0 is for J alone; barred is not read then.
    """
    n = len(X)
    for start in range(0, n, BLOCK):
        stop = min(n, start + BLOCK)
        some = weights[start:stop]
        a, b = first + start, first + stop
        for r in range(len(labels)):
            here = labels[r, a:b]
            own_squares(X[start:stop], here, centers[r], squares)
            add_costs(squares, some, cost_to_limbs, sums[r], stop - start)
            if keys.shape[2]:
                propose(squares, some, here, barred[r, a:b], key_scale, a - span, keys[r], stop - start)


# -- single moves --------------------------------------------------------------------------------


@inner
def square(x, center):
    """The canonical squared distance: (d,), (d,) float64."""
    total = 0.0
    for j in range(len(x)):
        difference = np.float64(x[j]) - center[j]
        total += difference * difference
    return total


@inner
def improves(leave, enter, factor, slack):
    """Whether a move lowers J by more than rounding: see `moving`."""
    return leave - enter > NOISE * leave + slack * np.sqrt(factor * leave)


@inner
def contend_entry(scores, norm, share, size, a, best, second, found, n):
    """`contend` for what it costs to enter centre a: share · (score + norm + ‖x‖²)."""
    for i in range(n):
        s, b, t, f = (scores[i] + norm + size[i] * size[i]) * share, best[i], second[i], found[i]
        t = s if s < t else t
        second[i] = t if t > b else b
        found[i] = a if s < b else f
        best[i] = s if s < b else b


@inner
def rank_entries(factors, norms, shares, moved, size, scores, best, second, found, n):
    """The two least costs of n points to enter a cluster, and the cluster of the least: as `rank`."""
    k, d = factors.shape
    best[:] = np.float32(np.inf)
    second[:] = np.float32(np.inf)
    found[:] = np.int32(0)
    wide = d >= WIDE
    step = TILE if wide else 1
    for start in range(0, k, step):
        stop = min(k, start + step)
        if wide:
            np.dot(factors[start:stop], moved, scores[: stop - start])
        else:
            score(factors[start], np.float32(0), moved, scores[0], n)
        for a in range(start, stop):
            contend_entry(scores[a - start], norms[a], shares[a], size, np.int32(a), best, second, found, n)


@inner
def least_shares(weights, mass, shares):
    """W / (W + w) of the clusters for the heaviest of some points: less for none of them. (n,) or (0,), (2, K)."""
    heaviest = 0.0 if len(weights) else 1.0
    for i in range(len(weights)):
        heaviest = max(heaviest, weights[i])
    for a in range(len(shares)):
        entered = mass[1, a] + heaviest
        shares[a] = np.float32(mass[1, a] / entered) if entered > 0.0 else np.float32(0)


@inner
def best_entry(x, weight, own, across, mass, squares):
    """The other cluster that costs least to enter, the lowest number on ties: (d,), (d, K), (2, K) -> b, cost."""
    d, k = across.shape
    for a in range(k):
        squares[a] = 0.0
    for j in range(d):
        value, row = np.float64(x[j]), across[j]
        for a in range(k):
            difference = value - row[a]
            squares[a] += difference * difference
    for a in range(k):
        squares[a] = squares[a] * (mass[1, a] / (mass[1, a] + weight))
    found = -1
    for a in range(k):
        if a != own and (found < 0 or squares[a] < squares[found]):
            found = a
    return found, squares[found] if found >= 0 else np.inf


@inner
def least_entry(length, doubt, best, second, found, own, unit, d):
    """A lower bound of what it costs a point to enter any cluster but its own, from its fast costs."""
    size = np.float64(length)
    error = doubt[0] + size * (doubt[1] + size * (doubt[2] + 4.0 * (d + 2) * 2.0**-23))  # as in `cover_rows`
    lowest = np.float64(second if found == own else best)
    bound = (lowest * (1.0 - 2.0**-20) - error) / (np.float64(unit) * np.float64(unit))  # some roundings more
    return bound if bound > 0.0 else 0.0  # also where it is not a number


@inner
def stay(X, weights, labels, centers, mass, leave, changed):
    """What the points cost in their clusters, where that has changed: W / (W - w) · d²; -1 where they may not leave."""
    for i in range(len(X)):
        own = np.uint64(labels[i])
        if changed[own] == 0:
            continue
        weight = weights[i] if len(weights) else 1.0
        rest = mass[0, own] - weight
        leave[i] = mass[0, own] / rest * square(X[i], centers[own]) if rest > 0.0 and weight > 0.0 else -1.0


@inner
def target_of(x, weight, own, leave, across, mass, slack, squares):
    """Where to move a point that costs `leave`, or -1, and the cost to enter the best cluster: `hartigan.find`."""
    b, enter = best_entry(x, weight, own, across, mass, squares)
    factor = mass[0, own] / (mass[0, own] - weight)
    return (b if improves(leave, enter, factor, slack) else -1), enter


@compiled
def move_rows(X, weights, first, labels, centers, mass, slack, fast, scales, everyone, target, leave, desk):
    """`BackendBase.moves` for the rows from `first` on: labels and target (R, N), centers (R, K, d), mass (R, 2, K).

    Of most points the least fast cost to enter another cluster, at its lowest, is above what they cost where they are.
    everyone (K,) holds ones, leave (BLOCK,) is scratch memory.
    """
    n, d = X.shape
    for start in range(0, n, BLOCK):
        stop = min(n, start + BLOCK)
        rows, some, size = X[start:stop], weights[start:stop], stop - start
        move(rows, scales.origin, scales.unit, desk.moved, desk.length)
        for r in range(len(labels)):
            here, goal = labels[r, first + start : first + stop], target[r, first + start : first + stop]
            least_shares(some, mass[r], desk.shares)
            rank_entries(
                fast.factors[r], fast.norms[r], desk.shares, desk.moved, desk.length, desk.scores, desk.best,
                desk.second, desk.found, size,
            )  # fmt: skip
            stay(rows, some, here, centers[r], mass[r], leave, everyone)
            for i in range(size):
                goal[i] = -1
                bound = least_entry(
                    desk.length[i], fast.doubt[r], desk.best[i], desk.second[i], desk.found[i], here[i], scales.unit, d
                )
                if not bound > leave[i]:
                    weight = some[i] if len(some) else 1.0
                    goal[i], _ = target_of(
                        rows[i], weight, here[i], leave[i], fast.across[r], mass[r], slack, desk.squares
                    )


@inner
def weigh(totals, a, d, weight_high, weight_low, mass):
    """Bring the weight of cluster a in mass (2, K) up to date with totals (K, C): `rules.masses`."""
    mass[1, a] = weight_of(totals[a], d, weight_high, weight_low)
    mass[0, a] = mass[1, a] if totals[a, -1] >= 2 else 0.0


@inner
def make_move(x, weight, weighted, a, b, centers, totals, mass, slack, axes, weight_scale, term):
    """Move a point from cluster a to b if that lowers J; centers, totals and mass follow: `rules.walk`."""
    d = len(x)
    rest = mass[0, a] - weight
    if not rest > 0.0:
        return False
    factor = mass[0, a] / rest
    leave = factor * square(x, centers[a])
    enter = mass[1, b] / (mass[1, b] + weight) * square(x, centers[b])
    if not improves(leave, enter, factor, slack):
        return False
    contribute(x, weight, weighted, axes, weight_scale[0], term)
    for c in range(len(term)):
        totals[a, c] -= term[c]
        totals[b, c] += term[c]
    for one in (a, b):
        weigh(totals, one, d, weight_scale[1], weight_scale[2], mass)
        mean = centers[one : one + 1]
        take_means(totals[one : one + 1], axes, weight_scale[1], weight_scale[2], mean, mean)
    return True


@compiled
def walk_moves(X, weights, restart, source, target, centers, totals, mass, slack, scales, term, made):
    """`rules.walk`: points X (M, d) in turn; made (M,) bool."""
    weighted = len(weights) > 0
    for m in range(len(X)):
        r = restart[m]
        made[m] = make_move(
            X[m], weights[m] if weighted else 1.0, weighted, source[m], target[m], centers[r], totals[r], mass[r],
            slack, scales.axes, scales.weight, term,
        )  # fmt: skip


# -- seeding -------------------------------------------------------------------------------------


@inner
def integer(min_sq_dist, weight, scale):
    """w · d² on the grid of the potential: up to 2^60, which is too large for `rounded`."""
    return np.int64(np.rint(min_sq_dist * weight * scale))


@compiled
def cover_rows(X, weights, first, min_sq_dist, seeds, powers, centers, scales, gains, lower, moved, length, scores):
    """`BackendBase.seed_gains` for the rows from `first` on: covered (R, N), seeds (R, T, d), powers (R,), gains (R, T).

    Where `lower`, it is `BackendBase.cover` instead: the squared distances to the seeds are written to `covered`.
    Few points are nearer to a new seed; the fast score of the others says so, as in `NumpySeeding._nearer`.
    """
    n, d = X.shape
    for start in range(0, n, BLOCK):
        stop = min(n, start + BLOCK)
        move(X[start:stop], scales.origin, scales.unit, moved, length)
        for r in range(seeds.shape[0]):
            here, doubt = min_sq_dist[r, first + start : first + stop], centers.doubt[r]
            for t in range(seeds.shape[1]):
                score(centers.factors[r, t], centers.norms[r, t], moved, scores, stop - start)
                gain = 0
                for i in range(stop - start):
                    size = np.float64(length[i])
                    slack = doubt[0] + size * (doubt[1] + size * (doubt[2] + 4.0 * (d + 2) * 2.0**-23))
                    if scores[i] > here[i] * scales.unit * scales.unit - size * size + slack:
                        continue
                    found = square(X[start + i], seeds[r, t])
                    if not found < here[i]:
                        continue
                    if lower:
                        here[i] = found
                    else:
                        weight = weights[start + i] if len(weights) else 1.0
                        gain += integer(here[i], weight, powers[r]) - integer(found, weight, powers[r])
                gains[r, t] += gain


@compiled
def potential_rows(weights, first, stop, min_sq_dist, powers, sums):
    """`BackendBase.potential` for the rows from `first` to `stop`: covered (R, N), powers (R,) -> sums (R,) int64."""
    for r in range(len(min_sq_dist)):
        here, total = min_sq_dist[r, first:stop], 0
        for i in range(len(here)):
            total += integer(here[i], weights[i] if len(weights) else 1.0, powers[r])
        sums[r] = total


# -- whole restarts of small data ----------------------------------------------------------------


class Data(NamedTuple):
    """A small data set."""

    X: np.ndarray  # (N, d)
    weights: np.ndarray  # (N,) or (0,)
    moved: np.ndarray  # (N / BLOCK, d, BLOCK) float32
    length: np.ndarray  # (N / BLOCK, BLOCK) float32


class RestartScratch(NamedTuple):
    """Scratch memory of one thread that runs whole restarts."""

    centers: np.ndarray  # (1, K, d) float64: what labels are made of
    means: np.ndarray  # (K, d) float64: the centroids
    barred: np.ndarray  # (N,) bool, false between calls
    keys: np.ndarray  # (K, 1) uint64
    sums: np.ndarray  # (3,) int64
    next: np.ndarray  # (2, K) int64: the next means, and where tabu rows are cut
    mass: np.ndarray  # (4, K) float64: weights of the clusters, as in `rules.masses`; as they were before the round
    target: np.ndarray  # (N,) int32: where points would move to, or -1
    leave: np.ndarray  # (N,) float64: what points cost in their clusters, or -1 for those that may not leave
    reach: np.ndarray  # (N,) float64: at most the square root of what any other cluster would cost


class Restarts(NamedTuple):
    """R restarts between two iterations, and their traces: of the tabu search, or of K-Means, which `prints` belong to.

    What the other one needs is empty. AGE counts the solutions that a search has judged, the start included, and the
    iterations that a descent has made.
    """

    labels: np.ndarray  # (R, N) int32
    totals: np.ndarray  # (R, K, C) int64
    status: np.ndarray  # (R, 3) int64: AGE, DONE (or GOING), STALE
    cost: np.ndarray  # (R, 2, T + 1) J, and J_b of a search; (R, 0, 0) for a descent that is not traced
    means: np.ndarray  # (R, 2, K) int64, M_c and M_b
    rows: np.ndarray  # (R, K, L) int64, tabu rows
    length: np.ndarray  # (R, K) int64, of the rows
    path: np.ndarray  # (R, T + 1, K) int64, M_c; for a descent, (R, T, 1), labels that changed
    centers: np.ndarray  # (R, K, d) float64
    prints: np.ndarray  # (R, T) uint64, of the totals of every iteration


class Limits(NamedTuple):
    """When restarts end, and what they go by."""

    max_iter: int
    patience: int
    target: float  # J to stop at, negative for none
    shared: bool  # scope "global"
    allowed: float  # squared shift of all centres together
    scatter: float  # J of one cluster


@inner
def assign_all(X, weights, moved, length, fast, labels, totals, axes, to_limbs, desk):
    """Label all points by their nearest centre and bring the totals up to date; returns how many labels changed."""
    changed = 0
    for b in range(len(moved)):
        start = b * BLOCK
        stop = min(len(X), start + BLOCK)
        rows, here = X[start:stop], labels[start:stop]
        rank(fast.factors[0], fast.norms[0], moved[b], desk.scores, desk.best, desk.second, desk.found, len(rows))
        settle(rows, length[b], fast.doubt[0], fast.across[0], desk.best, desk.second, desk.found, desk.squares)
        changed += relabel(rows, weights[start:stop], here, desk.found, totals, axes, to_limbs, desk.term)
    return changed


@inner
def weight_of(total, d, high, low):
    """Weight of a cluster from its totals (C,): `Grid.weights`."""
    if len(total) == 2 * d + 1:
        return np.float64(total[2 * d])
    return np.float64(total[2 * d]) * high + np.float64(total[2 * d + 1]) * low


@inner
def take_means(totals, axes, weight_high, weight_low, fallback, means):
    """The centroids (eq. 3), `fallback` for empty clusters: `Grid.centroids`. (K, C), (K, d) -> (K, d)."""
    k, d = means.shape
    for a in range(k):
        weight = weight_of(totals[a], d, weight_high, weight_low)
        for j in range(d):
            moment = np.float64(totals[a, j]) * axes[2, j] + np.float64(totals[a, d + j]) * axes[3, j]
            means[a, j] = axes[0, j] + moment / weight if weight > 0.0 else fallback[a, j]


@inner
def cost_at(X, weights, centers, labels, cost, sums, squares, keys, barred, key_scale):
    """J at centers (K, d), and the least keys of the free points (K, 1): `BackendBase.survey`; no keys for J alone."""
    n = len(X)
    for limb in range(3):
        sums[limb] = 0
    for a in range(len(keys)):
        keys[a, 0] = NO_KEY
    for start in range(0, n, BLOCK):
        stop = min(n, start + BLOCK)
        here, some = labels[start:stop], weights[start:stop]
        own_squares(X[start:stop], here, centers, squares)
        add_costs(squares, some, cost[0], sums, stop - start)
        if len(keys):
            propose(squares, some, here, barred[start:stop], key_scale, start, keys, stop - start)
    total = np.float64(sums[0]) * cost[1]
    total = total + np.float64(sums[1]) * cost[2]
    return total + np.float64(sums[2]) * cost[3]


@compiled
def run_restart(data, its, r, limits, until, scales, fast, bench, desk):
    """Go on with restart r until it ends or its age is `until`: `gputabu.algorithms.quantized.explore`, `gputabu.algorithms.lloyd.descend`.

    One function for both, because most of it is the same code, which would be compiled twice.
    """
    k, d = bench.means.shape
    X, weights, axes, weight = data.X, data.weights, scales.axes, scales.weight
    labels, totals, status, rows, length = its.labels[r], its.totals[r], its.status[r], its.rows[r], its.length[r]
    descent = its.prints.shape[1] > 0
    keys = bench.keys[:0] if descent else bench.keys
    while status[DONE] == GOING and status[AGE] < until:
        for a in range(k):
            for j in range(d):
                if descent:
                    bench.centers[0, a, j] = its.centers[r, a, j]
                else:
                    bench.centers[0, a, j] = np.float64(X[its.means[r, 0, a], j])
        centers = bench.centers[0]
        ready(bench.centers, scales, fast)
        changed = assign_all(X, weights, data.moved, data.length, fast, labels, totals, axes, weight[0], desk)
        if descent:
            farthest(X, weights, centers, labels, totals, scales.key, bench.next[0])
            lend(X, weights, labels, totals, axes, weight[0], bench.next[0], 1, desk.term)
        else:
            bar(rows, length, labels, limits.shared, bench.barred, True)
        take_means(totals, axes, weight[1], weight[2], centers, bench.means)
        if descent:
            lend(X, weights, labels, totals, axes, weight[0], bench.next[0], -1, desk.term)
        cost = 0.0
        if not descent or (status[AGE] == 0 and its.cost.shape[1]):
            at = centers if descent else bench.means
            cost = cost_at(
                X, weights, at, labels, scales.cost, bench.sums, desk.squares, keys, bench.barred, scales.key
            )
        if descent:
            if its.cost.shape[1]:
                if status[AGE] == 0:
                    its.cost[r, 0, 0] = cost
                inside = limits.scatter - between(totals, axes, weight[1], weight[2])
                its.cost[r, 0, status[AGE] + 1] = max(inside, 0.0)
                its.path[r, status[AGE], 0] = changed
            arrive(its.centers[r], bench.means, totals, its.prints[r], changed, status, limits.max_iter, limits.allowed)
        else:
            bar(rows, length, labels, limits.shared, bench.barred, False)
            judge(cost, its.means[r], status, its.cost[r], its.path[r], limits)
            if status[DONE] == GOING:
                choose(weights, labels, totals, its.means[r], rows, length, limits.shared, keys, bench.next)
                enter(its.means[r], rows, length, bench.next)


@inner
def bar(rows, length, labels, shared, barred, value):
    """Flag the points that the tabu rows (K, L) forbid: those in the row of their own cluster, or all."""
    for a in range(len(length)):
        for entry in range(length[a]):
            if shared or labels[rows[a, entry]] == a:
                barred[rows[a, entry]] = value


@inner
def judge(J, means, status, cost, path, limits):
    """Record M_c and its J, and whether the search ends here: `gputabu.algorithms.tabu_list.Best`."""
    iteration = status[AGE]
    better = iteration == 0 or cost[1, iteration - 1] * (1.0 - NOISE) > J
    for a in range(means.shape[1]):
        path[iteration, a] = means[0, a]
        if better:
            means[1, a] = means[0, a]
    cost[0, iteration] = J
    cost[1, iteration] = J if better else cost[1, iteration - 1]
    status[AGE] = iteration + 1
    status[STALE] = 0 if better else status[STALE] + 1
    if cost[1, iteration] <= limits.target:
        status[DONE] = TARGET
    elif status[STALE] >= limits.patience:
        status[DONE] = PATIENCE
    elif iteration == limits.max_iter:
        status[DONE] = MAX_ITER


@inner
def choose(weights, labels, totals, means, rows, length, shared, keys, chosen):
    """The next mean of every cluster, and the place to cut its tabu row at, or -1: `gputabu.algorithms.quantized.neighbours`."""
    for a in range(len(keys)):
        chosen[0, a], chosen[1, a] = means[0, a], -1
        if keys[a, 0] != NO_KEY:
            chosen[0, a] = np.int64(keys[a, 0] & np.uint64(0xFFFFFFFF))
        elif totals[a, -1] > 0:  # all members are tabu: the deletion rule
            for entry in range(length[a] - 1, -1, -1):
                row = rows[a, entry]
                if labels[row] != a or (len(weights) and weights[row] == 0.0):
                    continue
                if shared and elsewhere(rows, length, a, row):
                    continue
                chosen[0, a], chosen[1, a] = row, entry
                break


@inner
def elsewhere(rows, length, a, row):
    """Whether a tabu row other than a holds this point."""
    for b in range(len(length)):
        if b != a:
            for entry in range(length[b]):
                if rows[b, entry] == row:
                    return True
    return False


@inner
def enter(means, rows, length, chosen):
    """Forbid M_c and go to the means chosen: `gputabu.algorithms.tabu_list.TabuList`."""
    for a in range(len(length)):
        if chosen[1, a] >= 0:
            length[a] = chosen[1, a]
        held = False
        for entry in range(length[a]):
            held = held or rows[a, entry] == means[0, a]
        if not held:
            rows[a, length[a]] = means[0, a]
            length[a] += 1
        means[0, a] = chosen[0, a]


@inner
def arrive(centers, means, totals, prints, changed, status, max_iter, allowed):
    """Go to the centroids, and whether the descent ends there."""
    shift = 0.0
    for a in range(len(centers)):
        shift += square(means[a], centers[a])
        for j in range(centers.shape[1]):
            centers[a, j] = means[a, j]
    iteration = status[AGE]
    status[AGE] = iteration + 1
    if came_back(totals, prints, iteration) or changed == 0:
        status[DONE] = CONVERGED
    elif allowed > 0.0 and shift <= allowed:
        status[DONE] = TOLERANCE
    elif iteration + 1 == max_iter:
        status[DONE] = MAX_ITER


class Improvements(NamedTuple):
    """R descents by single moves between two rounds."""

    labels: np.ndarray  # (R, N) int32
    totals: np.ndarray  # (R, K, C) int64
    centers: np.ndarray  # (R, K, d) float64
    # (R, 5) int64: rounds made, why it stopped or GOING, moves made; rounds and moves when labels were last nearest
    status: np.ndarray


@compiled
def improve_restart(data, its, r, max_rounds, slack, until, scales, fast, bench, desk):
    """Go on with descent r until it ends or has made `until` rounds: `gputabu.algorithms.hartigan.improve`."""
    k, d = bench.means.shape
    labels, totals, centers, status = its.labels[r], its.totals[r], its.centers[r], its.status[r]
    X, weights, mass, target, changed = data.X, data.weights, bench.mass, bench.target, bench.next[0]
    if status[AGE] == 0:
        for a in range(k):
            for j in range(d):
                bench.centers[0, a, j] = centers[a, j]
        ready(bench.centers, scales, fast)
        assign_all(X, weights, data.moved, data.length, fast, labels, totals, scales.axes, scales.weight[0], desk)
        take_means(totals, scales.axes, scales.weight[1], scales.weight[2], bench.centers[0], centers)
    for a in range(k):
        weigh(totals, a, d, scales.weight[1], scales.weight[2], mass)
        changed[a] = 1
    bench.reach[:] = 0.0
    heaviest = 0.0 if len(weights) else 1.0
    for i in range(len(weights)):
        heaviest = max(heaviest, weights[i])
    while status[DONE] == GOING and status[AGE] < until:
        for a in range(k):
            mass[2, a], mass[3, a] = mass[0, a], mass[1, a]
            for j in range(d):
                bench.centers[0, a, j] = centers[a, j]
        ready(bench.centers, scales, fast)
        count = 0
        for b in range(len(data.moved)):
            start = b * BLOCK
            stop = min(len(X), start + BLOCK)
            rows, some, here = X[start:stop], weights[start:stop], labels[start:stop]
            stay(rows, some, here, centers, mass, bench.leave[start:stop], changed)
            count += seek(
                rows, some, here, mass, slack, scales.unit, data.moved[b], data.length[b], fast, desk,
                bench.leave[start:stop], bench.reach[start:stop], target[start:stop],
            )  # fmt: skip
        for i in range(len(X) if count else 0):
            if target[i] >= 0 and make_move(
                X[i], weights[i] if len(weights) else 1.0, len(weights) > 0, labels[i], target[i], centers, totals,
                mass, slack, scales.axes, scales.weight, desk.term,
            ):  # fmt: skip
                labels[i] = target[i]
                status[MOVES] += 1
        loosen(centers, bench.centers[0], mass, heaviest, bench.reach, changed)
        status[AGE] += 1
        if count == 0:
            relabelled = 0
            if status[MOVES] > status[HELD]:  # `fast` is of these centres
                relabelled = assign_all(
                    X, weights, data.moved, data.length, fast, labels, totals, scales.axes, scales.weight[0], desk
                )
            if relabelled == 0:
                status[DONE] = CONVERGED
            take_means(totals, scales.axes, scales.weight[1], scales.weight[2], bench.centers[0], centers)
            for a in range(k):
                weigh(totals, a, d, scales.weight[1], scales.weight[2], mass)
                changed[a] = 1
            bench.reach[:] = 0.0
            status[ROUNDS], status[HELD] = status[AGE], status[MOVES]
        elif status[AGE] - status[ROUNDS] == max_rounds:
            status[DONE] = MAX_ITER


@inner
def seek(X, weights, labels, mass, slack, unit, moved, length, fast, desk, leave, reach, target):
    """Write where the points X (n, d) would move to, or -1, to target (n,), and return how many would: `hartigan.find`.

    Points of which it is known that any other cluster costs more (reach² > leave) are not looked at; where many are
    left, the fast scores look at all of them again.
    """
    n, d = X.shape
    left = 0
    for i in range(n):
        target[i] = -1
        left += not reach[i] * reach[i] > leave[i] * BEYOND
    if left > n // SPARSE:
        least_shares(weights, mass, desk.shares)
        rank_entries(
            fast.factors[0], fast.norms[0], desk.shares, moved, length, desk.scores, desk.best, desk.second,
            desk.found, n,
        )  # fmt: skip
        for i in range(n):
            bound = least_entry(
                length[i], fast.doubt[0], desk.best[i], desk.second[i], desk.found[i], labels[i], unit, d
            )
            reach[i] = np.sqrt(bound)
    elif left == 0:
        return 0
    count = 0
    for i in range(n):
        if leave[i] < 0.0 or reach[i] * reach[i] > leave[i] * BEYOND:
            continue
        weight = weights[i] if len(weights) else 1.0
        goal, enter = target_of(X[i], weight, labels[i], leave[i], fast.across[0], mass, slack, desk.squares)
        target[i] = goal
        reach[i] = np.sqrt(enter) if goal < 0 else 0.0  # one that is to move may not, and have another place to go to
        count += goal >= 0
    return count


@inner
def loosen(centers, before, mass, heaviest, reach, changed):
    """Lower reach (N,) by what the moves of a round can have made entering cheaper, and say which clusters changed.

    The root of W / (W + w) · d² falls by the way of a centre at most, and by the root of what W / (W + w) falls to;
    that is the most for the heaviest point.
    """
    way, share = 0.0, 1.0
    for a in range(len(centers)):
        squared = square(centers[a], before[a])
        changed[a] = squared > 0.0 or mass[0, a] != mass[2, a] or mass[1, a] != mass[3, a]
        way = max(way, squared)
        if mass[1, a] < mass[3, a]:
            share = min(share, mass[1, a] / (mass[1, a] + heaviest) * ((mass[3, a] + heaviest) / mass[3, a]))
    way, share = np.sqrt(way), np.sqrt(share)
    for i in range(len(reach)):
        value = (reach[i] - way) * share
        reach[i] = value if value > 0.0 else 0.0


@inner
def between(totals, axes, weight_high, weight_low):
    """Scatter between the clusters, from their totals (K, C): `gputabu.algorithms.lloyd._between`."""
    d = axes.shape[1]
    scatter = 0.0
    for a in range(len(totals)):
        weight = weight_of(totals[a], d, weight_high, weight_low)
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
def came_back(totals, prints, iteration):
    """Whether these totals were there before, by a print of each: `gputabu.algorithms.lloyd._came_back`."""
    mark = np.uint64(14695981039346656037)
    for a in range(totals.shape[0]):
        for c in range(totals.shape[1]):
            mark = (mark ^ np.uint64(totals[a, c])) * np.uint64(0x9E3779B97F4A7C15)
            mark ^= mark >> np.uint64(29)
    prints[iteration] = mark
    for earlier in range(iteration):
        if prints[earlier] == mark:
            return True
    return False


@inner
def farthest(X, weights, centers, labels, totals, scale, given):
    """The points that empty clusters are given, the farthest first, -1 for none: `gputabu.algorithms.lloyd.relocate`."""
    last, last_row = np.float32(np.inf), -1  # only points behind the last one given away are left
    for a in range(len(totals)):
        given[a] = -1
        if totals[a, -1] != 0 or (last_row < 0 and last < np.inf):
            continue
        value, row = ON_CENTER, -1
        for i in range(len(X)):
            if len(weights) and weights[i] == 0.0:
                continue
            mine = np.float32(square(X[i], centers[labels[i]]) * scale)
            if mine > value and (mine < last or (mine == last and i > last_row)):  # the lowest row of equals
                value, row = mine, i
        given[a] = row
        last, last_row = value, row


@inner
def lend(X, weights, labels, totals, axes, to_limbs, given, sign, term):
    """Move the points given to clusters from their own clusters to these, or back."""
    for a in range(len(given)):
        row = given[a]
        if row >= 0:
            contribute(X[row], weights[row] if len(weights) else 1.0, len(weights) > 0, axes, to_limbs, term)
            for c in range(len(term)):
                totals[a, c] += sign * term[c]
                totals[labels[row], c] -= sign * term[c]


# -- relocation ----------------------------------------------------------------------------------


class NearestTwoArrays(NamedTuple):
    """The two nearest centres of every point in R restarts: `gputabu.backend.contract.NearestTwo`."""

    first: np.ndarray  # (R, N) int32
    second: np.ndarray  # (R, N) int32
    near: np.ndarray  # (R, N) float64
    far: np.ndarray  # (R, N) float64


class RelocationScratch(NamedTuple):
    """Scratch memory of one thread for relocation."""

    columns: np.ndarray  # (d, BLOCK) float64
    squares: np.ndarray  # (max(BLOCK, K),) float64
    affected: np.ndarray  # (BLOCK + 1,) int64
    crowd: np.ndarray  # (d, BLOCK) float32, the affected points
    moved: np.ndarray  # (K,) bool
    mass: np.ndarray  # (2, K) float64
    found: np.ndarray  # (BLOCK,) int32
    term: np.ndarray  # (C,) int64
    points: np.ndarray  # (T, d) float64, the candidates
    rows: np.ndarray  # (T,) int64, the candidates
    loss: np.ndarray  # (K, 3) int64
    change: np.ndarray  # (T, K + 1, 3) int64
    running: np.ndarray  # (N,) int64
    sums: np.ndarray  # (3,) int64


@inner
def turn(X, columns):
    """Points feature by feature, (n, d) -> (d, BLOCK) float64."""
    n, d = X.shape
    for j in range(d):
        row = columns[j]
        for i in range(n):
            row[i] = np.float64(X[i, j])


@inner
def squares_to(columns, center, squares, n):
    """Canonical d² of n points to a centre: (d, BLOCK), (d,) -> (n,)."""
    for i in range(n):
        squares[i] = 0.0
    for j in range(len(center)):
        row, c = columns[j], center[j]
        for i in range(n):
            difference = row[i] - c
            squares[i] += difference * difference


@inner
def join(squares, a, first, second, near, far, n):
    """Enter centre a, from which the points are `squares` (n,) away, into their two nearest; selections only."""
    for i in range(n):
        s, p, q, f, g = squares[i], near[i], far[i], first[i], second[i]
        ahead = (s < p) | ((s == p) & (a < f))
        between = (s < q) | ((s == q) & (a < g))
        runner, number = s if between else q, a if between else g
        far[i] = p if ahead else runner
        second[i] = f if ahead else number
        near[i] = s if ahead else p
        first[i] = a if ahead else f


@inner
def find_two(x, across, squares):
    """The two nearest centres of a point, the lowest numbers on ties: (d,), (d, K), (K,) out: d²."""
    d, k = across.shape
    for a in range(k):
        squares[a] = 0.0
    for j in range(d):
        value, row = np.float64(x[j]), across[j]
        for a in range(k):
            difference = value - row[a]
            squares[a] += difference * difference
    first, second = 0, 1
    near, far = squares[0], squares[1]
    if far < near:
        first, second, near, far = 1, 0, far, near
    for a in range(2, k):
        s = squares[a]
        if s < far:
            if s < near:
                first, second, near, far = a, first, s, near
            else:
                second, far = a, s
    return first, second


@inner
def enter_three(s, a, best, second, third, found, other):
    """The three best scores and the centres of two, with score s of centre a among them; selections only."""
    third = s if s < third else third
    third = third if third > second else second
    other = a if s < second else other
    other = found if s < best else other
    second = s if s < second else second
    second = second if second > best else best
    return s if s < best else best, second, third, a if s < best else found, other


@inner
def contend_three(scores, norms, a, best, second, third, found, other, n):
    """Enter the centres from a on, scores (1 or 4, BLOCK) + norms, into the three best of every point: as `contend`."""
    s0, n0 = scores[0], norms[0]
    if len(norms) == 1:
        for i in range(n):
            best[i], second[i], third[i], found[i], other[i] = enter_three(
                s0[i] + n0, a, best[i], second[i], third[i], found[i], other[i]
            )
        return
    s1, s2, s3, n1, n2, n3 = scores[1], scores[2], scores[3], norms[1], norms[2], norms[3]
    a1, a2, a3 = np.int32(a + 1), np.int32(a + 2), np.int32(a + 3)
    for i in range(n):
        b, t, u, f, g = enter_three(s0[i] + n0, a, best[i], second[i], third[i], found[i], other[i])
        b, t, u, f, g = enter_three(s1[i] + n1, a1, b, t, u, f, g)
        b, t, u, f, g = enter_three(s2[i] + n2, a2, b, t, u, f, g)
        best[i], second[i], third[i], found[i], other[i] = enter_three(s3[i] + n3, a3, b, t, u, f, g)


@inner
def rank_two(factors, norms, quick, desk, n):
    """The three best scores of n points, and the centres with the two best: (K, d), (K,), (d, BLOCK); as `rank`."""
    k, d = factors.shape
    for i in range(n):
        desk.best[i] = desk.second[i] = desk.third[i] = np.float32(np.inf)
        desk.found[i] = desk.other[i] = np.int32(0)
    wide = d >= WIDE and 2 * n > BLOCK
    step = TILE if wide else 4
    for start in range(0, k, step):
        stop = min(k, start + step)
        if wide:
            np.dot(factors[start:stop], quick, desk.scores[: stop - start])
        else:
            for a in range(start, stop):
                score(factors[a], np.float32(0), quick, desk.scores[a - start], n)
        a = start
        while a < stop:
            some = 4 if a + 4 <= stop else 1
            contend_three(desk.scores[a - start :], norms[a : a + some], np.int32(a), desk.best, desk.second,
                          desk.third, desk.found, desk.other, n)  # fmt: skip
            a += some


@inner
def pair_block(X, columns, quick, length, centers, fast, r, moved, first, second, near, far, affected, crowd, desk):
    """Bring the two nearest centres of the points X (n, d), columns or quick (d, BLOCK), up to date with those that
    moved, which are centers (K, d) or fast[r].

    Where few did, they are newcomers to all points, and only those that had one of them among their two look anew.
    """
    n, k = len(X), len(centers)
    count, fresh = 0, 0
    for a in range(k):
        fresh += moved[a]
    all_anew = FEW * fresh > k
    if not all_anew:
        for i in range(n):
            affected[count] = i
            count += moved[first[i]] | moved[second[i]]
        for a in range(k):
            if moved[a]:
                squares_to(columns, centers[a], desk.squares, n)
                join(desk.squares, np.int32(a), first, second, near, far, n)
        for j in range(len(crowd)):
            row, to = quick[j], crowd[j]
            for c in range(count):
                to[c] = row[affected[c]]
        quick = crowd
    else:
        count = n
    rank_two(fast.factors[r], fast.norms[r], quick, desk, count)
    doubt0, doubt1, doubt2 = fast.doubt[r, 0], fast.doubt[r, 1], fast.doubt[r, 2]
    for c in range(count):
        i = c if all_anew else affected[c]
        if desk.third[c] - desk.second[c] > doubt0 + length[i] * (doubt1 + length[i] * doubt2):
            a, b = desk.found[c], desk.other[c]
            p, q = square(X[i], centers[a]), square(X[i], centers[b])
            if q < p or (q == p and b < a):
                a, b, p, q = b, a, q, p
        else:
            a, b = find_two(X[i], fast.across[r], desk.squares)
            p, q = desk.squares[a], desk.squares[b]
        first[i], second[i], near[i], far[i] = a, b, p, q


@inner
def turn_centers(centers, at, moved):
    """Note which centers (K, d) are not `at`, and put them there; returns how many."""
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


@compiled
def pair_rows(X, first, centers, fast, moved, twos, scales, stand, desk):
    """`BackendBase.pairs` for the rows from `first` on: centers (R, K, d), moved (R, K)."""
    n = len(X)
    for start in range(0, n, BLOCK):
        stop = min(n, start + BLOCK)
        a, b = first + start, first + stop
        rows = X[start:stop]
        turn(rows, stand.columns)
        move(rows, scales.origin, scales.unit, desk.moved, desk.length)
        for r in range(len(centers)):
            if moved[r].any():
                pair_block(
                    rows, stand.columns, desk.moved, desk.length, centers[r], fast, r, moved[r], twos.first[r, a:b],
                    twos.second[r, a:b], twos.near[r, a:b], twos.far[r, a:b], stand.affected, stand.crowd, desk,
                )  # fmt: skip


@inner
def decide_between(weights, labels, first, second, near, far, mass, found):
    """Where each of n points settles by Hartigan's rule: `relocation._stays`."""
    for i in range(len(labels)):
        weight = weights[i] if len(weights) else 1.0
        inner_one = labels[i] == first[i]
        if not (inner_one or labels[i] == second[i]) or not weight > 0.0:
            found[i] = first[i]
            continue
        own, other = (first[i], second[i]) if inner_one else (second[i], first[i])
        mine, theirs = (near[i], far[i]) if inner_one else (far[i], near[i])
        left, right = mass[0, own], mass[1, other]
        rest = left - weight
        leave, enters = left / rest * mine, right / (right + weight) * theirs
        found[i] = other if rest > 0.0 and leave - enters > NOISE * leave else own


@inner
def settle_block(
    X, weights, labels, first, second, near, far, mass, nearest, found, totals, axes, to_limbs, term, squares,
    cost_to_limbs, sums,
):  # fmt: skip
    """Relabel the points X (n, d), follow in the totals (K, C), add to J in sums (3,); returns how many changed."""
    if nearest:
        changed = relabel(X, weights, labels, first, totals, axes, to_limbs, term)
    else:
        decide_between(weights, labels, first, second, near, far, mass, found)
        changed = relabel(X, weights, labels, found, totals, axes, to_limbs, term)
    for i in range(len(X)):
        squares[i] = near[i] if labels[i] == first[i] else far[i]
    add_costs(squares, weights, cost_to_limbs, sums, len(X))
    return changed


@compiled
def settle_rows(X, weights, first, labels, twos, r, mass, nearest, scales, totals, changed, costs, stand):
    """`BackendBase.settle` of restart r, rows from `first` on: mass (2, K), totals (R, K, C), changed (R,), costs (R, 3)."""
    n = len(X)
    for start in range(0, n, BLOCK):
        stop = min(n, start + BLOCK)
        a, b = first + start, first + stop
        changed[r] += settle_block(
            X[start:stop], weights[start:stop], labels[r, a:b], twos.first[r, a:b], twos.second[r, a:b],
            twos.near[r, a:b], twos.far[r, a:b], mass, nearest, stand.found, totals[r], scales.axes, scales.weight[0],
            stand.term, stand.squares, scales.cost[0], costs[r],
        )  # fmt: skip


@inner
def add_limbs(value, to_limbs, sums, sign):
    """Add or take away the limbs of one term of J, sums (3,) int64: `points.limbs`."""
    value = value * to_limbs
    limb = rounded(value)
    sums[0] += sign * np.int64(limb)
    value = (value - limb) * LIMB_UNIT
    limb = rounded(value)
    sums[1] += sign * np.int64(limb)
    sums[2] += sign * np.int64(rounded((value - limb) * LIMB_UNIT))


@inner
def gain_block(columns, weights, candidates, first, near, far, to_limbs, loss, change, squares, n):
    """Add what n points say of `BackendBase.swap_gains`: candidates (T, d), loss (K, 3), change (T, K + 1, 3) int64."""
    for i in range(n):
        weight = weights[i] if len(weights) else 1.0
        add_limbs((far[i] - near[i]) * weight, to_limbs, loss[first[i]], 1)
    for t in range(len(candidates)):
        squares_to(columns, candidates[t], squares, n)
        for i in range(n):
            s = squares[i]
            if s < far[i]:
                weight, own = weights[i] if len(weights) else 1.0, first[i]
                add_limbs((far[i] - near[i]) * weight, to_limbs, change[t, own], -1)
                if s < near[i]:
                    add_limbs((near[i] - s) * weight, to_limbs, change[t, -1], 1)
                else:
                    add_limbs((s - near[i]) * weight, to_limbs, change[t, own], 1)


@compiled
def gain_rows(X, weights, first, candidates, twos, to_limbs, loss, change, stand):
    """`BackendBase.swap_gains` for the rows from `first` on: candidates (R, T, d), loss (R, K, 3), change (R, T, K + 1, 3)."""
    n = len(X)
    for start in range(0, n, BLOCK):
        stop = min(n, start + BLOCK)
        a, b = first + start, first + stop
        turn(X[start:stop], stand.columns)
        for r in range(len(candidates)):
            gain_block(
                stand.columns, weights[start:stop], candidates[r], twos.first[r, a:b], twos.near[r, a:b],
                twos.far[r, a:b], to_limbs, loss[r], change[r], stand.squares, stop - start,
            )  # fmt: skip


class RelocationState(NamedTuple):
    """R relocation searches between two iterations, and their traces."""

    labels: np.ndarray  # (R, N) int32
    totals: np.ndarray  # (R, K, C) int64
    centers: np.ndarray  # (R, K, d) float64
    at: np.ndarray  # (R, K, d) float64, the centres that `twos` holds for
    best: np.ndarray  # (R, K, d) float64
    home: np.ndarray  # (R, K, d) float64
    home_cost: np.ndarray  # (R,)
    placed: np.ndarray  # (R, tenure) int64
    used: np.ndarray  # (R, K) int64
    status: np.ndarray  # (R, 4) int64: solutions judged, DONE (or GOING), iterations since a new best, a new home
    cost: np.ndarray  # (R, 2, T + 1): J and J_b
    moves: np.ndarray  # (R, T) int64


class RelocationRules(NamedTuple):
    """The numbers of `gputabu.algorithms.relocation` and its `RelocationSettings`."""

    max_iter: int
    patience: int
    go_back: int
    returns: int
    steps: int
    more_steps: int
    reach: float
    target: float
    coarsest: int  # grid of the potential
    finest: int
    enough: int  # bits
    bits: int


@inner
def pair_all(data, columns, centers, at, first, second, near, far, scales, fast, stand, desk):
    """`BackendBase.pairs` for all points of one restart: columns (N / BLOCK, d, BLOCK), centers and at (1, K, d)."""
    if turn_centers(centers[0], at[0], stand.moved) == 0:
        return
    ready(centers, scales, fast)
    for b in range(len(columns)):
        i = b * BLOCK
        j = min(len(data.X), i + BLOCK)
        pair_block(
            data.X[i:j], columns[b], data.moved[b], data.length[b], centers[0], fast, 0, stand.moved, first[i:j],
            second[i:j], near[i:j], far[i:j], stand.affected, stand.crowd, desk,
        )  # fmt: skip


@inner
def settle_all(
    X, weights, labels, first, second, near, far, mass, nearest, found, totals, axes, to_limbs, term, squares, cost,
    sums,
):  # fmt: skip
    """`BackendBase.settle` for all points of one restart: how many changed, and J at the centres of the pairs."""
    changed = 0
    for limb in range(3):
        sums[limb] = 0
    for start in range(0, len(X), BLOCK):
        stop = min(len(X), start + BLOCK)
        changed += settle_block(
            X[start:stop], weights[start:stop], labels[start:stop], first[start:stop], second[start:stop],
            near[start:stop], far[start:stop], mass, nearest, found, totals, axes, to_limbs, term, squares, cost[0],
            sums,
        )  # fmt: skip
    total = np.float64(sums[0]) * cost[1]
    total = total + np.float64(sums[1]) * cost[2]
    return changed, total + np.float64(sums[2]) * cost[3]


@inner
def shifted(centers, at, totals, weight_high, weight_low):
    """What J falls by as the centres go from `at` to the centroids: `relocation.step`."""
    k, d = centers.shape
    total = 0.0
    for a in range(k):
        squares = 0.0
        for j in range(d):
            away = centers[a, j] - at[a, j]
            squares += away * away
        total += weight_of(totals[a], d, weight_high, weight_low) * squares
    return total


@inner
def sum_potential(near, weights, scale, running):
    """Running totals of the potential, (N,) int64; returns the last."""
    total = 0
    for i in range(len(near)):
        total += integer(near[i], weights[i] if len(weights) else 1.0, scale)
        running[i] = total
    return total


@inner
def high_product(a, b):
    """The high half of the 128-bit product of two words: `draws.below`."""
    low = np.uint64(0xFFFFFFFF)
    half = np.uint64(32)
    a1, a0, b1, b0 = a >> half, a & low, b >> half, b & low
    middle = a1 * b0 + ((a0 * b0) >> half)
    return a1 * b1 + (middle >> half) + ((a0 * b1 + (middle & low)) >> half)


@inner
def draw_rows(near, weights, words, coarsest, finest, enough, limit, running, rows):
    """Draw candidates, rows (T,), by words (T,): `relocation.draw`. Returns whether there was anything to draw from."""
    shift = coarsest
    while True:
        total = sum_potential(near, weights, math.ldexp(1.0, shift), running)
        bits, rest = 0, total
        while rest > 0:
            bits += 1
            rest >>= 1
        if bits >= enough or shift >= finest:
            break
        shift = min(shift + limit - max(bits, 4), finest)
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


@inner
def put(source, target):
    """Copy (K, d): an assignment of whole arrays would compile for seconds."""
    for a in range(source.shape[0]):
        for j in range(source.shape[1]):
            target[a, j] = source[a, j]


@inner
def among(ring, value):
    for entry in ring:
        if entry == value:
            return True
    return False


@inner
def best_swap(loss, change, cost, rows, placed, used):
    """The best candidate and the centre to replace, t·K + k, of those that are not tabu: `relocation.relocate`."""
    k = len(loss)
    free = 0
    for row in rows:
        free += not among(used, row)
    least, best = np.inf, 0
    for t in range(len(rows)):
        if free and among(used, rows[t]):
            continue
        for a in range(k):
            gain = np.float64(loss[a, 0] + change[t, a, 0] - change[t, k, 0]) * cost[1]
            gain = gain + np.float64(loss[a, 1] + change[t, a, 1] - change[t, k, 1]) * cost[2]
            gain = gain + np.float64(loss[a, 2] + change[t, a, 2] - change[t, k, 2]) * cost[3]
            if gain < least and not among(placed, a):
                least, best = gain, t * k + a
    return best


@compiled
def roam_restart(data, columns, its, twos, r, words, begun, rules, until, scales, fast, stand, desk):
    """Go on with search r until it ends or has judged `until` solutions: `gputabu.algorithms.relocation.roam`.

    words (S, T) are those of the iterations from `begun` on.
    """
    X, weights, axes = data.X, data.weights, scales.axes
    labels, totals, centers, at, best = its.labels[r], its.totals[r], its.centers[r], its.at[r], its.best[r]
    status, cost, placed, used, home = its.status[r], its.cost[r], its.placed[r], its.used[r], its.home[r]
    first, second, near, far = twos.first[r], twos.second[r], twos.near[r], twos.far[r]
    k, d = centers.shape
    while status[DONE] == GOING and status[AGE] < until:
        iteration = status[AGE] - 1  # -1 is the start
        steps = 1
        J_best = np.inf
        if iteration >= 0:
            J_best, steps = cost[1, iteration], rules.steps
            pair_all(data, columns, its.centers[r : r + 1], its.at[r : r + 1], first, second, near, far, scales, fast,
                     stand, desk)  # fmt: skip
            if not draw_rows(near, weights, words[iteration - begun], rules.coarsest, rules.finest, rules.enough,
                             rules.bits, stand.running, stand.rows):  # fmt: skip
                status[DONE] = TARGET
                break
            for t in range(len(stand.rows)):
                for j in range(d):
                    stand.points[t, j] = np.float64(X[stand.rows[t], j])
            stand.loss[:] = 0
            stand.change[:] = 0
            for b in range(len(columns)):
                i = b * BLOCK
                j = min(len(X), i + BLOCK)
                gain_block(columns[b], weights[i:j], stand.points, first[i:j], near[i:j], far[i:j], scales.cost[0],
                           stand.loss, stand.change, stand.squares, j - i)  # fmt: skip
            swap = best_swap(stand.loss, stand.change, scales.cost, stand.rows, placed, used)
            for j in range(d):
                centers[swap % k, j] = stand.points[swap // k, j]
            if len(placed):
                placed[iteration % len(placed)] = swap % k
            used[iteration % k] = stand.rows[swap // k]
        J_home, J, moves, number, better, nearer = its.home_cost[r], np.inf, 0, 0, False, False
        start = J_home
        while number < steps:
            pair_all(data, columns, its.centers[r : r + 1], its.at[r : r + 1], first, second, near, far, scales, fast,
                     stand, desk)  # fmt: skip
            for a in range(k):
                weigh(totals, a, d, scales.weight[1], scales.weight[2], stand.mass)
            changed, there = settle_all(
                X, weights, labels, first, second, near, far, stand.mass, number == 0, stand.found, totals, axes,
                scales.weight[0], stand.term, stand.squares, scales.cost, stand.sums,
            )  # fmt: skip
            moves += changed
            take_means(totals, axes, scales.weight[1], scales.weight[2], at, centers)
            last, J = J, max(there - shifted(centers, at, totals, scales.weight[1], scales.weight[2]), 0.0)
            number += 1
            if number < rules.steps and iteration >= 0:
                continue
            if J_best * (1.0 - NOISE) > J:
                J_best, better = J, True
                put(centers, best)
            if J_home * (1.0 - NOISE) > J:
                J_home, nearer = J, True
                put(centers, home)
            if iteration >= 0 and number < rules.steps + rules.more_steps:
                steps = number + (last * (1.0 - NOISE) > J and (last - J) * rules.reach > J - start)
        status[AGE] += 1
        cost[0, iteration + 1], cost[1, iteration + 1] = J, J_best
        if iteration >= 0:
            its.moves[r, iteration] = moves
            status[STALE] = 0 if better else status[STALE] + 1
            status[AWAY] = 0 if nearer else status[AWAY] + 1
        its.home_cost[r] = J_home
        if J_best <= rules.target:
            status[DONE] = TARGET
        elif status[STALE] >= rules.patience:
            status[DONE] = PATIENCE
        elif iteration + 1 == rules.max_iter:
            status[DONE] = MAX_ITER
        elif status[AWAY] >= rules.go_back * rules.returns:
            its.home_cost[r], status[AWAY] = J, 0
            put(centers, home)
        elif status[AWAY] % rules.go_back == 0:  # or just there
            put(home, centers)
