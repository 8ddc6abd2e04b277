"""Results of the experiments, and the files that keep them."""

from __future__ import annotations

import csv
import io
import json
import os
import platform
import statistics
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np

from gputabu.cli.reproduce.paper import TABLES
from gputabu.cli.reproduce.verdicts import Sample, Verdict, judge
from gputabu.core.atomic_files import replace_text
from gputabu.core.results import Clustering, Stop, Trace
from gputabu.core.validation import check_int


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of all runs."""

    runs: int = 100
    seed: int = 0
    backend: str = "auto"

    def __post_init__(self) -> None:
        check_int("runs", self.runs, 1)
        check_int("seed", self.seed, 0, 2**64 - 1)


@dataclass(frozen=True, slots=True)
class Outcome:
    """J of all runs of a method, and the trace and labels of the best run."""

    inertias: list[float]  # (R,) J of every run
    seconds: float  # of all runs together
    backend: str
    labels: list[int]  # (N,) of the best run, like all fields below
    means: list[int] | None  # (K,) quantized means, as row numbers
    current: list[float]  # (T + 1,) J after every iteration
    best: list[float]  # (T + 1,) the lowest J so far
    ari: float | None  # agreement with known classes: adjusted Rand index
    nmi: float | None  # and normalised mutual information

    @classmethod
    def of(cls, clustering: Clustering, seconds: float, classes: np.ndarray | None) -> Outcome:
        row = int(np.flatnonzero(clustering.inertias == clustering.inertia)[0])
        curves = [
            curve[row, : clustering.n_iter + 1].tolist() for curve in (clustering.trace.current, clustering.trace.best)
        ]
        means = None if clustering.center_indices is None else clustering.center_indices.tolist()
        labels = clustering.labels.tolist()
        scores = agreement(classes, labels)
        return cls(clustering.inertias.tolist(), seconds, clustering.backend, labels, means, *curves, *scores)

    @property
    def row(self) -> dict[str, float]:
        """A row of a table, as in the paper."""
        average, seconds = statistics.fmean(self.inertias), self.seconds / len(self.inertias)
        return {"worst": max(self.inertias), "average": average, "best": min(self.inertias), "seconds": seconds}

    @property
    def sample(self) -> Sample:
        spread = statistics.stdev(self.inertias) if len(self.inertias) > 1 else 0.0
        return Sample(statistics.fmean(self.inertias), spread, len(self.inertias))

    def clustering(self, X: np.ndarray) -> Clustering:
        """The best run as a search would return it, for drawing."""
        labels, inertia, n_iter = np.array(self.labels, np.int32), min(self.inertias), len(self.current) - 1
        centers = np.array([X[labels == k].mean(axis=0) for k in np.unique(labels)])
        means = None if self.means is None else np.array(self.means)
        # The means of iterations are not stored; plots only ask whether there are any.
        path = None if means is None else np.full((1, n_iter + 1, len(means)), -1)
        trace = Trace(np.array([self.current]), np.array([self.best]), np.full((1, n_iter), -1), path)
        inertias = np.array([inertia])
        return Clustering(labels, centers, inertia, means, n_iter, Stop.MAX_ITER, 0, inertias, trace, self.backend)


def agreement(classes: np.ndarray | None, labels: list[int]) -> tuple[float, float] | tuple[None, None]:
    """Adjusted Rand index and normalised mutual information; None if the classes are unknown."""
    if classes is None:
        return None, None
    from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score

    return float(adjusted_rand_score(classes, labels)), float(normalized_mutual_info_score(classes, labels))


@dataclass(slots=True)
class Experiment:
    """One table, as far as it has been repeated."""

    number: str
    outcomes: dict[str, Outcome] = field(default_factory=dict)  # by method
    skipped: str | None = None  # why it was not run

    @property
    def verdicts(self) -> list[Verdict]:
        return [judge(TABLES[self.number], method, outcome.sample) for method, outcome in self.outcomes.items()]


@dataclass(slots=True)
class Results:
    """All tables so far. `write` stores them in a folder, and `read` loads them."""

    settings: Settings
    tables: dict[str, Experiment] = field(default_factory=dict)  # by number
    interrupted: bool = False

    def write(self, folder: Path) -> None:
        """Write results.json and results.csv."""
        folder.mkdir(parents=True, exist_ok=True)
        replace_text(folder / "results.json", json.dumps(self._as_json(), indent=1, allow_nan=False) + "\n")
        replace_text(folder / "results.csv", self._as_csv())

    @classmethod
    def read(cls, folder: Path, settings: Settings) -> Results:
        """The results in a folder, which must have the same settings; without tables if there are none."""
        path = folder / "results.json"
        if not path.exists():
            return cls(settings)
        try:
            stored = json.loads(path.read_text(encoding="utf-8"))
            previous = Settings(**stored["settings"])
            tables = {number: _experiment(number, table) for number, table in stored["tables"].items()}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"{path} is not a file of results ({type(error).__name__}: {error}).") from error
        if (previous.runs, previous.seed) != (settings.runs, settings.seed):
            raise ValueError(
                f"{path} was made with runs={previous.runs} and seed={previous.seed}, not with runs={settings.runs} "
                f"and seed={settings.seed}; go on with its own, or write to another folder."
            )
        return cls(settings, tables)

    def _as_json(self) -> dict[str, Any]:
        tables = {}
        for number, experiment in self.tables.items():
            table = TABLES[number]
            tables[number] = {
                "title": table.title,
                "data": table.dataset,
                "preprocessing": table.preprocessing,
                "k": table.k,
                "skipped": experiment.skipped,
                "verdicts": [asdict(verdict) for verdict in experiment.verdicts],
                "methods": {
                    method: {"here": outcome.row, "paper": asdict(table.rows[method])} | asdict(outcome)
                    for method, outcome in experiment.outcomes.items()
                },
            }
        return {"settings": asdict(self.settings), "machine": machine(), "tables": tables}

    def _as_csv(self) -> str:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(["table", "data", "k", "method", "run", "J"])
        for number, experiment in self.tables.items():
            case = [number, TABLES[number].dataset, TABLES[number].k]
            for method, outcome in experiment.outcomes.items():
                writer.writerows([*case, method, run, repr(value)] for run, value in enumerate(outcome.inertias))
        return text.getvalue()


def _experiment(number: str, stored: dict[str, Any]) -> Experiment:
    names = [entry.name for entry in fields(Outcome)]
    outcomes = {
        method: Outcome(**{name: values[name] for name in names}) for method, values in stored["methods"].items()
    }
    return Experiment(TABLES[number].number, outcomes, stored["skipped"])


def printed(row: dict[str, float], style: str, seconds: str = ".4f") -> list[str]:
    """A row of a table as text: J in the paper's number format, and the time."""
    return [format(value, seconds if name == "seconds" else style) for name, value in row.items()]


def machine() -> str:
    """The machine on which times were measured, as far as Python knows it."""
    python, cores = platform.python_version(), os.cpu_count()
    return f"{platform.system()} {platform.machine()}, {cores} cores, Python {python}, NumPy {np.__version__}"
