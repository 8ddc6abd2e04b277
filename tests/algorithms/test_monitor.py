"""Callbacks hear of every iteration in order, may end a search, and change no bit of it."""

from __future__ import annotations

import itertools
import time
from functools import partial

import numpy as np
import pytest
from conftest import blobs, same

from gputabu import Points, Progress, Stop, lloyd, quantized, reassignment, relocation, select_k
from gputabu.algorithms import monitor as watching
from gputabu.algorithms.monitor import Monitor
from gputabu.algorithms.progress import ProgressEstimate
from gputabu.backend.numpy.backend import NumpyBackend
from gputabu.backend.tuning import Tuning

SEARCHES = {
    "quantized": partial(quantized.search, init="random", refine="hartigan", max_iter=40),
    "two neighbours": partial(quantized.search, n_neighbors=2, max_iter=12),
    "relocation": partial(relocation.search, max_iter=30),
    "reassignment": partial(reassignment.search, refine="lloyd", max_iter=15),
    "lloyd": partial(lloyd.run, init="random", refine="hartigan"),
    "lloyd, cut short": partial(lloyd.run, init="random", max_iter=4),
}


@pytest.fixture(params=SEARCHES.values(), ids=SEARCHES)
def search(request):
    return partial(request.param, n_clusters=4, seed=2)


def test_every_iteration_in_order_and_the_same_bits(search, backend, iris):
    told: list[Progress] = []
    found = search(iris, restarts=3, backend=backend, callback=told.append)
    same(found, search(iris, restarts=3, backend=backend))
    course = [info for info in told if info.phase == "search"]
    assert [info.iteration for info in course] == list(range(1, found.trace.n_iter.max() + 1))
    for t, info in enumerate(course, 1):
        going = np.flatnonzero(found.trace.n_iter >= t)
        assert info.active.tolist() == going.tolist()
        np.testing.assert_array_equal(info.current, found.trace.current[going, t])
        assert info.done == (found.trace.n_iter <= t).sum()
    assert course[-1].best <= np.nanmin(found.trace.current[:, 1:]) * (1 + 2.0**-40)  # rounding is no improvement
    phases = [info.phase for info in told]
    assert phases == sorted(phases, key=["start", "search", "refine"].index)
    assert all(a.best >= b.best and a.elapsed <= b.elapsed for a, b in itertools.pairwise(told))
    assert {(info.restarts, info.n_clusters) for info in told} == {(3, 4)}
    assert all(info.iteration <= info.max_iter for info in told)


DEFAULTS = {
    quantized.search: ({"max_iter": 400, "patience": 100}, "lloyd", "random"),
    relocation.search: ({"max_iter": None, "effort": 10.0}, "hartigan", "k-means++"),
    lloyd.run: ({"max_iter": 300}, None, "k-means++"),
}


@pytest.mark.parametrize("search", DEFAULTS)
def test_defaults(search, iris, monkeypatch):
    """What is not said is as the documentation has it, and what is said is what is done."""
    limits, refine, init = DEFAULTS[search]
    told: list[Progress] = []
    plain = search(iris, 3, callback=told.append)
    assert next(info.max_iter for info in told if info.phase == "search") == limits["max_iter"]
    spelled = search(
        iris, 3, weights=None, init=init, restarts=1, refine=refine, seed=0, backend="auto",
        device=None, labels_out=None, checkpoint=None, progress=False, callback=None, **limits,
    )  # fmt: skip
    same(plain, spelled)
    others = [search(iris, 9, seed=seed, max_iter=4) for seed in range(4)]
    assert len({found.trace.current.tobytes() for found in others}) > 1


def test_labels_are_written(search, iris, tmp_path):
    into = np.empty(150, np.int64)
    found = search(iris, labels_out=into)
    np.testing.assert_array_equal(into, found.labels)
    named = search(iris, labels_out=tmp_path / "labels.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "labels.npy"), found.labels)
    same(found, named)
    with pytest.raises(ValueError, match="labels_out"):
        search(iris, labels_out=np.empty(149, np.int64))


def test_what_is_logged(search, iris, caplog):
    with caplog.at_level("DEBUG", "gputabu"):
        found = search(iris, restarts=2, backend="numpy")
    begun, *course, ended = [record.getMessage() for record in caplog.records]
    assert begun == "150 points, 4 features, float64; 4 clusters, 2 restarts on numpy"
    assert ended.startswith(f"restarts 0 to 1: J from {found.inertias.min():.10g} to {found.inertias.max():.10g}")
    assert all("iteration" in line or "round" in line for line in course)
    assert any("iteration 1: " in line for line in course)


def test_a_bar_only_if_asked_for(search, iris, monkeypatch):
    opened, real = [], watching.open_bar
    monkeypatch.setattr(watching, "open_bar", lambda: opened.append(real()) or opened[-1])
    search(iris)
    assert not opened
    search(iris, progress=True)
    assert len(opened) == 1


def test_true_ends_it_with_the_best_so_far(search, backend, iris):
    told: list[Progress] = []

    def third(info):
        told.append(info)
        return info.phase == "search" and info.iteration == 3

    found = search(iris, restarts=2, backend=backend, callback=third)
    assert found.stop is Stop.CALLBACK
    assert found.trace.current.shape == (2, 4)
    assert told[-1].iteration == 3 and told[-1].phase == "search"  # and it is not called again
    assert found.inertia <= told[-1].best * (1 + 1e-12)
    whole = search(iris, restarts=2, backend=backend)
    np.testing.assert_array_equal(found.trace.current, whole.trace.current[:, :4])


def test_no_further_batch_once_stopped(iris):
    two_at_a_time = partial(NumpyBackend, tuning=Tuning(batch_bytes=2 * 32 * len(iris)))
    numbers, told = [], []

    def stop(info):
        numbers.append(info.active.tolist())
        told.append(info)
        return info.active.tolist() == [2, 3] and info.iteration == 2

    found = quantized.search(iris, 3, restarts=7, max_iter=5, patience=5, refine="centroid", callback=stop,
                             backend=two_at_a_time)  # fmt: skip
    assert found.stop is Stop.CALLBACK and len(found.inertias) == 4
    assert numbers == [[0, 1]] * 6 + [[2, 3]] * 2
    assert told[-1].done == 2 and told[-1].restarts == 7


def test_what_a_callback_may_answer(iris):
    run = partial(quantized.search, iris, 3, max_iter=5, patience=5)
    for answer in (None, False, np.False_):
        assert run(callback=lambda _, answer=answer: answer).stop is Stop.MAX_ITER
    assert run(callback=lambda _: np.True_).stop is Stop.CALLBACK
    with pytest.raises(TypeError, match="callback returned 3, which must be True to stop, or False or None to go on"):
        run(callback=lambda _: 3)
    with pytest.raises(TypeError, match="callback='no' must be a function of one argument, or None"):
        run(callback="no")
    with pytest.raises(TypeError, match="progress=1 must be True or False"):
        run(progress=1)


def test_what_a_callback_does_to_its_numbers_is_its_business(iris):
    def spoil(info):
        info.current[:] = -1
        info.active[:] = 7

    same(quantized.search(iris, 3, restarts=2, callback=spoil), quantized.search(iris, 3, restarts=2))


def test_an_exception_of_the_callback_arrives(search, backend, iris):
    def fail(info):
        raise LookupError(f"iteration {info.iteration}")

    with pytest.raises(LookupError, match="iteration 1"):
        search(iris, backend=backend, callback=fail)
    search(iris, backend=backend)  # nothing is left behind


def test_chunks_and_weights(backend):
    X, weights = blobs(300, 3, 4), np.random.default_rng(0).random(300)
    points = Points.of(X, weights, chunk_rows=70)
    found = quantized.search(points, 4, max_iter=10, backend=backend, callback=lambda info: None)
    same(found, quantized.search(points, 4, max_iter=10, backend=backend))


@pytest.mark.parametrize("method", ["k-means", "tabu"])
def test_select_k(method, iris):
    told: list[Progress] = []
    found = select_k(iris, [2, 3, 4], method=method, callback=told.append)
    assert list(dict.fromkeys(info.n_clusters for info in told))[:3] == [2, 3, 4]
    last = {info.n_clusters: info.best for info in told}
    for k, inertia in zip(found.table["n_clusters"], found.table["inertia"], strict=True):
        assert last[k] == pytest.approx(inertia)
    cut = select_k(iris, [2, 3, 4], method=method, callback=lambda info: info.n_clusters == 4)
    assert cut.interrupted and cut.table["n_clusters"].tolist() == [2, 3]


@pytest.mark.one_device
def test_a_target_ends_quantized_searches(iris, backend):
    run = partial(quantized.search, iris, 4, init="random", restarts=3, seed=1, backend=backend)
    plain, aimed = run(), run(target=60.0)
    assert aimed.stop is Stop.TARGET
    for r in range(3):
        met = np.flatnonzero(plain.trace.best[r] <= 60.0)
        t = met[0] if len(met) else plain.trace.n_iter[r]
        assert aimed.trace.n_iter[r] == t
        np.testing.assert_array_equal(aimed.trace.current[r, : t + 1], plain.trace.current[r, : t + 1])
    same(aimed, run(target=60.0, callback=lambda info: None))
    same(aimed, run(target=60.0, max_time=1000.0))  # on CUDA another way
    assert run(target=1e9).n_iter == 0


def test_time_ends_quantized_searches(iris, backend):
    begun = time.perf_counter()
    found = quantized.search(iris, 3, max_iter=10**6, patience=10**6, max_time=0.3, backend=backend)
    assert found.stop is Stop.MAX_TIME
    assert time.perf_counter() - begun < 60
    assert quantized.search(iris, 3, max_time=0, backend=backend).stop is Stop.MAX_TIME


def test_a_watch_nobody_opened_lets_everything_go_on():
    monitor = Monitor()
    assert not (monitor.should_stop() or monitor.report_due() or monitor.every_iteration or monitor.timed)
    assert monitor.halted is None
    monitor.report(1, np.arange(1), np.ones(1), np.ones(1), np.ones(1, bool))


def test_time_left():
    """Ten restarts of at most 100 iterations and patience 20, five of them in the first batch."""
    ledger = ProgressEstimate(10, 100, 20)
    ledger.begin(5, first=True)
    everyone, going = np.arange(5), np.zeros(5, bool)
    ledger.note(everyone, 10, np.full(5, 3.0), going)
    assert ledger.left(1.0) == pytest.approx((5 * 20 + 5 * 30) / 50)  # 20 more each; as much again for the others
    ledger.note(everyone, 25, np.full(5, 3.0), everyone < 1)
    assert ledger.left(1.0) == pytest.approx((4 * 5 + 5 * (125 + 20) / 5) / 125)
    assert (ledger.done, ledger.furthest) == (1, 25)
    assert ledger.fraction == pytest.approx((1 + 4 * 0.25) / 10)
    ledger.note(everyone, 30, np.full(5, 3.0), ~going)
    ledger.begin(5, first=False)
    assert ledger.left(3.0) == pytest.approx(3.0 * (5 * 20 + 0) / 150)
    assert ledger.fraction == 0.5
