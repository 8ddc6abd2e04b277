"""Tables as text: CSV and similar formats, with detection of the delimiter and of a line of names."""

from __future__ import annotations

import csv
import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from typing import TextIO

import numpy as np

from gputabu.data.tables import Selection, Table, brief, numbered

#: Possible delimiters, the likeliest first; without any of them fields are separated by white space.
DELIMITERS = ("\t", ";", ",")
#: Texts that stand for a missing value.
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?", "-"})
#: Rows converted at once.
BLOCK = 1 << 14

Row = tuple[int, list[str]]  # the number of its line, and its fields


@dataclass(frozen=True, slots=True)
class Style:
    """The format of a text; None is detected.

    Attributes
    ----------
    delimiter : str or None
        A character, or "" for white space.
    header : bool or None
        Whether the first line has the names of the columns.
    """

    delimiter: str | None = None
    header: bool | None = None


def parse(lines: TextIO, source: str, selection: Selection, style: Style) -> Table:
    """Parse a table; blank lines, and lines that begin with #, are skipped."""
    rows = _rows(lines, source, style.delimiter)
    first_rows = list(islice(rows, 2))
    if not first_rows:
        raise ValueError(f"{source} is empty; it must hold a table of numbers.")
    header = _has_names(first_rows) if style.header is None else style.header
    fields = [field.strip() for field in first_rows[0][1]]
    names = tuple(fields) if header else numbered(len(fields))
    chosen, label = selection.of(names, source)
    body = _check_width(chain(first_rows[header:], rows), len(fields), source)
    values, ids = _values(body, chosen, label, lambda line, i: _place(source, line, names[i] or str(i + 1)))
    if not len(values):
        raise ValueError(f"{source} has a line of names and no rows.")
    titles = tuple(names[i] or str(i + 1) for i in chosen)
    return Table(source, titles, header, values, None if label is None else names[label] or "id", ids)


def _rows(lines: TextIO, source: str, delimiter: str | None) -> Iterator[Row]:
    """All rows that are not blank or comments."""
    skipped, first = 0, ""
    for line in lines:
        if line.strip() and not line.startswith("#"):
            first = line
            break
        skipped += 1
    if delimiter is None:
        outside = "".join(first.split('"')[::2])  # without quoted fields
        delimiter = next((character for character in DELIMITERS if character in outside), "")
    yield from _split(chain([first], lines) if first else (), source, delimiter, skipped)


def _split(lines: Iterable[str], source: str, delimiter: str, skipped: int) -> Iterator[Row]:
    if not delimiter:
        pairs: Iterable[Row] = ((skipped + i, line.split()) for i, line in enumerate(lines, 1))
        yield from ((line, row) for line, row in pairs if row and not row[0].startswith("#"))
        return
    reader = csv.reader(lines, delimiter=delimiter, skipinitialspace=True, strict=True)
    try:
        for row in reader:
            if row and not row[0].startswith("#") and (len(row) > 1 or row[0].strip()):
                yield skipped + reader.line_num, row
    except csv.Error as error:
        raise ValueError(f"{source}, line {skipped + reader.line_num}: {error}.") from None


def _has_names(first_rows: list[Row]) -> bool:
    """Whether the first row has names: it has no numbers, or text where the next row has a number."""
    is_number, *rest = ([_number(field) is not None for field in row] for _, row in first_rows)
    is_text = [
        not number and field.strip().lower() not in MISSING
        for number, field in zip(is_number, first_rows[0][1], strict=True)
    ]
    if not any(is_number):
        return any(is_text)
    return any(word and number for word, number in zip(is_text, chain(*rest), strict=False))


def _check_width(rows: Iterable[Row], width: int, source: str) -> Iterator[Row]:
    """The rows; raise if one has another number of fields."""
    for line, row in rows:
        if len(row) != width:
            raise ValueError(f"{source}, line {line}: the row has {len(row)} fields, and the first has {width}.")
        yield line, row


def _values(
    rows: Iterator[Row], chosen: list[int], label: int | None, place: Callable[[int, int], str]
) -> tuple[np.ndarray, list[str] | None]:
    blocks, ids = [np.empty((0, len(chosen)))], []
    while block := list(islice(rows, BLOCK)):
        fields = [row[i] for _, row in block for i in chosen]
        try:
            if "_" in "".join(fields):  # Python, and nothing else, reads 1_000 as a number
                raise ValueError
            values = np.fromiter(map(float, fields), np.float64, len(fields)).reshape(-1, len(chosen))
        except ValueError:
            values = np.full((len(block), len(chosen)), math.nan)
        if not np.isfinite(values).all():
            _raise_invalid(block, chosen, place)
        blocks.append(values)
        if label is not None:
            ids += [row[label] for _, row in block]
    return np.concatenate(blocks), None if label is None else ids


def _raise_invalid(block: list[Row], chosen: list[int], place: Callable[[int, int], str]) -> None:
    """Raise for the first field that is not a finite number."""
    for line, row in block:
        for i in chosen:
            number = _number(row[i])
            if number is not None and math.isfinite(number):
                continue
            where = place(line, i)
            if row[i].strip().lower() in MISSING:
                raise ValueError(f"{where}: the value is missing; every row must have a number there.")
            if number is not None:
                raise ValueError(f"{where}: {row[i][:40]!r} is beyond the numbers that can be computed with.")
            raise ValueError(
                f"{where}: {row[i][:40]!r} is not a number; --columns chooses the columns to cluster, "
                "and --id one to keep beside the labels."
            )


def _place(source: str, line: int, name: str) -> str:
    return f"{source}, line {line}, column {brief(name)!r}"


def _number(field: str) -> float | None:
    try:
        return None if "_" in field else float(field)
    except ValueError:
        return None
