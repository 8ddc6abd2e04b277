"""Points from files, as people write them."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import os
import sys
import threading

import numpy as np
import pytest

from gputabu.core.atomic_files import replace_text, replacing
from gputabu.data.delimited import Style
from gputabu.data.files import read
from gputabu.data.preprocessing import Preprocessing
from gputabu.data.tables import Selection

X = np.array([[1.0, -2.5], [3e-3, 4.0]])


def saved(path, array):
    np.save(path, array, allow_pickle=True)
    return path


@pytest.mark.parametrize("opened", [gzip.open, bz2.open, lzma.open, open])
def test_text(opened, tmp_path):
    path = tmp_path / {gzip.open: "a.csv.gz", bz2.open: "a.csv.bz2", lzma.open: "a.csv.xz", open: "a.csv"}[opened]
    with opened(path, "wt", encoding="utf-8") as stream:
        stream.write("\ufeffé,y\n1,-2.5\n3e-3,4\n")
    table = read(path)
    np.testing.assert_array_equal(table.values, X)
    assert (table.source, table.names, table.named, table.ids) == (str(path), ("é", "y"), True, None)


def test_standard_input(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(b"x,y\n1,-2.5\n3e-3,4\n"))
    monkeypatch.setattr("sys.stdin", stream)
    table = read("-")
    np.testing.assert_array_equal(table.values, X)
    assert table.source == "standard input" and not stream.closed


@pytest.mark.parametrize("dtype", ["<f4", ">f4", ">f8", "<i2", ">i8", "|b1", "<f2"])
@pytest.mark.parametrize("order", "CF")
def test_npy(dtype, order, tmp_path):
    array = np.asarray([[1, 0], [0, 1], [1, 1]]).astype(dtype, order=order)
    table = read(saved(tmp_path / "points.npy", array))
    assert isinstance(table.values, np.memmap) and table.values.dtype == array.dtype
    np.testing.assert_array_equal(table.values, array)
    points = Preprocessing.of(table).points(table)
    assert points.dtype == (np.float32 if "f" in dtype and dtype != ">f8" else np.float64) and points.dtype.isnative
    assert read(tmp_path / "points.npy", Selection("2", "1")).ids == array[:, 0].tolist()
    np.testing.assert_array_equal(read(tmp_path / "points.npy", Selection("2", "1")).values, array[:, 1:])


def test_a_map_is_not_copied(tmp_path):
    table = read(saved(tmp_path / "points.npy", X))
    assert np.shares_memory(Preprocessing.of(table).points(table), table.values)


def test_npz(tmp_path):
    path = tmp_path / "points.npz"
    np.savez(path, X)
    np.testing.assert_array_equal(read(path).values, X)
    np.savez_compressed(path, points=X, labels=X[0])
    np.testing.assert_array_equal(read(path, array="points").values, X)
    for array, message in {
        None: "it holds the arrays points, labels: choose one with --array",
        "x": "it has no array 'x'; it has points, labels",
        "labels": r"holds an array of shape \(2,\) and dtype float64; it must be \(rows, columns\)",
    }.items():
        with pytest.raises(ValueError, match=message):
            read(path, array=array)


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array([[1, None]]), "does not hold a table of numbers: .*Python objects"),
        (np.array([["a"]]), r"dtype <U1; it must be \(rows, columns\)"),
        (X + 1j, "dtype complex128"),
        (X[0], r"shape \(2,\)"),
        (X[:0], r"shape \(0, 2\)"),
        (
            np.array([[1.0, 2.0], [3.0, np.nan]]),
            "row 1, column '2': the value is missing; in all, 1 of 2 rows lack values",
        ),
        (np.array([[np.inf]]), "row 0, column '1': inf is no finite number"),
    ],
)
def test_arrays_that_are_no_points(array, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        read(saved(tmp_path / "a.npy", array))


@pytest.mark.parametrize("suffix", [".parquet", ".arrow", ".feather"])
def test_arrow(suffix, tmp_path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow import feather, parquet

    path = tmp_path / f"a{suffix}"
    columns = {"key": ["a", "b"], "x": X[:, 0].astype(np.float32), "y": [1, 2], "gap": [None, 1.0], "t": [True, False]}
    write = parquet.write_table if suffix == ".parquet" else feather.write_feather
    write(pyarrow.table(columns), path)
    table = read(path, Selection("y,x,t", "key"))
    np.testing.assert_array_equal(table.values, [[1, np.float32(1), 1], [2, np.float32(3e-3), 0]])
    assert (table.names, table.named, table.id, table.ids) == (("y", "x", "t"), True, "key", ["a", "b"])
    assert read(path, Selection("x")).values.dtype == np.float32
    for columns, message in {
        "key": "column 'key' holds string and not numbers; --columns chooses",
        "gap": "row 0, column 'gap': the value is missing; in all, 1 of 2 rows lack values",
        "w": "no such column; it has key, x, y, gap, t",
    }.items():
        with pytest.raises(ValueError, match=message):
            read(path, Selection(columns))
    write(pyarrow.table({"x": pyarrow.array([], pyarrow.float64())}), path)
    with pytest.raises(ValueError, match="has no rows"):
        read(path)
    path.write_bytes(b"PAR1 or not")
    with pytest.raises(ValueError, match="cannot be read"):
        read(path)


def test_arrow_needs_an_extra(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ValueError, match=r"a\.parquet needs pyarrow to be read: pip install 'gputabu\[arrow\]'"):
        read(tmp_path / "a.parquet")


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"\xff\xfe1", "is not text in utf-8. It may be in utf-16: --encoding utf-16."),
        (
            "a.csv",
            b"1;\xfc\n",
            "is not text in utf-8. It may be in latin-1. Options that read its first rows: --encoding latin-1",
        ),
        (
            "a.csv",
            b"1;\x80\n",
            "is not text in utf-8. It may be in cp1252. Options that read its first rows: --encoding cp1252",
        ),
        ("a.csv.gz", b"1,2", "cannot be read: Not a gzipped file"),
        ("a.csv.xz", b"1,2", "cannot be read: Compressed file ended"),
        ("a.npy", b"not numpy", "does not hold a table of numbers"),
        ("a.npy", b"", "does not hold a table of numbers"),
        ("a.npz", b"PK or not", "does not hold a table of numbers"),
    ],
)
def test_what_is_no_table(name, content, message, tmp_path):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read(path)


def test_no_file(tmp_path):
    for name in ("nothing.csv", "nothing.npy", "nothing.parquet"):
        with pytest.raises(ValueError, match=r"cannot be read: .*No such file"):
            read(tmp_path / name)
    with pytest.raises(ValueError, match="cannot be read: Is a directory"):
        read(tmp_path)


def test_options_of_other_formats(tmp_path):
    with pytest.raises(ValueError, match=r"--array=x goes with \.npz files"):
        read(tmp_path / "a.csv", array="x")
    with pytest.raises(ValueError, match="--header and --delimiter go with text"):
        read(tmp_path / "a.npy", style=Style(header=True))


def test_files_are_replaced_whole(tmp_path, monkeypatch):
    path = tmp_path / "results.json"
    replace_text(path, "old")

    def full(self, *_, **__):
        self.touch()
        raise OSError("disk full")

    monkeypatch.setattr("pathlib.Path.write_text", full)
    with pytest.raises(OSError, match="disk full"):
        replace_text(path, "new")
    assert path.read_text() == "old" and os.listdir(tmp_path) == ["results.json"]


def test_errors_name_the_file_that_was_asked_for(tmp_path):
    path = tmp_path / "no folder" / "a"
    with pytest.raises(FileNotFoundError) as raised:
        replace_text(path, "new")
    assert raised.value.filename == str(path)


def test_what_is_not_a_file_stays(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    for path in (pipe, tmp_path):
        with pytest.raises(ValueError, match="is not a regular file"):
            replace_text(path, "new")
    assert pipe.is_fifo()


def test_a_link_stays_one(tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "file")
    replace_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "file").read_text() == "new"


def test_two_threads_write_aside_of_each_other(tmp_path):
    names = []

    def look():
        with replacing(tmp_path / "file") as aside:
            names.append(aside)
            aside.touch()

    with replacing(tmp_path / "file") as mine:
        mine.touch()
        other = threading.Thread(target=look)
        other.start()
        other.join()
    assert mine not in names
