"""An evolution of clusterings in which K is a variable, with a tabu memory (after Pan and Cheng 2007, ETSA).

An individual is a set of centres, from `k_min` to `k_max` of them. In a generation every one of P parents has a child.
With probability one half it is the parent with a change: a point is added as a centre, or a centre is dropped, or a
centre goes to a point; points are drawn in proportion to their squared distance from the nearest centre (D²). Otherwise
it has two parents: the plane that bisects two random points parts space, and on one side of it the child has the
centres of one parent, on the other side those of the other. Three steps of K-Means follow, and centres without points
are dropped. Parents and children compete by a validity index V, and the best P live on.

The tabu memory is the best solution visited. Whoever is nearer to it than 0.02 √(total variance), by the mean distance
to the nearest centre of the other, is tabu, unless its V is better; so the evolution does not crowd around one
solution. If that leaves fewer than P, random ones come in. At the end K-Means runs from the best.

The paper's full text is out of our reach: how a child is made, the distance and all numbers are our reading. V is
one of

    pbm                 (E₁ / E_K · max ‖c_i − c_j‖ / K)², E the sum of distances to the centres; the largest is best,
    davies_bouldin, calinski_harabasz, bic  as `select_k` has them (`selection.criteria`).

All individuals are one batch. They have different K; behind its own centres one has copies of its first, which get no
points, as the lowest number wins ties.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gputabu.algorithms import lloyd, seeding
from gputabu.algorithms.checkpoint import Stage
from gputabu.algorithms.monitor import Callback, Monitor
from gputabu.algorithms.parameters import documented
from gputabu.algorithms.restarts import FinishedBatch, Search, batches, run_restarts
from gputabu.algorithms.trace import TraceRecorder
from gputabu.backend import BackendChoice, Devices, as_points
from gputabu.backend.arithmetic.fixed_point import Totals
from gputabu.backend.base import BackendBase
from gputabu.core import random
from gputabu.core.log import log
from gputabu.core.random import Purpose
from gputabu.core.results import Clustering, Stop
from gputabu.core.validation import check_choice, check_int
from gputabu.data.points import Shape
from gputabu.selection import criteria
from gputabu.selection.criteria import LARGEST_IS_BEST, Fit, distances

#: What `index=` accepts, and whether the largest value is best.
INDICES = {"pbm": True} | {name: LARGEST_IS_BEST[name] for name in ("davies_bouldin", "calinski_harabasz", "bic")}
#: Those that need the distances of points to their centres, not squared.
BY_DISTANCE = ("pbm", "davies_bouldin")
#: Steps of K-Means that a new individual makes.
STEPS = 3
#: How near to the best is tabu, as a share of the root of the total variance.
NEAR = 0.02
#: Bits by which scores are told apart.
BITS = 40
#: Random words of a child: whether it has two parents, which, the two points between them; the point drawn by D², the
#: kind of change, the centre that it is about.
SEXUAL, MATE, CORNERS, DRAWN, KIND, CENTER, N_WORDS = 0, 1, slice(2, 4), 4, 5, 6, 7


@documented
def search(
    X: object,
    *,
    weights: object = None,
    index: str = "pbm",
    k_min: int = 2,
    k_max: int | None = None,
    population: int = 10,
    max_iter: int = 40,
    seed: int = 0,
    backend: BackendChoice = "auto",
    device: Devices = None,
    labels_out: object = None,
    checkpoint: object = None,
    progress: bool = False,
    callback: Callback | None = None,
) -> Clustering:
    """Cluster `X` by an evolution of clusterings that finds K.

    Parameters
    ----------
    X : (N, d) array, on the host or on a GPU, a file or anything else that `gputabu.chunked` reads, or Points
    weights : (N,) array, optional
    index : {"pbm", "davies_bouldin", "calinski_harabasz", "bic"}
        What decides which clustering is better.
    k_min : int
        Clusters at the least; at least 2.
    k_max : int, optional
        Clusters at the most; by default the root of N, rounded down.
    population : int
        P, individuals that live at a time; at least 2.
    max_iter : int
        Generations; all of them are made.
    %(execution)s
    %(watching)s

    Returns
    -------
    Clustering
        `validity` is the index of what was found. `trace` has the index after every generation: of the best child,
        and of the best so far; `trace.moves` has how many children lived on.

    Examples
    --------
    >>> from gputabu import evolution
    >>> X = [[0.0], [1.0], [10.0], [11.0], [30.0], [31.0]]
    >>> found = evolution.search(X, index="calinski_harabasz", k_max=4, max_iter=5)
    >>> len(found.centers), found.inertia
    (3, 1.5)
    """
    monitor = Monitor(callback, progress, checkpoint=checkpoint)
    points = as_points(X, weights)
    checked = EvolutionSearch.checked(
        points.shape, index=index, k_min=k_min, k_max=k_max, population=population, max_iter=max_iter, seed=seed
    )
    return run_restarts(points, checked, 1, monitor, backend=backend, device=device, labels_out=labels_out)


@dataclass(frozen=True)
class EvolutionSearch(Search):
    """The evolution with its parameters, checked."""

    index: str
    k_min: int
    k_max: int
    population: int
    max_iter: int
    seed: int
    name = "evolution"
    ungrouped = "indices are of points, not of their means"
    patience = None

    @classmethod
    def checked(
        cls, shape: Shape, *, index: str, k_min: int, k_max: int | None, population: int, max_iter: int, seed: int
    ) -> EvolutionSearch:
        check_choice("index", index, INDICES)
        check_int("k_min", k_min, 2)
        if shape.n < k_min:
            raise ValueError(f"n_samples={shape.n} should be >= k_min={k_min}.")
        most = max(k_min, math.isqrt(shape.n)) if k_max is None else min(check_int("k_max", k_max, k_min), shape.n)
        check_int("population", population, 2)
        check_int("max_iter", max_iter, 1)
        return cls(index, k_min, most, population, max_iter, check_int("seed", seed, 0, 2**64 - 1))

    @property
    def k(self) -> int:  # type: ignore[override]
        """What is announced: the most."""
        return self.k_max

    def identity(self) -> dict[str, Any]:
        limits = {"index": self.index, "k_min": self.k_min, "k_max": self.k_max, "population": self.population}
        return {**limits, "max_iter": self.max_iter, "seed": self.seed}

    def run(self, backend: BackendBase, batch: Sequence[int], monitor: Monitor) -> FinishedBatch:
        judge = Judge.of(backend, self.index)
        found = lloyd.Descent(*monitor.stage("search", lambda stage: evolve(judge, self, monitor, stage)))
        monitor.begin_k(found.centers.shape[1])
        monitor.begin_phase("refine", lloyd.REFINE_ITER)
        refined = lloyd.refined(backend, found.centers, "lloyd", monitor)
        done = lloyd.finish(backend, found._replace(centers=refined), batch)
        final = judge.measured(done.centers[None].astype(np.float64), backend.label(done.centers[None].astype(float)))
        return replace(done, validity=judge.value(float(final.score[0])))


@dataclass(frozen=True, slots=True)
class Population:
    """Individuals, each with its centres."""

    centers: list[np.ndarray]  # P times (K, d)
    score: np.ndarray  # (P,) V, or −V where the largest is best: the least is best; infinite where V is undefined
    cost: np.ndarray  # (P,) J

    def select(self, chosen: Sequence[int] | np.ndarray) -> Population:
        return Population([self.centers[i] for i in chosen], self.score[chosen], self.cost[chosen])

    def joined(self, other: Population) -> Population:
        score, cost = (np.concatenate(pair) for pair in ((self.score, other.score), (self.cost, other.cost)))
        return Population([*self.centers, *other.centers], score, cost)

    def kept(self) -> dict[str, Any]:
        return {"centers": padded(self.centers), "sizes": sizes(self.centers), "score": self.score, "cost": self.cost}

    @classmethod
    def resumed(cls, saved: dict[str, Any]) -> Population:
        centers = [each[:k] for each, k in zip(saved["centers"], saved["sizes"].tolist(), strict=True)]
        return cls(centers, saved["score"], saved["cost"])


@dataclass(frozen=True)
class Judge:
    """Makes individuals of sets of centres: three steps of K-Means, and V."""

    backend: BackendBase
    index: str
    weight: float  # of all points
    least: float  # J that can be told from zero
    spread: float  # E₁

    @classmethod
    def of(cls, backend: BackendBase, index: str) -> Judge:
        points, spread = backend.points, 0.0
        if index in BY_DISTANCE:
            middle = backend.grid.centroids(backend.moments(backend.grid)[None, None], backend.grid.offset)
            spread = float(backend.spreads(middle, backend.label(middle))[0, 0])
        least = criteria.least_inertia(backend.bounds, points.total_weight, points.dtype)
        return cls(backend, index, points.total_weight, least, spread)

    def grown(self, sets: list[np.ndarray]) -> Population:
        """The individuals that sets of centres (K, d) become."""
        found = None
        for some in batches(range(len(sets)), self.backend.points.n, self.backend.tuning):
            part = self._grown(padded([sets[i] for i in some]))
            found = part if found is None else found.joined(part)
        assert found is not None
        return found

    def _grown(self, centers: np.ndarray) -> Population:
        labels, totals = self.backend.blank_labels(len(centers)), None
        for _ in range(STEPS):
            change = self.backend.assign(centers, labels).totals
            totals = change if totals is None else totals + change
            centers = together(self.backend.grid.centroids(totals, centers), Totals.counts(totals) > 0)
        return self.measured(centers, labels, totals)

    def measured(self, centers: np.ndarray, labels: Any, totals: np.ndarray | None = None) -> Population:
        """Those with these centres (P, K, d), and labels that need not be those of the nearest."""
        backend = self.backend
        if totals is None:
            totals = backend.assign(centers, backend.blank_labels(len(centers))).totals
        cost, weights = backend.objective(centers, labels), backend.grid.weights(totals)
        spreads = backend.spreads(centers, labels) if self.index in BY_DISTANCE else np.zeros_like(weights)
        full = Totals.counts(totals) > 0
        own = [each[mine] for each, mine in zip(centers, full, strict=True)]
        parts = zip(own, cost.tolist(), weights, spreads, full, strict=True)
        score = [self.score(each, J, w[mine], e[mine]) for each, J, w, e, mine in parts]
        return Population(own, np.array(score), cost)

    def score(self, centers: np.ndarray, cost: float, weights: np.ndarray, spreads: np.ndarray) -> float:
        fit = Fit(
            k=len(centers),
            d=centers.shape[1],
            weight=self.weight,
            inertia=max(cost, self.least),
            scatter=self.backend.scatter,
            centers=centers,
            weights=weights,
            spreads=spreads,
        )
        if not 1 < fit.k < fit.weight:
            return math.inf
        return self.value(criteria.pbm(fit, self.spread) if self.index == "pbm" else getattr(criteria, self.index)(fit))

    def value(self, score: float) -> float:
        """V from the score, and the score from V."""
        return -score if INDICES[self.index] else score

    def tabu(self, best: np.ndarray, others: list[np.ndarray]) -> np.ndarray:
        """Which of other sets of centres are too near to the best: (P,) bool."""
        reach = NEAR * math.sqrt(self.backend.scatter / self.weight)
        return np.array([apart(best, each) < reach for each in others], np.bool_)


def padded(sets: list[np.ndarray]) -> np.ndarray:
    """Sets of centres (K, d) with copies of the first behind the last: (P, the largest K, d)."""
    most = max(map(len, sets))
    return np.stack([np.concatenate([each, np.repeat(each[:1], most - len(each), axis=0)]) for each in sets])


def sizes(sets: list[np.ndarray]) -> np.ndarray:
    return np.array([len(each) for each in sets], np.int64)


def together(centers: np.ndarray, full: np.ndarray) -> np.ndarray:
    """The centres (P, K, d) with those without points, (P, K) bool, on the first that has some."""
    first = centers[np.arange(len(centers)), full.argmax(axis=1)]
    return np.where(full[..., None], centers, first[:, None])


def apart(one: np.ndarray, other: np.ndarray) -> float:
    """The mean distance to the nearest centre of the other, from both sides: (K, d), (L, d)."""
    between = distances(one, other)
    return float(between.min(axis=1).mean() + between.min(axis=0).mean()) / 2


def evolve(judge: Judge, plan: EvolutionSearch, monitor: Monitor, stage: Stage) -> lloyd.Descent:
    """All generations: the best individual."""
    if (saved := stage.state) is None:
        made, recorder = 0, TraceRecorder(1)
        living = judge.grown([newcomer(judge.backend, plan, i, 0) for i in range(plan.population)])
        living = living.select(ranked(living.score))
        recorder.start(judge.value(living.score[0]) * np.ones(1))
    else:
        made, living, recorder = (
            saved["made"],
            Population.resumed(saved["living"]),
            TraceRecorder.resumed(saved["trace"]),
        )
    stop = Stop.MAX_ITER
    for generation in range(made + 1, plan.max_iter + 1):
        children = judge.grown(offspring(judge.backend, living, plan, generation))
        living, lived = selected(judge, living, children, plan, generation)
        best = judge.value(living.score[0])
        recorder.add(np.zeros(1, int), judge.value(children.score.min()) * np.ones(1), np.array([lived]),
                     best=best * np.ones(1))  # fmt: skip
        log.debug("generation %d: %d clusters, %s %.10g", generation, len(living.centers[0]), plan.index, best)
        stage.keep({"made": generation, "living": living.kept(), "trace": recorder.kept})
        monitor.begin_k(len(living.centers[0]))
        monitor.report(generation, np.zeros(1, int), living.cost[:1], living.cost[:1], np.zeros(1, np.bool_))
        if monitor.should_stop():
            stop = monitor.stop_reason
            break
    return lloyd.Descent(living.centers[0][None], [stop], recorder.trace())


def selected(
    judge: Judge, parents: Population, children: Population, plan: EvolutionSearch, generation: int
) -> tuple[Population, int]:
    """Who lives on, the best first, and how many of them are children."""
    pool = parents.joined(children)
    order = ranked(pool.score)  # parents before children
    best, rest = order[0], order[1:]
    free = rest[~judge.tabu(pool.centers[best], [pool.centers[i] for i in rest])]
    chosen = np.concatenate([[best], free[: plan.population - 1]])
    living, lived = pool.select(chosen), int((chosen >= len(parents.score)).sum())
    if missing := plan.population - len(chosen):
        fresh = judge.grown([newcomer(judge.backend, plan, i, generation) for i in range(missing)])
        living = living.joined(fresh)
        living = living.select(ranked(living.score))
    return living, lived


def ranked(score: np.ndarray) -> np.ndarray:
    """The order from the best score on. Those that differ by rounding alone, as of the same clusters, keep theirs."""
    fraction, exponent = np.frexp(score)
    return np.argsort(np.ldexp(np.rint(np.ldexp(fraction, BITS)), exponent), kind="stable")


def newcomer(backend: BackendBase, plan: EvolutionSearch, number: int, generation: int) -> np.ndarray:
    """A random individual: K, and K random points."""
    words = random.words(plan.seed, number, 1 + plan.k_max, purpose=Purpose.NEWCOMER, step=generation)
    k = plan.k_min + int(random.below(words[0], np.array(plan.k_max - plan.k_min + 1)))
    return backend.rows(seeding.by_weight(backend.points, words[1 : 1 + k]))


def offspring(backend: BackendBase, parents: Population, plan: EvolutionSearch, generation: int) -> list[np.ndarray]:
    """The centres of a child of every parent."""
    p = len(parents.centers)
    words = np.stack([
        random.words(plan.seed, i, N_WORDS, purpose=Purpose.OFFSPRING, step=generation) for i in range(p)
    ])  # fmt: skip
    mates = (np.arange(p) + 1 + random.below(words[:, MATE], np.array(p - 1))) % p
    corners = backend.rows(seeding.by_weight(backend.points, words[:, CORNERS]))  # (P, 2, d)
    children: list[np.ndarray] = []
    alone = []  # who has one parent
    for i, (mine, mate) in enumerate(zip(parents.centers, mates.tolist(), strict=True)):
        child = crossed(mine, parents.centers[mate], corners[i])
        children.append(child)
        if words[i, SEXUAL] >> np.uint64(63) == 0 or not plan.k_min <= len(child) <= plan.k_max:
            alone.append(i)
    for some in batches(alone, backend.points.n, backend.tuning):
        drawn = by_distance(backend, padded([parents.centers[i] for i in some]), words[some, DRAWN])
        for i, point in zip(some, drawn, strict=True):
            children[i] = changed(parents.centers[i], point, words[i], plan)
    return children


def crossed(one: np.ndarray, other: np.ndarray, corners: np.ndarray) -> np.ndarray:
    """Centres of one parent nearer to the first of two points, and of the other nearer to the second."""
    near, far = (distances(each, corners) for each in (one, other))
    return np.concatenate([one[near[:, 0] <= near[:, 1]], other[far[:, 0] > far[:, 1]]])


def changed(centers: np.ndarray, point: np.ndarray, words: np.ndarray, plan: EvolutionSearch) -> np.ndarray:
    """A parent with one more centre, one less, or one elsewhere; each as likely where K may change so."""
    k = len(centers)
    kinds = ["move"] + ["add"] * (k < plan.k_max) + ["drop"] * (k > plan.k_min)
    kind = kinds[int(random.below(words[KIND], np.array(len(kinds))))]
    if kind == "add":
        return np.concatenate([centers, point[None]])
    which = int(random.below(words[CENTER], np.array(k)))
    rest = np.delete(centers, which, axis=0)
    return rest if kind == "drop" else np.concatenate([rest, point[None]])


def by_distance(backend: BackendBase, centers: np.ndarray, words: np.ndarray) -> np.ndarray:
    """A point for each set of centres (P, K, d), drawn in proportion to w·D²: words (P,) -> (P, d)."""
    if centers.shape[1] == 1:
        centers = np.concatenate([centers, centers], axis=1)
    near = backend.nearest_two(centers).near
    coarsest = np.full(len(centers), backend.grid.coarsest(backend.points.n))
    shift, potential = seeding.refine(backend, near, coarsest, None)
    targets = np.where(potential > 0, random.below(words, np.maximum(potential, 1)), -1)
    rows = backend.sample(near, shift, targets[:, None])[:, 0]
    rows = np.where(rows < 0, seeding.by_weight(backend.points, words), rows)  # every point is on a centre
    return backend.rows(rows)
