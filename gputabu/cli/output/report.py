"""Reports about a fit and about a choice of K: one HTML page each, with pictures."""

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

#: Clusters and columns that the page lists; more of them are in the files beside it.
CLUSTERS, COLUMNS = 100, 12
#: More restarts than these are not drawn.
RESTARTS = 30
STOPPED = "Interrupted: this is the best found so far."
PICTURELESS = "The report has no pictures: Matplotlib is not installed (pip install 'gputabu[plot]')."


def fit_page(account: FitSummary) -> str:
    """The report about a fit."""
    title = _title(account.table.source, account.k)
    told = {name: fact for name, fact in account.facts().items() if name not in ("columns", "clusters")}
    d = account.points.shape[1]
    lead = f"Columns: {', '.join(account.table.names[:COLUMNS])}{', …' if d > COLUMNS else ''}."
    return document(
        title,
        tag("header", tag("h1", title), tag("p", lead), _warning(account.interrupted), facts(told | _made())),
        tag("section", tag("h2", "Clusters"), *_clusters(account)),
        tag("section", tag("h2", "Pictures"), _pictures(fit_drawings(account))),
        tag("section", tag("h2", "Parameters"), _parameters(account)),
        _again(account.command, account.repeatable),
    )


def selection_page(found: KSelection, source: str, command: str) -> str:
    """The report about a choice of K."""
    title = _title(source, found.n_clusters)
    lead = f"{found.n_clusters} clusters are recommended by {NAMES[found.criterion]}."
    names = {"n_clusters": "K", "inertia": "J", "gap_error": "± gap"} | NAMES
    cells = {names[name]: [f"{value:.7g}" for value in column] for name, column in found.table.items()}
    rows = []
    for i, k in enumerate(found.table["n_clusters"]):
        chosen = tag("strong", f"{k} ✓") if k == found.n_clusters else k
        rows.append(row(chosen, *(number(column[i]) for column in list(cells.values())[1:])))
    liked = {NAMES[name]: f"K = {k}" for name, k in found.recommended.items()}
    table = scrolling("Criteria", titles(*cells, style="number"), rows)
    return document(
        title,
        tag("header", tag("h1", title), tag("p", lead), _warning(found.interrupted), facts(liked | _made())),
        tag("section", tag("h2", "Every K"), table),
        tag("section", tag("h2", "Pictures"), _pictures(selection_drawings(found))),
        _again(command, not found.interrupted),
    )


def _title(source: str, k: int) -> str:
    return f"{Path(source).name}: {k} {'clusters' if k > 1 else 'cluster'}"


def _made() -> dict[str, object]:
    return {"gputabu": gputabu.__version__, "machine": machine(), "written": time.strftime("%Y-%m-%d %H:%M")}


def _warning(interrupted: bool) -> Markup | str:
    return tag("p", STOPPED, class_="warning") if interrupted else ""


def _clusters(account: FitSummary) -> Iterator[Markup]:
    """The table of clusters, and what it leaves out."""
    order = np.arange(account.k) if account.k <= CLUSTERS else np.argsort(-account.sizes, kind="stable")[:CLUSTERS]
    names = account.table.names[:COLUMNS]
    rows = []
    for i in order:
        share = f"{account.sizes[i] / account.sizes.sum():.1%}"
        centre = (number(f"{value:.5g}") for value in account.centers[i, : len(names)])
        rows.append(row(i, number(f"{account.sizes[i]:,}"), number(share), *centre))
    yield scrolling("Clusters", titles("cluster", "rows", "share", *names, style="number"), rows)
    units = "Centres are in the units of the table." if account.recipe.scale else ""
    left = [f"{account.k - CLUSTERS} smaller clusters"] if account.k > CLUSTERS else []
    left += [f"{len(account.table.names) - COLUMNS} columns"] if len(account.table.names) > COLUMNS else []
    more = f"{' and '.join(left)} more are in centres.csv." if left else ""
    if units or more:
        yield tag("p", f"{units} {more}".strip(), class_="quiet")


def _parameters(account: FitSummary) -> Markup:
    rows = [row(name, _shown(value)) for name, value in account.parameters()]
    return scrolling("Parameters", titles("parameter", "value"), rows)


def _shown(value: object) -> str:
    return f"{value.shape[0]} centres that were given" if isinstance(value, np.ndarray) else str(value)


def _again(command: str, repeatable: bool) -> Markup:
    same = "gives the same clusters, bit for bit" if repeatable else "searches again, and may end elsewhere"
    said = f"With gputabu {gputabu.__version__} and the same data, this {same}:"
    return tag("section", tag("h2", "To do it again"), tag("p", said), tag("pre", tag("code", command)))


def _pictures(drawings: Iterable[tuple[str, Drawing]]) -> Markup:
    if find_spec("matplotlib") is None:
        warnings.warn(PICTURELESS, UserWarning, stacklevel=3)
        return tag("p", PICTURELESS)
    return figures(drawings)


def fit_drawings(account: FitSummary) -> Iterator[tuple[str, Drawing]]:
    """Captions, and what draws the pictures."""
    model, d = account.model, account.points.shape[1]
    plane = ", in two principal components" if d > 2 else ""
    yield f"The clusters{plane}", lambda ax: _clusters_drawn(account, ax)
    behind = [i for i in range(len(model.inertias_)) if model.inertias_[i] != model.inertia_][:RESTARTS]
    yield "J in the course of the search", lambda ax: plotting.trace(model, ax, behind)
    yield "Rows in every cluster", lambda ax: plotting.sizes(model, ax)
    if account.silhouettes is not None:
        many = f"{len(account.silhouettes[0]):,} rows"
        caption = f"Silhouettes of {many}: 1 well inside its cluster, 0 between two, below 0 nearer to another"
        yield caption, lambda ax: plotting.silhouette(account.points, model, ax, sample=SAMPLE)


def selection_drawings(found: KSelection) -> Iterator[tuple[str, Drawing]]:
    yield "The criteria over K", found.plot
    if len(found.asked) == 1:
        names = [name for name in NAMES if name in found.table]
        yield "All criteria, each from its worst to its best", lambda ax: plotting.selection(found, ax, names)
    yield "J over K", lambda ax: draw_inertia(found, ax)
    yield f"Rows in each of {found.n_clusters} clusters", lambda ax: plotting.sizes(found.best, ax)


def _clusters_drawn(account: FitSummary, ax: Axes) -> None:
    plotting.clusters(account.points, account.model, ax)
    if account.points.shape[1] <= 2:  # axes are columns, whose names may have what looks like a formula
        names = [printable(name).replace("$", r"\$") for name in account.table.names]
        scaled = f" ({account.recipe.scale})" if account.recipe.scale else ""
        ax.set_xlabel(names[0] + scaled)
        ax.set_ylabel(names[1] + scaled if len(names) > 1 else "")


def draw_inertia(found: KSelection, ax: Axes) -> None:
    ks = found.table["n_clusters"]
    ax.plot(ks, found.table["inertia"], "o-", ms=4, color=COLOURS[0])
    ax.axvline(found.n_clusters, color="black", ls="--", lw=1)
    ax.set(xlabel="number of clusters K", ylabel="J", ylim=(0, None))
    ax.locator_params(axis="x", integer=True)
