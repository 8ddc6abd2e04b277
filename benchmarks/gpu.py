"""K-Means and tabu iterations on a GPU, beside cuML, faiss and flash-kmeans: the same data, one process.

No figure of a GPU is known to the project yet; this script is how to get them. On hostcuda, which runs kernels on the
CPU, it prints counts and no times.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

from gputabu.backend import cuda_unusable
from gputabu.cli.peers import OURS, PEERS, ROUNDS, Run, data

#: (N, d, K)
SIZES = ((100_000, 16, 64), (1_000_000, 8, 10), (1_000_000, 32, 100), (200_000, 128, 256), (10_000_000, 16, 32))
TINY = ((3_000, 4, 5), (2_000, 40, 8))


def per_iteration(run: Run, repeats: int, synchronise: Callable[[], None]) -> float:
    """Seconds, the median of several; once before to compile and warm up."""
    run(ROUNDS[0])
    differences = []
    for _ in range(repeats):
        seconds = []
        for rounds in ROUNDS:
            synchronise()
            begun = time.perf_counter()
            run(rounds)
            synchronise()
            seconds.append(time.perf_counter() - begun)
        differences.append((seconds[1] - seconds[0]) / (ROUNDS[1] - ROUNDS[0]))
    return statistics.median(differences)


def times(sizes: tuple[tuple[int, int, int], ...], repeats: int) -> None:
    """Milliseconds per iteration, and what they mean for the memory: bytes that must move, over the time."""
    import cupy

    for n, d, k in sizes:
        X, start = data(n, d, k)
        print(f"\nN = {n}, d = {d}, K = {k}, float32")
        found: dict[str, float] = {}
        for name, prepare in (OURS | PEERS).items():
            try:
                run = prepare(X, start)
            except ImportError as error:
                print(f"  {name:18}skipped: {error}")
                continue
            seconds = per_iteration(run, repeats, cupy.cuda.runtime.deviceSynchronize)
            found[name] = seconds
            print(f"  {name:18}{1e3 * seconds:10.3f} ms", end="")
            if name in OURS:
                passes = 1 if name == "gputabu K-Means" else 2
                print(f"{(passes * 4 * n * d + 8 * passes * n) / seconds / 1e9:10.1f} GB/s", end="")
            else:
                print(f"{seconds / found['gputabu K-Means']:10.2f} × gputabu K-Means", end="")
            print(flush=True)


def counts(sizes: tuple[tuple[int, int, int], ...]) -> None:
    """On hostcuda: what our iterations launch and copy."""
    import cupy

    print("stand-in: times mean nothing, only counts are printed")
    for n, d, k in sizes:
        X, start = data(n, d, k)
        print(f"\nN = {n}, d = {d}, K = {k}, float32")
        for name, prepare in OURS.items():
            cupy._hostcuda.reset()
            prepare(X, start)(ROUNDS[0])
            stats = cupy._hostcuda.stats()
            launches = f"{stats['launches']} launches, {stats['graph_launches']} graph launches"
            copies = stats["copies"]["device_to_host"]["count"]
            print(f"  {name:18}{ROUNDS[0]} iterations: {launches}, {copies} copies to the host")
    for name, prepare in PEERS.items():
        try:
            prepare(X, start)
        except ImportError as error:
            print(f"  {name:18}skipped: {error}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--tiny", action="store_true", help="small data, to try the script")
    parser.add_argument("--size", type=int, nargs=3, action="append", metavar=("N", "d", "K"), help="this one only")
    parser.add_argument("--repeats", type=int, default=5, help="timed runs of each (%(default)s)")
    arguments = parser.parse_args()
    if reason := cuda_unusable():
        parser.exit(1, f"There is no GPU to measure: {reason}\n")
    import cupy

    sizes = tuple(map(tuple, arguments.size or ())) or (TINY if arguments.tiny else SIZES)
    if hasattr(cupy, "_hostcuda"):
        counts(sizes)
        return
    properties = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)
    print(f"{properties['name'].decode()}, CuPy {cupy.__version__}; medians of {arguments.repeats}")
    times(sizes, 1 if arguments.tiny else arguments.repeats)


if __name__ == "__main__":
    main()
