"""Backends: who computes. The only package that imports CuPy, and the one place where arrays change hands."""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np

from gputabu.backend.base import BackendBase
from gputabu.backend.numpy.algebra import Algebra
from gputabu.backend.numpy.backend import NumpyBackend
from gputabu.core.results import Clustering
from gputabu.core.validation import BackendUnavailable, check_choice, check_int
from gputabu.data.interop import array_maker, as_array, on_gpu
from gputabu.data.memmaps import LabelsFile, written
from gputabu.data.points import Points

#: What `backend=` accepts.
NAMES = ("auto", "cuda", "numba", "numpy")

#: Rows from which on a GPU decomposes matrices unasked: a guess. Smaller ones take milliseconds anyway.
GPU_ROWS = 400


#: What `device=` accepts: the number of a GPU, several of them, "all", or None for the current one.
Devices = int | Sequence[int] | str | None


#: What `backend=` accepts: a name, or a function that gives points to a backend of one's own.
BackendChoice = str | Callable[[Points], BackendBase]


def resolve(name: str, on_device: bool = False, compiled: bool = True) -> str:
    """The backend that `name` stands for on this machine; one asked for by name never falls back.

    Points that are on a GPU already can only be clustered there. "auto" takes no compiled code unless `compiled`.
    """
    check_choice("backend", name, NAMES)
    if on_device and name in ("numba", "numpy"):
        raise ValueError(f"backend={name!r} cannot read device arrays; use backend='cuda' or pass a copy on the host.")
    if name == "numpy":
        return name
    reasons = {"cuda": cuda_unusable} if on_device else {"cuda": cuda_unusable, "numba": numba_unusable}
    for candidate, unusable in reasons.items():
        if name not in ("auto", candidate) or (name == "auto" and candidate == "numba" and not compiled):
            continue
        reason = unusable()
        if reason is None:
            return candidate
        if name == candidate or on_device:
            raise BackendUnavailable(f"backend={candidate!r} cannot run here: {reason}")
        if installed(candidate):  # the user meant to have it
            _warn_once(reason, "the CPU" if candidate == "cuda" else "NumPy")
    return "numpy"


def as_points(X: Any, weights: Any = None, check: Callable[[Any], Any] | None = None) -> Points:
    """The one door in: check `X` (N, d) and weights (N,), on the host or on a GPU, without copying points.

    They may be arrays of any library that speaks DLPack or CUDA's array interface, or data frames. `check` is what
    `X` must pass first if it is on the host.
    """
    if isinstance(X, Points):
        return Points.of(X, weights)
    array = as_array(X)
    if weights is not None:
        weights = to_numpy(weights, "sample_weight")
    if on_gpu(array):
        resolve("cuda", on_device=True)
        from gputabu.backend.cuda.points import adopt

        points = adopt(array, weights)
    else:
        points = Points.of(array if check is None else check(array), weights)
    return replace(points, maker=array_maker(X))


def as_caller_arrays(
    found: Clustering, points: Points, labels_out: np.ndarray | LabelsFile | None = None
) -> Clustering:
    """The one door out: labels and centres as the kind of array that came in; labels where they are to be."""
    labels = as_caller_array(found.labels, points) if labels_out is None else written(found.labels, labels_out)
    return replace(found, labels=labels, centers=as_caller_array(found.centers, points))


def as_caller_array(array: Any, points: Points) -> Any:
    """`array` as the kind of array that the points came in, where they are."""
    if points.on_device:
        from gputabu.backend.cuda.points import handed_out

        return handed_out(array, points)
    return array if points.maker is None else points.maker(array)


def to_numpy(array: Any, name: str = "X") -> np.ndarray:
    """`array`, of whatever kind, as NumPy's; copied only from a GPU."""
    array = as_array(array, name)
    if not on_gpu(array):
        return np.asarray(array)
    from gputabu.backend.cuda.points import fetched

    return fetched(array)


def open_backend(
    points: Points, backend: BackendChoice = "auto", device: Devices = None, compiled: bool = True
) -> BackendBase:
    """Give the points to a backend. Use as a context: `with open_backend(points) as opened: ...`.

    `backend` is a name, or a function of the points that returns a backend, such as a class derived from `BackendBase`.
    `compiled`: whether "auto" may take compiled code, which may have to be compiled first.
    """
    elsewhere = points.open_elsewhere(check_backend(backend))
    if elsewhere is not None:
        return elsewhere
    if callable(backend):
        return backend(points)
    chosen = resolve(backend, points.on_device, compiled)
    if device is not None and backend in ("numba", "numpy"):
        raise ValueError(f"device={device!r} chooses a GPU and cannot go with backend={backend!r}.")
    if chosen == "numpy":
        return NumpyBackend(points)
    if chosen == "numba":
        from gputabu.backend.numba.backend import NumbaBackend

        return NumbaBackend(points)
    return _open_cuda(points, device)


def open_algebra(backend: str = "auto", rows: int = 0) -> Algebra:
    """Who decomposes the matrices of a proof. "auto" takes a GPU only if they have as many `rows` as pay for it."""
    chosen = resolve(backend) if backend != "auto" or rows >= GPU_ROWS else "numpy" if numba_unusable() else "numba"
    host = Algebra()
    if chosen != "numpy" and numba_unusable() is None:
        from gputabu.backend.numba.algebra import NumbaAlgebra

        host = NumbaAlgebra()
    if chosen != "cuda":
        return host
    from gputabu.backend.cuda.algebra import CudaAlgebra

    return CudaAlgebra(host)


def check_backend(backend: BackendChoice) -> BackendChoice:
    """Return `backend` if it is a name that we know, or a function."""
    return backend if callable(backend) else check_choice("backend", backend, NAMES)


def _open_cuda(points: Points, device: Devices) -> BackendBase:
    """The points on one GPU, or in equal shares on several."""
    from gputabu.backend.cuda.backend import CudaBackend
    from gputabu.backend.cuda.device import device_count

    devices = check_devices(device, device_count())
    if len(devices) == 1:
        return CudaBackend(points, devices[0])
    if points.on_device:
        raise ValueError(f"device={device!r} names several GPUs, and X is on one of them; pass X.get().")
    from gputabu.backend.sharded import ShardedBackend

    cuts = [points.n * i // len(devices) for i in range(len(devices) + 1)]
    shares = zip(devices, cuts, cuts[1:], strict=False)
    return ShardedBackend(points, [CudaBackend(points.part(a, b), number) for number, a, b in shares if a < b])


def check_devices(device: object, count: int) -> list[int | None]:
    """The numbers of the GPUs that `device=` names, of `count`; None is the current one."""
    if device is None:
        return [None]
    if isinstance(device, str):
        check_choice("device", device, ("all",))
        return list(range(count))
    if not isinstance(device, Sequence):
        return [check_int("device", device, 0, count - 1)]
    numbers = [check_int("device", number, 0, count - 1) for number in device]
    if not numbers or len(set(numbers)) < len(numbers):
        raise ValueError(f"device={device!r} must name at least one GPU, and none twice.")
    return list(numbers)


def installed(backend: str) -> bool:
    """Whether the library that a backend needs is there; asking does not import it."""
    return find_spec({"cuda": "cupy"}.get(backend, backend)) is not None


@functools.cache
def cuda_unusable() -> str | None:
    """Why the CUDA backend cannot run here, in a sentence; None if it can."""
    if not installed("cuda"):
        return "CuPy is not installed (pip install 'gputabu[cuda12]' or 'gputabu[cuda13]')."
    from gputabu.backend.cuda import unusable

    return unusable()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=cuda_unusable.cache_clear)  # CUDA does not survive a fork


@functools.cache
def numba_unusable() -> str | None:
    """Why the compiled CPU backend cannot run here, in a sentence; None if it can."""
    if not installed("numba"):
        return "numba is not installed (pip install 'gputabu[cpu]')."
    try:
        from gputabu.backend.numba import backend as numba_ops  # noqa: F401
    except Exception as error:  # such as a numba that does not know this NumPy
        return f"numba cannot be imported ({type(error).__name__}: {error})."
    return None


@functools.cache
def _warn_once(reason: str, instead: str) -> None:
    warnings.warn(f"{reason} Using {instead} instead.", RuntimeWarning, stacklevel=4)
