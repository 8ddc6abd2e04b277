"""What is odd about a table is said before it is clustered."""

from __future__ import annotations

import numpy as np
import pytest

from gputabu.data.oddities import oddities
from gputabu.data.tables import Table

N = 50
rng = np.random.default_rng(0)
PLAIN = rng.normal(size=(N, 3))


def said(values, k=3, scaled=False):
    table = Table("a.csv", tuple("abcdef"[: values.shape[1]]), True, values)
    return list(oddities(table, values, k, scaled))


def test_nothing_is_odd():
    assert said(PLAIN) == []
    assert said(PLAIN.round(), k=2) == []
    assert said(PLAIN[:1], k=1) == said(PLAIN[:2], k=1) == []


@pytest.mark.parametrize(
    ("column", "sentence"),
    [
        (np.full(N, 7.0), "column 'd' has the same value in every row"),
        (np.arange(N) + 1.0, "column 'd' counts the rows: if it is no measurement, --id d keeps it"),
        (1e4 * PLAIN[:, 0] ** 3, "as wide as the others, which hardly count then: --scale zscore"),
    ],
)
def test_columns(column, sentence):
    (found,) = said(np.column_stack([PLAIN, column]))
    assert sentence in found


def test_a_wide_column_does_not_matter_if_all_are_scaled():
    assert said(np.column_stack([PLAIN, 1e4 * PLAIN[:, 0] ** 3]), scaled=True) == []


def test_more_clusters_than_distinct_rows():
    assert said(np.repeat(PLAIN[:4], 10, axis=0), k=5) == [
        "-k 5 is more than the 4 distinct rows: some clusters will be empty."
    ]


def test_constant_data_says_it_once():
    assert said(np.ones((N, 2)), k=1) == []
