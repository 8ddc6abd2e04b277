"""Nearest centres by a fast product with a known error, decided again canonically where that is in doubt.

With coordinates relative to an offset, d²(x, c_k) differs from s_k = ‖c_k‖² − 2 c_k·x by ‖x‖², which is the
same for all k. One matrix product in the dtype of the points gives all s_k, in whatever order and with
whatever contraction BLAS likes. Rounding of the offset coordinates, of the product of length d + 1 and of
‖c‖² is at most (d + 4)·u·(2‖x‖‖c‖ + ‖c‖²) to first order, u the unit roundoff; the canonical formula
itself errs by (d + 2)·2⁻⁵³·(‖x‖ + ‖c‖)². Where exactly one s_k lies within twice the sum of these (with
something to spare) of the least, the canonical formula must choose that k; it decides all other points.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gputabu.backend.arithmetic import canonical
from gputabu.backend.arithmetic.constants import DOUBT_FACTOR, DOUBT_TERMS
from gputabu.backend.arithmetic.scratch import Scratch


@dataclass(frozen=True)
class Product:
    """The centres of R restarts, ready for the fast product in one dtype."""

    centers: np.ndarray  # (R, K, d) float64
    offset: np.ndarray  # (d,) in `dtype`
    unit: float  # power of two that brings the coordinates near one
    factors: np.ndarray  # (R·K, d + 1) in `dtype`: -2 c, ‖c‖²
    doubt: np.ndarray  # (3, R, 1) in `dtype`: doubt of s_k is [0] + [1] ‖x‖ + [2] ‖x‖²

    @classmethod
    def of(cls, centers: np.ndarray, offset: np.ndarray, unit: float, dtype: np.dtype) -> Product:
        r, k, d = centers.shape
        c = ((centers - offset) * unit).reshape(r * k, d)  # float64
        norms = np.einsum("md,md->m", c, c)
        factors = np.empty((r * k, d + 1), dtype)
        np.multiply(c, -2, out=factors[:, :d], casting="same_kind")
        factors[:, d] = norms
        reach = np.sqrt(norms.reshape(r, k).max(axis=1, keepdims=True))  # (R, 1)
        fast, exact = doubts(d, dtype)
        with np.errstate(over="ignore"):  # an infinite doubt is an honest one
            doubt = np.stack(
                [
                    (fast + exact) * reach**2 + floor(d, unit, dtype),
                    2 * (fast + exact) * reach,
                    np.full_like(reach, exact),
                ]
            ).astype(dtype)
        return cls(centers, offset.astype(dtype), unit, factors, doubt)

    @property
    def dtype(self) -> np.dtype:
        return self.factors.dtype

    def select(self, restarts: slice) -> Product:
        """The product of some of the restarts."""
        k = self.centers.shape[1]
        factors = self.factors[restarts.start * k : restarts.stop * k]
        return Product(self.centers[restarts], self.offset, self.unit, factors, self.doubt[:, restarts])


def unit_for(reach: float, dtype: np.dtype) -> float:
    """One, unless squares of coordinates up to `reach` would come near the limits of `dtype`.

    Itself a number of `dtype`, and its square one of float64.
    """
    most = np.finfo(dtype).maxexp
    safe, e = most // 4, max(int(np.frexp(reach)[1]), -min(most - 1, 500))
    return 1.0 if abs(e) < safe else float(np.ldexp(1.0, -e))


def doubts(d: int, dtype: np.dtype) -> tuple[float, float]:
    """Relative error of fast scores in `dtype` and of the canonical formula, for a comparison of two."""
    fast, exact = (DOUBT_FACTOR * (d + DOUBT_TERMS) * np.finfo(t).eps / 2 for t in (dtype, np.float64))
    return float(fast), float(exact)


def floor(d: int, unit: float, dtype: np.dtype) -> float:
    """What underflow, flushed or not, takes from fast scores in `unit`, and from the canonical formula in its own.

    In each of two scores the coordinates, d products with their sums, twice, ‖c‖² and the difference may be flushed.
    """
    return float(8 * (d + 2) * (np.finfo(dtype).tiny + np.finfo(np.float64).tiny * unit**2))


def nearest(X: np.ndarray, fast: Product, scratch: Scratch) -> np.ndarray:
    """Canonical nearest centre of every point, the lowest number on ties: (n, d) -> (R, n) int32 scratch."""
    n = len(X)
    r, k, _ = fast.centers.shape
    labels = scratch("labels", (r, n), np.int32)
    if k == 1:
        labels.fill(0)
        return labels
    score, norms = scores(X, fast, scratch)  # (R, K, n), (n,)
    least = np.minimum.reduce(score, axis=1, out=scratch("least", (r, n), fast.dtype))
    bound = scratch("bound", (r, n), fast.dtype)
    np.multiply(fast.doubt[2], norms, out=bound)
    bound += fast.doubt[1]
    bound *= norms
    bound += fast.doubt[0]
    with np.errstate(invalid="ignore"):  # infinite doubt and an infinite score: not a number, hence no hit
        bound += least
    close = np.less_equal(score, bound[:, None], out=scratch("close", (r, k, n), np.bool_))
    hits = _decode(close, labels, scratch)  # (R, n): how many centres are close
    restart, point = np.nonzero(hits != 1)
    if len(point) == 0:
        return labels
    if fast.dtype == np.float32 and len(point) > n // 4 + 8:  # float32 cannot tell these points apart
        wide = Product.of(fast.centers, fast.offset.astype(np.float64), fast.unit, np.dtype(np.float64))
        return nearest(X, wide, scratch)
    _recheck(X, fast.centers, close, labels, restart, point)
    return labels


def scores(X: np.ndarray, fast: Product, scratch: Scratch) -> tuple[np.ndarray, np.ndarray]:
    """s_k of every point and the norms of the points relative to the offset, in units of `fast.unit`."""
    n, d = X.shape
    r, k, _ = fast.centers.shape
    # Short rows are cheaper to transpose than to walk along; for BLAS either layout is as good.
    rows = scratch("moved", (d + 1, n) if d <= 16 else (n, d + 1), fast.dtype)
    moved = rows if d <= 16 else rows.T  # (d + 1, n)
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is in doubt, and decided canonically
        np.subtract(X.T, fast.offset[:, None], out=moved[:d])
        if fast.unit != 1.0:
            np.multiply(moved[:d], fast.unit, out=moved[:d])
        moved[d] = 1
        norms = np.sqrt(np.einsum("dn,dn->n", moved[:d], moved[:d]))
        score = scratch("score", (r * k, n), fast.dtype)
        np.matmul(fast.factors, moved, out=score)
    return score.reshape(r, k, n), norms


def _decode(close: np.ndarray, labels: np.ndarray, scratch: Scratch) -> np.ndarray:
    """Where one centre is close, write its number to `labels`; return how many are (up to 2 past the dtype).

    OR over (close · k) reads K·n small integers in vector instructions; an argmin over short rows does not.
    """
    r, k, n = close.shape
    small = np.dtype(np.uint8 if k < 2**8 else np.uint16 if k < 2**16 else np.uint32)
    number = scratch("number", (r, k, n), small)
    flags = close.view(np.uint8)
    np.multiply(flags, np.arange(k, dtype=small)[:, None], out=number)
    labels[...] = np.bitwise_or.reduce(number, axis=1)
    return np.add.reduce(flags, axis=1, dtype=small)  # at most K, which fits


def _recheck(
    X: np.ndarray,
    centers: np.ndarray,
    close: np.ndarray,
    labels: np.ndarray,
    restart: np.ndarray,
    point: np.ndarray,
) -> None:
    """Decide the doubtful (restart, point) by the canonical formula among the centres that are close."""
    r, k, d = centers.shape
    rivals = close[restart, :, point]  # (F, K)
    rivals[~rivals.any(axis=1)] = True  # NaN scores: nothing is known, so every centre is a rival
    doubtful, rival = np.nonzero(rivals)  # by doubtful point, then by centre
    flat = centers.reshape(r * k, d)
    squares = canonical.of_pairs(X, point[doubtful], flat, restart[doubtful] * k + rival)
    first = np.flatnonzero(np.diff(doubtful, prepend=-1))
    winners = np.flatnonzero(squares == np.minimum.reduceat(squares, first)[doubtful])[::-1]
    where = doubtful[winners]  # reversed: the lowest centre is written last
    labels[restart[where], point[where]] = rival[winners]
