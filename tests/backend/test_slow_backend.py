"""A fourth backend, written from the contract alone, finds the same bits in every search."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import blobs, same
from slow_backend import SlowBackend

from gputabu import KMeans, Points, TabuKMeans, gmeans, lloyd, quantized, reassignment, relocation, select_k
from gputabu.backend import open_backend
from gputabu.backend.base import BackendBase
from gputabu.backend.sharded import ShardedBackend

X = blobs(40, 2, 4, seed=3)
X[9] = X[30]
WEIGHTS = np.random.default_rng(2).integers(0, 4, 40) / 4
SEARCHES = {
    "QM-TS": (quantized.search, {"restarts": 2, "max_iter": 8}),
    "QM-TS, globally": (quantized.search, {"scope": "global", "n_neighbors": 2, "max_iter": 8, "init": "k-means++"}),
    "K-Means": (lloyd.run, {"restarts": 2, "tol": 1e-3}),
    "K-Means, empty clusters": (lloyd.run, {"init": np.full((4, 2), 50.0), "refine": "hartigan"}),
    "relocation": (relocation.search, {"restarts": 2, "max_iter": 5}),
    "TSC": (reassignment.search, {"max_iter": 4, "n_trials": 3, "keep": 0.8, "refine": "lloyd"}),
}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_searches_have_the_same_bits(name, weighted, dtype):
    search, options = SEARCHES[name]
    data = {"X": X.astype(dtype), "n_clusters": 4, "weights": WEIGHTS if weighted else None, **options}
    found = search(**data, backend=SlowBackend)
    assert found.backend == "slow"
    same(found, search(**data, backend="numpy"))


def test_estimators_and_the_choice_of_k():
    slow, fast = (TabuKMeans(3, max_iter=3, random_state=0, backend=b).fit(X) for b in (SlowBackend, "numpy"))
    np.testing.assert_array_equal(slow.transform(X), fast.transform(X))
    assert slow.score(X) == fast.score(X)
    slow, fast = (select_k(X, [2, 3], backend=b) for b in (SlowBackend, "numpy"))
    for name, column in fast.table.items():
        np.testing.assert_array_equal(slow.table[name], column)


@pytest.mark.parametrize("weights", [None, WEIGHTS * 4])
def test_gmeans_has_the_same_bits(weights):
    found = gmeans.search(X, weights=weights, min_size=8, backend=SlowBackend)
    assert len(found.centers) > 1
    same(found, gmeans.search(X, weights=weights, min_size=8, backend="numpy"))


def test_shards_of_it():
    """Every pass merges without loss."""

    def sharded(points: Points) -> ShardedBackend:
        return ShardedBackend(points, [SlowBackend(points.part(*rows)) for rows in ((0, 3), (3, 22), (22, 40))])

    for search, options in SEARCHES.values():
        data = {"X": X, "n_clusters": 4, "weights": WEIGHTS, **options}
        found, whole = search(**data, backend=sharded), search(**data, backend="numpy")
        same(found, whole)


def test_a_backend_that_lacks_a_pass_says_so():
    class Unfinished(BackendBase):
        def __init__(self, points):
            self.points = points

    with pytest.raises(TypeError, match="abstract"):
        KMeans(2, backend=Unfinished).fit(X)
    with open_backend(Points.of(X), SlowBackend) as opened, pytest.raises(ValueError, match="backend='slow' must be"):
        KMeans(2, backend=opened.name).fit(X)
