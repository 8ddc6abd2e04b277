"""Models in files: parameters and fitted attributes in an archive (`gputabu.core.archive`)."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from inspect import isabstract
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from gputabu.backend import BackendUnavailable, resolve, to_numpy
from gputabu.core.archive import DAMAGE, Reader, Refused, Unstorable, Writer
from gputabu.core.atomic_files import reason
from gputabu.core.results import Stop, Trace
from gputabu.core.validation import check_labels

#: Version of the format. A reader knows all versions up to its own.
VERSION = 1
#: The file in the archive that describes the others.
HEAD = "model.json"


class Storable:
    """Mixin: a scikit-learn estimator with centres that can be saved."""

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to a file that `gputabu.load` reads.

        The file holds numbers and text, but no code, and can be read without a GPU. It is a .npz archive whatever its
        name. It is written atomically.

        Parameters
        ----------
        path : str or path
            The file, which is replaced if it exists. Nothing is appended to its name.

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
        if storable_classes().get(name) is not type(self):
            raise TypeError(
                f"this {name} cannot be saved: the name stands for {storable_classes()[name].__module__}.{name}."
            )
        writer = _Writer()
        head = {
            "version": VERSION,
            "estimator": name,
            "parameters": writer.parameters(self),
            "fitted": writer.fitted(self),
            "output": getattr(self, "_sklearn_output_config", {}),
        }
        writer.save(Path(path), HEAD, head)


def load(path: str | os.PathLike[str]) -> Any:
    """Read a model that was written by its method `save`.

    Parameters
    ----------
    path : str or path

    Returns
    -------
    model : an estimator of gputabu, such as TabuKMeans, or of a class derived from one of them
        Fitted, with NumPy arrays. Its predictions equal those of the saved model, bit for bit.

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
            model = _model(Reader(file, path.stat().st_size))
        except Refused as error:
            raise ValueError(f"{path} {error}") from None
        except DAMAGE as error:
            raise ValueError(f"{path} is not a model saved by gputabu, or is damaged: {reason(error)}.") from error
    try:
        resolve(model.backend)
    except BackendUnavailable as error:
        warnings.warn(f"{error} The model read from {path} has backend='auto' instead.", RuntimeWarning, stacklevel=2)
        model.set_params(backend="auto", device=None)
    return model


def storable_classes() -> dict[str, type[Any]]:
    """The classes that a file may name: those of this package and classes derived from them."""
    classes: dict[str, type[Any]] = {}
    for cls in _subclasses(Storable):
        if not (isabstract(cls) or cls.__name__.startswith("_")):
            classes.setdefault(cls.__name__, cls)
    return classes


def _subclasses(cls: type[Any]) -> Iterator[type[Any]]:
    for child in cls.__subclasses__():
        yield child
        yield from _subclasses(child)


class _Writer(Writer):
    """Turns a model into JSON and arrays."""

    def parameters(self, model: Any) -> dict[str, Any]:
        plain = {}
        for name, value in model.get_params(deep=False).items():
            try:
                plain[name] = self.plain(value, name)
            except Unstorable:
                warnings.warn(
                    f"{name}={value!r} cannot be kept in a file; the model will be read with the default of {name}.",
                    UserWarning,
                    stacklevel=3,
                )
        return plain

    def fitted(self, model: Any) -> dict[str, Any]:
        """All fitted attributes: by scikit-learn's rule, names that end with an underscore."""
        names = [name for name in vars(model) if name.endswith("_") and not name.startswith("_")]
        return {name: self.plain(getattr(model, name), name) for name in names}

    def numpy(self, array: Any) -> np.ndarray:
        return to_numpy(array)


def _model(reader: Reader) -> Any:
    head = reader.head(HEAD, VERSION)
    name, classes = head["estimator"], storable_classes()
    if name not in classes:
        raise Refused(f"holds a {name!r}, which is none of {', '.join(classes)}; import the module that defines it.")
    parameters = {key: reader.value(plain) for key, plain in head["parameters"].items()}
    name, parameters = _upgraded(name, parameters)
    for key in sorted(parameters.keys() - classes[name]().get_params().keys()):
        raise Refused(f"has a parameter {key!r} that {name} does not know; it is from another version of gputabu.")
    model = classes[name](**parameters)
    for key, plain in head["fitted"].items():
        if not key.endswith("_") or key.startswith("_"):
            raise ValueError(f"{key!r} is not the name of a fitted attribute")
        setattr(model, key, reader.value(plain))
    for key, value in head["output"].items():
        model.set_output(**{key: value})
    _check(model)
    return model


def _upgraded(name: str, parameters: dict[str, Any]) -> tuple[str, dict[str, Any]]:
    """The current name and parameters. Until 0.1, TabuKMeans was both searches, distinguished by a parameter."""
    if "neighbourhood" not in parameters:
        return name, parameters
    relocation = parameters["neighbourhood"] == "relocation"
    removed = {"neighbourhood", *(("scope", "n_neighbors") if relocation else ())}
    current = {key: value for key, value in parameters.items() if key not in removed}
    if current.get("patience", 0) is None:  # it meant a quarter of max_iter
        current["patience"] = max(1, current["max_iter"] // 4)
    if relocation:
        return name, current
    return "QuantizedTabuKMeans" if name == "TabuKMeans" else name, current


def _check(model: Any) -> None:
    """Raise if the fitted attributes do not fit together."""
    k, d = model.cluster_centers_.shape
    if model.cluster_centers_.dtype not in (np.float32, np.float64) or not np.isfinite(model.cluster_centers_).all():
        raise ValueError("its centres are not finite numbers")
    if model.n_features_in_ != d or len(getattr(model, "feature_names_in_", range(d))) != d:
        raise ValueError("it has centres of other features than it names")
    if hasattr(model, "labels_"):  # with Dask, labels stay on the workers
        check_labels("labels_", model.labels_, len(model.labels_), k)
    if not (isinstance(model.stop_, Stop) and isinstance(model.trace_, Trace)):
        raise ValueError("it does not say how the search went")
