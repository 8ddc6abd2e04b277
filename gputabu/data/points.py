"""The data set: points in chunks, and the fixed-point grid that makes sums independent of their order.

Every term of a sum over points (coordinates, weights, J) is rounded once to a grid chosen from the data's range, and
then added in integers. Integer addition is associative, so chunks, threads, workers and atomics cannot change a bit
of the result. Three kinds of numbers are summed:

- coordinates, relative to `offset`: two limbs of LIMB bits, in steps of 2^(exponent - 56) per feature;
- weights: two limbs as well (points without weights are counted);
- costs w·d²: three limbs, because J can be far below the square of the data's range.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gputabu.core.caching import cached_property
from gputabu.core.validation import check_int, check_matrix, check_weights
from gputabu.data.sources import Source, checked, is_source

#: Most rows in one chunk: a row number within a chunk fits into 32 bits.
CHUNK_ROWS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Shape:
    """What parameters are checked against."""

    n: int
    d: int
    dtype: np.dtype


@dataclass(frozen=True)
class Points:
    """N points of R^d with optional weights, as a sequence of chunks that are never copied."""

    chunks: tuple[Any, ...]  # each (n, d), NumPy, on a device or a `Source`, C-contiguous, all float32 or all float64
    weights: tuple[np.ndarray, ...] | None = None  # each (n,) float64, >= 0
    maker: Callable[[Any], Any] | None = None  # converts results to the caller's kind of array, if needed
    rounded_to: np.dtype | None = None  # the dtype of centres that are found, if not that of the points
    starts: tuple[int, ...] = field(init=False)  # number of each chunk's first row

    def __post_init__(self) -> None:
        sizes = [len(chunk) for chunk in self.chunks]
        object.__setattr__(self, "starts", tuple(np.cumsum([0, *sizes[:-1]]).tolist()))

    @classmethod
    def of(cls, X: object, weights: object = None, chunk_rows: int | None = None) -> Points:
        """Check `X` (N, d) and `weights` (N,) and cut them into chunks of `chunk_rows` rows.

        What `gputabu.chunked` reads is checked once, and not loaded into memory.
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
        """Whether the points are read again for every pass."""
        return any(isinstance(chunk, Source) for chunk in self.chunks)

    def open_elsewhere(self, backend: Any) -> Any:
        """The backend of points that are elsewhere, such as on Dask workers; None for points in this process."""
        return None

    @property
    def shape(self) -> Shape:
        return Shape(self.n, self.d, self.dtype)

    @property
    def n(self) -> int:
        return self.starts[-1] + len(self.chunks[-1])

    @property
    def d(self) -> int:
        return self.chunks[0].shape[1]

    @property
    def dtype(self) -> np.dtype:
        return self.chunks[0].dtype

    @property
    def result_dtype(self) -> np.dtype:
        """What the centres of a result are rounded to."""
        return self.dtype if self.rounded_to is None else self.rounded_to

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
        """Cut the chunks as `blocks` does, but without the points."""
        for c, (chunk, start) in enumerate(zip(self.chunks, self.starts, strict=True)):
            for a in range(0, len(chunk), rows):
                b = min(a + rows, len(chunk))
                yield Span(None if self.weights is None else self.weights[c][a:b], start + a, start + b)

    def part(self, first: int, last: int) -> Points:
        """The points from row `first` up to `last`, without copying them."""
        sizes = [len(chunk) for chunk in self.chunks]
        cuts = [(max(first - a, 0), min(last - a, n)) for a, n in zip(self.starts, sizes, strict=True)]
        slices = [(c, slice(a, b)) for c, (a, b) in enumerate(cuts) if a < b]
        weights = self.weights
        return Points(
            tuple(self.chunks[c][rows] for c, rows in slices),
            None if weights is None else tuple(weights[c][rows] for c, rows in slices),
        )

    def rows(self, indices: np.ndarray) -> np.ndarray:
        """The points with these row numbers, float64: (...,) -> (..., d)."""
        if len(self.chunks) == 1:
            return _rows(self.chunks[0], indices)
        values = np.empty((*indices.shape, self.d))
        chunk = np.searchsorted(self.starts, indices, side="right") - 1
        for c in np.unique(chunk):
            inside = chunk == c
            values[inside] = _rows(self.chunks[c], indices[inside] - self.starts[c])
        return values

    def weights_at(self, indices: np.ndarray) -> np.ndarray:
        """The weights of the points with these row numbers; 1 for points without weights."""
        if self.weights is None:
            return np.ones(indices.shape)
        return np.concatenate(self.weights)[indices] if len(self.weights) > 1 else self.weights[0][indices]

    @cached_property
    def total_weight(self) -> float:
        """Σ w, rounded once, so it does not depend on the order."""
        return float(self.n) if self.weights is None else math.fsum(w for chunk in self.weights for w in chunk)

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
    """Consecutive rows of a chunk, few enough for the cache."""

    weights: np.ndarray | None  # (n,)
    start: int  # number of the first row
    stop: int  # and of the row after the last

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


def _rows(chunk: Any, indices: np.ndarray) -> np.ndarray:
    return chunk.rows(indices) if isinstance(chunk, Source) else chunk[indices].astype(np.float64)


def exponent(value: float) -> int:
    """The least e with |value| <= 2^e (0 for zero)."""
    mantissa, e = np.frexp(value)
    return int(e) - int(abs(mantissa) == 0.5)
