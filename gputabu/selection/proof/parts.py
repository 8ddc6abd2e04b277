"""Many points are bounded in parts: J of the best clustering of all is at least the sum of the parts' best."""

from __future__ import annotations

import math

import numpy as np
from scipy.optimize import linear_sum_assignment

#: Points that are not divided; iterations that a part takes, about; seconds of one per cube of its points.
WHOLE, TYPICAL, SECONDS = 1500, 600, 2e-10
#: Points of one of several parts at the most. Little is lost by smaller ones, and they take less time and memory.
PART = 600
#: Parts that are dealt to at once: the time of a hand grows with their cube.
HANDS = 64


def number(n: int, k: int, seconds: float) -> int:
    """How many parts n points should have, so that the time is enough for all."""
    affordable = math.sqrt(seconds / (TYPICAL * SECONDS * n))
    if n <= WHOLE and affordable >= min(n, 200):
        return 1
    size = int(min(affordable, PART, n))
    if size < min(n, max(4 * k, 40)):
        needed = TYPICAL * SECONDS * n * max(4 * k, 40) ** 2
        raise ValueError(
            f"max_time={seconds:g} is too short for a bound of {n} points and {k} clusters: give it about "
            f"{math.ceil(needed)} seconds, or set parts."
        )
    return math.ceil(n / size)


def deal(X: np.ndarray, weights: np.ndarray, labels: np.ndarray, parts: int) -> np.ndarray:
    """(N,) the part of each point. Every part has the same share of each cluster, with about the same centroid."""
    if parts <= HANDS:
        return deal_at_once(X, weights, labels, parts)
    groups = math.ceil(parts / HANDS)
    dealt = deal(X, weights, labels, groups)
    ends = [parts * group // groups for group in range(groups + 1)]
    for group in range(groups):
        rows = np.flatnonzero(dealt == group)
        # parts of this group count from groups on, so that they are not taken for groups that come later
        dealt[rows] = groups + ends[group] + deal(X[rows], weights[rows], labels[rows], ends[group + 1] - ends[group])
    return dealt - groups


def deal_at_once(X: np.ndarray, weights: np.ndarray, labels: np.ndarray, parts: int) -> np.ndarray:
    """`deal` to a few parts.

    The points of a cluster are dealt in hands, a point to every part, far ones first, so that the sums of the parts'
    deviations from the centroid stay small: an assignment problem for every hand.
    """
    dealt = np.zeros(len(X), np.int64)
    sizes = np.zeros(parts)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        share = weights[rows, None]
        away = share * (X[rows] - (share * X[rows]).sum(axis=0) / share.sum())
        order = np.argsort(-(away * away).sum(axis=1), kind="stable")
        sums = np.zeros((parts, X.shape[1]))
        for start in range(0, len(rows), parts):
            hand = order[start : start + parts]
            costs = away[hand] @ sums.T
            if len(hand) < parts:  # the last hand goes where fewest points are
                costs = costs + (sizes - sizes.min()) * (1 + np.abs(costs).max())
            who, part = linear_sum_assignment(costs)
            dealt[rows[hand[who]]] = part
            sums[part] += away[hand[who]]
            sizes[part] += 1
    return dealt
