"""The folder in which a command leaves its files: each whole, and none in place of another without being told to."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import os
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from gputabu.files import replacing
from gputabu.recipe import Recipe
from gputabu.tables import Table

#: Names under which labels are kept, by format.
LABELS = {"csv": "labels.csv", "npy": "labels.npy"}


class Folder:
    """A folder, made if it is not there.

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
        path.mkdir(parents=True, exist_ok=True)
        if not os.access(path, os.W_OK):
            raise ValueError(f"--out={path} cannot be written to.")

    @contextlib.contextmanager
    def file(self, name: str) -> Iterator[BinaryIO]:
        with replacing(self.path / name) as stream:
            yield stream
        self.written.append(name)

    def text(self, name: str, text: str) -> None:
        with self.file(name) as stream:
            stream.write(text.encode())

    def json(self, name: str, plain: dict[str, Any]) -> None:
        self.text(name, json.dumps(plain, indent=2, allow_nan=False) + "\n")

    def labels(self, table: Table, labels: np.ndarray, form: str) -> None:
        """labels.csv, with the names or numbers of the rows, or labels.npy."""
        with self.file(LABELS[form]) as stream:
            if form == "npy":
                np.save(stream, labels, allow_pickle=False)
            else:
                text = io.TextIOWrapper(stream, encoding="utf-8", newline="")
                write_labels(text, table, labels)
                text.detach()

    def centers(self, recipe: Recipe, centers: np.ndarray, sizes: np.ndarray) -> None:
        """centres.csv in the units of the table; where these were scaled, also centres-scaled.csv."""
        names = ["cluster", "size", *recipe.columns]
        for name, values in {"centres.csv": recipe.original(centers), "centres-scaled.csv": centers}.items():
            if name == "centres.csv" or recipe.scale:
                rows = ([i, size, *row] for i, (size, row) in enumerate(zip(sizes, values.tolist(), strict=True)))
                self.text(name, csv_text(names, rows))

    def finish(self) -> str:
        """Take away what an earlier run left and this one did not write; a sentence about what is there now."""
        for name in self.names:
            if name not in self.written:
                (self.path / name).unlink(missing_ok=True)
        return f"Written to {self.path}{os.sep}: {', '.join(self.written)}"


def write_labels(stream: Any, table: Table, labels: np.ndarray) -> None:
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
