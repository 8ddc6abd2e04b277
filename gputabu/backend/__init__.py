"""Backends: who computes. The only package that imports CuPy, and the one place where arrays change hands."""

from __future__ import annotations

import functools
import warnings
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np

from gputabu.backend.numpy_ops import NumpyOps
from gputabu.backend.ops import Ops
from gputabu.points import Points
from gputabu.results import Clustering
from gputabu.validation import check_choice, check_int

#: What `backend=` accepts.
NAMES = ("auto", "numpy", "cuda")


class BackendUnavailable(RuntimeError):
    """A backend was asked for by name and cannot run here."""


def resolve(name: str, on_device: bool = False) -> str:
    """The backend that `name` stands for on this machine; one asked for by name never falls back.

    Points that are on a GPU already can only be clustered there.
    """
    check_choice("backend", name, NAMES)
    if name == "numpy" and on_device:
        raise ValueError("backend='numpy' cannot read device arrays; use backend='cuda' or pass X.get().")
    if name == "numpy":
        return name
    reason = cuda_unusable()
    if reason is None:
        return "cuda"
    if name == "cuda" or on_device:
        raise BackendUnavailable(f"backend='cuda' cannot run here: {reason}")
    if cupy_installed():  # the user meant to have a GPU
        _warn_once(reason)
    return "numpy"


def on_gpu(X: object) -> bool:
    """Whether `X` is an array in the memory of a GPU (CuPy, PyTorch, cuDF…); asking imports nothing."""
    if hasattr(X, "__cuda_array_interface__"):
        return True
    device = getattr(X, "__dlpack_device__", None)
    return device is not None and int(device()[0]) == 2  # kDLCUDA


def admit(X: object, weights: object = None) -> Points:
    """The one door in: check `X` (N, d) and weights (N,), on the host or on a GPU, without copying points."""
    if not on_gpu(X):
        return Points.of(X, weights)
    resolve("cuda", on_device=True)
    from gputabu.backend.device_points import adopt

    return adopt(X, weights)


def home(found: Clustering, points: Points) -> Clustering:
    """The one door out: labels and centres as the kind of array that came in."""
    if not points.on_device:
        return found
    return replace(found, labels=returned(found.labels, points), centers=returned(found.centers, points))


def returned(array: Any, points: Points) -> Any:
    """`array` as the kind of array that the points are."""
    if not points.on_device:
        return array
    from gputabu.backend.device_points import on_device_of

    return on_device_of(array, points)


def to_numpy(array: Any) -> np.ndarray:
    """A host copy of a device array; a NumPy array is itself."""
    return array if isinstance(array, np.ndarray) else array.get()


def hold(points: Points, name: str = "auto", device: int | None = None) -> Ops:
    """Give the points to a backend. Use as a context: `with hold(points) as ops: ...`."""
    if resolve(name, points.on_device) == "numpy":
        if device is not None and name == "numpy":
            raise ValueError(f"device={device!r} chooses a GPU and cannot go with backend='numpy'.")
        return NumpyOps(points)
    from gputabu.backend.cuda_data import device_count
    from gputabu.backend.cuda_ops import CudaOps

    if device is not None:
        check_int("device", device, 0, device_count() - 1)
    return CudaOps(points, device)


def cupy_installed() -> bool:
    """Whether there is a CuPy; asking does not import it."""
    return find_spec("cupy") is not None


@functools.cache
def cuda_unusable() -> str | None:
    """Why the CUDA backend cannot run here, in a sentence; None if it can."""
    if not cupy_installed():
        return "CuPy is not installed (pip install 'gputabu[cuda12]' or 'gputabu[cuda13]')."
    try:
        import cupy

        if not cupy.cuda.is_available():
            return "CuPy finds no usable NVIDIA GPU or driver."
    except Exception as error:  # a CuPy that does not import says so in many ways
        return f"CuPy cannot be imported ({type(error).__name__}: {error})."
    return None


@functools.cache
def _warn_once(reason: str) -> None:
    warnings.warn(f"{reason} Using NumPy instead.", RuntimeWarning, stacklevel=4)
