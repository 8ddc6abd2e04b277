"""K-Means++ on a GPU: squared distances to the seeds so far, their potential, and draws from it."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from gputabu.backend.arithmetic.fixed_point import power
from gputabu.backend.cuda.device import DeviceBackend, filled, on_device, to_device

#: Rows of a tile in which a draw is looked up.
TILE = 1024


class CudaSeeding(DeviceBackend):
    """The passes of seeding. Names and shapes are those of kernels/seeding.cu."""

    @on_device
    def infinite_sq_dist(self, restarts: int) -> Any:
        return filled((restarts, self.points.n), np.inf)

    @on_device
    def lower_sq_dist(self, seeds: np.ndarray, min_sq_dist: Any) -> None:
        device_seeds = to_device(seeds)
        for chunk in self.pieces(len(seeds) * self.points.d):
            self.launch("seeding.cu", "lower_sq_dist", (len(seeds), *self.spread(chunk.n)), (
                chunk.X, device_seeds, min_sq_dist, chunk.n, chunk.start, self.points.n, self.points.d))  # fmt: skip

    @on_device
    def potential(self, min_sq_dist: Any, shift: np.ndarray) -> np.ndarray:
        return self._tile_potentials(min_sq_dist, shift).sum(axis=1)

    @on_device
    def seed_gains(self, seeds: np.ndarray, min_sq_dist: Any, shift: np.ndarray) -> np.ndarray:
        r, t, d = seeds.shape
        device_seeds, scale = to_device(seeds), cupy.asarray(power(shift))
        gains = cupy.zeros((r, t), np.int64)
        for chunk in self.pieces(r * t * d):
            self.launch("seeding.cu", "seed_gains", (r * t, *self.spread(chunk.n)), (
                chunk.X, chunk.weights, device_seeds, min_sq_dist, scale, gains, chunk.n, chunk.start,
                self.points.n, d, t))  # fmt: skip
        return gains.get()

    @on_device
    def sample(self, min_sq_dist: Any, shift: np.ndarray, targets: np.ndarray) -> np.ndarray:
        r, t = targets.shape
        running = self._tile_potentials(min_sq_dist, shift).cumsum(axis=1)  # (R, tiles)
        tile = np.stack(
            [np.searchsorted(sums, wanted, side="right") for sums, wanted in zip(running, targets, strict=True)]
        )
        tile = np.minimum(tile, running.shape[1] - 1)
        passed = np.where(tile > 0, np.take_along_axis(running, np.maximum(tile - 1, 0), axis=1), 0)
        restart = cupy.asarray(np.repeat(np.arange(r), t))
        first, beyond = cupy.asarray((tile * TILE).ravel()), cupy.asarray((targets - passed).ravel())
        found = filled(r * t, np.int64(-1))
        scale = cupy.asarray(power(shift))
        for chunk in self.chunks:
            self.launch("seeding.cu", "locate", self.spread(r * t), (
                min_sq_dist, chunk.weights, scale, restart, first, beyond, found, chunk.n, chunk.start,
                self.points.n, TILE, r * t))  # fmt: skip
        return found.get().reshape(r, t)

    def _tile_potentials(self, min_sq_dist: Any, shift: np.ndarray) -> np.ndarray:
        """Potential of every tile of rows, (R, tiles) int64 on the host."""
        r, tiles = min_sq_dist.shape[0], -(-self.points.n // TILE)
        sums, scale = cupy.zeros((r, tiles), np.int64), cupy.asarray(power(shift))
        for chunk in self.pieces(r):
            touched = (chunk.start + chunk.n - 1) // TILE - chunk.start // TILE + 1
            self.launch("seeding.cu", "potential", (r * touched,), (
                min_sq_dist, chunk.weights, scale, sums, chunk.n, chunk.start, self.points.n, TILE, tiles))  # fmt: skip
        return sums.get()
