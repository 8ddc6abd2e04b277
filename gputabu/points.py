"""The data set: points in chunks, and the fixed-point grid that makes sums over them order-free.

Every sum over points (coordinates, weights, J) is rounded once, per point, to a grid chosen from the
data's range, and then added in integers. Integer addition is associative, so chunks, threads, workers
and atomics cannot change a bit of the result. Three kinds of numbers are summed:

- coordinates, relative to `offset`: two limbs of LIMB bits, 2^(exponent - 56) apart per feature;
- weights: two limbs likewise (points without weights are counted);
- costs w·d²: three limbs, because J matters at scales far below the square of the data's range.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gputabu.caching import cached_property
from gputabu.sources import Source, checked, is_source
from gputabu.validation import SMALLEST, check_int, check_matrix, check_weights

#: Bits in a limb. A sum of limbs stays below 2^63 for up to 2^35 points.
LIMB = 28
#: Rows in one chunk at the most, so that a row number within a chunk fits 32 bits.
CHUNK_ROWS = 2**31 - 1
#: The least exponent of coordinates: their squares are zero long before, and all powers that are needed are numbers.
COORDINATE = -900
#: Bits of the potential, Σ w d²: integers below 2^62 can be added to it without overflow.
POTENTIAL_BITS = 60
#: The grid of the potential is refined when fewer bits than these are in use.
ENOUGH_BITS = 40


@dataclass(frozen=True)
class Points:
    """N points of R^d with optional weights, as a sequence of chunks that are never copied."""

    chunks: tuple[Any, ...]  # each (n, d), NumPy, on a device or a `Source`, C-contiguous, all float32 or all float64
    weights: tuple[np.ndarray, ...] | None = None  # each (n,) float64, >= 0
    maker: Callable[[Any], Any] | None = None  # makes results the kind of array that came in, if it was another
    starts: tuple[int, ...] = field(init=False)  # number of each chunk's first row

    def __post_init__(self) -> None:
        sizes = [len(chunk) for chunk in self.chunks]
        object.__setattr__(self, "starts", tuple(np.cumsum([0, *sizes[:-1]]).tolist()))

    @classmethod
    def of(cls, X: object, weights: object = None, chunk_rows: int | None = None) -> Points:
        """Check `X` (N, d) and `weights` (N,) and cut them into chunks of `chunk_rows` rows.

        What `gputabu.chunked` reads in chunks of its own is looked at once, and stays where it is.
        """
        if isinstance(X, Points):
            if weights is not None or chunk_rows is not None:
                raise TypeError("weights and chunk_rows belong to Points.of(X, ...); X is a Points already.")
            return X
        if chunk_rows is not None:
            check_int("chunk_rows", chunk_rows, 1)
        X = checked(X) if is_source(X) else check_matrix(X)
        weights = check_weights(weights, len(X))
        rows = min(chunk_rows or CHUNK_ROWS, CHUNK_ROWS)
        cuts = range(0, len(X), rows)
        return cls(
            tuple(X[a : a + rows] for a in cuts),
            None if weights is None else tuple(weights[a : a + rows] for a in cuts),
        )

    @property
    def on_device(self) -> bool:
        """Whether the chunks are device arrays, not NumPy's."""
        return not isinstance(self.chunks[0], np.ndarray | Source)

    @property
    def out_of_core(self) -> bool:
        """Whether the points are read anew for every pass."""
        return any(isinstance(chunk, Source) for chunk in self.chunks)

    def held(self, backend: str) -> Any:
        """Who computes on points that are elsewhere, as `Ops`; None for points that a backend is to be given."""
        return None

    @property
    def n(self) -> int:
        return self.starts[-1] + len(self.chunks[-1])

    @property
    def d(self) -> int:
        return self.chunks[0].shape[1]

    @property
    def dtype(self) -> np.dtype:
        return self.chunks[0].dtype

    def blocks(self, rows: int) -> Iterator[Block]:
        """Cut the chunks further, into pieces of at most `rows` rows."""
        for c, (chunk, start) in enumerate(zip(self.chunks, self.starts, strict=True)):
            first = 0  # of a piece
            for piece in chunk.pieces() if isinstance(chunk, Source) else (chunk,):
                for a in range(0, len(piece), rows):
                    X, at = piece[a : a + rows], first + a
                    yield Block(None if self.weights is None else self.weights[c][at : at + len(X)], start + at, X)
                first += len(piece)

    def spans(self, rows: int) -> Iterator[Span]:
        """The rows of pieces of at most `rows` rows, for what does not need the points."""
        for c, (chunk, start) in enumerate(zip(self.chunks, self.starts, strict=True)):
            for a in range(0, len(chunk), rows):
                b = min(a + rows, len(chunk))
                yield Span(None if self.weights is None else self.weights[c][a:b], start + a, start + b)

    def part(self, first: int, last: int) -> Points:
        """The points from row `first` up to `last`, without copying them."""
        sizes = [len(chunk) for chunk in self.chunks]
        cuts = [(max(first - a, 0), min(last - a, n)) for a, n in zip(self.starts, sizes, strict=True)]
        some = [(c, slice(a, b)) for c, (a, b) in enumerate(cuts) if a < b]
        weights = self.weights
        return Points(
            tuple(self.chunks[c][rows] for c, rows in some),
            None if weights is None else tuple(weights[c][rows] for c, rows in some),
        )

    def rows(self, indices: np.ndarray) -> np.ndarray:
        """The points with these row numbers, float64: (...,) -> (..., d)."""
        if len(self.chunks) == 1:
            return _rows(self.chunks[0], indices)
        found = np.empty((*indices.shape, self.d))
        chunk = np.searchsorted(self.starts, indices, side="right") - 1
        for c in np.unique(chunk):
            here = chunk == c
            found[here] = _rows(self.chunks[c], indices[here] - self.starts[c])
        return found

    def weights_at(self, indices: np.ndarray) -> np.ndarray:
        """The weights of the points with these row numbers; one for points without weights."""
        if self.weights is None:
            return np.ones(indices.shape)
        return np.concatenate(self.weights)[indices] if len(self.weights) > 1 else self.weights[0][indices]

    @cached_property
    def total_weight(self) -> float:
        """Σ w, rounded once, in whatever order."""
        return float(self.n) if self.weights is None else math.fsum(w for part in self.weights for w in part)

    @cached_property
    def weight_prefix(self) -> np.ndarray | None:
        """(N,) int64 running totals of the weights, rounded to a grid; None for weights of one."""
        if self.weights is None:
            return None
        w = np.concatenate(self.weights)
        spare = 61 - exponent(w.max()) - (len(w) - 1).bit_length()
        return np.cumsum(np.rint(np.ldexp(w, spare)).astype(np.int64))


@dataclass(frozen=True, slots=True)
class Span:
    """Some consecutive rows of a chunk, small enough for the cache."""

    weights: np.ndarray | None  # (n,)
    start: int  # row number of the first
    stop: int  # and of the one behind the last

    @property
    def rows(self) -> slice:
        return slice(self.start, self.stop)


@dataclass(frozen=True, slots=True)
class Block:
    """A span with its points."""

    weights: np.ndarray | None  # (n,)
    start: int
    X: np.ndarray  # (n, d) view

    @property
    def rows(self) -> slice:
        return slice(self.start, self.start + len(self.X))


@dataclass(frozen=True, slots=True)
class Bounds:
    """The box around the points of positive weight, and the largest weight."""

    low: np.ndarray  # (d,) float64
    high: np.ndarray  # (d,) float64
    weight: float  # the largest; 1 for points without weights

    @classmethod
    def merge(cls, parts: Sequence[Bounds]) -> Bounds:
        """The box around those of several sets of points; a set in which none has weight does not count."""
        return cls(
            np.minimum.reduce([part.low for part in parts]),
            np.maximum.reduce([part.high for part in parts]),
            max(part.weight for part in parts),
        )

    def joined(self, centers: np.ndarray) -> Bounds:
        """The box that also holds `centers` (..., d)."""
        flat = centers.reshape(-1, centers.shape[-1])
        low, high = np.minimum(self.low, flat.min(axis=0)), np.maximum(self.high, flat.max(axis=0))
        return Bounds(low, high, self.weight)


@dataclass(frozen=True, slots=True)
class Grid:
    """Where the fixed-point numbers have their binary points; a function of the bounds and the mean."""

    offset: np.ndarray  # (d,) float64, representable in the dtype of the points
    coordinate: np.ndarray  # (d,) int: |w (x - offset)| <= 2^coordinate
    weight: int  # w <= 2^weight
    cost: int  # w d² <= 2^cost for any point and any centre in the box
    square: int  # d² <= 2^square

    @classmethod
    def around(cls, bounds: Bounds, offset: np.ndarray) -> Grid:
        reach = np.maximum(bounds.high - offset, offset - bounds.low)  # (d,)
        # One bit to spare: a centre may round outward.
        square = exponent(float(((bounds.high - bounds.low) ** 2).sum())) + 1
        return cls(
            offset=offset,
            coordinate=np.maximum(np.frexp(reach * bounds.weight)[1], COORDINATE),
            weight=exponent(bounds.weight),
            cost=square + exponent(bounds.weight),
            square=square,
        )

    def coarsest(self, n: int) -> int:
        """The potential of n points in units of 2^-coarsest cannot overflow, wherever in the box the centres are."""
        return POTENTIAL_BITS - self.cost - exponent(n)

    @property
    def finest(self) -> int:
        """Where the refinement of the potential ends: 2^finest must be a number."""
        return min(POTENTIAL_BITS - self.cost + 400, 1000)

    def centroids(self, totals: np.ndarray, fallback: np.ndarray) -> np.ndarray:
        """Means of the clusters (eq. 3) from their totals; `fallback` where a cluster is empty.

        (R, K, C), (R, K, d) -> (R, K, d) float64. See `Totals` for the columns.
        """
        d = len(self.offset)
        weight = self.weights(totals)[..., None]  # (R, K, 1)
        moments = from_limbs(totals[..., :d], totals[..., d : 2 * d], exponents=self.coordinate)
        with np.errstate(divide="ignore", invalid="ignore"):
            means = self.offset + moments / weight
        return np.where(weight > 0, means, fallback)

    def explained(self, totals: np.ndarray) -> np.ndarray:
        """Σ_k W_k ‖c_k − offset‖², the scatter between the clusters: (..., K, C) -> (...) float64.

        The scatter about the offset less this is J at the centroids. Added in the order of features, then of
        clusters; an empty cluster adds nothing.
        """
        d = len(self.offset)
        weight = self.weights(totals)  # (..., K)
        away = from_limbs(totals[..., :d], totals[..., d : 2 * d], exponents=self.coordinate)  # (..., K, d)
        np.divide(away, weight[..., None], out=away, where=weight[..., None] > 0)  # moments of nothing are zero
        np.multiply(away, away, out=away)
        shares = away[..., 0].copy()
        for j in range(1, d):
            shares += away[..., j]
        shares *= weight
        return np.cumsum(shares, axis=-1)[..., -1]  # one after the other, where `sum` would add pairwise

    def weights(self, totals: np.ndarray) -> np.ndarray:
        """Weight of every cluster, float64: (R, K, C) -> (R, K)."""
        d = len(self.offset)
        if totals.shape[-1] == 2 * d + 1:
            return totals[..., -1].astype(np.float64)
        return from_limbs(totals[..., 2 * d], totals[..., 2 * d + 1], exponents=self.weight)


class Totals:
    """The columns of a (…, C) int64 array of totals over the points of a cluster.

    `d` high limbs of the coordinates, `d` low limbs; with weights, their high and low limb; last, the
    number of points of positive weight. A layout rather than a class of instances, so that it stays
    one array that backends add, send and reduce as they like.
    """

    @staticmethod
    def columns(d: int, weighted: bool) -> int:
        return 2 * d + 1 + 2 * weighted

    @staticmethod
    def counts(totals: np.ndarray) -> np.ndarray:
        return totals[..., -1]


def _rows(chunk: Any, indices: np.ndarray) -> np.ndarray:
    return chunk.rows(indices) if isinstance(chunk, Source) else chunk[indices].astype(np.float64)


def exponent(value: float) -> int:
    """The least e with |value| <= 2^e (0 for zero)."""
    mantissa, e = np.frexp(value)
    return int(e) - int(abs(mantissa) == 0.5)


def spread_exponent(grid: Grid) -> int:
    """An e with w d <= 2^e for any point and any centre in the box of the grid."""
    return grid.weight - (-grid.square // 2)


def power(e: np.ndarray | int) -> np.ndarray:
    """2^e as float64; multiplying by it is exact, and faster than ldexp."""
    return np.ldexp(1.0, e)


def limbs(values: np.ndarray, exponents: np.ndarray | int, count: int) -> list[np.ndarray]:
    """Split float64 `values`, |values| <= 2^exponents, into `count` integers of LIMB bits held in float64.

    Destroys `values`. The last limb is rounded to nearest even, so that is the precision of a term.
    """
    np.multiply(values, power(np.subtract(LIMB, exponents)), out=values)
    parts = []
    for i in range(count):
        parts.append(np.rint(values))
        if i + 1 < count:
            np.subtract(values, parts[-1], out=values)
            np.multiply(values, 2.0**LIMB, out=values)
    return parts


def from_limbs(*sums: np.ndarray, exponents: np.ndarray | int) -> np.ndarray:
    """The float64 nearest to a sum of limbs, in one fixed order of operations."""
    value = sums[0].astype(np.float64) * power(np.subtract(exponents, LIMB))
    for i, part in enumerate(sums[1:], start=2):
        value = value + part.astype(np.float64) * power(np.subtract(exponents, i * LIMB))
    return value


def check_span(bounds: Bounds) -> None:
    """Raise where the points differ by so little that the squares of the differences vanish."""
    span = float((bounds.high - bounds.low).max())
    if 0 < span < SMALLEST:
        raise ValueError(f"X spans only {span:g}; differences must be at least {SMALLEST:g} (rescale X).")
