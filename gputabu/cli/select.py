"""`gputabu select-k`: how many clusters a file has."""

from __future__ import annotations

import json
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

import gputabu
from gputabu.cli import options
from gputabu.cli.app import Command, Debug, app, command, print_message
from gputabu.cli.output.output_folder import LABELS, MODEL, Folder, csv_text
from gputabu.core.atomic_files import replacing
from gputabu.core.interrupts import Interrupts
from gputabu.core.validation import check_choice
from gputabu.data.oddities import oddities
from gputabu.data.preprocessing import Preprocessing
from gputabu.data.tables import Selection

if TYPE_CHECKING:
    from gputabu.cli.output.fit_summary import FitSummary
    from gputabu.selection.select_k import KSelection

PICTURES = (".png", ".pdf", ".svg")
FILES = ("criteria.csv", LABELS["csv"], "centres.csv", "centres-scaled.csv", MODEL, "report.html", "result.json")
#: All criteria.
CRITERIA = ("bic", "aic", "silhouette", "calinski_harabasz", "davies_bouldin", "gap")


@app.command("select-k", cls=Command)
def select_k(
    ctx: typer.Context,
    data: options.Data,
    ks: Annotated[
        str, typer.Option(metavar="LIST", help="Numbers of clusters: 2:12 (both included), 2:20:2 or 2,4,8.")
    ] = "2:12",
    criterion: Annotated[
        str,
        typer.Option(metavar="LIST", help=f"One or more of {', '.join(CRITERIA)}, with commas; the first decides."),
    ] = "bic",
    columns: options.Columns = None,
    id: options.Id = None,
    scale: options.Scale = None,
    out: options.Out = None,
    force: options.Force = False,
    as_json: options.Json = False,
    plot: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Draw the criteria into this file (.png, .pdf, .svg).")
    ] = None,
    method: Annotated[str, typer.Option(metavar="NAME", help="k-means, or tabu for tabu search.")] = "k-means",
    restarts: Annotated[int, typer.Option(metavar="NUMBER", help="Starts per number of clusters.")] = 1,
    seed: options.Seed = 0,
    backend: options.Backend = "auto",
    device: options.Device = None,
    header: options.Header = None,
    delimiter: options.Delimiter = None,
    decimal: options.Decimal = None,
    thousands: options.Thousands = None,
    encoding: options.Encoding = None,
    missing: options.Missing = "error",
    array: options.Array = None,
    quiet: options.Quiet = False,
    debug: Debug = False,
) -> None:
    """Choose the number of clusters in a file.

    \b
    gputabu select-k data.csv --ks 2:12
    gputabu select-k data.csv --ks 2:40:2 --criterion silhouette,bic --out found

    Prints the criteria for every K, with * at the K recommended. With --out it also writes criteria.csv, the labels,
    centres and model of that K (for predict), result.json and report.html into that folder. Ctrl-C ends it with the K
    that are finished; the exit code is then 130.
    """
    if plot is not None:
        check_choice("--plot ending", plot.suffix, PICTURES)
    options.check_goes_with_out(out, force=force)
    folder = None if out is None else Folder(out, FILES, force)
    criteria = [name.strip().replace("-", "_") for name in criterion.split(",")]
    common: dict[str, Any] = {"method": method, "restarts": restarts, "seed": seed, "progress": not quiet}
    k_values = parse_ks(ks)
    for name in criteria:
        check_choice("--criterion", name, CRITERIA)
    style = options.text_style(data, header, delimiter, decimal, thousands, encoding)
    table = options.read_table(data, Selection(columns, id), style, array, missing)
    preprocessing = Preprocessing.of(table, scale, way=missing, style=style)
    points = preprocessing.points(table)
    for said in oddities(table, points, min(k_values), scaled=scale is not None):
        warnings.warn(said, UserWarning, stacklevel=1)
    start = time.perf_counter()
    selection = gputabu.select_k(points, k_values, criteria, backend=backend, device=device, **common)
    seconds = time.perf_counter() - start
    with Interrupts() as interrupts:  # as for fit
        message = ""
        if folder is not None:
            from gputabu.cli.output.fit_summary import FitSummary

            model = gputabu.KMeans(selection.n_clusters, init=selection.best.centers, backend=backend, device=device)
            summary = FitSummary(table, preprocessing, points, model.fit(points), seconds, command(ctx))
            message = write_files(selection, summary, folder)
    typer.echo(
        json.dumps(plain(selection), indent=2)
        if as_json
        else "\n\n".join(filter(None, [repr(selection), *selection.remarks, message]))
    )
    if plot is not None:
        with replacing(plot) as temporary:
            selection.plot().figure.savefig(temporary)
    if selection.interrupted:
        print_message(ctx, "interrupted; these K were finished.")
    if selection.interrupted or interrupts.asked:
        raise typer.Exit(130)


def parse_ks(text: str) -> list[int]:
    """The numbers in --ks: first:last, first:last:step, or a list with commas."""
    try:
        values = [int(part) for part in text.replace(":", ",").split(",")]
        if ":" not in text:
            return values
        first, last, step = [*values, 1][:3]
        if text.count(":") > 2 or "," in text or step < 1:
            raise ValueError
    except ValueError:
        raise ValueError(f"--ks={text} must be like 2:12, 2:20:2 or 2,4,8.") from None
    if last < first:
        raise ValueError(f"--ks={text} must go up.")
    return list(range(first, last + 1, step))


def write_files(selection: KSelection, summary: FitSummary, folder: Folder) -> str:
    """Write all files and return a sentence that lists them."""
    from gputabu.cli.output.report import selection_page

    folder.model(summary.model, summary.preprocessing)
    folder.text("criteria.csv", csv_text(list(selection.table), zip(*selection.table.values(), strict=True)))
    folder.labels(summary.table, selection.labels, "csv")
    folder.centers(summary.preprocessing, selection.best.centers, summary.sizes)
    about = {"gputabu": gputabu.__version__, "command": summary.command, "file": summary.table.source}
    folder.json("result.json", about | plain(selection))
    folder.text("report.html", selection_page(selection, summary))
    return folder.listing()


def plain(selection: KSelection) -> dict[str, Any]:
    """The result as JSON; NaN becomes null."""
    columns = {
        name: [None if np.isnan(value) else value for value in column.tolist()]
        for name, column in selection.table.items()
    }
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    result = {
        "n_clusters": selection.n_clusters,
        "criterion": selection.criterion,
        "recommended": selection.recommended,
    }
    result["remarks"] = list(selection.remarks)
    return result | {"interrupted": selection.interrupted, "backend": selection.best.backend, "table": rows}
