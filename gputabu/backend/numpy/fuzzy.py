"""Fuzzy memberships in NumPy, and what they sum up to. `gputabu.backend.arithmetic.powers` has the formulas."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from gputabu.backend.arithmetic import canonical, powers
from gputabu.backend.arithmetic.constants import LIMB
from gputabu.backend.arithmetic.fixed_point import carried, limbs, power
from gputabu.backend.arithmetic.powers import TERM, Fuzzifier
from gputabu.backend.numpy.tiling import Task, TiledBackend


class NumpyFuzzy(TiledBackend):
    """The passes of fuzzy c-means."""

    def fuzzy_partial(self, centers: np.ndarray, m: float, exponent: int) -> tuple[np.ndarray, np.ndarray]:
        r, k, d = centers.shape
        grid, fuzzifier = self.grid, Fuzzifier.of(m)
        scale = power(TERM - np.append(grid.coordinate, grid.weight))  # (d + 1,)

        def add(tasks: Iterable[Task]) -> tuple[np.ndarray, np.ndarray]:
            sums, costs = np.zeros((2, r, k, d + 1), np.int64), np.zeros((3, r), np.int64)
            for block, group in tasks:
                moved = np.ones((len(block.X), d + 1))
                np.subtract(block.X, grid.offset, out=moved[:, :d])
                moved *= scale
                for one in range(group.start, group.stop):
                    squares = canonical.to_all(block.X, centers[one], self.workers.scratch)
                    u, total = powers.memberships(squares, fuzzifier)
                    share, cost = powers.power(u, fuzzifier.share), squares.min(axis=0) / total
                    if block.weights is not None:
                        share, cost = share * block.weights, cost * block.weights
                    for j, column in enumerate(moved.T):
                        terms = np.rint(share * column).astype(np.int64).sum(axis=1)  # at most 2^16 rows
                        sums[0, one, :, j] += terms >> LIMB
                        sums[1, one, :, j] += terms & ((1 << LIMB) - 1)
                    costs[:, one] += [int(values.sum()) for values in limbs(cost, exponent, 3)]
            return sums, costs

        parts = self.workers.map(add, self.tasks(r, k))
        sums, costs = (np.sum(part, axis=0) for part in zip(*parts, strict=True))
        return carried(sums), costs

    def memberships(self, centers: np.ndarray, m: float) -> np.ndarray:
        out, fuzzifier = np.empty((self.points.n, len(centers)), self.points.dtype), Fuzzifier.of(m)

        def look(tasks: Iterable[Task]) -> None:
            for block, _ in tasks:
                squares = canonical.to_all(block.X, centers, self.workers.scratch)
                out[block.rows] = powers.memberships(squares, fuzzifier)[0].T

        self.workers.map(look, self.tasks(1, len(centers)))
        return out
