"""The CUDA backend: the passes of the contract as raw kernels (kernels/*.cu), launched through CuPy.

Only this room imports CuPy. `sources` reads the kernels, `launch` compiles and launches them, `structs` has what they
take by value, `points` keeps or streams the points, `device` is the base of the backend. The passes are in files named
as in `numpy` and `numba`; `search` runs whole QM-TS searches on the device.
"""

from __future__ import annotations


def unusable() -> str | None:
    """Why the CuPy that is installed cannot be used here, in a sentence; None if it can."""
    try:
        import cupy

        return None if cupy.cuda.is_available() else "CuPy finds no usable NVIDIA GPU or driver."
    except Exception as error:  # a CuPy that does not import says so in many ways
        return f"CuPy cannot be imported ({type(error).__name__}: {error})."
