"""The report of the experiments: one self-contained HTML page, without scripts or network access."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np

import gputabu
from gputabu import plotting
from gputabu.cli.output.markup import Drawing, Markup, document, facts, figures, number, row, scrolling, tag, titles
from gputabu.cli.reproduce.paper import TABLES, Table
from gputabu.cli.reproduce.records import Experiment, Outcome, Results, machine, printed
from gputabu.core.atomic_files import replace_text
from gputabu.data import datasets

Folder = str | os.PathLike[str] | None


def write(results: Results, folder: str | Path, data_home: Folder = None) -> Path:
    """Write report.html into a folder. The points to draw are looked for in `data_home`."""
    path = Path(folder) / "report.html"
    sections = [section(experiment, data_home) for experiment in results.tables.values()]
    body = (heading(results), summary(results), *sections, sources(results), remarks())
    replace_text(path, document("QM-TS: the paper's tables, run again", *body))
    return path


def heading(results: Results) -> Markup:
    settings = results.settings
    backends = sorted({outcome.backend for table in results.tables.values() for outcome in table.outcomes.values()})
    about = {
        "runs per method": settings.runs,
        "seed": settings.seed,
        "backend": ", ".join(backends) or settings.backend,
        "gputabu": gputabu.__version__,
        "machine": machine(),
        "written": time.strftime("%Y-%m-%d %H:%M"),
    }
    stopped = tag("p", STOPPED, class_="warning") if results.interrupted else ""
    return tag("header", tag("h1", "The paper's tables, run again"), tag("p", ABOUT), stopped, facts(about))


def summary(results: Results) -> Markup:
    """One row per table: the averages and the verdict."""
    rows = []
    for experiment in results.tables.values():
        table, outcome = TABLES[experiment.number], experiment.outcomes.get("QM-TS")
        average = format(outcome.row["average"], table.style) if outcome else "–"
        link = tag("a", table.number, href=f"#table-{table.number}")
        paper_average = format(table.rows["QM-TS"].average, table.style)
        rows.append(
            row(link, f"{table.title}, K = {table.k}", badge(experiment), number(average), number(paper_average))
        )
    head = titles("Table", "Data", "Verdict", "QM-TS", "Paper")
    return tag("section", tag("h2", "In short"), scrolling("Verdicts", head, rows), tag("p", AGREES, class_="quiet"))


def badge(experiment: Experiment) -> Markup:
    if experiment.skipped:
        return tag("span", "skipped", class_="badge none")
    differ = [verdict.method for verdict in experiment.verdicts if not verdict.holds]
    missing = [method for method in TABLES[experiment.number].rows if method not in experiment.outcomes]
    if differ:
        return tag("span", f"differs: {', '.join(differ)}", class_="badge no")
    if missing:
        return tag("span", f"not run: {', '.join(missing)}", class_="badge none")
    return tag("span", "agrees", class_="badge yes")


def section(experiment: Experiment, data_home: Folder) -> Markup:
    """The section of one table."""
    table = TABLES[experiment.number]
    n, d = datasets.SOURCES[table.dataset].shape
    scaled = ", z-scores" if table.preprocessing == "zscore" else ""
    parts: list[Markup] = [
        tag("h2", f"Table {table.number}. {table.title} ", badge(experiment)),
        tag("p", f"{n} points, {d} features{scaled}, {table.k} clusters", class_="quiet"),
    ]
    if experiment.skipped:
        parts.append(tag("p", f"Skipped: {experiment.skipped}"))
    if experiment.outcomes:
        verdicts = [tag("li", v.text, class_="yes" if v.holds else "no") for v in experiment.verdicts]
        parts += [comparison(table, experiment), tag("ul", *verdicts, class_="verdicts")]
        parts += [tag("p", tag("strong", "About d. "), table.note, class_="note")] if table.note else []
        parts += [classes(table, experiment)] if any(o.ari is not None for o in experiment.outcomes.values()) else []
        parts += [figures(drawings(table, experiment, data_home))]
    return tag("section", *parts, id=f"table-{table.number}")


def comparison(table: Table, experiment: Experiment) -> Markup:
    """Our table beside the paper's."""
    groups = (("here", 4), ("paper", 4), ("here / paper", 2))
    above = (tag("th", name, colspan=span, scope="colgroup", class_="group") for name, span in groups)
    columns = ("worst J", "average J", "best J", "s / run")
    head = tag("tr", tag("td"), *above) + titles("method", *columns, *columns, "average", "time", style="number")
    labels = [f"here: {name}" for name in columns] + [f"paper: {name}" for name in columns]
    labels += ["ratio: average", "ratio: time"]
    rows = []
    for method, outcome in experiment.outcomes.items():
        ours, paper = outcome.row, asdict(table.rows[method])
        cells = [*printed(ours, table.style), *printed(paper, table.style, ".2f")]
        cells += [f"{ours['average'] / paper['average']:.3f}", f"{ours['seconds'] / paper['seconds']:.4f}"]
        rows.append(row(method, *map(number, cells, labels)))
    return scrolling(f"Table {table.number}", Markup(head), rows, class_="compared")


def classes(table: Table, experiment: Experiment) -> Markup:
    """Agreement of the best runs with the known classes of the points."""
    outcomes = experiment.outcomes.items()
    rows = [row(method, number(f"{outcome.ari:.3f}"), number(f"{outcome.nmi:.3f}")) for method, outcome in outcomes]
    table_of_scores = scrolling("Agreement with classes", titles("best run", "ARI", "NMI", style="number"), rows)
    return tag("div", table_of_scores, tag("p", CLASSES.format(table.title)), class_="beside")


def drawings(table: Table, experiment: Experiment, data_home: Folder) -> Iterator[tuple[str, Drawing]]:
    """The captions of the pictures of a table, and the functions that draw them."""
    values = {method: outcome.inertias for method, outcome in experiment.outcomes.items()}
    best_known = datasets.SOURCES[table.dataset].best_known[table.k]
    runs = max(map(len, values.values()))
    yield f"J of {runs} runs of each method", lambda ax: plotting.boxes(values, ax, best_known)
    without_tsc = {method: inertias for method, inertias in values.items() if method != "TSC"}
    if 0 < len(without_tsc) < len(values):
        yield "The same without TSC", lambda ax: plotting.boxes(without_tsc, ax, best_known)
    for method in ("QM-TS", "TSC"):
        if method in values:
            yield f"{method}: J in the course of the best run", draw_trace(experiment.outcomes[method])
    best = "QM-TS" if "QM-TS" in values else min(values, key=lambda method: min(values[method]))
    with contextlib.suppress(datasets.DataUnavailable):  # the data may be gone when the report is written
        X = datasets.load(table.dataset, data_home, table.preprocessing).points
        clustering = experiment.outcomes[best].clustering(X)
        caption = f"{best}: the clusters of the best run, in two principal components"
        yield caption, lambda ax: plotting.clusters(X, clustering, ax)


def draw_trace(outcome: Outcome) -> Drawing:
    # The trace does not depend on the points, so zeros will do.
    clustering = outcome.clustering(np.zeros((len(outcome.labels), 1)))
    return lambda ax: plotting.trace(clustering, ax)


def sources(results: Results) -> Markup:
    """Where the data come from."""
    used = {TABLES[number].dataset for number in results.tables}
    rows = []
    for name, source in datasets.SOURCES.items():
        if name in used:
            link = tag("a", source.url.removeprefix("https://"), href=source.url)
            rows.append(row(name, number("{} × {}".format(*source.shape)), source.terms, link))
    head = titles("name", "N × d", "terms", "origin")
    return tag("section", tag("h2", "Data"), scrolling("Data", head, rows, class_="sources"))


def remarks() -> Markup:
    return tag("section", tag("h2", "How to read this page"), tag("ul", *(tag("li", text) for text in REMARKS)))


ABOUT = (
    "K. S. Gyamfi, J. Brusey and A. Hunt: K-Means clustering using tabu search with quantized means, 2016. Its Tables "
    "I to VI give J, the intra-cluster sum of squares, of four methods; here they are beside ours."
)
STOPPED = "Interrupted. What is missing can be added with --resume."
AGREES = (
    "QM-TS and Paper are averages of J. A table agrees if QM-TS is on average not above the paper's, to the "
    "digits that it prints, and the other methods are on average close to the paper's: K-Means and K-Means++ within "
    "15 %, TSC within 20 %."
)
CLASSES = (
    "The classes of {} are known. This is how well the run with the lowest J agrees with them: adjusted Rand index "
    "(ARI) and normalised mutual information (NMI), 1 for the same partition. A lower J need not mean a better "
    "agreement."
)
REMARKS = (
    "K-Means begins at distinct points drawn at random, K-Means++ at points drawn in proportion to their squared "
    "distance from those before (one draw each, as in the original). Both end when no point changes cluster.",
    "TSC is the tabu search of Al-Sultan (1995) with 1000 iterations, 20 trial solutions in each, a tabu list of 15 "
    "and a threshold of 0.95. QM-TS begins at random points, makes up to 400 iterations, stops after 100 without "
    "improvement, and is refined by K-Means.",
    "All runs of a method are made at once, as a batch. The time of a run is that of the batch divided by the number "
    "of runs; the first has in it what a backend compiles or loads at its first use. The paper's times were measured "
    "in MATLAB on an Intel Core i5-2400.",
    "± is the standard error of an average. J has heavy tails: a few runs that end in a poor minimum move an average "
    "of 100 by several per cent, so that averages of one method differ from seed to seed.",
    "Box plots show the median, the quartiles and the runs within 1.5 times the distance of the quartiles from them; "
    "every run is a dot. The dashed line is the lowest J known.",
    "Every run is in results.csv; results.json also has the course and the clusters of the best run of each method.",
)
