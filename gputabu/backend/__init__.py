"""Backends: who computes. The only package that imports CuPy, and the one place where arrays change hands."""

from __future__ import annotations

from gputabu.backend.numpy_ops import NumpyOps
from gputabu.backend.ops import Ops
from gputabu.points import Points
from gputabu.validation import check_choice

#: What `backend=` accepts.
NAMES = ("auto", "numpy", "cuda")


class BackendUnavailable(RuntimeError):
    """A backend was asked for by name and cannot run here."""


def resolve(name: str) -> str:
    """The backend that `name` stands for on this machine; one asked for by name never falls back."""
    check_choice("backend", name, NAMES)
    if name == "cuda":
        raise BackendUnavailable(
            "backend='cuda' is not part of this version of gputabu; use backend='numpy' or 'auto'."
        )
    return "numpy"


def hold(points: Points, name: str = "auto") -> Ops:
    """Give the points to a backend. Use as a context: `with hold(points) as ops: ...`."""
    resolve(name)
    return NumpyOps(points)
