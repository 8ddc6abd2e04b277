"""Relocation of centres: gains against exact arithmetic, equal bits on all backends, limits and corners."""

from __future__ import annotations

import functools
import itertools
import signal
from fractions import Fraction
from types import SimpleNamespace

import numpy as np
import oracle
import pytest
from conftest import Backend, blobs, same

from gputabu import Points, Stop, TabuKMeans, lloyd, relocation
from gputabu.backend import open_backend
from gputabu.backend.arithmetic.canonical import in_order
from gputabu.backend.arithmetic.fixed_point import Totals
from gputabu.backend.arithmetic.rules import masses
from gputabu.backend.loops import RelocationSettings
from gputabu.backend.tuning import Tuning
from gputabu.core import random as draws

LINE = np.array([[0.0], [0.0], [0.0], [1.0], [1.0], [5.0], [5.0], [5.0], [5.0], [9.0]])  # duplicates
GRID = np.array([[x, y] for x in range(6) for y in range(5)], dtype=float)  # nothing but ties
PAIRS_OF_POINTS = np.array([[0.0], [1.0], [10.0], [11.0], [20.0], [21.0]])


def weighted(n: int) -> np.ndarray:
    return np.random.default_rng(5).integers(0, 4, n).astype(float)


# -- the passes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("heavy", [False, True])
def test_gains_are_exact_changes_of_J(heavy, backend):
    """On integers nothing is rounded."""
    weights = weighted(len(GRID)) if heavy else None
    centers = np.array([[[0.0, 0], [5, 4], [2, 2]], [[1, 1], [1, 1], [4, 0]]])  # twice the same, in the second
    rows = np.array([[3, 17], [29, 0]])
    with open_backend(Points.of(GRID, weights), backend) as opened:
        gains = opened.swap_gains(opened.rows(rows), opened.nearest_two(centers))
    points = oracle.exact(GRID)
    each = [Fraction(w) for w in (np.ones(len(GRID)) if weights is None else weights)]

    def J(places):
        return sum(w * min(oracle.sqdist(x, c) for c in places) for x, w in zip(points, each, strict=True))

    for r in range(2):
        held = oracle.exact(centers[r])
        for t in range(2):
            for k in range(3):
                swapped = [points[rows[r, t]] if j == k else held[j] for j in range(3)]
                assert gains[r, t, k] == J(swapped) - J(held)


def test_two_nearest_and_updates_of_them(backend):
    X = np.concatenate([blobs(700, 3, 5, dtype=np.float32), np.repeat(blobs(40, 3, 5, dtype=np.float32), 9, axis=0)])
    rng = np.random.default_rng(1)
    centers = X[rng.integers(len(X), size=(2, 9))].astype(float)  # some of them twice
    with open_backend(Points.of(X), backend) as opened:
        held = opened.nearest_two(centers)
        for moved in ([], [4], [0, 8], range(9)):
            centers = centers.copy()
            centers[0, list(moved)] = X[rng.integers(len(X), size=len(moved))]
            held = opened.nearest_two(centers, held)
            squares = (X[None, :, None].astype(float) - centers[:, None]) ** 2  # (R, N, K, d)
            squares = (squares[..., 0] + squares[..., 1]) + squares[..., 2]
            order = np.argsort(squares, axis=2, kind="stable")
            for r in range(2):
                np.testing.assert_array_equal(opened.fetch_labels(held.first, r), order[r, :, 0])
                np.testing.assert_array_equal(opened.fetch_labels(held.second, r), order[r, :, 1])
                np.testing.assert_array_equal(opened.fetch_labels(held.near, r), np.sort(squares[r])[:, 0])
                np.testing.assert_array_equal(opened.fetch_labels(held.far, r), np.sort(squares[r])[:, 1])


@pytest.mark.parametrize(("d", "offset"), [(2, 0.0), (2, 3e7), (20, 0.0), (20, 1e9)])
def test_two_nearest_among_nothing_but_ties(d, offset, backend):
    """Where the second and the third are equally far, or nearly so, the canonical formula decides, then the number."""
    rng = np.random.default_rng(d)
    X = rng.integers(-1, 2, (600, d)) + offset
    X[::7] += rng.normal(0, 1e-9, (86, d))
    centers = X[None, rng.choice(600, 19, replace=False)]
    with open_backend(Points.of(X), backend) as opened:
        held = None
        for moved in (range(19), [3], [0, 18], range(1, 19, 2)):
            centers = centers.copy()
            centers[0, list(moved)] = X[rng.integers(600, size=len(moved))]
            held = opened.nearest_two(centers, held)
            squares = in_order((X[:, None] - centers[0]) ** 2)  # (N, K)
            order = np.argsort(squares, axis=1, kind="stable")
            np.testing.assert_array_equal(opened.fetch_labels(held.first, 0), order[:, 0])
            np.testing.assert_array_equal(opened.fetch_labels(held.second, 0), order[:, 1])
            np.testing.assert_array_equal(opened.fetch_labels(held.near, 0), np.sort(squares)[:, 0])
            np.testing.assert_array_equal(opened.fetch_labels(held.far, 0), np.sort(squares)[:, 1])


def test_settling_follows_hartigans_rule(backend):
    """The point at 2 is nearest to the centre at 1, and J is lower without it there."""
    X = np.array([[0.0], [2.0], [3.0]])
    with open_backend(Points.of(X), backend) as opened:
        labels = opened.blank_labels(1)
        pairs, everyone = opened.nearest_two(np.array([[[1.0], [3.0]]])), np.ones(1, np.bool_)
        totals = opened.reassign(pairs, labels, None, everyone).totals
        assert opened.fetch_labels(labels, 0).tolist() == [0, 0, 1]
        assert opened.reassign(pairs, labels, masses(opened.grid, totals), ~everyone).changed.tolist() == [0]
        done = opened.reassign(pairs, labels, masses(opened.grid, totals), everyone)
        assert done.changed.tolist() == [1]
        assert opened.fetch_labels(labels, 0).tolist() == [0, 1, 1]
        assert Totals.counts(totals + done.totals).tolist() == [[1, 2]]


# -- searches ------------------------------------------------------------------------------------


def test_a_centre_goes_where_it_is_missing(backend):
    found = relocation.search(PAIRS_OF_POINTS, 3, init=[0, 1, 2], max_iter=10, backend=backend)
    assert found.inertia == 1.5
    assert sorted(found.centers.ravel().tolist()) == [0.5, 10.5, 20.5]


@pytest.mark.parametrize(
    ("k", "heavy", "more"),
    [
        (6, False, {"go_back": 5, "returns": 2}),
        (9, True, {"go_back": 3, "returns": 3, "tenure": 8}),
        (4, True, {"go_back": 60, "returns": 20, "tenure": 0, "candidates": 1}),
        (2, False, {"go_back": 4, "returns": 1, "candidates": 3}),
    ],
)
def test_equals_the_plain_search(k, heavy, more, backend):
    X, weights = blobs(130, 3, 8, seed=k), weighted(130) if heavy else np.ones(130)
    options = {"tenure": k // 2, "candidates": 7} | more
    found = relocation.search(
        X,
        k,
        weights=weights if heavy else None,
        init=X[:k],
        max_iter=60,
        patience=60,
        seed=5,
        backend=backend,
        **options,
    )
    start = lloyd.run(X, k, weights=weights, init=X[:k], max_iter=relocation.START_ITER, backend=backend).centers
    words = draws.words(5, 0, 60 * options["candidates"], purpose=draws.Purpose.CANDIDATE).tolist()
    plain = oracle.Relocation(X, weights, start, words, **options)
    for _ in range(60):
        plain.iterate()
    np.testing.assert_allclose(found.trace.current[0], plain.costs, rtol=1e-11)
    np.testing.assert_allclose(found.trace.best[0], plain.bests, rtol=1e-11)
    assert found.trace.moves[0].tolist() == plain.moves


CASES = {
    "blobs": (blobs(900, 4, 9, seed=2), 7, {}),
    "single": (blobs(1201, 3, 9, seed=3, dtype=np.float32), 12, {}),
    "wide": (blobs(300, 40, 6, seed=4), 5, {}),
    "weights": (blobs(700, 3, 5, seed=5), 6, {"weights": weighted(700)}),
    "grid": (GRID, 4, {"weights": weighted(30)}),
    "duplicates": (LINE, 3, {}),
    "more than distinct": (LINE, 6, {}),
    "constant": (np.zeros((5, 2)), 2, {}),
    "two": (blobs(60, 2, 3), 2, {"tenure": 0, "candidates": 1}),
    "all": (LINE[[0, 3, 5, 9]], 4, {}),
    "tiny": (blobs(200, 2, 5) * 1e-30, 6, {}),
    "outlier": (np.concatenate([blobs(200, 2, 5), [[1e9, 1e9]]]), 6, {}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
@pytest.mark.one_device
def test_equals_numpy(case, backend):
    X, k, more = CASES[case]
    options = {"restarts": 3, "max_iter": 40, "go_back": 7, "returns": 2, "seed": 9, "init": "random"} | more
    same(relocation.search(X, k, backend=backend, **options), relocation.search(X, k, backend="numpy", **options))


@pytest.mark.numba
@pytest.mark.parametrize("case", ["blobs", "single", "weights"])
def test_numba_pass_by_pass_equals_whole_searches(case):
    X, k, more = CASES[case]
    whole = relocation.search(X, k, restarts=2, max_iter=25, backend="numba", **more)
    passes = Backend("numba", Tuning(small_data=0, medium_data=0))
    same(whole, relocation.search(X, k, restarts=2, max_iter=25, backend=passes, **more))


@pytest.mark.one_device
def test_a_batch_equals_single_runs(iris, backend):
    options = {"max_iter": 30, "patience": 12, "go_back": 5, "returns": 2, "seed": 3, "backend": backend}
    batch = relocation.search(iris, 5, restarts=6, **options)
    for r in range(6):
        alone = relocation.search(iris, 5, restarts=[r], **options)
        t = alone.n_iter + 1
        assert alone.inertia == batch.inertias[r]
        np.testing.assert_array_equal(alone.trace.current[0], batch.trace.current[r, :t])
        np.testing.assert_array_equal(alone.trace.moves[0], batch.trace.moves[r, : t - 1])
        assert np.isnan(batch.trace.current[r, t:]).all()


@pytest.mark.parametrize("rows", [7, 500])
@pytest.mark.one_device
def test_chunks_change_nothing(rows, backend):
    X, weights = blobs(600, 3, 6), weighted(600)
    whole, cut = (Points.of(X, weights, chunk_rows=size) for size in (None, rows))
    same(*(relocation.search(p, 6, max_iter=15, restarts=2, backend=backend) for p in (whole, cut)))


def test_a_weight_of_two_is_a_point_twice(backend):
    """Draws are among other rows, so only what is found in the end is compared."""
    X = PAIRS_OF_POINTS
    twice = relocation.search(np.concatenate([X, X[:2]]), 3, max_iter=20, backend=backend)
    heavy = relocation.search(X, 3, weights=[2, 2, 1, 1, 1, 1], max_iter=20, backend=backend)
    assert heavy.inertia == twice.inertia == 2.0
    with (
        open_backend(Points.of(np.repeat(GRID, 2, axis=0)), backend) as two,
        open_backend(Points.of(GRID, np.full(30, 2.0)), backend) as one,
    ):
        centers, points = GRID[[3, 7, 11]][None], GRID[[20, 28]][None]
        gains = [opened.swap_gains(points, opened.nearest_two(centers)) for opened in (one, two)]
    np.testing.assert_array_equal(*gains)


def test_one_cluster(backend):
    found = relocation.search(LINE, 1, backend=backend)
    assert found.inertia == pytest.approx(((LINE - LINE.mean()) ** 2).sum())
    assert found.stop is Stop.CONVERGED


def test_every_point_a_cluster(backend):
    found = relocation.search(LINE[[0, 3, 5, 9]], 4, backend=backend)
    assert (found.inertia, found.stop) == (0.0, Stop.TARGET)
    assert found.trace.best[0, -1] == 0


def test_centres_from_outside_the_box(backend):
    far = np.array([[1e6], [-1e6], [2e6]])
    found = relocation.search(PAIRS_OF_POINTS, 3, init=far, max_iter=20, backend=backend)
    assert found.inertia == 1.5


# -- limits --------------------------------------------------------------------------------------


def test_stops(iris, backend):
    def stop(**limits):
        found = relocation.search(iris, 4, backend=backend, **limits)
        return found.stop, found.n_iter

    assert stop(max_iter=7, patience=50) == (Stop.MAX_ITER, 7)
    assert stop(max_iter=500, patience=9)[0] is Stop.PATIENCE
    assert stop(target=1e9) == (Stop.TARGET, 0)
    reached, iterations = stop(target=58.0, max_iter=300)
    assert reached is Stop.TARGET and iterations < 300
    assert stop(max_iter=7) == (Stop.MAX_ITER, 7)
    assert stop(max_iter=7, patience=1)[0] is Stop.PATIENCE
    assert stop()[0] is Stop.EFFORT
    assert stop(max_time=0.0)[0] is Stop.MAX_TIME
    assert stop(max_time=0.2, max_iter=10**5, patience=10**5)[0] is Stop.MAX_TIME


def test_time_may_be_over_at_any_look_at_the_clock(backend, monkeypatch):
    clock = SimpleNamespace(perf_counter=itertools.count().__next__)
    monkeypatch.setattr("gputabu.algorithms.monitor.time", clock)
    backend = backend.tuned(longest_slice=2)
    for budget in range(16):
        found = relocation.search(LINE, 3, restarts=3, max_iter=50, max_time=budget, backend=backend)
        assert np.isfinite(found.inertias).all()


@pytest.mark.one_device
def test_best_never_rises_and_worse_is_moved_to(backend):
    found = relocation.search(blobs(300, 3, 8, seed=4), 20, restarts=3, max_iter=60, backend=backend)
    best = found.trace.best
    assert (np.diff(best, axis=1)[~np.isnan(best[:, 1:])] <= 0).all()
    assert (found.inertias <= np.nanmin(best, axis=1) * (1 + 1e-12)).all()
    assert (found.trace.current > best).any()


def test_ctrl_c_returns_the_best_so_far(iris, backend):
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    previous = signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        found = relocation.search(iris, 5, max_iter=10**5, patience=10**5, backend=backend)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert found.stop is Stop.INTERRUPTED
    assert found.inertia < 60


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_time": -1.0},
        {"target": -1.0},
        {"tenure": 4},
        {"candidates": 0},
        {"go_back": 0},
        {"returns": 0},
        {"refine": "centroid"},
    ],
)
def test_parameters_are_checked(wrong):
    with pytest.raises(ValueError, match=next(iter(wrong))):
        relocation.search(PAIRS_OF_POINTS, 4, **wrong)


# -- what it is for ------------------------------------------------------------------------------


def test_lower_than_the_best_of_many_k_means():
    X = blobs(600, 2, 40, seed=8)
    found = relocation.search(X, 30, max_iter=150, patience=150, seed=1)
    assert found.inertia < lloyd.run(X, 30, restarts=30).inertia


def test_estimator(iris):
    model = TabuKMeans(5, target=47.0, random_state=0).fit(iris)
    assert model.stop_ is Stop.TARGET and model.inertia_ <= 47.0
    assert not hasattr(model, "center_indices_")
    np.testing.assert_array_equal(model.predict(iris), model.labels_)
    again = TabuKMeans(5, candidates=3, tenure=1, go_back=5, returns=2, max_iter=20, random_state=4).fit(iris)
    options = {"candidates": 3, "tenure": 1, "go_back": 5, "returns": 2, "max_iter": 20, "seed": 4}
    np.testing.assert_array_equal(again.trace_.current, relocation.search(iris, 5, **options).trace.current)


@pytest.mark.gpu
def test_reads_of_x(monkeypatch):
    """At most three passes over X in an iteration, and one per step."""
    from gputabu.backend.cuda.backend import CudaBackend

    passes, launch = [], CudaBackend.launch

    def counted(opened, file, name, *rest, **more):
        passes.append(name)
        return launch(opened, file, name, *rest, **more)

    monkeypatch.setattr(CudaBackend, "launch", counted)
    monkeypatch.setattr(relocation, "RelocationSettings", functools.partial(RelocationSettings, more_steps=0))
    counts = []
    for iterations in (4, 14):
        passes.clear()
        relocation.search(blobs(500, 3, 6), 6, max_iter=iterations, patience=99, refine="lloyd", backend="cuda", seed=2)
        counts.append(sum(name in ("nearest_two", "swap_gains") for name in passes))
    assert counts[1] - counts[0] <= 10 * (2 + 3)


def test_a_far_outlier_does_not_blind_the_search():
    """J of the trace is good to J, though it is 1e-16 of the scatter."""
    X = np.concatenate([blobs(300, 2, 12, seed=6), [[1e9, 1e9]]])
    found = relocation.search(X, 11, max_iter=20, refine="lloyd")
    again = lloyd.run(X, 11, init=found.centers)
    assert found.trace.best[0, -1] == pytest.approx(again.inertia, rel=1e-2)
    assert found.trace.best[0, -1] < found.trace.best[0, 0]
