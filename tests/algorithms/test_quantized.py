"""QM-TS against a plain implementation in exact arithmetic, and the laws of batching and chunking."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import oracle
import pytest
from conftest import blobs, same
from threadpoolctl import threadpool_limits

from gputabu import Points, Stop, lloyd, quantized
from gputabu.backend import open_backend

SQUARE = np.array([[0.0, 0.0], [0.0, 1.0], [10.0, 0.0], [10.0, 1.0]])
GRID = np.array([[x, y] for x in range(6) for y in range(5)], dtype=float)  # nothing but ties
LINE = np.array([[0.0], [0.0], [0.0], [1.0], [1.0], [5.0], [5.0], [5.0], [5.0], [9.0]])  # duplicates


def test_four_points_by_hand(backend):
    found = quantized.search(SQUARE, 2, init=[0, 3], backend=backend)
    assert found.inertia == 1.0
    assert found.labels.tolist() == [0, 0, 1, 1] or found.labels.tolist() == [1, 1, 0, 0]
    assert sorted(found.centers.tolist()) == [[0.0, 0.5], [10.0, 0.5]]


def test_a_target_is_reached_at_it(backend):
    found = quantized.search(SQUARE, 2, init=[0, 3], target=1.0, backend=backend)
    assert (found.stop, found.inertia, found.n_iter) == (Stop.TARGET, 1.0, 0)
    zero = quantized.search(SQUARE, 4, init=[0, 1, 2, 3], max_iter=3, backend=backend)
    assert (zero.stop, zero.inertia, zero.n_iter) == (Stop.PATIENCE, 0.0, 1)  # no target is not the target 0


def test_some_restarts_begin_at_the_target(backend):
    """They make no iteration; the others go on as if they were alone."""
    options = {"init": "random", "max_iter": 12, "patience": 12, "seed": 1, "backend": backend}
    first = quantized.search(GRID, 3, restarts=6, **options).trace.current[:, 0]
    target = float(np.sort(first)[2])
    found = quantized.search(GRID, 3, restarts=6, target=target, **options)
    for r in range(6):
        alone = quantized.search(GRID, 3, restarts=[r], target=target, **options)
        assert (alone.n_iter == 0) == (first[r] <= target)
        assert alone.stop is (Stop.TARGET if alone.trace.best[0, -1] <= target else Stop.MAX_ITER)
        assert found.trace.n_iter[r] == alone.n_iter
        assert found.inertias[r] == alone.inertia


def test_closed_form_is_equation_13():
    X = np.random.default_rng(0).integers(-20, 20, size=(12, 3)).astype(float)
    points = oracle.exact(X)
    weights = [Fraction(w) for w in (1, 2, 3) * 4]
    mean = points[3]
    center = oracle.centroid(points, weights)
    for x in points:
        closed = sum(weights) * (oracle.sqdist(x, center) - oracle.sqdist(mean, center))
        assert closed == oracle.delta_J(points, weights, mean, x)


def check_against_oracle(X, start, backend, *, max_iter=40, patience=15, scope="cluster", weights=None, m=1):
    exact_weights = None if weights is None else [Fraction(float(w)) for w in weights]
    plain = oracle.Search(oracle.exact(X), list(start), max_iter, patience, scope, exact_weights, m).run()
    for dtype in (np.float64, np.float32):
        found = quantized.search(
            X.astype(dtype), len(start), weights=weights, init=np.array(start), max_iter=max_iter,
            patience=patience, scope=scope, n_neighbors=m, backend=backend,
        )  # fmt: skip
        assert found.trace.means[0].tolist() == plain.path
        np.testing.assert_allclose(found.trace.current[0], [float(J) for J in plain.costs], rtol=1e-12, atol=1e-12)
        assert found.center_indices.tolist() == plain.best
        assert found.n_iter == len(plain.path) - 1


@pytest.mark.parametrize("scope", ["cluster", "global"])
@pytest.mark.parametrize("m", [1, 3])
@pytest.mark.parametrize(
    ("X", "start"),
    [
        (GRID, [0, 1, 2]),
        (GRID, [7, 29]),
        (LINE, [0, 1, 2]),  # duplicate points as centres: two clusters are empty
        (LINE, [9]),  # K = 1
        (LINE[[0, 3, 5, 9]], [3, 1, 0, 2]),  # K = N
        (LINE[[0, 3, 5, 9]], [3, 1, 0]),  # N = K + 1
        (np.zeros((5, 2)), [0, 1]),  # all points equal
        (np.array([[1.0], [0], [0], [0]]), [0, 2, 1, 3]),  # in scope "global", what comes free is not the mean
        (np.array([[1.0], [0], [1], [0], [1]]), [3, 3, 0, 1]),  # a row twice: in scope "global", two tabu rows hold it
    ],
    ids=["grid3", "grid2", "duplicates", "K=1", "K=N", "N=K+1", "constant", "freed", "twice"],
)
def test_equals_the_plain_search(X, start, scope, m, backend):
    check_against_oracle(X, start, backend, scope=scope, m=m)


@pytest.mark.parametrize("scope", quantized.SCOPES)
def test_a_search_goes_on_in_its_scope(scope):
    plan, means = quantized.Plan(scope=scope), np.array([[0, 3]])
    with open_backend(Points.of(LINE), "numpy") as opened:
        state = quantized.begin(opened, means, plan)
        best = {"cost": state.best.cost, "best": means, "stale": state.best.stale}
        again = quantized.resume(opened, {"means": means, "tabu": state.tabu.rows, **best}, plan)
    assert again.tabu.shared == state.tabu.shared == (scope == "global")


def test_more_neighbours_than_points_are_as_many_as_points(backend):
    found, most = (
        quantized.search(LINE, 3, n_neighbors=m, max_iter=9, patience=9, seed=2, backend=backend)
        for m in (len(LINE), 10**9)
    )
    same(found, most)


@pytest.mark.parametrize("scope", ["cluster", "global"])
@pytest.mark.one_device
def test_equals_the_plain_search_on_iris(iris, scope, backend):
    X = np.rint(iris[::2] * 10)  # millimetres: integers, with many ties
    check_against_oracle(X, [0, 30, 60], backend, scope=scope, max_iter=45, patience=20)


def test_equals_the_plain_search_with_weights(backend):
    rng = np.random.default_rng(1)
    weights = rng.integers(0, 4, size=len(GRID)).astype(float)
    weights[[3, 11, 20]] = 1
    check_against_oracle(GRID, [3, 11, 20], backend, weights=weights)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("init", ["random", "k-means++"])
@pytest.mark.one_device
def test_a_batch_equals_single_runs(iris, dtype, init, backend):
    X = iris.astype(dtype)
    batch = quantized.search(X, 4, init=init, restarts=32, max_iter=60, seed=3, backend=backend)
    for r in range(32):
        alone = quantized.search(X, 4, init=init, restarts=[r], max_iter=60, seed=3, backend=backend)
        t = alone.n_iter + 1
        assert alone.inertia == batch.inertias[r]
        np.testing.assert_array_equal(alone.trace.current[0], batch.trace.current[r, :t])
        np.testing.assert_array_equal(alone.trace.means[0], batch.trace.means[r, :t])
        assert np.isnan(batch.trace.current[r, t:]).all()
        if r == batch.restart:
            np.testing.assert_array_equal(alone.labels, batch.labels)
            np.testing.assert_array_equal(alone.centers, batch.centers)


@pytest.mark.parametrize("m", [1, 2])
@pytest.mark.one_device
def test_a_batch_equals_single_runs_in_scope_global(iris, m, backend):
    """Restarts with the longest tabu rows may stop before the others."""
    options = {"init": "random", "scope": "global", "max_iter": 80, "patience": 12, "n_neighbors": m}
    batch = quantized.search(iris, 3, restarts=12, backend=backend, **options)
    for r in range(12):
        alone = quantized.search(iris, 3, restarts=[r], backend=backend, **options)
        assert alone.inertia == batch.inertias[r]
        np.testing.assert_array_equal(alone.trace.means[0], batch.trace.means[r, : alone.n_iter + 1])


@pytest.mark.parametrize("scope", ["cluster", "global"])
def test_points_of_weight_zero_do_not_come_back_as_means(scope, backend):
    X = np.array([[0.0], [3], [2], [2], [1], [1], [3], [3]])
    weights = np.array([1.0, 0, 0, 1, 1, 1, 2, 1])
    check_against_oracle(X, [1, 3, 6, 7, 0], backend, weights=weights, scope=scope, max_iter=30, patience=12)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("m", [1, 2])
@pytest.mark.one_device
def test_chunks_change_nothing(dtype, weighted, m, backend):
    X = blobs(1103, 5, 6, dtype=dtype)
    weights = np.random.default_rng(0).random(len(X)) if weighted else None

    def run(rows):
        points = Points.of(X, weights, chunk_rows=rows)
        return quantized.search(points, 6, restarts=3, max_iter=12, n_neighbors=m, backend=backend)

    whole = run(None)
    for rows in (53 if backend == "cuda" else 7, 1000, len(X)):  # few rows are tested by `test_chunks_of_one_point`
        same(whole, run(rows))


def test_chunks_of_one_point(iris, backend):
    points = [Points.of(iris[:60], chunk_rows=rows) for rows in (None, 1)]
    same(*(quantized.search(p, 3, restarts=2, max_iter=20, backend=backend) for p in points))


@pytest.mark.trap(22)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_blas_threads_change_nothing(dtype, monkeypatch):
    X = blobs(30_000, 24, 12, dtype=dtype)
    found = []
    for blas, ours in ((1, "1"), (2, "1"), (2, "2")):
        monkeypatch.setenv("OMP_NUM_THREADS", ours)
        monkeypatch.setattr("gputabu.backend.numpy.threads._BLAS.hold", lambda: None)  # let BLAS have its threads
        monkeypatch.setattr("gputabu.backend.numpy.threads._BLAS.release", lambda: None)
        with threadpool_limits(blas, user_api="blas"):
            found.append(quantized.search(X, 12, restarts=2, max_iter=8))
    same(found[0], found[1])
    same(found[0], found[2])


def test_batches_of_restarts_change_nothing(iris, backend):
    whole = quantized.search(iris, 3, restarts=7, max_iter=30, backend=backend)
    small = backend.tuned(batch_bytes=2 * 32 * len(iris))
    same(whole, quantized.search(iris, 3, restarts=7, max_iter=30, backend=small))


def test_stops_by_patience_and_by_budget(iris, backend):
    early = quantized.search(iris, 3, max_iter=400, patience=7, backend=backend)
    assert early.stop is Stop.PATIENCE
    best = early.trace.best[0]
    assert (best[-8:] == best[-1]).all()
    assert best[-9] > best[-8]
    late = quantized.search(iris, 3, max_iter=9, patience=50, backend=backend)
    assert (late.stop, late.n_iter) == (Stop.MAX_ITER, 9)
    once = quantized.search(iris, 3, max_iter=1, patience=1, backend=backend)
    assert once.n_iter == 1


def test_best_so_far_never_rises_and_refinement_never_raises_J(backend):
    X = blobs(300, 3, 8, seed=4)
    found = quantized.search(X, 8, restarts=5, init="random", max_iter=80, backend=backend)
    best = found.trace.best
    assert (np.diff(best, axis=1)[~np.isnan(best[:, 1:])] <= 0).all()
    final = np.nanmin(best, axis=1)
    assert (found.inertias <= final * (1 + 1e-12)).all()
    assert (found.trace.current > found.trace.best).any()  # worse solutions were moved to


def test_refinements(iris, backend):
    by_centroid = quantized.search(iris, 3, refine="centroid", max_iter=5, init="random", backend=backend)
    start = iris[by_centroid.center_indices]
    labels = ((iris[:, None] - start) ** 2).sum(axis=2).argmin(axis=1)
    means = np.stack([iris[labels == k].mean(axis=0) for k in range(3)])
    np.testing.assert_allclose(by_centroid.centers, means, rtol=1e-14)
    by_lloyd = quantized.search(iris, 3, refine="lloyd", max_iter=5, init="random", backend=backend)
    kmeans = lloyd.run(iris, 3, init=by_lloyd.center_indices, backend=backend)
    np.testing.assert_array_equal(by_lloyd.labels, kmeans.labels)
    assert by_lloyd.inertia == kmeans.inertia <= by_centroid.inertia


def test_centres_given_are_moved_to_the_nearest_point(backend):
    found = quantized.search(SQUARE, 2, init=[[0.4, 0.1], [9.0, 0.9]], max_iter=1, backend=backend)
    assert found.trace.means[0, 0].tolist() == [0, 3]


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "k", "paper", "digits"),
    [
        ("iris", 3, 78.85, 2),
        ("glass", 6, 352.28, 2),
        ("bavaria1", 4, 1.05e11, -9),
        ("bavaria1", 5, 8.02e10, -8),
        ("cloud", 10, 1530.95, 2),
        ("cloud", 25, 845.25, 2),
    ],
)
def test_average_is_at_or_below_the_papers(paper_data, name, k, paper, digits):
    found = quantized.search(paper_data(name), k, restarts=100, init="random", seed=0, backend="numpy")
    assert round(found.inertias.mean(), digits) <= paper
