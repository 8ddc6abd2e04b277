"""The seam between the algorithms and the backends: a handful of passes over the points.

R restarts are the leading axis of everything. Arrays named here are host NumPy arrays of size O(R·K·d),
except `labels`, which has one entry per restart and point and lives where the backend keeps it: algorithms
only hand it around. Every result is the same, bit for bit, on every backend and for any chunks, threads
and restarts in the batch:

- nearest centres are those of the canonical formula (float64, Σ_j (x_j − c_j)² in the order of j, no
  contraction), the lowest number on ties;
- sums over points are sums of integers on the grid (`gputabu.data.points`);
- the least over points is the least (value rounded to float32, row number).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from gputabu.algorithms.monitor import Watch
from gputabu.backend.arithmetic.fixed_point import Bounds, Grid
from gputabu.core.random import BLOCK
from gputabu.core.results import Stop
from gputabu.data.points import Points

Labels = Any  # (R, N) int32 on the backend; -1 where a point has no cluster yet


@dataclass(frozen=True, slots=True)
class Assigned:
    """What `assign` changed."""

    totals: (
        np.ndarray
    )  # (R, K, C) int64, to be added to the clusters' totals (`gputabu.backend.arithmetic.fixed_point.Totals`)
    changed: np.ndarray  # (R,) int64, points whose label is new


@dataclass(frozen=True, slots=True)
class Surveyed:
    """What `survey` saw."""

    cost: np.ndarray  # (R,) float64, J at the given centres
    index: np.ndarray  # (R, K, M) int64, the best free points per cluster, best first; -1 behind the last
    inside: np.ndarray  # (R, K, L) bool, which tabu entries (k, n) have n, of positive weight, in cluster k


@dataclass(frozen=True, slots=True)
class Orders:
    """What a backend needs to know to run whole searches by itself."""

    max_iter: int
    patience: int
    target: float  # J to stop at, negative for none
    shared: bool  # scope "global"
    rounds: int  # of K-Means that refines the best solution
    watch: Watch  # says whether to stop early


@dataclass(frozen=True, slots=True)
class Explored:
    """Where R searches ended, and their traces, as in `gputabu.core.results.Trace`."""

    cost: np.ndarray  # (R,) J_b
    means: np.ndarray  # (R, K) M_b
    stop: list[Stop | None]  # None where it was stopped early
    current: np.ndarray  # (R, T + 1)
    best: np.ndarray  # (R, T + 1)
    path: np.ndarray  # (R, T + 1, K)
    centers: np.ndarray | None  # (R, K, d) if M_b is refined already


@dataclass(frozen=True, slots=True)
class Descending:
    """What a backend needs to know to run whole descents of K-Means by itself."""

    max_iter: int
    allowed: float  # squared shift of all centres together at which to stop; 0 for never
    traced: bool
    watch: Watch  # says whether to stop early: `Watch.halted`


@dataclass(frozen=True, slots=True)
class Descended:
    """Where R descents ended, and their traces, NaN and -1 behind the end."""

    centers: np.ndarray  # (R, K, d)
    stop: list[Stop | None]  # None where it was stopped early
    current: np.ndarray  # (R, T + 1) J at the first centres, then at the centroids; empty if not traced
    changed: np.ndarray  # (R, T)


@dataclass(frozen=True, slots=True)
class Lot:
    """T trial labellings for each of R restarts: drawn from addressed words, never stored.

    Point i has, in trial t of restart r, word t·pitch + i of the stream (seed, r, TRIAL, step), the pitch being N
    rounded up to whole blocks of words. It keeps its label where that word is below `limit`. Elsewhere it takes
    another, every one of them as likely: of M other labels, in their order, number (low half of the word)·M >> 32.
    To a point without a label all K are others; to one that has the only label, none.
    """

    k: int
    seed: int
    restarts: np.ndarray  # (R,) uint64, their numbers
    step: int
    n_trials: int
    limit: int
    given: np.ndarray | None = None  # (N,) int32: this is the only trial, and nothing is drawn
    total: int | None = None  # N, where a backend holds only a part of the points,
    first: int = 0  # which begins with this row

    def pitch(self, n: int) -> int:
        return -(-(self.total or n) // BLOCK) * BLOCK


@dataclass(frozen=True, slots=True)
class Tried:
    """What `trials` found."""

    cost: np.ndarray  # (R, T) float64, J at the centroids
    prints: np.ndarray  # (R, T, 2) uint64, to be added to the print of the labels that were changed


@dataclass(frozen=True, slots=True)
class Moves:
    """Single moves that would each lower J, by restart, then by row: at most one per point."""

    restart: np.ndarray  # (M,) int64
    row: np.ndarray  # (M,) int64
    source: np.ndarray  # (M,) int32, the cluster the point is in
    target: np.ndarray  # (M,) int32, the one to move it to

    def __len__(self) -> int:
        return len(self.row)

    def some(self, chosen: np.ndarray | slice) -> Moves:
        return Moves(self.restart[chosen], self.row[chosen], self.source[chosen], self.target[chosen])


@dataclass(frozen=True, slots=True)
class Improved:
    """Where R descents by single moves ended."""

    centers: np.ndarray  # (R, K, d), centroids
    moves: np.ndarray  # (R,) int64, how many were made


@dataclass(slots=True)
class Pairs:
    """The two nearest centres of every point, in R restarts; kept and brought up to date by the backend."""

    first: Any  # (R, N) int32 on the backend, the nearest centre
    second: Any  # (R, N) int32, the next
    near: Any  # (R, N) float64, canonical d² to the first
    far: Any  # (R, N) float64, canonical d² to the second
    at: np.ndarray  # (R, K, d) float64 on the host, the centres that this holds for


@dataclass(frozen=True, slots=True)
class Settled(Assigned):
    """What `settle` changed."""

    cost: np.ndarray  # (R,) float64, J of the new labels at the centres of the pairs; 0 for restarts left alone


@dataclass(frozen=True, slots=True)
class Roaming:
    """What relocation searches are to do, and what a backend needs to know to run them by itself."""

    max_iter: int
    patience: int
    target: float  # J to stop at
    tenure: int  # moves for which a centre that was placed stays
    candidates: int  # points drawn per iteration
    go_back: int  # iterations without a better solution after which to go back to the best one lately
    returns: int  # returns to it after which to stay where the search is
    seed: int
    numbers: np.ndarray  # (R,) uint64, of the restarts
    watch: Watch  # says whether to stop early
    steps: int = 3  # after a move: to the nearest centre, then by Hartigan's rule
    reach: float = 10.0  # more steps follow while so many like the last would reach the best J,
    more_steps: int = 30  # at the most


@dataclass(frozen=True, slots=True)
class Roamed:
    """Where R relocation searches ended, and their traces, NaN and -1 behind the end."""

    centers: np.ndarray  # (R, K, d), the best
    stop: list[Stop | None]  # None where it was stopped early
    current: np.ndarray  # (R, T + 1)
    best: np.ndarray  # (R, T + 1)
    moves: np.ndarray  # (R, T)


class Ops(Protocol):
    """A data set held by a backend. A context: memory and threads are released on leaving it."""

    name: str
    points: Points

    def __enter__(self) -> Ops: ...
    def __exit__(self, *_: object) -> None: ...

    @property
    def bounds(self) -> Bounds:
        """Box around the points of positive weight."""
        ...

    @property
    def grid(self) -> Grid:
        """Fixed-point grid; its offset is the weighted mean, rounded to the dtype of the points."""
        ...

    @property
    def scatter(self) -> float:
        """J of one cluster centred at the grid's offset."""
        ...

    def rows(self, indices: np.ndarray) -> np.ndarray:
        """The points with these row numbers, float64 on the host: (...,) -> (..., d)."""
        ...

    def blank(self, restarts: int) -> Labels:
        """Labels of -1."""
        ...

    def take(self, labels: Labels, restarts: np.ndarray) -> Labels:
        """A copy of the labels of these restarts, in this order; a restart may be asked for twice."""
        ...

    def fetch(self, labels: Labels, restart: int) -> np.ndarray:
        """The labels of one restart as a host array, (N,) int32."""
        ...

    def assign(self, centers: np.ndarray, labels: Labels) -> Assigned:
        """Relabel every point by its nearest centre (eq. 4, eq. 15) and say what that changes in the totals.

        centers (R, K, d) float64; labels are overwritten. A caller that adds up what is returned, from blank
        labels on, has the exact totals of every cluster: integers, so differences lose nothing.
        """
        ...

    def survey(self, centers: np.ndarray, labels: Labels, tabu: np.ndarray, shared: bool, best: int) -> Surveyed:
        """J (eq. 2) at `centers`, and per cluster the `best` points nearest to its centre that are free.

        centers (R, K, d) float64; tabu (R, K, L) int64, padded with -1. Entry (k, n) forbids n if n is in
        cluster k, or in any cluster where `shared`. Points of weight zero are never free.
        """
        ...

    def objective(self, centers: np.ndarray, labels: Labels) -> np.ndarray:
        """J at any centres, also outside the box of the points: (R, K, d) float64 -> (R,) float64."""
        ...

    def spreads(self, centers: np.ndarray, labels: Labels) -> np.ndarray:
        """Σ w ‖x − c_k‖ over the points of every cluster, not squared: (R, K, d) float64 -> (R, K) float64."""
        ...

    def farthest(self, centers: np.ndarray, labels: Labels, restart: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """The `count` points of positive weight farthest from their centre, farthest first.

        centers (K, d) -> row numbers and their clusters. Compares d² rounded to float32; the lowest row
        number on ties. Points on their centre, to a 2^-40 of the box, are left out: there may be fewer.
        """
        ...

    def closest(self, centers: np.ndarray) -> np.ndarray:
        """Row number of the point of positive weight nearest to each centre: (K, d) -> (K,) int64."""
        ...

    def nothing_covered(self, restarts: int) -> Any:
        """Squared distances to the nearest of no seeds: +inf, (R, N) on the backend."""
        ...

    def cover(self, seeds: np.ndarray, covered: Any) -> None:
        """Lower `covered` to the squared distance to seeds (R, d) where that is less."""
        ...

    def potential(self, covered: Any, shift: np.ndarray) -> np.ndarray:
        """Σ_n rint(w_n · covered_n · 2^shift), in integers: (R,) -> (R,) int64."""
        ...

    def trial_gains(self, seeds: np.ndarray, covered: Any, shift: np.ndarray) -> np.ndarray:
        """How much less the potential would be with each as one more seed: (R, T, d) -> (R, T) int64."""
        ...

    def sample(self, covered: Any, shift: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """First row at which the running potential exceeds the target: (R,), (R, T) int64 -> (R, T) int64."""
        ...

    def explore(self, means: np.ndarray, orders: Orders) -> Explored | None:
        """Run R searches from means (R, K) to their end, as `gputabu.algorithms.quantized.explore` would.

        None where the backend has no way of its own: the passes above are then called in turn.
        """
        ...

    def descend(self, centers: np.ndarray, orders: Descending) -> Descended | None:
        """Run K-Means from centers (R, K, d) to its end, as `gputabu.algorithms.lloyd.descend` would; None as in `explore`."""
        ...

    def moves(self, centers: np.ndarray, totals: np.ndarray, labels: Labels) -> Moves:
        """Every point's best move to another cluster, of those that lower J (`gputabu.backend.numpy.hartigan`).

        centers (R, K, d) are the centroids of totals (R, K, C), those of `labels`, in which every point has a cluster.
        """
        ...

    def shift(self, centers: np.ndarray, totals: np.ndarray, labels: Labels, moves: Moves) -> np.ndarray:
        """Make the moves one after the other, where they still lower J; returns how many were made, (R,) int64.

        As above; centers, totals and labels follow, in place.
        """
        ...

    def improve(self, centers: np.ndarray, max_rounds: int, interrupted: Callable[[], bool]) -> Improved | None:
        """Run descents by single moves to their end, as `gputabu.algorithms.hartigan.improve` would; None as in `explore`."""
        ...

    def pairs(self, centers: np.ndarray, held: Pairs | None = None) -> Pairs:
        """The two nearest of centers (R, K, d), K >= 2, for every point: the lowest numbers on ties.

        `held` is brought up to date and returned; where centres have not moved since, there is nothing to do.
        """
        ...

    def settle(self, pairs: Pairs, labels: Labels, mass: np.ndarray | None, who: np.ndarray) -> Settled:
        """Relabel the points of the restarts `who` (R,) bool, and say what that changes in the totals.

        To the nearest centre or, with the masses (R, 2, K) of the clusters (`gputabu.backend.numpy.hartigan`), so that a point
        leaves one of its two nearest for the other only where that alone lowers J (`gputabu.backend.numpy.relocation`).
        """
        ...

    def swap_gains(self, candidates: np.ndarray, pairs: Pairs) -> np.ndarray:
        """Change of J at the centres of `pairs` if a candidate replaces a centre: (R, T, d) -> (R, T, K) float64."""
        ...

    def roam(self, centers: np.ndarray, orders: Roaming) -> Roamed | None:
        """Run relocation searches from centers (R, K, d), as `gputabu.algorithms.relocation.roam` would; None as in `explore`."""
        ...

    def trials(self, labels: Labels, totals: np.ndarray, lot: Lot) -> Tried:
        """J and print of every trial labelling of `lot`, without making it.

        totals (R, K, C) are those of `labels`, in which every point has a cluster. J is `scatter` less
        `Grid.explained` of the trial's totals, and not less than zero. The print of a labelling is the sum of label_i
        times the words 2i and 2i + 1 of the stream (seed, 0, PRINT, 0), modulo 2^64 each.
        """
        ...

    def adopt(self, labels: Labels, best: Labels, lot: Lot, chosen: np.ndarray, better: np.ndarray) -> Assigned:
        """Relabel restart r by trial chosen[r] of `lot`, or not where that is -1, and say what changes in the totals.

        chosen (R,) int, better (R,) bool. Where better[r], the new labels are copied to `best` as well.
        """
        ...

    def label(self, centers: np.ndarray) -> Labels:
        """The nearest of centers (R, K, d) for every point, and nothing else (no grid is needed)."""
        ...

    def distances(self, centers: np.ndarray) -> np.ndarray:
        """Euclidean distance of every point to every centre, (N, K) in the dtype of the points."""
        ...
