"""TSC: tabu search over labellings (Al-Sultan 1995), the baseline of Gyamfi, Brusey and Hunt (2016).

A solution A is the label of every point. One iteration builds NTS trials of A_c: in each, every point keeps its label
with probability P and otherwise takes another one at random. The trial of the lowest J (eq. 2, at the centroids) that
is not in the tabu list, or that beats J_b, becomes A_c and is appended to the list, which forgets all but the last
MTLS labellings. Where all trials are forbidden the iteration ends with A_c as it was.

A trial is never written down. Its labels are a function of addressed random words, its J follows from the totals of A_c
and the terms of the points that change, and it is recognised by a fingerprint of 128 bits: Σ_i label_i · f_i modulo 2^64,
twice, with random words f_i; two different labellings have equal fingerprints with a probability below K² · 2^-128. The
accepted trial is drawn once more to change A_c.

Where the paper is silent: the start is not in the tabu list, ties go to the lowest trial, and a cluster may run
empty: it then adds nothing to J, and its centre is the mean of all points. Labellings that differ only in the
names of the clusters are different labellings.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from gputabu.algorithms import lloyd
from gputabu.algorithms.checkpoint import Stage, digest
from gputabu.algorithms.monitor import Callback, Monitor
from gputabu.algorithms.parameters import documented
from gputabu.algorithms.restarts import (
    FinishedBatch,
    Search,
    run_restarts,
)
from gputabu.algorithms.trace import TraceRecorder
from gputabu.backend import BackendChoice, Devices, as_points, to_numpy
from gputabu.backend.arithmetic.constants import NOISE
from gputabu.backend.arithmetic.fixed_point import Totals
from gputabu.backend.base import BackendBase
from gputabu.backend.contract import Labels, TrialBatch
from gputabu.core.log import log
from gputabu.core.results import Clustering, Stop, Trace
from gputabu.core.validation import check_choice, check_int, check_labels, check_n_clusters, check_optional, check_real
from gputabu.data.points import Points, Shape

#: What `init=` accepts by name.
METHODS = ("random",)
#: What `refine=` accepts beside None.
REFINEMENTS = ("lloyd", "hartigan")


#: Of the state of a search, what a checkpoint keeps as it is: the name in the file, and the attribute.
KEPT = {
    **{name: name for name in ("cost", "best_cost", "recent", "accepted")},
    "print": "fingerprint",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """The parameters of a search."""

    max_iter: int = 1000  # IT_max
    n_trials: int = 20  # NTS
    tenure: int = 15  # MTLS
    keep: float = 0.95  # P

    @classmethod
    def checked(cls, max_iter: int, n_trials: int, tenure: int, keep: float) -> Plan:
        return cls(
            check_int("max_iter", max_iter, 1),
            check_int("n_trials", n_trials, 1),
            check_int("tenure", tenure, 1),
            check_real("keep", keep, 0, 1),
        )

    @property
    def limit(self) -> int:
        """Words below this have a high half u with u / 2^32 < P: the point keeps its label."""
        return min(math.ceil(self.keep * 2**32), 2**32 - 1) << 32


@dataclass(frozen=True, slots=True)
class State:
    """R searches between two iterations."""

    labels: Labels  # (R, N) A_c; changed in place, as `best_labels` is
    totals: np.ndarray  # (R, K, C) of A_c
    cost: np.ndarray  # (R,) J_c
    fingerprint: np.ndarray  # (R, 2) uint64 of A_c, less that of the start
    best_labels: Labels  # (R, N) A_b
    best_totals: np.ndarray  # (R, K, C) of A_b
    best_cost: np.ndarray  # (R,) J_b
    recent: np.ndarray  # (R, MTLS, 2) fingerprints of the accepted labellings, in turn
    accepted: np.ndarray  # (R,) how many there were
    moves: np.ndarray  # (R,) points that changed cluster
    way: np.ndarray  # (R, 2) int32: the trial that led here, or -1, and whether A_b is its


@documented
def search(
    X: object,
    n_clusters: int,
    *,
    weights: object = None,
    init: object = "random",
    restarts: int | Sequence[int] = 1,
    max_iter: int = 1000,
    n_trials: int = 20,
    tenure: int = 15,
    keep: float = 0.95,
    refine: str | None = None,
    seed: int = 0,
    backend: BackendChoice = "auto",
    device: Devices = None,
    labels_out: object = None,
    checkpoint: object = None,
    progress: bool = False,
    callback: Callback | None = None,
) -> Clustering:
    """Cluster `X` by tabu search over labellings (TSC) and return the best of the restarts.

    Parameters
    ----------
    %(data)s
    init : "random" or (N,) labels from 0 to K - 1
    %(restarts)s
    max_iter : int
        IT_max, iterations of the tabu search; all of them are made.
    n_trials : int
        NTS, trial labellings per iteration.
    tenure : int
        MTLS, for how many accepted labellings one stays forbidden.
    keep : float
        P, the probability that a point keeps its label in a trial; at least 0 and below 1.
    refine : {None, "lloyd", "hartigan"}
        None returns the best labelling that was found, as the paper does: `labels` need not be the nearest of
        `centers`, which are its centroids. "lloyd" begins K-Means from these, "hartigan"
        goes on with single moves: points change cluster, one at a time, until no such move lowers J.
    %(execution)s
    %(watching)s

    Returns
    -------
    Clustering

    Examples
    --------
    >>> from gputabu import reassignment
    >>> found = reassignment.search([[0.0], [1.0], [10.0], [11.0]], 2, keep=0.5, max_iter=50, seed=0)
    >>> found.inertia, sorted(found.centers.ravel().tolist())
    (1.0, [0.5, 10.5])
    """
    monitor = Monitor(callback, progress, checkpoint=checkpoint)
    points = as_points(X, weights)
    checked = ReassignmentSearch.checked(
        points.shape, n_clusters, init=init, max_iter=max_iter, n_trials=n_trials, tenure=tenure, keep=keep,
        refine=refine, seed=seed,
    )  # fmt: skip
    return run_restarts(points, checked, restarts, monitor, backend=backend, device=device, labels_out=labels_out)


@dataclass(frozen=True)
class ReassignmentSearch(Search):
    """TSC with its parameters, checked."""

    k: int
    seed: int
    given: np.ndarray | None  # (N,) labels to begin with; None for random ones
    plan: Plan
    refine: str | None
    name = "reassignment"
    patience = None

    @classmethod
    def checked(
        cls,
        shape: Shape,
        n_clusters: int,
        *,
        init: object,
        max_iter: int,
        n_trials: int,
        tenure: int,
        keep: float,
        refine: str | None,
        seed: int,
    ) -> ReassignmentSearch:
        k = check_n_clusters(n_clusters, shape.n)
        plan = Plan.checked(max_iter, n_trials, tenure, keep)
        check_optional("refine", refine, REFINEMENTS)
        given = check_init(init, shape.n, k)
        return cls(k, check_int("seed", seed, 0, 2**64 - 1), given, plan, refine)

    @property
    def max_iter(self) -> int:  # type: ignore[override]
        return self.plan.max_iter

    def identity(self) -> dict[str, Any]:
        start = {"n_clusters": self.k, "init": "random" if self.given is None else digest(self.given)}
        return {**start, **asdict(self.plan), "refine": self.refine, "seed": self.seed}

    def run(self, backend: BackendBase, batch: Sequence[int], monitor: Monitor) -> FinishedBatch:
        states: list[State] = []  # not kept: it has labels
        start = self.start(batch)
        way, stops, trace = monitor.stage(
            "search", lambda stage: explore(backend, start, self.plan, monitor, stage, states)
        )
        state = states[0] if states else retrace(backend, start, self.plan, way)
        return conclude(backend, state, way, stops, trace, batch, self.refine, monitor)

    def start(self, restarts: Sequence[int]) -> TrialBatch:
        """The labelling that each of these restarts begins with."""
        numbers = np.array(restarts, np.uint64)
        return TrialBatch(self.k, self.seed, numbers, step=0, n_trials=1, limit=0, given=self.given)

    def labels(self, backend: BackendBase, batch: FinishedBatch) -> Labels:
        if batch.way is None:
            return super().labels(backend, batch)
        return retrace(backend, self.start([batch.numbers[batch.best]]), self.plan, batch.way).best_labels

    def width(self, points: Points) -> int:
        """The totals of all trials are held at once."""
        columns = Totals.columns(points.d, points.weights is not None)
        return max(points.n, self.plan.n_trials * self.k * columns)


def explore(
    backend: BackendBase, start: TrialBatch, plan: Plan, monitor: Monitor, stage: Stage, states: list[State]
) -> tuple[np.ndarray, list[Stop], Trace]:
    """Run R searches from the labelling that `start` draws or has; the last state goes to `states`.

    Returns the way (T, R, 2) there, on which `retrace` can follow.
    """
    everyone = np.arange(len(start.restarts))
    if (saved := stage.state) is None:
        state, recorder, way = begin(backend, start, plan), TraceRecorder(len(everyone)), list[np.ndarray]()
        recorder.start(state.cost)
    else:
        state = replace(
            retrace(backend, start, plan, saved["way"]), **{attribute: saved[name] for name, attribute in KEPT.items()}
        )
        recorder, way = TraceRecorder.resumed(saved["trace"]), list(saved["way"])
    stop = Stop.MAX_ITER
    for iteration in range(len(way) + 1, plan.max_iter + 1):
        state = step(backend, state, drawn(start, plan, iteration))
        recorder.add(everyone, state.cost, state.moves, best=state.best_cost)
        way.append(state.way)
        log.debug("iteration %d: %d restarts, best J %.10g", iteration, len(everyone), state.best_cost.min())
        rest = {name: getattr(state, attribute) for name, attribute in KEPT.items()}
        stage.keep({"way": partial(stacked, way, len(way)), "trace": recorder.kept, **rest})
        last = np.full(len(everyone), iteration == plan.max_iter)
        monitor.report(iteration, everyone, state.cost, state.best_cost, last)
        if monitor.halted:
            stop = monitor.halted
            break
    states.append(state)
    return stacked(way, len(way)), [stop] * len(everyone), recorder.trace()


def drawn(start: TrialBatch, plan: Plan, iteration: int) -> TrialBatch:
    """The trials of an iteration."""
    return replace(start, step=iteration, n_trials=plan.n_trials, limit=plan.limit, given=None)


def stacked(way: list[np.ndarray], length: int) -> np.ndarray:
    """The first so many steps of a way: (T, R, 2)."""
    return np.stack(way[:length])


def retrace(backend: BackendBase, start: TrialBatch, plan: Plan, way: np.ndarray) -> State:
    """Go from the start along a way (T, R, 2): A_c and A_b, and their totals. One trial is drawn in each iteration."""
    state = begin(backend, start, plan)
    totals, best = state.totals, state.best_totals
    for i, (chosen, better) in enumerate(zip(way[..., 0].astype(np.int64), way[..., 1] > 0, strict=True), start=1):
        change = backend.apply_trial(state.labels, state.best_labels, drawn(start, plan, i), chosen, better)
        totals = totals + change.totals
        best = np.where(better[:, None, None], totals, best)
    return replace(state, totals=totals, best_totals=best)


def begin(backend: BackendBase, start: TrialBatch, plan: Plan) -> State:
    """A_c = A_b = A^(0): the first trial of points that have no label yet."""
    r = len(start.restarts)
    labels, best = backend.blank_labels(r), backend.blank_labels(r)
    totals = backend.apply_trial(labels, best, start, np.zeros(r, np.int64), np.ones(r, bool)).totals
    cost = np.maximum(backend.scatter - backend.grid.explained(totals), 0.0)
    none = np.zeros(r, np.int64)
    recent = np.zeros((r, plan.tenure, 2), np.uint64)
    return State(labels, totals, cost, np.zeros((r, 2), np.uint64), best, totals, cost, recent, none, none,
                 np.zeros((r, 2), np.int32))  # fmt: skip


def step(backend: BackendBase, state: State, trials: TrialBatch) -> State:
    """One iteration: move to the best trial that is allowed, whether it is better or not, and remember it."""
    restart = np.arange(len(state.cost))
    tried = backend.evaluate_trials(state.labels, state.totals, trials)
    fingerprints = state.fingerprint[:, None] + tried.fingerprints  # (R, T, 2)
    noise = NOISE * backend.scatter
    chosen = accept(tried.cost, forbidden(fingerprints, state), state.best_cost, noise)  # (R,)
    moved = chosen >= 0
    cost = np.where(moved, tried.cost[restart, chosen], state.cost)
    better = moved & (cost < state.best_cost - noise)
    change = backend.apply_trial(state.labels, state.best_labels, trials, chosen, better)
    totals = state.totals + change.totals
    fingerprint = np.where(moved[:, None], fingerprints[restart, chosen], state.fingerprint)
    recent = state.recent.copy()
    recent[restart[moved], state.accepted[moved] % recent.shape[1]] = fingerprint[moved]
    return State(
        state.labels,
        totals,
        cost,
        fingerprint,
        state.best_labels,
        np.where(better[:, None, None], totals, state.best_totals),
        np.where(better, cost, state.best_cost),
        recent,
        state.accepted + moved,
        change.changed,
        np.stack([chosen, better], axis=1).astype(np.int32),
    )


def forbidden(fingerprints: np.ndarray, state: State) -> np.ndarray:
    """Which trials are in the tabu list: (R, T, 2) -> (R, T) bool."""
    filled = np.arange(state.recent.shape[1]) < state.accepted[:, None]  # (R, MTLS)
    one, two = (fingerprints[:, :, None, i] == state.recent[:, None, :, i] for i in (0, 1))  # (R, T, MTLS) each
    return (one & two & filled[:, None]).any(axis=-1)


def accept(cost: np.ndarray, tabu: np.ndarray, best: np.ndarray, noise: float) -> np.ndarray:
    """The trial of the lowest J that is not tabu or beats J_b; -1 where there is none: (R, T) -> (R,).

    J is the scatter of all points less what clusters explain of it, so its rounding is relative to that scatter: values
    closer than `noise` are equal.
    """
    allowed = ~tabu | (cost < best[:, None] - noise)
    cost = np.where(allowed, cost, np.inf)
    first = (cost <= cost.min(axis=1, keepdims=True) + noise).argmax(axis=1)
    return np.where(allowed.any(axis=1), first, -1)


def conclude(
    backend: BackendBase,
    state: State,
    way: np.ndarray,
    stops: list[Stop],
    trace: Trace,
    batch: Sequence[int],
    refine: str | None,
    monitor: Monitor,
) -> FinishedBatch:
    """A_b and its centroids, or what K-Means makes of them."""
    r, k, _ = state.totals.shape
    middle = np.broadcast_to(backend.grid.offset, (r, k, backend.points.d))
    centers = backend.grid.centroids(state.best_totals, middle)
    if refine is None:
        found = lloyd.finish(backend, lloyd.Descent(centers, stops, trace), batch, labels=state.best_labels)
        return replace(found, way=way[:, found.best : found.best + 1])
    centers = lloyd.refined(backend, centers, refine, monitor)
    return lloyd.finish(backend, lloyd.Descent(centers, stops, trace), batch)


def check_init(init: object, n_samples: int, n_clusters: int) -> np.ndarray | None:
    """The labels (N,) int32 to begin with, or None for random ones."""
    if isinstance(init, str):
        check_choice("init", init, METHODS)
        return None
    try:
        array = to_numpy(init, "init")
    except ValueError:
        array = np.empty(0, object)
    if array.ndim == 0:
        raise ValueError(f"init={init!r} must be 'random' or {n_samples} labels from 0 to {n_clusters - 1}.")
    return check_labels("init", array, n_samples, n_clusters)
