"""The best J of small sets, exactly; sets that are hard to bound; and trials of bounds against it."""

from __future__ import annotations

import functools
from fractions import Fraction

import numpy as np

from gputabu.backend import open_algebra
from gputabu.selection.proof import closed_form, problem
from gputabu.selection.proof.admm import Admm
from gputabu.selection.proof.bound import certified
from gputabu.selection.proof.rounds import exchange


def exact(X, weights, labels) -> Fraction:
    """J in rational arithmetic."""
    total = Fraction(0)
    for label in set(labels):
        rows = [n for n in range(len(X)) if labels[n] == label]
        w = [Fraction(float(weights[n])) for n in rows]
        if not (mass := sum(w)):
            continue
        for j in range(X.shape[1]):
            x = [Fraction(float(X[n, j])) for n in rows]
            mean = sum(a * b for a, b in zip(w, x, strict=True)) / mass
            total += sum(a * (b - mean) ** 2 for a, b in zip(w, x, strict=True))
    return total


@functools.cache
def splits(n):
    """Every set of n points (as a number, its bits) with each of its subsets that has its lowest point."""
    sets = np.arange(1, 2**n)
    whole, part = np.nonzero(((sets[:, None] & sets) == sets) & ((sets[:, None] & -sets[:, None] & sets) > 0))
    return sets[whole], sets[part], np.flatnonzero(np.diff(whole, prepend=-1))


def optimum(X, weights, k) -> tuple[Fraction, np.ndarray]:
    """The least J into at most k clusters, by dynamic programming over all subsets, and its labels.

    Subsets are compared in float64, so that ties may be broken wrongly; J of what is found is exact.
    """
    n = len(X)
    away = X - X[0]
    x, w = away / max(np.abs(away).max(), 1e-300), weights / weights.max()
    share = ((np.arange(2**n)[:, None] >> np.arange(n)) & 1) * w  # (2^n, n)
    mass = np.maximum(share.sum(axis=1), 1e-300)[:, None]
    off = x - (share @ x / mass)[:, None, :]
    costs = np.einsum("sn,snd->s", share, off * off)
    whole, part, first = splits(n)
    best = [costs]
    for _ in range(k - 1):
        best.append(np.r_[0.0, np.minimum.reduceat(costs[part] + best[-1][whole ^ part], first)])
    labels, left = np.zeros(n, np.int64), 2**n - 1
    for label in range(k - 1, 0, -1):
        mine = part[whole == left]
        if len(mine):
            chosen = mine[(costs[mine] + best[label - 1][left ^ mine]).argmin()]
            labels[(chosen >> np.arange(n)) & 1 > 0] = label
            left ^= int(chosen)
    return exact(X, weights, labels.tolist()), labels


def shape(rng, n, d):
    """Points that are random, on a grid, corners of a simplex, clumps of near duplicates, or far from each other."""
    kind = rng.integers(5)
    if kind == 0:
        return rng.standard_normal((n, d))
    if kind == 1:
        return rng.integers(0, 4, (n, d)).astype(float)
    if kind == 2:
        return np.eye(n)
    if kind == 3:
        return rng.integers(0, 3, (n, d)) + rng.choice([0.0, 2.0**-40, 1e-12], (n, d))
    return rng.standard_normal((n, d)) * 10.0 ** rng.integers(rng.choice([-4, -60]), 3, (n, 1))


def small_set(rng, most=9):
    """A small set that may have ties, duplicates, weights, a huge or tiny scale, an offset or a constant column."""
    n = int(rng.integers(3, most + 1))
    X = shape(rng, n, int(rng.integers(1, 4)))
    change = rng.integers(4)
    if change == 0:
        X = X * 10.0 ** rng.integers(-140, 140)
    elif change == 1:
        X = X + rng.choice([1e3, 1e8, -1e15])
    elif change == 2:
        X = np.c_[X, np.full(n, 10.0 ** rng.integers(-300, 300))]
    weights = rng.choice([1e-30, 1e-9, 0.3, 1.0, 7.0, 1e6], n) if rng.random() < 0.4 else np.ones(n)
    return X, weights, int(rng.integers(1, n))


def bounds_of(posed, labels, rng, algebra, rounds=3, most=15):
    """Bounds of dual points of all kinds: at random, in closed form, and of a solver that is stopped early."""
    zero = np.zeros((posed.n, posed.n))
    noise = rng.random((posed.n, posed.n)) * posed.costs.max() * rng.choice([1e-3, 0.1, 10.0])
    yield certified(posed, noise + noise.T, zero)
    prices = zero
    for prices in closed_form.candidates(posed, labels):
        yield certified(posed, prices, zero)
    admm = Admm(posed, posed.start(labels), prices, algebra)
    for _ in range(rounds):
        for _ in range(int(rng.integers(1, most))):
            admm.iterate()
        yield certified(posed, admm.prices, admm.cuts.exact_matrix(admm.penalty))
        admm.cuts.multipliers += rng.choice([0.0, 0.1]) * rng.random(len(admm.cuts)) * np.abs(admm.U).max()
        yield certified(posed, admm.prices, admm.cuts.exact_matrix(admm.penalty))
        exchange(admm)


def trial(seed, most=9) -> float:
    """Bound over optimum of a small set. It is at most 1, or this fails."""
    rng = np.random.default_rng(seed)
    X, weights, k = small_set(rng, most)
    best, labels = optimum(X, weights, k)
    posed = problem.make(X, None if (weights == 1).all() else weights, k)
    if posed.n <= posed.k:
        return 0.0
    labels = posed.own_labels(labels if rng.random() < 0.7 else rng.integers(0, k, len(X)))
    highest = max(bounds_of(posed, labels, rng, open_algebra(["numpy", "auto"][seed % 2])))
    assert Fraction(highest) <= best, seed
    return float(Fraction(highest) / best) if best else 0.0


def optimum_on_a_line(x, w, k) -> tuple[Fraction, list[int]]:
    """By dynamic programming, for integers that ascend with weights that are integers; and where clusters begin."""
    mass, sums, squares = [0], [0], [0]
    for value, weight in zip(x, w, strict=True):
        mass.append(mass[-1] + weight)
        sums.append(sums[-1] + weight * value)
        squares.append(squares[-1] + weight * value * value)

    def cost(a, b):
        return squares[b] - squares[a] - Fraction((sums[b] - sums[a]) ** 2, mass[b] - mass[a])

    n = len(x)
    best = [(cost(0, b) if b else Fraction(0), [0]) for b in range(n + 1)]
    for _ in range(k - 1):
        best = [
            min([best[b], *((best[a][0] + cost(a, b), [*best[a][1], a]) for a in range(1, b))]) for b in range(n + 1)
        ]
    return best[-1]


def trial_on_a_line(seed) -> float:
    """Bound over optimum of up to 40 points on a line. It is at most 1, or this fails."""
    rng = np.random.default_rng(seed)
    n = int(rng.integers(5, 41))
    k = int(rng.integers(1, min(n, 7)))
    x = np.sort(rng.integers(0, rng.choice([10, 1000, 10**6]), n))
    w = rng.integers(1, 9, n) if rng.random() < 0.4 else np.ones(n, np.int64)
    best, begins = optimum_on_a_line(x.tolist(), w.tolist(), k)
    posed = problem.make(x[:, None].astype(float), None if (w == 1).all() else w.astype(float), k)
    if posed.n <= posed.k:
        return 0.0
    labels = posed.own_labels(np.searchsorted(begins, np.arange(n), side="right") - 1)
    highest = max(bounds_of(posed, labels, rng, open_algebra(), 4, 30))
    assert Fraction(highest) <= best, seed
    return float(Fraction(highest) / best) if best else 0.0
