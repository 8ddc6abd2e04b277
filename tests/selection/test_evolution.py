"""The evolution of clusterings against a plain implementation, its laws, and the K that it finds."""

from __future__ import annotations

import math

import numpy as np
import pytest
from conftest import blobs, same
from sklearn.metrics import calinski_harabasz_score, davies_bouldin_score

from gputabu import Points, Stop, TabuAutoClustering, evolution, select_k
from gputabu.core import random
from gputabu.core.random import Purpose
from gputabu.selection.evolution import INDICES, apart, padded, together


class Plain:
    """The evolution as one would write it down, an individual at a time."""

    def __init__(self, X, w, index, k_min, k_max, population, seed) -> None:
        self.X, self.w, self.index, self.k_min, self.k_max = X, w, index, k_min, k_max
        self.population, self.seed = population, seed
        self.mean = np.average(X, axis=0, weights=w)
        self.variance = (w * ((X - self.mean) ** 2).sum(axis=1)).sum() / w.sum()
        self.living = sorted((self.grown(self.newcomer(i, 0)) for i in range(population)), key=self.rank)

    def rank(self, individual):
        return float(f"{individual[0]:.12g}")

    def lengths(self, centers):
        return np.sqrt(((self.X[:, None] - centers) ** 2).sum(axis=2))

    def value(self, centers, labels) -> float:
        """The index."""
        k, w, own = len(centers), self.w, self.lengths(centers)[np.arange(len(labels)), labels]
        J, d = (w * own**2).sum(), self.X.shape[1]
        between = np.sqrt(((centers[:, None] - centers) ** 2).sum(axis=2))
        if self.index == "pbm":
            everything = (w * self.lengths(self.mean[None])[:, 0]).sum()
            return (everything / (w * own).sum() * between.max() / k) ** 2
        if self.index == "davies_bouldin":
            spread = np.array([np.average(own[labels == c], weights=w[labels == c]) for c in range(k)])
            between[np.diag_indices(k)] = np.inf
            return ((spread[:, None] + spread) / between).max(axis=1).mean()
        if self.index == "calinski_harabasz":
            return (self.variance * w.sum() - J) / (k - 1) / (J / (w.sum() - k))
        W = w.sum()
        likelihood = -W * math.log(k) - W * d / 2 * (math.log(2 * math.pi * J / (W * d)) + 1)
        return -2 * likelihood + (k * d + 1) * math.log(W)

    def grown(self, centers):
        """(score, centres) after three steps of K-Means."""
        for _ in range(3):
            labels = self.lengths(centers).argmin(axis=1)
            kept = [c for c in range(len(centers)) if self.w[labels == c].sum() > 0]
            centers = np.array([np.average(self.X[labels == c], axis=0, weights=self.w[labels == c]) for c in kept])
            labels = np.array([kept.index(c) for c in labels])
        value = self.value(centers, labels) if len(centers) > 1 else math.inf
        return (-value if INDICES[self.index] and len(centers) > 1 else value), centers

    def rows(self, words):
        prefix = Points.of(self.X, self.w).weight_prefix
        if prefix is None:
            return [int(word) * len(self.X) >> 64 for word in words]
        return [int(np.searchsorted(prefix, int(word) * int(prefix[-1]) >> 64, side="right")) for word in words]

    def newcomer(self, i, generation):
        words = random.words(self.seed, i, 1 + self.k_max, purpose=Purpose.NEWCOMER, step=generation)
        k = self.k_min + (int(words[0]) * (self.k_max - self.k_min + 1) >> 64)
        return self.X[self.rows(words[1 : 1 + k])]

    def child(self, i, generation):
        words = [int(v) for v in random.words(self.seed, i, 7, purpose=Purpose.OFFSPRING, step=generation)]
        p, mine = self.population, self.living[i][1]
        mate = self.living[(i + 1 + (words[1] * (p - 1) >> 64)) % p][1]
        if words[0] >> 63:
            one, two = self.X[self.rows(words[2:4])]
            here = [c for c in mine if ((c - one) ** 2).sum() <= ((c - two) ** 2).sum()]
            there = [c for c in mate if ((c - one) ** 2).sum() > ((c - two) ** 2).sum()]
            if self.k_min <= len(here) + len(there) <= self.k_max:
                return np.array(here + there)
        running = (self.w * self.lengths(mine).min(axis=1) ** 2).cumsum()
        point = self.X[(running > words[4] / 2**64 * running[-1]).argmax()]
        kinds = ["move"] + ["add"] * (len(mine) < self.k_max) + ["drop"] * (len(mine) > self.k_min)
        kind = kinds[words[5] * len(kinds) >> 64]
        rest = np.delete(mine, words[6] * len(mine) >> 64, axis=0) if kind != "add" else mine
        return rest if kind == "drop" else np.concatenate([rest, point[None]])

    def near(self, one, other):
        between = np.sqrt(((one[:, None] - other) ** 2).sum(axis=2))
        return (between.min(axis=0).mean() + between.min(axis=1).mean()) / 2 < 0.02 * math.sqrt(self.variance)

    def generation(self, number) -> float:
        """The best score among the children."""
        children = [self.grown(self.child(i, number)) for i in range(self.population)]
        best, *rest = sorted([*self.living, *children], key=self.rank)
        self.living = [best, *(each for each in rest if not self.near(best[1], each[1]))][: self.population]
        fresh = [self.grown(self.newcomer(i, number)) for i in range(self.population - len(self.living))]
        self.living = sorted([*self.living, *fresh], key=self.rank)
        return min(score for score, _ in children)


@pytest.mark.parametrize("index", INDICES)
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.one_device
def test_equals_the_plain_implementation(index, weighted, backend):
    X = blobs(60, 2, 4)
    w = np.random.default_rng(0).random(60) + 0.2 if weighted else None
    plain = Plain(X, np.ones(60) if w is None else w, index, 2, 7, 4, seed=5)
    sign = -1 if INDICES[index] else 1
    current, best = [plain.living[0][0] * sign], [plain.living[0][0] * sign]
    for number in range(1, 7):
        current.append(plain.generation(number) * sign)
        best.append(plain.living[0][0] * sign)
    found = evolution.search(X, weights=w, index=index, population=4, max_iter=6, seed=5, backend=backend)
    np.testing.assert_allclose(found.trace.current[0], current, rtol=1e-9)
    np.testing.assert_allclose(found.trace.best[0], best, rtol=1e-9)


def test_indices_are_those_of_others(iris):
    for index, other in (("davies_bouldin", davies_bouldin_score), ("calinski_harabasz", calinski_harabasz_score)):
        found = evolution.search(iris, index=index, max_iter=3, k_max=5)
        assert found.validity == pytest.approx(other(iris, found.labels), rel=1e-10)
    found = evolution.search(iris, index="bic", max_iter=3, k_min=4, k_max=4)
    assert found.validity == pytest.approx(select_k(iris, range(4, 5)).table["bic"][0], rel=1e-3)


@pytest.mark.parametrize(
    ("index", "k", "value"), [("pbm", 3, 25.1754), ("davies_bouldin", 2, 0.4043), ("calinski_harabasz", 3, 561.628)]
)
def test_iris(index, k, value, iris):
    for seed in range(3):
        found = evolution.search(iris, index=index, seed=seed, backend="numpy")
        assert (len(found.centers), round(found.validity, 4 if value < 100 else 3)) == (k, value)
        assert found.stop is Stop.MAX_ITER


@pytest.mark.data
@pytest.mark.parametrize("index", INDICES)
def test_the_number_of_clusters(index, paper_data):
    X, unbalanced = (
        np.ascontiguousarray(paper_data(name)[::step]) for name, step in (("norm25", 10), ("unbalance", 7))
    )
    for seed in range(3):
        assert len(evolution.search(X, index=index, seed=seed, backend="numpy").centers) == 25
        if index in ("calinski_harabasz", "bic"):
            assert len(evolution.search(unbalanced, index=index, seed=seed, backend="numpy").centers) == 8


@pytest.mark.parametrize(("dtype", "weighted"), [(np.float32, True), (np.float64, False)])
@pytest.mark.one_device
def test_backends_chunks_and_batches_have_the_same_bits(dtype, weighted, backend):
    X = blobs(90, 3, 5, dtype=dtype)
    w = np.random.default_rng(3).integers(0, 3, 90) / 2 if weighted else None
    options = {"population": 5, "max_iter": 4, "seed": 3, "index": "pbm"}
    found = evolution.search(Points.of(X, w), backend="numpy", **options)
    for rows in (None, 40) if backend == "cuda" else (None, 1, 7, 1000):
        again = evolution.search(Points.of(X, w, rows), backend=backend, **options)
        same(again, found)
        assert again.validity == found.validity
    same(evolution.search(Points.of(X, w), backend=backend.tuned(batch_bytes=1), **options), found)


def test_weights_are_repetitions():
    X = np.rint(4 * blobs(50, 2, 3))
    w = np.random.default_rng(1).integers(1, 4, 50).astype(float)
    one = evolution.search(X, weights=w, k_max=5)
    two = evolution.search(np.repeat(X, w.astype(int), axis=0), k_max=5)
    assert len(one.centers) == len(two.centers)
    assert one.validity == pytest.approx(two.validity, rel=1e-9)
    assert one.inertia == pytest.approx(two.inertia, rel=1e-9)


@pytest.mark.parametrize("X", [np.zeros((6, 2)), [[0.0], [1.0]], np.repeat([[0.0], [5.0]], 4, axis=0)])
@pytest.mark.one_device
def test_corners(X, backend):
    for index in INDICES:
        found = evolution.search(X, index=index, max_iter=3, population=3, backend=backend)
        assert np.isfinite(found.centers).all()
        assert found.inertia >= 0
    if len(np.unique(X)) == 2 and len(X) > 2:
        assert (len(found.centers), found.inertia) == (2, 0.0)


def test_parts():
    one, other = np.array([[0.0], [10.0]]), np.array([[1.0], [9.0], [30.0]])
    assert apart(one, other) == pytest.approx(((1 + 1) / 2 + (1 + 1 + 20) / 3) / 2)
    assert padded([one, other]).ravel().tolist() == [0, 10, 0, 1, 9, 30]
    full = np.array([[False, True, True]])
    assert together(other[None], full).ravel().tolist() == [9, 9, 30]


def test_a_fit_goes_on_from_its_checkpoint(tmp_path, monkeypatch):
    monkeypatch.setattr("gputabu.algorithms.checkpoint.EVERY", 0.0)
    X, kept = blobs(90, 2, 4), tmp_path / "e.ckpt"

    def stop(progress):
        if progress.iteration == 4:
            raise RuntimeError

    with pytest.raises(RuntimeError):
        evolution.search(X, max_iter=9, checkpoint=kept, callback=stop)
    for _ in range(2):  # the second time it is finished
        found = evolution.search(X, max_iter=9, checkpoint=kept)
        same(found, evolution.search(X, max_iter=9))
        assert found.validity == evolution.search(X, max_iter=9).validity


@pytest.mark.one_device
def test_the_estimator(iris, backend):
    model = TabuAutoClustering(index="calinski_harabasz", max_iter=8, random_state=0, backend=backend).fit(iris)
    assert (model.n_clusters_, model.cluster_centers_.shape, model.backend_) == (3, (3, 4), backend)
    assert model.validity_ == pytest.approx(561.628, abs=1e-3)
    np.testing.assert_array_equal(model.predict(iris), model.labels_)
    assert model.score(iris) == -model.inertia_
    early = TabuAutoClustering(random_state=0, callback=lambda progress: progress.iteration == 2).fit(iris)
    assert (early.stop_, early.n_iter_) == (Stop.CALLBACK, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"index": "silhouette"}, "index='silhouette' must be one of 'pbm'"),
        ({"k_min": 1}, "k_min=1 must be an integer >= 2"),
        ({"k_min": 5, "k_max": 4}, "k_max=4 must be an integer >= 5"),
        ({"k_min": 31}, "n_samples=30 should be >= k_min=31"),
        ({"population": 1}, "population=1 must"),
        ({"max_iter": 0}, "max_iter(=0|' parameter of .*) must"),
    ],
)
def test_bad_input(options, message):
    for call in (lambda: evolution.search(blobs(30, 2, 2), **options),
                 lambda: TabuAutoClustering(**options).fit(blobs(30, 2, 2))):  # fmt: skip
        with pytest.raises((ValueError, TypeError), match=message):
            call()
