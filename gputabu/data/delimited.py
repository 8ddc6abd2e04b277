"""Tables as text: CSV and similar formats, with detection of the delimiter and of a line of names."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, islice
from typing import TextIO

import numpy as np

from gputabu.data.tables import Selection, Table, brief, listed, numbered

#: Possible delimiters, the likeliest first; without any of them fields are separated by white space.
DELIMITERS = ("\t", ";", ",", "|")
#: Texts that stand for a missing value.
MISSING = frozenset({"", "na", "n/a", "nan", "null", "none", "?", "-"})
#: What can be between groups of three digits.
GROUPS = (",", ".", "'", "_", " ", "\N{NO-BREAK SPACE}", "\N{NARROW NO-BREAK SPACE}", "\N{RIGHT SINGLE QUOTATION MARK}")
#: Rows converted at once.
BLOCK = 1 << 14


class NotANumber(ValueError):
    """A field of a column that is to be clustered is no number."""


Row = tuple[int, list[str]]  # the number of its line, and its fields


@dataclass(frozen=True)
class Style:
    """The format of a text; None is detected.

    Attributes
    ----------
    delimiter : str or None
        A character, or "" for white space.
    header : bool or None
        Whether the first line has the names of the columns.
    decimal : str
        The decimal sign.
    thousands : str
        What is between groups of three digits; "" for nothing.
    encoding : str or None
        None is UTF-8.
    """

    delimiter: str | None = None
    header: bool | None = None
    decimal: str = "."
    thousands: str = ""
    encoding: str | None = None

    @property
    def plain(self) -> bool:
        """Whether numbers are as Python writes them."""
        return self.decimal == "." and not self.thousands

    @cached_property
    def grouped(self) -> re.Pattern[str]:
        """Numbers with groups of three digits."""
        mark, decimal = re.escape(self.thousands), re.escape(self.decimal)
        return re.compile(rf"\s*[+-]?\d{{1,3}}(?:{mark}\d{{3}})+(?:{decimal}\d*)?(?:[eE][+-]?\d+)?\s*")

    def number(self, field: str) -> float:
        """The number that a field is; raises ValueError if it is none."""
        if self.thousands and self.thousands in field.strip():
            if not self.grouped.fullmatch(field):
                raise ValueError
            field = field.replace(self.thousands, "")
        if self.decimal != ".":
            if "." in field:
                raise ValueError
            field = field.replace(self.decimal, ".")
        if "_" in field:  # Python, and nothing else, reads 1_000 as a number
            raise ValueError
        return float(field)

    def is_number(self, field: str) -> bool:
        try:
            self.number(field)
        except ValueError:
            return False
        return True


@dataclass(frozen=True, slots=True)
class Layout:
    """Where a text has what."""

    source: str
    delimiter: str
    header: bool
    names: tuple[str, ...]  # of all columns; their numbers if they have none
    chosen: list[int]
    label: int | None  # the column that names the rows
    begin: int  # lines before the first row

    def place(self, line: int, i: int) -> str:
        return f"{self.source}, line {line}, column {brief(self.titles[i])!r}"

    @property
    def titles(self) -> tuple[str, ...]:
        return tuple(name or str(i + 1) for i, name in enumerate(self.names))

    def table(self, values: np.ndarray, ids: list[str] | None, first_missing: str | None) -> Table:
        if not len(values):
            raise ValueError(f"{self.source} has a line of names and no rows.")
        titles = tuple(self.titles[i] for i in self.chosen)
        label = None if self.label is None else self.names[self.label] or "id"
        return Table(self.source, titles, self.header, values, label, ids, first_missing)


def parse(lines: TextIO, source: str, selection: Selection, style: Style) -> Table:
    """Parse a table; blank lines, and lines that begin with #, are skipped. What is missing is NaN."""
    layout, body = begin(lines, source, selection, style)
    values, ids, missing = _values(body, layout, style)
    return layout.table(values, ids, missing)


def begin(lines: TextIO, source: str, selection: Selection, style: Style) -> tuple[Layout, Iterator[Row]]:
    """The layout of a text, and its rows without that of the names."""
    delimiter, skipped, text = _delimiter(lines, style)
    rows = _split(text, source, delimiter, skipped)
    first_rows = list(islice(rows, 2))
    if not first_rows:
        raise ValueError(f"{source} is empty; it must hold a table of numbers.")
    header = _has_names(first_rows, style) if style.header is None else style.header
    fields = [field.strip() for field in first_rows[0][1]]
    names = tuple(fields) if header else numbered(len(fields))
    chosen, label = selection.of(names, source)
    last_line = first_rows[0][0] if header else skipped
    layout = Layout(source, delimiter, header, names, chosen, label, last_line)
    return layout, _check_width(chain(first_rows[header:], rows), len(fields), source)


def _delimiter(lines: TextIO, style: Style) -> tuple[str, int, Iterable[str]]:
    """What is between fields, the number of lines skipped before the first row, and the lines from there on."""
    skipped, first = 0, ""
    for line in lines:
        if line.strip() and not line.startswith("#"):
            first = line
            break
        skipped += 1
    delimiter = style.delimiter
    if delimiter is None:
        outside = "".join(first.split('"')[::2])  # without quoted fields
        marks = (style.decimal, style.thousands)
        possible = (character for character in DELIMITERS if character in outside and character not in marks)
        delimiter = next(possible, "")
    return delimiter, skipped, chain([first], lines) if first else ()


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


def _has_names(first_rows: list[Row], style: Style) -> bool:
    """Whether the first row has names: it has no numbers, or text where the next row has a number."""
    is_number, *rest = ([style.is_number(field) for field in row] for _, row in first_rows)
    is_text = [not number and not is_missing(field) for number, field in zip(is_number, first_rows[0][1], strict=True)]
    if not any(is_number):
        return any(is_text)
    return any(word and number for word, number in zip(is_text, chain(*rest), strict=False))


def is_missing(field: str) -> bool:
    return field.strip().lower() in MISSING


def _check_width(rows: Iterable[Row], width: int, source: str) -> Iterator[Row]:
    """The rows; raise if one has another number of fields."""
    for line, row in rows:
        if len(row) != width:
            raise ValueError(f"{source}, line {line}: the row has {len(row)} fields, and the first has {width}.")
        yield line, row


def _values(rows: Iterator[Row], layout: Layout, style: Style) -> tuple[np.ndarray, list[str] | None, str | None]:
    """The numbers, NaN where they are missing; the ids; and the place of the first that is missing."""
    chosen, label = layout.chosen, layout.label
    blocks, ids, missing = [np.empty((0, len(chosen)))], list[str](), None
    convert: Callable[[str], float] = float if style.plain else style.number
    while block := list(islice(rows, BLOCK)):
        fields = [row[i] for _, row in block for i in chosen]
        try:
            if "_" in "".join(fields):
                raise ValueError
            values = np.fromiter(map(convert, fields), np.float64, len(fields)).reshape(-1, len(chosen))
        except ValueError:
            values = np.full((len(block), len(chosen)), math.nan)
        if not np.isfinite(values).all():
            values, first = _with_missing(block, layout, style)
            missing = missing or first
        blocks.append(values)
        if label is not None:
            ids += [row[label] for _, row in block]
    return np.concatenate(blocks), None if label is None else ids, missing


def _with_missing(block: list[Row], layout: Layout, style: Style) -> tuple[np.ndarray, str | None]:
    """The numbers of rows some of which lack some, and the first place that does; raise for what is no number."""
    values, first = np.empty((len(block), len(layout.chosen))), None
    for n, (line, row) in enumerate(block):
        for j, i in enumerate(layout.chosen):
            if is_missing(row[i]):
                values[n, j] = math.nan
                first = first or layout.place(line, i)
                continue
            try:
                values[n, j] = style.number(row[i])
            except ValueError:
                raise NotANumber(_not_a_number(row[i], layout.place(line, i), block, layout, style)) from None
            if not math.isfinite(values[n, j]):
                raise ValueError(
                    f"{layout.place(line, i)}: {row[i][:40]!r} is beyond the numbers that can be computed with."
                )
    return values, first


def _not_a_number(field: str, where: str, block: list[Row], layout: Layout, style: Style) -> str:
    """What to do about a field that is no number."""
    said = f"{where}: {field[:40]!r} is not a number; "
    if hints := list(_other_styles(field, style)):
        return f"{said}with {' or with '.join(hints)} it is one."
    numeric = [
        i for i in range(len(layout.names)) if all(style.is_number(row[i]) or is_missing(row[i]) for _, row in block)
    ]
    names = [layout.titles[i] for i in numeric]
    text = f"--columns chooses the columns to cluster (those of numbers: {listed(names)})" if names else (
        "--columns chooses the columns to cluster"
    )  # fmt: skip
    return f"{said}{text}, and --id one to keep beside the labels."


def _other_styles(field: str, style: Style) -> Iterator[str]:
    """Options with which a field is a number."""
    for decimal in (style.decimal, *(mark for mark in ".," if mark in field and mark != style.decimal)):
        for thousands in ("", *(mark for mark in GROUPS if mark in field.strip() and mark != decimal)):
            if Style(decimal=decimal, thousands=thousands).is_number(field):
                point = [f"--decimal {decimal}"] if decimal != style.decimal else []
                groups = [f"--thousands {shown(thousands)}"] if thousands != style.thousands and thousands else []
                yield " ".join([*point, *groups])


def shown(mark: str) -> str:
    """A character as it is typed as an option."""
    return {" ": "space", "'": '"\'"'}.get(mark, mark)
