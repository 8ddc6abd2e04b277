"""The CUDA backend: the passes of the contract as raw kernels (kernels/*.cu), launched through CuPy.

Only this room imports CuPy. `sources` reads the kernels, `launch` compiles and launches them, `structs` has what they
take by value, `points` keeps or streams the points, `device` is the base of the backend. The passes are in files named
as in `numpy` and `numba`; `search` runs whole QM-TS searches on the device.
"""

from __future__ import annotations

import os
from typing import Any

NO_GPU = "CuPy finds no usable NVIDIA GPU or driver."
#: The least driver of NVIDIA's for a CUDA, by its first number.
LEAST_DRIVERS = {12: 525, 13: 580}
#: What `unusable` says in a child of a process that has used CUDA.
FORKED = (
    "CUDA cannot be used in a process forked from one that has used it; begin processes by 'spawn' "
    "(multiprocessing.set_start_method)."
)
_usable_in: int | None = None  # the process that has begun to use CUDA


def unusable() -> str | None:
    """Why the CuPy that is installed cannot be used here, in a sentence; None if it can."""
    global _usable_in
    if _usable_in not in (None, os.getpid()):
        return FORKED
    try:
        import cupy
    except Exception as error:  # a CuPy that does not import says so in many ways
        return f"CuPy cannot be imported ({type(error).__name__}: {error})."
    try:
        count = cupy.cuda.runtime.getDeviceCount()
    except Exception as error:
        return _reason(error, cupy.cuda.runtime)
    _usable_in = os.getpid() if count else None
    return None if count else NO_GPU


def _reason(error: Exception, runtime: Any) -> str:
    """What an error of CUDA means; its numbers are those of cudaError_t."""
    status = getattr(error, "status", None)
    if status == 3:  # cudaErrorInitializationError: others have used it before the fork
        return FORKED
    driver = runtime.driverGetVersion() if status == 35 else 0
    if driver:  # cudaErrorInsufficientDriver, which is also said where there is none
        wanted = runtime.runtimeGetVersion()
        least = LEAST_DRIVERS.get(wanted // 1000)
        enough = "" if least is None else f" to {least} or newer"
        return (
            f"The NVIDIA driver, for CUDA {version(driver)}, is too old for the CUDA {version(wanted)} of this CuPy; "
            f"update the driver{enough}, or install a CuPy for an older CUDA."
        )
    if status in (35, 100):  # cudaErrorNoDevice
        return NO_GPU
    return f"{NO_GPU[:-1]} ({type(error).__name__}: {error})."


def version(number: int) -> str:
    """A version of CUDA, which counts 12.9 as 12090."""
    return f"{number // 1000}.{number % 1000 // 10}"
