"""The other searches that the paper names, on its cases, in one table."""

from __future__ import annotations

import csv
import io
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gputabu.algorithms import fuzzy, gmeans, lloyd, quantized, reassignment, relocation
from gputabu.cli.reproduce.paper import TABLES
from gputabu.core.atomic_files import replace_text
from gputabu.core.results import Clustering, Stop
from gputabu.data import datasets
from gputabu.data.datasets import Dataset
from gputabu.selection import evolution

#: Runs of each method.
RUNS = 10
MODES = ("threshold", "mutation", "divide")

Runs = list[tuple[int, float]]  # K and J of every run


def batch(search: Callable[..., Clustering], **options: Any) -> Callable[..., Runs]:
    """Runs of a search for K clusters, as restarts of one call."""

    def runs(data: Dataset, k: int, count: int, seed: int, backend: str) -> Runs:
        found = search(data.points, k, restarts=count, seed=seed, backend=backend, **options)
        return [(k, float(J)) for J in checked(found).inertias]

    return runs


def one_by_one(search: Callable[..., Clustering], given_k: bool = False, **options: Any) -> Callable[..., Runs]:
    """Runs of a search that minimises something else: J is that of its clusters, at their centroids."""

    def runs(data: Dataset, k: int, count: int, seed: int, backend: str) -> Runs:
        X, known = data.points, (k,) * given_k
        found = [checked(search(X, *known, seed=seed + r, backend=backend, **options)) for r in range(count)]
        return [(len(np.unique(each.labels)), within(X, each.labels)) for each in found]

    return runs


def checked(found: Clustering) -> Clustering:
    """The result of a search that was not interrupted."""
    if found.stop is Stop.INTERRUPTED:
        raise KeyboardInterrupt
    return found


def within(X: np.ndarray, labels: np.ndarray) -> float:
    """J at the centroids of the clusters."""
    return sum(float(((X[labels == c] - X[labels == c].mean(axis=0)) ** 2).sum()) for c in np.unique(labels))


@dataclass(frozen=True, slots=True)
class Method:
    """A row of the table."""

    source: str  # whom it is after
    runs: Callable[..., Runs]


#: In the order of the table: this package and the paper, then what the paper cites, by year.
METHODS = {
    "TabuKMeans": Method("ours", batch(relocation.search)),
    "QM-TS": Method("the paper", batch(quantized.search, init="random", max_iter=400, patience=100)),
    "K-Means++": Method("Arthur, Vassilvitskii 2007", batch(lloyd.run, init="k-means++", trials=1)),
    "TSC": Method("Al-Sultan 1995", batch(reassignment.search)),
    "TSC, packing": Method("Sung, Jin 2000", batch(reassignment.search, packing=True)),
    "TSC, step": Method("Liu et al. 2008", batch(reassignment.search, improve="kmeans")),
    "TSC, step, modes": Method("Liu et al. 2008", batch(reassignment.search, improve="kmeans", modes=MODES)),
    "TSC, packing, step": Method("both", batch(reassignment.search, packing=True, improve="kmeans")),
    "fuzzy, m = 1.25": Method("Bezdek 1981", one_by_one(fuzzy.run, True, m=1.25, init="random")),
    "tabu fuzzy, m = 1.25": Method("Al-Sultan, Fedjki 1997", one_by_one(fuzzy.search, True, m=1.25)),
    "G-means": Method("Hamerly, Elkan 2003", one_by_one(gmeans.search)),
    **{
        f"evolution, {name}": Method("Pan, Cheng 2007", one_by_one(evolution.search, index=index))
        for name, index in zip(("PBM", "DB", "CH", "BIC"), evolution.INDICES, strict=True)
    },
}
HEAD = f"{'method':<22}{'after':<28}{'K found':>9}{'average J':>13}{'best J':>13}{'s/run':>9}"


@dataclass(frozen=True, slots=True)
class Row:
    """What a method has come to in a case."""

    table: str
    method: str
    runs: Runs
    seconds: float  # of all

    @property
    def text(self) -> str:
        """J of clusterings with different K are not compared: then there is no average, and none is best."""
        style, ks = TABLES[self.table].style, sorted({k for k, _ in self.runs})
        values = [J for _, J in self.runs]
        alike = len(ks) == 1
        found = f"{ks[0]}" if alike else f"{ks[0]}–{ks[-1]}"
        average, best = (format(value, style) if alike else "–" for value in (statistics.fmean(values), min(values)))
        name = f"{self.method:<22}{METHODS[self.method].source:<28}"
        return f"{name}{found:>9}{average:>13}{best:>13}{self.seconds / len(values):>9.3f}"


def run(
    numbers: Sequence[str],
    runs: int,
    seed: int,
    backend: str,
    data_home: Path | None,
    say: Callable[[str], None],
) -> tuple[list[Row], bool]:
    """Run all methods on the cases of these tables, and say each row; whether it was interrupted."""
    rows: list[Row] = []
    try:
        for number in numbers:
            table = TABLES[number]
            n, d = datasets.SOURCES[table.dataset].shape
            say(f"\n{table.title} (Table {number}): N = {n}, d = {d}, K = {table.k}")
            try:
                data = datasets.load(table.dataset, data_home, table.preprocessing)
            except datasets.DataUnavailable as error:
                say(f"  skipped: {error}")
                continue
            say(HEAD)
            for name, method in METHODS.items():
                begun = time.perf_counter()
                found = method.runs(data, table.k, runs, seed, backend)
                rows.append(Row(number, name, found, time.perf_counter() - begun))
                say(rows[-1].text)
    except KeyboardInterrupt:
        return rows, True
    return rows, False


def write(rows: Sequence[Row], folder: Path) -> Path:
    """Every run, in related.csv."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["table", "data", "method", "run", "K", "J"])
    for row in rows:
        data = TABLES[row.table].dataset
        writer.writerows([row.table, data, row.method, r, k, repr(J)] for r, (k, J) in enumerate(row.runs))
    folder.mkdir(parents=True, exist_ok=True)
    replace_text(folder / "related.csv", text.getvalue())
    return folder / "related.csv"
