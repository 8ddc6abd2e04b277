"""TSC: tabu search over labellings (Al-Sultan 1995), the baseline of Gyamfi, Brusey and Hunt (2016), and its heirs.

A solution A is the label of every point. One iteration builds NTS trials of A_c: in each, every point keeps its label
with probability P and otherwise takes another one at random. The trial of the lowest J (eq. 2, at the centroids) that
is not in the tabu list, or that beats J_b, becomes A_c and is appended to the list, which forgets all but the last
MTLS labellings. Where all trials are forbidden the iteration ends with A_c as it was.

A trial is never written down. Its labels are a function of addressed random words, its J follows from the totals of A_c
and the terms of the points that change, and it is recognised by a fingerprint of 128 bits: Σ_i label_i · f_i modulo
2^64, twice, with random words f_i. Two different labellings have equal fingerprints with a probability below
K² · 2^-128. The accepted trial is drawn once more to change A_c.

Where the paper is silent: the start is not in the tabu list, ties go to the lowest trial, and a cluster may run
empty: it then adds nothing to J, and its centre is the mean of all points. Labellings that differ only in the
names of the clusters are different labellings.

What follows is off by default.

*Improvement* (after Liu et al. 2008): every trial, and the start, is improved before it is judged. "kmeans" is one step
of K-Means from the trial's centroids; "hartigan" goes on with a sweep of single moves, all points at once. The tabu
list then holds improved labellings.

*Modes* (after Liu et al. 2008) of making trials, one per iteration, in turn. "threshold" is the one above. "mutation":
where a point would take another label, it draws one by distance, label k with the weight 1.5·max r − r_k + 0.5, r_k
being the distance to the centroid; the 0.5 makes it depend on the scale of the data. "divide": a random cluster joins
its nearest, and a random third (with K = 2, the nearest) is split by two random members: what is nearer to the second
becomes a cluster.

*Packing* (after Sung and Jin 2000): points that are close together move as one, and are released later
(`algorithms.packs`). The search runs on N/2 packs, then N/4, … down to 4K, back up again, and at last on the points.
It begins each time with the best labelling so far, a pack having the label that most of its points have; A_b is kept,
and the tabu list begins anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from gputabu.algorithms import lloyd, packs
from gputabu.algorithms.checkpoint import digest
from gputabu.algorithms.groups import Groups
from gputabu.algorithms.monitor import Callback, Monitor
from gputabu.algorithms.parameters import documented
from gputabu.algorithms.reassignment_loop import (
    Course,
    Plan,
    State,
    best_labels,
    centroids,
    cost_of,
    explore,
    retrace,
)
from gputabu.algorithms.restarts import (
    FinishedBatch,
    Search,
    run_restarts,
)
from gputabu.backend import BackendChoice, Devices, as_points, to_numpy
from gputabu.backend.arithmetic.fixed_point import Totals
from gputabu.backend.base import BackendBase
from gputabu.backend.contract import Labels, TrialBatch
from gputabu.core.results import Clustering, Stop, Trace
from gputabu.core.validation import check_choice, check_flag, check_int, check_labels, check_n_clusters, check_optional
from gputabu.data.points import Points, Shape

#: What `init=` accepts by name.
METHODS = ("random",)
#: What `refine=` accepts beside None.
REFINEMENTS = ("lloyd", "hartigan")
#: What became parameters later, and how the search was before.
PLAIN = {"modes": ["threshold"], "improve": None, "packing": False}
#: Iterations by default: with improvement, with packing (of each level).
ITERATIONS = {(False, False): 1000, (True, False): 60, (False, True): 100, (True, True): 10}


@documented
def search(
    X: object,
    n_clusters: int,
    *,
    weights: object = None,
    init: object = "random",
    restarts: int | Sequence[int] = 1,
    max_iter: int | None = None,
    n_trials: int = 20,
    tenure: int = 15,
    keep: float = 0.95,
    modes: Sequence[str] = ("threshold",),
    improve: str | None = None,
    packing: bool = False,
    groups: object = None,
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
    max_iter : int, optional
        IT_max, iterations of the tabu search, with `packing` of each level; all of them are made. By default 1000, with
        `improve` 60, with `packing` 100, with both 10.
    n_trials : int
        NTS, trial labellings per iteration.
    tenure : int
        MTLS, for how many accepted labellings one stays forbidden.
    keep : float
        P, the probability that a point keeps its label in a trial; at least 0 and below 1.
    modes : sequence of {"threshold", "mutation", "divide"}
        How trials are made, in turn: with the threshold `keep`; likewise, but labels of near clusters are likelier; or
        a cluster joins its nearest, and another is split.
    improve : {None, "kmeans", "hartigan"}
        Improve every trial before it is judged: by a step of K-Means, or by one and a sweep of single moves.
    packing : bool
        First let points that are close together move as one.
    %(groups)s
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
        modes=modes, improve=improve, packing=packing, refine=refine, seed=seed,
    )  # fmt: skip
    return run_restarts(
        points, checked, restarts, monitor, backend=backend, device=device, labels_out=labels_out, groups=groups
    )


@dataclass(frozen=True)
class ReassignmentSearch(Search):
    """TSC with its parameters, checked."""

    k: int
    seed: int
    given: np.ndarray | None  # (N,) labels to begin with; None for random ones
    plan: Plan
    packing: bool
    n_levels: int  # searches in turn: of packs, and of the points
    refine: str | None
    name = "reassignment"
    patience = None
    ungrouped = None

    @classmethod
    def checked(
        cls,
        shape: Shape,
        n_clusters: int,
        *,
        init: object,
        max_iter: int | None,
        n_trials: int,
        tenure: int,
        keep: float,
        refine: str | None,
        seed: int,
        modes: Sequence[str] = ("threshold",),
        improve: str | None = None,
        packing: bool = False,
    ) -> ReassignmentSearch:
        k = check_n_clusters(n_clusters, shape.n)
        packed = check_flag("packing", packing)
        max_iter = ITERATIONS[improve is not None, packed] if max_iter is None else max_iter
        plan = Plan.checked(max_iter, n_trials, tenure, keep, modes, improve)
        check_optional("refine", refine, REFINEMENTS)
        given = check_init(init, shape.n, k)
        n_levels = 1 + len(packs.counts(shape.n, k)) * packed
        return cls(k, check_int("seed", seed, 0, 2**64 - 1), given, plan, packed, n_levels, refine)

    @property
    def max_iter(self) -> int:  # type: ignore[override]
        return self.plan.max_iter * self.n_levels

    def identity(self) -> dict[str, Any]:
        start = {"n_clusters": self.k, "init": "random" if self.given is None else digest(self.given)}
        plan = asdict(self.plan) | {"modes": list(self.plan.modes), "packing": self.packing}
        for name, plain in PLAIN.items():  # earlier checkpoints do not have them
            if plan[name] == plain:
                del plan[name]
        return {**start, **plan, "refine": self.refine, "seed": self.seed}

    def on_groups(self, backend: BackendBase, groups: Groups, constant: float) -> Search:
        given = self.given
        if given is not None and (given[groups.first][groups.numbers] != given).any():
            raise ValueError("init has different labels in a group; rows of a group must share a cluster.")
        n_levels = 1 + len(packs.counts(len(groups), self.k)) * self.packing
        return replace(self, given=None if given is None else given[groups.first], n_levels=n_levels)

    def run(self, backend: BackendBase, batch: Sequence[int], monitor: Monitor) -> FinishedBatch:
        return conclude(backend, self.searched(backend, batch, monitor), batch, self.refine, monitor)

    def start(self, restarts: Sequence[int]) -> TrialBatch:
        """The labelling that each of these restarts begins with."""
        numbers = np.array(restarts, np.uint64)
        given = None if self.given is None else self.given[None]
        return TrialBatch(self.k, self.seed, numbers, step=0, n_trials=1, limit=0, given=given)

    def labels(self, backend: BackendBase, batch: FinishedBatch) -> Labels:
        if batch.way is None:
            return super().labels(backend, batch)
        return self.searched(backend, [batch.numbers[batch.best]], Monitor(), batch.way).labels

    def width(self, points: Points) -> int:
        """The totals of all trials are held at once."""
        columns = Totals.columns(points.d, points.weights is not None)
        return max(points.n, self.plan.n_trials * self.k * columns)

    def searched(
        self, backend: BackendBase, batch: Sequence[int], monitor: Monitor, way: np.ndarray | None = None
    ) -> Found:
        """The best labellings, of the points or first of packs; along a way, where it is known."""
        start = self.start(batch)
        if not (levels := packs.levels(backend, self.k) if self.packing else []):
            return Found.of(backend, *self.level(backend, start, monitor, "search", Course(), way), self.plan)
        best, course, found = Packed.begin(backend, start), Course(), list[tuple[np.ndarray, list[Stop], Trace]]()
        for number, level in enumerate([*levels, None]):
            piece = None if way is None else way[number * self.plan.max_iter : (number + 1) * self.plan.max_iter]
            with packs.opened(backend, level) as (few, constant):
                course = Course(number * self.plan.max_iter, constant, best.cost)
                here = replace(start, given=best.packed(level))
                state, *rest = self.level(few, here, monitor, f"level {number}", course, piece)
                best.take(few, state, self.plan, level, course)
            found.append(tuple(rest))  # type: ignore[arg-type]
            if monitor.halted:
                break
        ways, stops, traces = zip(*found, strict=True)
        labels = backend.blank_labels(len(batch))
        totals = backend.set_labels(labels, best.labels, self.k).totals
        return Found(labels, totals, np.concatenate(ways), stops[-1], one_after_another(traces))

    def level(
        self, backend: BackendBase, start: TrialBatch, monitor: Monitor, name: str, course: Course,
        way: np.ndarray | None,
    ) -> tuple[State, np.ndarray, list[Stop], Trace]:  # fmt: skip
        """One search: its last state, the way there, why it ended, and its trace."""
        if way is not None:
            none = np.empty((len(start.restarts), 0))
            return retrace(backend, start, self.plan, way, course), way, [], Trace(none, none, none)
        states: list[State] = []  # not kept: they have labels
        way, stops, trace = monitor.stage(
            name, lambda stage: explore(backend, start, self.plan, monitor, stage, states, course)
        )
        return states[0] if states else retrace(backend, start, self.plan, way, course), way, stops, trace


@dataclass(frozen=True, slots=True)
class Found:
    """The best labellings of R searches."""

    labels: Labels  # (R, N)
    totals: np.ndarray  # (R, K, C)
    way: np.ndarray  # (T, R, 2) there
    stops: list[Stop]
    trace: Trace

    @classmethod
    def of(
        cls, backend: BackendBase, state: State, way: np.ndarray, stops: list[Stop], trace: Trace, plan: Plan
    ) -> Found:
        return cls(best_labels(backend, state, plan), state.best_totals, way, stops, trace)


@dataclass(slots=True)
class Packed:
    """The best labellings of R searches that go from packs to packs."""

    labels: np.ndarray  # (R, N) int32, on the host
    cost: np.ndarray  # (R,) J

    @classmethod
    def begin(cls, backend: BackendBase, start: TrialBatch) -> Packed:
        r = len(start.restarts)
        labels, none = backend.blank_labels(r), np.zeros(r, np.int64)
        totals = backend.apply_trial(labels, labels, start, none, np.zeros(r, np.bool_)).totals
        each = [to_numpy(backend.fetch_labels(labels, i)) for i in range(r)]
        return cls(np.stack(each), cost_of(backend, totals))

    def packed(self, level: packs.Level | None) -> np.ndarray:
        """The labels of the packs of a level, (R, G)."""
        if level is None:
            return self.labels
        return np.stack([packs.majority(each, *level) for each in self.labels])

    def take(
        self, backend: BackendBase, state: State, plan: Plan, level: packs.Level | None, course: Course
    ) -> None:  # fmt: skip
        """Take over what a level has found, where it is better."""
        assert course.bar is not None
        better, labels = state.best_cost < course.bar, best_labels(backend, state, plan)
        for i in np.flatnonzero(better):
            mine = to_numpy(backend.fetch_labels(labels, int(i)))
            self.labels[i] = mine if level is None else mine[level[0]]
        self.cost = np.where(better, state.best_cost + course.constant, self.cost)


def one_after_another(traces: Sequence[Trace]) -> Trace:
    """The trace of searches that each begin where the one before has ended."""
    first, *rest = traces
    current, best = (
        np.concatenate([getattr(first, name), *(getattr(trace, name)[:, 1:] for trace in rest)], axis=1)
        for name in ("current", "best")
    )
    return Trace(current, np.fmin.accumulate(best, axis=1), np.concatenate([trace.moves for trace in traces], axis=1))


def conclude(
    backend: BackendBase, found: Found, batch: Sequence[int], refine: str | None, monitor: Monitor
) -> FinishedBatch:
    """A_b and its centroids, or what K-Means makes of them."""
    centers = centroids(backend, found.totals)
    if refine is None:
        done = lloyd.finish(backend, lloyd.Descent(centers, found.stops, found.trace), batch, labels=found.labels)
        return replace(done, way=found.way[:, done.best : done.best + 1])
    centers = lloyd.refined(backend, centers, refine, monitor)
    return lloyd.finish(backend, lloyd.Descent(centers, found.stops, found.trace), batch)


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
