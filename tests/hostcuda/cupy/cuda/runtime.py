"""cupy.cuda.runtime, as far as it is used."""

import numpy as np

from .. import _hostcuda, _order
from . import device as _device
from .errors import CUDARuntimeError
from .memory import check_read, host_view, mark_written, pinned_at, starts
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
    _hostcuda.begin()
    if _hostcuda.settings.devices == 0:
        raise CUDARuntimeError(100)
    return _hostcuda.settings.devices


def getDevice():
    return _device.current()


def setDevice(device):
    _device.Device(device).use()


def runtimeGetVersion():
    return _hostcuda.RUNTIME


def driverGetVersion():
    return _hostcuda.settings.driver  # 0 where there is none


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
    source, target = (host_view(p, (size,), np.uint8) for p in (src, dst))
    landed = np.empty(size, np.uint8) if kind == memcpyDeviceToHost else target

    def action():
        if kind == memcpyDeviceToHost:
            check_read(source, "memcpyAsync")
        else:
            mark_written(target, "memcpyAsync", source)
        landed[...] = source
        _hostcuda.counts.copy(_DIRECTIONS[kind], size)

    uses = [(start, False) for start in starts(source)] + [(start, True) for start in starts(target)]
    stream = stream_of(stream)
    number = submit(action, stream, "memcpyAsync", uses)
    if kind == memcpyDeviceToHost:
        _order.written_later(stream._key, number, target, landed)
    elif number and pinned_at(src) is not None:  # whose other memory is, and how long, cannot be known
        _order.read_later(stream._key, number, source, pinned_at(src))


def memsetAsync(ptr, value, size, stream):
    view = host_view(ptr, (size,), np.uint8)

    def action():
        mark_written(view, "memsetAsync")
        view[...] = value
        _hostcuda.counts.kernel("cuda.memset", 0, size)

    submit(action, stream_of(stream), "memsetAsync", [(start, True) for start in starts(view)])


def streamSynchronize(stream):
    refuse_in_capture()
    stream_of(stream).synchronize()
