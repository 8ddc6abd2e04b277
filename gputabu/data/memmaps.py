"""Arrays that are mapped from files: labels, and what is too large for memory."""

from __future__ import annotations

import os
import tempfile
import weakref
from pathlib import Path
from typing import Any

import numpy as np

from gputabu.core.atomic_files import aside_of


def temporary(shape: tuple[int, ...], dtype: Any, value: float) -> np.ndarray:
    """An array filled with `value` in a file that is gone when the array is."""
    dtype = np.dtype(dtype)
    size = max(1, int(np.prod(shape)) * dtype.itemsize)
    with tempfile.TemporaryFile(prefix="gputabu-") as file:
        try:
            _reserve(file, size)
        except OSError as error:
            folder = tempfile.gettempdir()
            raise OSError(f"{size} bytes cannot be had in {folder}: {error.strerror}; TMPDIR names another.") from None
        array = np.asarray(np.memmap(file, dtype, "r+", shape=shape)) if 0 not in shape else np.empty(shape, dtype)
    if value:
        array[...] = value
    return array


class LabelsFile:
    """A new .npy file of N integers, under another name until it is complete, and gone if it never is."""

    def __init__(self, path: Path, n_samples: int) -> None:
        if path.exists() and not path.is_file():
            raise OSError("it is not a regular file")
        self.path = path.resolve()  # a link stays one
        aside = aside_of(self.path)
        self._discard = weakref.finalize(self, aside.unlink, missing_ok=True)
        try:
            self.array = np.lib.format.open_memmap(aside, "w+", np.int32, (n_samples,))
            with aside.open("r+b") as file:
                _reserve(file, aside.stat().st_size)
        except OSError:
            self._discard()
            raise
        self.aside = aside

    def complete(self, labels: Any) -> np.ndarray:
        """Write the labels, and give the file its name."""
        self.array[...] = labels
        self.array.flush()
        self.aside.replace(self.path)
        self._discard.detach()
        return np.load(self.path, mmap_mode="r+")


def labels_file(labels_out: object, n_samples: int) -> np.ndarray | LabelsFile | None:
    """Where N labels are to be written to: the array given, or a new .npy file of that name, with room for them."""
    if labels_out is None:
        return None
    if isinstance(labels_out, np.ndarray):
        shape, dtype, writeable = labels_out.shape, labels_out.dtype, labels_out.flags.writeable
        if shape != (n_samples,) or dtype not in (np.int32, np.int64) or not writeable:
            allowed = f"a writeable array of {n_samples} int32 or int64"
            raise ValueError(f"labels_out has shape {shape} and dtype {dtype}; it must be {allowed}.")
        return labels_out
    if not isinstance(labels_out, str | os.PathLike) or Path(labels_out).suffix != ".npy":
        raise ValueError(f"labels_out={labels_out!r} must be an array, or a path that ends in .npy.")
    try:
        return LabelsFile(Path(labels_out), n_samples)
    except OSError as error:
        raise ValueError(f"labels_out={str(labels_out)!r} cannot be written: {error.strerror or error}.") from None


def written(labels: Any, to: np.ndarray | LabelsFile | None) -> Any:
    """The labels, in `to` if that is somewhere."""
    if to is None:
        return labels
    if isinstance(to, LabelsFile):
        return to.complete(labels)
    to[...] = labels
    if isinstance(to, np.memmap):
        to.flush()
    return to


def _reserve(file: Any, size: int) -> None:
    """Give a file its size; where there is no room, it is better known now than when the map is written to."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size)
    else:
        file.truncate(size)
