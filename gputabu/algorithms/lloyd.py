"""K-Means by Lloyd's algorithm (eq. 3 and 4): the baseline, and the refinement of what a search found."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from functools import partial
from itertools import islice
from typing import NamedTuple

import numpy as np

from gputabu.algorithms import hartigan, seeding
from gputabu.algorithms.checkpoint import Stage, identify
from gputabu.algorithms.monitor import Callback, Watch
from gputabu.algorithms.progress import Ledger
from gputabu.algorithms.restarts import Finished, announce, batches, gather, restart_numbers
from gputabu.algorithms.trace import Course
from gputabu.backend import Devices, admit, hold, home
from gputabu.backend.arithmetic.canonical import in_order
from gputabu.backend.arithmetic.fixed_point import Totals, quantize
from gputabu.backend.contract import Descended, Descending, Labels, Ops
from gputabu.core.log import log
from gputabu.core.results import Clustering, Stop, Trace
from gputabu.core.validation import check_int, check_n_clusters, check_optional, check_real
from gputabu.data.memmaps import labels_file

#: Iterations of a refinement. K-Means ends long before; it is there so that nothing runs for ever.
REFINE_ITER = 10_000
#: What may follow K-Means.
REFINEMENTS = ("hartigan",)


class Descent(NamedTuple):
    """Where R descents ended."""

    centers: np.ndarray  # (R, K, d) float64
    stop: list[Stop]
    trace: Trace


def run(
    X: object,
    n_clusters: int,
    *,
    weights: object = None,
    init: object = "k-means++",
    restarts: int | Sequence[int] = 1,
    max_iter: int = 300,
    tol: float = 0.0,
    trials: int | None = None,
    refine: str | None = None,
    seed: int = 0,
    backend: str = "auto",
    device: Devices = None,
    labels_out: object = None,
    checkpoint: object = None,
    progress: bool = False,
    callback: Callback | None = None,
) -> Clustering:
    """Cluster `X` by K-Means from one or more starts and return the best.

    Parameters
    ----------
    X : (N, d) array, on the host or on a GPU, a file or anything else that `gputabu.chunked` reads, or Points
    n_clusters : int
    weights : (N,) array, optional
    init : {"k-means++", "random"}, (K, d) centres or (K,) row numbers
    restarts : int or sequence of int
        How many restarts, or the numbers of those to run; restart r does not depend on the others.
    max_iter : int
    tol : float
        Stop when the centres together move less than `tol` times the mean variance of the features;
        0 stops only when no point changes cluster.
    trials : int, optional
        Draws per point of K-Means++; the default is 2 + ln K, and 1 is the original algorithm.
    refine : {None, "hartigan"}
        "hartigan" goes on where K-Means ended: points move to another cluster, one at a time, until no such move
        lowers J. The trace is that of K-Means.
    seed : int
    backend : {"auto", "cuda", "numba", "numpy"}
    device : int, sequence of int or "all", optional
        Which GPU, or several that share the rows; by default the current one, or the one that `X` is on.
    labels_out : path or (N,) array of int32 or int64, optional
        Where to write the labels: an array, such as a memory map, or a .npy file that is made.
    checkpoint : path, optional
        A file in which the state of the search is kept, every half minute. Where there is one, the search goes on from
        it, with the bits of one that was never stopped; it must be of the same points and parameters.
    progress : bool
        Show a progress bar on stderr, or a line every few seconds where that is no terminal.
    callback : function, optional
        Called with a `Progress` after every iteration; it ends the run by returning True. See `gputabu.Progress`.

    Returns
    -------
    Clustering

    Examples
    --------
    >>> from gputabu import lloyd
    >>> found = lloyd.run([[0.0], [1.0], [10.0], [11.0]], 2, seed=0)
    >>> found.inertia, found.stop.name
    (1.0, 'CONVERGED')

    K-Means cannot leave this start, though a move of the point at 2 lowers J:

    >>> X = [[0.0], [2.0], [3.0]]
    >>> stuck = lloyd.run(X, 2, init=[[1.0], [3.0]])
    >>> better = lloyd.run(X, 2, init=[[1.0], [3.0]], refine="hartigan")
    >>> stuck.inertia, better.inertia
    (2.0, 0.5)
    """
    watch = Watch(callback, progress, checkpoint=checkpoint)
    points = admit(X, weights)
    k = check_n_clusters(n_clusters, points.n)
    check_int("max_iter", max_iter, 1)
    check_real("tol", tol, 0)
    check_optional("refine", refine, REFINEMENTS)
    numbers = restart_numbers(restarts)
    out = labels_file(labels_out, points.n)
    with hold(points, backend, device) as ops, watch.opened(k, Ledger(len(numbers), max_iter)):
        announce(points, k, numbers, ops.name)
        start = seeding.starts(ops, init, k, seed, trials)
        identify(watch, ops, {
            "search": "lloyd", "n_clusters": k, "init": start.name, "restarts": numbers, "max_iter": max_iter,
            "tol": tol, "trials": trials, "refine": refine, "seed": seed,
        })  # fmt: skip

        def work(batch: Sequence[int]) -> Finished:
            centers = watch.stage("seeds", lambda stage: start.centers(batch, stage))
            found = Descent(*watch.stage("search", lambda its: descend(ops, centers, max_iter, tol, watch, True, its)))
            return finish(ops, found._replace(centers=further(ops, found.centers, refine, watch)), batch)

        return home(gather(ops, watch, batches(numbers, points.n), work), points, out)


def refined(ops: Ops, centers: np.ndarray, refine: str, watch: Watch) -> np.ndarray:
    """What the centers (R, K, d) that a search found are refined to: see `REFINEMENTS` of the searches."""
    rounds = 1 if watch.hurried() or refine == "centroid" else REFINE_ITER
    watch.enter("refine", rounds)
    found = watch.stage("refine", lambda stage: descend(ops, centers, rounds, watch=watch, stage=stage).centers)
    return further(ops, found, refine, watch)


def further(ops: Ops, centers: np.ndarray, refine: str | None, watch: Watch) -> np.ndarray:
    """Where single moves lead from centers (R, K, d) of K-Means, if they are asked for.

    Between them labels follow from nothing smaller: what was left on the way is begun again.
    """
    if refine != "hartigan" or watch.hurried():
        return centers
    watch.enter("refine", hartigan.ROUNDS)
    return watch.stage("moves", lambda _: hartigan.improve(ops, centers, watch).centers)


def descend(
    ops: Ops,
    centers: np.ndarray,
    max_iter: int,
    tol: float = 0.0,
    watch: Watch | None = None,
    traced: bool = False,
    stage: Stage | None = None,
) -> Descent:
    """Alternate eq. 4 and eq. 3 from centers (R, K, d) until no label changes."""
    stage = Stage() if stage is None else stage
    r, k, d = centers.shape
    allowed = tol and tol * ops.scatter / (float(ops.points.total_weight) * d)
    watch = Watch() if watch is None else watch
    own = None if watch.each else ops.descend(centers, Descending(max_iter, allowed, traced, watch))
    if own is not None:
        return Descent(own.centers, [stop or watch.early for stop in own.stop], _trace(own))
    passed: dict[tuple[int, int], None] = {}  # in order
    totals = np.zeros((r, k, Totals.columns(d, ops.points.weights is not None)), np.int64)
    if (left := stage.state) is None:
        first, ended, stops, course = 0, centers.copy(), [Stop.MAX_ITER] * r, Course(r)
        active, labels = np.arange(r), ops.blank(r)
    else:
        first, ended, stops, course = left["made"], left["ended"], left["stops"], Course.resumed(left["trace"])
        active, centers, passed = left["active"], left["centers"], dict.fromkeys(map(tuple, left["passed"].tolist()))
        labels = ops.blank(len(active))
        totals = totals[active] + ops.assign(left["labelled"], labels).totals
    for iteration in range(first, max_iter):
        step = ops.assign(centers, labels)  # eq. 4
        totals = totals + step.totals
        moved = ops.grid.centroids(relocate(ops, centers, labels, totals), centers)  # eq. 3
        cost = _between(ops, totals) if traced or watch.each else np.full(len(active), np.nan)
        if traced:
            if iteration == 0:
                course.start(ops.objective(centers, labels))
            course.add(active, cost, step.changed)
        log.debug("K-Means iteration %d: %d points changed cluster", iteration + 1, step.changed.sum())
        shift = in_order(in_order((moved - centers) ** 2)) if tol else np.zeros(len(centers))
        labelled, centers = centers, moved
        ended[active] = centers
        settled = (step.changed == 0) | _came_back(totals, active, passed)
        close = ~settled & (shift <= allowed) if tol else np.zeros_like(settled)
        over = settled | close
        for i in np.flatnonzero(over):
            stops[active[i]] = Stop.CONVERGED if settled[i] else Stop.TOLERANCE
        keep = np.flatnonzero(~over)
        if stage.kept and len(keep):
            stage.keep({
                "made": iteration + 1, "active": active[keep], "labelled": labelled[keep], "centers": centers[keep],
                "ended": ended.copy(), "stops": stops.copy(), "passed": partial(_pairs, passed, len(passed)),
                "trace": course.kept,
            })  # fmt: skip
        watch.tell(iteration + 1, active, cost, cost, over | (iteration + 1 == max_iter))
        if watch.hurried():
            for i in keep:
                stops[active[i]] = watch.early
            break
        if over.any():
            active, centers, totals = active[keep], centers[keep], totals[keep]
            labels = ops.take(labels, keep)
        if len(active) == 0:
            break
    return Descent(ended, stops, course.trace())


def _trace(own: Descended) -> Trace:
    """The trace of descents that the backend ran by itself."""
    best = np.where(np.isnan(own.current), np.nan, np.fmin.accumulate(own.current, axis=1))
    return Trace(own.current, best, own.changed)


def _came_back(totals: np.ndarray, active: np.ndarray, passed: dict[tuple[int, int], None]) -> np.ndarray:
    """Whether a restart has had these clusters before: then rounding alone moves points to and fro."""
    prints = [(int(r), _print(mine)) for r, mine in zip(active, totals, strict=True)]
    known = np.array([entry in passed for entry in prints])
    passed.update(dict.fromkeys(prints))
    return known


def _pairs(passed: dict[tuple[int, int], None], count: int) -> np.ndarray:
    """The first so many entries."""
    return np.array(list(islice(passed, count)), np.uint64).reshape(-1, 2)


def _print(totals: np.ndarray) -> int:
    """64 bits that are the same in every process, as those of `hash` are not."""
    return int.from_bytes(hashlib.blake2b(totals.tobytes(), digest_size=8).digest())


def relocate(ops: Ops, centers: np.ndarray, labels: Labels, totals: np.ndarray) -> np.ndarray:
    """Give empty clusters the points farthest from their centres, one each, as scikit-learn does.

    The point leaves the total of its old cluster; labels follow at the next assignment. centers (R, K, d) are
    those the labels were made with. Returns the totals (R, K, C) to take the centroids of.
    """
    empty = Totals.counts(totals) == 0  # (R, K)
    if not empty.any():
        return totals
    totals = totals.copy()
    for r in np.flatnonzero(empty.any(axis=1)):
        rows, owners = ops.farthest(centers[r], labels, int(r), int(empty[r].sum()))
        weights = None if ops.points.weights is None else ops.points.weights_at(rows)
        terms = np.concatenate(quantize(ops.rows(rows), weights, ops.grid), axis=1).astype(np.int64)
        for k, owner, term in zip(np.flatnonzero(empty[r]), owners, terms, strict=False):
            totals[r, owner] -= term
            totals[r, k] = term
    return totals


def finish(
    ops: Ops, found: Descent, batch: Sequence[int], indices: np.ndarray | None = None, labels: Labels | None = None
) -> Finished:
    """Round the centres to the dtype of the points, then label by them: what is returned is consistent.

    A search for labels hands in those it found, and keeps them.
    """
    centers = found.centers.astype(ops.points.dtype)
    wide = centers.astype(np.float64)
    labels = ops.label(wide) if labels is None else labels
    inertia = ops.objective(wide, labels)
    best = int(inertia.argmin())  # the first of equals: equal partitions have equal bits
    kept = ops.fetch(labels, best)
    return Finished(
        numbers=list(batch),
        inertia=inertia,
        best=best,
        labels=lambda: kept,
        centers=centers[best],
        indices=None if indices is None else indices[best],
        stop=found.stop,
        trace=found.trace,
    )


def _between(ops: Ops, totals: np.ndarray) -> np.ndarray:
    """J at the centroids of the clusters as total scatter less the scatter between clusters: (R,).

    No pass over the points; good to about 1e-15 of the total scatter, which is enough for a trace.
    """
    offset = np.broadcast_to(ops.grid.offset, (*totals.shape[:2], ops.points.d))
    away = ops.grid.centroids(totals, offset) - offset
    between = in_order(ops.grid.weights(totals) * in_order(away**2))
    return np.maximum(ops.scatter - between, 0.0)
