"""Clusterings of several K on one copy of the points, each begun from its neighbours.

K goes up. The first K begins with K-Means++, each further one where the one before ended, with more seeds drawn in the
same way: J falls from K to K. On the way back down, clusters of the K above are merged wherever that is known to lead
lower. What a merger adds to J follows from centres and weights alone (Ward 1963), so that looking costs nothing. Where
K-Means was caught in a local minimum, the neighbours of that K free it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gputabu.algorithms import lloyd, quantized, seeding
from gputabu.algorithms.monitor import Monitor
from gputabu.algorithms.restarts import batches, best_of
from gputabu.backend.arithmetic.constants import NOISE
from gputabu.backend.base import BackendBase
from gputabu.core.log import log
from gputabu.core.results import Clustering
from gputabu.data.points import Points

#: How each K is clustered.
METHODS = ("k-means", "tabu")
#: Iterations of K-Means.
MAX_ITER = 300


@dataclass(frozen=True, slots=True)
class Plan:
    """How the clusterings are looked for."""

    ks: list[int]  # ascending
    method: str
    restarts: int
    seed: int


@dataclass(frozen=True, slots=True)
class SweepStep:
    """The best clustering known for one K, without its labels: those of every K would weigh more than the points."""

    found: Clustering
    centers: np.ndarray  # (K, d) float64
    weights: np.ndarray  # (K,) of the clusters

    @classmethod
    def of(cls, found: Clustering, points: Points) -> SweepStep:
        k = len(found.centers)
        weights = np.bincount(found.labels, None if points.weights is None else np.concatenate(points.weights), k)
        return cls(replace(found, labels=found.labels[:0]), found.centers.astype(np.float64), weights)

    @property
    def inertia(self) -> float:
        return self.found.inertia


class Sweep:
    """The clusterings of one K after the other, each begun from its neighbours."""

    def __init__(self, backend: BackendBase, plan: Plan, monitor: Monitor) -> None:
        self.backend, self.plan, self.monitor = backend, plan, monitor
        self.trials = 2 + int(np.log(plan.ks[-1]))
        self.rungs: list[SweepStep] = []

    def climb(self) -> list[SweepStep]:
        """A rung for every K; fewer if interrupted, but at least the first."""
        for k in self.plan.ks:
            if self.monitor.halted and self.rungs:
                break
            rung = self.reach(self.starts(k))
            if self.monitor.halted and self.rungs:
                break  # this K was cut short
            self.rungs.append(rung)
            self.monitor.estimate.climb()
            log.info("%d clusters: J = %.10g", k, rung.inertia)
        for i in reversed(range(len(self.rungs) - 1)):
            self.merge(i)
        for i in range(1, len(self.rungs)):
            self.split(i)
        return self.rungs

    def starts(self, k: int) -> np.ndarray:
        """(R, K, d): the clustering of the K before with more seeds, the others (the first K: all) by K-Means++."""
        fresh = range(1 if self.rungs else 0, self.plan.restarts)
        cut = batches(fresh, self.backend.points.n, self.backend.tuning)
        starts = [self.backend.rows(seeding.plus_plus(self.backend, k, self.plan.seed, batch)) for batch in cut]
        return np.concatenate([self.grown(self.rungs[-1], k), *starts] if self.rungs else starts)

    def grown(self, below: SweepStep, k: int) -> np.ndarray:
        """(1, K, d): the centres of fewer clusters and more seeds."""
        more = k - len(below.centers)
        return seeding.extend(self.backend, below.centers, more, self.plan.seed, self.trials)[None]

    def merge(self, i: int) -> None:
        """Begin again from the K above with clusters merged, if that is known to lead lower."""
        here, above = self.rungs[i : i + 2]
        start, added = seeding.shrink(above.centers, above.weights, len(above.centers) - len(here.centers))
        self.improve(i, start[None], above.inertia + added < here.inertia * (1 - NOISE))

    def split(self, i: int) -> None:
        """Begin again from the K below if it came to be as good with fewer clusters."""
        below, here = self.rungs[i - 1 : i + 1]
        if 0 < below.inertia <= here.inertia:
            self.improve(i, self.grown(below, len(here.centers)))

    def improve(self, i: int, start: np.ndarray, promising: bool = True) -> None:
        """Replace a rung by what is reached from another start, if that is lower."""
        if not promising or self.monitor.halted:
            return
        rung = self.reach(start)
        if rung.inertia < self.rungs[i].inertia:
            self.rungs[i] = rung
            log.info("%d clusters: J = %.10g from a neighbouring K", len(rung.centers), rung.inertia)

    def reach(self, starts: np.ndarray) -> SweepStep:
        """The best clustering that K-Means, and tabu search from there, find from starts (R, K, d)."""
        backend, monitor, plain, searched = self.backend, self.monitor, [], []
        monitor.begin_k(starts.shape[1])
        for batch in monitor.batches(batches(range(len(starts)), backend.points.n, backend.tuning)):
            monitor.begin_phase("start" if self.plan.method == "tabu" else "search", MAX_ITER)
            descent = lloyd.descend(backend, starts[batch[0] : batch[-1] + 1], MAX_ITER, 0.0, monitor, traced=True)
            plain.append(lloyd.finish(backend, descent, batch))
            if self.plan.method == "tabu":
                plan = quantized.Plan()
                monitor.begin_phase("search", plan.max_iter)
                means = np.stack([backend.closest(centers) for centers in descent.centers])
                again, best = quantized.run(backend, means, plan, "lloyd", monitor)
                searched.append(lloyd.finish(backend, again, batch, best))
        found = [best_of(some, backend.name, monitor.halted) for some in (searched, plain) if some]
        # Tabu search begins at points beside the centres, so that it may end above them.
        return SweepStep.of(min(found, key=lambda one: one.inertia), backend.points)
