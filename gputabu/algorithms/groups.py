"""Rows that must share a cluster ("must-link"): a group of rows is a pack, and a search runs on packs (`packs`)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from gputabu.algorithms import packs
from gputabu.backend import to_numpy
from gputabu.backend.base import BackendBase
from gputabu.core.results import Trace

if TYPE_CHECKING:
    from gputabu.algorithms.restarts import FinishedBatch


@dataclass(frozen=True, slots=True)
class Groups:
    """Which group each row is in; a row of its own is a group as well."""

    numbers: np.ndarray  # (N,) int64 from 0 on
    first: np.ndarray  # (G,) the first row of each group

    @classmethod
    def checked(cls, groups: object, n: int, k: int) -> Groups:
        """Of N integers: rows with the same one are a group, rows with a negative one are on their own."""
        try:
            array = to_numpy(groups, "groups")
        except (TypeError, ValueError):
            array = np.empty(0, object)
        if array.dtype.kind not in "iu" or array.shape != (n,):
            raise ValueError(
                f"groups has shape {array.shape} and dtype {array.dtype}; it must be {n} integers, one for each row."
            )
        alone = array < 0
        keys = np.where(alone, np.arange(n), array.astype(np.int64))
        _, first, numbers = np.unique(np.stack([alone, keys], axis=1), axis=0, return_index=True, return_inverse=True)
        order = np.argsort(first)  # groups in the order of their first rows
        rank = np.empty_like(order)
        rank[order] = np.arange(len(order))
        if len(order) < k:
            raise ValueError(f"groups has {len(order)} groups, fewer than n_clusters={k}.")
        return cls(rank[numbers.ravel()], first[order])

    def __len__(self) -> int:
        return len(self.first)

    @contextmanager
    def collapsed(self, backend: BackendBase) -> Iterator[tuple[BackendBase, float]]:
        """A context with a backend for the groups as points, and what J of all points has more than J of these."""
        points, constant = packs.collapsed(backend, self.numbers, len(self))
        with backend.of_same_kind(replace(points, rounded_to=backend.points.dtype)) as few:
            yield few, constant

    def restored(self, batch: FinishedBatch, backend: BackendBase, constant: float) -> FinishedBatch:
        """What a batch of restarts on groups is for all points."""

        small = np.asarray(to_numpy(batch.labels()), np.int32)  # now: who has them may be gone later

        def labels() -> Any:
            mine = backend.blank_labels(1)
            backend.set_labels(mine, small[self.numbers][None], len(batch.centers))
            return backend.result_labels(mine, 0)

        trace = batch.trace
        higher = Trace(trace.current + constant, trace.best + constant, trace.moves, trace.means)
        return replace(batch, labels=labels, inertia=batch.inertia + constant, trace=higher)
