"""Large texts are read by pyarrow, with what line by line would give: numbers, ids, places, messages."""

from __future__ import annotations

import numpy as np
import pytest

from gputabu.data import arrow_text, delimited
from gputabu.data.delimited import Style
from gputabu.data.files import read
from gputabu.data.tables import Selection

ROWS = 400


@pytest.fixture(autouse=True)
def small(monkeypatch):
    pytest.importorskip("pyarrow")
    monkeypatch.setattr(arrow_text, "LEAST", 0)
    monkeypatch.setattr(arrow_text, "BLOCK", 512)
    monkeypatch.setattr(arrow_text, "ROWS", 7)


@pytest.fixture
def taken(monkeypatch):
    """What pyarrow gave: a table, or None where it left the text to the other reader."""
    found = []

    def parse(*arguments):
        found.append(original(*arguments))
        return found[-1]

    original = arrow_text.parse
    monkeypatch.setattr(arrow_text, "parse", parse)
    return found


def written(path, lines, encoding="utf-8"):
    path.write_text("\n".join(lines) + "\n", encoding=encoding)
    return path


def line_by_line(path, selection, style):
    with path.open(encoding=style.encoding or "utf-8-sig", newline="") as stream:
        return delimited.parse(stream, str(path), selection, style)


TEXTS = {
    "plain": (["id,x,y", *(f"r{i},{i / 7!r},{-i}e-3" for i in range(ROWS))], Style(), Selection(id="id")),
    "no names": ([f"{i};{i * i}" for i in range(ROWS)], Style(), Selection()),
    "quotes": (['"a, b","y"', *(f'"{i}","{i / 3}"' for i in range(ROWS))], Style(), Selection()),
    "gaps": (["x,y", *(f"{i if i % 5 else 'NA'},{i if i % 7 else ''}" for i in range(1, ROWS))], Style(), Selection()),
    "blank lines": (["x,y", *(f"{i},{i}\n" for i in range(ROWS)), "", "1,?"], Style(), Selection()),
    "decimal": (["x;y", *(f"{i},5;{-i},25" for i in range(ROWS))], Style(decimal=","), Selection("y,x")),
    "groups": (["x;y", *(f"{i}.234,5;{i}" for i in range(1, ROWS))], Style(decimal=",", thousands="."), Selection()),
    "groups, gaps": (["x y", *(f"{i};" for i in range(1, ROWS))], Style(";", True, thousands=","), None),
    "latin": (["Größe;Ort", *(f"{i};Köln{i}" for i in range(ROWS))], Style(encoding="latin-1"), Selection("1", "Ort")),
    "tabs": (["x\ty", *(f"{i}\t {i}" for i in range(ROWS))], Style(), Selection()),
}


@pytest.mark.parametrize("name", [name for name in TEXTS if name != "groups, gaps"])
def test_the_same_table(name, tmp_path, taken):
    lines, style, selection = TEXTS[name]
    path = written(tmp_path / "a.csv", lines, style.encoding or "utf-8")
    found, wanted = read(path, selection, style, missing="mean"), line_by_line(path, selection, style)
    assert taken[0] is not None
    np.testing.assert_array_equal(found.values, wanted.values)
    for one in ("names", "named", "id", "ids", "first_missing", "source"):
        assert getattr(found, one) == getattr(wanted, one), one


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("7,four", "line 30, column 'y': 'four' is not a number; --columns chooses"),
        ("7,1e999", "line 30, column 'y': '1e999' is beyond the numbers"),
        ("7", "line 30: the row has 1 fields, and the first has 2."),
        ("7,1_0", "line 30, column 'y': '1_0' is not a number"),
        ("# a remark, with a comma", None),
        ("7 ,\t8", None),
    ],
)
def test_what_is_odd_is_left_to_the_other_reader(line, message, tmp_path):
    lines = ["x,y", *(f"{i},{i}" for i in range(28)), line, *(f"{i},{i}" for i in range(ROWS))]
    path = written(tmp_path / "a.csv", lines)
    if message is None:
        np.testing.assert_array_equal(read(path).values, line_by_line(path, Selection(), Style()).values)
        return
    with pytest.raises(ValueError, match=message.replace("(", "\\(")):
        read(path)


def test_another_encoding(tmp_path):
    path = written(tmp_path / "a.csv", ["x,y", *(f"{i},é" for i in range(ROWS))], "latin-1")
    with pytest.raises(ValueError, match="It may be in latin-1"):
        read(path, Selection("x", "y"))
