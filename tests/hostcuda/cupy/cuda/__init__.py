"""cupy.cuda, as far as it is used."""

from . import compiler, device, driver, memory, nvrtc, runtime, stream
from .device import Device
from .memory import Memory, MemoryPointer, MemoryPool, UnownedMemory, alloc_pinned_memory
from .stream import Event, Graph, Stream, get_current_stream, get_elapsed_time

__all__ = [
    "Device", "Event", "Graph", "Memory", "MemoryPointer", "MemoryPool", "Stream", "UnownedMemory",
    "alloc_pinned_memory", "compiler", "device", "driver", "get_current_stream", "get_elapsed_time", "is_available",
    "memory", "nvrtc", "runtime", "stream",
]  # fmt: skip


def is_available():
    """CuPy also keeps the answer; it says no more than this of any error."""
    try:
        return runtime.getDeviceCount() > 0
    except runtime.CUDARuntimeError:
        return False
