"""What would read a text that could not be read: options, found by trying them on its beginning."""

from __future__ import annotations

import codecs
import io
import shlex
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import groupby, islice

from gputabu.data import delimited
from gputabu.data.delimited import GROUPS, Style, is_missing, shown
from gputabu.data.tables import Selection

#: Bytes and rows of the beginning.
BEGINNING, ROWS = 1 << 17, 500
#: More columns than these are chosen by number.
NAMED = 8


@dataclass(frozen=True, slots=True)
class Beginning:
    """The first rows of a text, in one of the ways to read it."""

    style: Style
    names: list[str]  # of all columns; their numbers if they have none
    named: bool
    fields: list[tuple[str, ...]]  # a column each

    @property
    def numeric(self) -> list[int]:
        """The columns that hold numbers and nothing else, where they hold anything."""
        return [j for j, column in enumerate(self.fields) if self.is_numeric(column)]

    def is_numeric(self, column: tuple[str, ...]) -> bool:
        present = [field for field in column if not is_missing(field)]
        return bool(present) and all(map(self.style.is_number, present))


def options(content: bytes, style: Style, selection: Selection, encoding: str | None = None) -> str:
    """Options to add, so that the table that begins with `content` can be read; empty if none are known.

    `encoding` is what it must be in, if not the one of `style`.
    """
    text = _text(content, encoding or style.encoding or "utf-8-sig")
    best = max(_ways(text, style), key=lambda way: len(way.numeric), default=None)  # the first of equals
    if best is None or not best.numeric:
        return ""
    said = [f"--encoding {encoding}"] if encoding else []
    said += _of_style(best.style, style)
    if not isinstance(selection.columns, tuple):  # as a model has them, which also knows what to do about gaps
        said += _of_columns(best, selection)
    return " ".join(said)


def _text(content: bytes, encoding: str) -> str:
    """The whole lines of a text that may have been cut anywhere."""
    try:
        text = codecs.getincrementaldecoder(encoding)("replace").decode(content)
    except UnicodeError:  # such as UTF-16 that does not say in which order its bytes are
        return ""
    return text if len(content) < BEGINNING else text[: text.rfind("\n") + 1]


def _ways(text: str, style: Style) -> Iterator[Beginning]:
    """The ways to read the first rows that make a table, the plainest first."""
    marks = [(style.decimal, style.thousands)]
    if style.plain:
        grouped = [(decimal, mark) for mark in GROUPS for decimal in ".," if mark != decimal and mark in text]
        exact = [pair for pair in grouped if pair == (".", ",")]  # before the comma is taken for a decimal sign
        marks = [(".", ""), *exact, (",", ""), *(pair for pair in grouped if pair not in exact)]
    for decimal, thousands in marks:
        way = _begun(text, replace(style, decimal=decimal, thousands=thousands))
        if way is not None:
            yield way


def _begun(text: str, style: Style) -> Beginning | None:
    try:
        whole = Selection("1") if text.strip() else Selection()
        layout, rows = delimited.begin(io.StringIO(text, newline=""), "", whole, style)
        fields = [row for _, row in islice(rows, ROWS)]
    except ValueError:
        return None
    return Beginning(style, list(layout.titles), layout.header, list(zip(*fields, strict=True)))


def _of_style(found: Style, given: Style) -> Iterator[str]:
    """The options of a style that differ from those given."""
    if found.decimal != given.decimal:
        yield f"--decimal {found.decimal}"
    if found.thousands != given.thousands:
        yield f"--thousands {shown(found.thousands)}"


def _of_columns(way: Beginning, selection: Selection) -> Iterator[str]:
    """Which columns to cluster, which one names the rows, and what to do about gaps."""
    text = [j for j in range(len(way.names)) if j not in way.numeric]
    label = way.names.index(selection.id) if selection.id in way.names else None
    if selection.id is None:
        distinct = (j for j in text if len(set(way.fields[j])) == len(way.fields[j]))
        label = next((j for j in distinct if not any(map(is_missing, way.fields[j]))), None)
        if label is not None:
            yield f"--id {_typed(way, [label])}"
    chosen = [j for j in way.numeric if j != label]
    if selection.columns is None and [j for j in text if j != label]:
        yield f"--columns {_typed(way, chosen)}"
    if any(is_missing(field) for j in chosen for field in way.fields[j]):
        yield "--missing median"


def _typed(way: Beginning, columns: list[int]) -> str:
    """Columns as they are typed: by name, or by number where there are many or names have commas."""
    names = [way.names[j] for j in columns]
    if way.named and len(names) <= NAMED and not any("," in name or not name.isprintable() for name in names):
        return shlex.quote(",".join(names))
    runs = (list(run) for _, run in groupby(enumerate(columns, 1), lambda pair: pair[1] - pair[0]))
    ends = ((run[0][1] + 1, run[-1][1] + 1) for run in runs)
    return ",".join(str(first) if first == last else f"{first}-{last}" for first, last in ends)
