"""Memory-mapped arrays: labels, and arrays too large for memory."""

from __future__ import annotations

import os
import tempfile
import weakref
from pathlib import Path
from typing import Any

import numpy as np

from gputabu.core.atomic_files import temporary_name


def temporary(shape: tuple[int, ...], dtype: Any, value: float) -> np.ndarray:
    """An array filled with `value`, in a temporary file that is deleted with the array."""
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
    """A new .npy file of N integers. It has a temporary name until it is complete, and is deleted if it never is."""

    def __init__(self, path: Path, n_samples: int) -> None:
        if path.exists() and not path.is_file():
            raise OSError("it is not a regular file")
        self.path = path.resolve()  # a symbolic link is kept
        temporary = temporary_name(self.path)
        self._discard = weakref.finalize(self, temporary.unlink, missing_ok=True)
        try:
            self.array = np.lib.format.open_memmap(temporary, "w+", np.int32, (n_samples,))
            with temporary.open("r+b") as file:
                _reserve(file, temporary.stat().st_size)
        except OSError:
            self._discard()
            raise
        self.temporary = temporary

    def complete(self, labels: Any) -> np.ndarray:
        """Write the labels and give the file its final name."""
        self.array[...] = labels
        self.array.flush()
        self.temporary.replace(self.path)
        self._discard.detach()
        return np.load(self.path, mmap_mode="r+")


def labels_file(labels_out: object, n_samples: int) -> np.ndarray | LabelsFile | None:
    """Where to write N labels: the array `labels_out`, or a new .npy file of that name with space for them."""
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
    """Write the labels to `to` and return it; if it is None, return the labels."""
    if to is None:
        return labels
    if isinstance(to, LabelsFile):
        return to.complete(labels)
    to[...] = labels
    if isinstance(to, np.memmap):
        to.flush()
    return to


def _reserve(file: Any, size: int) -> None:
    """Allocate the space of a file: a full disk is an error now, and not a crash when the map is written."""
    if hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file.fileno(), 0, size)
    else:
        file.truncate(size)
