"""QM-TS, TSC and their parts as plain Python, written down from the papers with no thought of speed.

Numbers are `fractions.Fraction`, so nothing is rounded and ties are ties.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from math import ceil

import numpy as np

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


def lloyd(points, weights, centers: list[Point]) -> tuple[list[int], list[Point], Fraction] | None:
    """K-Means from `centers`: labels, centroids and J where it ends; None if a cluster runs empty."""
    k, labels = len(centers), None
    while (new := assign(points, centers)) != labels:
        labels = new
        clusters = [[n for n, label in enumerate(labels) if label == c] for c in range(k)]
        if not all(clusters):
            return None
        centers = [centroid([points[n] for n in mine], [weights[n] for n in mine]) for mine in clusters]
    return labels, centers, objective(points, weights, labels, k)


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


def trial_words(seed: int, restart: int, step: int, trials: int, n: int) -> list[list[int]]:
    """The random words of every trial and point; a trial begins with a block of four words."""
    pitch = (n + 3) // 4 * 4
    key, counter = np.array([seed, restart], np.uint64), np.array([0, 0, step, 1], np.uint64)
    words = [int(w) for w in np.random.Philox(key=key, counter=counter).random_raw(trials * pitch)]
    return [words[t * pitch : t * pitch + n] for t in range(trials)]


@dataclass
class LabelSearch:
    """TSC (Al-Sultan 1995), one restart: labellings as lists, the tabu list as a list of them."""

    points: list[Point]
    k: int
    max_iter: int
    n_trials: int
    tenure: int
    keep: float
    seed: int = 0
    restart: int = 0
    weights: list[Fraction] | None = None
    start: list[int] | None = None  # None: random
    path: list[list[int]] = field(default_factory=list)
    costs: list[Fraction] = field(default_factory=list)
    best_costs: list[Fraction] = field(default_factory=list)
    best: list[int] = field(default_factory=list)
    passed_over: int = 0  # how often a trial better than the accepted one was tabu
    stuck: int = 0  # iterations in which all trials were

    def run(self) -> LabelSearch:
        n = len(self.points)
        weights = self.weights or [Fraction(1)] * n
        current = self.start
        if current is None:
            current = [(word % 2**32) * self.k // 2**32 for word in trial_words(self.seed, self.restart, 0, 1, n)[0]]
        cost = best_cost = objective(self.points, weights, current, self.k)
        self.best = current
        self.path, self.costs, self.best_costs = [current], [cost], [best_cost]
        tabu: list[list[int]] = []
        for iteration in range(1, self.max_iter + 1):
            trials = [
                [self._label(word, old) for word, old in zip(words, current, strict=True)]
                for words in trial_words(self.seed, self.restart, iteration, self.n_trials, n)
            ]
            judged = sorted((objective(self.points, weights, trial, self.k), t) for t, trial in enumerate(trials))
            for place, (value, t) in enumerate(judged):
                if trials[t] not in tabu or value < best_cost:
                    self.passed_over += place > 0
                    cost, current = value, trials[t]
                    tabu = [*tabu, current][-self.tenure :]
                    if cost < best_cost:
                        best_cost, self.best = cost, current
                    break
            else:
                self.stuck += 1
            self.path.append(current)
            self.costs.append(cost)
            self.best_costs.append(best_cost)
        return self

    def _label(self, word: int, old: int) -> int:
        high, low = divmod(word, 2**32)
        if self.k == 1 or high < ceil(Fraction(self.keep) * 2**32):
            return old
        others = [label for label in range(self.k) if label != old]
        return others[low * len(others) // 2**32]


class ImprovedLabelSearch:
    """TSC with modes and improved trials, one restart, in float64, from given labels; for data without ties."""

    def __init__(self, X, weights, k: int, labels, *, modes, improve, n_trials, tenure, keep, seed, restart) -> None:
        self.X, self.w, self.k, self.modes, self.improve = X, weights, k, modes, improve
        self.n_trials, self.tenure, self.keep, self.seed, self.restart = n_trials, tenure, keep, seed, restart
        self.mean = np.average(X, axis=0, weights=weights)
        self.labels = self.improved(np.array(labels))
        self.best = self.cost = self.J(self.labels)
        self.best_labels = self.labels
        self.tabu: list[list[int]] = []

    def centers(self, labels) -> np.ndarray:
        found = np.tile(self.mean, (self.k, 1))
        for c in range(self.k):
            if self.w[labels == c].sum() > 0:
                found[c] = np.average(self.X[labels == c], axis=0, weights=self.w[labels == c])
        return found

    def squares(self, centers) -> np.ndarray:
        return ((self.X[:, None] - centers) ** 2).sum(axis=2)

    def J(self, labels) -> float:
        return float((self.w * self.squares(self.centers(labels))[np.arange(len(labels)), labels]).sum())

    def improved(self, labels) -> np.ndarray:
        if self.improve is None:
            return labels
        labels = self.squares(self.centers(labels)).argmin(axis=1)
        if self.improve == "kmeans":
            return labels
        squares, mass = self.squares(self.centers(labels)), np.bincount(labels, self.w, self.k)
        count, new = np.bincount(labels[self.w > 0], minlength=self.k), labels.copy()
        for i, (a, w) in enumerate(zip(labels, self.w, strict=True)):
            if w > 0 and count[a] >= 2:
                costs = squares[i] * mass / (mass + w)
                costs[a] = squares[i, a] * mass[a] / (mass[a] - w)
                new[i] = costs.argmin()
        return new

    def words(self, step: int, purpose: int, count: int) -> list[int]:
        key, counter = np.array([self.seed, self.restart], np.uint64), np.array([0, 0, step, purpose], np.uint64)
        return [int(word) for word in np.random.Philox(key=key, counter=counter).random_raw(count)]

    def trials(self, step: int) -> list[np.ndarray]:
        mode, drawn = self.modes[(step - 1) % len(self.modes)], []
        centers, choices = self.centers(self.labels), self.words(step, 4, 2 * self.n_trials)
        for t, words in enumerate(trial_words(self.seed, self.restart, step, self.n_trials, len(self.X))):
            new = self.labels.copy()
            if mode == "divide":
                gone = choices[t] * self.k >> 64
                apart = ((centers - centers[gone]) ** 2).sum(axis=1)
                into = min(set(range(self.k)) - {gone}, key=lambda c: (apart[c], c))
                thirds = [c for c in range(self.k) if c not in (gone, into)] or [into]
                cut = thirds[choices[self.n_trials + t] * len(thirds) >> 64]
                new[self.labels == gone] = into
                members = [i for i in range(len(self.X)) if self.labels[i] == cut and self.w[i] > 0]
                if members:
                    keys = [words[i] >> 35 << 35 | i for i in members]
                    ends = self.X[[members[keys.index(end)] for end in (min(keys), max(keys))]]
                    near, far = ((self.X - end) ** 2 for end in ends)
                    new[(self.labels == cut) & (far.sum(axis=1) < near.sum(axis=1))] = gone
            else:
                for i, word in enumerate(words):
                    high, low = divmod(word, 2**32)
                    if high < ceil(Fraction(self.keep) * 2**32):
                        continue
                    others = [c for c in range(self.k) if c != new[i]]
                    if mode == "threshold":
                        new[i] = others[low * len(others) // 2**32]
                        continue
                    reach = np.sqrt(((self.X[i] - centers) ** 2).sum(axis=1))
                    running = (1.5 * reach.max() - reach + 0.5).cumsum()
                    new[i] = (running > running[-1] * (low / 2**32)).argmax()
            drawn.append(self.improved(new))
        return drawn

    def iterate(self, step: int) -> None:
        options = [(self.J(new), t, new) for t, new in enumerate(self.trials(step))]
        allowed = [each for each in options if each[2].tolist() not in self.tabu or each[0] < self.best * (1 - 1e-12)]
        if not allowed:
            return
        least = min(cost for cost, *_ in allowed)
        self.cost, _, self.labels = next(each for each in allowed if each[0] <= least * (1 + 1e-11))
        self.tabu = [*self.tabu, self.labels.tolist()][-self.tenure :]
        if self.cost < self.best * (1 - 1e-12):
            self.best, self.best_labels = self.cost, self.labels


class Relocation:
    """Relocation of centres, one restart, in float64: every distance, sum and swap is computed from nothing each time.

    For data without ties; what rounding decides is not followed.
    """

    def __init__(self, X, weights, centers, words, *, tenure: int, candidates: int, go_back: int, returns: int) -> None:
        self.X, self.weights, self.words = X, weights, words  # words: 64 random bits per candidate, in order
        self.go_back, self.returns, self.candidates = go_back, returns, candidates
        self.centers, self.labels = np.array(centers), np.full(len(X), -1)
        self.placed: list[int] = []  # the latest first
        self.used: list[int] = []
        self.tenure = tenure
        self.away = 0
        self.settle(nearest=True)
        self.best = self.home = self.cost
        self.home_centers = self.centers.copy()
        self.costs, self.bests, self.moves = [self.cost], [self.best], []

    def squares(self, centers) -> np.ndarray:
        """(N, K)"""
        return ((self.X[:, None] - centers) ** 2).sum(axis=2)

    def settle(self, nearest: bool = False) -> None:
        """Points go to the nearest centre, or to one of the two nearest by Hartigan's rule; centres to centroids."""
        squares, w = self.squares(self.centers), self.weights
        first, second = np.argsort(squares, axis=1)[:, :2].T
        new = first.copy()
        if not nearest:
            mass = np.array([w[self.labels == k].sum() for k in range(len(self.centers))])
            count = np.bincount(self.labels, minlength=len(self.centers))
            for n in range(len(self.X)):
                a = self.labels[n]
                b = first[n] + second[n] - a
                if a not in (first[n], second[n]) or w[n] == 0:
                    continue
                new[n] = a
                if count[a] >= 2 and mass[a] > w[n]:
                    leave = mass[a] / (mass[a] - w[n]) * squares[n, a]
                    enter = mass[b] / (mass[b] + w[n]) * squares[n, b]
                    new[n] = b if enter < leave * (1 - 2.0**-40) else a
        self.changed = (new != self.labels).sum()
        self.labels = new
        for k in range(len(self.centers)):
            if w[new == k].sum() > 0:
                self.centers[k] = np.average(self.X[new == k], axis=0, weights=w[new == k])
        self.cost = (w * self.squares(self.centers)[np.arange(len(new)), new]).sum()

    def draw(self) -> list[int]:
        """Rows in proportion to what they add to J."""
        running = (self.weights * self.squares(self.centers).min(axis=1)).cumsum()
        drawn, self.words = self.words[: self.candidates], self.words[self.candidates :]
        return [int((running > word / 2**64 * running[-1]).argmax()) for word in drawn]

    def relocate(self) -> None:
        rows, k = self.draw(), len(self.centers)
        free = [n for n in rows if n not in self.used[:k]] or rows
        swaps = []
        for n in free:
            for j in set(range(k)) - set(self.placed[: self.tenure]):
                swapped = self.centers.copy()
                swapped[j] = self.X[n]
                swaps.append(((self.weights * self.squares(swapped).min(axis=1)).sum(), n, j))
        _, n, j = min(swaps)
        self.centers[j] = self.X[n]
        self.placed, self.used = [j, *self.placed], [n, *self.used]

    def note(self) -> bool:
        """Keep what is better than the best or than home, by more than rounding."""
        self.best = min(self.best, self.cost) if self.cost < self.best * (1 - 2.0**-40) else self.best
        if self.cost < self.home * (1 - 2.0**-40):
            self.home, self.home_centers = self.cost, self.centers.copy()
            return True
        return False

    def iterate(self) -> None:
        before, changed, calm = self.home, 0, self.away >= 30
        self.relocate()
        for step in range(3):
            last = self.cost
            self.settle(nearest=step == 0)
            changed += self.changed
        better = self.note()
        for _ in range(30):
            if not (calm and self.cost < last * (1 - 2.0**-40) and (last - self.cost) * 10 > self.cost - before):
                break
            last = self.cost
            self.settle()
            changed += self.changed
            better |= self.note()
        self.away = 0 if better else self.away + 1
        self.costs.append(self.cost)
        self.bests.append(self.best)
        self.moves.append(changed)
        if self.away >= self.go_back * self.returns:
            self.home, self.home_centers, self.away = self.cost, self.centers.copy(), 0
        if self.away % self.go_back == 0:
            self.centers = self.home_centers.copy()
