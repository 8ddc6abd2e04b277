"""Starts: distinct, weighted, addressed; K-Means++ against a plain implementation of the same draws."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.cluster
from conftest import blobs

import gputabu
from gputabu import KMeans, Points, QuantizedTabuKMeans, TabuKMeans, lloyd
from gputabu.algorithms import seeding
from gputabu.backend import open_backend
from gputabu.core import random as draws


def starts(X, k, method, backend, weights=None, restarts=(0,), seed=0, trials=None, chunk_rows=None):
    with open_backend(Points.of(X, weights, chunk_rows), backend) as opened:
        return seeding.Init.checked(method, k, seed, opened.points.shape, trials).indices(opened, list(restarts))


@pytest.mark.trap(15)
@pytest.mark.parametrize("method", seeding.METHODS)
def test_starts_are_distinct_in_value(method, backend):
    X = np.repeat(np.arange(5.0), 40)[:, None]
    chosen = starts(X, 5, method, backend, restarts=range(50))
    assert all(len(set(row)) == 5 for row in X[chosen, 0].tolist())


@pytest.mark.parametrize("method", seeding.METHODS)
def test_fewer_values_than_clusters(method, backend):
    X = np.repeat([[1.0, 2.0], [3.0, 4.0]], 6, axis=0)
    chosen = starts(X, 4, method, backend, restarts=range(10))
    assert all({tuple(point) for point in X[row]} == {(1, 2), (3, 4)} for row in chosen)


@pytest.mark.parametrize("method", seeding.METHODS)
@pytest.mark.parametrize("heavy", [2, 6])
def test_rows_of_weight_zero_are_not_among_the_rest(method, heavy, backend):
    """Whether as many rows as clusters have a weight, or fewer."""
    X, weights = np.array([[1.0]] * heavy + [[7.0], [8.0], [9.0]]), np.r_[np.ones(heavy), np.zeros(3)]
    assert (X[starts(X, 4, method, backend, weights, restarts=range(10))] == 1).all()


@pytest.mark.parametrize("method", seeding.METHODS)
@pytest.mark.one_device
def test_restarts_are_addressed(method, backend):
    X = blobs(300, 3, 5)
    whole = starts(X, 6, method, backend, restarts=range(20), seed=9)
    np.testing.assert_array_equal(whole[[7, 3]], starts(X, 6, method, backend, restarts=[7, 3], seed=9))
    np.testing.assert_array_equal(whole, starts(X, 6, method, backend, restarts=range(20), seed=9, chunk_rows=7))
    assert len(np.unique(whole, axis=0)) == 20
    assert (whole != starts(X, 6, method, backend, restarts=range(20), seed=10)).any()


@pytest.mark.parametrize("method", seeding.METHODS)
def test_weights_draw_like_repetitions_and_zero_never(method, backend):
    X = blobs(60, 2, 4, seed=3)
    weights = np.random.default_rng(5).integers(0, 5, len(X)).astype(float)
    heavy = starts(X, 4, method, backend, weights, restarts=range(40))
    assert (weights[heavy] > 0).all()
    repeated = np.repeat(np.arange(len(X)), weights.astype(int))
    plain = starts(X[repeated], 4, method, backend, restarts=range(40))
    np.testing.assert_array_equal(X[heavy], X[repeated][plain])


def test_random_is_uniform(backend):
    X = np.arange(10.0)[:, None]
    chosen = starts(X, 3, "random", backend, restarts=range(4000))
    share = np.bincount(chosen.ravel(), minlength=10) / chosen.size
    np.testing.assert_allclose(share, 0.1, atol=0.01)


@pytest.mark.parametrize("trials", [1, 4])
def test_plus_plus_equals_a_plain_implementation(trials, backend):
    """Integer data: every D² and every sum is exact in float64, so the same draws give the same rows."""
    X = np.random.default_rng(2).integers(0, 50, size=(80, 2)).astype(float)
    for restart in range(10):
        words = [int(w) for w in draws.words(4, restart, 1 + 7 * trials)]
        rows = [words[0] * 80 >> 64]
        D2 = ((X - X[rows[0]]) ** 2).sum(axis=1)
        for i in range(7):
            total = int(D2.sum())
            options = []
            for word in words[1 + i * trials : 1 + (i + 1) * trials]:
                row = int(np.searchsorted(np.cumsum(D2), word * total / 2**64, side="right"))
                closer = np.minimum(D2, ((X - X[row]) ** 2).sum(axis=1))
                options.append((closer.sum(), row, closer))
            _, row, D2 = min(options, key=lambda option: option[0])
            rows.append(row)
        assert starts(X, 8, "k-means++", backend, restarts=[restart], seed=4, trials=trials)[0].tolist() == rows


def test_plus_plus_sees_past_a_far_outlier(backend):
    X = np.concatenate([blobs(200, 2, 1, seed=0), 30 + blobs(200, 2, 1, seed=1), [[1e9, 1e9]]])
    for row in starts(X, 3, "k-means++", backend, restarts=range(20)):
        assert 400 in row
        assert (row < 200).sum() == 1


def test_words_are_a_function_of_their_address():
    a = draws.words(1, 2, 10)
    np.testing.assert_array_equal(a[:4], draws.words(1, 2, 4))
    for other in (draws.words(2, 2, 10), draws.words(1, 3, 10), draws.words(1, 2, 10, step=1)):
        assert (a != other).all()
    assert draws.words(2**64 - 1, 0, 1).dtype == np.uint64


def test_below_is_the_high_half_of_the_product():
    words = np.array([0, 1, 2**63, 2**64 - 1], dtype=np.uint64)
    for total in (1, 3, 2**31, 2**60 + 12345, 2**62):
        assert draws.below(words, np.array(total)).tolist() == [int(w) * total >> 64 for w in words]


def test_extending_centres(backend):
    """One more seed goes where no centre is; all of it depends on the seed and K alone."""
    X = np.concatenate([blobs(50, 2, 1, seed=s) * 0.01 + [0, 30 * s] for s in range(4)])
    centers = np.array([X[:50].mean(axis=0), X[50:100].mean(axis=0), X[100:150].mean(axis=0)])
    with open_backend(Points.of(X), backend) as opened:
        more = seeding.extend(opened, centers, 1, seed=3, trials=2)
        np.testing.assert_array_equal(more[:3], centers)
        assert more[3] in X[150:]
        two = seeding.extend(opened, centers[:2], 2, seed=3, trials=3)
        assert {round(y / 30) for y in two[2:, 1]} == {2, 3}
        np.testing.assert_array_equal(two, seeding.extend(opened, centers[:2], 2, seed=3, trials=3))


def test_merging_centres():
    """Ward: 2·1/3 for the first two, which then weigh 3; the others are far."""
    centers, weights = np.array([[0.0], [1.0], [10.0], [20.0]]), np.array([2, 1, 5, 0])
    merged, added = seeding.shrink(centers, weights, 1)
    assert added == 0  # the empty one costs nothing: its nearest has the lowest number
    merged, added = seeding.shrink(centers[:3], weights[:3], 1)
    assert (merged.ravel().tolist(), added) == ([pytest.approx(1 / 3), 10.0], pytest.approx(2 / 3))
    merged, added = seeding.shrink(centers[:3], weights[:3], 2)
    assert merged.ravel().tolist() == [pytest.approx(51 / 8)]
    assert added == pytest.approx(np.average((np.array([0, 1, 10]) - 51 / 8) ** 2, weights=[2, 1, 5]) * 8)
    np.testing.assert_array_equal(centers, [[0.0], [1.0], [10.0], [20.0]])  # untouched


def first_rows(X, n_clusters, random_state):
    return X[random_state.permutation(len(X))[:n_clusters]]


@pytest.mark.parametrize("model", [KMeans, TabuKMeans, QuantizedTabuKMeans])
def test_a_function_makes_the_centres_of_every_restart(model, iris, backend):
    """As in scikit-learn: called with X, K and a random state, once for each of ten restarts."""
    asked = []

    def init(X, n_clusters, random_state):
        asked.append((X.shape, X.dtype, n_clusters))
        return first_rows(X, n_clusters, random_state)

    found = model(3, init=init, random_state=5, max_iter=10, backend=backend).fit(iris)
    assert asked == [((150, 4), np.float64, 3)] * 10 and len(found.inertias_) == 10
    again = model(3, init=init, random_state=5, max_iter=10, backend="numpy").fit(iris)
    np.testing.assert_array_equal(found.inertias_, again.inertias_)
    rows = np.random.RandomState(np.array([5, found.restart_], np.uint64).view(np.uint32)).permutation(150)[:3]
    alone = model(3, init=iris[rows], random_state=5, max_iter=10, backend="numpy").fit(iris)
    assert alone.inertias_[0] == found.inertia_ or model is not KMeans
    assert sklearn.cluster.KMeans(3, init=init).fit(iris).n_iter_  # it takes the same function


def test_functions_that_return_no_centres(iris, tmp_path):
    for made, said in (([[1.0]], r"shape \(1, 1\)"), ([0, 1], "it must be centres of shape")):
        with pytest.raises(ValueError, match=said):
            lloyd.run(iris, 2, init=lambda *_, random_state, made=made: made)
    np.save(tmp_path / "a.npy", iris)
    with pytest.raises(ValueError, match="init is a function, which would need all of X in memory"):
        lloyd.run(gputabu.chunked(tmp_path / "a.npy", chunk_bytes=320), 2, init=first_rows)
