"""hostcuda counts what warps ask of memory: planted kernels against numbers worked out by hand."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest
from test_hostcuda import HOSTCUDA, load

if not shutil.which(os.environ.get("CXX", "g++")):
    pytest.skip("hostcuda needs g++", allow_module_level=True)

cupy = load("counted_cupy", HOSTCUDA / "cupy" / "__init__.py")
hc = cupy._hostcuda
NAMES = [f"{kernel}<{word}>" for kernel in ("wide", "wide_banks") for word in ("double", "int2", "int4", "float4")]
PROGRAMS = cupy.RawModule(code=(HOSTCUDA / "counted.cu").read_text(), name_expressions=NAMES)


@pytest.fixture(autouse=True)
def counted():
    hc.set_count(True)
    hc.set_seed(0)
    hc.use_device("plain")
    hc.counts.kernels.clear()
    yield
    hc.set_count(False)
    hc.set_check(False)


def run(name, block, *args, grid=1, **options):
    """What the kernel is found to ask for. Arrays begin on a multiple of 512 bytes."""
    hc.counts.kernels.clear()
    PROGRAMS.get_function(name)((grid,), (block,), args, **options)
    return hc.counts.kernels[name]


def ones(n, dtype=np.int32):
    return cupy.asarray(np.ones(n, dtype))


def these(found, start):
    """Requests, sectors and the least sectors of loads, stores or atomics."""
    return tuple(found[f"{start}_{what}"] for what in ("requests", "sectors", "least"))


# ---- global memory
def test_coalesced():
    # two blocks of two warps; 32 words of 4 bytes are 128 bytes, 4 sectors, in each request
    found = run("strided", 64, ones(128), ones(128), np.int32(1), np.int32(0), grid=2)
    assert these(found, "load") == these(found, "store") == (4, 16, 16)
    assert (found["requests"], found["active_lanes"]) == (8, 256)
    assert found["bytes_loaded"] == 512 and found["shared_requests"] == found["atomic_requests"] == 0


@pytest.mark.parametrize(
    ("stride", "shift", "sectors", "least"),
    [
        (8, 0, 32, 4),  # a word of each sector
        (100, 0, 32, 4),
        (2, 0, 8, 4),  # every other word
        (1, 1, 5, 4),  # begins within a sector and ends within the fifth
        (0, 3, 1, 1),  # all lanes read the same word
    ],
)
def test_strided(stride, shift, sectors, least):
    found = run("strided", 32, ones(3200), ones(32), np.int32(stride), np.int32(shift))
    assert these(found, "load") == (1, sectors, least)
    assert these(found, "store") == (1, 4, 4)


@pytest.mark.parametrize(("word", "bytes_"), [("double", 8), ("int2", 8), ("int4", 16), ("float4", 16)])
def test_wide(word, bytes_):
    # one request of 32·8 bytes is 8 sectors, one of 32·16 bytes 16: a pair or four are one access, not several
    found = run(f"wide<{word}>", 32, ones(32 * bytes_ // 8, np.float64), ones(32 * bytes_ // 8, np.float64))
    assert these(found, "load") == these(found, "store") == (1, bytes_, bytes_)
    assert (found["requests"], found["active_lanes"]) == (2, 64)


def test_a_member_is_loaded_alone():
    # 4 of every 16 bytes: all 16 sectors, where 4 would do
    assert these(run("member", 32, ones(128), ones(32)), "load") == (1, 16, 4)


# ---- shared memory: 33·32 words are written, one wavefront for each 32 of them
@pytest.mark.parametrize(
    ("stride", "wavefronts"),
    [
        (1, 1),
        (33, 1),  # lane i in bank i
        (0, 1),  # one word for all
        (2, 2),
        (8, 8),  # 32 words in banks 0, 8, 16, 24: eight in each
        (32, 32),  # all in bank 0
    ],
)
def test_banks(stride, wavefronts):
    found = run("banks", 32, ones(32), np.int32(stride))
    assert (found["shared_requests"], found["shared_wavefronts"]) == (33 + 1, 33 + wavefronts)


@pytest.mark.parametrize(
    ("word", "stride", "wavefronts"),
    [
        ("int2", 1, 2),  # a half warp has 32 words, one in each bank
        ("double", 1, 2),
        ("double", 2, 4),  # a half warp has 32 of 64 words in a row, two in each even pair of banks
        ("double", 0, 1),  # the same word for all: both halves at once
        ("int4", 1, 4),  # a quarter has 32 words
        ("float4", 1, 4),
        ("float4", 2, 8),
        ("float4", 0, 2),  # two quarters at once
    ],
)
def test_wide_banks(word, stride, wavefronts):
    lanes = 2 if word in ("int2", "double") else 4  # words of 4 bytes that each lane has
    found = run(f"wide_banks<{word}>", 32, ones(32 * lanes), np.int32(stride), shared_mem=64 * 4 * lanes)
    assert found["shared_requests"] == 3  # two stores of all words in a row, and the load
    assert found["shared_wavefronts"] == 2 * lanes + wavefronts


# ---- lanes
def test_divergent_branch():
    # the odd lanes of two warps; their words lie in all 4 sectors, though 64 bytes would fit in two
    found = run("branch", 64, ones(64))
    assert (found["requests"], found["active_lanes"]) == (2, 32)
    assert these(found, "store") == (2, 8, 4)


def test_loops_of_different_length():
    # in round j the lanes above j read word j: 31 + 30 + … + 1 = 496 lanes in 31 requests; then all 32 store
    found = run("triangle", 32, ones(32), ones(32))
    assert these(found, "load") == (31, 31, 31)
    assert found["active_lanes"] == 496 + 32


@pytest.mark.parametrize("seed", range(5))
def test_lanes_that_take_turns(seed):
    # each lane reads once, half of them before the __syncwarp and half after it: two requests, whoever runs first
    hc.set_seed(seed)
    found = run("turns", 32, ones(32), ones(32))
    assert these(found, "load") == (2, 8, 4)
    assert found["active_lanes"] == 16 + 16 + 32


def test_few_lanes():
    # 40 threads: a whole warp, and one of 8 lanes, which need one sector
    found = run("strided", 40, ones(40), ones(40), np.int32(1), np.int32(0))
    assert these(found, "load") == (2, 5, 5) and found["active_lanes"] == 80
    # 24 lanes go on
    found = run("leave", 32, ones(32), ones(32))
    assert these(found, "load") == these(found, "store") == (1, 3, 3) and found["active_lanes"] == 48


@pytest.mark.parametrize("seed", range(3))
def test_long_loops(seed):
    # far more accesses than are kept open: each lane waits for the others, and requests stay whole
    hc.set_seed(seed)
    n = 5000
    found = run("far", 64, ones(n * 32), ones(64), np.int32(n))
    assert these(found, "load") == (2 * n, 2 * n * 4, 2 * n * 4)
    assert found["active_lanes"] == 64 * (n + 1)


def test_halves_of_a_warp_in_loops_of_their_own():
    # n requests of lanes 0…15 and 2n of lanes 16…31, each 64 bytes in a row: 2 sectors
    n = 5000
    found = run("halves", 32, ones(n * 32 + 16), ones(32), np.int32(n))
    assert these(found, "load") == (3 * n, 6 * n, 6 * n)
    assert found["active_lanes"] == 16 * 3 * n + 32


# ---- atomics
@pytest.mark.parametrize(
    ("share", "worst", "sectors"),
    [
        (32, 32, 1),  # all lanes of a warp, one address
        (4, 4, 1),  # eight words
        (1, 1, 4),
    ],
)
def test_atomics(share, worst, sectors):
    # two blocks of one warp
    found = run("add", 32, ones(32), np.int32(share), grid=2)
    assert these(found, "atomic") == (2, 2 * sectors, 2 * sectors)
    assert (found["atomic_worst"], found["atomic_turns"]) == (worst, 2 * worst)
    assert found["load_requests"] == found["store_requests"] == 0 and found["atomics"] == 64


@pytest.mark.parametrize(("share", "worst"), [(32, 32), (4, 4), (1, 1)])
def test_shared_atomics(share, worst):
    # a store and a load of one wavefront each, and the atomic, where lanes with the same word take turns
    found = run("add_shared", 32, ones(32), np.int32(share))
    assert (found["shared_requests"], found["shared_atomic_requests"]) == (3, 1)
    assert (found["shared_atomic_worst"], found["shared_atomic_turns"]) == (worst, worst)
    assert found["shared_wavefronts"] == 2 + worst and found["atomic_requests"] == 0


def test_worst_is_of_all_launches():
    out, kernel = ones(32), PROGRAMS.get_function("add")
    for share in (2, 8, 4):
        kernel((1,), (32,), (out, np.int32(share)))
    found = hc.stats()["kernels"]["add"]
    assert (found["atomic_worst"], found["atomic_turns"], found["launches"]) == (8, 14, 3)


# ---- the switch
def test_off_unless_asked_for():
    hc.set_count(False)
    found = run("strided", 32, ones(32), ones(32), np.int32(1), np.int32(0))
    assert found["bytes_loaded"] == 128 and not any(name in found for name in hc.REQUESTS)
    hc.set_check(False)
    hc.set_count(True)
    assert hc.settings.check


def test_a_fault_while_counting_leaves_the_next_launch_alone():
    with pytest.raises(hc.Violation, match="out of bounds"):
        run("strided", 32, ones(32), ones(32), np.int32(8), np.int32(0))
    assert these(run("strided", 32, ones(32), ones(32), np.int32(1), np.int32(0)), "load") == (1, 4, 4)


PROGRAM = """
import cupy, numpy as np
kernel = cupy.RawKernel('extern "C" __global__ void zero(int* a) { a[threadIdx.x] = 0; }', "zero")
kernel((1,), (32,), (cupy.empty(32, np.int32),))
"""


def test_statistics_of_a_process(tmp_path):
    file = tmp_path / "stats.json"
    command = [HOSTCUDA / "run", sys.executable, "-c", PROGRAM]
    subprocess.run(command, env=os.environ | {"HOSTCUDA_COUNT": "1", "HOSTCUDA_STATS": str(file)}, check=True)
    found = json.loads(pathlib.Path(file).read_text())["kernels"]["zero"]
    assert these(found, "store") == (1, 4, 4) and found["active_lanes"] == 32
