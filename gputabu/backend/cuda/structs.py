"""What kernels take by value, as tuples: the fields are those of kernels/structs.cuh, which says what each is.

A launch compares the names with the source and makes the bytes (`gputabu.backend.cuda.sources.Struct`). Arrays are
CuPy's; None stands for a null pointer.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import cupy
import numpy as np

from gputabu.backend.arithmetic.constants import KEY_BITS, LIMB
from gputabu.backend.arithmetic.fixed_point import Grid as FixedPointGrid
from gputabu.backend.arithmetic.fixed_point import power
from gputabu.backend.arithmetic.powers import EXP_SERIES, LOG_SERIES
from gputabu.backend.arithmetic.powers import Fuzzifier as PlainFuzzifier
from gputabu.backend.cuda.memory import upload
from gputabu.core.results import Stop

#: What `Restarts.done` says of the end of a restart, by number; 0 where it goes on.
STOPS: tuple[Stop | None, ...] = (
    None,
    Stop.PATIENCE,
    Stop.MAX_ITER,
    Stop.TARGET,
    Stop.CONVERGED,
    Stop.TOLERANCE,
    Stop.EFFORT,
)
#: What it says of a restart that waits for the host.
PAUSED = len(STOPS)


class Chunk(NamedTuple):
    """Which rows of the data set are in X."""

    n: int
    start: int
    pitch: int


class Fuzzifier(NamedTuple):
    """The powers of a fuzzifier."""

    series: Any
    ratio: float
    share: float
    total: float
    ratio_whole: int
    ratio_half: int
    ratio_quarter: int
    share_whole: int
    share_half: int
    share_quarter: int
    total_whole: int
    total_half: int
    total_quarter: int

    @classmethod
    def upload(cls, m: float) -> Fuzzifier:
        ratio, share, total = PlainFuzzifier.of(m)
        series = upload(np.array(LOG_SERIES + EXP_SERIES))
        return cls(series, ratio.value, share.value, total.value, *ratio[1:], *share[1:], *total[1:])


class Shape(NamedTuple):
    """Sizes of the problem."""

    r: int
    k: int
    d: int


class Grid(NamedTuple):
    """The fixed-point grid on the device."""

    offset: Any
    scale: Any = None
    high: Any = None
    low: Any = None
    weight_scale: float = 1.0
    weight_high: float = 1.0
    weight_low: float = 1.0
    cost_scale: float = 1.0
    cost0: float = 1.0
    cost1: float = 1.0
    cost2: float = 1.0
    key_scale: float = 1.0

    @classmethod
    def upload(cls, grid: FixedPointGrid) -> Grid:
        def array(values: np.ndarray) -> Any:
            return cupy.asarray(np.asarray(values, np.float64))

        return cls(
            offset=array(grid.offset),
            scale=array(power(LIMB - grid.coordinate)),
            high=array(power(grid.coordinate - LIMB)),
            low=array(power(grid.coordinate - 2 * LIMB)),
            weight_scale=float(power(LIMB - grid.weight)),
            weight_high=float(power(grid.weight - LIMB)),
            weight_low=float(power(grid.weight - 2 * LIMB)),
            cost_scale=float(power(LIMB - grid.cost)),
            cost0=float(power(grid.cost - LIMB)),
            cost1=float(power(grid.cost - 2 * LIMB)),
            cost2=float(power(grid.cost - 3 * LIMB)),
            key_scale=float(power(KEY_BITS - grid.square)),
        )


class FastCenters(NamedTuple):
    """Centres in the type of the points, for fast distances."""

    centers: Any
    norms: Any
    doubt: Any

    @classmethod
    def empty(cls, r: int, k: int, d: int, dtype: np.dtype) -> FastCenters:
        return cls(*(cupy.empty(shape, dtype) for shape in ((r, k, d), (r, k), (r, 3))))


class HalfCenters(NamedTuple):
    """Centres as halves, for products on tensor cores."""

    words: Any
    norms: Any
    unit: float
    padded: int
    tile: int
    stage_steps: int
    stages: int
    parts: int

    @classmethod
    def empty(
        cls, r: int, words: int, padded: int, tile: int, stage_steps: int, stages: int, parts: int
    ) -> HalfCenters:
        """Room for R restarts; what is padding is zero, and infinitely far away."""
        norms = upload(np.full((r, padded), np.inf, np.float32))
        return cls(cupy.zeros((r, words), np.uint32), norms, 1.0, padded, tile, stage_steps, stages, parts)


#: Where there are none.
NO_HALVES = HalfCenters(None, None, 1.0, 0, 0, 0, 0, 0)


class HalfDoubt(NamedTuple):
    """How far scores on tensor cores can be trusted."""

    product: float
    square: float
    exact: float
    flat: float


class DoubtList(NamedTuple):
    """Points in doubt, of each restart."""

    rows: Any
    limits: Any
    count: Any
    seen: Any
    tickets: Any

    @classmethod
    def empty(cls, r: int, n: int) -> DoubtList:
        """Room for all of n points."""
        numbers = (cupy.zeros(size, np.uint32) for size in (r, r, 1))
        return cls(cupy.empty(r * n, np.int32), cupy.empty(r * n, np.float32), *numbers)


class Doubt(NamedTuple):
    """How far fast distances can be trusted."""

    unit: float
    fast: float
    exact: float
    floor: float
    half: float


class Restarts(NamedTuple):
    """The state of R restarts of a search, and their trace."""

    means: Any
    rows: Any
    length: Any
    best_means: Any
    best_cost: Any
    stale: Any
    age: Any
    done: Any
    current: Any
    best: Any
    path: Any

    @classmethod
    def begin(cls, means: np.ndarray, capacity: int, max_iter: int) -> Restarts:
        """Before the first iteration from means (R, K) int64."""
        (r, k), t = means.shape, max_iter + 1
        return cls(
            means=upload(means),
            rows=cupy.zeros((r, k, capacity), np.int64),
            length=cupy.zeros((r, k), np.int32),
            best_means=cupy.empty((r, k), np.int64),
            best_cost=cupy.zeros(r, np.float64),
            stale=cupy.zeros(r, np.int32),
            age=cupy.asarray(np.ones(r, np.int32)),
            done=cupy.zeros(r, np.int32),
            current=upload(np.full((r, t), np.nan)),
            best=upload(np.full((r, t), np.nan)),
            path=upload(np.full((r, t, k), -1, np.int64)),
        )


class Limits(NamedTuple):
    """When a search ends, and how its tabu list works."""

    target: float
    capacity: int
    max_iter: int
    patience: int
    shared: bool


class Lanes(NamedTuple):
    """The neighbours that restarts of a search look at."""

    means: Any
    winner: Any
    lost: Any
    done: Any
    age: Any


class Descents(NamedTuple):
    """The state of R restarts of K-Means, and their trace."""

    centers: Any
    means: Any
    sums: Any
    marks: Any
    prints: Any
    done: Any
    age: Any
    current: Any
    moves: Any


class DescentLimits(NamedTuple):
    """When K-Means ends."""

    allowed: float
    scatter: float
    max_iter: int


class SingleMoves(NamedTuple):
    """The state of R descents by single moves."""

    totals: Any
    centers: Any
    labels: Any
    mass: Any
    targets: Any
    made: Any
    done: Any
    age: Any


class NearestTwo(NamedTuple):
    """The arrays of `gputabu.backend.contract.NearestTwo`."""

    first: Any
    second: Any
    near: Any
    far: Any


class Relocations(NamedTuple):
    """The state of R relocation searches, and their trace."""

    centers: Any
    means: Any
    shares: Any
    best_centers: Any
    elite_centers: Any
    totals: Any
    mass: Any
    costs: Any
    changed: Any
    cost: Any
    best_cost: Any
    elite: Any
    aim: Any
    stale: Any
    since_elite: Any
    news: Any
    number: Any
    settled: Any
    unmoved: Any
    idle: Any
    done: Any
    age: Any
    left: Any
    current: Any
    best: Any
    moves: Any


class Swaps(NamedTuple):
    """What relocation searches draw and compare."""

    restarts: Any
    tiles: Any
    shift: Any
    rows: Any
    candidates: Any
    barred: Any
    loss: Any
    change: Any
    placed: Any
    used: Any


class RelocationRules(NamedTuple):
    """How a relocation search runs."""

    target: float
    reach: float
    seed: int
    give_up: int
    max_iter: int
    patience: int
    tenure: int
    trials: int
    go_back: int
    steps: int
    more_steps: int
    calm: int
    window: int
    coarsest: int
    finest: int


class TrialBatch(NamedTuple):
    """`gputabu.backend.contract.TrialBatch` on the device."""

    restarts: Any
    seed: int
    step: int
    limit: int
    first: int
    quads: int
    trials: int
    centers: Any = None
    cuts: Any = None
    pairs: Any = None
