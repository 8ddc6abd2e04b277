"""K-Means++ in NumPy: squared distances to the seeds so far, their potential, and draws from it.

Few points are nearer to a new seed than to the ones before; the fast product finds out which may be, and
only those are computed canonically.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from gputabu.backend.arithmetic import canonical, certified
from gputabu.backend.numpy.tiling import Task, TiledBackend
from gputabu.data.points import Block, Span


class NumpySeeding(TiledBackend):
    """The passes of seeding."""

    def infinite_sq_dist(self, restarts: int) -> np.ndarray:
        return self.allocate((restarts, self.points.n), np.float64, np.inf)

    def lower_sq_dist(self, seeds: np.ndarray, min_sq_dist: np.ndarray) -> None:
        def lower(tasks: Iterable[Task]) -> None:
            for block, group, (restart, _, point), squares in self.nearer(seeds[:, None], min_sq_dist, tasks):
                min_sq_dist[group, block.rows][restart, point] = squares

        self.workers.map(lower, self.tasks(len(seeds)))

    def potential(self, min_sq_dist: np.ndarray, shift: np.ndarray) -> np.ndarray:
        def add(tasks: Iterable[tuple[Span, slice]]) -> np.ndarray:
            sums = np.zeros(len(min_sq_dist), np.int64)
            for span, group in tasks:
                sums[group] += integers(min_sq_dist[group, span.rows], span.weights, shift[group, None]).sum(axis=1)
            return sums

        return np.sum(self.workers.map(add, self.blind_tasks(len(min_sq_dist))), axis=0)

    def seed_gains(self, seeds: np.ndarray, min_sq_dist: np.ndarray, shift: np.ndarray) -> np.ndarray:
        r, t, _ = seeds.shape

        def add(tasks: Iterable[Task]) -> np.ndarray:
            sums = np.zeros(r * t, np.int64)
            for block, group, (restart, trial, point), squares in self.nearer(seeds, min_sq_dist, tasks):
                before = min_sq_dist[group, block.rows][restart, point]
                scale, weights = shift[group][restart], None if block.weights is None else block.weights[point]
                gain = integers(before, weights, scale) - integers(squares, weights, scale)
                np.add.at(sums, (group.start + restart) * t + trial, gain)
            return sums

        return np.sum(self.workers.map(add, self.tasks(r, t)), axis=0).reshape(r, t)

    def sample(self, min_sq_dist: np.ndarray, shift: np.ndarray, targets: np.ndarray) -> np.ndarray:
        rows = np.full(targets.shape, -1, np.int64)
        passed = np.zeros(len(min_sq_dist), np.int64)  # potential of the blocks so far
        for span, _ in self.blind_tasks(1):
            running = integers(min_sq_dist[:, span.rows], span.weights, shift[:, None]).cumsum(axis=1)
            here = (rows < 0) & (targets < (passed + running[:, -1])[:, None])
            for restart in np.flatnonzero(here.any(axis=1)):
                wanted = targets[restart, here[restart]] - passed[restart]
                found = np.searchsorted(running[restart], wanted, side="right")
                rows[restart, here[restart]] = span.start + found
            passed += running[:, -1]
        return rows

    def nearer(
        self, seeds: np.ndarray, min_sq_dist: np.ndarray, tasks: Iterable[Task]
    ) -> Iterator[tuple[Block, slice, tuple[np.ndarray, np.ndarray, np.ndarray], np.ndarray]]:
        """Per task, the (restart, seed, point) at which a seed is nearer than `covered`, and d² there."""
        _, t, d = seeds.shape
        fast = self.product(seeds, self.grid.offset)
        for block, group in tasks:
            product = fast.select(group)
            scores, norms = certified.scores(block.X, product, self.workers.scratch)
            before = min_sq_dist[group, block.rows]
            with np.errstate(over="ignore", invalid="ignore"):
                # d² = s + ‖x‖², in units of the product; the doubt of s was made for differences of two.
                norms = norms.astype(np.float64)
                reach = before * fast.unit**2 - norms**2
                reach += product.doubt[0] + norms * (product.doubt[1] + norms * product.doubt[2])
                reach += 4 * (d + 2) * np.finfo(fast.dtype).eps * norms**2
                maybe = ~(scores > reach[:, None])  # NaN is a maybe
            restart, seed, point = np.nonzero(maybe)
            squares = canonical.of_pairs(block.X, point, seeds[group].reshape(-1, d), restart * t + seed)
            nearer = squares < before[restart, point]
            yield block, group, (restart[nearer], seed[nearer], point[nearer]), squares[nearer]


def integers(squares: np.ndarray, weights: np.ndarray | None, shift: np.ndarray) -> np.ndarray:
    """w · d² on the grid of 2^-shift, as int64."""
    if weights is not None:
        squares = squares * weights
    return np.rint(squares * np.ldexp(1.0, shift)).astype(np.int64)
