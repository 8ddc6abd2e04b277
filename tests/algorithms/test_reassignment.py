"""TSC against a plain implementation in exact arithmetic, and the laws of batching and chunking."""

from __future__ import annotations

import signal
from fractions import Fraction
from functools import partial

import numpy as np
import oracle
import pytest
from conftest import GPU, blobs, same
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import draw_problem

from gputabu import Points, Stop, TabuSearchClustering, lloyd, reassignment
from gputabu.algorithms import reassignment_loop
from gputabu.algorithms.reassignment_loop import Course, Plan
from gputabu.backend import open_backend
from gputabu.backend.arithmetic.fixed_point import Totals
from gputabu.backend.contract import TrialBatch
from gputabu.backend.numpy.backend import NumpyBackend
from gputabu.backend.tuning import Tuning
from gputabu.core import random as draws
from gputabu.core.random import Purpose

SQUARE = np.array([[0.0, 0.0], [0.0, 1.0], [10.0, 0.0], [10.0, 1.0]])
GRID = np.array([[x, y] for x in range(4) for y in range(3)], dtype=float)  # nothing but ties
LINE = np.array([[0.0], [0.0], [0.0], [1.0], [1.0], [5.0], [5.0], [5.0], [5.0], [9.0]])  # duplicates


def test_four_points_by_hand(backend):
    found = reassignment.search(SQUARE, 2, keep=0.5, max_iter=60, backend=backend)
    assert found.inertia == 1.0
    assert found.labels.tolist() in ([0, 0, 1, 1], [1, 1, 0, 0])
    assert sorted(found.centers.tolist()) == [[0.0, 0.5], [10.0, 0.5]]
    assert (found.stop, found.n_iter, found.center_indices) == (Stop.MAX_ITER, 60, None)


def path_of(points, k, plan, seed, restart, backend, start=None):
    """Labelling, J and J_b after every iteration of one restart."""
    with open_backend(points, backend) as opened:
        given = None if start is None else np.array([start], np.int32)
        lot = TrialBatch(k, seed, np.array([restart], np.uint64), 0, 1, 0, given)
        state = reassignment_loop.begin(opened, lot, plan, Course())
        seen = [(opened.fetch_labels(state.labels, 0).tolist(), state.cost[0], state.best_cost[0])]
        for iteration in range(1, plan.max_iter + 1):
            trials = reassignment_loop.prepared(opened, state, lot, plan, iteration)
            state = reassignment_loop.step(opened, state, trials, plan)
            seen.append((opened.fetch_labels(state.labels, 0).tolist(), state.cost[0], state.best_cost[0]))
        best = reassignment_loop.best_labels(opened, state, plan)
        return [list(column) for column in zip(*seen, strict=True)], opened.fetch_labels(best, 0).tolist()


def check_against_oracle(X, k, backend, *, weights=None, start=None, chunk_rows=None, seed=0, restart=0, **options):
    plan = Plan(**{"max_iter": 25, "n_trials": 6, "tenure": 5, "keep": 0.8, **options})
    exact = None if weights is None else [Fraction(float(w)) for w in weights]
    plain = oracle.LabelSearch(
        oracle.exact(X), k, plan.max_iter, plan.n_trials, plan.tenure, plan.keep, seed, restart, exact, start
    ).run()
    for dtype in (np.float64, np.float32):
        points = Points.of(X.astype(dtype), weights, chunk_rows)
        (labels, costs, best_costs), best = path_of(points, k, plan, seed, restart, backend, start)
        assert labels == plain.path
        assert best == plain.best
        scale = float(plain.costs[0]) or 1.0
        np.testing.assert_allclose(costs, [float(J) for J in plain.costs], rtol=1e-12, atol=1e-13 * scale)
        np.testing.assert_allclose(best_costs, [float(J) for J in plain.best_costs], rtol=1e-12, atol=1e-13 * scale)
    return plain


@pytest.mark.parametrize("keep", [0.0, 0.5, 0.9])
@pytest.mark.parametrize(
    ("X", "k"),
    [(GRID, 3), (LINE, 3), (LINE, 1), (GRID[:5], 5), (GRID[:5], 4), (np.zeros((5, 2)), 2), (SQUARE[:1], 1)],
    ids=["grid", "duplicates", "K=1", "K=N", "N=K+1", "constant", "N=1"],
)
def test_equals_the_plain_search(X, k, keep, backend):
    for restart in (0, 7):
        check_against_oracle(X, k, backend, keep=keep, restart=restart, seed=2**64 - 1)


def test_equals_the_plain_search_on_iris(iris, backend):
    X = np.rint(iris[::5] * 10)  # millimetres: integers, with many ties
    check_against_oracle(X, 3, backend, keep=0.95, max_iter=40, n_trials=8, tenure=15)


def test_equals_the_plain_search_from_given_labels(backend):
    check_against_oracle(GRID, 3, backend, start=[0] * 6 + [1] * 6)  # one cluster is empty


@pytest.mark.parametrize("chunk_rows", [None, 1, 5])
def test_equals_the_plain_search_with_weights(chunk_rows, backend):
    weights = np.random.default_rng(1).integers(0, 4, size=len(GRID)).astype(float)
    weights[3] = 0.5
    assert (weights == 0).any()
    check_against_oracle(GRID, 3, backend, weights=weights, chunk_rows=chunk_rows)


def test_the_tabu_list_bites_and_forgets(backend):
    """Three points have eight labellings, so that trials repeat."""
    X = np.array([[0.0], [1.0], [3.0]])
    short = check_against_oracle(X, 2, backend, keep=0.5, tenure=1, n_trials=4, max_iter=40)
    long = check_against_oracle(X, 2, backend, keep=0.5, tenure=6, n_trials=4, max_iter=40)
    everything = check_against_oracle(X, 2, backend, keep=0.5, tenure=8, n_trials=4, max_iter=40)
    assert min(short.passed_over, long.passed_over) > 0
    assert long.stuck > short.stuck  # the list forbade all trials
    accepted = [now for now, before in zip(long.path[1:], long.path, strict=False) if now != before]
    assert all(labels not in accepted[max(0, i - 6) : i] for i, labels in enumerate(accepted))
    assert len(accepted) > 8  # some came back, once they were forgotten
    assert everything.path[-5:] == everything.path[-5:-4] * 5  # all labellings are forbidden, none is forgotten


def test_one_cluster_has_nothing_to_change(backend):
    found = reassignment.search(LINE, 1, max_iter=5, backend=backend)
    assert found.labels.tolist() == [0] * 10
    assert found.trace.moves.tolist() == [[0] * 5]
    assert found.inertia == pytest.approx(found.trace.current[0, 0], rel=1e-14)


def test_aspiration():
    """A forbidden trial is accepted if it beats J_b, by more than rounding, and is the best allowed."""
    cost = np.array([[5.0, 3.0, 4.0]] * 5)
    tabu = np.array([[0, 1, 0], [0, 1, 0], [0, 1, 0], [1, 1, 1], [0, 0, 1]], bool)
    best = np.array([3.5, 3.0, 3.0 + 1e-14, 2.0, 1.0])
    assert reassignment_loop.accept(cost, tabu, best, 1e-12).tolist() == [1, 2, 2, -1, 1]


def test_ties_go_to_the_lowest_trial():
    cost = np.array([[2.0, 1.0 + 1e-14, 1.0], [np.inf, 0.0, 0.0]])
    assert reassignment_loop.accept(cost, np.zeros((2, 3), bool), np.ones(2), 1e-12).tolist() == [1, 1]


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("n", [90, 70_001])
def test_trials_are_what_adopting_them_gives(n, weighted, dtype, backend):
    """J, print and totals of a trial, from the few points that change, against those of its labelling as a whole."""
    if n > 1000 and backend == "cuda" and GPU == "hostcuda":
        n = 1501
    rng = np.random.default_rng(n)
    X = (5 + rng.normal(size=(n, 3))).astype(dtype)
    weights = rng.random(n) * (rng.random(n) < 0.8) if weighted else None
    r, k, t = 2, 7, 3
    lot = TrialBatch(k, 11, np.array([4, 2**40], np.uint64), 9, t, Plan(keep=0.9).limit)
    factors = draws.words(11, 0, 2 * n, purpose=Purpose.PRINT).reshape(n, 2)
    with open_backend(Points.of(X, weights), backend) as opened:
        labels, best = opened.blank_labels(r), opened.blank_labels(r)
        start = TrialBatch(k, 11, lot.restarts, 0, 1, 0)
        totals = opened.apply_trial(labels, best, start, np.zeros(r, int), np.ones(r, bool)).totals
        before = np.stack([opened.fetch_labels(labels, i) for i in range(r)])
        np.testing.assert_array_equal(before, [opened.fetch_labels(best, i) for i in range(r)])
        tried = opened.evaluate_trials(labels, totals, lot)
        for trial in range(t):
            mine = opened.take_labels(labels, np.arange(r))
            change = opened.apply_trial(mine, best, lot, np.array([trial, -1]), np.array([False, True]))
            after = np.stack([opened.fetch_labels(mine, i) for i in range(r)])
            np.testing.assert_array_equal(after[1], before[1])
            np.testing.assert_array_equal(opened.fetch_labels(best, 0), before[0])
            moved = (after != before).sum(axis=1)
            np.testing.assert_array_equal(change.changed, moved)
            assert moved[0] == pytest.approx(0.1 * n, abs=5 * np.sqrt(0.09 * n))
            assert (change.totals[1] == 0).all()
            with np.errstate(over="ignore"):
                steps = (after[0] - before[0]).astype(np.int64).astype(np.uint64)
                np.testing.assert_array_equal(tried.fingerprints[0, trial], (factors * steps[:, None]).sum(axis=0))
            centers = opened.grid.centroids(totals + change.totals, np.zeros((r, k, 3)))
            cost = opened.objective(centers, mine)[0]
            assert tried.cost[0, trial] == pytest.approx(cost, rel=1e-12)
            counted = np.bincount(after[0], None if weights is None else weights > 0, k)
            np.testing.assert_array_equal(Totals.counts(totals + change.totals)[0], counted)


def test_random_labels_are_uniform():
    with open_backend(Points.of(np.zeros((60_000, 1))), "numpy") as opened:
        labels, best = opened.blank_labels(1), opened.blank_labels(1)
        none, all_ = np.zeros(1, int), np.ones(1, bool)
        opened.apply_trial(labels, best, TrialBatch(6, 0, np.zeros(1, np.uint64), 0, 1, 0), none, all_)
        before = opened.fetch_labels(labels, 0)
        opened.apply_trial(
            labels, best, TrialBatch(6, 0, np.zeros(1, np.uint64), 1, 1, Plan(keep=0.4).limit), none, all_
        )
        pairs = np.bincount(before * 6 + opened.fetch_labels(labels, 0), minlength=36).reshape(6, 6)
    expected = np.where(np.eye(6), 0.4, 0.6 / 5) * 10_000
    assert (np.abs(pairs - expected) < 5 * np.sqrt(expected)).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("refine", [None, "lloyd", "hartigan"])
def test_a_batch_equals_single_runs(iris, dtype, refine, backend):
    options = {"max_iter": 15, "n_trials": 5, "seed": 3, "refine": refine, "backend": backend}
    batch = reassignment.search(iris.astype(dtype), 4, restarts=9, **options)
    for r in range(9):
        alone = reassignment.search(iris.astype(dtype), 4, restarts=[r], **options)
        assert alone.inertia == batch.inertias[r]
        np.testing.assert_array_equal(alone.trace.current[0], batch.trace.current[r])
        np.testing.assert_array_equal(alone.trace.moves[0], batch.trace.moves[r])
        if r == batch.restart:
            np.testing.assert_array_equal(alone.labels, batch.labels)
            np.testing.assert_array_equal(alone.centers, batch.centers)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
def test_chunks_and_batches_change_nothing(dtype, weighted, backend):
    X = blobs(1103, 5, 6, dtype=dtype)
    weights = np.random.default_rng(0).random(len(X)) if weighted else None

    def run(rows, backend=backend):
        points = Points.of(X, weights, chunk_rows=rows)
        return reassignment.search(points, 6, restarts=3, max_iter=3, n_trials=4, backend=backend)

    whole = run(None)
    for rows in (7, 1000, len(X)):
        same(whole, run(rows))
    same(whole, run(None, backend.tuned(batch_bytes=1)))


def test_pieces_and_threads_change_nothing():
    X = blobs(3000, 4, 5)
    whole = reassignment.search(X, 5, restarts=3, max_iter=5)
    for threads in (1, 2, 5):
        small = partial(NumpyBackend, tuning=Tuning(piece_elements=1 << 12, threads=threads))
        same(whole, reassignment.search(X, 5, restarts=3, max_iter=5, backend=small))


def test_scales_and_offsets_change_nothing():
    X = blobs(80, 3, 3)
    plain = reassignment.search(X, 3, max_iter=40, n_trials=5)
    scaled = reassignment.search(X * 2.0**40, 3, max_iter=40, n_trials=5)
    np.testing.assert_array_equal(plain.labels, scaled.labels)
    assert scaled.inertia == plain.inertia * 2.0**80
    extreme = reassignment.search(X * 1e99, 3, weights=np.full(80, 1e100), max_iter=40, n_trials=5)
    np.testing.assert_array_equal(plain.labels, extreme.labels)


def test_what_is_returned(iris, backend):
    found = reassignment.search(iris, 3, restarts=4, max_iter=30, n_trials=5, backend=backend)
    best = found.trace.best
    assert (np.diff(best, axis=1) <= 0).all()
    assert (found.trace.current > best).any()  # worse solutions were moved to
    np.testing.assert_allclose(found.inertias, best[:, -1], rtol=1e-12)
    means = np.stack([iris[found.labels == c].mean(axis=0) for c in range(3)])
    np.testing.assert_allclose(found.centers, means, rtol=1e-13)
    assert found.inertia == pytest.approx(((iris - means[found.labels]) ** 2).sum(), rel=1e-13)
    assert found.labels.dtype == np.int32
    refined = reassignment.search(iris, 3, restarts=[found.restart], max_iter=30, n_trials=5, refine="lloyd",
                                  backend=backend)  # fmt: skip
    kmeans = lloyd.run(iris, 3, init=found.centers, backend=backend)
    np.testing.assert_array_equal(refined.labels, kmeans.labels)
    assert refined.inertia == kmeans.inertia < found.inertia


def test_an_empty_cluster_is_centred_at_the_mean(backend):
    found = reassignment.search(np.ones((6, 2)), 3, init=[0, 0, 0, 2, 2, 2], keep=0.99, max_iter=1, backend=backend)
    assert found.inertia == 0
    assert found.centers.tolist() == [[1.0, 1.0]] * 3


def test_restarts_from_given_labels_differ(iris):
    found = reassignment.search(iris, 3, init=np.arange(150) % 3, restarts=3, max_iter=20)
    assert len(set(found.trace.current[:, 0])) == 1
    assert len(set(found.trace.current[:, -1])) == 3


def test_ctrl_c_keeps_the_best_so_far(iris, monkeypatch, backend):
    step, count = reassignment_loop.step, iter(range(100))

    def pressing(*args):
        if next(count) == 3:
            signal.raise_signal(signal.SIGINT)
        return step(*args)

    monkeypatch.setattr(reassignment_loop, "step", pressing)
    found = reassignment.search(iris, 3, restarts=2, max_iter=30, n_trials=5, backend=backend)
    assert (found.stop, found.n_iter) == (Stop.INTERRUPTED, 4)
    monkeypatch.undo()
    whole = reassignment.search(iris, 3, restarts=2, max_iter=4, n_trials=5, backend=backend)
    assert whole.inertia == found.inertia
    np.testing.assert_array_equal(whole.labels, found.labels)


@pytest.mark.trap(3)
def test_memory_stays_small():
    """Labels of all trials would be 320 MB here; a piece of work is a few arrays of 2^20 elements."""
    import tracemalloc

    X = np.random.default_rng(0).normal(size=(200_000, 2)).astype(np.float32)
    tracemalloc.start()
    reassignment.search(X, 3, restarts=4, n_trials=100, max_iter=1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 150e6


def test_estimator_without_refinement(iris, backend):
    model = TabuSearchClustering(3, refine=None, max_iter=30, random_state=0, backend=backend).fit(iris)
    found = reassignment.search(iris, 3, max_iter=30, restarts=10, seed=0, backend=backend)
    np.testing.assert_array_equal(model.labels_, found.labels)
    assert model.inertia_ == found.inertia > -model.score(iris)
    assert not np.array_equal(model.labels_, model.predict(iris))


@pytest.mark.gpu
@settings(max_examples=25)
@given(data=st.data())
@pytest.mark.one_device
def test_cuda_equals_numpy(data):
    X, k, weights, seed = draw_problem(data)
    options = {
        "weights": weights,
        "restarts": data.draw(st.sampled_from([1, 3, 11]), "R"),
        "n_trials": data.draw(st.sampled_from([1, 2, 7]), "T"),
        "keep": data.draw(st.sampled_from([0.0, 0.5, 0.95]), "P"),
        "refine": data.draw(st.sampled_from([None, "lloyd", "hartigan"]), "refine"),
        "max_iter": 4,
        "seed": seed,
    }
    same(reassignment.search(X, k, backend="cuda", **options), reassignment.search(X, k, backend="numpy", **options))


@pytest.mark.gpu
def test_words_on_the_device_are_numpys():
    import cupy

    from gputabu.backend.cuda import launch as kernels

    text = (
        kernels.source("reassignment.cu")
        + """
extern "C" __global__ void words(word* out, word step, word purpose, word seed, word restart) {
    draw(out + 4 * threadIdx.x, 5 + threadIdx.x, step, purpose, seed, restart);
}
"""
    )
    module = cupy.RawModule(code=text, options=kernels.options(np.dtype(np.float32), ()))
    for seed, restart, step in ((0, 0, 0), (2**64 - 1, 3, 2**40), (12345, 2**63, 7)):
        out = cupy.empty(64, np.uint64)
        scalars = [np.uint64(value) for value in (step, Purpose.TRIAL, seed, restart)]
        module.get_function("words")((1,), (16,), (out, *scalars))
        wanted = draws.words(seed, restart, 64, purpose=Purpose.TRIAL, step=step, first=20)
        np.testing.assert_array_equal(out.get(), wanted)
        key, counter = np.array([seed, restart], np.uint64), np.array([5, 0, step, 1], np.uint64)
        np.testing.assert_array_equal(wanted, np.random.Philox(key=key, counter=counter).random_raw(64))


MODES = {"improve": "hartigan", "modes": ("divide", "mutation"), "n_trials": 3}


@pytest.mark.gpu
@pytest.mark.skipif(GPU != "hostcuda", reason="changes what only hostcuda can: threads, memory")
@pytest.mark.parametrize(("k", "more"), [(3, {}), (60, {}), (3, MODES)], ids=["3", "60", "modes"])
@pytest.mark.one_device
def test_cuda_under_stress(k, more):
    """Any order of threads, no races, totals in shared memory or not, points that are streamed, no leak."""
    import gc

    import cupy

    control = cupy._hostcuda
    before = vars(control.settings).copy()
    X = blobs(501 if more else 3001, 5 if more else 24, 4, dtype=np.float32)
    options = {"restarts": 2, "max_iter": 2, "n_trials": 9, **more}
    wanted = reassignment.search(X, k, backend="numpy", **options)
    try:
        control.set_check(True, global_races=True)
        for seed in range(3):
            control.set_seed(seed)
            same(reassignment.search(X, k, backend="cuda", **options), wanted)
        gc.collect()
        control.reset()
        same(reassignment.search(X, k, backend="cuda", **options), wanted)
        gc.collect()
        assert control.leaked_bytes() == 0
        if not more:
            control.settings.memory = 330_000 if k == 3 else 1_000_000
            with open_backend(Points.of(X), "cuda") as opened:
                streamed = opened.chunks.resident is None
            same(reassignment.search(X, k, backend="cuda", **options), wanted)
            assert streamed or k != 3
    finally:
        vars(control.settings).update(before)
        control.set_seed(0)


@pytest.mark.data
@pytest.mark.parametrize(("name", "k", "paper"), [("iris", 3, 282.94), ("bavaria1", 4, 4.10e11)])
def test_average_is_near_the_papers(paper_data, name, k, paper):
    found = reassignment.search(paper_data(name), k, restarts=10, backend="numpy")
    assert found.inertias.mean() == pytest.approx(paper, rel=0.2)
