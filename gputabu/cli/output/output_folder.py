"""The folder in which a command leaves its files: each whole, and none in place of another without being told to."""

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

#: Names under which labels are kept, by format.
LABELS = {"csv": "labels.csv", "npy": "labels.npy"}
MODEL = "model.npz"


class Folder:
    """A folder, made when there is something to write.

    Parameters
    ----------
    path : Path
    names : collection of str
        What may be written. Where one of them is there already, it is an error unless `force`.
    force : bool
    """

    def __init__(self, path: Path, names: Collection[str], force: bool) -> None:
        self.path, self.names, self.written = path, names, list[str]()
        if path.exists() and not path.is_dir():
            raise ValueError(f"--out={path} is a file and must be a folder.")
        there = [name for name in names if (path / name).exists()]
        if there and not force:
            raise ValueError(
                f"--out={path} has {', '.join(there)} of an earlier run: --force replaces them, or choose another."
            )
        nearest = next(folder for folder in (path, *path.absolute().parents) if folder.exists())
        if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
            raise ValueError(f"--out={path} cannot be written to.")

    @contextmanager
    def _place(self, name: str) -> Iterator[Path]:
        """Where to write a file. Once the first is there, what an earlier run left goes: half of each is neither."""
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

    def labels(self, table: Table, labels: np.ndarray, form: str) -> None:
        """labels.csv, with the names or numbers of the rows, or labels.npy."""
        with self._place(LABELS[form]) as path:
            keep_labels(path, table, labels)

    def model(self, model: Any, recipe: Preprocessing) -> None:
        """model.npz, with the recipe that makes its points."""
        recipe.attach(model)
        with self._place(MODEL) as path:
            model.save(path)

    def centers(self, recipe: Preprocessing, centers: np.ndarray, sizes: np.ndarray) -> None:
        """centres.csv in the units of the table; where these were scaled, also centres-scaled.csv."""
        names = ["cluster", "size", *recipe.columns]
        for name, values in {"centres.csv": recipe.original(centers), "centres-scaled.csv": centers}.items():
            if name == "centres.csv" or recipe.scale:
                rows = ([i, size, *row] for i, (size, row) in enumerate(zip(sizes, values.tolist(), strict=True)))
                self.text(name, csv_text(names, rows))

    def told(self) -> str:
        """A sentence about what is there now."""
        return textwrap.fill(f"Written to {self.path}{os.sep}: {', '.join(self.written)}", 80, break_long_words=False)


def keep_labels(path: Path, table: Table, labels: np.ndarray) -> None:
    """Write labels to a file: an array if it is called .npy, CSV otherwise."""
    with replacing(path) as aside:
        if path.suffix == ".npy":
            with aside.open("wb") as stream:
                np.save(stream, labels, allow_pickle=False)
        else:
            with aside.open("w", encoding="utf-8", newline="") as text:
                write_labels(text, table, labels)


def write_labels(stream: TextIO, table: Table, labels: np.ndarray) -> None:
    """The cluster of every row as CSV, beside its id or, from 0 on, its number."""
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerow([table.id or "row", "cluster"])
    writer.writerows(zip(range(len(labels)) if table.ids is None else table.ids, labels.tolist(), strict=True))


def csv_text(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)
    return text.getvalue()
