"""Criteria for choosing K. They need a few passes over the points.

J is the sum of squares within clusters (eq. 2) and W the total weight: a weight of w counts as w points.

AIC and BIC follow from the paper's assumptions (section II): every point belongs to one cluster, clusters are Gaussian,
and the K components weigh the same, 1/K. Minimising eq. 2 further assumes that they are spherical with one variance σ².
The log-likelihood of a point is then ln(1/K) − (d/2) ln(2πσ²) − ‖x − c‖²/(2σ²). With the maximum-likelihood variance
σ² = J/(W·d), the log-likelihood of all points is

    L = −W ln K − (W·d/2) (ln(2πJ/(W·d)) + 1),        AIC = −2L + 2p,        BIC = −2L + p ln W,

with p = K·d + 1 parameters, the centres and the variance; the least is best. X-means (Pelleg and Moore 2000) uses the
same likelihood, but with components of different weights and the unbiased variance.

The term W ln K is the cost of encoding the labels. It keeps Gaussians whole: splitting one of n points in two raises L
by at most n/π and costs W/K. So these criteria prefer clusters of similar size, and split one that holds more than
about π times the average.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from gputabu.backend.arithmetic.fixed_point import Bounds

#: What `criterion=` accepts, and whether the largest value is best. The gap statistic has its own rule.
LARGEST_IS_BEST = {
    "bic": False,
    "aic": False,
    "silhouette": True,
    "calinski_harabasz": True,
    "davies_bouldin": False,
    "gap": True,
}
#: Criteria that compare clusters with each other, and so need at least two.
RELATIVE = ("silhouette", "calinski_harabasz", "davies_bouldin")
#: Elements of a temporary array.
SLICE = 1 << 20


@dataclass(frozen=True, slots=True)
class Fit:
    """The numbers of one clustering that criteria are computed from."""

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
    """J that the rounding of X alone can cause. A smaller J cannot be told from zero, which has no logarithm."""
    rounding = np.finfo(dtype).eps * np.maximum(np.abs(bounds.low), np.abs(bounds.high))
    return max(weight * float((rounding**2).sum()), 1e-200)


def aic(fit: Fit) -> float:
    """Akaike's information criterion; the least is best."""
    return -2 * log_likelihood(fit) + 2 * (fit.k * fit.d + 1)


def bic(fit: Fit) -> float:
    """Schwarz's Bayesian information criterion; the least is best."""
    return -2 * log_likelihood(fit) + (fit.k * fit.d + 1) * math.log(fit.weight)


def log_likelihood(fit: Fit) -> float:
    """L of spherical Gaussians with equal weights and one variance, each point in one of them."""
    terms = fit.weight * fit.d
    return -fit.weight * math.log(fit.k) - terms / 2 * (math.log(2 * math.pi * fit.inertia / terms) + 1)


def calinski_harabasz(fit: Fit) -> float:
    """Variance between clusters divided by variance within (Caliński and Harabasz 1974); the largest is best."""
    if not judges("calinski_harabasz", fit.k, fit.weight):
        return math.nan
    between = max(fit.scatter - fit.inertia, 0.0)
    return between / (fit.k - 1) / (fit.inertia / (fit.weight - fit.k))


def davies_bouldin(fit: Fit) -> float:
    """Mean over clusters of the largest overlap with another one (Davies and Bouldin 1979); the least is best.

    Spread is the mean distance to the centre, as in scikit-learn. Empty clusters do not count.
    """
    if not judges("davies_bouldin", fit.k, fit.weight):
        return math.nan
    full = fit.weights > 0
    centers, spread = fit.centers[full], fit.spreads[full] / fit.weights[full]
    apart = distances(centers, centers)
    apart[apart == 0] = np.inf  # itself
    return float(((spread[:, None] + spread) / apart).max(axis=1).mean())


def pbm(fit: Fit, spread: float) -> float:
    """The index of Pakhira, Bandyopadhyay and Maulik (2004); the largest is best.

    `spread` is the sum of the distances of all points to their mean. It grows with the largest distance of two centres.
    """
    if not judges("davies_bouldin", fit.k, fit.weight):
        return math.nan
    within = float(fit.spreads.sum())
    farthest = float(distances(fit.centers, fit.centers).max())
    return (spread / within * farthest / fit.k) ** 2 if within > 0 else math.inf


class Silhouette:
    """The mean silhouette over a sample of the points; the largest is best.

    The distances are computed once: they are the same for every K.
    """

    def __init__(self, sample: np.ndarray, weights: np.ndarray) -> None:
        self.weights = weights  # (S,)
        self.distances = distances(sample, sample)  # (S, S)

    def mean(self, labels: np.ndarray) -> float:
        """The mean over the sample with labels (S,); NaN if all labels are equal."""
        if (labels == labels[0]).all():
            return math.nan
        values = silhouettes(self.distances.__getitem__, self.weights, labels)
        return float((self.weights * values).sum() / self.weights.sum())


def silhouettes(rows: Callable[[slice], np.ndarray], weights: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Silhouettes (Rousseeuw 1987) of points in two clusters or more: weights (N,), labels (N,) -> (N,).

    `rows` returns a slice of rows of the (N, N) distances, so the whole matrix need not be in memory.
    """
    order = np.argsort(labels, kind="stable")
    _, first, position = np.unique(labels[order], return_index=True, return_inverse=True)
    cluster = np.empty(len(labels), np.intp)  # of each point, counting only clusters that occur
    cluster[order] = position
    sizes = np.add.reduceat(weights[order], first)
    values = np.empty(len(labels))
    step = max(1, SLICE // len(labels))
    for a in range(0, len(labels), step):
        row_cluster = cluster[a : a + step]
        row = np.arange(len(row_cluster))
        terms = (rows(slice(a, a + step)) * weights)[:, order]
        sums = np.add.reduceat(terms, first, axis=1)  # (rows, clusters)
        other_weight = sizes[row_cluster] - 1
        inside = sums[row, row_cluster] / np.where(other_weight > 0, other_weight, 1)
        sums /= sizes
        sums[row, row_cluster] = np.inf
        outside = sums.min(axis=1)
        larger = np.maximum(inside, outside)
        undefined = (other_weight <= 0) | (larger == 0)
        values[a : a + step] = np.where(undefined, 0, (outside - inside) / np.where(undefined, 1, larger))
    return values


def gap(inertias: np.ndarray, references: Sequence[Sequence[float]]) -> tuple[np.ndarray, np.ndarray]:
    """The gap statistic and its error (Tibshirani, Walther and Hastie 2001): (M,), (B, M) -> (M,), (M,).

    The gap is how much lower ln J is than its mean over B reference sets without clusters. The error is the standard
    deviation over these sets, corrected for the simulation error. Both are NaN without reference sets.
    """
    if len(references) == 0:
        return np.full(len(inertias), math.nan), np.full(len(inertias), math.nan)
    logs = np.log(references)
    return logs.mean(axis=0) - np.log(inertias), logs.std(axis=0) * math.sqrt(1 + 1 / len(logs))


def within_one_error(gaps: np.ndarray, errors: np.ndarray) -> int:
    """The first K whose gap is within one error of the next one's; without such a K, the one with the largest gap."""
    enough = np.flatnonzero(gaps[:-1] >= gaps[1:] - errors[1:])
    return int(enough[0]) if len(enough) else int(gaps.argmax())


def distances(A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """Euclidean distances by direct differences, summed in the order of features: (n, d), (m, d) -> (n, m)."""
    total = np.zeros((len(A), len(B)))
    step = max(1, SLICE // len(B))
    for a in range(0, len(A), step):
        block = total[a : a + step]
        for x, y in zip(A[a : a + step].T, B.T, strict=True):
            block += (x[:, None] - y) ** 2
    return np.sqrt(total, out=total)
