"""G-means against a plain implementation with sorted projections, and its laws."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import blobs, same
from scipy.special import log_ndtr

from gputabu import GMeans, Points, Stop, gmeans
from gputabu.algorithms.gmeans import CRITICAL, GaussianSearch, bins_for, critical, departure, examine, wanted
from gputabu.backend import open_backend


def textbook(t: np.ndarray) -> float:
    """The corrected statistic of sorted projections, as the paper writes it."""
    n = len(t)
    z = np.sort((t - t.mean()) / t.std(ddof=1))
    odd = 2 * np.arange(1, n + 1) - 1
    return (-n - (odd * (log_ndtr(z) + log_ndtr(-z[::-1]))).sum() / n) * (1 + 4 / n - 25 / n**2)


def plain_lloyd(X, centers):
    while True:
        labels = ((X[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1)
        moved = np.array([X[labels == k].mean(axis=0) for k in range(len(centers))])
        if np.allclose(moved, centers, rtol=0, atol=1e-13):
            return moved, labels
        centers = moved


def plain_tests(X, centers, min_size):
    """Statistics, and the children, by eigenvectors and sorted projections."""
    labels = ((X[:, None] - centers) ** 2).sum(axis=2).argmin(axis=1)
    found = []
    for k, center in enumerate(centers):
        mine = X[labels == k]
        if len(mine) < min_size:
            found.append((-np.inf, None))
            continue
        value, vector = (part[..., -1] for part in np.linalg.eigh(np.cov(mine.T, ddof=0).reshape(X.shape[1], -1)))
        reach = vector * np.sqrt(2 * value / np.pi)
        pair, _ = plain_lloyd(mine, np.stack([center - reach, center + reach]))
        found.append((textbook(mine @ (pair[0] - pair[1])), pair))
    return found


def plain_gmeans(X, min_size=8):
    """Centres after each round."""
    path = [X.mean(axis=0)[None]]
    while True:
        tests = plain_tests(X, path[-1], min_size)
        if all(statistic <= 1.8692 for statistic, _ in tests):
            return path
        parts = [pair if statistic > 1.8692 else center[None] for center, (statistic, pair) in zip(
            path[-1], tests, strict=True)]  # fmt: skip
        path.append(plain_lloyd(X, np.concatenate(parts))[0])


def stretched(n=300, seed=0):
    """Clusters that are longer than wide, so that the principal axis is no matter of chance."""
    rng = np.random.default_rng(seed)
    centers = np.array([[0, 0, 0], [30, 0, 0], [60, 5, 0], [0, 40, 3], [70, 40, 0]])
    return centers[rng.integers(5, size=n)] + rng.normal(size=(n, 3)) * [3, 1, 0.5]


def in_order_of_rows(centers):
    return centers[np.lexsort(centers.T)]


def test_equals_the_plain_implementation_round_by_round(backend):
    X = stretched()
    path = plain_gmeans(X)
    assert len(path) > 2
    for rounds, expected in enumerate(path):
        if rounds:
            found = gmeans.search(X, min_size=8, max_iter=rounds, backend=backend)
            np.testing.assert_allclose(in_order_of_rows(found.centers), in_order_of_rows(expected), atol=1e-9)
        plan = GaussianSearch.checked(Points.of(X).shape, alpha=1e-4, k_max=None, min_size=8, max_iter=9, seed=0)
        with open_backend(Points.of(X), backend) as opened:
            split = examine(opened, expected, plan, rounds)
        tests = plain_tests(X, expected, 8)
        np.testing.assert_allclose(split.statistic, [statistic for statistic, _ in tests], atol=2e-3)
        for children, (_, pair) in zip(split.children, tests, strict=True):
            np.testing.assert_allclose(in_order_of_rows(children), in_order_of_rows(pair), atol=1e-9)
    assert (found.stop, found.n_iter, len(found.centers)) == (Stop.GAUSSIAN, len(path) - 1, len(path[-1]))
    assert found.trace.moves.sum() == len(path[-1]) - 1


def test_iris_has_two_clusters(iris):
    plan = GaussianSearch.checked(Points.of(iris).shape, alpha=1e-4, k_max=None, min_size=8, max_iter=9, seed=0)
    with open_backend(Points.of(iris), "numpy") as opened:
        assert examine(opened, iris.mean(axis=0)[None], plan, 0).statistic == pytest.approx(7.137, abs=1e-3)
        found = gmeans.search(iris, min_size=8, backend="numpy")
        two = examine(opened, found.centers, plan, 1)
    assert sorted(two.statistic.tolist()) == pytest.approx([0.413, 0.459], abs=1e-3)
    assert sorted(np.bincount(found.labels).tolist()) == [53, 97]
    assert found.inertia == pytest.approx(152.34795, abs=1e-5)
    assert len(gmeans.search(iris, backend="numpy").centers) == 2  # by the guard of 25 as well


@pytest.mark.data
def test_norm25_has_25_clusters(paper_data):
    X = np.ascontiguousarray(paper_data("norm25")[::10])
    assert len(gmeans.search(X).centers) == 25
    assert len(gmeans.search(np.ascontiguousarray(paper_data("s4")[::5])).centers) > 20  # of 15: they overlap


@pytest.mark.parametrize("n", [8, 100, 5000])
def test_the_statistic_of_bins_is_that_of_sorted_values(n):
    rng = np.random.default_rng(n)
    for t in (rng.normal(size=n), rng.random(n), np.rint(3 * rng.normal(size=n))):
        bins = 1 << 16
        place = (t - t.mean()) / t.std(ddof=1) * bins / 16 + bins / 2
        counts = np.bincount(np.clip(place, 0, bins - 1).astype(int), minlength=bins).astype(float)
        assert departure(counts) == pytest.approx(textbook(t), rel=2e-3, abs=1e-3)


def test_finer_bins_for_more_points():
    assert bins_for(np.array([25.0, 300_000, 300_001, 4.8e6, 1e15])).tolist() == [
        1 << 16, 1 << 16, 1 << 17, 1 << 18, 1 << 22]  # fmt: skip


def test_critical_values():
    assert [critical(alpha) for alpha in CRITICAL] == [1.8692, 1.159, 1.0348]
    for alpha in (1e-100, 1e-6, 0.002, 0.09):
        a = critical(alpha)
        assert np.exp(1.2937 - 5.709 * a + 0.0186 * a**2) == pytest.approx(alpha, rel=1e-9)
        assert a >= 0.6


def test_the_largest_statistics_are_split_first():
    statistic = np.array([3.0, 5.0, 1.0, 5.0, -np.inf])
    assert wanted(statistic, 1.8, 9).tolist() == [True, True, False, True, False]
    assert wanted(statistic, 1.8, 1).tolist() == [False, True, False, False, False]
    assert not wanted(statistic, 1.8, 0).any()


def test_limits(backend):
    X = stretched()
    few = gmeans.search(X, k_max=3, backend=backend)
    assert (len(few.centers), few.stop) == (3, Stop.K_MAX)
    short = gmeans.search(X, max_iter=1, backend=backend)
    assert (len(short.centers), short.stop) == (2, Stop.MAX_ITER)
    assert len(gmeans.search(X, min_size=301, backend=backend).centers) == 1
    for constant in (np.zeros((30, 2)), np.zeros((1, 2))):
        alone = gmeans.search(constant, backend=backend)
        assert (len(alone.centers), alone.stop, alone.inertia) == (1, Stop.GAUSSIAN, 0.0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
def test_backends_and_chunks_have_the_same_bits(dtype, weighted, backend):
    X = stretched(120).astype(dtype)
    weights = np.random.default_rng(3).integers(0, 3, len(X)) / 2 if weighted else None
    found = gmeans.search(X, weights=weights, min_size=8, backend="numpy")
    assert len(found.centers) > 2
    for chunk_rows in (None, 40) if backend == "cuda" else (None, 1, 7, 1000):
        again = gmeans.search(Points.of(X, weights, chunk_rows), min_size=8, backend=backend)
        same(found, again)


def test_weights_are_repetitions(backend):
    X = stretched(100)
    weights = np.random.default_rng(0).integers(0, 4, len(X)).astype(float)
    found = gmeans.search(X, weights=weights, min_size=20, backend=backend)
    repeated = gmeans.search(np.repeat(X, weights.astype(int), axis=0), min_size=20, backend=backend)
    np.testing.assert_allclose(found.centers, repeated.centers, rtol=1e-12)
    assert found.trace.moves.tolist() == repeated.trace.moves.tolist()


def test_a_fit_goes_on_from_its_checkpoint(tmp_path):
    X, kept = stretched(), tmp_path / "g.ckpt"
    whole = gmeans.search(X)
    rounds = 0

    def after_two(progress):
        nonlocal rounds
        rounds += progress.phase == "search"
        if rounds == 2:
            raise RuntimeError

    import gputabu.algorithms.checkpoint as module

    every, module.EVERY = module.EVERY, 0.0
    try:
        with pytest.raises(RuntimeError):
            gmeans.search(X, checkpoint=kept, callback=after_two)
    finally:
        module.EVERY = every
    same(gmeans.search(X, checkpoint=kept), whole)


def test_the_estimator(backend):
    X = stretched()
    model = GMeans(random_state=0, backend=backend).fit(X)
    assert (model.n_clusters_, model.cluster_centers_.shape, model.backend_) == (6, (6, 3), backend)
    np.testing.assert_array_equal(model.predict(X), model.labels_)
    assert model.score(X) == -model.inertia_
    stopped = GMeans(random_state=0, callback=lambda progress: progress.phase == "search").fit(X)
    assert (stopped.n_clusters_, stopped.stop_) == (2, Stop.CALLBACK)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"alpha": 0.5}, "alpha=0.5 must"),
        ({"alpha": "a"}, "alpha='a' must"),
        ({"k_max": 0}, "k_max=0 must"),
        ({"min_size": 7}, "min_size=7 must"),
        ({"max_iter": 0}, "max_iter(=0|' parameter of .*) must"),
    ],
)
def test_bad_input(options, message):
    for call in (lambda: gmeans.search(blobs(30, 2, 2), **options), lambda: GMeans(**options).fit(blobs(30, 2, 2))):
        with pytest.raises((ValueError, TypeError), match=message):
            call()
