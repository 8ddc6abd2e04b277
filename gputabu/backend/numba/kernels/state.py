"""What whole restarts on small data share: the points, the columns of their status, and scratch memory."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

#: Why a restart stopped, or GOING.
GOING, PATIENCE, MAX_ITER, CONVERGED, TOLERANCE, TARGET, EFFORT = 0, 1, 2, 3, 4, 5, 6
#: Columns of a status: solutions or iterations so far, and why it stopped.
AGE, DONE = 0, 1
#: Columns of searches: iterations since a new best; since a new elite, and passes (relocation only).
STALE, SINCE_ELITE, PASSES = 2, 3, 4
#: Columns of descents by single moves: moves made; rounds and moves when labels were last those of the nearest centres.
MOVES, NEAREST_AGE, NEAREST_MOVES = 2, 3, 4


class Data(NamedTuple):
    """A small data set, with what the fast scores need of it."""

    X: np.ndarray  # (N, d)
    weights: np.ndarray  # (N,) or (0,)
    coords: np.ndarray  # (N / BLOCK, d, BLOCK) float32: x - offset
    length: np.ndarray  # (N / BLOCK, BLOCK) float32: ‖x - offset‖


class RestartScratch(NamedTuple):
    """Scratch memory of one thread that runs whole restarts."""

    centers: np.ndarray  # (1, K, d) float64: what labels are made of
    means: np.ndarray  # (K, d) float64: the centroids
    forbidden: np.ndarray  # (N,) bool, false between calls
    keys: np.ndarray  # (K, 1) uint64
    sums: np.ndarray  # (3,) int64: limbs of J
    chosen: np.ndarray  # (2, K) int64: the next means, and where tabu rows are cut
    farthest: np.ndarray  # (K,) int64: rows given to empty clusters
    changed: np.ndarray  # (K,) int64: whether a cluster changed in a round of single moves
    mass: np.ndarray  # (4, K) float64: weights of the clusters, as in `rules.masses`; as they were before the round
    target: np.ndarray  # (N,) int32: where points would move to, or -1
    leave: np.ndarray  # (N,) float64: what points cost in their clusters, or -1 for those that may not leave
    bound: np.ndarray  # (N,) float64: at most the square root of what any other cluster would cost
