"""The passes of splits against their formulas, written out: ties, weights of zero, chunks, shards."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import blobs
from slow_backend import SlowBackend

from gputabu import Points
from gputabu.backend import open_backend
from gputabu.backend.sharded import ShardedBackend


def problem(dtype, weighted, n=97, d=3):
    X = blobs(n, d, 3, seed=4, dtype=dtype)
    X[5] = X[60]
    X[:20] = np.rint(X[:20])  # ties between children
    rng = np.random.default_rng(1)
    weights = rng.integers(0, 3, n) * rng.random(n) if weighted else None
    if weighted:
        X[np.flatnonzero(weights == 0)[0]] = 1e30 if dtype is np.float32 else 1e90  # outside of the box
    centers = rng.normal(scale=4, size=(2, 4, d))
    children = np.stack([centers, np.rint(centers)], axis=2)
    children[:, 2, 1] = children[:, 2, 0]
    axes = rng.normal(size=(2, 4, d)) / 4
    axes[0, 1] = 0
    return X, weights, centers, children, axes


def answers(points, backend, centers, children, axes):
    """What the passes return, and the labels."""
    with open_backend(points, backend) as opened:
        inside = np.clip(centers, opened.bounds.low, opened.bounds.high)
        parents, labels = opened.label(centers), opened.blank_labels(2)
        first, second = (opened.split_assign(each, parents, labels) for each in (children, children + 0.25))
        slots = np.array([[1, -1, 0, 2], [-1, 2, 1, 3]], np.int32)  # two clusters may share one
        counts = opened.histogram_partial(centers, axes * 3, parents, slots, 4, 16)
        sums = opened.axis_partial(inside, axes, parents, opened.grid.cost)
        return [first.totals, first.changed, second.totals, second.changed, sums, counts,
                *(opened.fetch_labels(labels, r) for r in (0, 1))]  # fmt: skip


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("chunk_rows", [None, 1, 40])
def test_splits_have_the_bits_of_the_plain_backend(dtype, weighted, chunk_rows, backend):
    X, weights, *tables = problem(dtype, weighted)
    plain = answers(Points.of(X, weights), SlowBackend, *tables)
    found = answers(Points.of(X, weights, chunk_rows), backend.tuned(piece_elements=40, threads=2), *tables)
    for one, other in zip(plain, found, strict=True):
        np.testing.assert_array_equal(one, other)


def test_shards_of_splits(backend):
    X, weights, *tables = problem(np.float64, True)

    def sharded(points):
        parts = [points.part(*rows) for rows in ((0, 7), (7, 60), (60, 97))]
        return ShardedBackend(points, [open_backend(part, backend) for part in parts])

    whole = answers(Points.of(X, weights), "numpy", *tables)
    with open_backend(Points.of(X, weights), sharded) as opened:
        labels = opened.blank_labels(2)
        done = opened.split_assign(tables[1], opened.label(tables[0]), labels)
        np.testing.assert_array_equal(done.totals, whole[0])
        slots = np.array([[1, -1, 0, 2], [-1, 2, 1, 3]], np.int32)
        counts = opened.histogram_partial(tables[0], tables[2] * 3, opened.label(tables[0]), slots, 4, 16)
        np.testing.assert_array_equal(counts, whole[5])


def test_by_hand(backend):
    X = np.array([[0.0], [1.0], [2.0], [9.0]])
    with open_backend(Points.of(X), backend) as opened:
        parents, labels = opened.label(np.array([[[1.0], [9.0]]])), opened.blank_labels(1)
        done = opened.split_assign(np.array([[[[0.0], [2.0]], [[9.0], [9.0]]]]), parents, labels)
        assert opened.fetch_labels(labels, 0).tolist() == [0, 0, 1, 2]  # 1 is as near to both
        assert done.totals[0, :, -1].tolist() == [2, 1, 1, 0]
        step = opened.axis_step(np.array([[[1.0], [9.0]]]), np.array([[[1.0], [0.0]]]), parents)
        assert step.tolist() == [[[2.0], [0.0]]]
        slots = np.array([[0, 1]], np.int32)
        counts = opened.histogram(np.array([[[1.0], [9.0]]]), np.array([[[1.5], [1.0]]]), parents, slots, 2, 4)
        assert counts.tolist() == [[1, 0, 1, 1], [0, 0, 1, 0]]  # at 0.5, 2, 3.5
        outside = opened.histogram(np.array([[[1.0], [9.0]]]), np.array([[[5.0], [np.inf]]]), parents, slots, 2, 4)
        assert outside.tolist() == [[1, 0, 1, 1], [1, 0, 0, 0]]  # no number: the first
