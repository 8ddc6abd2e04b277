"""Splits of clusters on a GPU: `gputabu.backend.numpy.splits` has the formulas."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from gputabu.backend.arithmetic.constants import LIMB
from gputabu.backend.arithmetic.fixed_point import power
from gputabu.backend.contract import Assignment
from gputabu.backend.cuda import structs
from gputabu.backend.cuda.device import DeviceBackend, on_device, to_device


class CudaSplits(DeviceBackend):
    """The passes of splits. Names and shapes are those of kernels/splits.cu."""

    @on_device
    def split_assign(self, children: np.ndarray, parents: Any, labels: Any) -> Assignment:
        r, k, _, d = children.shape
        device_children, grid = to_device(children), self.device_grid
        totals, changed = cupy.zeros((r, 2 * k, self.n_columns), np.int64), cupy.zeros(r, np.int64)
        for chunk in self.pieces(r * 2 * d):
            self.launch("splits.cu", "split_assign", self.spread(r * chunk.n), (
                chunk.X, chunk.weights, device_children, parents, labels, totals, changed, grid, self.rows_of(chunk),
                structs.Shape(r, k, d)))  # fmt: skip
        return Assignment(totals.get(), changed.get())

    @on_device
    def axis_partial(self, centers: np.ndarray, axes: np.ndarray, labels: Any, exponent: int) -> np.ndarray:
        r, k, d = centers.shape
        device_centers, device_axes = to_device(centers), to_device(axes)
        wanted, sums = to_device(np.asarray(axes.any(axis=2), np.int32)), cupy.zeros((2, r, k, d), np.int64)
        for chunk in self.pieces(r * 2 * d):
            self.launch("splits.cu", "axis_sums", self.spread(r * chunk.n), (
                chunk.X, chunk.weights, device_centers, device_axes, wanted, labels, sums, self.rows_of(chunk),
                structs.Shape(r, k, d), float(power(LIMB - exponent))))  # fmt: skip
        return sums.get()

    @on_device
    def histogram_partial(
        self, centers: np.ndarray, axes: np.ndarray, labels: Any, slots: np.ndarray, n_slots: int, bins: int
    ) -> np.ndarray:
        r, k, d = centers.shape
        device_centers, device_axes, device_slots = to_device(centers), to_device(axes), to_device(slots)
        counts, grid = cupy.zeros((2 if self.weighted else 1, n_slots, bins), np.int64), self.device_grid
        for chunk in self.pieces(r * d):
            self.launch("splits.cu", "histogram", self.spread(r * chunk.n), (
                chunk.X, chunk.weights, device_centers, device_axes, device_slots, labels, counts,
                self.rows_of(chunk), structs.Shape(r, k, d), n_slots, bins, grid.weight_scale))  # fmt: skip
        return counts.get()
