"""The output folder of a command. Files are written atomically, and replace others only with --force."""

from __future__ import annotations

import csv
import io
import json
import os
import textwrap
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from gputabu.core.atomic_files import replace_text, replacing
from gputabu.data.preprocessing import Preprocessing
from gputabu.data.tables import Table

#: File names of labels, by format.
LABELS = {"csv": "labels.csv", "npy": "labels.npy"}
MODEL = "model.npz"


class Folder:
    """An output folder, created with the first file.

    Parameters
    ----------
    path : Path
    names : collection of str
        The files that may be written. If one of them exists, it is an error unless `force`.
    force : bool
    """

    def __init__(self, path: Path, names: Collection[str], force: bool) -> None:
        self.path, self.names, self.written = path, names, list[str]()
        if path.exists() and not path.is_dir():
            raise ValueError(f"--out={path} is a file and must be a folder.")
        existing = [name for name in names if (path / name).exists()]
        if existing and not force:
            raise ValueError(
                f"--out={path} has {', '.join(existing)} of an earlier run: --force replaces them, or choose another."
            )
        nearest = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
        if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
            raise ValueError(f"--out={path} cannot be written to.")

    @contextmanager
    def _place(self, name: str) -> Iterator[Path]:
        """The path of a file to write. After the first file, those of an earlier run are deleted: runs must not mix."""
        self.path.mkdir(parents=True, exist_ok=True)
        yield self.path / name
        for other in self.names if not self.written else ():
            if other != name:
                (self.path / other).unlink(missing_ok=True)
        self.written.append(name)

    def text(self, name: str, text: str) -> None:
        with self._place(name) as path:
            replace_text(path, text)

    def json(self, name: str, plain: dict[str, Any]) -> None:
        self.text(name, json.dumps(plain, indent=2, allow_nan=False) + "\n")

    def labels(self, table: Table, labels: np.ndarray, kind: str) -> None:
        """labels.csv, with the names or numbers of the rows, or labels.npy."""
        with self._place(LABELS[kind]) as path:
            save_labels(path, table, labels)

    def model(self, model: Any, preprocessing: Preprocessing) -> None:
        """model.npz, with the preprocessing of its points."""
        preprocessing.attach(model)
        with self._place(MODEL) as path:
            model.save(path)

    def centers(self, preprocessing: Preprocessing, centers: np.ndarray, sizes: np.ndarray) -> None:
        """centres.csv in the units of the table, and, if the columns were scaled, centres-scaled.csv."""
        names = ["cluster", "size", *preprocessing.columns]
        for name, values in {"centres.csv": preprocessing.original(centers), "centres-scaled.csv": centers}.items():
            if name == "centres.csv" or preprocessing.scale:
                rows = ([i, size, *row] for i, (size, row) in enumerate(zip(sizes, values.tolist(), strict=True)))
                self.text(name, csv_text(names, rows))

    def listing(self) -> str:
        """A sentence that lists the files written."""
        return textwrap.fill(f"Written to {self.path}{os.sep}: {', '.join(self.written)}", 80, break_long_words=False)


def save_labels(path: Path, table: Table, labels: np.ndarray) -> None:
    """Write labels to a file: an array if its name ends in .npy, CSV otherwise."""
    with replacing(path) as temporary:
        if path.suffix == ".npy":
            with temporary.open("wb") as stream:
                np.save(stream, labels, allow_pickle=False)
        else:
            with temporary.open("w", encoding="utf-8", newline="") as text:
                write_labels(text, table, labels)


def write_labels(stream: TextIO, table: Table, labels: np.ndarray) -> None:
    """The cluster of every row as CSV, beside its id or, from 0 on, its number."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([table.id or "row", "cluster"])
    numbers = range(len(labels)) if table.rows is None else table.rows.tolist()
    writer.writerows(zip(numbers if table.ids is None else table.ids, labels.tolist(), strict=True))


def csv_text(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)
    return text.getvalue()
