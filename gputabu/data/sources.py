"""Points outside of memory: read a chunk at a time, and again for every pass.

A source has a fixed order of rows. A thread reads the next chunk while the current one is worked on; chunks are widened
one by one. All values are checked once, chunk by chunk, before any work (`checked`).
"""

from __future__ import annotations

import copy
import mmap
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from gputabu.core.atomic_files import reason
from gputabu.core.validation import check_finite, check_int, check_shape, check_unmasked, float_for, widen
from gputabu.data.files import DAMAGE, map_array

#: Default bytes of a chunk. A few chunks are in memory at a time: one read ahead, and one per working thread.
CHUNK_BYTES = 64 << 20
#: Up to so many rows of a chunk are read one by one; for more, the whole chunk is read.
FEW_ROWS = 8
#: Libraries whose arrays are read in slices.
SLICED = ("zarr", "h5py")
SUFFIXES = (".npy", ".parquet", ".zarr")

Item = TypeVar("Item")


class Source(ABC):
    """Points of R^d in a fixed order, read from row `first` up to row `last`."""

    def __init__(self, d: int, raw: Any, chunk_bytes: int, last: int | None) -> None:
        self.raw = np.dtype(raw)  # as they are stored
        if self.raw.kind not in "fiub":
            raise TypeError(f"X must be an array of real numbers: got dtype {self.raw}.")
        self.dtype = float_for(self.raw)  # as they are read
        self.d, self.first, self.last = d, 0, last
        self.total = last  # number of rows; None until all have been read once
        self.chunk_bytes = chunk_bytes
        self.chunk_rows = max(1, chunk_bytes // max(1, d * self.dtype.itemsize))

    @abstractmethod
    def read(self, first: int, last: int | None) -> Iterator[np.ndarray]:
        """The rows in their stored dtype, at most `chunk_rows` at a time."""

    @abstractmethod
    def pick(self, indices: np.ndarray) -> np.ndarray:
        """The rows with these numbers, which ascend."""

    @property
    def shape(self) -> tuple[int, int]:
        assert self.last is not None
        return self.last - self.first, self.d

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> Source:
        """A range of rows, without reading them."""
        start, stop, _ = rows.indices(len(self))
        part = copy.copy(self)
        part.first, part.last = self.first + start, self.first + stop
        return part

    def pieces(self) -> Iterator[np.ndarray]:
        """The rows in float32 or float64, chunk by chunk, read ahead."""
        return read_ahead(np.ascontiguousarray(piece, self.dtype) for piece in self.read(self.first, self.last))

    def rows(self, indices: np.ndarray) -> np.ndarray:
        """The rows with these numbers, float64: (...,) -> (..., d)."""
        distinct, inverse = np.unique(indices, return_inverse=True)
        if len(distinct) == 0:
            return np.empty((*indices.shape, self.d))
        values = np.asarray(self.pick(distinct + self.first), self.dtype).astype(np.float64)
        return values[inverse.reshape(indices.shape)]


class Sliced(Source):
    """An array from which rows can be read anywhere: a memory map, Zarr, HDF5."""

    def __init__(self, array: Any, chunk_bytes: int, path: Path | None = None) -> None:
        check_shape(array.shape)
        check_unmasked(array, "X")
        super().__init__(array.shape[1], array.dtype, chunk_bytes, array.shape[0])
        self.array, self.path = array, path
        self.map = getattr(array, "_mmap", None)  # of np.memmap
        self.stamp = self._stamp()

    def read(self, first: int, last: int | None) -> Iterator[np.ndarray]:
        assert last is not None
        for a in range(first, last, self.chunk_rows):
            self._check_unchanged()
            piece = self._slice(a, min(a + self.chunk_rows, last))
            if self.map is not None:
                _prefetch(self.map, piece)
            yield np.asarray(piece)

    def pick(self, indices: np.ndarray) -> np.ndarray:
        self._check_unchanged()
        if isinstance(self.array, np.ndarray):
            return self.array[indices]
        values = np.empty((len(indices), self.d), self.raw)
        chunk, size = indices // self.chunk_rows, self.chunk_rows
        for c in np.unique(chunk).tolist():
            inside = chunk == c
            rows = indices[inside]
            if len(rows) <= FEW_ROWS:
                values[inside] = np.concatenate([self._slice(i, i + 1) for i in rows.tolist()])
            else:
                values[inside] = np.asarray(self._slice(c * size, (c + 1) * size))[rows - c * size]
        return values

    def _slice(self, first: int, last: int) -> Any:
        try:
            return self.array[first:last]
        except DAMAGE as error:
            raise _unreadable(self.path, error) from None

    def _check_unchanged(self) -> None:
        if self._stamp() != self.stamp:  # reading past the end of a truncated map would kill the process
            raise ValueError(f"{self.path or 'The file of X'} was changed while it was being read.")

    def _stamp(self) -> tuple[int, int]:
        """Size and time of the last change of the file: they differ if it was changed."""
        size = 0 if self.map is None else self.map.size()
        return size, 0 if self.path is None or self.map is None else os.stat(self.path).st_mtime_ns


class Streamed(Source):
    """Chunks that a function yields, always from the beginning."""

    def __init__(self, make: Callable[[], Iterable[Any]], chunk_bytes: int) -> None:
        self.make = make
        chunk = next(map(np.asarray, make()), np.empty((0, 0)))
        check_shape((len(chunk) or 1, *chunk.shape[1:]) if chunk.ndim else ())
        super().__init__(chunk.shape[1], chunk.dtype, chunk_bytes, None)

    def read(self, first: int, last: int | None) -> Iterator[np.ndarray]:
        small: list[np.ndarray] = []  # small chunks are joined: every chunk has a cost of its own
        for piece in self._cut(first, last):
            if small and sum(map(len, small)) + len(piece) > self.chunk_rows:
                yield np.concatenate(small)
                small = []
            small.append(piece)
        if small:
            yield small[0] if len(small) == 1 else np.concatenate(small)

    def pick(self, indices: np.ndarray) -> np.ndarray:
        parts, start = [], 0
        for piece in self.read(0, int(indices[-1]) + 1):
            inside = indices[np.searchsorted(indices, start) : np.searchsorted(indices, start + len(piece))]
            parts.append(piece[inside - start])
            start += len(piece)
        return np.concatenate(parts)

    def _cut(self, first: int, last: int | None) -> Iterator[np.ndarray]:
        """Pieces of at most `chunk_rows` rows, from `first` up to `last`."""
        position = 0
        for number, chunk in enumerate(map(np.asarray, self.make())):
            if chunk.ndim != 2 or chunk.shape[1] != self.d or chunk.dtype != self.raw:
                raise ValueError(
                    f"Chunk {number} of X has shape {chunk.shape} and dtype {chunk.dtype}; all must be "
                    f"(n, {self.d}) of dtype {self.raw}, whenever X is read."
                )
            rows = chunk[max(first - position, 0) : None if last is None else max(last - position, 0)]
            position += len(chunk)
            for a in range(0, len(rows), self.chunk_rows):
                yield rows[a : a + self.chunk_rows]
            if last is not None and last != self.total and position >= last:
                return
        if self.total is not None and position != self.total:
            raise ValueError(f"X had {self.total} rows when it was first read, and {position} now; it must not change.")


def chunked(X: Any, *, chunk_bytes: int = CHUNK_BYTES, columns: Sequence[str] | None = None) -> Source:
    """Points that are read a chunk at a time. Pass them as `X` to any function of this package.

    Files are recognised without it: `fit("points.npy")` is `fit(chunked("points.npy"))`. Use it to choose the size of
    chunks, and for what is not recognised by itself: arrays in memory, and sequences of chunks.

    Parameters
    ----------
    X : path, array, dataset, function or iterable
        The path of a .npy file, a Parquet file (extra `arrow`) or a Zarr array (extra `zarr`); a `numpy.memmap`, a Zarr
        array, an HDF5 dataset of h5py; a `pyarrow.dataset.Dataset`; a function without arguments that returns an
        iterator over chunks (n, d), or an iterable that can be iterated repeatedly. Chunks must be the same every
        time, and have one dtype.
    chunk_bytes : int, default=64 MiB
        Bytes of a chunk in float32 or float64. A few chunks are in memory at a time: one per thread, one read ahead.
    columns : sequence of str, optional
        Columns of a Parquet file or dataset; by default all of them.

    Returns
    -------
    Source

    Notes
    -----
    Data of at most `chunk_bytes` is read into memory once. For larger data, arrays with a value per point (labels, and
    distances while seeding) are in temporary files, in the folder `tempfile.gettempdir()`. Every pass reads all of X.
    Functions and Parquet files have no random access: to look up a row they are read up to it, so a search reads them
    more often than the other kinds. A file must not be changed meanwhile.

    Examples
    --------
    >>> import numpy as np
    >>> from gputabu import KMeans, chunked
    >>> def chunks():
    ...     for start in range(0, 1000, 100):
    ...         yield np.sin(np.arange(start, start + 100.0))[:, None]
    >>> model = KMeans(2, random_state=0).fit(chunked(chunks, chunk_bytes=1600))
    >>> model.labels_.shape
    (1000,)
    """
    check_int("chunk_bytes", chunk_bytes, 1)
    if columns is not None and not (is_dataset(X) or (is_path(X) and Path(X).suffix == ".parquet")):
        raise ValueError(f"columns={columns!r} can be chosen of Parquet files and datasets only.")
    if isinstance(X, Source):
        raise TypeError("X is chunked already.")
    if is_path(X):
        return _open_path(Path(X), chunk_bytes, columns)
    if is_dataset(X):
        return Streamed(_batches(X, chunk_bytes, columns), chunk_bytes)
    if isinstance(X, np.ndarray) or _library(X) in SLICED:
        return Sliced(X, chunk_bytes)
    if callable(X):
        return Streamed(X, chunk_bytes)
    if isinstance(X, Iterator):
        raise TypeError("X is an iterator, which can be read only once; pass a function that returns it.")
    if isinstance(X, Iterable):
        return Streamed(lambda: X, chunk_bytes)
    raise TypeError(f"X of type {type(X).__name__} cannot be read in chunks.")


def is_source(X: object) -> bool:
    """Whether `X` is read in chunks without `chunked`. This imports nothing."""
    recognised = isinstance(X, Source | np.memmap) or is_path(X) or is_dataset(X) or _library(X) in SLICED
    return recognised or (callable(X) and not hasattr(X, "__array__"))


def is_path(X: object) -> bool:
    return isinstance(X, str | os.PathLike)


def is_dataset(X: object) -> bool:
    return _library(X) == "pyarrow" and hasattr(X, "count_rows")


def checked(X: Any) -> Source | np.ndarray:
    """Read a source once to check its values, dtype and length. A small one is returned as an array in memory."""
    source = X if isinstance(X, Source) else chunked(X)
    pieces: list[np.ndarray] | None = []
    n = source.first
    for raw in read_ahead(source.read(source.first, source.last)):
        piece = raw if raw.dtype == source.dtype else widen(raw, source.dtype, "X")
        check_finite(piece, "X", n)
        n += len(piece)
        if pieces is not None:
            pieces = [*pieces, piece] if n - source.first <= source.chunk_rows else None
    check_shape((n - source.first, source.d))
    if source.last is None:
        source.last = source.total = n
    return source if pieces is None else np.concatenate(pieces)


def read_ahead(items: Iterator[Item]) -> Iterator[Item]:
    """The items. A thread makes the next one while the current one is in use."""
    with ThreadPoolExecutor(1, "gputabu-read") as reader:
        following = reader.submit(next, items, None)
        while (item := following.result()) is not None:
            following = reader.submit(next, items, None)
            yield item


def _open_path(path: Path, chunk_bytes: int, columns: Sequence[str] | None) -> Source:
    """The source in a file or folder."""
    if path.suffix not in SUFFIXES:
        raise ValueError(f"X='{path}' must be an array or a file whose name ends in {', '.join(SUFFIXES)}.")
    try:
        if path.suffix == ".npy":
            return Sliced(_open(map_array, path), chunk_bytes, path)
        if not path.exists():
            raise FileNotFoundError(2, "No such file or directory")
        if path.suffix == ".zarr":
            import zarr

            return Sliced(_open(zarr.open_array, path, mode="r"), chunk_bytes, path)
        from pyarrow.dataset import dataset

        return Streamed(_batches(_open(dataset, path), chunk_bytes, columns, path), chunk_bytes)
    except OSError as error:
        raise _unreadable(path, error) from None
    except TypeError as error:  # its values are not numbers
        raise ValueError(f"X='{path}'{str(error).removeprefix('X')}") from None
    except ImportError as error:
        extra = "zarr" if path.suffix == ".zarr" else "arrow"
        raise ImportError(f"X='{path}' needs {error.name} (pip install 'gputabu[{extra}]').") from None


def _open(open: Callable[..., Any], path: Path, **options: Any) -> Any:
    """Open a file with a library; if that fails, raise an error that names the file."""
    try:
        return open(path, **options)
    except ImportError:
        raise
    except Exception as error:  # on damaged files libraries may raise anything
        raise _unreadable(path, error) from None


def _unreadable(path: Path | None, error: BaseException) -> ValueError:
    return ValueError(f"X{'' if path is None else f'={str(path)!r}'} cannot be read: {reason(error)}.")


def _batches(
    dataset: Any, chunk_bytes: int, columns: Sequence[str] | None, path: Path | None = None
) -> Callable[[], Iterator[np.ndarray]]:
    """A function that yields the rows of an Arrow dataset; null is NaN."""
    from pyarrow import ArrowException

    damage = (ArrowException, *DAMAGE)
    names = list(dataset.schema.names if columns is None else columns)
    try:
        types = [np.dtype(dataset.schema.field(name).type.to_pandas_dtype()) for name in names]
        dtype = np.result_type(*(float_for(kind) if kind.kind in "fiub" else kind for kind in types))
    except damage as error:
        raise _unreadable(path, error) from None
    rows = max(1, chunk_bytes // (dtype.itemsize * len(names)))

    def batches() -> Iterator[Any]:
        yield dataset.schema.empty_table().select(names)  # at least one batch, even if there are no rows
        try:
            yield from dataset.to_batches(columns=names, batch_size=rows, batch_readahead=1, fragment_readahead=1)
        except damage as error:
            raise _unreadable(path, error) from None

    def read() -> Iterator[np.ndarray]:
        for batch in batches():
            table = np.empty((batch.num_rows, len(names)), dtype)
            for j, column in enumerate(batch.columns):
                values = column.to_numpy(zero_copy_only=False) if batch.num_rows else np.empty(0)
                table[:, j] = widen(values, dtype, f"Column {names[j]!r} of X") if values.dtype.kind in "iu" else values
            yield table

    return read


def _prefetch(file: mmap.mmap, piece: np.ndarray) -> None:
    """Ask the operating system to read the pages of `piece` in the background."""
    if not hasattr(file, "madvise"):
        return
    start = piece.ctypes.data - np.frombuffer(file, np.uint8).ctypes.data
    begin = start // mmap.PAGESIZE * mmap.PAGESIZE
    file.madvise(mmap.MADV_WILLNEED, begin, min(start + piece.nbytes, len(file)) - begin)


def _library(X: object) -> str:
    return type(X).__module__.split(".")[0]
