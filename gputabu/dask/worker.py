"""On a worker: consecutive partitions of X, their backend, and the values per point that operations need again.

Labels and distances never leave the worker. The client gets a `Handle` for them, which it sends in later messages.
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
STORED = ("blank_labels", "label", "infinite_sq_dist", "take_labels")


class WorkerLost(RuntimeError):
    """A worker is gone, and with it the state of a search."""


class Handle:
    """The number of a value that is stored on a worker."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __reduce__(self) -> Any:
        return Handle, (self.number,)


@dataclass(frozen=True, slots=True)
class Summary:
    """What the client must know about a partition."""

    n: int
    d: int
    dtype: np.dtype
    on_gpu: bool
    lightest: float  # least weight
    heaviest: float  # largest weight


class WorkerShard:
    """Consecutive partitions on a worker; the first one has the number `first`."""

    def __init__(self, first: int, blocks: Sequence[Any], weights: Sequence[Any] | None) -> None:
        self.chunks = [chunk_of(block, first + i) for i, block in enumerate(blocks)]
        self.weights = None if weights is None else weights_of(weights, blocks)
        self.values: dict[int, Any] = {}  # by number of their handle
        self.numbers = count()
        self.last_serial, self.answer = 0, b""
        self.threads = thread_count()
        self.backend: BackendBase

    def __reduce__(self) -> Any:
        raise pickle.PicklingError("The state of a search stays on its worker.")

    def summaries(self) -> list[Summary]:
        summaries = []
        for i, chunk in enumerate(self.chunks):
            w = np.ones(1) if self.weights is None else self.weights[i]
            n, d = chunk.shape
            least, most = (float(w.min()), float(w.max())) if len(w) else (math.inf, 0.0)
            summaries.append(Summary(n, d, chunk.dtype, on_gpu(chunk), least, most))
        return summaries

    def perform(self, serial: int, message: bytes) -> bytes:
        """Run the operation that a message asks for. If the same message comes again, return the same answer."""
        if serial == self.last_serial + 1:
            method, args, dropped = pickle.loads(message)
            for number in dropped:
                del self.values[number]
            target = self if hasattr(WorkerShard, method) else self.backend
            result = getattr(target, method)(*map(self._resolve, args))
            self.last_serial, self.answer = serial, pickle.dumps(self._with_handles(method, args, result))
        elif serial != self.last_serial:  # the partitions were computed again on a new worker, without the state
            raise WorkerLost("the state of the search is not here")
        return self.answer

    def _resolve(self, value: Any) -> Any:
        if isinstance(value, Handle):
            return self.values[value.number]
        if isinstance(value, NearestTwo):
            first, second, near, far = map(self._resolve, (value.first, value.second, value.near, value.far))
            return NearestTwo(first, second, near, far, value.at)
        return value

    def _with_handles(self, method: str, args: Sequence[Any], result: Any) -> Any:
        if method in STORED:
            return self._store(result)
        if method != "nearest_two":
            return result
        if args[1] is not None:  # updated in place
            return NearestTwo(None, None, None, None, result.at)
        first, second, near, far = map(self._store, (result.first, result.second, result.near, result.far))
        return NearestTwo(first, second, near, far, result.at)

    def _store(self, value: Any) -> Handle:
        number = next(self.numbers)
        self.values[number] = value
        return Handle(number)

    # -- operations besides those of `BackendBase` ---------------------------------------------------------

    def start(self, backend: str, weighted: bool) -> str:
        """Open a backend for the points and return its name."""
        self.backend = open_backend(points_of(self.chunks, self.weights if weighted else None), backend)
        if isinstance(self.backend, TiledBackend):
            self.backend.workers.threads = self.threads
        self.backend.__enter__()
        weakref.finalize(self, self.backend.__exit__, None, None, None)
        return self.backend.name

    def clusters(self, labels: Labels, restart: int) -> np.ndarray:
        """The clusters that have points in this shard."""
        return np.unique(self.backend.fetch_labels(labels, restart))

    def weights_at(self, rows: np.ndarray) -> np.ndarray:
        return self.backend.points.weights_at(rows)

    def all_weights(self) -> np.ndarray:
        return np.concatenate(self.backend.points.weights or ())

    def exact_weight(self) -> list[float]:
        """Numbers whose sum is exactly that of the weights: the rounding error of each is the next one."""
        weights, parts = self.all_weights().tolist(), list[float]()
        while rest := math.fsum(chain(weights, (-part for part in parts))):
            parts.append(rest)
        return parts

    def weight_steps(self, spare: int) -> int:
        """Σ w on a grid of 2^-spare. The running totals are stored for `weight_search`."""
        self.prefix = np.cumsum(np.rint(np.ldexp(self.all_weights(), spare)).astype(np.int64))
        return int(self.prefix[-1])

    def weight_search(self, targets: np.ndarray) -> np.ndarray:
        return np.searchsorted(self.prefix, targets, side="right")


def chunk_of(block: Any, number: int) -> Any:
    """A partition as a checked chunk of `Points`; it may be empty."""
    name = f"Partition {number} of X"
    if len(block) == 0:
        return np.empty((0, block.shape[1] if block.ndim == 2 else 0))
    if not on_gpu(block):
        return check_matrix(block, name)
    points = as_points(block)
    with open_backend(points, "cuda") as backend:
        bounds = backend.bounds_partial()
    check_range(float(bounds.low.min()), float(bounds.high.max()), name)
    return points.chunks[0]


def weights_of(weights: Sequence[Any], blocks: Sequence[Any]) -> list[np.ndarray]:
    """The weights of each partition. Checks that need all partitions are left to the client."""
    host = [to_numpy(array) if on_gpu(array) else array for array in weights]
    return [plain_weights(array, len(block)) for array, block in zip(host, blocks, strict=True)]


def points_of(chunks: Sequence[Any], weights: Sequence[np.ndarray] | None) -> Points:
    """The points of the chunks that are not empty."""
    filled = [i for i, chunk in enumerate(chunks) if len(chunk)]
    return Points(tuple(chunks[i] for i in filled), None if weights is None else tuple(weights[i] for i in filled))


def thread_count() -> int:
    """The threads of this worker. OMP_NUM_THREADS does not tell: Dask sets it to 1 in every worker."""
    try:
        return get_worker().state.nthreads
    except ValueError:  # not on a worker
        return 1
