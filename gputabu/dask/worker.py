"""On a worker: consecutive partitions of X, their backend, and what is kept of every point between operations.

Labels and distances never leave the worker. The client has handles for them (`Handle`), and names one in a
later message.
"""

from __future__ import annotations

import math
import pickle
import weakref
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, count
from typing import Any

import numpy as np
from distributed import get_worker

from gputabu.backend import as_points, on_gpu, open_backend, to_numpy
from gputabu.backend.base import BackendBase
from gputabu.backend.contract import Labels, NearestTwo
from gputabu.backend.numpy.tiling import TiledBackend
from gputabu.core.validation import check_matrix, check_range, plain_weights
from gputabu.data.points import Points

#: Operations whose result stays on the worker.
KEEPING = ("blank_labels", "label", "infinite_sq_dist", "take_labels")


class WorkerLost(RuntimeError):
    """A worker is gone, and with it the state of a search."""


class Handle:
    """The number of something that a worker keeps."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> Any:
        return Handle, (self.number,)


@dataclass(frozen=True, slots=True)
class Summary:
    """What the client must know of a partition."""

    n: int
    d: int
    dtype: np.dtype
    on_gpu: bool
    lightest: float  # weight
    heaviest: float


class WorkerShard:
    """Some consecutive partitions, the first of which has the number `first`."""

    def __init__(self, first: int, blocks: Sequence[Any], weights: Sequence[Any] | None) -> None:
        self.chunks = [chunk_of(block, first + i) for i, block in enumerate(blocks)]
        self.weights = None if weights is None else weights_of(weights, blocks)
        self.kept: dict[int, Any] = {}
        self.numbers = count()
        self.last, self.answer = 0, b""
        self.threads = thread_count()
        self.backend: BackendBase

    def __reduce__(self) -> Any:
        raise pickle.PicklingError("The state of a search stays on its worker.")

    def summaries(self) -> list[Summary]:
        found = []
        for i, chunk in enumerate(self.chunks):
            w = np.ones(1) if self.weights is None else self.weights[i]
            n, d = chunk.shape
            least, most = (float(w.min()), float(w.max())) if len(w) else (math.inf, 0.0)
            found.append(Summary(n, d, chunk.dtype, on_gpu(chunk), least, most))
        return found

    def perform(self, serial: int, message: bytes) -> bytes:
        """Do what a message asks for. One that comes again, because its answer was lost, is not done again."""
        if serial == self.last + 1:
            method, args, dropped = pickle.loads(message)
            for number in dropped:
                del self.kept[number]
            target = self if hasattr(WorkerShard, method) else self.backend
            found = getattr(target, method)(*map(self._given, args))
            self.last, self.answer = serial, pickle.dumps(self._returned(method, args, found))
        elif serial != self.last:  # these partitions were read again on a new worker
            raise WorkerLost("the state of the search is not here")
        return self.answer

    def _given(self, value: Any) -> Any:
        if isinstance(value, Handle):
            return self.kept[value.number]
        if isinstance(value, NearestTwo):
            first, second, near, far = map(self._given, (value.first, value.second, value.near, value.far))
            return NearestTwo(first, second, near, far, value.at)
        return value

    def _returned(self, method: str, args: Sequence[Any], found: Any) -> Any:
        if method in KEEPING:
            return self._keep(found)
        if method != "nearest_two":
            return found
        if args[1] is not None:  # brought up to date where they are
            return NearestTwo(None, None, None, None, found.at)
        first, second, near, far = map(self._keep, (found.first, found.second, found.near, found.far))
        return NearestTwo(first, second, near, far, found.at)

    def _keep(self, value: Any) -> Handle:
        number = next(self.numbers)
        self.kept[number] = value
        return Handle(number)

    # -- operations beside those of `BackendBase` ----------------------------------------------------------

    def start(self, backend: str, weighted: bool) -> str:
        """Give the points to a backend, whose name is returned."""
        self.backend = open_backend(points_of(self.chunks, self.weights if weighted else None), backend)
        if isinstance(self.backend, TiledBackend):
            self.backend.workers.threads = self.threads
        self.backend.__enter__()
        weakref.finalize(self, self.backend.__exit__, None, None, None)
        return self.backend.name

    def clusters(self, labels: Labels, restart: int) -> np.ndarray:
        """Which clusters have points here."""
        return np.unique(self.backend.fetch_labels(labels, restart))

    def weights_at(self, rows: np.ndarray) -> np.ndarray:
        return self.backend.points.weights_at(rows)

    def all_weights(self) -> np.ndarray:
        return np.concatenate(self.backend.points.weights or ())

    def exact_weight(self) -> list[float]:
        """Numbers whose sum is that of the weights, without rounding: what is left is added up until nothing is."""
        weights, parts = self.all_weights().tolist(), list[float]()
        while rest := math.fsum(chain(weights, (-part for part in parts))):
            parts.append(rest)
        return parts

    def weight_steps(self, spare: int) -> int:
        """Σ w on a grid of 2^-spare; the running totals are kept for `weight_search`."""
        self.prefix = np.cumsum(np.rint(np.ldexp(self.all_weights(), spare)).astype(np.int64))
        return int(self.prefix[-1])

    def weight_search(self, targets: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.prefix, targets, side="right")


def chunk_of(block: Any, number: int) -> Any:
    """A partition as a chunk of `Points`, checked; it may be empty."""
    name = f"Partition {number} of X"
    if len(block) == 0:
        return np.empty((0, block.shape[1] if block.ndim == 2 else 0))
    if not on_gpu(block):
        return check_matrix(block, name)
    points = as_points(block)
    with open_backend(points, "cuda") as backend:
        box = backend.bounds_partial()
    check_range(float(box.low.min()), float(box.high.max()), name)
    return points.chunks[0]


def weights_of(weights: Sequence[Any], blocks: Sequence[Any]) -> list[np.ndarray]:
    """The weights of each partition, checked but for what needs all of them."""
    host = [to_numpy(some) if on_gpu(some) else some for some in weights]
    return [plain_weights(some, len(block)) for some, block in zip(host, blocks, strict=True)]


def points_of(chunks: Sequence[Any], weights: Sequence[np.ndarray] | None) -> Points:
    """The points of the chunks that have any."""
    some = [i for i, chunk in enumerate(chunks) if len(chunk)]
    return Points(tuple(chunks[i] for i in some), None if weights is None else tuple(weights[i] for i in some))


def thread_count() -> int:
    """The threads of this worker: Dask sets OMP_NUM_THREADS to 1 in its workers, however many they have."""
    try:
        return get_worker().state.nthreads
    except ValueError:  # not on a worker
        return 1
