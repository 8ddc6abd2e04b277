"""The passes of trial labellings in all modes, and of steps from trials, against plain loops."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from conftest import blobs
from slow_backend import SlowBackend

from gputabu import Points
from gputabu.algorithms.reassignment_loop import Plan
from gputabu.backend import open_backend
from gputabu.backend.contract import TrialBatch
from gputabu.backend.sharded import ShardedBackend

R, T, K = 2, 3, 4
MODES = ("threshold", "mutation", "divide", "given")


def problem(dtype, weighted, n=61, d=3):
    X = blobs(n, d, 3, seed=4, dtype=dtype)
    X[:20] = np.rint(X[:20])  # ties
    rng = np.random.default_rng(1)
    weights = rng.integers(0, 3, n) * rng.random(n) if weighted else None
    if weighted:
        X[np.flatnonzero(weights == 0)[0]] = 1e30 if dtype is np.float32 else 1e90  # outside of the box
    return X, weights


def lot(mode, X):
    """A batch of trials in a mode."""
    rng = np.random.default_rng(7)
    plain = TrialBatch(K, 5, np.array([4, 2**40], np.uint64), 9, T, Plan(keep=0.7).limit)
    if mode == "mutation":
        centers = rng.normal(scale=4, size=(R, K, X.shape[1]))
        centers[0, 1] = centers[0, 2] = X[5]
        return replace(plain, centers=centers)
    if mode == "divide":
        cuts = np.array([[0, 1, 2], [3, 0, 1], [2, 3, 0]], np.int32)
        pairs = X[rng.integers(20, size=(R, T, 2))].astype(float)
        pairs[0, 0, 1] = pairs[0, 0, 0]  # nobody is nearer to the second
        return replace(plain, cuts=np.stack([cuts, cuts[::-1]]), pairs=pairs)
    if mode == "given":
        return replace(plain, n_trials=1, given=rng.integers(K, size=(R, len(X)), dtype=np.int32))
    return plain


def answers(points, backend, X):
    """What the passes return, and labels."""
    found, everyone = [], np.ones(R, np.bool_)
    with open_backend(points, backend) as opened:
        start = TrialBatch(K, 5, np.array([4, 2**40], np.uint64), 0, 1, 0)
        for mode in MODES:
            labels, best, trials = opened.blank_labels(R), opened.blank_labels(R), lot(mode, X)
            totals = opened.apply_trial(labels, best, start, np.zeros(R, int), everyone).totals
            if mode != "given":
                found += opened.evaluate_trials_partial(labels, trials)
                found.append(opened.evaluate_trials(labels, totals, trials).cost)
                found.append(opened.member_keys_partial(labels, np.arange(R * T).reshape(R, T) % K, trials))
            done = opened.apply_trial(labels, best, trials, np.array([0, trials.n_trials - 1]), everyone)
            found += [done.totals, done.changed, *(opened.fetch_labels(each, r) for r in (0, 1) for each in (
                labels, best))]  # fmt: skip
        centers = np.clip(np.random.default_rng(2).normal(scale=4, size=(5, K, X.shape[1])), opened.bounds.low,
                          opened.bounds.high)  # fmt: skip
        centers[3, 2] = centers[3, 0]  # an empty cluster
        for moves in (False, True):
            steps = opened.evaluate_steps(centers, moves, trials)
            found += [steps.totals, steps.cost, steps.fingerprints]
    return found


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.one_device
def test_trials_have_the_bits_of_the_plain_backend(dtype, weighted, backend):
    X, weights = problem(dtype, weighted)
    plain = answers(Points.of(X, weights), SlowBackend, X)
    for chunk_rows in (None, 7):
        points = Points.of(X, weights, chunk_rows)
        for one, other in zip(plain, answers(points, backend.tuned(piece_elements=300), X), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.one_device
def test_trials_in_shards(backend):
    X, weights = problem(np.float64, True)

    def sharded(points):
        parts = [points.part(*rows) for rows in ((0, 7), (7, 41), (41, 61))]
        return ShardedBackend(points, [open_backend(part, backend) for part in parts])

    points = Points.of(X, weights)
    for one, other in zip(answers(points, "numpy", X), answers(points, sharded, X), strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.one_device
def test_steps_are_what_making_them_gives(backend):
    """Totals, J and moves of a step, against the passes that make labels."""
    X = blobs(200, 3, 4)
    centers = X[None, :5].astype(float)
    trials = TrialBatch(5, 1, np.zeros(1, np.uint64), 1, 1, 0)
    with open_backend(Points.of(X), backend) as opened:
        labels = opened.blank_labels(1)
        totals = opened.assign(centers, labels).totals
        step = opened.evaluate_steps(centers, False, trials)
        np.testing.assert_array_equal(step.totals, totals)
        between = opened.grid.centroids(totals, centers)
        moves = opened.find_moves(between, totals, labels)
        assert len(moves) > 0
        opened.relabel(labels, moves)
        swept = opened.evaluate_steps(centers, True, trials)
        np.testing.assert_array_equal(opened.assign(centers, labels).totals, totals - swept.totals)
        assert (swept.fingerprints != step.fingerprints).any()


@pytest.mark.one_device
def test_by_hand(backend):
    """At 1 from centres at 0 and 4: distances 1 and 3, shares 1.5·3 − 1 + 0.5 = 4 and 2; a third goes far."""
    X = np.repeat([[1.0], [0.0], [4.0]], [3000, 1, 1], axis=0)
    with open_backend(Points.of(X), backend) as opened:
        labels, best = opened.blank_labels(1), opened.blank_labels(1)
        none, one = np.zeros(1, int), np.zeros(1, np.bool_)
        opened.apply_trial(labels, best, TrialBatch(2, 0, np.zeros(1, np.uint64), 0, 1, 0), none, one)
        trials = TrialBatch(2, 0, np.zeros(1, np.uint64), 1, 1, 0, centers=np.array([[[0.0], [4.0]]]))
        opened.apply_trial(labels, best, trials, none, one)
        assert opened.fetch_labels(labels, 0)[:3000].mean() == pytest.approx(1 / 3, abs=0.04)
