"""Points in files: .npy, and text with a row per line."""

from __future__ import annotations

import warnings
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
