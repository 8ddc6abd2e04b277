"""Files: points in them (.npy, and text with a row per line), and writing one whole or not at all."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

#: What may stand between numbers; where none of these does, white space.
DELIMITERS = (",", ";", "\t")


def read_points(path: Path) -> np.ndarray:
    """The points in a file, (N, d): an array saved by NumPy, or numbers as text, with or without a line of names."""
    try:
        if path.suffix == ".npy":
            return np.load(path, mmap_mode="r", allow_pickle=False)
        return _read_text(path)
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror or error}.") from None
    except ValueError as error:  # what is not UTF-8 text is one of them
        raise ValueError(f"{path} does not hold a table of numbers: {error}") from None


def _read_text(path: Path) -> np.ndarray:
    with path.open(encoding="utf-8-sig") as lines:
        skipped, first = next(((i, line) for i, line in enumerate(lines) if line.strip()), (0, ""))
    delimiter = next((mark for mark in DELIMITERS if mark in first), None)
    fields = first.strip().split(delimiter)
    named = not all(map(_is_number, fields))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # a file without lines is an empty table
        points = np.loadtxt(
            path, delimiter=delimiter, skiprows=skipped + named, ndmin=2, encoding="utf-8-sig", quotechar='"'
        )
    if points.size == 0:
        raise ValueError("it has no rows.")
    return points


def _is_number(field: str) -> bool:
    try:
        float(field.strip().strip('"'))
    except ValueError:
        return False
    return True


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A name to write to, which becomes `path` in the end: whoever looks, at any time, sees the old file or the new."""
    if path.exists() and not path.is_file():  # such as a device, which would be gone
        raise ValueError(f"{path} is not a regular file, and only such a one is replaced.")
    path = path.resolve()  # a link stays one
    aside = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        yield aside
        aside.replace(path)
    except OSError as error:
        if error.filename is None:
            raise
        raise type(error)(error.errno, error.strerror, str(path)) from error  # the name that the user knows
    finally:
        aside.unlink(missing_ok=True)


def replace_text(path: Path, text: str) -> None:
    """Write a file of text, whole or not at all."""
    with replacing(path) as aside:
        aside.write_text(text, encoding="utf-8")
