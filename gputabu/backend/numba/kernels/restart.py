"""Whole restarts of QM-TS and of K-Means: `algorithms.quantized.explore`, `algorithms.lloyd.descend`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from gputabu.backend.arithmetic.constants import NOISE, ON_CENTER
from gputabu.backend.numba.kernels.assign import assign_all
from gputabu.backend.numba.kernels.canonical import copy_centers, square
from gputabu.backend.numba.kernels.fixed_point import quantize_point, scatter_between, take_means
from gputabu.backend.numba.kernels.jit import compiled, inner
from gputabu.backend.numba.kernels.scores import prepare_centers
from gputabu.backend.numba.kernels.state import (
    AGE,
    CONVERGED,
    DONE,
    GOING,
    MAX_ITER,
    PATIENCE,
    STALE,
    TARGET,
    TOLERANCE,
)
from gputabu.backend.numba.kernels.tabu_argmin import NO_KEY, survey_all

#: Keys are compared as float32.
ON_CENTER_KEY = np.float32(ON_CENTER)


class RestartState(NamedTuple):
    """R restarts between two iterations, and their traces: of QM-TS, or of K-Means, which has the fingerprints.

    What the other one needs is empty. AGE counts the solutions that a search has seen, the start included, and the
    iterations that a descent has made.
    """

    labels: np.ndarray  # (R, N) int32
    totals: np.ndarray  # (R, K, C) int64
    status: np.ndarray  # (R, 3) int64: AGE, DONE, STALE
    cost: np.ndarray  # (R, 2, T + 1) J, and J_b of a search; (R, 0, 0) for a descent that is not traced
    means: np.ndarray  # (R, 2, K) int64, M_c and M_b
    tabu: np.ndarray  # (R, K, L) int64, tabu rows
    tabu_length: np.ndarray  # (R, K) int64
    path: np.ndarray  # (R, T + 1, K) int64, M_c; for a descent, (R, T, 1), labels that changed
    centers: np.ndarray  # (R, K, d) float64
    fingerprints: np.ndarray  # (R, T) uint64, of the totals of every iteration


class RestartLimits(NamedTuple):
    """When restarts end, and what they go by."""

    max_iter: int
    patience: int
    target: float  # J to stop at, negative for none
    shared: bool  # scope "global"
    allowed: float  # squared shift of all centres together
    scatter: float  # J of one cluster


@compiled
def run_restart(data, state, r, limits, until, scales, fast, scratch, scoring):
    """Go on with restart r until it ends or its age is `until`.

    One function for QM-TS and K-Means: most of it is the same code, which would be compiled twice.
    """
    k, d = scratch.means.shape
    X, weights, axes, weight = data.X, data.weights, scales.axes, scales.weight
    labels, totals, status = state.labels[r], state.totals[r], state.status[r]
    tabu, tabu_length = state.tabu[r], state.tabu_length[r]
    descent = state.fingerprints.shape[1] > 0
    keys = scratch.keys[:0] if descent else scratch.keys
    while status[DONE] == GOING and status[AGE] < until:
        for a in range(k):
            for j in range(d):
                if descent:
                    scratch.centers[0, a, j] = state.centers[r, a, j]
                else:
                    scratch.centers[0, a, j] = np.float64(X[state.means[r, 0, a], j])
        centers = scratch.centers[0]
        prepare_centers(scratch.centers, scales, fast)
        changed = assign_all(data, fast, labels, totals, scales, scoring)
        if descent:
            find_farthest(X, weights, centers, labels, totals, scales.key, scratch.farthest)
            lend_points(X, weights, labels, totals, axes, weight, scratch.farthest, 1, scoring.term)
        else:
            set_forbidden(tabu, tabu_length, labels, limits.shared, scratch.forbidden, True)
        take_means(totals, axes, weight, centers, scratch.means)
        if descent:
            lend_points(X, weights, labels, totals, axes, weight, scratch.farthest, -1, scoring.term)
        cost = 0.0
        if not descent or (status[AGE] == 0 and state.cost.shape[1]):
            at = centers if descent else scratch.means
            cost = survey_all(
                X, weights, at, labels, scales.cost, scratch.sums, scoring.squares, keys, scratch.forbidden, scales.key
            )
        if descent:
            if state.cost.shape[1]:
                if status[AGE] == 0:
                    state.cost[r, 0, 0] = cost
                within = limits.scatter - scatter_between(totals, axes, weight)
                state.cost[r, 0, status[AGE] + 1] = max(within, 0.0)
                state.path[r, status[AGE], 0] = changed
            step_to_means(state.centers[r], scratch.means, totals, state.fingerprints[r], changed, status, limits)
        else:
            set_forbidden(tabu, tabu_length, labels, limits.shared, scratch.forbidden, False)
            record_solution(cost, state.means[r], status, state.cost[r], state.path[r], limits)
            if status[DONE] == GOING:
                choose_means(
                    weights, labels, totals, state.means[r], tabu, tabu_length, limits.shared, keys, scratch.chosen
                )
                update_tabu(state.means[r], tabu, tabu_length, scratch.chosen)


# -- QM-TS -----------------------------------------------------------------------------------------


@inner
def set_forbidden(tabu, tabu_length, labels, shared, forbidden, value):
    """Flag the points that the tabu rows (K, L) forbid: those in the row of their cluster, or all."""
    for a in range(len(tabu_length)):
        for entry in range(tabu_length[a]):
            if shared or labels[tabu[a, entry]] == a:
                forbidden[tabu[a, entry]] = value


@inner
def record_solution(J, means, status, cost, path, limits):
    """Record M_c and its J, and whether the search ends here: `tabu_list.Best`."""
    iteration = status[AGE]
    better = iteration == 0 or J < cost[1, iteration - 1] * (1.0 - NOISE)
    for a in range(means.shape[1]):
        path[iteration, a] = means[0, a]
        if better:
            means[1, a] = means[0, a]
    cost[0, iteration] = J
    cost[1, iteration] = J if better else cost[1, iteration - 1]
    status[AGE] = iteration + 1
    status[STALE] = 0 if better else status[STALE] + 1
    if cost[1, iteration] <= limits.target:
        status[DONE] = TARGET
    elif status[STALE] >= limits.patience:
        status[DONE] = PATIENCE
    elif iteration == limits.max_iter:
        status[DONE] = MAX_ITER


@inner
def choose_means(weights, labels, totals, means, tabu, tabu_length, shared, keys, chosen):
    """The next mean of every cluster, and the place to cut its tabu row at, or -1: `quantized.neighbours`."""
    for a in range(len(keys)):
        chosen[0, a], chosen[1, a] = means[0, a], -1
        if keys[a, 0] != NO_KEY:
            chosen[0, a] = np.int64(keys[a, 0] & np.uint64(0xFFFFFFFF))
        elif totals[a, -1] > 0:  # all members are tabu: the deletion rule
            for entry in range(tabu_length[a] - 1, -1, -1):
                row = tabu[a, entry]
                if labels[row] != a or (len(weights) and weights[row] == 0.0):
                    continue
                if shared and in_another_row(tabu, tabu_length, a, row):
                    continue
                chosen[0, a], chosen[1, a] = row, entry
                break


@inner
def in_another_row(tabu, tabu_length, a, row):
    """Whether a tabu row other than a holds this point."""
    for b in range(len(tabu_length)):
        if b != a:
            for entry in range(tabu_length[b]):
                if tabu[b, entry] == row:
                    return True
    return False


@inner
def update_tabu(means, tabu, tabu_length, chosen):
    """Forbid M_c and go to the means chosen: `tabu_list.TabuList`."""
    for a in range(len(tabu_length)):
        if chosen[1, a] >= 0:
            tabu_length[a] = chosen[1, a]
        known = False
        for entry in range(tabu_length[a]):
            known = known or tabu[a, entry] == means[0, a]
        if not known:
            tabu[a, tabu_length[a]] = means[0, a]
            tabu_length[a] += 1
        means[0, a] = chosen[0, a]


# -- K-Means ---------------------------------------------------------------------------------------


@inner
def step_to_means(centers, means, totals, fingerprints, changed, status, limits):
    """Go to the centroids, and say whether the descent ends there."""
    shift = 0.0
    for a in range(len(centers)):
        shift += square(means[a], centers[a])
    copy_centers(means, centers)
    iteration = status[AGE]
    status[AGE] = iteration + 1
    if seen_before(totals, fingerprints, iteration) or changed == 0:
        status[DONE] = CONVERGED
    elif limits.allowed > 0.0 and shift <= limits.allowed:
        status[DONE] = TOLERANCE
    elif iteration + 1 == limits.max_iter:
        status[DONE] = MAX_ITER


@inner
def seen_before(totals, fingerprints, iteration):
    """Whether these totals were there before, by a fingerprint of each: `lloyd._came_back`."""
    mark = np.uint64(14695981039346656037)
    for a in range(totals.shape[0]):
        for c in range(totals.shape[1]):
            mark = (mark ^ np.uint64(totals[a, c])) * np.uint64(0x9E3779B97F4A7C15)
            mark ^= mark >> np.uint64(29)
    fingerprints[iteration] = mark
    for earlier in range(iteration):
        if fingerprints[earlier] == mark:
            return True
    return False


@inner
def find_farthest(X, weights, centers, labels, totals, scale, farthest):
    """The points that empty clusters are given, the farthest first, -1 for none: `BackendBase.fill_empty`."""
    last, last_row = np.float32(np.inf), -1  # only points behind the last one given away are left
    for a in range(len(totals)):
        farthest[a] = -1
        if totals[a, -1] != 0 or (last_row < 0 and last < np.inf):
            continue
        value, row = ON_CENTER_KEY, -1
        for i in range(len(X)):
            if len(weights) and weights[i] == 0.0:
                continue
            key = np.float32(square(X[i], centers[labels[i]]) * scale)
            if key > value and (key < last or (key == last and i > last_row)):  # the lowest row of equals
                value, row = key, i
        farthest[a] = row
        last, last_row = value, row


@inner
def lend_points(X, weights, labels, totals, axes, weight_scale, farthest, sign, term):
    """Move the points that empty clusters are given from their clusters to these, or back."""
    for a in range(len(farthest)):
        row = farthest[a]
        if row >= 0:
            quantize_point(X[row], weights[row] if len(weights) else 1.0, len(weights) > 0, axes, weight_scale, term)
            for c in range(len(term)):
                totals[a, c] += sign * term[c]
                totals[labels[row], c] -= sign * term[c]
