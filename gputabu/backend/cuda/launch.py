"""Kernels compiled once per device and type, and launched with arguments checked against the source."""

from __future__ import annotations

import functools
import logging
from typing import Any, NamedTuple

import cupy
import numpy as np

from gputabu.backend.arithmetic.constants import ENOUGH_BITS, LIMB, NOISE, ON_CENTER, POTENTIAL_BITS
from gputabu.backend.arithmetic.powers import EXP_SERIES, LEAST, LOG_SERIES
from gputabu.backend.contract import ROW_BITS
from gputabu.backend.cuda.sources import Parameter, dtype_of, layout, signatures, source, structs
from gputabu.backend.cuda.structs import PAUSED, STOPS
from gputabu.core.random import BLOCK, Purpose

log = logging.getLogger("gputabu")

#: Bytes of shared memory that a block has without asking, on every device.
PLAIN_SHARED = 48 * 1024
#: Points, threads and centres at a time of fuzzy memberships.
FUZZY_TILE, FUZZY_CENTERS = 64, 16
#: Threads that judge a trial.
EXPLAINERS = 32
#: Rows whose potential is one sum, in relocation: a draw is looked up in the sums first.
POTENTIAL_TILE = 1024
#: Numbers that Python and the kernels must agree on; a float goes as a hexadecimal literal, which is exact.
MACROS: dict[str, int | float] = {
    "LIMB": LIMB,
    "NOISE": NOISE,
    "ON_CENTER": ON_CENTER,
    "POTENTIAL_BITS": POTENTIAL_BITS,
    "ENOUGH_BITS": ENOUGH_BITS,
    "QUAD": BLOCK,
    "TRIAL": int(Purpose.TRIAL),
    "PRINT": int(Purpose.PRINT),
    "CANDIDATE": int(Purpose.CANDIDATE),
    "EXPLAINERS": EXPLAINERS,
    "ROW_BITS": ROW_BITS,
    "LOG_TERMS": len(LOG_SERIES),
    "EXP_TERMS": len(EXP_SERIES),
    "LEAST": LEAST,
    "FUZZY_TILE": FUZZY_TILE,
    "FUZZY_CENTERS": FUZZY_CENTERS,
    "POTENTIAL_TILE": POTENTIAL_TILE,
    "PAUSED": PAUSED,
    **{f"STOP_{stop.name}": code for code, stop in enumerate(STOPS) if stop is not None},
}


def options(real: np.dtype, defines: tuple[tuple[str, int], ...]) -> tuple[str, ...]:
    """What a kernel is compiled with."""
    word = "float" if real == np.float32 else "double"
    macros = {name: value.hex() if isinstance(value, float) else value for name, value in MACROS.items()}
    all_defines = {"REAL": word, **macros, **dict(defines)}
    return ("--std=c++17", *(f"-D{name}={value}" for name, value in all_defines.items()))


class Loaded(NamedTuple):
    """A kernel on a device."""

    kernel: Any
    room: int  # bytes of dynamic shared memory that a launch may ask for


@functools.cache
def load(device: int, file: str, name: str, real: np.dtype, defines: tuple[tuple[str, int], ...]) -> Loaded:
    """Compile a kernel for the current device, and let it have all the shared memory that a block can have.

    That is an attribute of the function, which all threads share. It is set here, to the most that there is, before
    anyone has the kernel, and never again: nobody can find it lowered.
    """
    log.info("compiling %s for %s (kept by CuPy for the next time)", file, real)
    module = cupy.RawModule(code=source(file), options=options(real, defines))
    try:
        kernel = module.get_function(name)
    except cupy.cuda.compiler.CompileException as error:  # its message is as long as the source
        first = next((line for line in str(error).splitlines() if "error" in line), "the compiler does not say why")
        raise RuntimeError(f"backend='cuda': {file} cannot be compiled: {first.strip()}.") from error
    limit = cupy.cuda.Device(device).attributes.get("MaxSharedMemoryPerBlockOptin", PLAIN_SHARED)
    room = limit - int(kernel.shared_size_bytes)  # the driver counts both together
    if limit > PLAIN_SHARED:
        kernel.max_dynamic_shared_size_bytes = room
    return Loaded(kernel, room)


def room(file: str, name: str, real: np.dtype, **defines: int) -> int:
    """Bytes of dynamic shared memory that a block of a kernel can have on the current device."""
    return load(cupy.cuda.Device().id, file, name, real, tuple(sorted(defines.items()))).room


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
    kernel = load(cupy.cuda.Device().id, file, name, real, tuple(sorted(defines.items()))).kernel
    kernel(grid, (block,), _checked(file, name, real, args), shared_mem=shared)


def _checked(file: str, name: str, real: np.dtype, args: tuple[Any, ...]) -> tuple[Any, ...]:
    wanted = signatures(file)[name]
    if len(args) != len(wanted):
        raise TypeError(f"{name} takes {len(wanted)} arguments, got {len(args)}.")
    packed: list[Any] = []
    for i, (parameter, value) in enumerate(zip(wanted, args, strict=True)):
        place = f"Argument {i} of {name}"
        if parameter.kind in structs(file):
            packed.append(_struct(place, file, parameter, real, value))
        elif parameter.pointer:
            packed.append(np.uint64(0) if value is None else _array(place, parameter, real, value))
        elif np.ndim(value) == 0:
            packed.append(np.asarray(value, dtype_of(parameter.kind, real))[()])
        else:
            raise TypeError(f"{place} must be one number, got {value!r}.")
    return tuple(packed)


def _struct(place: str, file: str, parameter: Parameter, real: np.dtype, value: Any) -> np.ndarray:
    """The bytes of a struct, which CuPy passes by value as an array without axes."""
    struct = structs(file)[parameter.kind]
    if parameter.pointer or type(value).__name__ != parameter.kind or value._fields != struct.names:
        raise TypeError(f"{place} must be a {parameter.kind} of {', '.join(struct.names)}, got {value!r}.")
    numbers = []
    for field, number in zip(struct.fields, value, strict=True):
        if field.pointer:
            array = None if number is None else _array(f"{place}, {field.name},", field, real, number)
            number = 0 if array is None else array.data.ptr
        numbers.append(number)
    return np.array(tuple(numbers), layout(struct, real))


def _array(place: str, parameter: Parameter, real: np.dtype, value: Any) -> Any:
    dtype = dtype_of(parameter.kind, real)
    if value.dtype != dtype or not value.flags.c_contiguous:
        raise TypeError(f"{place} must be a contiguous array of {dtype}, got {value.dtype}.")
    return value
