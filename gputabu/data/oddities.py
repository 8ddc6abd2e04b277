"""What is odd about a table that is to be clustered, in sentences: it costs an afternoon to find out later."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gputabu.data.tables import Table, brief

#: How many times wider than the middle column one must be to be the only one that counts.
WIDER = 1000
#: Rows looked at.
ROWS = 1 << 16


def oddities(table: Table, points: np.ndarray, k: int, scaled: bool) -> Iterator[str]:
    """Sentences about columns and rows; `points` (N, d) are those of the table as they will be clustered."""
    values = points[:ROWS] if len(points) <= ROWS else points[:: -(-len(points) // ROWS)]
    spread = values.std(axis=0, dtype=np.float64) if len(values) > 1 else np.zeros(0)
    constant = [j for j in range(len(spread)) if spread[j] == 0 and (points[:, j] == points[0, j]).all()]
    for j in constant[: len(spread) if len(constant) < len(spread) else 0]:
        yield f"column {brief(table.names[j])!r} has the same value in every row: it does not count."
    for j in range(len(spread)):
        if len(values) > 2 and counts_up(values[:, j]):
            name = brief(table.names[j])
            yield f"column {name!r} counts the rows: if it is no measurement, --id {name} keeps it beside the labels."
    varying = [j for j in range(len(spread)) if spread[j] > 0]
    if not scaled and len(varying) > 1:
        widest = max(varying, key=lambda j: spread[j])
        rest = float(np.median([spread[j] for j in varying if j != widest]))
        if spread[widest] > WIDER * rest:
            yield (
                f"column {brief(table.names[widest])!r} is {spread[widest] / rest:,.0f} times as wide as the others, "
                "which hardly count then: --scale zscore gives all the same weight."
            )
    distinct = len(np.unique(points, axis=0)) if len(points) <= ROWS else len(points)
    if distinct < k <= len(points):
        yield f"-k {k} is more than the {distinct} distinct rows: some clusters will be empty."


def counts_up(column: np.ndarray) -> bool:
    """Whether a column has whole numbers in steps that are all the same, as an id or a counter has."""
    steps = np.diff(column.astype(np.float64))
    return bool(steps[0] != 0 and (steps == steps[0]).all() and (column == np.rint(column)).all())
