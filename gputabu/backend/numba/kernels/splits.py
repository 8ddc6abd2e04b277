"""Splits of clusters in compiled code: `NumpySplits`."""

from __future__ import annotations

import numpy as np

from gputabu.backend.numba.kernels.canonical import square
from gputabu.backend.numba.kernels.fixed_point import LIMB_UNIT, quantize_point, rounded
from gputabu.backend.numba.kernels.jit import compiled, inner


@inner
def along(x, center, axis):
    """⟨x − c, a⟩, added in order."""
    total = 0.0
    for j in range(len(x)):
        total += (np.float64(x[j]) - center[j]) * axis[j]
    return total


@compiled
def split_rows(X, weights, first, children, parents, labels, scales, totals, changed, term):
    """`Backend.split_assign` for the rows from `first` on: X (n, d), children (R, K, 2, d), labels (R, N)."""
    weighted = len(weights) > 0
    for i in range(len(X)):
        weight, known = weights[i] if weighted else 1.0, False
        for r in range(len(labels)):
            above, old = parents[r, first + i], labels[r, first + i]
            pair = children[r, above]
            new = np.int32(2 * above + (square(X[i], pair[1]) < square(X[i], pair[0])))
            if old == new:
                continue
            if not known:
                quantize_point(X[i], weight, weighted, scales.axes, scales.weight, term)
                known = True
            labels[r, first + i] = new
            changed[r] += 1
            for c in range(len(term)):
                totals[r, new, c] += term[c]
                if old >= 0:
                    totals[r, old, c] -= term[c]


@compiled
def axis_rows(X, weights, first, centers, axes, wanted, labels, to_limbs, sums):
    """`Backend.axis_partial` for the rows from `first` on; wanted (R, K) bool, sums (2, R, K, d)."""
    n, d = X.shape
    for r in range(len(labels)):
        for i in range(n):
            label = np.uint64(labels[r, first + i])
            if not wanted[r, label]:
                continue
            center = centers[r, label]
            length = along(X[i], center, axes[r, label])
            highs, lows = sums[0, r, label], sums[1, r, label]
            for j in range(d):
                value = (np.float64(X[i, j]) - center[j]) * length
                if len(weights) > 0:
                    value = value * weights[i]
                value = value * to_limbs
                high = rounded(value)
                highs[j] += np.int64(high)
                lows[j] += np.int64(rounded((value - high) * LIMB_UNIT))


@compiled
def histogram_rows(X, weights, first, centers, axes, labels, slots, weight_scale, counts):
    """`Backend.histogram_partial` for the rows from `first` on: counts (L, n_slots, bins)."""
    bins = counts.shape[2]
    for r in range(len(labels)):
        for i in range(len(X)):
            label = np.uint64(labels[r, first + i])
            slot = slots[r, label]
            if slot < 0:
                continue
            place = along(X[i], centers[r, label], axes[r, label]) + bins / 2
            at = 0
            if place >= bins:
                at = bins - 1
            elif place > 0.0:
                at = np.int64(place)
            if len(counts) == 1:
                counts[0, slot, at] += 1
            else:
                value = weights[i] * weight_scale[0]
                high = rounded(value)
                counts[0, slot, at] += np.int64(high)
                counts[1, slot, at] += np.int64(rounded((value - high) * LIMB_UNIT))
