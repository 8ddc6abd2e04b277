"""What a tabu iteration on the GPU reads, writes, launches, copies and waits for; counted, not timed.

Run it on hostcuda (`make counts`), which counts what kernels and the host do. Two searches that differ only
in their number of iterations are counted; the difference is what the further iterations took. What a pass asks of
memory, by sectors of 32 bytes, is the difference between more and fewer points.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import cupy
import numpy as np
from sklearn.datasets import load_iris

from gputabu import TabuKMeans, quantized

D, K, FEW = 16, 32, 4
RESTARTS = (1, 8)
#: Iterations of the two searches when events are counted, and when bytes are: watching every access is slow.
EVENTS, BYTES = (16, 48), (2, 4)
#: Points, more and fewer, that tell bytes per point from the rest. Both keep all blocks busy on a device of as many
#: multiprocessors: a small one, as watching every access is slow.
MORE, FEWER, MULTIPROCESSORS = 3584, 3072, 2
#: Points when events are counted, which do not depend on them: too many for a search in one block.
SOME = 2048
#: (d, K) for which the sectors of each pass are counted; of the last, also by the search that relocates centres.
SHAPES = ((2, 10), (16, 64), (8, 16))
#: Points, fewer and more, for few coordinates: every block has one whole tile of `assign`, and two.
TILED = (10240, 20480)
#: Sectors of a pass, by those of one that reads X once, and of each point 8 bytes more, all coalesced.
SECTOR_LIMIT = 1.25


def searched(X: np.ndarray, restarts: int, iterations: int, k: int = K) -> dict[str, Any]:
    """What one search does. It cannot stop early, and ends with one round of K-Means."""
    cupy._hostcuda.reset()
    limits = {"max_iter": iterations, "patience": iterations + 1}
    quantized.search(X, k, init=np.arange(k), restarts=restarts, **limits, refine="centroid", backend="cuda")
    return cupy._hostcuda.stats()


def summed(stats: dict[str, Any]) -> dict[str, int]:
    """Over all kernels. `loaded` and `stored` include atomics, `read` does not."""
    kernels = stats["kernels"].values()
    loaded, stored, atomic = (
        sum(kernel[f"bytes_{name}"] for kernel in kernels) for name in ("loaded", "stored", "atomic")
    )
    found = {name: stats[name] for name in ("launches", "graph_launches", "synchronisations", "allocations")}
    found |= {name: copies["count"] for name, copies in stats["copies"].items()}
    return found | {"bytes": loaded + stored, "read": loaded - atomic}


def per_iteration(X: np.ndarray, restarts: int, iterations: tuple[int, int], k: int = K) -> dict[str, float]:
    few, many = (summed(searched(X, restarts, count, k)) for count in iterations)
    return {name: (many[name] - few[name]) / (iterations[1] - iterations[0]) for name in few}


def restless(n: int) -> np.ndarray:
    """Points without clusters: many change theirs in every iteration."""
    return np.random.default_rng(0).normal(size=(n, D)).astype(np.float32)


def settled(n: int, d: int, k: int = K) -> np.ndarray:
    """Tight clusters far apart, one for each of the first k points: none changes its own or is in doubt."""
    rng = np.random.default_rng(0)
    centers = np.arange(k)[:, None] * np.full(d, 100.0)
    if d >= 16:  # in all directions: on a line, halves could not tell neighbours apart
        centers = rng.normal(scale=50.0, size=(k, d))
    return (centers[np.arange(n) % k] + rng.normal(size=(n, d))).astype(np.float32)


def reads_of_x(restarts: int) -> float:
    """How often an iteration reads X, from what one more point and one more coordinate add to what is read.

    Labels and the like do not grow with d. Centres do, but of FEW clusters all are in shared memory.
    """

    def per_point(d: int) -> float:
        more, fewer = (per_iteration(settled(n, d, FEW), restarts, BYTES, FEW)["read"] for n in (MORE, FEWER))
        return (more - fewer) / (MORE - FEWER)

    cupy._hostcuda.set_check(True)
    found = (per_point(2 * D) - per_point(D)) / (4 * D)
    cupy._hostcuda.set_check(False)
    return found


def iteration_counts(restarts: int) -> dict[str, float]:
    """Events of one iteration; they do not depend on the number of points."""
    return per_iteration(restless(SOME), restarts, EVENTS) | {"reads_of_x": reads_of_x(restarts)}


def iteration_bytes(n: int) -> float:
    """Loaded and stored in one iteration of one restart, where no point changes its cluster."""
    cupy._hostcuda.set_check(True)
    found = per_iteration(settled(n, D), 1, BYTES)["bytes"]
    cupy._hostcuda.set_check(False)
    return found


def requests(n: int, d: int, k: int, relocated: bool) -> dict[str, dict[str, float]]:
    """What the kernels of one iteration ask of memory: by kernel, in a launch.

    Without what only the first pass does, where all labels are new; of relocation it is the mean of all passes.
    """
    X = settled(n, d, k)
    if relocated:
        cupy._hostcuda.reset()
        TabuKMeans(k, max_iter=1, random_state=0, backend="cuda").fit(X)
        many, few = cupy._hostcuda.stats()["kernels"], {}
    else:
        many, few = (searched(X, 1, iterations, k)["kernels"] for iterations in (2, 1))
    found = {}
    for name, each in many.items():
        launches = each["launches"] - few.get(name, {}).get("launches", 0)
        if "requests" in each and launches:
            before = few.get(name, {})
            found[name] = {key: (value - before.get(key, 0)) / launches for key, value in each.items()}
    return found


def coalescing() -> list[dict[str, Any]]:
    """Of each pass over the points: what one more point adds, so that centres and tables are left out."""
    cupy._hostcuda.set_count(True)
    rows = []
    for d, k in SHAPES:
        low, high = TILED if d < 4 else (FEWER, MORE)
        more, fewer = (requests(n, d, k, (d, k) == SHAPES[-1]) for n in (high, low))
        for name in sorted(more.keys() & fewer.keys()):
            added = {key: more[name][key] - fewer[name][key] for key in more[name]}
            sectors, least = (
                sum(added[f"{access}_{what}"] for access in ("load", "store", "atomic"))
                for what in ("sectors", "least")
            )
            if 32 * sectors < (high - low) * 2 * d:  # it does not read X
                continue
            perfect = (high - low) * (4 * d + 8) / 32
            whole = more[name]
            shared = whole["shared_wavefronts"] / max(whole["shared_requests"], 1)
            lanes = whole["active_lanes"] / whole["requests"]
            rows.append({"kernel": name, "d": d, "k": k, "ratio": sectors / perfect, "requested": sectors / least,
                         "wavefronts": shared, "lanes": lanes})  # fmt: skip
    cupy._hostcuda.set_count(False)
    cupy._hostcuda.set_check(False)
    return rows


def iris_counts() -> dict[str, int]:
    """Of 100 whole restarts on the paper's first data set."""
    cupy._hostcuda.reset()
    quantized.search(load_iris().data, 3, init="random", restarts=100, backend="cuda")
    return summed(cupy._hostcuda.stats())


def counted(n: int) -> dict[str, Any]:
    iris = iris_counts()
    cupy._hostcuda.attributes["MultiProcessorCount"] = MULTIPROCESSORS  # tables of the blocks are not what is counted
    found = {
        "n": n,
        "bytes": iteration_bytes(n),
        "byte_limit": 1.3 * (2 * n * D * 4 + 16 * n),
        "iris": iris,
    }
    found["iteration"] = {str(r): iteration_counts(r) for r in RESTARTS}
    return found | {"coalescing": coalescing(), "sector_limit": SECTOR_LIMIT}


def show(found: dict[str, Any]) -> None:
    print(f"A tabu iteration, d = {D}, K = {K}, float32. Counted on the CPU by hostcuda; nothing is timed.\n")
    print(f"bytes loaded and stored, R = 1, N = {found['n']}: {found['bytes']:.0f}, ", end="")
    print(f"{found['bytes'] / found['byte_limit']:.1%} of the limit 1.3·(2·N·d·4 + 16·N) = {found['byte_limit']:.0f}\n")
    both = [found["iteration"][str(r)] for r in RESTARTS]
    rows = (
        ("reads of X", "reads_of_x", 1, "R = 8 no more than R = 1"),
        ("launches", "launches", 1, "5, or one graph launch"),
        ("graph launches", "graph_launches", 1, ""),
        ("copies to the host in 16 iterations", "device_to_host", 16, "1"),
        ("synchronisations in 16 iterations", "synchronisations", 16, "1"),
        ("allocations", "allocations", 1, "0"),
    )
    print(f"{'':38}{'R = 1':>10}{'R = 8':>10}   limit")
    for title, name, times, limit in rows:
        print(f"{title:38}" + "".join(f"{times * each[name]:>10.2f}" for each in both) + f"   {limit}")
    iris = found["iris"]
    total = iris["launches"] + iris["graph_launches"]
    print(f"\nIris, 100 whole restarts: {total} launches (limit 6), {iris['device_to_host']} copies to the host")
    print("\nSectors of 32 bytes that a point adds to a pass, divided by those of a coalesced pass: (4·d + 8) / 32.")
    print(f"The limit for assign and survey is {found['sector_limit']}.")
    print("By request: divided by the fewest sectors that its bytes fit in. Of the whole pass: turns of the banks")
    print("for a request to shared memory, and lanes at work in a request.\n")
    print(f"{'kernel':16}{'d':>4}{'K':>5}{'ratio':>8}{'by request':>12}{'bank turns':>12}{'lanes':>8}")
    for row in found["coalescing"]:
        print(f"{row['kernel']:16}{row['d']:>4}{row['k']:>5}{row['ratio']:>8.2f}{row['requested']:>12.2f}", end="")
        print(f"{row['wavefronts']:>12.2f}{row['lanes']:>8.1f}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--n", type=int, default=200_000, help="points (%(default)s)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the counts to FILE")
    arguments = parser.parse_args()
    if not hasattr(cupy, "_hostcuda"):
        sys.exit("A GPU does not count; use tests/hostcuda/run python benchmarks/counts.py")
    found = counted(arguments.n)
    show(found)
    if arguments.json:
        arguments.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
