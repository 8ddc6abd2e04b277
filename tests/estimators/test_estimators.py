"""The estimators keep scikit-learn's contract, and what they store is consistent."""

from __future__ import annotations

import logging
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from functools import partial

import numpy as np
import pandas as pd
import pytest
import sklearn.cluster
from conftest import blobs
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from gputabu import (
    FuzzyCMeans,
    GMeans,
    KMeans,
    QuantizedTabuKMeans,
    Stop,
    TabuAutoClustering,
    TabuFuzzyCMeans,
    TabuKMeans,
    TabuSearchClustering,
)

MODELS = [TabuKMeans, QuantizedTabuKMeans, KMeans]
#: Few iterations: they are made in full, and K-Means follows.
BRIEF = pytest.param(partial(TabuSearchClustering, max_iter=30), id="TabuSearchClustering")


def exemptions(estimator) -> dict[str, str]:
    """Checks that scikit-learn's own KMeans is excused from, and for the same reason."""
    reason = "draws are addressed by row, so weighted and repeated rows in another order begin elsewhere"
    return {"check_sample_weight_equivalence_on_dense_data": reason}


@parametrize_with_checks(
    [
        TabuKMeans(max_iter=30),
        QuantizedTabuKMeans(3, max_iter=30, n_init=2),
        TabuSearchClustering(max_iter=30),
        TabuSearchClustering(3, refine=None, max_iter=150),
        TabuSearchClustering(3, improve="hartigan", modes=("threshold", "mutation", "divide"), max_iter=9, n_init=2),
        TabuSearchClustering(3, improve="kmeans", packing=True, refine=None, max_iter=3, n_init=1),
        TabuAutoClustering(max_iter=5),
        TabuAutoClustering(index="davies_bouldin", k_max=4, max_iter=2),
        KMeans(),
        KMeans(3, init="random"),
        GMeans(),
        FuzzyCMeans(),
        FuzzyCMeans(3, m=1.3, init="random"),
        TabuFuzzyCMeans(3, max_iter=3),
        GMeans(min_size=8, alpha=0.09),
    ],
    expected_failed_checks=exemptions,
)
@pytest.mark.filterwarnings("default")
def test_scikit_learns_own_checks(estimator, check):
    check(estimator)


def test_scikit_learn_excuses_its_own_kmeans_from_the_same():
    instances = pytest.importorskip("sklearn.utils._test_common.instance_generator")
    excused = instances.PER_ESTIMATOR_XFAIL_CHECKS[sklearn.cluster.KMeans]
    assert set(exemptions(None)) <= set(excused)


@pytest.mark.parametrize("model", [*MODELS, BRIEF])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.one_device
def test_what_is_stored_is_consistent(model, dtype, weighted, backend):
    X = blobs(400, 3, 5, dtype=dtype)
    weights = np.random.default_rng(0).random(len(X)) if weighted else None
    fitted = model(5, random_state=0, n_init=3, backend=backend).fit(X, sample_weight=weights)
    np.testing.assert_array_equal(fitted.labels_, fitted.predict(X))
    assert fitted.inertia_ == -fitted.score(X, sample_weight=weights)
    assert fitted.inertia_ == fitted.inertias_.min()
    assert fitted.labels_.dtype == np.int32
    assert fitted.cluster_centers_.dtype == dtype
    assert fitted.cluster_centers_.shape == (5, 3)
    distances = fitted.transform(X)
    assert distances.dtype == dtype
    np.testing.assert_array_equal(distances.argmin(axis=1), fitted.labels_)
    np.testing.assert_allclose(
        distances, np.sqrt(((X[:, None].astype(float) - fitted.cluster_centers_) ** 2).sum(axis=2)), rtol=1e-5
    )
    assert (fitted.backend_, fitted.trace_.n_restarts) == (backend, 3)
    assert isinstance(fitted.stop_, Stop)
    assert fitted.n_iter_ == fitted.trace_.n_iter[fitted.inertias_.argmin()]


def test_quantized_means_are_rows(iris, backend):
    fitted = QuantizedTabuKMeans(3, n_init=1, random_state=0, backend=backend).fit(iris)
    assert fitted.center_indices_.shape == (3,)
    assert ((fitted.center_indices_ >= 0) & (fitted.center_indices_ < 150)).all()
    assert fitted.trace_.means.shape == (1, fitted.n_iter_ + 1, 3)
    at = fitted.trace_.current[0].argmin()
    np.testing.assert_array_equal(fitted.trace_.means[0, at], fitted.center_indices_)


@pytest.mark.parametrize("model", [*MODELS, BRIEF])
def test_clone_and_pickle(model, iris):
    fitted = model(3, random_state=1).fit(iris)
    again = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(again.predict(iris), fitted.labels_)
    assert again.stop_ is fitted.stop_
    refit = clone(fitted).fit(iris)
    np.testing.assert_array_equal(refit.labels_, fitted.labels_)
    assert clone(fitted).get_params() == fitted.get_params()


@pytest.mark.parametrize("model", MODELS)
def test_frames_in_and_out(model, iris):
    frame = pd.DataFrame(iris, columns=list("abcd"), index=np.arange(150) + 7)
    fitted = model(3, random_state=0).set_output(transform="pandas").fit(frame)
    out = fitted.transform(frame)
    assert list(out.columns) == [f"{model.__name__.lower()}{k}" for k in range(3)]
    assert (out.index == frame.index).all()
    assert list(fitted.feature_names_in_) == list("abcd")
    with pytest.raises(ValueError, match="feature names"):
        fitted.predict(frame.rename(columns={"a": "z"}))
    assert make_pipeline(StandardScaler(), model(2, random_state=0)).fit_predict(frame).shape == (150,)


@pytest.mark.parametrize("model", MODELS)
def test_callers_arrays_are_untouched(model, iris):
    weights, start = np.ones(150) * 0.5, iris[:3].copy()
    for X in (iris.copy(), np.asfortranarray(iris), iris[::-1], np.repeat(iris, 2, axis=1)[:, ::2]):
        before = X.copy(), weights.copy(), start.copy()
        X.flags.writeable = weights.flags.writeable = start.flags.writeable = False
        fitted = model(3, init=start).fit(X, sample_weight=weights)
        fitted.predict(X), fitted.transform(X), fitted.score(X)
        for array, copy in zip((X, weights, start), before, strict=True):
            np.testing.assert_array_equal(array, copy)
        reference = model(3, init=start).fit(np.ascontiguousarray(X), sample_weight=weights)
        np.testing.assert_array_equal(fitted.labels_, reference.labels_)


@pytest.mark.trap(14)
@pytest.mark.parametrize("model", [*MODELS, BRIEF])
def test_random_state(model, iris):
    def run(state):
        return model(5, random_state=state, init="random", n_init=1).fit(iris).trace_.current

    np.testing.assert_array_equal(run(3), run(3))
    assert not np.array_equal(run(3)[:, 0], run(4)[:, 0])
    np.testing.assert_array_equal(run(np.random.RandomState(3)), run(np.random.RandomState(3)))
    np.testing.assert_array_equal(run(np.random.default_rng(3)), run(np.random.default_rng(3)))
    before = np.random.get_state()[1].copy()  # noqa: NPY002
    run(3)
    np.testing.assert_array_equal(before, np.random.get_state()[1])  # noqa: NPY002 (nobody's generator moves)


@pytest.mark.parametrize("model", MODELS)
def test_n_init(model, iris):
    assert model(3, random_state=0, init="k-means++").fit(iris).trace_.n_restarts == 1
    assert model(3, random_state=0, init="random").fit(iris).trace_.n_restarts == 10
    with pytest.warns(RuntimeWarning, match="n_init=4"):
        assert model(3, init=[0, 1, 2], n_init=4).fit(iris).trace_.n_restarts == 1


def test_n_init_of_labels_that_are_given(iris):
    """Restarts from the same labels are not the same, so that there is nothing to warn of."""
    model = TabuSearchClustering(3, init=np.arange(150) % 3, max_iter=5)
    assert model.fit(iris).trace_.n_restarts == 1
    assert model.set_params(n_init=4).fit(iris).trace_.n_restarts == 4
    assert model.set_params(n_init="auto", init="random").fit(iris).trace_.n_restarts == 10


@pytest.mark.parametrize("model", [*MODELS, BRIEF])
def test_corners(model, backend):
    one = model(1, backend=backend).fit([[3.0, 4.0]])
    assert (one.inertia_, one.labels_.tolist(), one.cluster_centers_.tolist()) == (0.0, [0], [[3.0, 4.0]])
    X = np.arange(6.0)[:, None]
    every = model(6, random_state=0, backend=backend).fit(X)
    assert sorted(every.labels_.tolist()) == [0, 1, 2, 3, 4, 5]
    assert every.inertia_ == 0
    with pytest.warns(ConvergenceWarning, match=r"distinct clusters \(1\) found smaller than n_clusters \(2\)"):
        flat = model(2, backend=backend).fit(np.ones((5, 2)))
    assert flat.inertia_ == 0
    with pytest.raises(NotFittedError):
        model(2).predict(X)
    with pytest.raises(ValueError, match="2 features"):
        every.predict([[1.0, 2.0]])


@pytest.mark.parametrize("model", [*MODELS, BRIEF])
@pytest.mark.one_device
def test_constant_features_and_wild_scales(model, backend):
    X = blobs(200, 3, 3)
    plain = model(3, random_state=0, backend=backend).fit(X)
    flat = model(3, random_state=0, backend=backend).fit(np.c_[X, np.full(200, 1e6)])
    np.testing.assert_array_equal(plain.labels_, flat.labels_)
    scaled = model(3, random_state=0, backend=backend).fit(X * 2.0**60)
    np.testing.assert_array_equal(plain.labels_, scaled.labels_)
    assert scaled.inertia_ == plain.inertia_ * 2.0**120


def test_the_course_is_logged(iris, caplog):
    with caplog.at_level(logging.INFO, logger="gputabu"):
        QuantizedTabuKMeans(3, random_state=0, max_iter=20).fit(iris)
    assert "restarts 0 to 9: J from 78.85" in caplog.text


@pytest.mark.parametrize(("verbose", "lines"), [(0, 0), (1, 2), (2, 22)])
def test_verbose_in_a_program_that_configures_nothing(verbose, lines):
    code = f"""
from sklearn.datasets import load_iris
from gputabu import QuantizedTabuKMeans
X = load_iris().data
QuantizedTabuKMeans(3, random_state=0, max_iter=20, patience=20, verbose={verbose}, backend="numpy").fit(X)
QuantizedTabuKMeans(3, random_state=0, max_iter=20, backend="numpy").fit(X)
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == ""
    said = [line for line in ran.stderr.splitlines() if "K-Means iteration" not in line]
    assert len(said) == lines


@pytest.mark.parametrize("model", [*MODELS, BRIEF])
@pytest.mark.filterwarnings("ignore:Number of distinct clusters")  # so early, some may be empty
def test_ctrl_c_keeps_the_best_so_far(model):
    X = blobs(30_000, 8, 30, seed=2)
    before = signal.getsignal(signal.SIGINT)

    def press():
        while signal.getsignal(signal.SIGINT) is before:  # until the search has begun
            time.sleep(0.001)
        time.sleep(0.05)
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=press)
    thread.start()
    fitted = model(40, init="random", n_init=50, max_iter=100_000, random_state=0)
    if model is QuantizedTabuKMeans:
        fitted.patience = 100_000
    fitted.fit(X)
    thread.join()
    assert fitted.stop_ is Stop.INTERRUPTED
    assert "interrupted" in str(fitted.stop_)
    np.testing.assert_array_equal(fitted.labels_, fitted.predict(X))
    assert fitted.inertia_ == -fitted.score(X)
    assert signal.getsignal(signal.SIGINT) is before


def test_a_second_ctrl_c_interrupts(iris):
    from gputabu.core.interrupts import Interrupts

    with Interrupts() as interrupts:
        signal.raise_signal(signal.SIGINT)
        assert interrupts.asked
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_fits_in_threads_agree(iris):
    reference = QuantizedTabuKMeans(4, random_state=0, max_iter=40).fit(iris)
    found = {}

    def run(i):
        found[i] = QuantizedTabuKMeans(4, random_state=0, max_iter=40).fit(iris)

    threads = [threading.Thread(target=run, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for fitted in found.values():
        np.testing.assert_array_equal(fitted.trace_.current, reference.trace_.current)
    assert len(found) == 4


@pytest.mark.parametrize("model", [*MODELS, BRIEF])
def test_representation_in_a_notebook(model, iris):
    estimator = model(3, random_state=0)
    for _ in range(2):  # not fitted, and fitted
        html = estimator._repr_html_()
        assert "n_clusters" in html and "progress" in html
        assert "href" not in html  # there are no pages to link to
        estimator.fit(iris)
    assert estimator._get_doc_link() == ""


def stop_at_two(info):
    return info.phase == "search" and info.iteration == 2


@pytest.mark.parametrize("model", [*MODELS, BRIEF])
def test_callbacks_are_cloned_and_pickled(model, iris):
    fitted = model(4, init="random", n_init=2, random_state=0, callback=stop_at_two).fit(iris)
    assert fitted.stop_ is Stop.CALLBACK and fitted.n_iter_ == 2
    again = pickle.loads(pickle.dumps(clone(fitted).fit(iris)))
    assert again.callback is stop_at_two
    np.testing.assert_array_equal(again.labels_, fitted.labels_)
