"""Fuzzy c-means (Bezdek 1981), and a tabu search for it after Al-Sultan and Fedjki (1997).

A point belongs to every cluster to a degree u_nk, Σ_k u_nk = 1. With m > 1 and d_nk the squared distance,

    J = Σ_n w_n Σ_k u_nk^m d_nk = Σ_n w_n (Σ_k d_nk^(−1/(m−1)))^(−(m−1))

at the best memberships. Fuzzy c-means alternates these and the centres Σ u^m w x / Σ u^m w. One pass makes a step; the
memberships, N·K of them, are never stored.

The tabu search keeps centres V. An iteration makes `n_trials` of them. By default (`neighbours="swap"`) a trial puts
one centre on a random data point and makes one step of fuzzy c-means; this is ours. `neighbours="shift"` is the
original's: every centre moves by 0.5 σ times a number from 0 to 1 in a random direction, σ² being the total variance.
The trial of the least J that is not tabu, or beats the best, is accepted. Tabu are the last `tenure` accepted centres,
in any order of clusters: both are sorted feature by feature, and the same if they differ by less than 10⁻³ σ. The best
centres are refined by fuzzy c-means.

Where m − 1, m and 1/(m − 1) are multiples of ¼, as for 1.25, 1.5, 2 and 3, powers are exact products and roots.
For any other m they are series, good to about 10⁻¹³, and the same bits everywhere too (`backend.arithmetic.powers`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gputabu.algorithms.checkpoint import Stage
from gputabu.algorithms.lloyd import Descent
from gputabu.algorithms.monitor import Callback, Monitor
from gputabu.algorithms.parameters import documented
from gputabu.algorithms.restarts import FinishedBatch, Search, run_restarts
from gputabu.algorithms.seeding import Init, by_weight
from gputabu.algorithms.trace import TraceRecorder
from gputabu.backend import BackendChoice, Devices, as_points
from gputabu.backend.arithmetic.canonical import in_order
from gputabu.backend.arithmetic.rules import lowest
from gputabu.backend.base import BackendBase
from gputabu.core import random
from gputabu.core.random import Purpose
from gputabu.core.results import Clustering, Stop
from gputabu.core.validation import check_choice, check_int, check_n_clusters, check_real
from gputabu.data.points import Points, Shape

#: What `neighbours=` accepts.
NEIGHBOURS = ("swap", "shift")
#: How far a trial may shift a centre, and how near is the same, as shares of σ.
SHIFT, SAME = 0.5, 1e-3
#: Why rows of a group cannot be kept together.
UNGROUPED = "memberships of points are not those of their mean"
#: Where m may be.
FUZZIFIERS = (1.01, 100.0)


@documented
def run(
    X: object,
    n_clusters: int,
    *,
    m: float = 2.0,
    weights: object = None,
    init: object = "k-means++",
    restarts: int | Sequence[int] = 1,
    max_iter: int = 300,
    tol: float = 1e-6,
    seed: int = 0,
    backend: BackendChoice = "auto",
    device: Devices = None,
    labels_out: object = None,
    checkpoint: object = None,
    progress: bool = False,
    callback: Callback | None = None,
) -> Clustering:
    """Cluster `X` by fuzzy c-means from one or more starts and return the best.

    Parameters
    ----------
    %(data)s
    m : float
        How fuzzy, from 1.01 to 100; near 1 it is K-Means.
    init : {"k-means++", "random"}, (K, d) centres or (K,) row numbers
    %(restarts)s
    max_iter : int
    tol : float
        Stop when no coordinate of a centre moves by more than `tol` times the root of the total variance.
    %(execution)s
    %(watching)s

    Returns
    -------
    Clustering
        `inertia` is J of the fuzzy problem; labels are those of the highest membership.

    Examples
    --------
    >>> from gputabu import fuzzy
    >>> found = fuzzy.run([[0.0], [1.0], [10.0], [11.0]], 2, seed=0)
    >>> round(found.inertia, 3), sorted(found.centers.ravel().round(2).tolist())
    (0.997, [0.5, 10.5])
    """
    monitor = Monitor(callback, progress, checkpoint=checkpoint)
    points = as_points(X, weights)
    checked = FuzzySearch.checked(points.shape, n_clusters, m=m, init=init, max_iter=max_iter, tol=tol, seed=seed)
    return run_restarts(points, checked, restarts, monitor, backend=backend, device=device, labels_out=labels_out)


@documented
def search(
    X: object,
    n_clusters: int,
    *,
    m: float = 2.0,
    weights: object = None,
    init: object = "random",
    restarts: int | Sequence[int] = 1,
    max_iter: int = 100,
    n_trials: int = 20,
    tenure: int = 10,
    neighbours: str = "swap",
    refine_iter: int = 300,
    tol: float = 1e-6,
    seed: int = 0,
    backend: BackendChoice = "auto",
    device: Devices = None,
    labels_out: object = None,
    checkpoint: object = None,
    progress: bool = False,
    callback: Callback | None = None,
) -> Clustering:
    """Cluster `X` by a tabu search for fuzzy c-means.

    Parameters
    ----------
    %(data)s
    m : float
        How fuzzy, from 1.01 to 100.
    init : {"random", "k-means++"}, (K, d) centres or (K,) row numbers
    %(restarts)s
    max_iter : int
        Iterations of the tabu search; all are made.
    n_trials : int
        Trials per iteration (NTS).
    tenure : int
        Accepted centres that are tabu (MTLS).
    neighbours : {"swap", "shift"}
        How trials are made: a centre goes to a data point, and a step of fuzzy c-means follows; or all are shifted, as
        in the original.
    refine_iter : int
        Iterations of fuzzy c-means that refine the best centres.
    tol : float
        Where they end, as for `run`.
    %(execution)s
    %(watching)s

    Returns
    -------
    Clustering
        `inertia` is J of the fuzzy problem; labels are those of the highest membership.

    Examples
    --------
    >>> from gputabu import fuzzy
    >>> found = fuzzy.search([[0.0], [1.0], [10.0], [11.0]], 2, max_iter=5, seed=0)
    >>> round(found.inertia, 3)
    0.997
    """
    monitor = Monitor(callback, progress, checkpoint=checkpoint)
    points = as_points(X, weights)
    checked = TabuFuzzySearch.checked(
        points.shape, n_clusters, m=m, init=init, max_iter=max_iter, n_trials=n_trials, tenure=tenure,
        neighbours=neighbours, refine_iter=refine_iter, tol=tol, seed=seed,
    )  # fmt: skip
    return run_restarts(points, checked, restarts, monitor, backend=backend, device=device, labels_out=labels_out)


@dataclass(frozen=True)
class FuzzySearch(Search):
    """Fuzzy c-means with its parameters, checked."""

    k: int
    seed: int
    m: float
    init: Init
    max_iter: int
    tol: float
    name = "fuzzy"
    ungrouped = UNGROUPED
    patience = None

    @classmethod
    def checked(
        cls, shape: Shape, n_clusters: int, *, m: float, init: object, max_iter: int, tol: float, seed: int
    ) -> FuzzySearch:
        k = check_n_clusters(n_clusters, shape.n)
        check_int("max_iter", max_iter, 1)
        check_real("tol", tol, 0)
        return cls(k, seed, check_real("m", m, *FUZZIFIERS), Init.checked(init, k, seed, shape), max_iter, tol)

    def identity(self) -> dict[str, Any]:
        start = {"n_clusters": self.k, "init": self.init.name, "m": self.m}
        return {**start, "max_iter": self.max_iter, "tol": self.tol, "seed": self.seed}

    def run(self, backend: BackendBase, batch: Sequence[int], monitor: Monitor) -> FinishedBatch:
        centers = monitor.stage("seeds", lambda stage: self.init.centers(backend, batch, stage))
        found = monitor.stage(
            "search", lambda stage: descend(backend, centers, self.m, self.max_iter, self.tol, monitor, stage)
        )
        return finish(backend, Descent(*found), self.m, batch)


@dataclass(frozen=True)
class TabuFuzzySearch(Search):
    """The tabu search with its parameters, checked."""

    k: int
    seed: int
    m: float
    init: Init
    max_iter: int
    n_trials: int
    tenure: int
    neighbours: str
    refine_iter: int
    tol: float
    name = "tabu fuzzy"
    ungrouped = UNGROUPED
    patience = None

    @classmethod
    def checked(
        cls,
        shape: Shape,
        n_clusters: int,
        *,
        m: float,
        init: object,
        max_iter: int,
        n_trials: int,
        tenure: int,
        neighbours: str,
        refine_iter: int,
        tol: float,
        seed: int,
    ) -> TabuFuzzySearch:
        k = check_n_clusters(n_clusters, shape.n)
        check_int("max_iter", max_iter, 1)
        check_int("n_trials", n_trials, 1)
        check_int("tenure", tenure, 1)
        check_choice("neighbours", neighbours, NEIGHBOURS)
        check_int("refine_iter", refine_iter, 1)
        check_real("tol", tol, 0)
        start = Init.checked(init, k, seed, shape)
        m = check_real("m", m, *FUZZIFIERS)
        return cls(k, seed, m, start, max_iter, n_trials, tenure, neighbours, refine_iter, tol)

    def identity(self) -> dict[str, Any]:
        start = {"n_clusters": self.k, "init": self.init.name, "m": self.m, "max_iter": self.max_iter}
        plan = {"n_trials": self.n_trials, "tenure": self.tenure, "neighbours": self.neighbours}
        return {**start, **plan, "refine_iter": self.refine_iter, "tol": self.tol, "seed": self.seed}

    def width(self, points: Points) -> int:
        """No array has an entry per point; the sums of all trials are held at once."""
        return max(1, self.n_trials * self.k * (points.d + 1))

    def run(self, backend: BackendBase, batch: Sequence[int], monitor: Monitor) -> FinishedBatch:
        centers = monitor.stage("seeds", lambda stage: self.init.centers(backend, batch, stage))
        found = Descent(*monitor.stage("search", lambda stage: explore(backend, centers, self, batch, monitor, stage)))
        monitor.begin_phase("refine", self.refine_iter)
        refined = monitor.stage(
            "refine", lambda stage: descend(backend, found.centers, self.m, self.refine_iter, self.tol, monitor, stage)
        )
        return finish(backend, found._replace(centers=refined[0]), self.m, batch)


def descend(
    backend: BackendBase, centers: np.ndarray, m: float, max_iter: int, tol: float, monitor: Monitor, stage: Stage
) -> Descent:
    """Fuzzy c-means from centers (R, K, d).

    A pass over the points gives J of the centres, and the next ones. The last of these are returned.
    """
    r = len(centers)
    if (saved := stage.state) is None:
        made, active, stops, recorder = 0, np.arange(r), [Stop.MAX_ITER] * r, TraceRecorder(r)
        ended, cost = backend.fuzzy_step(inside(backend, centers), m)
        recorder.start(cost)
    else:
        made, active, ended, stops = saved["made"], saved["active"], saved["ended"].copy(), saved["stops"].copy()
        recorder = TraceRecorder.resumed(saved["trace"])
    allowed = tol * deviation(backend)
    while made < max_iter and len(active):
        before = ended[active]
        moved, cost = backend.fuzzy_step(before, m)
        far = np.abs(moved - before).max(axis=2) > allowed  # (A, K)
        ended[active] = moved
        recorder.add(active, cost, far.sum(axis=1))
        made, over = made + 1, ~far.any(axis=1)
        for i in active[over]:
            stops[i] = Stop.TOLERANCE
        if stage.kept and not over.all():
            stage.keep({"made": made, "active": active[~over], "ended": ended.copy(), "stops": stops.copy(),
                        "trace": recorder.kept})  # fmt: skip
        monitor.report(made, active, cost, cost, over | (made == max_iter))
        active = active[~over]
        if monitor.should_hurry():
            for i in active:
                stops[i] = monitor.stop_reason
            break
    return Descent(ended, stops, recorder.trace())


def inside(backend: BackendBase, centers: np.ndarray) -> np.ndarray:
    """The centres, or the nearest places in the box of the points, which holds all that fuzzy c-means can find."""
    return np.clip(centers, backend.bounds.low, backend.bounds.high)


def deviation(backend: BackendBase) -> float:
    """σ, the root of the total variance."""
    return float(np.sqrt(backend.scatter / float(backend.points.total_weight)))


def finish(backend: BackendBase, found: Descent, m: float, batch: Sequence[int]) -> FinishedBatch:
    """Round the centres to the dtype of the points, then J and the labels of the highest memberships by them."""
    centers = found.centers.astype(backend.points.dtype)
    wide = centers.astype(np.float64)
    cost = backend.fuzzy_cost(wide, m)
    best = int(cost.argmin())
    labels = backend.result_labels(backend.label(wide[best : best + 1]), 0)
    return FinishedBatch(
        list(batch), cost, best, lambda: labels, centers[best], None, found.stop, found.trace
    )  # fmt: skip


def explore(
    backend: BackendBase, centers: np.ndarray, plan: TabuFuzzySearch, batch: Sequence[int], monitor: Monitor,
    stage: Stage,
) -> Descent:  # fmt: skip
    """Run R searches from centers (R, K, d): the best centres."""
    r, everyone = len(centers), np.arange(len(centers))
    same = SAME * deviation(backend)
    if (saved := stage.state) is None:
        made, current, recorder = 0, inside(backend, centers), TraceRecorder(r)
        cost = backend.fuzzy_cost(current, plan.m)
        best, best_cost = current.copy(), cost.copy()
        recent = np.full((r, plan.tenure, *current.shape[1:]), np.inf)
        accepted = np.zeros(r, np.int64)
        recorder.start(cost)
    else:
        made, current, cost, best, best_cost, recent, accepted = (saved[name] for name in (
            "made", "current", "cost", "best", "best_cost", "recent", "accepted"))  # fmt: skip
        recorder = TraceRecorder.resumed(saved["trace"])
    stop = Stop.MAX_ITER
    for iteration in range(made + 1, plan.max_iter + 1):
        trials, costs = tried(backend, current, plan, batch, iteration)  # (R, T, K, d), (R, T)
        chosen = accept(costs, tabu(trials, recent, same), best_cost)
        moved = chosen >= 0
        taken = trials[everyone, chosen]
        current = np.where(moved[:, None, None], taken, current)
        cost = np.where(moved, costs[everyone, chosen], cost)
        recent, accepted = remembered(recent, accepted, current, moved)
        better = cost < best_cost
        best, best_cost = np.where(better[:, None, None], current, best), np.where(better, cost, best_cost)
        recorder.add(everyone, cost, np.where(moved, 1, 0), best=best_cost)
        stage.keep({"made": iteration, "current": current, "cost": cost, "best": best, "best_cost": best_cost,
                    "recent": recent, "accepted": accepted, "trace": recorder.kept})  # fmt: skip
        monitor.report(iteration, everyone, cost, best_cost, np.full(r, iteration == plan.max_iter))
        if monitor.should_stop():
            stop = monitor.stop_reason
            break
    return Descent(best, [stop] * r, recorder.trace())


def tried(
    backend: BackendBase, centers: np.ndarray, plan: TabuFuzzySearch, batch: Sequence[int], iteration: int
) -> tuple[np.ndarray, np.ndarray]:
    """The trials of an iteration, and their J: (R, K, d) -> (R, T, K, d), (R, T)."""
    (r, k, d), t = centers.shape, plan.n_trials
    n_words = t * (2 if plan.neighbours == "swap" else k * (d + 1))
    words = np.stack([
        random.words(plan.seed, number, n_words, purpose=Purpose.TRIAL, step=iteration) for number in batch
    ])  # fmt: skip
    trials = np.repeat(centers[:, None], t, axis=1)
    if plan.neighbours == "swap":
        which = random.below(words[:, :t], np.array(k))
        trials[np.arange(r)[:, None], np.arange(t), which] = backend.rows(by_weight(backend.points, words[:, t:]))
        flat, _ = backend.fuzzy_step(trials.reshape(r * t, k, d), plan.m)
    else:
        numbers = random.uniforms(words).reshape(r, t, k, d + 1)
        direction = numbers[..., :d] - 0.5
        length = np.sqrt(in_order(direction**2))[..., None]
        reach = SHIFT * deviation(backend) * numbers[..., d:]
        flat = inside(backend, trials + reach * direction / np.where(length > 0, length, 1.0)).reshape(r * t, k, d)
    return flat.reshape(r, t, k, d), backend.fuzzy_cost(flat, plan.m).reshape(r, t)


def tabu(trials: np.ndarray, recent: np.ndarray, same: float) -> np.ndarray:
    """Which trials (R, T, K, d) were accepted of late (R, L, K, d), sorted feature by feature: (R, T) bool."""
    ordered = np.sort(trials, axis=2)
    found = np.zeros(trials.shape[:2], np.bool_)
    for entry in range(recent.shape[1]):
        found |= (np.abs(ordered - recent[:, entry, None]) < same).all(axis=(2, 3))
    return found


def accept(costs: np.ndarray, forbidden: np.ndarray, best: np.ndarray) -> np.ndarray:
    """The trial of the least J that is not tabu or beats the best; -1 where there is none: (R, T) -> (R,)."""
    allowed = ~forbidden | (costs < best[:, None])
    return np.where(allowed.any(axis=1), lowest(np.where(allowed, costs, np.inf)), -1)


def remembered(
    recent: np.ndarray, accepted: np.ndarray, centers: np.ndarray, moved: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """The tabu lists with the accepted centers (R, K, d) in the place of the oldest."""
    recent, rows = recent.copy(), np.flatnonzero(moved)
    recent[rows, accepted[rows] % recent.shape[1]] = np.sort(centers[rows], axis=1)
    return recent, accepted + moved
