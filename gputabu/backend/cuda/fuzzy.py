"""Fuzzy memberships on a GPU: `gputabu.backend.arithmetic.powers` has the formulas."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from gputabu.backend.arithmetic.constants import LIMB
from gputabu.backend.arithmetic.fixed_point import carried, power
from gputabu.backend.arithmetic.powers import TERM
from gputabu.backend.cuda import structs
from gputabu.backend.cuda.device import DeviceBackend, on_device, to_device
from gputabu.backend.cuda.launch import FUZZY_TILE


class CudaFuzzy(DeviceBackend):
    """The passes of fuzzy c-means. Names and shapes are those of kernels/fuzzy.cu."""

    @on_device
    def fuzzy_partial(self, centers: np.ndarray, m: float, exponent: int) -> tuple[np.ndarray, np.ndarray]:
        r, k, d = centers.shape
        device_centers, fuzzifier, grid = to_device(centers), structs.Fuzzifier.upload(m), self.device_grid
        scale = to_device(power(TERM - np.append(self.grid.coordinate, self.grid.weight)))
        sums, costs = cupy.zeros((2, r, k, d + 1), np.int64), cupy.zeros((r, 3), np.int64)
        for chunk in self.pieces(r * k * d * 4):
            blocks = max(1, min(-(-chunk.n // FUZZY_TILE) * r, 8 * self.blocks))
            self.launch("fuzzy.cu", "fuzzy_sums", (blocks,), (
                chunk.X, chunk.weights, device_centers, scale, sums, costs, fuzzifier, grid, chunk.n,
                structs.Shape(r, k, d), float(power(LIMB - exponent))), threads=FUZZY_TILE)  # fmt: skip
        return carried(sums.get()), costs.get().T

    @on_device
    def memberships(self, centers: np.ndarray, m: float) -> Any:
        k, device_centers, fuzzifier = len(centers), to_device(centers), structs.Fuzzifier.upload(m)
        found, parts = np.empty((self.points.n, k), self.points.dtype), []
        for chunk in self.pieces(3 * k * self.points.d):
            part = cupy.empty((chunk.n, k), self.points.dtype)
            self.launch("fuzzy.cu", "memberships", self.spread(chunk.n), (
                chunk.X, device_centers, part, fuzzifier, chunk.n, k, self.points.d))  # fmt: skip
            if self.points.on_device:
                parts.append(part)
            else:
                found[chunk.start : chunk.start + chunk.n] = part.get()
        if self.points.on_device:
            return parts[0] if len(parts) == 1 else cupy.concatenate(parts)
        return found
