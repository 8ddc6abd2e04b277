"""The passes of relocation on a GPU: the bits of NumPy, on tensor cores and without, in doubt and not."""

from __future__ import annotations

import numpy as np
import pytest

from gputabu.backend import as_points
from gputabu.backend.cuda.backend import CudaBackend
from gputabu.backend.numpy.backend import NumpyBackend

pytestmark = pytest.mark.gpu
on_tensor_cores = pytest.mark.device("a100")
without = pytest.mark.device("t4")
SIDES = ("first", "second", "near", "far")


@pytest.fixture(params=[0, 1])
def mma_error(request):
    """How the emulated product errs: as a device truncates, and by the worst that its bound allows."""
    import cupy

    if not hasattr(cupy, "_hostcuda"):
        pytest.skip("the errors of a real device cannot be chosen")
    cupy._hostcuda.set_mma_error(request.param)
    yield
    cupy._hostcuda.set_mma_error(0)


def data(n, d, k, r=1, dtype=np.float32, spread=5.0):
    """Points around K middles, and centres that are points."""
    rng = np.random.default_rng(n + d + k)
    middle = rng.normal(scale=spread, size=(k, d))
    X = (middle[rng.integers(k, size=n)] + rng.normal(size=(n, d))).astype(dtype)
    return X, rng.choice(X, size=(r, k)).astype(float) + 0.125


def check_two(X, centers, weights=None, moves=None):
    """Both backends find the same two: at once, and when some centres have moved. The last ones of both."""
    points = as_points(X, weights)
    r, k, d = centers.shape
    rng = np.random.default_rng(k)
    moves = ([0], [], [k - 1, k // 2], range(k)) if moves is None else moves
    with NumpyBackend(points) as host, CudaBackend(points) as device:
        mine, theirs = device.nearest_two(centers), host.nearest_two(centers)
        for moved in (None, *moves):
            if moved is not None:
                centers = centers.copy()
                centers[-1, list(moved)] = X[rng.integers(len(X), size=len(moved))] + rng.normal(size=(len(moved), d))
                mine, theirs = device.nearest_two(centers, mine), host.nearest_two(centers, theirs)
            for side in SIDES:
                for s in range(r):
                    found, expected = device.fetch_labels(getattr(mine, side), s), getattr(theirs, side)[s]
                    np.testing.assert_array_equal(found, expected, err_msg=side)


SHAPES = [
    (300, 1, 2, 1, np.float32),
    (257, 2, 10, 3, np.float32),
    (130, 5, 33, 1, np.float64),
    (200, 8, 64, 1, np.float32),
    (300, 16, 5, 1, np.float32),
    (257, 16, 64, 3, np.float64),
    (100, 17, 65, 1, np.float32),
    (65, 33, 40, 1, np.float64),
    (129, 64, 140, 1, np.float32),
    (40, 100, 20, 3, np.float64),
    (40, 300, 3, 1, np.float32),
    (20, 16, 1500, 1, np.float32),
    (20, 3, 1500, 1, np.float64),
]


@on_tensor_cores
@pytest.mark.parametrize(("n", "d", "k", "r", "dtype"), SHAPES)
def test_two_nearest(n, d, k, r, dtype, mma_error):
    check_two(*data(n, d, k, r, dtype))


@without
@pytest.mark.parametrize(("n", "d", "k", "r", "dtype"), SHAPES)
def test_two_nearest_without_tensor_cores(n, d, k, r, dtype):
    check_two(*data(n, d, k, r, dtype))


@on_tensor_cores
@pytest.mark.parametrize("d", [2, 16, 40])
def test_two_nearest_where_all_are_in_doubt(d, mma_error):
    """Centres that are there thrice; then integers with nothing but ties."""
    X, centers = data(200, d, 12)
    centers[:, 4:8] = centers[:, 8:] = centers[:, :4]
    check_two(X, centers, moves=([1], [2, 9]))
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, size=(150, d)).astype(np.float32)
    check_two(X, rng.integers(0, 2, size=(2, 40, d)).astype(float))


@on_tensor_cores
@pytest.mark.parametrize("scale", [1e-43, 1e-30, 1e30, 1e37])
@pytest.mark.parametrize("d", [3, 16])
def test_two_nearest_at_any_scale(scale, d, mma_error):
    X = data(60, d, 7)[0]
    X = (X / np.abs(X).max() * scale).astype(np.float32)
    check_two(X, X[None, :7].astype(float), moves=())
    wide = X.astype(float) * 1e40
    check_two(wide, wide[None, :7], moves=())
