"""Packs, and rows that must share a cluster: against plain sums, on all backends, in every search that takes them."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import blobs, same

from gputabu import (
    FuzzyCMeans,
    GMeans,
    KMeans,
    Points,
    QuantizedTabuKMeans,
    Stop,
    TabuAutoClustering,
    TabuFuzzyCMeans,
    TabuKMeans,
    TabuSearchClustering,
    chunked,
    lloyd,
    reassignment,
    relocation,
)
from gputabu.algorithms import packs
from gputabu.algorithms.groups import Groups
from gputabu.backend import open_backend

SEARCHES = {
    "lloyd": lambda X, k, **o: lloyd.run(X, k, restarts=2, refine="hartigan", **o),
    "relocation": lambda X, k, **o: relocation.search(X, k, restarts=2, max_iter=6, **o),
    "reassignment": lambda X, k, **o: reassignment.search(X, k, restarts=2, max_iter=6, n_trials=4, **o),
}
RNG = np.random.default_rng(5)
GROUPS = np.where(RNG.random(80) < 0.5, RNG.integers(0, 12, 80), -1)


def direct(X, w, labels):
    """J at the centroids."""
    clusters = [(X[labels == c], w[labels == c]) for c in np.unique(labels) if w[labels == c].sum() > 0]
    return sum((v * ((Y - np.average(Y, axis=0, weights=v)) ** 2).sum(axis=1)).sum() for Y, v in clusters)


@pytest.mark.one_device
def test_four_points_by_hand(backend):
    """0 and 10 must be together; so J is 50 and what is least for 1 and 11: all of 1, 0, 10 or 11 alone."""
    X = np.array([[0.0], [1.0], [10.0], [11.0]])
    found = lloyd.run(X, 2, groups=[7, -1, 7, -3], init=[0, 3], backend=backend)
    assert found.labels.tolist() == [0, 0, 0, 1]
    assert found.centers.ravel().tolist() == pytest.approx([11 / 3, 11])
    assert found.inertia == pytest.approx(direct(X, np.ones(4), found.labels), rel=1e-14)
    everyone = reassignment.search(X, 2, groups=[1, 2, 1, 2], max_iter=20, keep=0.5, backend=backend)
    assert (everyone.inertia, sorted(everyone.centers.ravel())) == (100.0, [5.0, 6.0])


@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize(("dtype", "weighted"), [(np.float32, True), (np.float64, False)])
@pytest.mark.one_device
def test_groups_stay_together_with_the_same_bits(name, dtype, weighted, backend):
    X = (blobs(80, 3, 4) + 100).astype(dtype)
    w = np.random.default_rng(3).integers(0, 3, 80) / 2 if weighted else None
    found = SEARCHES[name](Points.of(X, w), 4, groups=GROUPS, backend="numpy")
    assert all(len(set(found.labels[g == GROUPS])) == 1 for g in set(GROUPS) - {-1})
    assert found.centers.dtype == dtype
    heavy = np.ones(80) if w is None else w
    assert found.inertia == pytest.approx(direct(X.astype(float), heavy, found.labels), rel=1e-10)
    assert found.trace.best[found.restart, found.n_iter] >= found.inertia * (1 - 1e-9)
    for rows in (None, 31):
        same(SEARCHES[name](Points.of(X, w, rows), 4, groups=GROUPS, backend=backend), found)
    alone = SEARCHES[name](Points.of(X, w), 4, groups=np.arange(80), backend=backend)
    without = SEARCHES[name](Points.of(X, w), 4, backend=backend)
    assert alone.inertia == pytest.approx(without.inertia, rel=1e-5 if dtype == np.float32 else 1e-12)


def test_k_means_of_groups_equals_a_plain_one():
    X, w = blobs(80, 2, 4), np.random.default_rng(2).random(80) + 0.1
    members = [np.flatnonzero(g == GROUPS) for g in set(GROUPS) - {-1}] + [[i] for i in np.flatnonzero(GROUPS < 0)]
    centers = X[:4].copy()
    for _ in range(100):
        labels = np.empty(80, int)
        for mine in members:  # the cluster that all of them together cost least in
            costs = (w[mine, None] * ((X[mine][:, None] - centers) ** 2).sum(axis=2)).sum(axis=0)
            labels[mine] = costs.argmin()
        centers = np.array([np.average(X[labels == c], axis=0, weights=w[labels == c]) for c in range(4)])
    found = lloyd.run(X, 4, weights=w, groups=GROUPS, init=[0, 1, 2, 3])
    plain = lloyd.run(X, 4, weights=w, groups=GROUPS, init=X[:4])
    assert found.labels.tolist() == plain.labels.tolist() == labels.tolist()
    np.testing.assert_allclose(found.centers, centers, rtol=1e-12)


@pytest.mark.parametrize("kind", ["a file", "a function"])
def test_groups_of_points_that_are_not_in_memory(kind, tmp_path):
    X = blobs(80, 3, 4, dtype=np.float32)
    np.save(tmp_path / "X.npy", X)
    source = tmp_path / "X.npy" if kind == "a file" else lambda: iter(np.array_split(X, 9))
    found = lloyd.run(chunked(source, chunk_bytes=400), 4, groups=GROUPS, labels_out=tmp_path / "labels.npy")
    plain = lloyd.run(X, 4, groups=GROUPS)
    assert found.labels.tolist() == np.load(tmp_path / "labels.npy").tolist() == plain.labels.tolist()
    assert found.inertia == plain.inertia


@pytest.mark.gpu
@pytest.mark.one_device
def test_groups_of_points_on_a_device():
    import cupy

    X = blobs(80, 3, 4)
    found = KMeans(4, random_state=0).fit(cupy.asarray(X), groups=GROUPS)
    assert isinstance(found.labels_, cupy.ndarray)
    plain = KMeans(4, random_state=0, backend="numpy").fit(X, groups=GROUPS)
    np.testing.assert_array_equal(found.labels_.get(), plain.labels_)
    np.testing.assert_array_equal(found.cluster_centers_.get(), plain.cluster_centers_)


def test_what_watches_sees_j_of_all_points(tmp_path):
    X, seen = blobs(80, 2, 4), []
    found = relocation.search(X, 4, groups=GROUPS, max_iter=5, callback=lambda p: seen.append((p.phase, p.best)))
    assert [best for phase, best in seen if phase == "search"][-1] == pytest.approx(found.trace.best[0, -1], rel=1e-12)
    aim = float(found.trace.best[0, -1])
    assert relocation.search(X, 4, groups=GROUPS, max_iter=50, target=aim * 1.0001).stop is Stop.TARGET
    kept = tmp_path / "g.ckpt"
    same(relocation.search(X, 4, groups=GROUPS, max_iter=5, checkpoint=kept), found)
    same(relocation.search(X, 4, groups=GROUPS, max_iter=5, checkpoint=kept), found)  # it is finished
    with pytest.raises(ValueError, match="is of a fit with groups="):
        relocation.search(X, 4, groups=GROUPS[::-1].copy(), max_iter=5, checkpoint=kept)


@pytest.mark.one_device
def test_groups_in_packs(backend):
    """Groups are packed, too; labels to begin with are those of groups."""
    X, start = blobs(80, 2, 4), np.where(GROUPS >= 0, GROUPS % 3, np.arange(80) % 3)
    options = {"groups": GROUPS, "packing": True, "improve": "kmeans", "max_iter": 3, "init": start}
    found = reassignment.search(X, 3, backend="numpy", **options)
    assert found.inertia == pytest.approx(direct(X, np.ones(80), found.labels), rel=1e-10)
    same(reassignment.search(X, 3, backend=backend, **options), found)


@pytest.mark.parametrize("model", [KMeans(3), TabuKMeans(3, max_iter=3), TabuSearchClustering(3, max_iter=9)])
def test_estimators_take_groups(model, iris):
    groups = np.repeat(np.arange(75), 2)[::-1].copy()
    model.set_params(random_state=0).fit(iris, groups=groups)
    assert (model.labels_[::2] == model.labels_[1::2]).all()
    assert model.inertia_ >= -model.score(iris)
    assert model.fit_predict(iris, groups=groups).tolist() == model.labels_.tolist()


@pytest.mark.parametrize(
    "model",
    [
        QuantizedTabuKMeans(2), GMeans(), FuzzyCMeans(2), TabuFuzzyCMeans(2), TabuAutoClustering(),
        KMeans(2, min_size=3), TabuKMeans(2, max_size=29),
    ],
)  # fmt: skip
def test_where_groups_have_no_meaning_it_is_said(model):
    with pytest.raises(TypeError, match="groups cannot go with this search: "):
        model.fit(blobs(30, 2, 2), groups=np.zeros(30, int))


@pytest.mark.parametrize(
    ("groups", "message"),
    [
        (np.zeros(29, int), "groups has shape .29,. and dtype int64; it must be 30 integers"),
        (np.zeros(30), "dtype float64; it must be 30 integers"),
        ("a", "it must be 30 integers"),
        (np.zeros(30, int), "groups has 1 groups, fewer than n_clusters=2"),
    ],
)
def test_bad_groups(groups, message):
    with pytest.raises(ValueError, match=message):
        KMeans(2).fit(blobs(30, 2, 2), groups=groups)


def test_labels_to_begin_with_must_be_those_of_groups():
    with pytest.raises(ValueError, match="init has different labels in a group"):
        reassignment.search(blobs(6, 2, 2), 2, init=[0, 1, 0, 1, 0, 1], groups=[0, 0, 1, 2, 3, 4])


def test_numbers_of_groups():
    found = Groups.checked([5, -1, 2, 5, -1, 2, 0], 7, 1)
    assert found.numbers.tolist() == [0, 1, 2, 0, 3, 2, 4]
    assert found.first.tolist() == [0, 1, 2, 4, 6]


# -- packs -----------------------------------------------------------------------------------------


def plain_numbers(members, n):
    return [next(p for p, mine in enumerate(members) if i in mine) for i in range(n)]


def nearest_first(X, members, w):
    """Squared distances between the means of packs, infinite on and below the diagonal."""
    means = np.array([np.average(X[m], axis=0, weights=w[m] if w[m].sum() > 0 else None) for m in members])
    squares = ((means[:, None] - means) ** 2).sum(axis=2)
    squares[np.diag_indices(len(members))] = np.inf
    return squares


@pytest.mark.parametrize("weighted", [False, True])
def test_the_two_nearest_packs_merge(weighted):
    X = np.r_[blobs(30, 2, 3), [[1.0, 1.0], [1.0, 1.0]], np.array([[0.0, 9.0], [1.0, 9.0], [2.0, 9.0]])]  # and ties
    w = np.random.default_rng(0).integers(0, 3, len(X)).astype(float) if weighted else np.ones(len(X))
    tree, members = packs.Merging(X, w), [[i] for i in range(len(X))]
    for size in range(len(X) - 1, 3, -1):
        tree.shrink(size)
        squares = np.triu(nearest_first(X, members, w)) + np.tril(np.full((len(members),) * 2, np.inf))
        a, b = np.unravel_index(np.where(squares <= squares.min() * (1 + 1e-12), 0, 1).argmin(), squares.shape)
        members[a] = members[a] + members.pop(b)
        assert tree.numbers().tolist() == plain_numbers(members, len(X))


def test_many_packs_merge_in_mutual_pairs(monkeypatch):
    monkeypatch.setattr(packs, "EXACT", 12)
    X = blobs(60, 2, 5)
    tree, members = packs.Merging(X, np.ones(60)), [[i] for i in range(60)]
    while len(members) > 20:
        squares = nearest_first(X, members, np.ones(60))
        near = squares.argmin(axis=1)
        pairs = [(squares[a, near[a]], a, near[a]) for a in range(len(members)) if near[near[a]] == a and a < near[a]]
        pairs = sorted(pairs)[: len(members) - 20]
        gone = [b for *_, b in pairs]
        for _, a, b in pairs:
            members[a] = members[a] + members[b]
        members = [mine for p, mine in enumerate(members) if p not in gone]
    tree.shrink(20)
    assert tree.numbers().tolist() == plain_numbers(members, 60)
    tree.shrink(5)  # the last by the nearest two
    assert sorted(set(tree.numbers())) == list(range(5))


def test_levels():
    assert packs.counts(150, 3) == [75, 37, 18, 12, 18, 37, 75]
    assert packs.counts(20, 3) == [12]
    assert packs.counts(12, 3) == packs.counts(1, 1) == []
    with open_backend(Points.of(blobs(40, 2, 2)), "numpy") as opened:
        found = packs.levels(opened, 3)
    assert [(size, len(set(numbers))) for numbers, size in found] == [(20, 20), (12, 12), (20, 20)]


def test_the_majority_of_a_pack():
    labels, numbers = np.array([2, 1, 1, 0, 3, 3, 0]), np.array([0, 0, 0, 1, 1, 2, 1])
    assert packs.majority(labels, numbers, 3).tolist() == [1, 0, 3]
    assert packs.majority(np.array([3, 1]), np.array([0, 0]), 1).tolist() == [1]  # the lowest of equals
