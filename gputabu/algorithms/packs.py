"""Packs: points that move together (packing and releasing, Sung and Jin 2000), and rows that must share a cluster.

If points must be in one cluster, all that J asks of them is their weight W and their mean m, as

    Σ_{i in pack} w_i ‖x_i − c‖² = W ‖m − c‖² + Σ_{i in pack} w_i ‖x_i − m‖²,

and the last sum is the same whatever the clusters are. So packs are points with weights, fewer than before, and any
search that minimises J runs on them as it is; the constant is added to J. Means come from the exact sums of `Totals`.

`levels` makes packs of ever fewer points by merging the two packs whose means are nearest, the lowest numbers on ties.
Above EXACT packs that would take long; then all pairs that are nearest to each other merge at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from gputabu.backend.arithmetic.canonical import in_order
from gputabu.backend.arithmetic.fixed_point import Totals, from_limbs, limbs, quantize
from gputabu.backend.base import BackendBase
from gputabu.data.points import Points

#: The pack that each row is in, (N,), and how many packs there are.
Level = tuple[np.ndarray, int]
#: Packs up to which the two nearest of all are merged, one pair after the other.
EXACT = 4096
#: Numbers in a temporary array.
SLICE = 1 << 20


def collapsed(backend: BackendBase, numbers: np.ndarray, count: int) -> tuple[Points, float]:
    """The packs that rows are in, by their numbers (N,) from 0 to `count` - 1, as points; and the constant of J."""
    points, grid = backend.points, backend.grid
    totals = np.zeros((1, count, Totals.columns(points.d, points.weights is not None)), np.int64)
    for rows, X, weights in _rows(backend):
        terms = np.concatenate(quantize(X, weights, grid), axis=1).astype(np.int64)
        np.add.at(totals[0], numbers[rows], terms)
    _, first = np.unique(numbers, return_index=True)
    means = grid.centroids(totals, backend.rows(first)[None])[0]  # without weight: where the first row is
    means = np.where(np.bincount(numbers, minlength=count)[:, None] == 1, backend.rows(first), means)
    sums = np.zeros(3, np.int64)
    for rows, X, weights in _rows(backend):
        squares = in_order((X - means[numbers[rows]]) ** 2)
        if weights is not None:
            squares *= weights
        sums += [int(part.sum()) for part in limbs(squares, grid.cost, 3)]
    return Points((means,), (grid.weights(totals)[0],)), float(from_limbs(*sums, exponents=grid.cost))


@contextmanager
def opened(backend: BackendBase, level: Level | None) -> Iterator[tuple[BackendBase, float]]:
    """A context with a backend for the packs of a level, and what J lacks there; the backend itself without a level."""
    if level is None:
        yield backend, 0.0
        return
    points, constant = collapsed(backend, *level)
    with backend.of_same_kind(points) as few:
        yield few, constant


def _rows(backend: BackendBase) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray | None]]:
    """All rows, some at a time: their numbers, values and weights."""
    points, step = backend.points, max(1, SLICE // backend.points.d)
    if not points.on_device:
        for block in points.blocks(step):  # a file is read once from end to end
            yield np.arange(block.start, block.start + len(block.X)), block.X, block.weights
        return
    for a in range(0, points.n, step):
        rows = np.arange(a, min(a + step, points.n))
        yield rows, backend.rows(rows), None if points.weights is None else points.weights_at(rows)


def counts(n: int, k: int) -> list[int]:
    """How many packs each level has, of n points in K clusters: n/2, n/4, … down to 4K, and back up; n comes last."""
    few = 4 * k
    halves = [size for size in (n >> shift for shift in range(1, n.bit_length())) if size > few]
    return [*halves, few, *reversed(halves)] if few < n else []


def levels(backend: BackendBase, k: int) -> list[Level]:
    """All levels but the last, which is the points themselves."""
    wanted = counts(backend.points.n, k)
    if not wanted:
        return []
    rows = np.arange(backend.points.n)
    found = {}
    tree = Merging(backend.rows(rows), backend.points.weights_at(rows))
    for size in sorted(set(wanted), reverse=True):
        tree.shrink(size)
        found[size] = tree.numbers()
    return [(found[size], size) for size in wanted]


class Merging:
    """Packs that merge. A pack is known by the lowest row in it."""

    def __init__(self, X: np.ndarray, weights: np.ndarray) -> None:
        self.means, self.weights = X.astype(np.float64), weights.astype(np.float64)  # (N, d), (N,) by pack
        self.alive = np.arange(len(X))  # packs, ascending
        self.parent = np.arange(len(X))  # of each row: a pack that it went into, or itself

    def numbers(self) -> np.ndarray:
        """The number of each row's pack, packs counted in the order of their lowest rows."""
        root = self.parent
        while (root != (above := root[root])).any():
            root = above
        self.parent = root
        return np.searchsorted(self.alive, root)

    def shrink(self, size: int) -> None:
        """Merge until there are so many packs."""
        while len(self.alive) > max(size, EXACT):
            self._mutual(len(self.alive) - max(size, EXACT))
        if len(self.alive) > size:
            self._one_by_one(size)

    def _merge(self, a: int, b: int) -> None:
        """Pack b goes into pack a < b."""
        both = self.weights[a] + self.weights[b]
        if both > 0:
            self.means[a] += (self.means[b] - self.means[a]) * (self.weights[b] / both)
        self.weights[a], self.parent[b] = both, a

    def _mutual(self, most: int) -> None:
        """Merge pairs that are nearest to each other, the nearest pairs first, but not more than so many."""
        at = self.means[self.alive]
        near, distance = np.empty(len(at), np.int64), np.empty(len(at))
        step = max(1, SLICE // len(at))
        for a in range(0, len(at), step):
            squares = squares_between(at[a : a + step], at)
            squares[np.arange(len(squares)), np.arange(a, a + len(squares))] = np.inf
            near[a : a + step] = squares.argmin(axis=1)
            distance[a : a + step] = squares.min(axis=1)
        low = np.flatnonzero((near[near] == np.arange(len(at))) & (np.arange(len(at)) < near))
        low = low[np.argsort(distance[low], kind="stable")][:most]
        for a, b in zip(self.alive[low].tolist(), self.alive[near[low]].tolist(), strict=True):
            self._merge(a, b)
        self.alive = np.delete(self.alive, near[low])

    def _one_by_one(self, size: int) -> None:
        """Merge the two nearest packs, until there are so many."""
        alive = self.alive
        at, here = self.means[alive], np.ones(len(alive), np.bool_)
        near, distance = np.full(len(alive), -1), np.full(len(alive), np.inf)  # of those behind it

        def look(i: int) -> None:
            squares = np.where(here[i + 1 :], squares_between(at[i : i + 1], at[i + 1 :])[0], np.inf)
            if len(squares):
                near[i], distance[i] = i + 1 + squares.argmin(), squares.min()

        for i in range(len(alive)):
            look(i)
        for _ in range(len(alive) - size):
            a = int(distance.argmin())  # the first of equals, and the first that is as near to it
            b = int(near[a])
            self._merge(int(alive[a]), int(alive[b]))
            at[a], here[b], distance[b] = self.means[alive[a]], False, np.inf
            look(a)
            for i in np.flatnonzero(here & ((near == a) | (near == b))).tolist():
                if i != a:
                    look(i)
            before = np.flatnonzero(here[:a])
            squares = squares_between(at[before], at[a : a + 1])[:, 0]
            closer = (squares < distance[before]) | ((squares == distance[before]) & (a < near[before]))
            near[before[closer]], distance[before[closer]] = a, squares[closer]
        self.alive = alive[here]


def squares_between(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Canonical d²: (n, d), (m, d) -> (n, m)."""
    total = np.zeros((len(A), len(B)))
    for x, y in zip(A.T, B.T, strict=True):
        total += (x[:, None] - y) ** 2
    return total


def majority(labels: np.ndarray, numbers: np.ndarray, count: int) -> np.ndarray:
    """The label that most rows of each pack have, the lowest on ties: (N,), (N,) -> (count,) int32."""
    pairs, sizes = np.unique(np.stack([numbers, labels], axis=1), axis=0, return_counts=True)
    order = np.lexsort((pairs[:, 1], -sizes, pairs[:, 0]))
    _, first = np.unique(pairs[order, 0], return_index=True)
    return pairs[order[first], 1].astype(np.int32)
