"""What every backend makes of its passes: numbers from limbs, rows from keys, the box and the grid of all points.

`gputabu.backend.contract` has the passes. What is here follows from their results alone, so it is the same for a
backend that holds all points and for shards of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gputabu.backend.arithmetic import rules
from gputabu.backend.arithmetic.constants import KEY_BITS, LIMB
from gputabu.backend.arithmetic.fixed_point import (
    Bounds,
    Grid,
    Totals,
    check_span,
    from_limbs,
    quantize,
    spread_exponent,
)
from gputabu.backend.arithmetic.powers import TERM
from gputabu.backend.arithmetic.transport import Measure
from gputabu.backend.contract import Assignment, Backend, Labels, Moves, NearestTwo, TrialBatch
from gputabu.backend.loops import Loops
from gputabu.core.caching import cached_property
from gputabu.core.validation import check_range
from gputabu.data.memmaps import temporary
from gputabu.data.points import Points

#: Coordinates of the points whose moves are made at a time.
MOVED_ELEMENTS = 1 << 22


@dataclass(frozen=True, slots=True)
class Survey:
    """What `survey` saw."""

    cost: np.ndarray  # (R,) float64, J at the given centres
    index: np.ndarray  # (R, K, M) int64, the best free points per cluster, best first; -1 behind the last
    inside: np.ndarray  # (R, K, L) bool, which tabu entries (k, n) have n, of positive weight, in cluster k


@dataclass(frozen=True, slots=True)
class Reassigned(Assignment):
    """What `reassign` changed."""

    cost: np.ndarray  # (R,) float64, J of the new labels at the centres before; 0 for restarts left alone


@dataclass(frozen=True, slots=True)
class TrialCosts:
    """What `evaluate_trials` found."""

    cost: np.ndarray  # (R, T) float64, J at the centroids
    fingerprints: np.ndarray  # (R, T, 2) uint64, to be added to that of the labels that were changed


@dataclass(frozen=True, slots=True)
class StepCosts:
    """What `evaluate_steps` found."""

    totals: np.ndarray  # (S, K, C) int64
    cost: np.ndarray  # (S,) float64, J at the centroids
    fingerprints: np.ndarray  # (S, 2) uint64, of the labels as they are


class BackendBase(Backend):
    """What algorithms see of a backend: the passes of the contract, and the numbers made of them."""

    @property
    def loops(self) -> Loops:
        """Loops that the backend can run by itself."""
        return Loops()

    def of_same_kind(self, points: Points) -> BackendBase:
        """A backend like this one for other points, few and in memory; to be used as a context."""
        return type(self)(points)  # type: ignore[call-arg]

    # -- data --------------------------------------------------------------------------------------

    @cached_property
    def bounds(self) -> Bounds:
        """Box around the points of positive weight."""
        bounds = self.bounds_partial()
        check_range(float(bounds.low.min()), float(bounds.high.max()), "X")
        check_span(bounds)
        return bounds

    @cached_property
    def grid(self) -> Grid:
        """Fixed-point grid; its offset is the weighted mean, rounded to the dtype of the points."""
        # The middle of the box serves to find the mean; the mean keeps outliers from costing precision.
        bounds, dtype = self.bounds, self.points.dtype
        middle = (bounds.low / 2 + bounds.high / 2).astype(dtype).astype(float)
        first = Grid.around(bounds, middle)
        mean = first.centroids(self.moments(first)[None, None], middle)[0, 0].astype(dtype).astype(float)
        return Grid.around(bounds, np.clip(mean, bounds.low, bounds.high))

    def adopt_grid(self, bounds: Bounds, grid: Grid) -> None:
        """Take the box and the grid of all points, of which these are a shard."""
        self.bounds, self.grid = bounds, grid

    @cached_property
    def scatter(self) -> float:
        """J of one cluster centred at the grid's offset."""
        center = self.grid.offset[None, None]
        return float(self.objective(center, self.label(center))[0])

    def allocate(self, shape: tuple[int, ...], dtype: Any, value: float) -> np.ndarray:
        """An array on the host with an entry per point; in a file where the points are."""
        return temporary(shape, dtype, value) if self.points.out_of_core else np.full(shape, value, dtype)

    def result_labels(self, labels: Labels, restart: int) -> np.ndarray:
        """What the result of a search has for labels: those of one restart, (N,) int32."""
        return self.fetch_labels(labels, restart)

    def set_labels(self, labels: Labels, values: np.ndarray, k: int) -> Assignment:
        """Give labels (R, N) these values, (R, N) int32 on the host, and say what that changes in the totals."""
        r = len(values)
        given = TrialBatch(k, 0, np.zeros(r, np.uint64), step=0, n_trials=1, limit=0, given=values)
        return self.apply_trial(labels, labels, given, np.zeros(r, np.int64), np.zeros(r, np.bool_))

    # -- K-Means -----------------------------------------------------------------------------------

    def objective(self, centers: np.ndarray, labels: Labels) -> np.ndarray:
        """J at any centres, also outside the box of the points: (R, K, d) float64 -> (R,) float64."""
        cost = self._grid_around(centers).cost
        return from_limbs(*self.objective_partial(centers, labels, cost), exponents=cost)

    def spreads(self, centers: np.ndarray, labels: Labels) -> np.ndarray:
        """Σ w ‖x − c_k‖ over the points of every cluster, not squared: (R, K, d) float64 -> (R, K) float64."""
        reach = spread_exponent(self._grid_around(centers))
        return from_limbs(*self.spreads_partial(centers, labels, reach), exponents=reach)

    def farthest(self, centers: np.ndarray, labels: Labels, restart: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        """The `count` points of positive weight farthest from their centre, farthest first.

        centers (K, d) -> row numbers and their clusters. Compares d² rounded to float32; the lowest row
        number on ties. Points on their centre, to a 2^-40 of the box, are left out: there may be fewer.
        """
        scale = KEY_BITS - self._grid_around(centers).square
        found = self.farthest_partial(centers, labels, restart, count, scale)
        return found["row"], found["owner"]

    def fill_empty(
        self, centers: np.ndarray, labels: Labels, totals: np.ndarray, restarts: np.ndarray | None = None
    ) -> np.ndarray:
        """Give empty clusters the points farthest from their centres, one each, as scikit-learn does.

        The point leaves the total of its old cluster; labels follow at the next assignment. centers (R, K, d) are
        those the labels were made with. Returns the totals (R, K, C) to take the centroids of. `restarts` are those to
        look at, all by default.
        """
        empty = Totals.counts(totals) == 0  # (R, K)
        wanted = np.flatnonzero(empty.any(axis=1))
        if restarts is not None:
            wanted = np.intersect1d(wanted, restarts)
        if len(wanted) == 0:
            return totals
        totals = totals.copy()
        for r in wanted:
            rows, owners = self.farthest(centers[r], labels, int(r), int(empty[r].sum()))
            weights = None if self.points.weights is None else self.points.weights_at(rows)
            terms = np.concatenate(quantize(self.rows(rows), weights, self.grid), axis=1).astype(np.int64)
            for k, owner, term in zip(np.flatnonzero(empty[r]), owners, terms, strict=False):
                totals[r, owner] -= term
                totals[r, k] = term
        return totals

    def closest(self, centers: np.ndarray) -> np.ndarray:
        """Row number of the point of positive weight nearest to each centre: (K, d) -> (K,) int64."""
        return self.closest_partial(centers)[1]

    def _grid_around(self, centers: np.ndarray) -> Grid:
        """The grid of a box that holds these centres too."""
        return Grid.around(self.bounds.joined(centers), self.grid.offset)

    # -- survey ------------------------------------------------------------------------------------

    def survey(self, centers: np.ndarray, labels: Labels, tabu: np.ndarray, shared: bool, best: int) -> Survey:
        """J at `centers` and the nearest free points per cluster: see `Backend.survey_partial`."""
        found = self.survey_partial(centers, labels, tabu, shared, best)
        return Survey(from_limbs(*found.costs, exponents=self.grid.cost), found.index, found.inside)

    # -- single moves ------------------------------------------------------------------------------

    def make_moves(self, centers: np.ndarray, totals: np.ndarray, labels: Labels, moves: Moves) -> np.ndarray:
        """Make the moves one after the other, where they still lower J; returns how many were made, (R,) int64.

        centers (R, K, d) are the centroids of totals (R, K, C), those of `labels`; all three follow, in place.
        """
        count, batch = np.zeros(len(centers), np.int64), max(1, MOVED_ELEMENTS // self.points.d)
        for a in range(0, len(moves), batch):
            tried = moves.select(slice(a, a + batch))
            made = tried.select(self.walk_moves(self.rows(tried.row), tried, centers, totals))
            self.relabel(labels, made)
            count += np.bincount(made.restart, minlength=len(count))
        return count

    def walk_moves(self, X: np.ndarray, moves: Moves, centers: np.ndarray, totals: np.ndarray) -> np.ndarray:
        """Make the moves of points X (M, d) in turn, as `rules.walk`: (M,) bool, which were made."""
        weights = None if self.points.weights is None else self.points.weights_at(moves.row)
        slack = rules.slack(self.bounds)
        return rules.walk(self.grid, slack, X, weights, moves.restart, moves.source, moves.target, centers, totals)

    # -- bounded sizes -----------------------------------------------------------------------------

    def measure(self, centers: np.ndarray, by_weight: bool) -> Measure:
        """How the costs of points in clusters around centers (K, d), and their sizes, become integers."""
        return Measure.of(self._grid_around(centers), len(centers), self.points.n, by_weight)

    # -- relocation --------------------------------------------------------------------------------

    def reassign(self, nearest: NearestTwo, labels: Labels, mass: np.ndarray | None, active: np.ndarray) -> Reassigned:
        """Relabel the points of some restarts between their two nearest centres: see `Backend.reassign_partial`."""
        done, costs = self.reassign_partial(nearest, labels, mass, active)
        return Reassigned(done.totals, done.changed, from_limbs(*costs, exponents=self.grid.cost))

    def swap_gains(self, candidates: np.ndarray, nearest: NearestTwo) -> np.ndarray:
        """Change of J at the centres of `nearest` if a candidate replaces a centre: (R, T, d) -> (R, T, K) float64."""
        return rules.swapped(*self.swap_gains_partial(candidates, nearest), self.grid.cost)

    # -- splits ------------------------------------------------------------------------------------

    def axis_step(self, centers: np.ndarray, axes: np.ndarray, labels: Labels) -> np.ndarray:
        """Σ w ⟨x − c, a⟩ (x − c) over the points of every cluster, ‖a‖ <= 1: (R, K, d), (R, K, d) -> (R, K, d) float64.

        The centres are in the box of the points.
        """
        return from_limbs(*self.axis_partial(centers, axes, labels, self.grid.cost), exponents=self.grid.cost)

    def histogram(
        self, centers: np.ndarray, axes: np.ndarray, labels: Labels, slots: np.ndarray, n_slots: int, bins: int
    ) -> np.ndarray:
        """Weight of the points of some clusters by their place on the axis, (n_slots, bins) float64."""
        counts = self.histogram_partial(centers, axes, labels, slots, n_slots, bins)
        return counts[0].astype(np.float64) if len(counts) == 1 else from_limbs(*counts, exponents=self.grid.weight)

    # -- fuzzy memberships -------------------------------------------------------------------------

    def fuzzy_step(self, centers: np.ndarray, m: float) -> tuple[np.ndarray, np.ndarray]:
        """A step of fuzzy c-means from centres in the box of the points: the next ones (R, K, d), and J (R,) before.

        A centre of which no point is a member stays.
        """
        (high, low), costs = self.fuzzy_partial(centers, m, self.grid.cost)
        spare = 2 * LIMB - TERM  # the sums have their binary point higher than limbs usually do
        weight = from_limbs(high[..., -1], low[..., -1], exponents=self.grid.weight + spare)[..., None]
        moments = from_limbs(high[..., :-1], low[..., :-1], exponents=self.grid.coordinate + spare)
        means = self.grid.offset + moments / np.where(weight > 0, weight, 1.0)
        inside = np.clip(means, self.bounds.low, self.bounds.high)  # as they are but for rounding
        return np.where(weight > 0, inside, centers), from_limbs(*costs, exponents=self.grid.cost)

    def fuzzy_cost(self, centers: np.ndarray, m: float) -> np.ndarray:
        """J of fuzzy c-means at any centres: (R, K, d) float64 -> (R,) float64."""
        outer = self._grid_around(centers).cost
        _, costs = self.fuzzy_partial(centers, m, outer)
        return from_limbs(*costs, exponents=outer)

    # -- trial labellings --------------------------------------------------------------------------

    def evaluate_trials(self, labels: Labels, totals: np.ndarray, trials: TrialBatch) -> TrialCosts:
        """J and fingerprint of every trial labelling, without making it.

        totals (R, K, C) are those of `labels`, in which every point has a cluster. J is `scatter` less
        `Grid.explained` of the trial's totals, and not less than zero.
        """
        change, fingerprints = self.evaluate_trials_partial(labels, trials)
        change += totals[:, None]
        return TrialCosts(np.maximum(self.scatter - self.grid.explained(change), 0.0), fingerprints)

    def evaluate_steps(self, centers: np.ndarray, moves: bool, trials: TrialBatch) -> StepCosts:
        """J, fingerprint and totals of the labels by the nearest of centers (S, K, d), without making them.

        With `moves`, of those after a sweep of single moves from there, all points at once.
        """
        totals, fingerprints = self.evaluate_steps_partial(centers, None, trials)
        if moves:
            rule = self.grid.centroids(totals, centers), rules.masses(self.grid, totals)
            totals, fingerprints = self.evaluate_steps_partial(centers, rule, trials)
        cost = np.maximum(self.scatter - self.grid.explained(totals), 0.0)
        return StepCosts(totals, cost, fingerprints)


def farthest(found: np.ndarray, count: int) -> np.ndarray:
    """The `count` entries of FAR with the largest value, largest first; the lowest row on ties."""
    return found[np.lexsort((found["row"], -found["value"]))[:count]]


def nearest(value: Any, rows: Any) -> tuple[np.ndarray, np.ndarray]:
    """The least (value, row) of every column: (P, K), (P, K) -> (K,), (K,)."""
    value, rows = np.asarray(value), np.asarray(rows)
    first = np.lexsort((rows, value), axis=0)[0], np.arange(value.shape[1])
    return value[first], rows[first]
