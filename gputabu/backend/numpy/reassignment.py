"""Trial labellings in NumPy: drawn piece by piece, and judged by what the few points that change do to the totals."""

from __future__ import annotations

import threading
from collections.abc import Iterable

import numpy as np
from scipy.sparse import csc_array

from gputabu.backend.arithmetic.fixed_point import Totals, quantize
from gputabu.backend.base import TrialCosts
from gputabu.backend.contract import Assignment, TrialBatch
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

        self.workers.map(relabel, self.tasks(r))
        return Assignment(totals, changed)


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

    backend.workers.map(draw, backend.tasks(r, SHARE * t))
    return fingerprints


def _trial_changes(
    backend: TiledBackend, block: Block, current: np.ndarray, trials: TrialBatch, group: slice
) -> tuple[np.ndarray, np.ndarray]:
    """What the trials of some restarts change, over a block: totals (R', T, K, C) and fingerprints (R', T, 2)."""
    r, n = current.shape
    t, k = trials.n_trials, trials.k
    words = _all_words(backend, block, trials, group)  # (R', T, n or more)
    width = words.shape[2]
    words = words.ravel()
    at = np.flatnonzero(words >= np.uint64(trials.limit))
    slot = at // width  # restart · T + trial
    point = at - slot * width
    if width > n:  # the pitch is beyond the last point
        inside = point < n
        at, slot, point = at[inside], slot[inside], point[inside]
    old = current[slot // t, point]
    new = _others(words[at], old, k)
    sums = _sums(backend, block, slot, point, old, new, r * t, k)
    # In the order of slots, fingerprints are differences of one running sum: modulo 2^64 nothing is lost.
    steps, ends = (new - old).astype(np.uint64), np.searchsorted(slot, np.arange(r * t + 1))
    factors = draws.words(trials.seed, 0, 2 * n, purpose=Purpose.PRINT, first=2 * (trials.first + block.start)).reshape(
        n, 2
    )
    fingerprints, running = np.empty((r * t, 2), np.uint64), np.zeros(len(slot) + 1, np.uint64)
    for i in (0, 1):
        np.cumsum(factors[:, i][point] * steps, out=running[1:])
        fingerprints[:, i] = np.diff(running[ends])
    return sums.reshape(r, t, k, -1), fingerprints.reshape(r, t, 2)


def _adopted(
    backend: TiledBackend, block: Block, current: np.ndarray, trials: TrialBatch, group: slice, chosen: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Restart, point and new label of what the chosen trials change."""
    n, moved = current.shape[1], np.flatnonzero(chosen >= 0)
    if trials.given is not None:
        new = np.broadcast_to(trials.given[block.rows], (len(moved), n))
        i, point = np.nonzero(new != current[moved])
        return moved[i], point, new[i, point]
    pitch = trials.pitch(backend.points.n)
    words = backend.workers.scratch("words", (len(moved), n), np.uint64)
    for row, one in zip(words, moved, strict=True):
        row[:] = _words(trials, group.start + one, int(chosen[one]) * pitch + trials.first + block.start, n)
    i, point = np.nonzero(words >= np.uint64(trials.limit))
    restart = moved[i]
    old = current[restart, point]
    new = _others(words[i, point], old, trials.k)
    changed = new != old  # all, but for K = 1
    return restart[changed], point[changed], new[changed]


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


def _others(words: np.ndarray, old: np.ndarray, k: int) -> np.ndarray:
    """The label that each word draws for a point that has label `old`, or none (-1): see `TrialBatch`."""
    has = old >= 0
    count = (k - has).astype(np.uint64)
    other = (((words & np.uint64(0xFFFFFFFF)) * count) >> np.uint64(32)).astype(np.int64)
    new = other + (has & (other >= old))
    return new if k > 1 else np.zeros_like(new)


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
