"""A complete backend in plain Python loops: what the passes of `gputabu.backend.contract` mean, as readable as can be.

Every pass goes over rows 0, 1, … and writes the canonical formulas out. Python's float is float64, and its integers
never overflow, so nothing here is approximate.
"""

from __future__ import annotations

import math
import operator

import numpy as np

from gputabu.backend.arithmetic.constants import KEY_BITS, LIMB, NEVER, NOISE, ON_CENTER
from gputabu.backend.arithmetic.fixed_point import Bounds, Grid, Totals
from gputabu.backend.arithmetic.keys import NOBODY
from gputabu.backend.arithmetic.powers import TERM, Exponent, Fuzzifier, by_series
from gputabu.backend.arithmetic.rules import masses, slack
from gputabu.backend.arithmetic.transport import Measure
from gputabu.backend.base import BackendBase
from gputabu.backend.contract import (
    FAR,
    ROW_BITS,
    Assignment,
    Moves,
    NearestTwo,
    SurveyPartial,
    Transfers,
    TrialBatch,
)
from gputabu.core import random
from gputabu.core.random import Purpose
from gputabu.data.points import Points


def squared(x, c) -> float:
    """The canonical squared distance: Σ_j (x_j − c_j)², added in the order of j."""
    total = 0.0
    for a, b in zip(x, c, strict=True):
        difference = a - b
        total += difference * difference
    return total


def limbs(value: float, exponent: int, count: int) -> list[int]:
    """|value| <= 2^exponent as `count` integers of LIMB bits; the last is rounded to the nearest even."""
    value, found = value * math.ldexp(1.0, LIMB - exponent), []
    for i in range(count):
        found.append(int(np.rint(value)))
        if i + 1 < count:
            value = (value - found[-1]) * 2.0**LIMB
    return found


def raised(x: float, p: Exponent) -> float:
    """x^p: as products and roots, or by series."""
    if p.whole < 0:
        return float(by_series(np.array([x]), p.value)[0])
    factors = [x] * p.whole + [math.sqrt(x)] * p.half + [math.sqrt(math.sqrt(x))] * p.quarter
    return math.prod(factors)


class SlowBackend(BackendBase):
    """Points as lists of floats. Labels and distances are NumPy arrays, (R, N), changed one entry at a time."""

    name = "slow"

    def __init__(self, points: Points) -> None:
        self.points = points
        self.X = [[float(x) for x in row] for row in points.rows(np.arange(points.n))]
        self.w = [float(w) for w in points.weights_at(np.arange(points.n))]
        self.n = points.n
        self.columns = Totals.columns(points.d, points.weights is not None)

    def term(self, i: int, grid: Grid) -> np.ndarray:
        """What point i adds to the totals of its cluster: high limbs, low limbs, (limbs of the weight,) a count."""
        pairs = [
            limbs(self.w[i] * (x - o), int(e), 2)
            for x, o, e in zip(self.X[i], grid.offset.tolist(), grid.coordinate, strict=True)
        ]
        weight = [] if self.points.weights is None else limbs(self.w[i], grid.weight, 2)
        return np.array([p[0] for p in pairs] + [p[1] for p in pairs] + weight + [int(self.w[i] > 0)], np.int64)

    # -- data --------------------------------------------------------------------------------------

    def bounds_partial(self) -> Bounds:
        heavy = [x for x, w in zip(self.X, self.w, strict=True) if w > 0]
        if not heavy:
            nothing = np.full(self.points.d, np.inf)
            return Bounds(nothing, -nothing, 0.0)
        sides = list(zip(*heavy, strict=True))
        return Bounds(np.array([min(s) for s in sides]), np.array([max(s) for s in sides]), max(self.w))

    def moments(self, grid: Grid) -> np.ndarray:
        return sum((self.term(i, grid) for i in range(self.n)), np.zeros(self.columns, np.int64))

    def rows(self, indices: np.ndarray) -> np.ndarray:
        return np.array(self.X)[indices]

    # -- labels ------------------------------------------------------------------------------------

    def blank_labels(self, restarts: int) -> np.ndarray:
        return np.full((restarts, self.n), -1, np.int32)

    def take_labels(self, labels: np.ndarray, restarts: np.ndarray) -> np.ndarray:
        return labels[restarts].copy()

    def fetch_labels(self, labels: np.ndarray, restart: int) -> np.ndarray:
        return labels[restart].copy()

    def label(self, centers: np.ndarray) -> np.ndarray:
        labels = self.blank_labels(len(centers))
        for r, each in enumerate(centers.tolist()):
            for i, x in enumerate(self.X):
                labels[r, i] = min(range(len(each)), key=lambda k: (squared(x, each[k]), k))
        return labels

    def relabel(self, labels: np.ndarray, moves: Moves) -> None:
        for r, i, target in zip(moves.restart, moves.row, moves.target, strict=True):
            labels[r, i] = target

    # -- K-Means -----------------------------------------------------------------------------------

    def assign(self, centers: np.ndarray, labels: np.ndarray) -> Assignment:
        return self.change(labels, self.label(centers), centers.shape[1])

    def change(self, labels: np.ndarray, new: np.ndarray, k: int) -> Assignment:
        """Take the `new` labels, and say what that changes."""
        totals = np.zeros((len(labels), k, self.columns), np.int64)
        changed = np.zeros(len(labels), np.int64)
        for r in range(len(labels)):
            for i in range(self.n):
                if labels[r, i] != new[r, i]:
                    totals[r, new[r, i]] += self.term(i, self.grid)
                    if labels[r, i] >= 0:
                        totals[r, labels[r, i]] -= self.term(i, self.grid)
                    changed[r] += 1
                    labels[r, i] = new[r, i]
        return Assignment(totals, changed)

    def objective_partial(self, centers: np.ndarray, labels: np.ndarray, exponent: int) -> np.ndarray:
        sums = np.zeros((3, len(centers)), np.int64)
        for r, each in enumerate(centers.tolist()):
            for i, x in enumerate(self.X):
                sums[:, r] += limbs(squared(x, each[labels[r, i]]) * self.w[i], exponent, 3)
        return sums

    def spreads_partial(self, centers: np.ndarray, labels: np.ndarray, exponent: int) -> np.ndarray:
        sums = np.zeros((2, *centers.shape[:2]), np.int64)
        for r, each in enumerate(centers.tolist()):
            for i, x in enumerate(self.X):
                k = labels[r, i]
                sums[:, r, k] += limbs(math.sqrt(squared(x, each[k])) * self.w[i], exponent, 2)
        return sums

    def farthest_partial(self, centers, labels, restart: int, count: int, scale: int) -> np.ndarray:
        found = []
        for i, x in enumerate(self.X):
            k = labels[restart, i]
            value = np.float32(squared(x, centers[k].tolist()) * math.ldexp(1.0, scale))
            if self.w[i] > 0 and value > ON_CENTER:
                found.append((value, i, k))
        found.sort(key=lambda entry: (-entry[0], entry[1]))
        return np.array(found[:count], FAR)

    def closest_partial(self, centers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value, rows = np.full(len(centers), np.inf), np.zeros(len(centers), np.int64)
        for k, center in enumerate(centers.tolist()):
            for i, x in enumerate(self.X):
                if self.w[i] > 0 and squared(x, center) < value[k]:  # of equals the first stays
                    value[k], rows[k] = squared(x, center), i
        return value, rows

    def distances(self, centers: np.ndarray) -> np.ndarray:
        each = centers.tolist()
        return np.array([[math.sqrt(squared(x, c)) for c in each] for x in self.X], self.points.dtype)

    # -- survey ------------------------------------------------------------------------------------

    def survey_partial(self, centers, labels, tabu: np.ndarray, shared: bool, best: int) -> SurveyPartial:
        r, k, _ = centers.shape
        value, index = np.full((r, k, best), NOBODY), np.full((r, k, best), -1, np.int64)
        inside = np.zeros(tabu.shape, bool)
        for one in range(r):
            forbidden = set()
            for a in range(k):
                for entry, n in enumerate(tabu[one, a].tolist()):
                    if n >= 0:
                        inside[one, a, entry] = labels[one, n] == a and self.w[n] > 0
                        if shared or labels[one, n] == a:
                            forbidden.add(n)
            for a in range(k):
                free = [i for i in range(self.n) if labels[one, i] == a and i not in forbidden and self.w[i] > 0]
                keys = sorted((self.key(i, centers[one, a].tolist()), i) for i in free)
                for place, (bits, i) in enumerate(keys[:best]):
                    value[one, a, place], index[one, a, place] = bits, i
        return SurveyPartial(self.objective_partial(centers, labels, self.grid.cost), value, index, inside)

    def key(self, i: int, center: list[float]) -> int:
        """The bits of d² as float32, which sort as it does."""
        scaled = squared(self.X[i], center) * math.ldexp(1.0, KEY_BITS - self.grid.square)
        return int(np.float32(scaled).view(np.uint32))

    # -- seeding -----------------------------------------------------------------------------------

    def infinite_sq_dist(self, restarts: int) -> np.ndarray:
        return np.full((restarts, self.n), np.inf)

    def lower_sq_dist(self, seeds: np.ndarray, min_sq_dist: np.ndarray) -> None:
        for r, seed in enumerate(seeds.tolist()):
            for i, x in enumerate(self.X):
                min_sq_dist[r, i] = min(min_sq_dist[r, i], squared(x, seed))

    def share(self, i: int, square: float, shift: int) -> int:
        """What a point adds to the potential."""
        return int(np.rint(float(square) * self.w[i] * math.ldexp(1.0, int(shift))))

    def potential(self, min_sq_dist: np.ndarray, shift: np.ndarray) -> np.ndarray:
        sums = np.zeros(len(shift), np.int64)
        for r, i in np.ndindex(*min_sq_dist.shape):
            sums[r] += self.share(i, min_sq_dist[r, i], shift[r])
        return sums

    def seed_gains(self, seeds: np.ndarray, min_sq_dist: np.ndarray, shift: np.ndarray) -> np.ndarray:
        gains = np.zeros(seeds.shape[:2], np.int64)
        for r, t in np.ndindex(*gains.shape):
            seed = seeds[r, t].tolist()
            for i, x in enumerate(self.X):
                before = min_sq_dist[r, i]
                if squared(x, seed) < before:
                    gains[r, t] += self.share(i, before, shift[r]) - self.share(i, squared(x, seed), shift[r])
        return gains

    def sample(self, min_sq_dist: np.ndarray, shift: np.ndarray, targets: np.ndarray) -> np.ndarray:
        rows = np.full(targets.shape, -1, np.int64)
        for r, t in np.ndindex(*targets.shape):
            running = 0
            for i in range(self.n if targets[r, t] >= 0 else 0):
                running += self.share(i, min_sq_dist[r, i], shift[r])
                if running > targets[r, t]:
                    rows[r, t] = i
                    break
        return rows

    # -- single moves ------------------------------------------------------------------------------

    def find_moves(self, centers: np.ndarray, totals: np.ndarray, labels: np.ndarray) -> Moves:
        return self.moves_between(centers, masses(self.grid, totals), labels)

    def moves_between(self, centers: np.ndarray, mass: np.ndarray, labels: np.ndarray) -> Moves:
        """The moves of points by Hartigan's rule, with the masses (R, 2, K)."""
        found, allowance = [], slack(self.bounds)
        for r, each in enumerate(centers.tolist()):
            to_leave, to_enter = mass[r].tolist()
            for i, x in enumerate(self.X):
                a, w = int(labels[r, i]), self.w[i]
                rest = to_leave[a] - w
                if rest <= 0 or w == 0:
                    continue
                factor = to_leave[a] / rest
                leave = factor * squared(x, each[a])
                clusters = [b for b in range(len(each)) if b != a]
                costs = [(squared(x, each[b]) * (to_enter[b] / (to_enter[b] + w)), b) for b in clusters]
                enter, b = min(costs, default=(math.inf, a))
                if leave - enter > NOISE * leave + allowance * math.sqrt(factor * leave):
                    found.append((r, i, a, b))
        columns = np.array(found, np.int64).reshape(-1, 4).T
        return Moves(columns[0], columns[1], columns[2].astype(np.int32), columns[3].astype(np.int32))

    # -- bounded sizes -----------------------------------------------------------------------------

    def transfers_partial(self, centers, labels, prices, sources, count: int, measure: Measure) -> Transfers:
        k = len(centers)
        value, row = np.full((len(sources), k, count), NEVER), np.full((len(sources), k, count), -1)
        sizes, pairs = np.zeros(k, np.int64), {}
        for i, (x, w) in enumerate(zip(self.X, self.w, strict=True)):
            squares = [squared(x, c) for c in centers.tolist()]
            costs = [int(np.rint((s * w if measure.weighted else s) * measure.scale)) for s in squares]
            if prices is not None:
                charged = squares if w == 0 else [cost + int(price) for cost, price in zip(costs, prices, strict=True)]
                labels[0, i] = charged.index(min(charged))
            a = int(labels[0, i])
            sizes[a] += int(np.rint(w * measure.unit)) if measure.unit else w > 0
            for b in range(k if w > 0 else 0):
                pairs.setdefault((a, b), []).append((costs[b] - costs[a], i))
        for s, a in enumerate(sources.tolist()):
            for b in set(range(k)) - {a}:
                for m, pair in enumerate(sorted(pairs.get((a, b), []))[:count]):
                    value[s, b, m], row[s, b, m] = pair
        return Transfers(value, row, sizes)

    # -- relocation --------------------------------------------------------------------------------

    def nearest_two(self, centers: np.ndarray, previous: NearestTwo | None = None) -> NearestTwo:
        shape = (len(centers), self.n)
        found = NearestTwo(np.zeros(shape, np.int32), np.zeros(shape, np.int32), np.zeros(shape), np.zeros(shape), None)
        for r, each in enumerate(centers.tolist()):
            for i, x in enumerate(self.X):
                one, two = sorted((squared(x, c), k) for k, c in enumerate(each))[:2]
                found.near[r, i], found.first[r, i] = one
                found.far[r, i], found.second[r, i] = two
        found.at = centers.copy()
        if previous is None:
            return found
        for name in ("first", "second", "near", "far", "at"):
            getattr(previous, name)[...] = getattr(found, name)
        return previous

    def reassign_partial(self, nearest: NearestTwo, labels, mass: np.ndarray | None, active: np.ndarray):
        new, costs = labels.copy(), np.zeros((3, len(labels)), np.int64)
        for r in np.flatnonzero(active):
            for i in range(self.n):
                first, second = int(nearest.first[r, i]), int(nearest.second[r, i])
                near, far = float(nearest.near[r, i]), float(nearest.far[r, i])
                new[r, i] = first if mass is None else self.settles(i, labels[r, i], first, second, near, far, mass[r])
                cost = near if new[r, i] == first else far
                costs[:, r] += limbs(cost * self.w[i], self.grid.cost, 3)
        return self.change(labels, new, nearest.at.shape[1]), costs

    def settles(self, i: int, label: int, first: int, second: int, near: float, far: float, mass: np.ndarray) -> int:
        """Hartigan's rule between the two nearest centres."""
        w = self.w[i]
        if w == 0 or label not in (first, second):
            return first
        own, other, mine, theirs = (first, second, near, far) if label == first else (second, first, far, near)
        rest = float(mass[0, own]) - w
        if rest <= 0:
            return own
        leave, enter = float(mass[0, own]) / rest * mine, float(mass[1, other]) / (float(mass[1, other]) + w) * theirs
        return other if leave - enter > NOISE * leave else own

    def swap_gains_partial(self, candidates: np.ndarray, nearest: NearestTwo) -> tuple[np.ndarray, np.ndarray]:
        (r, t, _), k, e = candidates.shape, nearest.at.shape[1], self.grid.cost
        loss, change = np.zeros((r, k, 3), np.int64), np.zeros((r, t, k + 1, 3), np.int64)
        for one in range(r):
            for i, x in enumerate(self.X):
                a, w = nearest.first[one, i], self.w[i]
                d1, d2 = float(nearest.near[one, i]), float(nearest.far[one, i])
                without = np.array(limbs((d2 - d1) * w, e, 3))
                loss[one, a] += without
                for c in range(t):
                    dc = squared(x, candidates[one, c].tolist())
                    if dc < d2:
                        change[one, c, a] += np.array(limbs((dc - min(d1, dc)) * w, e, 3)) - without
                        change[one, c, k] += limbs(max(d1 - dc, 0.0) * w, e, 3)
        return loss, change

    # -- trial labellings --------------------------------------------------------------------------

    def trial(self, labels: np.ndarray, trials: TrialBatch, r: int, t: int) -> np.ndarray:
        """The labels of one trial, (N,)."""
        if trials.given is not None:
            return trials.given[min(r, len(trials.given) - 1)]
        new = labels[r].copy()
        if trials.cuts is not None:
            gone, into, cut = trials.cuts[r, t].tolist()
            here, there = trials.pairs[r, t].tolist()
            for i, old in enumerate(labels[r].tolist()):
                if old == gone:
                    new[i] = into
                elif old == cut and squared(self.X[i], there) < squared(self.X[i], here):
                    new[i] = gone
            return new
        for i, word in enumerate(self.trial_words(trials, r, t)):
            if word >= trials.limit and trials.centers is not None:
                new[i] = self.by_distance(self.X[i], trials.centers[r].tolist(), word & 0xFFFFFFFF)
            elif word >= trials.limit:
                others = [k for k in range(trials.k) if k != labels[r, i]] or [0]
                new[i] = others[(word & 0xFFFFFFFF) * len(others) >> 32]
        return new

    def trial_words(self, trials: TrialBatch, r: int, t: int) -> list[int]:
        first, restart = t * trials.pitch(self.n) + trials.first, int(trials.restarts[r])
        words = random.words(trials.seed, restart, self.n, purpose=Purpose.TRIAL, step=trials.step, first=first)
        return words.tolist()

    def by_distance(self, x, centers, low: int) -> int:
        """A label drawn by distance."""
        reach = [math.sqrt(squared(x, c)) for c in centers]
        running, sums = 0.0, []
        for each in reach:
            running += (1.5 * max(reach) - each) + 0.5
            sums.append(running)
        return next(k for k, each in enumerate(sums) if each > running * (low * 2.0**-32))

    def evaluate_trials_partial(self, labels: np.ndarray, trials: TrialBatch) -> tuple[np.ndarray, np.ndarray]:
        r, t = len(labels), trials.n_trials
        change, fingerprints = np.zeros((r, t, trials.k, self.columns), np.int64), np.zeros((r, t, 2), np.uint64)
        words = random.words(trials.seed, 0, 2 * self.n, purpose=Purpose.PRINT, first=2 * trials.first).tolist()
        for one, c in np.ndindex(r, t):
            new = self.trial(labels, trials, one, c)
            change[one, c] = self.change(labels[one : one + 1].copy(), new[None], trials.k).totals[0]
            steps = (new - labels[one]).tolist()
            for half in (0, 1):
                products = map(operator.mul, steps, words[half::2])
                fingerprints[one, c, half] = sum(products) % 2**64
        return change, fingerprints

    def apply_trial(self, labels: np.ndarray, best: np.ndarray, trials: TrialBatch, chosen, better) -> Assignment:
        new = labels.copy()
        for r in range(len(labels)):
            if chosen[r] >= 0:
                new[r] = self.trial(labels, trials, r, int(chosen[r]))
        found = self.change(labels, new, trials.k)
        for r in np.flatnonzero(better):
            best[r] = labels[r]
        return found

    def evaluate_steps_partial(self, centers: np.ndarray, moves, trials: TrialBatch):
        (s, k, _), new = centers.shape, self.label(centers)
        if moves is not None:
            between, mass = moves
            made = self.moves_between(between, mass, new)
            new[made.restart, made.row] = made.target
        totals = self.change(self.blank_labels(s), new, k).totals
        words = random.words(trials.seed, 0, 2 * self.n, purpose=Purpose.PRINT, first=2 * trials.first).tolist()
        sums = [[sum(map(operator.mul, each, words[half::2])) % 2**64 for half in (0, 1)] for each in new.tolist()]
        return totals, np.array(sums, np.uint64)

    def member_keys_partial(self, labels: np.ndarray, clusters: np.ndarray, trials: TrialBatch) -> np.ndarray:
        found = np.empty((*clusters.shape, 2), np.uint64)
        for r, t in np.ndindex(*clusters.shape):
            words = self.trial_words(trials, r, t)
            mine = [i for i in range(self.n) if labels[r, i] == clusters[r, t] and self.w[i] > 0]
            keys = [words[i] >> ROW_BITS << ROW_BITS | i + trials.first for i in mine]
            found[r, t] = min(keys, default=2**64 - 1), max(keys, default=0)
        return found

    # -- splits ------------------------------------------------------------------------------------

    def split_assign(self, children: np.ndarray, parents: np.ndarray, labels: np.ndarray) -> Assignment:
        new = np.empty_like(labels)
        for r, i in np.ndindex(*labels.shape):
            one, two = children[r, parents[r, i]].tolist()
            new[r, i] = 2 * parents[r, i] + (squared(self.X[i], two) < squared(self.X[i], one))
        return self.change(labels, new, 2 * children.shape[1])

    def along(self, i: int, center: np.ndarray, axis: np.ndarray) -> float:
        """⟨x − c, a⟩, added in order."""
        total = 0.0
        for x, c, a in zip(self.X[i], center.tolist(), axis.tolist(), strict=True):
            total += (x - c) * a
        return total

    def axis_partial(self, centers: np.ndarray, axes: np.ndarray, labels: np.ndarray, exponent: int) -> np.ndarray:
        sums = np.zeros((2, *centers.shape), np.int64)
        for r, i in np.ndindex(*labels.shape):
            k = labels[r, i]
            if axes[r, k].any():
                length = self.along(i, centers[r, k], axes[r, k])
                for j, (x, c) in enumerate(zip(self.X[i], centers[r, k].tolist(), strict=True)):
                    sums[:, r, k, j] += limbs((x - c) * length * self.w[i], exponent, 2)
        return sums

    def histogram_partial(self, centers, axes, labels, slots, n_slots: int, bins: int) -> np.ndarray:
        weighted = self.points.weights is not None
        sums = np.zeros((2 if weighted else 1, n_slots, bins), np.int64)
        for r, i in np.ndindex(*labels.shape):
            k = labels[r, i]
            if slots[r, k] >= 0:
                place = self.along(i, centers[r, k], axes[r, k]) + bins / 2
                at = bins - 1 if place >= bins else int(place) if place > 0 else 0
                sums[:, slots[r, k], at] += limbs(self.w[i], self.grid.weight, 2) if weighted else [1]
        return sums

    # -- fuzzy memberships -------------------------------------------------------------------------

    def shares(self, i: int, centers: list, m: Fuzzifier) -> tuple[list[float], float]:
        """u of a point, and its share of J but for the weight."""
        squares = [squared(self.X[i], c) for c in centers]
        least = min(squares)
        g = [raised(least / s if s != least else 1.0, m.ratio) for s in squares]
        total = 0.0
        for each in g:
            total += each
        return [each * (1.0 / total) for each in g], least / raised(total, m.total)

    def fuzzy_partial(self, centers: np.ndarray, m: float, exponent: int) -> tuple[np.ndarray, np.ndarray]:
        r, k, d = centers.shape
        sums, costs = np.zeros((r, k, d + 1), object), np.zeros((3, r), np.int64)
        offset, bits = self.grid.offset.tolist(), [*self.grid.coordinate.tolist(), self.grid.weight]
        for one, each in enumerate(centers.tolist()):
            for i, x in enumerate(self.X):
                u, cost = self.shares(i, each, Fuzzifier.of(m))
                costs[:, one] += limbs(cost * self.w[i], exponent, 3)
                moved = [(a - o) * math.ldexp(1.0, TERM - e) for a, o, e in zip(x, offset, bits[:-1], strict=True)]
                moved.append(math.ldexp(1.0, TERM - bits[-1]))
                for a in range(k):
                    share = raised(u[a], Fuzzifier.of(m).share) * self.w[i]
                    for j, column in enumerate(moved):
                        sums[one, a, j] += int(np.rint(share * column))
        return np.stack([sums >> LIMB, sums & ((1 << LIMB) - 1)]).astype(np.int64), costs

    def memberships(self, centers: np.ndarray, m: float) -> np.ndarray:
        rows = [self.shares(i, centers.tolist(), Fuzzifier.of(m))[0] for i in range(self.n)]
        return np.array(rows, self.points.dtype)
