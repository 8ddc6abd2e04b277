"""Order-free reductions over points: integer sums per cluster, and the least (value, row) per cluster."""

from __future__ import annotations

import sys

import numpy as np
from scipy.sparse import csc_array

from gputabu.backend.workers import Scratch
from gputabu.points import Grid, Totals, limbs

#: The key of no point: above that of any point.
NO_KEY = np.uint64(2**64 - 1)
#: Which 32-bit half of a 64-bit word is the high one.
HIGH = 1 if sys.byteorder == "little" else 0


def quantize(X: np.ndarray, weights: np.ndarray | None, grid: Grid) -> np.ndarray:
    """The terms that the points add to the totals of their cluster: (n, d) -> (n, C) integers in float64."""
    n, d = X.shape
    terms = np.empty((n, Totals.columns(d, weights is not None)))
    moments = X - grid.offset  # float64, as the offset is
    if weights is not None:
        moments *= weights[:, None]
        terms[:, 2 * d], terms[:, 2 * d + 1] = limbs(weights.copy(), grid.weight, 2)
    terms[:, :d], terms[:, d : 2 * d] = limbs(moments, grid.coordinate, 2)
    terms[:, -1] = 1 if weights is None else weights > 0
    return terms


def cluster_sums(
    terms: np.ndarray, column: np.ndarray, target: np.ndarray, source: np.ndarray, n_sums: int
) -> np.ndarray:
    """Add terms[column[p]] to sum target[p] and take it from sum source[p]: -> (n_sums, C) int64.

    `column` is sorted. The integers, at most 2^28 each, add up exactly in float64 (a block has far fewer
    than 2^25 points), so a sparse product does it.
    """
    n = len(terms)
    ends = 2 * np.searchsorted(column, np.arange(n + 1))
    ones = np.tile([1.0, -1.0], len(column))
    picks = csc_array((ones, np.stack([target, source], axis=1).ravel(), ends), shape=(n_sums, n))
    return (picks @ terms).astype(np.int64)


def keys_of(squares: np.ndarray, square: int, first: int, scratch: Scratch) -> np.ndarray:
    """Sortable keys of the points of a block: (R, n) -> (R, n) uint64 (scratch).

    High half: d², at most 2^square, scaled by a power of two and rounded to float32, whose bits sort like
    its value as it is not negative. Low half: row number, from `first` on, so that ties go to the lowest.
    """
    n = squares.shape[1]
    scaled = scratch("scaled", squares.shape, np.float64)
    np.multiply(squares, np.ldexp(1.0, 100 - square), out=scaled)
    keys = scratch("keys", squares.shape, np.uint64)
    halves = keys.view(np.uint32).reshape(*squares.shape, 2)
    with np.errstate(over="ignore"):  # points of weight zero may lie outside the box; they are never free
        np.copyto(halves[..., HIGH].view(np.float32), scaled, casting="same_kind")
    halves[..., 1 - HIGH] = np.arange(first, first + n, dtype=np.uint32)
    return keys


class Least:
    """Per restart and cluster, the M least keys over the points, least first.

    Row numbers in keys have 32 bits; beyond, rows are kept apart in spans that are joined at the end.
    """

    def __init__(self, shape: tuple[int, int, int]) -> None:
        self.shape = shape  # (R, K, M)
        self.spans: dict[int, np.ndarray] = {}  # first row of the span -> (R, K, M) uint64

    @staticmethod
    def span(row: int) -> int:
        """First row of the span that `row` is in."""
        return row >> 31 << 31

    def lower(self, some: slice, keys: np.ndarray, owner: np.ndarray, span: int) -> None:
        """Take in a block's keys (R', n), owner (R', n) being restart·K + cluster. Destroys `keys`."""
        _, k, m = self.shape
        held = self._held(span)[some]
        keys, owner = keys.ravel(), owner.ravel()
        if m == 1:
            np.minimum.at(held.reshape(-1), owner, keys)
            return
        found = np.full((m, len(held) * k), NO_KEY)
        for best in found:
            np.minimum.at(best, owner, keys)
            keys[keys == best[owner]] = NO_KEY  # the keys of a cluster are distinct
        held[...] = np.sort(np.concatenate([held, found.T.reshape(held.shape)], axis=-1), axis=-1)[..., :m]

    def merge(self, other: Least) -> None:
        """Lower by what another thread found; the order of merges does not matter."""
        m = self.shape[-1]
        for span, keys in other.spans.items():
            held = self._held(span)
            held[...] = np.sort(np.concatenate([held, keys], axis=-1), axis=-1)[..., :m]

    def rows(self) -> np.ndarray:
        """(R, K, M) row numbers, -1 where there is no point."""
        low = np.uint64(0xFFFFFFFF)
        value = np.stack([self.spans[span] >> np.uint64(32) for span in sorted(self.spans)], axis=-2)
        rows = np.stack(
            [
                np.where(keys == NO_KEY, -1, (keys & low).astype(np.int64) + span)
                for span, keys in sorted(self.spans.items())
            ],
            axis=-2,
        )  # (R, K, S, M)
        if rows.shape[-2] == 1:
            return rows[..., 0, :]
        # A stable sort of ascending spans leaves the lowest row first among equals.
        value, rows = value.reshape(*value.shape[:2], -1), rows.reshape(*rows.shape[:2], -1)
        order = np.argsort(value, axis=-1, kind="stable")[..., : self.shape[-1]]
        return np.take_along_axis(rows, order, axis=-1)

    def _held(self, span: int) -> np.ndarray:
        if span not in self.spans:
            self.spans[span] = np.full(self.shape, NO_KEY)
        return self.spans[span]
