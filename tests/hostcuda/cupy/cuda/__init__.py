"""cupy.cuda, as far as it is used."""

from .. import _hostcuda
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
    return _hostcuda.settings.devices > 0
