"""What it costs to hand points of one cluster to another: the pass of every backend is that of the slow one."""

import itertools

import numpy as np
import pytest
from slow_backend import SlowBackend

from gputabu.backend import open_backend
from gputabu.data.points import Points


@pytest.mark.parametrize("by_weight", [False, True])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_pass(backend, dtype, by_weight):
    rng = np.random.default_rng(1)
    X = rng.integers(0, 4, (311, 3)).astype(dtype)
    weights = rng.integers(0, 3, 311) / 2
    centers, sources = rng.random((5, 3)) * 4, np.array([0, 2, 4])
    slow = SlowBackend(Points.of(X, weights))
    measure = slow.measure(centers, by_weight)
    prices = rng.integers(0, int(measure.scale), 5)
    for count, chunk_rows in itertools.product((1, 3, 128), (None, 50)):
        expected_labels = slow.blank_labels(1)
        expected = slow.transfers_partial(centers, expected_labels, prices, sources, count, measure)
        with open_backend(Points.of(X, weights, chunk_rows), backend) as opened:
            labels = opened.blank_labels(1)
            for asked in (prices, None):
                found = opened.transfers_partial(centers, labels, asked, sources, count, measure)
                np.testing.assert_array_equal(opened.fetch_labels(labels, 0), expected_labels[0])
                for name in ("value", "row", "sizes"):
                    np.testing.assert_array_equal(getattr(found, name), getattr(expected, name), err_msg=name)
