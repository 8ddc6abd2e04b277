"""Points on a GPU with what every operation of the CUDA backend needs: a device, a stream, launches, the grid."""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Callable, Iterator
from typing import Any, Self, TypeVar

import cupy
import numpy as np

from gputabu.backend.arithmetic.fixed_point import Bounds, Grid, Totals
from gputabu.backend.arithmetic.keys import NO_KEY
from gputabu.backend.base import BackendBase
from gputabu.backend.cuda import launch as kernels
from gputabu.backend.cuda import shapes, structs
from gputabu.backend.cuda.memory import borrow_streams, return_streams, upload
from gputabu.backend.cuda.points import DeviceChunk, DevicePoints
from gputabu.backend.cuda.shapes import THREADS
from gputabu.backend.tuning import Tuning
from gputabu.core.caching import cached_property
from gputabu.data.points import Points

#: Blocks per multiprocessor: enough to hide latency, few enough that private tables are written back seldom.
BLOCKS_PER_SM = 2

Result = TypeVar("Result")
Method = TypeVar("Method", bound=Callable[..., Any])


def on_device(method: Method) -> Method:
    """Make a method of a backend run there: see `DeviceBackend.run`."""

    @functools.wraps(method)
    def run(self: DeviceBackend, *args: Any, **kwargs: Any) -> Any:
        return self.run(functools.partial(method, self, *args, **kwargs))

    return run  # type: ignore[return-value]


class DeviceBackend(BackendBase):
    """A data set on a GPU: the passes over the data, and what every other pass needs."""

    def __init__(self, points: Points, device: int | None = None, tuning: Tuning | None = None) -> None:
        if points.n >= 2**32:
            raise ValueError(f"n_samples={points.n} must be below 2^32 on backend='cuda'.")
        self.points, self.tuning = points, tuning or Tuning()
        self._runner: int | None = None  # the thread that is in `run`
        if points.on_device and device not in (None, points.chunks[0].device.id):
            raise ValueError(f"device={device} is not where X is: device {points.chunks[0].device.id}.")
        self.device = points.chunks[0].device if points.on_device else cupy.cuda.Device(device)
        with self.device:
            before = cupy.cuda.Event()
            before.record(cupy.cuda.get_current_stream())
            streams = borrow_streams(self.device.id)
            self.stream, self.copies = streams
            self._return_streams = weakref.finalize(self, return_streams, self.device.id, streams)
            self._return_streams.atexit = False  # by then CUDA may be gone
            self.stream.wait_event(before)  # whatever is still writing X
            attributes = self.device.attributes
            self.blocks = BLOCKS_PER_SM * attributes["MultiProcessorCount"]
            # A desktop that shows something on this device ends launches that take too long.
            self.watched = bool(attributes.get("KernelExecTimeout", 0))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stream.synchronize()
        for name in (
            "chunks",
            "device_grid",
            "loops",
            "lists",
        ):  # at once: `loops` knows us, and the next fit needs the memory
            self.__dict__.pop(name, None)
        self._return_streams()

    def run(self, work: Callable[[], Result]) -> Result:
        """Do `work` with the device and the stream current; with fewer points there if memory is short.

        Work allocates before it changes anything, so that what ran out of memory can begin again. Work inside of other
        work does not: the whole begins again, as its arrays are in the way of the points.
        """
        if self._runner == threading.get_ident():
            return work()
        with self.device, self.stream:
            while True:
                self._runner = threading.get_ident()
                try:
                    return work()
                except cupy.cuda.memory.OutOfMemoryError as error:
                    reason = str(error)
                finally:
                    self._runner = None
                # Only here: inside of the handler, the traceback has the arrays of what failed.
                chunks = self.__dict__.get("chunks")
                if chunks is None or not chunks.shrink():
                    raise MemoryError(
                        f"Out of device memory on device {self.device.id} ({reason}) even with the points streamed "
                        "in small chunks; use fewer restarts at once, or a device with more memory."
                    )

    @cached_property
    def chunks(self) -> DevicePoints:
        with self.device, self.stream:
            return DevicePoints(self.points, self.tuning.resident_share, self.copies)

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
        totals, device_grid = cupy.zeros(self.n_columns, np.int64), structs.Grid.upload(grid)
        for chunk in self.chunks:
            self.launch("measure.cu", "moments", self._columns(chunk), (
                chunk.X, chunk.weights, totals, device_grid, chunk.n, self.points.d))  # fmt: skip
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

    # -- what the passes need ------------------------------------------------------------------------

    @property
    def weighted(self) -> bool:
        return self.points.weights is not None

    @property
    def n_columns(self) -> int:
        return Totals.columns(self.points.d, self.weighted)

    @cached_property
    def device_grid(self) -> structs.Grid:
        """The grid as kernels take it."""
        return structs.Grid.upload(self.grid)

    def adopt_grid(self, bounds: Bounds, grid: Grid) -> None:
        super().adopt_grid(bounds, grid)
        self.__dict__.pop("device_grid", None)  # of the grid before

    def rows_of(self, chunk: DeviceChunk) -> structs.Chunk:
        """Which rows a chunk has, as kernels take it."""
        return structs.Chunk(chunk.n, chunk.start, self.points.n)

    def pieces(self, work: int) -> Iterator[DeviceChunk]:
        """The chunks, for a launch each that does `work` multiply-adds for a point."""
        for chunk in self.chunks:
            yield from self.parts(chunk, work)

    def parts(self, chunk: DeviceChunk, work: int) -> Iterator[DeviceChunk]:
        """A chunk; parts of it where one launch over all of it could be too long for the watchdog."""
        rows = max(1, shapes.LAUNCH_WORK // work) if self.watched else chunk.n
        if rows >= chunk.n:
            yield chunk
            return
        for first in range(0, chunk.n, rows):
            yield chunk.part(first, first + rows)

    def room(self, file: str, name: str, **defines: int) -> int:
        """Bytes of dynamic shared memory that a block of a kernel can have."""
        return kernels.room(file, name, self.points.dtype, **defines)

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
        """Launch kernel `name` of a source file with the type of the points."""
        kernels.launch(file, name, self.points.dtype, grid, threads, args, shared, **defines)

    def spread(self, elements: int) -> tuple[int]:
        """Blocks for a loop that strides over `elements`: few enough for any axis of a grid, x alone being long."""
        return (max(1, min(-(-elements // THREADS), 8 * self.blocks)),)

    def _columns(self, chunk: DeviceChunk) -> tuple[int, int]:
        """Blocks for kernels with a thread per column that stride over the rows."""
        return (-(-self.points.d // THREADS), max(1, min(chunk.n, 4 * self.blocks)))


def device_count() -> int:
    """GPUs that CuPy can see."""
    return int(cupy.cuda.runtime.getDeviceCount())


def filled(shape: Any, value: Any) -> Any:
    """An array of one value, in its type."""
    return cupy.full(shape, value, np.asarray(value).dtype)


def uploaded(shape: Any, value: Any) -> Any:
    """As `filled`, for small arrays: a copy instead of a launch."""
    return cupy.asarray(np.full(shape, value))


def to_device(centers: np.ndarray) -> Any:
    """A copy of a table, such as the centres, on the current device."""
    return upload(centers)


def _unsorted(bits: np.ndarray) -> np.ndarray:
    """Undo `sortable` of measure.cu."""
    top = np.uint64(2**63)
    return np.where(bits & top, bits ^ top, ~bits).view(np.float64)
