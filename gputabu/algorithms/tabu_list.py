"""What is forbidden, and the best so far: the tabu list of QM-TS, the recent moves of relocation."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gputabu.backend.arithmetic.constants import NOISE


class TabuList:
    """The tabu list (section IV-C): per restart and cluster, a row of the points that were its centre.

    Only what was pushed is stored, never a flag per cluster and point.
    """

    def __init__(self, restarts: int, clusters: int, shared: bool) -> None:
        self.shared = shared  # whether an entry of any row forbids (scope "global")
        self.length = np.zeros((restarts, clusters), np.int64)
        self._rows = np.full((restarts, clusters, 16), -1, np.int64)

    @classmethod
    def resumed(cls, rows: np.ndarray, shared: bool) -> TabuList:
        """The list with these `rows`."""
        tabu = cls(len(rows), rows.shape[1], shared)
        tabu.length = (rows >= 0).sum(axis=-1)
        tabu._rows = np.concatenate([rows, tabu._rows], axis=-1)
        return tabu

    @property
    def rows(self) -> np.ndarray:
        """(R, K, L) row numbers in the order they were pushed, padded with -1."""
        return self._rows[:, :, : self.length.max(initial=0)]

    def push(self, means: np.ndarray) -> None:
        """Append means[k] to row k, unless the row holds it already: (R, K)."""
        new = ~(self.rows == means[..., None]).any(axis=-1)
        if self.length.max() == self._rows.shape[-1]:
            self._rows = np.concatenate([self._rows, np.full_like(self._rows, -1)], axis=-1)
        r, k = np.nonzero(new)
        self._rows[r, k, self.length[r, k]] = means[r, k]
        self.length[r, k] += 1

    def release(self, inside: np.ndarray, stuck: np.ndarray) -> np.ndarray:
        """Apply the deletion rule to the rows of clusters whose members are all tabu.

        "The last entry in the kth row is deleted", until a member of C_k is free. That member is the last
        entry that lies in C_k, and the row is cut from there: no second pass over the points.
        inside (R, K, L), stuck (R, K) -> (R, K) row numbers that came free, -1 elsewhere.
        """
        freed = np.full(stuck.shape, -1, np.int64)
        r, k = np.nonzero(stuck)
        if len(r) == 0 or inside.shape[-1] == 0:
            return freed
        frees = inside[r, k, : self.rows.shape[-1]]  # (S, L); seen when a restart with longer rows was there
        if self.shared:  # what another row forbids as well does not come free
            frees = frees & ~np.stack([self._elsewhere(*pair) for pair in zip(r, k, strict=True)])
        last = frees.shape[1] - 1 - frees[:, ::-1].argmax(axis=1)
        found = frees.any(axis=1)
        r, k, last = r[found], k[found], last[found]
        freed[r, k] = self._rows[r, k, last]
        self.length[r, k] = last
        positions = np.arange(self._rows.shape[-1])
        self._rows[r, k] = np.where(positions < last[:, None], self._rows[r, k], -1)
        return freed

    def _elsewhere(self, r: Any, k: Any) -> np.ndarray:
        """Which entries of row k are also in another row of the restart, (L,)."""
        others = np.delete(self.rows[r], k, axis=0)
        return np.isin(self.rows[r, k], others)

    def take(self, restarts: np.ndarray) -> TabuList:
        """The memory of these restarts only."""
        kept = TabuList.__new__(TabuList)
        kept.shared, kept.length, kept._rows = self.shared, self.length[restarts], self._rows[restarts]
        return kept


class RecentMoves:
    """The latest entries of every restart: what was just done is not undone. A ring, one entry per step."""

    def __init__(self, restarts: int, size: int) -> None:
        self.ring = np.full((restarts, size), -1, np.int64)

    @classmethod
    def resumed(cls, ring: np.ndarray) -> RecentMoves:
        recent = cls(0, 0)
        recent.ring = ring
        return recent

    def push(self, step: int, values: np.ndarray) -> None:
        """Enter values (R,), in place of what was entered `size` steps ago."""
        size = self.ring.shape[1]
        if size:
            self.ring[:, step % size] = values

    def holds(self, values: np.ndarray) -> np.ndarray:
        """Whether each of values (R, M) or (1, M) is an entry: (R, M) bool."""
        return (self.ring[:, None, :] == values[:, :, None]).any(axis=2)


@dataclass(frozen=True, slots=True)
class Best:
    """The best solution of every restart, and for how long it has not been improved."""

    cost: np.ndarray  # (R,) J_b
    means: np.ndarray  # (R, K) M_b
    stale: np.ndarray  # (R,) r: iterations since J_b last fell

    @classmethod
    def start(cls, cost: np.ndarray, means: np.ndarray) -> Best:
        return cls(cost, means, np.zeros(len(cost), np.int64))

    def updated(self, cost: np.ndarray, means: np.ndarray) -> Best:
        """J_n < J_b (by more than rounding): M_b = M_n, r = 0; otherwise r = r + 1."""
        better = cost < self.cost * (1 - NOISE)
        return Best(
            np.where(better, cost, self.cost),
            np.where(better[:, None], means, self.means),
            np.where(better, 0, self.stale + 1),
        )

    def take(self, restarts: np.ndarray) -> Best:
        return replace(self, cost=self.cost[restarts], means=self.means[restarts], stale=self.stale[restarts])
