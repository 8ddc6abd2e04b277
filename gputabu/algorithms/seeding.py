"""Where restarts begin: K points at random, or K-Means++ (Arthur and Vassilvitskii 2007, greedy)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gputabu.algorithms.checkpoint import Stage, digest
from gputabu.backend import to_numpy
from gputabu.backend.arithmetic.constants import ENOUGH_BITS, POTENTIAL_BITS
from gputabu.backend.base import BackendBase
from gputabu.core import random
from gputabu.core.random import Purpose
from gputabu.core.validation import check_choice, check_finite, check_indices, check_int
from gputabu.data.points import Points, Shape

#: What `init=` accepts by name.
METHODS = ("random", "k-means++")


def random_points(backend: BackendBase, k: int, seed: int, restarts: Sequence[int]) -> np.ndarray:
    """K points of distinct value per restart, drawn in proportion to weight: (R, K) row numbers.

    Where the data has fewer distinct values than K, the rest are repeated.
    """
    return np.stack([_distinct(backend, k, seed, restart) for restart in restarts])


def plus_plus(
    backend: BackendBase,
    k: int,
    seed: int,
    restarts: Sequence[int],
    trials: int | None = None,
    stage: Stage | None = None,
) -> np.ndarray:
    """K-Means++: each next point is drawn in proportion to weight times D², (R, K) row numbers.

    The best of `trials` draws (by default 2 + ln K, as in scikit-learn) is taken; 1 is the original.
    Draws are exact: potentials are integers, and so are the running totals that a draw is looked up in.
    """
    t = default_trials(k) if trials is None else trials
    words = np.stack([random.words(seed, restart, 1 + (k - 1) * t) for restart in restarts])  # (R, W)
    first, words = by_weight(backend.points, words[:, 0]), words[:, 1:].reshape(len(restarts), k - 1, t)
    rest = None if stage is not None and stage.kept else backend.loops.plus_plus(first, words)
    if rest is None:
        min_sq_dist = backend.infinite_sq_dist(len(restarts))  # (R, N) d² to the nearest point chosen
        rest = grow(backend, min_sq_dist, first, words, stage)
    elif (undrawn := rest < 0).any():
        rest[undrawn] = by_weight(backend.points, words[undrawn, 0])
    return np.concatenate([first[:, None], rest], axis=1)


def default_trials(k: int) -> int:
    """Draws per point, as in scikit-learn."""
    return 2 + int(np.log(k))


def extend(backend: BackendBase, centers: np.ndarray, count: int, seed: int, trials: int) -> np.ndarray:
    """Go on with K-Means++ from centers (K, d), which need not be points: (K + count, d).

    Draws depend on the seed and K, not on how the centres came about.
    """
    k = len(centers)
    words = random.words(seed, k, count * trials, purpose=Purpose.GROWTH).reshape(1, count, trials)
    min_sq_dist = backend.infinite_sq_dist(1)
    for center in centers:
        backend.lower_sq_dist(center[None], min_sq_dist)
    return np.concatenate([centers, backend.rows(grow(backend, min_sq_dist, None, words)[0])])


def shrink(centers: np.ndarray, weights: np.ndarray, count: int) -> tuple[np.ndarray, float]:
    """Merge the two clusters whose union adds least to J (Ward 1963), `count` times.

    centroids (K, d), weights (K,) -> (K - count, d), and what J becomes greater by if points stay with their clusters.
    """
    centers, weights, added = centers.copy(), weights.astype(np.float64), 0.0
    for _ in range(count):
        squares = sum((x[:, None] - x) ** 2 for x in centers.T)
        both = weights[:, None] + weights
        costs = weights[:, None] * weights / np.where(both > 0, both, 1) * squares
        costs[np.tril_indices(len(costs))] = np.inf
        a, b = np.unravel_index(costs.argmin(), costs.shape)  # the first of equals
        added += float(costs[a, b])
        if both[a, b] > 0:
            centers[a] += (centers[b] - centers[a]) * (weights[b] / both[a, b])
        weights[a] = both[a, b]
        centers, weights = np.delete(centers, b, axis=0), np.delete(weights, b)
    return centers, added


def grow(
    backend: BackendBase, min_sq_dist: Any, last: np.ndarray | None, words: np.ndarray, stage: Stage | None = None
) -> np.ndarray:
    """Draw one more seed after the other: words (R, C, T) -> (R, C) row numbers.

    `covered` (R, N) takes in the seeds as they come; `last` (R,) are rows that it does not know yet.
    """
    r, count, _ = words.shape
    chosen = np.empty((r, count), np.int64)
    shift = np.full(r, backend.grid.coarsest(backend.points.n))
    potential, drawn = None, 0
    stage = Stage() if stage is None else stage
    if (saved := stage.state) is not None:
        drawn, shift, potential = saved["chosen"].shape[1], saved["shift"], saved["potential"]
        chosen[:, :drawn] = saved["chosen"]
        for rows in (last, *chosen.T[: drawn - 1]):
            backend.lower_sq_dist(backend.rows(rows), min_sq_dist)
        last = chosen[:, drawn - 1]
    for i in range(drawn, count):
        if last is not None:
            backend.lower_sq_dist(backend.rows(last), min_sq_dist)
        shift, potential = refine(backend, min_sq_dist, shift, potential)
        mine = words[:, i]  # (R, T)
        live = potential > 0
        targets = random.below(mine, np.where(live, potential, 1)[:, None])
        candidates = backend.sample(min_sq_dist, shift, np.where(live[:, None], targets, -1))
        candidates[~live] = by_weight(backend.points, mine[~live])  # every point is on a chosen one
        gains = backend.seed_gains(backend.rows(candidates), min_sq_dist, shift)  # (R, T)
        best = gains.argmax(axis=1)[:, None]  # the first of equals
        last = chosen[:, i] = np.take_along_axis(candidates, best, axis=1)[:, 0]
        potential = potential - np.take_along_axis(gains, best, axis=1)[:, 0]
        stage.keep({"chosen": chosen[:, : i + 1].copy(), "shift": shift, "potential": potential})
    return chosen


def by_weight(points: Points, words: np.ndarray) -> np.ndarray:
    """Row numbers drawn in proportion to weight, one per word."""
    prefix = points.weight_prefix
    if prefix is None:
        return random.below(words, np.array(points.n))
    return np.searchsorted(prefix, random.below(words, prefix[-1]), side="right")


def _distinct(backend: BackendBase, k: int, seed: int, restart: int) -> np.ndarray:
    """The first K rows of distinct value in a sequence of random."""
    points, n_draws = backend.points, 2 * k + 16
    while True:
        rows = by_weight(points, random.words(seed, restart, n_draws))
        _, first = np.unique(backend.rows(rows), axis=0, return_index=True)
        if len(first) >= k:
            return rows[np.sort(first)[:k]]
        if n_draws > 64 * (points.n + 16):  # few values, or weights so uneven that some never come
            return _fill(rows[np.sort(first)], backend, k)
        n_draws *= 4


def _fill(rows: np.ndarray, backend: BackendBase, k: int) -> np.ndarray:
    """Complete `rows` to K by rows of positive weight: first of other values, then not yet taken, then again."""
    weights = backend.points.weights
    heavy = np.arange(backend.points.n) if weights is None else np.flatnonzero(np.concatenate(weights) > 0)
    order = np.concatenate([rows, np.setdiff1d(heavy, rows)])
    _, first = np.unique(backend.rows(order), axis=0, return_index=True)
    other = np.sort(first)
    rest = np.setdiff1d(np.arange(len(order)), other)
    return np.resize(order[np.concatenate([other, rest])], k)


def refine(
    backend: BackendBase, min_sq_dist: object, shift: np.ndarray, potential: np.ndarray | None
) -> tuple[np.ndarray, np.ndarray]:
    """Keep the integers of the potential large: as it falls by orders of magnitude, so does the grid."""
    if potential is None:
        potential = backend.potential(min_sq_dist, shift)
    limit = backend.grid.finest
    while True:
        bits = np.array([int(p).bit_length() for p in potential])
        poor = (bits < ENOUGH_BITS) & (shift < limit)
        if not poor.any():
            return shift, potential
        shift = np.where(poor, np.minimum(shift + POTENTIAL_BITS - np.maximum(bits, 4), limit), shift)
        potential = backend.potential(min_sq_dist, shift)


@dataclass(frozen=True)
class Init:
    """Where restarts begin, as `init=` says it: checked before anything is computed."""

    k: int
    seed: int
    method: str | None  # "random", "k-means++", or None where `given` or `function` is
    given: np.ndarray | None = None  # (K, d) centres or (K,) row numbers
    trials: int | None = None
    function: Callable[..., Any] | None = None  # of X, K and a random state: (K, d) centres

    @classmethod
    def checked(cls, init: object, k: int, seed: int, shape: Shape, trials: int | None = None) -> Init:
        if trials is not None:
            check_int("trials", trials, 1)
        check_int("seed", seed, 0, 2**64 - 1)
        if isinstance(init, str):
            return cls(k, seed, check_choice("init", init, METHODS), trials=trials)
        if callable(init):
            return cls(k, seed, None, function=init)
        return cls(k, seed, None, check_init(init, k, shape))

    def on_groups(self, backend: BackendBase) -> Init:
        """The same where groups of rows are the points: rows that were given are centres then."""
        rows = self.given is not None and self.given.ndim == 1
        return replace(self, given=backend.rows(self.given)) if rows else self  # type: ignore[arg-type]

    @property
    def draws(self) -> int:
        """Draws per point of K-Means++."""
        return default_trials(self.k) if self.trials is None else self.trials

    @property
    def name(self) -> str:
        """What `init` was; of an array its digest."""
        if self.function is not None:
            return f"function {getattr(self.function, '__qualname__', type(self.function).__name__)}"
        return self.method or digest(np.asarray(self.given))

    def indices(self, backend: BackendBase, restarts: Sequence[int], stage: Stage | None = None) -> np.ndarray:
        """(R, K) row numbers; centres that were given are moved to the nearest point."""
        if self.method == "random":
            return random_points(backend, self.k, self.seed, restarts)
        if self.method == "k-means++":
            return plus_plus(backend, self.k, self.seed, restarts, self.trials, stage)
        if self.function is not None:
            return np.stack([backend.closest(centers) for centers in self.centers(backend, restarts)])
        assert self.given is not None
        rows = self.given if self.given.ndim == 1 else backend.closest(self.given)
        return np.tile(rows, (len(restarts), 1))

    def centers(self, backend: BackendBase, restarts: Sequence[int], stage: Stage | None = None) -> np.ndarray:
        """(R, K, d) float64."""
        if self.function is not None:
            X = all_points(backend)
            return np.stack([self._made(X, restart) for restart in restarts])
        if self.given is not None and self.given.ndim == 2:
            return np.tile(self.given, (len(restarts), 1, 1))
        return backend.rows(self.indices(backend, restarts, stage))

    def _made(self, X: np.ndarray, restart: int) -> np.ndarray:
        """Centres (K, d) by the function, with random numbers that belong to the restart."""
        assert self.function is not None
        words = np.array([self.seed, restart], np.uint64).view(np.uint32)
        made = self.function(X, self.k, random_state=np.random.RandomState(words))
        return check_init(made, self.k, Shape(len(X), X.shape[1], X.dtype), rows=False)


def all_points(backend: BackendBase) -> np.ndarray:
    """X (N, d) on the host, for a function of the caller's."""
    points = backend.points
    if points.out_of_core:
        raise ValueError("init is a function, which would need all of X in memory; pass the centres that it returns.")
    if len(points.chunks) == 1 and not points.on_device:
        return points.chunks[0]
    return backend.rows(np.arange(points.n)).astype(points.dtype)


def check_init(init: object, k: int, shape: Shape, rows: bool = True) -> np.ndarray:
    """Centres (K, d) as float64, or row numbers (K,) as int64 where these are allowed."""
    try:
        array = to_numpy(init, "init")
    except ValueError:
        array = np.empty(0, object)
    n, d = shape.n, shape.d
    allowed = f"one of {METHODS}, a function, centres of shape ({k}, {d}) or {k} row numbers"
    if not rows:
        allowed = f"centres of shape ({k}, {d}) where it is a function"
    if array.dtype.kind not in "fiu" or array.ndim not in (1, 2):
        raise ValueError(f"init={init!r} must be {allowed}.")
    if rows and array.shape == (k,) and array.dtype.kind in "iu":
        return check_indices("init", array, n)
    if array.shape != (k, d):
        raise ValueError(f"init has shape {array.shape} and dtype {array.dtype}; it must be {allowed}.")
    check_finite(array, "init")
    most = np.finfo(shape.dtype).max
    if np.abs(array).max() > most:
        worst = array.flat[np.abs(array).argmax()]
        raise ValueError(f"init contains {worst:g}; of X in {shape.dtype}, absolute values must be at most {most:g}.")
    return array.astype(np.float64)
