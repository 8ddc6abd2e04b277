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

from gputabu.algorithms import lloyd, seeding
from gputabu.algorithms.checkpoint import Stage, identify
from gputabu.algorithms.monitor import Callback, Watch
from gputabu.algorithms.progress import Ledger
from gputabu.algorithms.restarts import Finished, announce, batches, gather, restart_numbers
from gputabu.algorithms.tabu_list import Best, Memory
from gputabu.algorithms.trace import Course
from gputabu.backend import Devices, admit, hold, home
from gputabu.backend.arithmetic.fixed_point import Totals
from gputabu.backend.arithmetic.rules import lowest
from gputabu.backend.contract import Labels, Ops, Orders, Surveyed
from gputabu.core.log import log
from gputabu.core.results import Clustering, Stop, Trace
from gputabu.core.validation import check_choice, check_int, check_n_clusters, check_real
from gputabu.data.memmaps import labels_file

#: Whether a tabu entry of cluster k forbids a point to that cluster only, or to all.
SCOPES = ("cluster", "global")
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
    seen: Surveyed  # what the survey of M_c found: J_c and the candidates for the next move
    memory: Memory
    best: Best

    def take(self, ops: Ops, restarts: np.ndarray) -> State:
        """These restarts only."""
        seen = Surveyed(self.seen.cost[restarts], self.seen.index[restarts], self.seen.inside[restarts])
        return State(
            self.means[restarts],
            ops.take(self.labels, restarts),
            self.totals[restarts],
            seen,
            self.memory.take(restarts),
            self.best.take(restarts),
        )


def search(
    X: object,
    n_clusters: int,
    *,
    weights: object = None,
    init: object = "random",
    restarts: int | Sequence[int] = 1,
    max_iter: int = 400,
    patience: int | None = None,
    max_time: float | None = None,
    target: float = 0.0,
    refine: str = "lloyd",
    scope: str = "cluster",
    n_neighbors: int = 1,
    seed: int = 0,
    backend: str = "auto",
    device: Devices = None,
    labels_out: object = None,
    checkpoint: object = None,
    progress: bool = False,
    callback: Callback | None = None,
) -> Clustering:
    """Cluster `X` by tabu search with quantized means and return the best of the restarts.

    Parameters
    ----------
    X : (N, d) array, on the host or on a GPU, a file or anything else that `gputabu.chunked` reads, or Points
    n_clusters : int
    weights : (N,) array, optional
    init : {"random", "k-means++"}, (K, d) centres or (K,) row numbers
        Centres that are not data points are moved to the nearest one.
    restarts : int or sequence of int
        How many restarts, or the numbers of those to run; restart r does not depend on the others.
    max_iter : int
        IT_max, iterations of the tabu search.
    patience : int, optional
        r_max, iterations without improvement after which a restart stops; by default a quarter of `max_iter`.
    max_time : float, optional
        Seconds after which the search stops, whatever it has found; only then may two runs differ. The refinement of
        the best may take a tenth of it more.
    target : float
        J at which a restart stops; 0 for none.
    refine : {"lloyd", "centroid", "hartigan"}
        Refinement of the best solution: K-Means from it, or the centroids of its clusters. "hartigan" is K-Means and
        then single moves: points change cluster, one at a time, until no such move lowers J.
    scope : {"cluster", "global"}
        Whether a point once used as the mean of a cluster is forbidden to that cluster, or to all.
    n_neighbors : int
        Neighbours evaluated per iteration (R in section IV-B); the best by J is moved to.
    seed : int
    backend : {"auto", "cuda", "numba", "numpy"}
    device : int, sequence of int or "all", optional
        Which GPU, or several that share the rows; by default the current one, or the one that `X` is on.
    labels_out : path or (N,) array of int32 or int64, optional
        Where to write the labels: an array, such as a memory map, or a .npy file that is made.
    checkpoint : path, optional
        A file in which the state of the search is kept, every half minute. Where there is one, the search goes on from
        it, with the bits of one that was never stopped; it must be of the same points and parameters.
    progress : bool
        Show a progress bar on stderr, or a line every few seconds where that is no terminal.
    callback : function, optional
        Called with a `Progress` after every iteration; it ends the search by returning True. See `gputabu.Progress`.

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
    watch = Watch(callback, progress, max_time, checkpoint)
    points = admit(X, weights)
    k = check_n_clusters(n_clusters, points.n)
    plan = Plan.checked(max_iter, patience, scope, n_neighbors, target, points.n)
    check_choice("refine", refine, REFINEMENTS)
    numbers = restart_numbers(restarts)
    out = labels_file(labels_out, points.n)
    ledger = Ledger(len(numbers), plan.max_iter, plan.patience)
    with hold(points, backend, device) as ops, watch.opened(k, ledger):
        announce(points, k, numbers, ops.name)
        start = seeding.starts(ops, init, k, seed)
        identify(watch, ops, {
            "search": "quantized", "n_clusters": k, "init": start.name, "restarts": numbers, **asdict(plan),
            "refine": refine, "seed": seed,
        })  # fmt: skip

        def work(batch: Sequence[int]) -> Finished:
            begun = watch.stage("seeds", lambda stage: start.indices(batch, stage))
            found, means = run(ops, begun, plan, refine, watch)
            return lloyd.finish(ops, found, batch, means)

        return home(gather(ops, watch, batches(numbers, points.n), work), points, out)


def run(ops: Ops, means: np.ndarray, plan: Plan, refine: str, watch: Watch) -> tuple[lloyd.Descent, np.ndarray]:
    """Explore from means (R, K) and refine: the centres found, and the M_b (R, K) they come from.

    By the backend itself where it can (`Ops.explore`) and not every iteration is watched, otherwise pass by pass.
    """
    rounds = 1 if refine == "centroid" else lloyd.REFINE_ITER
    orders = Orders(plan.max_iter, plan.patience, plan.target or -1.0, plan.scope == "global", rounds, watch)
    own = ops.explore(means, orders) if plan.n_neighbors == 1 and not watch.each else None
    if own is None:
        best, stops, trace = watch.stage("search", lambda stage: explore(ops, means, plan, watch, stage))
        centers = lloyd.refined(ops, ops.rows(best), refine, watch)
        return lloyd.Descent(centers, stops, trace), best
    if own.centers is None:
        centers = lloyd.refined(ops, ops.rows(own.means), refine, watch)
    else:
        centers = lloyd.further(ops, own.centers, refine, watch)
    moves = np.where(np.isnan(own.current[:, 1:]), -1, (own.path[:, 1:] != own.path[:, :-1]).sum(axis=2))
    stops = [stop or watch.early for stop in own.stop]
    return lloyd.Descent(centers, stops, Trace(own.current, own.best, moves, own.path)), own.means


def explore(
    ops: Ops, means: np.ndarray, plan: Plan, watch: Watch, stage: Stage
) -> tuple[np.ndarray, list[Stop], Trace]:
    """Run R searches from means (R, K), as in the flow chart (figure 2) up to the refinement: M_b (R, K), …"""
    r = len(means)
    if (left := stage.state) is None:
        made, state = 0, begin(ops, means, plan)
        course = Course(r)
        course.start(state.best.cost, means)
        ended = means.copy()
        met = plan.reached(state.best.cost)
        stops = [Stop.TARGET if now else Stop.MAX_ITER for now in met]
        active = np.flatnonzero(~met)
        if 0 < len(active) < r:
            state = state.take(ops, active)
    else:
        made, active, ended, stops = left["made"], left["active"], left["ended"], left["stops"]
        state, course = resume(ops, left, plan), Course.resumed(left["trace"])
    for iteration in range(made + 1, plan.max_iter + 1 if len(active) else 1):
        before = state.means
        state = step(ops, state, plan)
        moves = (state.means != before).sum(axis=1)
        course.add(active, state.seen.cost, moves, state.means, state.best.cost)
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
                "made": iteration, "active": active[keep], "means": state.means[keep], "tabu": state.memory.rows[keep],
                "cost": state.best.cost[keep], "best": state.best.means[keep], "stale": state.best.stale[keep],
                "ended": ended.copy(), "stops": stops.copy(), "trace": course.kept,
            })  # fmt: skip
        watch.tell(iteration, active, state.seen.cost, state.best.cost, over | last)
        if over.all() or last:
            break
        if watch.over():
            for i in active[keep]:
                stops[i] = watch.early
            break
        if over.any():
            active, state = active[keep], state.take(ops, keep)
    return ended, stops, course.trace()


def begin(ops: Ops, means: np.ndarray, plan: Plan, memory: Memory | None = None) -> State:
    """M_c = M_b = M^(0), and J_b; nothing is forbidden yet, or what is in `memory`."""
    r, k = means.shape
    d = ops.points.d
    totals = np.zeros((r, k, Totals.columns(d, ops.points.weights is not None)), np.int64)
    memory = Memory(r, k, shared=plan.scope == "global") if memory is None else memory
    labels = ops.blank(r)
    totals, seen = evaluate(ops, means, labels, totals, memory.rows, plan)
    return State(means, labels, totals, seen, memory, Best.start(seen.cost, means))


def resume(ops: Ops, left: dict[str, Any], plan: Plan) -> State:
    """The state that was left: labels, totals and what the survey saw follow from M_c and the tabu list."""
    state = begin(ops, left["means"], plan, Memory.resumed(left["tabu"], plan.scope == "global"))
    return replace(state, best=Best(left["cost"], left["best"], left["stale"]))


def step(ops: Ops, state: State, plan: Plan) -> State:
    """One iteration: move to the best neighbour, whether it is better or not, and forbid the way back."""
    r, k = state.means.shape
    m = plan.n_neighbors
    proposed = neighbours(state)  # (R, M, K)
    state.memory.push(state.means)  # before the survey: M_c is forbidden from now on
    labels, totals, rows = state.labels, state.totals, state.memory.rows
    if m > 1:
        each = np.repeat(np.arange(r), m)
        labels, totals, rows = ops.take(labels, each), totals[each], rows[each]
    means = proposed.reshape(r * m, k)
    totals, seen = evaluate(ops, means, labels, totals, rows, plan)
    moved = State(means, labels, totals, seen, state.memory, state.best)
    if m > 1:
        won = np.arange(r) * m + lowest(seen.cost.reshape(r, m))
        seen = Surveyed(seen.cost[won], seen.index[won], seen.inside[won])
        moved = State(means[won], ops.take(labels, won), totals[won], seen, state.memory, state.best)
    return replace(moved, best=state.best.updated(moved.seen.cost, moved.means))


def neighbours(state: State) -> np.ndarray:
    """The analytic neighbours of M_c: x*_k of every cluster, and its runners-up: (R, M, K).

    Applies the deletion rule to the tabu rows of clusters whose members are all forbidden.
    """
    free = state.seen.index  # (R, K, M), -1 behind the last free point
    stuck = (free[..., 0] < 0) & (Totals.counts(state.totals) > 0)
    freed = state.memory.release(state.seen.inside, stuck)  # (R, K)
    first = np.where(freed >= 0, freed, np.where(free[..., 0] >= 0, free[..., 0], state.means))
    chosen = [first]
    for i in range(1, free.shape[-1]):  # a cluster with fewer free points repeats its last
        chosen.append(np.where(free[..., i] >= 0, free[..., i], chosen[-1]))
    return np.stack(chosen, axis=1)


def evaluate(
    ops: Ops, means: np.ndarray, labels: Labels, totals: np.ndarray, tabu_rows: np.ndarray, plan: Plan
) -> tuple[np.ndarray, Surveyed]:
    """Relabel by the quantized means (eq. 15), then J at the centroids (eq. 2) and the next candidates."""
    centers = ops.rows(means)
    totals = totals + ops.assign(centers, labels).totals
    centroids = ops.grid.centroids(totals, centers)
    return totals, ops.survey(centroids, labels, tabu_rows, plan.scope == "global", plan.n_neighbors)
