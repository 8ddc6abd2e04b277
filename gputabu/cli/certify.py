"""`gputabu certify`: prove how far a clustering can be from the best one."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Annotated

import typer

import gputabu
from gputabu.cli import options
from gputabu.cli.app import Command, Debug, app, print_message
from gputabu.cli.predict import load
from gputabu.data.preprocessing import Preprocessing


@app.command(cls=Command)
def certify(
    ctx: typer.Context,
    model: Annotated[
        Path,
        typer.Argument(metavar="MODEL", help="A model.npz, or the folder that it is in.", show_default=False),
    ],
    data: options.Data,
    max_time: Annotated[float, typer.Option(metavar="SECONDS", help="Stop after so many seconds.")] = 60.0,
    tolerance: Annotated[float, typer.Option(metavar="SHARE", help="Stop at this gap.")] = 1e-5,
    parts: Annotated[
        int | None,
        typer.Option(
            metavar="NUMBER", help="Bound the points in so many parts. [default: by their number and the time]"
        ),
    ] = None,
    backend: options.Backend = "auto",
    as_json: options.Json = False,
    header: options.Header = None,
    delimiter: options.Delimiter = None,
    decimal: options.Decimal = None,
    thousands: options.Thousands = None,
    encoding: options.Encoding = None,
    array: options.Array = None,
    quiet: options.Quiet = False,
    debug: Debug = False,
) -> None:
    """Prove how far J of a clustering can be above the best possible.

    \b
    gputabu certify found data.csv
    gputabu certify found data.csv --max-time 600

    DATA is what the model was fitted to. Ctrl-C ends it with the best bound so far; the exit code is then 130.
    """
    fitted = load(model)
    preprocessing = Preprocessing.attached(fitted)
    style = options.text_style(data, header, delimiter, decimal, thousands, encoding, like=preprocessing.style())
    table = options.read_table(data, preprocessing.selection(None, None), style, array, preprocessing.missing)
    points = preprocessing.points(table)
    stored = {"centers": fitted.cluster_centers_, "inertia": fitted.inertia_}
    clustering = SimpleNamespace(labels=fitted.predict(points), **stored)
    found = gputabu.certify(
        points,
        clustering,
        max_time=max_time,
        tolerance=tolerance,
        parts="auto" if parts is None else parts,
        backend=backend,
        progress=not quiet,
    )
    typer.echo(json.dumps(found.plain()) if as_json else str(found))
    if found.stop.startswith("interrupted"):
        print_message(ctx, "interrupted; this is the best bound so far.")
        raise typer.Exit(130)
