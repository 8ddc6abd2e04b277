"""Fuzzy memberships in compiled code. `gputabu.backend.arithmetic.powers` has the formulas."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from gputabu.backend.arithmetic.constants import LIMB
from gputabu.backend.arithmetic.fixed_point import carried, power
from gputabu.backend.arithmetic.powers import TERM, Fuzzifier
from gputabu.backend.numba.kernels.fuzzy import ROWS, TILE, fuzzy_rows
from gputabu.backend.numba.tiling import NumbaTiling, block_arguments
from gputabu.backend.numpy.fuzzy import NumpyFuzzy
from gputabu.data.points import Block

#: Points whose terms are added in 64 bits.
SAFE_ROWS = 1 << 16


class NumbaFuzzy(NumbaTiling, NumpyFuzzy):
    """The passes of fuzzy c-means."""

    def fuzzy_partial(self, centers: np.ndarray, m: float, exponent: int) -> tuple[np.ndarray, np.ndarray]:
        r, k, d = centers.shape
        if self.is_short(r, k):
            return super().fuzzy_partial(centers, m, exponent)
        grid, fuzzifier = self.grid, Fuzzifier.of(m)
        scale, to_limbs = power(TERM - np.append(grid.coordinate, grid.weight)), float(power(LIMB - exponent))
        wide = -(-k // TILE) * TILE
        filled = np.concatenate([centers, np.repeat(centers[:, :1], wide - k, axis=1)], axis=1)

        def add(pieces: Iterable[Block]) -> tuple[np.ndarray, np.ndarray]:
            sums, costs = np.zeros((2, r, k, d + 1), np.int64), np.zeros((r, 3), np.int64)
            columns, moved, shares = np.empty(d * ROWS), np.empty((d + 1) * ROWS), np.empty(wide * ROWS)
            least, total, inverse = np.empty(ROWS), np.empty(ROWS), np.empty(ROWS)
            for block in pieces:
                X, weights, _ = block_arguments(block)
                for first in range(0, len(X), SAFE_ROWS):
                    rows, part = slice(first, first + SAFE_ROWS), np.zeros((r, wide, d + 1), np.int64)
                    fuzzy_rows(
                        X[rows], weights[rows], filled, k, fuzzifier, grid.offset, scale, to_limbs, columns, moved,
                        shares, least, total, inverse, part, costs,
                    )  # fmt: skip
                    sums[0] += part[:, :k] >> LIMB
                    sums[1] += part[:, :k] & ((1 << LIMB) - 1)
            return sums, costs

        parts = self.workers.map(add, self.pieces())
        sums, costs = (np.sum(part, axis=0) for part in zip(*parts, strict=True))
        return carried(sums), costs.T
