"""An iteration of fuzzy c-means (m = 2) against one of K-Means, and one of scikit-fuzzy, in seconds of a processor.

The iterations take turns, and the least of several times counts. scikit-fuzzy is left out where it is not installed.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import numpy as np

from gputabu import Points
from gputabu.backend import open_backend


def peer(X: np.ndarray, k: int) -> Callable[[], object] | None:
    """An iteration of scikit-fuzzy."""
    try:
        from skfuzzy.cluster import cmeans
    except ImportError:
        return None
    u = np.random.default_rng(0).random((k, len(X)))
    return lambda: cmeans(X.T, k, 2.0, error=0.0, maxiter=1, init=u / u.sum(axis=0))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", default="100000,16,64", help="N,d,K")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--backend", default="numba")
    arguments = parser.parse_args()
    n, d, k = map(int, arguments.shape.split(","))
    rng = np.random.default_rng(0)
    middles = rng.normal(scale=3, size=(k, d))
    X = (middles[rng.integers(k, size=n)] + rng.normal(size=(n, d))).astype(np.float32)
    with open_backend(Points.of(X), arguments.backend) as backend:
        centers, labels = X[None, :k].astype(float), backend.blank_labels(1)
        state = {"centers": centers, "totals": backend.assign(centers, labels).totals}

        def lloyd() -> None:
            """An iteration of K-Means on its way: most labels stay."""
            state["centers"] = backend.grid.centroids(state["totals"], state["centers"])
            state["totals"] = state["totals"] + backend.assign(state["centers"], labels).totals

        works = {"K-Means": lloyd, "K-Means from no labels": lambda: backend.assign(centers, backend.blank_labels(1)),
                 "fuzzy c-means": lambda: backend.fuzzy_step(centers, 2.0)}  # fmt: skip
        if (other := peer(X.astype(float), k)) is not None:
            works["scikit-fuzzy"] = other
        times: dict[str, list[float]] = {name: [] for name in works}
        for _ in range(arguments.repeats):
            for name, work in works.items():
                begun = time.process_time()
                work()
                times[name].append(time.process_time() - begun)
    least = {name: min(each) for name, each in times.items()}
    for name, seconds in least.items():
        print(f"{name:24}{seconds * 1000:10.1f} ms{seconds / least['K-Means']:8.2f} times K-Means")


if __name__ == "__main__":
    main()
