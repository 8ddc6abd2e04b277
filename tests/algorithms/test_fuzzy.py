"""Fuzzy c-means and its tabu search against plain implementations, and their laws."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import blobs, same

from gputabu import FuzzyCMeans, Points, Stop, TabuFuzzyCMeans, fuzzy
from gputabu.algorithms.fuzzy import accept, remembered, tabu
from gputabu.core import random
from gputabu.core.random import Purpose

#: J of the best of twenty starts.
IRIS = {1.25: 77.849350, 1.5: 74.382184, 2.0: 60.505711, 3.0: 29.073610}
GLASS = {1.25: 322.332125, 1.5: 273.798365, 2.0: 154.145987, 3.0: 31.768050}


def plain_step(X, w, centers, m):
    """One step as everybody writes it: memberships, J, the next centres. For points that are on no centre."""
    d = ((X[:, None] - centers) ** 2).sum(axis=2)
    r = d.min(axis=1, keepdims=True) / np.where(d > 0, d, 1.0)
    r = np.where(d == d.min(axis=1, keepdims=True), 1.0, r) ** (1 / (m - 1))
    u = r / r.sum(axis=1, keepdims=True)
    share = w[:, None] * u**m
    return (share.T @ X) / share.sum(axis=0)[:, None], float((share * d).sum())


@pytest.mark.parametrize("m", [1.25, 2.0, 2.3])
@pytest.mark.parametrize("weighted", [False, True])
def test_equals_the_plain_implementation_step_by_step(m, weighted, backend):
    X = blobs(60, 2, 3)
    w = np.random.default_rng(0).random(60) if weighted else np.ones(60)
    start = X[:3] + 0.1
    for steps in (1, 2, 5):
        centers, costs = start, []
        for _ in range(steps + 1):
            centers, cost = plain_step(X, w, centers, m)
            costs.append(cost)
        found = fuzzy.run(
            X, 3, m=m, weights=w if weighted else None, init=start, max_iter=steps, tol=0, backend=backend
        )
        np.testing.assert_allclose(found.centers, centers, rtol=1e-11)
        np.testing.assert_allclose(found.trace.current[0], costs, rtol=1e-11)
        assert found.inertia == pytest.approx(plain_step(X, w, centers, m)[1], rel=1e-11)
    assert found.stop is Stop.MAX_ITER


@pytest.mark.parametrize("neighbours", ["swap", "shift"])
def test_the_tabu_search_equals_a_plain_one(neighbours, backend):
    X, k, m, trials, tenure = blobs(40, 2, 3), 3, 1.5, 4, 2
    w, rng_free = np.ones(40), np.sqrt(((X - X.mean(axis=0)) ** 2).sum() / 40)
    current = X[[0, 1, 2]]
    best, recent = plain_step(X, w, current, m)[1], []
    path = [best]
    for iteration in range(1, 7):
        count = trials * (2 if neighbours == "swap" else k * 3)
        words = random.words(5, 0, count, purpose=Purpose.TRIAL, step=iteration)
        options = []
        for t in range(trials):
            trial = current.copy()
            if neighbours == "swap":
                trial[int(words[t]) * k >> 64] = X[int(words[trials + t]) * 40 >> 64]
                trial = plain_step(X, w, trial, m)[0]
            else:
                numbers = ((words >> np.uint64(11)) * 2.0**-53).reshape(trials, k, 3)[t]
                direction = numbers[:, :2] - 0.5
                direction /= np.sqrt((direction**2).sum(axis=1, keepdims=True))
                trial = np.clip(trial + 0.5 * rng_free * numbers[:, 2:] * direction, X.min(axis=0), X.max(axis=0))
            cost = plain_step(X, w, trial, m)[1]
            known = any((np.abs(np.sort(trial, axis=0) - old) < 1e-3 * rng_free).all() for old in recent)
            if not known or cost < best:
                options.append((cost, t, trial))
        if options:
            cost, _, current = min(options, key=lambda option: option[:2])
            recent = [*recent, np.sort(current, axis=0)][-tenure:]
            best = min(best, cost)
        path.append(plain_step(X, w, current, m)[1])
    found = fuzzy.search(
        X, k, m=m, init=[0, 1, 2], max_iter=6, n_trials=trials, tenure=tenure, neighbours=neighbours, seed=5,
        backend=backend,
    )  # fmt: skip
    np.testing.assert_allclose(found.trace.current[0], path, rtol=1e-9)
    assert found.trace.best[0, -1] == pytest.approx(best, rel=1e-9)
    assert found.inertia <= best


@pytest.mark.parametrize("m", IRIS)
def test_iris(m, iris):
    found = fuzzy.run(iris, 3, m=m, init="random", restarts=20)
    assert found.inertia == pytest.approx(IRIS[m], abs=2e-6)
    if m == 2:
        ordered = found.centers[np.argsort(found.centers[:, 0])]
        expected = [[5.004, 3.4141, 1.4828, 0.2535], [5.8889, 2.7611, 4.364, 1.3973], [6.775, 3.0524, 5.6468, 2.0536]]
        np.testing.assert_allclose(ordered, expected, atol=6e-5)


@pytest.mark.data
@pytest.mark.parametrize("m", GLASS)
def test_glass(m, paper_data):
    X = paper_data("glass")
    assert fuzzy.run(X, 6, m=m, init="random", restarts=20).inertia == pytest.approx(GLASS[m], abs=2e-6)
    if m < 2:
        found = fuzzy.search(X, 6, m=m, restarts=4, max_iter=25)
        np.testing.assert_allclose(found.inertias, GLASS[m], atol=2e-4)  # all four


BRIEF = {"max_iter": 4, "n_trials": 3, "refine_iter": 4}


@pytest.mark.parametrize(
    "call", [lambda X, k, **o: fuzzy.run(X, k, max_iter=8, **o), lambda X, k, **o: fuzzy.search(X, k, **BRIEF, **o)]
)
@pytest.mark.parametrize(("dtype", "weighted"), [(np.float32, True), (np.float64, False)])
@pytest.mark.one_device
def test_backends_chunks_and_batches_have_the_same_bits(call, dtype, weighted, backend):
    X = blobs(80, 3, 4, dtype=dtype)
    weights = np.random.default_rng(3).integers(0, 3, len(X)) / 2 if weighted else None
    options = {"m": 1.7, "restarts": 2, "seed": 3, "init": "random"}
    found = call(Points.of(X, weights), 4, **options, backend="numpy")
    for chunk_rows in (None, 40) if backend == "cuda" else (None, 1, 7, 1000):
        same(found, call(Points.of(X, weights, chunk_rows), 4, **options, backend=backend))
    for r in (0, 1):
        alone = call(Points.of(X, weights), 4, **{**options, "restarts": [r]}, backend=backend)
        assert alone.inertia == found.inertias[r]
        steps = alone.trace.current.shape[1]
        np.testing.assert_array_equal(alone.trace.current[0], found.trace.current[r, :steps])


def test_weights_are_repetitions(backend):
    X = blobs(60, 2, 3)
    weights = np.random.default_rng(0).integers(0, 4, 60).astype(float)
    one = fuzzy.run(X, 3, weights=weights, init=X[:3], backend=backend)
    two = fuzzy.run(np.repeat(X, weights.astype(int), axis=0), 3, init=X[:3], backend=backend)
    np.testing.assert_allclose(one.centers, two.centers, rtol=1e-9)
    assert one.inertia == pytest.approx(two.inertia, rel=1e-11)


@pytest.mark.parametrize(("X", "k"), [(np.zeros((5, 2)), 2), (blobs(4, 2, 2), 4), (blobs(9, 1, 2), 1), ([[1.0]], 1)])
def test_corners(X, k, backend):
    for found in (fuzzy.run(X, k, backend=backend), fuzzy.search(X, k, max_iter=3, backend=backend)):
        assert np.isfinite(found.centers).all()
        assert found.inertia >= 0
        if k == len(np.unique(X, axis=0)) and k > 1:
            assert found.inertia == pytest.approx(0, abs=1e-20)


def test_tabu_lists():
    recent, accepted = np.full((2, 2, 2, 1), np.inf), np.zeros(2, np.int64)
    first = np.array([[[3.0], [1.0]], [[0.0], [9.0]]])
    recent, accepted = remembered(recent, accepted, first, np.array([True, False]))
    assert accepted.tolist() == [1, 0]
    trials = np.array([[[[1.0], [3.0]], [[1.0], [3.1]]], [[[0.0], [9.0]], [[1.0], [3.0]]]])
    assert tabu(trials, recent, 0.01).tolist() == [[True, False], [False, False]]
    costs = np.array([[1.0, 2.0], [5.0, 4.0]])
    forbidden = np.array([[True, False], [True, True]])
    assert accept(costs, forbidden, np.array([1.0, 3.0])).tolist() == [1, -1]
    assert accept(costs, forbidden, np.array([1.5, 4.5])).tolist() == [0, 1]  # aspiration


@pytest.mark.parametrize("call", [fuzzy.run, lambda X, k, **o: fuzzy.search(X, k, max_iter=8, n_trials=3, **o)])
def test_a_fit_goes_on_from_its_checkpoint(call, tmp_path, monkeypatch):
    monkeypatch.setattr("gputabu.algorithms.checkpoint.EVERY", 0.0)
    X, kept = blobs(90, 2, 4), tmp_path / "f.ckpt"
    options = {"m": 1.5, "restarts": 2, "init": "random", "seed": 4}

    def stop(progress):
        if progress.iteration == 5:
            raise RuntimeError

    with pytest.raises(RuntimeError):
        call(X, 4, checkpoint=kept, callback=stop, **options)
    same(call(X, 4, checkpoint=kept, **options), call(X, 4, **options))


@pytest.mark.parametrize(
    "model", [FuzzyCMeans(3, m=1.5, random_state=0), TabuFuzzyCMeans(3, max_iter=3, random_state=0)]
)
def test_the_estimators(model, iris, backend):
    X = iris.astype(np.float32)
    model = model.set_params(backend=backend).fit(X)
    u = model.memberships(X)
    assert (u.shape, u.dtype) == ((150, 3), np.float32)
    np.testing.assert_allclose(u.sum(axis=1), 1, rtol=1e-5)
    np.testing.assert_array_equal(u.argmax(axis=1), model.labels_)
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    assert model.score(X) == -model.inertia_
    for wrong in (model.to_sklearn, lambda: model.certify(X)):
        with pytest.raises(TypeError, match="CMeans"):
            wrong()
    elsewhere = model.score(X + 100)  # the centres are far outside of the box of these points
    assert -np.inf < elsewhere < model.score(X)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"m": 1.0}, "m=1.0 must"),
        ({"m": "2"}, "m='2' must"),
        ({"n_clusters": 31}, "n_clusters=31"),
        ({"max_iter": 0}, "'max_iter' parameter of .* must"),
        ({"tol": -1}, "'tol' parameter of .* must"),
        ({"n_trials": 0}, "n_trials=0 must"),
        ({"tenure": 0}, "tenure=0 must"),
        ({"neighbours": "near"}, "neighbours='near' must"),
        ({"refine_iter": 0}, "refine_iter=0 must"),
        ({"init": "far"}, "'init' parameter of .* must"),
    ],
)
def test_bad_input(options, message):
    X, options = blobs(30, 2, 2), {"n_clusters": 2, **options}
    own = {"n_trials", "tenure", "neighbours", "refine_iter"} & set(options)
    for model in (TabuFuzzyCMeans, *(() if own else (FuzzyCMeans,))):
        with pytest.raises((ValueError, TypeError), match=message):
            model(**options).fit(X)
