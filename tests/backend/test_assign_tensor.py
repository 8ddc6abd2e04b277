"""Labels and totals by tensor cores, emulated by hostcuda: the bits of NumPy, whatever the products err by."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import become, blobs, same

from gputabu import lloyd, quantized
from gputabu.backend import as_points
from gputabu.backend.cuda import launch, tensor
from gputabu.backend.cuda.backend import CudaBackend
from gputabu.backend.cuda.structs import Shape
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


def check(X, centers, weights=None, words=1):
    """Both backends label alike: first, again by other centres, and without totals. Points in doubt at last, (R,)."""
    points = as_points(X, weights)
    shaken = centers + 0.05 * np.abs(centers).max() * np.sin(np.arange(centers.size)).reshape(centers.shape)
    r, k, _ = centers.shape
    with NumpyBackend(points) as host, CudaBackend(points) as device:
        device.words = words
        assert device.tensor_form(k).words == words
        mine, theirs = device.blank_labels(r), host.blank_labels(r)
        for where in (centers, shaken):
            found, expected = device.assign(where, mine), host.assign(where, theirs)
            equal_labels(device, mine, host, theirs, r)
            np.testing.assert_array_equal(found.totals, expected.totals)
            np.testing.assert_array_equal(found.changed, expected.changed)
        equal_labels(device, device.label(centers), host, host.label(centers), r)
        return device.lists[-1].seen.get()[:r]


def equal_labels(device, mine, host, theirs, r):
    for s in range(r):
        np.testing.assert_array_equal(device.fetch_labels(mine, s), host.fetch_labels(theirs, s))


def data(n, d, k, r=1, dtype=np.float32, spread=5.0):
    """Points around K middles, and centres that are points."""
    rng = np.random.default_rng(n + d + k)
    middle = rng.normal(scale=spread, size=(k, d))
    X = (middle[rng.integers(k, size=n)] + rng.normal(size=(n, d))).astype(dtype)
    return X, X[rng.integers(n, size=(r, k))].astype(float)


@pytest.mark.parametrize(
    ("n", "d", "k", "r", "dtype"),
    [
        (300, 16, 5, 1, np.float32),
        (257, 16, 64, 3, np.float64),
        (100, 17, 65, 1, np.float32),
        (40, 16, 9, 32, np.float32),
        (129, 64, 140, 1, np.float32),
        (70, 65, 20, 3, np.float64),
        (20, 16, 5000, 1, np.float32),
        (33, 1025, 18, 1, np.float32),
        (300, 24, 1, 2, np.float32),
        (40, 31, 40, 2, np.float32),
        (140, 80, 500, 2, np.float32),
        (40, 200, 250, 1, np.float64),
        (70, 65, 60, 3, np.float64),
    ],
)
def test_bits_of_numpy(n, d, k, r, dtype, mma_error):
    check(*data(n, d, k, r, dtype))


@pytest.mark.parametrize("words", [1, 2])
def test_weights_and_duplicates(words, mma_error):
    """Centres that are there twice put all of their points in doubt; points of weight zero count for nothing."""
    X, centers = data(200, 20, 12)
    X[100:] = X[:100]
    centers[:, 6:] = centers[:, :6]
    weights = np.arange(200.0) % 3
    doubt = check(X, centers, weights, words)
    assert doubt.tolist() == [200]


@pytest.mark.parametrize("words", [1, 2])
def test_integers_with_ties(words, mma_error):
    """More rivals than pairs have room for: among all of them by a warp."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 2, size=(150, 16)).astype(np.float32)
    check(X, rng.integers(0, 2, size=(2, 40, 16)).astype(float), words=words)


def test_nobody_is_in_doubt():
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(200, 32)) + 100 * np.eye(32)[np.arange(200) % 6]).astype(np.float32)
    assert check(X, X[None, :6].astype(float)).sum() == 0


@pytest.mark.parametrize("scale", [1e-43, 1e-30, 1e30, 1e37])
def test_any_scale(scale, mma_error):
    """Beyond what halves can hold all points are in doubt, and right."""
    X = data(60, 16, 7)[0]
    X = (X / np.abs(X).max() * scale).astype(np.float32)
    check(X, X[None, :7].astype(float))
    wide = X.astype(float) * 1e40
    check(wide, wide[None, :7])


def test_points_far_beyond_the_centres():
    X, centers = data(100, 16, 7)
    X[3], X[50, 4], X[7] = 3e38, -1e30, 6e4
    check(X, centers[:, :7])


def test_rows_that_are_not_aligned():
    """A view that begins at an odd number: pairs of coordinates cannot be loaded as one."""
    import cupy

    X, centers = data(50, 18, 6)
    flat = cupy.zeros(X.size + 1, np.float32)
    flat[1:] = cupy.asarray(X.ravel())
    view = flat[1:].reshape(X.shape)
    with NumpyBackend(as_points(X)) as host, CudaBackend(as_points(view)) as device:
        equal_labels(device, device.label(centers), host, host.label(centers), 1)


@pytest.mark.parametrize("profile", ["plain", "l4", "h100"])
def test_devices_with_other_shared_memory(profile):
    become(profile)
    for n, d, k in ((70, 32, 300), (40, 700, 70)):
        check(*data(n, d, k))


def test_wrong_layout_is_found(mma_error):
    """Then a warning says so, and the plain kernels are used."""
    tensor.checked.cache_clear()
    X, centers = data(80, 16, 5)
    mma_error(2)
    try:
        with NumpyBackend(as_points(X)) as host, CudaBackend(as_points(X)) as device:
            with pytest.warns(RuntimeWarning, match="tensor cores of device 0 do not compute as expected"):
                mine = device.label(centers)
            equal_labels(device, mine, host, host.label(centers), 1)
            assert device.tensor_form(5) is None
            assert "lists" not in device.__dict__
    finally:
        tensor.checked.cache_clear()


def test_much_doubt_doubles_the_halves(caplog):
    """Two groups far apart, in which one half cannot tell the centres apart; two can."""
    rng = np.random.default_rng(2)
    X = (rng.normal(size=(400, 16)) + 60 * (np.arange(400) % 2)[:, None]).astype(np.float32)
    with CudaBackend(as_points(X)) as device, NumpyBackend(as_points(X)) as host:
        centers = X[None, :8].astype(float)
        mine, theirs = device.blank_labels(1), host.blank_labels(1)
        assert device.words == 1
        for words in (2, 2):
            device.assign(centers, mine)
            host.assign(centers, theirs)
            equal_labels(device, mine, host, theirs, 1)
            assert device.words == words
        assert device.lists[-1].seen.get()[0] < 80
    settings = {"init": np.arange(8), "max_iter": 20, "refine": "lloyd"}
    same(quantized.search(X, 8, backend="cuda", **settings), quantized.search(X, 8, backend="numpy", **settings))


def test_searches_run_on_them(mma_error):
    """As graphs: a fit of few points in one launch has no product."""
    X = blobs(600, 40, 9, dtype=np.float32)
    same(lloyd.run(X, 30, restarts=3, backend="cuda"), lloyd.run(X, 30, restarts=3, backend="numpy"))
    settings = {"restarts": 2, "max_iter": 20, "max_time": 1e6}  # with a clock, pass by pass on a graph
    same(quantized.search(X, 30, backend="cuda", **settings), quantized.search(X, 30, backend="numpy", **settings))


def test_forms_fit_every_device():
    """Whatever the shape, a block of the form that is chosen fits; only very long rows have none."""
    for room in (99 << 10, 163 << 10, 227 << 10):
        for d in (16, 17, 48, 63, 64, 100, 128, 384, 768, 1025, 2000):
            for k in (2, 8, 9, 64, 65, 1000, 5000):
                for words in (1, 2):
                    form = tensor.form_of(room, Shape(1, k, d), 2 * d + 1, np.dtype(np.float32), words)
                    if form is None:
                        assert d * words > 1000
                        continue
                    sizes = Shape(1, k, d), 2 * d + 1, np.dtype(np.float32)
                    resident = isinstance(form, tensor.ResidentForm)
                    assert (form.shared(*sizes, False) if resident else form.shared(*sizes, False, False, True)) <= room
                    assert form.depth >= d > form.depth - 32
                    assert form.padded(k) >= k > form.padded(k) - form.tile_n


def test_kernels_are_known_to_the_loader():
    assert launch.room("assign_tensor.cu", "decide_tensor", np.dtype(np.float32), RESIDENT=0, **form_defines()) > 0


def form_defines():
    return tensor.candidates(64, 16, 1)[0].defines
