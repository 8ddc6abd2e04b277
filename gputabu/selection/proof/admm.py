"""The relaxation solved by alternating projections with multipliers (ADMM), one eigendecomposition an iteration."""

from __future__ import annotations

import numpy as np

from gputabu.backend.numpy.algebra import Algebra
from gputabu.selection.proof.cuts import Cuts
from gputabu.selection.proof.problem import Problem

#: Over-relaxation, and sweeps over the inequalities in every iteration.
RELAXATION, SWEEPS = 1.6, 3
#: Iterations between two looks at the residuals; by how much they may differ; and how much the penalty changes then.
BALANCED, RATIO, FACTOR = 10, 2.0, 1.25
#: The least penalty to begin with, as a share of the largest cost: nothing can be proven about a J so small.
LEAST = 1e-15
#: In the first iterations the penalty changes faster.
EARLY, FAST = 150, 2.5


class Admm:
    """X1 has eigenvalues in [0, 1], trace K and X1 u = u; X2 >= 0 fulfils the inequalities; X1 = X2 in the end."""

    def __init__(self, problem: Problem, Y: np.ndarray, prices: np.ndarray, algebra: Algebra) -> None:
        """Begin at a clustering's Y, and at a dual point without cuts."""
        self.problem, self.cuts, self.algebra = problem, Cuts(problem), algebra
        self.roots = problem.roots
        self.u = self.roots / np.linalg.norm(self.roots)
        self.products = self.roots[:, None] * self.roots
        self.costs = problem.costs * self.products
        self.penalty = max(float((self.costs * Y).sum()) / problem.k, LEAST * float(self.costs.max()))
        self.X2, self.U = Y, -(prices * self.products) / self.penalty
        self.free = Y + self.U
        self.rank = problem.n
        self.iterations = 0

    def iterate(self) -> None:
        """One iteration."""
        self.X1 = self.spectral(self.X2 - self.U - self.costs / self.penalty)
        V = RELAXATION * self.X1 + (1 - RELAXATION) * self.X2 + self.U
        free = V - self.cuts.matrix() if len(self.cuts) else V.copy()
        self.cuts.sweep(free, SWEEPS, self.algebra)
        before, self.X2 = self.X2, np.maximum(free, 0.0)
        self.U, self.free = V - self.X2, free
        if len(self.cuts):
            self.U = self.cuts.matrix() + np.minimum(free, 0.0)
        self.iterations += 1
        self.primal = float(np.linalg.norm(self.X1 - self.X2))
        self.dual = float(np.linalg.norm(self.X2 - before))
        if self.iterations % BALANCED == 0:
            self.balance()

    def balance(self) -> None:
        """Change the penalty so that both residuals fall alike."""
        ratio = self.primal / max(self.dual, 1e-300)
        change = FAST if self.iterations <= EARLY else FACTOR
        factor = change if ratio > RATIO else 1 / change if ratio < 1 / RATIO else 1.0
        self.penalty *= factor
        self.U /= factor
        self.free = np.where(self.free < 0, self.free / factor, self.free)
        self.cuts.multipliers /= factor

    def spectral(self, V: np.ndarray) -> np.ndarray:
        """The nearest matrix with eigenvalues in [0, 1], trace K, and u as an eigenvector of 1."""
        u, k = self.u, self.problem.k
        product = V @ u
        product -= 0.5 * (u @ product) * u
        V = V - product[:, None] * u - u[:, None] * product
        values, vectors = self.decomposed(V)
        threshold = water_level(values, k - 1)
        weights = np.clip(values - threshold, 0.0, 1.0)
        used = weights > 0
        self.rank = int(used.sum())
        scaled = vectors[:, used] * np.sqrt(weights[used])
        return scaled @ scaled.T + u[:, None] * u

    def decomposed(self, V: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The largest eigenvalues, as many as are needed, and their vectors; that of u, which is 0, is among them."""
        n, k = len(V), self.problem.k
        wanted = self.rank + 5 + self.rank // 8
        # u is taken out of the way: its eigenvalue becomes the least
        low = -np.linalg.norm(V)
        V = V + low * (self.u[:, None] * self.u)
        values, vectors = self.algebra.eigh(V, wanted)
        if len(values) < n and values[0] > water_level(values, k - 1):  # more are needed
            return self.algebra.eigh(V, n)
        return values, vectors

    @property
    def prices(self) -> np.ndarray:
        """B in the coordinates of Z."""
        return self.penalty * np.maximum(-self.free, 0.0) / self.products

    def Z(self) -> np.ndarray:
        """The matrix Z, about, to look for violated inequalities."""
        return (0.5 * (self.X1 + self.X2)) / self.products


def water_level(values: np.ndarray, total: float) -> float:
    """The t with Σ clip(values − t, 0, 1) = total."""
    low, high = values.min() - 1, values.max()
    for _ in range(60):
        middle = 0.5 * (low + high)
        if np.clip(values - middle, 0.0, 1.0).sum() > total:
            low = middle
        else:
            high = middle
    return float(low)
