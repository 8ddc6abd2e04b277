"""The reference backend: every pass in NumPy, over cache-sized blocks and a few threads."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from gputabu.backend.arithmetic import canonical, certified
from gputabu.backend.arithmetic.constants import ON_CENTER
from gputabu.backend.arithmetic.fixed_point import Totals, limbs
from gputabu.backend.base import farthest, nearest
from gputabu.backend.contract import FAR, Assignment
from gputabu.backend.numpy.fuzzy import NumpyFuzzy
from gputabu.backend.numpy.hartigan import NumpyHartigan
from gputabu.backend.numpy.reassignment import NumpyReassignment
from gputabu.backend.numpy.relocation import NumpyRelocation
from gputabu.backend.numpy.splits import NumpySplits
from gputabu.backend.numpy.tabu_argmin import NumpyTabuArgmin
from gputabu.backend.numpy.tiling import Task
from gputabu.backend.numpy.transfers import NumpyTransfers


class NumpyBackend(
    NumpyTabuArgmin, NumpyRelocation, NumpyHartigan, NumpyReassignment, NumpySplits, NumpyTransfers, NumpyFuzzy
):
    """A data set on the host: data, labels and K-Means; seeding comes with relocation."""

    name = "numpy"

    def rows(self, indices: np.ndarray) -> np.ndarray:
        return self.points.rows(indices)

    def blank_labels(self, restarts: int) -> np.ndarray:
        return self.allocate((restarts, self.points.n), np.int32, -1)

    def take_labels(self, labels: np.ndarray, restarts: np.ndarray) -> np.ndarray:
        if not self.points.out_of_core:
            return labels[restarts]
        chosen = self.allocate((len(restarts), self.points.n), labels.dtype, 0)
        return np.take(labels, restarts, axis=0, out=chosen, mode="clip")

    def fetch_labels(self, labels: np.ndarray, restart: int) -> np.ndarray:
        return self.take_labels(labels, np.array([restart]))[0]

    def assign(self, centers: np.ndarray, labels: np.ndarray) -> Assignment:
        r, k, d = centers.shape
        fast = self.product(centers, self.grid.offset)
        totals = np.zeros((r, k, Totals.columns(d, self.points.weights is not None)), np.int64)
        changed = np.zeros(r, np.int64)

        def relabel(tasks: Iterable[Task]) -> list[tuple[slice, np.ndarray, np.ndarray]]:
            parts = []
            for block, group in tasks:
                old = labels[group, block.rows]
                new = certified.nearest(block.X, fast.select(group), self.workers.scratch)
                moved = old != new
                counts = np.count_nonzero(moved, axis=1)
                if counts.any():
                    parts.append((group, self.change_of_totals(block, old, new, moved, k), counts))
                    old[...] = new
            return parts

        for part in self.workers.map(relabel, self.tasks(r, k)):
            for group, sums, counts in part:
                totals[group] += sums
                changed[group] += counts
        return Assignment(totals, changed)

    def spreads_partial(self, centers: np.ndarray, labels: np.ndarray, exponent: int) -> np.ndarray:
        r, k, d = centers.shape
        flat = centers.reshape(r * k, d)

        def add(tasks: Iterable[Task]) -> np.ndarray:
            sums = np.zeros((2, r * k), np.int64)
            for block, group in tasks:
                owner = labels[group, block.rows] + np.arange(group.start, group.stop)[:, None] * k
                lengths = np.sqrt(canonical.to_own_center(block.X, flat, owner, self.workers.scratch))
                if block.weights is not None:
                    np.multiply(lengths, block.weights, out=lengths)
                for limb, values in enumerate(limbs(lengths, exponent, 2)):  # below 2^53 in a block: exact
                    sums[limb] += np.bincount(owner.ravel(), values.ravel(), minlength=r * k).astype(np.int64)
            return sums

        return np.sum(self.workers.map(add, self.tasks(r, k)), axis=0).reshape(2, r, k)

    def farthest_partial(
        self, centers: np.ndarray, labels: np.ndarray, restart: int, count: int, scale: int
    ) -> np.ndarray:
        def look(tasks: Iterable[Task]) -> np.ndarray:
            kept = np.empty(0, FAR)
            for block, _ in tasks:
                owner = labels[restart : restart + 1, block.rows].astype(np.intp)
                squares = canonical.to_own_center(block.X, centers, owner, self.workers.scratch)[0]
                with np.errstate(over="ignore"):  # points of weight 0 may be anywhere
                    values = np.ldexp(squares, scale).astype(np.float32)
                if block.weights is not None:
                    values[block.weights == 0] = 0
                far = np.flatnonzero(values > ON_CENTER)  # nearer than 2^-40 of the box: on the centre
                part = np.empty(len(far), FAR)
                part["value"], part["row"], part["owner"] = values[far], block.start + far, owner[0, far]
                kept = farthest(np.concatenate([kept, part]), count)
            return kept

        parts = self.workers.map(look, self.tasks(1, len(centers)))
        return farthest(np.concatenate(parts), count)

    def closest_partial(self, centers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        def look(tasks: Iterable[Task]) -> tuple[np.ndarray, np.ndarray]:
            value, row = np.full(len(centers), np.inf), np.zeros(len(centers), np.int64)
            for block, _ in tasks:
                squares = canonical.to_all(block.X, centers, self.workers.scratch)
                if block.weights is not None:
                    squares[:, block.weights == 0] = np.inf
                i = squares.argmin(axis=1)  # the first of equals
                least = squares[np.arange(len(centers)), i]
                better = (least < value) | ((least == value) & (block.start + i < row))
                value, row = np.where(better, least, value), np.where(better, block.start + i, row)
            return value, row

        parts = self.workers.map(look, self.tasks(1, len(centers)))
        return nearest(*zip(*parts, strict=True))

    def label(self, centers: np.ndarray) -> np.ndarray:
        r, k, d = centers.shape
        labels = self.allocate((r, self.points.n), np.int32, 0)
        if k == 1:
            return labels
        middle = centers.reshape(-1, d).mean(axis=0).astype(self.points.dtype).astype(float)
        fast = self.product(centers, middle)

        def look(tasks: Iterable[Task]) -> None:
            for block, group in tasks:
                labels[group, block.rows] = certified.nearest(block.X, fast.select(group), self.workers.scratch)

        self.workers.map(look, self.tasks(r, k))
        return labels

    def distances(self, centers: np.ndarray) -> np.ndarray:
        out = np.empty((self.points.n, len(centers)), self.points.dtype)

        def look(tasks: Iterable[Task]) -> None:
            for block, _ in tasks:
                squares = canonical.to_all(block.X, centers, self.workers.scratch)
                with np.errstate(over="ignore"):  # float32 ends before distances of its numbers do
                    out[block.rows] = np.sqrt(squares, out=squares).T

        self.workers.map(look, self.tasks(1, len(centers)))
        return out
