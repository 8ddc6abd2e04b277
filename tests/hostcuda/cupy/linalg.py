"""cuSOLVER's eigenvalues."""

import numpy as np

from ._array import _check_device, ndarray, submit_kernel

__all__ = ["eigh"]


def eigh(a, UPLO="L"):
    if not isinstance(a, ndarray):
        raise TypeError("eigh takes device arrays")
    _check_device(a)
    view = a._view
    values, vectors = ndarray(view.shape[:-1], view.dtype), ndarray(view.shape, view.dtype)
    submit_kernel("cusolver.syevd", values._view, (view,), lambda: np.linalg.eigh(view, UPLO)[0])
    submit_kernel("cusolver.syevd", vectors._view, (view,), lambda: np.linalg.eigh(view, UPLO)[1])
    return values, vectors
