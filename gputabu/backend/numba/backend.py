"""The compiled CPU backend: the passes of the NumPy backend as machine code, by numba.

Threads are those of `Workers`, each in a compiled call that does not hold the GIL: no parallel regions of numba's, so
none of its threading layers is started, and a fork is as safe as with NumPy. What is not overridden here is NumPy's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
from numba.core import config, event

from gputabu.backend.arithmetic import rules
from gputabu.backend.arithmetic.certified import floor, unit_for
from gputabu.backend.arithmetic.constants import LIMB
from gputabu.backend.arithmetic.fixed_point import Grid, Totals, power
from gputabu.backend.arithmetic.keys import Least
from gputabu.backend.contract import Assignment, Moves, NearestTwo
from gputabu.backend.loops import (
    HartiganRun,
    HartiganSettings,
    LloydRun,
    LloydSettings,
    Loops,
    QuantizedRun,
    QuantizedSettings,
    RelocationRun,
    RelocationSettings,
)
from gputabu.backend.numba import kernels
from gputabu.backend.numba import relocation as numba_pairing
from gputabu.backend.numba import restarts as numba_restarts
from gputabu.backend.numba.kernels import BLOCK, TILE, Centers, Scales, ScoreScratch
from gputabu.backend.numpy.backend import NumpyBackend
from gputabu.backend.numpy.hartigan import listed
from gputabu.backend.numpy.seeding import integers
from gputabu.backend.numpy.threads import thread_count
from gputabu.backend.tuning import Tuning
from gputabu.core.caching import cached_property
from gputabu.core.log import log
from gputabu.data.points import Block, Points, Span

#: Pieces of work per thread: a thread that is held up leaves more of them to the others.
PIECES = 8
#: Blocks in a piece at the least: handing one to compiled code costs as much as a block or two.
FEWEST = 8


class NumbaLoops(Loops):
    """Whole restarts of small data in compiled code, a thread for each."""

    def __init__(self, backend: NumbaBackend) -> None:
        self.backend = backend

    def quantized(self, means: np.ndarray, settings: QuantizedSettings) -> QuantizedRun | None:
        return numba_restarts.explore(self.backend, means, settings)

    def lloyd(self, centers: np.ndarray, settings: LloydSettings) -> LloydRun | None:
        return numba_restarts.descend(self.backend, centers, settings)

    def hartigan(self, centers: np.ndarray, settings: HartiganSettings) -> HartiganRun | None:
        return numba_restarts.improve(self.backend, centers, settings)

    def relocation(self, centers: np.ndarray, settings: RelocationSettings) -> RelocationRun | None:
        return numba_pairing.roam(self.backend, centers, settings)


class NumbaBackend(NumpyBackend):
    """A data set on the host. See `gputabu.backend.contract.BackendBase` for what each operation promises."""

    name = "numba"

    def __init__(self, points: Points, tuning: Tuning | None = None) -> None:
        super().__init__(points, tuning)
        allowed = config.NUMBA_NUM_THREADS  # type: ignore[attr-defined]
        self.workers.threads = self.tuning.threads or min(thread_count(), allowed)

    # -- passes ----------------------------------------------------------------------------------

    def assign(self, centers: np.ndarray, labels: np.ndarray) -> Assignment:
        r, k, _ = centers.shape
        if self.few(r, k):
            return super().assign(centers, labels)
        scales = self.scales
        fast = self.ready(centers, scales)

        def relabel(pieces: Iterable[Block]) -> tuple[np.ndarray, np.ndarray]:
            desk, totals, changed = self.desk(k), np.zeros((r, k, self.columns), np.int64), np.zeros(r, np.int64)
            for block in pieces:
                kernels.assign_rows(*self.given(block), labels, fast, scales, totals, changed, desk)
            return totals, changed

        parts = self.workers.map(relabel, self.pieces())
        return Assignment(*(np.sum(side, axis=0) for side in zip(*parts, strict=True)))

    def _own_distances(
        self,
        centers: np.ndarray,
        labels: np.ndarray,
        cost: int,
        least: Least | None = None,
        forbidden: np.ndarray | None = None,
    ) -> np.ndarray:
        r, k, _ = centers.shape
        if self.few(r):
            return super()._own_distances(centers, labels, cost, least, forbidden)
        to_limbs, key_scale = float(power(LIMB - cost)), self.scales.key
        centers = np.ascontiguousarray(centers)
        flags = np.zeros((r, 0), np.bool_) if forbidden is None else forbidden
        shape = (r, k, 0) if least is None else least.shape

        def look(pieces: Iterable[Block]) -> tuple[np.ndarray, Least]:
            squares, sums, mine = self.desk(k).squares, np.zeros((r, 3), np.int64), Least(shape)
            for block in pieces:
                span = Least.span(block.start)
                kernels.survey_rows(*self.given(block), labels, flags, span, centers, to_limbs, key_scale, sums,
                                    mine.held(span), squares)  # fmt: skip
            return sums, mine

        parts = self.workers.map(look, self.pieces())
        if least is not None:
            for _, mine in parts:
                least.merge(mine)
        return np.sum([sums for sums, _ in parts], axis=0).T

    def label(self, centers: np.ndarray) -> np.ndarray:
        r, k, d = centers.shape
        if k == 1 or self.few(r, k):
            return super().label(centers)
        labels = self.blank_labels(r)
        middle = centers.reshape(-1, d).mean(axis=0).astype(self.points.dtype).astype(float)
        scales = self._scales(middle, float(np.abs(centers - middle).max()))
        fast = self.ready(centers, scales)

        no_totals = np.empty((r, 0, 0), np.int64)

        def look(pieces: Iterable[Block]) -> None:
            changed = np.zeros(r, np.int64)
            for block in pieces:
                kernels.assign_rows(*self.given(block), labels, fast, scales, no_totals, changed, self.desk(k))

        self.workers.map(look, self.pieces())
        return labels

    def find_moves(self, centers: np.ndarray, totals: np.ndarray, labels: np.ndarray) -> Moves:
        k, scales = centers.shape[1], self.scales
        centers, fast = np.ascontiguousarray(centers), self.ready(centers, scales)
        mass, slack = rules.masses(self.grid, totals), rules.slack(self.bounds)
        target, everyone = self.allocate(labels.shape, np.int32, -1), np.ones(k, np.int64)

        def look(pieces: Iterable[Block]) -> None:
            leave = np.empty(BLOCK)
            for block in pieces:
                kernels.move_rows(*self.given(block), labels, centers, mass, slack, fast, scales, everyone, target,
                                  leave, self.desk(k))  # fmt: skip

        self.workers.map(look, self.pieces())
        return listed(labels, target)

    def walk(self, X: np.ndarray, moves: Moves, centers: np.ndarray, totals: np.ndarray) -> np.ndarray:
        weights = np.empty(0) if self.points.weights is None else self.points.weights_at(moves.row)
        mass, made = rules.masses(self.grid, totals), np.empty(len(moves), np.bool_)
        kernels.walk_moves(
            X, weights, moves.restart, moves.source, moves.target, centers, totals, mass, rules.slack(self.bounds),
            self.scales, self.desk(1).term, made,
        )  # fmt: skip
        return made

    # -- seeding ---------------------------------------------------------------------------------

    def lower_sq_dist(self, seeds: np.ndarray, min_sq_dist: np.ndarray) -> None:
        if self.few(len(seeds)):
            return super().lower_sq_dist(seeds, min_sq_dist)
        self._cover(seeds[:, None], min_sq_dist, np.ones(len(seeds)), lower=True)

    def seed_gains(self, seeds: np.ndarray, min_sq_dist: np.ndarray, shift: np.ndarray) -> np.ndarray:
        if self.few(*seeds.shape[:2]):
            return super().seed_gains(seeds, min_sq_dist, shift)
        return self._cover(seeds, min_sq_dist, power(shift), lower=False)

    def _cover(self, seeds: np.ndarray, min_sq_dist: np.ndarray, powers: np.ndarray, lower: bool) -> np.ndarray:
        scales, seeds = self.scales, np.ascontiguousarray(seeds)
        fast = self.ready(seeds, scales)

        def look(pieces: Iterable[Block]) -> np.ndarray:
            desk, gains = self.desk(1), np.zeros(seeds.shape[:2], np.int64)
            for block in pieces:
                kernels.cover_rows(*self.given(block), min_sq_dist, seeds, powers, fast, scales, gains, lower,
                                   desk.moved, desk.length, desk.scores[0])  # fmt: skip
            return gains

        return np.sum(self.workers.map(look, self.pieces()), axis=0)

    def potential(self, min_sq_dist: np.ndarray, shift: np.ndarray) -> np.ndarray:
        if self.few(len(min_sq_dist)):
            return super().potential(min_sq_dist, shift)
        return self._potentials(min_sq_dist, shift)[1].sum(axis=0)

    def sample(self, min_sq_dist: np.ndarray, shift: np.ndarray, targets: np.ndarray) -> np.ndarray:
        if self.few(len(min_sq_dist)):
            return super().sample(min_sq_dist, shift, targets)
        pieces, sums = self._potentials(min_sq_dist, shift)
        ends = sums.cumsum(axis=0)  # (pieces, R)
        rows = np.full(targets.shape, -1, np.int64)
        for r, t in zip(*np.nonzero((targets >= 0) & (targets < ends[-1, :, None])), strict=True):
            i = int(np.searchsorted(ends[:, r], targets[r, t], side="right"))
            span, before = pieces[i], ends[i, r] - sums[i, r]
            running = integers(min_sq_dist[r, span.rows], span.weights, shift[r]).cumsum()
            rows[r, t] = span.start + np.searchsorted(running, targets[r, t] - before, side="right")
        return rows

    def _potentials(self, min_sq_dist: np.ndarray, shift: np.ndarray) -> tuple[list[Span], np.ndarray]:
        """The rows of pieces of the points, in order, and the potential of each, (pieces, R) int64."""
        pieces, powers = list(self.points.spans(self._rows)), power(shift)
        sums = np.zeros((len(pieces), len(min_sq_dist)), np.int64)

        def add(numbers: Iterable[int]) -> None:
            for i in numbers:
                span = pieces[i]
                kernels.potential_rows(_given(span.weights), span.start, span.stop, min_sq_dist, powers, sums[i])

        self.workers.map(add, range(len(pieces)))
        return pieces, sums

    # -- relocation ------------------------------------------------------------------------------

    def nearest_two(self, centers: np.ndarray, previous: NearestTwo | None = None) -> NearestTwo:
        held = self.no_nearest_two(centers) if previous is None else previous
        numba_pairing.update(self, centers, held)
        return held

    def reassign_partial(
        self, nearest: NearestTwo, labels: np.ndarray, mass: np.ndarray | None, active: np.ndarray
    ) -> tuple[Assignment, np.ndarray]:
        return numba_pairing.settle(self, nearest, labels, mass, active)

    def swap_gains_partial(self, candidates: np.ndarray, nearest: NearestTwo) -> tuple[np.ndarray, np.ndarray]:
        return numba_pairing.swaps(self, candidates, nearest)

    @cached_property
    def loops(self) -> Loops:
        return NumbaLoops(self)

    def few(self, restarts: int, centers: int = 1) -> bool:
        """Whether a pass is so short that NumPy's does as well: code that is not needed is not compiled, or loaded."""
        return restarts * centers * self.points.n * self.points.d <= self.tuning.short_pass

    # -- what kernels are given ------------------------------------------------------------------

    @cached_property
    def columns(self) -> int:
        return Totals.columns(self.points.d, self.points.weights is not None)

    @cached_property
    def scales(self) -> Scales:
        grid, bounds = self.grid, self.bounds
        reach = float(np.maximum(bounds.high - grid.offset, grid.offset - bounds.low).max())
        return self._scales(grid.offset, reach, grid)

    def _scales(self, offset: np.ndarray, reach: float, grid: Grid | None = None) -> Scales:
        """The numbers of a grid; without one, those that labelling needs."""
        d = len(offset)
        coordinate, weight, cost, square = (
            (np.zeros(d, int), 0, 0, 0) if grid is None else (grid.coordinate, grid.weight, grid.cost, grid.square)
        )
        # 2.2: twice the bound, and a tenth for the bound's own arithmetic and higher orders, as in `certified`.
        trust, exact = (2.2 * (d + 6) * np.finfo(dtype).eps / 2 for dtype in (np.float32, np.float64))
        single = np.dtype(np.float32)
        unit = unit_for(reach, single)
        return Scales(
            origin=offset.astype(self.points.dtype),
            axes=np.stack([offset, power(LIMB - coordinate), power(coordinate - LIMB), power(coordinate - 2 * LIMB)]),
            weight=tuple(float(power(e)) for e in (LIMB - weight, weight - LIMB, weight - 2 * LIMB)),
            cost=tuple(float(power(e)) for e in (LIMB - cost, cost - LIMB, cost - 2 * LIMB, cost - 3 * LIMB)),
            key=float(power(100 - square)),
            unit=self.points.dtype.type(unit),
            trust=float(trust),
            exact=float(exact),
            floor=floor(d, unit, single),
        )

    def pieces(self) -> Iterable[Block]:
        """The points in pieces of whole blocks, several per thread."""
        pieces = self.points.blocks(self._rows)
        return pieces if self.points.out_of_core else list(pieces)

    @property
    def _rows(self) -> int:
        """Rows of a piece."""
        return BLOCK * max(FEWEST, -(-self.points.n // (PIECES * self.workers.threads * BLOCK)))

    def given(self, block: Block) -> tuple[np.ndarray, np.ndarray, int]:
        """Points, weights and first row of a piece as kernels want them."""
        return _frozen(block.X), _given(block.weights), block.start

    def ready(self, centers: np.ndarray, scales: Scales) -> Centers:
        """Centres (R, K, d) prepared for the fast scores."""
        fast = Centers.empty(*centers.shape)
        kernels.ready(np.ascontiguousarray(centers), scales, fast)
        return fast

    def desk(self, k: int) -> ScoreScratch:
        """Scratch memory of the calling thread."""
        scratch = self.workers.scratch
        return ScoreScratch(
            moved=scratch("moved", (self.points.d, BLOCK), np.float32),
            length=scratch("length", BLOCK, np.float32),
            scores=scratch("scores", (min(max(k, 4), TILE), BLOCK), np.float32),
            best=scratch("best", BLOCK, np.float32),
            second=scratch("second", BLOCK, np.float32),
            third=scratch("third", BLOCK, np.float32),
            found=scratch("found", BLOCK, np.int32),
            other=scratch("other", BLOCK, np.int32),
            squares=scratch("squares", max(BLOCK, k), np.float64),
            shares=scratch("shares", k, np.float32),
            term=scratch("term", self.columns, np.int64),
        )


def _given(weights: np.ndarray | None) -> np.ndarray:
    return _frozen(np.empty(0) if weights is None else weights)


def _frozen(array: np.ndarray) -> np.ndarray:
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
        if function.__module__ != kernels.__name__:
            return
        if not self.said:
            log.info("compiling the numba backend for this machine, once; it takes some seconds")
            self.said = True
        log.debug("compiling %s", function.__name__)

    def on_end(self, event: Any) -> None: ...


event.register("numba:compile", _Announcer())
