"""The driver of every search: open the backend, run the restarts batch by batch, gather the best.

An algorithm is a `Search`: its parameters, checked, and what it does with one batch of restarts. All else is here:
numbers of restarts, batches that fit into memory, checkpoints, the choice of the best.
"""

from __future__ import annotations

import itertools
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import chain, takewhile
from typing import Any

import numpy as np

from gputabu.algorithms.checkpoint import digest
from gputabu.algorithms.groups import Groups
from gputabu.algorithms.monitor import Monitor
from gputabu.algorithms.progress import ProgressEstimate
from gputabu.backend import BackendChoice, Devices, as_caller_arrays, open_backend
from gputabu.backend.base import BackendBase
from gputabu.backend.compiled_code import cheaper_without, remember
from gputabu.backend.contract import Labels, TrialBatch
from gputabu.backend.tuning import Tuning
from gputabu.core.log import log
from gputabu.core.results import Clustering, Stop, Trace
from gputabu.core.validation import check_int
from gputabu.data.memmaps import labels_file
from gputabu.data.points import Points

#: Bytes per restart and point in the greediest phase (seeding: d², its integers and their running total).
POINT_BYTES = 32
#: Restarts that follow at once, at the least, while there is time.
FURTHER = 10
#: Clusters that rows are dealt to for the fingerprint of the points.
PILES = 256


@dataclass(frozen=True, slots=True)
class FinishedBatch:
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
    validity: float | None = None  # the index of a search that goes by one

    def plain(self) -> dict[str, Any]:
        """All but the labels."""
        return {part.name: getattr(self, part.name) for part in fields(self) if part.name != "labels"}


class Search(ABC):
    """An algorithm and its parameters, which are checked when it is made. It runs one batch of restarts at a time."""

    name: str  # in checkpoints
    k: int
    max_iter: int | None  # None for none
    patience: int | None  # iterations without improvement after which a restart stops; None for none
    endless = False  # whether more restarts follow those asked for, until `max_time` is over
    ungrouped: str | None = "it has no rule for them"  # why rows of a group cannot be kept together; None if they can

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """The parameters that decide the result: a checkpoint is of one search only."""

    @abstractmethod
    def run(self, backend: BackendBase, batch: Sequence[int], monitor: Monitor) -> FinishedBatch:
        """Run these restarts, all at once."""

    def on_groups(self, backend: BackendBase, groups: Groups, constant: float) -> Search:
        """This search on the groups of rows as points; J of all points is more by a constant."""
        return self

    def check(self, points: Points) -> None:
        """Raise where the points, with their weights, do not fit the parameters. Called before any work."""
        return None

    def starts(self, backend: BackendBase, batch: Sequence[int], monitor: Monitor) -> list[np.ndarray]:
        """Centres, each (R, K, d), that a search for clusters of bounded size begins with; the best way counts."""
        raise NotImplementedError

    def labels(self, backend: BackendBase, batch: FinishedBatch) -> Labels:
        """The labels (1, N) of the best of a batch that was finished earlier."""
        return backend.label(batch.centers[None].astype(np.float64))

    def width(self, points: Points) -> int:
        """What a restart holds, counted in points."""
        return points.n


def run_restarts(
    points: Points,
    search: Search,
    restarts: int | Sequence[int],
    monitor: Monitor,
    *,
    backend: BackendChoice = "auto",
    device: Devices = None,
    labels_out: object = None,
    groups: object = None,
) -> Clustering:
    """Run a search from one or more starts and return the best, as the kind of arrays that came in."""
    numbers = restart_numbers(restarts)
    search.check(points)
    linked = check_groups(groups, search, points)
    labels_to = labels_file(labels_out, points.n)
    estimate = ProgressEstimate(len(numbers), search.max_iter, search.patience)
    may_compile = backend != "auto" or not cheaper_without(
        points, search.name, search.k * len(numbers), search.max_iter, monitor.seconds
    )
    with open_backend(points, backend, device, may_compile) as opened, monitor.opened(search.k, estimate):
        announce(points, search.k, numbers, opened.name)
        identity = {"search": search.name, **search.identity(), "restarts": numbers}
        if linked is None:
            identify(monitor, opened, identity)
            finished = list(run_batches(opened, search, numbers, monitor))
        else:
            identify(monitor, opened, {**identity, "groups": digest(linked.numbers)})
            finished = run_on_groups(opened, search, numbers, monitor, linked)
        found = best_of(finished, opened.name, monitor.halted)
        if opened.name == "numba":
            remember(points, search.name)
        return as_caller_arrays(found, points, labels_to)


def check_groups(groups: object, search: Search, points: Points) -> Groups | None:
    """The groups, if there are any."""
    if groups is None:
        return None
    if search.ungrouped is not None:
        raise TypeError(f"groups cannot go with this search: {search.ungrouped}.")
    return Groups.checked(groups, points.n, search.k)


def run_on_groups(
    backend: BackendBase, search: Search, numbers: Sequence[int], monitor: Monitor, groups: Groups
) -> list[FinishedBatch]:
    """All batches of a search that keeps rows of a group together."""
    with groups.collapsed(backend) as (few, constant):
        monitor.constant = constant
        finished = run_batches(few, search.on_groups(backend, groups, constant), numbers, monitor)
        return [groups.restored(batch, backend, constant) for batch in finished]


def run_batches(
    backend: BackendBase, search: Search, numbers: Sequence[int], monitor: Monitor
) -> Iterator[FinishedBatch]:
    """Every batch as the search finishes it, or as the checkpoint has it."""
    checkpoint, width = monitor.checkpoint, search.width(backend.points)
    cuts = batches(numbers, width, backend.tuning)
    reached = False  # what could not be better
    if search.endless and monitor.timed:
        cuts = chain(cuts, takewhile(lambda _: not reached, further_batches(numbers, width, backend.tuning)))
    for batch in monitor.batches(cuts):
        earlier = None if checkpoint is None else checkpoint.earlier()
        if earlier is None:
            finished = search.run(backend, batch, monitor)
            if checkpoint is not None:
                checkpoint.finish(finished.plain())
        else:
            finished = _resumed(backend, search, earlier)
            monitor.best = min(monitor.best, float(finished.inertia.min()) + monitor.constant)
        report(finished, monitor)
        reached = reached or Stop.TARGET in finished.stop or finished.inertia.min() == 0
        yield finished


def _resumed(backend: BackendBase, search: Search, kept: dict[str, Any]) -> FinishedBatch:
    """A batch that was finished earlier; its labels are made if it turns out to be the best."""
    batch = FinishedBatch(labels=lambda: backend.result_labels(search.labels(backend, batch), 0), **kept)
    return batch


def batches(restarts: Sequence[int], width: int, tuning: Tuning) -> Iterator[Sequence[int]]:
    """Cut the restarts into batches whose labels fit the memory budget; results do not depend on it."""
    size = max(1, tuning.batch_bytes // (POINT_BYTES * width))
    for a in range(0, len(restarts), size):
        yield restarts[a : a + size]


def further_batches(restarts: Sequence[int], width: int, tuning: Tuning) -> Iterator[Sequence[int]]:
    """The restarts behind the last of these, without an end."""
    count = max(len(restarts), FURTHER)
    for first in itertools.count(max(restarts) + 1, count):
        yield from batches(range(first, first + count), width, tuning)


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


def report(batch: FinishedBatch, monitor: Monitor) -> None:
    """Say how a batch of restarts ended."""
    monitor.batch_ended(batch.trace.n_iter, batch.inertia)
    best = batch.best
    log.info(
        "restarts %d to %d: J from %.10g to %.10g, the best (restart %d) stopped as %s",
        batch.numbers[0], batch.numbers[-1], batch.inertia.min(), batch.inertia.max(),
        batch.numbers[best], batch.stop[best],
    )  # fmt: skip


def identify(monitor: Monitor, backend: BackendBase, parameters: dict[str, Any]) -> None:
    """Tell the checkpoint, if there is one, which search this is: what determines the result, and the points."""
    if monitor.checkpoint is not None:
        points = backend.points
        shape = {"n_samples": points.n, "n_features": points.d, "dtype": str(points.dtype)}
        numbers = parameters["restarts"]
        count = {"restarts": len(numbers)} if numbers == list(range(len(numbers))) else {}
        monitor.checkpoint.begin(parameters | count | shape | {"X": fingerprint(backend)})


def fingerprint(backend: BackendBase) -> str:
    """A fingerprint of the points in their order, the same whoever holds them in whatever shards.

    Rows are dealt to piles by draws that belong to their numbers. The totals of the piles are exact; rows that change
    places change them, unless they are equal or of the same pile.
    """
    deal = TrialBatch(PILES, 0, np.zeros(1, np.uint64), step=0, n_trials=1, limit=0)
    labels = backend.blank_labels(1)
    totals = backend.apply_trial(labels, labels, deal, np.zeros(1, np.int64), np.zeros(1, np.bool_)).totals
    box = [backend.bounds.low, backend.bounds.high, np.array(backend.bounds.weight), backend.grid.offset]
    return digest(totals, *box)


def best_of(finished: Sequence[FinishedBatch], backend: str, halted: Stop | None) -> Clustering:
    """The lowest J of all restarts, the lowest restart number on ties; `halted` is why they all ended, if they did."""
    first = int(np.argmin([batch.inertia[batch.best] for batch in finished]))  # the first of equals
    won = finished[first]
    trace = joined([batch.trace for batch in finished])
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
        validity=won.validity,
    )


def merge(shares: Sequence[Clustering]) -> Clustering:
    """The clustering of all restarts from those of some each, in their order."""
    won = shares[int(np.argmin([share.inertia for share in shares]))]  # the first of equals
    inertias = np.concatenate([share.inertias for share in shares])
    return replace(won, inertias=inertias, trace=joined([share.trace for share in shares]))


def joined(traces: Sequence[Trace]) -> Trace:
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
