"""How much of a search is done, and how much time is left: the numbers behind a progress bar."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

#: What is said of the phases around a search.
PHASES = {"start": "K-Means before the search", "refine": "refining"}


class ProgressEstimate:
    """Progress of R restarts of one search, in batches.

    The time left is that of the iterations left if J falls no further: then `patience` ends a restart. Restarts that
    have not begun count like those that have.
    """

    def __init__(self, restarts: int, max_iter: int, patience: int | None = None) -> None:
        self.restarts, self.max_iter, self.patience = restarts, max_iter, patience
        self.finished_ks = 0
        self.begin(0, first=True)

    def begin(self, count: int, first: bool) -> None:
        """A batch of so many restarts begins."""
        self.before, self.earlier = (0, 0) if first else (self.begun, self.iterations)
        self.made, self.fell = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self.best, self.ended = np.full(count, np.inf), np.zeros(count, np.bool_)

    def note(self, active: np.ndarray, made: Any, best: np.ndarray, ended: np.ndarray) -> None:
        """Restarts at these positions of the batch have made so many iterations: see `Monitor.report`."""
        self.made[active] = made
        lower = best < self.best[active]
        self.fell[active[lower]] = self.made[active[lower]]
        self.best[active[lower]] = best[lower]
        self.ended[active] = ended

    def finish_k(self) -> None:
        """The clustering of one more K is finished."""
        self.finished_ks += 1

    @property
    def begun(self) -> int:
        return self.before + len(self.made)

    @property
    def done(self) -> int:
        """Restarts that have ended."""
        return self.before + int(self.ended.sum())

    @property
    def iterations(self) -> int:
        return self.earlier + int(self.made.sum())

    @property
    def furthest(self) -> int:
        """The most iterations that a restart of the batch has made."""
        return int(self.made.max(initial=0))

    @property
    def fraction(self) -> float:
        """Share of the most work there can be, 0 to 1; it never falls."""
        share = np.where(self.ended, 1.0, self.made / self.max_iter)
        return (self.before + float(share.sum())) / self.restarts

    def left(self, elapsed: float) -> float:
        """Seconds left, as an estimate; infinite while there is none."""
        rest = self.max_iter - self.made
        if self.patience is not None:
            rest = np.minimum(rest, self.patience - (self.made - self.fell))
        if self.iterations == 0:
            return math.inf
        now = int(rest[~self.ended].sum())
        later = (self.restarts - self.begun) * (self.iterations + now) / self.begun
        return float(elapsed * (now + later) / self.iterations)

    def text(self, phase: str, iteration: int, n_clusters: int, best: float) -> str:
        """How far it is, in a few words."""
        if phase in PHASES:
            where = f"{PHASES[phase]}, iteration {iteration}"
        else:
            where = f"iteration {iteration} of {self.max_iter}"
        parts = [where] if math.isinf(best) else [where, f"best J {best:.6g}"]
        return ", ".join(parts + ([f"{self.done} of {self.restarts} restarts"] if self.restarts > 1 else []))


class SweepEstimate(ProgressEstimate):
    """Progress of clusterings for several K, some of them repeated. The work for one grows with K."""

    def __init__(self, ks: list[int], times: int, restarts: int) -> None:
        super().__init__(restarts, 1)
        self.ks, self.times = ks, times

    @property
    def fraction(self) -> float:
        rounds, rest = divmod(self.finished_ks, len(self.ks))
        return (rounds * sum(self.ks) + sum(self.ks[:rest])) / (self.times * sum(self.ks))

    def left(self, elapsed: float) -> float:
        share = self.fraction
        return elapsed * (1 - share) / share if share else math.inf

    def text(self, phase: str, iteration: int, n_clusters: int, best: float) -> str:
        return f"{n_clusters} clusters, {self.finished_ks} of {self.times * len(self.ks)} clusterings"
