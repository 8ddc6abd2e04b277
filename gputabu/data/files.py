"""Tables in files: text, NumPy's .npy and .npz, Parquet and Arrow."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import math
import struct
import sys
import tokenize
import zipfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from gputabu.core.atomic_files import reason
from gputabu.data import delimited
from gputabu.data.delimited import Style
from gputabu.data.tables import Selection, Table, numbered

#: Formats by the ending of the name; everything else is text.
ARRAYS, PARQUET, ARROW = (".npy", ".npz"), (".parquet", ".pq"), (".arrow", ".feather", ".ipc")
COMPRESSED: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".bz2": bz2.open, ".xz": lzma.open}
#: What the libraries raise on a damaged or foreign file.
DAMAGE = (
    OSError, EOFError, ValueError, TypeError, LookupError, AttributeError, NotImplementedError, RuntimeError,
    ArithmeticError, AssertionError, SyntaxError, tokenize.TokenError, struct.error, zipfile.BadZipFile, zlib.error,
    lzma.LZMAError,
)  # fmt: skip
#: The largest compression ratio to believe: more than Deflate can reach.
RATIO = 1100
#: Rows of an array checked at once.
BLOCK = 1 << 16


def read(
    path: str | Path, selection: Selection | None = None, style: Style | None = None, array: str | None = None
) -> Table:
    """The table in a file; "-" is text from standard input.

    Parameters
    ----------
    path : str or Path
        .npy (mapped into memory), .npz, .parquet, .arrow or .feather. Everything else is text, which may be compressed
        (.gz, .bz2, .xz).
    selection : Selection, optional
        Columns to take; by default all.
    style : Style, optional
        The format of a text, if known; otherwise it is detected.
    array : str, optional
        Which of several arrays of a .npz file.

    Returns
    -------
    Table
        Finite numbers, with at least one row.

    Raises
    ------
    ValueError
        Names the file and, if there is one, the line and the column, and says what is wrong.
    """
    path, selection = Path(path), selection or Selection()
    source = "standard input" if str(path) == "-" else str(path)
    kind = path.suffix.lower()
    if array is not None and kind != ".npz":
        raise ValueError(f"--array={array} goes with .npz files, and {source} is none.")
    if style is not None and kind in (*ARRAYS, *PARQUET, *ARROW):
        raise ValueError(f"--header and --delimiter go with text, and {source} is none.")
    try:
        if kind in ARRAYS:
            return _from_array(_load(path, source, array), source, selection)
        if kind in (*PARQUET, *ARROW):
            return _from_arrow(path, kind in PARQUET, source, selection)
        with _open_text(path) as stream:
            return delimited.parse(stream, source, selection, style or Style())
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise ValueError(f"{source} cannot be read: {reason(error)}.") from None
    except UnicodeDecodeError as error:
        raise ValueError(f"{source} is not text in UTF-8 (byte {error.start} of a part of it).") from None


@contextmanager
def _open_text(path: Path) -> Iterator[io.TextIOWrapper]:
    """Open a text for reading; standard input is not closed."""
    if str(path) == "-":
        text = io.TextIOWrapper(sys.stdin.buffer, encoding="utf-8-sig", newline="")
        try:
            yield text
        finally:
            text.detach()
        return
    with COMPRESSED.get(path.suffix.lower(), open)(path, "rt", encoding="utf-8-sig", newline="") as text:
        yield text


def _load(path: Path, source: str, name: str | None) -> np.ndarray:
    """The array in a .npy file, or one of the arrays in a .npz file."""
    try:
        if path.suffix.lower() == ".npy" or not zipfile.is_zipfile(path):
            return map_array(path)
        with path.open("rb") as file:
            arrays = np.load(file, allow_pickle=False)
            if name is None and len(arrays.files) != 1:
                raise ValueError(f"it holds the arrays {', '.join(arrays.files)}: choose one with --array.")
            if name is not None and name not in arrays.files:
                raise ValueError(f"it has no array {name!r}; it has {', '.join(arrays.files)}.")
            name = name or arrays.files[0]
            _check_size(arrays.zip, f"{name}.npy", path.stat().st_size)
            return arrays[name]
    except FileNotFoundError:
        raise
    except DAMAGE as error:
        raise ValueError(f"{source} does not hold a table of numbers: {reason(error)}.") from None


def map_array(path: Path) -> np.ndarray:
    """The array in a .npy file, mapped into memory. Arrays of objects are refused."""
    with path.open("rb") as file:
        major, _ = npy.read_magic(file)
        header = int.from_bytes(file.read(2 if major == 1 else 4), "little")
    if header > path.stat().st_size:  # reading it would allocate that much memory
        raise ValueError("its header is longer than the file")
    return npy.open_memmap(path, mode="r")


def _check_size(archive: zipfile.ZipFile, name: str, size: int) -> None:
    """Raise if an array claims an impossible size: reading it would allocate that much memory."""
    entry = archive.getinfo(name)
    if entry.file_size > RATIO * max(1, entry.compress_size) or entry.compress_size > size:
        raise ValueError("it claims to hold more than it can")
    with archive.open(entry) as file:
        read_header = {(1, 0): npy.read_array_header_1_0, (2, 0): npy.read_array_header_2_0}.get(npy.read_magic(file))
        if read_header is None:
            raise ValueError("it is of an unknown version")
        shape, _, dtype = read_header(file)
        data_size = entry.file_size - file.tell()
    if min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != data_size:
        raise ValueError("it does not hold what it claims to")


def _from_array(array: np.ndarray, source: str, selection: Selection) -> Table:
    if array.dtype.kind not in "fiub" or array.ndim != 2 or 0 in array.shape:
        raise ValueError(
            f"{source} holds an array of shape {array.shape} and dtype {array.dtype}; "
            "it must be (rows, columns), both >= 1, of real numbers."
        )
    names = numbered(array.shape[1])
    chosen, label = selection.of(names, source)
    values = array if chosen == list(range(len(names))) else array[:, chosen]
    _check_finite(values, [names[i] for i in chosen], source)
    ids = None if label is None else array[:, label].tolist()
    return Table(source, tuple(names[i] for i in chosen), False, values, None if label is None else names[label], ids)


def _from_arrow(path: Path, parquet: bool, source: str, selection: Selection) -> Table:
    try:
        import pyarrow
        from pyarrow import feather
        from pyarrow import parquet as parquets
    except ImportError:
        raise ValueError(f"{source} needs pyarrow to be read: pip install 'gputabu[arrow]'.") from None
    damage = (pyarrow.ArrowException, *DAMAGE)
    try:
        schema = parquets.read_schema(path) if parquet else feather.read_table(path, memory_map=True).schema
        names = tuple(schema.names)
    except damage as error:
        raise ValueError(f"{source} cannot be read: {reason(error)}.") from None
    chosen, label = selection.of(names, source)
    read_names = [names[i] for i in (*chosen, *([] if label is None else [label]))]
    try:
        table = (parquets if parquet else feather).read_table(path, columns=read_names)
        table.validate(full=True)  # a damaged file could point outside its buffers
    except damage as error:
        raise ValueError(f"{source} cannot be read: {reason(error)}.") from None
    columns = [_numbers(table[names[i]], names[i], source) for i in chosen]
    values = np.column_stack(columns)
    if 0 in values.shape:
        raise ValueError(f"{source} has no rows.")
    _check_finite(values, [names[i] for i in chosen], source)
    ids = None if label is None else table[names[label]].to_pylist()
    return Table(source, tuple(names[i] for i in chosen), True, values, None if label is None else names[label], ids)


def _numbers(column: Any, name: str, source: str) -> np.ndarray:
    """A column of an Arrow table."""
    import pyarrow.types as types

    kind = column.type
    if not any(is_kind(kind) for is_kind in (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)):
        raise ValueError(
            f"{source}, column {name!r} holds {kind} and not numbers; --columns chooses the columns to cluster, "
            "and --id one to keep beside the labels."
        )
    if column.null_count:
        row = column.is_null().to_pylist().index(True)
        raise ValueError(f"{source}, row {row}, column {name!r}: the value is missing; every row must have a number.")
    return column.cast("float64").to_numpy() if types.is_decimal(kind) else column.to_numpy()


def _check_finite(values: np.ndarray, names: list[str], source: str) -> None:
    """Raise for the first value that is not finite; rows count from 0."""
    if values.dtype.kind != "f":
        return
    for a in range(0, len(values), BLOCK):
        finite = np.isfinite(values[a : a + BLOCK])
        if not finite.all():
            row, column = (int(i) for i in np.argwhere(~finite)[0])
            value = values[a + row, column]
            raise ValueError(
                f"{source}, row {a + row}, column {names[column]!r}: {value} is no finite number; "
                "every row must have one there."
            )
