"""`gputabu predict`: label the rows of a file with a model."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

import gputabu
from gputabu.cli import options
from gputabu.cli.app import Command, Debug, app
from gputabu.cli.output.output_folder import MODEL, save_labels, write_labels
from gputabu.data.preprocessing import Preprocessing


@app.command(cls=Command)
def predict(
    model: Annotated[
        Path,
        typer.Argument(metavar="MODEL", help="A model.npz, or the folder that it is in.", show_default=False),
    ],
    data: options.Data,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write labels here; .npy writes an array. [default: to standard output]"),
    ] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace --out if it exists.")] = False,
    columns: Annotated[
        str | None,
        typer.Option(metavar="LIST", help="Columns in place of the model's, in its order; as for fit."),
    ] = None,
    id: options.Id = None,
    backend: options.Backend = "auto",
    device: options.Device = None,
    header: options.Header = None,
    delimiter: options.Delimiter = None,
    decimal: options.Decimal = None,
    thousands: options.Thousands = None,
    encoding: options.Encoding = None,
    array: options.Array = None,
    debug: Debug = False,
) -> None:
    """Label the rows of a file by a model that fit has written.

    \b
    gputabu predict found new.csv
    gputabu predict found/model.npz new.csv --out labels.csv
    cat new.csv | gputabu predict found - | head

    Prints CSV: the id or, from 0 on, the number of each row, and its cluster, in the order of the file. Columns are
    found by the names that they had in fit, in any order; others are ignored. They are read, filled in and scaled as
    they were there.
    """
    options.check_goes_with_out(out, force=force)
    if out is not None and out.exists() and not force:
        raise ValueError(f"--out={out} exists: --force replaces it, or choose another.")
    fitted = load(model)
    preprocessing = Preprocessing.attached(fitted)
    style = options.text_style(data, header, delimiter, decimal, thousands, encoding, like=preprocessing.style())
    table = options.read_table(data, preprocessing.selection(columns, id), style, array, preprocessing.missing)
    labels = fitted.set_params(backend=backend, device=device).predict(preprocessing.points(table))
    if out is None:
        write_labels(sys.stdout, table, labels)
    else:
        save_labels(out, table, labels)


def load(path: Path) -> Any:
    """The model in a file or in the folder of a fit."""
    path = path / MODEL if path.is_dir() else path
    try:
        path.stat()  # before what reads it is imported
        return gputabu.load(path)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}.") from None
