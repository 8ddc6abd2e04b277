"""Archives: arrays in NumPy's format and everything else as JSON, in one file that cannot hold code.

An archive is a .npz file: a head in JSON, and one .npy file per array, none of them compressed. The reader does not
trust the sizes that a file claims, so it never takes more memory than the file is long.
"""

from __future__ import annotations

import io
import json
import math
import os
import struct
import zipfile
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy

from gputabu.core.atomic_files import replacing
from gputabu.core.results import Stop, Trace

#: What readers raise on a damaged or foreign archive.
DAMAGE = (
    zipfile.BadZipFile,
    struct.error,
    OSError,
    EOFError,
    ValueError,
    TypeError,
    KeyError,
    AttributeError,
    NotImplementedError,
    RuntimeError,
    OverflowError,
)


class Refused(Exception):
    """The file is intact, but cannot be used. The message continues a sentence that begins with the file's name."""


class Unstorable(Exception):
    """A value that a file cannot hold."""


class Writer:
    """Turns values into JSON, and collects the arrays."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}

    def plain(self, value: Any, name: str) -> Any:
        """`value` as JSON. What JSON does not know becomes an object with one key, its kind."""
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, np.generic):
            return self.plain(value.item(), name)
        if isinstance(value, Stop):
            return {"stop": value.name}
        if isinstance(value, Trace):
            parts = {part.name: getattr(value, part.name) for part in fields(Trace)}
            return {"trace": {part: self.plain(array, f"{name}.{part}") for part, array in parts.items()}}
        if isinstance(value, dict):
            return {"dict": {key: self.plain(item, f"{name}.{key}") for key, item in value.items()}}
        if isinstance(value, (list, tuple)):
            items = [self.plain(item, f"{name}.{i}") for i, item in enumerate(value)]
            return {"tuple": items} if type(value) is tuple else items  # those with names are what they are unpacked to
        return self._array(value, name)

    def numpy(self, array: Any) -> np.ndarray:
        return np.asarray(array)

    def _array(self, value: Any, name: str) -> dict[str, Any]:
        if not hasattr(value, "shape"):
            raise Unstorable
        array = self.numpy(value)
        if array.dtype.kind in "OU" and all(isinstance(item, str) for item in array.flat):
            return {"names": array.tolist()}
        if array.dtype.kind not in "fiub":
            raise Unstorable
        self.arrays[name] = array
        return {"array": name}

    def save(self, path: Path, name: str, head: dict[str, Any]) -> None:
        """Write the head, under this name, and all arrays: completely or not at all, even if the power fails."""
        with replacing(path) as temporary:
            with zipfile.ZipFile(temporary, "w") as archive:
                archive.writestr(zipfile.ZipInfo(name), json.dumps(head, indent=1))
                for key, array in self.arrays.items():  # dated 1980: equal contents give equal files
                    with archive.open(zipfile.ZipInfo(f"{key}.npy"), "w", force_zip64=True) as file:
                        npy.write_array(file, array, version=(1, 0), allow_pickle=False)
            with temporary.open("rb+") as file:
                os.fsync(file.fileno())


class Reader:
    """Turns what a `Writer` wrote back into values, and trusts none of it."""

    def __init__(self, file: io.BufferedReader, size: int) -> None:
        self.archive = zipfile.ZipFile(file)
        entries = self.archive.infolist()
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
            raise ValueError("it is compressed")
        if sum(max(entry.file_size, entry.compress_size) for entry in entries) > size:
            raise ValueError("it claims to hold more than it is long")

    def head(self, name: str, version: int) -> dict[str, Any]:
        """The head of this name; its format must be of this version or an earlier one."""
        head = json.loads(self.archive.read(name))
        if head["version"] > version:
            newer = f"version {head['version']} of the format, and this one reads up to {version}"
            raise Refused(f"was saved by a newer gputabu ({newer}).")
        return head

    def value(self, plain: Any) -> Any:
        if isinstance(plain, list):
            return [self.value(item) for item in plain]
        if not isinstance(plain, dict):
            return plain
        ((kind, content),) = plain.items()
        if kind == "stop":
            return Stop[content]
        if kind == "trace":
            return Trace(**{part: self.value(array) for part, array in content.items()})
        if kind == "dict":
            return {key: self.value(item) for key, item in content.items()}
        if kind == "tuple":
            return tuple(self.value(item) for item in content)
        if kind == "names":
            return np.array(content, dtype=object)
        if kind == "array":
            return self._array(f"{content}.npy")
        raise ValueError(f"it holds a {kind!r}, which nobody knows")

    def _array(self, name: str) -> np.ndarray:
        content = io.BytesIO(self.archive.read(name))  # raises if the checksum is wrong
        if npy.read_magic(content) != (1, 0):
            raise ValueError(f"{name} has an unknown version")
        shape, _, dtype = npy.read_array_header_1_0(content)
        data_size = content.getbuffer().nbytes - content.tell()
        if dtype.kind not in "fiub" or min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != data_size:
            raise ValueError(f"{name} does not hold what it claims to")
        content.seek(0)
        return npy.read_array(content, allow_pickle=False)
