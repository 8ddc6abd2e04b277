"""Projections of points to two axes: two features, two principal components, or one feature along a line."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gputabu.core.validation import check_int
from gputabu.plotting.style import spread


@dataclass(frozen=True, slots=True)
class Projection:
    """A linear map from R^d to the two axes of a picture."""

    origin: np.ndarray  # (d,)
    basis: np.ndarray  # (2, d)
    titles: list[str]  # of the two axes

    @classmethod
    def of(cls, drawn: np.ndarray, dims: Sequence[Any] | None, names: list[str]) -> Projection:
        """The projection by `dims`, names or numbers of two features; None is the default for points (n, d)."""
        d = drawn.shape[1]
        if dims is None and d > 2:
            return _principal(drawn)
        if dims is not None and (isinstance(dims, str) or np.size(dims) != 2):
            raise ValueError(f"dims={dims!r} must be two features, by name or number.")
        columns = list(range(d)) if dims is None else [_column(dim, names) for dim in dims]
        basis = np.zeros((2, d))  # a single feature is drawn along a line
        basis[np.arange(len(columns)), columns] = 1
        return cls(np.zeros(d), basis, [*(names[column] for column in columns), ""][:2])

    @property
    def line(self) -> bool:
        """Whether there is only one feature, so that heights mean nothing."""
        return not self.basis[1].any() and len(self.origin) == 1

    def places(self, points: np.ndarray) -> np.ndarray:
        """(..., d) -> (..., 2)"""
        return (points - self.origin) @ self.basis.T

    def spread_out(self, points: np.ndarray) -> np.ndarray:
        """As `places`, (n, d) -> (n, 2), but points along a line are spread vertically to be visible."""
        places = self.places(points)
        if self.line:
            places[:, 1] = spread(len(places))
        return places

    def label_axes(self, ax: Any) -> None:
        """Set the titles of the axes."""
        ax.set(xlabel=self.titles[0], ylabel=self.titles[1])
        if self.line:
            ax.set(yticks=[], ylim=(-1, 1))


def _principal(drawn: np.ndarray) -> Projection:
    """The mean and the two directions of largest variance."""
    mean = drawn.mean(axis=0)
    # R of QR has the same singular values and right vectors as the data, and no (N, d) left vectors are needed.
    _, singular_values, axes = np.linalg.svd(np.linalg.qr(drawn - mean, mode="r"), full_matrices=False)
    axes = np.vstack([axes, np.zeros((1, drawn.shape[1]))])[:2]  # a single point has only one
    largest = np.abs(axes).argmax(axis=1)
    axes *= np.where(axes[np.arange(2), largest] < 0, -1, 1)[:, None]  # the same sign on every machine
    share = 100 * np.append(singular_values, 0.0)[:2] ** 2 / max((singular_values**2).sum(), np.finfo(float).tiny)
    return Projection(mean, axes, [f"principal component {i + 1} ({share[i]:.1f} %)" for i in range(2)])


def _column(dim: Any, names: list[str]) -> int:
    """The number of a feature given by name or number."""
    if not isinstance(dim, str):
        return check_int("dims", dim, 0, len(names) - 1)
    if dim not in names:
        raise ValueError(f"dims contains {dim!r}, which is none of the features {', '.join(names)}.")
    return names.index(dim)
