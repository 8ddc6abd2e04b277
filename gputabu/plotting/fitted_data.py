"""The data to draw: points, and what a model was fitted to say about them, on the host."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from gputabu.backend import as_points, open_backend, to_numpy
from gputabu.core.results import Clustering, Trace
from gputabu.core.validation import check_weights
from gputabu.data.points import Points


@dataclass(frozen=True, slots=True)
class FittedData:
    """Points and their clusters."""

    points: Points  # wherever they are
    labels: np.ndarray  # (N,)
    centers: np.ndarray  # (K, d) float64
    means: np.ndarray | None  # (K,) row numbers
    names: list[str]  # of the features

    @classmethod
    def of(cls, X: Any, model: Any, weights: Any = None) -> FittedData:
        """Check that `model` is fitted, and to points of this shape."""
        points = as_points(X, weights)
        labels, centers = labels_of(model), to_numpy(fitted(model, "centers")).astype(np.float64)
        if (len(labels), centers.shape[1]) != (points.n, points.d):
            shapes = (points.n, points.d), (len(labels), centers.shape[1])
            raise ValueError(f"X has shape {shapes[0]}, but the model was fitted to {shapes[1]}.")
        return cls(points, labels, centers, fitted(model, "center_indices"), _names(X, model, points.d))

    def rows(self, indices: np.ndarray) -> np.ndarray:
        """The points with these row numbers, float64 on the host: (...,) -> (..., d)."""
        if not self.points.on_device:
            return self.points.rows(indices)
        with open_backend(self.points) as backend:
            return backend.rows(indices)

    def thinned(self, many: int, shown: int) -> np.ndarray:
        """Row numbers of the points to draw: all, or, of more than `many` points, `shown` of them at equal steps."""
        n = self.points.n
        return np.arange(n) if n <= many else np.arange(shown) * n // shown


def fitted(model: Any, name: str) -> Any:
    """The attribute `name` of a Clustering, or the same attribute of an estimator; None if the model has none."""
    if isinstance(model, Clustering):
        return getattr(model, name)
    check_is_fitted(model)
    return getattr(model, "cluster_centers_" if name == "centers" else f"{name}_", None)


def labels_of(model: Any) -> np.ndarray:
    """(N,) on the host."""
    return to_numpy(fitted(model, "labels"))


def weights_of(weights: Any, n: int) -> np.ndarray:
    """(N,) float64: the checked weights, or ones."""
    checked = check_weights(weights, n)
    return np.ones(n) if checked is None else checked


def trace_of(model: Any) -> tuple[Trace, int]:
    """The trace of a model, and its row of the best restart."""
    trace = fitted(model, "trace")
    if not isinstance(trace, Trace):
        raise TypeError(f"model={model!r} has no trace; fit an estimator of gputabu.")
    return trace, int(np.flatnonzero(fitted(model, "inertias") == fitted(model, "inertia"))[0])


def _names(X: Any, model: Any, d: int) -> list[str]:
    names = getattr(model, "feature_names_in_", getattr(X, "columns", None))
    return [f"feature {j}" for j in range(d)] if names is None else [str(name) for name in names]
