"""Bounds never exceed the optimum, whatever the data and however rough the dual point."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
import tally
from optima import bounds_of, exact, optimum, optimum_on_a_line, trial, trial_on_a_line

from gputabu.backend import open_algebra
from gputabu.selection.proof import closed_form, cuts, problem
from gputabu.selection.proof.admm import Admm
from gputabu.selection.proof.bound import certified, least_sum


def labellings(n, k):
    """All labellings of n points in which clusters are numbered as they come."""
    rows = [[0]]
    for _ in range(n - 1):
        rows = [[*row, label] for row in rows for label in range(min(max(row) + 2, k))]
    return rows


def test_the_optimum_is_that_of_all_labellings():
    rng = np.random.default_rng(0)
    for n, k in [(5, 2), (6, 3), (6, 5)]:
        X, weights = rng.integers(0, 5, (n, 2)).astype(float), rng.integers(1, 4, n).astype(float)
        best, labels = optimum(X, weights, k)
        assert best == min(exact(X, weights, row) for row in labellings(n, k)) == exact(X, weights, labels.tolist())
        order = np.argsort(X[:, 0], kind="stable")
        x, w = X[order, 0].astype(int).tolist(), weights[order].astype(int).tolist()
        assert optimum_on_a_line(x, w, k)[0] == optimum(X[order, :1], weights[order], k)[0]


@pytest.mark.parametrize("hand", range(10))
def test_bounds_of_small_sets(hand):
    many = tally.trials(12)
    ratios = [trial(1_000_000 * hand + seed) for seed in range(many)]
    assert max(ratios) > 0.9999
    tally.tried("a bound is at most the optimum of a set of 3 to 9 points, by enumeration", many)


def test_bounds_of_sets_of_twelve():
    many = tally.trials(12)
    for seed in range(many):
        trial(50_000_000 + seed, 12)
    tally.tried("a bound is at most the optimum of a set of 3 to 12 points, by enumeration", many)


@pytest.mark.parametrize("hand", range(4))
def test_bounds_on_a_line(hand):
    many = tally.trials(3)
    ratios = [trial_on_a_line(1_000_000 * hand + seed) for seed in range(many)]
    assert max(ratios) > 0.99
    tally.tried("a bound is at most the optimum of 5 to 40 points on a line, by dynamic programming", many)


def test_a_constant_column_does_not_matter():
    X = np.random.default_rng(0).random((8, 1)) * 1e-30
    expected = problem.make(np.c_[X, np.zeros(8)], None, 3)
    for value in (1.0, 1e300, -1e-300):
        posed = problem.make(np.c_[X, np.full(8, value)], None, 3)
        assert (posed.costs == expected.costs).all() and posed.exponent == expected.exponent


def test_near_duplicates_are_not_moved_apart():
    """What is rounded by the scaling lies far below the range: a difference of 1e-320 beside one of 1."""
    X = np.array([[0.0], [1e-320], [1.0], [1e300]])
    weights = np.ones(4)
    for k in (2, 3):
        best, labels = optimum(X, weights, k)
        posed = problem.make(X, None, k)
        if posed.n > posed.k:
            found = bounds_of(posed, posed.own_labels(labels), np.random.default_rng(0), open_algebra("numpy"))
            assert all(Fraction(value) <= best for value in found)


def test_a_solver_that_went_astray_proves_nothing():
    posed = problem.make(np.random.default_rng(0).random((7, 2)), None, 2)
    zero = np.zeros((7, 7))
    for wrong in (np.nan, np.inf, 1e308):
        prices = zero.copy()
        prices[2, 1] = prices[1, 2] = wrong
        assert certified(posed, prices, zero) == 0
        used = cuts.Cuts(posed)
        used.add(np.array([[0, -1, 1, 2]]))
        used.multipliers[:] = wrong
        assert np.isfinite(used.exact_matrix(1.0)).all()
    assert certified(posed, zero, np.full((7, 7), np.nan)) == 0


def test_sum_of_eigenvalues_is_below():
    matrix = np.diag(np.arange(1.0, 9.0))
    assert 6 * (1 - 1e-12) < least_sum(matrix, 3) <= 6


def test_stars_hold_for_every_clustering():
    """Weighted or not, of two leaves or three: no star is violated by Z of a clustering."""
    rng = np.random.default_rng(0)
    stars = np.array(
        [[i, j, k, m] for i in range(6) for j in range(-1, 6) for k in range(6) for m in range(k) if j < m]
    )
    for _ in range(20):
        labels, weights = rng.integers(0, 3, 6), rng.integers(1, 5, 6)
        Z = (labels[:, None] == labels) / np.bincount(labels, weights, 3)[labels]
        assert cuts.excess(Z, stars).max() < 1e-15


def test_multipliers_add_up_exactly():
    posed = problem.make(np.random.default_rng(0).random((6, 2)), None, 2)
    used = cuts.Cuts(posed)
    used.add(np.array([[0, -1, 1, 2], [0, -1, 1, 3], [4, 1, 2, 3]]))
    used.multipliers[:] = 0.5, 0.25, 0.125
    matrix = used.exact_matrix(1.0)
    assert (matrix == matrix.T).all()
    assert matrix[0, 0] == -0.75 and matrix[0, 1] == 0.375 and matrix[1, 2] == -0.3125 and matrix[4, 4] == -0.125
    assert matrix[1, 3] == -0.1875 and matrix[2, 4] == 0.0625
    np.testing.assert_allclose(matrix / posed.weights[0], used.matrix(), rtol=1e-12)


def test_sweeps_without_numba_go_the_same_way():
    posed = problem.make(np.random.default_rng(0).random((9, 2)), None, 3)
    Z = np.random.default_rng(1).random((9, 9))
    Z = Z + Z.T
    stars = cuts.violated(Z, 50, 0.0)
    assert (cuts.excess(Z, stars) > 0).all() and {-1} < set(stars[:, 1].tolist())
    far = []
    for name in ("auto", "numpy"):
        used, free = cuts.Cuts(posed), Z.copy()
        used.add(stars)
        used.sweep(free, 4000, open_algebra(name))
        assert cuts.excess(np.maximum(free, 0), stars).max() < 1e-3
        far.append(np.triu(free))
    np.testing.assert_allclose(np.maximum(far[0], 0), np.maximum(far[1], 0), atol=1e-3)


def test_clusters_that_are_far_apart_are_proven_in_closed_form():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(3), [5, 9, 16])
    X = 30.0 * np.eye(3)[labels] + rng.standard_normal((30, 3))
    weights = rng.choice([0.5, 1.0, 3.0], 30)
    for given in (None, weights):
        posed = problem.make(X, given, 3)
        best = exact(X, np.ones(30) if given is None else given, labels.tolist())
        bounds = [
            certified(posed, B, np.zeros_like(B)) for B in closed_form.candidates(posed, posed.own_labels(labels))
        ]
        assert 1 - 1e-9 < max(bounds) / best <= 1


@pytest.mark.gpu
def test_decompositions_on_a_gpu():
    rng = np.random.default_rng(0)
    posed = problem.make(rng.random((40, 2)), None, 4)
    labels = rng.integers(0, 4, 40)
    found = []
    for name in ("numpy", "cuda"):
        algebra = open_algebra(name)
        assert algebra.name == name
        admm = Admm(posed, posed.start(labels), np.zeros((40, 40)), algebra)
        for _ in range(20):
            admm.iterate()
        found.append(admm.X1)
    np.testing.assert_allclose(found[0], found[1], atol=1e-8)
