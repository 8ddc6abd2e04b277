"""Addressed random numbers: a function of (seed, restart, step, position), not of what was drawn before.

Restart 7 of 100 therefore equals restart 7 run alone, on every backend.
"""

from __future__ import annotations

from enum import IntEnum

import numpy as np

WORD = 64  # bits in a draw


class Purpose(IntEnum):
    """Keeps the streams of different uses apart."""

    START = 0  # which points a restart begins with
    GROWTH = 16  # which points are added to the centres of fewer clusters
    SAMPLE = 17  # which points stand for all
    REFERENCE = 18  # points without clusters, to compare with


def words(seed: int, restart: int, n: int, *, purpose: Purpose = Purpose.START, step: int = 0) -> np.ndarray:
    """Return `n` uniform 64-bit words, (n,) uint64, of the stream (seed, restart, purpose, step)."""
    key = np.array([seed, restart], dtype=np.uint64)
    counter = np.array([0, 0, step, purpose], dtype=np.uint64)
    return np.random.Philox(key=key, counter=counter).random_raw(n)


def uniforms(words: np.ndarray) -> np.ndarray:
    """Map words to uniform numbers in [0, 1), multiples of 2^-53."""
    return (words >> np.uint64(11)) * 2.0**-53


def below(words: np.ndarray, totals: np.ndarray) -> np.ndarray:
    """Map words to uniform integers in [0, total), by the high half of the 128-bit product.

    In integers throughout: a float product can round up to `total` itself.
    """
    words, totals = np.broadcast_arrays(words, totals)
    low32 = np.uint64(0xFFFFFFFF)
    a1, a0 = words >> np.uint64(32), words & low32
    b = totals.astype(np.uint64)
    b1, b0 = b >> np.uint64(32), b & low32
    middle = a1 * b0 + ((a0 * b0) >> np.uint64(32))  # cannot overflow: (2^32-1)^2 + 2^32-1 < 2^64
    high = a1 * b1 + (middle >> np.uint64(32)) + ((a0 * b1 + (middle & low32)) >> np.uint64(32))
    return high.astype(np.int64)
