"""Searches that begin on a sample of many points, and how long searches are."""

from __future__ import annotations

import time

import numpy as np
import pytest

from gputabu import Stop, TabuKMeans, quantized, relocation
from gputabu.algorithms import coarse
from gputabu.algorithms.progress import ProgressEstimate
from gputabu.backend.numpy.backend import NumpyBackend
from gputabu.data.points import Points

RNG = np.random.default_rng(7)
X = RNG.integers(-50, 50, size=(9, 2))[RNG.integers(9, size=360)] + RNG.integers(-64, 65, size=(360, 2)) / 16
WEIGHTS = RNG.integers(0, 5, size=360) / 4


@pytest.fixture
def small_samples(monkeypatch):
    """Samples of 40 and 160 of the 360 points, for 5 clusters."""
    monkeypatch.setattr(coarse, "PER_CENTER", 8)


def same(a, b):
    np.testing.assert_array_equal(a.labels, b.labels)
    np.testing.assert_array_equal(a.centers, b.centers)
    np.testing.assert_array_equal(a.trace.current, b.trace.current)
    assert a.inertia == b.inertia and a.stop is b.stop


def test_sizes_rise_to_half_of_the_points(monkeypatch):
    points = Points.of(np.zeros((256 * 3 * 33, 2)))
    assert coarse.sizes(points, 3) == [768, 3072, 12288]  # and not 49152 of 25344
    assert coarse.sizes(Points.of(np.zeros((1535, 2))), 3) == []
    monkeypatch.setattr(coarse, "MAX_BYTES", 4000 * 16)
    assert coarse.sizes(points, 3) == [768, 3072]


@pytest.mark.parametrize("rows", [None, 7])
def test_a_sample_has_a_row_of_each_stretch_with_its_weight(rows):
    numbered = np.arange(101.0)[:, None]
    backend = NumpyBackend(Points.of(numbered, numbered[:, 0] + 1, rows))
    found = coarse.sample(backend, 10, seed=3)
    drawn = found.chunks[0][:, 0]
    np.testing.assert_array_equal(found.weights[0], drawn + 1)
    ends = np.arange(1, 11) * 10 + np.arange(1, 11) // 10
    assert (drawn < ends).all() and (drawn[1:] >= ends[:-1]).all()
    assert coarse.sample(backend, 10, seed=4).chunks[0].tolist() != found.chunks[0].tolist()


def test_weights_of_which_most_are_zero_are_not_sampled():
    backend = NumpyBackend(Points.of(X, (np.arange(360) < 90).astype(float)))
    assert coarse.sample(backend, 40, seed=0) is None


@pytest.mark.parametrize("weights", [None, WEIGHTS])
def test_the_same_bits_everywhere(small_samples, weights, backend):
    plain = relocation.search(X, 5, weights=weights, restarts=2, effort=3, backend="numpy")
    same(relocation.search(X, 5, weights=weights, restarts=2, effort=3, backend=backend), plain)
    same(relocation.search(Points.of(X, weights, 50), 5, restarts=2, effort=3, backend=backend), plain)


def test_a_restart_does_not_depend_on_the_others(small_samples):
    both = relocation.search(X, 5, restarts=[4, 9], backend="numpy")
    alone = [relocation.search(X, 5, restarts=[number], backend="numpy") for number in (4, 9)]
    assert both.inertias.tolist() == [one.inertia for one in alone]


def test_a_start_that_is_given_is_not_sampled(small_samples):
    phases = set()
    relocation.search(X, 5, init=X[:5], callback=lambda told: phases.add(told.phase), backend="numpy")
    assert phases == {"start", "search", "refine"}
    relocation.search(X, 5, callback=lambda told: phases.add(told.phase), backend="numpy")
    assert phases == {"start", "sample", "search", "refine"}


@pytest.mark.parametrize("phase", ["start", "sample", "search"])
def test_from_a_checkpoint_the_same_end(small_samples, phase, tmp_path):
    class Killed(Exception):
        pass

    def kill(told):
        if told.phase == phase and told.iteration == 2:
            raise Killed

    path = tmp_path / "fit.ckpt"
    with pytest.raises(Killed):
        relocation.search(X, 5, restarts=2, checkpoint=path, callback=kill, backend="numpy")
    same(
        relocation.search(X, 5, restarts=2, checkpoint=path, backend="numpy"),
        relocation.search(X, 5, restarts=2, backend="numpy"),
    )


def test_a_callback_ends_it_on_a_sample(small_samples):
    found = relocation.search(X, 5, callback=lambda told: told.phase == "sample", backend="numpy")
    assert found.stop is Stop.CALLBACK and found.labels.shape == (360,)


# -- how long a search is --------------------------------------------------------------------------


def test_more_effort_goes_on_where_less_ends():
    little, more = (relocation.search(X, 9, effort=effort) for effort in (3, 9))
    assert little.stop is more.stop is Stop.EFFORT
    assert 0 < little.n_iter < more.n_iter
    np.testing.assert_array_equal(more.trace.current[0, : little.n_iter + 1], little.trace.current[0])


def test_other_limits_replace_the_effort_and_end_earlier_than_it():
    assert relocation.search(X, 9).stop is Stop.EFFORT
    assert relocation.search(X, 9, max_iter=200).n_iter == 200
    assert relocation.search(X, 9, max_iter=200, patience=3).stop is Stop.PATIENCE
    assert relocation.search(X, 9, max_iter=2, effort=100).stop is Stop.MAX_ITER


@pytest.mark.parametrize("search", [relocation.search, quantized.search])
def test_time_alone_is_used(search):
    begun = time.perf_counter()
    found = search(X, 9, max_time=0.4)
    assert time.perf_counter() - begun >= 0.36
    assert found.stop is Stop.MAX_TIME or len(found.inertias) > 1


def test_the_effort_of_the_papers_search_multiplies_its_limits():
    def limits(**options):
        checked = quantized.QuantizedSearch.checked(
            Points.of(X).shape, 3, init="random", target=0.0, refine="lloyd", scope="cluster", n_neighbors=1, seed=0,
            **({"effort": None, "max_iter": None, "patience": None} | options),
        )  # fmt: skip
        return checked.max_iter, checked.patience, checked.endless

    assert limits() == (400, 100, True)
    assert limits(effort=0.5) == (200, 50, False)
    assert limits(max_iter=40) == (40, 10, False)
    assert limits(patience=7) == (400, 7, False)
    with pytest.raises(ValueError, match="effort=2 and max_iter=9 limit the same"):
        limits(effort=2, max_iter=9)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"effort": -1}, "effort=-1 must be"),
        ({"effort": "much"}, "effort='much' must be"),
        ({"max_iter": 0}, "'max_iter' parameter of TabuKMeans must"),
    ],
)
def test_limits_are_checked(options, said):
    with pytest.raises((TypeError, ValueError), match=said):
        TabuKMeans(3, **options).fit(X)


def test_the_bar_names_the_limit_that_ends_the_search():
    estimate = ProgressEstimate(1, 100, 20)
    estimate.begin(1, first=True)
    estimate.note(np.array([0]), 50, np.array([5.0]), np.array([False]), np.array([0.1]))
    assert estimate.limit == "patience" and estimate.left(10.0) == 4.0
    estimate.note(np.array([0]), 60, np.array([5.0]), np.array([False]), np.array([0.95]))
    assert estimate.limit == "effort"
