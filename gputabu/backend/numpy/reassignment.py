"""Trial labellings in NumPy: drawn piece by piece, and judged by what the few points that change do to the totals."""

from __future__ import annotations

import threading
from collections.abc import Iterable

import numpy as np
from scipy.sparse import csc_array

from gputabu.backend.arithmetic import canonical, certified, rules
from gputabu.backend.arithmetic.fixed_point import Totals, quantize
from gputabu.backend.arithmetic.keys import NO_KEY
from gputabu.backend.arithmetic.scratch import Scratch
from gputabu.backend.base import TrialCosts
from gputabu.backend.contract import ROW_BITS, Assignment, TrialBatch
from gputabu.backend.numpy.hartigan import find
from gputabu.backend.numpy.tiling import Task, TiledBackend
from gputabu.core import random as draws
from gputabu.core.random import Purpose
from gputabu.data.points import Block

#: Of the elements that a piece of work may have, the share that is drawn: the totals of its trials need the rest.
SHARE = 4
#: Elements of the totals of trials that are judged at a time, so that they stay in the cache.
JUDGED = 1 << 16


class NumpyReassignment(TiledBackend):
    """The passes of trial labellings."""

    def evaluate_trials(self, labels: np.ndarray, totals: np.ndarray, trials: TrialBatch) -> TrialCosts:
        r, k, c = totals.shape
        t = trials.n_trials
        grid, scatter = self.grid, self.scatter
        tried = self.workers.scratch("tried", (r, t, k, c), np.int64)
        tried[...] = totals[:, None]
        fingerprints = _draw(self, labels, trials, tried)
        cost = np.empty((r, t))

        def judge(groups: Iterable[slice]) -> None:
            for group in groups:
                np.subtract(scatter, grid.explained(tried[group]), out=cost[group])

        group = max(1, JUDGED // (t * k * c))
        self.workers.map(judge, [slice(a, a + group) for a in range(0, r, group)])
        return TrialCosts(np.maximum(cost, 0.0, out=cost), fingerprints)

    def evaluate_trials_partial(self, labels: np.ndarray, trials: TrialBatch) -> tuple[np.ndarray, np.ndarray]:
        columns = Totals.columns(self.points.d, self.points.weights is not None)
        change = np.zeros((len(labels), trials.n_trials, trials.k, columns), np.int64)
        self.grid  # noqa: B018 (made by the workers, and so not from within them)
        return change, _draw(self, labels, trials, change)

    def apply_trial(
        self, labels: np.ndarray, best: np.ndarray, trials: TrialBatch, chosen: np.ndarray, better: np.ndarray
    ) -> Assignment:
        r, points = len(labels), self.points
        self.grid  # noqa: B018 (made by the workers, and so not from within them)
        totals = np.zeros((r, trials.k, Totals.columns(points.d, points.weights is not None)), np.int64)
        changed = np.zeros(r, np.int64)
        lock = threading.Lock()

        def relabel(tasks: Iterable[Task]) -> None:
            for block, group in tasks:
                current = labels[group, block.rows]  # a view
                restart, point, new = _adopted(self, block, current, trials, group, chosen[group])
                sums = _sums(self, block, restart, point, current[restart, point], new, len(current), trials.k)
                current[restart, point] = new
                noted = np.flatnonzero(better[group])
                best[group, block.rows][noted] = current[noted]
                with lock:
                    totals[group] += sums
                    changed[group] += np.bincount(restart, minlength=len(current))

        self.workers.map(relabel, self.tasks(r, _width(trials, 1)))
        return Assignment(totals, changed)

    def evaluate_steps_partial(
        self, centers: np.ndarray, moves: tuple[np.ndarray, np.ndarray] | None, trials: TrialBatch
    ) -> tuple[np.ndarray, np.ndarray]:
        s, k, d = centers.shape
        fast, slack = self.product(centers, self.grid.offset), rules.slack(self.bounds)
        between, mass = (None, None) if moves is None else (self.product(moves[0], self.grid.offset), moves[1])
        totals = np.zeros((s, k, Totals.columns(d, self.points.weights is not None)), np.int64)
        fingerprints = np.zeros((s, 2), np.uint64)
        lock = threading.Lock()

        def label(tasks: Iterable[Task]) -> None:
            scratch = self.workers.scratch
            for block, group in tasks:
                new = certified.nearest(block.X, fast.select(group), scratch)
                if between is not None and mass is not None:
                    new = new.copy()
                    restart, point, target = find(block, between.select(group), mass[group], new, slack, scratch)
                    new[restart, point] = target
                everywhere = np.ones(new.shape, np.bool_)
                sums = self.change_of_totals(block, np.full_like(new, -1), new, everywhere, k)
                words = new.astype(np.uint64) @ _factors(block, trials)
                with lock:  # integers: the order does not matter
                    totals[group] += sums
                    fingerprints[group] += words

        self.workers.map(label, self.tasks(s, k))
        return totals, fingerprints

    def member_keys_partial(self, labels: np.ndarray, clusters: np.ndarray, trials: TrialBatch) -> np.ndarray:
        r, t = clusters.shape

        def look(tasks: Iterable[Task]) -> np.ndarray:
            found = np.empty((r, t, 2), np.uint64)
            found[...] = NO_KEY, 0
            for block, group in tasks:
                current, rows = labels[group, block.rows], np.arange(len(block.X)) + trials.first + block.start
                words = _all_words(self, block, trials, group)[..., : len(block.X)]
                keys = words >> np.uint64(ROW_BITS) << np.uint64(ROW_BITS) | rows.astype(np.uint64)
                mine = current[:, None] == clusters[group][..., None]  # (R', T, n)
                if block.weights is not None:
                    mine &= block.weights > 0
                least, most = np.where(mine, keys, NO_KEY).min(axis=2), np.where(mine, keys, 0).max(axis=2)
                found[group, :, 0] = np.minimum(found[group, :, 0], least)
                found[group, :, 1] = np.maximum(found[group, :, 1], most)
            return found

        parts = np.stack(self.workers.map(look, self.tasks(r, SHARE * t)))
        return np.stack([parts[..., 0].min(axis=0), parts[..., 1].max(axis=0)], axis=-1)


def _width(trials: TrialBatch, n_trials: int) -> int:
    """Elements that a point takes while so many trials of it are drawn."""
    return max(SHARE * n_trials, 2 * trials.k if trials.centers is not None else 1)


def _draw(backend: TiledBackend, labels: np.ndarray, trials: TrialBatch, tried: np.ndarray) -> np.ndarray:
    """Add what the trials change to `tried` (R, T, K, C); returns what they change in the print."""
    r, t = tried.shape[:2]
    fingerprints = np.zeros((r, t, 2), np.uint64)
    lock = threading.Lock()

    def draw(tasks: Iterable[Task]) -> None:
        for block, group in tasks:
            sums, words = _trial_changes(backend, block, labels[group, block.rows], trials, group)
            with lock:  # integers: the order does not matter
                tried[group] += sums
                fingerprints[group] += words

    backend.workers.map(draw, backend.tasks(r, _width(trials, t)))
    return fingerprints


def _trial_changes(
    backend: TiledBackend, block: Block, current: np.ndarray, trials: TrialBatch, group: slice
) -> tuple[np.ndarray, np.ndarray]:
    """What the trials of some restarts change, over a block: totals (R', T, K, C) and fingerprints (R', T, 2)."""
    r, t, k = len(current), trials.n_trials, trials.k
    if trials.cuts is None:
        words = _all_words(backend, block, trials, group)  # (R', T, n or more)
        slot, point, new = _drawn(block, current, trials, group, words.reshape(r * t, -1), np.arange(r * t) // t)
    else:
        slot, point, new = _cut(block, current, trials, group, *np.divmod(np.arange(r * t), t))
    old = current[slot // t, point]
    sums = _sums(backend, block, slot, point, old, new, r * t, k)
    # In the order of slots, fingerprints are differences of one running sum: modulo 2^64 nothing is lost.
    steps, ends = (new - old).astype(np.uint64), np.searchsorted(slot, np.arange(r * t + 1))
    factors = _factors(block, trials)
    fingerprints, running = np.empty((r * t, 2), np.uint64), np.zeros(len(slot) + 1, np.uint64)
    for i in (0, 1):
        np.cumsum(factors[:, i][point] * steps, out=running[1:])
        fingerprints[:, i] = np.diff(running[ends])
    return sums.reshape(r, t, k, -1), fingerprints.reshape(r, t, 2)


def _factors(block: Block, trials: TrialBatch) -> np.ndarray:
    """What the labels of a block's points are multiplied by in fingerprints, (n, 2)."""
    first = 2 * (trials.first + block.start)
    return draws.words(trials.seed, 0, 2 * len(block.X), purpose=Purpose.PRINT, first=first).reshape(-1, 2)


def _adopted(
    backend: TiledBackend, block: Block, current: np.ndarray, trials: TrialBatch, group: slice, chosen: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Restart, point and new label of what the chosen trials change."""
    n, moved = current.shape[1], np.flatnonzero(chosen >= 0)
    if trials.given is not None:
        mine = np.minimum(group.start + moved, len(trials.given) - 1)
        new = trials.given[mine, block.rows]
        i, point = np.nonzero(new != current[moved])
        return moved[i], point, new[i, point]
    if trials.cuts is None:
        pitch = trials.pitch(backend.points.n)
        words = backend.workers.scratch("words", (len(moved), n), np.uint64)
        for row, one in zip(words, moved, strict=True):
            row[:] = _words(trials, group.start + one, int(chosen[one]) * pitch + trials.first + block.start, n)
        i, point, new = _drawn(block, current, trials, group, words, moved)
    else:
        i, point, new = _cut(block, current, trials, group, moved, chosen[moved])
    restart = moved[i]
    changed = new != current[restart, point]
    return restart[changed], point[changed], new[changed]


def _drawn(
    block: Block, current: np.ndarray, trials: TrialBatch, group: slice, words: np.ndarray, restart: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Slot, point and label of the points that draw one: words (P, n or more), restart (P,) of each slot."""
    n, width = current.shape[1], words.shape[1]
    words = words.ravel()
    at = np.flatnonzero(words >= np.uint64(trials.limit))
    slot = at // width
    point = at - slot * width
    if width > n:  # the pitch is beyond the last point
        inside = point < n
        at, slot, point = at[inside], slot[inside], point[inside]
    if trials.centers is None:
        return slot, point, _others(words[at], current[restart[slot], point], trials.k)
    return slot, point, _by_distance(block, trials.centers[group], words[at], restart[slot], point)


def _others(words: np.ndarray, old: np.ndarray, k: int) -> np.ndarray:
    """The label that each word draws for a point that has label `old`, or none (-1): see `TrialBatch`."""
    has = old >= 0
    count = (k - has).astype(np.uint64)
    other = (((words & np.uint64(0xFFFFFFFF)) * count) >> np.uint64(32)).astype(np.int64)
    new = other + (has & (other >= old))
    return new if k > 1 else np.zeros_like(new)


def _by_distance(
    block: Block, centers: np.ndarray, words: np.ndarray, restart: np.ndarray, point: np.ndarray
) -> np.ndarray:
    """The label that each word draws by the distances of a point to centers (R', K, d): see `TrialBatch`."""
    new = np.empty(len(words), np.int64)
    for r, mine in enumerate(centers):
        here = np.flatnonzero(restart == r)
        rows, at = np.unique(point[here], return_inverse=True)
        reach = np.sqrt(canonical.to_all(block.X[rows], mine, Scratch()))  # (K, u)
        shares = (1.5 * reach.max(axis=0, initial=0.0) - reach) + 0.5
        running = np.cumsum(shares, axis=0)  # one after the other
        low = (words[here] & np.uint64(0xFFFFFFFF)).astype(np.float64) * 2.0**-32
        step = max(1, JUDGED // len(mine))
        for a in range(0, len(here), step):
            part = slice(a, a + step)
            new[here[part]] = (running[:, at[part]] > running[-1, at[part]] * low[part]).argmax(axis=0)
    return new


def _cut(
    block: Block, current: np.ndarray, trials: TrialBatch, group: slice, restart: np.ndarray, trial: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Slot, point and label of the points of clusters that are joined or split: restart, trial (P,) of each slot."""
    assert trials.cuts is not None
    assert trials.pairs is not None
    old, number = current[restart], group.start + restart  # (P, n)
    gone, into, cut = trials.cuts[number, trial].T  # (P,) each
    slot, point = np.nonzero((old == gone[:, None]) | (old == cut[:, None]))
    new = np.where(old[slot, point] == gone[slot], into[slot], -1).astype(np.int64)
    split = np.flatnonzero(new < 0)
    ends = trials.pairs[number, trial].reshape(-1, block.X.shape[1])  # (2P, d)
    near, far = (canonical.of_pairs(block.X, point[split], ends, 2 * slot[split] + end) for end in (0, 1))
    new[split] = np.where(far < near, gone[slot[split]], cut[slot[split]])
    return slot, point, new


def _all_words(backend: TiledBackend, block: Block, trials: TrialBatch, group: slice) -> np.ndarray:
    """The words of a block's points in all trials of some restarts: (R', T, n), or more where that is one stretch."""
    n, t, pitch = len(block.X), trials.n_trials, trials.pitch(backend.points.n)
    whole = n == backend.points.n and trials.total is None
    words = backend.workers.scratch("words", (group.stop - group.start, t, pitch if whole else n), np.uint64)
    for words_of_restart, restart in zip(words, range(group.start, group.stop), strict=True):
        if whole:
            words_of_restart.ravel()[:] = _words(trials, restart, 0, t * pitch)
        else:
            for trial in range(t):
                words_of_restart[trial] = _words(trials, restart, trial * pitch + trials.first + block.start, n)
    return words


def _words(trials: TrialBatch, restart: int, first: int, count: int) -> np.ndarray:
    number = int(trials.restarts[restart])
    return draws.words(trials.seed, number, count, purpose=Purpose.TRIAL, step=trials.step, first=first)


def _sums(
    backend: TiledBackend,
    block: Block,
    slot: np.ndarray,
    point: np.ndarray,
    old: np.ndarray,
    new: np.ndarray,
    slots: int,
    k: int,
) -> np.ndarray:
    """What the totals of each slot gain as its points go from `old` to `new` labels: (slots, K, C) int64."""
    order = np.argsort(point.astype(np.uint16), kind="stable")  # a radix sort: blocks have at most 2^16 rows
    ends = np.zeros(len(block.X) + 1, np.int32)
    np.cumsum(2 * np.bincount(point, minlength=len(block.X)), out=ends[1:])
    nowhere = slots * k  # an extra row of the sums takes what leaves no cluster
    slot = slot * k
    rows, signs = np.empty((len(slot), 2), np.int32), np.empty((len(slot), 2))
    rows[:, 0] = (slot + new)[order]
    rows[:, 1] = np.where(old < 0, nowhere, slot + old)[order]
    signs[:] = (1.0, -1.0)
    picks = csc_array((signs.ravel(), rows.ravel(), ends), shape=(nowhere + 1, len(block.X)))
    terms = np.concatenate(quantize(block.X, block.weights, backend.grid, backend.workers.scratch), axis=1)
    return (picks @ terms)[:-1].astype(np.int64).reshape(slots, k, -1)
