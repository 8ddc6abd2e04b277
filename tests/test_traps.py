"""Thirty bugs that other k-means packages had: ours must be immune. Those with a test elsewhere are marked there."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from conftest import GPU, blobs

from gputabu import KMeans, Points, QuantizedTabuKMeans, Stop, lloyd, quantized, relocation
from gputabu.algorithms import seeding
from gputabu.backend import open_backend
from gputabu.backend.arithmetic.fixed_point import Totals
from gputabu.backend.numpy import threads as workers

MODELS = [QuantizedTabuKMeans, KMeans]


def test_all_thirty_are_accounted_for():
    """Every trap has a test, here or in the room that it belongs to, marked with its number."""
    tests = Path(__file__).parent.rglob("test_*.py")
    marked = {
        int(number) for file in tests for number in re.findall(r"^@pytest\.mark\.trap\((\d+)\)", file.read_text(), re.M)
    }
    assert marked == set(range(1, 31))


def same_rows(value: float, n: int) -> np.ndarray:
    """n equal points that take the memory of one."""
    return np.broadcast_to(np.full((1, 1), value, np.float32), (n, 1))


@pytest.mark.trap(1)
def test_row_numbers_exceed_32_bits():
    points = Points((same_rows(1, 2**31 - 1), same_rows(2, 2**31 - 1), same_rows(3, 7)))
    assert points.n == 2**32 + 5
    assert points.rows(np.array([0, 2**31 - 1, 2**32 + 4])).ravel().tolist() == [1, 2, 3]
    last = np.array([2**64 - 1], dtype=np.uint64)
    assert seeding.by_weight(points, last).tolist() == [2**32 + 4]


@pytest.mark.gpu
@pytest.mark.trap(2)
@pytest.mark.one_device
def test_only_the_long_axis_of_a_grid_grows(monkeypatch):
    """Along y and z a grid has at most 65 535 blocks: restarts, trials, clusters and features must not need more."""
    from gputabu.backend.cuda import launch as kernels

    launch, seen = kernels.launch, {}

    def look(file, name, real, grid, *rest, **options):
        seen.setdefault(name, set()).add(grid[1:])
        return launch(file, name, real, grid, *rest, **options)

    monkeypatch.setattr(kernels, "launch", look)
    grids = []
    for d, k, restarts in ((2, 2, 1), (300, 3, 9)):
        X = blobs(12, d, 3)
        seen.clear()
        quantized.search(X, k, init="k-means++", n_neighbors=2, max_iter=1, restarts=restarts, backend="cuda")
        relocation.search(X, k, max_iter=1, restarts=restarts, backend="cuda")
        grids.append({name: set(axes) for name, axes in seen.items()})
    for name in grids[0].keys() & grids[1]:
        assert grids[0][name] == grids[1][name], name
    launched = {"lower_sq_dist", "potential", "seed_gains", "survey", "reassign", "bounds", "moments"}
    assert launched <= grids[0].keys() & grids[1]


@pytest.mark.trap(2)
def test_more_draws_than_threads(backend):
    """Loops stride: a draw beyond the last thread of a grid is drawn as well."""
    with open_backend(Points.of([[0.0], [1.0], [5.0]]), backend) as opened:
        min_sq_dist = opened.infinite_sq_dist(1)
        opened.lower_sq_dist(np.zeros((1, 1)), min_sq_dist)
        drawn = opened.sample(min_sq_dist, np.array([0]), np.tile([0, 1, 25], 14_000)[None])
    np.testing.assert_array_equal(drawn[0], np.tile([1, 2, 2], 14_000))


@pytest.mark.trap(6)
@pytest.mark.one_device
def test_counts_and_J_are_not_float32(backend, monkeypatch):
    """A float32 counter stops at 2^24; these points are more, all at distance 1 from their mean."""
    if backend == "cuda" and GPU == "hostcuda":  # every access is checked elsewhere, on fewer points
        import cupy

        monkeypatch.setattr(cupy._hostcuda.settings, "check", False)
    n = 2**23 + 1
    with open_backend(Points((same_rows(0, n), same_rows(2, n))), backend) as opened:
        labels = opened.blank_labels(1)
        center = np.ones((1, 1, 1))
        assert Totals.counts(opened.assign(center, labels).totals).tolist() == [[2 * n]]
        assert opened.objective(center, labels).tolist() == [2.0 * n]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.trap(8)
def test_squares_of_float16_do_not_overflow(model, backend):
    X = np.full((4, 128), 30, np.float16)
    X[2:] = -30
    fitted = model(2, random_state=0, backend=backend).fit(X)
    assert fitted.inertia_ == 0
    np.testing.assert_allclose(fitted.transform(X).max(), 60 * np.sqrt(128), rtol=1e-6)


@pytest.mark.parametrize("model", [QuantizedTabuKMeans(4, max_iter=1, refine="centroid"), KMeans(4, max_iter=1)])
@pytest.mark.trap(11)
def test_labels_are_those_of_the_centres_returned(model):
    """Also where the search ends before it has converged."""
    X = blobs(500, 2, 6, seed=3)
    fitted = model.set_params(init="random", random_state=0).fit(X)
    np.testing.assert_array_equal(fitted.labels_, fitted.predict(X))
    assert fitted.inertia_ == -fitted.score(X)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.trap(12)
def test_weights_are_not_normalised_away(model, backend):
    X = blobs(200, 2, 3)
    weights = np.random.default_rng(0).random(200)
    light, heavy = (model(3, init=[0, 1, 2], backend=backend).fit(X, sample_weight=w) for w in (weights, 8 * weights))
    np.testing.assert_array_equal(light.labels_, heavy.labels_)
    assert heavy.inertia_ == 8 * light.inertia_
    assert heavy.score(X, sample_weight=8 * weights) == -heavy.inertia_


@pytest.mark.trap(13)
def test_the_last_draw_is_a_point(backend):
    """Rounding in a running total of weights must not draw past the end, nor a point of weight zero."""
    weights = np.r_[np.full(9, 0.1), np.zeros(3)]
    points = Points.of(np.arange(12.0)[:, None], weights)
    ends = np.array([0, 2**64 - 1], dtype=np.uint64)
    assert seeding.by_weight(points, ends).tolist() == [0, 8]
    with open_backend(points, backend) as opened:
        min_sq_dist = opened.infinite_sq_dist(1)
        opened.lower_sq_dist(points.rows(np.array([0])), min_sq_dist)
        shift = np.array([40])
        total = opened.potential(min_sq_dist, shift)
        assert opened.sample(min_sq_dist, shift, np.array([[0, total[0] - 1]])).tolist() == [[1, 8]]


@pytest.mark.parametrize("k", [2, 255, 256, 257, 65_536])
@pytest.mark.trap(16)
def test_no_label_beyond_the_clusters(k, backend):
    """All centres equal: the count of rivals must not wrap round, and the lowest number wins."""
    X = np.arange(6.0).reshape(3, 2)
    with open_backend(Points.of(X), backend) as opened:
        assert opened.fetch_labels(opened.label(np.ones((1, k, 2))), 0).tolist() == [0, 0, 0]
        centers = np.full((1, k, 2), 1e3)
        centers[0, -1] = 1
        assert opened.fetch_labels(opened.label(centers), 0).tolist() == [k - 1] * 3


@pytest.mark.trap(21)
def test_the_first_of_equal_restarts_wins(backend):
    """Restarts that end in the same clusters, differently numbered, differ at most by rounding."""
    X = np.concatenate([blobs(100, 3, 1, seed=0), blobs(100, 3, 1, seed=1) + 50, blobs(100, 3, 1, seed=2) - 50])
    found = lloyd.run(X, 3, restarts=20, backend=backend)
    equal = np.isclose(found.inertias, found.inertias.min(), rtol=1e-12, atol=0)
    assert equal.sum() > 10
    assert found.restart == equal.argmax()


@pytest.mark.trap(23)
def test_trailing_empty_clusters_are_counted(backend):
    with open_backend(Points.of([[0.0], [1.0]]), backend) as opened:
        step = opened.assign(np.array([[[0.5], [99.0], [99.0]]]), opened.blank_labels(1))
    assert Totals.counts(step.totals).tolist() == [[2, 0, 0]]


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.trap(24)
def test_predict_elsewhere_and_of_nothing(model, dtype, backend):
    X = blobs(100, 2, 3, dtype=dtype)
    fitted = model(3, random_state=0, backend=backend).fit(X)
    for other in (X * dtype(1e6), X * dtype(1e-6), X[:1], X + dtype(1e5)):
        direct = ((other[:, None].astype(float) - fitted.cluster_centers_) ** 2).sum(axis=2)
        np.testing.assert_array_equal(fitted.predict(other), direct.argmin(axis=1))
        assert fitted.score(other) == pytest.approx(-direct.min(axis=1).sum())
    with pytest.raises(ValueError, match="0 sample"):
        fitted.predict(X[:0])


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.trap(26)
def test_the_data_is_not_copied(model, monkeypatch):
    """See also the memory section of benchmarks/bench.py."""
    X = blobs(300, 4, 3, dtype=np.float32)
    seen = []
    run = model._run

    def look(self, points, *rest):
        seen.append(points.chunks[0])
        return run(self, points, *rest)

    monkeypatch.setattr(model, "_run", look)
    model(3).fit(X)
    assert np.shares_memory(seen[0], X)


@pytest.mark.trap(27)
def test_stopping_at_the_first_iteration(iris, backend):
    once = quantized.search(iris, 3, patience=1, init=[0, 60, 120], backend=backend)
    assert once.stop is Stop.PATIENCE
    assert np.isfinite(once.trace.best).all()
    loose = lloyd.run(iris, 3, tol=1e9, init=[0, 60, 120], backend=backend)
    assert (loose.stop, loose.n_iter) == (Stop.TOLERANCE, 1)


@pytest.mark.trap(28)
def test_a_blas_that_cannot_be_inspected(iris, monkeypatch):
    def fail():
        raise RuntimeError("unknown library")

    reference = KMeans(3, random_state=0).fit(iris)
    monkeypatch.setattr("threadpoolctl.ThreadpoolController", fail)
    workers._controller.cache_clear()
    try:
        np.testing.assert_array_equal(KMeans(3, random_state=0).fit(iris).labels_, reference.labels_)
    finally:
        workers._controller.cache_clear()


@pytest.mark.trap(29)
def test_every_point_counts(iris, backend):
    """Nothing is subsampled: every point twice is J twice, by the bit."""
    once = lloyd.run(iris, 3, init=iris[:3], backend=backend)
    twice = lloyd.run(np.concatenate([iris, iris]), 3, init=iris[:3], backend=backend)
    assert twice.inertia == 2 * once.inertia
    assert twice.labels.tolist() == 2 * once.labels.tolist()
