"""Clusters of bounded size beside k-means-constrained: J and processor time from the same starts, one process, one run.

    python -m venv --system-site-packages peer        # or any environment that has gputabu
    peer/bin/pip install k-means-constrained ortools
    GPUTABU_DATA=… peer/bin/python benchmarks/sizes.py [--cases s4_15 …] [--large] [--seconds 120]

For every case of the table, with max_size = ⌈1.1·N/K⌉ and with exact balance (⌊N/K⌋ to ⌈N/K⌉): K-Means++ centres of
gputabu are the start of both. The peer runs with tol=0, so that both end where nothing changes. Times are processor
time of the process, minimum of the repeats; gputabu has one thread, and so has the peer. `tabu` is TabuKMeans from the
same seed. Without the peer only gputabu is measured. Where the peer would take more than --seconds, by the time of one
iteration, only that iteration is measured, and marked by ">".

`--large` runs 1M points of 8 features in 100 clusters, exactly balanced, and says how much memory it took.
"""

from __future__ import annotations

import argparse
import os
import resource
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from gputabu import KMeans, TabuKMeans, lloyd
from gputabu.algorithms import seeding
from gputabu.backend import as_points, open_backend
from gputabu.backend.numba.backend import NumbaBackend
from gputabu.backend.tuning import Tuning
from gputabu.data.points import Points

try:
    from k_means_constrained import KMeansConstrained
except ImportError:
    KMeansConstrained = None

#: N >= 5,000 is where the peer is slow; the smaller ones are there to compare J.
CASES = (
    "iris_3", "glass_6", "cloud_10", "cloud_25", "tsplib1060_50", "tsplib3038_50", "image_50", "s4_15", "a3_50",
    "unbalance_8", "norm25_25", "usa13509_100", "letter_50",
)  # fmt: skip


def one_thread(points: Points) -> NumbaBackend:
    return NumbaBackend(points, Tuning(threads=1))


def load(name: str) -> np.ndarray:
    folder = Path(os.environ["GPUTABU_DATA"])
    path = folder / f"{name}.npy"
    X = np.load(path) if path.exists() else np.loadtxt(folder / f"{name}.csv", delimiter=",")
    return (X - X.mean(axis=0)) / X.std(axis=0, ddof=1) if name == "cloud" else X.astype(np.float64)


def start(X: np.ndarray, k: int, seed: int) -> np.ndarray:
    with open_backend(as_points(X), "numba") as backend:
        return X[seeding.plus_plus(backend, k, seed, [0])[0]]


def timed(run: Any) -> tuple[float, Any]:
    begun = time.process_time()
    found = run()
    return time.process_time() - begun, found


def objective(X: np.ndarray, labels: np.ndarray, k: int) -> float:
    """J of labels at their centroids, the same way for both."""
    return sum(
        float(((X[labels == a] - X[labels == a].mean(axis=0)) ** 2).sum()) for a in range(k) if (labels == a).any()
    )


def peer(X: np.ndarray, centers: np.ndarray, low: int, high: int, iterations: int) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = KMeansConstrained(
            len(centers), size_min=low, size_max=high, init=centers, n_init=1, max_iter=iterations, tol=0, n_jobs=1
        )
        return model.fit(X)


def case(name: str, repeats: int, limit: float) -> None:
    file, k = name.rsplit("_", 1)
    X, k = load(file), int(k)
    n, centers = len(X), start(X, k, 0)
    for title, low, high in (("1.1", 0, int(np.ceil(1.1 * n / k))), ("exact", n // k, -(-n // k))):
        bounds = {"min_size": low, "max_size": high}

        def ours(bounds: dict[str, int] = bounds) -> Any:
            return lloyd.run(X, k, init=centers, max_iter=10_000, backend=one_thread, **bounds)

        times, found = zip(*(timed(ours) for _ in range(repeats)), strict=True)
        counts = np.bincount(found[0].labels, minlength=k)
        if counts.min() < low or counts.max() > high:
            raise AssertionError(f"{name}: sizes from {counts.min()} to {counts.max()}")
        mine = objective(X, found[0].labels, k)
        took, tabu = timed(lambda b=bounds: TabuKMeans(k, random_state=0, backend=one_thread, **b).fit(X))
        line = f"{name:15} {n:6} {title:6} {mine:14.8g} {min(times):8.3f} s {found[0].n_iter:4} it"
        line += f"  tabu {100 * (tabu.inertia_ / mine - 1):+7.2f} % {took:7.2f} s"
        if KMeansConstrained is not None:
            once, _ = timed(lambda b=bounds: peer(X, centers, b["min_size"], b["max_size"], 1))
            if once * found[0].n_iter > limit:
                line += f"  peer > {once:.1f} s for one iteration: ratio > {once / min(times):.0f}"
            else:
                seconds, other = timed(lambda b=bounds: peer(X, centers, b["min_size"], b["max_size"], 10_000))
                theirs = objective(X, other.labels_, k)
                line += f"  peer {100 * (theirs / mine - 1):+9.5f} % {seconds:8.2f} s: ratio {seconds / min(times):.0f}"
        print(line, flush=True)


def large(n: int) -> None:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 8))[rng.integers(0, 30, n)] * 2 + rng.normal(size=(n, 8))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    begun, busy = time.perf_counter(), time.process_time()
    model = KMeans(100, random_state=0, min_size=n // 100, max_size=-(-n // 100), backend="numba").fit(X)
    counts = np.bincount(model.labels_)
    print(
        f"{n} x 8, K = 100, {counts.min()} to {counts.max()} points: J {model.inertia_:.8g}, "
        f"{model.n_iter_} iterations, "
        f"{time.perf_counter() - begun:.0f} s, {time.process_time() - busy:.0f} s of processor time, "
        f"{(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024:.0f} MB beside the points; "
        f"{model.stop_}"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", nargs="*", default=CASES)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=120)
    parser.add_argument("--large", type=int, nargs="?", const=1_000_000)
    options = parser.parse_args()
    print(f"load {os.getloadavg()[0]:.1f}; J, processor time; J of others relative to it")
    if options.large:
        large(options.large)
        return
    lloyd.run(load("iris"), 3, max_size=51, backend=one_thread)  # compile
    for name in options.cases:
        case(name, options.repeats, options.seconds)


if __name__ == "__main__":
    main()
