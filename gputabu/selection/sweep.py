"""Clusterings for several K on one copy of the points, each started from its neighbours.

K goes up. The first K starts with K-Means++. Each further K starts from the result of the one before, with more seeds
drawn in the same way, so J falls from K to K. On the way back down, clusters of the K above are merged wherever that is
known to give a lower J. What a merger adds to J follows from centres and weights alone (Ward 1963), so this test costs
nothing. Where K-Means was caught in a local minimum, the neighbours of that K free it.
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
    """Which clusterings to compute, and how."""

    ks: list[int]  # ascending
    method: str
    restarts: int
    seed: int


@dataclass(frozen=True, slots=True)
class SweepStep:
    """The best clustering known for one K, without labels: those of all K could take more memory than the points."""

    clustering: Clustering
    centers: np.ndarray  # (K, d) float64
    weights: np.ndarray  # (K,) of the clusters

    @classmethod
    def of(cls, clustering: Clustering, points: Points) -> SweepStep:
        k = len(clustering.centers)
        weights = np.bincount(clustering.labels, None if points.weights is None else np.concatenate(points.weights), k)
        return cls(replace(clustering, labels=clustering.labels[:0]), clustering.centers.astype(np.float64), weights)

    @property
    def inertia(self) -> float:
        return self.clustering.inertia


class Sweep:
    """The clusterings of one K after the other, each started from its neighbours."""

    def __init__(self, backend: BackendBase, plan: Plan, monitor: Monitor) -> None:
        self.backend, self.plan, self.monitor = backend, plan, monitor
        self.trials = 2 + int(np.log(plan.ks[-1]))
        self.steps: list[SweepStep] = []

    def run(self) -> list[SweepStep]:
        """A step for every K; fewer if interrupted, but at least the first."""
        for k in self.plan.ks:
            if self.monitor.halted and self.steps:
                break
            step = self.fit(self.starts(k))
            if self.monitor.halted and self.steps:
                break  # this K was cut short
            self.steps.append(step)
            self.monitor.estimate.finish_k()
            log.info("%d clusters: J = %.10g", k, step.inertia)
        for i in reversed(range(len(self.steps) - 1)):
            self.merge(i)
        for i in range(1, len(self.steps)):
            self.split(i)
        return self.steps

    def starts(self, k: int) -> np.ndarray:
        """(R, K, d): the result of the K before with more seeds, then K-Means++; for the first K only the latter."""
        restarts = range(1 if self.steps else 0, self.plan.restarts)
        cuts = batches(restarts, self.backend.points.n, self.backend.tuning)
        starts = [self.backend.rows(seeding.plus_plus(self.backend, k, self.plan.seed, batch)) for batch in cuts]
        return np.concatenate([self.extended(self.steps[-1], k), *starts] if self.steps else starts)

    def extended(self, below: SweepStep, k: int) -> np.ndarray:
        """(1, K, d): the centres of a smaller K, extended by more seeds."""
        n_seeds = k - len(below.centers)
        return seeding.extend(self.backend, below.centers, n_seeds, self.plan.seed, self.trials)[None]

    def merge(self, i: int) -> None:
        """Restart from the K above with clusters merged, if that is known to give a lower J."""
        step, above = self.steps[i : i + 2]
        start, added = seeding.shrink(above.centers, above.weights, len(above.centers) - len(step.centers))
        self.improve(i, start[None], above.inertia + added < step.inertia * (1 - NOISE))

    def split(self, i: int) -> None:
        """Restart from the K below if its J is as low with fewer clusters."""
        below, step = self.steps[i - 1 : i + 1]
        if 0 < below.inertia <= step.inertia:
            self.improve(i, self.extended(below, len(step.centers)))

    def improve(self, i: int, start: np.ndarray, promising: bool = True) -> None:
        """Fit again from another start, and replace the step if J is lower."""
        if not promising or self.monitor.halted:
            return
        step = self.fit(start)
        if step.inertia < self.steps[i].inertia:
            self.steps[i] = step
            log.info("%d clusters: J = %.10g from a neighbouring K", len(step.centers), step.inertia)

    def fit(self, starts: np.ndarray) -> SweepStep:
        """The best clustering that K-Means, and tabu search from there, find from starts (R, K, d)."""
        backend, monitor, lloyd_runs, tabu_runs = self.backend, self.monitor, [], []
        monitor.begin_k(starts.shape[1])
        for batch in monitor.batches(batches(range(len(starts)), backend.points.n, backend.tuning)):
            monitor.begin_phase("start" if self.plan.method == "tabu" else "search", MAX_ITER)
            descent = lloyd.descend(backend, starts[batch[0] : batch[-1] + 1], MAX_ITER, 0.0, monitor, traced=True)
            lloyd_runs.append(lloyd.finish(backend, descent, batch))
            if self.plan.method == "tabu":
                tabu = quantized.Plan()
                monitor.begin_phase("search", tabu.max_iter)
                means = np.stack([backend.closest(centers) for centers in descent.centers])
                refined, best = quantized.run(backend, means, tabu, "lloyd", monitor)
                tabu_runs.append(lloyd.finish(backend, refined, batch, best))
        candidates = [best_of(runs, backend.name, monitor.halted) for runs in (tabu_runs, lloyd_runs) if runs]
        # Tabu search starts at the points nearest to the centres, so it may end with a higher J.
        return SweepStep.of(min(candidates, key=lambda clustering: clustering.inertia), backend.points)
