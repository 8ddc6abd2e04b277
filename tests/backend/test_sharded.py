"""Points in parts give the bits of the points as a whole, however they are cut, and on several devices."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from conftest import GPU, blobs, same

from gputabu import (
    KMeans,
    Points,
    QuantizedTabuKMeans,
    TabuKMeans,
    lloyd,
    quantized,
    reassignment,
    relocation,
    select_k,
)
from gputabu.backend import open_backend
from gputabu.backend.sharded import ShardedBackend

#: Rows at which 400 points are cut: even, uneven with parts smaller than K, one row each at the ends.
CUTS = {"even": (200,), "uneven": (3, 5, 320), "ends": (1, 399)}
SEARCHES = {
    "quantized": lambda X, **o: quantized.search(X, 5, restarts=3, max_iter=12, n_neighbors=2, **o),
    "global": lambda X, **o: quantized.search(X, 5, init="k-means++", max_iter=12, scope="global", **o),
    "k-means": lambda X, **o: lloyd.run(X, 5, restarts=2, tol=1e-4, refine="hartigan", **o),
    "empty": lambda X, **o: lloyd.run(X, 5, init=np.full((5, X.d), 1e3), **o),
    "relocation": lambda X, **o: relocation.search(X, 5, restarts=2, max_iter=6, **o),
    "reassignment": lambda X, **o: reassignment.search(X, 5, restarts=2, max_iter=6, keep=0.7, refine="lloyd", **o),
}


def data(dtype, weighted):
    X = blobs(400, 3, 5, dtype=dtype)
    X[7] = X[250]  # a tie across parts
    weights = np.random.default_rng(1).integers(0, 4, 400).astype(float) if weighted else None
    if weighted:
        weights[:4] = 0  # no weight in the first of the uneven parts
    return Points.of(X, weights)


def cut(backend, *rows):
    """A backend that holds the points in shards, cut at these rows, each by another."""

    def sharded(points):
        edges = [0, *rows, points.n]
        return ShardedBackend(points, [open_backend(points.part(a, b), backend) for a, b in pairwise(edges)])

    return sharded


@pytest.mark.trap(19)
@pytest.mark.parametrize("method", SEARCHES)
@pytest.mark.parametrize(("dtype", "weighted"), [(np.float32, True), (np.float64, False)])
def test_shards_change_nothing(method, dtype, weighted, backend):
    points, search = data(dtype, weighted), SEARCHES[method]
    whole = search(points, backend="numpy")
    for rows in CUTS.values() if backend != "cuda" else [CUTS["uneven"]]:
        found = search(points, backend=cut(backend, *rows))
        same(found, whole)
        assert found.backend == backend


def test_estimators_and_the_choice_of_k(iris):
    model = TabuKMeans(4, random_state=0).fit(iris)
    which = select_k(iris, [2, 3], ["silhouette", "gap"], references=2)
    sharded = cut("numpy", 20, 21, 149)
    parted = TabuKMeans(4, random_state=0, backend=sharded).fit(iris)
    np.testing.assert_array_equal(parted.labels_, model.labels_)
    np.testing.assert_array_equal(parted.predict(iris), model.predict(iris))
    np.testing.assert_array_equal(parted.transform(iris), model.transform(iris))
    assert parted.score(iris) == model.score(iris)
    again = select_k(iris, [2, 3], ["silhouette", "gap"], references=2, backend=sharded)
    for name, column in which.table.items():
        np.testing.assert_array_equal(again.table[name], column)


def test_a_part_of_points():
    points = Points.of(np.arange(20.0).reshape(10, 2), np.arange(10.0), 4)
    part = points.part(3, 9)
    assert [len(chunk) for chunk in part.chunks] == [1, 4, 1]
    assert np.shares_memory(part.chunks[1], points.chunks[1])
    np.testing.assert_array_equal(part.rows(np.arange(6)), points.rows(np.arange(3, 9)))
    np.testing.assert_array_equal(part.weights_at(np.arange(6)), np.arange(3.0, 9.0))
    assert Points.of(np.ones((4, 1))).part(1, 2).weights is None


def test_an_error_in_a_shard_is_raised(iris):
    class Broken:
        points, name = Points.of(iris[:5]), "numpy"
        __enter__ = __exit__ = lambda *_: None

        def bounds_partial(self):
            raise OSError("gone")

    rest = open_backend(Points.of(iris[5:]), "numpy")
    with ShardedBackend(Points.of(iris), [Broken(), rest]) as opened, pytest.raises(OSError, match="gone"):
        opened.bounds  # noqa: B018


hostcuda = pytest.mark.skipif(GPU != "hostcuda", reason="only hostcuda has as many devices as one likes")


@pytest.fixture
def devices(monkeypatch):
    """Two devices, or as many as are set."""
    import cupy

    monkeypatch.setattr(cupy._hostcuda.settings, "devices", 2)
    return lambda count: monkeypatch.setattr(cupy._hostcuda.settings, "devices", count)


@hostcuda
@pytest.mark.gpu
@pytest.mark.parametrize("method", SEARCHES)
def test_two_devices(method, devices):
    points, search = data(np.float32, True), SEARCHES[method]
    same(search(points, backend="cuda", device=[1, 0]), search(points, backend="numpy"))


@hostcuda
@pytest.mark.gpu
def test_devices_hold_their_own_rows_only(devices, iris):
    with open_backend(Points.of(iris), "cuda", "all") as opened:
        assert [part.device.id for part in opened.shards] == [0, 1]
        labels = opened.blank_labels(2)
        opened.assign(opened.rows(np.array([[0, 60, 120]] * 2)), labels)
        assert [(own.device.id, own.shape) for own in labels] == [(0, (2, 75)), (1, (2, 75))]
        held = [chunk.X for part in opened.shards for chunk in part.chunks.resident]
        assert [(X.device.id, X.shape) for X in held] == [(0, (75, 4)), (1, (75, 4))]


@hostcuda
@pytest.mark.gpu
def test_more_devices_than_points(devices):
    devices(5)
    X = np.array([[0.0], [1.0], [10.0]])
    model = KMeans(2, backend="cuda", device="all", random_state=0).fit(X)
    np.testing.assert_array_equal(model.labels_, KMeans(2, backend="numpy", random_state=0).fit(X).labels_)


@hostcuda
@pytest.mark.gpu
@pytest.mark.parametrize(
    ("device", "message"),
    [
        ([0, 2], "device=2 must be an integer from 0 to 1"),
        ([], r"device=\[\] must name at least one GPU"),
        ([1, 1], r"device=\[1, 1\] must name at least one GPU, and none twice"),
        ("both", "device='both' must be one of 'all'"),
    ],
)
def test_devices_that_cannot_be(device, message, devices, iris):
    with pytest.raises(ValueError, match=message):
        QuantizedTabuKMeans(3, backend="cuda", device=device).fit(iris)


@hostcuda
@pytest.mark.gpu
def test_several_devices_and_an_array_on_one(devices, iris):
    import cupy

    with pytest.raises(ValueError, match="names several GPUs, and X is on one of them"):
        QuantizedTabuKMeans(3, device=[0, 1]).fit(cupy.asarray(iris))
