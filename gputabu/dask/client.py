"""On the client: proxies for the shards on the workers, and `Points` and `BackendBase` on top of them.

A shard on a worker is an actor. Every operation is one message to it and one back, whose sizes do not depend on the
number of points (except for single moves). The client never waits for a worker that is gone.
"""

from __future__ import annotations

import math
import pickle
import weakref
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import CancelledError
from dataclasses import dataclass
from functools import partial
from itertools import chain, count
from types import SimpleNamespace
from typing import Any, Self

import numpy as np
from distributed import Actor, Future, KilledWorker, wait

from gputabu.backend import open_backend
from gputabu.backend.base import BackendBase
from gputabu.backend.contract import Labels, NearestTwo
from gputabu.backend.sharded import ShardedBackend
from gputabu.core.caching import cached_property
from gputabu.dask import cluster
from gputabu.dask.cluster import Cluster, Listener, Watchdog
from gputabu.dask.worker import Handle, Summary, WorkerLost, WorkerShard
from gputabu.data.points import Points, exponent

#: What Dask's scheduler says when an actor is gone.
LOST = "Worker holding Actor was lost"


class RemoteShard:
    """Consecutive rows on a worker. It acts like a `BackendBase`, and like a chunk in `Points`."""

    def __init__(self, held_by: Cluster, worker: str, future: Future) -> None:
        self.cluster, self.worker, self.future = held_by, worker, future
        ready(held_by, [future], worker)
        with held_by.client.as_current():
            self.actor = Actor(WorkerShard, worker, future.key)
        self.serials = count(1)
        self.dropped: deque[int] = deque()
        self.name, self.closed = "", False
        self.summaries: list[Summary] = self.ask("summaries")
        first_filled = next((summary for summary in self.summaries if summary.n), self.summaries[0])
        self.shape, self.dtype = (sum(summary.n for summary in self.summaries), first_filled.d), first_filled.dtype
        self.points = SimpleNamespace(n=self.shape[0])

    def __len__(self) -> int:
        return self.shape[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nobody waits for an answer any more."""
        self.closed = True

    def ask(self, method: str, *args: Any) -> Any:
        """Let the worker run an operation, and wait for the result."""
        dropped = [self.dropped.popleft() for _ in range(len(self.dropped))]
        try:
            result = pickle.loads(self.exchange(next(self.serials), pickle.dumps((method, args, dropped))))
        except WorkerLost:
            self.cluster.confirm(lambda: self.closed)
            raise
        nearest = isinstance(result, NearestTwo)
        for value in (result.first, result.second, result.near, result.far) if nearest else (result,):
            if isinstance(value, Handle):
                weakref.finalize(value, self.dropped.append, value.number)
        return result

    def exchange(self, serial: int, message: bytes) -> bytes:
        """Send a message and wait for the answer."""
        try:
            with self.cluster.client.as_current():
                answer = self.actor.perform(serial, message)
        except RuntimeError as error:
            raise WorkerLost(f"worker {self.worker}: {error}") from None
        listen = Listener(self.cluster, self.worker)
        while True:
            try:
                return answer.result(timeout=cluster.POLL)
            except TimeoutError:
                if self.closed:
                    raise WorkerLost("nobody waits any more") from None
                if self.future.status != "finished":
                    raise WorkerLost(f"worker {self.worker} is gone") from None
                listen()
            except OSError as error:  # no connection to the worker
                raise WorkerLost(f"worker {self.worker}: {error}") from None

    def __getattr__(self, method: str) -> Any:
        if method.startswith("_") or not any(hasattr(kind, method) for kind in (BackendBase, WorkerShard)):
            raise AttributeError(method)
        return partial(self.ask, method)

    def rows(self, indices: np.ndarray) -> np.ndarray:
        return self.ask("rows", indices) if len(indices) else np.empty((0, self.shape[1]))

    def sample(self, min_sq_dist: Any, shift: np.ndarray, targets: np.ndarray) -> np.ndarray:
        any_target = (targets >= 0).any()
        return self.ask("sample", min_sq_dist, shift, targets) if any_target else np.full(targets.shape, -1, np.int64)


class RemoteBackend(ShardedBackend):
    """A backend for points on workers. Labels stay there."""

    def __init__(self, points: Points, shards: Sequence[RemoteShard], backend: str) -> None:
        super().__init__(points, shards)
        self.backend = backend

    def __enter__(self) -> Self:
        super().__enter__()
        weighted = self.points.weights is not None
        self.name = self.each(lambda shard: shard.ask("start", self.backend, weighted))[0]
        return self

    def of_same_kind(self, points: Points) -> BackendBase:
        """Few points are fetched, and stay here."""
        return open_backend(points)

    def result_labels(self, labels: Labels, restart: int) -> np.ndarray:
        """Only the clusters that have points: labels stay on the workers."""
        return np.unique(np.concatenate(self.each(lambda shard, local: shard.clusters(local, restart), labels)))


@dataclass(frozen=True)
class RemotePoints(Points):
    """Points on workers, with a `RemoteShard` as each chunk. Weights are fetched only if all are needed."""

    heaviest: float = 1.0

    @classmethod
    def over(cls, shards: Sequence[RemoteShard], heaviest: float, weighted: bool) -> RemotePoints:
        return cls(tuple(shards), tuple(map(_Weights, shards)) if weighted else None, heaviest=heaviest)  # type: ignore[arg-type]

    @property
    def on_device(self) -> bool:
        return False  # the client gets NumPy arrays

    def open_elsewhere(self, backend: Any) -> RemoteBackend:
        return RemoteBackend(self, self.chunks, backend)

    def weights_at(self, indices: np.ndarray) -> np.ndarray:
        weights = np.ones(indices.shape)
        if self.weights is not None:
            for shard, start in zip(self.chunks, self.starts, strict=True):
                inside = (indices >= start) & (indices < start + len(shard))
                if inside.any():
                    weights[inside] = shard.weights_at(indices[inside] - start)
        return weights

    @cached_property
    def total_weight(self) -> float:
        if self.weights is None:
            return float(self.n)
        return math.fsum(chain.from_iterable(shard.exact_weight() for shard in self.chunks))

    @cached_property
    def weight_prefix(self) -> Any:
        return None if self.weights is None else RunningWeights(self)


class _Weights:
    """Weights of a shard, fetched on first use."""

    def __init__(self, shard: RemoteShard) -> None:
        self.shard = shard

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.shard.all_weights()


class RunningWeights:
    """Running totals of the weights, which stay on the workers. It does what `seeding.by_weight` needs of an array."""

    def __init__(self, points: RemotePoints) -> None:
        self.points = points
        spare = 61 - exponent(points.heaviest) - (points.n - 1).bit_length()
        self.ends = np.cumsum([shard.weight_steps(spare) for shard in points.chunks])

    def __getitem__(self, last: int) -> np.int64:
        assert last == -1
        return self.ends[-1]

    def searchsorted(self, targets: Any, side: str, sorter: None) -> np.ndarray:
        targets = np.asarray(targets)
        shard_of = np.searchsorted(self.ends, targets, side="right")
        rows = np.empty(targets.shape, np.int64)
        for i in np.unique(shard_of).tolist():
            inside, before = shard_of == i, self.ends[i - 1] if i else 0
            rows[inside] = self.points.starts[i] + self.points.chunks[i].weight_search(targets[inside] - before)
        return rows


def ready(held_by: Cluster, tasks: Sequence[Future], worker: str | None = None) -> None:
    """Wait until all tasks are computed, on one worker or on any; raise what a task raised."""
    with held_by.client.as_current():
        _retry(Watchdog(held_by, worker), lambda: wait(tasks, timeout=cluster.POLL))
    for task in tasks:
        if task.status == "error":
            awaited(held_by, task)


def awaited(held_by: Cluster, task: Future) -> Any:
    """The (small) result of a task that is ready.

    It is fetched by one question, which is never given up: a client of Dask cannot fetch anything after that.
    """
    fetched = held_by.begin(held_by.client.gather(task, asynchronous=True))
    return _retry(Watchdog(held_by), lambda: fetched.result(cluster.POLL))


def _retry(watchdog: Watchdog, attempt: Callable[[], Any]) -> Any:
    """Repeat the attempt until it returns in time, and return its result."""
    while True:
        try:
            return attempt()
        except KilledWorker as error:
            raise WorkerLost(str(error)) from None
        except CancelledError:
            watchdog.cluster.confirm()
            raise WorkerLost("what was only in the memory of a worker is gone with it") from None
        except TimeoutError:
            watchdog()
        except OSError as error:  # no connection
            watchdog.cluster.confirm()
            raise WorkerLost(str(error)) from None
        except RuntimeError as error:
            if LOST not in str(error):
                raise
            raise WorkerLost(str(error)) from None
