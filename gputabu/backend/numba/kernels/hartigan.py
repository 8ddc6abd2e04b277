"""Single moves of points between clusters, and whole descents by them: `NumpyHartigan`, `arithmetic.rules`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gputabu.backend.arithmetic.constants import BEYOND, NOISE
from gputabu.backend.numba.kernels.assign import assign_all
from gputabu.backend.numba.kernels.canonical import copy_centers, square, squares_to_all
from gputabu.backend.numba.kernels.fixed_point import quantize_point, take_means, update_mass
from gputabu.backend.numba.kernels.jit import compiled, inner
from gputabu.backend.numba.kernels.scores import BLOCK, TILE, WIDE, prepare_centers, prepare_points, score, square_doubt
from gputabu.backend.numba.kernels.state import AGE, CONVERGED, DONE, GOING, MAX_ITER, MOVES, NEAREST_AGE, NEAREST_MOVES

#: Where at most one in this many points of a block is left, each is looked at by itself.
SPARSE = 16


class HartiganState(NamedTuple):
    """R descents by single moves between two rounds."""

    labels: np.ndarray  # (R, N) int32
    totals: np.ndarray  # (R, K, C) int64
    centers: np.ndarray  # (R, K, d) float64
    status: np.ndarray  # (R, 5) int64: AGE (rounds made), DONE, MOVES, NEAREST_AGE, NEAREST_MOVES


@inner
def improves(leave, enter, factor, slack):
    """Whether a move lowers J by more than rounding: `rules.walk`."""
    return leave - enter > NOISE * leave + slack * np.sqrt(factor * leave)


# -- what it costs to enter, fast ------------------------------------------------------------------


@inner
def contend_entry(scores, norm, share, size, a, best, second, best_center, n):
    """`scores.contend` for what it costs to enter centre a: share · (score + norm + ‖x‖²)."""
    for i in range(n):
        s, b, t, f = (scores[i] + norm + size[i] * size[i]) * share, best[i], second[i], best_center[i]
        t = s if s < t else t
        second[i] = t if t > b else b
        best_center[i] = a if s < b else f
        best[i] = s if s < b else b


@inner
def rank_entries(factors, norms, shares, coords, size, scores, best, second, best_center, n):
    """The two least costs of n points to enter a cluster, and the cluster of the least: as `scores.rank`."""
    k, d = factors.shape
    best[:] = np.float32(np.inf)
    second[:] = np.float32(np.inf)
    best_center[:] = np.int32(0)
    wide = d >= WIDE
    step = TILE if wide else 1
    for start in range(0, k, step):
        stop = min(k, start + step)
        if wide:
            np.dot(factors[start:stop], coords, scores[: stop - start])
        else:
            score(factors[start], np.float32(0), coords, scores[0], n)
        for a in range(start, stop):
            contend_entry(scores[a - start], norms[a], shares[a], size, np.int32(a), best, second, best_center, n)


@inner
def heaviest_of(weights):
    """The largest weight of some points, (n,) or (0,)."""
    heaviest = 0.0 if len(weights) else 1.0
    for i in range(len(weights)):
        heaviest = max(heaviest, weights[i])
    return heaviest


@inner
def least_shares(weights, mass, shares):
    """W / (W + w) of the clusters for the heaviest of some points: less for none of them. (n,) or (0,), (2, K)."""
    heaviest = heaviest_of(weights)
    for a in range(len(shares)):
        entered = mass[1, a] + heaviest
        shares[a] = np.float32(mass[1, a] / entered) if entered > 0.0 else np.float32(0)


@inner
def least_entry(length, doubt, best, second, best_center, label, unit, d):
    """A lower bound of what it costs a point to enter any cluster but its own, from its fast costs."""
    error = square_doubt(np.float64(length), doubt, d)
    lowest = np.float64(second if best_center == label else best)
    bound = (lowest * (1.0 - 2.0**-20) - error) / (np.float64(unit) * np.float64(unit))  # some roundings more
    return bound if bound > 0.0 else 0.0  # also where it is not a number


# -- moves, exactly --------------------------------------------------------------------------------


@inner
def leave_costs(X, weights, labels, centers, mass, leave, changed):
    """What the points cost in their clusters, where that has changed: W / (W - w) · d²; -1 where they may not leave."""
    for i in range(len(X)):
        label = np.uint64(labels[i])
        if changed[label] == 0:
            continue
        weight = weights[i] if len(weights) else 1.0
        rest = mass[0, label] - weight
        leave[i] = mass[0, label] / rest * square(X[i], centers[label]) if rest > 0.0 and weight > 0.0 else -1.0


@inner
def best_entry(x, weight, label, across, mass, squares):
    """The other cluster that costs least to enter, the lowest number on ties: (d,), (d, K), (2, K) -> b, cost."""
    k = across.shape[1]
    squares_to_all(x, across, squares)
    for a in range(k):
        squares[a] = squares[a] * (mass[1, a] / (mass[1, a] + weight))
    found = -1
    for a in range(k):
        if a != label and (found < 0 or squares[a] < squares[found]):
            found = a
    return found, squares[found] if found >= 0 else np.inf


@inner
def best_target(x, weight, label, leave, across, mass, slack, squares):
    """Where to move a point that costs `leave`, or -1, and the cost to enter the best cluster: `hartigan.find`."""
    b, enter = best_entry(x, weight, label, across, mass, squares)
    factor = mass[0, label] / (mass[0, label] - weight)
    return (b if improves(leave, enter, factor, slack) else -1), enter


@compiled
def move_rows(X, weights, first, labels, centers, mass, slack, fast, scales, all_changed, target, leave, scoring):
    """`Backend.find_moves` for the rows from `first` on: labels and target (R, N), centers (R, K, d), mass (R, 2, K).

    For most points the least fast cost to enter another cluster, at its lowest, is above what they cost where they are.
    all_changed (K,) holds ones, leave (BLOCK,) is scratch memory.
    """
    n, d = X.shape
    for start in range(0, n, BLOCK):
        stop = min(n, start + BLOCK)
        rows, block_weights, size = X[start:stop], weights[start:stop], stop - start
        prepare_points(rows, scales.origin, scales.unit, scoring.coords, scoring.length)
        for r in range(len(labels)):
            block_labels = labels[r, first + start : first + stop]
            block_target = target[r, first + start : first + stop]
            least_shares(block_weights, mass[r], scoring.shares)
            rank_entries(
                fast.factors[r], fast.norms[r], scoring.shares, scoring.coords, scoring.length, scoring.scores,
                scoring.best, scoring.second, scoring.best_center, size,
            )  # fmt: skip
            leave_costs(rows, block_weights, block_labels, centers[r], mass[r], leave, all_changed)
            for i in range(size):
                block_target[i] = -1
                bound = least_entry(
                    scoring.length[i], fast.doubt[r], scoring.best[i], scoring.second[i], scoring.best_center[i],
                    block_labels[i], scales.unit, d,
                )  # fmt: skip
                if not bound > leave[i]:
                    weight = block_weights[i] if len(block_weights) else 1.0
                    block_target[i], _ = best_target(
                        rows[i], weight, block_labels[i], leave[i], fast.across[r], mass[r], slack, scoring.squares
                    )


@inner
def make_move(x, weight, weighted, a, b, centers, totals, mass, slack, axes, weight_scale, term):
    """Move a point from cluster a to b if that lowers J; centers, totals and mass follow: `rules.walk`."""
    d = len(x)
    rest = mass[0, a] - weight
    if not rest > 0.0:
        return False
    factor = mass[0, a] / rest
    leave = factor * square(x, centers[a])
    enter = mass[1, b] / (mass[1, b] + weight) * square(x, centers[b])
    if not improves(leave, enter, factor, slack):
        return False
    quantize_point(x, weight, weighted, axes, weight_scale, term)
    for c in range(len(term)):
        totals[a, c] -= term[c]
        totals[b, c] += term[c]
    for cluster in (a, b):
        update_mass(totals, cluster, d, weight_scale, mass)
        mean = centers[cluster : cluster + 1]
        take_means(totals[cluster : cluster + 1], axes, weight_scale, mean, mean)
    return True


@compiled
def walk_moves(X, weights, restart, source, target, centers, totals, mass, slack, scales, term, made):
    """`rules.walk`: points X (M, d) in turn; made (M,) bool."""
    weighted = len(weights) > 0
    for m in range(len(X)):
        r = restart[m]
        made[m] = make_move(
            X[m], weights[m] if weighted else 1.0, weighted, source[m], target[m], centers[r], totals[r], mass[r],
            slack, scales.axes, scales.weight, term,
        )  # fmt: skip


# -- whole descents --------------------------------------------------------------------------------


@compiled
def hartigan_restart(data, state, r, max_rounds, slack, until, scales, fast, scratch, scoring):
    """Go on with descent r until it ends or has made `until` rounds: `algorithms.hartigan.improve`."""
    labels, totals, centers, status = state.labels[r], state.totals[r], state.centers[r], state.status[r]
    if status[AGE] == 0:
        copy_centers(centers, scratch.centers[0])
        prepare_centers(scratch.centers, scales, fast)
        assign_all(data, fast, labels, totals, scales, scoring)
        take_means(totals, scales.axes, scales.weight, scratch.centers[0], centers)
    begin_rounds(totals, scales.weight, scratch)
    heaviest = heaviest_of(data.weights)
    while status[DONE] == GOING and status[AGE] < until:
        for a in range(len(centers)):
            scratch.mass[2, a], scratch.mass[3, a] = scratch.mass[0, a], scratch.mass[1, a]
        copy_centers(centers, scratch.centers[0])
        prepare_centers(scratch.centers, scales, fast)
        count = find_all_targets(data, labels, centers, slack, scales.unit, fast, scratch, scoring)
        if count:
            status[MOVES] += make_all_moves(data, labels, centers, totals, slack, scales, scratch, scoring.term)
        loosen_bounds(centers, scratch.centers[0], scratch.mass, heaviest, scratch.bound, scratch.changed)
        status[AGE] += 1
        if count == 0:
            relabelled = 0
            if status[MOVES] > status[NEAREST_MOVES]:  # `fast` is of these centres
                relabelled = assign_all(data, fast, labels, totals, scales, scoring)
            if relabelled == 0:
                status[DONE] = CONVERGED
            take_means(totals, scales.axes, scales.weight, scratch.centers[0], centers)
            begin_rounds(totals, scales.weight, scratch)
            status[NEAREST_AGE], status[NEAREST_MOVES] = status[AGE], status[MOVES]
        elif status[AGE] - status[NEAREST_AGE] == max_rounds:
            status[DONE] = MAX_ITER


@inner
def begin_rounds(totals, weight_scale, scratch):
    """Take the masses from the totals (K, C), and forget what is known of the costs of points."""
    d = scratch.means.shape[1]
    for a in range(len(totals)):
        update_mass(totals, a, d, weight_scale, scratch.mass)
        scratch.changed[a] = 1
    scratch.bound[:] = 0.0


@inner
def find_all_targets(data, labels, centers, slack, unit, fast, scratch, scoring):
    """Where all points would move to; returns how many would."""
    count = 0
    for b in range(len(data.coords)):
        start = b * BLOCK
        stop = min(len(data.X), start + BLOCK)
        rows, weights, block_labels = data.X[start:stop], data.weights[start:stop], labels[start:stop]
        leave_costs(rows, weights, block_labels, centers, scratch.mass, scratch.leave[start:stop], scratch.changed)
        count += find_targets(
            rows, weights, block_labels, scratch.mass, slack, unit, data.coords[b], data.length[b], fast, scoring,
            scratch.leave[start:stop], scratch.bound[start:stop], scratch.target[start:stop],
        )  # fmt: skip
    return count


@inner
def make_all_moves(data, labels, centers, totals, slack, scales, scratch, term):
    """Make the moves that were found, in turn, where they still lower J; returns how many were made."""
    X, weights, target, made = data.X, data.weights, scratch.target, 0
    for i in range(len(X)):
        if target[i] >= 0 and make_move(
            X[i], weights[i] if len(weights) else 1.0, len(weights) > 0, labels[i], target[i], centers, totals,
            scratch.mass, slack, scales.axes, scales.weight, term,
        ):  # fmt: skip
            labels[i] = target[i]
            made += 1
    return made


@inner
def find_targets(X, weights, labels, mass, slack, unit, coords, length, fast, scoring, leave, bound, target):
    """Write where the points X (n, d) would move to, or -1, to target (n,); returns how many would: `hartigan.find`.

    A point of which it is known that any other cluster costs more (bound² > leave) is not looked at. Where many are
    left, the fast scores look at all of them again.
    """
    n, d = X.shape
    left = 0
    for i in range(n):
        target[i] = -1
        left += not bound[i] * bound[i] > leave[i] * BEYOND
    if left > n // SPARSE:
        least_shares(weights, mass, scoring.shares)
        rank_entries(
            fast.factors[0], fast.norms[0], scoring.shares, coords, length, scoring.scores, scoring.best,
            scoring.second, scoring.best_center, n,
        )  # fmt: skip
        for i in range(n):
            entry = least_entry(
                length[i], fast.doubt[0], scoring.best[i], scoring.second[i], scoring.best_center[i], labels[i], unit, d
            )
            bound[i] = np.sqrt(entry)
    elif left == 0:
        return 0
    count = 0
    for i in range(n):
        if leave[i] < 0.0 or bound[i] * bound[i] > leave[i] * BEYOND:
            continue
        weight = weights[i] if len(weights) else 1.0
        goal, enter = best_target(X[i], weight, labels[i], leave[i], fast.across[0], mass, slack, scoring.squares)
        target[i] = goal
        bound[i] = np.sqrt(enter) if goal < 0 else 0.0  # one that is to move may not, and have another place to go to
        count += goal >= 0
    return count


@inner
def loosen_bounds(centers, before, mass, heaviest, bound, changed):
    """Lower bound (N,) by what the moves of a round can have made entering cheaper, and say which clusters changed.

    The root of W / (W + w) · d² falls by the way of a centre at most, and by the root of what W / (W + w) falls to;
    that is the most for the heaviest point.
    """
    way, share = 0.0, 1.0
    for a in range(len(centers)):
        squared = square(centers[a], before[a])
        changed[a] = squared > 0.0 or mass[0, a] != mass[2, a] or mass[1, a] != mass[3, a]
        way = max(way, squared)
        if mass[1, a] < mass[3, a]:
            share = min(share, mass[1, a] / (mass[1, a] + heaviest) * ((mass[3, a] + heaviest) / mass[3, a]))
    way, share = np.sqrt(way), np.sqrt(share)
    for i in range(len(bound)):
        value = (bound[i] - way) * share
        bound[i] = value if value > 0.0 else 0.0
