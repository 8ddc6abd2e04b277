"""From the restarts of a search to one result: courses are recorded, batches joined, the best is chosen."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import partial
from typing import Any

import numpy as np

from gputabu.backend.ops import Labels, Lot, Ops
from gputabu.points import Points
from gputabu.reporting import log
from gputabu.results import Clustering, Stop, Trace
from gputabu.validation import check_int
from gputabu.watching import Watch

#: Clusters that rows are dealt to for the print of the points.
PILES = 256


class Course:
    """Records what each of R restarts did, iteration by iteration, while it was active: a trace that grows."""

    def __init__(self, restarts: int) -> None:
        self.length = 0  # columns that are filled
        self._current, self._best = (np.full((restarts, 0), np.nan) for _ in range(2))  # (R, room)
        self._moves = np.full((restarts, 0), -1, np.int64)  # (R, room); the start has none
        self._means: np.ndarray | None = None  # (R, room, K)

    @classmethod
    def resumed(cls, trace: Trace) -> Course:
        """The course that led to a trace."""
        course = cls(trace.n_restarts)
        course.length = trace.current.shape[1]
        course._current, course._best, course._means = trace.current, trace.best, trace.means
        course._moves = np.pad(trace.moves, ((0, 0), (course.length - trace.moves.shape[1], 0)), constant_values=-1)
        return course

    @property
    def kept(self) -> Callable[[], Trace]:
        """A function that makes the trace as it is now, also later."""
        return partial(self.trace, self.length)

    def start(self, cost: np.ndarray, means: np.ndarray | None = None) -> None:
        i = self._column()
        self._current[:, i] = self._best[:, i] = cost
        if means is not None:
            self._means = np.full((*self._current.shape, means.shape[1]), -1, np.int64)
            self._means[:, i] = means

    def add(
        self,
        active: np.ndarray,
        cost: np.ndarray,
        moves: np.ndarray,
        means: np.ndarray | None = None,
        best: np.ndarray | None = None,
    ) -> None:
        """What the `active` restarts (A,) did: J, J_b or None for the least so far, moves (A,), M_c (A, K) if any."""
        i = self._column()
        self._current[active, i] = cost
        self._best[active, i] = np.minimum(self._best[active, i - 1], cost) if best is None else best
        self._moves[active, i] = moves
        if self._means is not None:
            self._means[active, i] = means

    def trace(self, length: int | None = None) -> Trace:
        """Of all iterations, or of the first so many columns."""
        end = self.length if length is None else length
        means = None if self._means is None else self._means[:, :end].copy()
        return Trace(self._current[:, :end].copy(), self._best[:, :end].copy(), self._moves[:, 1:end].copy(), means)

    def _column(self) -> int:
        """The number of the next column. Room doubles: a list of small arrays would take ten times as much."""
        if self.length == self._current.shape[1]:
            more = (0, max(16, self.length))
            self._current, self._best = (
                np.pad(array, ((0, 0), more), constant_values=np.nan) for array in (self._current, self._best)
            )
            self._moves = np.pad(self._moves, ((0, 0), more), constant_values=-1)
            if self._means is not None:
                self._means = np.pad(self._means, ((0, 0), more, (0, 0)), constant_values=-1)
        self.length += 1
        return self.length - 1


@dataclass(frozen=True, slots=True)
class Finished:
    """A batch of restarts that has ended; only the labels of its best restart are kept."""

    numbers: list[int]
    inertia: np.ndarray  # (R,)
    best: int  # position of the best restart in the batch
    labels: Callable[[], np.ndarray]  # (N,) of the best
    centers: np.ndarray  # (K, d) of the best
    indices: np.ndarray | None  # (K,) of the best
    stop: list[Stop]
    trace: Trace
    way: np.ndarray | None = None  # from which the labels follow, where they are not those of the nearest centres

    def plain(self) -> dict[str, Any]:
        """All but the labels."""
        return {part.name: getattr(self, part.name) for part in fields(self) if part.name != "labels"}


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


def identify(watch: Watch, ops: Ops, parameters: dict[str, Any]) -> None:
    """Tell the checkpoint, if there is one, which search this is: what determines the result, and the points."""
    if watch.checkpoint is not None:
        points = ops.points
        shape = {"n_samples": points.n, "n_features": points.d, "dtype": str(points.dtype)}
        numbers = parameters["restarts"]
        count = {"restarts": len(numbers)} if numbers == list(range(len(numbers))) else {}
        watch.checkpoint.begin(parameters | count | shape | {"X": fingerprint(ops)})


def fingerprint(ops: Ops) -> str:
    """A print of the points in their order, the same whoever holds them in whatever parts.

    Rows are dealt to piles by draws that belong to their numbers. The totals of the piles are exact; rows that change
    places change them, unless they are equal or of the same pile.
    """
    deal = Lot(PILES, 0, np.zeros(1, np.uint64), step=0, n_trials=1, limit=0)
    labels = ops.blank(1)
    totals = ops.adopt(labels, labels, deal, np.zeros(1, np.int64), np.zeros(1, np.bool_)).totals
    box = [ops.bounds.low, ops.bounds.high, np.array(ops.bounds.weight), ops.grid.offset]
    return digest(totals, *box)


def digest(*arrays: np.ndarray) -> str:
    content = hashlib.blake2b(digest_size=16)
    for array in arrays:
        content.update(repr((array.dtype.str, array.shape)).encode() + array.tobytes())
    return content.hexdigest()


def gather(
    ops: Ops,
    watch: Watch,
    batches: Iterable[Sequence[int]],
    work: Callable[[Sequence[int]], Finished],
    relabel: Callable[[Finished], Labels] | None = None,
) -> Clustering:
    """The best of all batches, each run by `work`, or as the checkpoint has it.

    `relabel` makes the labels (1, N) of a batch that the checkpoint has, if not the nearest centre does.
    """
    relabel = relabel or (lambda batch: ops.label(batch.centers[None].astype(np.float64)))
    finished: list[Finished] = []
    for batch in watch.through(batches):
        earlier = None if watch.checkpoint is None else watch.checkpoint.earlier()
        if earlier is None:
            finished.append(work(batch))
            if watch.checkpoint is not None:
                watch.checkpoint.finish(finished[-1].plain())
        else:
            finished.append(_resumed(ops, earlier, relabel))
            watch.best = min(watch.best, float(finished[-1].inertia.min()))
        report(finished[-1], watch)
    return choose(finished, ops.name, watch.halted)


def _resumed(ops: Ops, kept: dict[str, Any], relabel: Callable[[Finished], Labels]) -> Finished:
    """A batch that was finished earlier; its labels are made if it turns out to be the best."""
    batch = Finished(labels=lambda: ops.fetch(relabel(batch), 0), **kept)
    return batch


def choose(finished: Sequence[Finished], backend: str, halted: Stop | None) -> Clustering:
    """The lowest J of all restarts, the lowest restart number on ties; `halted` is why they all ended, if they did."""
    first = int(np.argmin([batch.inertia[batch.best] for batch in finished]))  # the first of equals
    won = finished[first]
    trace = _join([batch.trace for batch in finished])
    at = sum(len(batch.numbers) for batch in finished[:first]) + won.best
    return Clustering(
        labels=won.labels(),
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
