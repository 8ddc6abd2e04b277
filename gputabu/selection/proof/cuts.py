"""Star inequalities: those in use, their multipliers, and new ones that Z violates.

A star is a point i and a set of leaves T: Σ Z_ij <= Z_ii + Σ Z_jk, over j in T and over pairs j < k in T. If m of the
leaves are in the cluster of i, this is m <= 1 + m(m − 1)/2, and clusters without i only add to the right side. With two
leaves it is the triangle inequality.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np

from gputabu.backend.numpy.algebra import Algebra
from gputabu.selection.proof.problem import Problem

#: Leaves of a star at the most: three points that may each share a cluster with the centre.
LEAVES = 3
#: Pairs of these columns of a star, the centre being column 0: centre and leaves, the centre itself, leaf and leaf.
SPOKES = [(0, leaf + 1) for leaf in range(LEAVES)]
RIMS = list(combinations(range(1, LEAVES + 1), 2))
PAIRS = np.array([*SPOKES, (0, 0), *RIMS])
SIGNS = np.array([1] * len(SPOKES) + [-1] * (1 + len(RIMS)))
#: Entries of Z below this share of the diagonal are taken for zero where violated stars are looked for.
ZERO = 1e-4
#: Violated stars kept of one point, as a multiple of their average number.
SPREAD = 8


class Cuts:
    """The inequalities in use.

    Attributes
    ----------
    stars : (m, 1 + LEAVES) int64
        A point and its leaves, ascending; -1 in front where there are fewer.
    multipliers : (m,) float64, >= 0
    """

    def __init__(self, problem: Problem) -> None:
        self.n, self.roots = problem.n, problem.roots
        self.take(np.empty((0, 1 + LEAVES), np.int64), np.empty(0))

    def __len__(self) -> int:
        return len(self.stars)

    def take(self, stars: np.ndarray, multipliers: np.ndarray) -> None:
        """Use these inequalities."""
        self.stars, self.multipliers = stars, multipliers
        self.signs, ends = terms(stars)  # (m, p), (m, p, 2)
        rows, columns = ends.min(axis=2), ends.max(axis=2)
        self.places = rows * self.n + columns
        self.factors = self.signs / (self.roots[rows] * self.roots[columns])
        self.steps = self.factors * np.where(rows == columns, 1.0, 0.5)  # entries off the diagonal are there twice

    def keys(self, stars: np.ndarray) -> np.ndarray:
        """(m,) a number for each star."""
        return (stars + 1) @ (self.n + 1) ** np.arange(1 + LEAVES)

    def add(self, stars: np.ndarray) -> int:
        """Use these too, but for those that are in use; how many are new."""
        fresh = stars[~np.isin(self.keys(stars), self.keys(self.stars))]
        self.take(np.concatenate([self.stars, fresh]), np.concatenate([self.multipliers, np.zeros(len(fresh))]))
        return len(fresh)

    def drop(self, Z: np.ndarray, slack: float) -> None:
        """Leave out those without a multiplier that Z fulfils by more than `slack`."""
        kept = (self.multipliers > 0) | (excess(Z, self.stars) > -slack)
        self.take(self.stars[kept], self.multipliers[kept])

    def matrix(self) -> np.ndarray:
        """(n, n) Σ t·A_t in the coordinates of Y."""
        flat = np.bincount(
            self.places.ravel(), (self.multipliers[:, None] * self.steps).ravel(), minlength=self.n * self.n
        )
        return mirrored(flat.reshape(self.n, self.n))

    def exact_matrix(self, scale: float) -> np.ndarray:
        """(n, n) Σ t·A_t in the coordinates of Z for t = scale · multipliers, rounded once.

        Multipliers become integers so small that their sums are exact; off the diagonal each entry has half of its
        pair's sum.
        """
        values = scale * self.multipliers
        values = np.where((values > 0) & (values < np.inf), values, 0.0)  # a solver that went astray proves less
        exponent = 60 - len(self).bit_length() - int(np.frexp(values.max(initial=0.0))[1])
        whole = np.ldexp(values, exponent).astype(np.int64)
        total = np.zeros(self.n * self.n, np.int64)
        halves = np.where(PAIRS[:, 0] == PAIRS[:, 1], 2, 1)
        np.add.at(total, self.places, (self.signs * halves) * whole[:, None])
        return np.ldexp(mirrored(total.reshape(self.n, self.n)).astype(np.float64), -exponent - 1)

    def sweep(self, free: np.ndarray, sweeps: int, algebra: Algebra) -> None:
        """Steps of `free`, (n, n) symmetric, and the multipliers towards the nearest point that fulfils all."""
        if len(self):
            algebra.sweep(free.reshape(-1), self.places, self.factors, self.steps, self.multipliers, sweeps)
            free[...] = mirrored(free)


def mirrored(matrix: np.ndarray) -> np.ndarray:
    """The symmetric matrix with this upper triangle."""
    upper = np.triu(matrix)
    return upper + np.triu(matrix, 1).T


def terms(stars: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The entries of Z in each inequality: signs (m, p), 0 where a leaf is missing, and rows and columns (m, p, 2)."""
    ends = stars[:, PAIRS]
    there = np.asarray((ends >= 0).all(axis=2))
    return SIGNS * there, np.where(there[:, :, None], ends, stars[:, :1, None])


def excess(Z: np.ndarray, stars: np.ndarray) -> np.ndarray:
    """(m,) by how much Z violates these inequalities; negative where it fulfils them."""
    signs, ends = terms(stars)
    return (signs * Z[ends[:, :, 0], ends[:, :, 1]]).sum(axis=1)


def violated(Z: np.ndarray, many: int, least: float) -> np.ndarray:
    """(m, 1 + LEAVES) at most `many` stars that Z violates most, each by more than `least`."""
    quota = max(16, SPREAD * many // len(Z))
    found, sizes = [], []
    for i in range(len(Z)):
        near = np.flatnonzero(Z[i] > ZERO * Z[i, i])
        leaves, size = violated_at(Z[i, near], Z[i, i], Z[np.ix_(near, near)], near == i, quota, least)
        leaves = np.where(leaves >= 0, near[leaves], -1)
        found.append(np.column_stack([np.full(len(size), i), leaves]))
        sizes.append(size)
    stars, size = np.concatenate(found), np.concatenate(sizes)
    return stars[largest(size, many)]


def violated_at(
    row: np.ndarray, own: float, square: np.ndarray, itself: np.ndarray, quota: int, least: float
) -> tuple[np.ndarray, np.ndarray]:
    """Leaves (m, LEAVES) of violated stars with one centre, and by how much.

    The pairs of leaves with the largest excess are taken, and each of them once more with the leaf that adds most.
    """
    row = np.where(itself, -np.inf, row)
    over = row[:, None] + (row[None, :] - own) - square
    j, k = np.nonzero(np.triu(over > -0.25 * own, 1))
    size = over[j, k]
    chosen = largest(size, quota)
    j, k, size = j[chosen], k[chosen], size[chosen]
    more = row - square[j] - square[k]  # (m, near)
    more[np.arange(len(j)), j] = more[np.arange(len(j)), k] = -np.inf
    leaf = more.argmax(axis=1) if len(j) else j
    pairs = np.column_stack([np.full(len(j), -1), j, k])
    threes = np.sort(np.column_stack([leaf, j, k]), axis=1)
    threes, first = np.unique(threes, axis=0, return_index=True)
    sizes = np.concatenate([size, (size + more[np.arange(len(j)), leaf])[first]])
    bad = sizes > least
    leaves, sizes = np.concatenate([pairs, threes])[bad], sizes[bad]
    chosen = largest(sizes, quota)
    return leaves[chosen], sizes[chosen]


def largest(values: np.ndarray, many: int) -> np.ndarray:
    """The places of the `many` largest values, or of all if there are fewer."""
    return np.argpartition(values, -many)[-many:] if len(values) > many else np.arange(len(values))
