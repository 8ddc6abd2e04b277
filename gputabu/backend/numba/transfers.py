"""What it costs to hand points of one cluster to another, in compiled code: see `gputabu.backend.numpy.transfers`."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from gputabu.backend.arithmetic.constants import NEVER
from gputabu.backend.arithmetic.transport import Measure
from gputabu.backend.contract import Transfers
from gputabu.backend.numba.kernels.transport import merge_heaps, transfer_rows
from gputabu.backend.numba.tiling import NumbaTiling, block_arguments
from gputabu.backend.numpy.transfers import NumpyTransfers
from gputabu.data.points import Block


class NumbaTransfers(NumbaTiling, NumpyTransfers):
    """The pass of clusters of bounded size."""

    def transfers_partial(
        self,
        centers: np.ndarray,
        labels: np.ndarray,
        prices: np.ndarray | None,
        sources: np.ndarray,
        count: int,
        measure: Measure,
    ) -> Transfers:
        s, k, across = len(sources), len(centers), np.ascontiguousarray(centers.T)
        charged = np.zeros(k, np.int64) if prices is None else prices
        slot = np.full(k, -1)
        slot[sources] = np.arange(s)

        def look(pieces: Iterable[Block]) -> tuple[np.ndarray, ...]:
            value, row = np.empty((s, k, count), np.int64), np.empty((s, k, count), np.int64)
            end, bar, sizes = np.zeros((s, k), np.int64), np.full((s, k), NEVER), np.zeros(k, np.int64)
            squares, costs = np.empty(k), np.empty(k, np.int64)
            for block in pieces:
                transfer_rows(
                    *block_arguments(block), labels[0], across, prices is not None, charged, slot, measure.scale,
                    measure.weighted, measure.unit, value, row, end, bar, sizes, squares, costs,
                )  # fmt: skip
            return value, row, end, sizes

        parts = self.workers.map(look, self.pieces())
        value, row, end, sizes = (np.stack(side) for side in zip(*parts, strict=True))
        merge_heaps(value, row, end)
        return Transfers(value[0], row[0], sizes.sum(axis=0))
