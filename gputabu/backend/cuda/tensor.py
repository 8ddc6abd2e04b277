"""Tensor cores: whether a device has them, the tiles that a shape is multiplied in, and what their scores err by.

Sizes are computed from the shape and the shared memory of a block alone, so that tests can ask for every architecture.
"""

from __future__ import annotations

import functools
import math
import warnings
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

import cupy
import numpy as np

from gputabu.backend.arithmetic.constants import CUDA_DOUBT_TERMS, DOUBT_FACTOR
from gputabu.backend.cuda import launch as kernels
from gputabu.backend.cuda.sources import shared_bytes
from gputabu.backend.cuda.structs import HalfDoubt, Shape

#: Compute capability from which on there is mma.sync on 16 × 8 × 16 halves.
OLDEST = 8
#: Coordinates from which on a product on tensor cores is worth its tiles.
LEAST_D = 16
#: Coordinates below which memory is the limit: small tiles then, two blocks on a multiprocessor.
WIDE_D = 64
#: Coordinates up to which points are in registers, and all centres in shared memory.
RESIDENT_D = 48
#: A sum of n products errs by KAPPA · n · 2^-24 of the sum of their sizes: Volta's, the worst that is known.
KAPPA = 3.0
#: Norms of centres are scaled to at most 2^HALF_REACH, so that no half overflows.
HALF_REACH = 14
WARPS = 8
#: Bytes of shared memory that the kernels declare themselves, at the most.
STATIC_SHARED = 64


@dataclass(frozen=True)
class ResidentForm:
    """A block with all centres in shared memory: the macros of kernels/assign_resident.cu."""

    words: int
    d: int
    warps: int

    tile_n: ClassVar[int] = 32
    stages: ClassVar[int] = 1

    @property
    def tile_m(self) -> int:
        """Points of a block."""
        return 32 * self.warps

    @property
    def qs(self) -> int:
        return -(-self.d // 16)

    @property
    def depth(self) -> int:
        """Coordinates with padding."""
        return 16 * self.qs

    @property
    def stage(self) -> int:
        """Of TILE_N centres, in units of 16 bytes."""
        return 64 * self.qs * self.words

    def padded(self, k: int) -> int:
        """Centres with padding."""
        return -(-k // self.tile_n) * self.tile_n

    def words_of(self, k: int) -> int:
        """Words of 32 bits that the centres of a restart take."""
        return self.padded(k) // self.tile_n * self.stage * 4

    @property
    def defines(self) -> dict[str, int]:
        few = self.qs == 1 or (self.qs == 2 and self.d % 4 == 0)  # registers for two blocks on a multiprocessor
        return {
            "D": self.d,
            "WORDS": self.words,
            "WARPS": self.warps,
            "MIN_BLOCKS": 2 if few and self.words == 1 else 1,
        }

    def shared(self, shape: Shape, columns: int, real: np.dtype, private: bool) -> int:
        """Bytes of shared memory of a block."""
        sizes = {"r": shape.r, "k": shape.k, "d": self.d, "padded": self.padded(shape.k), "block": self.stage}
        sizes |= {"warps": self.warps, "size": real.itemsize, "steps": self.qs}
        sizes |= {"columns": columns, "private_totals": private}
        return shared_bytes("assign_resident.cu", "ASSIGN_RESIDENT_SHARED", real, sizes)


class TensorForm(NamedTuple):
    """How points and centres are cut into tiles: the macros of kernels/assign_tensor.cu, but for RESIDENT."""

    mi: int
    ni: int
    warps_m: int
    qs: int
    words: int
    d: int

    @property
    def tile_m(self) -> int:
        return 16 * self.mi * self.warps_m

    @property
    def tile_n(self) -> int:
        return 8 * self.ni * self.warps_n

    @property
    def warps_n(self) -> int:
        return WARPS // self.warps_m

    @property
    def stages(self) -> int:
        """Of a centre."""
        return -(-self.d // (16 * self.qs))

    @property
    def depth(self) -> int:
        """Coordinates with padding."""
        return 16 * self.qs * self.stages

    @property
    def stage(self) -> int:
        """Of TILE_N centres, in units of 16 bytes."""
        return self.tile_n // 8 * self.qs * 16 * self.words

    def padded(self, k: int) -> int:
        """Centres with padding."""
        return -(-k // self.tile_n) * self.tile_n

    def words_of(self, k: int) -> int:
        """Words of 32 bits that the centres of a restart take."""
        return self.padded(k) // self.tile_n * self.stages * self.stage * 4

    @property
    def defines(self) -> dict[str, int]:
        lanes = 8 if self.d <= 16 else 16 if self.d < WIDE_D else 32
        names = {"MI": self.mi, "NI": self.ni, "WARPS_M": self.warps_m, "QS": self.qs, "WORDS": self.words}
        return names | {"LANES": lanes, "MIN_BLOCKS": 1 if self.d >= WIDE_D or self.words > 1 else 2}

    def shared(self, shape: Shape, columns: int, real: np.dtype, resident: bool, private: bool, listed: bool) -> int:
        """Bytes of shared memory of a block."""
        r, k, _ = shape
        n_buffers = r * self.padded(k) // self.tile_n * self.stages if resident else 2
        sizes = {"words": self.words, "tile_m": self.tile_m, "warps_n": self.warps_n, "depth": self.depth}
        sizes |= {"stage": self.stage, "n_buffers": n_buffers, "padded": self.padded(k)}
        sizes |= {"listed": listed, "direct": not listed}
        sizes |= {"r": r, "k": k, "d": self.d, "columns": columns, "private_totals": private}
        sizes["small"] = self.d < WIDE_D
        return shared_bytes("assign_tensor.cu", "ASSIGN_TENSOR_SHARED", real, sizes)


def candidates(k: int, d: int, words: int) -> list[TensorForm]:
    """Forms for a shape, the best first; which fits depends on the device."""

    def form(mi: int, ni: int, warps_m: int, qs: int) -> TensorForm:
        few = k <= 16 * (WARPS // warps_m)
        return TensorForm(mi, 2 if few else ni, warps_m, qs, words, d)

    if d < WIDE_D:
        return [form(2, 4, 8, 1), form(1, 4, 8, 1), form(1, 4, 4, 1)]
    narrow = [form(2, 8, 4, 2), form(2, 8, 2, 2), form(2, 8, 1, 1), form(1, 4, 1, 1)]
    wide = [form(4, 8, 2, 1), form(4, 8, 1, 1)]  # fewer loads for a product; registers for one half only
    return [one for one in wide if words == 1 and 8 * one.padded(k) <= 9 * narrow[0].padded(k)] + narrow


def form_of(room: int, shape: Shape, columns: int, real: np.dtype, words: int) -> ResidentForm | TensorForm | None:
    """The form that a block with `room` bytes of shared memory can have; None where none fits."""
    one = shape._replace(r=1)
    if shape.d <= RESIDENT_D:
        form = ResidentForm(words, shape.d, WARPS)
        if form.shared(one, columns, real, private=False) <= room:
            return form
    for tiles in candidates(shape.k, shape.d, words):
        if tiles.shared(one, columns, real, resident=False, private=False, listed=True) <= room:
            return tiles
    return None


def half_doubt(form: ResidentForm | TensorForm) -> HalfDoubt:
    """What two scores may err by. See docs/design.md."""
    rounding = (2 * 2.0**-11 if form.words == 1 else 3 * 2.0**-22) * (1 + 2.0**-6) + 2.0**-21
    sums = KAPPA * form.depth * (1 if form.words == 1 else 3) * 2.0**-24
    flush = 2.0**-14 if form.words == 1 else 2.0**-24
    exact = (form.d + CUDA_DOUBT_TERMS) * 2.0**-53
    terms = (2 * (rounding + sums), sums + 2.0**-22, exact, flush * math.sqrt(form.depth))
    return HalfDoubt(*(DOUBT_FACTOR * (1 + 2.0**-10) * term for term in terms))


def half_unit(reach: np.ndarray, real: np.dtype) -> float:
    """The power of two that brings a centre to a norm of at most 2^HALF_REACH; reach (d) is that of its coordinates.

    Within limits, beyond which what -ftz=true takes away would no longer be small: all points are in doubt there.
    """
    with np.errstate(over="ignore"):
        length = float(np.sqrt((reach / max(float(reach.max()), 1e-300)) @ (reach / max(float(reach.max()), 1e-300))))
    e = HALF_REACH - int(np.frexp(float(reach.max()))[1]) - int(np.frexp(length)[1])
    low, high = (-120, 100) if real == np.float32 else (-1000, 900)
    return float(np.ldexp(1.0, min(max(e, low), high)))


def room_of(device: cupy.cuda.Device) -> int:
    """Bytes of dynamic shared memory that a block can have."""
    return int(device.attributes["MaxSharedMemoryPerBlockOptin"]) - STATIC_SHARED


def usable(device: cupy.cuda.Device) -> bool:
    """Whether a device has tensor cores that compute what they should."""
    return device.attributes["ComputeCapabilityMajor"] >= OLDEST and checked(device.id)


@functools.cache
def checked(device: int) -> bool:
    """Whether a product on the tensor cores of the current device is that of plain arithmetic, tried once."""
    wrong = cupy.zeros(1, np.int32)
    kernels.launch("tensor_check.cu", "tensor_check", np.dtype(np.float32), (1,), 32, (wrong,))
    found = int(wrong.get()[0]) == 0
    if not found:
        warnings.warn(
            f"The tensor cores of device {device} do not compute as expected: kernels without them are used.",
            RuntimeWarning,
            stacklevel=2,
        )
    return found
