"""What it costs to hand points of one cluster to another, in NumPy: `Backend.transfers_partial`."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from gputabu.backend.arithmetic import canonical
from gputabu.backend.arithmetic.constants import NEVER
from gputabu.backend.arithmetic.transport import Measure, merged
from gputabu.backend.contract import Transfers
from gputabu.backend.numpy.tiling import Task, TiledBackend


class NumpyTransfers(TiledBackend):
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
        k = len(centers)

        def look(tasks: Iterable[Task]) -> Transfers:
            kept = no_transfers(len(sources), k, count)
            for block, _ in tasks:
                here, weights = labels[0, block.rows], np.ones(len(block.X)) if block.weights is None else block.weights
                costs = measure.costs(block.X, block.weights, centers, self.workers.scratch)  # (K, n)
                if prices is not None:
                    here[:] = (costs + prices[:, None]).argmin(axis=0)
                    light = np.flatnonzero(weights == 0)
                    here[light] = canonical.to_all(block.X[light], centers, self.workers.scratch).argmin(axis=0)
                sizes = np.zeros(k, np.int64)
                np.add.at(sizes, here, measure.sizes(weights))
                part = no_transfers(len(sources), k, count)
                for s, a in enumerate(sources.tolist()):
                    mine = np.flatnonzero((here == a) & (weights > 0))
                    values = costs[:, mine] - costs[a, mine]
                    order = np.argsort(values, axis=1, kind="stable")[:, :count]  # rows ascend
                    part.value[s, :, : order.shape[1]] = np.take_along_axis(values, order, axis=1)
                    part.row[s, :, : order.shape[1]] = block.start + mine[order]
                    part.value[s, a], part.row[s, a] = NEVER, -1
                kept = joined([kept, Transfers(part.value, part.row, sizes)], count)
            return kept

        return joined(self.workers.map(look, self.tasks(1, k)), count)


def no_transfers(s: int, k: int, count: int) -> Transfers:
    """Lists without entries, of clusters without points."""
    return Transfers(np.full((s, k, count), NEVER), np.full((s, k, count), -1), np.zeros(k, np.int64))


def joined(parts: list[Transfers], count: int) -> Transfers:
    """The lists of all parts, whose row numbers are those of the whole."""
    if len(parts) == 1:
        return parts[0]
    value, row = (np.concatenate(side, axis=-1) for side in zip(*((p.value, p.row) for p in parts), strict=True))
    return Transfers(*merged(value, row, count), np.sum([part.sizes for part in parts], axis=0))
