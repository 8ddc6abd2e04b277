"""Points on a GPU: resident where they fit, otherwise streamed from pinned host memory through two buffers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import cupy
import numpy as np

from gputabu.core.log import log
from gputabu.core.validation import check_shape, check_weights, float_for
from gputabu.data.points import Points
from gputabu.data.sources import Source

#: Share of the free memory for one of the two buffers of a stream.
BUFFER_SHARE = 0.2
#: Below this there is no point in going on with less.
LEAST_ROWS = 256


def taken(X: Any) -> Any:
    """An array of any CUDA library as CuPy's, without a copy; DLPack also waits for whoever still writes to it."""
    if isinstance(X, cupy.ndarray):
        return X
    return cupy.from_dlpack(X) if hasattr(X, "__dlpack__") else cupy.asarray(X)


def adopt(X: Any, weights: np.ndarray | None) -> Points:
    """Points over an array of any CUDA library, without a copy where it is contiguous float32 or float64."""
    array = taken(X)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"X must be an array of real numbers: got dtype {array.dtype}.")
    check_shape(array.shape)
    with array.device:
        array = cupy.ascontiguousarray(array, dtype=float_for(array.dtype))
    weights = check_weights(weights, len(array))
    return Points((array,), None if weights is None else (weights,))


def on_device_of(array: np.ndarray, points: Points) -> Any:
    """A copy of a host array on the device where the points are."""
    if not isinstance(array, np.ndarray):
        return array
    with points.chunks[0].device:
        return cupy.asarray(array)


@dataclass(frozen=True, slots=True)
class DeviceChunk:
    """Some consecutive rows in device memory."""

    X: Any  # (n, d)
    weights: Any | None  # (n,)
    start: int

    @property
    def n(self) -> int:
        return self.X.shape[0]

    def part(self, first: int, last: int) -> DeviceChunk:
        """Rows [first, last) of it."""
        weights = None if self.weights is None else self.weights[first:last]
        return DeviceChunk(self.X[first:last], weights, self.start + first)


class DevicePoints:
    """The chunks of `points` on the current device."""

    def __init__(self, points: Points, share: float) -> None:
        """Points that take no more than this share of the free memory stay there."""
        self.points = points
        self.resident: list[DeviceChunk] | None = None
        self.buffers: list[_Buffer] = []
        bytes_ = points.n * (points.d * points.dtype.itemsize + (0 if points.weights is None else 8))
        free = cupy.cuda.Device().mem_info[0]
        if points.on_device or bytes_ <= share * free:
            try:
                self.resident = [self._upload(c) for c in range(len(points.chunks))]
            except cupy.cuda.memory.OutOfMemoryError:
                log.info("the points do not fit the device: they are streamed")
        if self.resident is None:
            self._make_buffers(max(LEAST_ROWS, int(BUFFER_SHARE * free / max(1, bytes_ // points.n))))

    def shrink(self) -> bool:
        """Make room: stream what is resident, or halve the chunks. False where nothing more can be given up."""
        if self.points.on_device:
            return False
        if self.resident is not None:
            self.resident = None
            rows = self.points.n // 4
        elif self.buffers and self.buffers[0].rows > LEAST_ROWS:
            rows = self.buffers[0].rows // 2
        else:
            return False
        self.buffers = []
        try:
            self._make_buffers(max(LEAST_ROWS, rows))
        except cupy.cuda.memory.OutOfMemoryError:
            return False
        return True

    def __iter__(self) -> Iterator[DeviceChunk]:
        if self.resident is not None:
            yield from self.resident
            return
        for i, block in enumerate(self.points.blocks(self.buffers[0].rows)):
            yield self.buffers[i % 2].load(block)

    def _upload(self, c: int) -> DeviceChunk:
        chunk, weights = self.points.chunks[c], None
        if self.points.weights is not None:
            weights = cupy.asarray(self.points.weights[c])
        if not isinstance(chunk, Source):
            return DeviceChunk(cupy.asarray(chunk), weights, self.points.starts[c])
        X, first = cupy.empty(chunk.shape, chunk.dtype), 0
        for piece in chunk.pieces():
            X[first : first + len(piece)].set(piece)
            first += len(piece)
        return DeviceChunk(X, weights, self.points.starts[c])

    def _make_buffers(self, rows: int) -> None:
        """Two buffers of the largest size that can be had; half of it, and half again, where memory is short."""
        rows = min(rows, self.points.n, *(c.chunk_rows for c in self.points.chunks if isinstance(c, Source)))
        while True:
            try:
                self.buffers = [_Buffer(self.points, rows) for _ in range(2)]
                return
            except cupy.cuda.memory.OutOfMemoryError:
                self.buffers = []
                if rows <= LEAST_ROWS:
                    raise
                rows = max(LEAST_ROWS, rows // 2)
                log.info("device memory is short: chunks of %d rows", rows)


class _Buffer:
    """Pinned host memory and device memory for some rows; the copy runs beside the kernels of the other buffer."""

    def __init__(self, points: Points, rows: int) -> None:
        self.rows = rows
        self.X = cupy.empty((rows, points.d), points.dtype)
        self.weights = None if points.weights is None else cupy.empty(rows, np.float64)
        self.host_X = _pinned((rows, points.d), points.dtype)
        self.host_weights = _pinned((rows,), np.dtype(np.float64)) if points.weights is not None else np.empty(0)
        self.copies = cupy.cuda.Stream(non_blocking=True)
        self.used = cupy.cuda.Event()
        self.copied = cupy.cuda.Event()
        self.busy = False

    def load(self, block: Any) -> DeviceChunk:
        compute = cupy.cuda.get_current_stream()
        if self.busy:  # the kernels that read this buffer, and the copy into it, must have ended
            self.used.record(compute)
            self.copies.wait_event(self.used)
            self.copied.synchronize()
        n = len(block.X)
        self.host_X[:n] = block.X
        self.X[:n].set(self.host_X[:n], stream=self.copies)
        weights = None
        if self.weights is not None:
            self.host_weights[:n] = block.weights
            weights = self.weights[:n]
            weights.set(self.host_weights[:n], stream=self.copies)
        self.copied.record(self.copies)
        compute.wait_event(self.copied)
        self.busy = True
        return DeviceChunk(self.X[:n], weights, block.start)


def _pinned(shape: tuple[int, ...], dtype: np.dtype) -> np.ndarray:
    count = int(np.prod(shape))
    memory = cupy.cuda.alloc_pinned_memory(count * dtype.itemsize)
    return np.frombuffer(memory, dtype, count).reshape(shape)
