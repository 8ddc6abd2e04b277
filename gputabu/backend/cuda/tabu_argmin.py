"""The survey on a GPU: J, and per cluster the nearest point that is not tabu (kernels/tabu_argmin.cu)."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from gputabu.backend.arithmetic.constants import LIMB
from gputabu.backend.arithmetic.fixed_point import power
from gputabu.backend.arithmetic.keys import NO_KEY, NOBODY
from gputabu.backend.contract import SurveyPartial
from gputabu.backend.cuda import shapes, structs
from gputabu.backend.cuda.device import DeviceBackend, filled, on_device, to_device
from gputabu.backend.cuda.points import DeviceChunk


class CudaTabuArgmin(DeviceBackend):
    """The pass that J and the next means come from. Tabu points carry a stamp, which the kernel looks at."""

    @on_device
    def survey_partial(
        self, centers: np.ndarray, labels: Any, tabu: np.ndarray, shared: bool, best: int
    ) -> SurveyPartial:
        r, k, _ = centers.shape
        device_centers = to_device(centers)
        stamps, age = cupy.zeros((r, self.points.n), np.int32), filled(r, np.int32(1))
        inside = self._mark(labels, tabu, shared, stamps, age)
        value, index = np.empty((r, k, best), np.uint64), np.empty((r, k, best), np.int64)
        bar, limbs = None, None
        for i in range(best):  # the runners-up by further surveys, each above the last
            costs, keys = cupy.zeros((r, 3), np.int64), filled((r, k), NO_KEY)
            for chunk in self.chunks:
                self.launch_survey(chunk, device_centers, labels, costs, keys, stamps, age, bar)
            found = keys.get()
            value[..., i] = np.where(found == NO_KEY, NOBODY, found >> np.uint64(32))
            index[..., i] = np.where(found == NO_KEY, -1, (found & np.uint64(0xFFFFFFFF)).astype(np.int64))
            limbs = costs.get().T if limbs is None else limbs
            bar = keys
        assert limbs is not None
        return SurveyPartial(limbs, value, index, inside)

    def _mark(self, labels: Any, tabu: np.ndarray, shared: bool, stamps: Any, age: Any) -> np.ndarray:
        """Stamp the points that tabu (R, K, L) forbids; which entries are inside their cluster, (R, K, L) bool."""
        inside = np.zeros(tabu.shape, bool)
        if not tabu.size:
            return inside
        (r, k, entries), n = tabu.shape, self.points.n
        rows, owners = to_device(tabu), cupy.empty(tabu.shape, np.int32)
        self.launch("labels.cu", "labels_of", self.spread(tabu.size), (
            labels, rows, owners, n, r, tabu.size // r))  # fmt: skip
        self.launch("labels.cu", "mark", self.spread(tabu.size), (
            labels, rows, stamps, age, n, r, k, entries, shared))  # fmt: skip
        inside = (owners.get() == np.arange(k)[:, None]) & (tabu >= 0)
        if self.points.weights is not None:
            inside &= self.points.weights_at(tabu) > 0
        return inside

    @on_device
    def objective_partial(self, centers: np.ndarray, labels: Any, exponent: int) -> np.ndarray:
        costs, device_centers = cupy.zeros((len(centers), 3), np.int64), to_device(centers)
        scale = float(power(LIMB - exponent))
        for chunk in self.chunks:
            self.launch_survey(chunk, device_centers, labels, costs, cost_scale=scale)
        return costs.get().T

    def launch_survey(
        self, chunk: DeviceChunk, centers: Any, labels: Any, costs: Any, keys: Any = None, stamps: Any = None,
        age: Any = None, bar: Any = None, done: Any = None, cost_scale: float | None = None,
    ) -> None:  # fmt: skip
        """Survey the points of a chunk: costs and, if they are given, keys. J is on the grid unless it has a scale."""
        shape, real, grid = structs.Shape(*centers.shape), self.points.dtype, self.device_grid
        paired, weighted = chunk.X.data.ptr % (2 * real.itemsize) == 0, chunk.weights is not None
        defines = shapes.survey_defines(shape.r, shape.d, paired, shapes.survey_resident(shape), weighted)
        room = self.room("tabu_argmin.cu", "survey", **defines)
        for part in self.parts(chunk, 2 * shape.r * shape.d):
            form = shapes.survey(room, part.n, shape, real, self.blocks, keys is not None, paired)
            defines["RESIDENT"] = int(form.resident)
            self.launch("tabu_argmin.cu", "survey", form.grid, (
                part.X, part.weights, centers, labels, stamps, age, bar, costs, keys, done, self.rows_of(part),
                shape, grid.cost_scale if cost_scale is None else cost_scale, grid.key_scale, form.private),
                form.shared, form.threads, **defines)  # fmt: skip
