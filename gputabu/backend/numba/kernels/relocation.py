"""What relocation makes of the two nearest centres, and whole searches: `NumpyRelocation`, `algorithms.relocation`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gputabu.backend.arithmetic.constants import NOISE
from gputabu.backend.numba.kernels.assign import relabel
from gputabu.backend.numba.kernels.canonical import copy_centers, squares_to_one, transpose
from gputabu.backend.numba.kernels.fixed_point import (
    add_costs,
    add_limbs,
    cost_from,
    take_means,
    update_mass,
    weight_of,
)
from gputabu.backend.numba.kernels.jit import compiled, inner
from gputabu.backend.numba.kernels.nearest_two import nearest_two_all
from gputabu.backend.numba.kernels.scores import BLOCK
from gputabu.backend.numba.kernels.seeding import draw_rows
from gputabu.backend.numba.kernels.state import (
    AGE,
    DONE,
    EFFORT,
    GOING,
    MAX_ITER,
    PASSES,
    PATIENCE,
    SINCE_ELITE,
    STALE,
    TARGET,
)


class RelocationScratch(NamedTuple):
    """Scratch memory of one thread for relocation."""

    columns: np.ndarray  # (d, BLOCK) float64
    squares: np.ndarray  # (max(BLOCK, K),) float64
    affected: np.ndarray  # (BLOCK + 1,) int64: points whose two nearest centres moved
    affected_coords: np.ndarray  # (d, BLOCK) float32
    moved: np.ndarray  # (K,) bool
    mass: np.ndarray  # (2, K) float64
    new_labels: np.ndarray  # (BLOCK,) int32
    term: np.ndarray  # (C,) int64
    points: np.ndarray  # (T, d) float64, the candidates
    rows: np.ndarray  # (T,) int64, the candidates
    loss: np.ndarray  # (K, 3) int64
    change: np.ndarray  # (T, K + 1, 3) int64
    running: np.ndarray  # (N,) int64
    sums: np.ndarray  # (3,) int64: limbs of J


class RelocationState(NamedTuple):
    """R relocation searches between two iterations. AGE counts solutions, the start included."""

    labels: np.ndarray  # (R, N) int32
    totals: np.ndarray  # (R, K, C) int64
    centers: np.ndarray  # (R, K, d) float64
    at: np.ndarray  # (R, K, d) float64, the centres that the two nearest hold for
    best_centers: np.ndarray  # (R, K, d) float64
    elite_centers: np.ndarray  # (R, K, d) float64
    elite: np.ndarray  # (R,) J of the elite
    placed: np.ndarray  # (R, tenure) int64
    used: np.ndarray  # (R, K) int64
    status: np.ndarray  # (R, 5) int64: AGE, DONE, STALE, SINCE_ELITE, PASSES
    max_passes: np.ndarray  # (R,) int64


class RelocationRules(NamedTuple):
    """The numbers of `loops.RelocationSettings`, and the grid of the potential."""

    max_iter: int
    patience: int
    go_back: int
    returns: int
    steps: int
    more_steps: int
    calm: int
    reach: float
    target: float
    coarsest: int
    finest: int


# -- labels between the two nearest ----------------------------------------------------------------


@inner
def hartigan_labels(weights, labels, first, second, near, far, mass, new_labels):
    """Where each of n points goes by Hartigan's rule between its two nearest: `numpy.relocation.stays`."""
    for i in range(len(labels)):
        weight = weights[i] if len(weights) else 1.0
        in_first = labels[i] == first[i]
        if not (in_first or labels[i] == second[i]) or not weight > 0.0:
            new_labels[i] = first[i]
            continue
        source, target = (first[i], second[i]) if in_first else (second[i], first[i])
        source_square, target_square = (near[i], far[i]) if in_first else (far[i], near[i])
        left, right = mass[0, source], mass[1, target]
        rest = left - weight
        leave, enter = left / rest * source_square, right / (right + weight) * target_square
        new_labels[i] = target if rest > 0.0 and leave - enter > NOISE * leave else source


@inner
def reassign_block(
    X, weights, labels, first, second, near, far, mass, to_nearest, new_labels, axes, weight_scale, term, squares,
    cost_to_limbs, totals, sums,
):  # fmt: skip
    """Relabel the points X (n, d); totals (K, C) follow, and J is added to sums (3,). Returns how many changed."""
    if to_nearest:
        changed = relabel(X, weights, labels, first, totals, axes, weight_scale, term)
    else:
        hartigan_labels(weights, labels, first, second, near, far, mass, new_labels)
        changed = relabel(X, weights, labels, new_labels, totals, axes, weight_scale, term)
    for i in range(len(X)):
        squares[i] = near[i] if labels[i] == first[i] else far[i]
    add_costs(squares, weights, cost_to_limbs, sums, len(X))
    return changed


@compiled
def reassign_rows(X, weights, first, labels, nearest, r, mass, to_nearest, scales, totals, changed, costs, scratch):
    """`Backend.reassign_partial` of restart r, rows from `first` on: mass (2, K); adds to totals (R, K, C), changed
    (R,), costs (R, 3).
    """
    n = len(X)
    for start in range(0, n, BLOCK):
        stop = min(n, start + BLOCK)
        a, b = first + start, first + stop
        changed[r] += reassign_block(
            X[start:stop], weights[start:stop], labels[r, a:b], nearest.first[r, a:b], nearest.second[r, a:b],
            nearest.near[r, a:b], nearest.far[r, a:b], mass, to_nearest, scratch.new_labels,
            scales.axes, scales.weight, scratch.term, scratch.squares, scales.cost[0], totals[r], costs[r],
        )  # fmt: skip


@inner
def reassign_all(data, labels, first, second, near, far, to_nearest, scales, totals, scratch):
    """Relabel all points of one restart: how many changed, and J at the centres before."""
    changed, sums = 0, scratch.sums
    for limb in range(3):
        sums[limb] = 0
    for start in range(0, len(data.X), BLOCK):
        stop = min(len(data.X), start + BLOCK)
        changed += reassign_block(
            data.X[start:stop], data.weights[start:stop], labels[start:stop], first[start:stop], second[start:stop],
            near[start:stop], far[start:stop], scratch.mass, to_nearest, scratch.new_labels, scales.axes,
            scales.weight, scratch.term, scratch.squares, scales.cost[0], totals, sums,
        )  # fmt: skip
    return changed, cost_from(sums[0], sums[1], sums[2], scales.cost)


# -- swaps of a centre for a candidate -------------------------------------------------------------


@inner
def swap_gain_block(columns, weights, candidates, first, near, far, to_limbs, loss, change, squares, n):
    """Add what n points say of swaps: candidates (T, d), loss (K, 3), change (T, K + 1, 3) int64."""
    for i in range(n):
        weight = weights[i] if len(weights) else 1.0
        add_limbs((far[i] - near[i]) * weight, to_limbs, loss[first[i]], 1)
    for t in range(len(candidates)):
        squares_to_one(columns, candidates[t], squares, n)
        for i in range(n):
            s = squares[i]
            if s < far[i]:
                weight, label = weights[i] if len(weights) else 1.0, first[i]
                add_limbs((far[i] - near[i]) * weight, to_limbs, change[t, label], -1)
                if s < near[i]:
                    add_limbs((near[i] - s) * weight, to_limbs, change[t, -1], 1)
                else:
                    add_limbs((s - near[i]) * weight, to_limbs, change[t, label], 1)


@compiled
def swap_gain_rows(X, weights, first, candidates, nearest, to_limbs, loss, change, scratch):
    """`Backend.swap_gains_partial` for the rows from `first` on: candidates (R, T, d); adds to loss (R, K, 3) and
    change (R, T, K + 1, 3).
    """
    n = len(X)
    for start in range(0, n, BLOCK):
        stop = min(n, start + BLOCK)
        a, b = first + start, first + stop
        transpose(X[start:stop], scratch.columns)
        for r in range(len(candidates)):
            swap_gain_block(
                scratch.columns, weights[start:stop], candidates[r], nearest.first[r, a:b], nearest.near[r, a:b],
                nearest.far[r, a:b], to_limbs, loss[r], change[r], scratch.squares, stop - start,
            )  # fmt: skip


@inner
def contains(ring, value):
    """Whether a tabu list holds this value."""
    for entry in ring:
        if entry == value:
            return True
    return False


@inner
def best_swap(loss, change, cost, rows, placed, used):
    """The best candidate and the centre to replace, t·K + k, of those that are not tabu: `relocation_loop.relocate`."""
    k = len(loss)
    free = 0
    for row in rows:
        free += not contains(used, row)
    least, best = np.inf, 0
    for t in range(len(rows)):
        if free and contains(used, rows[t]):
            continue
        for a in range(k):
            gain = cost_from(
                loss[a, 0] + change[t, a, 0] - change[t, k, 0],
                loss[a, 1] + change[t, a, 1] - change[t, k, 1],
                loss[a, 2] + change[t, a, 2] - change[t, k, 2],
                cost,
            )
            if gain < least and not contains(placed, a):
                least, best = gain, t * k + a
    return best


# -- whole searches --------------------------------------------------------------------------------


@compiled
def relocation_restart(
    data, columns, state, trace, nearest, r, words, begun, rules, until, scales, fast, scratch, scoring
):  # fmt: skip
    """Go on with search r until it ends or has seen `until` solutions: `relocation_loop.run_relocation`.

    words (S, T) are those of the iterations from `begun` on. trace (3, `until` or more) has J, J_b and the points that
    changed cluster.
    """
    centers, status = state.centers[r], state.status[r]
    first, second, near, far = nearest.first[r], nearest.second[r], nearest.near[r], nearest.far[r]
    while status[DONE] == GOING and status[AGE] < until:
        iteration = status[AGE] - 1  # -1 is the start
        steps, J_best = 1, np.inf
        if iteration >= 0:
            steps, J_best = rules.steps, trace[1, iteration]
            nearest_two_all(
                data, columns, state.centers[r : r + 1], state.at[r : r + 1], first, second, near, far, scales, fast,
                scratch, scoring,
            )  # fmt: skip
            if not draw_rows(
                near, data.weights, words[iteration - begun], rules.coarsest, rules.finest, scratch.running,
                scratch.rows,
            ):  # fmt: skip
                status[DONE] = TARGET
                break
            relocate(
                data, columns, first, near, far, scales.cost, centers, state.placed[r], state.used[r], iteration,
                scratch,
            )  # fmt: skip
        J_elite, J, moves, number, better, nearer = state.elite[r], np.inf, 0, 0, False, False
        start = J_elite
        while number < steps:
            nearest_two_all(
                data, columns, state.centers[r : r + 1], state.at[r : r + 1], first, second, near, far, scales, fast,
                scratch, scoring,
            )  # fmt: skip
            last = J
            changed, J = step(
                data, state.labels[r], state.totals[r], centers, state.at[r], first, second, near, far, number == 0,
                scales, scratch,
            )  # fmt: skip
            moves += changed
            number += 1
            if number < rules.steps and iteration >= 0:
                continue
            if J < J_best * (1.0 - NOISE):
                J_best, better = J, True
                copy_centers(centers, state.best_centers[r])
            if J < J_elite * (1.0 - NOISE):
                J_elite, nearer = J, True
                copy_centers(centers, state.elite_centers[r])
            if iteration >= 0 and status[SINCE_ELITE] >= rules.calm and number < rules.steps + rules.more_steps:
                steps = number + (J < last * (1.0 - NOISE) and (last - J) * rules.reach > J - start)
        trace[0, iteration + 1], trace[1, iteration + 1], trace[2, iteration + 1] = J, J_best, moves
        state.elite[r] = J_elite
        if iteration >= 0:
            status[PASSES] += 1 + number
            status[STALE] = 0 if better else status[STALE] + 1
            status[SINCE_ELITE] = 0 if nearer else status[SINCE_ELITE] + 1
        end_iteration(
            J, J_best, status, state.max_passes[r], rules, centers, state.elite_centers[r], state.elite[r : r + 1]
        )


@inner
def relocate(data, columns, first, near, far, cost, centers, placed, used, iteration, scratch):
    """Put a centre at the best of the candidates, scratch.rows, and forbid the way back: `relocation_loop.relocate`."""
    k, d = centers.shape
    for t in range(len(scratch.rows)):
        for j in range(d):
            scratch.points[t, j] = np.float64(data.X[scratch.rows[t], j])
    scratch.loss[:] = 0
    scratch.change[:] = 0
    for b in range(len(columns)):
        i = b * BLOCK
        j = min(len(data.X), i + BLOCK)
        swap_gain_block(
            columns[b], data.weights[i:j], scratch.points, first[i:j], near[i:j], far[i:j], cost[0], scratch.loss,
            scratch.change, scratch.squares, j - i,
        )  # fmt: skip
    swap = best_swap(scratch.loss, scratch.change, cost, scratch.rows, placed, used)
    for j in range(d):
        centers[swap % k, j] = scratch.points[swap // k, j]
    if len(placed):
        placed[iteration % len(placed)] = swap % k
    used[iteration % k] = scratch.rows[swap // k]


@inner
def step(data, labels, totals, centers, at, first, second, near, far, to_nearest, scales, scratch):
    """Relabel every point, and go from `at` to the centroids: how many changed, and J there: `relocation_loop.step`."""
    k, d = centers.shape
    for a in range(k):
        update_mass(totals, a, d, scales.weight, scratch.mass)
    changed, cost = reassign_all(data, labels, first, second, near, far, to_nearest, scales, totals, scratch)
    take_means(totals, scales.axes, scales.weight, at, centers)
    fall = 0.0
    for a in range(k):
        squares = 0.0
        for j in range(d):
            away = centers[a, j] - at[a, j]
            squares += away * away
        fall += weight_of(totals[a], d, scales.weight) * squares
    return changed, max(cost - fall, 0.0)


@inner
def end_iteration(J, J_best, status, max_passes, rules, centers, elite_centers, elite):
    """Count the solution; end the search, or let it return to its elite: `relocation_loop.return_to_elite`."""
    status[AGE] += 1
    if J_best <= rules.target:
        status[DONE] = TARGET
    elif status[STALE] >= rules.patience:
        status[DONE] = PATIENCE
    elif status[PASSES] >= max_passes:
        status[DONE] = EFFORT
    elif status[AGE] - 1 == rules.max_iter:
        status[DONE] = MAX_ITER
    elif status[SINCE_ELITE] >= rules.go_back * rules.returns:
        elite[0], status[SINCE_ELITE] = J, 0
        copy_centers(centers, elite_centers)
    elif status[SINCE_ELITE] % rules.go_back == 0:  # or just there
        copy_centers(elite_centers, centers)
