"""Reports of a fit and of a choice of K: one HTML page each, with pictures."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

import gputabu
from gputabu import plotting
from gputabu.cli.output.fit_summary import FitSummary, printable
from gputabu.cli.output.markup import Drawing, Markup, document, facts, figures, number, row, scrolling, tag, titles
from gputabu.cli.reproduce.records import machine
from gputabu.plotting.comparison import NAMES
from gputabu.plotting.style import COLOURS
from gputabu.selection.select_k import SAMPLE, KSelection

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Most clusters and columns on the page; the files in the same folder have all of them.
CLUSTERS, COLUMNS = 100, 12
#: Most restarts that are drawn.
RESTARTS = 30
STOPPED = "Interrupted: this is the best found so far."
PICTURELESS = "The report has no pictures: Matplotlib is not installed (pip install 'gputabu[plot]')."


def fit_page(summary: FitSummary) -> str:
    """The report of a fit."""
    title = _title(summary.table.source, summary.k)
    pairs = {name: fact for name, fact in summary.facts().items() if name not in ("columns", "clusters")}
    d = summary.points.shape[1]
    lead = f"Columns: {', '.join(summary.table.names[:COLUMNS])}{', …' if d > COLUMNS else ''}."
    return document(
        title,
        tag("header", tag("h1", title), tag("p", lead), _warning(summary.interrupted), facts(pairs | _origin())),
        tag("section", tag("h2", "Clusters"), *_clusters(summary)),
        tag("section", tag("h2", "Pictures"), _pictures(fit_drawings(summary))),
        tag("section", tag("h2", "Parameters"), _parameters(summary)),
        _repeat_section(summary.command, summary.repeatable),
    )


def selection_page(selection: KSelection, source: str, command: str) -> str:
    """The report of a choice of K."""
    title = _title(source, selection.n_clusters)
    lead = f"{selection.n_clusters} clusters are recommended by {NAMES[selection.criterion]}."
    names = {"n_clusters": "K", "inertia": "J", "gap_error": "± gap"} | NAMES
    cells = {names[name]: [f"{value:.7g}" for value in column] for name, column in selection.table.items()}
    rows = []
    for i, k in enumerate(selection.table["n_clusters"]):
        chosen = tag("strong", f"{k} ✓") if k == selection.n_clusters else k
        rows.append(row(chosen, *(number(column[i]) for column in list(cells.values())[1:])))
    recommended = {NAMES[name]: f"K = {k}" for name, k in selection.recommended.items()}
    table = scrolling("Criteria", titles(*cells, style="number"), rows)
    return document(
        title,
        tag(
            "header", tag("h1", title), tag("p", lead), _warning(selection.interrupted), facts(recommended | _origin())
        ),
        tag("section", tag("h2", "Every K"), table),
        tag("section", tag("h2", "Pictures"), _pictures(selection_drawings(selection))),
        _repeat_section(command, not selection.interrupted),
    )


def _title(source: str, k: int) -> str:
    return f"{Path(source).name}: {k} {'clusters' if k > 1 else 'cluster'}"


def _origin() -> dict[str, object]:
    return {"gputabu": gputabu.__version__, "machine": machine(), "written": time.strftime("%Y-%m-%d %H:%M")}


def _warning(interrupted: bool) -> Markup | str:
    return tag("p", STOPPED, class_="warning") if interrupted else ""


def _clusters(summary: FitSummary) -> Iterator[Markup]:
    """The table of clusters, and a note about what it omits."""
    order = np.arange(summary.k) if summary.k <= CLUSTERS else np.argsort(-summary.sizes, kind="stable")[:CLUSTERS]
    names = summary.table.names[:COLUMNS]
    rows = []
    for i in order:
        share = f"{summary.sizes[i] / summary.sizes.sum():.1%}"
        centre = (number(f"{value:.5g}") for value in summary.centers[i, : len(names)])
        rows.append(row(i, number(f"{summary.sizes[i]:,}"), number(share), *centre))
    yield scrolling("Clusters", titles("cluster", "rows", "share", *names, style="number"), rows)
    units = "Centres are in the units of the table." if summary.preprocessing.scale else ""
    omitted = [f"{summary.k - CLUSTERS} smaller clusters"] if summary.k > CLUSTERS else []
    omitted += [f"{len(summary.table.names) - COLUMNS} columns"] if len(summary.table.names) > COLUMNS else []
    rest = f"{' and '.join(omitted)} more are in centres.csv." if omitted else ""
    if units or rest:
        yield tag("p", f"{units} {rest}".strip(), class_="quiet")


def _parameters(summary: FitSummary) -> Markup:
    rows = [row(name, _parameter_text(value)) for name, value in summary.parameters()]
    return scrolling("Parameters", titles("parameter", "value"), rows)


def _parameter_text(value: object) -> str:
    return f"{value.shape[0]} centres that were given" if isinstance(value, np.ndarray) else str(value)


def _repeat_section(command: str, repeatable: bool) -> Markup:
    outcome = "gives the same clusters, bit for bit" if repeatable else "searches again, and may end elsewhere"
    text = f"With gputabu {gputabu.__version__} and the same data, this {outcome}:"
    return tag("section", tag("h2", "To do it again"), tag("p", text), tag("pre", tag("code", command)))


def _pictures(drawings: Iterable[tuple[str, Drawing]]) -> Markup:
    if find_spec("matplotlib") is None:
        warnings.warn(PICTURELESS, UserWarning, stacklevel=3)
        return tag("p", PICTURELESS)
    return figures(drawings)


def fit_drawings(summary: FitSummary) -> Iterator[tuple[str, Drawing]]:
    """The captions of the pictures, and the functions that draw them."""
    model, d = summary.model, summary.points.shape[1]
    projection = ", in two principal components" if d > 2 else ""
    yield f"The clusters{projection}", lambda ax: _draw_clusters(summary, ax)
    behind = [i for i in range(len(model.inertias_)) if model.inertias_[i] != model.inertia_][:RESTARTS]
    yield "J in the course of the search", lambda ax: plotting.trace(model, ax, behind)
    yield "Rows in every cluster", lambda ax: plotting.sizes(model, ax)
    if summary.silhouettes is not None:
        count = f"{len(summary.silhouettes[0]):,} rows"
        caption = f"Silhouettes of {count}: 1 well inside its cluster, 0 between two, below 0 nearer to another"
        yield caption, lambda ax: plotting.silhouette(summary.points, model, ax, sample=SAMPLE)
    if summary.certificate is not None:
        yield "The proof: the best possible J lies between the lines", summary.certificate.plot


def selection_drawings(selection: KSelection) -> Iterator[tuple[str, Drawing]]:
    yield "The criteria over K", selection.plot
    if len(selection.asked) == 1:
        names = [name for name in NAMES if name in selection.table]
        yield "All criteria, each from its worst to its best", lambda ax: plotting.selection(selection, ax, names)
    yield "J over K", lambda ax: draw_inertia(selection, ax)
    yield f"Rows in each of {selection.n_clusters} clusters", lambda ax: plotting.sizes(selection.best, ax)


def _draw_clusters(summary: FitSummary, ax: Axes) -> None:
    plotting.clusters(summary.points, summary.model, ax)
    if summary.points.shape[1] <= 2:  # the axes are columns, whose names may look like formulas
        names = [printable(name).replace("$", r"\$") for name in summary.table.names]
        scaled = f" ({summary.preprocessing.scale})" if summary.preprocessing.scale else ""
        ax.set_xlabel(names[0] + scaled)
        ax.set_ylabel(names[1] + scaled if len(names) > 1 else "")


def draw_inertia(selection: KSelection, ax: Axes) -> None:
    ks = selection.table["n_clusters"]
    ax.plot(ks, selection.table["inertia"], "o-", ms=4, color=COLOURS[0])
    ax.axvline(selection.n_clusters, color="black", ls="--", lw=1)
    ax.set(xlabel="number of clusters K", ylabel="J", ylim=(0, None))
    ax.locator_params(axis="x", integer=True)
