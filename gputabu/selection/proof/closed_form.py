"""A dual point in closed form, from a clustering: its bound is J of it where clusters are well apart.

The indicators of the clusters shall be eigenvectors of M (docs/design.md, section 17) with one eigenvalue, the level.
Within a cluster that determines α; between two clusters it determines the sums of B over rows and columns, and B is the
block of rank one that has them. If B >= 0 and no eigenvalue is below the level, the bound is J.

Iguchi, Mixon, Peterson and Villar, "Probably certifiably correct k-means clustering", Math. Program. 165, 2017.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from scipy import linalg

from gputabu.selection.proof.problem import Problem

#: Levels that are tried, as multiples of the least eigenvalue of W off the indicators.
LEVELS = (1.0, 1.1, 1.3, 1.6, 2.0, 3.0)


def candidates(problem: Problem, labels: np.ndarray) -> Iterator[np.ndarray]:
    """B (n, n) >= 0 of one level after the other."""
    w, labels = problem.weights, np.unique(labels, return_inverse=True)[1]
    members = np.eye(labels.max() + 1)[labels]  # (n, K)
    masses = w @ members  # (K,)
    sums = problem.costs @ (w[:, None] * members)  # (n, K), Σ_j w_j W_ij over each cluster
    own = sums[np.arange(problem.n), labels]
    inertias = (w * own) @ members / masses  # (K,)
    least = least_eigenvalue(problem, members / np.sqrt(masses))
    for factor in LEVELS:
        level = factor * least
        alpha = (0.5 * (level + inertias[labels]) - own) / masses[labels]
        rows = np.maximum(sums + masses * alpha[:, None] + 0.5 * (level - inertias), 0.0)  # Σ_j w_j B_ij over clusters
        rows[np.arange(problem.n), labels] = 0.0
        totals = members.T @ (w[:, None] * rows)
        totals = np.maximum(totals, totals.T)[np.ix_(labels, labels)]
        crossed = rows[:, labels]
        yield np.divide(crossed * crossed.T, totals, out=np.zeros_like(totals), where=totals > 0)


def least_eigenvalue(problem: Problem, indicators: np.ndarray) -> float:
    """Of W in the coordinates of Y, off the indicators (n, K), which are unit vectors after scaling by the roots."""
    roots = problem.roots
    basis = roots[:, None] * indicators
    matrix = problem.costs * (roots[:, None] * roots)
    product = matrix @ basis
    product -= 0.5 * basis @ (basis.T @ product)
    matrix -= product @ basis.T + basis @ product.T
    return float(linalg.eigh(matrix, eigvals_only=True, subset_by_index=[0, 0], check_finite=False)[0])
