"""From the restarts of a search to one result: courses are recorded, batches joined, the best is chosen."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from gputabu.algorithms.monitor import Watch
from gputabu.backend.contract import Labels, Ops
from gputabu.core.log import log
from gputabu.core.results import Clustering, Stop, Trace
from gputabu.core.validation import check_int
from gputabu.data.points import Points


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


#: Bytes that the labels and distances of a batch of restarts may take.
BATCH_BYTES = 1 << 28
#: Bytes per restart and point in the greediest phase (seeding: d², its integers and their running total).
POINT_BYTES = 32


def batches(restarts: Sequence[int], n_points: int) -> Iterator[Sequence[int]]:
    """Cut the restarts into batches whose labels fit the memory budget; results do not depend on it."""
    size = max(1, BATCH_BYTES // (POINT_BYTES * n_points))
    for a in range(0, len(restarts), size):
        yield restarts[a : a + size]
