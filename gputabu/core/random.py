"""Counter-based random numbers: a function of (seed, restart, step, position), not of earlier draws.

So restart 7 of 100 equals restart 7 run alone, on every backend.
"""

from __future__ import annotations

import threading
from enum import IntEnum
from typing import Any

import numpy as np

BLOCK = 4  # words that Philox makes from one counter


class Purpose(IntEnum):
    """What random words are for: each purpose has its own stream."""

    START = 0  # points that a restart begins with
    TRIAL = 1  # trial labellings
    PRINT = 2  # fingerprints of labellings
    CANDIDATE = 3  # points that may become centres
    CUT = 4  # clusters that are joined and split
    GROWTH = 16  # points that are added to the centres of fewer clusters
    SAMPLE = 17  # sample of the points
    REFERENCE = 18  # reference sets of the gap statistic
    OFFSPRING = 19  # how parents become children
    NEWCOMER = 20  # random individuals


def words(
    seed: int, restart: int, n: int, *, purpose: Purpose = Purpose.START, step: int = 0, first: int = 0
) -> np.ndarray:
    """Return `n` uniform 64-bit words, (n,) uint64, of the stream (seed, restart, purpose, step), from `first` on."""
    skipped = first % BLOCK
    return _GENERATOR.at((seed, restart), (first // BLOCK, 0, step, int(purpose))).random_raw(skipped + n)[skipped:]


class _ThreadGenerator(threading.local):
    """One generator per thread, which is moved to a position: ten times faster than making a new one."""

    def __init__(self) -> None:
        self.philox = np.random.Philox(0)
        self.state: Any = dict(self.philox.state)

    def at(self, key: tuple[int, int], counter: tuple[int, int, int, int]) -> np.random.Philox:
        self.state["state"] = {"key": key, "counter": counter}  # the rest, an empty buffer, is not used
        self.philox.state = self.state
        return self.philox


_GENERATOR = _ThreadGenerator()


def uniforms(words: np.ndarray) -> np.ndarray:
    """Map words to uniform numbers in [0, 1), multiples of 2^-53."""
    return (words >> np.uint64(11)) * 2.0**-53


def below(words: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """Map words to uniform integers in [0, total), by the high half of the 128-bit product.

    All in integers: a float product could round up to `total` itself.
    """
    words, totals = np.broadcast_arrays(words, totals)
    low32 = np.uint64(0xFFFFFFFF)
    a1, a0 = words >> np.uint64(32), words & low32
    b = totals.astype(np.uint64)
    b1, b0 = b >> np.uint64(32), b & low32
    middle = a1 * b0 + ((a0 * b0) >> np.uint64(32))  # cannot overflow: (2^32-1)^2 + 2^32-1 < 2^64
    high = a1 * b1 + (middle >> np.uint64(32)) + ((a0 * b1 + (middle & low32)) >> np.uint64(32))
    return high.astype(np.int64)
