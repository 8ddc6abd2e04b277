"""Fixtures: the backends that can run here, and small data sets with corners in them."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_iris

BACKENDS = ["numpy"]


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> str:
    """Name of a backend that runs here; tests that take it run once per backend."""
    return request.param


@pytest.fixture
def iris() -> np.ndarray:
    return load_iris().data


@pytest.fixture
def paper_data():
    """A function that loads one of the paper's data sets, as the paper preprocessed it."""
    folder = os.environ.get("GPUTABU_DATA")
    if not folder:
        pytest.skip("GPUTABU_DATA is not set: the paper's data sets are not part of the project")

    def load(name: str) -> np.ndarray:
        X = np.loadtxt(Path(folder) / f"{name}.csv", delimiter=",")
        return (X - X.mean(axis=0)) / X.std(axis=0, ddof=1) if name == "cloud" else X

    return load


def blobs(n: int, d: int, k: int, seed: int = 0, dtype: type = np.float64) -> np.ndarray:
    """Points around k random centres."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(scale=5, size=(k, d))
    return (centers[rng.integers(k, size=n)] + rng.normal(size=(n, d))).astype(dtype)


def same(a, b) -> None:
    """Assert that two clusterings are equal bit for bit."""
    np.testing.assert_array_equal(a.labels, b.labels)
    np.testing.assert_array_equal(a.centers, b.centers)
    assert a.centers.dtype == b.centers.dtype
    np.testing.assert_array_equal(a.inertias, b.inertias)
    np.testing.assert_array_equal(a.trace.current, b.trace.current)
    np.testing.assert_array_equal(a.trace.best, b.trace.best)
    np.testing.assert_array_equal(a.trace.moves, b.trace.moves)
    if a.center_indices is not None:
        np.testing.assert_array_equal(a.center_indices, b.center_indices)
        np.testing.assert_array_equal(a.trace.means, b.trace.means)
    assert (a.inertia, a.n_iter, a.stop, a.restart) == (b.inertia, b.n_iter, b.stop, b.restart)
