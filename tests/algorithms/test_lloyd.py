"""K-Means against scikit-learn from the same start, its empty-cluster rule, and its corners."""

from __future__ import annotations

import numpy as np
import pytest
import sklearn.cluster
from conftest import blobs, same

from gputabu import Points, Stop, lloyd
from gputabu.backend import open_backend
from gputabu.backend.loops import LloydRun

SQUARE = np.array([[0.0, 0.0], [0.0, 1.0], [10.0, 0.0], [10.0, 1.0]])


def test_four_points_by_hand(backend):
    found = lloyd.run(SQUARE, 2, init=SQUARE[[0, 3]], backend=backend)
    assert (found.inertia, found.stop, found.labels.tolist()) == (1.0, Stop.CONVERGED, [0, 0, 1, 1])
    assert found.centers.tolist() == [[0.0, 0.5], [10.0, 0.5]]


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
def test_equals_scikit_learn_from_the_same_start(dtype, weighted, backend):
    X = blobs(3000, 6, 7, seed=1, dtype=dtype)
    weights = np.random.default_rng(0).random(len(X)) if weighted else None
    start = X[:9]
    ours = lloyd.run(X, 9, weights=weights, init=start, backend=backend)
    theirs = sklearn.cluster.KMeans(9, init=start, n_init=1, tol=0, algorithm="lloyd").fit(X, sample_weight=weights)
    np.testing.assert_array_equal(ours.labels, theirs.labels_)
    np.testing.assert_allclose(ours.centers, theirs.cluster_centers_, rtol=1e-4 if dtype == np.float32 else 1e-12)
    assert ours.inertia == pytest.approx(theirs.inertia_, rel=1e-5 if dtype == np.float32 else 1e-12)
    assert ours.n_iter == theirs.n_iter_
    assert ours.centers.dtype == dtype


@pytest.mark.trap(9)
@pytest.mark.parametrize("weighted", [False, True])
def test_empty_clusters_take_the_farthest_points_as_in_scikit_learn(weighted, backend):
    X = np.array([[-10.0], [-9.5], [-9], [-8.5], [-8], [-1], [1], [9], [9.5], [10]])
    weights = np.array([0.5, 1, 1, 1, 1, 0.5, 1, 1, 1, 1]) if weighted else None
    start = np.array([[-1000.0], [1], [1000]])  # the outer two are empty at first
    ours = lloyd.run(X, 3, weights=weights, init=start, backend=backend)
    theirs = sklearn.cluster.KMeans(3, init=start, n_init=1, tol=0).fit(X, sample_weight=weights)
    np.testing.assert_allclose(ours.centers, theirs.cluster_centers_)
    np.testing.assert_array_equal(ours.labels, theirs.labels_)
    # One step, by hand: -10 and -9.5 leave the middle cluster, which is the mean of the other eight.
    once = lloyd.run(X, 3, init=start, max_iter=1, backend=backend)
    assert once.centers.ravel().tolist() == [-10.0, pytest.approx(0.375), -9.5]


@pytest.mark.trap(10)
def test_more_centres_than_distinct_points_ends(backend):
    X = np.repeat([[0.0], [3.0]], 10, axis=0)
    found = lloyd.run(X, 5, init=np.arange(5), max_iter=1000, backend=backend)
    assert (found.stop, found.inertia) == (Stop.CONVERGED, 0.0)
    assert found.trace.current[0, -1] == 0
    assert np.isfinite(found.centers).all()


@pytest.mark.parametrize("weighted", [False, True])
def test_rounding_does_not_keep_duplicates_moving(weighted, backend):
    """Means of duplicates are off by an ulp, which must not look like a far point to an empty cluster."""
    X = np.repeat(np.random.default_rng(0).normal(size=(4, 2)), 7, axis=0)
    weights = np.random.default_rng(1).random(28) if weighted else None
    for restart in range(20):
        found = lloyd.run(X, 8, weights=weights, restarts=[restart], max_iter=1000, backend=backend)
        assert found.stop is Stop.CONVERGED
        assert found.n_iter < 20
        assert len(np.unique(found.labels)) == 4


def test_empty_clusters_of_some_restarts(backend):
    X = np.repeat(np.random.default_rng(2).normal(size=(9, 2)), 3, axis=0)
    options = {"init": "random", "max_iter": 50, "backend": backend}
    batch = lloyd.run(X, 12, restarts=5, **options)
    for r in range(5):
        alone = lloyd.run(X, 12, restarts=[r], **options)
        assert (alone.inertia, alone.n_iter) == (batch.inertias[r], batch.trace.n_iter[r])


def test_points_are_given_to_the_empty_clusters_of_every_restart(backend):
    """The first restart has none; the second gives its farthest point, 9, to the last cluster."""
    X = np.array([[0.0], [1.0], [5.0], [9.0]])
    centers = np.array([[[0.0], [5.0], [9.0]], [[0.0], [5.0], [99.0]]])
    with open_backend(Points.of(X), backend) as opened:
        labels = opened.blank_labels(2)
        totals = opened.assign(centers, labels).totals
        given = opened.fill_empty(centers, labels, totals)
        means = opened.grid.centroids(given, centers)
    assert means[:, :, 0].tolist() == [[0.5, 5.0, 9.0], [0.5, 5.0, 9.0]]
    np.testing.assert_array_equal(given[0], totals[0])


@pytest.mark.trap(30)
def test_tolerance(backend):
    X = blobs(2000, 4, 3, seed=5)
    exact = lloyd.run(X, 6, tol=0, backend=backend)
    rough = lloyd.run(X, 6, tol=1e-2, backend=backend)
    assert (exact.stop, rough.stop) == (Stop.CONVERGED, Stop.TOLERANCE)
    assert rough.n_iter < exact.n_iter
    assert lloyd.run(X, 6, max_iter=1, backend=backend).stop is Stop.MAX_ITER


def test_trace_is_J_after_every_iteration(backend):
    X = blobs(500, 3, 4, seed=2)
    found = lloyd.run(X, 5, init=X[:5], backend=backend)
    assert (np.diff(found.trace.current[0]) <= 1e-9).all()
    assert found.trace.current[0, -1] == pytest.approx(found.inertia, rel=1e-12)
    assert found.trace.moves[0, -1] == 0
    first = ((X[:, None] - X[:5]) ** 2).sum(axis=2).min(axis=1).sum()
    assert found.trace.current[0, 0] == pytest.approx(first, rel=1e-12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("init", ["random", "k-means++"])
@pytest.mark.one_device
def test_batches_and_chunks_change_nothing(dtype, init, backend):
    X = blobs(1001, 3, 5, dtype=dtype)
    weights = np.random.default_rng(1).random(len(X))
    whole = lloyd.run(X, 5, weights=weights, init=init, restarts=8, seed=1, backend=backend)
    for rows in (13, 500):
        same(whole, lloyd.run(Points.of(X, weights, rows), 5, init=init, restarts=8, seed=1, backend=backend))
    for r in range(8):
        alone = lloyd.run(X, 5, weights=weights, init=init, restarts=[r], seed=1, backend=backend)
        assert alone.inertia == whole.inertias[r]
        np.testing.assert_array_equal(alone.trace.current[0], whole.trace.current[r, : alone.n_iter + 1])


def test_weights_are_repetitions(backend):
    X = blobs(200, 3, 4, seed=7)
    weights = np.random.default_rng(0).integers(0, 4, len(X))
    weights[:4] = 1
    heavy = lloyd.run(X, 4, weights=weights, init=X[:4], backend=backend)
    repeated = lloyd.run(np.repeat(X, weights, axis=0), 4, init=X[:4], backend=backend)
    np.testing.assert_allclose(heavy.centers, repeated.centers, rtol=1e-13)
    assert heavy.inertia == pytest.approx(repeated.inertia, rel=1e-13)
    np.testing.assert_array_equal(np.repeat(heavy.labels, weights), repeated.labels)


@pytest.mark.trap(7)
def test_far_from_the_origin(backend):
    """Expanded distances cancel at offset 1000 with spread 0.01 in float32; ours must not."""
    rng = np.random.default_rng(0)
    X = (1000 + rng.normal(scale=0.01, size=(400, 3))).astype(np.float32)
    X[200:] += np.float32(0.2)
    found = lloyd.run(X, 2, seed=0, backend=backend)
    assert len(set(found.labels[:200])) == len(set(found.labels[200:])) == 1
    direct = sum(((X[found.labels == k] - found.centers[k].astype(float)) ** 2).sum() for k in range(2))
    assert found.inertia == pytest.approx(direct, rel=1e-12)


def test_trace_of_a_backend_that_descends_by_itself():
    current = np.array([[9.0, 7, 8, np.nan], [5, 5, 4, 3]])
    moves = np.array([[2, 1, -1], [3, 2, 1]])
    trace = lloyd._trace(LloydRun(np.zeros((2, 1, 1)), [Stop.CONVERGED] * 2, current, moves))
    np.testing.assert_array_equal(trace.best, [[9, 7, 7, np.nan], [5, 5, 4, 3]])
    assert trace.current is current and trace.moves is moves
