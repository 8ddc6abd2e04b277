"""Columns by name, by number, and by mistake."""

from __future__ import annotations

import pytest

from gputabu.data.tables import Selection, listed, numbered

NAMES = ("name", "x", "y", "2", "z")


@pytest.mark.parametrize(
    ("columns", "label", "chosen"),
    [
        (None, "name", ([1, 2, 3, 4], 0)),
        ("x,y", None, ([1, 2], None)),
        ("y, x", None, ([2, 1], None)),
        ("2", None, ([3], None)),  # a name comes before a number
        ("3", "1", ([2], 0)),
        ("2-3,z", None, ([1, 2, 4], None)),
        (("2", "x"), "z", ([3, 1], 4)),
    ],
)
def test_selection(columns, label, chosen):
    assert Selection(columns, label).of(NAMES, "a.csv") == chosen


@pytest.mark.parametrize(
    ("columns", "label", "message"),
    [
        ("w", None, r"--columns=w: a\.csv has no such column; it has name, x, y, 2, z\."),
        ("0", None, "--columns=0: .* no such column"),
        ("6", None, "--columns=6: .* no such column"),
        ("3-9", None, r"--columns=3-9 must go up, from 1 to at most 5, the columns of a\.csv\."),
        ("4-3", None, "must go up"),
        ("x,x", None, "--columns has column x twice"),
        ("x,", None, "--columns=: .* no such column"),
        ("x", "w", "--id=w: .* no such column"),
        ("x,y", "x", "--id=x is one of --columns"),
        (("3",), None, r"a\.csv has no column '3'; it has name"),
    ],
)
def test_selection_says_what_is_wrong(columns, label, message):
    with pytest.raises(ValueError, match=message):
        Selection(columns, label).of(NAMES, "a.csv")


def test_names_that_are_not_names():
    with pytest.raises(ValueError, match="has 2 columns 'x'; their names must differ"):
        Selection().of(("x", "x", "y"), "a.csv")
    assert Selection("y").of(("x", "x", "y"), "a.csv") == ([2], None)
    with pytest.raises(ValueError, match=r"column 1 has no name, as numbers of rows have none: choose .* --id"):
        Selection().of(("", "x"), "a.csv")
    assert Selection(id="1").of(("", "x"), "a.csv") == ([1], 0)
    with pytest.raises(ValueError, match="no columns to cluster"):
        Selection(id="x").of(("x",), "a.csv")


def test_an_id_that_may_be_absent():
    assert Selection(("x",), "key", id_needed=False).of(NAMES, "a.csv") == ([1], None)
    assert Selection(("x",), "name", id_needed=False).of(NAMES, "a.csv") == ([1], 0)


def test_many_names_are_listed_in_part():
    assert listed(numbered(30)).endswith("12, … (30 in all)")
