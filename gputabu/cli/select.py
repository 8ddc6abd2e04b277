"""`gputabu select-k`: how many clusters a file has."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import gputabu
from gputabu.cli import options
from gputabu.cli.app import Command, Debug, app, command, print_message
from gputabu.cli.output.output_folder import LABELS, Folder, csv_text
from gputabu.cli.output.report import selection_page
from gputabu.core.atomic_files import replacing
from gputabu.core.interrupts import Interrupts
from gputabu.core.validation import check_choice
from gputabu.data.preprocessing import Preprocessing
from gputabu.data.tables import Selection, Table
from gputabu.selection.criteria import LARGEST_IS_BEST
from gputabu.selection.select_k import KSelection

PICTURES = (".png", ".pdf", ".svg")
FILES = ("criteria.csv", LABELS["csv"], "centres.csv", "centres-scaled.csv", "report.html", "result.json")


@app.command("select-k", cls=Command)
def select_k(
    ctx: typer.Context,
    data: options.Data,
    ks: Annotated[
        str, typer.Option(metavar="LIST", help="Numbers of clusters: 2:12 (both included), 2:20:2 or 2,4,8.")
    ] = "2:12",
    criterion: Annotated[
        str,
        typer.Option(
            metavar="LIST", help=f"One or more of {', '.join(LARGEST_IS_BEST)}, with commas; the first decides."
        ),
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
    array: options.Array = None,
    quiet: options.Quiet = False,
    debug: Debug = False,
) -> None:
    """Choose the number of clusters in a file.

    \b
    gputabu select-k data.csv --ks 2:12
    gputabu select-k data.csv --ks 2:40:2 --criterion silhouette,bic --out found

    Prints the criteria for every K, with * at the K recommended. With --out it also writes criteria.csv, the labels
    and centres of that K, result.json and report.html into that folder. Ctrl-C ends it with the K that are finished;
    the exit code is then 130.
    """
    if plot is not None:
        check_choice("--plot ending", plot.suffix, PICTURES)
    folder = None if out is None else Folder(out, FILES, force)
    criteria = [name.strip().replace("-", "_") for name in criterion.split(",")]
    common: dict[str, Any] = {"method": method, "restarts": restarts, "seed": seed, "progress": not quiet}
    k_values = parse_ks(ks)
    table = options.read_table(data, Selection(columns, id), header, delimiter, array)
    preprocessing = Preprocessing.of(table, scale)
    selection = gputabu.select_k(
        preprocessing.points(table), k_values, criteria, backend=backend, device=device, **common
    )
    with Interrupts() as interrupts:  # as for fit
        message = "" if folder is None else write_files(selection, folder, table, preprocessing, command(ctx))
    typer.echo(
        json.dumps(plain(selection), indent=2) if as_json else "\n\n".join(filter(None, [repr(selection), message]))
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


def write_files(selection: KSelection, folder: Folder, table: Table, preprocessing: Preprocessing, command: str) -> str:
    """Write all files and return a sentence that lists them."""
    folder.text("criteria.csv", csv_text(list(selection.table), zip(*selection.table.values(), strict=True)))
    folder.labels(table, selection.labels, "csv")
    folder.centers(preprocessing, selection.best.centers, np.bincount(selection.labels, minlength=selection.n_clusters))
    about = {"gputabu": gputabu.__version__, "command": command, "file": table.source}
    folder.json("result.json", about | plain(selection))
    folder.text("report.html", selection_page(selection, table.source, command))
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
    return result | {"interrupted": selection.interrupted, "backend": selection.best.backend, "table": rows}
