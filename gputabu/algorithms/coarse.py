"""Coarse to fine: a search of many points begins on a sample of them, goes on with a larger one, and ends with all.

A pass over a sample costs what the sample is of the points, and most moves that help there help everywhere. So a search
makes many moves where they are cheap. What is left to find with all points are the last few.

A sample has one row of each of so many equal stretches of rows, drawn by an address (`core.random`), with its weight.
So it is the same whoever holds the points, in whatever chunks. It is fetched into memory and given to a backend of its
own, of the same kind. Sizes and shares are found by trial on data of many kinds (`benchmarks/quality.py`).
"""

from __future__ import annotations

import numpy as np

from gputabu.backend.base import BackendBase
from gputabu.core import random
from gputabu.core.random import Purpose
from gputabu.data.points import Points

#: Points per centre in the first sample: the centroids of fewer lie too far from those of all points.
PER_CENTER = 256
#: By how much the next sample is larger.
FINER = 4
#: A sample has at most one in so many of the points: a larger one saves too little.
SAVES = 2
#: Bytes of a sample at the most.
MAX_BYTES = 1 << 28
#: Share of the time or work left that a sample gets,
SHARE = 0.5
#: and iterations without improvement after which it has nothing more to say.
SETTLED = 100


def sizes(points: Points, k: int) -> list[int]:
    """How many points the samples have, rising; none where the points are few."""
    found, size = [], PER_CENTER * k
    most = min(points.n // SAVES, MAX_BYTES // (points.d * points.dtype.itemsize))
    while size <= most:
        found.append(size)
        size *= FINER
    return found


def sample(backend: BackendBase, count: int, seed: int) -> Points | None:
    """So many of the points, in memory, with their weights; None if half of these are zero."""
    points = backend.points
    length, rest = divmod(points.n, count)
    numbers = np.arange(count + 1)
    edges = numbers * length + numbers * rest // count
    words = random.words(seed, 0, count, purpose=Purpose.SAMPLE, step=1)
    rows = edges[:-1] + random.below(words, np.diff(edges))
    weights = None if points.weights is None else points.weights_at(rows)
    if weights is not None and 2 * np.count_nonzero(weights) < count:
        return None
    return Points((backend.rows(rows).astype(points.dtype),), None if weights is None else (weights,))
