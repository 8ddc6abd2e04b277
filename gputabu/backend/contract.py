"""The contract of a backend: passes over the points it holds, whose results merge without loss.

To write a backend, derive from `gputabu.backend.base.BackendBase` and implement what is abstract here. The base class
makes numbers of the results, and `gputabu.backend.sharded` merges those of several backends, so that a backend that
has the passes can run every algorithm, alone or as one of many shards.

R restarts are the leading axis of everything. Arrays named here are NumPy arrays on the host, of size O(R·K·d). Only
`labels`, `min_sq_dist` and the arrays of `NearestTwo` have an entry per point. They live wherever the backend likes,
and algorithms only hand them around.

Results are the same, bit for bit, on every backend, for any chunks, threads and batches:

- A squared distance is canonical: float64, Σ_j (x_j − c_j)² added in the order of j, no fused multiply-add
  (`arithmetic.canonical`). A backend may find the nearest centre in any faster way that provably agrees
  (`arithmetic.certified`). Ties go to the lowest number.
- A sum over points is a sum of integers on the grid (`arithmetic.fixed_point`).
- The least over points is the least pair (value rounded to float32, row number) (`arithmetic.keys`).

`tests/backend/slow_backend.py` is a complete backend in plain Python loops.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from gputabu.backend.arithmetic.fixed_point import Bounds, Grid
from gputabu.backend.arithmetic.transport import Measure
from gputabu.backend.tuning import Tuning
from gputabu.core.random import BLOCK
from gputabu.data.points import Points

Labels = Any  # (R, N) int32 on the backend; -1 where a point has no cluster yet
SquaredDistances = Any  # (R, N) float64 on the backend

#: Bits that a row number takes in a key of `member_keys_partial`.
ROW_BITS = 35

#: A candidate for the farthest point: its squared distance, its row, the cluster it is in.
FAR = np.dtype([("value", np.float32), ("row", np.int64), ("owner", np.int32)])


@dataclass(frozen=True, slots=True)
class Assignment:
    """What a new assignment changed."""

    totals: np.ndarray  # (R, K, C) int64, to be added to the clusters' totals (`arithmetic.fixed_point.Totals`)
    changed: np.ndarray  # (R,) int64, points whose label is new


@dataclass(frozen=True, slots=True)
class SurveyPartial:
    """What a survey of some of the points saw."""

    costs: np.ndarray  # (3, R) int64, limbs of J
    value: np.ndarray  # (R, K, M) uint64, bits of the candidates' d² as float32, least first; NOBODY behind the last
    index: np.ndarray  # (R, K, M) int64, their rows; -1 behind the last
    inside: np.ndarray  # (R, K, L) bool, which tabu entries (k, n) have n, of positive weight, in cluster k


@dataclass(frozen=True, slots=True)
class Moves:
    """Single moves that would each lower J, by restart, then by row: at most one per point."""

    restart: np.ndarray  # (M,) int64
    row: np.ndarray  # (M,) int64
    source: np.ndarray  # (M,) int32, the cluster the point is in
    target: np.ndarray  # (M,) int32, the one to move it to

    def __len__(self) -> int:
        return len(self.row)

    def select(self, chosen: np.ndarray | slice) -> Moves:
        return Moves(self.restart[chosen], self.row[chosen], self.source[chosen], self.target[chosen])


@dataclass(frozen=True, slots=True)
class Transfers:
    """What it costs to hand single points of one cluster to another, for the assignment under bounds."""

    value: np.ndarray  # (S, K, M) int64, the least c(i, b) - c(i, a) over the points i of a; NEVER behind the last
    row: np.ndarray  # (S, K, M) int64, their rows; -1 behind the last
    sizes: np.ndarray  # (K,) int64, of the clusters


@dataclass(slots=True)
class NearestTwo:
    """The two nearest centres of every point, in R restarts."""

    first: Any  # (R, N) int32 on the backend, the nearest centre
    second: Any  # (R, N) int32, the next
    near: SquaredDistances  # canonical d² to the first
    far: SquaredDistances  # canonical d² to the second
    at: np.ndarray  # (R, K, d) float64 on the host, the centres that this holds for


@dataclass(frozen=True, slots=True)
class TrialBatch:
    """T trial labellings for each of R restarts: drawn from addressed words, never stored.

    Point i has, in trial t of restart r, word t·pitch + i of the stream (seed, r, TRIAL, step), the pitch being N
    rounded up to whole blocks of words. It keeps its label where that word is below `limit`. Elsewhere it takes
    another, every one of them as likely: of M other labels, in their order, number (low half of the word)·M >> 32.
    To a point without a label all K are others; to one that has the only label, none.

    With `centers` the label is drawn by distance: with r_k the root of the canonical d² to centers[r, k] and the
    largest of them m, label k has the share s_k = (1.5·m − r_k) + 0.5. It is the first at which the running sum of the
    shares exceeds their sum times (low half)·2^-32; it may be the one that the point has.

    With `cuts` nothing is drawn: with (a, b, c) = cuts[r, t], points of a get b, and those of c get a if they are
    nearer (canonical d²) to pairs[r, t, 1] than to pairs[r, t, 0].
    """

    k: int
    seed: int
    restarts: np.ndarray  # (R,) uint64, their numbers
    step: int
    n_trials: int
    limit: int
    given: np.ndarray | None = None  # (1 or R, N) int32: this is the only trial, and nothing is drawn
    centers: np.ndarray | None = None  # (R, K, d) float64
    cuts: np.ndarray | None = None  # (R, T, 3) int32
    pairs: np.ndarray | None = None  # (R, T, 2, d) float64
    total: int | None = None  # N, where a backend holds only a shard of the points,
    first: int = 0  # which begins with this row

    def pitch(self, n: int) -> int:
        return -(-(self.total or n) // BLOCK) * BLOCK


class Backend(ABC):
    """A data set held by a backend. A context: memory and threads are released on leaving it.

    Every method is a pass over the points that this backend holds, or handles what it keeps per point. Rows are
    counted from its own first point.
    """

    name: str
    points: Points
    tuning: Tuning = Tuning()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        return None

    # -- data --------------------------------------------------------------------------------------

    @abstractmethod
    def bounds_partial(self) -> Bounds:
        """The box around the points of positive weight; low = inf, high = -inf and weight 0 where there is none."""

    @abstractmethod
    def moments(self, grid: Grid) -> np.ndarray:
        """Totals of all points as one cluster on a grid: (C,) int64."""

    @abstractmethod
    def rows(self, indices: np.ndarray) -> np.ndarray:
        """The points with these row numbers, float64 on the host: (...,) -> (..., d)."""

    # -- labels ------------------------------------------------------------------------------------

    @abstractmethod
    def blank_labels(self, restarts: int) -> Labels:
        """Labels of -1."""

    @abstractmethod
    def take_labels(self, labels: Labels, restarts: np.ndarray) -> Labels:
        """A copy of the labels of these restarts, in this order; a restart may be asked for twice."""

    @abstractmethod
    def fetch_labels(self, labels: Labels, restart: int) -> np.ndarray:
        """The labels of one restart as a host array, (N,) int32."""

    @abstractmethod
    def label(self, centers: np.ndarray) -> Labels:
        """The nearest of centers (R, K, d) for every point, and nothing else (no grid is needed)."""

    @abstractmethod
    def relabel(self, labels: Labels, moves: Moves) -> None:
        """Give the points of `moves` their target as label."""

    # -- K-Means -----------------------------------------------------------------------------------

    @abstractmethod
    def assign(self, centers: np.ndarray, labels: Labels) -> Assignment:
        """Relabel every point by its nearest centre (eq. 4, eq. 15) and say what that changes in the totals.

        centers (R, K, d) float64; labels are overwritten. A caller that adds up what is returned, from blank
        labels on, has the exact totals of every cluster: integers, so differences lose nothing.
        """

    @abstractmethod
    def objective_partial(self, centers: np.ndarray, labels: Labels, exponent: int) -> np.ndarray:
        """Limbs of Σ w d² to the own centre, each term at most 2^exponent: (R, K, d) float64 -> (3, R) int64."""

    @abstractmethod
    def spreads_partial(self, centers: np.ndarray, labels: Labels, exponent: int) -> np.ndarray:
        """Limbs of Σ w d per cluster, d not squared, each term at most 2^exponent: (R, K, d) -> (2, R, K) int64."""

    @abstractmethod
    def farthest_partial(self, centers: np.ndarray, labels: Labels, restart: int, count: int, scale: int) -> np.ndarray:
        """The `count` points of positive weight farthest from their centre, farthest first: at most (count,) of FAR.

        centers (K, d). The value is d² times 2^scale, rounded to float32; the lowest row on ties. Points whose value
        is at most ON_CENTER count as on their centre and are left out: there may be fewer.
        """

    @abstractmethod
    def closest_partial(self, centers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The point of positive weight nearest to each centre: (K, d) -> d² (K,) float64 and rows (K,) int64.

        d² is infinite where no point has weight.
        """

    @abstractmethod
    def distances(self, centers: np.ndarray) -> Any:
        """Euclidean distance of every point to every centre, (N, K) in the dtype of the points and where they are."""

    # -- survey ------------------------------------------------------------------------------------

    @abstractmethod
    def survey_partial(
        self, centers: np.ndarray, labels: Labels, tabu: np.ndarray, shared: bool, best: int
    ) -> SurveyPartial:
        """J (eq. 2) at `centers`, and per cluster the `best` points nearest to its centre that are free.

        centers (R, K, d) float64; tabu (R, K, L) int64, padded with -1. Entry (k, n) forbids n if n is in
        cluster k, or in any cluster where `shared`. Points of weight zero are never free.
        """

    # -- seeding -----------------------------------------------------------------------------------

    @abstractmethod
    def infinite_sq_dist(self, restarts: int) -> SquaredDistances:
        """Squared distances to the nearest of no seeds: +inf."""

    @abstractmethod
    def lower_sq_dist(self, seeds: np.ndarray, min_sq_dist: SquaredDistances) -> None:
        """Lower `min_sq_dist` to the squared distance to seeds (R, d) where that is less."""

    @abstractmethod
    def potential(self, min_sq_dist: SquaredDistances, shift: np.ndarray) -> np.ndarray:
        """Σ_n rint(w_n · min_sq_dist_n · 2^shift), in integers: (R,) -> (R,) int64."""

    @abstractmethod
    def seed_gains(self, seeds: np.ndarray, min_sq_dist: SquaredDistances, shift: np.ndarray) -> np.ndarray:
        """How much less the potential would be with each as one more seed: (R, T, d) -> (R, T) int64."""

    @abstractmethod
    def sample(self, min_sq_dist: SquaredDistances, shift: np.ndarray, targets: np.ndarray) -> np.ndarray:
        """First row at which the running potential exceeds the target: (R,), (R, T) int64 -> (R, T) int64.

        -1 for a target that is negative, or not below the potential.
        """

    # -- single moves ------------------------------------------------------------------------------

    @abstractmethod
    def find_moves(self, centers: np.ndarray, totals: np.ndarray, labels: Labels) -> Moves:
        """Every point's best move to another cluster, of those that lower J (`arithmetic.rules`).

        centers (R, K, d) are the centroids of totals (R, K, C), those of `labels`, in which every point has a cluster.
        """

    # -- bounded sizes -----------------------------------------------------------------------------

    @abstractmethod
    def transfers_partial(
        self,
        centers: np.ndarray,
        labels: Labels,
        prices: np.ndarray | None,
        sources: np.ndarray,
        count: int,
        measure: Measure,
    ) -> Transfers:
        """For each of the clusters a in `sources` and every b the `count` points of a that cost least to hand to b.

        centers (K, d), labels (1, N), prices (K,) int64, sources (S,) int64 in ascending order. Costs c(i, k) are
        canonical squared distances in integers (`arithmetic.transport.Measure`): d², times the weight where
        `measure.weighted`, times `scale`, each product rounded, and the last one to the nearest integer, even on ties.
        With `prices` every point is first relabelled by the least c(i, k) + prices[k], the lowest number on ties; a
        point of weight zero, which has no size, by the least d². Then come the least pairs (c(i, b) - c(i, a), row)
        over the points i of positive weight in a, least first; none for b = a. `value` is NEVER and `row` -1 behind
        the last. A backend that cannot sort that many makes all lists shorter.
        """

    # -- relocation --------------------------------------------------------------------------------

    @abstractmethod
    def nearest_two(self, centers: np.ndarray, previous: NearestTwo | None = None) -> NearestTwo:
        """The two nearest of centers (R, K, d), K >= 2, for every point: the lowest numbers on ties.

        `previous` is brought up to date and returned; where centres have not moved since, there is nothing to do.
        """

    @abstractmethod
    def reassign_partial(
        self, nearest: NearestTwo, labels: Labels, mass: np.ndarray | None, active: np.ndarray
    ) -> tuple[Assignment, np.ndarray]:
        """Relabel the points of the restarts `active` (R,) bool: what that changes, and the limbs of J (3, R) int64.

        To the nearest centre or, with the masses (R, 2, K) of the clusters (`arithmetic.rules.masses`), by Hartigan's
        rule between the two nearest, all points at once (`arithmetic.rules`). J is that of the new labels at the
        centres of `nearest`; 0 for the other restarts.
        """

    @abstractmethod
    def swap_gains_partial(self, candidates: np.ndarray, nearest: NearestTwo) -> tuple[np.ndarray, np.ndarray]:
        """What changes if a candidate replaces a centre: (R, T, d) -> limbs (R, K, 3), (R, T, K + 1, 3) int64.

        The first are what a centre's points lose with it; the second how a candidate changes that, and last what it
        saves. `arithmetic.rules.swapped` makes ΔJ of them, and has the formula.
        """

    # -- trial labellings --------------------------------------------------------------------------

    @abstractmethod
    def evaluate_trials_partial(self, labels: Labels, trials: TrialBatch) -> tuple[np.ndarray, np.ndarray]:
        """What each trial changes: in the totals (R, T, K, C) int64, in the fingerprint (R, T, 2) uint64.

        Every point has a cluster in `labels`. The fingerprint of a labelling is the sum of label_i times the words 2i
        and 2i + 1 of the stream (seed, 0, PRINT, 0), modulo 2^64 each.
        """

    @abstractmethod
    def apply_trial(
        self, labels: Labels, best: Labels, trials: TrialBatch, chosen: np.ndarray, better: np.ndarray
    ) -> Assignment:
        """Relabel restart r by trial chosen[r], or not where that is -1, and say what changes in the totals.

        chosen (R,) int, better (R,) bool. Where better[r], the new labels are copied to `best` as well.
        """

    @abstractmethod
    def evaluate_steps_partial(
        self, centers: np.ndarray, moves: tuple[np.ndarray, np.ndarray] | None, trials: TrialBatch
    ) -> tuple[np.ndarray, np.ndarray]:
        """What S labellings by centers would be, which are not stored: totals (S, K, C), fingerprints (S, 2) uint64.

        A point has the label of the nearest of centers (S, K, d). With `moves`, the centroids (S, K, d) and masses
        (S, 2, K) of these clusters, it then has the label that Hartigan's rule moves it to, as `find_moves` does, all
        points at once. Fingerprints are sums of label_i times the words that `evaluate_trials_partial` names.
        """

    @abstractmethod
    def member_keys_partial(self, labels: Labels, clusters: np.ndarray, trials: TrialBatch) -> np.ndarray:
        """Two random members of a cluster for each trial: clusters (R, T) -> least and largest key, (R, T, 2) uint64.

        The key of point i, of positive weight, is its word in that trial with the lowest ROW_BITS bits replaced by its
        row number among all points. 2^64 - 1 and 0 where a cluster has no members.
        """

    # -- splits ------------------------------------------------------------------------------------

    @abstractmethod
    def split_assign(self, children: np.ndarray, parents: Labels, labels: Labels) -> Assignment:
        """Relabel every point by the nearer of the two children of its cluster: what that changes in the totals.

        children (R, K, 2, d) float64; parents are labels below K, in which every point has a cluster. A point of
        cluster k gets the label 2k or 2k + 1, the first on ties; the totals have 2K clusters.
        """

    @abstractmethod
    def axis_partial(self, centers: np.ndarray, axes: np.ndarray, labels: Labels, exponent: int) -> np.ndarray:
        """Limbs of Σ w p (x − c) per cluster, p = ⟨x − c, a⟩, each term at most 2^exponent: -> (2, R, K, d) int64.

        centers and axes (R, K, d) float64. Products (x_j − c_j)·a_j are added in the order of j; a term is
        (x_j − c_j)·p, then times w. Clusters whose axis is zero are left out.
        """

    @abstractmethod
    def histogram_partial(
        self, centers: np.ndarray, axes: np.ndarray, labels: Labels, slots: np.ndarray, n_slots: int, bins: int
    ) -> np.ndarray:
        """Weight of the points of some clusters by p = ⟨x − c, a⟩, as above: -> (L, n_slots, bins) int64.

        slots (R, K) int32: where in the result a cluster is counted, or -1. A point is in bin ⌊p + bins/2⌋, in the
        first or the last where that is outside, in the first where it is no number. Without weights, L = 1 and points
        are counted; with weights L = 2, for the limbs of the weight (`Grid.weight`).
        """

    # -- fuzzy memberships -------------------------------------------------------------------------

    @abstractmethod
    def fuzzy_partial(self, centers: np.ndarray, m: float, exponent: int) -> tuple[np.ndarray, np.ndarray]:
        """What fuzzy memberships sum up to: (R, K, d) float64 -> limbs (2, R, K, d + 1), and of J (3, R), int64.

        With u_k and (Σ g)^(m − 1) as `arithmetic.powers` has them and f = u_k^m, times w with weights, the sums are of
        rint(f · ((x_j − offset_j) · 2^(TERM − coordinate_j))), last of rint(f · 2^(TERM − weight)), by the grid. The
        lower limb is from 0 to 2^LIMB (`fixed_point.carried`). J is of d / (Σ g)^(m − 1), times w,
        each at most 2^exponent.
        """

    @abstractmethod
    def memberships(self, centers: np.ndarray, m: float) -> Any:
        """u of every point in every cluster, (N, K) in the dtype of the points and where they are."""
