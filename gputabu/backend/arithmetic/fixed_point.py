"""The fixed-point grid that makes sums over points free of their order.

Every sum over points (coordinates, weights, J) is rounded once, per point, to a grid chosen from the data's range, and
then added in integers. Integer addition is associative, so chunks, threads, workers and atomics cannot change a bit of
the result. Three kinds of numbers are summed:

- coordinates, relative to `offset`: two limbs of LIMB bits, 2^(exponent - 56) apart per feature;
- weights: two limbs likewise (points without weights are counted);
- costs w·d²: three limbs, because J matters at scales far below the square of the data's range.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.sparse import csc_array

from gputabu.backend.arithmetic.constants import LIMB, POTENTIAL_BITS
from gputabu.backend.arithmetic.scratch import Scratch
from gputabu.core.validation import SMALLEST
from gputabu.data.points import exponent

#: The least exponent of coordinates: their squares are zero long before, and all powers that are needed are numbers.
COORDINATE = -900


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


def carried(sums: np.ndarray) -> np.ndarray:
    """Sums of two limbs with the lower from 0 to 2^LIMB: (2, …) int64. What they stand for is the same."""
    high, low = sums
    return np.stack([high + (low >> LIMB), low & ((1 << LIMB) - 1)])


def check_span(bounds: Bounds) -> None:
    """Raise where the points differ by so little that the squares of the differences vanish."""
    span = float((bounds.high - bounds.low).max())
    if 0 < span < SMALLEST:
        raise ValueError(f"X spans only {span:g}; differences must be at least {SMALLEST:g} (rescale X).")


def quantize(
    X: np.ndarray, weights: np.ndarray | None, grid: Grid, scratch: Scratch | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The terms that the points add to the totals of their cluster, as integers in float64.

    (n, d) -> high limbs (n, d), low limbs (n, d), the other columns of `Totals`. Arrays of their own, and scratch
    memory: short rows of a wide array, and fresh pages, would each cost as much as the work.
    """
    n, d = X.shape
    scratch = scratch or Scratch()
    high, low = scratch("high", (n, d), np.float64), scratch("low", (n, d), np.float64)
    rest = np.ones((n, 1 if weights is None else 3))
    _by_row(np.subtract, X, grid.offset, low)
    if weights is not None:
        np.multiply(low, weights[:, None], out=low)
        rest[:, 0], rest[:, 1] = limbs(weights.copy(), grid.weight, 2)
        rest[:, 2] = weights > 0
    _by_row(np.multiply, low, power(LIMB - grid.coordinate), low)
    np.rint(low, out=high)
    np.subtract(low, high, out=low)
    np.multiply(low, 2.0**LIMB, out=low)
    np.rint(low, out=low)
    return high, low, rest


def _by_row(operation: np.ufunc, A: np.ndarray, row: np.ndarray, out: np.ndarray) -> None:
    """operation(A, row, out=out) for contiguous (n, d) arrays, many rows at a time: NumPy's loop is over one row."""
    n, d = A.shape
    fold = max(1, 128 // d)
    even = n // fold * fold
    if even:
        wide = (even // fold, fold * d)
        operation(A[:even].reshape(wide), np.tile(row, fold), out=out[:even].reshape(wide))
    operation(A[even:], row, out=out[even:])


def cluster_sums(
    terms: tuple[np.ndarray, ...], ends: np.ndarray, target: np.ndarray, source: np.ndarray, n_sums: int
) -> np.ndarray:
    """Add terms[i] to sums target[p] and take it from sums source[p] for p in ends[i-1] .. ends[i]: -> (n_sums, C).

    The integers, at most 2^28 each, add up exactly in float64 (a block has far fewer than 2^25 points), so a sparse
    product does it.
    """
    both = np.empty((len(target), 2), np.int32)
    both[:, 0], both[:, 1] = target, source
    signs = np.empty((len(target), 2))
    signs[:] = (1.0, -1.0)
    picks = csc_array((signs.ravel(), both.ravel(), 2 * ends), shape=(n_sums, len(terms[0])))
    return np.concatenate([picks @ part for part in terms], axis=1).astype(np.int64)
