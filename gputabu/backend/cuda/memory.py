"""Memory and streams of a GPU as CuPy keeps them, and the way of host arrays to it."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, NamedTuple

import cupy
import numpy as np

from gputabu.core.log import log

#: Bytes of one of the two host buffers that arrays go through.
STAGE_BYTES = 1 << 25
#: Bytes up to which CuPy copies an array by itself: it pins a buffer of that size, and keeps it for the next.
SMALL_BYTES = 1 << 20


class Streams(NamedTuple):
    """The streams of a backend. Memory is allocated on the first; the second copies beside its kernels."""

    compute: Any
    copies: Any


_idle: defaultdict[int, list[Streams]] = defaultdict(list)  # by device


def borrow_streams(device: int) -> Streams:
    """Streams of the current device that nobody else has.

    CuPy keeps freed memory for the stream it was allocated on. New streams for every fit would each leave behind what
    the fit had needed.
    """
    try:
        return _idle[device].pop()
    except IndexError:
        return Streams(cupy.cuda.Stream(non_blocking=True), cupy.cuda.Stream(non_blocking=True))


def return_streams(device: int, streams: Streams) -> None:
    """Let others have them; what is still running comes before whatever they do."""
    if not streams.compute.is_capturing():
        _idle[device].append(streams)


def available() -> int:
    """Bytes that can be had on the current device: the driver's, and those that CuPy keeps and nobody uses."""
    pool = cupy.get_default_memory_pool()
    free = cupy.cuda.Device().mem_info[0] + pool.free_bytes()
    limit = pool.get_limit()
    return min(free, limit - pool.used_bytes()) if limit else free


def upload(array: np.ndarray) -> Any:
    """A copy of a host array on the current device, in the order of the current stream; the array is free again."""
    array = np.ascontiguousarray(array)
    if array.nbytes <= SMALL_BYTES:
        return cupy.asarray(array)
    found, staging = cupy.empty(array.shape, array.dtype), Staging(array.nbytes)
    staging.copy(array, found, cupy.cuda.get_current_stream())
    staging.wait()
    return found


class Staging:
    """Two host buffers that arrays of any size go through: one is filled while the other is copied.

    Copies read host memory until their stream is waited for, on some systems also memory that is not pinned. So nothing
    but these buffers is ever copied from.
    """

    def __init__(self, size: int) -> None:
        """For arrays of `size` bytes, or more."""
        # Few sizes: CuPy keeps a pinned buffer for the next of exactly its size.
        self.size = min(STAGE_BYTES, 1 << max(9, (size - 1).bit_length()))
        self.buffers = [_Buffer(self.size) for _ in range(2)]

    def copy(self, source: np.ndarray, target: Any, stream: Any) -> None:
        """Copy `source` into the contiguous device array `target`, in the order of a stream; it is free again."""
        flat, there = source.reshape(-1), target.reshape(-1)
        count = self.size // flat.itemsize
        for a in range(0, flat.size, count):
            self.buffers[0].send(flat[a : a + count], there[a : a + count], stream)
            self.buffers.reverse()

    def wait(self) -> None:
        """Until every copy has ended. Buffers must not be let go before."""
        for buffer in self.buffers:
            buffer.wait()


class _Buffer:
    """Host memory that one copy at a time reads."""

    def __init__(self, size: int) -> None:
        self.memory = _pinned(size)
        self.copied, self.busy = cupy.cuda.Event(disable_timing=True), False

    def send(self, source: np.ndarray, target: Any, stream: Any) -> None:
        self.wait()
        part = self.memory[: source.nbytes].view(source.dtype)
        part[...] = source
        try:
            self.busy = True
            target.set(part, stream=stream)
        finally:
            self.copied.record(stream)

    def wait(self) -> None:
        if self.busy:
            self.copied.synchronize()
        self.busy = False


def _pinned(size: int) -> np.ndarray:
    """Host memory that copies need not be repeated for by the driver; any other where the system gives no such."""
    try:
        return np.frombuffer(cupy.cuda.alloc_pinned_memory(size), np.uint8, size)
    except cupy.cuda.runtime.CUDARuntimeError as error:
        log.info("no host memory can be pinned (%s): copies to the device take longer", error)
        return np.empty(size, np.uint8)
