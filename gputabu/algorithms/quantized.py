"""QM-TS: tabu search with quantized means (Gyamfi, Brusey and Hunt 2016, sections IV and V).

A solution M is K data points, the quantized means. One iteration moves every mean at once to the free member
x*_k of its cluster that minimises ΔJ_k (eq. 13), relabels all points (eq. 15) and evaluates J (eq. 2).

Eq. 13 has a closed form. With c_k the centroid of C_k and N_k its weight,
ΔJ_k(x) = N_k (‖x − c_k‖² − ‖μ_k − c_k‖²), so that x*_k is the free member nearest to the centroid: one
pass over the points instead of one over pairs of them. That pass, `survey`, also yields J at the centroids.

Where the paper is silent: ties go to the lowest row number, a cluster without members keeps its mean, and in
scope "global" so does one that the deletion rule cannot free, because other rows forbid its members as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from gputabu.algorithms import lloyd
from gputabu.algorithms.checkpoint import Stage
from gputabu.algorithms.monitor import Callback, Monitor
from gputabu.algorithms.parameters import documented
from gputabu.algorithms.restarts import (
    FinishedBatch,
    Search,
    run_restarts,
)
from gputabu.algorithms.seeding import Init
from gputabu.algorithms.tabu_list import Best, TabuList
from gputabu.algorithms.trace import TraceRecorder
from gputabu.backend import BackendChoice, Devices, as_points
from gputabu.backend.arithmetic.fixed_point import Totals
from gputabu.backend.arithmetic.rules import lowest
from gputabu.backend.base import BackendBase, Survey
from gputabu.backend.contract import Labels
from gputabu.backend.loops import QuantizedSettings
from gputabu.core.log import log
from gputabu.core.results import Clustering, Stop, Trace
from gputabu.core.validation import check_choice, check_int, check_n_clusters, check_real
from gputabu.data.points import Shape

#: Whether a tabu entry of cluster k forbids a point to that cluster only, or to all.
SCOPES = ("cluster", "global")
#: IT_max of the paper, and efforts that a search can make, in multiples of it.
ITERATIONS, MOST = 400, 1e6
#: How M_b is refined (section IV-E): K-Means from it, or the centroids of its clusters; our own: K-Means and more.
REFINEMENTS = ("lloyd", "centroid", "hartigan")


@dataclass(frozen=True, slots=True)
class Plan:
    """The parameters of a search."""

    max_iter: int = 400  # IT_max
    patience: int = 100  # r_max
    scope: str = "cluster"
    n_neighbors: int = 1  # R of section IV-B
    target: float = 0.0  # J to stop at, if positive

    @classmethod
    def checked(cls, max_iter: int, patience: int | None, scope: str, n_neighbors: int, target: float, n: int) -> Plan:
        check_int("max_iter", max_iter, 1)
        return cls(
            max_iter,
            max(1, max_iter // 4) if patience is None else check_int("patience", patience, 1),
            check_choice("scope", scope, SCOPES),
            min(check_int("n_neighbors", n_neighbors, 1), n),  # behind the last point come only repetitions
            check_real("target", target, 0),
        )

    def reached(self, cost: np.ndarray) -> np.ndarray:
        """Where J is at the target or below it; the paper knows none, and goes on at J = 0."""
        return cost <= (self.target or -1.0)


@dataclass(frozen=True, slots=True)
class State:
    """R searches between two iterations."""

    means: np.ndarray  # (R, K) M_c, row numbers
    labels: Labels  # (R, N) of M_c
    totals: np.ndarray  # (R, K, C) of the clusters of M_c
    survey: Survey  # what was seen of M_c: J_c and the candidates for the next move
    tabu: TabuList
    best: Best

    def take(self, backend: BackendBase, restarts: np.ndarray) -> State:
        """These restarts only."""
        survey = Survey(self.survey.cost[restarts], self.survey.index[restarts], self.survey.inside[restarts])
        return State(
            self.means[restarts],
            backend.take_labels(self.labels, restarts),
            self.totals[restarts],
            survey,
            self.tabu.take(restarts),
            self.best.take(restarts),
        )


@documented
def search(
    X: object,
    n_clusters: int,
    *,
    weights: object = None,
    init: object = "random",
    restarts: int | Sequence[int] = 1,
    effort: float | None = None,
    max_iter: int | None = None,
    patience: int | None = None,
    max_time: float | None = None,
    target: float = 0.0,
    refine: str = "lloyd",
    scope: str = "cluster",
    n_neighbors: int = 1,
    seed: int = 0,
    backend: BackendChoice = "auto",
    device: Devices = None,
    labels_out: object = None,
    checkpoint: object = None,
    progress: bool = False,
    callback: Callback | None = None,
) -> Clustering:
    """Cluster `X` by tabu search with quantized means and return the best of the restarts.

    Parameters
    ----------
    %(data)s
    init : {"random", "k-means++"}, (K, d) centres or (K,) row numbers
        Centres that are not data points are moved to the nearest one.
    %(restarts)s
    effort : float, optional
        Work of a restart, 1 by default: 400 times as many iterations, a quarter of them without improvement.
    max_iter : int, optional
        IT_max, iterations of the tabu search, where `effort` is not to decide.
    patience : int, optional
        r_max, iterations without improvement after which a restart stops; by default a quarter of `max_iter`.
    %(max_time)s
        Where it is the only limit, more restarts follow until then.
    target : float
        J at which a restart stops; 0 for none.
    refine : {"lloyd", "centroid", "hartigan"}
        Refinement of the best solution: K-Means from it, or the centroids of its clusters. "hartigan" is K-Means and
        then single moves: points change cluster, one at a time, until no such move lowers J.
    scope : {"cluster", "global"}
        Whether a point once used as the mean of a cluster is forbidden to that cluster, or to all.
    n_neighbors : int
        Neighbours evaluated per iteration (R in section IV-B); the best by J is moved to.
    %(execution)s
    %(watching)s

    Returns
    -------
    Clustering

    Examples
    --------
    >>> from gputabu import quantized
    >>> found = quantized.search([[0.0], [1.0], [10.0], [11.0]], 2, seed=0)
    >>> found.inertia, sorted(found.centers.ravel().tolist())
    (1.0, [0.5, 10.5])
    """
    monitor = Monitor(callback, progress, max_time, checkpoint)
    points = as_points(X, weights)
    checked = QuantizedSearch.checked(
        points.shape, n_clusters, init=init, effort=effort, max_iter=max_iter, patience=patience, target=target,
        refine=refine, scope=scope, n_neighbors=n_neighbors, seed=seed,
    )  # fmt: skip
    return run_restarts(points, checked, restarts, monitor, backend=backend, device=device, labels_out=labels_out)


@dataclass(frozen=True)
class QuantizedSearch(Search):
    """QM-TS with its parameters, checked."""

    k: int
    seed: int
    init: Init
    plan: Plan
    refine: str
    endless: bool = False
    name = "quantized"
    ungrouped = "its means are points, and those of groups are none"

    @classmethod
    def checked(
        cls,
        shape: Shape,
        n_clusters: int,
        *,
        init: object,
        effort: float | None,
        max_iter: int | None,
        patience: int | None,
        target: float,
        refine: str,
        scope: str,
        n_neighbors: int,
        seed: int,
    ) -> QuantizedSearch:
        k = check_n_clusters(n_clusters, shape.n)
        endless = isinstance(init, str) and effort is None and max_iter is None and patience is None
        if max_iter is None:
            max_iter = max(1, round(ITERATIONS * (1.0 if effort is None else check_real("effort", effort, 0, MOST))))
        elif effort is not None:
            raise ValueError(f"effort={effort} and max_iter={max_iter} limit the same; give one of them.")
        plan = Plan.checked(max_iter, patience, scope, n_neighbors, target, shape.n)
        check_choice("refine", refine, REFINEMENTS)
        return cls(k, seed, Init.checked(init, k, seed, shape), plan, refine, endless)

    @property
    def max_iter(self) -> int:  # type: ignore[override]
        return self.plan.max_iter

    @property
    def patience(self) -> int:  # type: ignore[override]
        return self.plan.patience

    def identity(self) -> dict[str, Any]:
        start = {"n_clusters": self.k, "init": self.init.name}
        return {**start, **asdict(self.plan), "refine": self.refine, "seed": self.seed}

    def run(self, backend: BackendBase, batch: Sequence[int], monitor: Monitor) -> FinishedBatch:
        means = monitor.stage("seeds", lambda stage: self.init.indices(backend, batch, stage))
        found, best = run(backend, means, self.plan, self.refine, monitor)
        return lloyd.finish(backend, found, batch, best)


def run(
    backend: BackendBase, means: np.ndarray, plan: Plan, refine: str, monitor: Monitor
) -> tuple[lloyd.Descent, np.ndarray]:
    """Explore from means (R, K) and refine: the centres found, and the M_b (R, K) they come from.

    By the backend itself where it can (`Loops.quantized`) and not every iteration is watched, otherwise pass by pass.
    """
    rounds = 1 if refine == "centroid" else lloyd.REFINE_ITER
    settings = QuantizedSettings(
        plan.max_iter, plan.patience, plan.target or -1.0, plan.scope == "global", rounds, monitor, plan.n_neighbors
    )
    found = None if monitor.every_iteration else backend.loops.quantized(means, settings)
    if found is None:
        best, stops, trace = monitor.stage("search", lambda stage: explore(backend, means, plan, monitor, stage))
        centers = lloyd.refined(backend, backend.rows(best), refine, monitor)
        return lloyd.Descent(centers, stops, trace), best
    if found.centers is None:
        centers = lloyd.refined(backend, backend.rows(found.means), refine, monitor)
    else:
        centers = lloyd.further(backend, found.centers, refine, monitor)
    moves = np.where(np.isnan(found.current[:, 1:]), -1, (found.path[:, 1:] != found.path[:, :-1]).sum(axis=2))
    stops = [stop or monitor.stop_reason for stop in found.stop]
    return lloyd.Descent(centers, stops, Trace(found.current, found.best, moves, found.path)), found.means


def explore(
    backend: BackendBase, means: np.ndarray, plan: Plan, monitor: Monitor, stage: Stage
) -> tuple[np.ndarray, list[Stop], Trace]:
    """Run R searches from means (R, K), as in the flow chart (figure 2) up to the refinement: M_b (R, K), …"""
    r = len(means)
    if (saved := stage.state) is None:
        made, state = 0, begin(backend, means, plan)
        recorder = TraceRecorder(r)
        recorder.start(state.best.cost, means)
        ended = means.copy()
        met = plan.reached(state.best.cost)
        stops = [Stop.TARGET if now else Stop.MAX_ITER for now in met]
        active = np.flatnonzero(~met)
        if 0 < len(active) < r:
            state = state.take(backend, active)
    else:
        made, active, ended, stops = saved["made"], saved["active"], saved["ended"], saved["stops"]
        state, recorder = resume(backend, saved, plan), TraceRecorder.resumed(saved["trace"])
    for iteration in range(made + 1, plan.max_iter + 1 if len(active) else 1):
        before = state.means
        state = step(backend, state, plan)
        moves = (state.means != before).sum(axis=1)
        recorder.add(active, state.survey.cost, moves, state.means, state.best.cost)
        ended[active] = state.best.means
        log.debug("iteration %d: %d restarts, best J %.10g", iteration, len(active), state.best.cost.min())
        met = plan.reached(state.best.cost)
        over = met | (state.best.stale >= plan.patience)
        for i in np.flatnonzero(over):
            stops[active[i]] = Stop.TARGET if met[i] else Stop.PATIENCE
        last = iteration == plan.max_iter
        keep = np.flatnonzero(~over)
        if stage.kept and len(keep):
            stage.keep({
                "made": iteration, "active": active[keep], "means": state.means[keep], "tabu": state.tabu.rows[keep],
                "cost": state.best.cost[keep], "best": state.best.means[keep], "stale": state.best.stale[keep],
                "ended": ended.copy(), "stops": stops.copy(), "trace": recorder.kept,
            })  # fmt: skip
        monitor.report(iteration, active, state.survey.cost, state.best.cost, over | last)
        if over.all() or last:
            break
        if monitor.should_stop():
            for i in active[keep]:
                stops[i] = monitor.stop_reason
            break
        if over.any():
            active, state = active[keep], state.take(backend, keep)
    return ended, stops, recorder.trace()


def begin(backend: BackendBase, means: np.ndarray, plan: Plan, tabu: TabuList | None = None) -> State:
    """M_c = M_b = M^(0), and J_b; nothing is forbidden yet, or what is in `tabu`."""
    r, k = means.shape
    d = backend.points.d
    totals = np.zeros((r, k, Totals.columns(d, backend.points.weights is not None)), np.int64)
    tabu = TabuList(r, k, shared=plan.scope == "global") if tabu is None else tabu
    labels = backend.blank_labels(r)
    totals, survey = evaluate(backend, means, labels, totals, tabu.rows, plan)
    return State(means, labels, totals, survey, tabu, Best.start(survey.cost, means))


def resume(backend: BackendBase, saved: dict[str, Any], plan: Plan) -> State:
    """The state that was left: labels, totals and what the survey saw follow from M_c and the tabu list."""
    state = begin(backend, saved["means"], plan, TabuList.resumed(saved["tabu"], plan.scope == "global"))
    return replace(state, best=Best(saved["cost"], saved["best"], saved["stale"]))


def step(backend: BackendBase, state: State, plan: Plan) -> State:
    """One iteration: move to the best neighbour, whether it is better or not, and forbid the way back."""
    r, k = state.means.shape
    m = plan.n_neighbors
    proposed = neighbours(state)  # (R, M, K)
    state.tabu.push(state.means)  # before the survey: M_c is forbidden from now on
    labels, totals, rows = state.labels, state.totals, state.tabu.rows
    if m > 1:
        each = np.repeat(np.arange(r), m)
        labels, totals, rows = backend.take_labels(labels, each), totals[each], rows[each]
    means = proposed.reshape(r * m, k)
    totals, survey = evaluate(backend, means, labels, totals, rows, plan)
    moved = State(means, labels, totals, survey, state.tabu, state.best)
    if m > 1:
        won = np.arange(r) * m + lowest(survey.cost.reshape(r, m))
        survey = Survey(survey.cost[won], survey.index[won], survey.inside[won])
        moved = State(means[won], backend.take_labels(labels, won), totals[won], survey, state.tabu, state.best)
    return replace(moved, best=state.best.updated(moved.survey.cost, moved.means))


def neighbours(state: State) -> np.ndarray:
    """The analytic neighbours of M_c: x*_k of every cluster, and its runners-up: (R, M, K).

    Applies the deletion rule to the tabu rows of clusters whose members are all forbidden.
    """
    free = state.survey.index  # (R, K, M), -1 behind the last free point
    stuck = (free[..., 0] < 0) & (Totals.counts(state.totals) > 0)
    freed = state.tabu.release(state.survey.inside, stuck)  # (R, K)
    first = np.where(freed >= 0, freed, np.where(free[..., 0] >= 0, free[..., 0], state.means))
    chosen = [first]
    for i in range(1, free.shape[-1]):  # a cluster with fewer free points repeats its last
        chosen.append(np.where(free[..., i] >= 0, free[..., i], chosen[-1]))
    return np.stack(chosen, axis=1)


def evaluate(
    backend: BackendBase, means: np.ndarray, labels: Labels, totals: np.ndarray, tabu_rows: np.ndarray, plan: Plan
) -> tuple[np.ndarray, Survey]:
    """Relabel by the quantized means (eq. 15), then J at the centroids (eq. 2) and the next candidates."""
    centers = backend.rows(means)
    totals = totals + backend.assign(centers, labels).totals
    centroids = backend.grid.centroids(totals, centers)
    return totals, backend.survey(centroids, labels, tabu_rows, plan.scope == "global", plan.n_neighbors)
