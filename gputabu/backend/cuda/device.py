"""Points on a GPU with what every operation of the CUDA backend needs: a device, a stream, launches, the grid."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, Self, TypeVar

import cupy
import numpy as np

from gputabu.backend.arithmetic.constants import LIMB
from gputabu.backend.arithmetic.fixed_point import Bounds, Grid, Totals, power
from gputabu.backend.base import BackendBase
from gputabu.backend.cuda import launch as kernels
from gputabu.backend.cuda.points import DevicePoints
from gputabu.backend.tuning import Tuning
from gputabu.core.caching import cached_property
from gputabu.data.points import Points

THREADS = 256
#: Blocks per multiprocessor: enough to hide latency, few enough that private tables are written back seldom.
BLOCKS_PER_SM = 2
NO_KEY = np.uint64(2**64 - 1)

Method = TypeVar("Method", bound=Callable[..., Any])


def on_device(method: Method) -> Method:
    """Run a method with the device and the stream of its ops current; with fewer points there if memory is short.

    Operations allocate before they change anything, so that one that ran out of memory can begin again.
    """

    @functools.wraps(method)
    def run(self: DeviceBackend, *args: Any, **kwargs: Any) -> Any:
        with self.device, self.stream:
            while True:
                try:
                    return method(self, *args, **kwargs)
                except cupy.cuda.memory.OutOfMemoryError as error:
                    held = self.__dict__.get("chunks")
                    if held is None or not held.shrink():
                        raise MemoryError(
                            f"Out of device memory on device {self.device.id} ({error}) even with the points streamed "
                            "in small chunks; use fewer restarts at once, or a device with more memory."
                        ) from None

    return run  # type: ignore[return-value]


class DeviceBackend(BackendBase):
    """A data set on a GPU, and what is measured of it once."""

    def __init__(self, points: Points, device: int | None = None, tuning: Tuning | None = None) -> None:
        if points.n >= 2**32:
            raise ValueError(f"n_samples={points.n} must be below 2^32 on backend='cuda'.")
        self.points, self.tuning = points, tuning or Tuning()
        if points.on_device and device not in (None, points.chunks[0].device.id):
            raise ValueError(f"device={device} is not where X is: device {points.chunks[0].device.id}.")
        self.device = points.chunks[0].device if points.on_device else cupy.cuda.Device(device)
        with self.device:
            before = cupy.cuda.Event()
            before.record(cupy.cuda.get_current_stream())
            self.stream = cupy.cuda.Stream(non_blocking=True)
            self.stream.wait_event(before)  # whatever is still writing X
            attributes = self.device.attributes
            self.blocks = BLOCKS_PER_SM * attributes["MultiProcessorCount"]
            # Less a little for what kernels declare themselves.
            self.shared_limit = attributes.get("MaxSharedMemoryPerBlockOptin", 48 * 1024) - 2048

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stream.synchronize()

    @cached_property
    def chunks(self) -> DevicePoints:
        with self.device, self.stream:
            return DevicePoints(self.points, self.tuning.resident_share)

    @on_device
    def bounds_partial(self) -> Bounds:
        d = self.points.d
        low, high = uploaded(d, NO_KEY), cupy.zeros(d, np.uint64)
        bad = cupy.zeros(1, np.int64)
        for chunk in self.chunks:
            self.launch("measure.cu", "bounds", self._columns(chunk), (
                chunk.X, chunk.weights, low, high, bad, chunk.n, d))  # fmt: skip
        if int(bad.get()[0]):
            raise ValueError("X contains NaN or infinity; every value must be a finite number.")
        weight = 1.0 if self.points.weights is None else max(float(w.max()) for w in self.points.weights)
        if weight == 0:
            nothing = np.full(d, np.inf)
            return Bounds(nothing, -nothing, 0.0)
        return Bounds(_unsorted(low.get()), _unsorted(high.get()), weight)

    @on_device
    def moments(self, grid: Grid) -> np.ndarray:
        totals = cupy.zeros(self.n_columns, np.int64)
        offset, scale = cupy.asarray(grid.offset), cupy.asarray(scales(grid))
        for chunk in self.chunks:
            self.launch("measure.cu", "total", self._columns(chunk), (
                chunk.X, chunk.weights, offset, scale, totals, chunk.n, self.points.d,
                float(power(LIMB - grid.weight))))  # fmt: skip
        return totals.get()

    @on_device
    def rows(self, indices: np.ndarray) -> np.ndarray:
        if not self.points.on_device:
            return self.points.rows(indices)
        wanted = cupy.asarray(np.ascontiguousarray(indices).ravel())
        found = cupy.empty((wanted.size, self.points.d), np.float64)
        for chunk in self.chunks:
            self.launch("measure.cu", "fetch_rows", self.spread(found.size), (
                chunk.X, wanted, found, chunk.n, chunk.start, wanted.size, self.points.d))  # fmt: skip
        return found.get().reshape(*indices.shape, self.points.d)

    @property
    def n_columns(self) -> int:
        return Totals.columns(self.points.d, self.points.weights is not None)

    def launch(
        self,
        file: str,
        name: str,
        grid: tuple[int, ...],
        args: tuple[Any, ...],
        shared: int = 0,
        threads: int = THREADS,
        **defines: int,
    ) -> None:
        kernels.launch(file, name, self.points.dtype, grid, threads, args, shared, **defines)

    def spread(self, elements: int) -> tuple[int]:
        """Blocks for a loop that strides over `elements`: few enough for any axis of a grid, x alone being long."""
        return (max(1, min(-(-elements // THREADS), 8 * self.blocks)),)

    def _columns(self, chunk: Any) -> tuple[int, int]:
        """Blocks for kernels with a thread per column that stride over the rows."""
        return (-(-self.points.d // THREADS), max(1, min(chunk.n, 4 * self.blocks)))


def device_count() -> int:
    """GPUs that CuPy can see."""
    return int(cupy.cuda.runtime.getDeviceCount())


def filled(shape: Any, value: Any) -> Any:
    return cupy.full(shape, value, np.asarray(value).dtype)


def uploaded(shape: Any, value: Any) -> Any:
    """As `filled`, for small arrays: a copy instead of a launch."""
    return cupy.asarray(np.full(shape, value))


def scales(grid: Grid) -> np.ndarray:
    return np.asarray(power(LIMB - grid.coordinate), np.float64)


def _unsorted(bits: np.ndarray) -> np.ndarray:
    """Undo `sortable` of measure.cu."""
    top = np.uint64(2**63)
    return np.where(bits & top, bits ^ top, ~bits).view(np.float64)
