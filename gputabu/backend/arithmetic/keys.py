"""The least (value, row) per cluster, as 64-bit keys: free of the order in which points come."""

from __future__ import annotations

import sys

import numpy as np

from gputabu.backend.arithmetic.constants import KEY_BITS
from gputabu.backend.arithmetic.scratch import Scratch

#: The key of no point: above that of any point.
NO_KEY = np.uint64(2**64 - 1)
#: The value of no point in `SurveyPartial`: above that of any point.
NOBODY = np.uint64(2**32)
#: Which 32-bit half of a 64-bit word is the high one.
HIGH = 1 if sys.byteorder == "little" else 0


def keys_of(squares: np.ndarray, square: int, first: int, scratch: Scratch) -> np.ndarray:
    """Sortable keys of the points of a block: (R, n) -> (R, n) uint64 (scratch).

    High half: d², at most 2^square, scaled by a power of two and rounded to float32, whose bits sort like
    its value as it is not negative. Low half: row number, from `first` on, so that ties go to the lowest.
    """
    n = squares.shape[1]
    scaled = scratch("scaled", squares.shape, np.float64)
    keys = scratch("keys", squares.shape, np.uint64)
    halves = keys.view(np.uint32).reshape(*squares.shape, 2)
    with np.errstate(over="ignore"):  # points of weight zero may lie outside the box; they are never free
        np.multiply(squares, np.ldexp(1.0, KEY_BITS - square), out=scaled)
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

    def lower(self, group: slice, keys: np.ndarray, owner: np.ndarray, span: int) -> None:
        """Take in a block's keys (R', n), owner (R', n) being restart·K + cluster. Destroys `keys`."""
        _, k, m = self.shape
        current = self.keys_of_span(span)[group]
        keys, owner = keys.ravel(), owner.ravel()
        if m == 1:
            np.minimum.at(current.reshape(-1), owner, keys)
            return
        found = np.full((m, len(current) * k), NO_KEY)
        for best in found:
            np.minimum.at(best, owner, keys)
            keys[keys == best[owner]] = NO_KEY  # the keys of a cluster are distinct
        current[...] = np.sort(np.concatenate([current, found.T.reshape(current.shape)], axis=-1), axis=-1)[..., :m]

    def merge(self, other: Least) -> None:
        """Lower by what another thread found; the order of merges does not matter."""
        m = self.shape[-1]
        for span, keys in other.spans.items():
            current = self.keys_of_span(span)
            current[...] = np.sort(np.concatenate([current, keys], axis=-1), axis=-1)[..., :m]

    def found(self) -> tuple[np.ndarray, np.ndarray]:
        """The bits of the values, (R, K, M) uint64, and row numbers; NOBODY and -1 where there is no point."""
        low = np.uint64(0xFFFFFFFF)
        value, rows = [], []
        for span, keys in sorted(self.spans.items()):
            none = keys == NO_KEY
            value.append(np.where(none, NOBODY, keys >> np.uint64(32)))
            rows.append(np.where(none, -1, (keys & low).astype(np.int64) + span))
        return least(np.concatenate(value, axis=-1), np.concatenate(rows, axis=-1), self.shape[-1])

    def keys_of_span(self, span: int) -> np.ndarray:
        """Its keys so far, (R, K, M)."""
        if span not in self.spans:
            self.spans[span] = np.full(self.shape, NO_KEY)
        return self.spans[span]


def least(value: np.ndarray, rows: np.ndarray, count: int) -> tuple[np.ndarray, np.ndarray]:
    """The `count` least along the last axis, of entries whose rows ascend among equals: values, rows."""
    order = np.argsort(value, axis=-1, kind="stable")[..., :count]
    return np.take_along_axis(value, order, axis=-1), np.take_along_axis(rows, order, axis=-1)
