"""TSC: tabu search over labellings (Al-Sultan 1995), the baseline of Gyamfi, Brusey and Hunt (2016).

A solution A is the label of every point. One iteration builds NTS trials of A_c: in each, every point keeps its label
with probability P and otherwise takes another one at random. The trial of the lowest J (eq. 2, at the centroids) that
is not in the tabu list, or that beats J_b, becomes A_c and is appended to the list, which forgets all but the last
MTLS labellings. Where all trials are forbidden the iteration ends with A_c as it was.

A trial is never written down. Its labels are a function of addressed random words, its J follows from the totals of A_c
and the terms of the points that change, and it is recognised by a print of 128 bits: Σ_i label_i · f_i modulo 2^64,
twice, with random words f_i; two different labellings have equal prints with a probability below K² · 2^-128. The
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

import numpy as np

from gputabu.algorithms import lloyd
from gputabu.algorithms.checkpoint import Stage, digest, identify
from gputabu.algorithms.monitor import Callback, Watch
from gputabu.algorithms.progress import Ledger
from gputabu.algorithms.restarts import Finished, announce, batches, gather, restart_numbers
from gputabu.algorithms.trace import Course
from gputabu.backend import Devices, admit, hold, home, to_numpy
from gputabu.backend.arithmetic.constants import NOISE
from gputabu.backend.arithmetic.fixed_point import Totals
from gputabu.backend.contract import Labels, Lot, Ops
from gputabu.core.log import log
from gputabu.core.results import Clustering, Stop, Trace
from gputabu.core.validation import check_choice, check_int, check_labels, check_n_clusters, check_optional, check_real
from gputabu.data.memmaps import labels_file
from gputabu.data.points import Points

#: What `init=` accepts by name.
METHODS = ("random",)
#: What `refine=` accepts beside None.
REFINEMENTS = ("lloyd", "hartigan")


#: Of the state of a search, what is kept as it is.
KEPT = ("cost", "print", "best_cost", "recent", "accepted")


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
    print: np.ndarray  # (R, 2) uint64 of A_c, less that of the start
    best_labels: Labels  # (R, N) A_b
    best_totals: np.ndarray  # (R, K, C) of A_b
    best_cost: np.ndarray  # (R,) J_b
    recent: np.ndarray  # (R, MTLS, 2) prints of the accepted labellings, in turn
    accepted: np.ndarray  # (R,) how many there were
    moves: np.ndarray  # (R,) points that changed cluster
    way: np.ndarray  # (R, 2) int32: the trial that led here, or -1, and whether A_b is its


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
    backend: str = "auto",
    device: Devices = None,
    labels_out: object = None,
    checkpoint: object = None,
    progress: bool = False,
    callback: Callback | None = None,
) -> Clustering:
    """Cluster `X` by tabu search over labellings (TSC) and return the best of the restarts.

    Parameters
    ----------
    X : (N, d) array, on the host or on a GPU, a file or anything else that `gputabu.chunked` reads, or Points
    n_clusters : int
    weights : (N,) array, optional
    init : "random" or (N,) labels from 0 to K - 1
    restarts : int or sequence of int
        How many restarts, or the numbers of those to run; restart r does not depend on the others.
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
    >>> from gputabu import reassignment
    >>> found = reassignment.search([[0.0], [1.0], [10.0], [11.0]], 2, keep=0.5, max_iter=50, seed=0)
    >>> found.inertia, sorted(found.centers.ravel().tolist())
    (1.0, [0.5, 10.5])
    """
    watch = Watch(callback, progress, checkpoint=checkpoint)
    points = admit(X, weights)
    k = check_n_clusters(n_clusters, points.n)
    plan = Plan.checked(max_iter, n_trials, tenure, keep)
    check_optional("refine", refine, REFINEMENTS)
    given = check_init(init, points.n, k)
    check_int("seed", seed, 0, 2**64 - 1)
    numbers = restart_numbers(restarts)
    out = labels_file(labels_out, points.n)
    with hold(points, backend, device) as ops, watch.opened(k, Ledger(len(numbers), plan.max_iter)):
        announce(points, k, numbers, ops.name)
        identify(watch, ops, {
            "search": "reassignment", "n_clusters": k, "init": "random" if given is None else digest(given),
            "restarts": numbers, **asdict(plan), "refine": refine, "seed": seed,
        })  # fmt: skip

        def lot(restarts: Sequence[int]) -> Lot:
            return Lot(k, seed, np.array(restarts, np.uint64), step=0, n_trials=1, limit=0, given=given)

        def work(batch: Sequence[int]) -> Finished:
            states: list[State] = []  # not kept: it has labels
            way, stops, trace = watch.stage("search", lambda its: explore(ops, lot(batch), plan, watch, its, states))
            state = states[0] if states else retrace(ops, lot(batch), plan, way)
            return conclude(ops, state, way, stops, trace, batch, refine, watch)

        def relabel(batch: Finished) -> Labels:
            if batch.way is None:
                return ops.label(batch.centers[None].astype(np.float64))
            return retrace(ops, lot([batch.numbers[batch.best]]), plan, batch.way).best_labels

        cut = batches(numbers, width(points, k, plan.n_trials))
        return home(gather(ops, watch, cut, work, relabel), points, out)


def width(points: Points, k: int, n_trials: int) -> int:
    """What a restart holds, in points: the totals of all trials are held at once."""
    return max(points.n, n_trials * k * Totals.columns(points.d, points.weights is not None))


def explore(
    ops: Ops, start: Lot, plan: Plan, watch: Watch, stage: Stage, states: list[State]
) -> tuple[np.ndarray, list[Stop], Trace]:
    """Run R searches from the labelling that `start` draws or has; the last state goes to `states`.

    Returns the way (T, R, 2) there, on which `retrace` can follow.
    """
    everyone = np.arange(len(start.restarts))
    if (left := stage.state) is None:
        state, course, way = begin(ops, start, plan), Course(len(everyone)), list[np.ndarray]()
        course.start(state.cost)
    else:
        state = replace(retrace(ops, start, plan, left["way"]), **{name: left[name] for name in KEPT})
        course, way = Course.resumed(left["trace"]), list(left["way"])
    stop = Stop.MAX_ITER
    for iteration in range(len(way) + 1, plan.max_iter + 1):
        state = step(ops, state, drawn(start, plan, iteration))
        course.add(everyone, state.cost, state.moves, best=state.best_cost)
        way.append(state.way)
        log.debug("iteration %d: %d restarts, best J %.10g", iteration, len(everyone), state.best_cost.min())
        rest = {name: getattr(state, name) for name in KEPT}
        stage.keep({"way": partial(stacked, way, len(way)), "trace": course.kept, **rest})
        last = np.full(len(everyone), iteration == plan.max_iter)
        watch.tell(iteration, everyone, state.cost, state.best_cost, last)
        if watch.halted:
            stop = watch.halted
            break
    states.append(state)
    return stacked(way, len(way)), [stop] * len(everyone), course.trace()


def drawn(start: Lot, plan: Plan, iteration: int) -> Lot:
    """The trials of an iteration."""
    return replace(start, step=iteration, n_trials=plan.n_trials, limit=plan.limit, given=None)


def stacked(way: list[np.ndarray], length: int) -> np.ndarray:
    """The first so many steps of a way: (T, R, 2)."""
    return np.stack(way[:length])


def retrace(ops: Ops, start: Lot, plan: Plan, way: np.ndarray) -> State:
    """Go from the start along a way (T, R, 2): A_c and A_b, and their totals. One trial is drawn in each iteration."""
    state = begin(ops, start, plan)
    totals, best = state.totals, state.best_totals
    for i, (chosen, better) in enumerate(zip(way[..., 0].astype(np.int64), way[..., 1] > 0, strict=True), start=1):
        change = ops.adopt(state.labels, state.best_labels, drawn(start, plan, i), chosen, better)
        totals = totals + change.totals
        best = np.where(better[:, None, None], totals, best)
    return replace(state, totals=totals, best_totals=best)


def begin(ops: Ops, start: Lot, plan: Plan) -> State:
    """A_c = A_b = A^(0): the first trial of points that have no label yet."""
    r = len(start.restarts)
    labels, best = ops.blank(r), ops.blank(r)
    totals = ops.adopt(labels, best, start, np.zeros(r, np.int64), np.ones(r, bool)).totals
    cost = np.maximum(ops.scatter - ops.grid.explained(totals), 0.0)
    none = np.zeros(r, np.int64)
    recent = np.zeros((r, plan.tenure, 2), np.uint64)
    return State(labels, totals, cost, np.zeros((r, 2), np.uint64), best, totals, cost, recent, none, none,
                 np.zeros((r, 2), np.int32))  # fmt: skip


def step(ops: Ops, state: State, lot: Lot) -> State:
    """One iteration: move to the best trial that is allowed, whether it is better or not, and remember it."""
    restart = np.arange(len(state.cost))
    tried = ops.trials(state.labels, state.totals, lot)
    prints = state.print[:, None] + tried.prints  # (R, T, 2)
    noise = NOISE * ops.scatter
    chosen = accept(tried.cost, forbidden(prints, state), state.best_cost, noise)  # (R,)
    moved = chosen >= 0
    cost = np.where(moved, tried.cost[restart, chosen], state.cost)
    better = moved & (cost < state.best_cost - noise)
    change = ops.adopt(state.labels, state.best_labels, lot, chosen, better)
    totals = state.totals + change.totals
    print_ = np.where(moved[:, None], prints[restart, chosen], state.print)
    recent = state.recent.copy()
    recent[restart[moved], state.accepted[moved] % recent.shape[1]] = print_[moved]
    return State(
        state.labels,
        totals,
        cost,
        print_,
        state.best_labels,
        np.where(better[:, None, None], totals, state.best_totals),
        np.where(better, cost, state.best_cost),
        recent,
        state.accepted + moved,
        change.changed,
        np.stack([chosen, better], axis=1).astype(np.int32),
    )


def forbidden(prints: np.ndarray, state: State) -> np.ndarray:
    """Which trials are in the tabu list: (R, T, 2) -> (R, T) bool."""
    held = np.arange(state.recent.shape[1]) < state.accepted[:, None]  # (R, MTLS)
    one, two = (prints[:, :, None, i] == state.recent[:, None, :, i] for i in (0, 1))  # (R, T, MTLS) each
    return (one & two & held[:, None]).any(axis=-1)


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
    ops: Ops,
    state: State,
    way: np.ndarray,
    stops: list[Stop],
    trace: Trace,
    batch: Sequence[int],
    refine: str | None,
    watch: Watch,
) -> Finished:
    """A_b and its centroids, or what K-Means makes of them."""
    r, k, _ = state.totals.shape
    middle = np.broadcast_to(ops.grid.offset, (r, k, ops.points.d))
    centers = ops.grid.centroids(state.best_totals, middle)
    if refine is None:
        found = lloyd.finish(ops, lloyd.Descent(centers, stops, trace), batch, labels=state.best_labels)
        return replace(found, way=way[:, found.best : found.best + 1])
    centers = lloyd.refined(ops, centers, refine, watch)
    return lloyd.finish(ops, lloyd.Descent(centers, stops, trace), batch)


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
