"""Passes of the CUDA backend that read X: the bits of NumPy at every width, and numbers taken apart by their bits."""

import functools

import numpy as np
import pytest

from gputabu.backend.arithmetic import fixed_point
from gputabu.backend.arithmetic.constants import LIMB

pytestmark = pytest.mark.gpu

#: Functions of limbs.cuh, each over an array.
PROBES = """
#include "limbs.cuh"
extern "C" __global__ void probe(const double* v, const float* x, const double* c, double scale, idx* limbs,
                                 unsigned* keys, double* apart, idx* other, int n) {
    const Power power = power_of(scale);
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
        idx sums[3] = {0, 0, 0}, wide_sums[3] = {0, 0, 0};
        double double_sums[3] = {0, 0, 0};
        int short_sums[3] = {0, 0, 0};
        add_limbs_integer(sums, v[i], power);
        add_limbs_double(wide_sums, v[i], power);
        add_limbs_double(double_sums, v[i], power);
        add_limbs_double(short_sums, v[i], power);
        for (int l = 0; l < 3; ++l) {
            limbs[3 * i + l] = sums[l];
            const bool same = wide_sums[l] == whole(double_sums[l]) && wide_sums[l] == short_sums[l];
            other[3 * i + l] = same ? wide_sums[l] : 1ll << 40;
        }
        keys[i] = key_of(v[i], power);
        apart[i] = difference(x[i], c[i]);
    }
}
"""


@functools.cache
def probe_kernel():
    import cupy

    from gputabu.backend.cuda.launch import options
    from gputabu.backend.cuda.sources import source

    text = PROBES.replace('#include "limbs.cuh"', source("limbs.cuh"))
    return cupy.RawModule(code=text, options=options(np.dtype(np.float32), ())).get_function("probe")


def probe(values, floats, centers, scale):
    """Limbs, by integers and in float64; keys; differences."""
    import cupy

    n = len(values)
    limbs, other, keys = cupy.empty((n, 3), np.int64), cupy.empty((n, 3), np.int64), cupy.empty(n, np.uint32)
    apart = cupy.empty(n, np.float64)
    given = (cupy.asarray(values), cupy.asarray(floats), cupy.asarray(centers), np.float64(scale))
    probe_kernel()((64,), (256,), (*given, limbs, keys, apart, other, np.int32(n)))
    return limbs.get(), other.get(), keys.get(), apart.get()


def adversarial(rng, n):
    """Doubles from 0 to 2^LIMB: of every size, halfway between limbs, one step off, short and full mantissas."""
    size = np.ldexp(rng.random(n), rng.integers(-100, LIMB + 1, n))
    whole, part = rng.integers(0, 2**LIMB, n), rng.integers(0, 2**LIMB, n)
    halves = whole + 0.5
    seconds = whole % 2**20 + np.ldexp(part + 0.5, -LIMB)
    thirds = np.ldexp(part + 0.5, -2 * LIMB)
    tie = np.ldexp(np.ldexp(whole % 2**10, LIMB) + 2 ** (LIMB - 1) + 0.5, -LIMB)  # Q is halfway, v is not
    exact = np.concatenate([halves, seconds, thirds, tie, whole.astype(float), [0.0, 2.0**LIMB, 5e-324, 1e-310]])
    near = [np.nextafter(exact, 0), np.nextafter(exact, np.inf)]
    values = np.concatenate([size, exact, *near])
    return values[(values >= 0) & (values <= 2.0**LIMB)]


@pytest.mark.parametrize("exponent", [0, 27, -600, 996, -950])
def test_limbs_keys_and_differences_are_those_of_float64_arithmetic(exponent):
    rng = np.random.default_rng(exponent + 1000)
    values = np.ldexp(adversarial(rng, 15_000), exponent - LIMB)  # at most 2^exponent
    bits = rng.integers(0, 2**32, len(values), dtype=np.uint64).astype(np.uint32)
    bits[::5] &= 0x807FFFFF  # denormal
    bits[::11] &= 0x80000000
    floats = bits.view(np.float32)
    floats = np.where(np.isfinite(floats), floats, np.float32(1))
    centers = np.ldexp(rng.normal(size=len(values)), rng.integers(-160, 130, len(values)))
    centers[::3] = np.nextafter(floats.astype(float), rng.choice([-np.inf, np.inf], len(floats)))[::3]
    centers[::7] = 0.0
    limbs, other, keys, apart = probe(values, floats, centers, np.ldexp(1.0, LIMB - exponent))
    wanted = np.stack(fixed_point.limbs(values.copy(), exponent, 3), axis=1).astype(np.int64)
    assert (limbs == wanted).all()
    assert (other == wanted).all()
    scaled = values * np.ldexp(1.0, LIMB - exponent)
    assert (keys == scaled.astype(np.float32).view(np.uint32)).all()
    assert (apart == floats.astype(np.float64) - centers).all()


@pytest.mark.parametrize("scale", [-130, -880, 100, 800])
def test_keys_of_all_sizes(scale):
    """Results that are denormal, normal, or infinite."""
    rng = np.random.default_rng(scale + 2000)
    values = np.ldexp(0.5 + rng.random(40_000) / 2, rng.integers(-200, 140, 40_000) - scale)
    values[::3] = np.ldexp(np.rint(np.ldexp(np.frexp(values[::3])[0], 25)), np.frexp(values[::3])[1] - 25)  # halfway
    values = values[(values > 0) & np.isfinite(values)]
    nothing = np.zeros(len(values))
    _, _, keys, _ = probe(values, nothing.astype(np.float32), nothing, np.ldexp(1.0, scale))
    with np.errstate(over="ignore"):
        wanted = (values * np.ldexp(1.0, scale)).astype(np.float32).view(np.uint32)
    assert (keys == wanted).all()


def problem(d, k, r, real, weighted, kind):
    """Points, weights, centres and labels: normal, of few integers (ties), or all alike but for duplicates."""
    from gputabu.data.points import Points

    rng = np.random.default_rng([d, k, r, weighted])
    n = 3 * max(k, 70) + 13
    X = {
        "normal": rng.normal(size=(n, d)) * 10.0 ** rng.integers(-3, 4, d),
        "ties": rng.integers(0, 3, (n, d)).astype(float),
        "duplicates": np.repeat(rng.normal(size=(2, d)), -(-n // 2), axis=0)[:n],
    }[kind].astype(real)
    X[::17] = 0
    weights = rng.integers(0, 3, n) / 2.0 if weighted else None
    if weights is not None:
        weights[0] = 1.0
    centers = np.stack([X[rng.permutation(n)[:k]].astype(float) for _ in range(r)])
    centers[:, ::2] = (centers[:, ::2] + X[0]) / 2  # in the box
    return Points.of(X, weights), centers


CASES = [
    (d, k, r, real, weighted, kind)
    for i, (d, k) in enumerate([(1, 3), (2, 65), (3, 2), (8, 300), (16, 7), (17, 3), (33, 65), (130, 5)])
    for kind in ("normal", "ties", "duplicates")
    for r, real, weighted in [((1, 3)[i % 2], (np.float32, np.float64)[i // 2 % 2], bool(i % 3 == 0))]
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case[:3])) + case[5])
def test_passes_have_the_bits_of_numpy(case):
    from gputabu.backend.cuda.backend import CudaBackend
    from gputabu.backend.numpy.backend import NumpyBackend

    points, centers = problem(*case)
    one, other = NumpyBackend(points), CudaBackend(points)
    r, k, _ = centers.shape
    none = np.full((r, k, 0), -1)
    labels = [backend.label(centers) for backend in (one, other)]
    found = [backend.survey_partial(centers, own, none, False, 2)
             for backend, own in zip((one, other), labels, strict=True)]  # fmt: skip
    for mine, theirs in zip(*(vars_of(each) for each in found), strict=True):
        assert np.array_equal(mine, theirs)
    near = [backend.nearest_two(centers) for backend in (one, other)]
    for name in ("first", "second", "near", "far"):
        mine, theirs = getattr(near[0], name), getattr(near[1], name)
        assert np.array_equal(mine, other.run(theirs.get)), name


def vars_of(partial):
    return [np.asarray(getattr(partial, name)) for name in type(partial).__dataclass_fields__]
