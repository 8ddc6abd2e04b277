"""select_k finds the K of separated blobs, with the same bits everywhere, and stays sensible at the edges."""

from __future__ import annotations

import os
import signal
from dataclasses import replace

import numpy as np
import pytest
from conftest import blobs
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.datasets import make_blobs

from gputabu import Points, lloyd, select_k
from gputabu.selection import select_k as selection
from gputabu.selection import sweep
from gputabu.selection.criteria import LARGEST_IS_BEST

EVERYTHING = tuple(LARGEST_IS_BEST)


def separated(k: int, d: int, seed: int, size: int = 60) -> np.ndarray:
    """k standard Gaussians whose centres are at least 6 apart, of between half and one and a half times `size`."""
    rng = np.random.default_rng([k, d, seed])
    centers = np.empty((0, d))
    while len(centers) < k:
        new = rng.uniform(0, 12 * k ** (1 / d), d)
        if ((centers - new) ** 2).sum(axis=1).min(initial=np.inf) >= 36:
            centers = np.vstack([centers, new])
    sizes = rng.integers(size // 2, 3 * size // 2, k)
    return np.concatenate([c + rng.normal(size=(n, d)) for c, n in zip(centers, sizes, strict=True)])


def equal(a, b) -> None:
    assert (a.n_clusters, a.criterion, a.recommended) == (b.n_clusters, b.criterion, b.recommended)
    assert a.table.keys() == b.table.keys()
    for name in a.table:
        np.testing.assert_array_equal(a.table[name], b.table[name], name)
    np.testing.assert_array_equal(a.labels, b.labels)
    for k in a.centers:
        np.testing.assert_array_equal(a.centers[k], b.centers[k])


def test_five_points_by_hand():
    found = select_k([[0.0], [1.0], [10.0], [11.0], [10.5]], [1, 2, 3], restarts=5)
    assert found.n_clusters == 2
    assert found.table["inertia"].tolist() == [121.0, 1.0, 0.5]
    assert found.best.inertia == 1.0
    assert sorted(found.centers[2].ravel().tolist()) == [0.5, 10.5]
    assert found.labels.tolist() == found.best.labels.tolist()


@pytest.mark.parametrize("k", [2, 3, 5, 8, 12])
@pytest.mark.parametrize("d", [2, 5, 10])
def test_recovers_k(k, d):
    """The whole table, 20 seeds per K and d, is printed by benchmarks/selection.py."""
    for seed in range(3):
        found = select_k(separated(k, d, seed), range(1, 16), seed=seed)
        assert found.n_clusters == k
        assert (np.diff(found.table["inertia"]) < 0).all()


@pytest.mark.parametrize("criterion", EVERYTHING)
def test_every_criterion_recovers_k(criterion):
    found = select_k(separated(4, 3, 1), range(1, 8), criterion, references=4)
    assert (found.n_clusters, found.criterion, found.asked) == (4, criterion, (criterion,))
    assert ("silhouette" in found.table) == (criterion == "silhouette")
    assert ("gap" in found.table) == (criterion == "gap")


def test_one_cluster_is_found_by_those_that_can():
    X = np.random.default_rng(0).normal(size=(400, 3))
    found = select_k(X, range(1, 6), EVERYTHING, references=5)
    assert [found.recommended[name] for name in ("bic", "aic", "gap")] == [1, 1, 1]
    for name in ("silhouette", "calinski_harabasz", "davies_bouldin"):
        assert np.isnan(found.table[name][0])
        assert found.recommended[name] > 1


def test_is_as_good_as_kmeans_from_many_starts():
    X = blobs(600, 4, 9, seed=2)
    found = select_k(X, range(1, 13))
    best = np.array([lloyd.run(X, k, restarts=20).inertia for k in range(1, 13)])
    assert (found.table["inertia"] <= best * 1.02).all()


def test_tabu_is_no_worse(iris):
    plain, searched = (select_k(iris, range(2, 6), method=method) for method in ("k-means", "tabu"))
    assert (searched.table["inertia"] <= plain.table["inertia"] * (1 + 1e-12)).all()
    assert searched.best.center_indices is None or len(searched.best.center_indices) == searched.n_clusters


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_returned_is_consistent(dtype):
    X = blobs(500, 3, 4, seed=9, dtype=dtype)
    found = select_k(X, [7, 2, 4, 4])
    assert found.table["n_clusters"].tolist() == [2, 4, 7]
    assert {k: c.shape for k, c in found.centers.items()} == {2: (2, 3), 4: (4, 3), 7: (7, 3)}
    assert found.best.centers is found.centers[found.n_clusters]
    assert found.best.centers.dtype == dtype
    row = found.table["n_clusters"].tolist().index(found.n_clusters)
    assert found.table["inertia"][row] == found.best.inertia
    direct = ((X - found.best.centers[found.labels].astype(float)) ** 2).sum()
    assert direct == pytest.approx(found.best.inertia, rel=1e-9)
    assert not found.interrupted


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_same_bits_everywhere(dtype, weighted, backend, monkeypatch):
    monkeypatch.setattr(selection, "SAMPLE", 50)
    X = blobs(150, 3, 3, seed=4, dtype=dtype)
    weights = np.random.default_rng(0).integers(0, 4, len(X)) if weighted else None
    options = {"ks": [1, 2, 3, 5], "criterion": EVERYTHING, "references": 2, "restarts": 2, "seed": 3}
    whole = select_k(X, weights=weights, backend="numpy", **options)
    equal(whole, select_k(X, weights=weights, backend=backend, **options))
    equal(whole, select_k(Points.of(X, weights, 37), backend=backend, **options))


def test_tabu_on_every_backend(backend):
    X = blobs(60, 2, 3, seed=4)
    options = {"ks": [2, 3], "method": "tabu"}
    equal(select_k(X, backend="numpy", **options), select_k(X, backend=backend, **options))


@pytest.mark.gpu
def test_device_arrays_in_and_out(iris):
    import cupy

    host, there = select_k(iris, [2, 3], backend="numpy"), select_k(cupy.asarray(iris), [2, 3])
    assert isinstance(there.labels, cupy.ndarray)
    assert isinstance(there.centers[2], cupy.ndarray)
    assert there.best.backend == "cuda"
    np.testing.assert_array_equal(there.labels.get(), host.labels)
    np.testing.assert_array_equal(there.table["davies_bouldin"], host.table["davies_bouldin"])


def test_seeds_give_other_samples_and_references():
    X = blobs(5000, 2, 3)
    one, other = (selection.sample(Points.of(X), selection.SAMPLE, seed) for seed in (0, 1))
    assert len(one) == len(np.unique(one)) == selection.SAMPLE
    assert one.max() < 5000
    assert (one != other).any()
    np.testing.assert_array_equal(selection.sample(Points.of(X[:70]), 70, 5), np.arange(70))
    weights = np.zeros(5000)
    weights[10:3000] = 2.0
    rows = selection.sample(Points.of(X, weights), selection.SAMPLE, 0)
    assert (len(rows), rows.min() >= 10, rows.max() < 3000) == (selection.SAMPLE, True, True)


def test_a_sample_tells_nearly_the_same(monkeypatch):
    X = separated(4, 2, 0, 300)
    exact = select_k(X, [3, 4, 5], "silhouette").table["silhouette"]
    monkeypatch.setattr(selection, "SAMPLE", 200)
    np.testing.assert_allclose(select_k(X, [3, 4, 5], "silhouette").table["silhouette"], exact, atol=0.03)


def test_references_fill_the_box(monkeypatch):
    monkeypatch.setattr(selection, "DRAWN", 1000)
    points = Points.of(blobs(3500, 2, 3, dtype=np.float32), np.full(3500, 2.0))
    with selection.open_backend(points) as opened:
        low, high = opened.bounds.low, opened.bounds.high
        sets = [selection.reference_points(points, opened.bounds, 0, number) for number in (0, 1)]
    X = sets[0].chunks[0]
    assert X.dtype == np.float32
    np.testing.assert_allclose(X.min(axis=0), low, atol=0.01 * (high - low).max())
    np.testing.assert_allclose(X.mean(axis=0), (low + high) / 2, atol=0.03 * (high - low).max())
    assert sets[0].total_weight == 7000
    assert len(np.unique(X, axis=0)) > 3490  # pieces are not repeated
    assert (sets[1].chunks[0] != X).any()


def test_weights_are_repetitions():
    X = separated(3, 2, 5)
    weights = np.random.default_rng(1).integers(1, 4, len(X))
    heavy = select_k(X, range(1, 6), ["bic", "silhouette"], weights=weights)
    repeated = select_k(np.repeat(X, weights, axis=0), range(1, 6), ["bic", "silhouette"])
    assert heavy.recommended == repeated.recommended
    for name in ("bic", "aic", "calinski_harabasz", "davies_bouldin", "silhouette"):
        np.testing.assert_allclose(heavy.table[name][:3], repeated.table[name][:3], rtol=1e-9)


def test_as_many_clusters_as_points():
    X = np.random.default_rng(0).normal(size=(6, 2))
    found = select_k(X, range(1, 7), EVERYTHING, references=2)
    for name in ("inertia", "bic", "aic", "gap"):
        assert np.isfinite(found.table[name]).all(), name
    assert found.table["inertia"][-1] == 0.0
    assert all(found.recommended[name] < 6 for name in EVERYTHING if name != "gap")
    for name in ("silhouette", "calinski_harabasz", "davies_bouldin"):
        assert np.isnan(found.table[name][[0, -1]]).all()


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_duplicates_leave_no_variance(dtype):
    """Five values thirty times: J is zero, or what rounding leaves, from K = 5 on."""
    X = np.repeat(np.random.default_rng(2).normal(size=(5, 3)) + 100, 30, axis=0).astype(dtype)
    found = select_k(X, range(1, 9), EVERYTHING, references=2)
    assert (found.n_clusters, found.recommended["silhouette"], found.recommended["davies_bouldin"]) == (5, 5, 5)
    assert (found.recommended["calinski_harabasz"], found.recommended["gap"]) == (5, 5)
    for name in ("bic", "aic", "gap"):
        assert np.isfinite(found.table[name]).all()


@pytest.mark.parametrize("X", [[[0.0]], np.zeros((7, 2)), np.full((3, 1), 1e90)])
def test_a_single_value(X):
    found = select_k(X, range(1, len(X) + 1))
    assert found.n_clusters == 1
    assert np.isfinite(found.table["bic"]).all()


@settings(max_examples=30)
@given(data=st.data())
def test_j_never_rises(data):
    n, d = data.draw(st.integers(1, 40)), data.draw(st.integers(1, 3))
    rng = np.random.default_rng(data.draw(st.integers(0, 2**31)))
    X = rng.normal(size=(n, d))
    if data.draw(st.booleans()):
        X = np.rint(X)
    ks = data.draw(st.sets(st.integers(1, n), min_size=1))
    found = select_k(X, ks, "gap", references=1)
    inertia = found.table["inertia"]
    assert (np.diff(inertia) <= 1e-12 * inertia[0]).all()
    assert found.n_clusters in ks


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"ks": []}, "ks is empty and must hold at least one number of clusters"),
        ({"ks": 3}, "ks=3 must be a sequence of integers from 1 to n_samples=150"),
        ({"ks": "2:5"}, "ks='2:5' must be a sequence"),
        ({"ks": [2, 0]}, "ks=0 must be an integer >= 1"),
        ({"ks": [2, 2.5]}, "ks=2.5 must be an integer >= 1"),
        ({"ks": [2, 151]}, "ks contains 151; numbers of clusters must be from 1 to n_samples=150"),
        ({"criterion": "elbow"}, "criterion='elbow' must be one of 'bic', 'aic'"),
        ({"criterion": ["bic", 3]}, "criterion=3 must be one of"),
        ({"criterion": []}, r"criterion=\[\] must name at least one of 'bic'"),
        ({"criterion": "silhouette", "ks": [1]}, r"ks=\[1\] has no K that criterion='silhouette' can judge"),
        ({"ks": [150]}, r"ks=\[150\] has no K that criterion='bic' can judge; it must be less than .*, 150"),
        ({"weights": np.full(150, 1 / 150)}, "sum of their weights"),
        ({"method": "lloyd"}, "method='lloyd' must be one of 'k-means', 'tabu'"),
        ({"restarts": 0}, "restarts=0 must be an integer >= 1"),
        ({"references": 0}, "references=0 must be an integer >= 1"),
        ({"seed": -1}, "seed=-1 must be an integer from 0"),
        ({"backend": "gpu"}, "backend='gpu' must be one of"),
    ],
)
def test_bad_input_is_told_in_a_sentence(arguments, message, iris):
    with pytest.raises((ValueError, TypeError), match=message):
        select_k(iris, **{"ks": [2, 3], **arguments})


def interrupt_after(monkeypatch, count: int) -> None:
    """Ctrl-C while the clustering number `count` is looked for."""
    fit, calls = sweep.Sweep.fit, []

    def fit_and_interrupt(self, starts):
        calls.append(starts)
        if len(calls) == count:
            os.kill(os.getpid(), signal.SIGINT)
        return fit(self, starts)

    monkeypatch.setattr(sweep.Sweep, "fit", fit_and_interrupt)


@pytest.mark.parametrize(("count", "rows"), [(1, 1), (2, 1), (4, 3)])
def test_ctrl_c_returns_what_is_finished(count, rows, monkeypatch):
    X = separated(3, 2, 0)
    interrupt_after(monkeypatch, count)
    found = select_k(X, [2, 3, 4, 5, 6], "silhouette")
    assert found.interrupted
    assert found.table["n_clusters"].tolist() == [2, 3, 4][:rows]
    assert len(found.labels) == len(X)
    assert "interrupted" in repr(found)


def test_ctrl_c_leaves_another_criterion_to_decide(monkeypatch):
    X = separated(3, 2, 0)
    interrupt_after(monkeypatch, 2)
    found = select_k(X, [1, 2, 3], "silhouette")  # only K = 1 was finished
    assert (found.n_clusters, found.criterion, found.interrupted) == (1, "bic", True)
    monkeypatch.undo()
    interrupt_after(monkeypatch, 5)  # among the references
    found = select_k(X, [1, 2, 3, 4], ["gap", "silhouette"])
    assert (found.n_clusters, found.criterion, found.interrupted) == (3, "silhouette", True)
    assert np.isnan(found.table["gap"]).all()


def test_points_are_held_once(monkeypatch):
    held = []
    open_backend = selection.open_backend
    monkeypatch.setattr(selection, "open_backend", lambda *all, **more: held.append(all) or open_backend(*all, **more))
    select_k(blobs(50, 2, 2), range(1, 8), ["bic", "silhouette"])
    assert len(held) == 1


def test_what_is_printed():
    found = select_k([[0.0], [1.0], [10.0], [11.0], [10.5]], [1, 2, 3])
    lines = repr(found).splitlines()
    assert lines[0] == "KSelection: 2 clusters by bic"
    assert lines[2].split()[:3] == ["K", "inertia", "bic"]
    assert [line[0] for line in lines[3:]] == [" ", "*", " "]
    every = select_k(blobs(60, 2, 3), range(1, 5), list(LARGEST_IS_BEST))
    assert max(map(len, repr(every).splitlines())) <= 80
    pd = pytest.importorskip("pandas")
    assert pd.DataFrame(found.table)["n_clusters"].tolist() == [1, 2, 3]


def test_remarks_on_the_edge_and_on_disagreement():
    X, _ = make_blobs(300, centers=[[0, 0], [9, 0], [0, 9]], cluster_std=0.5, random_state=0)
    assert select_k(X, range(2, 6), "silhouette").remarks == ()
    (said,) = select_k(X, [2, 3], "silhouette").remarks
    assert said == "K = 3 is the largest that was tried: larger ones may be better still."
    selection = select_k(X, [2, 3, 4], "silhouette")
    other = replace(selection, recommended={"silhouette": 3, "bic": 4})
    assert other.remarks[0].startswith("Criteria disagree, as they often do (bic 4): look where J bends")
