"""Arrays of other libraries: read where they are, by DLPack, and results handed back as the kind that came in."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from gputabu.core.validation import check_unmasked
from gputabu.data import frames

#: DLPack's numbers for memory of a GPU, its own and managed.
CUDA = (2, 13)


def on_gpu(X: object) -> bool:
    """Whether `X` is an array in the memory of a GPU (CuPy, PyTorch, JAX…); asking imports nothing."""
    device = getattr(X, "__dlpack_device__", None)
    return hasattr(X, "__cuda_array_interface__") if device is None else int(device()[0]) in CUDA


def opened(X: Any, name: str = "X") -> Any:
    """`X` as an array that NumPy or CuPy takes without a copy; what is no array of another library is itself."""
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


def maker(X: object) -> Callable[[Any], Any] | None:
    """What makes an array of NumPy or CuPy one of the library of `X`; None where they are its kind, or it has none."""
    root = type(X).__module__.partition(".")[0]
    if root == "torch":  # which is no array namespace
        return sys.modules[root].from_dlpack
    if root in ("numpy", "cupy") or not hasattr(X, "__array_namespace__"):
        return None
    return getattr(X.__array_namespace__(), "from_dlpack", None)


def _exportable(X: Any) -> Any:
    """`X` without what DLPack or NumPy does not know: gradients, and bfloat16, which float32 holds exactly."""
    if getattr(X, "requires_grad", False):
        X = X.detach()
    if str(getattr(X, "dtype", "")).endswith("bfloat16"):
        X = X.float() if hasattr(X, "float") else X.astype("float32")
    return X
