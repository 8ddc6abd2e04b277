"""G-means: K grows by splitting clusters until every one looks Gaussian (Hamerly and Elkan 2003).

A round tests every cluster. Two children are set out along its principal axis, c ± s·√(2λ/π), and 2-means inside the
cluster moves them to c₁ and c₂. The points of the cluster, projected on v = c₁ − c₂ and standardised, are compared with
the normal distribution by the statistic of Anderson and Darling. Where that is above the critical value of `alpha` the
children replace the cluster. K-Means on all points follows; rounds end when no cluster is split.

The paper sorts the projections. We count them in bins over ±8 standard deviations, which needs no order of the points
and no memory for them; bins become narrower with the square root of the points, so that the error of the statistic
stays near 0.001. All clusters are tested at once: 2-means takes two distances per point, whatever K.

Where the paper is silent: the variance has the divisor n − 1; weights count as repetitions; the axis is found by at
most 30 steps of the power method from a random direction; clusters that weigh less than `min_size` are not tested; if
`k_max` allows fewer splits than are wanted, those with the largest statistic are made. Critical values other than
those of 0.0001, 0.005 and 0.01 follow from a fit by D'Agostino and Stephens (1986).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from scipy.special import log_ndtr, ndtr

from gputabu.algorithms import lloyd
from gputabu.algorithms.checkpoint import Stage
from gputabu.algorithms.monitor import Callback, Monitor
from gputabu.algorithms.parameters import documented
from gputabu.algorithms.restarts import FinishedBatch, Search, run_restarts
from gputabu.algorithms.trace import TraceRecorder
from gputabu.backend import BackendChoice, Devices, as_points
from gputabu.backend.arithmetic.canonical import in_order
from gputabu.backend.arithmetic.fixed_point import Totals
from gputabu.backend.base import BackendBase
from gputabu.backend.contract import Labels
from gputabu.core import random
from gputabu.core.log import log
from gputabu.core.results import Clustering, Stop
from gputabu.core.validation import check_int, check_real
from gputabu.data.points import Shape

#: Critical values of the corrected statistic where mean and variance are estimated (Hamerly and Elkan; ELKI).
CRITICAL = {0.0001: 1.8692, 0.005: 1.159, 0.01: 1.0348}
#: The fit to the others: alpha = exp(FIT[0] + FIT[1] a + FIT[2] a²), for a from 0.6 on.
FIT = (1.2937, -5.709, 0.0186)
#: Where the fit holds.
ALPHAS = (1e-100, 0.1)
#: Steps of the power method, and how near to the last one it may end: 1 − |cosine|.
POWER_STEPS, ALIGNED = 30, 2.0**-40
#: Iterations of 2-means inside of the clusters.
SPLIT_ITER = 100
#: Bins of a histogram for up to so many points; standard deviations to either side.
BINS, BINNED, REACH = 1 << 16, 300_000, 8
#: Bins in all histograms that are made at once.
MAX_BINS = 1 << 22


@documented
def search(
    X: object,
    *,
    weights: object = None,
    alpha: float = 0.0001,
    k_max: int | None = None,
    min_size: int = 25,
    max_iter: int = 100,
    seed: int = 0,
    backend: BackendChoice = "auto",
    device: Devices = None,
    labels_out: object = None,
    checkpoint: object = None,
    progress: bool = False,
    callback: Callback | None = None,
) -> Clustering:
    """Cluster `X` by G-means, which finds K.

    Parameters
    ----------
    X : (N, d) array, on the host or on a GPU, a file or anything else that `gputabu.chunked` reads, or Points
    weights : (N,) array, optional
        They count as repetitions.
    alpha : float
        Probability that a Gaussian cluster is split, at least 1e-100 and below 0.1.
    k_max : int, optional
        Clusters at the most; as many as there are points by default.
    min_size : int
        Clusters that weigh less are not tested; at least 8.
    max_iter : int
        Rounds of splitting at the most.
    %(execution)s
    %(watching)s

    Returns
    -------
    Clustering
        Iterations of its trace are rounds.

    Examples
    --------
    >>> import numpy as np
    >>> from gputabu import gmeans
    >>> rng = np.random.default_rng(0)
    >>> X = np.concatenate([rng.normal(size=(100, 2)), rng.normal(size=(100, 2)) + 20])
    >>> found = gmeans.search(X)
    >>> len(found.centers), found.stop.name
    (2, 'GAUSSIAN')
    """
    monitor = Monitor(callback, progress, checkpoint=checkpoint)
    points = as_points(X, weights)
    checked = GaussianSearch.checked(
        points.shape, alpha=alpha, k_max=k_max, min_size=min_size, max_iter=max_iter, seed=seed
    )
    return run_restarts(points, checked, 1, monitor, backend=backend, device=device, labels_out=labels_out)


@dataclass(frozen=True)
class GaussianSearch(Search):
    """G-means with its parameters, checked."""

    alpha: float
    k_max: int
    min_size: int
    max_iter: int
    seed: int
    k = 1
    name = "gmeans"
    ungrouped = "it tests the points of a cluster, not their means"
    patience = None

    @classmethod
    def checked(
        cls, shape: Shape, *, alpha: float, k_max: int | None, min_size: int, max_iter: int, seed: int
    ) -> GaussianSearch:
        check_real("alpha", alpha, *ALPHAS)
        most = shape.n if k_max is None else min(check_int("k_max", k_max, 1), shape.n)
        check_int("min_size", min_size, 8)
        check_int("max_iter", max_iter, 1)
        return cls(float(alpha), most, min_size, max_iter, check_int("seed", seed, 0, 2**64 - 1))

    def identity(self) -> dict[str, Any]:
        limits = {"alpha": self.alpha, "k_max": self.k_max, "min_size": self.min_size}
        return {**limits, "max_iter": self.max_iter, "seed": self.seed}

    def run(self, backend: BackendBase, batch: Sequence[int], monitor: Monitor) -> FinishedBatch:
        found = lloyd.Descent(*monitor.stage("search", lambda stage: grow(backend, self, monitor, stage)))
        return lloyd.finish(backend, found, batch)


@dataclass(frozen=True, slots=True)
class Split:
    """What a test of the clusters found."""

    cost: float  # J at their centroids
    statistic: np.ndarray  # (K,) of Anderson and Darling, corrected; -inf where a cluster was not tested
    centers: np.ndarray  # (K, d), their centroids
    children: np.ndarray  # (K, 2, d)


def grow(backend: BackendBase, plan: GaussianSearch, monitor: Monitor, stage: Stage) -> lloyd.Descent:
    """Split clusters, from a single one on, until there is no more reason to."""
    if (saved := stage.state) is None:
        centers, made, recorder = backend.grid.offset[None].copy(), 0, TraceRecorder(1)
    else:
        centers, made, recorder = saved["centers"], saved["made"], TraceRecorder.resumed(saved["trace"])
    found, bar = examine(backend, centers, plan, made), critical(plan.alpha)
    if made == 0:
        recorder.start(np.array([found.cost]))
    while True:
        chosen = wanted(found.statistic, bar, plan.k_max - len(centers))
        if not chosen.any():
            stop = Stop.K_MAX if (found.statistic > bar).any() else Stop.GAUSSIAN
            break
        if made == plan.max_iter:
            stop = Stop.MAX_ITER
            break
        centers = descended(backend, divided(found, chosen), plan, monitor)
        made += 1
        found = examine(backend, centers, plan, made)
        recorder.add(np.zeros(1, np.int64), np.array([found.cost]), np.array([chosen.sum()]))
        log.debug("round %d: %d clusters, J %.10g", made, len(centers), found.cost)
        stage.keep({"centers": centers, "made": made, "trace": recorder.kept})
        if report(monitor, made, found, len(centers)):
            stop = monitor.stop_reason
            break
    return lloyd.Descent(centers[None], [stop], recorder.trace())


def report(monitor: Monitor, made: int, found: Split, k: int) -> bool:
    """Tell the monitor of a round; whether it wants the search to end."""
    monitor.begin_k(k)
    cost = np.array([found.cost])
    monitor.report(made, np.zeros(1, np.int64), cost, cost, np.zeros(1, np.bool_))
    return monitor.should_stop()


def descended(backend: BackendBase, centers: np.ndarray, plan: GaussianSearch, monitor: Monitor) -> np.ndarray:
    """K-Means on all points: (K, d) -> (K, d)."""
    monitor.begin_phase("start", lloyd.REFINE_ITER)
    found = lloyd.descend(backend, centers[None], lloyd.REFINE_ITER, monitor=monitor)
    monitor.begin_phase("search", plan.max_iter)
    return found.centers[0]


def wanted(statistic: np.ndarray, bar: float, room: int) -> np.ndarray:
    """Which clusters to split: those above the critical value, the `room` largest of them, (K,) bool."""
    order = np.argsort(-statistic, kind="stable")  # the lowest number on ties
    chosen = np.zeros(len(statistic), np.bool_)
    chosen[order[: max(0, room)]] = True
    return chosen & (statistic > bar)


def divided(found: Split, chosen: np.ndarray) -> np.ndarray:
    """The centres with the children of the chosen clusters in their place."""
    return np.concatenate([pair if split else center[None] for center, pair, split in zip(
        found.centers, found.children, chosen, strict=True)])  # fmt: skip


def examine(backend: BackendBase, centers: np.ndarray, plan: GaussianSearch, step: int) -> Split:
    """Test all clusters of centers (K, d)."""
    (k, d), labels = centers.shape, backend.blank_labels(1)
    totals = backend.assign(centers[None], labels).totals  # (1, K, C)
    cost = max(0.0, backend.scatter - float(backend.grid.explained(totals)[0]))
    centers = backend.grid.centroids(totals, centers[None])
    weights = backend.grid.weights(totals)
    tested = (weights >= plan.min_size) & (Totals.counts(totals) >= 2)
    words = random.words(plan.seed, 0, k * d, step=step)
    start = (random.uniforms(words) - 0.5).reshape(1, k, d) * tested[..., None]
    axes, spread = principal(backend, centers, start, labels)
    reach = np.sqrt(2 * spread / (np.pi * np.maximum(weights, 1.0)))[..., None] * axes
    children, counts = halved(backend, np.stack([centers - reach, centers + reach], axis=2), labels)
    tested &= (counts > 0).all(axis=2)
    between, _ = unit(np.where(tested[..., None], children[:, :, 0] - children[:, :, 1], 0.0))
    statistic = anderson_darling(backend, centers[0], between[0], labels, weights[0])
    return Split(cost, statistic, centers[0], children[0])


def principal(
    backend: BackendBase, centers: np.ndarray, axes: np.ndarray, labels: Labels
) -> tuple[np.ndarray, np.ndarray]:
    """The principal axis of every cluster by the power method, and the scatter along it: (R, K, d), (R, K).

    From axes (R, K, d); where that is zero, or all points are one, the axis is zero.
    """
    axes, _ = unit(axes)
    for _ in range(POWER_STEPS):
        before = axes
        axes, spread = unit(backend.axis_step(centers, before, labels))
        if (np.abs(in_order(axes * before)) >= in_order(axes * axes) - ALIGNED).all():
            break
    return axes, spread


def unit(vectors: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Vectors (..., d) of length one, or zero, and the lengths they had."""
    largest = np.abs(vectors).max(axis=-1, keepdims=True)
    near_one = vectors / np.where(largest > 0, largest, 1.0)  # squares of the others may be out of range
    length = np.sqrt(in_order(near_one**2))[..., None]
    return near_one / np.where(length > 0, length, 1.0), (length * largest)[..., 0]


def halved(backend: BackendBase, children: np.ndarray, parents: Labels) -> tuple[np.ndarray, np.ndarray]:
    """2-means inside of every cluster, from children (R, K, 2, d): where they end, and their points (R, K, 2)."""
    r, k, _, d = children.shape
    labels = backend.blank_labels(r)
    totals: Any = 0  # (R, 2K, C)
    for _ in range(SPLIT_ITER):
        done = backend.split_assign(children, parents, labels)
        totals = totals + done.totals
        children = backend.grid.centroids(totals, children.reshape(r, 2 * k, d)).reshape(r, k, 2, d)
        if not done.changed.any():
            break
    return children, Totals.counts(totals).reshape(r, k, 2)


def anderson_darling(
    backend: BackendBase, centers: np.ndarray, axes: np.ndarray, labels: Labels, weights: np.ndarray
) -> np.ndarray:
    """How far the points of each cluster are from Gaussian along axes (K, d) of length one: (K,).

    The statistic of Anderson and Darling, corrected for estimated mean and variance; -inf where the axis is zero.
    """
    statistic = np.full(len(centers), -np.inf)
    scatter = in_order(backend.axis_step(centers[None], axes[None], labels)[0] * axes)
    live = np.flatnonzero(scatter > 0)
    deviation = np.sqrt(scatter[live] / (weights[live] - 1))
    bins = bins_for(weights[live])
    for size in np.unique(bins).tolist():
        alike, count = np.flatnonzero(bins == size), max(1, MAX_BINS // size)
        for first in range(0, len(alike), count):
            some = alike[first : first + count]
            clusters = live[some]
            slots, along = np.full((1, len(centers)), -1, np.int32), np.zeros((1, *axes.shape))
            slots[0, clusters] = np.arange(len(some))
            along[0, clusters] = axes[clusters] * (size / (2 * REACH) / deviation[some])[:, None]
            counts = backend.histogram(centers[None], along, labels, slots, len(some), size)
            statistic[clusters] = [departure(each) for each in counts]
    return statistic


def bins_for(weights: np.ndarray) -> np.ndarray:
    """Bins for clusters of these weights: (K,) -> (K,) powers of two."""
    finer = np.ceil(np.log2(np.sqrt(np.maximum(weights / BINNED, 1.0))))
    return np.minimum(BINS << finer.astype(np.int64), MAX_BINS)


def departure(counts: np.ndarray) -> float:
    """The corrected statistic of weights counted in bins over ±REACH standard deviations: (bins,).

    With p the share of the weight below, A² = n·∫ (p − u)² / (u (1 − u)) du: between two filled bins p is constant.
    """
    filled = np.flatnonzero(counts)
    n = float(counts[filled].sum())
    share = np.cumsum(counts[filled]) / n  # (m,) behind the first, the second, … filled bin
    share[-1] = 1.0
    z = ((filled + 0.5) / len(counts) - 0.5) * (2 * REACH)
    u, below, above = ndtr(z), log_ndtr(z), log_ndtr(-z)

    def primitive(p: np.ndarray, u: np.ndarray, below: np.ndarray, above: np.ndarray) -> np.ndarray:
        return p**2 * below - (1 - p) ** 2 * above - u

    ends = primitive(share[:-1], u[1:], below[1:], above[1:]) - primitive(share[:-1], u[:-1], below[:-1], above[:-1])
    first, last = -above[0] - u[0], -1.0 - (below[-1] - u[-1])
    squared = n * float(first + ends.sum() + last)
    return squared * (1 + 4 / n - 25 / n**2)


def critical(alpha: float) -> float:
    """The corrected statistic that a Gaussian cluster exceeds with this probability."""
    if alpha in CRITICAL:
        return CRITICAL[alpha]
    c, b, a = FIT[0] - math.log(alpha), FIT[1], FIT[2]
    return (-b - math.sqrt(b * b - 4 * a * c)) / (2 * a)
