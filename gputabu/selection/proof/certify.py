"""`certify`: prove how far a clustering can be from the best one."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterable
from contextlib import nullcontext
from typing import Any

import numpy as np

from gputabu.algorithms.progress_bar import open_bar
from gputabu.backend import NAMES, as_points, open_algebra, to_numpy
from gputabu.backend.numpy.algebra import Algebra
from gputabu.backend.numpy.threads import Workers
from gputabu.core.interrupts import Interrupts
from gputabu.core.validation import check_choice, check_flag, check_int, check_real
from gputabu.selection.proof import parts as dealing
from gputabu.selection.proof import problem as problems
from gputabu.selection.proof.admm import Admm
from gputabu.selection.proof.certificate import Certificate
from gputabu.selection.proof.rounds import Watch, bound

#: A clustering is better if J is lower by more than this share: less may be rounding.
BETTER = 1e-9
#: By how much J of a model may differ from J of its labels and centres before they are of other data.
OTHER = 1e-4
#: What J is at least unless it is 0: below this, float64 has few digits or none.
SMALLEST = float(np.finfo(np.float64).tiny)
#: Gap at which a part of several is left: what is lost by dealing is more.
PART_TOLERANCE = 1e-3


def certify(
    X: object,
    clustering: Any,
    *,
    sample_weight: object = None,
    n_clusters: int | None = None,
    max_time: float = 60.0,
    parts: int | str = "auto",
    tolerance: float = 1e-5,
    backend: str = "auto",
    progress: bool = False,
) -> Certificate:
    """Prove how far J of a clustering can be above the best possible.

    The bound is that of a semidefinite relaxation with triangle inequalities and more. It is valid in exact arithmetic,
    whenever the proof ends. Ctrl-C ends it with the best bound so far.

    Parameters
    ----------
    X : (N, d) array, or anything that `fit` takes
    clustering : fitted estimator, Clustering, or (N,) array of labels
        Of these points, in this order.
    sample_weight : (N,) array, optional
        The weights that it was fitted with.
    n_clusters : int, optional
        K of an array of labels; by default the largest of them plus one.
    max_time : float
        Seconds.
    parts : int or "auto"
        In how many parts the points are bounded. The bounds of parts add up to one for all, which is lower.
        "auto" takes one part up to 1500 points, and beyond as few as there is time for.
    tolerance : float
        The gap at which the proof ends and the clustering counts as optimal.
    backend : {"auto", "cuda", "numba", "numpy"}
        Who computes: "cuda" decomposes matrices on a GPU, and "numba" compiles what else is slow. "auto" takes what is
        there, a GPU from 400 points in a part on. The bounds may differ in their last digits.
    progress : bool
        Show a progress bar on stderr, or a line every few seconds if stderr is not a terminal.

    Returns
    -------
    Certificate

    References
    ----------
    Peng and Wei, "Approximating K-means-type clustering via semidefinite programming", SIAM J. Optim. 18, 2007.
    De Rosa and Khajavirad, "The ratio-cut polytope and K-means clustering", SIAM J. Optim. 32, 2022.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gputabu import TabuKMeans, certify
    >>> X = load_iris().data
    >>> certificate = certify(X, TabuKMeans(3, random_state=0).fit(X))
    >>> certificate.optimal, certificate.gap < 1e-5
    (True, True)
    >>> print(str(certificate)[:28])
    Proven optimal to 0.001 %: n
    """
    points = as_points(X, sample_weight)
    seconds = check_real("max_time", max_time, 0)
    close = check_real("tolerance", tolerance, 0)
    values = np.asarray(to_numpy(points.rows(np.arange(points.n))), np.float64)
    weights = None if sample_weight is None else np.asarray(points.weights_at(np.arange(points.n)), np.float64)
    labels, k = labels_of(clustering, points.n, n_clusters)
    check_same_data(clustering, values, weights, labels)
    many = dealing.number(points.n, k, seconds) if parts == "auto" else check_int("parts", parts, 1, points.n)
    algebra = open_algebra(check_choice("backend", backend, NAMES), math.ceil(points.n / many))
    bar = open_bar() if check_flag("progress", progress) else nullcontext()
    with Interrupts() as interrupts, Workers() as workers, bar as shown:
        proof = Proof(values, weights, labels, k, seconds, close, algebra, interrupts, shown)
        proof.run(many, workers)
        return proof.certificate(many)


def labels_of(clustering: Any, n: int, n_clusters: int | None) -> tuple[np.ndarray, int]:
    """Labels and K of a clustering of n points."""
    found = next((getattr(clustering, name) for name in ("labels_", "labels") if hasattr(clustering, name)), clustering)
    if hasattr(clustering, "fit") and found is clustering:
        raise ValueError("The estimator has no labels_: fit it first, or pass labels.")
    labels = np.asarray(to_numpy(found))
    if labels.shape != (n,):
        raise ValueError(f"The clustering has labels of shape {labels.shape}, but X has {n} points: other data.")
    if labels.dtype.kind not in "iu" or labels.min() < 0:
        raise ValueError("Labels must be integers from 0 on.")
    centers = next((getattr(clustering, m) for m in ("cluster_centers_", "centers") if hasattr(clustering, m)), None)
    least = int(labels.max()) + 1
    if n_clusters is None and centers is not None and not isinstance(centers, dict):
        least = max(least, len(centers))
    return labels.astype(np.int64), least if n_clusters is None else check_int("n_clusters", n_clusters, least, n)


def check_same_data(clustering: Any, X: np.ndarray, weights: np.ndarray | None, labels: np.ndarray) -> None:
    """Raise if J of a model is not that of its labels and centres at these points."""
    stored = getattr(clustering, "inertia_", getattr(clustering, "inertia", None))
    centers = getattr(clustering, "cluster_centers_", getattr(clustering, "centers", None))
    if stored is None or centers is None or isinstance(centers, dict):
        return
    centers = np.asarray(to_numpy(centers), np.float64)
    if centers.shape[1] != X.shape[1]:
        raise ValueError(f"X has {X.shape[1]} features, but the clustering has {centers.shape[1]}: other data.")
    with np.errstate(all="ignore"):
        squares = ((X - centers[labels]) ** 2).sum(axis=1)
        found = float(squares.sum() if weights is None else (squares * weights).sum())
        size = float((np.abs(X).max() ** 2) * len(X)) * 2.0**-40
    if abs(found - stored) > OTHER * max(found, stored) + size:
        raise ValueError(
            f"J of the clustering is {stored:.8g}, but its labels and centres have {found:.8g} at these points: it is "
            "of other data, other weights or another scale."
        )


def inertia_of(X: np.ndarray, weights: np.ndarray | None, labels: np.ndarray) -> float:
    """J of a labelling at its centroids; 0 only if all points of a cluster are equal, and else at least `SMALLEST`."""
    points, exponent = problems.scaled(X)
    w = np.ones(len(X)) if weights is None else weights
    terms, least = [], 0.0
    for label in np.unique(labels[w > 0]):
        rows = (labels == label) & (w > 0)
        if (X[rows] != X[rows][0]).any():
            least = SMALLEST
        share = w[rows, None] / w[rows].max()
        away = points[rows] - points[rows][0]
        away = away - (share * away).sum(axis=0) / share.sum()
        away -= (share * away).sum(axis=0) / share.sum()
        terms.append(math.fsum((w[rows, None] * away * away).ravel()))
    return max(least, float(np.ldexp(math.fsum(terms), 2 * exponent)))


class Proof:
    """One run of `certify`."""

    def __init__(
        self,
        X: np.ndarray,
        weights: np.ndarray | None,
        labels: np.ndarray,
        k: int,
        seconds: float,
        tolerance: float,
        algebra: Algebra,
        interrupts: Interrupts,
        bar: Any,
    ) -> None:
        self.X, self.weights, self.labels, self.k = X, weights, labels, k
        self.seconds, self.tolerance, self.algebra = seconds, tolerance, algebra
        self.interrupts, self.bar = interrupts, bar
        self.begun = time.perf_counter()
        self.inertia = inertia_of(X, weights, labels)
        self.bounds: list[float] = []  # of the parts that are done
        self.best = 0.0
        self.better: np.ndarray | None = None
        self.history: list[tuple[float, float, float]] = []

    @property
    def elapsed(self) -> float:
        return time.perf_counter() - self.begun

    def gap(self) -> float:
        return max(0.0, (self.inertia - self.best) / self.inertia) if self.inertia > 0 else 0.0

    def record(self, value: float) -> None:
        """A bound of all points."""
        self.best = max(self.best, value)
        self.history.append((self.elapsed, self.best, self.inertia))
        if self.bar is not None:
            text = f"bound {self.best:.6g} of J {self.inertia:.6g}, gap {100 * self.gap():.3g} %"
            self.bar.show(min(1.0, self.elapsed / self.seconds), text, max(0.0, self.seconds - self.elapsed))

    def run(self, many: int, workers: Workers) -> None:
        """Bound all parts."""
        if self.inertia == 0:
            self.record(0.0)
        elif many == 1:
            self.whole()
        else:
            self.divided(many, workers)
        if self.bar is not None:
            self.bar.finish(f"gap {100 * self.gap():.3g} %", self.elapsed, True)

    def whole(self) -> None:
        """Bound all points at once."""
        problem = problems.make(self.X, self.weights, self.k)

        def enough(value: float) -> bool:
            self.record(value)
            return self.gap() <= self.tolerance

        watch = Watch(self.begun + self.seconds, lambda: self.interrupts.asked)
        labels = problem.own_labels(self.labels)
        self.record(bound(problem, labels, self.algebra, watch, enough, lambda admm: self.round_off(problem, admm)))

    def divided(self, many: int, workers: Workers) -> None:
        """Bound the parts, some at a time, and add up their bounds."""
        w = np.ones(len(self.X)) if self.weights is None else self.weights
        dealt = dealing.deal(problems.scaled(self.X)[0], w, self.labels, many)
        bounds: list[float] = []
        lock = threading.Lock()

        def run(parts: Iterable[int]) -> None:
            for part in parts:
                share = (self.seconds - self.elapsed) * min(1.0, workers.threads / (many - len(bounds)))
                value = self.part(np.flatnonzero(dealt == part), share)
                with lock:
                    bounds.append(value)
                    self.record(max(0.0, math.nextafter(math.fsum(bounds), -math.inf)))

        workers.map(run, range(many))

    def part(self, rows: np.ndarray, seconds: float) -> float:
        """A bound of some of the points."""
        weights = None if self.weights is None else self.weights[rows]
        if not len(rows) or (weights is not None and weights.max() == 0) or self.interrupts.asked:
            return 0.0
        problem = problems.make(self.X[rows], weights, self.k)
        close = (1 - max(self.tolerance, PART_TOLERANCE)) * inertia_of(self.X[rows], weights, self.labels[rows])
        watch = Watch(time.perf_counter() + seconds, lambda: self.interrupts.asked)
        labels = problem.own_labels(self.labels[rows])
        return bound(problem, labels, self.algebra, watch, lambda value: value >= close, lambda admm: None)

    def round_off(self, problem: problems.Problem, admm: Admm) -> None:
        """Make a clustering of Z, whose rows average the points of a cluster, and improve it by K-Means."""
        points = problems.scaled(self.X)[0]
        first = np.zeros(problem.n, np.int64)
        kept = np.flatnonzero(problem.groups >= 0)
        first[problem.groups[kept]] = kept
        averages = (admm.Z() * problem.weights) @ points[first]
        chosen = [0]
        nearest = np.full(problem.n, np.inf)
        for _ in range(self.k - 1):
            nearest = np.minimum(nearest, ((averages - averages[chosen[-1]]) ** 2).sum(axis=1))
            chosen.append(int((nearest * problem.weights).argmax()))
        labels = lloyd(points, self.weights, averages[chosen])
        inertia = inertia_of(self.X, self.weights, labels)
        if inertia < self.inertia * (1 - BETTER):
            self.inertia, self.better = inertia, labels

    def certificate(self, many: int) -> Certificate:
        gap = self.gap()
        optimal = gap <= self.tolerance
        stop = "the bound rises no more"
        if optimal:
            stop = "the tolerance was reached"
        elif self.interrupts.asked:
            stop = "interrupted; this is the best bound so far"
        elif self.elapsed >= self.seconds:
            stop = "the time ran out"
        method = "semidefinite relaxation with star inequalities" + (f" of {many} parts" if many > 1 else "")
        history = np.array(self.history, np.float64).reshape(-1, 3)
        return Certificate(
            self.best,
            self.inertia,
            gap,
            optimal,
            self.tolerance,
            self.k,
            method,
            self.elapsed,
            stop,
            history,
            self.better,
        )


def lloyd(X: np.ndarray, weights: np.ndarray | None, centers: np.ndarray, rounds: int = 50) -> np.ndarray:
    """Labels after some iterations of K-Means."""
    w = np.ones(len(X)) if weights is None else weights
    labels = np.full(len(X), -1)
    for _ in range(rounds):
        before, labels = labels, ((centers**2).sum(axis=1) - 2 * X @ centers.T).argmin(axis=1)
        if (labels == before).all():
            break
        sums = np.bincount(labels, w, len(centers))
        totals = np.stack([np.bincount(labels, w * column, len(centers)) for column in X.T], axis=1)
        centers = np.where(sums[:, None] > 0, totals / np.maximum(sums, 1e-300)[:, None], centers)
    return labels
