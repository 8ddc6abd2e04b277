"""The operations of a backend against the canonical formulas, on inputs made to break fast ones."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import blobs
from hypothesis import given, settings
from hypothesis import strategies as st

from gputabu import BackendUnavailable, KMeans, Points, QuantizedTabuKMeans, chunked
from gputabu.backend import as_points, open_backend, resolve
from gputabu.backend.arithmetic import certified
from gputabu.backend.arithmetic.fixed_point import Grid, Totals
from gputabu.backend.contract import Moves, TrialBatch
from gputabu.backend.numpy.threads import Workers


def canonical(X, centers):
    """Σ_j (x_j − c_j)² in float64 in the order of j: (n, d), (K, d) -> (n, K)."""
    total = np.zeros((len(X), len(centers)))
    for j in range(X.shape[1]):
        total += (X[:, None, j].astype(float) - centers[None, :, j]) ** 2
    return total


@pytest.fixture(params=["whole", "in pieces", "each alone"])
def in_pieces(request, monkeypatch, backend):
    """A backend that takes points and restarts as a whole, or a few at a time: by three threads, or each as if by a
    thread of its own.
    """
    if request.param != "whole":
        backend = backend.tuned(piece_elements=40, threads=3)
    if request.param == "each alone":  # whatever thread would have been the quickest
        monkeypatch.setattr(Workers, "map", lambda self, run, tasks: [run(iter([task])) for task in tasks])
    return backend


@pytest.mark.trap(18)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("d", [1, 2, 3, 7, 15, 16, 17, 31, 33, 100, 129, 513])
@pytest.mark.one_device
def test_nearest_centres_are_canonical(d, dtype, backend):
    rng = np.random.default_rng(d)
    X = rng.normal(size=(70, d)).astype(dtype)
    for k in (1, 2, 13, 65, 257):
        centers = rng.normal(size=(2, k, d))
        centers[:, k // 2] = X[3]  # a centre on a point
        with open_backend(Points.of(X), backend) as opened:
            labels = opened.blank_labels(2)
            opened.assign(centers, labels)
            for r in range(2):
                np.testing.assert_array_equal(opened.fetch_labels(labels, r), canonical(X, centers[r]).argmin(axis=1))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_near_ties_are_decided_canonically(dtype, backend):
    """Centres mirrored about every point, and then moved by an ulp: the fast product cannot tell."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 5)).astype(dtype)
    step = rng.normal(size=5)
    for nudge in (0.0, 1e-16, -1e-16, 1e-12):
        centers = np.stack([X[0] + step, X[0] - step * (1 + nudge), X[1] + step, X[1] - step, X[0] + step])
        with open_backend(Points.of(X), backend) as opened:
            labels = opened.fetch_labels(opened.label(centers[None]), 0)
        np.testing.assert_array_equal(labels, canonical(X, centers).argmin(axis=1))


@pytest.mark.trap(7)
@pytest.mark.parametrize("scale", [1e-30, 1e-6, 1.0, 1e6, 1e30])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_scales_and_offsets(scale, dtype, backend):
    rng = np.random.default_rng(1)
    for offset in (0.0, 3e3):
        X = ((offset + rng.normal(size=(400, 4))) * scale).astype(dtype)
        X[-1] *= dtype(1e4)  # an outlier
        centers = X[rng.integers(400, size=20)].astype(float)
        with open_backend(Points.of(X), backend) as opened:
            labels = opened.fetch_labels(opened.label(centers[None]), 0)
        np.testing.assert_array_equal(labels, canonical(X, centers).argmin(axis=1))


def test_few_points_need_the_recheck(monkeypatch):
    """The certificate is of use only if it is rarely refused."""
    doubtful = []
    recheck = certified._recheck
    monkeypatch.setattr(certified, "_recheck", lambda *args: (doubtful.append(len(args[-1])), recheck(*args)))
    X = np.random.default_rng(0).normal(size=(20_000, 16)).astype(np.float32)
    with open_backend(Points.of(X)) as opened:
        opened.label(X[None, :64].astype(float))
    assert 0 < sum(doubtful) < len(X) // 500


@pytest.mark.parametrize("weighted", [False, True])
def test_totals_follow_the_labels_exactly(weighted, in_pieces):
    """Adding up what assignments change gives the totals of the last labels, to the last bit."""
    X = blobs(500, 3, 4, dtype=np.float32)
    weights = np.random.default_rng(0).random(len(X)) if weighted else None
    rng = np.random.default_rng(1)
    with open_backend(Points.of(X, weights), in_pieces) as opened:
        labels = opened.blank_labels(3)
        running = 0
        for _ in range(5):
            centers = rng.normal(scale=5, size=(3, 6, 3))
            running = running + opened.assign(centers, labels).totals
        fresh = opened.blank_labels(3)
        at_once = opened.assign(centers, fresh).totals
        np.testing.assert_array_equal(running, at_once)
        means = opened.grid.centroids(at_once, np.full((3, 6, 3), np.nan))
        for r in range(3):
            mine = opened.fetch_labels(labels, r)
            for k in range(6):
                assert Totals.counts(at_once)[r, k] == (mine == k).sum()
                if (mine == k).any():
                    w = None if weights is None else weights[mine == k]
                    expected = np.average(X[mine == k].astype(float), axis=0, weights=w)
                    np.testing.assert_allclose(means[r, k], expected, rtol=1e-13)


def test_survey_finds_the_best_free_points(in_pieces):
    rng = np.random.default_rng(3)
    X = rng.integers(0, 6, size=(200, 2)).astype(float)
    with open_backend(Points.of(X), in_pieces) as opened:
        centers = np.array([[[1.0, 1], [4, 4], [40, 40]]])
        labels = opened.blank_labels(1)
        opened.assign(centers, labels)
        mine = opened.fetch_labels(labels, 0)
        tabu = np.array([[[5, 9, 12, -1], [0, 9, 3, 77], [-1, -1, -1, -1]]])
        for shared in (False, True):
            seen = opened.survey(centers, labels, tabu, shared, best=4)
            squares = canonical(X, centers[0])[np.arange(200), mine]
            assert seen.cost[0] == pytest.approx(squares.sum(), rel=1e-14)
            inside = np.array([[mine[n] == k and n >= 0 for n in row] for k, row in enumerate(tabu[0])])
            np.testing.assert_array_equal(seen.inside[0], inside)
            for k in range(3):
                barred = set(tabu[0].ravel() if shared else tabu[0, k])
                free = sorted((squares[n], n) for n in range(200) if mine[n] == k and n not in barred)
                expected = [n for _, n in free[:4]]
                assert seen.index[0, k].tolist() == expected + [-1] * (4 - len(expected))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
def test_spreads_are_sums_of_distances(dtype, weighted, in_pieces):
    rng = np.random.default_rng(5)
    X = (rng.normal(size=(700, 3)) + 50).astype(dtype)
    weights = rng.integers(0, 3, 700) * 0.7 if weighted else None
    centers = np.stack([X[:4], X[4:8] + 100]).astype(float)  # the second outside the box
    results = []
    for rows in (None, 11):
        with open_backend(Points.of(X, weights, rows), in_pieces) as opened:
            labels = opened.label(centers)
            results.append(opened.spreads(centers, labels))
            mine = [opened.fetch_labels(labels, r) for r in range(2)]
    np.testing.assert_array_equal(*results)
    for r in range(2):
        lengths = np.sqrt(canonical(X, centers[r])[np.arange(700), mine[r]]) * (1 if weights is None else weights)
        np.testing.assert_allclose(results[0][r], np.bincount(mine[r], lengths, 4), rtol=1e-13)


@pytest.mark.parametrize("weighted", [False, True])
def test_closest_points_are_the_first_of_equals(weighted, in_pieces):
    """Nothing but ties, some of them between points of weight 0."""
    X = np.random.default_rng(4).integers(0, 4, size=(120, 2)).astype(float)
    weights = np.tile([0.0, 1.0, 2.0], 40) if weighted else None
    centers = np.concatenate([X[::9], [[1.5, 1.5], [99, -99]]])
    squares = canonical(X, centers)
    if weighted:
        squares[weights == 0] = np.inf
    with open_backend(Points.of(X, weights), in_pieces) as opened:
        np.testing.assert_array_equal(opened.closest(centers), squares.argmin(axis=0))
        value, rows = opened.closest_partial(centers)
        np.testing.assert_array_equal(rows, squares.argmin(axis=0))
        np.testing.assert_array_equal(value, squares.min(axis=0))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_distances_are_roots_of_the_canonical_squares(dtype, in_pieces):
    X = np.random.default_rng(6).normal(size=(90, 3)).astype(dtype)
    centers = X[:7].astype(float) + 0.1
    with open_backend(Points.of(X), in_pieces) as opened:
        found = opened.distances(centers)
    assert found.dtype == dtype
    np.testing.assert_array_equal(found, np.sqrt(canonical(X, centers)).astype(dtype))


@pytest.mark.parametrize("weighted", [False, True])
def test_farthest_points_are_the_first_of_equals(weighted, in_pieces):
    X = np.random.default_rng(7).integers(0, 5, size=(100, 2)).astype(float)
    weights = np.tile([0.0, 1.0], 50) if weighted else None
    centers = np.array([[[0.0, 0], [4, 4]], [[2, 2], [0, 4]]])
    with open_backend(Points.of(X, weights), in_pieces) as opened:
        labels = opened.label(centers)
        for r in range(2):
            mine = opened.fetch_labels(labels, r)
            squares = canonical(X, centers[r])[np.arange(100), mine] * (1 if weights is None else weights > 0)
            rows, owners = opened.farthest(centers[r], labels, r, 9)
            np.testing.assert_array_equal(rows, np.lexsort((np.arange(100), -squares))[:9])
            np.testing.assert_array_equal(owners, mine[rows])
            everything, _ = opened.farthest(centers[r], labels, r, 100)
            assert len(everything) == np.count_nonzero(squares)  # who is on a centre is not far


def test_what_is_far_as_float32_sees_it(backend):
    """Squares that round to the same float32 are equal, and 2^20 is the last that is not far."""
    X = np.array([[0.0], [1.0], [1.00000001], [2.0]])
    with open_backend(Points.of(X), backend) as opened:
        labels = opened.label(np.zeros((1, 1, 1)))
        for scale, rows in ((22, [3, 1, 2]), (21, [3, 1, 2]), (20, [3]), (18, [])):
            assert opened.farthest_partial(np.zeros((1, 1)), labels, 0, 4, scale)["row"].tolist() == rows
            assert opened.farthest_partial(np.zeros((1, 1)), labels, 0, 2, scale)["row"].tolist() == rows[:2]


def test_moves_are_put_where_they_belong(backend):
    X = blobs(50, 2, 3)
    with open_backend(Points.of(X), backend) as opened:
        labels = opened.label(np.stack([X[:3], X[3:6]]))
        before = [opened.fetch_labels(labels, r).copy() for r in range(2)]
        rows, restarts = np.array([4, 7, 7]), np.array([0, 0, 1])
        old = np.array([before[r][i] for r, i in zip(restarts, rows, strict=True)])
        opened.relabel(labels, Moves(restarts, rows, old, (old + 1) % 3))
        for r in range(2):
            changed = np.flatnonzero(opened.fetch_labels(labels, r) != before[r])
            assert changed.tolist() == rows[restarts == r].tolist()
            assert (opened.fetch_labels(labels, r)[changed] == (before[r][changed] + 1) % 3).all()


def test_labels_of_points_in_a_file_are_in_files(tmp_path):
    X = blobs(50, 2, 3)
    np.save(tmp_path / "X.npy", X)
    centers = np.stack([X[:3], X[3:6]])
    some = np.array([1, 0, 1])
    with open_backend(Points.of(X), "numpy") as opened:
        labels = opened.label(centers)
        here = opened.take_labels(labels, some)
        assert here.flags.owndata
        assert opened.blank_labels(2).tolist() == [[-1] * 50] * 2
    with open_backend(as_points(chunked(tmp_path / "X.npy", chunk_bytes=160)), "numpy") as opened:
        there = opened.label(centers)
        taken = opened.take_labels(there, some)
        for array in (there, taken, opened.blank_labels(1)):
            assert not array.flags.owndata and array.dtype == np.int32
    np.testing.assert_array_equal(taken, here)
    np.testing.assert_array_equal(here, labels[some])
    assert here.dtype == labels.dtype == np.int32


def test_trials_change_totals_as_their_labels_say(in_pieces):
    """Adopting a trial changes the totals by what the trial was said to change."""
    X = blobs(70, 2, 3)
    lot = TrialBatch(3, 1, np.array([4, 7], np.uint64), step=2, n_trials=5, limit=2**63)
    with open_backend(Points.of(X, np.arange(70.0)), in_pieces) as opened:
        labels = opened.label(np.stack([X[:3], X[3:6]]))
        changes, _ = opened.evaluate_trials_partial(labels, lot)
        for trial in range(5):
            now = opened.label(np.stack([X[:3], X[3:6]]))
            chosen, better = np.full(2, trial), np.zeros(2, np.bool_)
            adopted = opened.apply_trial(now, opened.blank_labels(2), lot, chosen, better).totals
            np.testing.assert_array_equal(changes[:, trial], adopted)
            assert (opened.fetch_labels(now, 0) != opened.fetch_labels(labels, 0)).any()


def test_rows_beyond_32_bits_keep_their_number():
    from gputabu.backend.arithmetic.keys import Least

    least = Least((1, 1, 2))
    owner = np.zeros((1, 2), np.intp)
    for start, values in ((0, (5, 7)), (2**33, (4, 5)), (2**40, (7, 9))):
        keys = (np.array([values], np.uint64) << np.uint64(32)) | np.arange(2, dtype=np.uint64)
        least.lower(slice(0, 1), keys, owner, Least.span(start))
    assert least.found()[1].tolist() == [[[2**33, 0]]]


@settings(max_examples=60)
@given(st.data())
def test_objective_is_exact(data):
    """J against exact rational arithmetic, whatever the centres."""
    from fractions import Fraction

    n, d, k = (data.draw(st.integers(1, top)) for top in (12, 3, 4))
    number = st.floats(-1e6, 1e6, allow_subnormal=False, width=32)
    X = np.array(data.draw(st.lists(st.lists(number, min_size=d, max_size=d), min_size=n, max_size=n)))
    centers = np.array(data.draw(st.lists(st.lists(number, min_size=d, max_size=d), min_size=k, max_size=k)))
    with open_backend(Points.of(X)) as opened:
        labels = opened.label(centers[None])
        J = opened.objective(centers[None], labels)[0]
        mine = opened.fetch_labels(labels, 0)
    exact = sum(
        (Fraction(float(x)) - Fraction(float(c))) ** 2
        for row, label in zip(X, mine, strict=True)
        for x, c in zip(row, centers[label], strict=True)
    )
    rounding = n * 2.0 ** (Grid.around(opened.bounds.joined(centers), opened.grid.offset).cost - 85)
    assert pytest.approx(float(exact), rel=1e-14, abs=rounding) == J


def test_cuda_is_refused_clearly():
    with pytest.raises(BackendUnavailable, match="backend='cuda'"):
        KMeans(1, backend="cuda").fit([[0.0]])
    with pytest.raises(ValueError, match="backend='gpu' must be one of 'auto', 'cuda', 'numba', 'numpy'"):
        resolve("gpu")
    assert resolve("auto") == "numpy"


def test_auto_warns_once_where_cupy_is_installed_and_cannot_run(monkeypatch):
    import gputabu.backend

    monkeypatch.setattr(gputabu.backend, "installed", lambda name: name == "cuda")
    monkeypatch.setattr(gputabu.backend, "cuda_unusable", lambda: "CuPy finds no usable NVIDIA GPU or driver.")
    gputabu.backend._warn_once.cache_clear()
    with pytest.warns(RuntimeWarning, match="no usable NVIDIA GPU or driver. Using the CPU instead"):
        assert resolve("auto") == "numpy"
    assert resolve("auto") == "numpy"  # a second warning would be an error here
    with pytest.raises(BackendUnavailable, match="cannot run here: CuPy finds no usable"):
        resolve("cuda")


def test_auto_prefers_cuda_then_numba_then_numpy(monkeypatch):
    import gputabu.backend

    monkeypatch.setattr(gputabu.backend, "numba_unusable", lambda: None)
    assert resolve("auto") == "numba"
    monkeypatch.setattr(gputabu.backend, "cuda_unusable", lambda: None)
    assert resolve("auto") == "cuda"


def test_a_numba_that_cannot_run_is_said_once_and_never_fallen_back_from(monkeypatch):
    import gputabu.backend

    with pytest.raises(BackendUnavailable, match="backend='numba' cannot run here: numba is not installed"):
        QuantizedTabuKMeans(1, backend="numba").fit([[0.0]])
    assert resolve("auto") == "numpy"  # not installed is not mentioned
    reason = "numba cannot be imported (ImportError: Numba needs NumPy 2.2 or less)."
    monkeypatch.setattr(gputabu.backend, "installed", lambda name: name == "numba")
    monkeypatch.setattr(gputabu.backend, "numba_unusable", lambda: reason)
    gputabu.backend._warn_once.cache_clear()
    with pytest.warns(RuntimeWarning, match="Using NumPy instead"):
        assert resolve("auto") == "numpy"


@pytest.mark.trap(3)
@pytest.mark.one_device
def test_workspace_is_bounded(backend):
    """Never N×K: the labels and a few blocks are all that a pass needs."""
    import tracemalloc

    X = np.random.default_rng(0).normal(size=(200_000, 4)).astype(np.float32)
    with open_backend(Points.of(X), backend) as opened:
        labels = opened.blank_labels(1)
        centers = X[None, :500].astype(float)
        opened.assign(centers[:, :1], labels)  # what is compiled, or grown once, is not the pass's
        tracemalloc.start()
        opened.assign(centers, labels)
        opened.survey(centers, labels, np.full((1, 500, 0), -1), False, 1)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert peak < 80e6  # N·K float32 would be 400 MB
