"""cupy.cuda.runtime, as far as it is used."""

import ctypes

import numpy as np

from .. import _hostcuda
from . import device as _device
from .errors import CUDARuntimeError
from .memory import check_read, host_view, mark_written
from .stream import refuse_in_capture, stream_of, submit

__all__ = [
    "CUDARuntimeError", "deviceSynchronize", "driverGetVersion", "getDevice", "getDeviceCount",
    "getDeviceProperties", "memGetInfo", "memcpyAsync", "memcpyDefault", "memcpyDeviceToDevice",
    "memcpyDeviceToHost", "memcpyHostToDevice", "memcpyHostToHost", "memsetAsync", "runtimeGetVersion",
    "setDevice", "streamSynchronize",
]  # fmt: skip
memcpyHostToHost, memcpyHostToDevice, memcpyDeviceToHost, memcpyDeviceToDevice, memcpyDefault = range(5)
_DIRECTIONS = {1: "host_to_device", 2: "device_to_host", 3: "device_to_device"}


def getDeviceCount():
    return _hostcuda.settings.devices


def getDevice():
    return _device.current()


def setDevice(device):
    _device.Device(device).use()


def runtimeGetVersion():
    return 12090


def driverGetVersion():
    return 12090


def memGetInfo():
    return _device.Device().mem_info


def deviceSynchronize():
    _device.Device().synchronize()


def getDeviceProperties(device):
    a = _hostcuda.attributes
    return {
        "name": b"hostcuda", "totalGlobalMem": _hostcuda.settings.memory, "warpSize": 32,
        "major": a["ComputeCapabilityMajor"], "minor": a["ComputeCapabilityMinor"],
        "multiProcessorCount": a["MultiProcessorCount"], "l2CacheSize": a["L2CacheSize"],
        "sharedMemPerBlock": a["MaxSharedMemoryPerBlock"], "regsPerBlock": a["MaxRegistersPerBlock"],
        "sharedMemPerBlockOptin": a["MaxSharedMemoryPerBlockOptin"],
        "sharedMemPerMultiprocessor": a["MaxSharedMemoryPerMultiprocessor"],
        "maxThreadsPerBlock": a["MaxThreadsPerBlock"],
        "maxThreadsPerMultiProcessor": a["MaxThreadsPerMultiProcessor"],
    }  # fmt: skip


def memcpyAsync(dst, src, size, kind, stream):
    if kind not in _DIRECTIONS:
        raise CUDARuntimeError(1)

    def action():
        source, target = (host_view(p, (size,), np.uint8) for p in (src, dst))
        if kind == memcpyDeviceToHost:
            check_read(source, "memcpyAsync")
        else:
            mark_written(target, "memcpyAsync", source)
        ctypes.memmove(dst, src, size)
        _hostcuda.counts.copy(_DIRECTIONS[kind], size)

    submit(action, stream_of(stream))


def memsetAsync(ptr, value, size, stream):
    def action():
        mark_written(host_view(ptr, (size,), np.uint8), "memsetAsync")
        ctypes.memset(ptr, value, size)
        _hostcuda.counts.kernel("cuda.memset", 0, size)

    submit(action, stream_of(stream))


def streamSynchronize(stream):
    refuse_in_capture()
    stream_of(stream).synchronize()
