"""Points on a GPU: resident where they fit, otherwise streamed through two buffers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import cupy
import numpy as np

from gputabu.backend.cuda.memory import Staging, available, upload
from gputabu.core.log import log
from gputabu.core.validation import check_shape, check_weights, float_for
from gputabu.data.points import Points
from gputabu.data.sources import Source

#: Share of the free memory for one of the two buffers that points are streamed through,
BUFFER_SHARE = 0.2
#: and its bytes at the most: a copy of that size hides what it costs to begin one.
BUFFER_BYTES = 1 << 27
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


def fetched(X: Any) -> np.ndarray:
    """An array of any CUDA library as NumPy's."""
    array = taken(X)
    with array.device:  # else CuPy reads it in the order of another device's stream
        return array.get()


def handed_out(array: Any, points: Points) -> Any:
    """An array, from the host or the device, as the kind of array that the points came in, where they are."""
    with points.chunks[0].device:  # CuPy lets whoever takes it wait for a stream of the current device
        there = upload(array) if isinstance(array, np.ndarray) else array
        return there if points.maker is None else points.maker(there)


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

    def __init__(self, points: Points, share: float, copies: Any) -> None:
        """Points that take no more than this share of the free memory stay there; others come by a stream."""
        self.points, self.copies = points, copies
        self.resident: list[DeviceChunk] | None = None
        self.buffers: list[_Buffer] = []
        row = points.d * points.dtype.itemsize + (0 if points.weights is None else 8)
        self.staging: Staging | None = None
        free = available()
        if points.on_device:
            self.resident = [self._upload(c) for c in range(len(points.chunks))]
        elif points.n * row <= share * free:
            with suppress(cupy.cuda.memory.OutOfMemoryError):  # behind it, what had been allocated is let go
                self.resident = [self._upload(c) for c in range(len(points.chunks))]
        if self.resident is None:
            size = points.n * row
            log.info("the points (%.1f MB) are streamed: the device has %.1f MB free", size / 2**20, free / 2**20)
            self._make_buffers(max(LEAST_ROWS, int(min(BUFFER_SHARE * free, BUFFER_BYTES) / max(1, row))))

    def shrink(self) -> bool:
        """Make room: stream what is resident, or halve the chunks. False where nothing more can be given up."""
        if self.points.on_device:
            return False
        if self.resident is not None:
            self.resident = None
            rows = self.points.n // 4
            log.info("device memory is short: the points are streamed")
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
        buffers = self.buffers
        for i, block in enumerate(self.points.blocks(buffers[0].rows)):
            chunk = buffers[i % 2].load(block, self._staging)
            try:
                yield chunk
            finally:
                buffers[i % 2].release()

    @property
    def _staging(self) -> Staging:
        if self.staging is None:
            self.staging = Staging(self.points.n * self.points.d * self.points.dtype.itemsize)
        return self.staging

    def _upload(self, c: int) -> DeviceChunk:
        chunk, weights = self.points.chunks[c], None
        if self.points.weights is not None:
            weights = upload(self.points.weights[c])
        if isinstance(chunk, np.ndarray):
            return DeviceChunk(upload(chunk), weights, self.points.starts[c])
        if not isinstance(chunk, Source):
            return DeviceChunk(chunk, weights, self.points.starts[c])
        X, first, stream = cupy.empty(chunk.shape, chunk.dtype), 0, cupy.cuda.get_current_stream()
        for piece in chunk.pieces():
            self._staging.copy(piece, X[first : first + len(piece)], stream)
            first += len(piece)
        self._staging.wait()
        return DeviceChunk(X, weights, self.points.starts[c])

    def _make_buffers(self, rows: int) -> None:
        """Two buffers of the largest size that can be had; half of it, and half again, where memory is short."""
        rows = min(rows, self.points.n, *(c.chunk_rows for c in self.points.chunks if isinstance(c, Source)))
        while True:
            try:
                self.buffers = [_Buffer(self.points, rows, self.copies) for _ in range(2)]
                return
            except cupy.cuda.memory.OutOfMemoryError:
                self.buffers = []
                if rows <= LEAST_ROWS:
                    raise
                rows = max(LEAST_ROWS, rows // 2)
                log.info("device memory is short: chunks of %d rows", rows)


class _Buffer:
    """Device memory for some rows; the copy into it runs beside the kernels that read the other buffer."""

    def __init__(self, points: Points, rows: int, copies: Any) -> None:
        self.rows, self.copies, self.compute = rows, copies, cupy.cuda.get_current_stream()
        self.X = cupy.empty((rows, points.d), points.dtype)
        self.weights = None if points.weights is None else cupy.empty(rows, np.float64)
        self.used = cupy.cuda.Event(disable_timing=True)
        self.copied = cupy.cuda.Event(disable_timing=True)
        self.release()  # it may be memory that kernels still read: CuPy hands it out in the order of their stream

    def load(self, block: Any, staging: Staging) -> DeviceChunk:
        n = len(block.X)
        weights = None if self.weights is None else self.weights[:n]
        self.copies.wait_event(self.used)
        try:
            staging.copy(block.X, self.X[:n], self.copies)
            if weights is not None:
                staging.copy(block.weights, weights, self.copies)
        finally:  # of half a copy, too: this memory may be handed out again
            self.copied.record(self.copies)
            self.compute.wait_event(self.copied)
        return DeviceChunk(self.X[:n], weights, block.start)

    def release(self) -> None:
        """All that reads the buffer has been launched: the next copy waits for that, and for nothing later."""
        self.used.record(self.compute)
