"""Tables of points: which columns are clustered, and which one names the rows."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

#: How many names a message lists, and how many characters of each.
LISTED, LONG = 12, 60


@dataclass(frozen=True, slots=True)
class Selection:
    """Columns by name or, from 1 on, by number.

    Attributes
    ----------
    columns : str, tuple of str or None
        As typed: names, numbers and ranges with commas between, "length,3-5". A tuple holds names that must be there
        as they are. None is all columns but `id`.
    id : str or None
        The column that names the rows, which is not clustered.
    id_needed : bool
        Whether it is an error if the table has no column `id`.
    """

    columns: str | tuple[str, ...] | None = None
    id: str | None = None
    id_needed: bool = True

    def of(self, names: Sequence[str], source: str) -> tuple[list[int], int | None]:
        """Positions of the columns and of the id in a table with columns of these names."""
        absent = self.id is None or not (self.id_needed or self.id in names)
        label = None if absent else _position(str(self.id), names, source, "id")
        if self.columns is None:
            chosen = [i for i in range(len(names)) if i != label]
            if nameless := [i for i in chosen if not names[i]]:
                raise ValueError(
                    f"{source}: column {nameless[0] + 1} has no name, as numbers of rows have none: "
                    "choose columns with --columns, or keep it beside the labels with --id."
                )
        elif isinstance(self.columns, tuple):
            chosen = [_exact(name, names, source) for name in self.columns]
        else:
            parts = (part.strip() for part in self.columns.split(","))
            chosen = [i for part in parts for i in _span(part, names, source)]
        _check(chosen, label, names, source)
        return chosen, label


@dataclass(frozen=True, slots=True)
class Table:
    """Points with the names of their columns, and what the rows are called."""

    source: str  # what messages call the file
    names: tuple[str, ...]  # (d,) of the columns chosen; their numbers where they have none
    named: bool  # whether the file itself names its columns
    values: np.ndarray  # (N, d)
    id: str | None = None  # the column that names the rows
    ids: list[Any] | None = None  # (N,) what is in it


def numbered(n: int) -> tuple[str, ...]:
    """The names of columns that have none: their numbers."""
    return tuple(str(i + 1) for i in range(n))


def brief(name: str) -> str:
    """A name for a message: on one line, and its beginning where it is long."""
    line = " ".join(name.split())
    return line if len(line) <= LONG else f"{line[:LONG]}…"


def listed(names: Sequence[str]) -> str:
    """Names for a message, the first of them where there are many."""
    shown = ", ".join(brief(name) or f"(column {i + 1})" for i, name in enumerate(names[:LISTED]))
    return shown + (f", … ({len(names)} in all)" if len(names) > LISTED else "")


def _span(part: str, names: Sequence[str], source: str) -> list[int]:
    """What one of the parts between commas stands for; a name comes before a number or a range."""
    ends = re.fullmatch(r"(\d+)\s*-\s*(\d+)", part)
    if part in names or not ends:
        return [_position(part, names, source, "columns")]
    first, last = map(int, ends.groups())
    if not 1 <= first <= last <= len(names):
        raise ValueError(f"--columns={part} must go up, from 1 to at most {len(names)}, the columns of {source}.")
    return list(range(first - 1, last))


def _position(part: str, names: Sequence[str], source: str, option: str) -> int:
    if part in names:
        return _exact(part, names, source)
    if part.isdecimal() and 1 <= int(part) <= len(names):
        return int(part) - 1
    raise ValueError(f"--{option}={part}: {source} has no such column; it has {listed(names)}.")


def _exact(name: str, names: Sequence[str], source: str) -> int:
    if name not in names:
        raise ValueError(f"{source} has no column {brief(name)!r}; it has {listed(names)}.")
    if names.count(name) > 1:
        raise ValueError(f"{source} has {names.count(name)} columns {brief(name)!r}; their names must differ.")
    return names.index(name)


def _check(chosen: list[int], label: int | None, names: Sequence[str], source: str) -> None:
    if not chosen:
        raise ValueError(f"{source} has no columns to cluster.")
    if len(set(chosen)) < len(chosen):
        twice = next(i for i in chosen if chosen.count(i) > 1)
        raise ValueError(f"--columns has column {names[twice] or twice + 1} twice.")
    counts = Counter(names)
    for i in chosen:
        if names[i] and counts[names[i]] > 1:
            _exact(names[i], names, source)
    if label is not None and label in chosen:
        raise ValueError(f"--id={names[label] or label + 1} is one of --columns; what names the rows is not clustered.")
