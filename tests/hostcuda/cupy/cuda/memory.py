"""Device and pinned memory, and the shadow that tells which bytes were ever written."""

import ctypes
import weakref

import numpy as np

from .. import _hostcuda, _order
from .._compile import lock, runtime
from . import _pool
from . import device as _device
from .errors import CUDARuntimeError
from .stream import get_current_stream, refuse_in_capture

__all__ = ["Memory", "MemoryPointer", "MemoryPool", "OutOfMemoryError", "UnownedMemory"]
ARENA = 256 << 30  # as in hooks.cpp
UNIT = 512  # CuPy's pool hands out multiples of this
NOTHING, WRITTEN = 0, 2  # shadow bytes, as in hooks.cpp
_limit = 0


class OutOfMemoryError(MemoryError):
    def __init__(self, size, total, limit=0):
        bound = f" (limit set to: {limit:,} bytes)" if limit else ""
        super().__init__(f"Out of memory allocating {size:,} bytes (allocated so far: {total:,} bytes{bound}).")


class Memory:
    """One allocation of the pool; freed with the object."""

    def __init__(self, size):
        refuse_in_capture()
        _hostcuda.begin()
        self.ptr, self.size, self.device_id = 0, size, _device.current()
        if size == 0:
            return
        settings = _hostcuda.settings
        rounded = -(-size // UNIT) * UNIT
        pool = _pool.pool_of(self.device_id)
        _hostcuda.counts.allocations += 1
        bound = min(settings.memory, _limit or settings.memory)
        fails = _hostcuda.planned("fail_allocation")
        self._chunk = None if fails else pool.allocate(rounded, get_current_stream()._key, bound)
        if self._chunk is None:
            raise OutOfMemoryError(rounded, pool.total, _limit)
        with lock:
            sparse = size >= settings.sparse
            ptr = runtime().hostcuda_allocate(size, self.device_id, sparse, settings.check)
        if not ptr:
            pool.free(self._chunk)
            raise OutOfMemoryError(rounded, pool.total)
        self.ptr = ptr
        self._uses = _order.allocated(ptr, self._chunk.before)
        _hostcuda.live[ptr] = (rounded, self.device_id)

    def __del__(self):
        if getattr(self, "ptr", 0) and _hostcuda.live.pop(self.ptr, None):
            with lock:
                runtime().hostcuda_free(self.ptr)
            _order.freed(self.ptr)
            self._chunk.before = [self._uses]  # whoever gets it next comes after these
            _pool.pool_of(self.device_id).free(self._chunk)

    @property
    def device(self):
        return _device.Device(self.device_id)


class UnownedMemory:
    """Memory of another library, kept alive by `owner`."""

    def __init__(self, ptr, size, owner, device_id=-1):
        found = find(ptr) if size else None
        if size and found is None:
            raise ValueError(f"0x{ptr:x} is not an address of device memory.")
        self.ptr, self.size, self._owner = ptr, size, owner
        self.device_id = found[2] if found else _device.current()

    device = Memory.device


class MemoryPointer:
    def __init__(self, mem, offset):
        self.mem, self.ptr, self.device_id = mem, mem.ptr + offset, mem.device_id

    device = Memory.device

    def __int__(self):
        return self.ptr


class MemoryPool:
    """The part of CuPy's pool that programs ask about, for the current device."""

    def __init__(self, allocator=None):
        pass

    def used_bytes(self):
        return _pool.pool_of(_device.current()).used

    def total_bytes(self):
        return _pool.pool_of(_device.current()).total

    def free_bytes(self):
        return self.total_bytes() - self.used_bytes()

    def free_all_blocks(self, stream=None):
        _pool.pool_of(_device.current()).give_back(None if stream is None else stream._key)

    def set_limit(self, size=None, fraction=None):
        global _limit
        _limit = size or 0 if fraction is None else int(fraction * _hostcuda.settings.memory)

    def get_limit(self):
        return _limit


_pinned = weakref.WeakValueDictionary()  # by address


class PinnedMemoryPointer(bytearray):
    """A buffer as NumPy's frombuffer takes it (bytearray, since Python 3.11 knows no __buffer__)."""

    def __init__(self, size):
        super().__init__(b"\xff" * size)
        self.ptr = ctypes.addressof(ctypes.c_char.from_buffer(self)) if size else 0
        _pinned[self.ptr] = self
        self._rounded = 0

    def __del__(self):
        _pool.unpin(self._rounded)


def alloc_pinned_memory(size):
    refuse_in_capture()
    rounded = _pool.pin(size)
    if rounded is None:
        raise CUDARuntimeError(2)
    memory = PinnedMemoryPointer(size)
    memory._rounded = rounded
    return memory


def pinned_at(address):
    """The pinned memory that an address lies in, or None."""
    return next((memory for start, memory in list(_pinned.items()) if 0 <= address - start < len(memory)), None)


def starts(*views):
    """Where the allocations begin that NumPy views of device memory lie in."""
    found = [find(view.__array_interface__["data"][0]) for view in views if view.size]
    return [place[0] for place in found if place]


def find(ptr):
    """(start, bytes, device) of the living allocation an address lies in, or None."""
    start, size, device = ctypes.c_void_p(), ctypes.c_size_t(), ctypes.c_int()
    with lock:
        alive = runtime().hostcuda_find(ctypes.c_void_p(ptr), *map(ctypes.byref, (start, size, device)))
    return (start.value, size.value, device.value) if alive == 1 else None


def host_view(ptr, shape, dtype, strides=None):
    """A NumPy array over raw memory; never handed out."""
    dtype = np.dtype(dtype)
    if ptr == 0 or 0 in shape:
        return np.empty(shape, dtype)
    steps = strides or dtype.itemsize * np.cumprod([1, *shape[:0:-1]])[::-1]
    low = sum(min(0, (n - 1) * s) for n, s in zip(shape, steps, strict=False))
    high = sum(max(0, (n - 1) * s) for n, s in zip(shape, steps, strict=False)) + dtype.itemsize
    buffer = (ctypes.c_char * int(high - low)).from_address(int(ptr + low))
    return np.ndarray(shape, dtype, buffer, int(-low), strides)


def _shadow(view):
    """The shadow bytes of a view, one more axis; None where nothing is tracked."""
    if not _hostcuda.settings.check or not view.size:
        return None
    library, ptr = runtime(), view.__array_interface__["data"][0]
    if not 0 <= ptr - library.arena < ARENA:
        return None
    found = find(ptr)
    if found and found[1] >= _hostcuda.settings.sparse:
        return None
    shape, strides = (*view.shape, view.itemsize), (*view.strides, 1)
    return host_view(library.shadow + ptr - library.arena, shape, np.uint8, strides)


def check_read(view, what):
    """Raise if a byte of the view was never written, or is freed."""
    shadow = _shadow(view)
    if shadow is not None and (shadow != WRITTEN).any():
        state = "freed memory" if (shadow == NOTHING).any() else "memory never written"
        raise _hostcuda.violation(f"{what} reads {state}.")


def mark_written(view, what, source=None):
    """Note that a view is written, or as much of it as `source` was."""
    shadow = _shadow(view)
    if shadow is None:
        return
    if (shadow == NOTHING).any():
        raise _hostcuda.violation(f"{what} writes freed memory or out of bounds.")
    known = None if source is None else _shadow(source)
    shadow[...] = WRITTEN if known is None else known


def mark_all_written():
    library = runtime()
    for ptr in _hostcuda.live:
        start, size, _ = find(ptr)
        if size < _hostcuda.settings.sparse:
            ctypes.memset(library.shadow + start - library.arena, WRITTEN, size)
