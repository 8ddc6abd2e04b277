"""Quality on the paper's cases, speed against scikit-learn, batches against single fits, and memory.

The paper's data are read from the folder named by GPUTABU_DATA (iris.csv, glass.csv, bavaria1.csv, cloud.csv:
numbers without a header). Without it, Iris comes from scikit-learn and the rest is skipped.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import sklearn
from sklearn.cluster import KMeans
from sklearn.datasets import load_iris
from threadpoolctl import threadpool_info

from gputabu import Clustering, Points, TabuKMeans, lloyd, quantized
from gputabu.backend import hold
from gputabu.backend.workers import thread_count

RESTARTS = 100
#: The paper's three, as it had them: random starts, plain K-Means++ seeding, QM-TS from random starts.
METHODS: dict[str, Callable[..., Clustering]] = {
    "K-Means": lambda X, k: lloyd.run(X, k, init="random", restarts=RESTARTS),
    "K-Means++": lambda X, k: lloyd.run(X, k, init="k-means++", trials=1, restarts=RESTARTS),
    "QM-TS": lambda X, k: quantized.search(X, k, init="random", restarts=RESTARTS),
}


@dataclass(frozen=True)
class Case:
    """A table of the paper: worst, average and best J of each of METHODS, as printed."""

    table: str
    file: str
    k: int
    best_known: float
    style: str  # how the paper prints J
    paper: tuple[tuple[float, float, float], ...]

    @property
    def name(self) -> str:
        return f"{self.file.capitalize().rstrip('1')}-{self.k}"

    def load(self) -> np.ndarray | None:
        """The points, or None where they are not at hand."""
        folder = os.environ.get("GPUTABU_DATA")
        if folder is None:
            return load_iris().data if self.file == "iris" else None
        path = Path(folder) / f"{self.file}.csv"
        if not path.exists():
            return None
        X = np.loadtxt(path, delimiter=",")
        return (X - X.mean(axis=0)) / X.std(axis=0, ddof=1) if self.file == "cloud" else X

    def printed(self, value: float) -> float:
        """`value` at the paper's precision."""
        return float(format(value, self.style))


# fmt: off
CASES = (
    Case("I", "iris", 3, 78.85144142614601, ".2f",
         ((145.76, 90.50, 78.85), (145.45, 80.16, 78.85), (78.86, 78.85, 78.85))),
    Case("II", "glass", 6, 336.06053893723515, ".2f",
         ((580.02, 394.32, 336.29), (480.82, 376.25, 336.06), (382.13, 352.28, 338.75))),
    Case("III", "bavaria1", 4, 104474664100.71602, ".2e",
         ((2.79e11, 2.67e11, 1.04e11), (2.79e11, 1.16e11, 1.04e11), (1.05e11, 1.05e11, 1.04e11))),
    Case("IV", "bavaria1", 5, 59761526720.52686, ".2e",
         ((2.62e11, 2.56e11, 7.4e10), (8.65e10, 6.83e10, 5.98e10), (8.07e10, 8.02e10, 5.98e10))),
    Case("V", "cloud", 10, 1503.01315035287, ".2f",
         ((1646.53, 1580.19, 1504.08), (1664.17, 1550.40, 1504.58), (1596.17, 1530.95, 1503.18))),
    Case("VI", "cloud", 25, 804.31067039004, ".2f",
         ((1105.65, 944.94, 847.10), (937.12, 848.73, 820.46), (920.42, 845.25, 816.87))),
)
# fmt: on
#: (N, d, K) of the speed section.
SIZES = ((100_000, 16, 64), (1_000_000, 8, 10), (20_000, 128, 256), (200_000, 32, 100))


def quality() -> list[dict[str, Any]]:
    """Worst, average and best J of 100 restarts, beside the paper's."""
    rows = []
    for case, X in at_hand(CASES):
        print(f"\n{case.name} (Table {case.table}), best known J {case.best_known:.8g}")
        print(f"{'':10}{'worst':>10}{'average':>10}{'best':>10}   paper:{'average':>10}{'best':>10}", end="")
        print(f"{'gap %':>14}{'ms/run':>9}")
        for (method, run), paper in zip(METHODS.items(), case.paper, strict=True):
            seconds, found = timed(lambda run=run, X=X, k=case.k: run(X, k))
            row = summary(case, method, found, paper, seconds)
            numbers = [row["worst"], row["average"], row["best"], *paper]
            ours = "".join(f"{value:>10{case.style}}" for value in numbers[:3])
            theirs = "".join(f"{value:>10{case.style}}" for value in paper)
            print(f"{method:10}{ours}  {theirs}{row['gap_percent']:>10.3f}{row['ms_per_run']:>9.2f}")
            rows.append(row)
        print(f"QM-TS on average at or below the paper's: {'yes' if row['at_or_below_paper'] else 'NO'}")
    proposed = [row["at_or_below_paper"] for row in rows if row["method"] == "QM-TS"]
    print(f"\nQM-TS on average at or below the paper's in {sum(proposed)} of {len(proposed)} cases")
    return rows
