"""Models in files: arrays as NumPy writes them and the rest as JSON, in one archive that cannot hold code.

The archive is a .npz file: `model.json`, and one .npy file per array, none of them compressed. Reading trusts
nothing that it says about sizes, so that it takes no more memory than the file is long, whoever wrote it.
"""

from __future__ import annotations

import io
import json
import math
import os
import struct
import warnings
import zipfile
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from sklearn.utils.validation import check_is_fitted

from gputabu.backend import BackendUnavailable, resolve, to_numpy
from gputabu.files import reason, replacing
from gputabu.results import Stop, Trace
from gputabu.validation import check_labels

#: Version of the format. Readers know all up to their own.
VERSION = 1
#: The file in the archive that says what the others are.
HEAD = "model.json"
#: What a damaged or foreign archive makes its readers raise.
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


class Storable:
    """A scikit-learn estimator with centres that can be saved."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to a file, from which `gputabu.load` reads it.

        The file holds numbers and text, no code, and may be read where there is no GPU. It is a .npz archive whatever
        its name. It is written whole or not at all.

        Parameters
        ----------
        path : str or path
            The file, which is replaced where there is one; nothing is appended to its name.

        Warns
        -----
        UserWarning
            A parameter is neither text, numbers nor an array, such as a RandomState or a function. The loaded model has
            its default instead.

        Notes
        -----
        Arrays on a GPU, tensors, and labels with the index of a data frame are stored as plain arrays.

        Examples
        --------
        >>> import gputabu, os, tempfile
        >>> model = gputabu.KMeans(2, random_state=0).fit([[0.0], [1.0], [10.0], [11.0]])
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     model.save(os.path.join(folder, "model.npz"))
        ...     again = gputabu.load(os.path.join(folder, "model.npz"))
        >>> again
        KMeans(n_clusters=2, random_state=0)
        >>> (again.predict([[2.0], [9.0]]) == model.predict([[2.0], [9.0]])).all()
        np.True_
        """
        check_is_fitted(self)
        name = type(self).__name__
        if kinds().get(name) is not type(self):
            raise TypeError(f"this {name} cannot be saved: the name stands for {kinds()[name].__module__}.{name}.")
        writer = _Writer()
        head = {
            "version": VERSION,
            "estimator": name,
            "parameters": writer.parameters(self),
            "fitted": writer.fitted(self),
            "output": getattr(self, "_sklearn_output_config", {}),
        }
        with replacing(Path(path)) as aside, zipfile.ZipFile(aside, "w") as archive:
            archive.writestr(zipfile.ZipInfo(HEAD), json.dumps(head, indent=1))
            for name, array in writer.arrays.items():  # as of 1980, so that equal models are equal files
                with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as file:
                    npy.write_array(file, array, version=(1, 0), allow_pickle=False)


def load(path: str | os.PathLike[str]) -> Any:
    """Read a model that its method `save` wrote.

    Parameters
    ----------
    path : str or path

    Returns
    -------
    model : KMeans, TabuKMeans, TabuSearchClustering, or your own class derived from one of them
        Fitted, with NumPy arrays; its predictions are those of the model that was saved, bit for bit.

    Raises
    ------
    OSError
        There is no such file, or it may not be read.
    ValueError
        The file is not a model, is damaged, or is from a newer version. Nothing in it is ever executed.

    Warns
    -----
    RuntimeWarning
        The model asks for a backend that cannot run here. It now has backend="auto".
    """
    path = Path(path)
    with path.open("rb") as file:
        try:
            model = _model(_Reader(file, path.stat().st_size))
        except _Refused as error:
            raise ValueError(f"{path} {error}") from None
        except DAMAGE as error:
            raise ValueError(f"{path} is not a model saved by gputabu, or is damaged: {reason(error)}.") from error
    try:
        resolve(model.backend)
    except BackendUnavailable as error:
        warnings.warn(f"{error} The model read from {path} has backend='auto' instead.", RuntimeWarning, stacklevel=2)
        model.set_params(backend="auto", device=None)
    return model


def kinds() -> dict[str, type[Any]]:
    """The classes that a file may name, by name: those of this package, and what was derived from them."""
    found: dict[str, type[Any]] = {}
    for kind in _below(Storable):
        if not kind.__name__.startswith("_"):
            found.setdefault(kind.__name__, kind)
    return found


def _below(kind: type[Any]) -> Iterator[type[Any]]:
    for child in kind.__subclasses__():
        yield child
        yield from _below(child)


class _Refused(Exception):
    """A file that is sound, but not for us; the message goes on from the name of the file."""


class _Unstorable(Exception):
    """A value that a file cannot hold."""


class _Writer:
    """Turns values into JSON, and puts arrays aside."""

    def __init__(self) -> None:
        self.arrays: dict[str, np.ndarray] = {}

    def parameters(self, model: Any) -> dict[str, Any]:
        plain = {}
        for name, value in model.get_params(deep=False).items():
            try:
                plain[name] = self.plain(value, name)
            except _Unstorable:
                warnings.warn(
                    f"{name}={value!r} cannot be kept in a file; the model will be read with the default of {name}.",
                    UserWarning,
                    stacklevel=3,
                )
        return plain

    def fitted(self, model: Any) -> dict[str, Any]:
        """All that `fit` has left: by scikit-learn's rule, names that end with an underscore."""
        names = [name for name in vars(model) if name.endswith("_") and not name.startswith("_")]
        return {name: self.plain(getattr(model, name), name) for name in names}

    def plain(self, value: Any, name: str) -> Any:
        """`value` as JSON; what JSON does not know is an object with one key, which says what it is."""
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, np.generic):
            return self.plain(value.item(), name)
        if isinstance(value, Stop):
            return {"stop": value.name}
        if isinstance(value, Trace):
            parts = {part.name: getattr(value, part.name) for part in fields(Trace)}
            return {"trace": {part: self.plain(array, f"{name}.{part}") for part, array in parts.items()}}
        if isinstance(value, (list, tuple)):
            return [self.plain(item, f"{name}.{i}") for i, item in enumerate(value)]
        return self._array(value, name)

    def _array(self, value: Any, name: str) -> dict[str, Any]:
        if not hasattr(value, "shape"):
            raise _Unstorable
        array = to_numpy(value)
        if array.dtype.kind in "OU" and all(isinstance(item, str) for item in array.flat):
            return {"names": array.tolist()}
        if array.dtype.kind not in "fiub":
            raise _Unstorable
        self.arrays[name] = array
        return {"array": name}


class _Reader:
    """Turns what a `_Writer` wrote into values again, and trusts none of it."""

    def __init__(self, file: io.BufferedReader, size: int) -> None:
        self.archive = zipfile.ZipFile(file)
        entries = self.archive.infolist()
        if any(entry.compress_type != zipfile.ZIP_STORED for entry in entries):
            raise ValueError("it is compressed")
        if sum(entry.file_size for entry in entries) > size:
            raise ValueError("it claims to hold more than it is long")

    def head(self) -> dict[str, Any]:
        head = json.loads(self.archive.read(HEAD))
        if head["version"] > VERSION:
            newer = f"version {head['version']} of the format, and this one reads up to {VERSION}"
            raise _Refused(f"was saved by a newer gputabu ({newer}).")
        return head

    def value(self, plain: Any) -> Any:
        if isinstance(plain, list):
            return [self.value(item) for item in plain]
        if not isinstance(plain, dict):
            return plain
        ((what, inside),) = plain.items()
        if what == "stop":
            return Stop[inside]
        if what == "trace":
            return Trace(**{part: self.value(array) for part, array in inside.items()})
        if what == "names":
            return np.array(inside, dtype=object)
        if what == "array":
            return self._array(f"{inside}.npy")
        raise ValueError(f"it holds a {what!r}, which nobody knows")

    def _array(self, name: str) -> np.ndarray:
        content = io.BytesIO(self.archive.read(name))  # the checksum is right, or this has raised
        if npy.read_magic(content) != (1, 0):
            raise ValueError(f"{name} has an unknown version")
        shape, _, dtype = npy.read_array_header_1_0(content)
        rest = content.getbuffer().nbytes - content.tell()
        if dtype.kind not in "fiub" or min(shape, default=0) < 0 or math.prod(shape) * dtype.itemsize != rest:
            raise ValueError(f"{name} does not hold what it claims to")
        content.seek(0)
        return npy.read_array(content, allow_pickle=False)


def _model(reader: _Reader) -> Any:
    head = reader.head()
    name, known = head["estimator"], kinds()
    if name not in known:
        raise _Refused(f"holds a {name!r}, which is none of {', '.join(known)}; import the module that defines it.")
    parameters = {key: reader.value(plain) for key, plain in head["parameters"].items()}
    for key in sorted(parameters.keys() - known[name]().get_params().keys()):
        raise _Refused(f"has a parameter {key!r} that {name} does not know; it is from another version of gputabu.")
    model = known[name](**parameters)
    for key, plain in head["fitted"].items():
        if not key.endswith("_") or key.startswith("_"):
            raise ValueError(f"{key!r} is not the name of a fitted attribute")
        setattr(model, key, reader.value(plain))
    for key, value in head["output"].items():
        model.set_output(**{key: value})
    _check(model)
    return model


def _check(model: Any) -> None:
    """Raise where what was fitted does not go together."""
    k, d = model.cluster_centers_.shape
    if model.cluster_centers_.dtype not in (np.float32, np.float64) or not np.isfinite(model.cluster_centers_).all():
        raise ValueError("its centres are not finite numbers")
    if model.n_features_in_ != d or len(getattr(model, "feature_names_in_", range(d))) != d:
        raise ValueError("it has centres of other features than it names")
    if hasattr(model, "labels_"):  # which stay with Dask's workers
        check_labels("labels_", model.labels_, len(model.labels_), k)
    if not (isinstance(model.stop_, Stop) and isinstance(model.trace_, Trace)):
        raise ValueError("it does not say how the search went")
