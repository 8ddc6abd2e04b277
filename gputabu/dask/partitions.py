"""Partitions of a dask array or data frame: find them on the workers, check them, and run work on all of them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from itertools import groupby
from typing import Any, Self, TypeVar

import dask.array as da
import numpy as np
from dask.core import flatten
from distributed import Client, Future, default_client, futures_of
from distributed.client import ClosedClientError

from gputabu.core.log import log
from gputabu.core.validation import check_heaviest, check_shape
from gputabu.dask.client import RemotePoints, RemoteShard, WorkerLost, awaited, ready
from gputabu.dask.cluster import Cluster, NoWorkers, SchedulerLost
from gputabu.dask.worker import Summary, WorkerShard

#: How often work is restarted after a worker was lost.
RETRIES = 3

Result = TypeVar("Result")


class Partitions:
    """X (N, d) and weights (N,), computed by the cluster and kept in its memory until the end of this context."""

    def __init__(self, client: Client, X: da.Array, weights: Any = None) -> None:
        self.client, self.cluster = client, Cluster(client)
        self.shards: list[RemoteShard] = []
        self.submitted: list[Future] = []  # by the work under way
        self.kept: list[Future] = []  # until the end
        with ExitStack() as stack:
            stack.push(self)  # if it fails, or is interrupted
            self.X, self.blocks = self._persisted(X)
            check_shape(self.X.shape)
            self.weights: list[Future] | None = None
            if weights is not None:
                self.weights = self._persisted(aligned(weights, self.X, lambda w: self._persisted(w)[0]))[1]
            stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Let the cluster drop the data, also where a traceback still refers to it."""
        for future in self.kept:
            future.release()

    def run(self, work: Callable[[RemotePoints], Result]) -> Result:
        """work(points). If a worker is lost, the work restarts on those that are left; the result is the same."""
        for attempt in range(RETRIES + 1):
            try:
                return work(self.points())
            except (SchedulerLost, NoWorkers):  # nobody is left to begin again
                raise
            except WorkerLost as lost:
                reason = str(lost)
                if attempt < RETRIES:
                    warnings.warn(
                        f"A worker was lost ({reason}): the work begins again on those that are left, or goes on from "
                        "its checkpoint.",
                        RuntimeWarning,
                        stacklevel=3,
                    )
            finally:
                self._release()
        raise WorkerLost(f"Workers were lost, {attempt + 1} times in a row; the last time: {reason}.")

    def submit(self, function: Callable[..., Any], *args: Any, **options: Any) -> Future:
        """A task that is dropped when the work is over, in whatever way."""
        self.submitted.append(self.client.submit(function, *args, pure=False, **options))
        return self.submitted[-1]

    def points(self) -> RemotePoints:
        """The points, on their workers, after they were checked there."""
        actors = [
            (worker, self.submit(
                WorkerShard, first, self.blocks[first:last], self.weights and self.weights[first:last],
                workers=[worker], actor=True,
            ))
            for worker, first, last in self._runs()
        ]  # fmt: skip
        for worker, actor in actors:
            self.shards.append(RemoteShard(self.cluster, worker, actor))
        summaries = [summary for shard in self.shards for summary in shard.summaries]
        check_alike(summaries)
        heaviest, lightest = max(s.heaviest for s in summaries), min(s.lightest for s in summaries)
        check_heaviest(heaviest)
        shards = [shard for shard in self.shards if len(shard)]
        log.info(
            "%d partitions in %d parts on %d workers",
            len(summaries),
            len(shards),
            len({shard.worker for shard in shards}),
        )
        return RemotePoints.over(shards, heaviest, weighted=not lightest == heaviest == 1)

    def _release(self) -> None:
        """Let the workers drop their shards now; a traceback, or a message without an answer, may hold on to them."""
        for shard in self.shards:
            shard.closed = True
        submitted, self.shards, self.submitted = self.submitted, [], []
        with suppress(SchedulerLost, ClosedClientError):  # a scheduler out of reach has dropped them, or will
            self.cluster.check()
            self.client.cancel(submitted)

    def _persisted(self, array: da.Array) -> tuple[da.Array, list[Future]]:
        """The computed array, with known chunk sizes, and its blocks."""
        array = self.client.persist(array)
        futures = {future.key: future for future in futures_of(array)}
        self.kept += futures.values()
        blocks = [futures[key] for key in flatten(array.__dask_keys__())]
        ready(self.cluster, blocks)
        if np.isnan(array.shape[0]):
            lengths = [self.client.submit(len, block) for block in blocks]
            ready(self.cluster, lengths)
            array = with_sizes(array, [awaited(self.cluster, length) for length in lengths])
        return array, blocks

    def _runs(self) -> list[tuple[str, int, int]]:
        """Consecutive partitions on the same worker, one that takes work if there is any: (worker, first, last)."""
        ready(self.cluster, self.blocks)
        if not self.cluster.running():
            ready(self.cluster, [self.submit(int)])  # which any that takes work can do
        keys = [block.key for block in self.blocks]
        holders_of, able = self.cluster.ask(self.client.scheduler.who_has, keys=keys), self.cluster.running()
        owners: list[str] = []
        for block in self.blocks:
            holders = holders_of.get(block.key)
            if not holders:
                raise WorkerLost(f"partition {len(owners)} of X is gone")
            fit = able.intersection(holders) or able or holders  # rather a copy than a worker that is paused
            owners.append(owners[-1] if owners and owners[-1] in fit else min(fit))
        runs, first = [], 0
        for worker, repeated in groupby(owners):
            last = first + len(list(repeated))
            runs.append((worker, first, last))
            first = last
        return runs


def check_alike(summaries: Sequence[Summary]) -> None:
    """Raise if partitions differ in number of features, dtype or device."""
    filled = [(i, summary) for i, summary in enumerate(summaries) if summary.n]
    first, reference = filled[0]
    for i, summary in filled:
        if summary.d != reference.d:
            raise ValueError(f"Partition {i} of X has {summary.d} features, and partition {first} has {reference.d}.")
        if (summary.dtype, summary.on_gpu) != (reference.dtype, reference.on_gpu):
            raise ValueError(f"Partition {i} of X is {_kind(summary)}, and partition {first} is {_kind(reference)}.")


def _kind(summary: Summary) -> str:
    return f"{summary.dtype} on {'a GPU' if summary.on_gpu else 'the host'}"


def with_sizes(array: da.Array, sizes: Sequence[int]) -> da.Array:
    """The same array with known chunk sizes."""
    return da.Array(array.dask, array.name, (tuple(sizes), *array.chunks[1:]), meta=array._meta)


def aligned(weights: Any, X: da.Array, sized: Callable[[da.Array], da.Array]) -> da.Array:
    """Weights as a dask array with the chunks of X."""
    if hasattr(weights, "to_dask_array"):
        weights = weights.to_dask_array()
    if not isinstance(weights, da.Array):
        weights = np.asarray(weights)
        if weights.ndim == 0:
            return da.full(len(X), weights[()], chunks=X.chunks[:1])
        weights = da.from_array(weights)
    if weights.ndim == 1 and np.isnan(weights.shape[0]):
        weights = sized(weights)
    if weights.shape != X.shape[:1]:
        raise ValueError(f"sample_weight has shape {weights.shape} and must be ({len(X)},).")
    return weights.rechunk(X.chunks[:1])


def paired(weights: Any, X: da.Array) -> da.Array:
    """As `aligned`, without computing anything: if the length of X is unknown, the partitions must match one to one."""
    if not np.isnan(X.shape[0]):
        return aligned(weights, X, lambda w: w)
    lazy = weights.to_dask_array() if hasattr(weights, "to_dask_array") else weights
    if not isinstance(lazy, da.Array) or lazy.numblocks != X.numblocks[:1]:
        raise ValueError("sample_weight must have the partitions of X where X has an unknown number of rows.")
    return lazy


def as_array(X: Any) -> da.Array:
    """A dask array or data frame as an array with all features in one chunk."""
    if hasattr(X, "to_dask_array"):
        X = X.to_dask_array()
    if not isinstance(X, da.Array):
        raise TypeError(f"X is of type {type(X).__name__} and must be a dask array or data frame.")
    if X.ndim != 2:
        raise ValueError(f"X has shape {X.shape} and must be (n_samples, n_features), both >= 1.")
    return X if X.numblocks[1] == 1 else X.rechunk({1: -1})


def client_of(client: Client | None) -> Client:
    """The client, or the last one created."""
    if client is None:
        try:
            client = default_client()
        except ValueError:
            raise ValueError("client=None needs a Dask client; make one by distributed.Client(...) first.") from None
    if not isinstance(client, Client) or client.asynchronous:
        raise TypeError(f"client={client!r} must be a distributed.Client that is not asynchronous.")
    return client
