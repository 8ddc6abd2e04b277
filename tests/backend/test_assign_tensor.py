"""Labels and totals by tensor cores, emulated by hostcuda: the bits of NumPy, whatever the products err by."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from gputabu.backend import as_points
from gputabu.backend.cuda import tensor
from gputabu.backend.cuda.backend import CudaBackend
from gputabu.backend.numpy.backend import NumpyBackend

pytestmark = [pytest.mark.gpu, pytest.mark.device("a100")]


@pytest.fixture(params=[0, 1])
def mma_error(request):
    """How the emulated product errs: as a device truncates, and by the worst that its bound allows."""
    import cupy

    if not hasattr(cupy, "_hostcuda"):
        pytest.skip("the errors of a real device cannot be chosen")
    cupy._hostcuda.set_mma_error(request.param)
    yield cupy._hostcuda.set_mma_error
    cupy._hostcuda.set_mma_error(0)


def check(X, centers, weights=None, words=1, twice=True):
    """Both backends assign alike, from no labels and again from those with other centres. Points in doubt, (R,)."""
    points = as_points(X, weights)
    with NumpyBackend(points) as host, CudaBackend(points) as device:
        device.words = words
        r = len(centers)
        assert device.tensor_form(centers.shape[1]) is not None
        mine, theirs = device.blank_labels(r), host.blank_labels(r)
        for step in range(1 + twice):
            where = centers if step == 0 else centers + 0.05 * np.abs(centers).max() * np.sin(np.arange(centers.size).reshape(centers.shape))
            found, expected = device.assign(where, mine), host.assign(where, theirs)
            for s in range(r):
                np.testing.assert_array_equal(device.fetch_labels(mine, s), host.fetch_labels(theirs, s))
            np.testing.assert_array_equal(found.totals, expected.totals)
            np.testing.assert_array_equal(found.changed, expected.changed)
        device.run(lambda: None)
        labels, known = device.label(centers), host.label(centers)
        for s in range(r):
            np.testing.assert_array_equal(device.fetch_labels(labels, s), host.fetch_labels(known, s))
        return device.lists[-1].seen.get()[:r]


def data(n, d, k, r=1, seed=0, dtype=np.float32, spread=5.0):
    rng = np.random.default_rng(seed)
    middle = rng.normal(scale=spread, size=(k, d))
    X = (middle[rng.integers(k, size=n)] + rng.normal(size=(n, d))).astype(dtype)
    return X, X[rng.integers(n, size=(r, k))].astype(float)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize(("d", "k", "r"), [(16, 5, 1), (17, 64, 3), (31, 65, 1), (64, 20, 1), (130, 140, 1)])
def test_bits_of_numpy(d, k, r, dtype, mma_error):
    X, centers = data(300, d, k, r, dtype=dtype)
    check(X, centers)
