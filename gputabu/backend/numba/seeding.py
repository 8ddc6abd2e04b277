"""K-Means++ in compiled code: squared distances to the seeds so far, their potential, and draws from it."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from gputabu.backend.arithmetic.fixed_point import power
from gputabu.backend.numba.kernels.seeding import potential_rows, seed_rows
from gputabu.backend.numba.tiling import NumbaTiling, block_arguments, weight_argument
from gputabu.backend.numpy.seeding import NumpySeeding, integers
from gputabu.data.points import Block, Span


class NumbaSeeding(NumbaTiling, NumpySeeding):
    """The passes of seeding."""

    def lower_sq_dist(self, seeds: np.ndarray, min_sq_dist: np.ndarray) -> None:
        if self.is_short(len(seeds)):
            return super().lower_sq_dist(seeds, min_sq_dist)
        self._try_seeds(seeds[:, None], min_sq_dist, np.ones(len(seeds)), lower=True)

    def seed_gains(self, seeds: np.ndarray, min_sq_dist: np.ndarray, shift: np.ndarray) -> np.ndarray:
        if self.is_short(*seeds.shape[:2]):
            return super().seed_gains(seeds, min_sq_dist, shift)
        return self._try_seeds(seeds, min_sq_dist, power(shift), lower=False)

    def _try_seeds(self, seeds: np.ndarray, min_sq_dist: np.ndarray, powers: np.ndarray, lower: bool) -> np.ndarray:
        """What seeds (R, T, d) gain, (R, T) int64; or lower `min_sq_dist` by them."""
        scales, seeds = self.scales, np.ascontiguousarray(seeds)
        fast = self.fast_centers(seeds, scales)

        def look(pieces: Iterable[Block]) -> np.ndarray:
            scoring, gains = self.score_scratch(1), np.zeros(seeds.shape[:2], np.int64)
            for block in pieces:
                seed_rows(
                    *block_arguments(block), min_sq_dist, seeds, powers, fast, scales, gains, lower, scoring.coords,
                    scoring.length, scoring.scores[0],
                )  # fmt: skip
            return gains

        return np.sum(self.workers.map(look, self.pieces()), axis=0)

    def potential(self, min_sq_dist: np.ndarray, shift: np.ndarray) -> np.ndarray:
        if self.is_short(len(min_sq_dist)):
            return super().potential(min_sq_dist, shift)
        return self._potentials(min_sq_dist, shift)[1].sum(axis=0)

    def sample(self, min_sq_dist: np.ndarray, shift: np.ndarray, targets: np.ndarray) -> np.ndarray:
        if self.is_short(len(min_sq_dist)):
            return super().sample(min_sq_dist, shift, targets)
        pieces, sums = self._potentials(min_sq_dist, shift)
        ends = sums.cumsum(axis=0)  # (pieces, R)
        rows = np.full(targets.shape, -1, np.int64)
        for r, t in zip(*np.nonzero((targets >= 0) & (targets < ends[-1, :, None])), strict=True):
            i = int(np.searchsorted(ends[:, r], targets[r, t], side="right"))
            span, before = pieces[i], ends[i, r] - sums[i, r]
            running = integers(min_sq_dist[r, span.rows], span.weights, shift[r]).cumsum()
            rows[r, t] = span.start + np.searchsorted(running, targets[r, t] - before, side="right")
        return rows

    def _potentials(self, min_sq_dist: np.ndarray, shift: np.ndarray) -> tuple[list[Span], np.ndarray]:
        """The rows of pieces of the points, in order, and the potential of each, (pieces, R) int64."""
        pieces, powers = list(self.points.spans(self.piece_rows)), power(shift)
        sums = np.zeros((len(pieces), len(min_sq_dist)), np.int64)

        def add(numbers: Iterable[int]) -> None:
            for i in numbers:
                span = pieces[i]
                potential_rows(weight_argument(span.weights), span.start, span.stop, min_sq_dist, powers, sums[i])

        self.workers.map(add, range(len(pieces)))
        return pieces, sums
