"""The two nearest centres of every point, and what relocation makes of them, in NumPy (formulas: `arithmetic.rules`).

The change of J that a candidate brings differs from d₂ − d₁ only where d_c < d₂: at few points, which a fast product
finds. All brackets are rounded to the grid of J and added in integers.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from gputabu.backend.arithmetic import canonical
from gputabu.backend.arithmetic.constants import NOISE
from gputabu.backend.arithmetic.fixed_point import Totals, limbs
from gputabu.backend.arithmetic.rules import moved
from gputabu.backend.contract import Assignment, NearestTwo
from gputabu.backend.numpy.seeding import NumpySeeding
from gputabu.backend.numpy.tiling import Task
from gputabu.data.points import Block


class NumpyRelocation(NumpySeeding):
    """The passes of relocation."""

    def no_nearest_two(self, centers: np.ndarray) -> NearestTwo:
        """Room for the two nearest, which hold for none of the centers (R, K, d) yet."""
        first, second = self.allocate((2, len(centers), self.points.n), np.int32, 0)
        near, far = self.allocate((2, len(centers), self.points.n), np.float64, 0)
        return NearestTwo(first, second, near, far, np.full(centers.shape, np.nan))

    def nearest_two(self, centers: np.ndarray, previous: NearestTwo | None = None) -> NearestTwo:
        nearest = self.no_nearest_two(centers) if previous is None else previous
        scratch = self.workers.scratch
        stale = np.flatnonzero(moved(centers, nearest.at).any(axis=1))

        def look(tasks: Iterable[Task]) -> None:
            for block, _ in tasks:
                everyone = np.arange(len(block.X))
                for r in stale:
                    squares = canonical.to_all(block.X, centers[r], scratch)  # (K, n)
                    for label, square in ((nearest.first, nearest.near), (nearest.second, nearest.far)):
                        least = squares.argmin(axis=0)  # the first of equals
                        label[r, block.rows], square[r, block.rows] = least, squares[least, everyone]
                        squares[least, everyone] = np.inf

        self.workers.map(look, self.tasks(1, centers.shape[1]))
        nearest.at[stale] = centers[stale]
        return nearest

    def reassign_partial(
        self, nearest: NearestTwo, labels: np.ndarray, mass: np.ndarray | None, active: np.ndarray
    ) -> tuple[Assignment, np.ndarray]:
        r, k, d = nearest.at.shape
        totals = np.zeros((r, k, Totals.columns(d, self.points.weights is not None)), np.int64)
        changed, costs = np.zeros(r, np.int64), np.zeros((3, r), np.int64)
        self.grid  # noqa: B018 (made by the workers, and so not from within them)

        def relabel(tasks: Iterable[Task]) -> list[tuple[int, np.ndarray | int, int, list[int]]]:
            parts = []
            for block, _ in tasks:
                for restart in np.flatnonzero(active).tolist():
                    one = slice(restart, restart + 1)
                    old, first = labels[one, block.rows], nearest.first[one, block.rows]
                    new = first if mass is None else stays(block, nearest, old, mass, restart)
                    squares = np.where(new == first, nearest.near[one, block.rows], nearest.far[one, block.rows])
                    if block.weights is not None:
                        squares *= block.weights
                    cost = [int(limb.sum()) for limb in limbs(squares, self.grid.cost, 3)]
                    moves = old != new
                    change = self.change_of_totals(block, old, new, moves, k)[0] if moves.any() else 0
                    parts.append((restart, change, int(moves.sum()), cost))
                    old[...] = new
            return parts

        for part in self.workers.map(relabel, self.tasks(1, k)):
            for restart, sums, count, cost in part:
                totals[restart] += sums
                changed[restart] += count
                costs[:, restart] += cost
        return Assignment(totals, changed), costs

    def swap_gains_partial(self, candidates: np.ndarray, nearest: NearestTwo) -> tuple[np.ndarray, np.ndarray]:
        (r, t, _), k, cost = candidates.shape, nearest.at.shape[1], self.grid.cost

        def add(tasks: Iterable[Task]) -> tuple[np.ndarray, np.ndarray]:
            loss, change = np.zeros((r * k, 3), np.int64), np.zeros((r * t * (k + 1), 3), np.int64)
            for block, group, (restart, seed, point), squares in self.nearer(candidates, nearest.far, tasks):
                first, near, far = (side[group, block.rows] for side in (nearest.first, nearest.near, nearest.far))
                weight = np.ones(len(block.X)) if block.weights is None else block.weights
                base = np.arange(group.start, group.stop)
                without = _limbs((far - near) * weight, cost)  # (R', n, 3) what a point loses with its nearest centre
                own = (base[:, None] * k + first).ravel()
                for limb in range(3):  # integers up to 2^28 from at most 2^16 rows: exact in float64
                    loss[:, limb] += np.bincount(own, without[..., limb].ravel(), r * k).astype(np.int64)
                d1, heavy, slot = near[restart, point], weight[point], base[restart] * t + seed
                lost = _limbs((squares - np.minimum(d1, squares)) * heavy, cost) - without[restart, point]
                np.add.at(change, slot * (k + 1) + first[restart, point], lost)
                gained = _limbs(np.maximum(d1 - squares, 0.0) * heavy, cost)
                np.add.at(change, slot * (k + 1) + k, gained)
            return loss, change

        loss, change = (np.sum(side, axis=0) for side in zip(*self.workers.map(add, self.tasks(r, t)), strict=True))
        return loss.reshape(r, k, 3), change.reshape(r, t, k + 1, 3)


def stays(block: Block, nearest: NearestTwo, old: np.ndarray, mass: np.ndarray, r: int) -> np.ndarray:
    """Where each point of a block settles: (1, n) labels -> (1, n) labels."""
    at = (slice(r, r + 1), block.rows)
    first, second, near, far = (side[at] for side in (nearest.first, nearest.second, nearest.near, nearest.far))
    weight = 1.0 if block.weights is None else block.weights
    inner = old == first
    own, other = np.where(inner, first, second), np.where(inner, second, first)
    own_sq, other_sq = np.where(inner, near, far), np.where(inner, far, near)
    left, right = mass[r, 0][own], mass[r, 1][other]
    rest = left - weight
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):  # where a point may not leave, or has no weight
        leave, enter = left / rest * own_sq, right / (right + weight) * other_sq
        better = (rest > 0) & (leave - enter > NOISE * leave)
    kept = np.where(better, other, own)
    return np.where((inner | (old == second)) & (weight > 0), kept, first)


def _limbs(values: np.ndarray, cost: int) -> np.ndarray:
    """(...) -> (..., 3) int64. Destroys `values`."""
    return np.stack(limbs(values, cost, 3), axis=-1).astype(np.int64)
