"""CUDA sources: found, compiled once per device and type, launched with arguments checked against the source."""

from __future__ import annotations

import functools
import logging
import re
from pathlib import Path
from typing import Any

import cupy
import numpy as np

log = logging.getLogger("gputabu")

#: The types that kernels use, beside `real`, which is that of the points.
TYPES: dict[str, np.dtype] = {
    "double": np.dtype(np.float64),
    "int": np.dtype(np.int32),
    "idx": np.dtype(np.int64),
    "word": np.dtype(np.uint64),
}
_SIGNATURE = re.compile(r'extern "C" __global__ void (\w+)\(([^)]*)\)')


def source_folder() -> Path:
    """kernels/ inside the installed package, or beside it in a checkout."""
    here = Path(__file__).resolve().parents[2]
    for folder in (here / "kernels", here.parent / "kernels"):
        if (folder / "common.cuh").exists():
            return folder
    raise FileNotFoundError("gputabu was installed without its CUDA sources (kernels/).")


@functools.cache
def source(file: str) -> str:
    """A file with what it includes, as one text: CuPy's cache of compiled kernels goes by the text alone."""
    return _joined(file, set())


def _joined(file: str, seen: set[str]) -> str:
    seen.add(file)
    lines = []
    for number, line in enumerate((source_folder() / file).read_text().splitlines(), start=1):
        included = re.match(r'#include "(.+)"', line)
        if included is None:
            lines.append("" if line == "#pragma once" else line)  # g++ and NVRTC warn of it outside a header
        elif included[1] not in seen:
            lines += [_joined(included[1], seen), f'#line {number + 1} "{file}"']
    return "\n".join([f'#line 1 "{file}"', *lines])


@functools.cache
def signatures(file: str) -> dict[str, list[tuple[str, bool]]]:
    """Per kernel of a file, the type of every parameter and whether it is a pointer."""
    found = {}
    for name, parameters in _SIGNATURE.findall(source(file)):
        words = [re.sub(r"\b(const|__restrict__)\b", "", text).split() for text in parameters.split(",")]
        found[name] = [(word[0].rstrip("*"), "*" in "".join(word)) for word in words]
    return found


def options(real: np.dtype, defines: tuple[tuple[str, int], ...]) -> tuple[str, ...]:
    """What a kernel is compiled with."""
    word = "float" if real == np.float32 else "double"
    return ("--std=c++14", f"-DREAL={word}", *(f"-D{name}={value}" for name, value in defines))


@functools.cache
def _function(device: int, file: str, name: str, real: np.dtype, defines: tuple[tuple[str, int], ...]) -> Any:
    log.info("compiling %s for %s (kept by CuPy for the next time)", file, real)
    module = cupy.RawModule(code=source(file), options=options(real, defines))
    try:
        return module.get_function(name)
    except cupy.cuda.compiler.CompileException as error:  # its message is as long as the source
        first = next((line for line in str(error).splitlines() if "error" in line), "the compiler does not say why")
        raise RuntimeError(f"backend='cuda': {file} cannot be compiled: {first.strip()}.") from error


def launch(
    file: str,
    name: str,
    real: np.dtype,
    grid: tuple[int, ...],
    block: int,
    args: tuple[Any, ...],
    shared: int = 0,
    **defines: int,
) -> None:
    """Launch a kernel on the current device and stream. CuPy would check nothing: widths, types, strides."""
    kernel = _function(cupy.cuda.Device().id, file, name, real, tuple(sorted(defines.items())))
    if shared > 48 * 1024:
        kernel.max_dynamic_shared_size_bytes = shared
    kernel(grid, (block,), _checked(file, name, real, args), shared_mem=shared)


def _checked(file: str, name: str, real: np.dtype, args: tuple[Any, ...]) -> tuple[Any, ...]:
    wanted = signatures(file)[name]
    if len(args) != len(wanted):
        raise TypeError(f"{name} takes {len(wanted)} arguments, got {len(args)}.")
    return tuple(_argument(name, i, *kind, real, value) for i, (kind, value) in enumerate(zip(wanted, args)))  # noqa: B905


def _argument(name: str, i: int, kind: str, pointer: bool, real: np.dtype, value: Any) -> Any:
    dtype = {**TYPES, "real": real}[kind]
    if not pointer:
        return np.asarray(value, dtype)[()]
    if value is None:
        return np.uint64(0)
    if value.dtype != dtype or not value.flags.c_contiguous:
        raise TypeError(f"Argument {i} of {name} must be a contiguous array of {dtype}, got {value.dtype}.")
    return value
