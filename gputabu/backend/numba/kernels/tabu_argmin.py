"""J, and the free points nearest to the centre of each cluster: `NumpyBackend.survey_partial`."""

from __future__ import annotations

import numpy as np

from gputabu.backend.numba.kernels.canonical import squares_to_own
from gputabu.backend.numba.kernels.fixed_point import add_costs, cost_from
from gputabu.backend.numba.kernels.jit import compiled, inner
from gputabu.backend.numba.kernels.scores import BLOCK

#: The key of no point, as `arithmetic.keys.NO_KEY`.
NO_KEY = np.uint64(2**64 - 1)


@inner
def lower_keys(squares, weights, labels, forbidden, scale, row, keys, n):
    """Lower the least keys of the clusters, (K, M), by the free points among n: `keys.keys_of`, `keys.Least`."""
    weighted, last = len(weights) > 0, keys.shape[1] - 1
    for i in range(n):
        bits = np.float32(squares[i] * scale).view(np.uint32)
        key = np.uint64(bits) << np.uint64(32) | np.uint64(row + i)
        label = np.uint64(labels[i])
        if key < keys[label, last] and not forbidden[i] and not (weighted and weights[i] == 0.0):
            m = last
            while m > 0 and key < keys[label, m - 1]:
                keys[label, m] = keys[label, m - 1]
                m -= 1
            keys[label, m] = key


@compiled
def survey_rows(X, weights, first, labels, forbidden, span, centers, cost_to_limbs, key_scale, sums, keys, squares):
    """`Backend.survey_partial` for the rows from `first` on: X (n, d), labels and forbidden (R, N); adds to sums (R, 3)
    and lowers keys (R, K, M).

    Rows in keys are counted from `span`. M = 0 is for J alone; forbidden is not read then.
    """
    n = len(X)
    for start in range(0, n, BLOCK):
        stop = min(n, start + BLOCK)
        block_weights = weights[start:stop]
        a, b = first + start, first + stop
        for r in range(len(labels)):
            block_labels = labels[r, a:b]
            squares_to_own(X[start:stop], block_labels, centers[r], squares)
            add_costs(squares, block_weights, cost_to_limbs, sums[r], stop - start)
            if keys.shape[2]:
                lower_keys(
                    squares, block_weights, block_labels, forbidden[r, a:b], key_scale, a - span, keys[r], stop - start
                )


@inner
def survey_all(X, weights, centers, labels, cost, sums, squares, keys, forbidden, key_scale):
    """J at centers (K, d), and the least keys of the free points (K, 1) of one restart; no keys for J alone."""
    n = len(X)
    for limb in range(3):
        sums[limb] = 0
    for a in range(len(keys)):
        keys[a, 0] = NO_KEY
    for start in range(0, n, BLOCK):
        stop = min(n, start + BLOCK)
        block_labels, block_weights = labels[start:stop], weights[start:stop]
        squares_to_own(X[start:stop], block_labels, centers, squares)
        add_costs(squares, block_weights, cost[0], sums, stop - start)
        if len(keys):
            lower_keys(
                squares, block_weights, block_labels, forbidden[start:stop], key_scale, start, keys, stop - start
            )
    return cost_from(sums[0], sums[1], sums[2], cost)
