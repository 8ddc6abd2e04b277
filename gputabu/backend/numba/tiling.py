"""The data set of the compiled backend, cut into pieces of work, and what kernels are given of it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numba.core import config, event

from gputabu.backend.arithmetic.certified import doubts, floor, unit_for
from gputabu.backend.arithmetic.constants import KEY_BITS, LIMB
from gputabu.backend.arithmetic.fixed_point import Grid, Totals, power
from gputabu.backend.numba import kernels
from gputabu.backend.numba.kernels.fixed_point import Scales
from gputabu.backend.numba.kernels.jit import Uncached
from gputabu.backend.numba.kernels.scores import BLOCK, TILE, FastCenters, ScoreScratch, prepare_centers
from gputabu.backend.numpy.threads import thread_count
from gputabu.backend.numpy.tiling import TiledBackend
from gputabu.backend.tuning import Tuning
from gputabu.core.caching import cached_property
from gputabu.core.log import log
from gputabu.data.points import Block, Points

#: Pieces of work per thread: a thread that is held up leaves more of them to the others.
PIECES = 8


class NumbaTiling(TiledBackend):
    """Points on the host, for compiled passes."""

    def __init__(self, points: Points, tuning: Tuning | None = None) -> None:
        super().__init__(points, tuning)
        allowed = config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
        self.workers.threads = self.tuning.threads or min(thread_count(), allowed)

    def is_short(self, restarts: int, centers: int = 1) -> bool:
        """Whether NumPy does a pass as well: code that is not needed is then neither compiled nor loaded."""
        return restarts * centers * self.points.n * self.points.d <= self.tuning.short_pass

    # -- pieces ------------------------------------------------------------------------------------

    def pieces(self) -> Iterable[Block]:
        """The points in pieces of whole blocks, several per thread."""
        pieces = self.points.blocks(self.piece_rows)
        return pieces if self.points.out_of_core else list(pieces)

    @property
    def piece_rows(self) -> int:
        """Rows of a piece."""
        blocks = -(-self.points.n // (PIECES * self.workers.threads * BLOCK))
        return BLOCK * max(self.tuning.piece_blocks, blocks)

    # -- what kernels are given --------------------------------------------------------------------

    @cached_property
    def n_columns(self) -> int:
        """Columns of the totals of a cluster."""
        return Totals.columns(self.points.d, self.points.weights is not None)

    @cached_property
    def scales(self) -> Scales:
        grid, bounds = self.grid, self.bounds
        reach = float(np.maximum(bounds.high - grid.offset, grid.offset - bounds.low).max())
        return self.scales_around(grid.offset, reach, grid)

    def scales_around(self, offset: np.ndarray, reach: float, grid: Grid | None = None) -> Scales:
        """The numbers of a grid; without one, those that labelling needs."""
        d = len(offset)
        coordinate, weight, cost, square = (
            (np.zeros(d, int), 0, 0, 0) if grid is None else (grid.coordinate, grid.weight, grid.cost, grid.square)
        )
        single = np.dtype(np.float32)
        trust, exact = doubts(d, single)
        unit = unit_for(reach, single)
        return Scales(
            origin=offset.astype(self.points.dtype),
            axes=np.stack([offset, power(LIMB - coordinate), power(coordinate - LIMB), power(coordinate - 2 * LIMB)]),
            weight=tuple(float(power(e)) for e in (LIMB - weight, weight - LIMB, weight - 2 * LIMB)),
            cost=tuple(float(power(e)) for e in (LIMB - cost, cost - LIMB, cost - 2 * LIMB, cost - 3 * LIMB)),
            key=float(power(KEY_BITS - square)),
            unit=self.points.dtype.type(unit),
            trust=trust,
            exact=exact,
            floor=floor(d, unit, single),
        )

    def fast_centers(self, centers: np.ndarray, scales: Scales) -> FastCenters:
        """Centres (R, K, d) prepared for the fast scores."""
        fast = FastCenters.empty(*centers.shape)
        prepare_centers(np.ascontiguousarray(centers), scales, fast)
        return fast

    def score_scratch(self, k: int) -> ScoreScratch:
        """Scratch memory of the calling thread."""
        scratch = self.workers.scratch
        return ScoreScratch(
            coords=scratch("coords", (self.points.d, BLOCK), np.float32),
            length=scratch("length", BLOCK, np.float32),
            scores=scratch("scores", (min(max(k, 4), TILE), BLOCK), np.float32),
            best=scratch("best", BLOCK, np.float32),
            second=scratch("second", BLOCK, np.float32),
            third=scratch("third", BLOCK, np.float32),
            best_center=scratch("best_center", BLOCK, np.int32),
            second_center=scratch("second_center", BLOCK, np.int32),
            squares=scratch("squares", max(BLOCK, k), np.float64),
            shares=scratch("shares", k, np.float32),
            term=scratch("term", self.n_columns, np.int64),
        )


def block_arguments(block: Block) -> tuple[np.ndarray, np.ndarray, int]:
    """Points, weights and first row of a piece, as kernels take them."""
    return _read_only(block.X), weight_argument(block.weights), block.start


def weight_argument(weights: np.ndarray | None) -> np.ndarray:
    """Weights as kernels take them: (0,) for none."""
    return _read_only(np.empty(0) if weights is None else weights)


def _read_only(array: np.ndarray) -> np.ndarray:
    """A read-only view: kernels have one form for arrays that may and may not be written to."""
    view = array.view()
    view.flags.writeable = False
    return view


class _Announcer(event.Listener):
    """Says in the log that code is being compiled: it takes seconds, and happens once per machine."""

    def __init__(self) -> None:
        self.said = False

    def on_start(self, event: Any) -> None:
        function = event.data["dispatcher"].py_func
        if not function.__module__.startswith(kernels.__name__ + "."):
            return
        if not self.said:
            self.said = True
            if Uncached.reason is None:
                log.info("compiling the numba backend for this machine, once; it takes some seconds")
            else:
                log.info("compiling the numba backend; it takes some seconds in every process, as the code cannot be "
                         "kept on disk (%s)", Uncached.reason)  # fmt: skip
        log.debug("compiling %s", function.__name__)

    def on_end(self, event: Any) -> None: ...


event.register("numba:compile", _Announcer())
