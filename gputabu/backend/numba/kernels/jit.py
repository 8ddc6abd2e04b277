"""How kernels are compiled, and how their machine code is kept on disk.

numba's own disk cache looks only at the file of the function that Python calls. A change in another file of kernels,
or of a constant, would load machine code that is out of date. The cache here also asks for the hash of all sources
that compiled code is made of. It rests on private classes of numba; where they are not as expected, code is compiled
anew in every process.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numba

from gputabu.backend import compiled_code
from gputabu.backend.arithmetic import constants, powers

#: What compiled code is made of: this folder, and where it has its constants from.
SOURCES = (*sorted(Path(__file__).parent.glob("*.py")), Path(constants.__file__), Path(powers.__file__))


njit: Any = numba.njit  # its stubs do not know all options


class Uncached:
    """Why compiled code cannot be kept on disk; the log says so when it is compiled."""

    reason: str | None = None


def announce_compiling() -> None:
    """Let `compiled_code` tell what numba says of its work. Raises where numba says nothing of it."""
    from numba.core import event

    class Announcer(event.Listener):
        depth = 0  # functions are compiled within functions, one thread at a time

        def on_start(self, event: Any) -> None:
            self.depth += 1
            if self.depth == 1:
                compiled_code.tell(True)

        def on_end(self, event: Any) -> None:
            self.depth -= 1
            if self.depth == 0:
                compiled_code.tell(False)

    event.register("numba:compile", Announcer())


with contextlib.suppress(ImportError, AttributeError):
    announce_compiling()


def accepted(**options: bool) -> dict[str, bool]:
    """Those of these options of `njit` that numba knows."""
    try:
        from numba.core.registry import cpu_target

        return {name: value for name, value in options.items() if hasattr(cpu_target.options, name)}
    except (ImportError, AttributeError):
        return {}


#: Wrappers for callers that there are none of would take a tenth of the time to compile.
NO_WRAPPERS = accepted(no_cpython_wrapper=True, no_cfunc_wrapper=True)
NO_C_WRAPPER = accepted(no_cfunc_wrapper=True)


def inner(function: Callable[..., Any]) -> Any:
    """A function that compiled code calls. Python cannot."""
    return njit(nogil=True, error_model="numpy", **NO_WRAPPERS)(function)


def compiled(function: Callable[..., Any]) -> Any:
    """A function that Python calls, without the GIL. Its code is kept on disk for the next process, where it can be."""
    dispatcher = njit(nogil=True, error_model="numpy", **NO_C_WRAPPER)(function)
    try:
        keep_on_disk(dispatcher, function)
    except Exception as error:  # no folder can be written to, no sources, another numba
        Uncached.reason = f"{type(error).__name__}: {error}"
    return dispatcher


def keep_on_disk(dispatcher: Any, function: Callable[..., Any]) -> None:
    """Give a function a cache that knows all sources. Raises where numba has no place for it."""
    from numba.core.caching import NullCache

    if dispatcher is function:  # NUMBA_DISABLE_JIT
        return
    if not isinstance(dispatcher._cache, NullCache):
        raise TypeError("numba's functions have another kind of cache")
    dispatcher._cache = source_cache()(function)


@functools.cache
def source_cache() -> Any:
    """numba's cache of functions, with the hash of all sources in its keys."""
    from numba.core.caching import FunctionCache

    if not callable(getattr(FunctionCache, "_index_key", None)):
        raise TypeError("numba's cache makes its keys in another way")
    sources = hash_of(SOURCES)

    class SourceCache(FunctionCache):
        def _index_key(self, *args: Any) -> Any:
            return super()._index_key(*args), sources

    return SourceCache


def hash_of(paths: tuple[Path, ...]) -> str:
    """One hash of several files and their names."""
    total = hashlib.sha256()
    for path in paths:
        total.update(path.name.encode() + b"\0" + hashlib.sha256(path.read_bytes()).digest())
    return total.hexdigest()
