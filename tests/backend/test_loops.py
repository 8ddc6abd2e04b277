"""Loops on the device against the passes on NumPy: the same bits, traces and stops, without the host in between."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import GPU, blobs

from gputabu import Points, Stop
from gputabu.algorithms import hartigan, lloyd, quantized, relocation
from gputabu.algorithms.checkpoint import Stage
from gputabu.algorithms.monitor import Monitor
from gputabu.backend import open_backend
from gputabu.backend.loops import RelocationSettings

pytestmark = pytest.mark.gpu
hostcuda = pytest.mark.skipif(GPU != "hostcuda", reason="counts what only hostcuda can")
RNG = np.random.default_rng


def starts(X, k, restarts, seed=0):
    """(R, K, d) rows of X."""
    return np.stack([X[RNG([seed, r]).permutation(len(X))[:k]] for r in range(restarts)]).astype(np.float64)


def descended(X, weights, centers, backend, monitor=None, **options):
    with open_backend(Points.of(X, weights), backend) as opened:
        return lloyd.descend(opened, centers, monitor=monitor, **{"max_iter": 300, "traced": True, **options})


def equal(found, expected):
    assert found.stop == expected.stop
    np.testing.assert_array_equal(found.centers, expected.centers)
    for name in ("current", "best", "moves"):
        np.testing.assert_array_equal(getattr(found.trace, name), getattr(expected.trace, name))


@pytest.fixture
def never_by_passes(monkeypatch):
    """K-Means on the device must not ask for single passes, but for those of empty clusters."""
    from gputabu.backend.cuda.backend import CudaBackend

    def refused(*_, **__):
        raise AssertionError("a pass for the host")

    monkeypatch.setattr(CudaBackend, "assign", refused)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("restarts", [1, 3])
def test_k_means(never_by_passes, dtype, weighted, restarts):
    X = blobs(400, 3, 5, seed=3, dtype=dtype)
    weights = RNG(0).random(len(X)) if weighted else None
    centers = starts(X, 7, restarts)
    for options in ({}, {"tol": 1e-2}, {"max_iter": 5}, {"max_iter": 1}):
        expected = descended(X, weights, centers, "numpy", **options)
        equal(descended(X, weights, centers, "cuda", **options), expected)
    assert expected.stop == [Stop.MAX_ITER] * restarts


@pytest.mark.parametrize("weighted", [False, True])
def test_k_means_with_empty_clusters(never_by_passes, weighted):
    """Some of the restarts have them, in several iterations, and centres that stay outside of the box."""
    X = np.repeat(RNG(2).normal(size=(9, 2)), 4, axis=0)
    weights = RNG(1).random(len(X)) * (np.arange(len(X)) % 5 > 0) if weighted else None
    for centers in (starts(X, 12, 4), np.concatenate([starts(X, 6, 2), np.full((2, 2, 2), 1e3)], axis=1)):
        equal(descended(X, weights, centers, "cuda"), descended(X, weights, centers, "numpy"))


def test_k_means_of_ties_and_wide_points(never_by_passes):
    grid = np.stack(np.meshgrid(np.arange(6.0), np.arange(6.0)), axis=-1).reshape(-1, 2)
    wide = RNG(5).normal(size=(90, 40)).astype(np.float32)
    for X in (grid, wide, np.zeros((5, 1))):
        centers = starts(X, 4, 2)
        for tol in (0.0, 1e-3):
            equal(descended(X, None, centers, "cuda", tol=tol), descended(X, None, centers, "numpy", tol=tol))


def test_k_means_without_a_trace_and_without_room(monkeypatch):
    from gputabu.backend.cuda import search

    X = blobs(300, 2, 4)
    centers = starts(X, 5, 2)
    expected = descended(X, None, centers, "numpy")
    np.testing.assert_array_equal(descended(X, None, centers, "cuda", traced=False).centers, expected.centers)
    monkeypatch.setattr(search, "STATE_SHARE", 0.0)
    equal(descended(X, None, centers, "cuda"), expected)


class Impatient(Monitor):
    """Wants to stop at the n-th look, as after Ctrl-C."""

    def __init__(self, looks):
        super().__init__()
        self.looks = looks

    def should_hurry(self):
        self.looks -= 1
        return self.looks <= 0


@pytest.mark.parametrize(("looks", "made"), [(1, 1), (2, 17)])
def test_k_means_ends_at_a_look(looks, made):
    X = RNG(0).normal(size=(600, 4))
    centers = starts(X, 20, 2)
    found = descended(X, None, centers, "cuda", Impatient(looks))
    expected = descended(X, None, centers, "numpy", max_iter=made)
    assert found.stop == [Stop.MAX_TIME] * 2
    np.testing.assert_array_equal(found.centers, expected.centers)
    np.testing.assert_array_equal(found.trace.current, expected.trace.current)


@hostcuda
@pytest.mark.one_device
def test_k_means_leaves_the_host_alone():
    """At most one copy and one wait in 16 iterations, and no allocation behind the first."""
    import cupy

    X = np.linspace(0, 1, 1000, dtype=np.float32)[:, None]  # centres creep along
    centers, counts = np.stack([X[:10], X[-10:]]).astype(np.float64), []
    cupy._hostcuda.set_check(False)
    try:
        for iterations in (17, 49):
            cupy._hostcuda.reset()
            found = descended(X, None, centers, "cuda", max_iter=iterations)
            assert found.stop == [Stop.MAX_ITER] * 2
            stats = cupy._hostcuda.stats()
            counts.append([stats["copies"]["device_to_host"]["count"], stats["synchronisations"], stats["allocations"]])
    finally:
        cupy._hostcuda.set_check(True)
    copies, waits, allocations = np.subtract(counts[1], counts[0])
    assert (copies, waits, allocations) == (2, 2, 0)


def moved(X, weights, centers, backend, monitor=None, max_rounds=hartigan.ROUNDS):
    with open_backend(Points.of(X, weights), backend) as opened:
        return hartigan.improve(opened, centers, monitor, max_rounds)


def equal_moves(found, expected):
    np.testing.assert_array_equal(found.moves, expected.moves)
    np.testing.assert_array_equal(found.centers, expected.centers)


@pytest.fixture
def never_found_by_passes(monkeypatch):
    from gputabu.backend.cuda.backend import CudaBackend

    def refused(*_, **__):
        raise AssertionError("a pass for the host")

    monkeypatch.setattr(CudaBackend, "find_moves", refused)


@pytest.mark.device("t4")  # where there is a watchdog, moves are made pass by pass
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
def test_single_moves(never_found_by_passes, dtype, weighted):
    X = blobs(300, 3, 5, seed=4, dtype=dtype)
    weights = RNG(0).random(len(X)) * (np.arange(len(X)) % 7 > 0) if weighted else None
    for restarts, rounds in ((1, 2), (3, hartigan.ROUNDS)):
        centers = starts(X, 6, restarts)
        expected = moved(X, weights, centers, "numpy", max_rounds=rounds)
        equal_moves(moved(X, weights, centers, "cuda", max_rounds=rounds), expected)
        assert expected.moves.all()


@pytest.mark.device("t4")  # where there is a watchdog, moves are made pass by pass
def test_single_moves_of_ties_duplicates_and_empty_clusters(never_found_by_passes):
    grid = np.stack(np.meshgrid(np.arange(5.0), np.arange(5.0)), axis=-1).reshape(-1, 2)
    copies = np.repeat(RNG(2).normal(size=(6, 2)), 4, axis=0)
    many = np.tile([[0.0], [2.0], [3.0]], (700, 1))  # more than a block looks at together
    for X, k in ((grid, 5), (copies, 8), (many, 2)):
        centers = starts(X, k, 2)
        equal_moves(moved(X, None, centers, "cuda"), moved(X, None, centers, "numpy"))


@pytest.mark.device("t4")  # where there is a watchdog, moves are made pass by pass
def test_single_moves_end_at_a_look():
    X = RNG(0).normal(size=(300, 2))
    centers = starts(X, 6, 2)
    equal_moves(moved(X, None, centers, "cuda", Impatient(1)), moved(X, None, centers, "numpy", Impatient(1)))


@pytest.mark.device("t4")  # where there is a watchdog, moves are made pass by pass
@hostcuda
@pytest.mark.one_device
def test_single_moves_leave_the_host_alone():
    import cupy

    X = np.linspace(0, 1, 300, dtype=np.float32)[:, None]
    centers, counts = X[None, :8].astype(np.float64), []
    for rounds in (17, 49):
        cupy._hostcuda.reset()
        moved(X, None, centers, "cuda", max_rounds=rounds)
        stats = cupy._hostcuda.stats()
        counts.append([stats["copies"]["device_to_host"]["count"], stats["synchronisations"], stats["allocations"]])
    copies, waits, allocations = np.subtract(counts[1], counts[0])
    assert (max(copies, waits) <= 2, allocations) == (True, 0)


def relocated(X, weights, centers, backend, monitor=None, **options):
    monitor = monitor or Monitor()
    given = {"max_iter": 12, "patience": 9, "target": 0.0, "tenure": 2, "candidates": 3, "go_back": 4, "returns": 2}
    given |= {"max_passes": np.full(len(centers), 2**31 - 1), "calm": 0}
    numbers = np.arange(5, 5 + len(centers), dtype=np.uint64)
    settings = RelocationSettings(**{**given, **options}, seed=7, numbers=numbers, monitor=monitor)
    with open_backend(Points.of(X, weights), backend) as opened:
        return relocation.run_relocation(opened, centers, settings, monitor, Stage())


def equal_runs(found, expected):
    assert found.stop == expected.stop
    for name in ("current", "best", "moves", "centers"):
        np.testing.assert_array_equal(getattr(found, name), getattr(expected, name))


@pytest.fixture
def never_relocated_by_passes(monkeypatch):
    from gputabu.backend.cuda.backend import CudaBackend

    def refused(*_, **__):
        raise AssertionError("a pass for the host")

    for name in ("nearest_two", "reassign_partial", "swap_gains_partial", "potential", "sample"):
        monkeypatch.setattr(CudaBackend, name, refused)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("restarts", [1, 3])
def test_relocation(never_relocated_by_passes, dtype, weighted, restarts):
    """Restarts that fall for long, return to their elite, give it up, or end at different times."""
    X = blobs(300, 3, 5, seed=3, dtype=dtype)
    weights = RNG(0).random(len(X)) * (np.arange(len(X)) % 7 > 0) if weighted else None
    stops = set()
    few = {"max_passes": 9 + np.arange(restarts)}
    cases = (
        (7, {"calm": 3}),
        (7, few),
        (2, {"go_back": 1}),
        (7, {"patience": 3}),
        (7, {"max_iter": 1}),
        (12, {"tenure": 0}),
    )
    for k, options in cases:
        centers = starts(X, k, restarts)
        expected = relocated(X, weights, centers, "numpy", **options)
        equal_runs(relocated(X, weights, centers, "cuda", **options), expected)
        stops.update(expected.stop)
    assert {Stop.MAX_ITER, Stop.PATIENCE} <= stops
    reached = float(expected.best[0, 2])
    expected = relocated(X, weights, centers, "numpy", target=reached)
    equal_runs(relocated(X, weights, centers, "cuda", target=reached), expected)
    assert Stop.TARGET in expected.stop


def test_relocation_of_ties_duplicates_and_perfect_fits(never_relocated_by_passes):
    """Every point on a centre: nothing to draw from, on the finest grid either. Others need a finer grid to draw."""
    grid = np.stack(np.meshgrid(np.arange(5.0), np.arange(5.0)), axis=-1).reshape(-1, 2)
    copies = np.repeat(RNG(2).normal(size=(6, 2)), 4, axis=0)
    tight = np.concatenate([RNG(3).normal(size=(40, 2)) * 1e-7, [[1e6, 0.0]]])
    wide = RNG(5).normal(size=(1100, 33)).astype(np.float32)  # more than a tile
    for X, k, options in (
        (grid, 5, {}),
        (copies, 5, {}),
        (copies, 6, {"target": -1.0, "max_iter": 6}),
        (copies, 8, {}),
        (tight, 3, {"max_iter": 6}),
        (wide, 4, {"max_iter": 3}),
        (np.zeros((5, 1)), 2, {"target": -1.0}),
    ):
        centers = starts(X, k, 2)
        expected = relocated(X, None, centers, "numpy", **options)
        equal_runs(relocated(X, None, centers, "cuda", **options), expected)


def test_relocation_without_room_or_time(monkeypatch):
    from gputabu.backend.cuda import search

    class Stopped(Monitor):
        def should_stop(self):
            return True

    X = blobs(200, 2, 4)
    centers = starts(X, 5, 2)
    expected = relocated(X, None, centers, "numpy")
    found = relocated(X, None, centers, "cuda", Stopped())
    made = found.moves.shape[1]
    assert found.stop == [None] * 2
    assert made <= 1
    seen = np.isfinite(found.current)  # a restart may be in the middle of its first iteration
    np.testing.assert_array_equal(found.current[seen], expected.current[:, : made + 1][seen])
    monkeypatch.setattr(search, "STATE_SHARE", 0.0)
    equal_runs(relocated(X, None, centers, "cuda"), expected)


@hostcuda
@pytest.mark.one_device
def test_relocation_leaves_the_host_alone():
    import cupy

    X = RNG(0).normal(size=(150, 2)).astype(np.float32)
    centers, counts = starts(X, 6, 2), []
    cupy._hostcuda.set_check(False)
    try:
        for iterations in (40, 120):
            cupy._hostcuda.reset()
            found = relocated(X, None, centers, "cuda", max_iter=iterations, patience=1000, go_back=7)
            assert found.stop == [Stop.MAX_ITER] * 2
            stats = cupy._hostcuda.stats()
            counts.append([stats["copies"]["device_to_host"]["count"], stats["synchronisations"], stats["allocations"]])
    finally:
        cupy._hostcuda.set_check(True)
    copies, waits, allocations = np.subtract(counts[1], counts[0])
    assert (max(copies, waits) <= 80 / 16, allocations) == (True, 0)


def explored(X, weights, means, backend, monitor=None, **options):
    plan = quantized.Plan(**{"max_iter": 12, "patience": 9, "n_neighbors": 3, **options})
    with open_backend(Points.of(X, weights), backend) as opened:
        found, best = quantized.run(opened, means, plan, "centroid", monitor or Monitor())
    return found.stop, best, found.centers, found.trace.current, found.trace.best, found.trace.moves, found.trace.means


def equal_searches(found, expected):
    assert found[0] == expected[0]
    for mine, theirs in zip(found[1:], expected[1:], strict=True):
        np.testing.assert_array_equal(mine, theirs)


def rows(X, k, restarts):
    """(R, K) row numbers."""
    return np.stack([RNG(r).permutation(len(X))[:k] for r in range(restarts)])


@pytest.fixture
def never_surveyed_by_passes(monkeypatch):
    from gputabu.backend.cuda.backend import CudaBackend

    def refused(*_, **__):
        raise AssertionError("a pass for the host")

    monkeypatch.setattr(CudaBackend, "survey_partial", refused)


@pytest.mark.parametrize("scope", ["cluster", "global"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("restarts", [1, 3])
def test_several_neighbours(never_surveyed_by_passes, scope, weighted, restarts):
    dtype = np.float64 if weighted else np.float32
    X = blobs(150, 3, 5, seed=3, dtype=dtype)
    weights = RNG(0).random(len(X)) * (np.arange(len(X)) % 7 > 0) if weighted else None
    stops = set()
    for k, options in ((1, {"n_neighbors": 2}), (5, {"patience": 2}), (9, {"n_neighbors": 9, "max_iter": 4})):
        means = rows(X, k, restarts)
        expected = explored(X, weights, means, "numpy", scope=scope, **options)
        equal_searches(explored(X, weights, means, "cuda", scope=scope, **options), expected)
        stops.update(expected[0])
    options |= {"scope": scope, "target": float(expected[4][0, 2])}
    expected = explored(X, weights, means, "numpy", **options)
    equal_searches(explored(X, weights, means, "cuda", **options), expected)
    assert {Stop.MAX_ITER, Stop.PATIENCE, Stop.TARGET} <= stops | set(expected[0])


@pytest.mark.parametrize("scope", ["cluster", "global"])
def test_several_neighbours_of_ties_and_few_points(never_surveyed_by_passes, scope):
    """Clusters run out of free points: the deletion rule, repeated neighbours, empty clusters."""
    line = np.array([[0.0], [1.0], [2.0], [10.0], [11.0], [30.0]])
    grid = np.stack(np.meshgrid(np.arange(4.0), np.arange(4.0)), axis=-1).reshape(-1, 2)
    copies = np.repeat(RNG(2).normal(size=(4, 2)), 3, axis=0)
    for X, k in ((line, 3), (grid, 4), (copies, 6)):
        options = {"scope": scope, "max_iter": 20, "patience": 20}
        means = rows(X, k, 2)
        equal_searches(explored(X, None, means, "cuda", **options), explored(X, None, means, "numpy", **options))


@hostcuda
@pytest.mark.one_device
def test_several_neighbours_leave_the_host_alone():
    import cupy

    X = RNG(0).normal(size=(120, 2)).astype(np.float32)
    means, counts = rows(X, 4, 2), []
    for iterations in (17, 49):
        cupy._hostcuda.reset()
        stop, *_ = explored(X, None, means, "cuda", max_iter=iterations, patience=1000)
        assert stop == [Stop.MAX_ITER] * 2
        stats = cupy._hostcuda.stats()
        counts.append([stats["copies"]["device_to_host"]["count"], stats["synchronisations"], stats["allocations"]])
    copies, waits, allocations = np.subtract(counts[1], counts[0])
    assert (copies, waits, allocations) == (2, 2, 0)


@hostcuda
@pytest.mark.device("a100")
def test_centres_are_fetched_by_a_launch_of_their_own(monkeypatch):
    """Where they are many numbers, and tensor cores multiply; also behind the end of a restart."""
    from gputabu.backend.cuda import search

    monkeypatch.setattr(search, "GATHERED", 0)
    monkeypatch.setattr(search.DeviceSearch, "fits_a_launch", False)
    X = blobs(300, 17, 5, seed=4, dtype=np.float32)
    means = rows(X, 5, 3)
    options = {"n_neighbors": 1, "patience": 6, "max_iter": 40}
    equal_searches(explored(X, None, means, "cuda", **options), explored(X, None, means, "numpy", **options))
