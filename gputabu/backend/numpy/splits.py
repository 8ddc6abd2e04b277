"""Splits of clusters in NumPy: points between the two children of their cluster, along its axis, and counted there."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from gputabu.backend.arithmetic import canonical
from gputabu.backend.arithmetic.fixed_point import Totals, limbs
from gputabu.backend.contract import Assignment
from gputabu.backend.numpy.tiling import Task, TiledBackend
from gputabu.data.points import Block


class NumpySplits(TiledBackend):
    """The passes of splits."""

    def split_assign(self, children: np.ndarray, parents: np.ndarray, labels: np.ndarray) -> Assignment:
        r, k, _, d = children.shape
        self.grid  # noqa: B018 (made by the workers, and so not from within them)
        flat = np.ascontiguousarray(children.reshape(2 * r * k, d))
        totals = np.zeros((r, 2 * k, Totals.columns(d, self.points.weights is not None)), np.int64)
        changed = np.zeros(r, np.int64)

        def relabel(tasks: Iterable[Task]) -> list[tuple[slice, np.ndarray, np.ndarray]]:
            parts = []
            for block, group in tasks:
                old, above = labels[group, block.rows], parents[group, block.rows]
                first = 2 * owners(above, group, k)
                near = canonical.to_own_center(block.X, flat, first, self.workers.scratch).copy()
                far = canonical.to_own_center(block.X, flat, first + 1, self.workers.scratch)
                new = (2 * above + (far < near)).astype(np.int32)
                moved = old != new
                counts = np.count_nonzero(moved, axis=1)
                if counts.any():
                    parts.append((group, self.change_of_totals(block, old, new, moved, 2 * k), counts))
                    old[...] = new
            return parts

        for part in self.workers.map(relabel, self.tasks(r)):
            for group, sums, counts in part:
                totals[group] += sums
                changed[group] += counts
        return Assignment(totals, changed)

    def axis_partial(self, centers: np.ndarray, axes: np.ndarray, labels: np.ndarray, exponent: int) -> np.ndarray:
        r, k, d = centers.shape
        wanted = axes.any(axis=2).ravel()

        def add(tasks: Iterable[Task]) -> np.ndarray:
            sums = np.zeros((2, r * k, d), np.int64)
            for block, group in tasks:
                owner = owners(labels[group, block.rows], group, k)
                away, along = projected(block, owner, centers.reshape(-1, d), axes.reshape(-1, d))
                np.multiply(away, along[..., None], out=away)
                if block.weights is not None:
                    np.multiply(away, block.weights[:, None], out=away)
                away[~wanted[owner]] = 0.0
                for limb, values in enumerate(limbs(away, exponent, 2)):  # below 2^53 in a block: exact
                    for j in range(d):
                        added = np.bincount(owner.ravel(), values[..., j].ravel(), minlength=r * k)
                        sums[limb, :, j] += added.astype(np.int64)
            return sums

        return np.sum(self.workers.map(add, self.tasks(r)), axis=0).reshape(2, r, k, d)

    def histogram_partial(
        self, centers: np.ndarray, axes: np.ndarray, labels: np.ndarray, slots: np.ndarray, n_slots: int, bins: int
    ) -> np.ndarray:
        r, k, d = centers.shape
        n_limbs = 1 if self.points.weights is None else 2
        self.grid  # noqa: B018 (made by the workers, and so not from within them)

        def count(tasks: Iterable[Task]) -> np.ndarray:
            sums = np.zeros((n_limbs, n_slots * bins), np.int64)
            for block, group in tasks:
                owner = owners(labels[group, block.rows], group, k)
                slot = slots.ravel()[owner]
                restart, point = np.nonzero(slot >= 0)
                _, along = projected(block, owner, centers.reshape(-1, d), axes.reshape(-1, d))
                at = slot[restart, point].astype(np.int64) * bins + bin_of(along[restart, point], bins)
                if block.weights is None:
                    np.add.at(sums[0], at, 1)
                    continue
                for limb, values in enumerate(limbs(block.weights.copy(), self.grid.weight, 2)):
                    np.add.at(sums[limb], at, values[point].astype(np.int64))
            return sums

        return np.sum(self.workers.map(count, self.tasks(r)), axis=0).reshape(n_limbs, n_slots, bins)


def owners(labels: np.ndarray, group: slice, k: int) -> np.ndarray:
    """Number of the cluster among those of all restarts: (R', n) -> (R', n) intp."""
    return labels + np.arange(group.start, group.stop)[:, None] * k


def projected(block: Block, owner: np.ndarray, centers: np.ndarray, axes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """x − c and ⟨x − c, a⟩ of the cluster of every point: (n, d), (R', n), (M, d), (M, d) -> (R', n, d), (R', n)."""
    away = block.X - centers[owner]
    with np.errstate(over="ignore", invalid="ignore"):  # points of weight zero may be anywhere
        return away, canonical.in_order(away * axes[owner])


def bin_of(along: np.ndarray, bins: int) -> np.ndarray:
    """The bin of every projection: `Backend.histogram_partial`."""
    with np.errstate(invalid="ignore"):
        place = np.where(along + bins / 2 > 0, along + bins / 2, 0.0)
    return np.minimum(np.floor(place), bins - 1).astype(np.int64)
