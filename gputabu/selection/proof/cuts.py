"""Triangle inequalities Z_ij + Z_ik <= Z_ii + Z_jk: those in use, their multipliers, and new ones that Z violates."""

from __future__ import annotations

from importlib.util import find_spec

import numpy as np

from gputabu.selection.proof.problem import Problem

#: Multipliers are integers up to 2^BITS of a unit, so that their sums are exact.
BITS = 40
#: Entries of Z below this share of the diagonal are taken for zero where violated triangles are looked for.
ZERO = 1e-4
#: Violated triangles kept of one point, as a multiple of their average number.
SPREAD = 8


class Cuts:
    """The triangle inequalities in use.

    Attributes
    ----------
    triples : (m, 3) int64
        i, j < k.
    multipliers : (m,) float64, >= 0
    """

    def __init__(self, problem: Problem) -> None:
        self.n, self.roots = problem.n, problem.roots
        self.take(np.empty((0, 3), np.int64), np.empty(0))

    def __len__(self) -> int:
        return len(self.triples)

    def take(self, triples: np.ndarray, multipliers: np.ndarray) -> None:
        """Use these inequalities."""
        self.triples, self.multipliers = triples, multipliers
        i, j, k = triples.T
        rows = np.stack([np.minimum(i, j), np.minimum(i, k), i, j], axis=1)
        columns = np.stack([np.maximum(i, j), np.maximum(i, k), i, k], axis=1)
        self.places = rows * self.n + columns
        signs = np.array([1.0, 1.0, -1.0, -1.0])
        self.factors = signs / (self.roots[rows] * self.roots[columns])
        self.steps = self.factors * np.array([0.5, 0.5, 1.0, 0.5])  # other entries than the diagonal are there twice
        self.scales = 1 / (self.factors * self.steps).sum(axis=1)

    def keys(self) -> np.ndarray:
        i, j, k = self.triples.T
        return (i * self.n + j) * self.n + k

    def add(self, triples: np.ndarray) -> int:
        """Use these too, but for those that are in use; how many are new."""
        i, j, k = triples.T
        fresh = triples[~np.isin((i * self.n + j) * self.n + k, self.keys())]
        self.take(np.concatenate([self.triples, fresh]), np.concatenate([self.multipliers, np.zeros(len(fresh))]))
        return len(fresh)

    def drop(self, Z: np.ndarray, slack: float) -> None:
        """Leave out those without a multiplier that Z fulfils by more than `slack`."""
        kept = (self.multipliers > 0) | (excess(Z, self.triples) > -slack)
        self.take(self.triples[kept], self.multipliers[kept])

    def matrix(self) -> np.ndarray:
        """(n, n) Σ t·A_t in the coordinates of Y."""
        flat = np.bincount(
            self.places.ravel(), (self.multipliers[:, None] * self.steps).ravel(), minlength=self.n * self.n
        )
        return mirrored(flat.reshape(self.n, self.n))

    def exact_matrix(self, scale: float) -> np.ndarray:
        """(n, n) Σ t·A_t in the coordinates of Z for t = scale · multipliers, rounded once.

        Multipliers become integers, whose sums are exact; off the diagonal each entry has half of its pair's sum.
        """
        values = scale * self.multipliers
        exponent = BITS - int(np.frexp(values.max(initial=0.0))[1])
        whole = np.ldexp(values, exponent).astype(np.int64)
        total = np.zeros(self.n * self.n, np.int64)
        for column, factor in enumerate((1, 1, -2, -1)):
            np.add.at(total, self.places[:, column], factor * whole)
        return np.ldexp(mirrored(total.reshape(self.n, self.n)).astype(np.float64), -exponent - 1)

    def sweep(self, free: np.ndarray, sweeps: int) -> None:
        """Steps of `free`, (n, n) symmetric, and the multipliers towards the nearest point that fulfils all."""
        if not len(self):
            return
        if find_spec("numba") is not None:
            from gputabu.backend.numba.kernels.halfspaces import sweep_inequalities

            flat = free.reshape(-1)
            sweep_inequalities(flat, self.places, self.factors, self.steps, self.scales, self.multipliers, sweeps)
        else:
            self.sweep_together(free.reshape(-1), sweeps)
        free[...] = mirrored(free)

    def sweep_together(self, free: np.ndarray, sweeps: int) -> None:
        """`sweep` with NumPy: all inequalities at once, with steps that are shorter where many share an entry."""
        shared = np.bincount(self.places.ravel(), minlength=len(free))
        scales = 1 / (self.factors * self.steps * shared[self.places]).sum(axis=1)
        for _ in range(sweeps):
            over = (self.factors * np.maximum(free[self.places], 0.0)).sum(axis=1)
            step = np.maximum(over * scales, -self.multipliers)
            self.multipliers += step
            free -= np.bincount(self.places.ravel(), (step[:, None] * self.steps).ravel(), minlength=len(free))


def mirrored(matrix: np.ndarray) -> np.ndarray:
    """The symmetric matrix with this upper triangle."""
    upper = np.triu(matrix)
    return upper + np.triu(matrix, 1).T


def excess(Z: np.ndarray, triples: np.ndarray) -> np.ndarray:
    """By how much Z violates these inequalities; negative where it fulfils them."""
    i, j, k = triples.T
    return Z[i, j] + Z[i, k] - Z[i, i] - Z[j, k]


def violated(Z: np.ndarray, many: int, least: float) -> tuple[np.ndarray, float]:
    """At most `many` triples that Z violates most, each by more than `least`, and the largest violation."""
    n = len(Z)
    quota = max(16, SPREAD * many // n)
    triples, values = [], []
    for i in range(n):
        near = np.flatnonzero(Z[i] > ZERO * Z[i, i])
        near = near[near != i]
        row = Z[i, near]
        over = np.triu(row[:, None] + (row[None, :] - Z[i, i]) - Z[np.ix_(near, near)], 1)
        j, k = np.nonzero(over > least)
        size = over[j, k]
        if len(size) > quota:
            chosen = np.argpartition(size, -quota)[-quota:]
            j, k, size = j[chosen], k[chosen], size[chosen]
        triples.append(np.stack([np.full(len(j), i), near[j], near[k]], axis=1))
        values.append(size)
    found, size = np.concatenate(triples), np.concatenate(values)
    if len(size) > many:
        chosen = np.argpartition(size, -many)[-many:]
        found, size = found[chosen], size[chosen]
    return found, float(size.max(initial=0.0))
