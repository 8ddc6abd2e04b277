"""K-Means with clusters of bounded size: bounded assignments and means in turn (Bradley, Bennett and Demiriz 2000).

An assignment within the bounds is the cheapest there is (`algorithms.transport`), and means are the best centres for
it, so J never rises. It ends where J no longer falls. It begins with what another search leads to: the seeds of
K-Means, or the centres that relocation found without bounds. Then `algorithms.exchange` may go on with single points.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from gputabu.algorithms.checkpoint import Stage
from gputabu.algorithms.exchange import exchange
from gputabu.algorithms.monitor import Monitor
from gputabu.algorithms.restarts import FinishedBatch, Search, joined
from gputabu.algorithms.trace import TraceRecorder
from gputabu.algorithms.transport import Sizes, Unbalanced, assign, list_length, short_length, span
from gputabu.backend.arithmetic.canonical import in_order
from gputabu.backend.arithmetic.constants import NOISE
from gputabu.backend.arithmetic.fixed_point import Totals
from gputabu.backend.base import BackendBase
from gputabu.backend.contract import Labels
from gputabu.core.log import log
from gputabu.core.results import Stop, Trace
from gputabu.core.validation import check_choice, check_int, check_real
from gputabu.data.points import Points

#: What a size is.
SIZES = ("count", "weight")


@dataclass(frozen=True, slots=True)
class Rule:
    """How the bounded part of a search goes."""

    phase: str  # as whoever watches is told
    max_iter: int
    tol: float
    exchange: bool  # whether single points follow


def within(search: Search, min_size: object, max_size: object, size: object, rule: Rule) -> Search:
    """The search for clusters within the bounds; the search as it is where there are none."""
    by_weight = check_choice("size", size, SIZES) == "weight"
    if min_size is None and max_size is None:
        if by_weight:
            raise ValueError("size='weight' must go with min_size or max_size.")
        return search
    low, high = _bound("min_size", min_size, 0.0, by_weight), _bound("max_size", max_size, np.inf, by_weight)
    if low > high:
        raise ValueError(f"min_size={min_size!r} must be at most max_size={max_size!r}.")
    return BoundedSearch(search, Sizes(low, high, by_weight), rule)


def _bound(name: str, value: object, default: float, by_weight: bool) -> float:
    if value is None:
        return default
    return check_real(name, value, 0) if by_weight else float(check_int(name, value, int(name == "max_size")))


@dataclass(frozen=True)
class BoundedSearch(Search):
    """A search, then K-Means within bounds from the centres that it leads to."""

    search: Search
    sizes: Sizes
    rule: Rule
    name = "bounded"
    ungrouped = "bounds are on numbers of rows"

    @property
    def k(self) -> int:  # type: ignore[override]
        return self.search.k

    @property
    def max_iter(self) -> int | None:  # type: ignore[override]
        return self.search.max_iter

    @property
    def patience(self) -> int | None:  # type: ignore[override]
        return self.search.patience

    def identity(self) -> dict[str, Any]:
        high = None if self.sizes.high == np.inf else self.sizes.high
        bounds = {"min_size": self.sizes.low, "max_size": high, "by_weight": self.sizes.by_weight}
        return {"bounded": self.search.name, **self.search.identity(), **bounds}

    def check(self, points: Points) -> None:
        """Raise where the bounds leave no room for the points, or ask for more than there is."""
        low, high, k = self.sizes.low, self.sizes.high, self.k
        total, what, slack = _whole(points, self.sizes.by_weight)
        if k * high < total - slack:
            least = total / k if self.sizes.by_weight else -(-total // k)
            raise ValueError(
                f"max_size={high:.10g} must be at least {least:.10g}: {k} clusters have to take {total:.10g} {what}."
            )
        if k * low > total + slack:
            most = total / k if self.sizes.by_weight else total // k
            raise ValueError(
                f"min_size={low:.10g} must be at most {most:.10g}: {k} clusters share {total:.10g} {what}."
            )
        if self.sizes.by_weight and high < span(points)[1]:
            raise ValueError(f"max_size={high:.10g} must be at least {span(points)[1]:.10g}, the heaviest sample.")

    def run(self, backend: BackendBase, batch: Sequence[int], monitor: Monitor) -> FinishedBatch:
        starts = self.search.starts(backend, batch, monitor)
        monitor.begin_phase(self.rule.phase, self.rule.max_iter)
        runs: list[Descent] = []
        best, labels = 0, np.empty(0, np.int32)
        for r in range(len(batch)):
            found, made = self._best_of(backend, [centers[r] for centers in starts], monitor, r)
            runs.append(found)
            if r == 0 or found.inertia < runs[best].inertia:
                best = r
                labels = follow(backend, found.way, self.k, self.sizes) if made is None else made
        return FinishedBatch(
            numbers=list(batch),
            inertia=np.array([found.inertia for found in runs]),
            best=best,
            labels=lambda: labels,
            centers=runs[best].centers,
            indices=None,
            stop=[found.stop for found in runs],
            trace=joined([found.trace for found in runs]),
            way=runs[best].way,
        )

    def _best_of(
        self, backend: BackendBase, starts: Sequence[np.ndarray], monitor: Monitor, r: int
    ) -> tuple[Descent, np.ndarray | None]:
        """The best descent of restart r, the first of equals, and its labels, or None where a checkpoint had it."""
        best: tuple[Descent, np.ndarray | None] | None = None
        for number, centers in enumerate(starts):
            made: list[np.ndarray] = []

            def work(stage: Stage, centers: np.ndarray = centers, made: list[Any] = made) -> Descent:
                return descend(backend, centers, self.sizes, self.rule, monitor, stage, r, made)

            if best is not None and monitor.should_stop():
                break
            found = Descent(*monitor.stage(f"bounded {r}, {number}", work))
            if best is None or found.inertia < best[0].inertia:
                best = found, made[0] if made else None
        assert best is not None
        return best

    def labels(self, backend: BackendBase, batch: FinishedBatch) -> Labels:
        assert batch.way is not None
        return labelled(backend, follow(backend, batch.way, self.k, self.sizes), self.k)


def _whole(points: Points, by_weight: bool) -> tuple[float, str, float]:
    """What all clusters take together, in words too, and what of it may be rounding."""
    if by_weight:
        return points.total_weight, "weight", points.total_weight * 2.0**-30
    if points.weights is None:
        return points.n, "samples", 0
    return sum(int(np.count_nonzero(np.asarray(w))) for w in points.weights), "samples of positive weight", 0


class Descent(NamedTuple):
    """Where K-Means within bounds ended."""

    centers: np.ndarray  # (K, d) centroids, in the dtype of the points
    inertia: float
    stop: Stop
    trace: Trace
    way: np.ndarray  # (W,) int64, from which the labels follow


@dataclass(slots=True)
class State:
    """K-Means within bounds between two iterations."""

    made: int  # iterations
    centers: np.ndarray  # (K, d) to assign to next
    prices: np.ndarray  # (K,) int64 to begin that with
    scale: float  # of the costs that the prices are of
    cost: float  # J of the labels at their centroids
    at: np.ndarray  # (K, d) that the labels are assigned to,
    charged: np.ndarray  # (K,) from these prices
    labels: np.ndarray  # (N,) int32 on the host
    held: Labels  # (1, N), the same on the backend
    totals: np.ndarray  # (1, K, C) of them
    recorder: TraceRecorder
    length: int  # of lists

    @classmethod
    def begin(cls, backend: BackendBase, centers: np.ndarray) -> State:
        k, d = centers.shape
        totals = np.zeros((1, k, Totals.columns(d, backend.points.weights is not None)), np.int64)
        none, blank = np.zeros(k, np.int64), backend.blank_labels(1)
        n = backend.points.n
        length = min(list_length(k, n), max(short_length(k, n), 4 * n // k**2))  # many points are to be handed on
        labels = backend.fetch_labels(blank, 0)
        recorder = TraceRecorder(1)
        recorder.start(np.array([np.inf]))
        return cls(0, centers, none, 0.0, np.inf, centers, none, labels, blank, totals, recorder, length)

    def kept(self) -> dict[str, Any]:
        names = ("made", "centers", "prices", "scale", "cost", "at", "charged")
        return {**{name: getattr(self, name) for name in names}, "trace": self.recorder.kept}

    def resume(self, backend: BackendBase, saved: dict[str, Any], sizes: Sizes) -> None:
        """Go on from what was kept: labels follow from centres and prices, totals from labels."""
        found = assign(backend, saved["at"], saved["charged"], sizes, self.length)
        assert found is not None
        self.labels, self.recorder = found.labels, TraceRecorder.resumed(saved["trace"])
        self.totals = backend.set_labels(self.held, found.labels[None], len(self.centers)).totals
        for name in ("made", "centers", "prices", "scale", "cost", "at", "charged"):
            setattr(self, name, saved[name])


def descend(
    backend: BackendBase,
    centers: np.ndarray,
    sizes: Sizes,
    rule: Rule,
    monitor: Monitor,
    stage: Stage,
    position: int,
    made: list[np.ndarray],
) -> Descent:
    """Alternate bounded assignments and means from centers (K, d) until J no longer falls.

    The labels (N,) are appended to `made`; they are too many for a checkpoint.
    """
    state, stop = State.begin(backend, centers), Stop.MAX_ITER
    if stage.state is not None:
        state.resume(backend, stage.state, sizes)
    allowed = rule.tol and rule.tol * backend.scatter / (float(backend.points.total_weight) * centers.shape[1])
    while state.made < rule.max_iter:
        moved, changed = step(backend, state, sizes, monitor)
        if not changed:
            stop = monitor.stop_reason if moved is None else Stop.CONVERGED
            break
        assert moved is not None
        shift = float(in_order(in_order((moved - state.at) ** 2)[None])[0])
        ended = shift <= allowed if allowed else False
        one = np.array([position])
        cost = np.array([state.cost])
        monitor.report(state.made, one, cost, cost, np.array([ended or state.made == rule.max_iter]))
        if ended:
            stop = Stop.TOLERANCE
            break
        if monitor.should_hurry():
            stop = monitor.stop_reason
            break
        if stage.kept:
            stage.keep(state.kept())
    final = backend.grid.centroids(state.totals, state.at[None])[0]
    labels, moved_to = state.labels, np.empty((0, 2), np.int64)
    if rule.exchange and not monitor.should_hurry():
        final, labels = exchange(backend, final, state.held, labels, state.totals, sizes, monitor)
        rows = np.flatnonzero(labels != state.labels)
        moved_to = np.stack([rows, labels[rows]], axis=1)
    rounded = final.astype(backend.points.dtype)
    inertia = float(backend.objective(rounded[None].astype(np.float64), state.held)[0])
    made.append(labels)
    return Descent(rounded, inertia, stop, trace_of(state), packed(state.at, state.charged, moved_to))


def step(backend: BackendBase, state: State, sizes: Sizes, monitor: Monitor) -> tuple[np.ndarray | None, int]:
    """One iteration: the centres that follow and how many points changed cluster; 0 where J would not fall.

    No centres where there was no time for it: the first assignment is always made.
    """
    scale = backend.measure(state.centers, sizes.by_weight).scale
    prices = state.prices if scale == state.scale else np.zeros_like(state.prices)
    first = state.made == 0
    try:
        found = assign(
            backend, state.centers, prices, sizes, state.length, lambda: not first and monitor.should_hurry()
        )
    except Unbalanced as error:
        if first:
            raise ValueError(f"max_size={sizes.high:.10g}, min_size={sizes.low:.10g}: {error}.") from None
        return state.centers, 0
    if found is None:
        return None, 0
    before, totals = state.labels, state.totals
    done = backend.set_labels(state.held, found.labels[None], len(state.centers))
    state.totals = totals + done.totals
    centroids = backend.grid.centroids(state.totals, state.centers[None])
    cost = float(backend.objective(centroids, state.held)[0])
    changed = int(done.changed[0])
    if not first and not (changed and cost < state.cost * (1 - NOISE)):
        backend.set_labels(state.held, before[None], len(state.centers))
        state.totals = totals
        return state.centers, 0
    state.at, state.charged, state.labels, state.cost = state.centers, prices, found.labels, cost
    filled = backend.fill_empty(state.centers[None], state.held, state.totals)
    state.centers = backend.grid.centroids(filled, state.centers[None])[0]
    state.prices, state.scale = found.prices, scale
    k, n = len(state.centers), backend.points.n
    longer = found.refills > 2 * k
    state.length = min(list_length(k, n), 2 * state.length) if longer else max(short_length(k, n), state.length // 2)
    state.made += 1
    state.recorder.add(np.zeros(1, np.int64), np.array([cost]), np.array([changed]))
    log.debug("bounded K-Means iteration %d: J %.10g, %d lists ran out", state.made, cost, found.refills)
    return state.centers, changed


def trace_of(state: State) -> Trace:
    """J after every assignment. There is none before the first, whose J stands for it."""
    found = state.recorder.trace()
    current, best = found.current.copy(), found.best.copy()
    current[:, 0] = current[:, 1]
    best[:, 0] = best[:, 1]
    return Trace(current, best, found.moves)


# -- labels follow from centres, prices and exchanges ----------------------------------------------


def packed(at: np.ndarray, prices: np.ndarray, swaps: np.ndarray) -> np.ndarray:
    """Centres (K, d), prices (K,) and exchanges (S, 2), rows and their clusters, as one array of integers."""
    return np.concatenate([np.ascontiguousarray(at).view(np.int64).ravel(), prices, swaps.ravel()])


def follow(backend: BackendBase, way: np.ndarray, k: int, sizes: Sizes) -> np.ndarray:
    """The labels (N,) that a way led to."""
    d = backend.points.d
    at, prices = way[: k * d].view(np.float64).reshape(k, d), way[k * d : k * (d + 1)]
    found = assign(backend, at, prices, sizes, list_length(k, backend.points.n))
    assert found is not None
    rows, target = way[k * (d + 1) :].reshape(-1, 2).T
    found.labels[rows] = target
    return found.labels


def labelled(backend: BackendBase, labels: np.ndarray, k: int) -> Labels:
    """Labels (N,) on the backend: (1, N)."""
    held = backend.blank_labels(1)
    backend.set_labels(held, labels[None], k)
    return held
