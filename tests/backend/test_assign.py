"""Nearest centres by points in registers (kernels/assign.cu): the bits of NumPy, whatever way a point takes."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import GPU, become

from gputabu import Points
from gputabu.backend import open_backend

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(GPU != "hostcuda", reason="changes what only hostcuda can: the device"),
]
REALS = [np.float32, np.float64]


def passes(backend, X, steps, weights=None):
    """Labels and totals of one pass after another over the same labels, and labels alone."""
    with open_backend(Points.of(X, weights), backend) as opened:
        r = len(steps[0])
        labels, found = opened.blank_labels(r), []
        for centers in steps:
            made = opened.assign(centers, labels)
            found += [made.totals, made.changed, *(opened.fetch_labels(labels, s) for s in range(r))]
        alone = opened.label(steps[0])
        return found + [np.asarray(opened.fetch_labels(alone, s)) for s in range(r)]


def equal(X, steps, weights=None):
    for here, there in zip(passes("cuda", X, steps, weights), passes("numpy", X, steps, weights), strict=True):
        np.testing.assert_array_equal(here, there)


def steps_of(rng, k, r, d):
    """Centres, and the same after some of them have moved."""
    centers = rng.normal(size=(r, k, d))
    later = centers.copy()
    later[:, : -(-k // 3)] += 0.1
    return centers, later


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("d", [1, 2, 3, 7, 8, 15, 16, 31, 32])
@pytest.mark.device("t4")
def test_every_shape(d, dtype):
    """Groups of centres that are not full, tiles of them, restarts, and warps with few points or none."""
    rng = np.random.default_rng(d)
    X = rng.normal(size=(530, d)).astype(dtype)
    for k, r in ((1, 3), (2, 1), (3, 3), (4, 1), (5, 32), (64, 1), (65, 3)):
        equal(X[: 530 - 13 * k], steps_of(rng, k, r, d))
    equal(X[:300], steps_of(rng, 1000, 1, d), rng.integers(3, size=300).astype(float))


@pytest.mark.parametrize("device", ["t4", "a100", "small"])
@pytest.mark.parametrize(("dtype", "d"), [(np.float32, 7), (np.float64, 3)])
def test_weights_and_one_point(device, dtype, d):
    become(device)
    rng = np.random.default_rng(0)
    X = rng.normal(size=(601, d)).astype(dtype)
    weights = rng.gamma(1.0, size=601)
    weights[::7] = 0
    equal(X, steps_of(rng, 9, 3, d), weights)
    equal(X[:1], steps_of(rng, 9, 3, d))


@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e30])
@pytest.mark.parametrize(("dtype", "d"), [(np.float32, 8), (np.float64, 3)])
@pytest.mark.parametrize("device", ["t4", "small"])
def test_all_points_in_doubt(device, dtype, d, scale):
    """Every centre is there again and again, or on the other side: rivals of a point fill a warp many times."""
    become(device)
    rng = np.random.default_rng(1)
    X = (rng.integers(-2, 3, size=(300, d)) * scale).astype(dtype)  # with ties, and duplicates of points
    for k, copies in ((2, 2), (12, 3), (66, 33), (100, 100)):
        few = rng.integers(-2, 3, size=(2, k // copies, d)) * scale
        centers = np.tile(few, (1, copies, 1))
        centers[1] = np.repeat(few[1], copies, axis=0)
        equal(X, (centers, centers[:, ::-1].copy()))


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.one_device
def test_no_point_in_doubt(dtype):
    rng = np.random.default_rng(2)
    centers = 100.0 * np.arange(50)[None, :, None] * np.ones((1, 1, 7))
    X = (centers[0, rng.integers(50, size=700)] + rng.normal(size=(700, 7))).astype(dtype)
    equal(X, (centers, centers[:, rng.permutation(50)]))


def test_a_point_is_in_doubt_about_few_of_many():
    """A point in ten has two centres next to each other, at the ends of the list."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(1100, 2)).astype(np.float32)
    centers = rng.normal(size=(3, 300, 2))
    centers[:, -1] = centers[:, 0] = 0
    centers[:, 150] = centers[:, 17] + 1e-9
    equal(X, (centers, centers + 1e-9))


@pytest.mark.parametrize("span", [1, 3, 7, 40])
@pytest.mark.one_device
def test_tiles_of_centres(span, monkeypatch):
    """They end within restarts and between them, and totals are added in global memory."""
    from gputabu.backend.cuda import shapes

    form = shapes.assign
    monkeypatch.setattr(
        shapes, "assign", lambda *sizes: form(*sizes)._replace(span=span, private=False, shared=47 << 10)
    )
    rng = np.random.default_rng(4)
    X = rng.normal(size=(520, 3)).astype(np.float32)
    for k, r in ((3, 5), (18, 4), (130, 2)):
        equal(X, steps_of(rng, k, r, 3))


def test_shared_memory_is_that_of_the_kernel(monkeypatch):
    """P of the source is that of the launches: a tile less and hostcuda sees an access beyond shared memory."""
    import cupy

    from gputabu.backend.cuda import shapes

    X = np.random.default_rng(5).normal(size=(600, 8)).astype(np.float32)
    monkeypatch.setattr(shapes, "assign_points", lambda d, real: 2)
    with pytest.raises(cupy._hostcuda.Violation, match="shared"):
        passes("cuda", X, (X[None, :5].astype(float),))


@pytest.mark.parametrize(("dtype", "d"), [(np.float32, 1), (np.float32, 2), (np.float32, 6), (np.float64, 2)])
@pytest.mark.one_device
def test_labels_that_hardly_stand(dtype, d):
    """Points beside the middle of two centres that move by less and less: some labels change, most only nearly do."""
    rng = np.random.default_rng(6)
    centers = rng.normal(size=(2, 11, d))
    middles = (centers[0, rng.integers(11, size=1500)] + centers[0, rng.integers(11, size=1500)]) / 2
    X = (middles + rng.choice([0, 1e-7, 1e-5], size=(1500, 1)) * rng.normal(size=(1500, d))).astype(dtype)
    moves = [centers + scale * rng.normal(size=centers.shape) for scale in (0, 1e-9, 1e-7, 1e-6, 1e-4, 0)]
    equal(X, moves)


@pytest.mark.parametrize(("d", "r"), [(1, 1), (2, 3), (8, 1), (8, 3)])
@pytest.mark.one_device
def test_queues(d, r):
    """Several tiles of a warp, of which none, a few, a third, all and again a few points change."""
    rng = np.random.default_rng(7)
    X = rng.normal(size=(6100, d)).astype(np.float32)
    first = rng.normal(size=(r, 9, d))
    equal(X, (first, first, first + 0.02, first + 0.5, first[:, ::-1].copy(), first[:, ::-1] + 0.01))
