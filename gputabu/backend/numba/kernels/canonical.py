"""Squared distances by the canonical formula: `arithmetic.canonical`."""

from __future__ import annotations

import numpy as np

from gputabu.backend.numba.kernels.jit import inner


@inner
def square(x, center):
    """The canonical squared distance: (d,), (d,) float64."""
    total = 0.0
    for j in range(len(x)):
        difference = np.float64(x[j]) - center[j]
        total += difference * difference
    return total


@inner
def squares_to_all(x, across, squares):
    """Canonical d² of a point to every centre: (d,), (d, K) float64 -> squares (K,)."""
    d, k = across.shape
    for a in range(k):
        squares[a] = 0.0
    for j in range(d):
        value, row = np.float64(x[j]), across[j]
        for a in range(k):
            difference = value - row[a]
            squares[a] += difference * difference


@inner
def squares_to_one(columns, center, squares, n):
    """Canonical d² of n points to a centre: (d, BLOCK), (d,) -> squares (n,)."""
    for i in range(n):
        squares[i] = 0.0
    for j in range(len(center)):
        row, c = columns[j], center[j]
        for i in range(n):
            difference = row[i] - c
            squares[i] += difference * difference


@inner
def squares_to_own(X, labels, centers, squares):
    """Canonical d² of every point to the centre of its cluster: (n, d), (n,), (K, d) -> squares (n,)."""
    n, d = X.shape
    for i in range(n):
        label = np.uint64(labels[i])  # unsigned: no check for "from the end"
        total = 0.0
        for j in range(d):
            difference = np.float64(X[i, j]) - centers[label, j]
            total += difference * difference
        squares[i] = total


@inner
def transpose(X, columns):
    """Points feature by feature: (n, d) -> columns (d, BLOCK) float64."""
    n, d = X.shape
    for j in range(d):
        row = columns[j]
        for i in range(n):
            row[i] = np.float64(X[i, j])


@inner
def copy_centers(source, target):
    """Copy (K, d). An assignment of whole arrays would compile for seconds."""
    for a in range(source.shape[0]):
        for j in range(source.shape[1]):
            target[a, j] = source[a, j]
