"""Clusters of bounded size: the assignment is the optimum, bounds hold, and bits do not depend on who computes."""

import itertools

import numpy as np
import pytest
from conftest import blobs, same
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import linprog
from scipy.sparse import eye, kron, vstack

from gputabu import KMeans, Stop, TabuKMeans, lloyd, load, relocation
from gputabu.algorithms.transport import Sizes, assign
from gputabu.backend import as_points, open_backend
from gputabu.backend.arithmetic.scratch import Scratch
from gputabu.backend.sharded import ShardedBackend
from gputabu.data.points import Points


def costs_of(backend, centers, by_weight=False):
    points = backend.points
    everything = np.arange(points.n)
    weights = points.weights_at(everything)
    return backend.measure(centers, by_weight).costs(points.rows(everything), weights, centers, Scratch())


def optimum(costs, low, high):
    """The least sum of integer costs (K, n) within the bounds, by linear programming."""
    k, n = costs.shape
    sizes = kron(eye(k), np.ones((1, n)))
    found = linprog(
        costs.ravel() / costs.max(initial=1),
        A_ub=vstack([sizes, -sizes]),
        b_ub=np.repeat([float(high), -float(low)], k),
        A_eq=kron(np.ones((1, k)), eye(n)),
        b_eq=np.ones(n),
    )
    assert found.status == 0
    return sum(costs[found.x.reshape(k, n).argmax(axis=0), np.arange(n)].tolist())


def problem(seed):
    """Points, weights, centres and bounds; ties, duplicates and bounds that just fit among them."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(1, 70)), int(rng.integers(1, 4))
    k = int(rng.integers(1, min(n, 10) + 1))
    X = rng.integers(0, 5, (n, d)).astype(float) if seed % 3 == 0 else rng.normal(size=(n, d))
    X = X.astype(np.float32) if seed % 4 == 1 else X
    centers = X[rng.choice(n, k, replace=False)] + (0 if seed % 2 else rng.normal(size=(k, d)))
    low = n // k if seed % 5 == 0 else int(rng.integers(0, n // k + 1))
    high = -(-n // k) if seed % 5 < 2 else int(rng.integers(-(-n // k), n + 1))
    weights = rng.integers(1, 5, n).astype(float) if seed % 3 == 1 else None
    return X, weights, centers.astype(float), low, high


# -- by hand ---------------------------------------------------------------------------------------


def test_by_hand():
    """Three of four points are near the first centre; the one that is cheapest to hand on goes."""
    X = [[0.0], [1.0], [2.0], [10.0]]
    found = lloyd.run(X, 2, init=[[1.0], [10.0]], max_size=2, backend="numpy")
    assert found.labels.tolist() == [0, 0, 1, 1]
    assert found.centers.ravel().tolist() == [0.5, 6.0]
    assert found.inertia == 0.5 + 32.0
    assert found.trace.current.tolist() == [[32.5, 32.5]]


def test_tie_goes_to_the_lowest_row():
    X = [[0.0], [0.0], [0.0], [0.0], [3.0]]
    found = lloyd.run(X, 2, init=[[0.0], [3.0]], max_size=3, backend="numpy")
    assert found.labels.tolist() == [1, 0, 0, 0, 1]


def test_hub_of_two_sided_bounds():
    """A cluster has too few although none has too many."""
    X = [[0.0], [1.0], [5.0], [6.0], [100.0]]
    found = lloyd.run(X, 3, init=[[0.5], [5.5], [100.0]], min_size=1, max_size=2, max_iter=1, backend="numpy")
    assert np.bincount(found.labels).tolist() == [2, 2, 1]
    found = lloyd.run(X, 2, init=[[3.0], [100.0]], min_size=2, max_iter=1, backend="numpy")
    assert found.labels.tolist() == [0, 0, 0, 1, 1]


# -- the optimum -----------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(40))
def test_optimum(seed, backend):
    X, weights, centers, low, high = problem(seed)
    everyone = []
    for length in (1, 7):
        with open_backend(as_points(X, weights), backend) as opened:
            costs = costs_of(opened, centers)
            found = assign(opened, centers, np.zeros(len(centers), np.int64), Sizes(low, high, False), length)
        everyone.append((found.labels.tolist(), found.prices.tolist()))
    labels = np.array(everyone[0][0])
    assert everyone[0] == everyone[1]  # lists that run out change nothing
    counts = np.bincount(labels, minlength=len(centers))
    assert low <= counts.min() and counts.max() <= high
    assert sum(costs[labels, np.arange(len(X))].tolist()) == optimum(costs, low, high)
    with open_backend(as_points(X, weights), "numpy") as reference:
        again = assign(reference, centers, np.zeros(len(centers), np.int64), Sizes(low, high, False), 7)
    assert (again.labels.tolist(), again.prices.tolist()) == everyone[0]


@pytest.mark.parametrize("seed", range(10))
def test_any_prices_lead_to_the_optimum(seed):
    """An iteration begins with the prices of the last: they decide how long it takes, not what it costs."""
    X, weights, centers, low, high = problem(seed)
    with open_backend(as_points(X, weights), "numpy") as opened:
        costs = costs_of(opened, centers)
        prices = np.random.default_rng(seed).integers(-costs.max(), costs.max() + 1, len(centers))
        found = assign(opened, centers, prices, Sizes(low, high, False), 5)
    assert sum(costs[found.labels, np.arange(len(X))].tolist()) == optimum(costs, low, high)


def test_same_as_the_peer():
    """k-means-constrained, where it is installed, finds no cheaper assignment."""
    peer = pytest.importorskip("k_means_constrained")
    X = blobs(300, 3, 6)
    model = peer.KMeansConstrained(6, size_max=55, size_min=40, n_init=1, max_iter=1, random_state=0).fit(X)
    with open_backend(as_points(X), "numpy") as opened:
        costs = costs_of(opened, model.cluster_centers_)
        found = assign(opened, model.cluster_centers_, np.zeros(6, np.int64), Sizes(40, 55, False), 8)
    assert sum(costs[found.labels, np.arange(300)].tolist()) == optimum(costs, 40, 55)


# -- shards ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("cuts", [(1,), (100, 101, 250)])
def test_shards(cuts):
    X = blobs(300, 3, 7).astype(np.float32)
    expected = lloyd.run(X, 7, max_size=45, refine="hartigan", backend="numpy")
    shards = np.split(X, cuts)

    def sharded(points):
        from gputabu.backend.numpy.backend import NumpyBackend

        return ShardedBackend(points, [NumpyBackend(Points.of(shard)) for shard in shards])

    same(lloyd.run(X, 7, max_size=45, refine="hartigan", backend=sharded), expected)


# -- whole fits ------------------------------------------------------------------------------------

BOUNDS = [{"max_size": 32}, {"min_size": 27}, {"min_size": 28, "max_size": 29}, {"max_size": 60, "min_size": 10}]


@pytest.mark.parametrize("bounds", BOUNDS)
@pytest.mark.parametrize("weighted", [False, True])
def test_same_bits(backend, bounds, weighted):
    X = blobs(200, 4, 5, dtype=np.float32 if weighted else np.float64)
    weights = np.random.default_rng(0).integers(1, 4, 200) / 2 if weighted else None
    options = {"weights": weights, "restarts": 2, "refine": "hartigan", **bounds}
    expected = lloyd.run(X, 7, backend="numpy", **options)
    same(lloyd.run(X, 7, backend=backend, **options), expected)
    counts = np.bincount(expected.labels, minlength=7)
    assert bounds.get("min_size", 0) <= counts.min() and counts.max() <= bounds.get("max_size", 200)
    for chunk in (1, 7, 150):
        points = Points.of(X, weights, chunk)
        same(lloyd.run(points, 7, backend=backend, **{**options, "weights": None}), expected)


def test_relocation_same_bits(backend):
    X = blobs(150, 2, 9)
    expected = relocation.search(X, 6, max_size=26, max_iter=20, backend="numpy")
    same(relocation.search(X, 6, max_size=26, max_iter=20, backend=backend), expected)
    assert np.bincount(expected.labels).max() <= 26
    alone = lloyd.run(X, 6, max_size=26, backend="numpy")
    assert expected.inertia <= alone.inertia


def test_batch_law():
    X = blobs(120, 2, 5)
    all_of_them = lloyd.run(X, 5, max_size=25, restarts=4, backend="numpy")
    for r in range(4):
        one = lloyd.run(X, 5, max_size=25, restarts=[r], backend="numpy")
        assert one.inertia == all_of_them.inertias[r]


@settings(max_examples=40)
@given(st.data())
def test_bounds_hold(data):
    """Weights, duplicates, min = max, one cluster, K = N, bounds that just fit."""
    n = data.draw(st.integers(1, 40))
    k = data.draw(st.one_of(st.just(1), st.just(n), st.integers(1, n)))
    X = np.array(data.draw(st.lists(st.tuples(*2 * [st.integers(-3, 3)]), min_size=n, max_size=n)), float)
    least = data.draw(st.one_of(st.just(n // k), st.integers(0, n // k)))
    most = data.draw(st.one_of(st.just(-(-n // k)), st.integers(-(-n // k), n)))
    refine = data.draw(st.sampled_from([None, "hartigan"]))
    found = lloyd.run(X, k, min_size=least, max_size=most, refine=refine, init="random", backend="numpy")
    counts = np.bincount(found.labels, minlength=k)
    assert least <= counts.min() and counts.max() <= most
    fall = np.diff(found.trace.current[0])
    assert (fall <= 0).all()
    squares = ((X - found.centers[found.labels]) ** 2).sum()
    assert found.inertia == pytest.approx(squares)


def test_weight_of_zero_does_not_count():
    X, weights = [[0.0], [0.1], [0.2], [5.0], [5.1]], [1.0, 1.0, 0.0, 1.0, 1.0]
    found = lloyd.run(X, 2, weights=weights, max_size=2, init=[0, 3], backend="numpy")
    assert found.labels.tolist() == [0, 0, 0, 1, 1]
    with pytest.raises(ValueError, match=r"min_size=3 must be at most 2: 2 clusters share 4 samples of positive"):
        lloyd.run(X, 2, weights=weights, min_size=3, backend="numpy")


# -- sizes that are weights ------------------------------------------------------------------------


@settings(max_examples=40)
@given(st.integers(0, 10_000))
def test_weights_within_bounds(seed):
    """With room for the heaviest sample, the bounds hold."""
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(10, 60)), int(rng.integers(2, 6))
    X, weights = rng.normal(size=(n, 2)), rng.random(n) + 0.01
    share, heaviest = weights.sum() / k, weights.max()
    bounds = {"max_size": share + heaviest, "size": "weight"}
    if seed % 2 and share > 2 * heaviest:
        bounds["min_size"] = share - heaviest
    found = lloyd.run(X, k, weights=weights, refine="hartigan", backend="numpy", **bounds)
    sums = np.bincount(found.labels, weights, minlength=k)
    assert sums.max() <= bounds["max_size"] * (1 + 1e-8)
    assert sums.min() >= bounds.get("min_size", 0) * (1 - 1e-8)


def test_equal_weights_are_counts():
    X = blobs(100, 2, 4)
    by_count = lloyd.run(X, 4, max_size=25, backend="numpy")
    by_weight = lloyd.run(X, 4, max_size=50.0, size="weight", weights=np.full(100, 2.0), backend="numpy")
    np.testing.assert_array_equal(by_count.labels, by_weight.labels)


def test_weights_same_bits(backend):
    rng = np.random.default_rng(0)
    X, weights = blobs(200, 3, 5), rng.random(200)
    options = {"weights": weights, "max_size": weights.sum() / 6 * 1.1, "size": "weight", "refine": "hartigan"}
    same(lloyd.run(X, 6, backend=backend, **options), lloyd.run(X, 6, backend="numpy", **options))


def test_no_assignment_of_whole_samples():
    X, weights = [[0.0], [1.0], [2.0]], [2.0, 2.0, 2.0]
    with pytest.raises(ValueError, match=r"^max_size=3, min_size=0: no assignment of whole samples within the bounds"):
        lloyd.run(X, 2, weights=weights, max_size=3.0, size="weight", backend="numpy")


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bounds", "error", "message"),
    [
        ({"max_size": 3}, ValueError, "max_size=3 must be at least 4: 3 clusters have to take 10 samples."),
        ({"min_size": 4}, ValueError, "min_size=4 must be at most 3: 3 clusters share 10 samples."),
        ({"min_size": 3, "max_size": 2}, ValueError, "min_size=3 must be at most max_size=2."),
        ({"max_size": 0}, ValueError, "max_size=0 must be an integer >= 1."),
        ({"max_size": 4.5}, TypeError, "max_size=4.5 must be an integer >= 1."),
        ({"min_size": -1}, ValueError, "min_size=-1 must be an integer >= 0."),
        ({"max_size": 5, "size": "rows"}, ValueError, "size='rows' must be one of 'count', 'weight'."),
        ({"size": "weight"}, ValueError, "size='weight' must go with min_size or max_size."),
        ({"max_size": 3.0, "size": "weight"}, ValueError, "max_size=3 must be at least 3.333333333: 3 clusters have"),
    ],
)
@pytest.mark.parametrize("run", [lloyd.run, relocation.search])
def test_errors(run, bounds, error, message):
    def never(points):
        raise AssertionError("there was work before the check")

    with pytest.raises(error) as caught:
        run(np.arange(10.0)[:, None], 3, backend=never, **bounds)
    assert str(caught.value).startswith(message)


def test_heaviest_sample_must_fit():
    with pytest.raises(ValueError, match=r"^max_size=5 must be at least 6, the heaviest sample\.$"):
        lloyd.run([[0.0], [1.0], [2.0]], 2, weights=[6.0, 1.0, 1.0], max_size=5.0, size="weight", backend="numpy")


# -- estimators ------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", [KMeans, TabuKMeans])
def test_estimator(estimator, tmp_path):
    X = np.concatenate([blobs(90, 2, 1), blobs(10, 2, 1) + 20])
    model = estimator(2, max_size=50, random_state=0).fit(X)
    assert np.bincount(model.labels_).tolist() == [50, 50]
    assert (model.predict(X) != model.labels_).sum() == 40  # new samples go to the nearest centre
    assert model.inertia_ > -model.score(X)
    model.save(tmp_path / "model.npz")
    again = load(tmp_path / "model.npz")
    assert (again.max_size, again.min_size, again.size) == (50, None, "count")
    np.testing.assert_array_equal(again.labels_, model.labels_)


@pytest.mark.parametrize("run", [lloyd.run, relocation.search])
def test_checkpoint(run, tmp_path):
    """A fit that goes on has the labels of one that never stopped."""
    X = blobs(200, 2, 6)
    options = {"max_size": 36, "restarts": 2, "seed": 3, "refine": "hartigan", "backend": "numpy"}
    if run is relocation.search:
        options["max_iter"] = 10
    expected = run(X, 6, **options)
    for stop_at in (1, 3, 8):
        path = tmp_path / f"{stop_at}.checkpoint"
        calls = itertools.count(1)

        def killed(progress, calls=calls, stop_at=stop_at):
            if next(calls) == stop_at:
                raise RuntimeError("killed")

        with pytest.raises(RuntimeError, match="killed"):
            run(X, 6, checkpoint=path, callback=killed, **options)
        same(run(X, 6, checkpoint=path, **options), expected)
        same(run(X, 6, checkpoint=path, **options), expected)  # from what is finished


def test_callback_ends_it_within_bounds():
    found = lloyd.run(blobs(200, 2, 6), 6, max_size=34, callback=lambda progress: True, backend="numpy")
    assert found.stop is Stop.CALLBACK
    assert np.bincount(found.labels).max() <= 34


def test_max_time():
    model = TabuKMeans(6, max_size=34, max_time=0, random_state=0).fit(blobs(200, 2, 6))
    assert np.bincount(model.labels_).max() <= 34
