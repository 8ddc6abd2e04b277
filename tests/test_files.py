"""Points from files, as people write them."""

from __future__ import annotations

import os
import threading

import numpy as np
import pytest

from gputabu.files import read_points, replace_text, replacing

X = np.array([[1.0, -2.5], [3e-3, 4.0]])


@pytest.mark.parametrize(
    "text",
    [
        "1,-2.5\n0.003,4\n",
        "x,y\n1,-2.5\n3e-3,4.0",
        '"x","y"\r\n"1","-2.5"\r\n3e-3,4.0\r\n',
        "x;y\n1;-2.5\n3e-3;4\n",
        "1\t-2.5\n3e-3\t4\n",
        "  1   -2.5\n3e-3 4\n\n",
        "\ufeffx, y\n1, -2.5\n3e-3, 4",
        "\n\n1,-2.5\n3e-3,4",
    ],
)
def test_text(text, tmp_path):
    path = tmp_path / "points.csv"
    path.write_text(text, encoding="utf-8", newline="")
    np.testing.assert_array_equal(read_points(path), X)


def test_npy(tmp_path):
    path = tmp_path / "points.npy"
    np.save(path, X.astype(np.float32))
    assert read_points(path).dtype == np.float32
    np.testing.assert_array_equal(read_points(path), X.astype(np.float32))


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.csv", b"", "does not hold a table of numbers: it has no rows"),
        ("a.csv", b"x,y\n", "it has no rows"),
        ("a.csv", b"1,2\n3,four\n", "does not hold a table of numbers: .*four"),
        ("a.csv", b"1,2\n3\n", "does not hold a table of numbers"),
        ("a.csv", b"\xff\xfe1", "does not hold a table of numbers"),
        ("a.npy", b"not numpy", "does not hold a table of numbers"),
    ],
)
def test_what_is_no_table(name, content, message, tmp_path):
    path = tmp_path / name
    path.write_bytes(content)
    with pytest.raises(ValueError, match=message):
        read_points(path)


def test_no_file(tmp_path):
    with pytest.raises(ValueError, match="cannot be read: No such file"):
        read_points(tmp_path / "nothing.csv")
    with pytest.raises(ValueError, match="cannot be read"):
        read_points(tmp_path)


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
