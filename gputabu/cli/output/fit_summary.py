"""The summary of a fit to a table: as text for a screen, and as JSON for a program."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

import gputabu
from gputabu.core.caching import cached_property
from gputabu.core.results import Stop
from gputabu.data import missing
from gputabu.data.points import Points
from gputabu.data.preprocessing import Preprocessing
from gputabu.data.tables import Table, listed
from gputabu.selection.criteria import distances, silhouettes
from gputabu.selection.select_k import SAMPLE, sample

#: Columns of a screen; most clusters that are all listed; how many of the largest are listed if there are more.
WIDTH, MANY, LARGEST = 80, 25, 15
#: Most characters of a column title.
TITLE = 14
METHODS = {
    "TabuKMeans": "tabu search, relocating centres",
    "QuantizedTabuKMeans": "tabu search with quantized means (QM-TS)",
    "KMeans": "K-Means",
}


@dataclass(frozen=True)
class FitSummary:
    """A fitted model, and the table it was fitted to."""

    table: Table
    preprocessing: Preprocessing
    points: np.ndarray  # (N, d), as clustered
    model: Any
    seconds: float
    command: str  # the command line that repeats it
    certificate: Any = None  # how far J can be from the best, if that was asked for

    @property
    def k(self) -> int:
        return len(self.model.cluster_centers_)

    @property
    def interrupted(self) -> bool:
        return self.model.stop_ is Stop.INTERRUPTED

    @property
    def repeatable(self) -> bool:
        """Whether the command gives the same bits again: not if a time limit or Ctrl-C ended the search."""
        return self.model.stop_ not in (Stop.INTERRUPTED, Stop.MAX_TIME)

    @cached_property
    def sizes(self) -> np.ndarray:
        """(K,) number of rows in every cluster."""
        return np.bincount(self.model.labels_, minlength=self.k)

    @cached_property
    def centers(self) -> np.ndarray:
        """(K, d) centres in the units of the table."""
        return self.preprocessing.original(self.model.cluster_centers_)

    @cached_property
    def silhouettes(self) -> tuple[np.ndarray, np.ndarray] | None:
        """Labels and silhouettes of a sample of the rows; None if they are not defined."""
        rows = sample(Points.of(self.points), SAMPLE, 0)
        labels = self.model.labels_[rows]
        if not 2 <= len(np.unique(labels)) < len(rows):
            return None
        drawn = self.points[rows].astype(np.float64)
        return labels, silhouettes(lambda block: distances(drawn[block], drawn), np.ones(len(rows)), labels)

    @property
    def silhouette(self) -> float | None:
        return None if self.silhouettes is None else float(self.silhouettes[1].mean())

    @property
    def gaps(self) -> str:
        """What became of missing values."""
        if self.table.rows is not None:
            return "rows that lack values were left out; labels have the numbers of the others"
        lacking = missing.counts(self.table)
        if not lacking:
            return ""
        where = listed([f"{name} {count}" for name, count in lacking.items()])
        return f"{sum(lacking.values()):,} values ({where}), filled in with the {self.preprocessing.missing}"

    @property
    def method(self) -> str:
        return METHODS[type(self.model).__name__]

    def facts(self) -> dict[str, str]:
        """Short texts about the fit, by subject."""
        n, d = self.points.shape
        facts = {"data": f"{self.table.source}: {n:,} rows, {d} {'columns' if d > 1 else 'column'}"}
        facts["columns"] = ", ".join(self.table.names)
        if self.gaps:
            facts["missing"] = self.gaps
        if self.preprocessing.scale:
            facts["scaled"] = self.preprocessing.scale
        facts |= {"method": self.method, "clusters": str(self.k), "J": f"{self.model.inertia_:.8g}"}
        if self.preprocessing.scale:
            facts["J"] += " (of the scaled values)"
        if self.silhouettes is not None:
            facts["silhouette"] = f"{self.silhouette:.3f}, the mean over {len(self.silhouettes[0]):,} rows"
        restarts = len(self.model.inertias_)
        facts["restarts"] = "1" if restarts == 1 else f"{restarts}; number {self.model.restart_} was the best"
        facts |= {"iterations": str(self.model.n_iter_), "stopped": str(self.model.stop_)}
        if self.certificate is not None:
            facts["proof"] = str(self.certificate)
        return facts | {"backend": self.model.backend_, "time": f"{self.seconds:.2f} s"}

    def text(self) -> str:
        """The summary for a screen of 80 columns."""
        lines: list[str] = []
        for subject, fact in self.facts().items():
            fact = textwrap.shorten(printable(fact), 3 * (WIDTH - 13), placeholder=" …")
            lines += textwrap.wrap(fact, WIDTH, initial_indent=f"{subject:<12}", subsequent_indent=" " * 12)
        return "\n".join([*lines, "", *self._clusters()])

    def _clusters(self) -> list[str]:
        """Size and centre of every cluster, or of the largest ones, with as many columns as fit."""
        order = np.arange(self.k) if self.k <= MANY else np.argsort(-self.sizes, kind="stable")[:LARGEST]
        cells = [[f"{self.sizes[i]:,}", f"{self.sizes[i] / self.sizes.sum():.1%}"] for i in order]
        titles, n_columns = ["size", "share"], 0
        for j, name in enumerate(self.table.names):
            column = [f"{self.centers[i, j]:.5g}" for i in order]
            title = printable(name if len(name) <= TITLE else name[: TITLE - 1] + "…")
            extended = [[*row, cell] for row, cell in zip(cells, column, strict=True)]
            if len(rows_of([*titles, title], extended, order)[0]) > WIDTH:
                break
            titles, cells, n_columns = [*titles, title], extended, n_columns + 1
        lines = rows_of(titles, cells, order)
        if hidden_clusters := self.k - len(order):
            rest = np.delete(self.sizes, order)
            lines.append(f"… and {hidden_clusters} smaller ones of {rest.min():,} to {rest.max():,} rows")
        if hidden_columns := len(self.table.names) - n_columns:
            lines.append(f"({hidden_columns} more {'columns' if hidden_columns > 1 else 'column'})")
        return lines

    def plain(self) -> dict[str, Any]:
        """The summary as JSON."""
        model = self.model
        return {
            "gputabu": gputabu.__version__,
            "command": self.command,
            "data": {
                "file": self.table.source,
                "rows": len(self.points),
                "columns": list(self.preprocessing.columns),
                "id": self.preprocessing.id,
                "scale": self.preprocessing.scale,
                "missing": self.preprocessing.missing,
            },
            "parameters": {name: getattr(value, "tolist", lambda v=value: v)() for name, value in self.parameters()},
            "n_clusters": self.k,
            "inertia": model.inertia_,
            "inertias": model.inertias_.tolist(),
            "restart": model.restart_,
            "n_iter": model.n_iter_,
            "stop": str(model.stop_),
            "interrupted": self.interrupted,
            "silhouette": self.silhouette,
            "backend": model.backend_,
            "seconds": self.seconds,
            "sizes": self.sizes.tolist(),
            "centers": self.centers.tolist(),
        } | ({} if self.certificate is None else {"certificate": self.certificate.plain()})

    def parameters(self) -> list[tuple[str, Any]]:
        """The parameters of the model that affect the result."""
        omitted = ("verbose", "progress", "callback", "n_clusters")
        return [(name, value) for name, value in self.model.get_params().items() if name not in omitted]


def rows_of(titles: Sequence[str], cells: Sequence[Sequence[str]], order: Sequence[int] | np.ndarray) -> list[str]:
    """Lines of a table with the number of the cluster first, right-aligned."""
    rows = [["cluster", *titles], *([str(i), *row] for i, row in zip(order, cells, strict=True))]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(f"{cell:>{width}}" for cell, width in zip(row, widths, strict=True)) for row in rows]


def printable(text: str) -> str:
    """Text without control characters, which could move the cursor or change the colours of a terminal."""
    return "".join(c if c.isprintable() else "\N{REPLACEMENT CHARACTER}" for c in text)
