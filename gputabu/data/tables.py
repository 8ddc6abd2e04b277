"""Tables of points, and the selection of their columns: which are clustered, and which one names the rows."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

#: Most names in a message, and most characters of each.
LISTED, LONG = 12, 60


@dataclass(frozen=True, slots=True)
class Selection:
    """Columns by name or, from 1 on, by number.

    Attributes
    ----------
    columns : str, tuple of str or None
        As typed: names, numbers and ranges, separated by commas, "length,3-5". A tuple holds exact names. None is all
        columns except `id`.
    id : str or None
        The column that names the rows; it is not clustered.
    id_needed : bool
        Whether the table must have the column `id`.
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
            if unnamed := [i for i in chosen if not names[i]]:
                raise ValueError(
                    f"{source}: column {unnamed[0] + 1} has no name, as numbers of rows have none: "
                    "choose columns with --columns, or keep it beside the labels with --id."
                )
        elif isinstance(self.columns, tuple):
            chosen = [_exact(name, names, source) for name in self.columns]
        else:
            items = (item.strip() for item in self.columns.split(","))
            chosen = [i for item in items for i in _span(item, names, source)]
        _check_chosen(chosen, label, names, source)
        return chosen, label


@dataclass(frozen=True, slots=True)
class Table:
    """Points with the names of their columns and, if any, of their rows."""

    source: str  # name of the file in messages
    names: tuple[str, ...]  # (d,) of the chosen columns; their numbers if they have none
    named: bool  # whether the file itself names its columns
    values: np.ndarray  # (N, d)
    id: str | None = None  # the column that names the rows
    ids: list[Any] | None = None  # (N,) values of that column
    first_missing: str | None = None  # where the first value is missing; values are NaN there
    rows: np.ndarray | None = None  # (N,) numbers of the rows in the file, where some were left out


def numbered(n: int) -> tuple[str, ...]:
    """Names for unnamed columns: their numbers."""
    return tuple(str(i + 1) for i in range(n))


def brief(name: str) -> str:
    """A name for a message: on one line, and shortened if it is long."""
    line = " ".join(name.split())
    return line if len(line) <= LONG else f"{line[:LONG]}…"


def listed(names: Sequence[str]) -> str:
    """Names for a message; of many names only the first."""
    shown = ", ".join(brief(name) or f"(column {i + 1})" for i, name in enumerate(names[:LISTED]))
    return shown + (f", … ({len(names)} in all)" if len(names) > LISTED else "")


def _span(item: str, names: Sequence[str], source: str) -> list[int]:
    """The columns of one item of the list; a name has precedence over a number or a range."""
    ends = re.fullmatch(r"(\d+)\s*-\s*(\d+)", item)
    if item in names or not ends:
        return [_position(item, names, source, "columns")]
    first, last = map(int, ends.groups())
    if not 1 <= first <= last <= len(names):
        raise ValueError(f"--columns={item} must go up, from 1 to at most {len(names)}, the columns of {source}.")
    return list(range(first - 1, last))


def _position(item: str, names: Sequence[str], source: str, option: str) -> int:
    if item in names:
        return _exact(item, names, source)
    if item.isdecimal() and 1 <= int(item) <= len(names):
        return int(item) - 1
    raise ValueError(f"--{option}={item}: {source} has no such column; it has {listed(names)}.")


def _exact(name: str, names: Sequence[str], source: str) -> int:
    if name not in names:
        raise ValueError(f"{source} has no column {brief(name)!r}; it has {listed(names)}.")
    if names.count(name) > 1:
        raise ValueError(f"{source} has {names.count(name)} columns {brief(name)!r}; their names must differ.")
    return names.index(name)


def _check_chosen(chosen: list[int], label: int | None, names: Sequence[str], source: str) -> None:
    if not chosen:
        raise ValueError(f"{source} has no columns to cluster.")
    if len(set(chosen)) < len(chosen):
        repeated = next(i for i in chosen if chosen.count(i) > 1)
        raise ValueError(f"--columns has column {names[repeated] or repeated + 1} twice.")
    counts = Counter(names)
    for i in chosen:
        if names[i] and counts[names[i]] > 1:
            _exact(names[i], names, source)
    if label is not None and label in chosen:
        raise ValueError(f"--id={names[label] or label + 1} is one of --columns; what names the rows is not clustered.")
