"""Reports of a fit and of a choice of K: one HTML page each, whose pictures can be explored."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import gputabu
from gputabu.cli.output import explorer
from gputabu.cli.output.explorer import Explored, chooser, picture, program
from gputabu.cli.output.fit_summary import FitSummary
from gputabu.cli.output.markup import Markup, document, facts, number, row, scrolling, tag, titles
from gputabu.cli.reproduce.records import machine
from gputabu.plotting.comparison import NAMES
from gputabu.selection.select_k import KSelection

#: Most clusters and columns of a table; the files in the same folder have all of them.
CLUSTERS, COLUMNS = 100, 12
STOPPED = "Interrupted: this is the best found so far."


def fit_page(summary: FitSummary) -> str:
    """The report of a fit."""
    title = _title(summary.table.source, summary.k)
    pairs = {name: fact for name, fact in summary.facts().items() if name not in ("columns", "clusters")}
    d = summary.points.shape[1]
    lead = f"Columns: {', '.join(summary.table.names[:COLUMNS])}{', …' if d > COLUMNS else ''}."
    explored = Explored.of(summary)
    curves = {"course": explorer.course(summary)}
    drawn = [picture("course", "J in the course of the search: lower is better"), *_shapes(summary)]
    if summary.certificate is not None:
        curves["proof"] = explorer.proof(summary.certificate)
        drawn.append(picture("proof", "The proof: the best possible J lies between the lines"))
    return document(
        title,
        tag("header", tag("h1", title), tag("p", lead), _warning(summary.interrupted), facts(pairs | _origin())),
        *_clusters(summary, explored),
        tag("section", tag("h2", "Search, sizes, silhouettes"), tag("div", *drawn, class_="figures")),
        tag("div", id="chosen"),
        tag("section", tag("h2", "Parameters"), _parameters(summary)),
        _repeat_section(summary.command, summary.repeatable),
        program(explored.plain | {"curves": curves, "colours": explorer.COLOURS}),
    )


def selection_page(selection: KSelection, summary: FitSummary) -> str:
    """The report of a choice of K, and of the clustering that was chosen."""
    title = _title(summary.table.source, selection.n_clusters)
    lead = f"{selection.n_clusters} clusters are recommended by {NAMES[selection.criterion]}."
    recommended = {NAMES[name]: f"K = {k}" for name, k in selection.recommended.items()}
    explored = Explored.of(summary)
    curves = dict(_criteria(selection))
    drawn = [picture(name, f"{told['y']} over K") for name, told in curves.items()]
    return document(
        title,
        tag(
            "header", tag("h1", title), tag("p", lead), *(tag("p", remark) for remark in selection.remarks),
            _warning(selection.interrupted), facts(recommended | _origin()),
        ),
        tag("section", tag("h2", "Every K"), tag("div", *drawn, class_="figures"), _table_of(selection)),
        *_clusters(summary, explored),
        tag("section", tag("h2", "Sizes and silhouettes"), tag("div", *_shapes(summary), class_="figures")),
        tag("div", id="chosen"),
        _repeat_section(summary.command, not selection.interrupted),
        program(explored.plain | {"curves": curves, "colours": explorer.COLOURS}),
    )  # fmt: skip


def _title(source: str, k: int) -> str:
    return f"{Path(source).name}: {k} {'clusters' if k > 1 else 'cluster'}"


def _origin() -> dict[str, object]:
    return {"gputabu": gputabu.__version__, "machine": machine(), "written": time.strftime("%Y-%m-%d %H:%M")}


def _warning(interrupted: bool) -> Markup | str:
    return tag("p", STOPPED, class_="warning") if interrupted else ""


def _clusters(summary: FitSummary, explored: Explored) -> Iterator[Markup]:
    """The centres, the rows and the examples, as pictures and as tables."""
    units = "in the units of the table" if summary.preprocessing.scale else "as they were clustered"
    scale = tag("span", "−2 ", tag("span", class_="scale"), " +2 standard deviations from the mean", class_="quiet")
    box = tag("div", tag("canvas", id="heat-overview", aria_hidden="true"),
              tag("div", tag("div", tag("canvas", id="heat", role="img", aria_label="Heat map of the centres"),
                             id="heat-room"), id="heat-box"), class_="heat")  # fmt: skip
    some = _part(len(explored.columns), summary.points.shape[1], "columns, those in which the clusters differ most")
    yield tag(
        "section",
        tag("h2", "Centres"),
        tag("p", "Click on a cluster in any picture, and it stands out in all of them.", class_="quiet"),
        tag("div", chooser("heat-order", "Order:"), scale, class_="tools"),
        tag("figure", box, tag("figcaption", f"The centre of every cluster, {units}, and its rows.{some}")),
        tag("details", tag("summary", "The same as a table"), *_table(summary)),
    )
    drawn = len(explored.plain["rows"]["ids"])
    shown = _part(drawn, len(summary.points), "rows")
    said = f"The rows, coloured by cluster, and the centres.{shown} Drag to zoom, double-click to go back."
    yield tag(
        "section",
        tag("h2", "Rows"),
        tag("div", chooser("across", "Across:"), chooser("up", "Up:"), class_="tools"),
        picture("scatter", said),
    )
    yield tag("section", tag("h2", "Examples"), *_examples(summary, explored))


def _part(count: int, total: int, what: str) -> str:
    return f" Shown are {count:,} of {total:,} {what}." if count < total else ""


def _shapes(summary: FitSummary) -> Iterator[Markup]:
    """How large the clusters are and how far apart."""
    yield picture("sizes", "Rows in every cluster")
    if summary.silhouettes is not None:
        count = f"{len(summary.silhouettes[0]):,} rows"
        said = f"Silhouettes of {count}: 1 well inside its cluster, 0 between two, below 0 nearer to another"
        yield picture("silhouettes", said)


def _listed(summary: FitSummary) -> np.ndarray:
    """The clusters of a table: all, or the largest."""
    return np.arange(summary.k) if summary.k <= CLUSTERS else np.argsort(-summary.sizes, kind="stable")[:CLUSTERS]


def _table(summary: FitSummary) -> Iterator[Markup]:
    """The table of clusters, and a note about what it omits."""
    names = summary.table.names[:COLUMNS]
    rows = []
    for i in _listed(summary):
        share = f"{summary.sizes[i] / summary.sizes.sum():.1%}"
        centre = (number(f"{value:.5g}") for value in summary.centers[i, : len(names)])
        rows.append(row(i, number(f"{summary.sizes[i]:,}"), number(share), *centre, data_cluster=i))
    yield scrolling("Clusters", titles("cluster", "rows", "share", *names, style="number"), rows)
    omitted = [f"{summary.k - CLUSTERS} smaller clusters"] if summary.k > CLUSTERS else []
    omitted += [f"{len(summary.table.names) - COLUMNS} columns"] if len(summary.table.names) > COLUMNS else []
    if omitted:
        yield tag("p", f"{' and '.join(omitted)} more are in centres.csv.", class_="quiet")


def _examples(summary: FitSummary, explored: Explored) -> Iterator[Markup]:
    """The row nearest to each centre, with its id."""
    yield tag("p", "The row nearest to each centre, its quantized mean.", class_="quiet")
    shown = explored.columns[:COLUMNS]
    names = [summary.table.names[j] for j in shown]
    chosen = set(_listed(summary).tolist())
    rows = [
        row(i, id, *(number(f"{value:.5g}") for value in values[: len(shown)]), data_cluster=i)
        for i, id, values in explored.examples
        if i in chosen
    ]
    head = tag("tr", *(tag("th", name, scope="col") for name in ("cluster", summary.table.id or "row")),
               *(tag("th", name, scope="col", class_="number") for name in names))  # fmt: skip
    yield scrolling("Examples", head, rows)
    if summary.k > CLUSTERS:
        text = f"Those of the {CLUSTERS} largest clusters. A cluster that is chosen in a picture tells its own."
        yield tag("p", text, class_="quiet")


def _criteria(selection: KSelection) -> Iterator[tuple[str, dict[str, Any]]]:
    """J and every criterion over K, as pictures."""
    ks = selection.table["n_clusters"]
    for name in ("inertia", *(name for name in NAMES if name in selection.table)):
        best = selection.n_clusters if name == "inertia" else selection.recommended.get(name)
        title = {"inertia": "J"}.get(name) or NAMES[name]
        yield f"over-{name}", {
            "x": "number of clusters K", "y": title, "whole": True, "stems": [] if best is None else [int(best)],
            "curves": [explorer.curve(title, ks, selection.table[name], "dots")],
        }  # fmt: skip


def _table_of(selection: KSelection) -> Markup:
    names = {"n_clusters": "K", "inertia": "J", "gap_error": "± gap"} | NAMES
    cells = {names[name]: [f"{value:.7g}" for value in column] for name, column in selection.table.items()}
    rows = []
    for i, k in enumerate(selection.table["n_clusters"]):
        chosen = tag("strong", f"{k} ✓") if k == selection.n_clusters else k
        rows.append(row(chosen, *(number(column[i]) for column in list(cells.values())[1:])))
    return scrolling("Criteria", titles(*cells, style="number"), rows)


def _parameters(summary: FitSummary) -> Markup:
    rows = [row(name, _parameter_text(value)) for name, value in summary.parameters()]
    return scrolling("Parameters", titles("parameter", "value"), rows)


def _parameter_text(value: object) -> str:
    return f"{value.shape[0]} centres that were given" if isinstance(value, np.ndarray) else str(value)


def _repeat_section(command: str, repeatable: bool) -> Markup:
    outcome = "gives the same clusters, bit for bit" if repeatable else "searches again, and may end elsewhere"
    text = f"With gputabu {gputabu.__version__} and the same data, this {outcome}:"
    return tag("section", tag("h2", "To do it again"), tag("p", text), tag("pre", tag("code", command)))
