"""How well K clusters fit: the criteria by which K is chosen, from what a few passes over the points leave.

J is the sum of squares within clusters (eq. 2) and W the total weight: a weight of w counts as w points.

AIC and BIC follow from the paper's assumptions (section II): every point belongs to one cluster, clusters are Gaussian,
and the K components weigh the same, 1/K; that they are spherical with one variance σ² for all is what makes eq. 2 the
thing to minimise. The log-likelihood of a point is then ln(1/K) − (d/2) ln(2πσ²) − ‖x − c‖²/(2σ²), and with the
variance of largest likelihood, σ² = J/(W·d), that of all is

    L = −W ln K − (W·d/2) (ln(2πJ/(W·d)) + 1),        AIC = −2L + 2p,        BIC = −2L + p ln W,

with p = K·d + 1 parameters, the centres and the variance; the least is best. It is the likelihood of X-means (Pelleg
and Moore 2000) with components of equal weight, and the variance of largest likelihood in place of the unbiased one.

The term W ln K, the price of saying which cluster a point is in, keeps Gaussians whole: cutting one of n points in two
raises L by n/π at the most and costs W/K. So these criteria like clusters of similar size, and split one that holds
more than about π times the average.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gputabu.backend.arithmetic.fixed_point import Bounds

#: What `criterion=` accepts, and whether the largest value is best; the gap statistic has a rule of its own.
LARGEST_IS_BEST = {
    "bic": False,
    "aic": False,
    "silhouette": True,
    "calinski_harabasz": True,
    "davies_bouldin": False,
    "gap": True,
}
#: These compare clusters with each other.
RELATIVE = ("silhouette", "calinski_harabasz", "davies_bouldin")
#: Elements of a temporary.
SLICE = 1 << 20


@dataclass(frozen=True, slots=True)
class Fit:
    """One clustering, in the numbers that criteria are computed from."""

    k: int
    d: int
    weight: float  # W
    inertia: float  # J, at least `least_inertia`
    scatter: float  # J of a single cluster
    centers: np.ndarray  # (K, d) float64
    weights: np.ndarray  # (K,) of the clusters
    spreads: np.ndarray  # (K,) sums of the distances to the centre


def judges(criterion: str, k: int, weight: float) -> bool:
    """Whether a criterion can recommend K clusters of `weight` points."""
    if criterion in RELATIVE:
        return 1 < k < weight
    return criterion == "gap" or k == 1 or k < weight  # as many clusters as points leave no variance to estimate


def least_inertia(bounds: Bounds, weight: float, dtype: np.dtype) -> float:
    """J as it is by the rounding of X alone. Less is not told from zero, whose logarithm there is not."""
    rounding = np.finfo(dtype).eps * np.maximum(np.abs(bounds.low), np.abs(bounds.high))
    return max(weight * float((rounding**2).sum()), 1e-200)


def aic(fit: Fit) -> float:
    """Akaike's information criterion; the least is best."""
    return -2 * log_likelihood(fit) + 2 * (fit.k * fit.d + 1)


def bic(fit: Fit) -> float:
    """Schwarz's Bayesian information criterion; the least is best."""
    return -2 * log_likelihood(fit) + (fit.k * fit.d + 1) * math.log(fit.weight)


def log_likelihood(fit: Fit) -> float:
    """L of equally heavy spherical Gaussians with one variance, each point in one of them."""
    terms = fit.weight * fit.d
    return -fit.weight * math.log(fit.k) - terms / 2 * (math.log(2 * math.pi * fit.inertia / terms) + 1)


def calinski_harabasz(fit: Fit) -> float:
    """Variance between clusters by that within (Caliński and Harabasz 1974); the largest is best."""
    if not judges("calinski_harabasz", fit.k, fit.weight):
        return math.nan
    between = max(fit.scatter - fit.inertia, 0.0)
    return between / (fit.k - 1) / (fit.inertia / (fit.weight - fit.k))


def davies_bouldin(fit: Fit) -> float:
    """Mean over clusters of how much the worst other one runs into it (Davies and Bouldin 1979); the least is best.

    Spread is the mean distance to the centre, as in scikit-learn. Empty clusters do not count.
    """
    if not judges("davies_bouldin", fit.k, fit.weight):
        return math.nan
    full = fit.weights > 0
    centers, spread = fit.centers[full], fit.spreads[full] / fit.weights[full]
    apart = distances(centers, centers)
    apart[apart == 0] = np.inf  # itself
    return float(((spread[:, None] + spread) / apart).max(axis=1).mean())


class Silhouette:
    """The mean silhouette over a sample of the points; the largest is best.

    The distances are kept: they are the same for every K.
    """

    def __init__(self, sample: np.ndarray, weights: np.ndarray) -> None:
        self.weights = weights  # (S,)
        self.distances = distances(sample, sample)  # (S, S)

    def mean(self, labels: np.ndarray) -> float:
        """Over the sample, given its labels (S,); NaN where they are all the same."""
        if (labels == labels[0]).all():
            return math.nan
        each = silhouettes(self.distances.__getitem__, self.weights, labels)
        return float((self.weights * each).sum() / self.weights.sum())


def silhouettes(rows: Callable[[slice], np.ndarray], weights: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Silhouettes (Rousseeuw 1987) of points in two clusters or more: weights (N,), labels (N,) -> (N,).

    `rows` gives some rows of the (N, N) distances, which need not be held at once.
    """
    order = np.argsort(labels, kind="stable")
    _, first, place = np.unique(labels[order], return_index=True, return_inverse=True)
    own = np.empty(len(labels), np.intp)  # position of the own cluster among those found
    own[order] = place
    sizes = np.add.reduceat(weights[order], first)
    found = np.empty(len(labels))
    step = max(1, SLICE // len(labels))
    for a in range(0, len(labels), step):
        mine = own[a : a + step]
        each = np.arange(len(mine))
        terms = (rows(slice(a, a + step)) * weights)[:, order]
        sums = np.add.reduceat(terms, first, axis=1)  # (rows, clusters)
        others = sizes[mine] - 1
        inside = sums[each, mine] / np.where(others > 0, others, 1)
        sums /= sizes
        sums[each, mine] = np.inf
        outside = sums.min(axis=1)
        longer = np.maximum(inside, outside)
        alone = (others <= 0) | (longer == 0)
        found[a : a + step] = np.where(alone, 0, (outside - inside) / np.where(alone, 1, longer))
    return found


def gap(inertias: np.ndarray, references: Sequence[Sequence[float]]) -> tuple[np.ndarray, np.ndarray]:
    """The gap statistic and its error (Tibshirani, Walther and Hastie 2001): (M,), (B, M) -> (M,), (M,).

    How much lower ln J is than on B sets of points without clusters, and the standard deviation of the latter, widened
    for the simulation. NaN without any.
    """
    if len(references) == 0:
        return np.full(len(inertias), math.nan), np.full(len(inertias), math.nan)
    logs = np.log(references)
    return logs.mean(axis=0) - np.log(inertias), logs.std(axis=0) * math.sqrt(1 + 1 / len(logs))


def within_one_error(gaps: np.ndarray, errors: np.ndarray) -> int:
    """The first K whose gap is within an error of the next one's; the largest gap where there is none."""
    enough = np.flatnonzero(gaps[:-1] >= gaps[1:] - errors[1:])
    return int(enough[0]) if len(enough) else int(gaps.argmax())


def distances(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Euclidean, by direct differences, added in the order of features: (n, d), (m, d) -> (n, m)."""
    total = np.zeros((len(A), len(B)))
    step = max(1, SLICE // len(B))
    for a in range(0, len(A), step):
        part = total[a : a + step]
        for x, y in zip(A[a : a + step].T, B.T, strict=True):
            part += (x[:, None] - y) ** 2
    return np.sqrt(total, out=total)
