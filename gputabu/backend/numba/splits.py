"""Splits of clusters in compiled code. `gputabu.backend.numpy.splits` has the formulas."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from gputabu.backend.arithmetic.constants import LIMB
from gputabu.backend.arithmetic.fixed_point import power
from gputabu.backend.contract import Assignment
from gputabu.backend.numba.kernels.splits import axis_rows, histogram_rows, split_rows
from gputabu.backend.numba.tiling import NumbaTiling, block_arguments
from gputabu.backend.numpy.splits import NumpySplits
from gputabu.data.points import Block


class NumbaSplits(NumbaTiling, NumpySplits):
    """The passes of splits."""

    def split_assign(self, children: np.ndarray, parents: np.ndarray, labels: np.ndarray) -> Assignment:
        r, k, _, _ = children.shape
        if self.is_short(r, 2):
            return super().split_assign(children, parents, labels)
        children, scales = np.ascontiguousarray(children), self.scales

        def relabel(pieces: Iterable[Block]) -> tuple[np.ndarray, np.ndarray]:
            totals, changed = np.zeros((r, 2 * k, self.n_columns), np.int64), np.zeros(r, np.int64)
            term = np.empty(self.n_columns, np.int64)
            for block in pieces:
                split_rows(*block_arguments(block), children, parents, labels, scales, totals, changed, term)
            return totals, changed

        parts = self.workers.map(relabel, self.pieces())
        return Assignment(*(np.sum(part, axis=0) for part in zip(*parts, strict=True)))

    def axis_partial(self, centers: np.ndarray, axes: np.ndarray, labels: np.ndarray, exponent: int) -> np.ndarray:
        if self.is_short(len(centers)):
            return super().axis_partial(centers, axes, labels, exponent)
        centers, axes = np.ascontiguousarray(centers), np.ascontiguousarray(axes)
        wanted, to_limbs = axes.any(axis=2), float(power(LIMB - exponent))

        def add(pieces: Iterable[Block]) -> np.ndarray:
            sums = np.zeros((2, *centers.shape), np.int64)
            for block in pieces:
                axis_rows(*block_arguments(block), centers, axes, wanted, labels, to_limbs, sums)
            return sums

        return np.sum(self.workers.map(add, self.pieces()), axis=0)

    def histogram_partial(
        self, centers: np.ndarray, axes: np.ndarray, labels: np.ndarray, slots: np.ndarray, n_slots: int, bins: int
    ) -> np.ndarray:
        if self.is_short(len(centers)):
            return super().histogram_partial(centers, axes, labels, slots, n_slots, bins)
        centers, axes = np.ascontiguousarray(centers), np.ascontiguousarray(axes)
        n_limbs, weight_scale = 1 if self.points.weights is None else 2, self.scales.weight

        def count(pieces: Iterable[Block]) -> np.ndarray:
            counts = np.zeros((n_limbs, n_slots, bins), np.int64)
            for block in pieces:
                histogram_rows(*block_arguments(block), centers, axes, labels, slots, weight_scale, counts)
            return counts

        return np.sum(self.workers.map(count, self.pieces()), axis=0)
