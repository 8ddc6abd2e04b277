"""Options shared by several commands."""

from __future__ import annotations

import codecs
from pathlib import Path
from typing import Annotated

import typer

from gputabu.core.validation import check_choice
from gputabu.data.delimited import GROUPS, Style
from gputabu.data.files import is_text, read
from gputabu.data.missing import WAYS
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
    typer.Option(
        "--delimiter",
        "--separator",
        metavar="CHARACTER",
        help="What is between the fields of a text; tab and space are words for two. [default: found out]",
        show_default=False,
    ),
]
Decimal = Annotated[
    str | None, typer.Option(metavar="CHARACTER", help="The decimal sign of a text. [default: .]", show_default=False)
]
Thousands = Annotated[
    str | None,
    typer.Option(
        metavar="CHARACTER",
        help="What is between groups of three digits in a text; space is a word for one. [default: nothing]",
        show_default=False,
    ),
]
Encoding = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="Of a text, such as latin-1 or cp1252. [default: utf-8]", show_default=False),
]
Missing = Annotated[
    str,
    typer.Option(
        metavar="NAME", help="Where values are missing: error, drop (leave the row out), mean or median of the column."
    ),
]
Array = Annotated[str | None, typer.Option(metavar="NAME", help="Which of several arrays of a .npz file.")]
Backend = Annotated[str, typer.Option(metavar="NAME", help="What computes: auto, cuda, numba, numpy.")]
Device = Annotated[int | None, typer.Option(metavar="NUMBER", help="Which GPU.", show_default=False)]
Seed = Annotated[int, typer.Option(metavar="NUMBER", help="Of the random numbers; the same seed, the same result.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, and nothing else, on standard output.")]
Out = Annotated[Path | None, typer.Option(metavar="FOLDER", help="Where to leave files. [default: nothing is written]")]
Force = Annotated[bool, typer.Option("--force", help="Replace what an earlier run left in --out.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Show no progress on standard error.")]
DataHome = Annotated[Path | None, typer.Option(help="Folder to look for data sets in first, and to download into.")]

WORDS = {"tab": "\t", "space": "", "comma": ",", "semicolon": ";"}
MARKS = (",", ".")


def read_table(data: str, selection: Selection, style: Style, array: str | None, missing: str) -> Table:
    """Read the table that these options describe."""
    return read(data, selection, style, array, check_choice("--missing", missing, WAYS))


def check_goes_with_out(out: Path | None, **given: object) -> None:
    """Raise if options are given that say how files are written, where none are."""
    for name, value in given.items():
        if value and out is None:
            raise ValueError(f"--{name.replace('_', '-')} goes with --out.")


def text_style(
    data: str,
    header: bool | None,
    delimiter: str | None,
    decimal: str | None = None,
    thousands: str | None = None,
    encoding: str | None = None,
    like: Style = Style(),  # noqa: B008  # it cannot be changed
) -> Style:
    """The format of a text; what is not said is as in `like`. Raise if something is said of data that are no text."""
    said = {"header": header, "delimiter": delimiter, "decimal": decimal, "thousands": thousands, "encoding": encoding}
    for name, value in said.items():
        if value is not None and not is_text(data):
            raise ValueError(f"--{name} goes with text, and {data} is none.")
    character = None if delimiter is None else WORDS.get(delimiter, "" if delimiter == " " else delimiter)
    if character is not None and (len(character) > 1 or character in ('"', "\n", "\r")):
        raise ValueError(f"--delimiter={delimiter} must be one character, or one of {', '.join(WORDS)}.")
    point = like.decimal if decimal is None else check_choice("--decimal", decimal, MARKS)
    mark = like.thousands if thousands is None else " " if thousands == "space" else thousands
    if mark:
        check_choice("--thousands", mark, GROUPS)
    if mark == point:
        raise ValueError(f"--decimal={point} and --thousands={mark} must differ.")
    if character and character in (point, mark):
        raise ValueError(f"--delimiter={delimiter} must differ from --decimal={point} and --thousands={mark}.")
    return Style(character, header, point, mark, like.encoding if encoding is None else known(encoding))


def known(encoding: str) -> str:
    """Return the name of an encoding if Python knows it."""
    try:
        if codecs.lookup(encoding)._is_text_encoding:
            return encoding
    except LookupError:
        pass
    raise ValueError(f"--encoding={encoding} must be one that Python knows, such as utf-8, latin-1, cp1252 or utf-16.")
