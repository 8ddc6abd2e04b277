"""QM-TS and its parts as plain Python, written down from the paper with no thought of speed.

Numbers are `fractions.Fraction`, so nothing is rounded and ties are ties.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction

Point = tuple[Fraction, ...]


def exact(X) -> list[Point]:
    return [tuple(Fraction(float(v)) for v in row) for row in X]


def sqdist(a: Point, b: Point) -> Fraction:
    return sum(((p - q) ** 2 for p, q in zip(a, b, strict=True)), Fraction(0))


def delta_J(points: Sequence[Point], weights: Sequence[Fraction], mean: Point, x: Point) -> Fraction:
    """Eq. 13 as it is written: Σ over the cluster of −2 (x_n − μ)·(x − μ) + ‖x − μ‖²."""
    step = [p - q for p, q in zip(x, mean, strict=True)]
    total = Fraction(0)
    for point, w in zip(points, weights, strict=True):
        dot = sum((p - m) * s for p, m, s in zip(point, mean, step, strict=True))
        total += w * (-2 * dot + sum(s * s for s in step))
    return total


def assign(points: Sequence[Point], means: Sequence[Point]) -> list[int]:
    """Eq. 15, the lowest number on ties."""
    return [min(range(len(means)), key=lambda k: (sqdist(x, means[k]), k)) for x in points]


def centroid(points: Sequence[Point], weights: Sequence[Fraction]) -> Point:
    total = sum(weights)
    return tuple(sum((w * v for w, v in zip(weights, column, strict=True)), Fraction(0)) / total
                 for column in zip(*points, strict=True))  # fmt: skip


def objective(points, weights, labels, k: int) -> Fraction:
    """Eq. 2, at the centroids."""
    J = Fraction(0)
    for c in range(k):
        members = [n for n, label in enumerate(labels) if label == c and weights[n] > 0]
        if members:
            mean = centroid([points[n] for n in members], [weights[n] for n in members])
            J += sum(weights[n] * sqdist(points[n], mean) for n in members)
    return J


@dataclass
class Search:
    """ALGORITHMS section 2, one restart."""

    points: list[Point]
    start: list[int]
    max_iter: int
    patience: int
    scope: str = "cluster"
    weights: list[Fraction] | None = None
    n_neighbors: int = 1
    path: list[list[int]] = field(default_factory=list)
    costs: list[Fraction] = field(default_factory=list)
    best: list[int] = field(default_factory=list)

    def run(self) -> Search:
        weights = self.weights or [Fraction(1)] * len(self.points)
        k = len(self.start)
        current = list(self.start)
        rows: list[list[int]] = [[] for _ in range(k)]
        labels = assign(self.points, [self.points[m] for m in current])
        best_cost = objective(self.points, weights, labels, k)
        self.best, stale = list(current), 0
        self.path, self.costs = [list(current)], [best_cost]
        for _ in range(self.max_iter):
            neighbours = self._neighbours(current, labels, rows, weights, k)
            for c in range(k):
                if current[c] not in rows[c]:
                    rows[c].append(current[c])
            judged = []
            for i, means in enumerate(neighbours):
                their = assign(self.points, [self.points[m] for m in means])
                judged.append((objective(self.points, weights, their, k), i, means, their))
            cost, _, current, labels = min(judged, key=lambda entry: entry[:2])
            self.path.append(list(current))
            self.costs.append(cost)
            if cost < best_cost:
                best_cost, self.best, stale = cost, list(current), 0
            else:
                stale += 1
            if stale >= self.patience:
                break
        return self

    def _neighbours(self, current, labels, rows, weights, k) -> list[list[int]]:
        before = [list(row) for row in rows]
        chosen: list[list[int]] = []
        for c in range(k):
            members = [n for n, label in enumerate(labels) if label == c and weights[n] > 0]
            if not members:
                chosen.append([current[c]])
                continue
            cluster, w = [self.points[n] for n in members], [weights[n] for n in members]
            mean = self.points[current[c]]
            order = sorted(members, key=lambda n: (delta_J(cluster, w, mean, self.points[n]), n))

            def tabu(n: int, own: list[int], c: int = c) -> bool:
                others = [row for j, row in enumerate(before) if j != c] if self.scope == "global" else []
                return n in own or any(n in row for row in others)

            row = list(rows[c])
            while row and all(tabu(n, row) for n in members):
                row.pop()  # the last entry is deleted until a member is free
            free = [n for n in order if not tabu(n, row)]
            if free:
                rows[c] = row
                chosen.append(free)
            else:  # only in scope "global": other rows forbid every member
                chosen.append([current[c]])
        return [[options[min(i, len(options) - 1)] for options in chosen] for i in range(self.n_neighbors)]
