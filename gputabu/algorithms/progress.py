"""How much of a search is done, and how much time is left: the numbers behind a progress bar."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

#: What is said of the phases around a search.
PHASES = {"start": "K-Means before the search", "sample": "search of a sample", "refine": "refining"}


class ProgressEstimate:
    """Progress of R restarts of one search, in batches.

    The time left is that of the iterations left, until the first of the limits, if J falls no further. Restarts that
    have not begun count like those that have.
    """

    def __init__(self, restarts: int, max_iter: int | None, patience: int | None = None) -> None:
        self.restarts, self.max_iter, self.patience = restarts, max_iter, patience
        self.finished_ks = 0
        self.begin(0, first=True)

    def begin(self, count: int, first: bool) -> None:
        """A batch of so many restarts begins."""
        self.before, self.earlier = (0, 0) if first else (self.begun, self.iterations)
        self.made, self.fell = np.zeros(count, np.int64), np.zeros(count, np.int64)
        self.best, self.ended = np.full(count, np.inf), np.zeros(count, np.bool_)
        self.share = np.zeros(count)  # of the effort
        self.restarts = max(self.restarts, self.begun)  # there may be more than were asked for

    def note(self, active: np.ndarray, made: Any, best: np.ndarray, ended: np.ndarray, share: Any = 0.0) -> None:
        """Restarts at these positions of the batch have made so many iterations: see `Monitor.report`."""
        self.made[active], self.share[active] = made, share
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
        made = self.made / (math.inf if self.max_iter is None else self.max_iter)
        share = np.where(self.ended, 1.0, np.minimum(np.maximum(made, self.share), 1.0))
        return (self.before + float(share.sum())) / self.restarts

    def left(self, elapsed: float) -> float:
        """Seconds left, as an estimate; infinite while there is none."""
        if self.iterations == 0:
            return math.inf
        now = float(np.min(list(self._rests.values()), axis=0)[~self.ended].sum())
        if math.isinf(now):
            return math.inf
        later = (self.restarts - self.begun) * (self.iterations + now) / self.begun
        return float(elapsed * (now + later) / self.iterations)

    @property
    def limit(self) -> str:
        """The limit that will end the search, by its name, if J falls no further."""
        rests = {name: rest[~self.ended].sum() for name, rest in self._rests.items()}
        return min(rests, key=lambda name: rests[name])

    @property
    def _rests(self) -> dict[str, np.ndarray]:
        """Iterations that each limit leaves to the restarts, (R,)."""
        most, patience = (math.inf if limit is None else limit for limit in (self.max_iter, self.patience))
        share = np.maximum(self.share, 1e-9)
        effort = np.where(self.share > 0, self.made * (1 - share) / share, math.inf)
        return {"max_iter": most - self.made, "patience": patience - (self.made - self.fell), "effort": effort}

    def text(self, phase: str, iteration: int, n_clusters: int, best: float) -> str:
        """How far it is, in a few words."""
        if phase in PHASES:
            where = f"{PHASES[phase]}, iteration {iteration}"
        else:
            where = f"iteration {iteration}" + ("" if self.max_iter is None else f" of {self.max_iter}")
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

    @property
    def limit(self) -> str:
        return ""

    def text(self, phase: str, iteration: int, n_clusters: int, best: float) -> str:
        return f"{n_clusters} clusters, {self.finished_ks} of {self.times * len(self.ks)} clusterings"
