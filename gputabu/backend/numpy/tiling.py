"""The data set of the NumPy backend, cut into pieces of work, and what is measured of it once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

import numpy as np

from gputabu.backend.arithmetic import certified
from gputabu.backend.arithmetic.certified import Product
from gputabu.backend.arithmetic.fixed_point import Bounds, Grid, Totals, cluster_sums, quantize
from gputabu.backend.base import BackendBase
from gputabu.backend.numpy.threads import Workers
from gputabu.backend.tuning import Tuning
from gputabu.data.points import Block, Points, Span

#: Rows of a piece of work at the most.
MAX_ROWS = 1 << 16

Task = tuple[Block, slice]  # some points, some restarts


class TiledBackend(BackendBase):
    """Points on the host, with workers to go over them. A context for the workers."""

    def __init__(self, points: Points, tuning: Tuning | None = None) -> None:
        self.points, self.tuning = points, tuning or Tuning()
        self.workers = Workers(self.tuning.threads)

    def __enter__(self) -> Self:
        self.workers.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self.workers.__exit__(*exception)

    def of_same_kind(self, points: Points) -> Self:
        return type(self)(points, self.tuning)

    def tasks(self, restarts: int, clusters: int = 1) -> Iterable[Task]:
        """Pieces of work whose scores (restarts · clusters · rows) and differences are of bounded size."""
        rows, groups = self._sizes(restarts, clusters)
        tasks = ((block, group) for block in self.points.blocks(rows) for group in groups)
        return tasks if self.points.out_of_core else list(tasks)

    def blind_tasks(self, restarts: int) -> list[tuple[Span, slice]]:
        """The same for work that does not look at the points, which are then not read."""
        rows, groups = self._sizes(restarts, 1)
        return [(span, group) for span in self.points.spans(rows) for group in groups]

    def _sizes(self, restarts: int, clusters: int) -> tuple[int, list[slice]]:
        """Rows of a piece of work, and its restarts."""
        width = max(clusters, self.points.d)
        rows = min(MAX_ROWS, max(1, self.tuning.piece_elements // width), self.points.n)
        group = min(restarts, max(1, self.tuning.piece_elements // (width * rows)))
        return rows, [slice(a, min(a + group, restarts)) for a in range(0, restarts, group)]

    def product(self, centers: np.ndarray, offset: np.ndarray) -> Product:
        """The centres (R, K, d) prepared for the fast product in the dtype of the points."""
        reach = float(np.abs(centers - offset).max())
        return Product.of(centers, offset, certified.unit_for(reach, self.points.dtype), self.points.dtype)

    def bounds_partial(self) -> Bounds:
        empty = np.full(self.points.d, np.inf)

        def box(tasks: Iterable[Task]) -> Bounds:
            parts = [Bounds(empty, -empty, 0.0)]
            for block, _ in tasks:
                X, weight = block.X, 1.0
                if block.weights is not None:
                    X, weight = X[block.weights > 0], float(block.weights.max())
                if len(X):
                    parts.append(Bounds(X.min(axis=0).astype(float), X.max(axis=0).astype(float), weight))
            return Bounds.merge(parts)

        return Bounds.merge(self.workers.map(box, self.tasks(1)))

    def moments(self, grid: Grid) -> np.ndarray:
        def add(tasks: Iterable[Task]) -> np.ndarray:
            sums = np.zeros(Totals.columns(self.points.d, self.points.weights is not None), np.int64)
            for block, _ in tasks:
                parts = quantize(block.X, block.weights, grid, self.workers.scratch)
                sums += np.concatenate([part.sum(axis=0) for part in parts]).astype(np.int64)
            return sums

        return np.sum(self.workers.map(add, self.tasks(1)), axis=0)

    def change_of_totals(self, block: Block, old: np.ndarray, new: np.ndarray, moved: np.ndarray, k: int) -> np.ndarray:
        """What the totals of (R, K) clusters gain when the `moved` points go from `old` to `new` labels."""
        r, n = moved.shape
        if r == 1:
            point = np.flatnonzero(moved)
            restart = np.zeros_like(point)
            counts = moved[0].astype(np.int32)
        else:
            point, restart = np.nonzero(moved.T)  # by point
            counts = np.count_nonzero(moved, axis=0)
        X, weights = block.X, block.weights
        if len(point) < n // 2:  # few: only their terms are worth computing
            rows = np.flatnonzero(counts)
            X, counts = X[rows], counts[rows]
            weights = None if weights is None else weights[rows]
        ends = np.zeros(len(counts) + 1, np.int32)
        np.cumsum(counts, out=ends[1:])
        nowhere = r * k  # an extra row of the sums takes what leaves no cluster
        source = old[restart, point]
        source = np.where(source < 0, nowhere, restart * k + source)
        terms = quantize(X, weights, self.grid, self.workers.scratch)
        sums = cluster_sums(terms, ends, restart * k + new[restart, point], source, nowhere + 1)
        return sums[:-1].reshape(r, k, -1)
