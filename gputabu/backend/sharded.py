"""Points in parts, each held by a backend of its own: the GPUs of a machine, or workers elsewhere.

A pass runs on every part at the same time, and what the parts return is merged on the host. That is exact
(`gputabu.backend.base`), so that neither the number of parts nor their sizes change a bit of a result. What crosses
the seam does not grow with the number of points: centres and totals, a few candidates per cluster, row numbers. Points
stay where they are, and so do labels and distances, one array per part; only single moves are as many as the points
that have one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, Self, TypeVar

import numpy as np

from gputabu.backend.arithmetic.fixed_point import Bounds, Grid
from gputabu.backend.arithmetic.keys import least
from gputabu.backend.base import Exact, Seen, farthest, nearest
from gputabu.backend.contract import Assigned, Labels, Lot, Moves, Pairs, Tried
from gputabu.data.points import Points

Result = TypeVar("Result")


class PartedOps(Exact):
    """A data set in parts. See `gputabu.backend.contract.Ops` for what each operation promises.

    Labels and distances are sequences with an entry for each part.
    """

    def __init__(self, points: Points, parts: Sequence[Any]) -> None:
        """`parts` hold the rows of `points` in order, each at least one; they are of class `Exact`, or act like it."""
        sizes = [part.points.n for part in parts]
        self.points, self.parts, self.name = points, parts, parts[0].name
        self.ends = np.cumsum(sizes)
        self.starts = self.ends - sizes
        self._agreed = False
        self._context = ExitStack()

    def __enter__(self) -> Self:
        # A thread for each: what runs there does so beside the others, and waits for its own device only.
        self._pool = self._context.enter_context(ThreadPoolExecutor(len(self.parts), "gputabu-part"))
        for part in self.parts:
            self._context.enter_context(part)
        return self

    def __exit__(self, *exception: Any) -> None:
        self._context.__exit__(*exception)

    def each(self, run: Callable[..., Result], *columns: Sequence[Any]) -> list[Result]:
        """run(part, …) for every part at the same time, with its own entry of each column."""
        running = [self._pool.submit(run, part, *own) for part, *own in zip(self.parts, *columns, strict=True)]
        return [one.result() for one in running]

    def _ready(self) -> None:
        """Let the parts have the grid of all points, before the first pass that needs it."""
        if not self._agreed:
            bounds, grid = self.bounds, self.grid
            self.each(lambda part: part.agree(bounds, grid))
            self._agreed = True

    def _local(self, rows: np.ndarray) -> list[np.ndarray]:
        """Row numbers as each part counts them, -1 for those of other parts."""
        spans = zip(self.starts, self.ends, strict=True)
        return [np.where((rows >= start) & (rows < end), rows - start, -1) for start, end in spans]

    # -- measured once -----------------------------------------------------------------------------

    def box(self) -> Bounds:
        return Bounds.merge(self.each(lambda part: part.box()))

    def moments(self, grid: Grid) -> np.ndarray:
        return np.sum(self.each(lambda part: part.moments(grid)), axis=0)

    # -- rows and labels ---------------------------------------------------------------------------

    def rows(self, indices: np.ndarray) -> np.ndarray:
        found = np.empty((*indices.shape, self.points.d))
        local = self._local(indices)
        here = [own >= 0 for own in local]
        for mask, X in zip(here, self.each(lambda part, own, mask: part.rows(own[mask]), local, here), strict=True):
            found[mask] = X
        return found

    def blank(self, restarts: int) -> Labels:
        return self.each(lambda part: part.blank(restarts))

    def take(self, labels: Labels, restarts: np.ndarray) -> Labels:
        return self.each(lambda part, own: part.take(own, restarts), labels)

    def fetch(self, labels: Labels, restart: int) -> np.ndarray:
        found = self.room((self.points.n,), np.int32, 0)
        for first, own in zip(self.starts, self.each(lambda part, own: part.fetch(own, restart), labels), strict=True):
            found[first : first + len(own)] = own
        return found

    def put(self, labels: Labels, moves: Moves) -> None:
        def relabel(part: Any, own: Labels, rows: np.ndarray) -> None:
            here = rows >= 0
            part.put(own, replace(moves, row=rows).some(here))

        self.each(relabel, labels, self._local(moves.row))

    def label(self, centers: np.ndarray) -> Labels:
        return self.each(lambda part: part.label(centers))

    def distances(self, centers: np.ndarray) -> np.ndarray:
        return np.concatenate(self.each(lambda part: part.distances(centers)))

    # -- passes ------------------------------------------------------------------------------------

    def assign(self, centers: np.ndarray, labels: Labels) -> Assigned:
        self._ready()
        return _added(self.each(lambda part, own: part.assign(centers, own), labels))

    def seen(self, centers: np.ndarray, labels: Labels, tabu: np.ndarray, shared: bool, best: int) -> Seen:
        self._ready()

        def look(part: Any, own: Labels, rows: np.ndarray) -> Seen:
            return part.seen(centers, own, rows, shared, best)

        parts = self.each(look, labels, self._local(tabu))
        value = np.concatenate([part.value for part in parts], axis=-1)
        index = [np.where(p.index >= 0, p.index + first, -1) for p, first in zip(parts, self.starts, strict=True)]
        return Seen(
            np.sum([part.costs for part in parts], axis=0),
            *least(value, np.concatenate(index, axis=-1), best),
            np.any([part.inside for part in parts], axis=0),
        )

    def costs(self, centers: np.ndarray, labels: Labels, exponent: int) -> np.ndarray:
        self._ready()
        return np.sum(self.each(lambda part, own: part.costs(centers, own, exponent), labels), axis=0)

    def lengths(self, centers: np.ndarray, labels: Labels, exponent: int) -> np.ndarray:
        self._ready()
        return np.sum(self.each(lambda part, own: part.lengths(centers, own, exponent), labels), axis=0)

    def far(self, centers: np.ndarray, labels: Labels, restart: int, count: int, scale: int) -> np.ndarray:
        self._ready()

        def look(part: Any, own: Labels, first: int) -> np.ndarray:
            found = part.far(centers, own, restart, count, scale)
            found["row"] += first
            return found

        return farthest(np.concatenate(self.each(look, labels, self.starts)), count)

    def near(self, centers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        value, rows = zip(*self.each(lambda part: part.near(centers)), strict=True)
        return nearest(value, rows + self.starts[:, None])

    # -- seeding -----------------------------------------------------------------------------------

    def nothing_covered(self, restarts: int) -> Any:
        return self.each(lambda part: part.nothing_covered(restarts))

    def cover(self, seeds: np.ndarray, covered: Any) -> None:
        self._ready()
        self.each(lambda part, own: part.cover(seeds, own), covered)

    def potential(self, covered: Any, shift: np.ndarray) -> np.ndarray:
        return np.sum(self._potentials(covered, shift), axis=0)

    def trial_gains(self, seeds: np.ndarray, covered: Any, shift: np.ndarray) -> np.ndarray:
        self._ready()
        return np.sum(self.each(lambda part, own: part.trial_gains(seeds, own, shift), covered), axis=0)

    def sample(self, covered: Any, shift: np.ndarray, targets: np.ndarray) -> np.ndarray:
        sums = np.stack(self._potentials(covered, shift))[..., None]  # (P, R, 1)
        beyond = targets - (sums.cumsum(axis=0) - sums)  # (P, R, T), less the potential of the parts before
        here = (beyond >= 0) & (beyond < sums)
        wanted = list(np.where(here, beyond, -1))
        found = self.each(lambda part, own, mine: part.sample(own, shift, mine), covered, wanted)
        rows = np.stack(found) + self.starts[:, None, None]
        return np.where(here.any(axis=0), np.where(here, rows, 0).sum(axis=0), -1)

    def _potentials(self, covered: Any, shift: np.ndarray) -> list[np.ndarray]:
        return self.each(lambda part, own: part.potential(own, shift), covered)

    # -- single moves ------------------------------------------------------------------------------

    def moves(self, centers: np.ndarray, totals: np.ndarray, labels: Labels) -> Moves:
        self._ready()
        parts = self.each(lambda part, own: part.moves(centers, totals, own), labels)
        rows = [part.row + first for part, first in zip(parts, self.starts, strict=True)]
        joined = Moves(*(np.concatenate(side) for side in zip(*map(_columns, parts, rows), strict=True)))
        return joined.some(np.argsort(joined.restart, kind="stable"))

    # -- relocation --------------------------------------------------------------------------------

    def pairs(self, centers: np.ndarray, held: Pairs | None = None) -> Pairs:
        mine = [None] * len(self.parts) if held is None else self._pairs(held)
        parts = self.each(lambda part, own: part.pairs(centers, own), mine)
        if held is None:
            first, second, near, far = zip(*((p.first, p.second, p.near, p.far) for p in parts), strict=True)
            return Pairs(first, second, near, far, parts[0].at)
        held.at[...] = parts[0].at
        return held

    def settled(
        self, pairs: Pairs, labels: Labels, mass: np.ndarray | None, who: np.ndarray
    ) -> tuple[Assigned, np.ndarray]:
        self._ready()

        def relabel(part: Any, own: Pairs, mine: Labels) -> tuple[Assigned, np.ndarray]:
            return part.settled(own, mine, mass, who)

        done, costs = zip(*self.each(relabel, self._pairs(pairs), labels), strict=True)
        return _added(done), np.sum(costs, axis=0)

    def swaps(self, candidates: np.ndarray, pairs: Pairs) -> tuple[np.ndarray, np.ndarray]:
        self._ready()
        parts = self.each(lambda part, own: part.swaps(candidates, own), self._pairs(pairs))
        loss, change = (np.sum(side, axis=0) for side in zip(*parts, strict=True))
        return loss, change

    def _pairs(self, pairs: Pairs) -> list[Pairs]:
        """Those of each part, which notes by itself for which centres they are."""
        sides = zip(pairs.first, pairs.second, pairs.near, pairs.far, strict=True)
        return [Pairs(*own, at=pairs.at.copy()) for own in sides]

    # -- trial labellings --------------------------------------------------------------------------

    def trials(self, labels: Labels, totals: np.ndarray, lot: Lot) -> Tried:
        change, prints = self.trial_changes(labels, lot)
        change += totals[:, None]
        return Tried(np.maximum(self.scatter - self.grid.explained(change), 0.0), prints)

    def trial_changes(self, labels: Labels, lot: Lot) -> tuple[np.ndarray, np.ndarray]:
        self._ready()
        parts = self.each(lambda part, own, mine: part.trial_changes(own, mine), labels, self._lots(lot))
        change, prints = (np.sum(side, axis=0) for side in zip(*parts, strict=True))
        return change, prints

    def adopt(self, labels: Labels, best: Labels, lot: Lot, chosen: np.ndarray, better: np.ndarray) -> Assigned:
        self._ready()

        def relabel(part: Any, own: Labels, noted: Labels, mine: Lot) -> Assigned:
            return part.adopt(own, noted, mine, chosen, better)

        return _added(self.each(relabel, labels, best, self._lots(lot)))

    def _lots(self, lot: Lot) -> list[Lot]:
        """What is to be tried, as each part is told."""
        lots = []
        for first, last in zip(self.starts.tolist(), self.ends.tolist(), strict=True):
            given = None if lot.given is None else lot.given[first:last]
            lots.append(replace(lot, given=given, total=self.points.n, first=first))
        return lots


def _added(parts: Sequence[Assigned]) -> Assigned:
    return Assigned(sum(part.totals for part in parts), sum(part.changed for part in parts))  # type: ignore[arg-type]


def _columns(moves: Moves, rows: np.ndarray) -> tuple[np.ndarray, ...]:
    return moves.restart, rows, moves.source, moves.target
