"""Devices that hostcuda can be: their limits, as the CUDA C++ Programming Guide has them; and what a launch may take.

Shared memory beyond 48 KiB a block, static and dynamic together, must be asked for by an attribute of the function.
It belongs to the function and the context: all threads of the process, and all objects for the function, have the same.
"""

from . import _hostcuda
from .cuda.errors import CUDADriverError

PLAIN = 48 << 10  # what a block may have without asking


def _device(capability, optin, multiprocessors, threads=1536, blocks=16, watchdog=0, per_multiprocessor=None):
    per_multiprocessor = optin + 1 if per_multiprocessor is None else per_multiprocessor  # 1 KiB is the system's
    return {
        "ComputeCapabilityMajor": capability // 10, "ComputeCapabilityMinor": capability % 10,
        "MultiProcessorCount": multiprocessors, "KernelExecTimeout": watchdog,
        "MaxSharedMemoryPerBlock": PLAIN, "MaxSharedMemoryPerBlockOptin": optin << 10,
        "MaxSharedMemoryPerMultiprocessor": per_multiprocessor << 10,
        "MaxThreadsPerMultiProcessor": threads, "MaxBlocksPerMultiprocessor": blocks,
        "WarpSize": 32, "MaxThreadsPerBlock": 1024,
        "MaxBlockDimX": 1024, "MaxBlockDimY": 1024, "MaxBlockDimZ": 64,
        "MaxGridDimX": 2**31 - 1, "MaxGridDimY": 65535, "MaxGridDimZ": 65535,
        "MaxRegistersPerBlock": 65536, "MaxRegistersPerMultiprocessor": 65536, "L2CacheSize": 4 << 20,
    }  # fmt: skip


PROFILES = {
    "plain": _device(86, 99, 8),
    "small": _device(61, 48, 3, threads=2048, blocks=32, watchdog=1, per_multiprocessor=96),  # of a desktop
    "v100": _device(70, 96, 80, threads=2048, blocks=32, per_multiprocessor=96),
    "t4": _device(75, 64, 40, threads=1024, per_multiprocessor=64),
    "a100": _device(80, 163, 108, threads=2048, blocks=32),
    "rtx3090": _device(86, 99, 82, watchdog=1),
    "orin": _device(87, 163, 16),
    "l4": _device(89, 99, 58, blocks=24),
    "h100": _device(90, 227, 132, threads=2048, blocks=32),
    "b200": _device(100, 227, 148, threads=2048, blocks=32),
    "rtx5090": _device(120, 99, 170, blocks=24, watchdog=1),
}
_asked = {}  # (code, options, kernel, device) -> the largest dynamic shared memory that was asked for


def use(name):
    """Be this device from now on. Functions that were loaded before belong to another one: load them again."""
    if name not in PROFILES:
        raise ValueError(f"HOSTCUDA_DEVICE={name!r} must be one of {', '.join(PROFILES)}.")
    _hostcuda.attributes.clear()
    _hostcuda.attributes.update(PROFILES[name])
    _hostcuda.settings.device = name
    _asked.clear()


def most_dynamic(function, static):
    """The dynamic shared memory that a function may be launched with now."""
    return _asked.get(function, min(PLAIN, _hostcuda.attributes["MaxSharedMemoryPerBlockOptin"]) - static)


def ask_dynamic(function, static, size):
    if not 0 <= size <= _hostcuda.attributes["MaxSharedMemoryPerBlockOptin"] - static:
        raise CUDADriverError(1)
    _asked[function] = int(size)


def check_shared(function, static, dynamic):
    """As the driver does: what is static counts, and nobody else may have lowered the attribute."""
    limit = _hostcuda.attributes["MaxSharedMemoryPerBlockOptin"]  # a test may have changed it since
    if not 0 <= dynamic <= most_dynamic(function, static) or static + dynamic > limit:
        raise CUDADriverError(1)


def longest_launch():
    """Accesses after which a launch is ended: a bound where the device has a watchdog."""
    return _hostcuda.settings.watchdog if _hostcuda.attributes["KernelExecTimeout"] else 2**64 - 1


use(_hostcuda.settings.device)
