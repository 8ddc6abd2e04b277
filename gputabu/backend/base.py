"""From exact partial results to those of `Ops`: the same for a backend that holds all points and for parts of them.

What is abstract here is a pass over the points a backend holds. Its result can be merged with that of other points
without loss: integers are added, minima of (value, row) pairs compared. What is computed here follows from such results
and from the box and grid of all points. So a backend has the operations of `Ops` once it has the passes, and
`gputabu.backend.sharded` has the passes once each part has them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gputabu.backend.arithmetic import rules
from gputabu.backend.arithmetic.fixed_point import Bounds, Grid, check_span, from_limbs, spread_exponent
from gputabu.backend.contract import (
    Assigned,
    Descended,
    Descending,
    Explored,
    Improved,
    Labels,
    Lot,
    Moves,
    Orders,
    Pairs,
    Roamed,
    Roaming,
    Settled,
    Surveyed,
)
from gputabu.core.caching import cached_property
from gputabu.core.validation import check_range
from gputabu.data.memmaps import temporary
from gputabu.data.points import Points

#: A point and its squared distance, by which the farthest are found; the cluster it is in.
FAR = np.dtype([("value", np.float32), ("row", np.int64), ("owner", np.int32)])
#: Coordinates of the points whose moves are walked at a time.
WALKED = 1 << 22


@dataclass(frozen=True, slots=True)
class Seen:
    """What a survey saw among some of the points."""

    costs: np.ndarray  # (3, R) int64, limbs of J
    value: np.ndarray  # (R, K, M) uint64, bits of the candidates' d² as float32, least first; NOBODY behind the last
    index: np.ndarray  # (R, K, M) int64, their rows; -1 behind the last
    inside: np.ndarray  # (R, K, L) bool


class Exact(ABC):
    """A holder of points. The abstract methods are passes over its own points, with their own row numbers."""

    name: str
    points: Points

    # -- passes; see `Ops` for what they belong to -------------------------------------------------

    @abstractmethod
    def box(self) -> Bounds:
        """The bounds of these points; of weight 0 where none has a positive one."""

    @abstractmethod
    def moments(self, grid: Grid) -> np.ndarray:
        """Totals of all points as one cluster on a grid: (C,) int64."""

    @abstractmethod
    def seen(self, centers: np.ndarray, labels: Labels, tabu: np.ndarray, shared: bool, best: int) -> Seen:
        """As `survey`."""

    @abstractmethod
    def costs(self, centers: np.ndarray, labels: Labels, exponent: int) -> np.ndarray:
        """Limbs of Σ w d², at most 2^exponent each: (3, R) int64."""

    @abstractmethod
    def lengths(self, centers: np.ndarray, labels: Labels, exponent: int) -> np.ndarray:
        """Limbs of Σ w d per cluster, at most 2^exponent each: (2, R, K) int64."""

    @abstractmethod
    def far(self, centers: np.ndarray, labels: Labels, restart: int, count: int, scale: int) -> np.ndarray:
        """As `farthest`, of d² times 2^scale: at most (count,) of FAR."""

    @abstractmethod
    def near(self, centers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """As `closest`: d² (K,), infinite where no point has weight, and rows (K,)."""

    @abstractmethod
    def put(self, labels: Labels, moves: Moves) -> None:
        """Relabel these points."""

    @abstractmethod
    def settled(
        self, pairs: Pairs, labels: Labels, mass: np.ndarray | None, who: np.ndarray
    ) -> tuple[Assigned, np.ndarray]:
        """As `settle`, with the limbs of J (3, R)."""

    @abstractmethod
    def swaps(self, candidates: np.ndarray, pairs: Pairs) -> tuple[np.ndarray, np.ndarray]:
        """Limbs that `rules.swapped` makes the gains of: (R, K, 3), (R, T, K + 1, 3) int64."""

    @abstractmethod
    def trial_changes(self, labels: Labels, lot: Lot) -> tuple[np.ndarray, np.ndarray]:
        """What each trial changes: in the totals (R, T, K, C) int64, in the print (R, T, 2) uint64."""

    @abstractmethod
    def rows(self, indices: np.ndarray) -> np.ndarray: ...

    @abstractmethod
    def label(self, centers: np.ndarray) -> Labels: ...

    # -- what they have in common ------------------------------------------------------------------

    @cached_property
    def bounds(self) -> Bounds:
        bounds = self.box()
        check_range(float(bounds.low.min()), float(bounds.high.max()), "X")
        check_span(bounds)
        return bounds

    @cached_property
    def grid(self) -> Grid:
        # The middle of the box serves to find the mean; the mean keeps outliers from costing precision.
        bounds, dtype = self.bounds, self.points.dtype
        middle = (bounds.low / 2 + bounds.high / 2).astype(dtype).astype(float)
        first = Grid.around(bounds, middle)
        mean = first.centroids(self.moments(first)[None, None], middle)[0, 0].astype(dtype).astype(float)
        return Grid.around(bounds, np.clip(mean, bounds.low, bounds.high))

    def agree(self, bounds: Bounds, grid: Grid) -> None:
        """Take the box and the grid of all points, of which these are a part."""
        self.bounds, self.grid = bounds, grid

    @cached_property
    def scatter(self) -> float:
        center = self.grid.offset[None, None]
        return float(self.objective(center, self.label(center))[0])

    def room(self, shape: tuple[int, ...], dtype: Any, value: float) -> np.ndarray:
        """An array on the host with an entry per point; in a file where the points are."""
        return temporary(shape, dtype, value) if self.points.out_of_core else np.full(shape, value, dtype)

    # -- from limbs and pairs to numbers and rows --------------------------------------------------

    def survey(self, centers: np.ndarray, labels: Labels, tabu: np.ndarray, shared: bool, best: int) -> Surveyed:
        seen = self.seen(centers, labels, tabu, shared, best)
        return Surveyed(from_limbs(*seen.costs, exponents=self.grid.cost), seen.index, seen.inside)

    def objective(self, centers: np.ndarray, labels: Labels) -> np.ndarray:
        cost = self._wide(centers).cost
        return from_limbs(*self.costs(centers, labels, cost), exponents=cost)

    def spreads(self, centers: np.ndarray, labels: Labels) -> np.ndarray:
        reach = spread_exponent(self._wide(centers))
        return from_limbs(*self.lengths(centers, labels, reach), exponents=reach)

    def farthest(self, centers: np.ndarray, labels: Labels, restart: int, count: int) -> tuple[np.ndarray, np.ndarray]:
        found = self.far(centers, labels, restart, count, 100 - self._wide(centers).square)
        return found["row"], found["owner"]

    def closest(self, centers: np.ndarray) -> np.ndarray:
        return self.near(centers)[1]

    def settle(self, pairs: Pairs, labels: Labels, mass: np.ndarray | None, who: np.ndarray) -> Settled:
        done, costs = self.settled(pairs, labels, mass, who)
        return Settled(done.totals, done.changed, from_limbs(*costs, exponents=self.grid.cost))

    def swap_gains(self, candidates: np.ndarray, pairs: Pairs) -> np.ndarray:
        return rules.swapped(*self.swaps(candidates, pairs), self.grid.cost)

    def shift(self, centers: np.ndarray, totals: np.ndarray, labels: Labels, moves: Moves) -> np.ndarray:
        count, some = np.zeros(len(centers), np.int64), max(1, WALKED // self.points.d)
        for a in range(0, len(moves), some):
            batch = moves.some(slice(a, a + some))
            made = batch.some(self.walk(self.rows(batch.row), batch, centers, totals))
            self.put(labels, made)
            count += np.bincount(made.restart, minlength=len(count))
        return count

    def walk(self, X: np.ndarray, moves: Moves, centers: np.ndarray, totals: np.ndarray) -> np.ndarray:
        """Make the moves of points X (M, d) in turn, as `rules.walk`: (M,) bool."""
        weights = None if self.points.weights is None else self.points.weights_at(moves.row)
        return rules.walk(
            self.grid, rules.slack(self.bounds), X, weights, moves.restart, moves.source, moves.target, centers, totals
        )

    def _wide(self, centers: np.ndarray) -> Grid:
        """The grid of a box that holds these centres too."""
        return Grid.around(self.bounds.joined(centers), self.grid.offset)

    # -- whole restarts: pass by pass, unless a backend has a way of its own ------------------------

    def explore(self, means: np.ndarray, orders: Orders) -> Explored | None:
        return None

    def descend(self, centers: np.ndarray, orders: Descending) -> Descended | None:
        return None

    def improve(self, centers: np.ndarray, max_rounds: int, interrupted: Callable[[], bool]) -> Improved | None:
        return None

    def roam(self, centers: np.ndarray, orders: Roaming) -> Roamed | None:
        return None


def farthest(found: np.ndarray, count: int) -> np.ndarray:
    """The `count` entries of FAR with the largest value, largest first; the lowest row on ties."""
    return found[np.lexsort((found["row"], -found["value"]))[:count]]


def nearest(value: Any, rows: Any) -> tuple[np.ndarray, np.ndarray]:
    """The least (value, row) of every column: (P, K), (P, K) -> (K,), (K,)."""
    value, rows = np.asarray(value), np.asarray(rows)
    first = np.lexsort((rows, value), axis=0)[0], np.arange(value.shape[1])
    return value[first], rows[first]
