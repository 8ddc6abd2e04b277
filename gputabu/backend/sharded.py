"""Points in shards, each held by a backend of its own: the GPUs of a machine, or workers elsewhere.

A pass runs on every shard at the same time, and the results are merged on the host. Merging is exact
(`gputabu.backend.contract`), so neither the number of shards nor their sizes change a bit of a result. What crosses the
seam does not grow with the number of points: centres and totals, a few candidates per cluster, row numbers. Points
stay where they are, and so do labels and distances, one array per shard. Only single moves are as many as the points
that have one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Self, TypeVar

import numpy as np

from gputabu.backend.arithmetic.fixed_point import Bounds, Grid, carried
from gputabu.backend.arithmetic.keys import least
from gputabu.backend.arithmetic.transport import Measure, merged
from gputabu.backend.base import BackendBase, farthest, nearest
from gputabu.backend.contract import Assignment, Labels, Moves, NearestTwo, SurveyPartial, Transfers, TrialBatch
from gputabu.data.points import Points

Result = TypeVar("Result")


class ShardedBackend(BackendBase):
    """A data set in shards. Labels and distances are sequences with an entry for each shard."""

    def __init__(self, points: Points, shards: Sequence[Any]) -> None:
        """`shards` hold the rows of `points` in order, at least one each; they act like `BackendBase`."""
        sizes = [shard.points.n for shard in shards]
        self.points, self.shards, self.name = points, shards, shards[0].name
        self.ends = np.cumsum(sizes)
        self.starts = self.ends - sizes
        self._grid_shared = False
        self._context = ExitStack()

    def __enter__(self) -> Self:
        # A thread for each: what runs there does so beside the others, and waits for its local device only.
        self._pool = self._context.enter_context(ThreadPoolExecutor(len(self.shards), "gputabu-shard"))
        for shard in self.shards:
            self._context.enter_context(shard)
        return self

    def __exit__(self, *exception: Any) -> None:
        self._context.__exit__(*exception)

    def each(self, run: Callable[..., Result], *columns: Sequence[Any]) -> list[Result]:
        """run(shard, …) for every shard at the same time, with its local entry of each column."""
        running = [self._pool.submit(run, shard, *local) for shard, *local in zip(self.shards, *columns, strict=True)]
        return [one.result() for one in running]

    def of_same_kind(self, points: Points) -> BackendBase:
        backend: BackendBase = self.shards[0].of_same_kind(points)
        return backend

    def _share_grid(self) -> None:
        """Let the shards have the grid of all points, before the first pass that needs it."""
        if not self._grid_shared:
            bounds, grid = self.bounds, self.grid
            self.each(lambda shard: shard.adopt_grid(bounds, grid))
            self._grid_shared = True

    def _local_rows(self, rows: np.ndarray) -> list[np.ndarray]:
        """Row numbers as each shard counts them, -1 for those of other shards."""
        spans = zip(self.starts, self.ends, strict=True)
        return [np.where((rows >= start) & (rows < end), rows - start, -1) for start, end in spans]

    # -- measured once -----------------------------------------------------------------------------

    def bounds_partial(self) -> Bounds:
        return Bounds.merge(self.each(lambda shard: shard.bounds_partial()))

    def moments(self, grid: Grid) -> np.ndarray:
        return np.sum(self.each(lambda shard: shard.moments(grid)), axis=0)

    # -- rows and labels ---------------------------------------------------------------------------

    def rows(self, indices: np.ndarray) -> np.ndarray:
        found = np.empty((*indices.shape, self.points.d))
        local = self._local_rows(indices)
        here = [local >= 0 for local in local]
        for mask, X in zip(
            here, self.each(lambda shard, local, mask: shard.rows(local[mask]), local, here), strict=True
        ):
            found[mask] = X
        return found

    def blank_labels(self, restarts: int) -> Labels:
        return self.each(lambda shard: shard.blank_labels(restarts))

    def take_labels(self, labels: Labels, restarts: np.ndarray) -> Labels:
        return self.each(lambda shard, local: shard.take_labels(local, restarts), labels)

    def fetch_labels(self, labels: Labels, restart: int) -> np.ndarray:
        found = self.allocate((self.points.n,), np.int32, 0)
        for first, local in zip(
            self.starts, self.each(lambda shard, local: shard.fetch_labels(local, restart), labels), strict=True
        ):
            found[first : first + len(local)] = local
        return found

    def relabel(self, labels: Labels, moves: Moves) -> None:
        def relabel(shard: Any, local: Labels, rows: np.ndarray) -> None:
            here = rows >= 0
            shard.relabel(local, replace(moves, row=rows).select(here))

        self.each(relabel, labels, self._local_rows(moves.row))

    def label(self, centers: np.ndarray) -> Labels:
        return self.each(lambda shard: shard.label(centers))

    def distances(self, centers: np.ndarray) -> np.ndarray:
        return np.concatenate(self.each(lambda shard: shard.distances(centers)))

    # -- passes ------------------------------------------------------------------------------------

    def assign(self, centers: np.ndarray, labels: Labels) -> Assignment:
        self._share_grid()
        return _added(self.each(lambda shard, local: shard.assign(centers, local), labels))

    def survey_partial(
        self, centers: np.ndarray, labels: Labels, tabu: np.ndarray, shared: bool, best: int
    ) -> SurveyPartial:
        self._share_grid()

        def look(shard: Any, local: Labels, rows: np.ndarray) -> SurveyPartial:
            return shard.survey_partial(centers, local, rows, shared, best)

        shards = self.each(look, labels, self._local_rows(tabu))
        value = np.concatenate([shard.value for shard in shards], axis=-1)
        index = [np.where(p.index >= 0, p.index + first, -1) for p, first in zip(shards, self.starts, strict=True)]
        return SurveyPartial(
            np.sum([shard.costs for shard in shards], axis=0),
            *least(value, np.concatenate(index, axis=-1), best),
            np.any([shard.inside for shard in shards], axis=0),
        )

    def objective_partial(self, centers: np.ndarray, labels: Labels, exponent: int) -> np.ndarray:
        self._share_grid()
        return np.sum(self.each(lambda shard, local: shard.objective_partial(centers, local, exponent), labels), axis=0)

    def spreads_partial(self, centers: np.ndarray, labels: Labels, exponent: int) -> np.ndarray:
        self._share_grid()
        return np.sum(self.each(lambda shard, local: shard.spreads_partial(centers, local, exponent), labels), axis=0)

    def farthest_partial(self, centers: np.ndarray, labels: Labels, restart: int, count: int, scale: int) -> np.ndarray:
        self._share_grid()

        def look(shard: Any, local: Labels, first: int) -> np.ndarray:
            found = shard.farthest_partial(centers, local, restart, count, scale)
            found["row"] += first
            return found

        return farthest(np.concatenate(self.each(look, labels, self.starts)), count)

    def closest_partial(self, centers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value, rows = zip(*self.each(lambda shard: shard.closest_partial(centers)), strict=True)
        return nearest(value, rows + self.starts[:, None])

    # -- seeding -----------------------------------------------------------------------------------

    def infinite_sq_dist(self, restarts: int) -> Any:
        return self.each(lambda shard: shard.infinite_sq_dist(restarts))

    def lower_sq_dist(self, seeds: np.ndarray, min_sq_dist: Any) -> None:
        self._share_grid()
        self.each(lambda shard, local: shard.lower_sq_dist(seeds, local), min_sq_dist)

    def potential(self, min_sq_dist: Any, shift: np.ndarray) -> np.ndarray:
        return np.sum(self._potentials(min_sq_dist, shift), axis=0)

    def seed_gains(self, seeds: np.ndarray, min_sq_dist: Any, shift: np.ndarray) -> np.ndarray:
        self._share_grid()
        return np.sum(self.each(lambda shard, local: shard.seed_gains(seeds, local, shift), min_sq_dist), axis=0)

    def sample(self, min_sq_dist: Any, shift: np.ndarray, targets: np.ndarray) -> np.ndarray:
        sums = np.stack(self._potentials(min_sq_dist, shift))[..., None]  # (P, R, 1)
        beyond = targets - (sums.cumsum(axis=0) - sums)  # (P, R, T), less the potential of the shards before
        here = (beyond >= 0) & (beyond < sums)
        wanted = list(np.where(here, beyond, -1))
        found = self.each(lambda shard, local, mine: shard.sample(local, shift, mine), min_sq_dist, wanted)
        rows = np.stack(found) + self.starts[:, None, None]
        return np.where(here.any(axis=0), np.where(here, rows, 0).sum(axis=0), -1)

    def _potentials(self, min_sq_dist: Any, shift: np.ndarray) -> list[np.ndarray]:
        return self.each(lambda shard, local: shard.potential(local, shift), min_sq_dist)

    # -- single moves ------------------------------------------------------------------------------

    def find_moves(self, centers: np.ndarray, totals: np.ndarray, labels: Labels) -> Moves:
        self._share_grid()
        shards = self.each(lambda shard, local: shard.find_moves(centers, totals, local), labels)
        rows = [shard.row + first for shard, first in zip(shards, self.starts, strict=True)]
        joined = Moves(*(np.concatenate(side) for side in zip(*map(_columns, shards, rows), strict=True)))
        return joined.select(np.argsort(joined.restart, kind="stable"))

    # -- bounded sizes -----------------------------------------------------------------------------

    def transfers_partial(
        self,
        centers: np.ndarray,
        labels: Labels,
        prices: np.ndarray | None,
        sources: np.ndarray,
        count: int,
        measure: Measure,
    ) -> Transfers:
        def look(shard: Any, local: Labels) -> Transfers:
            return shard.transfers_partial(centers, local, prices, sources, count, measure)

        shards = self.each(look, labels)
        count = min(shard.value.shape[2] for shard in shards)  # beyond, the lists of some shard have not all
        rows = [np.where(p.row >= 0, p.row + first, -1) for p, first in zip(shards, self.starts, strict=True)]
        lists = merged(np.concatenate([p.value for p in shards], axis=-1), np.concatenate(rows, axis=-1), count)
        return Transfers(*lists, np.sum([p.sizes for p in shards], axis=0))

    # -- relocation --------------------------------------------------------------------------------

    def nearest_two(self, centers: np.ndarray, previous: NearestTwo | None = None) -> NearestTwo:
        mine = [None] * len(self.shards) if previous is None else self._split(previous)
        shards = self.each(lambda shard, local: shard.nearest_two(centers, local), mine)
        if previous is None:
            first, second, near, far = zip(*((p.first, p.second, p.near, p.far) for p in shards), strict=True)
            return NearestTwo(first, second, near, far, shards[0].at)
        previous.at[...] = shards[0].at
        return previous

    def reassign_partial(
        self, nearest: NearestTwo, labels: Labels, mass: np.ndarray | None, active: np.ndarray
    ) -> tuple[Assignment, np.ndarray]:
        self._share_grid()

        def relabel(shard: Any, local: NearestTwo, mine: Labels) -> tuple[Assignment, np.ndarray]:
            return shard.reassign_partial(local, mine, mass, active)

        done, costs = zip(*self.each(relabel, self._split(nearest), labels), strict=True)
        return _added(done), np.sum(costs, axis=0)

    def swap_gains_partial(self, candidates: np.ndarray, nearest: NearestTwo) -> tuple[np.ndarray, np.ndarray]:
        self._share_grid()
        shards = self.each(lambda shard, local: shard.swap_gains_partial(candidates, local), self._split(nearest))
        loss, change = (np.sum(side, axis=0) for side in zip(*shards, strict=True))
        return loss, change

    def _split(self, nearest: NearestTwo) -> list[NearestTwo]:
        """Those of each shard, which notes by itself for which centres they are."""
        sides = zip(nearest.first, nearest.second, nearest.near, nearest.far, strict=True)
        return [NearestTwo(*local, at=nearest.at.copy()) for local in sides]

    # -- trial labellings --------------------------------------------------------------------------

    def evaluate_trials_partial(self, labels: Labels, trials: TrialBatch) -> tuple[np.ndarray, np.ndarray]:
        self._share_grid()
        shards = self.each(
            lambda shard, local, mine: shard.evaluate_trials_partial(local, mine), labels, self._split_trials(trials)
        )
        change, fingerprints = (np.sum(side, axis=0) for side in zip(*shards, strict=True))
        return change, fingerprints

    def apply_trial(
        self, labels: Labels, best: Labels, trials: TrialBatch, chosen: np.ndarray, better: np.ndarray
    ) -> Assignment:
        self._share_grid()

        def relabel(shard: Any, local: Labels, noted: Labels, mine: TrialBatch) -> Assignment:
            return shard.apply_trial(local, noted, mine, chosen, better)

        return _added(self.each(relabel, labels, best, self._split_trials(trials)))

    def evaluate_steps_partial(
        self, centers: np.ndarray, moves: tuple[np.ndarray, np.ndarray] | None, trials: TrialBatch
    ) -> tuple[np.ndarray, np.ndarray]:
        self._share_grid()
        shards = self.each(
            lambda shard, mine: shard.evaluate_steps_partial(centers, moves, mine), self._split_trials(trials)
        )
        totals, fingerprints = (np.sum(side, axis=0) for side in zip(*shards, strict=True))
        return totals, fingerprints

    def member_keys_partial(self, labels: Labels, clusters: np.ndarray, trials: TrialBatch) -> np.ndarray:
        shards = self.each(
            lambda shard, local, mine: shard.member_keys_partial(local, clusters, mine),
            labels,
            self._split_trials(trials),
        )
        return np.stack([np.min(shards, axis=0)[..., 0], np.max(shards, axis=0)[..., 1]], axis=-1)

    def _split_trials(self, trials: TrialBatch) -> list[TrialBatch]:
        """What is to be tried, as each shard is told."""
        split = []
        for first, last in zip(self.starts.tolist(), self.ends.tolist(), strict=True):
            given = None if trials.given is None else trials.given[:, first:last]
            split.append(replace(trials, given=given, total=self.points.n, first=first))
        return split

    # -- splits ------------------------------------------------------------------------------------

    def split_assign(self, children: np.ndarray, parents: Labels, labels: Labels) -> Assignment:
        self._share_grid()
        return _added(
            self.each(lambda shard, above, local: shard.split_assign(children, above, local), parents, labels)
        )

    def axis_partial(self, centers: np.ndarray, axes: np.ndarray, labels: Labels, exponent: int) -> np.ndarray:
        self._share_grid()
        return np.sum(
            self.each(lambda shard, local: shard.axis_partial(centers, axes, local, exponent), labels), axis=0
        )

    def histogram_partial(
        self, centers: np.ndarray, axes: np.ndarray, labels: Labels, slots: np.ndarray, n_slots: int, bins: int
    ) -> np.ndarray:
        self._share_grid()

        def count(shard: Any, local: Labels) -> np.ndarray:
            return shard.histogram_partial(centers, axes, local, slots, n_slots, bins)

        return np.sum(self.each(count, labels), axis=0)

    # -- fuzzy memberships -------------------------------------------------------------------------

    def fuzzy_partial(self, centers: np.ndarray, m: float, exponent: int) -> tuple[np.ndarray, np.ndarray]:
        self._share_grid()
        shards = self.each(lambda shard: shard.fuzzy_partial(centers, m, exponent))
        sums, costs = (np.sum(side, axis=0) for side in zip(*shards, strict=True))
        return carried(sums), costs

    def memberships(self, centers: np.ndarray, m: float) -> np.ndarray:
        return np.concatenate(self.each(lambda shard: shard.memberships(centers, m)))


def _added(shards: Sequence[Assignment]) -> Assignment:
    return Assignment(sum(shard.totals for shard in shards), sum(shard.changed for shard in shards))  # type: ignore[arg-type]


def _columns(moves: Moves, rows: np.ndarray) -> tuple[np.ndarray, ...]:
    return moves.restart, rows, moves.source, moves.target
