"""The paper's experiments (section V), repeated: four methods on six cases, beside the printed results."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from gputabu.algorithms import lloyd, quantized, reassignment
from gputabu.cli.reproduce.paper import TABLES
from gputabu.cli.reproduce.records import Experiment, Outcome, Results, Settings, printed
from gputabu.core.results import Clustering, Stop
from gputabu.data import datasets
from gputabu.data.datasets import Dataset

Folder = str | os.PathLike[str]


def _kmeans(X: np.ndarray, k: int, **common: Any) -> Clustering:
    return lloyd.run(X, k, init="random", **common)


def _kmeans_plus_plus(X: np.ndarray, k: int, **common: Any) -> Clustering:
    return lloyd.run(X, k, init="k-means++", trials=1, **common)


def _tsc(X: np.ndarray, k: int, **common: Any) -> Clustering:
    return reassignment.search(X, k, max_iter=1000, n_trials=20, tenure=15, keep=0.95, **common)


def _qmts(X: np.ndarray, k: int, **common: Any) -> Clustering:
    return quantized.search(X, k, init="random", max_iter=400, patience=100, **common)


#: The paper's methods with its parameters.
METHODS: dict[str, Callable[..., Clustering]] = {
    "K-Means": _kmeans,
    "K-Means++": _kmeans_plus_plus,
    "TSC": _tsc,
    "QM-TS": _qmts,
}
#: Rough relative times of the methods, to estimate the time left.
WORK = {"K-Means": 1, "K-Means++": 1, "TSC": 170, "QM-TS": 8}
BAR = "{desc} |{bar:30}| {percentage:3.0f} %, {elapsed} so far, about {remaining} left"


def begin(numbers: Sequence[str], settings: Settings, folder: Folder, resume: bool = False) -> Results:
    """Empty results for the tables, or, to resume, with what the folder already has."""
    check_tables(numbers)
    results = Results.read(Path(folder), settings) if resume else Results(settings)
    selected = [number for number in TABLES if number in numbers or number in results.tables]
    results.tables = {number: results.tables.get(number, Experiment(number)) for number in selected}
    return results


def check_tables(numbers: Sequence[str]) -> None:
    if unknown := [number for number in numbers if number not in TABLES]:
        raise ValueError(f"tables={unknown[0]!r} must be one of {', '.join(TABLES)}.")


def run(
    results: Results,
    numbers: Sequence[str],
    folder: Folder,
    *,
    data_home: Folder | None = None,
    say: Callable[[str], None] | None = None,
) -> Results:
    """Run what is missing in the tables of `results`: the methods of the paper on its cases.

    After every method, results.json and results.csv in `folder` are up to date. Ctrl-C ends it and keeps what is
    finished. All runs of a method are restarts of one call, a batch: the time of a run is the batch's divided by runs.

    Parameters
    ----------
    results : Results
        From `begin`; outcomes are added to it.
    numbers : sequence of str
        The tables to run.
    folder : path
    data_home : path, optional
        A folder to look for data sets in first; see `gputabu.data.datasets`.
    say : function of str, optional
        Called with each complete table as text; by default the text is printed above the progress bar.

    Returns
    -------
    Results

    Examples
    --------
    >>> from gputabu.cli.reproduce import experiments, records
    >>> results = experiments.begin(["I"], records.Settings(runs=10), "out")
    >>> results = experiments.run(results, ["I"], "out")  # doctest: +SKIP
    """
    from tqdm import tqdm

    tables, folder = results.tables, Path(folder)
    missing = {number: [name for name in METHODS if name not in tables[number].outcomes] for number in numbers}
    work = sum(_work(number, method) for number, methods in missing.items() for method in methods)
    with tqdm(total=work, bar_format=BAR, smoothing=0, leave=False, disable=None) as bar:
        try:
            for number, methods in missing.items():
                data = _data(tables[number], data_home) if methods else None
                for method in methods:
                    if data is None:
                        break
                    bar.set_description_str(f"Table {number}, {method}")
                    tables[number].outcomes[method] = _outcome(method, data, TABLES[number].k, results.settings)
                    results.write(folder)
                    bar.update(_work(number, method))
                (say or bar.write)(text(tables[number]))
        except KeyboardInterrupt:
            results.interrupted = True
    results.write(folder)
    return results


def _data(experiment: Experiment, data_home: Folder | None) -> Dataset | None:
    """The data of a table; None if unavailable, with the reason in `experiment.skipped`."""
    table = TABLES[experiment.number]
    experiment.skipped = None
    try:
        return datasets.load(table.dataset, data_home, table.preprocessing)
    except datasets.DataUnavailable as error:
        experiment.skipped = str(error)
        return None


def _outcome(method: str, data: Dataset, k: int, settings: Settings) -> Outcome:
    common = {"restarts": settings.runs, "seed": settings.seed, "backend": settings.backend}
    start = time.perf_counter()
    clustering = METHODS[method](data.points, k, **common)
    if clustering.stop is Stop.INTERRUPTED:  # the search returned early, and some runs are incomplete
        raise KeyboardInterrupt
    return Outcome.of(clustering, time.perf_counter() - start, data.labels)


def _work(number: str, method: str) -> int:
    return WORK[method] * (datasets.SOURCES[TABLES[number].dataset].shape[0] + 100)


def text(experiment: Experiment) -> str:
    """Our table beside the paper's, and the verdicts."""
    table = TABLES[experiment.number]
    n, d = datasets.SOURCES[table.dataset].shape
    lines = [f"Table {table.number}. {table.title}: N = {n}, d = {d}, K = {table.k}"]
    if experiment.skipped:
        return f"{lines[0]}\n  skipped: {experiment.skipped}\n"
    titles = "".join(f"{title:>10}" for title in ("worst J", "average J", "best J", "s/run"))
    lines += [
        f"{'':11}{' here ':-^38}    {' paper ':-^38}    here / paper",
        f"{'':9}{titles}  {titles}   average      time",
    ]
    for method, outcome in experiment.outcomes.items():
        ours, paper = outcome.row, asdict(table.rows[method])
        both = (printed(ours, table.style), printed(paper, table.style, ".2f"))
        cells = ["".join(f"{cell:>10}" for cell in row) for row in both]
        ratios = f"{ours['average'] / paper['average']:10.3f}{ours['seconds'] / paper['seconds']:10.4f}"
        lines.append(f"{method:9}{cells[0]}  {cells[1]}{ratios}")
    lines += [f"  {'ok ' if verdict.holds else 'NO '} {verdict.text}" for verdict in experiment.verdicts]
    return "\n".join(lines) + "\n"
