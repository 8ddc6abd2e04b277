"""On the client: parts of the points that workers hold, and what `Points` and `BackendBase` are over them.

What a worker holds is an actor, and every operation a message to it and one back, whose sizes do not depend on the
number of points (but for single moves). Nothing waits for a worker that is gone.
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
from distributed import Actor, Client, Future, KilledWorker, wait

from gputabu.backend.base import BackendBase
from gputabu.backend.contract import Labels, NearestTwo
from gputabu.backend.sharded import ShardedBackend
from gputabu.core.caching import cached_property
from gputabu.dask.worker import Handle, Summary, WorkerLost, WorkerShard
from gputabu.data.points import Points, exponent

#: How Dask's scheduler puts it that an actor is gone.
LOST = "Worker holding Actor was lost"
#: Seconds between two looks at whether a worker is still there.
LOOK = 1.0
#: Seconds to wait for a worker where there is none.
PATIENCE = 60.0


class RemoteShard:
    """Consecutive rows on a worker. Acts like `BackendBase`; in `Points` it stands for a chunk."""

    def __init__(self, client: Client, worker: str, held: Future) -> None:
        self.client, self.worker, self.held = client, worker, held
        ready(client, [held], worker)
        with client.as_current():
            self.actor = Actor(WorkerShard, worker, held.key)
        self.serials = count(1)
        self.dropped: deque[int] = deque()
        self.name = ""
        self.summaries: list[Summary] = self.ask("summaries")
        some = next((summary for summary in self.summaries if summary.n), self.summaries[0])
        self.shape, self.dtype = (sum(summary.n for summary in self.summaries), some.d), some.dtype
        self.points = SimpleNamespace(n=self.shape[0])

    def __len__(self) -> int:
        return self.shape[0]

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """What the worker holds goes with the last reference to it."""

    def ask(self, method: str, *args: Any) -> Any:
        """Let the worker perform an operation, and wait for what it returns."""
        dropped = [self.dropped.popleft() for _ in range(len(self.dropped))]
        found = pickle.loads(self.exchange(next(self.serials), pickle.dumps((method, args, dropped))))
        for kept in (found.first, found.second, found.near, found.far) if isinstance(found, NearestTwo) else (found,):
            if isinstance(kept, Handle):
                weakref.finalize(kept, self.dropped.append, kept.number)
        return found

    def exchange(self, serial: int, message: bytes) -> bytes:
        """Send a message, wait for the answer."""
        try:
            with self.client.as_current():
                answer = self.actor.perform(serial, message)
        except RuntimeError as error:
            raise WorkerLost(f"worker {self.worker}: {error}") from None
        while True:
            try:
                return answer.result(timeout=LOOK)
            except TimeoutError:
                if self.held.status != "finished" or self.worker not in self.client.nthreads():
                    raise WorkerLost(f"worker {self.worker} is gone") from None
            except OSError as error:  # no way to the worker
                raise WorkerLost(f"worker {self.worker}: {error}") from None

    def __getattr__(self, method: str) -> Any:
        if method.startswith("_") or not any(hasattr(kind, method) for kind in (BackendBase, WorkerShard)):
            raise AttributeError(method)
        return partial(self.ask, method)

    def rows(self, indices: np.ndarray) -> np.ndarray:
        return self.ask("rows", indices) if len(indices) else np.empty((0, self.shape[1]))

    def sample(self, min_sq_dist: Any, shift: np.ndarray, targets: np.ndarray) -> np.ndarray:
        wanted = (targets >= 0).any()
        return self.ask("sample", min_sq_dist, shift, targets) if wanted else np.full(targets.shape, -1, np.int64)


class RemoteBackend(ShardedBackend):
    """Points on workers. Labels are not brought to the client."""

    def __init__(self, points: Points, parts: Sequence[RemoteShard], backend: str) -> None:
        super().__init__(points, parts)
        self.backend = backend

    def __enter__(self) -> Self:
        super().__enter__()
        weighted = self.points.weights is not None
        self.name = self.each(lambda shard: shard.ask("start", self.backend, weighted))[0]
        return self

    def result_labels(self, labels: Labels, restart: int) -> np.ndarray:
        """Only the clusters that have points, as labels are not brought to the client."""
        return np.unique(np.concatenate(self.each(lambda shard, local: shard.clusters(local, restart), labels)))


@dataclass(frozen=True)
class RemotePoints(Points):
    """Points on workers, a `RemoteShard` for each chunk; weights are fetched where somebody wants all of them."""

    heaviest: float = 1.0

    @classmethod
    def over(cls, parts: Sequence[RemoteShard], heaviest: float, weighted: bool) -> RemotePoints:
        return cls(tuple(parts), tuple(map(_Weights, parts)) if weighted else None, heaviest=heaviest)  # type: ignore[arg-type]

    @property
    def on_device(self) -> bool:
        return False  # what comes to the client is NumPy's

    def open_elsewhere(self, backend: Any) -> RemoteBackend:
        return RemoteBackend(self, self.chunks, backend)

    def weights_at(self, indices: np.ndarray) -> np.ndarray:
        found = np.ones(indices.shape)
        if self.weights is not None:
            for part, start in zip(self.chunks, self.starts, strict=True):
                here = (indices >= start) & (indices < start + len(part))
                if here.any():
                    found[here] = part.weights_at(indices[here] - start)
        return found

    @cached_property
    def total_weight(self) -> float:
        if self.weights is None:
            return float(self.n)
        return math.fsum(chain.from_iterable(part.exact_weight() for part in self.chunks))

    @cached_property
    def weight_prefix(self) -> Any:
        return None if self.weights is None else RunningWeights(self)


class _Weights:
    """Weights of a part, fetched when they are looked at."""

    def __init__(self, part: RemoteShard) -> None:
        self.part = part

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self.part.all_weights()


class RunningWeights:
    """The running totals of the weights, which stay on the workers: what `seeding.by_weight` asks of an array."""

    def __init__(self, points: RemotePoints) -> None:
        self.points = points
        spare = 61 - exponent(points.heaviest) - (points.n - 1).bit_length()
        self.ends = np.cumsum([part.weight_steps(spare) for part in points.chunks])

    def __getitem__(self, last: int) -> np.int64:
        assert last == -1
        return self.ends[-1]

    def searchsorted(self, targets: Any, side: str, sorter: None) -> np.ndarray:
        targets = np.asarray(targets)
        owner = np.searchsorted(self.ends, targets, side="right")
        rows = np.empty(targets.shape, np.int64)
        for p in np.unique(owner).tolist():
            here, before = owner == p, self.ends[p - 1] if p else 0
            rows[here] = self.points.starts[p] + self.points.chunks[p].weight_search(targets[here] - before)
        return rows


def ready(client: Client, tasks: Sequence[Future], worker: str | None = None) -> None:
    """Wait until all is computed, by one worker or wherever; raise what was raised there."""
    with client.as_current():
        _patiently(Look(client, worker), lambda: wait(tasks, timeout=LOOK))
    for task in tasks:
        if task.status == "error":
            awaited(client, task)


def awaited(client: Client, task: Future) -> Any:
    """The result of a task that is ready; it is small."""
    return _patiently(Look(client), lambda: task.result(timeout=PATIENCE))


def _patiently(look: Look, attempt: Callable[[], Any]) -> Any:
    """What the attempt returns, once it does so in time."""
    while True:
        try:
            return attempt()
        except KilledWorker as error:
            raise WorkerLost(str(error)) from None
        except CancelledError:
            raise WorkerLost("what was only in the memory of a worker is gone with it") from None
        except TimeoutError:
            look()
        except RuntimeError as error:
            if LOST not in str(error):
                raise
            raise WorkerLost(str(error)) from None


class Look:
    """Looks, now and then, whether there is still somebody to wait for."""

    def __init__(self, client: Client, worker: str | None = None) -> None:
        self.client, self.worker, self.alone = client, worker, 0.0

    def __call__(self) -> None:
        there = self.client.nthreads()
        if self.worker is not None and self.worker not in there:
            raise WorkerLost(f"worker {self.worker} is gone")
        self.alone = 0.0 if there else self.alone + LOOK
        if self.alone >= PATIENCE:
            raise WorkerLost(f"there was no worker for {PATIENCE:g} seconds")
