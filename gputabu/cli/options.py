"""Options shared by several commands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from gputabu.backend import NAMES as BACKENDS
from gputabu.data.delimited import Style
from gputabu.data.files import read
from gputabu.data.tables import Selection, Table

Data = Annotated[
    str,
    typer.Argument(
        metavar="DATA",
        help="Rows of numbers: text (CSV, TSV, with spaces; .gz, .bz2, .xz), .npy, .npz, .parquet, .arrow, .feather; "
        "- is text from standard input.",
        show_default=False,
    ),
]
Columns = Annotated[
    str | None,
    typer.Option(
        metavar="LIST",
        help="Columns to cluster: names, or numbers from 1, with commas; 2-5 is a range. [default: all but --id]",
    ),
]
Id = Annotated[
    str | None,
    typer.Option("--id", metavar="COLUMN", help="Column that names the rows: beside the labels, not clustered."),
]
Scale = Annotated[
    str | None,
    typer.Option(
        metavar="NAME",
        help="Scale every column: zscore (mean 0, deviation 1), minmax (0 to 1) or robust (median 0, quartiles 1 "
        "apart). [default: as they are]",
    ),
]
Header = Annotated[
    bool | None,
    typer.Option("--header/--no-header", help="Whether the first line of a text has names. [default: found out]"),
]
Delimiter = Annotated[
    str | None,
    typer.Option(metavar="CHARACTER", help="What is between the fields of a text; tab and space are words for two."),
]
Array = Annotated[str | None, typer.Option(metavar="NAME", help="Which of several arrays of a .npz file.")]
Backend = Annotated[str, typer.Option(metavar="NAME", help=f"What computes: {', '.join(BACKENDS)}.")]
Device = Annotated[int | None, typer.Option(metavar="NUMBER", help="Which GPU.", show_default=False)]
Seed = Annotated[int, typer.Option(metavar="NUMBER", help="Of the random numbers; the same seed, the same result.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, and nothing else, on standard output.")]
Out = Annotated[Path | None, typer.Option(metavar="FOLDER", help="Where to leave files. [default: nothing is written]")]
Force = Annotated[bool, typer.Option("--force", help="Replace what an earlier run left in --out.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress on standard error.")]
DataHome = Annotated[Path | None, typer.Option(help="Folder to look for data sets in first, and to download into.")]

WORDS = {"tab": "\t", "space": "", "comma": ",", "semicolon": ";"}


def read_table(data: str, selection: Selection, header: bool | None, delimiter: str | None, array: str | None) -> Table:
    """Read the table that these options describe."""
    character = None if delimiter is None else WORDS.get(delimiter, "" if delimiter == " " else delimiter)
    if character is not None and (len(character) > 1 or character in ('"', "\n", "\r")):
        raise ValueError(f"--delimiter={delimiter} must be one character, or one of {', '.join(WORDS)}.")
    style = None if character is None and header is None else Style(character, header)
    return read(data, selection, style, array)
