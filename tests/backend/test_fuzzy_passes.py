"""The passes of fuzzy c-means against plain loops; powers against exact ones."""

from __future__ import annotations

import math

import numpy as np
import pytest
from conftest import blobs
from slow_backend import SlowBackend

from gputabu import Points
from gputabu.backend import open_backend
from gputabu.backend.arithmetic.fixed_point import carried
from gputabu.backend.arithmetic.powers import EXP_SERIES, LOG_SERIES, Exponent, by_series, power
from gputabu.backend.sharded import ShardedBackend

FUZZIFIERS = (1.01, 1.25, 1.5, 2.0, 2.7, 3.0, 40.0)


def problem(dtype, weighted, n=90, d=3):
    X = blobs(n, d, 3, seed=4, dtype=dtype)
    rng = np.random.default_rng(1)
    weights = rng.integers(0, 3, n) * rng.random(n) if weighted else None
    if weighted:
        X[np.flatnonzero(weights == 0)[0]] = 1e4  # outside of the box
    centers = rng.normal(scale=4, size=(2, 4, d))
    centers[0, 1] = centers[0, 3] = X[5]  # two centres on a point
    centers[1, 2] = 1e3
    return X, weights, centers


def answers(points, backend, centers, m):
    with open_backend(points, backend) as opened:
        inside = np.clip(centers, opened.bounds.low, opened.bounds.high)
        return *opened.fuzzy_partial(inside, m, opened.grid.cost), opened.memberships(centers[0], m)


@pytest.mark.parametrize("m", FUZZIFIERS)
@pytest.mark.parametrize(("dtype", "weighted"), [(np.float32, True), (np.float64, False)])
@pytest.mark.one_device
def test_sums_have_the_bits_of_the_plain_backend(dtype, weighted, m, backend):
    X, weights, centers = problem(dtype, weighted)
    plain = answers(Points.of(X, weights), SlowBackend, centers, m)
    for chunk_rows in (None, 7):
        points = Points.of(X, weights, chunk_rows)
        for one, other in zip(plain, answers(points, backend.tuned(piece_elements=90), centers, m), strict=True):
            np.testing.assert_array_equal(one, other)


def test_shards(backend):
    X, weights, centers = problem(np.float64, True)

    def sharded(points):
        parts = [points.part(*rows) for rows in ((0, 7), (7, 60), (60, 90))]
        return ShardedBackend(points, [open_backend(part, backend) for part in parts])

    points = Points.of(X, weights)
    for one, other in zip(answers(points, "numpy", centers, 2.0), answers(points, sharded, centers, 2.0), strict=True):
        np.testing.assert_array_equal(one, other)


def test_by_hand(backend):
    """At 1 between 0 and 4: d is 1 and 9, u 9/10 and 1/10, J 81/100 + 9/100."""
    with open_backend(Points.of(np.array([[1.0], [0.0], [4.0]])), backend) as opened:
        centers = np.array([[[0.0], [4.0]]])
        np.testing.assert_allclose(opened.memberships(centers[0], 2.0), [[0.9, 0.1], [1, 0], [0, 1]], rtol=1e-15)
        moved, cost = opened.fuzzy_step(centers, 2.0)
        assert cost[0] == pytest.approx(0.9, rel=1e-13)
        np.testing.assert_allclose(moved[0, :, 0], [0.81 / 1.81, 4.01 / 1.01], rtol=1e-12)


def test_a_step_is_good_to_many_digits(backend):
    """Far from the origin, with an outlier, against NumPy as everybody writes it."""
    X = blobs(3000, 4, 5) + 1000
    X[7] += 500
    centers = X[None, :5]
    with open_backend(Points.of(X), backend) as opened:
        moved, cost = opened.fuzzy_step(centers, 2.0)
    d = ((X[:, None] - centers[0] + 1e-300) ** 2).sum(axis=2)
    u = np.where(d == 0, 1.0, 0.0)
    rest = (d > 0).all(axis=1)
    u[rest] = (1 / d[rest]) / (1 / d[rest]).sum(axis=1, keepdims=True)
    np.testing.assert_allclose(moved[0], (u**2).T @ X / (u**2).sum(axis=0)[:, None], rtol=1e-12)
    assert cost[0] == pytest.approx((u**2 * d).sum(), rel=1e-12)


def test_powers():
    x = np.r_[0.0, 1.0, np.random.default_rng(0).random(200), 2.0**-600, 2.0**-1001, 37.5]
    for p in (0.25, 0.5, 1.0, 1.25, 2.0, 3.0, 7.75, 16.0, 0.01, 1 / 3, 100.0, 2.718):
        found = power(x, Exponent.of(p))
        expected = np.array([v**p if v > 0 else 0.0 for v in x.tolist()])
        keep = (expected == 0) | ((expected >= 2.0**-990) & (x >= 2.0**-1000))
        np.testing.assert_allclose(found[keep], expected[keep], rtol=3e-13)
        assert (found[~keep] <= 2.0**-980).all() or p < 1
    np.testing.assert_allclose(by_series(x[2:202], 2.0), x[2:202] ** 2, rtol=1e-14)
    assert [Exponent.of(p).whole for p in (0.5, 2.0, 16.0, 16.25, 0.3)] == [0, 2, 16, -1, -1]


def test_series_are_what_they_say():
    assert LOG_SERIES[-1] == 2 / math.log(2)
    assert EXP_SERIES[-1] == 1.0
    np.testing.assert_allclose(EXP_SERIES[::-1], [math.log(2) ** i / math.factorial(i) for i in range(16)], rtol=1e-14)


def test_carried_sums():
    sums = carried(np.array([[3, -1, 0], [-5, 1 << 60, 7]]))
    assert ((sums[1] >= 0) & (sums[1] < 1 << 28)).all()
    assert [int(a) * 2**28 + int(b) for a, b in sums.T] == [3 * 2**28 - 5, -(2**28) + 2**60, 7]
