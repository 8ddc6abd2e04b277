"""What a first GPU would have met beyond kernels: the order of streams, copies, pools, pinned memory, forks, drivers.

The tests are named after the rows of a table of such faults. hostcuda sees each of them (test_hostcuda_order.py).
"""

from __future__ import annotations

import logging
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from conftest import GPU, blobs, same

from gputabu import chunked, lloyd, quantized
from gputabu.backend import as_caller_array, as_points, open_backend, to_numpy
from gputabu.data.points import Points

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(GPU != "hostcuda", reason="needs what only hostcuda checks")]
ROOT = Path(__file__).parents[2]
X = blobs(6000, 8, 5, dtype=np.float32)  # 192 kB
WEIGHTS = np.random.default_rng(0).random(len(X))
OPTIONS = {"restarts": 2, "init": "random", "max_iter": 3}


@pytest.fixture(autouse=True)
def knobs():
    """hostcuda's settings, put back afterwards; the device at rest, with nothing kept."""
    import cupy

    control = cupy._hostcuda
    before = vars(control.settings).copy()
    control.reset()
    cupy.cuda.Device().synchronize()
    cupy.get_default_memory_pool().free_all_blocks()
    yield control
    vars(control.settings).update(before)
    control.fail_next()


@pytest.fixture
def by_graph(monkeypatch):
    """Searches that run as a graph, not in one launch."""
    from gputabu.backend.cuda import search

    monkeypatch.setattr(search.DeviceSearch, "block_bytes", 10**9)


# -- 7: the order of streams -----------------------------------------------------------------------


@pytest.mark.parametrize("weights", [None, WEIGHTS], ids=["", "weighted"])
def test_row_07_a_copy_into_a_fresh_buffer_waits(weights):
    """CuPy hands out X's memory again in the order of the kernels that still read it: copies have another stream."""
    import cupy

    points = Points.of(X, weights)
    with open_backend(points, "cuda") as opened, open_backend(points, "numpy") as plain:
        grid, expected = opened.grid, plain.moments(plain.grid)
        for rows in (len(X) // 4, len(X) // 8, len(X) // 16):
            with opened.device, opened.stream:
                for chunk in opened.chunks:  # launched, and not waited for
                    totals = cupy.zeros(opened.n_columns, np.int64)
                    arguments = (chunk.X, chunk.weights, totals, opened.device_grid, chunk.n, 8)
                    opened.launch("measure.cu", "moments", (1, 4), arguments)
                del chunk, arguments
                assert opened.chunks.shrink()
            assert opened.chunks.resident is None and opened.chunks.buffers[0].rows == rows
            np.testing.assert_array_equal(opened.moments(grid), expected)


def test_row_07_a_copy_that_was_broken_off_is_waited_for(monkeypatch):
    """Whatever gets the buffer's memory next comes after half a copy, too."""
    import cupy

    from gputabu.backend.cuda.memory import Staging

    whole, turns = Staging.copy, iter([False, True])

    def broken(self, source, target, stream):
        whole(self, source, target, stream)
        if next(turns, False):
            raise KeyboardInterrupt

    with open_backend(Points.of(X, WEIGHTS), "cuda") as opened:
        opened.run(opened.chunks.shrink)
        monkeypatch.setattr(Staging, "copy", broken)
        with pytest.raises(KeyboardInterrupt):
            opened.bounds_partial()
        opened.chunks.buffers.clear()
        with opened.device, opened.stream:
            cupy.zeros((len(X) // 4, 8), np.float32)
            cupy.zeros(len(X) // 4, np.float64)


@pytest.mark.one_device
def test_row_07_streamed_searches_are_in_order(knobs, by_graph):
    """Wherever memory runs out, in passes and in searches."""
    whole = quantized.search(X, 5, backend="numpy", **OPTIONS)
    for nth in (3, 9, 14, 21):
        knobs.fail_next(allocation=nth)
        same(quantized.search(X, 5, backend="cuda", **OPTIONS), whole)
    assert knobs.stats()["violations"] == []


# -- 8: what is free -------------------------------------------------------------------------------


@pytest.mark.one_device
def test_row_08_a_second_fit_takes_the_same_way(knobs, by_graph, caplog):
    import cupy

    # One round of K-Means at the end: room for more, which has a state of its own, there is not.
    options = {**OPTIONS, "refine": "centroid"}
    pool = cupy.get_default_memory_pool()
    knobs.settings.memory = pool.total_bytes() + 700_000
    quantized.search(X, 5, backend="cuda", **options)  # compiles
    held, counts = pool.total_bytes(), []
    caplog.set_level(logging.INFO, "gputabu")
    for _ in range(3):
        knobs.reset()
        found = quantized.search(X, 5, backend="cuda", **options)
        stats = knobs.stats()
        counts.append((stats["graph_launches"], stats["copies"], stats["allocations"]))
        assert pool.total_bytes() == held  # what was kept is used again
    same(found, quantized.search(X, 5, backend="numpy", **options))
    assert counts[0] == counts[1] == counts[2] and counts[0][0] == 3
    assert not [text for text in caplog.messages if "streamed" in text or "pass by pass" in text]


@pytest.mark.one_device
def test_row_08_memory_is_let_go_with_the_fit():
    """Not when the collector comes by: the next fit needs it."""
    import gc

    import cupy

    pool, before = cupy.get_default_memory_pool(), cupy.get_default_memory_pool().used_bytes()
    gc.disable()
    try:
        quantized.search(X, 5, backend="cuda", **OPTIONS)
        lloyd.run(X, 5, backend="cuda")
        assert pool.used_bytes() == before
    finally:
        gc.enable()


def test_row_08_a_limit_of_the_pool_is_kept():
    import cupy

    from gputabu.backend.cuda.memory import available

    pool = cupy.get_default_memory_pool()
    pool.set_limit(size=pool.used_bytes() + 1_000_000)
    try:
        assert available() == 1_000_000
        with open_backend(Points.of(X), "cuda") as opened:
            assert opened.chunks.resident is not None
            assert available() == 1_000_000 - X.nbytes
    finally:
        pool.set_limit(size=0)


@pytest.mark.one_device
def test_row_08_the_log_says_which_way_was_taken(knobs, by_graph, caplog):
    import cupy

    caplog.set_level(logging.INFO, "gputabu")
    total = cupy.get_default_memory_pool().total_bytes()
    whole = quantized.search(X, 5, backend="numpy", **OPTIONS)
    for memory, message in ((250_000, "the points (0.2 MB) are streamed"), (450_000, "the search runs pass by pass")):
        caplog.clear()
        knobs.settings.memory = total + memory
        same(quantized.search(X, 5, backend="cuda", **OPTIONS), whole)
        assert [text for text in caplog.messages if text.startswith(message)]


# -- 9: pinned memory ------------------------------------------------------------------------------


@pytest.mark.one_device
def test_row_09_pinned_memory_is_bounded(knobs):
    big = np.zeros((500_000, 64), np.float32)  # 128 MB, of which nothing is touched
    with open_backend(Points((big,)), "cuda") as opened:
        assert opened.chunks.resident is not None
    assert 0 < knobs.stats()["pinned_bytes"] <= 64 << 20
    knobs.reset()
    knobs.settings.memory = 150_000_000
    with open_backend(Points((big,)), "cuda") as opened:
        assert opened.chunks.resident is None
        with opened.device, opened.stream:
            assert sum(chunk.n for chunk in opened.chunks) == len(big)
    assert 0 < knobs.stats()["pinned_bytes"] <= 64 << 20


def test_row_09_buffers_do_not_grow_with_the_device():
    from gputabu.backend.cuda import points

    with open_backend(Points((np.zeros((70_000_000, 1), np.float32),)), "cuda") as opened:
        opened.tuning = type(opened.tuning)(resident_share=0)
        assert 4 * opened.chunks.buffers[0].rows == points.BUFFER_BYTES == 1 << 27


@pytest.mark.one_device
def test_row_09_memory_that_cannot_be_pinned_is_done_without(knobs, caplog):
    caplog.set_level(logging.INFO, "gputabu")
    knobs.settings.pinned, knobs.settings.memory = 0, 320_000
    options = {"weights": WEIGHTS, **OPTIONS}
    same(quantized.search(X, 5, backend="cuda", **options), quantized.search(X, 5, backend="numpy", **options))
    assert [text for text in caplog.messages if "no host memory can be pinned" in text]


@pytest.mark.one_device
def test_row_09_large_arrays_go_through_small_buffers(knobs, monkeypatch):
    from gputabu.backend.cuda import memory

    monkeypatch.setattr(memory, "SMALL_BYTES", 1 << 12)
    monkeypatch.setattr(memory, "STAGE_BYTES", 1 << 13)
    options = {"weights": WEIGHTS, **OPTIONS}
    whole = quantized.search(X, 5, backend="numpy", **options)
    for pinned in (1 << 40, 0):
        knobs.reset()
        knobs.settings.pinned = pinned
        same(quantized.search(X, 5, backend="cuda", **options), whole)
        assert knobs.stats()["pinned_bytes"] < min(pinned + 1, 2 << 16)


# -- 10: making room -------------------------------------------------------------------------------


def test_row_10_room_is_made_when_the_work_has_let_go(knobs, monkeypatch):
    import cupy

    from gputabu.backend.cuda.points import DevicePoints

    used, shrink = [], DevicePoints.shrink
    monkeypatch.setattr(DevicePoints, "shrink", lambda self: used.append(knobs.used(0)) or shrink(self))

    def work():
        large = cupy.zeros(300_000, np.uint8)
        if len(used) < 2:
            knobs.fail_next(allocation=1)
        cupy.zeros(1, np.uint8)
        return large.nbytes

    with open_backend(Points.of(X), "cuda") as opened:
        opened.bounds_partial()
        before = knobs.used(0)
        assert opened.run(work) == 300_000
    quarter = -(-X.nbytes // 4 // 512) * 512
    assert used == [before, before - X.nbytes + 2 * quarter]


@pytest.mark.one_device
def test_row_10_a_search_lets_go_of_the_points_that_make_room(knobs, by_graph, monkeypatch):
    from gputabu.backend.cuda.points import DevicePoints

    used, make = [], DevicePoints._make_buffers
    monkeypatch.setattr(
        DevicePoints, "_make_buffers", lambda self, rows: used.append(knobs.used(0)) or make(self, rows)
    )
    whole = quantized.search(X, 5, backend="numpy", **OPTIONS)
    before = knobs.used(0)
    for nth in range(1, 40, 6):
        knobs.fail_next(allocation=nth)
        same(quantized.search(X, 5, backend="cuda", **OPTIONS), whole)
    assert len(used) > 3 and max(used) - before < X.nbytes / 2


# -- 11: forks and drivers -------------------------------------------------------------------------

FORKED = """
import multiprocessing, sys, warnings
import numpy as np
import gputabu.backend
from gputabu import KMeans
X = np.random.default_rng(0).normal(size=(50, 2))

def work(backend):
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        try:
            fitted = KMeans(2, random_state=0, backend=backend).fit(X)
        except gputabu.backend.BackendUnavailable as error:
            return str(error)
    return fitted.backend_, [str(one.message) for one in said if issubclass(one.category, RuntimeWarning)]

def main():
    if sys.argv[1] == "ours":
        assert work("auto") == ("cuda", []), work("auto")
    else:  # somebody else's CUDA
        import cupy
        cupy.zeros(3)
    for method in ("fork", "spawn"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            print(*pool.map(work, ["auto", "cuda"]), sep="\\n")

if __name__ == "__main__":
    main()
"""


def run(arguments, **environment):
    command = [ROOT / "tests" / "hostcuda" / "run", sys.executable, "-W", "ignore::DeprecationWarning", *arguments]
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": path} | environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("whose", ["ours", "theirs"])
@pytest.mark.one_device
def test_row_11_a_forked_process_knows_that_it_has_no_cuda(tmp_path, whose):
    (tmp_path / "forked.py").write_text(FORKED)
    auto, named, spawned_auto, spawned_named = run([tmp_path / "forked.py", whose])
    reason = "CUDA cannot be used in a process forked from one that has used it; begin processes by 'spawn'"
    assert "cuda" not in auto.split(",")[0] and f"{reason} (multiprocessing.set_start_method). Using the CPU" in auto
    assert named.startswith(f"backend='cuda' cannot run here: {reason}")
    assert spawned_auto == spawned_named == "('cuda', [])"


@pytest.mark.parametrize(
    ("driver", "devices", "reason"),
    [
        (11040, 1, "The NVIDIA driver, for CUDA 11.4, is too old for the CUDA 12.9 of this CuPy; update the driver"),
        (0, 1, "CuPy finds no usable NVIDIA GPU or driver."),
        (12090, 0, "CuPy finds no usable NVIDIA GPU or driver."),
    ],
)
def test_row_11_a_driver_that_is_too_old_is_said_to_be(knobs, driver, devices, reason):
    from gputabu.backend.cuda import unusable

    assert unusable() is None
    knobs.settings.driver, knobs.settings.devices = driver, devices
    assert unusable().startswith(reason)


# -- 15: copies that end later ---------------------------------------------------------------------


def test_row_15_what_is_read_from_disk_is_not_let_go_before_it_is_copied(tmp_path):
    np.save(tmp_path / "points.npy", np.rint(X * 16).astype(np.int16))  # widened, chunk by chunk
    source = chunked(tmp_path / "points.npy", chunk_bytes=1 << 16)
    points = as_points(source)
    with open_backend(points, "cuda") as opened, open_backend(as_points(source), "numpy") as plain:
        assert opened.chunks.resident is not None
        np.testing.assert_array_equal(opened.moments(plain.grid), plain.moments(plain.grid))


class Foreign:
    """An array of a library with streams of its own, which does not know CuPy's current device."""

    def __init__(self, array, stream):
        self.array, self.stream = array, stream

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __array_namespace__(self):
        return self

    def from_dlpack(self, array):
        array.__dlpack__(stream=self.stream.ptr)
        return Foreign(array, self.stream)


def test_row_15_results_on_another_device_are_not_read_early(knobs):
    import cupy

    knobs.settings.devices = 2
    with cupy.cuda.Device(1) as there:
        theirs = cupy.cuda.Stream(non_blocking=True)
        points = as_points(Foreign(cupy.asarray(X[:200]), theirs))
        there.synchronize()
    labels = as_caller_array(np.arange(200, dtype=np.int32), points)
    with cupy.cuda.Device(1), theirs:  # as the library would
        assert labels.array.get().tolist() == list(range(200))


def test_row_15_arrays_on_another_device_are_not_fetched_early(knobs):
    import cupy

    knobs.settings.devices = 2
    with cupy.cuda.Device(1):
        weights = cupy.asarray(WEIGHTS)  # on the null stream of that device
    with cupy.cuda.Stream(non_blocking=True):  # of this one
        np.testing.assert_array_equal(to_numpy(weights), WEIGHTS)
