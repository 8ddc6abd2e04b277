"""CUDA sources, and what their text says: the arguments of kernels, the structs among them, tables of shared memory.

CuPy checks none of this. So whatever Python and a kernel must agree on is written in the source alone and read here.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

#: The types that kernels use, beside `real`, which is that of the points.
TYPES: dict[str, np.dtype] = {
    "double": np.dtype(np.float64),
    "double2": np.dtype((np.void, 16)),
    "int": np.dtype(np.int32),
    "unsigned": np.dtype(np.uint32),
    "float": np.dtype(np.float32),
    "idx": np.dtype(np.int64),
    "word": np.dtype(np.uint64),
    "uint4": np.dtype("V16"),
    "float4": np.dtype("V16"),
}
_POINTER = np.dtype(np.uint64)
_SIGNATURE = re.compile(r'extern "C" __global__ void (?:__launch_bounds__\([^)]*\)\s)?(\w+)\(([^)]*)\)')
_STRUCT = re.compile(r"^struct (\w+) \{(.*?)^\};", re.MULTILINE | re.DOTALL)
_FIELD = re.compile(r"(?:const )?(\w+)(\*?) (\w+)")
_TABLE = re.compile(r"#define (\w+_SHARED)\(ARRAY\)((?:[^\n]*\\\n)*[^\n]*)")
_ARRAY = re.compile(r"ARRAY\((\w+), \w+, (.+?)\)\s*(?:\\\n|$)")
_NUMBER = re.compile(r"#define (\w+) (\d+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Parameter:
    """One argument of a kernel, or one field of a struct."""

    kind: str
    pointer: bool
    name: str


@dataclass(frozen=True, slots=True)
class Struct:
    """A struct that kernels take by value."""

    fields: tuple[Parameter, ...]

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(field.name for field in self.fields)


@functools.cache
def layout(struct: Struct, real: np.dtype) -> np.dtype:
    """The layout of a struct in C: every field aligned to its size."""
    types = [_POINTER if field.pointer else dtype_of(field.kind, real) for field in struct.fields]
    return np.dtype(list(zip(struct.names, types, strict=True)), align=True)


def source_folder() -> Path:
    """kernels/ inside the installed package, or beside it in a checkout."""
    here = Path(__file__).resolve().parents[2]
    for folder in (here / "kernels", here.parent / "kernels"):
        if (folder / "common.cuh").exists():
            return folder
    raise FileNotFoundError("gputabu was installed without its CUDA sources (kernels/).")


@functools.cache
def source(file: str) -> str:
    """A file with what it includes, as one text: CuPy's cache of compiled kernels goes by the text alone.

    In ASCII, since CuPy writes it to a file in the encoding of the locale; only comments have other characters.
    """
    return _joined(file, set()).encode("ascii", "replace").decode("ascii")


def _joined(file: str, seen: set[str]) -> str:
    seen.add(file)
    lines = []
    for number, line in enumerate((source_folder() / file).read_text(encoding="utf-8").splitlines(), start=1):
        included = re.match(r'#include "(.+)"', line)
        if included is None:
            lines.append("" if line == "#pragma once" else line)  # g++ and NVRTC warn of it outside a header
        elif included[1] not in seen:
            lines += [_joined(included[1], seen), f'#line {number + 1} "{file}"']
    return "\n".join([f'#line 1 "{file}"', *lines])


def dtype_of(kind: str, real: np.dtype) -> np.dtype:
    """The NumPy type of a C type."""
    return real if kind == "real" else TYPES[kind]


@functools.cache
def signatures(file: str) -> dict[str, list[Parameter]]:
    """The parameters of every kernel of a file."""
    found = {}
    for name, parameters in _SIGNATURE.findall(source(file)):
        found[name] = [_parameter(text.replace("__restrict__ ", "")) for text in parameters.split(",")]
    return found


@functools.cache
def structs(file: str) -> dict[str, Struct]:
    """The structs that the kernels of a file take."""
    wanted = {parameter.kind for parameters in signatures(file).values() for parameter in parameters}
    bodies = {name: body for name, body in _STRUCT.findall(source(file)) if name in wanted}
    return {name: Struct(tuple(map(_parameter, _declarations(body)))) for name, body in bodies.items()}


def _declarations(body: str) -> list[str]:
    return [text for text in re.sub("//[^\n]*", "", body).split(";") if text.strip()]


def _parameter(text: str) -> Parameter:
    """`const double* offset` and its like; one name, no array, nothing else."""
    found = _FIELD.fullmatch(" ".join(text.split()))
    if found is None:
        raise ValueError(f"kernels/: {text.strip()!r} must be a type, * for a pointer, and a name.")
    return Parameter(found[1], bool(found[2]), found[3])


@functools.cache
def _tables(file: str) -> dict[str, list[tuple[str, str]]]:
    """Per table of shared memory, the type and the count, an expression, of every array."""
    tables = {}
    for name, rows in _TABLE.findall(source(file)):
        tables[name] = _ARRAY.findall(rows)
        if not rows or len(tables[name]) != rows.count("ARRAY("):
            raise ValueError(f"{file}: {name} must have rows ARRAY(type, name, count), each on a line.")
    return tables


@functools.cache
def _numbers(file: str) -> dict[str, int]:
    """What the file defines as plain integers."""
    return {name: int(value) for name, value in _NUMBER.findall(source(file))}


def number(file: str, name: str) -> int:
    """What a file defines a name as."""
    return _numbers(file)[name]


def shared_bytes(file: str, table: str, real: np.dtype, sizes: Mapping[str, Any]) -> int:
    """Bytes of dynamic shared memory that a table of a kernel's arrays takes; `sizes` are the names in its counts."""
    names = _numbers(file) | {name: int(value) for name, value in sizes.items()}
    total, widest = 0, np.inf
    for kind, count in _tables(file)[table]:
        size = dtype_of(kind, real).itemsize
        if size > widest:
            raise ValueError(f"{file}: in {table}, arrays of wide types must come first.")
        # Of integers that are not negative, C's quotient is Python's floor.
        total, widest = total + size * eval(count.replace("/", "//"), {"__builtins__": {}}, names), size
    return total
