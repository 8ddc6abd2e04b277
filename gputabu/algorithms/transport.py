"""The cheapest assignment of points to given centres within bounds of the sizes (`arithmetic.transport`).

The passes over the points run on the backend: one to label them by cost and price and to list what is cheapest to hand
on, and one over a single cluster whenever its list has run out. The graph of K clusters is on the host.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

import gputabu.backend
from gputabu.backend.arithmetic import transport
from gputabu.backend.arithmetic.constants import DONE, FETCH, LEAST, N_STATUS, NEVER, REFILL, STUCK
from gputabu.backend.arithmetic.transport import Measure, Transport
from gputabu.backend.base import BackendBase
from gputabu.backend.contract import Labels, Moves
from gputabu.data.points import Points

#: Entries of all lists together, for which there is room, and that cost next to nothing; and of a list at the least.
ENTRIES, CHEAP, FEWEST = 1 << 21, 1 << 13, 4
#: Entries of a list at the most: an insertion moves half of them.
MOST = 256
#: Paths between two looks at whether to give up.
PATHS = 1 << 12
#: Entries at the head of every list whose points are fetched along with one that is wanted.
AHEAD = 4


class Unbalanced(ValueError):
    """No assignment of whole points within the bounds was found."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """What a cluster must have at the least, and may have at the most."""

    low: float
    high: float
    by_weight: bool

    def integers(self, points: Points, measure: Measure) -> np.ndarray:
        """(3,) int64, as `Transport.bounds`."""
        if not self.by_weight:
            return np.array([self.low, min(self.high, points.n), 0], np.int64)
        tolerance = 2.0**-30  # sums of weights that just fit may be a rounding error beyond
        total = points.total_weight * measure.unit
        low = int(np.ceil(self.low * measure.unit * (1 - tolerance)))
        high = int(np.floor(min(self.high * measure.unit * (1 + tolerance), 2 * total)))
        lightest, most = (int(size) for size in measure.sizes(np.array(span(points))))
        if lightest == most:  # as exact as counts
            return np.array([-(-low // most) * most, high // most * most, 0])
        return np.array([low, high, most])


@dataclass(frozen=True, slots=True)
class Assigned:
    """An assignment within the bounds."""

    labels: np.ndarray  # (N,) int32 on the host
    prices: np.ndarray  # (K,) int64
    refills: int  # lists that had run out


def span(points: Points) -> tuple[float, float]:
    """The least weight that is positive, and the largest."""
    if points.weights is None:
        return 1.0, 1.0
    positive = [w[w > 0] for w in map(np.asarray, points.weights)]
    return min(float(w.min(initial=np.inf)) for w in positive), max(float(w.max(initial=0)) for w in positive)


def assign(
    backend: BackendBase,
    centers: np.ndarray,
    prices: np.ndarray,
    sizes: Sizes,
    length: int,
    give_up: Callable[[], bool] = lambda: False,
) -> Assigned | None:
    """The cheapest assignment to centers (K, d) within the bounds, from prices (K,); None if it was given up.

    Among assignments that cost the same, the prices to begin with decide. `length` of the lists does not.
    """
    work = Work(backend, centers, prices, sizes, length)
    solve = solver(backend)
    while (code := solve(work.state, work.measure, PATHS)) != DONE:
        if code == REFILL:
            work.refill(int(work.state.wanted[0]))
        elif code == FETCH:
            work.fetch()
        elif code == STUCK:
            work.repair()
            break
        elif give_up():
            return None
    return Assigned(work.state.labels, work.state.prices, work.refills)


def solver(backend: BackendBase) -> Callable[[Transport, Measure, int], int]:
    """Compiled where it can be, unless NumPy was asked for."""
    if backend.name == "numpy" or gputabu.backend.numba_unusable() is not None:
        return transport.solve
    from gputabu.backend.numba.kernels.transport import solve

    def compiled(state: Transport, measure: Measure, max_paths: int) -> int:
        return int(solve(state, measure.scale, measure.weighted, measure.unit, max_paths))

    return compiled


def list_length(k: int, n: int) -> int:
    """Entries of a list for which there is room."""
    return int(np.clip(ENTRIES // k**2, FEWEST, min(MOST, max(n, FEWEST))))


def short_length(k: int, n: int) -> int:
    """Entries of a list where few points are to be handed on."""
    return min(list_length(k, n), max(8, CHEAP // k**2))


class Work:
    """One assignment under way: the state of the graph, and labels on the backend that follow it."""

    def __init__(
        self, backend: BackendBase, centers: np.ndarray, prices: np.ndarray, sizes: Sizes, length: int
    ) -> None:
        k, points = len(centers), backend.points
        self.backend, self.centers, self.sizes, self.length = backend, centers, sizes, length
        self.measure = backend.measure(centers, sizes.by_weight)
        self.labels: Labels = backend.blank_labels(1)
        everything = np.arange(k)
        found = backend.transfers_partial(centers, self.labels, prices, everything, length, self.measure)
        self.known = backend.fetch_labels(self.labels, 0)  # what the backend has
        self.refills = 0
        pairs = (k, k)
        self.state = Transport(
            labels=self.known.copy(),
            prices=prices.copy(),
            sizes=found.sizes,
            bounds=sizes.integers(points, self.measure),
            value=np.empty((*pairs, length), np.int64),
            row=np.empty((*pairs, length), np.int64),
            head=np.zeros(pairs, np.int64),
            end=np.zeros(pairs, np.int64),
            limit=np.empty((2, *pairs), np.int64),
            top=np.empty(pairs, np.int64),
            known=np.empty(pairs, np.bool_),
            **at_hand(points),
            across=np.ascontiguousarray(centers.T),
            status=np.zeros(N_STATUS, np.int64),
            wanted=np.full(k, -1),
        )
        self.state.status[LEAST] = -1
        transport.fill(self.state, everything, found.value, found.row)

    def refill(self, cluster: int) -> None:
        """Make the lists of a cluster anew."""
        self.refills += 1
        labels = self.state.labels
        rows = np.flatnonzero(labels != self.known)
        self.backend.relabel(self.labels, Moves(np.zeros_like(rows), rows, self.known[rows], labels[rows]))
        self.known[rows] = labels[rows]
        sources = np.array([cluster])
        found = self.backend.transfers_partial(self.centers, self.labels, None, sources, self.length, self.measure)
        transport.fill(self.state, sources, found.value, found.row)

    def fetch(self) -> None:
        """Fetch the points that are wanted, and those at the heads of the lists, which soon will be."""
        state = self.state
        ahead = np.minimum(state.head[..., None] + np.arange(AHEAD), self.length - 1)
        listed = np.take_along_axis(state.row, ahead, axis=2)[ahead < state.end[..., None]]
        rows = np.unique(np.concatenate([state.wanted[state.wanted >= 0], listed]))
        rows = rows[state.place[rows] < 0]
        state.place[rows] = len(state.X) + np.arange(len(rows))
        weights = state.weights if self.backend.points.weights is None else np.concatenate(
            [state.weights, self.backend.points.weights_at(rows)]
        )  # fmt: skip
        X = np.concatenate([state.X, self.backend.rows(rows)])
        self.state = state._replace(X=read_only(X), weights=read_only(weights))

    def repair(self) -> None:
        """Where sizes are weights: move single points, the cheapest that fit, until all clusters are within bounds."""
        state, (low, high, _) = self.state, self.state.bounds.tolist()
        while True:
            over, under = state.sizes - high, low - state.sizes
            if max(over.max(), under.max()) <= 0:
                return
            target = np.arange(len(over)) if over.max() > 0 else np.array([under.argmax()])
            sources = [int(over.argmax())] if over.max() > 0 else np.flatnonzero(state.sizes > low).tolist()
            least = min((self._cheapest(a, target) for a in sources), default=(NEVER, -1, -1, -1, 0))
            value, row, a, b, size = least
            if value == NEVER:
                raise Unbalanced("no assignment of whole samples within the bounds was found")
            state.labels[row] = b
            state.sizes[a] -= size
            state.sizes[b] += size

    def _cheapest(self, a: int, target: np.ndarray) -> tuple[int, int, int, int, int]:
        """The cheapest point of a that fits into one of the clusters `target`: cost, row, a, cluster, size."""
        state, (low, high, _) = self.state, self.state.bounds.tolist()
        rows = np.flatnonzero(state.labels == a)
        weights = self.backend.points.weights_at(rows)
        size = self.measure.sizes(weights)
        costs = self.measure.costs(self.backend.rows(rows), weights, self.centers, transport.Scratch())
        costs -= costs[a].copy()
        fits = (state.sizes[:, None] + size <= high) & (size > 0) & (state.sizes[a] - size >= min(low, state.sizes[a]))
        allowed = np.zeros(len(state.sizes), np.bool_)
        allowed[target] = True
        allowed[a] = False
        costs[~(fits & allowed[:, None])] = NEVER
        if costs.size == 0 or costs.min() == NEVER:
            return NEVER, -1, -1, -1, 0
        b, i = np.unravel_index(costs.argmin(), costs.shape)
        return int(costs[b, i]), int(rows[i]), a, int(b), int(size[i])


def at_hand(points: Points) -> dict[str, Any]:
    """The points that compiled code has at hand: all where they are one array of NumPy, otherwise none yet."""
    if len(points.chunks) == 1 and isinstance(points.chunks[0], np.ndarray):
        X, weights = points.chunks[0], np.empty(0) if points.weights is None else points.weights[0]
        place = np.empty(0, np.int32)
    else:
        X, weights, place = np.empty((0, points.d)), np.empty(0), np.full(points.n, -1, np.int32)
    return {"X": read_only(X), "weights": read_only(weights), "place": place}


def read_only(array: np.ndarray) -> np.ndarray:
    """A view that compiled code knows by one type, whether or not the caller's array may be written to."""
    view = array.view()
    view.flags.writeable = False
    return view
