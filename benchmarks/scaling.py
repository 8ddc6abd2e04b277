"""Rows spread over the workers of a Dask cluster: time per iteration, and messages and bytes against the model.

    .venv/bin/python benchmarks/scaling.py                  # 1 and 2 workers with one thread each
    .venv/bin/python benchmarks/scaling.py --rows 4000000

An iteration of the tabu search is three rounds of messages: the coordinates of the new means, from the parts that have
them, `assign` and `survey_partial`. The model of docs/scaling.md says how large these are; what is counted here are the
pickled messages, as Dask gets them. Times are medians of iterations in the middle of a search.
"""

from __future__ import annotations

import argparse
import pickle
import statistics
import time
from collections import Counter, defaultdict

import dask.array as da
import numpy as np
from distributed import Client, LocalCluster

from gputabu.algorithms.quantized import Plan, begin, step
from gputabu.backend import open_backend
from gputabu.dask.client import RemoteShard
from gputabu.dask.partitions import Partitions


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--features", type=int, default=16)
    parser.add_argument("--clusters", type=int, default=64)
    parser.add_argument("--iterations", type=int, default=9)
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--backend", default="auto")
    given = parser.parse_args()
    print(f"{given.rows} x {given.features} float32, K = {given.clusters}")
    for workers in given.workers:
        options = {"n_workers": workers, "threads_per_worker": 1, "dashboard_address": ":0"}
        with LocalCluster(**options) as cluster, Client(cluster) as client:
            measure(client, given, workers)


def measure(client: Client, given: argparse.Namespace, workers: int) -> None:
    n, d, k = given.rows, given.features, given.clusters
    X = da.map_blocks(blobs, chunks=((n // workers,) * workers, (d,)), dtype=np.float32, k=k, d=d, n=n // workers)
    points = Partitions(client, X).points()
    plan = Plan.checked(10_000, None, "cluster", 1, 0.0)
    with open_backend(points, given.backend) as opened, counted() as (messages, sizes):
        means = np.linspace(0, points.n - 1, k).astype(np.int64)[None]
        state = step(opened, begin(opened, means, plan), plan)
        messages.clear()
        sizes.clear()
        times = []
        for _ in range(given.iterations):
            begun = time.perf_counter()
            state = step(opened, state, plan)
            times.append(time.perf_counter() - begun)
        seen = dict(messages)
        pause = latency(points.chunks[0])
    parts = len(points.chunks)
    print(f"{workers} workers, {parts} parts, {opened.name}: {1e3 * statistics.median(times):.0f} ms per iteration; "
          f"an empty message takes {1e3 * pause:.1f} ms")  # fmt: skip
    tabu = state.memory.rows.shape[-1]
    for method, (there, back) in model(k, d, tabu).items():
        count = seen[method] / given.iterations
        sent, got = (statistics.mean(side) for side in zip(*sizes[method][: seen[method]], strict=True))
        print(f"  {method:7}{count:5.1f} messages per iteration; bytes there {sent:8.0f} (model {there:8.0f}), "
              f"back {got:8.0f} (model {back:8.0f})")  # fmt: skip


def model(k: int, d: int, tabu: int) -> dict[str, tuple[float, float]]:
    """Bytes of a message and of its answer, for one restart without weights; `rows`: for all K."""
    return {
        "rows": (8 * k, 8 * k * d),
        "assign": (8 * k * d, 8 * k * (2 * d + 1) + 8),
        "survey_partial": (8 * k * d + 8 * k * tabu, 16 * k + k * tabu + 24),
    }


class counted:
    """While this is open, every message is counted, with its size and that of its answer."""

    def __enter__(self) -> tuple[Counter, defaultdict]:
        self.before, messages, sizes = RemoteShard.exchange, Counter(), defaultdict(list)

        def exchange(shard: RemoteShard, serial: int, message: bytes) -> bytes:
            answer = self.before(shard, serial, message)
            method = pickle.loads(message)[0]
            messages[method] += 1
            sizes[method].append((len(message), len(answer)))
            return answer

        RemoteShard.exchange = exchange
        return messages, sizes

    def __exit__(self, *_: object) -> None:
        RemoteShard.exchange = self.before


def latency(shard: RemoteShard) -> float:
    """Seconds of a message that asks for next to nothing."""
    times = []
    for _ in range(50):
        begun = time.perf_counter()
        shard.rows(np.zeros(1, np.int64))
        times.append(time.perf_counter() - begun)
    return statistics.median(times)


def blobs(block_info: dict, k: int, d: int, n: int) -> np.ndarray:
    """A partition: points around centres that all partitions share."""
    centers = np.random.default_rng(0).normal(scale=2.0, size=(k, d)).astype(np.float32)
    rng = np.random.default_rng(1 + block_info[None]["chunk-location"][0])
    return centers[rng.integers(k, size=n)] + rng.standard_normal((n, d), np.float32)


if __name__ == "__main__":
    main()
