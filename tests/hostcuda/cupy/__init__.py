"""A stand-in for CuPy that runs kernels on the CPU: the names of CuPy that the package uses, and no more."""

from . import _hostcuda, _profiles, cuda, linalg  # noqa: F401
from ._array import ndarray
from ._creation import (
    arange,
    array,
    asarray,
    ascontiguousarray,
    asnumpy,
    concatenate,
    empty,
    empty_like,
    full,
    matmul,
    ones,
    zeros,
    zeros_like,
)
from ._dlpack import from_dlpack
from ._kernel import RawKernel, RawModule

__version__ = "14.2.0"
__all__ = [
    "RawKernel", "RawModule", "arange", "array", "asarray", "ascontiguousarray", "asnumpy",
    "concatenate", "cuda", "empty", "empty_like", "from_dlpack", "full", "get_default_memory_pool",
    "linalg", "matmul", "ndarray", "ones", "zeros", "zeros_like",
]  # fmt: skip

_pool = cuda.MemoryPool()


def get_default_memory_pool():
    return _pool
