"""Tabu search that relocates centres: a second neighbourhood beside that of the paper (`algorithms.quantized`).

A quantized mean never leaves its own cluster, so a region with a centre too many keeps it. Here an iteration takes one
centre away and puts a data point in its place, wherever that is best:

- A few candidate points are drawn in proportion to weight times squared distance to their centre (D² sampling).
- ΔJ of every candidate in place of every centre is known exactly from one pass (`Backend.swap_gains_partial`).
- The best pair is taken, also if J rises. A centre placed by one of the latest moves stays (tenure), and a point
  placed by one of the latest K is not placed again.
- Three steps follow: to the nearest centre, then twice by Hartigan's rule, all points at once. More follow while J
  falls fast enough to reach the best so far.
- The search has an elite solution, the best of late. After `go_back` iterations without a better one it returns to it.
  After `returns` such returns it gives the elite up, and takes the current solution for one.

The best of a search is then refined by K-Means and single moves. An iteration reads X once for the two nearest centres,
once for the candidates, and once per step for the points that it moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from gputabu.algorithms import lloyd, seeding
from gputabu.algorithms.checkpoint import Stage
from gputabu.algorithms.monitor import Callback, Monitor
from gputabu.algorithms.parameters import documented
from gputabu.algorithms.restarts import (
    FinishedBatch,
    Search,
    default_patience,
    run_restarts,
)
from gputabu.algorithms.seeding import Init
from gputabu.algorithms.tabu_list import RecentMoves
from gputabu.algorithms.trace import TraceRecorder
from gputabu.backend import BackendChoice, Devices, as_points
from gputabu.backend.arithmetic.canonical import in_order
from gputabu.backend.arithmetic.constants import NOISE
from gputabu.backend.arithmetic.fixed_point import Totals
from gputabu.backend.arithmetic.rules import masses
from gputabu.backend.base import BackendBase
from gputabu.backend.contract import Labels, NearestTwo
from gputabu.backend.loops import RelocationRun, RelocationSettings, StopSignal
from gputabu.core import random
from gputabu.core.log import log
from gputabu.core.random import Purpose
from gputabu.core.results import Clustering, Stop, Trace
from gputabu.core.validation import check_choice, check_int, check_n_clusters, check_real
from gputabu.data.points import Shape

#: How the best solution is refined: K-Means from it, and then single moves.
REFINEMENTS = ("hartigan", "lloyd")
#: Of the state of a search, what a checkpoint keeps as it is: the name in the file, and the attribute.
KEPT = {
    **{name: name for name in ("centers", "cost", "best", "best_centers", "changed", "stale")},
    "home": "elite",
    "home_centers": "elite_centers",
    "away": "since_elite",
}
#: Iterations of K-Means before the first move.
START_ITER = 300


@documented
def search(
    X: object,
    n_clusters: int,
    *,
    weights: object = None,
    init: object = "k-means++",
    restarts: int | Sequence[int] = 1,
    max_iter: int = 400,
    patience: int | None = None,
    max_time: float | None = None,
    target: float = 0.0,
    candidates: int = 7,
    tenure: int | None = None,
    go_back: int = 60,
    returns: int = 20,
    refine: str = "hartigan",
    seed: int = 0,
    backend: BackendChoice = "auto",
    device: Devices = None,
    labels_out: object = None,
    checkpoint: object = None,
    progress: bool = False,
    callback: Callback | None = None,
) -> Clustering:
    """Cluster `X` by tabu search over relocations of centres and return the best of the restarts.

    Parameters
    ----------
    %(data)s
    init : {"k-means++", "random"}, (K, d) centres or (K,) row numbers
        K-Means from there is the start of the search.
    %(restarts)s
    max_iter : int
        Iterations of the tabu search: moves of one centre each.
    patience : int, optional
        Iterations without improvement after which a restart stops; by default a quarter of `max_iter`.
    %(max_time)s
    target : float
        J at which a restart stops.
    candidates : int
        Points drawn per iteration, to put a centre at.
    tenure : int, optional
        Moves for which a centre that was placed stays; by default half of `n_clusters`.
    go_back : int
        Iterations without a better solution after which the search goes back to the best that it has lately found.
    returns : int
        Returns to one and the same solution after which the search stays since_elite from it.
    refine : {"hartigan", "lloyd"}
        Refinement of the best solution: K-Means, and with "hartigan" then single moves, points changing cluster one at
        a time until no such move lowers J.
    %(execution)s
    %(watching)s

    Returns
    -------
    Clustering

    Examples
    --------
    >>> from gputabu import relocation
    >>> X = [[0.0], [1.0], [10.0], [11.0], [20.0], [21.0]]
    >>> found = relocation.search(X, 3, init=[0, 1, 2], max_iter=20)
    >>> found.inertia, sorted(found.centers.ravel().tolist())
    (1.5, [0.5, 10.5, 20.5])
    >>> relocation.search(X, 3, target=2.0).stop.value
    'the target was reached'
    """
    monitor = Monitor(callback, progress, max_time, checkpoint)
    points = as_points(X, weights)
    checked = RelocationSearch.checked(
        points.shape, n_clusters, init=init, max_iter=max_iter, patience=patience, target=target, candidates=candidates,
        tenure=tenure, go_back=go_back, returns=returns, refine=refine, seed=seed,
    )  # fmt: skip
    return run_restarts(points, checked, restarts, monitor, backend=backend, device=device, labels_out=labels_out)


@dataclass(frozen=True)
class RelocationSearch(Search):
    """Relocation with its parameters, checked."""

    k: int
    seed: int
    init: Init
    max_iter: int
    patience: int
    target: float
    candidates: int
    tenure: int
    go_back: int
    returns: int
    refine: str
    name = "relocation"

    @classmethod
    def checked(
        cls,
        shape: Shape,
        n_clusters: int,
        *,
        init: object,
        max_iter: int,
        patience: int | None,
        target: float,
        refine: str,
        seed: int,
        candidates: int = 7,
        tenure: int | None = None,
        go_back: int = 60,
        returns: int = 20,
    ) -> RelocationSearch:
        k = check_n_clusters(n_clusters, shape.n)
        check_int("max_iter", max_iter, 1)
        patience = default_patience(patience, max_iter)
        check_real("target", target, 0)
        check_int("candidates", candidates, 1)
        tenure = k // 2 if tenure is None else check_int("tenure", tenure, 0, k - 1)
        check_int("go_back", go_back, 1)
        check_int("returns", returns, 1)
        check_choice("refine", refine, REFINEMENTS)
        start = Init.checked(init, k, seed, shape)
        return cls(k, seed, start, max_iter, patience, target, candidates, tenure, go_back, returns, refine)

    def identity(self) -> dict[str, Any]:
        parameters = {
            field.name: getattr(self, field.name) for field in fields(self) if field.name not in ("k", "init")
        }
        return {"n_clusters": self.k, "init": self.init.name, **parameters}

    def settings(self, batch: Sequence[int], monitor: StopSignal) -> RelocationSettings:
        numbers = np.array(batch, np.uint64)
        return RelocationSettings(
            self.max_iter, self.patience, self.target, self.tenure, self.candidates, self.go_back, self.returns,
            self.seed, numbers, monitor,
        )  # fmt: skip

    def run(self, backend: BackendBase, batch: Sequence[int], monitor: Monitor) -> FinishedBatch:
        centers = monitor.stage("seeds", lambda stage: self.init.centers(backend, batch, stage))
        found = run(backend, centers, self.settings(batch, monitor), self.refine, monitor)
        return lloyd.finish(backend, found, batch)


def run(
    backend: BackendBase, centers: np.ndarray, settings: RelocationSettings, refine: str, monitor: Monitor
) -> lloyd.Descent:
    """K-Means from centers (R, K, d), the search, and the refinement of the best."""
    rounds = 1 if monitor.should_hurry() else START_ITER
    monitor.begin_phase("start", rounds)
    alone = centers.shape[1] == 1
    first = monitor.stage("start", lambda stage: lloyd.descend(backend, centers, rounds, 0.0, monitor, alone, stage))
    begun = lloyd.Descent(*first)
    if alone:  # nowhere to relocate to
        return begun
    monitor.begin_phase("search", settings.max_iter)

    def search(stage: Stage) -> lloyd.Descent:
        # A cluster that stayed empty may have kept a centre from outside the box, where sums have no room.
        found = run_relocation(
            backend, np.clip(begun.centers, backend.bounds.low, backend.bounds.high), settings, monitor, stage
        )
        stops = [stop or monitor.stop_reason for stop in found.stop]
        return lloyd.Descent(found.centers, stops, Trace(found.current, found.best, found.moves))

    found = lloyd.Descent(*monitor.stage("search", search))
    return found._replace(centers=lloyd.refined(backend, found.centers, refine, monitor))


@dataclass(slots=True)
class State:
    """R searches; those that have ended stay as they are."""

    centers: np.ndarray  # (R, K, d) centroids
    nearest: NearestTwo
    labels: Labels  # (R, N)
    totals: np.ndarray  # (R, K, C) of the labels
    cost: np.ndarray  # (R,) J at the centroids
    best: np.ndarray  # (R,) J_b
    best_centers: np.ndarray  # (R, K, d)
    elite: np.ndarray  # (R,) J of the solution to go back to
    elite_centers: np.ndarray  # (R, K, d)
    changed: np.ndarray  # (R,) points that changed cluster in this iteration
    stale: np.ndarray  # (R,) iterations since the last new best
    since_elite: np.ndarray  # (R,) iterations since the last new elite
    placed: RecentMoves  # numbers of centres
    used: RecentMoves  # row numbers

    @classmethod
    def start(cls, backend: BackendBase, centers: np.ndarray, tenure: int) -> State:
        r, k, d = centers.shape
        totals = np.zeros((r, k, Totals.columns(d, backend.points.weights is not None)), np.int64)
        worst, none = np.full(r, np.inf), np.zeros(r, np.int64)
        state = cls(
            centers=centers.copy(),
            nearest=backend.nearest_two(centers),
            labels=backend.blank_labels(r),
            totals=totals,
            cost=worst.copy(),
            best=worst.copy(),
            best_centers=centers.copy(),
            elite=worst.copy(),
            elite_centers=centers.copy(),
            changed=none.copy(),
            stale=none.copy(),
            since_elite=none.copy(),
            placed=RecentMoves(r, tenure),
            used=RecentMoves(r, k),
        )
        step(backend, state, np.ones(r, np.bool_), nearest=True)
        update_best(state, np.ones(r, np.bool_))
        return state

    @classmethod
    def resumed(cls, backend: BackendBase, saved: dict[str, Any]) -> State:
        """The state that was left: labels are those of the nearest centres, and totals follow from them."""
        nearest, labels = backend.nearest_two(saved["at"]), backend.blank_labels(len(saved["at"]))
        totals = backend.reassign(nearest, labels, None, np.ones(len(saved["at"]), np.bool_)).totals
        placed, used = RecentMoves.resumed(saved["placed"]), RecentMoves.resumed(saved["used"])
        rest = {attribute: saved[name] for name, attribute in KEPT.items()}
        return cls(nearest=nearest, labels=labels, totals=totals, placed=placed, used=used, **rest)

    def kept(self) -> dict[str, Any]:
        """What it is resumed from, behind the first step of an iteration."""
        rest = {"at": self.nearest.at, "placed": self.placed.ring, "used": self.used.ring}
        rest |= {name: getattr(self, attribute) for name, attribute in KEPT.items()}
        return {name: array.copy() for name, array in rest.items()}


def run_relocation(
    backend: BackendBase, centers: np.ndarray, settings: RelocationSettings, monitor: Monitor, stage: Stage
) -> RelocationRun:
    """Run R searches from centers (R, K, d), by the backend itself where it can, otherwise pass by pass."""
    own = None if monitor.every_iteration else backend.loops.relocation(centers, settings)
    if own is not None:
        return own
    r = len(centers)
    stops: list[Stop | None] = [None] * r
    made, running = 0, np.ones(r, np.bool_)
    if (saved := stage.state) is None:
        state, recorder = State.start(backend, centers, settings.tenure), TraceRecorder(r)
        recorder.start(state.best.copy())
    else:
        state, recorder = State.resumed(backend, saved), TraceRecorder.resumed(saved["trace"])
        made, stops, running = saved["made"], saved["stops"], saved["going"]

    def end(which: np.ndarray, stop: Stop) -> None:
        for i in np.flatnonzero(running & which):
            stops[i] = stop
        running[which] = False

    end(state.best <= settings.target, Stop.TARGET)
    for iteration in range(made, settings.max_iter):
        if saved is None:
            rows, perfect = draw(backend, state, settings, iteration)
            end(perfect, Stop.TARGET)  # every point is on a centre
            if not running.any() or monitor.should_stop():
                break
            relocate(backend, state, rows, iteration, running)
            state.changed[:] = 0
            step(backend, state, running, nearest=True)
        saved = None
        # Now every label is that of the nearest centre, and need not be kept.
        if stage.kept:
            rest = {"made": iteration, "going": running.copy(), "stops": stops.copy(), "trace": recorder.kept}
            stage.keep(state.kept() | rest)
        descend(backend, state, settings, running)
        recorder.add(np.flatnonzero(running), state.cost[running], state.changed[running], best=state.best[running])
        log.debug("iteration %d: %d restarts, best J %.10g", iteration + 1, running.sum(), state.best.min())
        active = np.flatnonzero(running)
        end(state.best <= settings.target, Stop.TARGET)
        end(state.stale >= settings.patience, Stop.PATIENCE)
        ended = ~running[active] | (iteration + 1 == settings.max_iter)
        monitor.report(iteration + 1, active, state.cost[active], state.best[active], ended)
        return_to_elite(state, settings, running)
    else:
        end(running.copy(), Stop.MAX_ITER)
    trace = recorder.trace()
    return RelocationRun(state.best_centers, stops, trace.current, trace.best, trace.moves)


def draw(
    backend: BackendBase, state: State, settings: RelocationSettings, iteration: int
) -> tuple[np.ndarray, np.ndarray]:
    """Candidates (R, T), row numbers drawn in proportion to what they add to J; and where nothing adds to it (R,)."""
    r, t = len(state.centers), settings.candidates
    backend.nearest_two(state.centers, state.nearest)
    shift, potential = seeding.refine(
        backend, state.nearest.near, np.full(r, backend.grid.coarsest(backend.points.n)), None
    )
    words = [
        random.words(settings.seed, int(number), t, purpose=Purpose.CANDIDATE, first=iteration * t)
        for number in settings.numbers
    ]
    targets = random.below(np.stack(words), np.maximum(potential, 1)[:, None])
    perfect = potential == 0
    rows = backend.sample(state.nearest.near, shift, np.where(perfect[:, None], -1, targets))
    return np.where(perfect[:, None], 0, rows), perfect


def relocate(backend: BackendBase, state: State, rows: np.ndarray, iteration: int, running: np.ndarray) -> None:
    """Put a centre at the best of the candidates, rows (R, T), and forbid the way back."""
    points = backend.rows(rows)  # (R, T, d)
    gains = backend.swap_gains(points, state.nearest)  # (R, T, K)
    r, t, k = gains.shape
    barred = state.used.holds(rows)
    barred &= ~barred.all(axis=1, keepdims=True)  # rather a point again than none
    gains[barred[:, :, None] | state.placed.holds(np.arange(k)[None])[:, None, :]] = np.inf
    chosen, center = np.divmod(gains.reshape(r, t * k).argmin(axis=1), k)  # the first of equals
    everyone = np.arange(r)
    state.centers[everyone[running], center[running]] = points[everyone[running], chosen[running]]
    state.placed.push(iteration, center)
    state.used.push(iteration, rows[everyone, chosen])


def descend(backend: BackendBase, state: State, settings: RelocationSettings, running: np.ndarray) -> None:
    """The steps behind the first; more of them while J falls fast enough to reach the best."""
    before, last, best = state.elite.copy(), state.cost, state.best.copy()
    for _ in range(1, settings.steps):
        last = state.cost.copy()
        step(backend, state, running)
    better, falling = update_best(state, running), running.copy()
    for _ in range(settings.more_steps):
        falling &= (state.cost < last * (1 - NOISE)) & ((last - state.cost) * settings.reach > state.cost - before)
        if not falling.any():
            break
        last = state.cost.copy()
        step(backend, state, falling)
        better |= update_best(state, falling)
    state.stale = np.where(state.best < best, 0, state.stale + running)
    state.since_elite = np.where(better, 0, state.since_elite + running)


def step(backend: BackendBase, state: State, active: np.ndarray, nearest: bool = False) -> None:
    """Reassign every point of the restarts `active`, and go to the centroids."""
    backend.nearest_two(state.centers, state.nearest)
    done = backend.reassign(
        state.nearest, state.labels, None if nearest else masses(backend.grid, state.totals), active
    )
    state.totals += done.totals
    state.changed += done.changed
    moved = backend.grid.centroids(state.totals, state.centers)
    fall = in_order(backend.grid.weights(state.totals) * in_order((moved - state.nearest.at) ** 2))
    state.centers[active] = moved[active]
    state.cost[active] = np.maximum(done.cost - fall, 0.0)[active]


def update_best(state: State, active: np.ndarray) -> np.ndarray:
    """Keep what beats the elite, or the best, by more than rounding: (R,) bool, where there is a new elite."""
    better = active & (state.cost < state.best * (1 - NOISE))
    state.best[better], state.best_centers[better] = state.cost[better], state.centers[better]
    nearer = active & (state.cost < state.elite * (1 - NOISE))
    state.elite[nearer], state.elite_centers[nearer] = state.cost[nearer], state.centers[nearer]
    return nearer


def return_to_elite(state: State, settings: RelocationSettings, running: np.ndarray) -> None:
    """Return to the elite from time to time, or give it up."""
    given_up = running & (state.since_elite >= settings.go_back * settings.returns)
    state.elite[given_up], state.elite_centers[given_up], state.since_elite[given_up] = (
        state.cost[given_up],
        state.centers[given_up],
        0,
    )
    back = running & (state.since_elite % settings.go_back == 0)  # or just there
    state.centers[back] = state.elite_centers[back]
