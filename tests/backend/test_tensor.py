"""Products on tensor cores, as hostcuda emulates them."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = [pytest.mark.gpu, pytest.mark.device("a100")]

PRODUCT = r"""
extern "C" __global__ void product(const double* a, const double* b, const double* c, double* out) {
    const int l = threadIdx.x;
    unsigned x[4], y[2];
    for (int w = 0; w < 4; ++w) {
        const double* from = a + row_of_a(l, w) * 16 + depth_of_a(l, w);
        x[w] = halves_of((float)from[0], (float)from[1]);
    }
    for (int w = 0; w < 2; ++w) {
        const double* from = b + column_of_b(l) * 16 + depth_of_b(l, w);
        y[w] = halves_of((float)from[0], (float)from[1]);
    }
    float sum[4];
    for (int i = 0; i < 4; ++i) sum[i] = (float)c[row_of_sum(l, i) * 8 + column_of_sum(l, i)];
    multiply_add(sum, make_uint4(x[0], x[1], x[2], x[3]), y[0], y[1]);
    for (int i = 0; i < 4; ++i) out[row_of_sum(l, i) * 8 + column_of_sum(l, i)] = sum[i];
}
"""


@pytest.fixture
def mma_error():
    """Sets how the emulated product errs, and puts it back."""
    import cupy

    if not hasattr(cupy, "_hostcuda"):
        pytest.skip("the errors of a real device cannot be chosen")
    yield cupy._hostcuda.set_mma_error
    cupy._hostcuda.set_mma_error(0)


def product(a, b, c):
    """c + a bᵀ on tensor cores: (16, 16), (8, 16), (16, 8)."""
    import cupy

    from gputabu.backend.cuda.launch import options
    from gputabu.backend.cuda.sources import source

    module = cupy.RawModule(code=source("tensor.cuh") + PRODUCT, options=options(np.dtype(np.float32), ()))
    out = cupy.empty((16, 8), np.float64)
    module.get_function("product")((1,), (32,), (*(cupy.asarray(v) for v in (a, b, c)), out))
    return out.get()


def test_layout_and_exact_products():
    rng = np.random.default_rng(0)
    a, b, c = (rng.integers(-50, 50, size).astype(float) for size in ((16, 16), (8, 16), (16, 8)))
    np.testing.assert_array_equal(product(a, b, c), c + a @ b.T)


def test_halves_round_to_nearest_even():
    values = np.array([1 + 2**-11, 1 + 3 * 2**-11, 65519.0, 2.0**-24, 1.4 * 2**-24, 2.0**-26, -3.1, 0.1] * 32)[:256]
    a = values.reshape(16, 16)
    b = np.eye(16)[:8]
    expected = values.astype(np.float16).astype(float).reshape(16, 16)[:, :8]
    np.testing.assert_array_equal(product(a, b, np.zeros((16, 8))), expected)


@pytest.mark.parametrize("mode", [0, 1])
def test_sums_err_within_the_bound(mode, mma_error):
    mma_error(mode)
    rng = np.random.default_rng(1)
    a, b = (rng.normal(size=size).astype(np.float16).astype(float) for size in ((16, 16), (8, 16)))
    error = np.abs(product(a, b, np.zeros((16, 8))) - a @ b.T)
    bound = 3 * 16 * 2.0**-24 * (np.abs(a) @ np.abs(b).T)
    assert (error <= bound).all()
    assert error.max() > 0
    if mode:
        assert (error > 0.8 * bound).all()
