"""How large launches are: blocks, threads and shared memory, computed from sizes and the limits of a device alone.

`room` is the dynamic shared memory that a block of the kernel can have: what the device allows, less what the kernel
declares itself. Nothing here touches a device, so that tests can ask for every architecture.
"""

from __future__ import annotations

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
#: it keeps a table in shared memory: more leaves room for too few blocks.
GROUP, SPAN, TABLE = 8, 16, 16 << 10
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
    return 4 if d * size * size <= 256 else 2 if d * size <= 128 else 1


def _assign_bytes(shape: Shape, columns: int, real: np.dtype, span: int, private: bool) -> int:
    r, k, d = shape
    points = number("assign.cu", "THREADS") * assign_points(d, real)
    sizes = {"r": r, "k": k, "D": d, "STRIDE": d | 1, "columns": columns, "points": points, "bytes": real.itemsize}
    sizes |= {"span": span, "private_totals": private}
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
    tiles = -(-n // (threads * assign_points(d, real)))
    grid = min(tiles, max(blocks, min(tiles // 2, 4 * blocks)))  # tables are loaded and written back by every block
    return AssignForm((max(1, grid),), threads, bytes_of(span, private), span, private)


def assign_tiled(room: int, n: int, shape: Shape, columns: int, real: np.dtype, blocks: int, summed: bool) -> Form:
    """`assign_tiled`, likewise; its centres are never resident."""
    sizes = {"r": shape.r, "k": shape.k, "columns": columns, "private_totals": 1}
    shared = shared_bytes("assign_tiled.cu", "ASSIGN_TILED_SHARED", real, sizes)
    private = summed and shared <= room
    return Form((max(1, min(-(-n // TILE), 4 * blocks)),), THREADS, private * shared, False, private)


def survey_group(r: int) -> int:
    """Restarts that share a read in a survey of R."""
    return 1 if r == 1 else GROUP


def survey_defines(r: int, d: int) -> dict[str, int]:
    """Which form of `survey` a shape takes: tiles of equal width, as wide as they can be."""
    return {"RG": survey_group(r), "WIDTH": -(-d // -(-d // SPAN)), "WIDE": int(d > SPAN)}


def survey(room: int, n: int, shape: Shape, real: np.dtype, blocks: int, keyed: bool) -> Form:
    """`survey`; `keyed` if the best free points are wanted."""
    r, k, d = shape
    group, threads = min(survey_group(r), r), THREADS if r == 1 else THREADS // 2
    resident, private = 8 * group * k * d <= TABLE, keyed and 8 * group * k <= TABLE
    sizes = survey_defines(r, d) | {"group": group, "k": k, "d": d, "threads": threads}
    while True:
        sizes |= {"resident": resident, "private_keys": private}
        shared = shared_bytes("tabu_argmin.cu", "SURVEY_SHARED", real, sizes)
        if shared <= room:
            break
        resident, private = False, private and resident
    grid = (-(-r // survey_group(r)), max(1, min(-(-n // threads), 2 * blocks)))
    return Form(grid, threads, shared, resident, private)


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
