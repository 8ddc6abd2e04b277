"""The lower bound of a dual point, valid in exact arithmetic: docs/design.md, section 17."""

from __future__ import annotations

import math

import numpy as np
from scipy import linalg

from gputabu.selection.proof.problem import TINY, UNIT, Problem

#: How often the shift that makes a matrix positive definite is enlarged before giving up.
ATTEMPTS = 12


def dual_matrix(problem: Problem, prices: np.ndarray, cuts: np.ndarray) -> np.ndarray:
    """S = costs − prices + cuts in the coordinates of Y, up to rounding."""
    roots = problem.roots
    product = roots[:, None] * roots[None, :]
    return (problem.costs - prices) * product + cuts / product


def projected(problem: Problem, matrix: np.ndarray) -> tuple[np.ndarray, float, np.ndarray]:
    """PSP, uᵀSu and Su for u in the direction of the roots of the weights."""
    u = problem.roots / np.linalg.norm(problem.roots)
    product = matrix @ u
    along = float(u @ product)
    matrix = matrix - product[:, None] * u - u[:, None] * product + along * (u[:, None] * u)
    return matrix, along, product


def certified(problem: Problem, prices: np.ndarray, cuts: np.ndarray) -> float:
    """A number that J of no clustering is below, in the units of the caller; 0 if nothing better is proven.

    Parameters
    ----------
    problem : Problem
    prices : (n, n) float64, symmetric, >= 0
        B, the multipliers of Z >= 0.
    cuts : (n, n) float64, symmetric
        Σ t·A_t with t >= 0, each entry with a relative error of at most `UNIT`: see `Cuts.matrix`.
    """
    with np.errstate(all="ignore"):
        try:
            value = lower_bound(problem, prices, cuts)
        except linalg.LinAlgError:  # no eigenvalues were found
            return 0.0
    if not math.isfinite(value) or value <= 0:
        return 0.0
    return max(0.0, math.nextafter(float(np.ldexp(value, problem.exponent)), -math.inf))


def lower_bound(problem: Problem, prices: np.ndarray, cuts: np.ndarray) -> float:
    """`certified` in the units of the problem; -inf where nothing is proven."""
    offsets = multipliers(problem, prices, cuts)
    matrix = rounded_down(problem, prices, cuts, offsets)
    least = least_sum(matrix, problem.k)
    terms = problem.weights * offsets
    added = 2 * math.fsum(terms) + 8 * UNIT * float(np.abs(terms).sum()) + TINY
    return least - added - 4 * UNIT * (abs(least) + abs(added))


def multipliers(problem: Problem, prices: np.ndarray, cuts: np.ndarray) -> np.ndarray:
    """(n,) multipliers α of Zw = e that make u an eigenvector with the least eigenvalue. Any would be valid."""
    matrix, along, product = projected(problem, dual_matrix(problem, prices, cuts))
    roots = problem.roots
    norm = np.linalg.norm(roots)
    low = linalg.eigh(matrix, eigvals_only=True, subset_by_index=[0, 0], check_finite=False)[0]
    return (0.5 * (along + low) * roots / norm - product) / (roots * norm)


def rounded_down(problem: Problem, prices: np.ndarray, cuts: np.ndarray, offsets: np.ndarray) -> np.ndarray:
    """(w_i w_j (W_ij + α_i + α_j − B_ij) + T_ij) / (s_i s_j), entry by entry at most that.

    Nine roundings are made of each entry, none of a number larger than `size`, which is the same sum of absolute
    values; 16 units cover them and the rounding of `size`.
    """
    w, s = problem.weights, problem.roots
    product = s[:, None] * s[None, :]
    factor = (w[:, None] * w[None, :]) / product
    shifts, sizes = offsets[:, None] + offsets[None, :], np.abs(offsets)
    matrix = ((problem.costs - prices) + shifts) * factor + cuts / product
    size = (problem.costs + prices + (sizes[:, None] + sizes[None, :])) * factor + np.abs(cuts) / product
    return matrix - (16 * UNIT * size + TINY)


def least_sum(matrix: np.ndarray, k: int) -> float:
    """At most the sum of the k least eigenvalues of a symmetric matrix, whose lower triangle counts.

    Where M + V diag(g) Vᵀ ⪰ m·I with g >= 0, for any V and any m, the sum is at least k·m − Σ g_i‖v_i‖². A Cholesky
    decomposition that succeeds proves the premise up to its rounding. V and g come from approximate eigenvectors.
    """
    n = len(matrix)
    many = min(k + 1, n)
    values, vectors = linalg.eigh(matrix, subset_by_index=[0, many - 1], check_finite=False)
    top, low = values[-1], vectors[:, :k]
    gains = np.maximum(top - values[:k], 0.0)
    lifted = matrix + (low * gains) @ low.T
    squares = (low * low).sum(axis=0)
    lift = float((gains * squares).sum()) * (1 + 2 * UNIT * (n + k + 4))
    norm = float(np.linalg.norm(lifted)) * (1 + 2 * UNIT * (n + 4))
    shift = 0.0
    for _ in range(ATTEMPTS):
        floor = top - shift
        trial = lifted.copy()
        trial.flat[:: n + 1] -= floor
        trace = float(np.abs(np.diagonal(trial)).sum()) * (1 + 2 * UNIT * n)
        rounding = 2 * (n + 8) * UNIT * trace + n * n * TINY
        formed = 2 * (k + 6) * UNIT * lift + 4 * UNIT * (norm + math.sqrt(n) * abs(floor))
        try:
            pivots = np.diagonal(linalg.cholesky(trial, lower=True, overwrite_a=True, check_finite=False))
        except linalg.LinAlgError:
            shift = 4 * shift if shift else 0.25 * (rounding + formed)
            continue
        if not (pivots > 0).all():  # a decomposition that lets NaN pass proves nothing
            break
        proven = floor - rounding - formed
        # Roots of weights are rounded, so that Y is a projection up to 4 units.
        return k * proven - lift - 16 * UNIT * (k * abs(proven) + lift)
    return -math.inf
