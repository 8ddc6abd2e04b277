"""Options that would read a text: found by trying them, and tried here again."""

from __future__ import annotations

import shlex

import numpy as np
import pytest

from gputabu.data import files, hints
from gputabu.data.delimited import Style
from gputabu.data.tables import Selection

TABLES = {
    "a;b\n1,5;2\n2,25;3\n": "--decimal ,",
    "a;b\n1.234,5;2\n2,25;3\n": "--decimal , --thousands .",
    "a;b\n1,234;2\n12,345;3\n": "--thousands ,",
    "a;b\n1 234,5;2\n17,5;3\n": "--decimal , --thousands space",
    "a;b\n1'234.5;2\n17.5;3\n": """--thousands "'\"""",
    "a;b\n1.5;2\n;3\nx;4\n": "--columns b",
    "name,x,y\np,1,2\nq,2,3\n": "--id name",
    "name,x,y\np,1,\nq,2,3\n": "--id name --missing median",
    "kind,x,y\np,1,2\np,2,3\n": "--columns x,y",
    'a,"b, c",d\np,1,2\np,2,3\n': "--columns 2-3",
    "p;1,5;2\np;2,5;3\nq;1,5;7\n": "--decimal , --columns 2-3",
    "p|1|2\np|2|3\n": "--columns 2-3",
    "a,b\nx,y\nz,w\n": "",
    "": "",
}


@pytest.mark.parametrize(("text", "said"), TABLES.items())
def test_what_would_read_it(text, said):
    assert hints.options(text.encode(), Style(), Selection()) == said


def test_what_was_given_is_not_said_again():
    content = b"name;x;y\np;1,5;2\nq;2,5;\n"
    assert hints.options(content, Style(decimal=","), Selection(None, "name")) == "--missing median"
    assert hints.options(content, Style(), Selection("x", "name")) == "--decimal , --missing median"
    assert hints.options(content, Style(), Selection(("x", "y"))) == "--decimal ,"  # the rest is in the model


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-16"])
def test_an_error_says_what_to_do_and_that_does_it(encoding, tmp_path):
    mark = {"cp1252": "€", "utf-16": "𝛼"}.get(encoding, "é")
    rows = [f"p{mark}{i};{'äö'[i % 2]};1.{i:03},{i % 9}5;{i}" for i in range(400)]
    path = tmp_path / "a.csv"
    path.write_bytes("\n".join(["id;Straße;x;y", *rows, "last;ü;;3", ""]).encode(encoding))
    with pytest.raises(ValueError, match="Options that read its first rows: ") as refused:
        files.read(path)
    options = shlex.split(str(refused.value).partition("first rows: ")[2])
    told = dict(zip(options[::2], options[1::2], strict=True))
    assert told == {"--encoding": encoding, "--decimal": ",", "--thousands": ".", "--id": "id", "--columns": "x,y",
                    "--missing": "median"}  # fmt: skip
    style = Style(decimal=",", thousands=".", encoding=told["--encoding"])
    table = files.read(path, Selection(told["--columns"], told["--id"]), style, missing=told["--missing"])
    np.testing.assert_allclose(table.values[:400, 0], [1000 + i + (i % 9 * 10 + 5) / 100 for i in range(400)])
    assert table.ids[1] == f"p{mark}1" and np.isnan(table.values[400, 0])


def test_any_text_gets_options_or_none():
    rng = np.random.default_rng(0)
    for size in (0, 1, 50, 5000, hints.BEGINNING):
        content = rng.choice(np.frombuffer(b"12.,;\t\n ab\"'\x00\xff\xc3", np.uint8), size).tobytes()
        for encoding in (None, "latin-1", "utf-16"):
            assert isinstance(hints.options(content, Style(), Selection(), encoding), str)
