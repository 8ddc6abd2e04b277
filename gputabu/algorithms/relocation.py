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

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

import numpy as np

from gputabu.algorithms import bounded, coarse, lloyd
from gputabu.algorithms.checkpoint import Stage
from gputabu.algorithms.groups import Groups
from gputabu.algorithms.monitor import Callback, Monitor
from gputabu.algorithms.parameters import documented
from gputabu.algorithms.relocation_loop import run_relocation
from gputabu.algorithms.restarts import (
    FinishedBatch,
    Search,
    run_restarts,
)
from gputabu.algorithms.seeding import Init
from gputabu.backend import BackendChoice, Devices, as_points
from gputabu.backend.base import BackendBase
from gputabu.backend.loops import RelocationRun, RelocationSettings, StopSignal
from gputabu.core.results import Clustering, Trace
from gputabu.core.validation import check_choice, check_int, check_n_clusters, check_real
from gputabu.data.points import Shape

#: How the best solution is refined: K-Means from it, and then single moves.
REFINEMENTS = ("hartigan", "lloyd")
#: Iterations of K-Means before the first move.
START_ITER = 300
#: Passes of a search by default, in multiples of those of the K-Means it begins with.
EFFORT = 10.0
#: More iterations or passes than any search makes.
MANY = 2**31 - 1
#: What candidates on one sample and on the next are drawn with differs by so much in its seed.
STRIDE = 0x9E3779B97F4A7C15


@documented
def search(
    X: object,
    n_clusters: int,
    *,
    weights: object = None,
    init: object = "k-means++",
    restarts: int | Sequence[int] = 1,
    effort: float | None = None,
    max_iter: int | None = None,
    patience: int | None = None,
    max_time: float | None = None,
    target: float = 0.0,
    candidates: int = 7,
    tenure: int | None = None,
    go_back: int = 60,
    returns: int = 20,
    refine: str = "hartigan",
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
    """Cluster `X` by tabu search over relocations of centres and return the best of the restarts.

    Parameters
    ----------
    %(data)s
    init : {"k-means++", "random"}, (K, d) centres or (K,) row numbers
        K-Means from there is the start of the search.
    %(restarts)s
    effort : float, optional
        Work of the search: passes over the points, in multiples of those of the K-Means that it begins with. The
        default is 10, and no limit where `max_iter` or `max_time` is given.
    max_iter : int, optional
        Iterations of the tabu search: moves of one centre each.
    patience : int, optional
        Iterations without improvement after which a restart stops.
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
        Returns to one and the same solution after which the search stays away from it.
    refine : {"hartigan", "lloyd"}
        Refinement of the best solution: K-Means, and with "hartigan" then single moves, points changing cluster one at
        a time until no such move lowers J.
    %(bounds)s
    %(groups)s
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
        points.shape, n_clusters, init=init, effort=effort, max_iter=max_iter, patience=patience, target=target,
        candidates=candidates, tenure=tenure, go_back=go_back, returns=returns, refine=refine, seed=seed,
    ).within(min_size, max_size, size)  # fmt: skip
    return run_restarts(
        points, checked, restarts, monitor, backend=backend, device=device, labels_out=labels_out, groups=groups
    )


@dataclass(frozen=True)
class RelocationSearch(Search):
    """Relocation with its parameters, checked."""

    k: int
    seed: int
    init: Init
    effort: float | None
    max_iter: int | None
    patience: int | None
    target: float
    candidates: int
    tenure: int
    go_back: int
    returns: int
    refine: str
    name = "relocation"
    ungrouped = None

    @classmethod
    def checked(
        cls,
        shape: Shape,
        n_clusters: int,
        *,
        init: object,
        effort: float | None,
        max_iter: int | None,
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
        if effort is not None:
            check_real("effort", effort, 0)
        for name, limit in (("max_iter", max_iter), ("patience", patience)):
            if limit is not None:
                check_int(name, limit, 1)
        check_real("target", target, 0)
        check_int("candidates", candidates, 1)
        tenure = k // 2 if tenure is None else check_int("tenure", tenure, 0, k - 1)
        check_int("go_back", go_back, 1)
        check_int("returns", returns, 1)
        check_choice("refine", refine, REFINEMENTS)
        start = Init.checked(init, k, seed, shape)
        return cls(k, seed, start, effort, max_iter, patience, target, candidates, tenure, go_back, returns, refine)

    def identity(self) -> dict[str, Any]:
        parameters = {
            field.name: getattr(self, field.name) for field in fields(self) if field.name not in ("k", "init")
        }
        return {"n_clusters": self.k, "init": self.init.name, **parameters}

    def settings(
        self, batch: Sequence[int], monitor: StopSignal, passes: np.ndarray, level: int | None = None
    ) -> RelocationSettings:
        """How the restarts of a batch run, with so many passes (R,) each; on a sample also until it is settled."""
        sampled = level is not None
        return RelocationSettings(
            max_iter=min(self.max_iter or MANY, MANY),
            patience=min(self.patience or MANY, coarse.SETTLED if sampled else MANY),
            max_passes=np.clip(np.ceil(passes), 1, MANY).astype(np.int64),
            target=-1.0 if sampled else self.target,
            tenure=self.tenure,
            candidates=self.candidates,
            go_back=self.go_back,
            returns=self.returns,
            seed=self.seed if level is None else (self.seed + (level + 1) * STRIDE) % 2**64,
            numbers=np.array(batch, np.uint64),
            monitor=monitor,
        )

    def effort_of(self, monitor: Monitor) -> float:
        """The effort that limits the search: the default only where nothing else would end it."""
        if self.effort is not None:
            return self.effort
        return math.inf if self.max_iter is not None or monitor.timed else EFFORT

    def within(self, min_size: object, max_size: object, size: object) -> Search:
        """This search, and K-Means within bounds from what it finds if there are bounds."""
        rule = bounded.Rule("refine", lloyd.REFINE_ITER, 0.0, self.refine == "hartigan")
        return bounded.within(self, min_size, max_size, size, rule)

    def on_groups(self, backend: BackendBase, groups: Groups, constant: float) -> Search:
        return replace(self, init=self.init.on_groups(backend), target=self.target - constant)

    def starts(self, backend: BackendBase, batch: Sequence[int], monitor: Monitor) -> list[np.ndarray]:
        """What the search found; and seeds, as the best without bounds need not be the best start within them."""
        found = self._best(backend, batch, monitor).centers
        return [found, monitor.stage("bounded seeds", lambda stage: self.init.centers(backend, batch, stage))]

    def run(self, backend: BackendBase, batch: Sequence[int], monitor: Monitor) -> FinishedBatch:
        return lloyd.finish(backend, self._best(backend, batch, monitor), batch)

    def _best(self, backend: BackendBase, batch: Sequence[int], monitor: Monitor) -> lloyd.Descent:
        """K-Means, the search, and the refinement of the best."""
        begun = None
        if self.init.method is not None and self.k > 1:
            for level, count in enumerate(coarse.sizes(backend.points, self.k)):
                begun = self._on_sample(backend, batch, monitor, begun, level, count)
        if begun is None:
            begun = self._begin(backend, batch, monitor)
        centers, left, first = begun
        if self.k == 1:  # nowhere to relocate to
            return first
        monitor.begin_phase("search", self.max_iter)
        found = _searched(backend, centers, self.settings(batch, monitor, left), monitor, "search")
        stops = [stop or monitor.stop_reason for stop in found.stop]
        centers = lloyd.refined(backend, found.centers, self.refine, monitor)
        return lloyd.Descent(centers, stops, Trace(found.current, found.best, found.moves))

    def _on_sample(
        self, backend: BackendBase, batch: Sequence[int], monitor: Monitor, begun: Begun | None, level: int, count: int
    ) -> Begun | None:
        """Go on, or begin, on a sample of so many points."""
        sample = None if begun is not None and monitor.should_stop() else coarse.sample(backend, count, self.seed)
        if sample is None:
            return begun
        share, name = count / backend.points.n, f"sample {level}"
        with backend.of_same_kind(sample) as few, monitor.on_sample(coarse.SHARE):
            if begun is None:
                begun = self._begin(few, batch, monitor, f"{name}, ")
            monitor.begin_phase("sample", self.max_iter)
            settings = self.settings(batch, monitor, begun.left * coarse.SHARE / share, level)
            found = _searched(few, begun.centers, settings, monitor, name)
        return begun._replace(centers=found.centers, left=begun.left - found.passes * share)

    def _begin(self, backend: BackendBase, batch: Sequence[int], monitor: Monitor, prefix: str = "") -> Begun:
        """Seeds, and K-Means from them."""
        seeds = monitor.stage(f"{prefix}seeds", lambda stage: self.init.centers(backend, batch, stage))
        rounds = 1 if monitor.should_hurry() else START_ITER
        monitor.begin_phase("start", rounds)

        def descend(stage: Stage) -> lloyd.Descent:
            return lloyd.descend(backend, seeds, rounds, 0.0, monitor, True, stage)

        first = lloyd.Descent(*monitor.stage(f"{prefix}start", descend))
        passes = first.trace.n_iter + (self.init.draws if self.init.method == "k-means++" else 0)
        return Begun(first.centers, self.effort_of(monitor) * passes, first)


class Begun(NamedTuple):
    """R searches that have begun, on a sample or on all points."""

    centers: np.ndarray  # (R, K, d)
    left: np.ndarray  # (R,) passes over all points that the effort allows; infinite without
    first: lloyd.Descent  # K-Means


def _searched(
    backend: BackendBase, centers: np.ndarray, settings: RelocationSettings, monitor: Monitor, name: str
) -> RelocationRun:
    """The stage of this name: relocation from centers (R, K, d)."""
    # A cluster that stayed empty may have kept a centre from outside the box, where sums have no room.
    inside = np.clip(centers, backend.bounds.low, backend.bounds.high)

    def search(stage: Stage) -> list[Any]:
        found = run_relocation(backend, inside, settings, monitor, stage)
        return [getattr(found, part.name) for part in fields(found)]

    return RelocationRun(*monitor.stage(name, search))
