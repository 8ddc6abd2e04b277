"""The survey compiled: J, and per cluster the nearest points that are not tabu."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from gputabu.backend.arithmetic.constants import LIMB
from gputabu.backend.arithmetic.fixed_point import power
from gputabu.backend.arithmetic.keys import Least
from gputabu.backend.numba.kernels.tabu_argmin import survey_rows
from gputabu.backend.numba.tiling import NumbaTiling, block_arguments
from gputabu.backend.numpy.tabu_argmin import NumpyTabuArgmin
from gputabu.data.points import Block


class NumbaTabuArgmin(NumbaTiling, NumpyTabuArgmin):
    """The pass that J and the next means come from."""

    def costs_and_keys(
        self,
        centers: np.ndarray,
        labels: np.ndarray,
        cost: int,
        least: Least | None = None,
        forbidden: np.ndarray | None = None,
    ) -> np.ndarray:
        r, k, _ = centers.shape
        if self.is_short(r):
            return super().costs_and_keys(centers, labels, cost, least, forbidden)
        to_limbs, key_scale = float(power(LIMB - cost)), self.scales.key
        centers = np.ascontiguousarray(centers)
        flags = np.zeros((r, 0), np.bool_) if forbidden is None else forbidden
        shape = (r, k, 0) if least is None else least.shape

        def look(pieces: Iterable[Block]) -> tuple[np.ndarray, Least]:
            squares, sums, thread_least = self.score_scratch(k).squares, np.zeros((r, 3), np.int64), Least(shape)
            for block in pieces:
                span = Least.span(block.start)
                survey_rows(
                    *block_arguments(block), labels, flags, span, centers, to_limbs, key_scale, sums,
                    thread_least.keys_of_span(span), squares,
                )  # fmt: skip
            return sums, thread_least

        parts = self.workers.map(look, self.pieces())
        if least is not None:
            for _, thread_least in parts:
                least.merge(thread_least)
        return np.sum([sums for sums, _ in parts], axis=0).T
