"""Proofs of how good clusterings are: the data sets of the paper and some more, or many small random sets.

python benchmarks/proof.py                        all cases, some minutes
python benchmarks/proof.py --cases iris_3,glass_6
python benchmarks/proof.py --trials 5000          small sets, against the optimum by enumeration
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import time
from pathlib import Path

import numpy as np
from sklearn.datasets import make_blobs

import gputabu

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "selection"))
#: Data set and K: seconds at the most, and the gap at which it ends.
CASES = {
    "iris_3": (60, 1e-5), "bavaria1_4": (60, 1e-5), "bavaria1_5": (60, 1e-5), "glass_6": (180, 1e-5),
    "liver_10": (600, 1e-3), "heart_10": (600, 1e-3), "cloud_10": (1800, 0.01), "cloud_25": (1800, 0.05),
    "blobs_10": (900, 1e-5),
}  # fmt: skip


def points(name: str) -> np.ndarray:
    if name == "blobs":
        return make_blobs(10000, centers=10, cluster_std=0.5, center_box=(-20, 20), random_state=0)[0]
    folder = Path(os.environ["GPUTABU_DATA"])
    X = np.loadtxt(folder / f"{name}.csv", delimiter=",")
    return (X - X.mean(axis=0)) / X.std(axis=0, ddof=1) if name == "cloud" else X


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--max-time", type=float, help="seconds for each case")
    parser.add_argument("--tolerance", type=float, help="the gap at which each ends")
    parser.add_argument("--trials", type=int, default=0)
    arguments = parser.parse_args()
    if arguments.trials:
        from optima import trial

        start = time.perf_counter()
        worst = max(trial(seed) for seed in range(arguments.trials))
        print(f"{arguments.trials} trials, {time.perf_counter() - start:.0f} s: bound / optimum at most {worst!r}")
        return
    columns = "case", "N", "J", "lower bound", "gap, %", "seconds", "of a processor", "load", "MB"
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    for case in arguments.cases.split(","):
        name, k = case.split("_")
        X = points(name)
        model = gputabu.TabuKMeans(int(k), n_init=4, max_iter=2000, max_time=60, random_state=0).fit(X)
        begun = time.process_time()
        seconds, tolerance = CASES[case]
        seconds, tolerance = arguments.max_time or seconds, arguments.tolerance or tolerance
        found = model.certify(X, max_time=seconds, tolerance=tolerance)
        busy = time.process_time() - begun
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(
            f"| {case} | {len(X)} | {found.inertia:.10g} | {found.lower_bound:.10g} | {100 * found.gap:.2g} | "
            f"{found.seconds:.0f} | {busy:.0f} | {os.getloadavg()[0]:.0f} | {memory:.0f} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
