"""Bounds never exceed the optimum, whatever the data and however rough the dual point; and small cases are proven."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

import gputabu
from gputabu import KMeans, TabuKMeans, certify
from gputabu.selection.proof import cuts, parts, problem
from gputabu.selection.proof.admm import Admm
from gputabu.selection.proof.bound import certified, least_sum
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


def labellings(n, k):
    """All labellings of n points in which clusters are numbered as they come."""
    rows = [[0]]
    for _ in range(n - 1):
        rows = [[*row, label] for row in rows for label in range(min(max(row) + 2, k))]
    return np.array(rows)


def optimum(X, weights, k) -> Fraction:
    """The least J of all labellings: the best few in float64, then exactly."""
    x, w = problem.scaled(X)[0], weights / weights.max()
    labels = labellings(len(X), k)
    costs = np.zeros(len(labels))
    for label in range(k):
        share = ((labels == label) * w)[:, :, None]
        away = x - (share * x).sum(axis=1, keepdims=True) / np.maximum(share.sum(axis=1, keepdims=True), 1e-300)
        costs += (share * away * away).sum(axis=(1, 2))
    return min(exact(X, weights, labels[row].tolist()) for row in np.argsort(costs)[:4])


def small_set(rng):
    """A small set that may have ties, duplicates, weights, a huge or tiny scale, and an offset."""
    n, d = int(rng.integers(3, 8)), int(rng.integers(1, 4))
    X = rng.integers(0, 4, (n, d)).astype(float) if rng.random() < 0.5 else rng.standard_normal((n, d))
    X = X * 10.0 ** rng.integers(-100, 100) if rng.random() < 0.3 else X + rng.choice([0.0, 1e3, 1e8])
    weights = rng.choice([1e-9, 0.3, 1.0, 7.0, 1e6], n) if rng.random() < 0.4 else np.ones(n)
    return X, weights, int(rng.integers(1, n))


def trial(seed) -> float:
    """Bound over optimum of a small set, at most 1: one after few iterations, one of a random dual point."""
    rng = np.random.default_rng(seed)
    X, weights, k = small_set(rng)
    best = optimum(X, weights, k)
    posed = problem.make(X, None if (weights == 1).all() else weights, k)
    if posed.n <= posed.k:
        assert best == 0
        return 0.0
    noise = rng.random((posed.n, posed.n)) * posed.costs.max() * rng.choice([0.1, 10.0])
    bounds = [certified(posed, noise + noise.T, np.zeros_like(noise))]
    admm = Admm(posed, posed.start(rng.integers(0, posed.k, posed.n)))
    for _ in range(4):
        for _ in range(int(rng.integers(1, 30))):
            admm.iterate()
        bounds.append(certified(posed, admm.prices, admm.cuts.exact_matrix(admm.penalty)))
        exchange(admm)
    assert Fraction(max(bounds)) <= best
    return float(Fraction(max(bounds)) / best) if best else 0.0


def test_bounds_never_exceed_the_optimum():
    ratios = [trial(seed) for seed in range(40)]
    assert max(ratios) > 0.9999


def optimum_on_a_line(x, k) -> Fraction:
    """By dynamic programming, for integers."""
    x = sorted(x)
    sums, squares = [0], [0]
    for value in x:
        sums.append(sums[-1] + value)
        squares.append(squares[-1] + value * value)

    def cost(a, b):
        return squares[b] - squares[a] - Fraction((sums[b] - sums[a]) ** 2, b - a)

    best = [cost(0, b) if b else Fraction(0) for b in range(len(x) + 1)]
    for _ in range(k - 1):
        best = [min([best[b], *(best[a] + cost(a, b) for a in range(1, b))]) for b in range(len(x) + 1)]
    return best[-1]


@pytest.mark.parametrize(("seed", "k"), [(0, 2), (1, 3), (2, 5)])
def test_on_a_line(seed, k):
    x = np.random.default_rng(seed).integers(0, 1000, 30)
    X = x[:, None].astype(float)
    best = optimum_on_a_line([int(value) for value in x], k)
    found = certify(X, TabuKMeans(k, random_state=0).fit(X), max_time=5)
    assert Fraction(found.lower_bound) <= best
    assert found.gap < 0.01


def test_sum_of_eigenvalues_is_below():
    matrix = np.diag(np.arange(1.0, 9.0))
    assert 6 * (1 - 1e-12) < least_sum(matrix, 3) <= 6


def test_multipliers_add_up_exactly():
    posed = problem.make(np.random.default_rng(0).random((6, 2)), None, 2)
    used = cuts.Cuts(posed)
    used.add(np.array([[0, 1, 2], [0, 1, 3], [4, 1, 2]]))
    used.multipliers[:] = 0.5, 0.25, 0.125
    matrix = used.exact_matrix(1.0)
    assert (matrix == matrix.T).all()
    assert matrix[0, 0] == -0.75 and matrix[0, 1] == 0.375 and matrix[1, 2] == -0.3125
    np.testing.assert_allclose(matrix * (posed.weights[0] ** -1), used.matrix(), rtol=1e-12)


def test_sweeps_without_numba_go_the_same_way():
    posed = problem.make(np.random.default_rng(0).random((9, 2)), None, 3)
    Z = np.random.default_rng(1).random((9, 9))
    Z = Z + Z.T
    triples = cuts.violated(Z, 50, 0.0)[0]
    assert (cuts.excess(Z, triples) > 0).all()
    far = []
    for sweep in ("sweep", "sweep_together"):
        used, free = cuts.Cuts(posed), Z.copy()
        used.add(triples)
        getattr(used, sweep)(free if sweep == "sweep" else free.reshape(-1), 3000)
        far.append(np.triu(free))
    np.testing.assert_allclose(np.maximum(far[0], 0), np.maximum(far[1], 0), atol=1e-4)


@pytest.mark.data
@pytest.mark.parametrize(("name", "k"), [("iris", 3), ("bavaria1", 5)])
def test_paper_cases_are_proven(name, k):
    X = gputabu.datasets.load(name).points
    model = TabuKMeans(k, random_state=0, n_init=3).fit(X)
    found = model.certify(X)
    assert found.optimal and found.lower_bound <= model.inertia_ * (1 + 1e-12)
    assert "Proven optimal to 0.001 %" in str(found)


def test_better_clusterings_are_found():
    X = np.concatenate([np.random.default_rng(i).normal(10 * i, 0.1, (8, 2)) for i in range(3)])
    poor = np.r_[np.zeros(8, int), np.zeros(8, int), np.ones(4, int), np.full(4, 2)]
    found = certify(X, poor)
    assert found.optimal and found.labels is not None and "better" in str(found)
    assert found.inertia < 10


def test_parts_look_like_the_whole():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), 60)
    X = 20.0 * labels[:, None] + rng.standard_normal((240, 2))
    dealt = parts.deal(X, np.ones(240), labels, 4)
    assert all((np.bincount(labels[dealt == part]) == 15).all() for part in range(4))
    found = certify(X, labels, parts=4, max_time=20)
    assert found.gap < 0.02 and "4 parts" in found.method


def test_wrong_uses_are_explained():
    X = np.random.default_rng(0).random((30, 2))
    model = KMeans(3, random_state=0).fit(X)
    with pytest.raises(ValueError, match="other data"):
        certify(X[:20], model)
    with pytest.raises(ValueError, match="other data"):
        certify(10 * X, model)
    with pytest.raises(ValueError, match="features"):
        certify(np.c_[X, X], model)
    with pytest.raises(ValueError, match=r"NaN|nan|finite"):
        certify(np.where(X > 0.9, np.nan, X), model.labels_)
    with pytest.raises(ValueError, match="too short"):
        certify(np.zeros((10**6, 1)), np.zeros(10**6, int), max_time=1)
    with pytest.raises(ValueError, match="integers"):
        certify(X, X[:, 0])
    assert certify(X, np.zeros(30, int)).optimal  # K = 1
    assert str(certify(X, np.arange(30))) == "Proven optimal: J is 0."


def test_no_time_still_gives_a_bound():
    X = np.random.default_rng(0).random((60, 2))
    found = certify(X, KMeans(4, random_state=0).fit(X), max_time=0.05, parts=1)
    assert 0 <= found.lower_bound <= found.inertia and not found.optimal and found.stop == "the time ran out"
    assert "At most" in str(found)


def test_plot():
    from matplotlib.figure import Figure

    found = certify(np.arange(9.0)[:, None], np.arange(9) // 3)
    assert found.plot(Figure().subplots()).get_title("left").startswith("Gap")


def test_weights_count_as_points():
    X = np.random.default_rng(0).random((12, 2))
    weights = np.array([1, 2, 3] * 4)
    labels = KMeans(3, random_state=0).fit(X, sample_weight=weights).labels_
    one = certify(X, labels, sample_weight=weights)
    many = certify(np.repeat(X, weights, axis=0), np.repeat(labels, weights))
    assert one.inertia == pytest.approx(many.inertia) and one.lower_bound == pytest.approx(many.lower_bound, rel=1e-3)
