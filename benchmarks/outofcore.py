"""Clustering a file that is never brought into memory: how much memory it takes, and how fast it is.

    .venv/bin/python benchmarks/outofcore.py                    # 40 million points with 40 features: 6.4 GB
    .venv/bin/python benchmarks/outofcore.py --rows 4000000     # a tenth of it

First the file is clustered, and the memory that the process has for itself (RssAnon) is watched: pages of the file that
the system keeps do not count, as it takes them back whenever it needs them. Then the two passes of an iteration are
timed, over the file and over the same points in memory by turns. The file was just written and read, so that it is in
the system's cache where there is room: this compares the reading of chunks with memory, not disks. On a machine with
other work the seconds of the processor say more than those of the clock.
"""

from __future__ import annotations

import argparse
import tempfile
import threading
import time
from pathlib import Path

import numpy as np

from gputabu import Points, chunked, quantized
from gputabu.backend import open_backend
from gputabu.backend.base import BackendBase


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=40_000_000)
    parser.add_argument("--features", type=int, default=40)
    parser.add_argument("--clusters", type=int, default=50)
    parser.add_argument("--iterations", type=int, default=3)
    parser.add_argument("--chunk-bytes", type=int, default=64 << 20)
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(dir=given.folder) as folder:
        path = Path(folder) / "points.npy"
        write(path, given.rows, given.features, given.clusters)
        print(f"{path.stat().st_size / 1e9:.2f} GB: {given.rows} x {given.features} float32, K = {given.clusters}")
        clustered(path, given)
        compare(path, given)


def write(path: Path, n: int, d: int, k: int) -> None:
    """Blobs that overlap, written a piece at a time."""
    rng = np.random.default_rng(0)
    centers = rng.normal(scale=2.0, size=(k, d)).astype(np.float32)
    X = np.lib.format.open_memmap(path, "w+", np.float32, (n, d))
    for a in range(0, n, 1 << 18):
        piece = X[a : a + (1 << 18)]
        piece[...] = rng.standard_normal(piece.shape, np.float32)
        piece += centers[rng.integers(k, size=len(piece))]


def clustered(path: Path, given: argparse.Namespace) -> None:
    """Cluster the file; print the most memory that was held."""
    begun, before = time.perf_counter(), anonymous()
    with Monitor() as monitor:
        found = quantized.search(
            chunked(path, chunk_bytes=given.chunk_bytes), given.clusters, max_iter=given.iterations, refine="centroid",
            backend=given.backend, labels_out=path.with_name("labels.npy"),
        )  # fmt: skip
    seconds = time.perf_counter() - begun
    print(f"QM-TS, {found.n_iter} iterations on {found.backend}: J = {found.inertia:.10g} in {seconds:.1f} s")
    print(f"RssAnon: {before / 1e6:.0f} MB before, at most {monitor.most / 1e6:.0f} MB")


def compare(path: Path, given: argparse.Namespace) -> None:
    """Time the passes of an iteration, over the file and over memory by turns."""
    inside = Points.of(np.load(path))
    outside = Points.of(chunked(path, chunk_bytes=given.chunk_bytes))
    with open_backend(outside, given.backend) as file, open_backend(inside, given.backend) as memory:
        states = {"file": (file, file.blank(1)), "memory": (memory, memory.blank(1))}
        taken: dict[str, list[np.ndarray]] = {"file": [], "memory": []}
        for i in range(given.iterations + 1):
            centers = memory.rows(np.arange(given.clusters)[None] + i * given.clusters)
            seen = []
            for name, (opened, labels) in states.items():
                seconds, cost = iteration(opened, labels, centers)
                seen.append(cost)
                if i:  # the first also measures the points
                    taken[name].append(seconds)
            assert seen[0] == seen[1]
    for i, clock in enumerate(("clock", "processor")):
        for name, seconds in taken.items():
            print(f"an iteration over {name}: {' '.join(f'{each[i]:.2f}' for each in seconds)} s by the {clock}")
        file, memory = (min(each[i] for each in taken[name]) for name in ("file", "memory"))
        print(f"speed over the file: {memory / file:.2f} of that over memory")


def iteration(opened: BackendBase, labels: object, centers: np.ndarray) -> tuple[np.ndarray, float]:
    """Seconds of an assignment and a survey, by the clock and of the processor, and J."""
    begun = np.array([time.perf_counter(), time.process_time()])
    opened.assign(centers, labels)
    cost = opened.survey(centers, labels, np.full((*centers.shape[:2], 0), -1), False, 1).cost
    return np.array([time.perf_counter(), time.process_time()]) - begun, float(cost[0])


class Monitor:
    """The most anonymous memory within a context, looked at every few milliseconds."""

    def __enter__(self) -> Monitor:
        self.most, self.over = anonymous(), threading.Event()
        self.thread = threading.Thread(target=self.look)
        self.thread.start()
        return self

    def look(self) -> None:
        while not self.over.wait(0.02):
            self.most = max(self.most, anonymous())

    def __exit__(self, *_: object) -> None:
        self.over.set()
        self.thread.join()


def anonymous() -> int:
    """Bytes of memory of this process that no file backs."""
    status = Path("/proc/self/status").read_text()
    return 1024 * int(status.split("RssAnon:")[1].split()[0])


if __name__ == "__main__":
    main()
