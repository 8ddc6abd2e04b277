"""What it costs to hand points of one cluster to another, on a GPU; the graph of clusters is on the host."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from gputabu.backend.arithmetic.constants import NEVER
from gputabu.backend.arithmetic.transport import Measure, merged
from gputabu.backend.contract import Transfers
from gputabu.backend.cuda.device import DeviceBackend, on_device, to_device

#: Threads of a block that makes a list, and entries of a list at the most; LIST of kernels/bounded.cu is both together.
LISTERS = 128


class CudaTransfers(DeviceBackend):
    """The pass of clusters of bounded size. Names and shapes are those of kernels/bounded.cu."""

    @on_device
    def transfers_partial(
        self,
        centers: np.ndarray,
        labels: Any,
        prices: np.ndarray | None,
        sources: np.ndarray,
        count: int,
        measure: Measure,
    ) -> Transfers:
        (k, d), s, count = centers.shape, len(sources), min(count, LISTERS)
        slot = np.full(k, -1, np.int32)
        slot[sources] = np.arange(s)
        device_centers, device_slot = to_device(centers), cupy.asarray(slot)
        device_sources = cupy.asarray(sources.astype(np.int32))
        device_prices = None if prices is None else cupy.asarray(prices)
        sizes, new = cupy.zeros(k, np.int64), labels[0]
        value, row = np.full((s, k, 0), NEVER), np.full((s, k, 0), -1)
        for chunk in self.pieces(k * d):
            members = cupy.zeros(s, np.int64)
            self.launch("bounded.cu", "price_labels", self.spread(chunk.n), (
                chunk.X, chunk.weights, device_centers, device_prices, device_slot, new, sizes, members, chunk.n,
                chunk.start, k, d, measure.weighted, measure.scale, measure.unit))  # fmt: skip
            first = np.concatenate([[0], np.cumsum(members.get())])
            listed, device_first = cupy.empty(max(int(first[-1]), 1), np.int64), cupy.asarray(first)
            self.launch("bounded.cu", "list_members", self.spread(chunk.n), (
                chunk.weights, device_slot, new, cupy.asarray(first[:-1].copy()), listed, chunk.n,
                chunk.start))  # fmt: skip
            values, rows = cupy.empty((s, k, count), np.int64), cupy.empty((s, k, count), np.int64)
            self.launch("bounded.cu", "transfers", (s * k,), (
                chunk.X, chunk.weights, device_centers, device_sources, device_first, listed, values, rows, chunk.start,
                k, d, count, measure.weighted, measure.scale), threads=LISTERS)  # fmt: skip
            both = np.concatenate([value, values.get()], axis=2), np.concatenate([row, rows.get()], axis=2)
            value, row = merged(*both, count) if value.shape[2] else both
        return Transfers(value, row, sizes.get())
