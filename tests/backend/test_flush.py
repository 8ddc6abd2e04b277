"""Denormal float32 on a device: CuPy compiles with -ftz=true, which makes them zero in every operation.

Row 3 of the list of what a first GPU would have met. hostcuda flushes as a device does (tests/hostcuda/flush.hpp).
"""

from __future__ import annotations

import numpy as np
import pytest
from conftest import GPU, blobs, same

from gputabu import KMeans, lloyd, quantized
from gputabu.backend import open_backend
from gputabu.data.points import Points

pytestmark = pytest.mark.gpu

#: Labels by registers, by tiles, and in a block of their own: (N, d, K).
SHAPES = {"registers": (700, 5, 6), "tiles": (300, 40, 6), "block": (180, 4, 3)}
#: Powers of two that bring data of about 20 to denormals, next to them, to the largest numbers, and between.
SCALES = (-149, -140, -130, -126, -100, -37, 30, 100, 122, 123)


def scaled(shape, e, seed=0):
    n, d, k = shape
    X = np.ldexp(blobs(n, d, k, seed), e).astype(np.float32)
    assert np.isfinite(X).all()
    return X, k


@pytest.mark.parametrize("e", SCALES)
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_row_03_labels_of_tiny_and_huge_data(shape, e):
    X, k = scaled(shape, e)
    centers = np.stack([X[:k], X[k : 2 * k]]).astype(float)
    here, there = ({}, {})
    for backend, found in (("cuda", here), ("numpy", there)):
        with open_backend(Points.of(X), backend) as opened:
            labels = opened.label(centers)
            found["label"] = [np.asarray(opened.fetch_labels(labels, s)) for s in range(2)]
            blank = opened.blank_labels(2)
            found["assign"] = opened.assign(centers, blank)
            found["distances"] = opened.distances(centers[0])
    np.testing.assert_array_equal(here["label"], there["label"])
    np.testing.assert_array_equal(here["assign"].totals, there["assign"].totals)
    np.testing.assert_array_equal(here["distances"], there["distances"])


@pytest.mark.parametrize("e", [-149, -130, 123])
@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES)
def test_row_03_searches_of_tiny_and_huge_data(shape, e):
    X, k = scaled(shape, e)
    options = {"restarts": 2, "max_iter": 6, "init": "random"}
    same(quantized.search(X, k, backend="cuda", **options), quantized.search(X, k, backend="numpy", **options))
    same(lloyd.run(X, k, backend="cuda", **options), lloyd.run(X, k, backend="numpy", **options))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_row_03_transform_keeps_distances_below_the_normal_ones(dtype):
    tiny = np.finfo(dtype).smallest_subnormal
    X = np.outer(np.arange(60) ** 2, [1, 3]).astype(dtype) * dtype(tiny if dtype == np.float32 else 1e-40)
    there = KMeans(4, random_state=0, backend="numpy").fit(X)
    here = KMeans(4, random_state=0, backend="cuda").fit(X)
    found, wanted = here.transform(X), there.transform(X)
    assert ((wanted > 0) & (wanted < np.finfo(np.float32).tiny)).any()
    np.testing.assert_array_equal(found, wanted)
    np.testing.assert_array_equal(here.predict(X), there.predict(X))


@pytest.mark.parametrize("d", [3, 33])
@pytest.mark.parametrize("seed", range(4))
def test_row_03_centres_far_smaller_than_the_unit_says(d, seed):
    """One unit serves all restarts: next to one with wide centres, another's differ by what may be flushed."""
    rng = np.random.default_rng(seed)
    X = np.ldexp(rng.normal(size=(400, d)), rng.integers(-149, 1, (400, 1))).astype(np.float32)
    centers = np.ldexp(rng.normal(size=(12, 5, d)), rng.integers(-149, 1, (12, 5, 1)))
    centers = np.concatenate([centers, np.ldexp(centers[:, :1], -70) + np.zeros((5, 1))])
    centers[-12:] += np.ldexp(rng.normal(size=(12, 5, d)), -150)
    found = {}
    for backend in ("cuda", "numpy"):
        with open_backend(Points.of(X), backend) as opened:
            labels = opened.label(centers)
            found[backend] = [np.asarray(opened.fetch_labels(labels, s)) for s in range(len(centers))]
    np.testing.assert_array_equal(found["cuda"], found["numpy"])


@pytest.mark.skipif(GPU != "hostcuda", reason="about hostcuda")
def test_row_03_the_stand_in_flushes_float32_and_nothing_else():
    """The planted fault: a product, a sum, a conversion and a comparison of denormals."""
    import cupy

    text = """extern "C" __global__ void look(const float* x, const double* y, float* out, double* wide) {
        out[0] = x[0] * 0.5f; out[1] = x[1] + x[1]; out[2] = (float)y[0]; out[3] = x[1]; out[4] = -x[1] < 0.0f;
        out[5] = __uint_as_float(__float_as_uint(x[1])); out[6] = sqrt(x[1]); out[7] = 2 * x[0];
        wide[0] = (double)x[1]; wide[1] = y[0] * 0x1p-1000; wide[2] = x[1] * 1.0;
        float sum = x[0]; sum -= x[0] * 0.75f; out[8] = sum;
    }"""
    tiny, small = np.finfo(np.float32).tiny, np.float32(2.0**-130)
    x, y = cupy.asarray(np.array([tiny, small])), cupy.asarray(np.array([2.0**-130]))
    out, wide = cupy.empty(9, np.float32), cupy.empty(3)
    cupy.RawModule(code=text).get_function("look")((1,), (1,), (x, y, out, wide))
    assert out.get().tolist() == [0, 0, 0, small, 0, small, 0, 2 * tiny, tiny]
    assert wide.get().tolist() == [0, 2.0**-1130 if 2.0**-1130 else 0.0, 0]
    assert (cupy.asarray(np.array([2.0**-1060])).get() > 0).all()
