"""Which kernels an iteration launches, with what arguments: recorded on hostcuda, for few points, without running them.

Grids are asked for again with other numbers of multiprocessors and points, and so are known for a large device and many
points; bytes are those of the arrays that have an element for every point.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

#: Points of the recordings: primes, so that no other size looks like them.
FEW, MORE = 6007, 12007


@dataclass(frozen=True)
class Launch:
    """One launch for a shape, on a device."""

    file: str
    kernel: str
    defines: tuple[tuple[str, int], ...]
    grid: tuple[int, ...]
    threads: int
    shared: int
    names: dict[str, Any]  # arguments that are numbers, and whether pointers are null
    per_point: float  # bytes of the arrays with an element for every point, written ones twice
    arrays: dict[int, float]  # the same arrays by address, written ones once

    @property
    def blocks(self) -> int:
        return math.prod(self.grid)


@dataclass(frozen=True)
class Call:
    """What was asked for."""

    file: str
    name: str
    real: np.dtype
    grid: tuple[int, ...]
    block: int
    args: Any
    shared: int
    defines: dict[str, int]


class _Recorded(Exception):
    """All is known."""


def recorded(what: str, d: int, k: int, restarts: int, profile: str, sms: int, n: int) -> list[Launch]:
    """The launches of an iteration on a device with so many multiprocessors."""
    from gputabu.backend.cuda import device

    be(profile)
    blocks = device.BLOCKS_PER_SM * sms
    one = calls(what, FEW, d, k, restarts, 1)
    few = calls(what, FEW, d, k, restarts, blocks)
    more = calls(what, MORE, d, k, restarts, blocks)
    found = []
    for small, call, large in zip(one, few, more, strict=True):
        launch = launch_of(call, FEW)
        names = {name: n if value == FEW else value for name, value in launch.names.items()}
        axes = zip(small.grid, call.grid, large.grid, strict=True)
        grid = tuple(_axis(*axis, blocks=blocks, n=n) for axis in axes)
        found.append(replace(launch, names=names, grid=grid))
    return found


def launch_of(call: Call, n: int) -> Launch:
    """A call as it is, for n points."""
    names, per_point, arrays = _arguments(call.file, call.name, call.args, n)
    defines = tuple(sorted(call.defines.items()))
    return Launch(call.file, call.name, defines, call.grid, call.block, call.shared, names, per_point, arrays)


def be(profile: str) -> None:
    """Lets hostcuda be a device."""
    import cupy

    cupy._hostcuda.use_device(profile)
    from gputabu.backend.cuda import launch

    launch.load.cache_clear()


def _axis(one: int, few: int, more: int, blocks: int, n: int) -> int:
    """An axis of the grid for n points, from what it was for one block, and for all with FEW and MORE points."""
    if more == few:
        return few
    by_points = math.ceil(few + (more - few) * (n - FEW) / (MORE - FEW))
    return min(one * blocks, by_points) if one < few else by_points


def calls(what: str, n: int, d: int, k: int, restarts: int, blocks: int) -> list[Call]:
    """What an iteration asks for, with `blocks` as the most of a grid; nothing of it is run."""
    from gputabu.backend.cuda import launch

    found: list[Call] = []

    def record(
        file: str, name: str, real: np.dtype, grid: Any, block: int, args: Any, shared: int = 0, **defines: int
    ) -> None:
        found.append(Call(file, name, real, tuple(grid), block, args, shared, defines))

    def iteration(backend: Any, body: Callable[[], object]) -> None:
        run, launch.launch, backend.blocks = launch.launch, record, blocks
        try:
            body()
        finally:
            launch.launch = run
        raise _Recorded

    X = np.random.default_rng(0).normal(size=(n, d)).astype(np.float32)
    try:
        RECORDERS[what](X, k, restarts, iteration)
    except _Recorded:
        return found
    raise RuntimeError(f"no {what} was recorded")


def _arguments(file: str, name: str, args: Any, n: int) -> tuple[dict[str, Any], float, dict[int, float]]:
    """Numbers, bytes per point, and arrays with an element for every point."""
    from gputabu.backend.cuda.sources import signatures

    names: dict[str, Any] = {}
    arrays: dict[int, float] = {}
    per_point = 0.0
    for parameter, value in zip(signatures(file)[name], args, strict=True):
        fields = value._asdict() if hasattr(value, "_asdict") else {parameter.name: value}
        for field, part in fields.items():
            if part is None or (hasattr(part, "dtype") and np.ndim(part)):
                names[field] = part is not None
                if part is not None and part.size and part.size % n == 0:
                    # What a kernel may write it is taken to read and write.
                    times = 1 if parameter.pointer and is_const(file, name, parameter.name) else 2
                    per_point += times * part.nbytes / n
                    arrays[part.data.ptr] = part.nbytes / n
            elif not hasattr(part, "dtype") or not np.ndim(part):
                names.setdefault(field, part if isinstance(part, (bool, int, float)) else np.asarray(part).item())
    return names, per_point, arrays


def arrays_of(call: Call) -> Iterator[Any]:
    """The arrays that a call is given, also within structs."""
    for value in call.args:
        for part in value if hasattr(value, "_asdict") else (value,):
            if hasattr(part, "dtype") and np.ndim(part):
                yield part


def is_const(file: str, kernel: str, parameter: str) -> bool:
    """Whether a kernel only reads what a pointer points to."""
    import re

    from gputabu.backend.cuda.sources import source

    found = re.search(rf"__global__ void (?:__launch_bounds__\([^)]*\)\s+)?{kernel}\(([^)]*)\)", source(file))
    return bool(found and re.search(rf"const \w+\* __restrict__ {parameter}\b", found[1]))


def _tabu(X: np.ndarray, k: int, restarts: int, iteration: Any) -> None:
    from gputabu import quantized
    from gputabu.backend.cuda.search import DeviceSearch

    whole, fits = DeviceSearch._iteration, DeviceSearch.fits_a_launch
    DeviceSearch._iteration = lambda self: iteration(self.backend, lambda: whole(self))
    DeviceSearch.fits_a_launch = False  # few points would be searched in one launch
    try:
        quantized.search(X, k, init=np.arange(k), restarts=restarts, max_iter=64, backend="cuda")
    finally:
        DeviceSearch._iteration, DeviceSearch.fits_a_launch = whole, fits


def _k_means(X: np.ndarray, k: int, restarts: int, iteration: Any) -> None:
    from gputabu import lloyd
    from gputabu.backend.cuda.lloyd_loop import DeviceDescent

    whole = DeviceDescent._iteration
    DeviceDescent._iteration = lambda self: iteration(self.backend, lambda: whole(self))
    try:
        lloyd.run(X, k, init=X[:k], restarts=restarts, max_iter=64, backend="cuda")
    finally:
        DeviceDescent._iteration = whole


def _relocation(X: np.ndarray, k: int, restarts: int, iteration: Any) -> None:
    """An iteration that needs no more steps than every one has."""
    from gputabu import relocation
    from gputabu.backend.cuda.relocation_loop import DeviceRelocation

    turn = DeviceRelocation._turn

    def shortest(self: Any) -> None:
        self.slots = self.settings.steps
        iteration(self.backend, lambda: turn(self))

    DeviceRelocation._turn = shortest
    try:
        relocation.search(X, k, init=X[:k], restarts=restarts, max_iter=64, backend="cuda")
    finally:
        DeviceRelocation._turn = turn


RECORDERS: dict[str, Callable[..., None]] = {
    "tabu iteration": _tabu,
    "k-means iteration": _k_means,
    "relocation iteration": _relocation,
}
