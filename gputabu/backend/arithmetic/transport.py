"""Clusters of bounded size: the assignment as a transportation problem on a graph of K clusters, in integers.

The cost of point i in cluster k is c(i, k) = rint(w d² 2^e): rounded once, so a sum along a path has no rounding. A
cluster has a price. Where every point is in the cluster that minimises cost plus price, and a cluster of positive price
is full and one of negative price has its least size, no assignment within the bounds costs less (linear programming
duality). To get there:

- An edge a → b costs what the cheapest point of a costs more in b (`Lists`: the least pairs of value and row).
- One more node, the hub, stands for the free room: k → hub where k may take more, hub → k where it may have less.
- A shortest path from a cluster with too many to one with too few hands on one point per edge. Prices then change by
  the lengths of the shortest paths, so that every edge has a reduced cost >= 0, and those on the path cost 0.

Every path makes the excess less by a point, so for sizes that are counts the result is the optimum. Where sizes are
weights the same paths hand on whole points. Labels are then the best for the prices, but a cluster with a price may
miss its bound by less than the heaviest point.

Ties go to the lowest row, and to the lowest number of a node. Lists have the first M of all pairs, so the path does not
depend on M: where one has run out, `solve` asks for more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gputabu.backend.arithmetic import canonical
from gputabu.backend.arithmetic.constants import DONE, FETCH, LEAST, NEVER, PAUSED, REFILL, SINCE, STUCK
from gputabu.backend.arithmetic.fixed_point import Grid, power
from gputabu.backend.arithmetic.scratch import Scratch
from gputabu.data.points import exponent

#: Bits of a cost at the most, and of a cost times the number of clusters: sums along a path must fit into 64 bits.
COST_BITS, PATH_BITS = 50, 60


@dataclass(frozen=True, slots=True)
class Measure:
    """How costs and sizes become integers."""

    scale: float  # 2^e: a cost is rint(d² scale), or rint(w d² scale)
    weighted: bool  # whether a cost has the weight in it
    unit: float  # a size is rint(w unit); 0 where every point of positive weight counts 1

    @classmethod
    def of(cls, grid: Grid, k: int, n: int, by_weight: bool) -> Measure:
        """Costs and sizes as fine as 64 bits allow, for any point and any centre in the box of a grid."""
        bits = min(COST_BITS, PATH_BITS - k.bit_length())
        unit = float(power(60 - grid.weight - exponent(n))) if by_weight else 0.0
        return cls(float(power(bits - (grid.square if by_weight else grid.cost))), not by_weight, unit)

    def costs(self, X: np.ndarray, weights: np.ndarray | None, centers: np.ndarray, scratch: Scratch) -> np.ndarray:
        """c(i, k), (n, d), (n,), (K, d) -> (K, n) int64."""
        squares = canonical.to_all(X, centers, scratch)
        if self.weighted and weights is not None:
            squares = squares * weights
        return np.rint(squares * self.scale).astype(np.int64)

    def sizes(self, weights: np.ndarray) -> np.ndarray:
        """(n,) -> (n,) int64."""
        return np.rint(weights * self.unit).astype(np.int64) if self.unit else (weights > 0).astype(np.int64)


class Transport(NamedTuple):
    """An assignment under way. Compiled code takes it as it is."""

    labels: np.ndarray  # (N,) int32
    prices: np.ndarray  # (K,) int64
    sizes: np.ndarray  # (K,) int64
    bounds: np.ndarray  # (3,) int64: least and largest size, and what a cluster with a price may miss its bound by
    value: np.ndarray  # (K, K, M) int64, what it costs to hand a point of a to b, least first
    row: np.ndarray  # (K, K, M) int64, which one
    head: np.ndarray  # (K, K) int64, the first entry that is still in a; all before are not
    end: np.ndarray  # (K, K) int64
    limit: np.ndarray  # (2, K, K) int64: the list has all pairs (value, row) below this one
    top: np.ndarray  # (K, K) int64, the value at the head, or a lower bound of what the list has not
    known: np.ndarray  # (K, K) bool, which of the two
    X: np.ndarray  # (P, d), points at hand: all, or those that were fetched
    weights: np.ndarray  # (P,) float64, or (0,)
    place: np.ndarray  # (N,) int32, where a point is in X, or -1; (0,) where X has all
    across: np.ndarray  # (d, K) float64, centres
    status: np.ndarray  # (N_STATUS,) int64
    wanted: np.ndarray  # (K,) int64: the cluster whose lists are wanted, first; or rows to fetch, -1 behind them


def fill(state: Transport, sources: np.ndarray, value: np.ndarray, row: np.ndarray) -> None:
    """Take new lists (S, K, m), m <= M, of the clusters `sources` (S,)."""
    m = value.shape[2]
    state.value[sources, :, :m], state.row[sources, :, :m], state.head[sources] = value, row, 0
    end = (row >= 0).sum(axis=2)
    whole = end < m
    state.end[sources] = end
    state.limit[0, sources] = np.where(whole, NEVER, value[..., -1])
    state.limit[1, sources] = np.where(whole, NEVER, row[..., -1] + 1)
    state.top[sources], state.known[sources] = value[..., 0], True


def solve(state: Transport, measure: Measure, max_paths: int) -> int:
    """Hand points on along shortest paths: the plain version of `numba.kernels.transport.solve`, with its bits."""
    for _ in range(max_paths):
        flow = flows(state)
        excess = np.append(state.sizes - flow, flow.sum() - state.sizes.sum())
        if not excess.any():
            return DONE
        if is_stuck(state, measure):
            return STUCK
        node, dist, parent = shortest(state, flow, excess)
        if node < 0:
            return STUCK if node == -1 else REFILL
        edges = path(parent, node, len(state.prices))
        rows = [int(state.row[a, b, state.head[a, b]]) for a, b in edges]
        missing = [row for row in rows if len(state.place) and state.place[row] < 0]
        if missing:
            state.wanted[:] = -1
            state.wanted[: len(missing)] = missing
            return FETCH
        shift = np.minimum(dist, dist[node])
        state.prices[:] += shift[-1] - shift[:-1]
        for row, (a, b) in zip(rows, edges, strict=True):
            hand_on(state, measure, row, a, b)
    return PAUSED


def flows(state: Transport) -> np.ndarray:
    """The size that every cluster should have at its price: (K,) int64."""
    low, high, slack = state.bounds.tolist()
    least = np.where(state.prices > 0, max(low, high - slack), low)
    most = np.where(state.prices < 0, min(high, low + slack), high)
    return np.clip(state.sizes, least, most)


def is_stuck(state: Transport, measure: Measure) -> bool:
    """Whether many paths have brought sizes that are weights no nearer to their bounds."""
    if not measure.unit:
        return False
    low, high, _ = state.bounds.tolist()
    missing = int((np.maximum(state.sizes - high, 0) + np.maximum(low - state.sizes, 0)).sum())
    if state.status[LEAST] < 0 or missing < state.status[LEAST]:
        state.status[LEAST], state.status[SINCE] = missing, 0
    state.status[SINCE] += 1
    return bool(state.status[SINCE] > 64 + 8 * len(state.sizes))


def shortest(state: Transport, flow: np.ndarray, excess: np.ndarray) -> tuple[int, np.ndarray, np.ndarray]:
    """The nearest node with too few, all distances, and where one came from; -1 for no such node, -2 for no list."""
    k, (low, high, _) = len(flow), state.bounds.tolist()
    dist = np.where(excess > 0, 0, NEVER)
    parent, done = np.full(k + 1, -1), np.zeros(k + 1, np.bool_)
    while True:
        node = int(np.where(done, NEVER, dist).argmin())
        if dist[node] == NEVER or done[node]:
            return -1, dist, parent
        if excess[node] < 0:
            return node, dist, parent
        done[node] = True
        reached = np.full(k + 1, NEVER)
        if node < k:
            there = state.top[node] < NEVER
            reached[:k][there] = (dist[node] + state.top[node] + state.prices - state.prices[node])[there]
            reached[node] = NEVER
            if flow[node] < high:
                reached[k] = dist[node] + max(0, -int(state.prices[node]))
        else:
            less = flow > low
            reached[:k][less] = (dist[node] + np.maximum(0, state.prices))[less]
        better = (reached < dist) & ~done
        if node < k and (better[:k] & ~state.known[node]).any():
            state.wanted[0] = node
            return -2, dist, parent
        dist[better], parent[better] = reached[better], node


def path(parent: np.ndarray, node: int, hub: int) -> list[tuple[int, int]]:
    """The edges between clusters of the path to a node, the last first."""
    edges = []
    while parent[node] >= 0:
        if hub not in (node, parent[node]):
            edges.append((int(parent[node]), node))
        node = int(parent[node])
    return edges


def hand_on(state: Transport, measure: Measure, row: int, a: int, b: int) -> None:
    """Move a point from cluster a to b, with sizes and lists."""
    at = slice(row, row + 1) if len(state.place) == 0 else slice(state.place[row], state.place[row] + 1)
    weights = state.weights[at] if len(state.weights) else None
    size = int(measure.sizes(np.ones(1) if weights is None else weights)[0])
    state.labels[row] = b
    state.sizes[a] -= size
    state.sizes[b] += size
    for c in range(len(state.sizes)):
        advance(state, a, c)
    costs = measure.costs(state.X[at], weights, np.ascontiguousarray(state.across.T), Scratch())[:, 0]
    values = costs - costs[b]
    below = (values < state.limit[0, b]) | ((values == state.limit[0, b]) & (row < state.limit[1, b]))
    below[b] = False
    for other in np.flatnonzero(below).tolist():
        insert(state, b, other, int(values[other]), row)


def advance(state: Transport, a: int, b: int) -> None:
    """Go to the first entry of a list that is still in cluster a."""
    head, end = state.head[a, b], state.end[a, b]
    while head < end and state.labels[state.row[a, b, head]] != a:
        head += 1
    state.head[a, b] = head
    inside = head < end
    state.top[a, b] = state.value[a, b, head] if inside else state.limit[0, a, b]
    state.known[a, b] = inside or state.limit[0, a, b] == NEVER


def insert(state: Transport, a: int, b: int, value: int, row: int) -> None:
    """Enter a point of a into the list of what it costs to hand it to b; the last leaves where there is no room."""
    values, rows = state.value[a, b], state.row[a, b]
    head, end = int(state.head[a, b]), int(state.end[a, b])
    at = head
    while at < end and (values[at], rows[at]) < (value, row):
        at += 1
    if head > 0:
        values[head - 1 : at - 1], rows[head - 1 : at - 1] = values[head:at].copy(), rows[head:at].copy()
        at, head = at - 1, head - 1
    else:
        if end == len(values):
            if at == end:  # it is the first that the list has not
                state.limit[:, a, b] = value, row
                return
            end -= 1
            state.limit[:, a, b] = values[end], rows[end]
        values[at + 1 : end + 1], rows[at + 1 : end + 1] = values[at:end].copy(), rows[at:end].copy()
        end += 1
    values[at], rows[at] = value, row
    state.head[a, b], state.end[a, b] = head, end
    advance(state, a, b)


def merged(value: np.ndarray, row: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The least `count` pairs of lists (..., P) from several parts, least first: (..., count)."""
    order = np.lexsort((np.where(row < 0, NEVER, row), value), axis=-1)[..., :count]
    return np.take_along_axis(value, order, axis=-1), np.take_along_axis(row, order, axis=-1)
