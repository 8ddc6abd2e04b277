"""Iterations of a tabu search over labellings: trials, their improvement, the tabu list, the best so far.

`algorithms.reassignment` says what the search is. Two things are told apart here by `Plan.improve`:

- Without it, A_c is what trials made of the start: labels are changed by the accepted trial, which is drawn once more.
- With it, every trial is improved by a step of K-Means, so A_c is the labelling by the nearest of some centres, its
  `origin`: the centroids of the trial that was accepted. Then there may be a sweep of single moves. So a labelling
  follows from K centres, and none but A_c is ever made.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from gputabu.algorithms.checkpoint import Stage
from gputabu.algorithms.monitor import Monitor
from gputabu.algorithms.trace import TraceRecorder
from gputabu.backend.arithmetic.canonical import in_order
from gputabu.backend.arithmetic.constants import NOISE
from gputabu.backend.base import BackendBase
from gputabu.backend.contract import ROW_BITS, Labels, TrialBatch
from gputabu.core import random
from gputabu.core.log import log
from gputabu.core.random import Purpose
from gputabu.core.results import Stop, Trace
from gputabu.core.validation import check_choice, check_int, check_optional, check_real

#: What `modes=` may name, and `improve=` beside None.
MODES = ("threshold", "mutation", "divide")
IMPROVEMENTS = ("kmeans", "hartigan")
#: Of the state of a search, what a checkpoint keeps as it is: the name in the file, and the attribute.
KEPT = {
    **{name: name for name in ("cost", "best_cost", "recent", "accepted")},
    "print": "fingerprint",
}


@dataclass(frozen=True, slots=True)
class Plan:
    """The parameters of a search."""

    max_iter: int = 1000  # IT_max
    n_trials: int = 20  # NTS
    tenure: int = 15  # MTLS
    keep: float = 0.95  # P
    modes: tuple[str, ...] = ("threshold",)  # taken in turn
    improve: str | None = None

    @classmethod
    def checked(
        cls, max_iter: int, n_trials: int, tenure: int, keep: float, modes: Sequence[str], improve: str | None
    ) -> Plan:
        return cls(
            check_int("max_iter", max_iter, 1),
            check_int("n_trials", n_trials, 1),
            check_int("tenure", tenure, 1),
            check_real("keep", keep, 0, 1),
            check_modes(modes),
            check_optional("improve", improve, IMPROVEMENTS),
        )

    @property
    def limit(self) -> int:
        """Words below this have a high half u with u / 2^32 < P: the point keeps its label."""
        return min(math.ceil(self.keep * 2**32), 2**32 - 1) << 32

    def mode(self, iteration: int) -> str:
        return self.modes[(iteration - 1) % len(self.modes)]

    @property
    def sweeps(self) -> bool:
        return self.improve == "hartigan"


def check_modes(modes: object) -> tuple[str, ...]:
    """The modes, in their order."""
    if isinstance(modes, str) or not isinstance(modes, Sequence) or len(modes) == 0:
        raise ValueError(f"modes={modes!r} must be a sequence of some of {', '.join(map(repr, MODES))}.")
    return tuple(check_choice("modes", mode, MODES) for mode in modes)


@dataclass(frozen=True, slots=True)
class State:
    """R searches between two iterations."""

    labels: Labels  # (R, N) A_c; changed in place, as `best_labels` is
    totals: np.ndarray  # (R, K, C) of A_c
    cost: np.ndarray  # (R,) J_c
    fingerprint: np.ndarray  # (R, 2) uint64 of A_c; without improvement, less that of the start
    best_labels: Labels  # (R, N) A_b; with improvement it is not kept up to date
    best_totals: np.ndarray  # (R, K, C) of A_b
    best_cost: np.ndarray  # (R,) J_b
    recent: np.ndarray  # (R, MTLS, 2) fingerprints of the accepted labellings, in turn
    accepted: np.ndarray  # (R,) how many there were
    moves: np.ndarray  # (R,) points that changed cluster
    way: np.ndarray  # (R, 2) int32: the trial that led here, or -1, and whether A_b is its
    origin: np.ndarray | None = None  # (R, K, d) centres that A_c follows from, with improvement
    best_origin: np.ndarray | None = None  # (R, K, d) and A_b


@dataclass(frozen=True, slots=True)
class Course:
    """Where a search is in a longer one: iterations before, what J lacks, and the best J so far (R,), if known."""

    before: int = 0
    constant: float = 0.0
    known: np.ndarray | None = None

    @property
    def bar(self) -> np.ndarray | None:
        """The best J so far, less what it lacks here."""
        return None if self.known is None else self.known - self.constant


def explore(
    backend: BackendBase,
    start: TrialBatch,
    plan: Plan,
    monitor: Monitor,
    stage: Stage,
    states: list[State],
    course: Course,
) -> tuple[np.ndarray, list[Stop], Trace]:
    """Run R searches from the labelling that `start` draws or has; the last state goes to `states`.

    Returns the way (T, R, 2) there, on which `retrace` can follow.
    """
    everyone, constant = np.arange(len(start.restarts)), course.constant
    if (saved := stage.state) is None:
        state, recorder, way = begin(backend, start, plan, course), TraceRecorder(len(everyone)), list[np.ndarray]()
        recorder.start(state.cost + constant)
    else:
        state = replace(
            retrace(backend, start, plan, saved["way"], course),
            **{attribute: saved[name] for name, attribute in KEPT.items()},
        )
        recorder, way = TraceRecorder.resumed(saved["trace"]), list(saved["way"])
    stop = Stop.MAX_ITER
    for iteration in range(len(way) + 1, plan.max_iter + 1):
        state = step(backend, state, prepared(backend, state, start, plan, course.before + iteration), plan)
        recorder.add(everyone, state.cost + constant, state.moves, best=state.best_cost + constant)
        way.append(state.way)
        log.debug("iteration %d: %d restarts, best J %.10g", iteration, len(everyone), state.best_cost.min() + constant)
        rest = {name: getattr(state, attribute) for name, attribute in KEPT.items()}
        stage.keep({"way": partial(stacked, way, len(way)), "trace": recorder.kept, **rest})
        last = np.full(len(everyone), iteration == plan.max_iter)
        monitor.report(course.before + iteration, everyone, state.cost + constant, state.best_cost + constant, last)
        if monitor.halted:
            stop = monitor.halted
            break
    states.append(state)
    return stacked(way, len(way)), [stop] * len(everyone), recorder.trace()


def stacked(way: list[np.ndarray], length: int) -> np.ndarray:
    """The first so many steps of a way: (T, R, 2)."""
    return np.stack(way[:length])


def prepared(backend: BackendBase, state: State, start: TrialBatch, plan: Plan, iteration: int) -> TrialBatch:
    """The trials of an iteration."""
    trials = replace(start, step=iteration, n_trials=plan.n_trials, limit=plan.limit, given=None)
    mode = plan.mode(iteration)
    if mode == "threshold":
        return trials
    centers = centroids(backend, state.totals)
    return replace(trials, centers=centers) if mode == "mutation" else divided(backend, state.labels, centers, trials)


def divided(backend: BackendBase, labels: Labels, centers: np.ndarray, trials: TrialBatch) -> TrialBatch:
    """Trials in which a random cluster joins its nearest, and a random third is split by two random members."""
    k, t = centers.shape[1], trials.n_trials
    words = np.stack([
        random.words(trials.seed, number, 2 * t, purpose=Purpose.CUT, step=trials.step)
        for number in trials.restarts.tolist()
    ])  # fmt: skip
    apart = in_order((centers[:, :, None] - centers[:, None]) ** 2)  # (R, K, K)
    apart[:, np.arange(k), np.arange(k)] = np.inf
    gone = random.below(words[:, :t], np.array(k))  # (R, T)
    into = np.take_along_axis(apart.argmin(axis=2), gone, axis=1)
    cut = into  # where there is no third
    if k > 2:
        cut = random.below(words[:, t:], np.array(k - 2))  # of those that are neither
        cut += cut >= np.minimum(gone, into)
        cut += cut >= np.maximum(gone, into)
    keys = backend.member_keys_partial(labels, cut, trials)  # (R, T, 2)
    rows = (keys & np.uint64((1 << ROW_BITS) - 1)).astype(np.int64)
    rows[keys[..., 0] > keys[..., 1]] = 0  # no members: nobody will be asked
    return replace(trials, cuts=np.stack([gone, into, cut], axis=2).astype(np.int32), pairs=backend.rows(rows))


def centroids(backend: BackendBase, totals: np.ndarray) -> np.ndarray:
    """Of clusters with totals (..., K, C); an empty one is centred at the mean."""
    return backend.grid.centroids(totals, np.broadcast_to(backend.grid.offset, (*totals.shape[:-1], backend.points.d)))


def retrace(backend: BackendBase, start: TrialBatch, plan: Plan, way: np.ndarray, course: Course) -> State:
    """Go from the start along a way (T, R, 2): A_c and A_b, and their J. One trial is drawn in each iteration."""
    state = begin(backend, start, plan, course)
    for i, (chosen, better) in enumerate(zip(way[..., 0].astype(np.int64), way[..., 1] > 0, strict=True), start=1):
        trials = prepared(backend, state, start, plan, course.before + i)
        noted = better if plan.improve is None else np.zeros_like(better)
        totals = state.totals + backend.apply_trial(state.labels, state.best_labels, trials, chosen, noted).totals
        origin = None
        if state.origin is not None:
            origin = np.where((chosen >= 0)[:, None, None], centroids(backend, totals), state.origin)
            adopt(backend, state.labels, totals, origin, plan)
            totals = backend.evaluate_steps(origin, plan.sweeps, trials).totals
        cost = cost_of(backend, totals)
        best = np.where(better, cost, state.best_cost)
        state = noted_best(replace(state, totals=totals, origin=origin, cost=cost, best_cost=best), better)
    return state


def cost_of(backend: BackendBase, totals: np.ndarray) -> np.ndarray:
    """J at the centroids of clusters with totals (R, K, C)."""
    return np.maximum(backend.scatter - backend.grid.explained(totals), 0.0)


def noted_best(state: State, better: np.ndarray) -> State:
    """The state with what A_b follows from, where A_c is better, (R,) bool."""
    here, origin = better[:, None, None], state.best_origin
    if state.origin is not None and origin is not None:
        origin = np.where(here, state.origin, origin)
    return replace(state, best_totals=np.where(here, state.totals, state.best_totals), best_origin=origin)


def begin(backend: BackendBase, start: TrialBatch, plan: Plan, course: Course) -> State:
    """A_c = A_b = A^(0): the first trial of points that have no label yet, improved if trials are to be.

    Where a better J is known already, J_b is that.
    """
    r = len(start.restarts)
    labels = backend.blank_labels(r)
    best = backend.blank_labels(r) if plan.improve is None else labels
    totals = backend.apply_trial(labels, best, start, np.zeros(r, np.int64), np.full(r, plan.improve is None)).totals
    origin = None
    if plan.improve is not None:
        origin = centroids(backend, totals)
        adopt(backend, labels, totals, origin, plan)
        totals = backend.evaluate_steps(origin, plan.sweeps, start).totals
    cost, bar = cost_of(backend, totals), course.bar
    best_cost = cost if bar is None else np.where(cost < bar - NOISE * backend.scatter, cost, bar)
    none = np.zeros(r, np.int64)
    recent = np.zeros((r, plan.tenure, 2), np.uint64)
    return State(labels, totals, cost, np.zeros((r, 2), np.uint64), best, totals, best_cost, recent, none, none,
                 np.zeros((r, 2), np.int32), origin, origin)  # fmt: skip


def adopt(backend: BackendBase, labels: Labels, totals: np.ndarray, origin: np.ndarray, plan: Plan) -> np.ndarray:
    """Label by centres (R, K, d), and sweep if the plan says so: how many points changed cluster, (R,).

    totals (R, K, C) are those of the labels before.
    """
    done = backend.assign(origin, labels)
    if not plan.sweeps:
        return done.changed
    totals = totals + done.totals
    moves = backend.find_moves(backend.grid.centroids(totals, origin), totals, labels)
    backend.relabel(labels, moves)
    return done.changed + np.bincount(moves.restart, minlength=len(origin))


def step(backend: BackendBase, state: State, trials: TrialBatch, plan: Plan) -> State:
    """One iteration: move to the best trial that is allowed, whether it is better or not, and remember it."""
    return _plain_step(backend, state, trials) if plan.improve is None else _improved_step(backend, state, trials, plan)


def _plain_step(backend: BackendBase, state: State, trials: TrialBatch) -> State:
    restart = np.arange(len(state.cost))
    tried = backend.evaluate_trials(state.labels, state.totals, trials)
    fingerprints = state.fingerprint[:, None] + tried.fingerprints  # (R, T, 2)
    chosen, better = judged(state, tried.cost, fingerprints, NOISE * backend.scatter)
    change = backend.apply_trial(state.labels, state.best_labels, trials, chosen, better)
    moved = replace(state, totals=state.totals + change.totals, moves=change.changed)
    return taken(moved, tried.cost[restart, chosen], fingerprints[restart, chosen], chosen, better)


def _improved_step(backend: BackendBase, state: State, trials: TrialBatch, plan: Plan) -> State:
    (r, k, c), t, d, restart = state.totals.shape, trials.n_trials, backend.points.d, np.arange(len(state.cost))
    assert state.origin is not None
    change, _ = backend.evaluate_trials_partial(state.labels, trials)
    origins = centroids(backend, state.totals[:, None] + change)  # (R, T, K, d)
    tried = backend.evaluate_steps(origins.reshape(r * t, k, d), plan.sweeps, trials)
    cost, fingerprints = tried.cost.reshape(r, t), tried.fingerprints.reshape(r, t, 2)
    chosen, better = judged(state, cost, fingerprints, NOISE * backend.scatter)
    here = (chosen >= 0)[:, None, None]
    origin = np.where(here, origins[restart, chosen], state.origin)
    changed = adopt(backend, state.labels, state.totals, origin, plan)  # the others are as their own origin has them
    totals = np.where(here, tried.totals.reshape(r, t, k, c)[restart, chosen], state.totals)
    moved = replace(state, totals=totals, origin=origin, moves=np.where(chosen >= 0, changed, 0))
    return taken(moved, cost[restart, chosen], fingerprints[restart, chosen], chosen, better)


def judged(state: State, cost: np.ndarray, fingerprints: np.ndarray, noise: float) -> tuple[np.ndarray, np.ndarray]:
    """The trial that is accepted, or -1, and whether it is the best so far: (R, T), (R, T, 2) -> (R,), (R,)."""
    chosen = accept(cost, forbidden(fingerprints, state), state.best_cost, noise)
    taken = cost[np.arange(len(cost)), chosen]
    return chosen, (chosen >= 0) & (taken < state.best_cost - noise)


def taken(state: State, cost: np.ndarray, fingerprint: np.ndarray, chosen: np.ndarray, better: np.ndarray) -> State:
    """The state, whose totals are those of A_c, with J, the tabu list and A_b after a move to trials `chosen`."""
    moved, restart, recent = chosen >= 0, np.arange(len(chosen)), state.recent.copy()
    recent[restart[moved], state.accepted[moved] % recent.shape[1]] = fingerprint[moved]
    return noted_best(
        replace(
            state,
            cost=np.where(moved, cost, state.cost),
            fingerprint=np.where(moved[:, None], fingerprint, state.fingerprint),
            best_cost=np.where(better, cost, state.best_cost),
            recent=recent,
            accepted=state.accepted + moved,
            way=np.stack([chosen, better], axis=1).astype(np.int32),
        ),
        better,
    )


def forbidden(fingerprints: np.ndarray, state: State) -> np.ndarray:
    """Which trials are in the tabu list: (R, T, 2) -> (R, T) bool."""
    filled = np.arange(state.recent.shape[1]) < state.accepted[:, None]  # (R, MTLS)
    one, two = (fingerprints[:, :, None, i] == state.recent[:, None, :, i] for i in (0, 1))  # (R, T, MTLS) each
    return (one & two & filled[:, None]).any(axis=-1)


def accept(cost: np.ndarray, tabu: np.ndarray, best: np.ndarray, noise: float) -> np.ndarray:
    """The trial of the lowest J that is not tabu or beats J_b; -1 where there is none: (R, T) -> (R,).

    J is the scatter of all points less what clusters explain of it, so its rounding is relative to that scatter: values
    closer than `noise` are equal.
    """
    allowed = ~tabu | (cost < best[:, None] - noise)
    cost = np.where(allowed, cost, np.inf)
    first = (cost <= cost.min(axis=1, keepdims=True) + noise).argmax(axis=1)
    return np.where(allowed.any(axis=1), first, -1)


def best_labels(backend: BackendBase, state: State, plan: Plan) -> Labels:
    """The labels of A_b, (R, N)."""
    if plan.improve is None:
        return state.best_labels
    assert state.best_origin is not None
    labels = backend.blank_labels(len(state.cost))
    adopt(backend, labels, np.zeros_like(state.totals), state.best_origin, plan)
    return labels
