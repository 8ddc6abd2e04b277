"""K-Means by Lloyd's algorithm (eq. 3 and 4): the baseline, and the refinement of what a search found."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from gputabu.algorithms import bounded, hartigan
from gputabu.algorithms.checkpoint import Stage
from gputabu.algorithms.groups import Groups
from gputabu.algorithms.monitor import Callback, Monitor
from gputabu.algorithms.parameters import documented
from gputabu.algorithms.restarts import (
    FinishedBatch,
    Search,
    run_restarts,
)
from gputabu.algorithms.seeding import Init
from gputabu.algorithms.trace import TraceRecorder
from gputabu.backend import BackendChoice, Devices, as_points
from gputabu.backend.arithmetic.canonical import in_order
from gputabu.backend.arithmetic.fixed_point import Totals
from gputabu.backend.base import BackendBase
from gputabu.backend.contract import Labels
from gputabu.backend.loops import LloydRun, LloydSettings
from gputabu.core.log import log
from gputabu.core.results import Clustering, Stop, Trace
from gputabu.core.validation import check_int, check_n_clusters, check_optional, check_real
from gputabu.data.points import Shape

#: Iterations of a refinement. K-Means ends long before; it is there so that nothing runs for ever.
REFINE_ITER = 10_000
#: What may follow K-Means.
REFINEMENTS = ("hartigan",)


class Descent(NamedTuple):
    """Where R descents ended."""

    centers: np.ndarray  # (R, K, d) float64
    stop: list[Stop]
    trace: Trace


@documented
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
    min_size: float | None = None,
    max_size: float | None = None,
    size: str = "count",
    groups: object = None,
    seed: int = 0,
    backend: BackendChoice = "auto",
    device: Devices = None,
    labels_out: object = None,
    checkpoint: object = None,
    progress: bool = False,
    callback: Callback | None = None,
) -> Clustering:
    """Cluster `X` by K-Means from one or more starts and return the best.

    Parameters
    ----------
    %(data)s
    init : {"k-means++", "random"}, (K, d) centres or (K,) row numbers
    %(restarts)s
    max_iter : int
    tol : float
        Stop when the centres together move less than `tol` times the mean variance of the features;
        0 stops only when no point changes cluster.
    trials : int, optional
        Draws per point of K-Means++; the default is 2 + ln K, and 1 is the original algorithm.
    refine : {None, "hartigan"}
        "hartigan" goes on where K-Means ended: points move to another cluster, one at a time, until no such move
        lowers J. The trace is that of K-Means.
    %(bounds)s
    %(groups)s
    %(execution)s
    %(watching)s

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
    monitor = Monitor(callback, progress, checkpoint=checkpoint)
    points = as_points(X, weights)
    checked = LloydSearch.checked(
        points.shape, n_clusters, init=init, max_iter=max_iter, tol=tol, trials=trials, refine=refine, seed=seed
    ).within(min_size, max_size, size)
    return run_restarts(
        points, checked, restarts, monitor, backend=backend, device=device, labels_out=labels_out, groups=groups
    )


@dataclass(frozen=True)
class LloydSearch(Search):
    """K-Means with its parameters, checked."""

    k: int
    seed: int
    init: Init
    max_iter: int
    tol: float
    refine: str | None
    name = "lloyd"
    patience = None
    ungrouped = None

    @classmethod
    def checked(
        cls,
        shape: Shape,
        n_clusters: int,
        *,
        init: object,
        max_iter: int,
        tol: float,
        refine: str | None,
        seed: int,
        trials: int | None = None,
    ) -> LloydSearch:
        k = check_n_clusters(n_clusters, shape.n)
        check_int("max_iter", max_iter, 1)
        check_real("tol", tol, 0)
        check_optional("refine", refine, REFINEMENTS)
        return cls(k, seed, Init.checked(init, k, seed, shape, trials), max_iter, tol, refine)

    def identity(self) -> dict[str, Any]:
        start = {"n_clusters": self.k, "init": self.init.name, "max_iter": self.max_iter, "tol": self.tol}
        return {**start, "trials": self.init.trials, "refine": self.refine, "seed": self.seed}

    def within(self, min_size: object, max_size: object, size: object) -> Search:
        """This search, for clusters of bounded size if there are bounds."""
        rule = bounded.Rule("search", self.max_iter, self.tol, self.refine == "hartigan")
        return bounded.within(self, min_size, max_size, size, rule)

    def on_groups(self, backend: BackendBase, groups: Groups, constant: float) -> Search:
        return replace(self, init=self.init.on_groups(backend))

    def starts(self, backend: BackendBase, batch: Sequence[int], monitor: Monitor) -> list[np.ndarray]:
        return [monitor.stage("seeds", lambda stage: self.init.centers(backend, batch, stage))]

    def run(self, backend: BackendBase, batch: Sequence[int], monitor: Monitor) -> FinishedBatch:
        (centers,) = self.starts(backend, batch, monitor)

        def search(stage: Stage) -> Descent:
            return descend(backend, centers, self.max_iter, self.tol, monitor, True, stage)

        found = Descent(*monitor.stage("search", search))
        return finish(backend, found._replace(centers=further(backend, found.centers, self.refine, monitor)), batch)


def refined(backend: BackendBase, centers: np.ndarray, refine: str, monitor: Monitor) -> np.ndarray:
    """Refine the centers (R, K, d) that a search found, as its `refine` asks."""
    rounds = 1 if monitor.should_hurry() or refine == "centroid" else REFINE_ITER
    monitor.begin_phase("refine", rounds)
    found = monitor.stage(
        "refine", lambda stage: descend(backend, centers, rounds, monitor=monitor, stage=stage).centers
    )
    return further(backend, found, refine, monitor)


def further(backend: BackendBase, centers: np.ndarray, refine: str | None, monitor: Monitor) -> np.ndarray:
    """Make single moves from centers (R, K, d) of K-Means, if `refine` asks for them.

    Between them labels follow from nothing smaller: what was left on the way is begun again.
    """
    if refine != "hartigan" or monitor.should_hurry():
        return centers
    monitor.begin_phase("refine", hartigan.ROUNDS)
    return monitor.stage("moves", lambda _: hartigan.improve(backend, centers, monitor).centers)


@dataclass(slots=True)
class State:
    """R descents between two iterations; those that have ended are taken out."""

    made: int  # iterations
    active: np.ndarray  # (A,) positions of the restarts that go on
    centers: np.ndarray  # (A, K, d)
    labels: Labels  # (A, N), of the centres before the last step
    totals: np.ndarray  # (A, K, C) of the labels
    ended: np.ndarray  # (R, K, d), the latest centres of every restart
    stops: list[Stop]
    passed: dict[tuple[int, int], None]  # restarts, and fingerprints of clusters that they have had, in order
    recorder: TraceRecorder

    @classmethod
    def begin(cls, backend: BackendBase, centers: np.ndarray) -> State:
        r, k, d = centers.shape
        totals = np.zeros((r, k, Totals.columns(d, backend.points.weights is not None)), np.int64)
        stops, labels = [Stop.MAX_ITER] * r, backend.blank_labels(r)
        return cls(0, np.arange(r), centers, labels, totals, centers.copy(), stops, {}, TraceRecorder(r))

    @classmethod
    def resumed(cls, backend: BackendBase, saved: dict[str, Any]) -> State:
        """The state that was left: labels are the nearest of the centres before, and totals follow from them."""
        labels = backend.blank_labels(len(saved["active"]))
        totals = backend.assign(saved["labelled"], labels).totals
        passed = dict.fromkeys(map(tuple, saved["passed"].tolist()))
        recorder = TraceRecorder.resumed(saved["trace"])
        return cls(
            saved["made"], saved["active"], saved["centers"], labels, totals, saved["ended"], saved["stops"], passed,
            recorder,
        )  # fmt: skip

    def kept(self, going: np.ndarray, labelled: np.ndarray) -> dict[str, Any]:
        """The state to resume the restarts `going` from; `labelled` (A, K, d) are the centres before this step."""
        return {
            "made": self.made, "active": self.active[going], "labelled": labelled[going],
            "centers": self.centers[going], "ended": self.ended.copy(), "stops": self.stops.copy(),
            "passed": partial(_entries, self.passed, len(self.passed)), "trace": self.recorder.kept,
        }  # fmt: skip

    def take(self, backend: BackendBase, going: np.ndarray) -> None:
        """Go on with these only."""
        self.active, self.centers, self.totals = self.active[going], self.centers[going], self.totals[going]
        self.labels = backend.take_labels(self.labels, going)


def descend(
    backend: BackendBase,
    centers: np.ndarray,
    max_iter: int,
    tol: float = 0.0,
    monitor: Monitor | None = None,
    traced: bool = False,
    stage: Stage | None = None,
) -> Descent:
    """Alternate eq. 4 and eq. 3 from centers (R, K, d) until no label changes."""
    stage = Stage() if stage is None else stage
    monitor = Monitor() if monitor is None else monitor
    allowed = tol and tol * backend.scatter / (float(backend.points.total_weight) * centers.shape[2])
    if not monitor.every_iteration:
        found = backend.loops.lloyd(centers, LloydSettings(max_iter, allowed, traced, monitor))
        if found is not None:
            return Descent(found.centers, [stop or monitor.stop_reason for stop in found.stop], _trace(found))
    state = State.begin(backend, centers) if stage.state is None else State.resumed(backend, stage.state)
    while state.made < max_iter and len(state.active):
        labelled = state.centers
        cost, changed = step(backend, state, traced, monitor.every_iteration)
        settled = (changed == 0) | _came_back(state.totals, state.active, state.passed)
        shift = in_order(in_order((state.centers - labelled) ** 2)) if allowed else np.full(len(labelled), np.inf)
        over = settled | (shift <= allowed)
        for i in np.flatnonzero(over):
            state.stops[state.active[i]] = Stop.CONVERGED if settled[i] else Stop.TOLERANCE
        going = np.flatnonzero(~over)
        if stage.kept and len(going):
            stage.keep(state.kept(going, labelled))
        monitor.report(state.made, state.active, cost, cost, over | (state.made == max_iter))
        if monitor.should_hurry():
            for i in state.active[going]:
                state.stops[i] = monitor.stop_reason
            break
        if over.any():
            state.take(backend, going)
    return Descent(state.ended, state.stops, state.recorder.trace())


def step(backend: BackendBase, state: State, traced: bool, watched: bool) -> tuple[np.ndarray, np.ndarray]:
    """One iteration: J (A,), NaN where nobody wants to know it, and how many points changed cluster (A,)."""
    done = backend.assign(state.centers, state.labels)  # eq. 4
    state.totals = state.totals + done.totals
    moved = backend.grid.centroids(
        backend.fill_empty(state.centers, state.labels, state.totals), state.centers
    )  # eq. 3
    cost = _traced_inertia(backend, state.totals) if traced or watched else np.full(len(state.active), np.nan)
    if traced:
        if state.made == 0:
            state.recorder.start(backend.objective(state.centers, state.labels))
        state.recorder.add(state.active, cost, done.changed)
    state.made += 1
    log.debug("K-Means iteration %d: %d points changed cluster", state.made, done.changed.sum())
    state.centers = state.ended[state.active] = moved
    return cost, done.changed


def _trace(found: LloydRun) -> Trace:
    """The trace of descents that the backend ran by itself."""
    best = np.where(np.isnan(found.current), np.nan, np.fmin.accumulate(found.current, axis=1))
    return Trace(found.current, best, found.changed)


def _came_back(totals: np.ndarray, active: np.ndarray, passed: dict[tuple[int, int], None]) -> np.ndarray:
    """Whether a restart has had these clusters before. Then only rounding moves points to and fro."""
    entries = [(int(r), _fingerprint(each)) for r, each in zip(active, totals, strict=True)]
    known = np.array([entry in passed for entry in entries])
    passed.update(dict.fromkeys(entries))
    return known


def _entries(passed: dict[tuple[int, int], None], count: int) -> np.ndarray:
    """The first so many entries."""
    return np.array(list(islice(passed, count)), np.uint64).reshape(-1, 2)


def _fingerprint(totals: np.ndarray) -> int:
    """64 bits that are the same in every process, as those of `hash` are not."""
    return int.from_bytes(hashlib.blake2b(totals.tobytes(), digest_size=8).digest())


def finish(
    backend: BackendBase,
    found: Descent,
    batch: Sequence[int],
    indices: np.ndarray | None = None,
    labels: Labels | None = None,
) -> FinishedBatch:
    """Round the centres to the dtype of the points, then label by them: what is returned is consistent.

    A search for labels hands in those it found, and keeps them.
    """
    centers = found.centers.astype(backend.points.result_dtype)
    wide = centers.astype(np.float64)
    labels = backend.label(wide) if labels is None else labels
    inertia = backend.objective(wide, labels)
    best = int(inertia.argmin())  # the first of equals: equal partitions have equal bits
    kept = backend.result_labels(labels, best)
    return FinishedBatch(
        numbers=list(batch),
        inertia=inertia,
        best=best,
        labels=lambda: kept,
        centers=centers[best],
        indices=None if indices is None else indices[best],
        stop=found.stop,
        trace=found.trace,
    )


def _traced_inertia(backend: BackendBase, totals: np.ndarray) -> np.ndarray:
    """J at the centroids of the clusters as total scatter less the scatter between clusters: (R,).

    No pass over the points; good to about 1e-15 of the total scatter, which is enough for a trace. `Grid.explained` is
    the same before rounding; traces have had these bits since they were first written down.
    """
    offset = np.broadcast_to(backend.grid.offset, (*totals.shape[:2], backend.points.d))
    away = backend.grid.centroids(totals, offset) - offset
    between = in_order(backend.grid.weights(totals) * in_order(away**2))
    return np.maximum(backend.scatter - between, 0.0)
