"""The survey in NumPy: J, and per cluster the nearest points that are not tabu."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from gputabu.backend.arithmetic import canonical
from gputabu.backend.arithmetic.fixed_point import limbs
from gputabu.backend.arithmetic.keys import NO_KEY, Least, keys_of
from gputabu.backend.contract import SurveyPartial
from gputabu.backend.numpy.tiling import Task, TiledBackend


class NumpyTabuArgmin(TiledBackend):
    """The pass that J and the next means come from."""

    def survey_partial(
        self, centers: np.ndarray, labels: np.ndarray, tabu: np.ndarray, shared: bool, best: int
    ) -> SurveyPartial:
        r, k, _ = centers.shape
        restart = np.arange(r)[:, None, None]
        inside = (labels[restart, tabu] == np.arange(k)[:, None]) & (tabu >= 0)  # (R, K, L)
        if self.points.weights is not None:
            inside &= self.points.weights_at(tabu) > 0
        barred = np.nonzero(tabu >= 0 if shared else inside)
        barred = (barred[0], tabu[barred])  # restarts, row numbers
        forbidden = self.allocate(labels.shape, np.bool_, False)
        forbidden[barred] = True
        least = Least((r, k, best))
        sums = self.costs_and_keys(centers, labels, self.grid.cost, least, forbidden)
        return SurveyPartial(sums, *least.found(), inside)

    def objective_partial(self, centers: np.ndarray, labels: np.ndarray, exponent: int) -> np.ndarray:
        return self.costs_and_keys(centers, labels, exponent)

    def costs_and_keys(
        self,
        centers: np.ndarray,
        labels: np.ndarray,
        cost: int,
        least: Least | None = None,
        forbidden: np.ndarray | None = None,
    ) -> np.ndarray:
        """Σ w d² to the own centre as limbs, (3, R) int64; also lowers `least` by the points that are free.

        This is the argmin under the tabu mask: a forbidden point gets the key of no point.
        """
        r, k, d = centers.shape
        flat = centers.reshape(r * k, d)
        scratch = self.workers.scratch

        def look(tasks: Iterable[Task]) -> tuple[np.ndarray, Least | None]:
            sums = np.zeros((3, r), np.int64)
            local = None if least is None else Least(least.shape)
            for block, group in tasks:
                base = np.arange(group.stop - group.start)[:, None] * k
                owner = scratch("owner", (len(base), len(block.X)), np.intp)
                np.add(labels[group, block.rows], base, out=owner)
                squares = canonical.to_own_center(block.X, flat[group.start * k :], owner, scratch)
                if local is not None and forbidden is not None:
                    span = Least.span(block.start)
                    keys = keys_of(squares, self.grid.square, block.start - span, scratch)
                    keys[forbidden[group, block.rows]] = NO_KEY
                    if block.weights is not None:
                        keys[:, block.weights == 0] = NO_KEY
                    local.lower(group, keys, owner, span)
                if block.weights is not None:
                    np.multiply(squares, block.weights, out=squares)
                for limb, values in enumerate(limbs(squares, cost, 3)):
                    sums[limb, group] += values.sum(axis=1).astype(np.int64)
            return sums, local

        parts = self.workers.map(look, self.tasks(r, k))
        for _, local in parts:
            if least is not None and local is not None:
                least.merge(local)
        return np.sum([sums for sums, _ in parts], axis=0)
