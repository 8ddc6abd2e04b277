"""Text as people write it: delimiters, names, quotes; and what is said about what is no table."""

from __future__ import annotations

import csv
import io
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gputabu.data import delimited
from gputabu.data.delimited import Style
from gputabu.data.missing import checked, counts
from gputabu.data.tables import Selection

X = np.array([[1.0, -2.5], [3e-3, 4.0]])


def parse(text: str, selection: Selection | None = None, style: Style | None = None):
    return delimited.parse(io.StringIO(text, newline=""), "a.csv", selection or Selection(), style or Style())


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("1,-2.5\n0.003,4\n", None),
        ("x,y\n1,-2.5\n3e-3,4.0", ("x", "y")),
        ('"x","y"\r\n"1","-2.5"\r\n3e-3,4.0\r\n', ("x", "y")),
        ('"a, b";y\n1;-2.5\n3e-3;4\n', ("a, b", "y")),
        ('"a;b",y\n1,-2.5\n3e-3,4\n', ("a;b", "y")),
        ("1\t-2.5\n3e-3\t4\n", None),
        ("length, m\ty\n1\t-2.5\n3e-3\t4\n", ("length, m", "y")),
        ("  1   -2.5\n3e-3 4\n\n", None),
        ("x y\n1 -2.5\n3e-3 4\n", ("x", "y")),
        ("x, y\n1, -2.5\n3e-3, 4", ("x", "y")),
        ("\n\n1,-2.5\n\n3e-3,4", None),
        ("# made by hand\nx,y\n1,-2.5\n# a remark, with commas, \n3e-3,4", ("x", "y")),
        ("2019,b\n1,-2.5\n3e-3,4", ("2019", "b")),  # text above a number
    ],
)
def test_text(text, names):
    table = parse(text)
    np.testing.assert_array_equal(table.values, X)
    assert (table.named, table.names) == (names is not None, names or ("1", "2"))


def test_a_first_row_with_text_in_it_is_data_like_the_second():
    table = parse("5.1,setosa\n4.9,setosa\n", Selection(id="2"))
    assert table.values.ravel().tolist() == [5.1, 4.9] and table.ids == ["setosa", "setosa"]
    table = parse("5.1,\n4.9,setosa\n", Selection(id="2"))
    assert len(table.values) == 2


def test_header_and_delimiter_as_told():
    table = parse("2019,2020\n1,2\n", style=Style(header=True))
    assert table.names == ("2019", "2020") and table.values.tolist() == [[1, 2]]
    with pytest.raises(ValueError, match=r"line 1, column '1': 'x' is not a number"):
        parse("x,y\n1,2\n", style=Style(header=False))
    assert parse("1|2\n3|4\n", style=Style("|")).values.tolist() == [[1, 2], [3, 4]]
    assert parse("1,5 2\n", Selection("2"), Style("")).values.tolist() == [[2]]


def test_ids_are_kept_as_they_are():
    table = parse('key,x\n007,1\n"a, ""b""\nc",2\n', Selection("x", "key"))
    assert table.id == "key" and table.ids == ["007", 'a, "b"\nc']


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "a.csv is empty; it must hold a table of numbers."),
        ("\n # \n", "a.csv is empty"),
        ("# only\n", "a.csv is empty"),
        ("x,y\n", "a.csv has a line of names and no rows."),
        ("1,2\n3,four\n", "a.csv, line 2, column '2': 'four' is not a number; --columns chooses"),
        ("x,y\n1,1e999\n", "a.csv, line 2, column 'y': '1e999' is beyond the numbers"),
        ("x,y\n1,1_0\n", "a.csv, line 2, column 'y': '1_0' is not a number"),
        ("x,y\n1,2\n3\n", "a.csv, line 3: the row has 1 fields, and the first has 2."),
        ("x,y\n1,2\n3,4,5\n", "a.csv, line 3: the row has 3 fields, and the first has 2."),
        ('x,y\n1,"2\n', "a.csv, line 2: unexpected end of data."),
        ("x,y\n1,5;2,5\n", "a.csv, line 2: the row has 3 fields"),
    ],
)  # fmt: skip
def test_what_is_no_table(text, message):
    with pytest.raises(ValueError) as raised:  # noqa: PT011
        parse(text)
    assert str(raised.value).startswith(message)


@pytest.mark.parametrize(
    ("text", "line", "missing"),
    [("x,y\n\n1,2\n3,\n", 4, {"y": 1}), ("x,y\n1,NA\n?,2\n-,3\n", 2, {"x": 2, "y": 1}), ("x,y\n1,nan\n", 2, {"y": 1})],
)
def test_missing_values_are_counted(text, line, missing):
    table = parse(text)
    assert counts(table) == missing
    said = f"a.csv, line {line}, column 'y': the value is missing; in all, "
    with pytest.raises(ValueError, match=re.escape(said)):
        checked(table, "error")


def test_rows_that_lack_values_are_left_out():
    table = checked(parse("id,x,y\na,1,2\nb,,3\nc,4,5\n", Selection(id="id")), "drop")
    assert (table.values.tolist(), table.ids, table.rows.tolist()) == ([[1, 2], [4, 5]], ["a", "c"], [0, 2])
    with pytest.raises(ValueError, match="every row lacks a value"):
        checked(parse("x,y\n1,\n,2\n"), "drop")


@pytest.mark.parametrize(
    ("field", "style", "hint"),
    [
        ("30,895", Style(), "with --thousands , or with --decimal , it is one."),
        ("1.234,5", Style(), "with --decimal , --thousands . it is one."),
        ("1.234,5", Style(decimal=","), "with --thousands . it is one."),
        ("1,234.5", Style(), "with --thousands , it is one."),
        ("1 234", Style(), "with --thousands space it is one."),
        ("12,5", Style(thousands=","), "with --decimal , it is one."),
    ],
)
def test_numbers_in_other_styles_are_recognised(field, style, hint):
    with pytest.raises(ValueError, match=re.escape(f"{field!r} is not a number; {hint}")):
        parse(f"x;y\n1;2\n3;{field}\n", style=style)


@pytest.mark.parametrize(
    ("style", "fields", "values"),
    [
        (Style(decimal=","), ["1,5", "-2e3", " 7 "], [1.5, -2000, 7]),
        (Style(thousands=","), ["1,234.5", "12", "-1,234,567"], [1234.5, 12, -1234567]),
        (Style(decimal=",", thousands="."), ["1.234,5", "12,25", "1.000e3"], [1234.5, 12.25, 1e6]),
        (Style(thousands=" "), ["1 234", "5", "1 000 000.5"], [1234, 5, 1000000.5]),
    ],
)
def test_decimal_signs_and_thousands(style, fields, values):
    text = "x;y\n" + "".join(f"{field};0\n" for field in fields)
    assert parse(text, style=style).values[:, 0].tolist() == values
    if style.thousands:
        with pytest.raises(ValueError, match="is not a number"):
            parse(f"x;y\n1;2\n12{style.thousands}34;0\n", style=style)


def test_the_comma_is_no_delimiter_if_it_is_a_decimal_sign():
    assert parse("1,5 2\n3 4,5\n", style=Style(decimal=",")).values.tolist() == [[1.5, 2], [3, 4.5]]


def test_the_line_is_right_beyond_the_first_block(monkeypatch):
    monkeypatch.setattr(delimited, "BLOCK", 4)
    rows = [f"{i},{i}" for i in range(20)]
    assert parse("\n".join(rows)).values.shape == (20, 2)
    rows[13] = "13,?"
    assert parse("\n".join(rows)).first_missing == "a.csv, line 14, column '2'"


numbers = st.floats(allow_nan=False, allow_infinity=False)
words = st.text(st.characters(codec="utf-8", exclude_categories=["Cc", "Cs", "Zl", "Zp"]), min_size=1).filter(
    lambda text: (
        text == text.strip() and not text.startswith("#") and not set(text) & set('";,\t') and not _is_number(text)
    )
)


def _is_number(text: str) -> bool:
    return Style().is_number(text) or text.lower() in delimited.MISSING


@given(st.data(), st.integers(1, 5), st.sampled_from(",;\t"), st.booleans(), st.sampled_from(["\n", "\r\n"]))
def test_what_was_written_is_read(data, width, delimiter, named, end):
    rows = data.draw(st.lists(st.lists(numbers, min_size=width, max_size=width), min_size=1, max_size=6))
    names = data.draw(st.lists(words, min_size=width, max_size=width, unique=True)) if named else None
    text = io.StringIO()
    writer = csv.writer(text, delimiter=delimiter, lineterminator=end)
    writer.writerows([*([names] if names else []), *([repr(value) for value in row] for row in rows)])
    if width == 1:  # nothing is between the fields
        text = io.StringIO(text.getvalue().replace(" ", "_"))
        names = [name.replace(" ", "_") for name in names] if names else None
    table = parse(text.getvalue(), style=Style(delimiter) if width == 1 else None)
    np.testing.assert_array_equal(table.values, rows)
    assert table.names == tuple(names or map(str, range(1, width + 1)))


@given(st.text(st.sampled_from('12.,;\t" #\nab_-\x00é'), max_size=30))
def test_any_text_is_a_table_or_a_sentence(text):
    try:
        table = parse(text)
    except ValueError as error:
        assert str(error).startswith("a.csv") and "\n" not in str(error)  # noqa: PT017
    else:
        assert table.values.shape[0] >= 1 and not np.isinf(table.values).any()
        assert np.isnan(table.values).any() == (table.first_missing is not None)
