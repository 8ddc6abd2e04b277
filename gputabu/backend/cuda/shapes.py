"""How large launches are: blocks, threads and shared memory, computed from sizes and the limits of a device alone.

`room` is the dynamic shared memory that a block of the kernel can have: what the device allows, less what the kernel
declares itself. Nothing here touches a device, so that tests can ask for every architecture.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from gputabu.backend.cuda.sources import number, shared_bytes
from gputabu.backend.cuda.structs import Shape
from gputabu.core.random import BLOCK

#: Threads of a block, where nothing speaks for another number.
THREADS = 256
#: Coordinates up to which a point is held in registers.
REGISTER_D = 32
#: Points and centres that a block of assign_tiled has at a time, and coordinates.
TILE, DEPTH = 64, 16
#: Groups of four centres that `assign` should have room for at a time.
MIN_SPAN = 32
#: Restarts that share one read of a point in the survey, coordinates that a warp has at a time, and bytes up to which
#: it keeps its centres and its keys in shared memory: more leaves room for too few blocks.
GROUP, SPAN, TABLE, KEYS = 8, 16, 32 << 10, 16 << 10
#: Multiply-adds in one launch where a watchdog ends long ones, after two seconds on Windows: a tenth of a second in
#: float64 on a common card of a desktop.
LAUNCH_WORK = 2**32
#: Those in one block of a search in one launch, which nothing can interrupt: a few seconds.
BLOCK_WORK = 2**34
#: What the barriers of an iteration take in one block, counted as multiply-adds.
ITERATION_WORK = 2**17


class Form(NamedTuple):
    """How a kernel is launched; the last two say which of its tables are in shared memory."""

    grid: tuple[int, ...]
    threads: int
    shared: int
    resident: bool
    private: bool


class AssignForm(NamedTuple):
    """How `assign` is launched."""

    grid: tuple[int, ...]
    threads: int
    shared: int
    span: int  # groups of four centres in shared memory
    private: bool


def assign_work(shape: Shape) -> int:
    """Multiply-adds for a point, in `assign` or `assign_tiled`, which has whole tiles only."""
    r, k, d = shape
    return r * k * d if d <= REGISTER_D else r * (-(-k // TILE) * TILE) * (-(-d // DEPTH) * DEPTH)


def assign_points(d: int, real: np.dtype) -> int:
    """Points of a thread of `assign`: P in its source."""
    size = real.itemsize
    return 8 if d * size * size <= 32 else 4 if d * size * size <= 256 else 2 if d * size <= 128 else 1


def assign_stride(d: int, real: np.dtype) -> int:
    """Coordinates from one row to the next in shared memory, 0 if rows do not pass through it: as in its source."""
    size = real.itemsize
    load = 16 // size if d * size % 16 == 0 else 8 // size if d * size % 8 == 0 else 1
    return 0 if d == load else (d // load | 1) * load


def _assign_bytes(shape: Shape, columns: int, real: np.dtype, span: int, private: bool) -> int:
    r, k, d = shape
    points = number("assign.cu", "THREADS") * assign_points(d, real)
    sizes = {"r": r, "k": k, "D": d, "stride": assign_stride(d, real), "columns": columns, "points": points}
    sizes |= {"bytes": real.itemsize, "span": span, "private_totals": private}
    return shared_bytes("assign.cu", "ASSIGN_SHARED", real, sizes)


def restarts_at_once(room: int, shape: Shape, columns: int, real: np.dtype) -> int:
    """How many of R restarts one launch of `assign` can have: each needs a little shared memory."""
    r = shape.r
    while r > 1 and _assign_bytes(shape._replace(r=r), columns, real, 1, False) > room:
        r = -(-r // 2)
    return r


def assign(room: int, n: int, shape: Shape, columns: int, real: np.dtype, blocks: int, summed: bool) -> AssignForm:
    """`assign`; `summed` if totals are wanted. Two blocks share a multiprocessor, unless there is too little of it."""
    (r, k, d), threads = shape, number("assign.cu", "THREADS")

    def bytes_of(span: int, private: bool) -> int:
        return _assign_bytes(shape, columns, real, span, private)

    least, each = bytes_of(0, False), 4 * (d + 1) * real.itemsize
    share = room // 2 if least + each * MIN_SPAN <= room // 2 else room
    span = max(1, min(r * -(-k // 4), (share - least) // each))
    private = summed and bytes_of(span, True) <= share
    tiles = max(1, -(-n // (threads * assign_points(d, real))))
    turns = -(-tiles // (2 * blocks))  # of a block: each has as many
    grid = -(-tiles // turns)
    return AssignForm((grid,), threads, bytes_of(span, private), span, private)


def assign_tiled(room: int, n: int, shape: Shape, columns: int, real: np.dtype, blocks: int, summed: bool) -> Form:
    """`assign_tiled`, likewise; its centres are never resident."""
    sizes = {"r": shape.r, "k": shape.k, "columns": columns, "private_totals": 1}
    shared = shared_bytes("assign_tiled.cu", "ASSIGN_TILED_SHARED", real, sizes)
    private = summed and shared <= room
    return Form((max(1, min(-(-n // TILE), 4 * blocks)),), THREADS, private * shared, False, private)


class RowsForm(NamedTuple):
    """How a kernel is launched whose warps have 32 points each: D, STAGED and WARPS are its macros."""

    D: int  # coordinates, where the compiler knows them
    STAGED: int  # the points are in shared memory
    WARPS: int
    shared: int
    private: bool = False

    @property
    def defines(self) -> dict[str, int]:
        return {"D": self.D, "STAGED": self.STAGED, "WARPS": self.WARPS}

    @property
    def threads(self) -> int:
        return 32 * self.WARPS

    def grid(self, n: int, blocks: int) -> int:
        """Blocks for n points: as many as have work, at the most."""
        return max(1, min(-(-n // self.threads), blocks))


def _rows(room: int, d: int, bytes_of: Callable[[dict[str, int]], int]) -> RowsForm:
    """As many warps as leave a multiprocessor room for several blocks; points in global memory where it has none."""
    known = d if d <= REGISTER_D else 0
    for staged, warps in ((1, 4), (1, 2), (1, 1), (0, 4)):
        shared = bytes_of({"STAGED": staged, "WARPS": warps, "d": d})
        if shared <= room // 2:
            break
    return RowsForm(known, staged, warps, shared)


def nearest_two(room: int, d: int, real: np.dtype, tensor: bool) -> RowsForm:
    """`nearest_two`, with products on tensor cores or without."""
    more = {"TENSOR": int(tensor), "depth": -(-d // 16) * 16}
    return _rows(room, d, lambda sizes: shared_bytes("nearest_two.cu", "NEAREST_TWO_SHARED", real, sizes | more))


def swap_gains(room: int, trials: int, k: int, d: int, real: np.dtype) -> RowsForm:
    """`swap_gains`; its sums are in shared memory if that leaves room for two blocks."""

    def bytes_of(sizes: dict[str, int], private: bool = False) -> int:
        more = {"trials": trials, "groups": -(-trials // 8), "k": k, "private_sums": private}
        return shared_bytes("swap_gains.cu", "SWAP_GAINS_SHARED", real, sizes | more)

    form = _rows(room, d, bytes_of)
    shared = bytes_of(form.defines | {"d": d}, private=True)
    return form._replace(shared=shared, private=True) if shared <= room // 2 else form


def reassign(room: int, k: int, plain: bool) -> tuple[bool, int]:
    """Whether `reassign` keeps quotients of clusters in shared memory, if weights allow it; and its bytes."""
    shared = shared_bytes("relocation.cu", "REASSIGN_SHARED", np.dtype(float), {"tabled": 1, "k": k})
    tabled = plain and shared <= room // 2
    return tabled, tabled * shared


def survey_group(r: int) -> int:
    """Restarts that share a read in a survey of R."""
    return 1 if r == 1 else GROUP


def survey_defines(
    r: int, d: int, paired: bool = True, resident: bool = True, weighted: bool = False
) -> dict[str, int]:
    """Which form of `survey` a shape takes: tiles of equal width, as wide as they can be; of pairs if X is aligned."""
    pack = 2 if paired and d % 2 == 0 else 1
    width = pack * -(-d // pack // -(-d // SPAN))
    wide = 0 if d <= SPAN else 1 if d % width == 0 else 2
    flags = {"RESIDENT": int(resident), "WEIGHTED": int(weighted)}
    return {"RG": survey_group(r), "WIDTH": width, "PACK": pack, "WIDE": wide} | flags


def survey_resident(shape: Shape) -> bool:
    """Whether `survey` should have its centres in shared memory."""
    return 8 * min(survey_group(shape.r), shape.r) * shape.k * shape.d <= TABLE


def survey(room: int, n: int, shape: Shape, real: np.dtype, blocks: int, keyed: bool, paired: bool = True) -> Form:
    """`survey`; `keyed` if the best free points are wanted. All blocks run at a time, two on a multiprocessor."""
    r, k, d = shape
    group, threads = min(survey_group(r), r), THREADS if r == 1 else THREADS // 2
    sizes = survey_defines(r, d, paired) | {"group": group, "k": k, "d": d, "threads": threads}

    def bytes_of(resident: bool, private: bool) -> int:
        sizes.update(RESIDENT=int(resident), private_keys=int(private))
        return shared_bytes("tabu_argmin.cu", "SURVEY_SHARED", real, sizes)

    private = keyed and 8 * group * k <= KEYS and bytes_of(False, True) <= room
    resident = survey_resident(shape) and 2 * bytes_of(True, private) <= room
    grid = (-(-r // survey_group(r)), max(1, min(-(-n // threads), blocks)))
    return Form(grid, threads, bytes_of(resident, private), resident, private)


def block_search_bytes(n: int, shape: Shape, columns: int, real: np.dtype) -> int:
    """Shared memory that a whole search in one block needs."""
    sizes = {"n": n, "k": shape.k, "d": shape.d, "columns": columns}
    return shared_bytes("block_search.cu", "BLOCK_SEARCH_SHARED", real, sizes)


def block_search_work(n: int, shape: Shape, iterations: int, blocks: int) -> int:
    """Multiply-adds of a whole search in one launch, where `blocks` run side by side."""
    return -(-shape.r // blocks) * iterations * (n * shape.k * shape.d + ITERATION_WORK)


def try_labels(room: int, n: int, r: int, trials: int, k: int, columns: int, real: np.dtype, blocks: int) -> Form:
    """`try_labels`: as many blocks for each restart, all in one axis."""
    sizes = {"private_totals": 1, "trials": trials, "k": k, "columns": columns}
    shared = shared_bytes("reassignment.cu", "TRIALS_SHARED", real, sizes)
    private = shared <= room
    each = max(1, min(-(-n // (BLOCK * THREADS)), -(-blocks // r)))
    return Form((r * each,), THREADS, private * shared, False, private)
