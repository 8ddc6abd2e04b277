"""The iterations of a relocation search (`algorithms.relocation`), pass by pass."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gputabu.algorithms import seeding
from gputabu.algorithms.checkpoint import Stage
from gputabu.algorithms.monitor import Monitor
from gputabu.algorithms.tabu_list import RecentMoves
from gputabu.algorithms.trace import TraceRecorder
from gputabu.backend.arithmetic.canonical import in_order
from gputabu.backend.arithmetic.constants import NOISE
from gputabu.backend.arithmetic.fixed_point import Totals
from gputabu.backend.arithmetic.rules import masses
from gputabu.backend.base import BackendBase
from gputabu.backend.contract import Labels, NearestTwo
from gputabu.backend.loops import RelocationRun, RelocationSettings
from gputabu.core import random
from gputabu.core.log import log
from gputabu.core.random import Purpose
from gputabu.core.results import Stop

#: Of the state of a search, what a checkpoint keeps as it is: the name in the file, and the attribute.
KEPT = {
    **{name: name for name in ("centers", "cost", "best", "best_centers", "changed", "stale")},
    "home": "elite",
    "home_centers": "elite_centers",
    "away": "since_elite",
    "passes": "passes",
}


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
    passes: np.ndarray  # (R,) over the points, so far
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
            passes=none.copy(),
            placed=RecentMoves(r, tenure),
            used=RecentMoves(r, k),
        )
        step(backend, state, np.ones(r, np.bool_), nearest=True)
        update_best(state, np.ones(r, np.bool_))
        state.passes[:] = 0
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
            state.passes[running] += 1
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
        end(state.passes >= settings.max_passes, Stop.EFFORT)
        ended = ~running[active] | (iteration + 1 == settings.max_iter)
        share = state.passes[active] / settings.max_passes[active]
        monitor.report(iteration + 1, active, state.cost[active], state.best[active], ended, share)
        return_to_elite(state, settings, running)
    else:
        end(running.copy(), Stop.MAX_ITER)
    trace = recorder.trace()
    return RelocationRun(state.best_centers, stops, trace.current, trace.best, trace.moves, state.passes)


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
    better, falling = update_best(state, running), running & (state.since_elite >= settings.calm)
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
    state.passes += active
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
