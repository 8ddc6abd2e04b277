"""Descents by single moves: minima in exact arithmetic, the same bits everywhere, and their corners."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import oracle
import pytest
from conftest import blobs, same
from hypothesis import given, settings
from hypothesis import strategies as st

from gputabu import KMeans, Points, QuantizedTabuKMeans, TabuSearchClustering, lloyd, quantized, reassignment
from gputabu.algorithms import hartigan
from gputabu.algorithms.monitor import Monitor
from gputabu.backend import open_backend
from gputabu.backend.arithmetic.constants import NOISE


def draw_problem(data, most: int = 40):
    """Few points with ties, duplicates, outliers or far from the origin; K; weights or none."""
    n = data.draw(st.integers(1, most), "N")
    k = data.draw(st.integers(1, n), "K")
    rng = np.random.default_rng(data.draw(st.integers(0, 2**31), "seed"))
    X = rng.normal(size=(n, data.draw(st.sampled_from([1, 2, 5, 17]), "d")))
    kind = data.draw(st.sampled_from(["noise", "grid", "duplicates", "far", "outlier"]), "kind")
    if kind == "grid":
        X = np.rint(X)
    elif kind == "duplicates":
        X = X[rng.integers(n, size=n)]
    elif kind == "far":
        X = 1000 + 0.01 * X
    elif kind == "outlier":
        X[-1] *= 1e4
    weights = rng.integers(0, 3, n) + rng.random(n) if data.draw(st.booleans(), "weighted") else None
    if weights is not None and data.draw(st.booleans(), "zeros"):
        weights[rng.integers(n)] = 0
        weights[0] = 1
    dtype = data.draw(st.sampled_from([np.float32, np.float64]), "dtype")
    return X.astype(dtype), k, weights, X[rng.integers(n, size=(2, k))].astype(dtype).astype(float)


def improved(X, weights, centers, backend, whole=True, **options):
    """What `improve` finds, J before and after, and the labels after."""
    with open_backend(Points.of(X, weights), backend) as opened:
        if not whole:
            opened.loops.hartigan = lambda *_: None
        found = hartigan.improve(opened, centers, **options)
        labels = opened.label(found.centers)
        costs = [opened.objective(where, opened.label(where)) for where in (centers, found.centers)]
        return found, *costs, [opened.fetch_labels(labels, r) for r in range(len(centers))]


def gains(X, weights, labels, k: int) -> dict[tuple[int, int], Fraction]:
    """By how much each single move (point, cluster) lowers J, without rounding."""
    points = oracle.exact(X)
    weights = [Fraction(float(w)) for w in (np.ones(len(X)) if weights is None else weights)]
    members = [[n for n, label in enumerate(labels) if label == c and weights[n] > 0] for c in range(k)]
    heavy = [sum((weights[n] for n in mine), Fraction(0)) for mine in members]
    means = [
        oracle.centroid([points[n] for n in mine], [weights[n] for n in mine]) if mine else None for mine in members
    ]
    found = {}
    for own, mine in enumerate(members):
        for i in mine if len(mine) > 1 else []:
            w = weights[i]
            leave = heavy[own] / (heavy[own] - w) * oracle.sqdist(points[i], means[own])
            for b in set(range(k)) - {own}:
                enter = heavy[b] / (heavy[b] + w) * oracle.sqdist(points[i], means[b]) if members[b] else 0
                found[i, b] = w * (leave - enter)
    return found


def cost(X, weights, labels, k: int) -> Fraction:
    weights = [Fraction(float(w)) for w in (np.ones(len(X)) if weights is None else weights)]
    return oracle.objective(oracle.exact(X), weights, labels, k)


def test_the_formula_is_the_change_of_J():
    X, weights = np.rint(blobs(9, 2, 3) * 4), np.arange(9) % 3 + 0.5
    labels = [0, 1, 2, 0, 1, 2, 0, 1, 3]
    for (i, b), gain in gains(X, weights, labels, 5).items():
        moved = [*labels[:i], b, *labels[i + 1 :]]
        assert gain == cost(X, weights, labels, 5) - cost(X, weights, moved, 5)


def test_where_kmeans_is_stuck(backend):
    """{0, 2} and {3.1}: the point at 2 is nearest to 1, the centroid of its cluster; with it the other has J 0.605."""
    X = np.array([[0.0], [2.0], [3.1]])
    options = {"init": np.array([[1.0], [3.1]]), "backend": backend}
    stuck, better = (lloyd.run(X, 2, **options, refine=refine) for refine in (None, "hartigan"))
    assert (stuck.labels.tolist(), stuck.inertia) == ([0, 0, 1], 2.0)
    assert (better.labels.tolist(), better.inertia) == ([0, 1, 1], pytest.approx(0.605))
    assert better.centers.ravel().tolist() == [0.0, 2.55]


@settings(max_examples=25)
@given(data=st.data())
def test_ends_in_a_minimum(data, backend):
    X, k, weights, centers = draw_problem(data, most=16)
    _, before, after, labels = improved(X, weights, centers, backend)
    assert (after <= before * (1 + NOISE)).all()
    scale = np.abs(X).max().item() ** 2 * X.shape[1] * (1 if weights is None else weights.sum())
    for mine in labels:
        most = max(gains(X, weights, mine, k).values(), default=0)
        assert most <= 2 * NOISE * cost(X, weights, mine, k) + Fraction(scale) * Fraction(2) ** -90


@settings(max_examples=25)
@given(data=st.data())
@pytest.mark.one_device
def test_equals_numpy(data, backend):
    """Whole descents and round by round."""
    X, _, weights, centers = draw_problem(data)
    expected, *_ = improved(X, weights, centers, "numpy")
    for whole in (True, False):
        found, *_ = improved(X, weights, centers, backend, whole)
        np.testing.assert_array_equal(found.centers, expected.centers)
        np.testing.assert_array_equal(found.moves, expected.moves)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(("n", "d", "k"), [(700, 3, 5), (300, 33, 6)])
@pytest.mark.one_device
def test_more_points_than_a_block(n, d, k, weighted, dtype, backend):
    X = np.random.default_rng(0).normal(size=(n, d)).astype(dtype)
    weights = np.random.default_rng(1).random(n) if weighted else None
    centers = X[np.random.default_rng(2).integers(n, size=(2, k))].astype(float)
    expected, *_ = improved(X, weights, centers, "numpy")
    assert (expected.moves > 20).all()
    for whole in (True, False):
        found, *_ = improved(X, weights, centers, backend, whole)
        np.testing.assert_array_equal(found.centers, expected.centers)


@pytest.mark.parametrize("scale", [1e-30, 1.0, 1e30])
def test_scales(scale, backend):
    X = (blobs(200, 3, 4) + 100) * scale
    expected, before, after, _ = improved(X, None, X[None, :6], "numpy")
    found, *_ = improved(X, None, X[None, :6], backend)
    np.testing.assert_array_equal(found.centers, expected.centers)
    assert after[0] < before[0]


@pytest.mark.one_device
def test_batches_and_chunks_change_nothing(backend):
    X = blobs(401, 3, 5, dtype=np.float32)
    weights = np.random.default_rng(1).random(len(X))
    options = {"refine": "hartigan", "seed": 1, "backend": backend}
    whole = lloyd.run(X, 7, weights=weights, restarts=6, **options)
    same(whole, lloyd.run(X, 7, weights=weights, restarts=6, **{**options, "backend": "numpy"}))
    for rows in (13, 500):
        same(whole, lloyd.run(Points.of(X, weights, rows), 7, restarts=6, **options))
    for r in range(6):
        alone = lloyd.run(X, 7, weights=weights, restarts=[r], **options)
        assert alone.inertia == whole.inertias[r]


@pytest.mark.gpu
def test_more_moves_than_room(monkeypatch):
    from gputabu.backend.cuda import hartigan as device_moves
    from gputabu.backend.cuda import search

    monkeypatch.setattr(search, "STATE_SHARE", 0.0)  # pass by pass
    monkeypatch.setattr(device_moves, "ROOM", 3)
    X = blobs(300, 2, 3)
    found, expected = (improved(X, None, X[None, :8], backend)[0] for backend in ("cuda", "numpy"))
    np.testing.assert_array_equal(found.centers, expected.centers)


def test_weights_scale_and_points_without_weight_are_absent(backend):
    X = blobs(300, 3, 5)
    start = X[None, :6]
    plain, *_ = improved(X, None, start, backend)
    double, *_ = improved(X, np.full(len(X), 2.0), start, backend)
    np.testing.assert_array_equal(double.centers, plain.centers)
    np.testing.assert_array_equal(double.moves, plain.moves)
    more = np.concatenate([X, X[::3] + 1])
    absent, *_ = improved(more, np.arange(len(more)) < len(X), start, backend)
    np.testing.assert_allclose(absent.centers, plain.centers, rtol=1e-13)
    np.testing.assert_array_equal(absent.moves, plain.moves)


def test_weights_are_repetitions_that_move_together(backend):
    """They have the same J; apart, the repetitions can only do better."""
    X = blobs(60, 2, 4, seed=7)
    weights = np.random.default_rng(0).integers(1, 4, len(X))
    heavy, _, J, _ = improved(X, weights, X[None, :5], backend)
    with open_backend(Points.of(np.repeat(X, weights, axis=0)), backend) as opened:
        assert opened.objective(heavy.centers, opened.label(heavy.centers))[0] == pytest.approx(J[0], rel=1e-13)
    _, _, less, _ = improved(np.repeat(X, weights, axis=0), None, heavy.centers, backend)
    assert less[0] <= J[0] * (1 + NOISE)


def test_a_point_alone_stays(backend):
    """It would lower nothing, but an empty cluster costs nothing either: it must not wander there."""
    X = np.array([[0.0], [0.1], [7.0]])
    found, *_ = improved(X, None, np.array([[[0.05], [7.0], [100.0]]]), backend)
    assert found.moves[0] == 1
    np.testing.assert_allclose(found.centers.ravel(), [0.1, 7.0, 0.0], atol=1e-14)
    heavy, *_ = improved(X, np.array([1e-3, 1e-3, 1e3]), np.array([[[0.05], [7.0], [100.0]]]), backend)
    np.testing.assert_allclose(heavy.centers, found.centers, atol=1e-10)


@pytest.mark.parametrize("k", [1, 12])
def test_one_cluster_and_a_cluster_each(k, backend):
    X = blobs(12, 2, 3)
    found, _, after, _ = improved(X, None, X[None, :k], backend)
    assert found.moves[0] == 0
    assert after[0] == (0.0 if k == 12 else pytest.approx(12 * X.var(axis=0).sum()))


@pytest.mark.parametrize("weighted", [False, True])
def test_more_clusters_than_distinct_points(weighted, backend):
    """Rounding must not keep duplicates moving."""
    X = np.repeat(np.random.default_rng(0).normal(size=(4, 2)), 7, axis=0)
    weights = np.random.default_rng(1).random(28) if weighted else None
    _, _, after, labels = improved(X, weights, X[None, [0, 0, 7, 14, 21, 27]], backend)
    assert after[0] < 1e-28
    assert len(np.unique(labels[0])) == 4
    found = improved(X, weights, X[None, [0, 0, 0]], backend)[0]  # empty clusters are taken, then there are moves left
    assert found.moves[0] > 2


def test_clusters_that_coincide_are_joined(backend):
    """Twins that are clusters of their own are no worse than one cluster, but the empty one can take another point."""
    X = np.array([[0.0], [0.0], [5.0], [6.0], [9.0]])
    weights = np.array([1.0, 1.0, 1.0, 1.0, 0.0])
    found, _, after, labels = improved(X, weights, np.array([[[0.1], [-0.2], [5.5]]]), backend)
    assert after[0] == pytest.approx(0.0, abs=1e-28)
    assert sorted(np.bincount(labels[0][:4]).tolist()) == [1, 1, 2]
    assert found.moves[0] > 0


def test_nothing_to_do_twice(iris, backend):
    once = improved(iris, None, iris[None, ::40], backend)[0]
    again = improved(iris, None, once.centers, backend)[0]
    assert once.moves[0] > 0 and again.moves[0] == 0
    np.testing.assert_array_equal(again.centers, once.centers)


@pytest.mark.parametrize("whole", [True, False])
def test_interrupts_and_budget(whole, backend):
    X = np.random.default_rng(0).normal(size=(400, 2))
    monitor = Monitor()
    monitor.interrupts.asked = True
    asked, before, after, _ = improved(X, None, X[None, :12], backend, whole, monitor=monitor)
    once, *_ = improved(X, None, X[None, :12], backend, whole, max_rounds=1)
    full, _, least, _ = improved(X, None, X[None, :12], backend, whole)
    assert 0 < asked.moves[0] < full.moves[0]
    assert least[0] < after[0] < before[0]
    np.testing.assert_array_equal(asked.centers, once.centers)


@pytest.mark.parametrize(
    ("search", "options"),
    [
        (lloyd.run, {"init": "random"}),
        (quantized.search, {"max_iter": 5, "init": "random"}),
        (quantized.search, {"max_iter": 5, "n_neighbors": 2}),
        (reassignment.search, {"max_iter": 5}),
    ],
)
def test_searches_refine_to_a_minimum(search, options, backend):
    X = blobs(300, 2, 4)
    options = {**options, "restarts": 4, "seed": 2}
    found = search(X, 9, **options, refine="hartigan", backend=backend)
    same(found, search(X, 9, **options, refine="hartigan", backend="numpy"))
    plain = search(X, 9, **options, refine=None if search is lloyd.run else "lloyd", backend=backend)
    assert (found.inertias <= plain.inertias).all() and found.inertias.sum() < plain.inertias.sum()
    assert improved(X, None, found.centers[None], backend)[0].moves[0] == 0


@pytest.mark.parametrize(
    "model",
    [
        KMeans(6, refine="hartigan", random_state=0),
        QuantizedTabuKMeans(6, refine="hartigan", max_iter=5, random_state=0),
        TabuSearchClustering(6, refine="hartigan", max_iter=5, random_state=0),
    ],
)
def test_estimators(model, iris):
    model.fit(iris)
    np.testing.assert_array_equal(model.labels_, model.predict(iris))
    assert model.inertia_ == -model.score(iris)


@pytest.mark.data
def test_cloud_gains_in_every_restart(paper_data):
    X = paper_data("cloud")
    plain, refined = (lloyd.run(X, 25, init="random", restarts=20, refine=refine) for refine in (None, "hartigan"))
    assert (refined.inertias <= plain.inertias).all()
    assert refined.inertias.mean() < 0.99 * plain.inertias.mean()
