"""Tabu search that relocates centres: a second neighbourhood beside that of the paper (`gputabu.algorithms.quantized`).

A quantized mean never leaves its own cluster, so that a region with a centre too many keeps it. Here an iteration takes
one centre away and puts a data point in its place, wherever that is best:

- a few candidate points are drawn in proportion to weight times squared distance to their centre (D² sampling);
- ΔJ of every candidate in place of every centre is known exactly from one pass (`gputabu.backend.numpy.relocation`);
- the best pair is taken, also if it is worse. A centre placed by one of the latest moves stays (tenure), and a point
  placed by one of the latest K is not placed again;
- three steps follow: to the nearest centre, then twice by Hartigan's rule, all points at once. More follow while J
  falls fast enough to reach the best so far;
- the search has a home, the best solution lately. After `go_back` iterations without a better one it goes back there;
  after `returns` such returns it gives its home up, and takes for one where it is.

The best of a search is then refined by K-Means and single moves. Reads of X in an iteration: one for the two nearest
centres, one for the candidates, one per step, and of the points that a step moves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gputabu.algorithms import lloyd, seeding
from gputabu.algorithms.checkpoint import Stage, identify
from gputabu.algorithms.monitor import Callback, Watch
from gputabu.algorithms.progress import Ledger
from gputabu.algorithms.restarts import Finished, announce, batches, gather, restart_numbers
from gputabu.algorithms.tabu_list import Recent
from gputabu.algorithms.trace import Course
from gputabu.backend import Devices, admit, hold, home
from gputabu.backend.arithmetic.canonical import in_order
from gputabu.backend.arithmetic.constants import NOISE
from gputabu.backend.arithmetic.fixed_point import Totals
from gputabu.backend.arithmetic.rules import masses
from gputabu.backend.contract import Labels, Ops, Pairs, Roamed, Roaming
from gputabu.core import random as draws
from gputabu.core.log import log
from gputabu.core.random import Purpose
from gputabu.core.results import Clustering, Stop, Trace
from gputabu.core.validation import check_choice, check_int, check_n_clusters, check_real
from gputabu.data.memmaps import labels_file

#: How the best solution is refined: K-Means from it, and then single moves.
REFINEMENTS = ("hartigan", "lloyd")
#: Of the state of a search, what is kept as it is.
KEPT = ("centers", "cost", "best", "best_centers", "home", "home_centers", "changed", "stale", "away")
#: Iterations of K-Means before the first move.
START_ITER = 300


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
    backend: str = "auto",
    device: Devices = None,
    labels_out: object = None,
    checkpoint: object = None,
    progress: bool = False,
    callback: Callback | None = None,
) -> Clustering:
    """Cluster `X` by tabu search over relocations of centres and return the best of the restarts.

    Parameters
    ----------
    X : (N, d) array, on the host or on a GPU, a file or anything else that `gputabu.chunked` reads, or Points
    n_clusters : int
    weights : (N,) array, optional
    init : {"k-means++", "random"}, (K, d) centres or (K,) row numbers
        K-Means from there is the start of the search.
    restarts : int or sequence of int
        How many restarts, or the numbers of those to run; restart r does not depend on the others.
    max_iter : int
        Iterations of the tabu search: moves of one centre each.
    patience : int, optional
        Iterations without improvement after which a restart stops; by default a quarter of `max_iter`.
    max_time : float, optional
        Seconds after which the search stops, whatever it has found; only then may two runs differ. The refinement of
        the best may take a tenth of it more.
    target : float
        J at which a restart stops.
    candidates : int
        Points drawn per iteration, to put a centre at.
    tenure : int, optional
        Moves for which a centre that was placed stays; by default half of `n_clusters`.
    go_back : int
        Iterations without a better solution after which the search goes back to the best that it has lately found.
    returns : int
        Returns to one and the same solution after which the search stays away from it.
    refine : {"hartigan", "lloyd"}
        Refinement of the best solution: K-Means, and with "hartigan" then single moves, points changing cluster one at
        a time until no such move lowers J.
    seed : int
    backend : {"auto", "numpy", "numba", "cuda"}
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
        Called with a `Progress` after every iteration; it ends the search by returning True. See `gputabu.Progress`.

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
    watch = Watch(callback, progress, max_time, checkpoint)
    points = admit(X, weights)
    k = check_n_clusters(n_clusters, points.n)
    check_int("max_iter", max_iter, 1)
    patience = max(1, max_iter // 4) if patience is None else check_int("patience", patience, 1)
    check_real("target", target, 0)
    check_int("candidates", candidates, 1)
    tenure = k // 2 if tenure is None else check_int("tenure", tenure, 0, k - 1)
    check_int("go_back", go_back, 1)
    check_int("returns", returns, 1)
    check_choice("refine", refine, REFINEMENTS)
    numbers = restart_numbers(restarts)
    out = labels_file(labels_out, points.n)
    with hold(points, backend, device) as ops, watch.opened(k, Ledger(len(numbers), max_iter, patience)):
        announce(points, k, numbers, ops.name)
        start = seeding.starts(ops, init, k, seed)
        identify(watch, ops, {
            "search": "relocation", "n_clusters": k, "init": start.name, "restarts": numbers, "max_iter": max_iter,
            "patience": patience, "target": target, "candidates": candidates, "tenure": tenure, "go_back": go_back,
            "returns": returns, "refine": refine, "seed": seed,
        })  # fmt: skip

        def work(batch: Sequence[int]) -> Finished:
            centers = watch.stage("seeds", lambda stage: start.centers(batch, stage))
            each = np.array(batch, np.uint64)
            orders = Roaming(max_iter, patience, target, tenure, candidates, go_back, returns, seed, each, watch)
            return lloyd.finish(ops, run(ops, centers, orders, refine), batch)

        return home(gather(ops, watch, batches(numbers, points.n), work), points, out)


def run(ops: Ops, centers: np.ndarray, orders: Roaming, refine: str) -> lloyd.Descent:
    """K-Means from centers (R, K, d), the search, and the refinement of the best."""
    watch = orders.watch
    rounds = 1 if watch.hurried() else START_ITER
    watch.enter("start", rounds)
    alone = centers.shape[1] == 1
    first = watch.stage("start", lambda stage: lloyd.descend(ops, centers, rounds, 0.0, watch, alone, stage))
    begun = lloyd.Descent(*first)
    if alone:  # nowhere to relocate to
        return begun
    watch.enter("search", orders.max_iter)

    def search(stage: Stage) -> lloyd.Descent:
        # A cluster that stayed empty may have kept a centre from outside the box, where sums have no room.
        found = roam(ops, np.clip(begun.centers, ops.bounds.low, ops.bounds.high), orders, stage)
        stops = [stop or watch.early for stop in found.stop]
        return lloyd.Descent(found.centers, stops, Trace(found.current, found.best, found.moves))

    found = lloyd.Descent(*watch.stage("search", search))
    return found._replace(centers=lloyd.refined(ops, found.centers, refine, watch))


@dataclass(slots=True)
class State:
    """R searches; those that have ended stay as they are."""

    centers: np.ndarray  # (R, K, d) centroids
    pairs: Pairs
    labels: Labels  # (R, N)
    totals: np.ndarray  # (R, K, C) of the labels
    cost: np.ndarray  # (R,) J at the centroids
    best: np.ndarray  # (R,) J_b
    best_centers: np.ndarray  # (R, K, d)
    home: np.ndarray  # (R,) J of the solution to go back to
    home_centers: np.ndarray  # (R, K, d)
    changed: np.ndarray  # (R,) points that changed cluster in this iteration
    stale: np.ndarray  # (R,) iterations since the last new best
    away: np.ndarray  # (R,) iterations since the last new home
    placed: Recent  # numbers of centres
    used: Recent  # row numbers

    @classmethod
    def start(cls, ops: Ops, centers: np.ndarray, tenure: int) -> State:
        r, k, d = centers.shape
        totals = np.zeros((r, k, Totals.columns(d, ops.points.weights is not None)), np.int64)
        worst, none = np.full(r, np.inf), np.zeros(r, np.int64)
        state = cls(centers.copy(), ops.pairs(centers), ops.blank(r), totals, worst, worst.copy(), centers.copy(),
                    worst.copy(), centers.copy(), none, none.copy(), none.copy(), Recent(r, tenure),
                    Recent(r, k))  # fmt: skip
        step(ops, state, np.ones(r, np.bool_), nearest=True)
        note(state, np.ones(r, np.bool_))
        return state

    @classmethod
    def resumed(cls, ops: Ops, left: dict[str, Any]) -> State:
        """The state that was left: labels are those of the nearest centres, and totals follow from them."""
        pairs, labels = ops.pairs(left["at"]), ops.blank(len(left["at"]))
        totals = ops.settle(pairs, labels, None, np.ones(len(left["at"]), np.bool_)).totals
        placed, used = Recent.resumed(left["placed"]), Recent.resumed(left["used"])
        return cls(pairs=pairs, labels=labels, totals=totals, placed=placed, used=used, **{n: left[n] for n in KEPT})

    def kept(self) -> dict[str, Any]:
        """What it is resumed from, behind the first step of an iteration."""
        rest = {"at": self.pairs.at, "placed": self.placed.ring, "used": self.used.ring}
        return {name: array.copy() for name, array in rest.items()} | {n: getattr(self, n).copy() for n in KEPT}


def roam(ops: Ops, centers: np.ndarray, orders: Roaming, stage: Stage) -> Roamed:
    """Run R searches from centers (R, K, d), by the backend itself where it can, otherwise pass by pass."""
    own = None if orders.watch.each else ops.roam(centers, orders)
    if own is not None:
        return own
    r = len(centers)
    stops: list[Stop | None] = [None] * r
    made, going = 0, np.ones(r, np.bool_)
    if (left := stage.state) is None:
        state, course = State.start(ops, centers, orders.tenure), Course(r)
        course.start(state.best.copy())
    else:
        state, course = State.resumed(ops, left), Course.resumed(left["trace"])
        made, stops, going = left["made"], left["stops"], left["going"]

    def end(which: np.ndarray, stop: Stop) -> None:
        for i in np.flatnonzero(going & which):
            stops[i] = stop
        going[which] = False

    end(state.best <= orders.target, Stop.TARGET)
    for iteration in range(made, orders.max_iter):
        if left is None:
            rows, perfect = draw(ops, state, orders, iteration)
            end(perfect, Stop.TARGET)  # every point is on a centre
            if not going.any() or orders.watch.over():
                break
            relocate(ops, state, rows, iteration, going)
            state.changed[:] = 0
            step(ops, state, going, nearest=True)
        left = None
        # Now every label is that of the nearest centre, and need not be kept.
        if stage.kept:
            rest = {"made": iteration, "going": going.copy(), "stops": stops.copy(), "trace": course.kept}
            stage.keep(state.kept() | rest)
        descend(ops, state, orders, going)
        course.add(np.flatnonzero(going), state.cost[going], state.changed[going], best=state.best[going])
        log.debug("iteration %d: %d restarts, best J %.10g", iteration + 1, going.sum(), state.best.min())
        active = np.flatnonzero(going)
        end(state.best <= orders.target, Stop.TARGET)
        end(state.stale >= orders.patience, Stop.PATIENCE)
        ended = ~going[active] | (iteration + 1 == orders.max_iter)
        orders.watch.tell(iteration + 1, active, state.cost[active], state.best[active], ended)
        turn(state, orders, going)
    else:
        end(going.copy(), Stop.MAX_ITER)
    trace = course.trace()
    return Roamed(state.best_centers, stops, trace.current, trace.best, trace.moves)


def draw(ops: Ops, state: State, orders: Roaming, iteration: int) -> tuple[np.ndarray, np.ndarray]:
    """Candidates (R, T), row numbers drawn in proportion to what they add to J; and where nothing adds to it (R,)."""
    r, t = len(state.centers), orders.candidates
    ops.pairs(state.centers, state.pairs)
    shift, potential = seeding.refine(ops, state.pairs.near, np.full(r, ops.grid.coarsest(ops.points.n)), None)
    words = [
        draws.words(orders.seed, int(number), t, purpose=Purpose.CANDIDATE, first=iteration * t)
        for number in orders.numbers
    ]
    targets = draws.below(np.stack(words), np.maximum(potential, 1)[:, None])
    perfect = potential == 0
    rows = ops.sample(state.pairs.near, shift, np.where(perfect[:, None], -1, targets))
    return np.where(perfect[:, None], 0, rows), perfect


def relocate(ops: Ops, state: State, rows: np.ndarray, iteration: int, going: np.ndarray) -> None:
    """Put a centre at the best of the candidates, rows (R, T), and forbid the way back."""
    points = ops.rows(rows)  # (R, T, d)
    gains = ops.swap_gains(points, state.pairs)  # (R, T, K)
    r, t, k = gains.shape
    barred = state.used.holds(rows)
    barred &= ~barred.all(axis=1, keepdims=True)  # rather a point again than none
    gains[barred[:, :, None] | state.placed.holds(np.arange(k)[None])[:, None, :]] = np.inf
    chosen, center = np.divmod(gains.reshape(r, t * k).argmin(axis=1), k)  # the first of equals
    everyone = np.arange(r)
    state.centers[everyone[going], center[going]] = points[everyone[going], chosen[going]]
    state.placed.push(iteration, center)
    state.used.push(iteration, rows[everyone, chosen])


def descend(ops: Ops, state: State, orders: Roaming, going: np.ndarray) -> None:
    """The steps behind the first; more of them while J falls fast enough to reach the best."""
    before, last, best = state.home.copy(), state.cost, state.best.copy()
    for _ in range(1, orders.steps):
        last = state.cost.copy()
        step(ops, state, going)
    better, falling = note(state, going), going.copy()
    for _ in range(orders.more_steps):
        falling &= (state.cost < last * (1 - NOISE)) & ((last - state.cost) * orders.reach > state.cost - before)
        if not falling.any():
            break
        last = state.cost.copy()
        step(ops, state, falling)
        better |= note(state, falling)
    state.stale = np.where(state.best < best, 0, state.stale + going)
    state.away = np.where(better, 0, state.away + going)


def step(ops: Ops, state: State, who: np.ndarray, nearest: bool = False) -> None:
    """Settle every point of the restarts `who`, and go to the centroids."""
    ops.pairs(state.centers, state.pairs)
    done = ops.settle(state.pairs, state.labels, None if nearest else masses(ops.grid, state.totals), who)
    state.totals += done.totals
    state.changed += done.changed
    moved = ops.grid.centroids(state.totals, state.centers)
    fall = in_order(ops.grid.weights(state.totals) * in_order((moved - state.pairs.at) ** 2))
    state.centers[who] = moved[who]
    state.cost[who] = np.maximum(done.cost - fall, 0.0)[who]


def note(state: State, who: np.ndarray) -> np.ndarray:
    """Keep what is better than home, or the best, by more than rounding: (R,) bool, where there is a new home."""
    better = who & (state.cost < state.best * (1 - NOISE))
    state.best[better], state.best_centers[better] = state.cost[better], state.centers[better]
    nearer = who & (state.cost < state.home * (1 - NOISE))
    state.home[nearer], state.home_centers[nearer] = state.cost[nearer], state.centers[nearer]
    return nearer


def turn(state: State, orders: Roaming, going: np.ndarray) -> None:
    """Go back home from time to time, or give it up."""
    settle = going & (state.away >= orders.go_back * orders.returns)
    state.home[settle], state.home_centers[settle], state.away[settle] = state.cost[settle], state.centers[settle], 0
    back = going & (state.away % orders.go_back == 0)  # or just there
    state.centers[back] = state.home_centers[back]
