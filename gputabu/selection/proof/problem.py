"""What is to be bounded: the points, merged and scaled, and the costs of their pairs, rounded down."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

#: Unit roundoff of float64, and what is subtracted for products that underflow.
UNIT, TINY = 2.0**-53, 2.0**-1000
#: Points of less than this share of the largest weight are left out: J without them is no larger.
LIGHTEST = 2.0**-100


@dataclass(frozen=True, slots=True, eq=False)
class Problem:
    """Distinct points with weights. All is scaled by powers of two, so that nothing overflows.

    Attributes
    ----------
    costs : (n, n) float64
        ½‖x_i − x_j‖², rounded down.
    weights : (n,) float64
        At most 1.
    k : int
        Number of clusters, from 1 to n.
    exponent : int
        J is 2^exponent times J here.
    groups : (N,) int64
        Which of the n points each of the caller's N points became; -1 for those left out.
    """

    costs: np.ndarray
    weights: np.ndarray
    k: int
    exponent: int
    groups: np.ndarray

    @property
    def n(self) -> int:
        return len(self.weights)

    @property
    def roots(self) -> np.ndarray:
        """(n,) the square roots of the weights, each with an error of half a unit in the last place."""
        return np.sqrt(self.weights)

    def start(self, labels: np.ndarray) -> np.ndarray:
        """The matrix Y of a clustering of the n points: √w_i √w_j / (weight of their cluster), or 0."""
        members = labels[:, None] == labels[None, :]
        shares = self.roots / np.bincount(labels, self.weights)[labels]
        return np.where(members, shares[:, None] * self.roots[None, :], 0.0)

    def own_labels(self, labels: np.ndarray) -> np.ndarray:
        """Labels of the n points from those of the caller's points; equal points get one of theirs."""
        found = np.zeros(self.n, np.int64)
        kept = self.groups >= 0
        found[self.groups[kept]] = labels[kept]
        return found


def scaled(values: np.ndarray) -> tuple[np.ndarray, int]:
    """The values over a power of two, so that their range is about 1. Only what is far below it is rounded.

    Columns that do not vary become 0. The largest value is then less than 2^54 times the range.
    """
    values = np.where((values == values[:1]).all(axis=0), 0.0, values)
    largest = int(np.frexp(np.abs(values).max(initial=0.0))[1])
    small = np.ldexp(values, -largest)
    extent = int(np.frexp((small.max(axis=0) - small.min(axis=0)).max(initial=0.0))[1])
    return np.ldexp(small, -extent), largest + extent


def make(X: np.ndarray, weights: np.ndarray | None, k: int) -> Problem:
    """The problem of clustering (N, d) points. Equal points become one, whose weight is rounded down."""
    exponent_w, kept = 0, np.arange(len(X))
    if weights is not None:
        exponent_w = int(np.frexp(weights.max())[1])
        weights = np.ldexp(np.asarray(weights, np.float64), -exponent_w)
        kept = np.flatnonzero(weights >= LIGHTEST)
    points, exponent_x = scaled(np.asarray(X, np.float64)[kept] + 0.0)
    distinct, inverse, counts = np.unique(points, axis=0, return_inverse=True, return_counts=True)
    inverse = inverse.reshape(-1)
    sums = counts.astype(np.float64)
    if weights is not None:
        sums = np.bincount(inverse, weights[kept]).astype(np.float64)
        sums[counts > 1] *= 1 - 2 * UNIT * (counts[counts > 1] + 2)
    exponent_s = int(np.frexp(sums.max())[1])
    groups = np.full(len(X), -1, np.int64)
    groups[kept] = inverse
    exponent = exponent_w + exponent_s + 2 * exponent_x
    return Problem(half_squares(distinct), np.ldexp(sums, -exponent_s), min(k, len(distinct)), exponent, groups)


def half_squares(points: np.ndarray) -> np.ndarray:
    """(n, n) ½‖x_i − x_j‖², rounded down.

    A difference has the relative error UNIT, its square three of them, and the sum of d squares d − 1 more: all terms
    are positive, so that the error is relative to the sum.
    """
    n, d = points.shape
    squares = np.zeros((n, n))
    for column in points.T:
        difference = column[:, None] - column[None, :]
        difference *= difference
        squares += difference
    squares *= 0.5 * (1 - 2 * UNIT * (d + 4))
    squares -= TINY
    return np.maximum(squares, 0.0, out=squares)
