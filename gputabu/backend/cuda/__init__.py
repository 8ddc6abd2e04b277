"""The GPU backend: raw CUDA kernels through CuPy. The only folder that imports CuPy."""

from __future__ import annotations


def unusable() -> str | None:
    """Why the CuPy that is installed cannot be used here, in a sentence; None if it can."""
    try:
        import cupy

        return None if cupy.cuda.is_available() else "CuPy finds no usable NVIDIA GPU or driver."
    except Exception as error:  # a CuPy that does not import says so in many ways
        return f"CuPy cannot be imported ({type(error).__name__}: {error})."
