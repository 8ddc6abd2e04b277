"""Which compiled code is on disk already, as compiling takes longer than NumPy takes for small data; who is told of it.

A search that ran in compiled code leaves an empty file beside that code, named after what was compiled. Asking for it
imports nothing: numba alone takes a third of a second.
"""

from __future__ import annotations

import functools
import hashlib
import math
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np

from gputabu.core.log import log
from gputabu.data.points import Points

#: N·d·K of all restarts, and iterations, up to which NumPy takes less time than compiling would (some ten seconds); and
#: N·d·K of a single pass.
COLD_WORK, COLD_ITERATIONS, COLD_PASS = 1 << 20, 1000, 1 << 28
#: Seconds below which a search with so much time would spend most of them compiling, and N·d·K up to which NumPy does
#: something in them.
COLD_SECONDS, TIMED_WORK = 20.0, 1 << 26
#: What is remembered of passes that label points.
LABELS = "labels"
#: Who wants to know when code is compiled: functions of True as it begins, and of False as it ends.
_listening: list[Callable[[bool], None]] = []


@contextmanager
def listening(listener: Callable[[bool], None]) -> Iterator[None]:
    """In this context, tell a function of code that is compiled."""
    _listening.append(listener)
    try:
        yield
    finally:
        _listening.remove(listener)


def tell(begun: bool) -> None:
    """Say that compiling has begun, or ended."""
    for listener in _listening:
        listener(begun)


def cheaper_without(
    points: Points, search: str, clusters: int, max_iter: int | None = None, seconds: float = math.inf
) -> bool:
    """Whether NumPy ends before compiling would: little work, or little time, and code that is not on disk yet.

    `clusters` are those of all restarts; `seconds` are what a search may take that takes all it is given.
    """
    work = points.n * points.d * clusters
    if math.isinf(seconds):
        cheaper = work <= COLD_WORK and (max_iter or 0) <= COLD_ITERATIONS
    else:
        cheaper = work <= TIMED_WORK and seconds < COLD_SECONDS
    return cheaper and _is_cold(points, search)


def cheaper_pass_without(points: Points, k: int) -> bool:
    """As `cheaper_without`, for one pass that labels the points."""
    return points.n * points.d * k <= COLD_PASS and _is_cold(points, LABELS)


def _is_cold(points: Points, search: str) -> bool:
    if any((folder / mark(points, search)).exists() for folder in folders()):
        return False
    log.info("compiled code is not on disk yet: NumPy takes less time for this than compiling")
    return True


def remember(points: Points, search: str) -> None:
    """Leave word that the code of a search of such points is on disk; nowhere, if there is no place for it."""
    for folder in folders():
        try:
            if folder.is_dir():
                (folder / mark(points, search)).touch()
                return
        except OSError:  # read-only: numba has another place, too
            continue


def folders() -> Iterator[Path]:
    """Where numba keeps compiled code: the first that it can write to."""
    if chosen := os.environ.get("NUMBA_CACHE_DIR"):
        yield Path(chosen)
        return
    yield Path(__file__).parent / "numba" / "kernels" / "__pycache__"
    yield Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "numba"


def mark(points: Points, search: str) -> str:
    """The name of the file of a search of such points."""
    return _mark(search, str(np.dtype(points.dtype)), points.weights is not None)


@functools.cache
def _mark(search: str, dtype: str, weighted: bool) -> str:
    """The same of all that compiled code depends on."""
    sources = sorted((Path(__file__).parent / "numba" / "kernels").glob("*.py"))
    stamps = [(path.name, path.stat().st_mtime_ns, path.stat().st_size) for path in sources]
    try:
        numba = version("numba")
    except PackageNotFoundError:
        numba = ""
    kind = (search, dtype, weighted, numba, sys.version_info[:2], stamps)
    return f"gputabu-{hashlib.sha256(repr(kind).encode()).hexdigest()[:16]}.compiled"
