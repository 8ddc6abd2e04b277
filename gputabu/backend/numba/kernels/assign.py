"""Labels by the nearest centre, and what they change in the totals of the clusters: `NumpyBackend.assign`."""

from __future__ import annotations

import numpy as np

from gputabu.backend.numba.kernels.canonical import squares_to_all
from gputabu.backend.numba.kernels.fixed_point import quantize_point
from gputabu.backend.numba.kernels.jit import compiled, inner
from gputabu.backend.numba.kernels.scores import BLOCK, prepare_points, rank


@inner
def canonical_nearest(x, across, squares):
    """The nearest centre by the canonical formula, the lowest number on ties: (d,), (d, K) -> a."""
    squares_to_all(x, across, squares)
    least = 0
    for a in range(1, across.shape[1]):
        if squares[a] < squares[least]:
            least = a
    return np.int32(least)


@inner
def resolve_doubt(X, length, doubt, across, best, second, best_center, squares):
    """Decide canonically what the two best scores of the points X (n, d) leave in doubt: `certified.nearest`."""
    n = len(X)
    doubt0, doubt1, doubt2 = doubt[0], doubt[1], doubt[2]
    certain = 0  # counted first, in vector instructions: most blocks have no point in doubt
    for i in range(n):
        certain += second[i] - best[i] > doubt0 + length[i] * (doubt1 + length[i] * doubt2)
    if certain == n:
        return
    for i in range(n):
        # An infinite doubt is none that a score can be above.
        if not (second[i] - best[i] > doubt0 + length[i] * (doubt1 + length[i] * doubt2)):
            best_center[i] = canonical_nearest(X[i], across, squares)


@inner
def relabel(X, weights, labels, new_labels, totals, axes, weight_scale, term):
    """Take new labels (n,) and move what changed between totals (K, C); returns how many did."""
    changed = 0
    for i in range(len(X)):
        old, new = labels[i], new_labels[i]
        if old == new:
            continue
        changed += 1
        labels[i] = new
        if len(totals) == 0:  # only labels are wanted
            continue
        quantize_point(X[i], weights[i] if len(weights) else 1.0, len(weights) > 0, axes, weight_scale, term)
        gains = totals[np.uint64(new)]
        for c in range(len(term)):
            gains[c] += term[c]
        if old >= 0:
            loses = totals[np.uint64(old)]
            for c in range(len(term)):
                loses[c] -= term[c]
    return changed


@inner
def assign_block(X, weights, coords, length, fast, r, labels, totals, axes, weight_scale, scoring):
    """Label the points X (n, d) by the nearest centre of restart r in `fast`; returns how many labels changed."""
    rank(
        fast.factors[r], fast.norms[r], coords, scoring.scores, scoring.best, scoring.second, scoring.best_center,
        len(X),
    )  # fmt: skip
    resolve_doubt(
        X, length, fast.doubt[r], fast.across[r], scoring.best, scoring.second, scoring.best_center, scoring.squares
    )
    return relabel(X, weights, labels, scoring.best_center, totals, axes, weight_scale, scoring.term)


@compiled
def assign_rows(X, weights, first, labels, fast, scales, totals, changed, scoring):
    """`Backend.assign` for the rows from `first` on: X (n, d), labels (R, N); adds to totals (R, K, C), changed (R,).

    Without totals, (R, 0, 0), it is `Backend.label`.
    """
    n = len(X)
    for start in range(0, n, BLOCK):
        stop = min(n, start + BLOCK)
        rows = X[start:stop]
        prepare_points(rows, scales.origin, scales.unit, scoring.coords, scoring.length)
        for r in range(len(labels)):
            changed[r] += assign_block(
                rows, weights[start:stop], scoring.coords, scoring.length, fast, r,
                labels[r, first + start : first + stop], totals[r], scales.axes, scales.weight, scoring,
            )  # fmt: skip


@inner
def assign_all(data, fast, labels, totals, scales, scoring):
    """Label all points of `data` and bring the totals (K, C) up to date; returns how many labels changed."""
    changed = 0
    for b in range(len(data.coords)):
        start = b * BLOCK
        stop = min(len(data.X), start + BLOCK)
        changed += assign_block(
            data.X[start:stop], data.weights[start:stop], data.coords[b], data.length[b], fast, 0, labels[start:stop],
            totals, scales.axes, scales.weight, scoring,
        )  # fmt: skip
    return changed
