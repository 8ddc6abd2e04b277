"""Clusters of bounded size in compiled code: `NumpyTransfers` and `arithmetic.transport`, function by function."""

from __future__ import annotations

import numpy as np

from gputabu.backend.arithmetic.constants import DONE, FETCH, LEAST, NEVER, PAUSED, REFILL, SINCE, STUCK
from gputabu.backend.numba.kernels.canonical import squares_to_all
from gputabu.backend.numba.kernels.jit import compiled, inner


@inner
def cost_of(square, weight, weighted, scale):
    """c(i, k) of a squared distance."""
    return np.int64(np.rint((square * weight if weighted else square) * scale))


@inner
def size_of(weight, unit):
    """The size of a point."""
    if unit > 0.0:
        return np.int64(np.rint(weight * unit))
    return np.int64(1 if weight > 0.0 else 0)


# -- lists -----------------------------------------------------------------------------------------


@inner
def comes_after(value, row, other, other_row):
    return value > other or (value == other and row > other_row)


@inner
def sink(values, rows, end, value, row):
    """Put an entry at the root of a heap of `end` entries, the last in order on top, and restore it."""
    at = 0
    while True:
        child = 2 * at + 1
        if child >= end:
            break
        if child + 1 < end and comes_after(values[child + 1], rows[child + 1], values[child], rows[child]):
            child += 1
        if not comes_after(values[child], rows[child], value, row):
            break
        values[at], rows[at] = values[child], rows[child]
        at = child
    values[at], rows[at] = value, row


@inner
def enter(values, rows, end, value, row):
    """Enter a pair into a heap that has room or drops its last; returns how many entries there are then."""
    if end == len(values):
        if comes_after(values[0], rows[0], value, row):
            sink(values, rows, end, value, row)
        return end
    at = end
    while at > 0 and comes_after(value, row, values[(at - 1) // 2], rows[(at - 1) // 2]):
        values[at], rows[at] = values[(at - 1) // 2], rows[(at - 1) // 2]
        at = (at - 1) // 2
    values[at], rows[at] = value, row
    return end + 1


@compiled
def transfer_rows(
    X, weights, first, labels, across, priced, prices, slot, scale, weighted, unit, value, row, end, bar, sizes,
    squares, costs,
):  # fmt: skip
    """`Backend.transfers_partial` for the rows from `first` on, labels (N,): lists are heaps (S, K, M).

    end (S, K) is how many entries each has, slot (K,) which list a cluster has, or -1, and bar (S, K) the value on top
    of a full heap, else NEVER.
    """
    k = across.shape[1]
    for i in range(len(X)):
        weight = weights[i] if len(weights) else 1.0
        if not priced and slot[labels[first + i]] < 0:
            sizes[labels[first + i]] += size_of(weight, unit)
            continue
        squares_to_all(X[i], across, squares)
        for a in range(k):
            costs[a] = cost_of(squares[a], weight, weighted, scale)
        if priced:
            label = 0
            if weight > 0.0:
                for a in range(1, k):
                    label = a if costs[a] + prices[a] < costs[label] + prices[label] else label
            else:
                for a in range(1, k):
                    label = a if squares[a] < squares[label] else label
            labels[first + i] = label
        own = np.uint64(labels[first + i])
        sizes[own] += size_of(weight, unit)
        if slot[own] < 0 or not weight > 0.0:
            continue
        s = np.uint64(slot[own])
        base, bars = costs[own], bar[s]
        count = 0
        for b in range(k):
            count += costs[b] - base <= bars[b]
        if count == 0:
            continue
        for b in range(k):
            if costs[b] - base <= bars[b] and b != own:
                end[s, b] = enter(value[s, b], row[s, b], end[s, b], costs[b] - base, first + i)
                if end[s, b] == value.shape[2]:
                    bars[b] = value[s, b, 0]


@compiled
def merge_heaps(value, row, end):
    """Gather the heaps of all threads, (T, S, K, M), in the first, and sort them, least first."""
    for a in range(value.shape[1]):
        for b in range(value.shape[2]):
            values, rows, last = value[0, a, b], row[0, a, b], end[0, a, b]
            for t in range(1, len(value)):
                for m in range(end[t, a, b]):
                    last = enter(values, rows, last, value[t, a, b, m], row[t, a, b, m])
            for m in range(last - 1, 0, -1):
                top, top_row, low, low_row = values[0], rows[0], values[m], rows[m]
                sink(values, rows, m, low, low_row)
                values[m], rows[m] = top, top_row
            values[last:] = NEVER
            rows[last:] = -1


# -- paths -----------------------------------------------------------------------------------------


@compiled
def solve(state, scale, weighted, unit, max_paths):
    """`arithmetic.transport.solve`."""
    k = len(state.prices)
    flow, excess = np.empty(k, np.int64), np.empty(k + 1, np.int64)
    dist, parent, done = np.empty(k + 1, np.int64), np.empty(k + 1, np.int64), np.empty(k + 1, np.bool_)
    costs, squares, edge, rows = np.empty(k, np.int64), np.empty(k), np.empty(k, np.int64), np.empty(k, np.int64)
    for _ in range(max_paths):
        if set_flows(state, flow, excess) == 0:
            return DONE
        if unit > 0.0 and is_stuck(state):
            return STUCK
        node = shortest(state, flow, excess, dist, parent, done)
        if node < 0:
            return STUCK if node == -1 else REFILL
        length = find_path(state, parent, node, edge, rows)
        if length < 0:
            return FETCH
        reach = dist[node]
        for a in range(k):
            state.prices[a] += min(dist[k], reach) - min(dist[a], reach)
        for m in range(length):
            hand_on(state, scale, weighted, unit, rows[m], parent[edge[m]], edge[m], squares, costs)
    return PAUSED


@inner
def set_flows(state, flow, excess):
    """`transport.flows`; returns how many nodes have not what they should have."""
    low, high, slack = state.bounds[0], state.bounds[1], state.bounds[2]
    k, total, wrong = len(flow), np.int64(0), 0
    for a in range(k):
        least = max(low, high - slack) if state.prices[a] > 0 else low
        most = min(high, low + slack) if state.prices[a] < 0 else high
        flow[a] = min(max(state.sizes[a], least), most)
        excess[a] = state.sizes[a] - flow[a]
        total += excess[a]
        wrong += excess[a] != 0
    excess[k] = -total
    return wrong + (total != 0)


@inner
def is_stuck(state):
    """`transport.is_stuck`."""
    missing = np.int64(0)
    for a in range(len(state.sizes)):
        missing += max(state.sizes[a] - state.bounds[1], 0) + max(state.bounds[0] - state.sizes[a], 0)
    if state.status[LEAST] < 0 or missing < state.status[LEAST]:
        state.status[LEAST], state.status[SINCE] = missing, 0
    state.status[SINCE] += 1
    return state.status[SINCE] > 64 + 8 * len(state.sizes)


@inner
def shortest(state, flow, excess, dist, parent, done):
    """`transport.shortest`."""
    k, low, high = len(flow), state.bounds[0], state.bounds[1]
    for a in range(k + 1):
        dist[a], parent[a], done[a] = (0 if excess[a] > 0 else NEVER), -1, False
    while True:
        node, least = -1, np.int64(NEVER)
        for a in range(k + 1):
            if not done[a] and dist[a] < least:
                node, least = a, dist[a]
        if node < 0:
            return -1
        if excess[node] < 0:
            return node
        done[node] = True
        if node == k:
            for a in range(k):
                if flow[a] > low and not done[a] and least + max(0, state.prices[a]) < dist[a]:
                    dist[a], parent[a] = least + max(0, state.prices[a]), node
            continue
        top, known, base = state.top[node], state.known[node], least - state.prices[node]
        for a in range(k):
            if top[a] < NEVER and not done[a] and base + top[a] + state.prices[a] < dist[a]:
                if not known[a]:
                    state.wanted[0] = node
                    return -2
                dist[a], parent[a] = base + top[a] + state.prices[a], node
        if flow[node] < high and not done[k] and least + max(0, -state.prices[node]) < dist[k]:
            dist[k], parent[k] = least + max(0, -state.prices[node]), node


@inner
def find_path(state, parent, node, edge, rows):
    """The clusters that get a point on the path to a node, and which; -1 where points have to be fetched first."""
    k, length, missing = len(state.prices), 0, 0
    while parent[node] >= 0:
        if node != k and parent[node] != k:
            a = parent[node]
            row = state.row[a, node, state.head[a, node]]
            edge[length], rows[length] = node, row
            length += 1
            if len(state.place) and state.place[row] < 0:
                if missing == 0:
                    state.wanted[:] = -1
                state.wanted[missing] = row
                missing += 1
        node = parent[node]
    return -1 if missing else length


@inner
def hand_on(state, scale, weighted, unit, row, a, b, squares, costs):
    """`transport.hand_on`."""
    k = len(costs)
    at = state.place[row] if len(state.place) else row
    weight = state.weights[at] if len(state.weights) else 1.0
    size = size_of(weight, unit)
    state.labels[row] = b
    state.sizes[a] -= size
    state.sizes[b] += size
    for c in range(k):
        advance(state, a, c)
    squares_to_all(state.X[at], state.across, squares)
    for c in range(k):
        costs[c] = cost_of(squares[c], weight, weighted, scale)
    for c in range(k):
        value = costs[c] - costs[b]
        if c != b and comes_after(state.limit[0, b, c], state.limit[1, b, c], value, row):
            insert(state, b, c, value, row)


@inner
def advance(state, a, b):
    """`transport.advance`."""
    rows, head, end = state.row[a, b], state.head[a, b], state.end[a, b]
    while head < end and state.labels[rows[head]] != a:
        head += 1
    state.head[a, b] = head
    state.top[a, b] = state.value[a, b, head] if head < end else state.limit[0, a, b]
    state.known[a, b] = head < end or state.limit[0, a, b] == NEVER


@inner
def insert(state, a, b, value, row):
    """`transport.insert`."""
    values, rows, head, end = state.value[a, b], state.row[a, b], state.head[a, b], state.end[a, b]
    at, high = head, end
    while at < high:
        middle = (at + high) // 2
        if comes_after(value, row, values[middle], rows[middle]):
            at = middle + 1
        else:
            high = middle
    if head > 0 and (end == len(values) or at - head < end - at):  # to the side where fewer have to move
        for m in range(head, at):
            values[m - 1], rows[m - 1] = values[m], rows[m]
        at -= 1
        head -= 1
    else:
        if end == len(values):
            if at == end:
                state.limit[0, a, b], state.limit[1, a, b] = value, row
                return
            end -= 1
            state.limit[0, a, b], state.limit[1, a, b] = values[end], rows[end]
        for m in range(end, at, -1):
            values[m], rows[m] = values[m - 1], rows[m - 1]
        end += 1
    values[at], rows[at] = value, row
    state.head[a, b], state.end[a, b] = head, end
    advance(state, a, b)
