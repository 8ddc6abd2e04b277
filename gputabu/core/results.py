"""What a search returns: a frozen result, its trace, and why it stopped."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

import numpy as np


class Stop(Enum):
    """Why a search stopped; the value is a text for users."""

    CONVERGED = "no point changed cluster"
    TOLERANCE = "the centres moved less than tol"
    PATIENCE = "no improvement for `patience` iterations"
    MAX_ITER = "the iteration budget ran out"
    MAX_TIME = "the time ran out"
    EFFORT = "the work that `effort` allows was done"
    TARGET = "the target was reached"
    INTERRUPTED = "interrupted; this is the best found so far"
    GAUSSIAN = "every cluster looks Gaussian"
    K_MAX = "there are `k_max` clusters"
    CALLBACK = "stopped by the callback; this is the best found so far"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Trace:
    """The trace of every restart. After a restart has stopped, its rows hold NaN and -1.

    Attributes
    ----------
    current : (R, T + 1) float64
        J of the current solution after iteration t; column 0 is the start.
    best : (R, T + 1) float64
        The lowest J up to iteration t.
    moves : (R, T) int64
        Number of centres that moved in iteration t (QM-TS), or of points that changed cluster (TSC, Lloyd and
        relocation, where a point counts once per step). In G-means, of clusters that were split; in fuzzy
        c-means, of centres that moved by more than `tol`; in its tabu search 1 where a trial was accepted. In the
        evolution, of children that lived on; there `current` and `best` are the index, not J.
    means : (R, T + 1, K) int64 or None
        The quantized means after iteration t, as row numbers (QM-TS only).
    """

    current: np.ndarray
    best: np.ndarray
    moves: np.ndarray
    means: np.ndarray | None = None

    @property
    def n_restarts(self) -> int:
        return self.current.shape[0]

    @property
    def n_iter(self) -> np.ndarray:
        """(R,) iterations that each restart made."""
        return np.isfinite(self.current).sum(axis=1) - 1


@dataclass(frozen=True, slots=True)
class Clustering:
    """The best clustering of a search over R restarts.

    Attributes
    ----------
    labels : (N,) int32
        Cluster of every point: its nearest row of `centers`, the lowest on ties. For TSC without refinement it is the
        best labelling, in which a point need not be in the nearest cluster.
    centers : (K, d)
        In the dtype of the points.
    inertia : float
        J (eq. 2) of `labels` at `centers`, in float64 by direct differences.
    center_indices : (K,) int64 or None
        The quantized means M_b that the centres were refined from, as row numbers.
    n_iter : int
        Iterations of the winning restart.
    stop : Stop
        Why the winning restart stopped.
    restart : int
        Number of the winning restart; the lowest on ties.
    inertias : (R,) float64
        J of every restart.
    trace : Trace
        The trace of every restart.
    backend : str
        The backend that computed it.
    validity : float or None
        The validity index, where a search went by one (`gputabu.evolution`).
    """

    labels: np.ndarray
    centers: np.ndarray
    inertia: float
    center_indices: np.ndarray | None
    n_iter: int
    stop: Stop
    restart: int
    inertias: np.ndarray
    trace: Trace
    backend: str
    validity: float | None = None
