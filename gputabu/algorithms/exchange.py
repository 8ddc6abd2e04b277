"""Single points exchanged between two clusters of bounded size, where that lowers J.

K-Means within bounds ends where no exchange pays at fixed centres. But an exchange of point i of cluster a for point
j of b also shifts the two centroids. With s = w_j (x_j - c_a) - w_i (x_i - c_a), the sum of squares of a changes by

    w_j ‖x_j - c_a‖² - w_i ‖x_i - c_a‖² - ‖s‖² / (W_a - w_i + w_j),

and that of b likewise: the last term may make up for the first two. A move of one point is the same without j, where
the sizes allow it. A round looks at clusters that are cheap to exchange between, and at the points that cost least to
hand over. The best exchange of each pair is made, at the centroids of that moment. A round that does not lower J is
taken back, and is the last.
"""

from __future__ import annotations

import numpy as np

from gputabu.algorithms.monitor import Monitor
from gputabu.algorithms.transport import Sizes, list_length
from gputabu.backend.arithmetic.canonical import in_order
from gputabu.backend.arithmetic.constants import NEVER, NOISE
from gputabu.backend.arithmetic.transport import Measure
from gputabu.backend.base import BackendBase
from gputabu.backend.contract import Labels
from gputabu.core.log import log

#: Clusters that each is paired with, points of a list that are looked at, and rounds.
PARTNERS, POINTS, ROUNDS = 8, 8, 1000


def exchange(
    backend: BackendBase,
    centers: np.ndarray,
    held: Labels,
    labels: np.ndarray,
    totals: np.ndarray,
    sizes: Sizes,
    monitor: Monitor,
) -> tuple[np.ndarray, np.ndarray]:
    """Exchange points until a round finds none: centroids (K, d) and labels (N,); `held` follow them.

    totals (1, K, C) are those of the labels.
    """
    k = len(centers)
    cost = float(backend.objective(centers[None], held)[0])
    for number in range(ROUNDS if k > 1 else 0):
        made = one_round(backend, centers, held, labels, totals, sizes)
        if made is None:
            break
        done = backend.set_labels(held, made[None], k)
        moved = backend.grid.centroids(totals + done.totals, centers[None])[0]
        after = float(backend.objective(moved[None], held)[0])
        log.debug("exchanges, round %d: %d points, J %.10g", number + 1, done.changed[0], after)
        if not after < cost * (1 - NOISE):
            backend.set_labels(held, labels[None], k)
            break
        labels, totals, centers, cost = made, totals + done.totals, moved, after
        if monitor.should_hurry():
            break
    return centers, labels


def one_round(
    backend: BackendBase,
    centers: np.ndarray,
    held: Labels,
    labels: np.ndarray,
    totals: np.ndarray,
    sizes: Sizes,
) -> np.ndarray | None:
    """Labels (N,) after the best exchange of every pair that has one; None where no pair has."""
    k, points, measure = len(centers), backend.points, backend.measure(centers, sizes.by_weight)
    length = min(POINTS, list_length(k, points.n))
    found = backend.transfers_partial(centers, held, None, np.arange(k), length, measure)
    pairs = partners(found.value[:, :, 0])
    rows = np.concatenate([found.row[pairs[:, 0], pairs[:, 1]], found.row[pairs[:, 1], pairs[:, 0]]], axis=1)
    known = np.unique(rows[rows >= 0])
    X, weights = backend.rows(known), points.weights_at(known)
    table = Table(centers.copy(), backend.grid.weights(totals)[0], found.sizes.copy(), sizes.integers(points, measure))
    labels, any_made = labels.copy(), False
    for (a, b), listed in zip(pairs.tolist(), rows, strict=True):
        here, there = (side[(side >= 0)] for side in (listed[:length], listed[length:]))
        here, there = here[labels[here] == a], there[labels[there] == b]
        i, j = np.searchsorted(known, here), np.searchsorted(known, there)
        best = table.best(a, b, X[i], weights[i], X[j], weights[j], measure)
        if best is None:
            continue
        any_made = True
        for mine, place, target in ((here, best[0], b), (there, best[1], a)):
            if place < len(mine):
                labels[mine[place]] = target
    return labels if any_made else None


def partners(value: np.ndarray) -> np.ndarray:
    """The pairs (P, 2), a < b, between which exchanges cost least: value (K, K) is the least to hand over."""
    k = len(value)
    both = np.where((value < NEVER) & (value.T < NEVER), 0.0, np.inf)
    both += np.where(value < NEVER, value, 0).astype(np.float64) + np.where(value.T < NEVER, value.T, 0)
    nearest = np.argsort(both, axis=1, kind="stable")[:, :PARTNERS]
    a = np.repeat(np.arange(k), nearest.shape[1])
    b = nearest.ravel()
    pairs = np.unique(np.stack([np.minimum(a, b), np.maximum(a, b)], axis=1), axis=0)
    return pairs[pairs[:, 0] < pairs[:, 1]]


class Table:
    """Centroids, weights and sizes of the clusters while a round goes on."""

    def __init__(self, centers: np.ndarray, mass: np.ndarray, sizes: np.ndarray, bounds: np.ndarray) -> None:
        self.centers, self.mass, self.sizes = centers, mass, sizes  # (K, d), (K,) float64, (K,) int64
        self.low, self.high = int(bounds[0]), int(bounds[1])

    def best(
        self,
        a: int,
        b: int,
        X: np.ndarray,
        w: np.ndarray,
        Y: np.ndarray,
        v: np.ndarray,
        measure: Measure,
    ) -> tuple[int, int] | None:
        """Make the best exchange of points X (m, d) of a for points Y (n, d) of b: which ones, m or n for none."""
        d = self.centers.shape[1]
        X, Y = np.concatenate([X, np.zeros((1, d))]), np.concatenate([Y, np.zeros((1, d))])
        w, v = np.append(w, 0.0), np.append(v, 0.0)  # the last is nobody
        gone, come = self._change(a, X, w, Y, v), self._change(b, Y, v, X, w)
        change = gone[0] + come[0].T  # (m + 1, n + 1)
        size = measure.sizes(v)[None] - measure.sizes(w)[:, None]  # what a gains
        for cluster, grown in ((a, self.sizes[a] + size), (b, self.sizes[b] - size)):
            bad = (grown > np.maximum(self.high, self.sizes[cluster])) | (
                grown < np.minimum(self.low, self.sizes[cluster])
            )
            change[bad] = np.inf
        change[-1, -1] = np.inf
        i, j = np.unravel_index(change.argmin(), change.shape)
        if not change[i, j] < -NOISE * (gone[1][i, j] + come[1][j, i]):
            return None
        for cluster, out, out_w, into, into_w, sign in (
            (a, X[i], w[i], Y[j], v[j], 1),
            (b, Y[j], v[j], X[i], w[i], -1),
        ):
            total = self.mass[cluster] - out_w + into_w
            center = self.centers[cluster]
            if total > 0:
                self.centers[cluster] = center + (into_w * (into - center) - out_w * (out - center)) / total
            self.mass[cluster] = total
            self.sizes[cluster] += sign * size[i, j]
        return int(i), int(j)

    def _change(
        self, a: int, X: np.ndarray, w: np.ndarray, Y: np.ndarray, v: np.ndarray
    ) -> tuple[np.ndarray, np.ndarray]:
        """How the sum of squares of cluster a changes without X_i and with Y_j, (m, n); and how large its terms are."""
        here, there = X - self.centers[a], Y - self.centers[a]
        out, into = w * in_order(here**2), v * in_order(there**2)
        s = (v[:, None] * there)[None] - (w[:, None] * here)[:, None]  # (m, n, d)
        total = self.mass[a] - w[:, None] + v
        with np.errstate(divide="ignore", invalid="ignore"):
            away = np.where(total > 0, in_order(s**2) / total, 0.0)
        return into - out[:, None] - away, into + out[:, None] + away
