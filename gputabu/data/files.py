"""Tables in files: text, NumPy's .npy and .npz, Parquet and Arrow."""

from __future__ import annotations

import bz2
import codecs
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
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from gputabu.core.atomic_files import reason
from gputabu.core.validation import check_choice
from gputabu.data import arrow_text, delimited, hints
from gputabu.data.delimited import NotANumber, Style
from gputabu.data.missing import WAYS, checked
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
    path: str | Path,
    selection: Selection | None = None,
    style: Style | None = None,
    array: str | None = None,
    missing: str = "error",
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
    missing : {"error", "drop", "mean", "median"}
        What becomes of missing values. "drop" leaves rows out; the last two leave NaN, to be filled in.

    Returns
    -------
    Table
        Numbers, finite but for those that are missing, with at least one row.

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
    style = style or Style()
    if (style.delimiter is not None or style.header is not None) and not is_text(path):
        raise ValueError(f"--header and --delimiter go with text, and {source} is none.")
    try:
        if kind in ARRAYS:
            table = _from_array(_load(path, source, array), source, selection)
        elif kind in (*PARQUET, *ARROW):
            table = _from_arrow(path, kind in PARQUET, source, selection)
        else:
            table = _from_text(path, source, selection, style)
    except (OSError, EOFError, zlib.error, lzma.LZMAError) as error:
        raise ValueError(f"{source} cannot be read: {reason(error)}.") from None
    return checked(table, check_choice("missing", missing, WAYS))


def is_text(path: str | Path) -> bool:
    """Whether the name of a file is that of a text."""
    return Path(path).suffix.lower() not in (*ARRAYS, *PARQUET, *ARROW)


def _from_text(path: Path, source: str, selection: Selection, style: Style) -> Table:
    try:
        if source == str(path) and path.suffix.lower() not in COMPRESSED:
            fast = arrow_text.parse(path, partial(_open_text, path, style.encoding), selection, style)
            if fast is not None:
                return fast
        with _open_text(path, style.encoding) as stream:
            return delimited.parse(stream, source, selection, style)
    except UnicodeError as error:
        tried, begin = style.encoding or "utf-8", _beginning(path)
        guess = _encoding(begin, error.object if isinstance(error, UnicodeDecodeError) else b"")
        guess = "" if guess == tried.lower() else guess
        said = "--encoding names another one." if not guess else f"It may be in {guess}: --encoding {guess}."
        if guess and (advice := _advice(hints.options(begin, style, selection, guess))):
            said = f"It may be in {guess}.{advice}"
        raise ValueError(f"{source} is not text in {tried}. {said}") from None
    except NotANumber as error:
        raise ValueError(f"{error}{_advice(hints.options(_beginning(path), style, selection))}") from None


def _advice(options: str) -> str:
    return f" Options that read its first rows: {options}" if options else ""


def _encoding(begin: bytes, around: bytes) -> str:
    """What a text may be encoded in, by its first bytes and by those around one that is wrong."""
    if begin.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return "utf-16"
    if b"\0" in begin[:1024]:
        return "utf-16-le"
    # All bytes are something in Latin-1; those that are no letters there are letters in Windows' extension of it.
    return "cp1252" if any(0x80 <= byte < 0xA0 for byte in around + begin) else "latin-1"


def _beginning(path: Path) -> bytes:
    """The first bytes of a text; nothing of standard input, which cannot be read again."""
    if str(path) == "-":
        return b""
    with COMPRESSED.get(path.suffix.lower(), open)(path, "rb") as file:
        return file.read(hints.BEGINNING)


@contextmanager
def _open_text(path: Path, encoding: str | None) -> Iterator[io.TextIOWrapper]:
    """Open a text for reading; standard input is not closed."""
    encoding = encoding or "utf-8-sig"
    if str(path) == "-":
        text = io.TextIOWrapper(sys.stdin.buffer, encoding=encoding, newline="")
        try:
            yield text
        finally:
            text.detach()
        return
    with COMPRESSED.get(path.suffix.lower(), open)(path, "rt", encoding=encoding, newline="") as text:
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
    gap = _first_gap(values, [names[i] for i in chosen], source)
    ids = None if label is None else array[:, label].tolist()
    id = None if label is None else names[label]
    return Table(source, tuple(names[i] for i in chosen), False, values, id, ids, gap)


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
    gap = _first_gap(values, [names[i] for i in chosen], source)
    ids = None if label is None else table[names[label]].to_pylist()
    return Table(
        source, tuple(names[i] for i in chosen), True, values, None if label is None else names[label], ids, gap
    )


def _numbers(column: Any, name: str, source: str) -> np.ndarray:
    """A column of an Arrow table."""
    import pyarrow.types as types

    kind = column.type
    if not any(is_kind(kind) for is_kind in (types.is_integer, types.is_floating, types.is_boolean, types.is_decimal)):
        raise ValueError(
            f"{source}, column {name!r} holds {kind} and not numbers; --columns chooses the columns to cluster, "
            "and --id one to keep beside the labels."
        )
    wide = types.is_decimal(kind) or (column.null_count and types.is_boolean(kind))
    return column.cast("float64").to_numpy() if wide else column.to_numpy()  # null is NaN


def _first_gap(values: np.ndarray, names: list[str], source: str) -> str | None:
    """Where the first value is missing; raise for the first that is infinite. Rows count from 0."""
    gap = None
    for a in range(0, len(values) if values.dtype.kind == "f" else 0, BLOCK):
        block = values[a : a + BLOCK]
        for kind, odd in (("missing", np.isnan(block)), ("infinite", np.isinf(block))):
            if not odd.any() or (kind == "missing" and gap):
                continue
            row, column = np.unravel_index(int(odd.argmax()), odd.shape)
            where = f"{source}, row {a + row}, column {names[column]!r}"
            if kind == "infinite":
                raise ValueError(f"{where}: {block[row, column]} is no finite number; every row must have one there.")
            gap = where
    return gap
