"""Chunks, and the fixed-point grid: what goes into limbs comes back, and sums know no order."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from conftest import blobs
from hypothesis import given, settings
from hypothesis import strategies as st

from gputabu import Points
from gputabu.backend import open_backend
from gputabu.backend.arithmetic.constants import LIMB
from gputabu.backend.arithmetic.fixed_point import Bounds, Totals, from_limbs, limbs
from gputabu.data.points import exponent

X = np.arange(20.0).reshape(10, 2)


@pytest.mark.parametrize("rows", [1, 3, 10, 99, None])
def test_chunks_are_views_in_order(rows):
    points = Points.of(X, np.arange(10.0), rows)
    assert (points.n, points.d, points.dtype) == (10, 2, np.float64)
    size = min(rows or 10, 10)
    assert points.starts == tuple(range(0, 10, size))
    assert all(np.shares_memory(chunk, X) for chunk in points.chunks)
    np.testing.assert_array_equal(np.concatenate(points.chunks), X)
    np.testing.assert_array_equal(np.concatenate(points.weights), np.arange(10.0))


@pytest.mark.parametrize("rows", [1, 3, 10])
def test_blocks_cut_chunks_but_never_join_them(rows):
    blocks = list(Points.of(X, np.arange(10.0), rows).blocks(2))
    assert max(len(block.X) for block in blocks) <= 2
    np.testing.assert_array_equal(np.concatenate([block.X for block in blocks]), X)
    for block in blocks:
        np.testing.assert_array_equal(X[block.rows], block.X)
        np.testing.assert_array_equal(np.arange(10.0)[block.rows], block.weights)


@pytest.mark.parametrize("rows", [1, 3, 10])
def test_rows_and_weights_by_number(rows):
    points = Points.of(X.astype(np.float32), np.arange(10.0), rows)
    wanted = np.array([[9, 0, 3], [2, 3, 9]])
    assert points.rows(wanted).dtype == np.float64
    np.testing.assert_array_equal(points.rows(wanted), X[wanted])
    np.testing.assert_array_equal(points.weights_at(wanted), wanted)
    assert points.rows(np.empty(0, np.int64)).shape == (0, 2)


def test_points_without_weights_weigh_one():
    points = Points.of(X)
    assert points.weights_at(np.array([4, 4])).tolist() == [1.0, 1.0]
    assert (points.total_weight, points.weight_prefix) == (10.0, None)
    assert Points.of(X, np.ones(10)).weights is None


@pytest.mark.parametrize("rows", [1, 4, 10])
def test_weight_prefix(rows):
    """Powers of two are on the grid: the running totals have their exact ratios, and leave room to add."""
    weights = np.array([1, 2, 0, 4, 8, 0.5, 0, 0, 16, 32])
    points = Points.of(X, weights, rows)
    prefix = points.weight_prefix
    assert prefix.dtype == np.int64
    unit = prefix[0]
    assert [Fraction(int(p), int(unit)) for p in prefix] == np.cumsum(weights).tolist()
    assert 2**50 < prefix[-1] <= 2**61
    assert points.total_weight == 63.5


@given(st.floats(-1e100, 1e100))
def test_exponent_is_the_least(value):
    e = exponent(value)
    if value == 0:
        assert e == 0
    else:
        assert Fraction(2) ** (e - 1) < abs(Fraction(value)) <= Fraction(2) ** e


def test_exponent_of_powers_of_two():
    assert [exponent(v) for v in (0.0, 0.5, 1.0, 1.5, -2.0, 1024.0, 1025.0)] == [0, -1, 0, 1, 1, 10, 11]


@settings(max_examples=200)
@given(st.integers(-(2**50), 2**50), st.integers(-60, 60), st.integers(2, 3))
def test_limbs_hold_what_the_grid_holds(mantissa, scale, count):
    """A multiple of the grid's unit comes back exactly, from integers of at most LIMB bits."""
    value = np.ldexp(float(mantissa), scale)
    e = 51 + scale  # with two limbs the unit is 2^(scale - 5)
    parts = limbs(np.array([value]), e, count)
    assert all(part == np.rint(part) and abs(part) <= 2**LIMB for part in parts)
    assert from_limbs(*(part.astype(np.int64) for part in parts), exponents=e)[0] == value


def test_limbs_round_only_below_their_last_bit():
    values = np.random.default_rng(0).uniform(-1, 1, size=1000) * 2.0 ** np.arange(-100.0, 0.0, 0.1)
    for count in (2, 3):
        parts = [part.astype(np.int64) for part in limbs(values.copy(), 0, count)]
        found = from_limbs(*parts, exponents=0)
        assert np.abs(found - values).max() <= 2.0 ** (-count * LIMB - 1)


def test_limbs_of_features_with_grids_of_their_own():
    values = np.array([[3e20, 5e-20], [-1e20, 2e-20]])
    exponents = np.array([70, -60])
    high, low = limbs(values.copy(), exponents, 2)
    found = from_limbs(high.astype(np.int64), low.astype(np.int64), exponents=exponents)
    np.testing.assert_allclose(found, values, rtol=1e-14)


def test_sums_of_limbs_are_the_sums_of_the_terms():
    """0.1 added a million times: floating point drifts, limbs do not."""
    parts = [part.astype(np.int64) * 10**6 for part in limbs(np.array([0.1]), 0, 3)]
    assert from_limbs(*parts, exponents=0)[0] == float(Fraction(0.1) * 10**6)


def test_points_of_weight_zero_are_outside_the_bounds(backend):
    far = np.array([[0.0, 1.0], [2.0, 3.0], [9e9, -9e9]])
    for rows in (1, 3):
        with open_backend(Points.of(far, [1.0, 0.25, 0.0], rows), backend) as opened:
            assert opened.bounds.low.tolist() == [0.0, 1.0]
            assert opened.bounds.high.tolist() == [2.0, 3.0]
            assert opened.bounds.weight == 1.0
            np.testing.assert_allclose(opened.grid.offset, [0.4, 1.4], rtol=1e-14)


def test_bounds_join():
    box = Bounds(np.array([0.0]), np.array([1.0]), 3.0)
    wide = box.joined(np.array([[[-2.0], [0.5]]]))
    assert (wide.low.tolist(), wide.high.tolist(), wide.weight) == ([-2.0], [1.0], 3.0)
    merged = Bounds.merge([box, Bounds(np.array([-1.0]), np.array([0.5]), 4.0)])
    assert (merged.low.tolist(), merged.high.tolist(), merged.weight) == ([-1.0], [1.0], 4.0)


def totals(points: Points, centers: np.ndarray, backend: str) -> tuple[np.ndarray, np.ndarray]:
    with open_backend(points, backend) as opened:
        labels = opened.blank_labels(1)
        sums = opened.assign(centers[None], labels).totals
        return sums, opened.grid.offset


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
def test_order_and_chunks_change_no_bit_of_the_totals(dtype, weighted, backend):
    data = blobs(777, 3, 4, dtype=dtype) * dtype(0.1)
    weights = np.random.default_rng(1).random(777) if weighted else None
    centers = data[:5].astype(float)
    sums, offset = totals(Points.of(data, weights), centers, backend)
    assert Totals.counts(sums).sum() == 777
    assert sums.shape[-1] == Totals.columns(3, weighted)
    order = np.random.default_rng(2).permutation(777)
    for rows in (13, None):
        other = Points.of(data[order], None if weights is None else weights[order], rows)
        np.testing.assert_equal(totals(other, centers, backend), (sums, offset))


def test_translation_by_the_grid_changes_no_total(backend):
    """Integers moved by an integer: every difference is exact, so only the offset of the grid moves."""
    data = np.random.default_rng(0).integers(0, 64, size=(256, 2)).astype(float)
    data = np.concatenate([data, 64 - data])  # the mean is 32, and stays exact
    here, offset = totals(Points.of(data), data[:4], backend)
    there, moved = totals(Points.of(data + 4096), data[:4] + 4096, backend)
    np.testing.assert_array_equal(here, there)
    np.testing.assert_array_equal(moved, offset + 4096)
