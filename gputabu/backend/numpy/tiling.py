"""The data set of the NumPy backend, cut into pieces of work, and what is measured of it once."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

import numpy as np

from gputabu.backend.arithmetic import certified
from gputabu.backend.arithmetic.certified import Product
from gputabu.backend.arithmetic.fixed_point import Bounds, Grid, Totals, quantize
from gputabu.backend.base import Exact
from gputabu.backend.numpy.threads import Workers
from gputabu.data.points import Block, Points, Span

#: Elements of the largest scratch array of a piece. Larger than the caches would like: a piece must also
#: pay for the Python around NumPy's loops, and for handing the GIL from thread to thread.
PIECE_ELEMENTS = 1 << 20
MAX_ROWS = 1 << 16

Task = tuple[Block, slice]  # some points, some restarts


class Blocks(Exact):
    """Points on the host, with workers to go over them. A context for the workers."""

    def __init__(self, points: Points, threads: int | None = None) -> None:
        self.points = points
        self.workers = Workers(threads)

    def __enter__(self) -> Self:
        self.workers.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self.workers.__exit__(*exception)

    def tasks(self, restarts: int, clusters: int = 1) -> Iterable[Task]:
        """Pieces of work whose scores (restarts · clusters · rows) and differences are of bounded size."""
        rows, groups = self._sizes(restarts, clusters)
        tasks = ((block, some) for block in self.points.blocks(rows) for some in groups)
        return tasks if self.points.out_of_core else list(tasks)

    def blind_tasks(self, restarts: int) -> list[tuple[Span, slice]]:
        """The same for work that does not look at the points, which are then not read."""
        rows, groups = self._sizes(restarts, 1)
        return [(span, some) for span in self.points.spans(rows) for some in groups]

    def _sizes(self, restarts: int, clusters: int) -> tuple[int, list[slice]]:
        """Rows of a piece of work, and its restarts."""
        width = max(clusters, self.points.d)
        rows = min(MAX_ROWS, max(1, PIECE_ELEMENTS // width), self.points.n)
        group = min(restarts, max(1, PIECE_ELEMENTS // (width * rows)))
        return rows, [slice(a, min(a + group, restarts)) for a in range(0, restarts, group)]

    def product(self, centers: np.ndarray, offset: np.ndarray) -> Product:
        """The centres (R, K, d) prepared for the fast product in the dtype of the points."""
        reach = float(np.abs(centers - offset).max())
        return Product.of(centers, offset, certified.unit_for(reach, self.points.dtype), self.points.dtype)

    def box(self) -> Bounds:
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
