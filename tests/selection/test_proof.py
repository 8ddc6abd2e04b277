"""`certify`: what it returns, when it ends, and what it says to a wrong use; small cases are proven."""

from __future__ import annotations

import json
import signal
import threading
from decimal import ROUND_CEILING, ROUND_FLOOR
from fractions import Fraction

import numpy as np
import pytest
from matplotlib.figure import Figure
from optima import exact, optimum_on_a_line

import gputabu
from gputabu import KMeans, TabuKMeans, certify
from gputabu.algorithms import progress_bar
from gputabu.selection.proof import parts
from gputabu.selection.proof.admm import Admm
from gputabu.selection.proof.certificate import rounded


@pytest.fixture
def hard():
    """Points without clusters, and labels: seconds of work."""
    X = np.random.default_rng(0).random((120, 2))
    return X, TabuKMeans(7, random_state=0).fit(X).labels_


@pytest.mark.parametrize(("seed", "k"), [(0, 2), (1, 3), (2, 5)])
def test_on_a_line(seed, k):
    x = np.sort(np.random.default_rng(seed).integers(0, 1000, 30))
    X = x[:, None].astype(float)
    best, _ = optimum_on_a_line(x.tolist(), [1] * 30, k)
    found = certify(X, TabuKMeans(k, random_state=0).fit(X))
    assert Fraction(found.lower_bound) <= best
    assert found.gap < 0.01


@pytest.mark.data
@pytest.mark.parametrize(("name", "k"), [("iris", 3), ("bavaria1", 5), ("glass", 6)])
def test_paper_cases_are_proven(name, k):
    X = gputabu.datasets.load(name).points
    model = TabuKMeans(k, random_state=0, n_init=3).fit(X)
    found = model.certify(X)
    assert found.optimal and Fraction(found.lower_bound) <= exact(X, np.ones(len(X)), model.labels_.tolist())
    assert "Proven optimal to 0.001 %" in str(found)


def test_better_clusterings_are_found():
    X = np.concatenate([np.random.default_rng(i).normal(10 * i, 0.1, (8, 2)) for i in range(3)])
    poor = np.r_[np.zeros(8, int), np.zeros(8, int), np.ones(4, int), np.full(4, 2)]
    found = certify(X, poor)
    assert found.optimal and found.labels is not None and "It is better than the one given: see labels." in str(found)
    assert found.inertia < 10 and found.plain()["better_clustering_found"]
    assert found.inertia == pytest.approx(float(exact(X, np.ones(24), found.labels.tolist())))
    assert certify(X, found.labels).labels is None


def test_parts_look_like_the_whole():
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), 60)
    X = 20.0 * labels[:, None] + rng.standard_normal((240, 2))
    dealt = parts.deal(X, np.ones(240), labels, 4)
    assert all((np.bincount(labels[dealt == part]) == 15).all() for part in range(4))
    found = certify(X, labels, parts=4, max_time=20)
    assert found.gap < 1e-3 and "4 parts" in found.method and len(found.history) == 4
    assert found.lower_bound < certify(X, labels).lower_bound


def test_many_parts_are_dealt_in_groups():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3, 1500)
    X = 20.0 * labels[:, None] + rng.standard_normal((1500, 2))
    dealt = parts.deal(X, np.ones(1500), labels, 150)
    sizes = np.bincount(dealt)
    assert len(sizes) == 150 and sizes.min() >= 7 and sizes.max() <= 13


def test_ten_thousand_points():
    """As many as are seldom clustered with a proof; the parts need less than the memory of one N×N matrix."""
    rng = np.random.default_rng(0)
    labels = np.repeat(np.arange(4), 2500)
    X = 20.0 * np.eye(4)[labels] + rng.standard_normal((10_000, 4))
    found = certify(X, labels, parts=25)
    assert found.gap < 1e-3 and found.stop == "the bound rises no more"


def test_wrong_uses_are_explained():
    X = np.random.default_rng(0).random((30, 2))
    model = KMeans(3, random_state=0).fit(X)
    for data, clustering, options, message in [
        (X[:20], model, {}, "labels of shape .30,., but X has 20 points: other data"),
        (10 * X, model, {}, "it is of other data, other weights or another scale"),
        (np.c_[X, X], model, {}, "X has 4 features, but the clustering has 2"),
        (np.where(X > 0.9, np.nan, X), model.labels_, {}, r"NaN|nan|finite"),
        (np.zeros((10**6, 1)), np.zeros(10**6, int), {"max_time": 1}, "max_time=1 is too short .* give it about"),
        (X, X[:, 0], {}, "Labels must be integers from 0 on"),
        (X, model.labels_ - 1, {}, "Labels must be integers from 0 on"),
        (X, KMeans(3), {}, "fit it first"),
        (X, model, {"parts": 31}, "parts=31"),
        (X, model, {"max_time": -1}, "max_time=-1"),
        (X, model, {"tolerance": np.nan}, "tolerance=nan"),
        (X, model, {"n_clusters": 2}, "n_clusters=2"),
        (X, model, {"backend": "tpu"}, "backend='tpu'"),
        (X, model, {"sample_weight": np.arange(30)}, "other weights"),
    ]:
        with pytest.raises(ValueError, match=message):
            certify(data, clustering, **options)


def test_one_cluster_and_as_many_as_points():
    X = np.random.default_rng(0).random((30, 2))
    one = certify(X, np.zeros(30, int))
    assert one.optimal and Fraction(one.lower_bound) <= exact(X, np.ones(30), [0] * 30) and one.gap < 1e-12
    assert str(certify(X, np.arange(30))) == "Proven optimal: J is 0."
    assert certify(np.zeros((5, 1)), np.zeros(5, int), n_clusters=3).optimal
    assert certify(X, np.zeros(30, int), n_clusters=2).lower_bound < one.lower_bound


def test_a_j_too_small_for_float64_is_not_0():
    x = np.array([0.0, 1.0, 2.0, 7.0])[:, None]
    for tiny in (1e-200 * x, np.r_[1e-200 * x, [[1.0]]]):
        poor = certify(tiny, np.array([0, 1, 1, 1, 2][: len(tiny)]), max_time=0.1)
        assert not poor.optimal and poor.lower_bound == 0 and poor.inertia > 0


def test_the_time_is_kept(hard):
    found = certify(*hard, max_time=0.2, parts=1)
    assert found.stop == "the time ran out" and not found.optimal and found.seconds >= 0.2
    assert 0 < found.lower_bound < found.inertia and " better is possible: no clustering into 7 has" in str(found)
    for many in (1, 2):
        assert 0 <= certify(*hard, max_time=0.01, parts=many).lower_bound < found.inertia
    none = certify(*hard, max_time=0.0, parts=40)
    assert none.lower_bound == 0 and str(none).startswith("Nothing was proven (semi")


@pytest.fixture
def default_handler():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.parametrize("many", [1, 3])
def test_ctrl_c_returns_the_best_so_far(hard, monkeypatch, default_handler, many):
    """The first one. With several parts, another thread may be the one that works."""
    iterate, done = Admm.iterate, []

    def interrupted(self):
        iterate(self)
        done.append(threading.current_thread())
        if len(done) == 70:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Admm, "iterate", interrupted)
    found = certify(*hard, max_time=600, parts=many)
    assert found.stop == "interrupted; this is the best bound so far" and len(done) < 300
    assert 0 < found.lower_bound < found.inertia
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_the_second_ctrl_c_interrupts(hard, monkeypatch, default_handler):
    iterate = Admm.iterate

    def interrupted(self):
        iterate(self)
        signal.raise_signal(signal.SIGINT)
        signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Admm, "iterate", interrupted)
    with pytest.raises(KeyboardInterrupt):
        certify(*hard)


def test_progress(hard, monkeypatch, capsys):
    monkeypatch.setattr(progress_bar, "LINE_INTERVAL", 0.0)
    certify(*hard, max_time=0.5, progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) > 1 and all(line.startswith("gputabu: bound ") and " left" in line for line in lines)
    certify(*hard, max_time=0.1)
    assert capsys.readouterr().err == ""


def test_bounds_rise(hard):
    found = certify(*hard, max_time=1)
    seconds, bounds, inertias = found.history.T
    assert (np.diff(seconds) >= 0).all() and (np.diff(bounds) >= 0).all() and (np.diff(inertias) <= 0).all()
    assert bounds[-1] == found.lower_bound and inertias[-1] == found.inertia


def test_plot():
    found = certify(np.arange(9.0)[:, None], np.arange(9) // 3)
    ax = found.plot(Figure().subplots())
    assert ax.get_title("left").startswith("Gap")
    drawn = {line.get_label(): line.get_ydata()[-1] for line in ax.get_lines()}
    assert drawn == {"J": found.inertia, "lower bound": found.lower_bound}


def test_the_numbers_are_plain():
    told = json.loads(json.dumps(certify(np.arange(9.0)[:, None], np.arange(9) // 3).plain()))
    assert told["optimal"] and told["n_clusters"] == 3 and told["inertia"] == 6.0 and told["lower_bound"] <= 6.0


def test_what_is_printed_is_true():
    """A bound is rounded down and a gap up."""
    assert rounded(1.99999999999, 10, ROUND_FLOOR) == "1.999999999" and rounded(0.2401, 2, ROUND_CEILING) == "0.25"
    assert rounded(1.23456789019e300, 10, ROUND_FLOOR) == "1.23456789e+300"


def test_weights_and_duplicates_are_the_same():
    X = np.random.default_rng(0).random((12, 2))
    weights = np.array([1, 2, 3] * 4)
    labels = KMeans(3, random_state=0).fit(X, sample_weight=weights).labels_
    one = certify(X, labels, sample_weight=weights)
    many = certify(np.repeat(X, weights, axis=0), np.repeat(labels, weights))
    assert one.inertia == pytest.approx(many.inertia) and one.lower_bound == pytest.approx(many.lower_bound, rel=1e-3)
    none = certify(np.r_[X, [[9.0, 9.0]]], np.r_[labels, 0], sample_weight=np.r_[weights, 0])  # of no weight
    assert none.inertia == pytest.approx(one.inertia) and none.gap == pytest.approx(one.gap, abs=1e-3)


@pytest.mark.parametrize("backend", ["numpy", pytest.param("cuda", marks=[pytest.mark.gpu, pytest.mark.one_device])])
def test_backends(backend):
    X = np.random.default_rng(0).random((24, 2))
    found = certify(X, TabuKMeans(3, random_state=0).fit(X), backend=backend, max_time=2)
    assert found.gap < 0.1


def test_a_gpu_that_is_not_there(monkeypatch):
    monkeypatch.setattr("gputabu.backend.cuda_unusable", lambda: "CuPy is not installed.")
    with pytest.raises(gputabu.BackendUnavailable, match="CuPy is not installed"):
        certify(np.arange(9.0)[:, None], np.arange(9) // 3, backend="cuda")
