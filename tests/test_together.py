"""Many fits at once: threads, processes, forks, streams, joblib. Each has the bits that it has alone."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import tally
from conftest import blobs
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV
from threadpoolctl import threadpool_info, threadpool_limits

from gputabu import KMeans, QuantizedTabuKMeans, TabuKMeans, TabuSearchClustering, select_k
from gputabu.backend.numpy import threads as workers
from gputabu.backend.numpy.threads import thread_count

X = blobs(90, 3, 4)
MODELS = [
    QuantizedTabuKMeans(4, max_iter=15, n_init=2, random_state=3),
    TabuKMeans(4, max_iter=8, random_state=3),
    KMeans(5, n_init=3, random_state=3, refine="hartigan"),
    TabuSearchClustering(3, max_iter=10, random_state=3),
]


def bits(model) -> bytes:
    """All that a fit has found."""
    return b"".join([model.labels_.tobytes(), model.cluster_centers_.tobytes(), model.trace_.current.tobytes()])


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_threads(model, backend):
    model = clone(model).set_params(backend=backend)
    alone = bits(clone(model).fit(X))
    before = threading.active_count(), threadpool_info()
    times = tally.trials(2 if backend == "cuda" else 4)
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: bits(clone(model).fit(X)), range(times)):
            assert found == alone
            tally.tried("fits in threads beside each other")
    assert (threading.active_count(), threadpool_info()) == before


def test_blas_gets_its_threads_back_from_whichever_fit_ends_last():
    """threadpoolctl 3.8 lets only the thread restore them that took them."""

    def threads() -> set[int]:
        return {pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}

    def first() -> None:
        workers._BLAS.hold()
        held.set()
        ended.wait()

    held, ended = threading.Event(), threading.Event()
    other = threading.Thread(target=first)
    with threadpool_limits(3, "blas"):
        workers._release_control()
        before = threads()
        other.start()
        held.wait()
        assert threads() == {1}
        workers._BLAS.release()
        assert threads() == before
        ended.set()
        other.join()


@pytest.mark.gpu
def test_streams_share_a_device():
    import cupy

    model = clone(MODELS[0]).set_params(backend="cuda")
    alone, device_X = bits(clone(model).fit(X)), cupy.asarray(X)
    cupy.cuda.Device().synchronize()  # other streams do not wait for the copy

    def on_a_stream(number):
        with cupy.cuda.Stream(non_blocking=True):
            found = clone(model).fit(device_X if number % 2 else X)
            held = [found.labels_, found.cluster_centers_]
            labels, centers = [array.get() if number % 2 else array for array in held]
        return labels.tobytes() + centers.tobytes() + found.trace_.current.tobytes()

    with ThreadPoolExecutor(3) as pool:
        for found in pool.map(on_a_stream, range(tally.trials(4))):
            assert found == alone
            tally.tried("fits on streams of one device")


FORKED = """
import multiprocessing, sys, threading
import numpy as np
from test_together import MODELS, X, bits, clone, threadpool_info

backend, trials = sys.argv[1], int(sys.argv[2])
models = [clone(model).set_params(backend=backend) for model in MODELS]

def work(number):
    return bits(clone(models[number % len(models)]).fit(X)), sorted(pool["num_threads"] for pool in threadpool_info())

if __name__ == "__main__":
    expected = [work(number) for number in range(len(models))]
    stop = threading.Event()
    def go_on():
        while not stop.is_set():
            work(0)
    busy = threading.Thread(target=go_on)  # a fork must find no lock that this one holds
    busy.start()
    for _ in range(max(1, trials // 8)):
        with multiprocessing.get_context("fork").Pool(2) as pool:
            found = pool.map_async(work, range(8)).get(timeout=600)
        assert all(bits == expected[number % len(models)][0] for number, (bits, _) in enumerate(found))
        assert all(threads == expected[0][1] for _, threads in found)  # BLAS has those that it had before the fit
        print("held", flush=True)
    stop.set()
    busy.join()
"""


@pytest.mark.parametrize("backend", ["numpy", pytest.param("numba", marks=pytest.mark.numba)])
def test_processes(backend, tmp_path):
    """Forked in the middle of another thread's fit. That processes begun anew hold too, joblib's show below."""
    script = tmp_path / "forked.py"
    script.write_text(FORKED)
    run = [sys.executable, "-W", "ignore::DeprecationWarning", str(script), backend, str(tally.trials(8))]
    here = os.environ | {"PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run(run, capture_output=True, text=True, env=here)
    assert done.returncode == 0, done.stderr
    tally.tried("fits in processes beside each other", 8 * done.stdout.count("held"))


def state() -> tuple:
    """What programs may have set, and nobody else may touch."""
    generator = np.random.get_state()  # noqa: NPY002
    return (random.getstate(), generator[1].tobytes(), *generator[2:], np.geterr(), os.environ.copy(), os.getcwd())


@pytest.mark.parametrize("model", MODELS, ids=repr)
def test_nobodys_generator_is_touched(model, backend):
    before = state()
    found = clone(model).set_params(backend=backend).fit(X)
    found.predict(X), found.transform(X), found.score(X)
    assert state() == before
    tally.tried("global states left alone")


def test_select_k_touches_no_generator():
    before = state()
    select_k(X, [2, 3], ["gap", "silhouette"], seed=0)
    assert state() == before
    tally.tried("global states left alone")


def test_a_generator_that_is_passed_is_drawn_from_and_not_reseeded():
    """As in scikit-learn: None is NumPy's global one."""
    for make in (np.random.RandomState, np.random.default_rng):
        mine, twin = make(5), make(5)
        found = KMeans(3, random_state=mine).fit(X)
        assert bits(found) == bits(KMeans(3, random_state=twin).fit(X))
        assert mine.normal() == twin.normal()
    np.random.seed(5)  # noqa: NPY002
    first = bits(KMeans(3).fit(X)), np.random.normal()  # noqa: NPY002
    np.random.seed(5)  # noqa: NPY002
    assert (bits(KMeans(3).fit(X)), np.random.normal()) == first  # noqa: NPY002


def threads_wanted(model, points, y=None) -> float:
    """A score that is the number of threads that a fit takes in this process."""
    return float(thread_count())


@pytest.mark.parametrize("backend", ["numpy", pytest.param("numba", marks=pytest.mark.numba)])
def test_grid_searches_share_the_cores(backend):
    grid = {"n_clusters": [2, 3], "random_state": list(range(tally.trials(2)))}
    model = QuantizedTabuKMeans(max_iter=10, backend=backend)
    plain, shared = (GridSearchCV(model, grid, cv=2, n_jobs=jobs).fit(X) for jobs in (1, 2))
    for name in ("split0_test_score", "split1_test_score"):
        np.testing.assert_array_equal(plain.cv_results_[name], shared.cv_results_[name])
    assert bits(plain.best_estimator_) == bits(shared.best_estimator_)
    tally.tried("fits within joblib", 2 * len(plain.cv_results_["params"]))
    counted = GridSearchCV(model, grid, cv=2, n_jobs=2, scoring=threads_wanted, refit=False).fit(X).cv_results_
    assert 2 * counted["mean_test_score"].max() <= max(2, thread_count())
