"""Arrays of other libraries: read in place by DLPack, and results returned as the same kind of array."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from gputabu.core.validation import check_unmasked
from gputabu.data import frames

#: DLPack's device types for memory of a GPU: plain and managed.
CUDA = (2, 13)


def on_gpu(X: object) -> bool:
    """Whether `X` is an array in the memory of a GPU (CuPy, PyTorch, JAX…). This imports nothing."""
    device = getattr(X, "__dlpack_device__", None)
    return hasattr(X, "__cuda_array_interface__") if device is None else int(device()[0]) in CUDA


def as_array(X: Any, name: str = "X") -> Any:
    """`X` as an array that NumPy or CuPy reads without a copy. What is no foreign array is returned as is."""
    if isinstance(X, np.ndarray):
        check_unmasked(X, name)
        return X
    if frames.is_frame(X):
        return frames.matrix(X, name)
    if frames.is_series(X):
        return frames.vector(X, name)
    if not hasattr(X, "__dlpack__"):
        return X
    try:
        exported = _exportable(X)
        return exported if on_gpu(exported) else np.from_dlpack(exported)
    except (BufferError, RuntimeError, ValueError, TypeError, NotImplementedError) as error:
        raise TypeError(f"{name} is a {type(X).__name__} that cannot be read as an array: {error}") from error


def array_maker(X: object) -> Callable[[Any], Any] | None:
    """A function from arrays of NumPy or CuPy to the library of `X`; None if no conversion is needed or possible."""
    root = type(X).__module__.partition(".")[0]
    if root == "torch":  # it has no __array_namespace__
        return sys.modules[root].from_dlpack
    if root in ("numpy", "cupy") or not hasattr(X, "__array_namespace__"):
        return None
    return getattr(X.__array_namespace__(), "from_dlpack", None)


def _exportable(X: Any) -> Any:
    """`X` without what DLPack or NumPy cannot represent: gradients, and bfloat16, which float32 holds exactly."""
    if getattr(X, "requires_grad", False):
        X = X.detach()
    if str(getattr(X, "dtype", "")).endswith("bfloat16"):
        X = X.float() if hasattr(X, "float") else X.astype("float32")
    return X
