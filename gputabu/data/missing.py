"""Missing values of a table: an error, rows that are left out, or what fills them in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from gputabu.data.tables import Table, listed

#: What can be done about missing values.
WAYS = ("error", "drop", "mean", "median")
FILLED: dict[str, Callable[..., Any]] = {"mean": np.nanmean, "median": np.nanmedian}


def counts(table: Table) -> dict[str, int]:
    """How many values each column lacks, of those that lack any."""
    if table.first_missing is None:
        return {}
    missing = np.isnan(table.values).sum(axis=0)
    return {name: int(count) for name, count in zip(table.names, missing, strict=True) if count}


def checked(table: Table, way: str) -> Table:
    """The table; without the rows that lack something if they are to be dropped. Raises if nothing may be missing."""
    if table.first_missing is None or way in FILLED:
        return table
    complete = ~np.isnan(table.values).any(axis=1)
    if way == "drop":
        if not complete.any():
            raise ValueError(f"{table.source}: every row lacks a value; --columns chooses columns that have some.")
        rows = np.flatnonzero(complete)
        ids = None if table.ids is None else [table.ids[i] for i in rows.tolist()]
        return replace(table, values=table.values[rows], ids=ids, rows=rows)
    lacking, n = counts(table), int((~complete).sum())
    where = listed([f"{name} {count}" for name, count in lacking.items()])
    raise ValueError(
        f"{table.first_missing}: the value is missing; in all, {n} of {len(table.values)} rows lack values ({where}). "
        "--missing drop leaves these rows out, --missing mean or median fills them in."
    )


def fill_of(table: Table, way: str) -> tuple[float, ...]:
    """Per column, what fills in what is missing; nothing where that is no way to take."""
    if way not in FILLED:
        return ()
    empty = [name for name, count in counts(table).items() if count == len(table.values)]
    if empty:
        raise ValueError(f"{table.source}: column {empty[0]!r} has no values; --columns leaves it out.")
    return tuple(map(float, FILLED[way](np.asarray(table.values, np.float64), axis=0)))


def filled(X: np.ndarray, fill: tuple[float, ...]) -> np.ndarray:
    """Points with what was missing filled in."""
    gaps = np.isnan(X) if fill and X.dtype.kind == "f" else np.zeros(0, bool)
    return np.where(gaps, np.array(fill, X.dtype), X) if gaps.any() else X
