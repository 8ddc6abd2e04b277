"""The compiled CPU backend: what the tests over all backends do not see."""

import logging
import multiprocessing
import os
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import blobs, same

from gputabu import KMeans, Points, QuantizedTabuKMeans, lloyd, quantized
from gputabu.backend.tuning import Tuning

kernels = pytest.importorskip("gputabu.backend.numba.kernels", exc_type=ImportError)
from gputabu.algorithms.monitor import Monitor  # noqa: E402
from gputabu.backend.numba import backend as numba_ops  # noqa: E402
from gputabu.backend.numba import restarts as numba_restarts  # noqa: E402
from gputabu.backend.numba.backend import NumbaBackend  # noqa: E402
from gputabu.backend.numpy.backend import NumpyBackend  # noqa: E402

pytestmark = pytest.mark.numba
NO_PASS_IS_SHORT = partial(NumbaBackend, tuning=Tuning(short_pass=0))


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize(("n", "d", "k"), [(5000, 3, 7), (3000, 20, 300), (9000, 1, 2)])
def test_passes_equal_numpy_for_any_threads(threads, n, d, k, monkeypatch):
    """Few features are swept, many go through BLAS; more centres than a tile; several pieces and blocks."""
    monkeypatch.setattr(numba_ops, "FEWEST", 1)
    X, weights = blobs(n, d, 5, seed=d), np.random.default_rng(0).integers(0, 3, n).astype(float)
    points = Points.of(X, weights, chunk_rows=n // 2 + 1)
    centers = X[None, :k].astype(float)
    tabu = np.arange(k).reshape(1, k, 1)
    found = []
    for opened in (NumbaBackend(points, Tuning(short_pass=0, threads=threads)), NumpyBackend(points)):
        with opened:
            labels = opened.blank_labels(1)
            change = opened.assign(centers, labels)
            seen = opened.survey(centers, labels, tabu, False, 2)
            found.append(
                (labels, change.totals, change.changed, seen.cost, seen.index, seen.inside, opened.label(centers))
            )
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("far", [0.0, 1e6, 1e25, 1e60])
def test_what_float32_cannot_tell_is_decided_canonically(far, monkeypatch):
    """Points a few 2^-52 from the middle between centres, alone and beside one far outlier that ruins the scores."""
    steps = np.arange(-40, 41) * 2.0**-50
    X = np.stack([1.5 + steps, 3.0 - steps], axis=1)
    X = np.concatenate([X, [[1.0, 3.0], [2.0, 3.0], [1.5, 2.5], [far, far]]])
    centers = np.array([[[1.0, 3.0], [2.0, 3.0], [1.5, 2.5], [1.5, 3.5], [far, far]]])
    with NumbaBackend(Points.of(X), Tuning(short_pass=0)) as ours, NumpyBackend(Points.of(X)) as theirs:
        np.testing.assert_array_equal(ours.label(centers), theirs.label(centers))
        labels = ours.blank_labels(1), theirs.blank_labels(1)
        ours.assign(centers, labels[0])
        theirs.assign(centers, labels[1])
        np.testing.assert_array_equal(*labels)


def test_centres_outside_the_box_of_the_points(monkeypatch):
    """Whole restarts leave these to the passes, whose scores may not be trusted for centres so far out."""
    X = blobs(600, 3, 4)
    for scale in (1e2, 1e15, 1e30):
        init = np.random.default_rng(0).normal(scale=scale, size=(5, 3))
        same(lloyd.run(X, 5, init=init, backend=NO_PASS_IS_SHORT), lloyd.run(X, 5, init=init, backend="numpy"))


def test_read_only_points_are_not_another_type(tmp_path, monkeypatch):
    X = blobs(700, 4, 3)
    np.save(tmp_path / "x.npy", X)
    quantized.search(X, 3, backend=NO_PASS_IS_SHORT, max_iter=5)
    entries = [kernels.run_restart, kernels.assign_rows, kernels.survey_rows, kernels.cover_rows]
    before = [len(entry.signatures) for entry in entries]
    found = quantized.search(np.load(tmp_path / "x.npy", mmap_mode="r"), 3, backend=NO_PASS_IS_SHORT, max_iter=5)
    same(found, quantized.search(X, 3, backend="numpy", max_iter=5))
    assert [len(entry.signatures) for entry in entries] == before


def test_long_traces_are_made_pass_by_pass(iris, monkeypatch):
    whole = quantized.search(iris, 3, max_iter=30, backend="numba")
    monkeypatch.setattr(numba_restarts, "STATE_BYTES", 10)
    same(quantized.search(iris, 3, max_iter=30, backend="numba"), whole)


def test_a_restart_goes_on_where_a_slice_ended(iris, monkeypatch):
    whole = QuantizedTabuKMeans(3, init="random", n_init=4, random_state=0, backend="numba").fit(iris)
    monkeypatch.setattr(numba_restarts, "SLICE", 1)
    sliced = QuantizedTabuKMeans(3, init="random", n_init=4, random_state=0, backend="numba").fit(iris)
    np.testing.assert_array_equal(whole.trace_.current, sliced.trace_.current)


def test_once_interrupted_every_restart_has_a_first_result(iris):
    with NumbaBackend(Points.of(iris)) as opened:
        means = np.array([[0, 60, 120], [1, 2, 3]])
        orders = numba_restarts.QuantizedSettings(50, 20, -1.0, False, 1, Monitor(max_time=0))
        found = numba_restarts.explore(opened, means, orders)
    assert found is not None
    np.testing.assert_array_equal(found.means, means)
    assert found.current.shape == (2, 1)
    assert found.stop == [None, None]


def test_threads_follow_omp_and_numba(monkeypatch):
    points = Points.of([[1.0], [2.0], [3.0]])
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert NumbaBackend(points).workers.threads == 1
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setattr(numba_ops.config, "NUMBA_NUM_THREADS", 1)
    assert NumbaBackend(points).workers.threads == 1


def fit_in_child(queue):
    queue.put(KMeans(3, random_state=0, backend="numba").fit(blobs(4000, 5, 3)).inertia_)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_after_a_fit_is_safe():
    ours = KMeans(3, random_state=0, backend="numba").fit(blobs(4000, 5, 3)).inertia_
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=fit_in_child, args=(queue,))
    child.start()
    assert queue.get(timeout=120) == ours
    child.join(timeout=60)
    assert child.exitcode == 0


def test_compilation_is_said_once(caplog):
    announcer = numba_ops._Announcer()
    ours = SimpleNamespace(data={"dispatcher": SimpleNamespace(py_func=kernels.assign_rows.py_func)})
    other = SimpleNamespace(data={"dispatcher": SimpleNamespace(py_func=len_of)})
    with caplog.at_level(logging.INFO, "gputabu"):
        announcer.on_start(other)
        announcer.on_start(ours)
        announcer.on_start(ours)
    assert [record.message[:9] for record in caplog.records] == ["compiling"]


def len_of(x):
    return len(x)


def test_code_is_compiled_where_nothing_can_be_kept(monkeypatch):
    def refuse(cache=False, **options):
        if cache:
            raise RuntimeError("cannot cache function: no locator available")
        return lambda function: function

    monkeypatch.setattr(kernels, "njit", refuse)
    assert kernels.compiled(len_of) is len_of
