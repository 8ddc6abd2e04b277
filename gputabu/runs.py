"""From the restarts of a search to one result: courses are recorded, batches joined, the best is chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from gputabu.points import Points
from gputabu.reporting import log
from gputabu.results import Clustering, Stop, Trace
from gputabu.validation import check_int
from gputabu.watching import Watch


@dataclass(frozen=True, slots=True)
class Entry:
    """One iteration of the restarts that were still active."""

    active: np.ndarray  # (A,) which
    cost: np.ndarray  # (A,) J
    best: np.ndarray | None  # (A,) J_b, or None for the least so far
    moves: np.ndarray | None  # (A,), or None at the start
    means: np.ndarray | None  # (A, K)


class Course:
    """Records what each of R restarts did, iteration by iteration, while it was active."""

    def __init__(self, restarts: int) -> None:
        self.restarts = restarts
        self.entries: list[Entry] = []

    def start(self, cost: np.ndarray, means: np.ndarray | None = None) -> None:
        self.entries.append(Entry(np.arange(self.restarts), cost, cost, None, means))

    def add(
        self,
        active: np.ndarray,
        cost: np.ndarray,
        moves: np.ndarray,
        means: np.ndarray | None = None,
        best: np.ndarray | None = None,
    ) -> None:
        self.entries.append(Entry(active, cost, best, moves, means))

    def trace(self) -> Trace:
        r, t = self.restarts, len(self.entries)
        current, best = np.full((r, t), np.nan), np.full((r, t), np.nan)
        moves = np.full((r, max(t - 1, 0)), -1, np.int64)
        first = self.entries[0].means if t else None
        means = None if first is None else np.full((r, t, first.shape[1]), -1, np.int64)
        for i, entry in enumerate(self.entries):
            current[entry.active, i] = entry.cost
            least = np.minimum(best[entry.active, i - 1], entry.cost) if entry.best is None else entry.best
            best[entry.active, i] = least
            if entry.moves is not None:
                moves[entry.active, i - 1] = entry.moves
            if means is not None and entry.means is not None:
                means[entry.active, i] = entry.means
        return Trace(current, best, moves, means)


@dataclass(frozen=True, slots=True)
class Finished:
    """A batch of restarts that has ended; only the labels of its best restart are kept."""

    numbers: list[int]
    inertia: np.ndarray  # (R,)
    best: int  # position of the best restart in the batch
    labels: np.ndarray  # (N,) of the best
    centers: np.ndarray  # (K, d) of the best
    indices: np.ndarray | None  # (K,) of the best
    stop: list[Stop]
    trace: Trace


def restart_numbers(restarts: int | Sequence[int]) -> list[int]:
    """The numbers of the restarts to run: 0, 1, … for a count."""
    if isinstance(restarts, str) or not isinstance(restarts, Sequence | np.ndarray):
        return list(range(check_int("restarts", restarts, 1)))
    if len(restarts) == 0:
        raise ValueError("restarts=[] must name at least one restart.")
    return [check_int("restarts", number, 0, 2**64 - 1) for number in restarts]


def announce(points: Points, n_clusters: int, restarts: Sequence[int], backend: str) -> None:
    """Log what is about to be done."""
    log.info(
        "%d points, %d features, %s; %d clusters, %d restarts on %s",
        points.n, points.d, points.dtype, n_clusters, len(restarts), backend,
    )  # fmt: skip


def report(batch: Finished, watch: Watch) -> None:
    """Say how a batch of restarts ended."""
    watch.concluded(batch.trace.n_iter, batch.inertia)
    best = batch.best
    log.info(
        "restarts %d to %d: J from %.10g to %.10g, the best (restart %d) stopped as %s",
        batch.numbers[0], batch.numbers[-1], batch.inertia.min(), batch.inertia.max(),
        batch.numbers[best], batch.stop[best],
    )  # fmt: skip


def choose(finished: Sequence[Finished], backend: str, halted: Stop | None) -> Clustering:
    """The lowest J of all restarts, the lowest restart number on ties; `halted` is why they all ended, if they did."""
    first = int(np.argmin([batch.inertia[batch.best] for batch in finished]))  # the first of equals
    won = finished[first]
    trace = _join([batch.trace for batch in finished])
    at = sum(len(batch.numbers) for batch in finished[:first]) + won.best
    return Clustering(
        labels=won.labels,
        centers=won.centers,
        inertia=float(won.inertia[won.best]),
        center_indices=won.indices,
        n_iter=int(trace.n_iter[at]),
        stop=halted or won.stop[won.best],
        restart=won.numbers[won.best],
        inertias=np.concatenate([batch.inertia for batch in finished]),
        trace=trace,
        backend=backend,
    )


def merge(shares: Sequence[Clustering]) -> Clustering:
    """The clustering of all restarts from those of some each, in their order."""
    won = shares[int(np.argmin([share.inertia for share in shares]))]  # the first of equals
    inertias = np.concatenate([share.inertias for share in shares])
    return replace(won, inertias=inertias, trace=_join([share.trace for share in shares]))


def _join(traces: Sequence[Trace]) -> Trace:
    """One trace of all batches, padded to the longest."""
    if len(traces) == 1:
        return traces[0]
    t = max(trace.current.shape[1] for trace in traces)

    def pad(array: np.ndarray, length: int, value: float) -> np.ndarray:
        widths = [(0, 0), (0, length - array.shape[1])] + [(0, 0)] * (array.ndim - 2)
        return np.pad(array, widths, constant_values=value)

    means = [pad(trace.means, t, -1) for trace in traces if trace.means is not None]
    return Trace(
        np.concatenate([pad(trace.current, t, np.nan) for trace in traces]),
        np.concatenate([pad(trace.best, t, np.nan) for trace in traces]),
        np.concatenate([pad(trace.moves, t - 1, -1) for trace in traces]),
        np.concatenate(means) if means else None,
    )
