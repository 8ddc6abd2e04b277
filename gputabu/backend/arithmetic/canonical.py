"""The canonical squared distance, in NumPy: what every backend must reproduce bit for bit.

d²(x, c) = Σ_j (x_j − c_j)², in float64, summed in the order of j, without FMA contraction.
NumPy's own reductions over j add pairwise; hence the explicit order here.
"""

from __future__ import annotations

import numpy as np

from gputabu.backend.arithmetic.scratch import Scratch

#: Elements of a temporary, so that pairs without number need only bounded memory.
SLICE = 1 << 18


def to_own_center(X: np.ndarray, centers: np.ndarray, owner: np.ndarray, scratch: Scratch) -> np.ndarray:
    """Squared distance of every point to the centre it belongs to, in each of R restarts.

    (n, d), (M, d) float64, (R, n) intp into M -> (R, n) float64 (scratch memory).
    """
    terms = scratch("terms", (*owner.shape, X.shape[1]), np.float64)
    np.take(centers, owner, axis=0, out=terms, mode="clip")  # "raise" would buffer `out`
    np.subtract(X, terms, out=terms)
    np.multiply(terms, terms, out=terms)
    return in_order(terms, scratch("total", owner.shape, np.float64))


def in_order(terms: np.ndarray, out: np.ndarray | None = None) -> np.ndarray:
    """Σ_j terms[..., j], one addition after the other: (..., d) -> (...)."""
    out = np.empty(terms.shape[:-1]) if out is None else out
    np.copyto(out, terms[..., 0])
    for j in range(1, terms.shape[-1]):
        np.add(out, terms[..., j], out=out)
    return out


def of_pairs(X: np.ndarray, i: np.ndarray, centers: np.ndarray, k: np.ndarray) -> np.ndarray:
    """Squared distance of points X[i] to centers[k]: (n, d), (P,), (M, d) float64, (P,) -> (P,) float64."""
    d = X.shape[1]
    found = np.empty(len(i))
    step = max(1, SLICE // d)
    for a in range(0, len(i), step):
        part = slice(a, a + step)
        terms = X[i[part]] - centers[k[part]]  # float64: centers are
        np.multiply(terms, terms, out=terms)
        in_order(terms, found[part])
    return found


def to_all(X: np.ndarray, centers: np.ndarray, scratch: Scratch) -> np.ndarray:
    """Squared distance of every point to every centre: (n, d), (K, d) float64 -> (K, n) float64 (scratch)."""
    total = scratch("total", (len(centers), len(X)), np.float64)
    terms = scratch("terms", X.shape, np.float64)
    for k, center in enumerate(centers):
        np.subtract(X, center, out=terms)
        np.multiply(terms, terms, out=terms)
        in_order(terms, total[k])
    return total
