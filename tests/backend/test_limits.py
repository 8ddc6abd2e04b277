"""Limits of devices: shared memory, launches that last, captures that fail. Rows are those of issue 17.

What was wrong is done again where that is short, and must fail.
"""

from __future__ import annotations

import itertools
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import GPU, become, blobs, same

from gputabu import lloyd, quantized, reassignment, relocation

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(GPU != "hostcuda", reason="changes what only hostcuda can: the device"),
]
REALS = [np.float32, np.float64]


@pytest.fixture
def knobs():
    """hostcuda's settings, put back afterwards; the device is that of each test."""
    import cupy

    before = {name: value for name, value in vars(cupy._hostcuda.settings).items() if name != "device"}
    cupy._hostcuda.reset()
    yield cupy._hostcuda
    vars(cupy._hostcuda.settings).update(before)


def refused():
    """As the driver refuses a launch."""
    import cupy

    return pytest.raises(cupy.cuda.driver.CUDADriverError, match="INVALID_VALUE")


def equal(run, X, k, **options):
    same(run(X, k, backend="cuda", **options), run(X, k, backend="numpy", **options))


# -- the rows --------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", REALS)
@pytest.mark.parametrize("device", ["t4", "small"])
def test_row_01_float64_on_turing(device, dtype, monkeypatch):
    """The survey's tile of 256 points takes 66 KiB in float64; tables of many centres do not fit either."""
    from gputabu.backend.cuda import shapes

    become(device)
    X = blobs(300, 20, 5, dtype=dtype)
    for k, restarts in ((60, 3), (5, 2)):
        equal(quantized.search, X, k, restarts=restarts, max_iter=3)
    if dtype == np.float64:
        survey = shapes.survey
        monkeypatch.setattr(shapes, "survey", lambda room, *more: survey(10**9, *more)._replace(shared=256 * 33 * 8))
        with refused():
            lloyd.run(X, 5, backend="cuda")


@pytest.mark.parametrize("device", ["t4", "v100", "small"])
@pytest.mark.parametrize(("dtype", "k"), [(np.float32, 32), (np.float64, 8)])
def test_row_02_static_and_dynamic_shared_memory_count_together(device, dtype, k, monkeypatch):
    """assign_tiled, d = 64: less than 48 KiB of each, more of both."""
    from gputabu.backend.cuda import launch, shapes

    become(device)
    X = blobs(150, 64, 8, dtype=dtype)
    equal(lloyd.run, X, k, max_iter=3)
    equal(quantized.search, X, k, max_iter=3, refine="centroid")
    launch.load.cache_clear()
    become("plain")  # whatever was asked for is forgotten
    become(device)
    monkeypatch.setattr(launch, "PLAIN_SHARED", 10**9)  # as before: nothing is asked for below 48 KiB of dynamic
    tiled = shapes.assign_tiled
    monkeypatch.setattr(shapes, "assign_tiled", lambda room, *more: tiled(46 << 10, *more))
    with refused():
        lloyd.run(X, k, backend="cuda")


@pytest.mark.parametrize("device", ["plain", "small"])
@pytest.mark.one_device
def test_row_04_more_restarts_than_shared_memory_has_room_for(device, monkeypatch):
    from gputabu.backend.cuda import shapes

    become(device)
    X, options = blobs(12, 2, 3), {"restarts": 5000, "init": "random", "max_iter": 2}
    equal(lloyd.run, X, 2, **options)
    monkeypatch.setattr(shapes, "restarts_at_once", lambda room, shape, *more: shape.r)
    with refused():
        lloyd.run(X, 2, backend="cuda", **options)


@pytest.mark.parametrize("scope", ["cluster", "global"])
@pytest.mark.one_device
def test_row_05_thousands_of_clusters(scope):
    """`step` took 16·K bytes of shared memory: 51,200 here."""
    become("small")
    X = np.random.default_rng(0).normal(size=(3250, 1)).astype(np.float32)
    equal(quantized.search, X, 3200, init="random", max_iter=2, scope=scope, refine="centroid")


def test_row_06_threads_share_kernels(monkeypatch):
    """Each needs another amount of shared memory of the same kernels; none may lower what another asked for."""
    import cupy

    become("a100")
    profiles = cupy._profiles
    check = profiles.check_shared  # time for the others, where they matter most
    monkeypatch.setattr(profiles, "check_shared", lambda *what: (time.sleep(0.0005), check(*what)))
    options = {"max_iter": 4, "restarts": 2, "init": "random"}
    cases = [(blobs(90, 16, 4, seed=i), k) for i, k in enumerate((3, 90, 20, 60, 40, 75))] * 2
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda case: lloyd.run(*case, backend="cuda", **options), cases))
    for (X, k), one in zip(cases, found, strict=True):
        same(one, lloyd.run(X, k, backend="numpy", **options))


def test_row_06_the_attribute_is_set_once_to_the_most(monkeypatch):
    import cupy

    become("plain")
    become("a100")
    profiles, asked = cupy._profiles, []
    plain = profiles.ask_dynamic
    monkeypatch.setattr(profiles, "ask_dynamic", lambda *what: (asked.append(what), plain(*what)))
    for k in (60, 3, 90):
        for d in (16, 40):
            quantized.search(blobs(100, d, 4), k, max_iter=2, backend="cuda")
    assert len({function for function, _, _ in asked}) == len(asked) > 5
    assert all(static + size == 163 << 10 for _, static, size in asked)


@pytest.mark.parametrize(
    ("run", "options", "n", "d", "work"),
    [
        (quantized.search, {"max_iter": 6, "restarts": 3, "init": "k-means++"}, 1500, 3, 2**14),
        (lloyd.run, {"max_iter": 3, "restarts": 3, "refine": "hartigan"}, 1500, 3, 2**14),
        (reassignment.search, {"max_iter": 3}, 1500, 3, 2**14),
        (relocation.search, {"max_iter": 3}, 1500, 3, 2**14),
        (lloyd.run, {"max_iter": 2, "restarts": 3}, 400, 33, 2**18),  # a tile of assign_tiled alone is 2^17.6
    ],
    ids=["quantized", "lloyd", "reassignment", "relocation", "tiled"],
)
@pytest.mark.one_device
def test_row_13_launches_are_short_under_a_watchdog(run, options, n, d, work, knobs, monkeypatch):
    """A launch does no more than it may; without the bound, it does."""
    from gputabu.backend.cuda import shapes

    become("small")
    monkeypatch.setattr(shapes, "LAUNCH_WORK", work)
    X = blobs(n, d, 6)
    knobs.settings.watchdog = 4 * work  # multiply-adds have two operands, and what is found is stored
    equal(run, X, 30, **options)
    assert "block_search" not in knobs.stats()["kernels"]
    monkeypatch.setattr(shapes, "LAUNCH_WORK", 2**40)
    with pytest.raises(knobs.Violation, match="cudaErrorLaunchTimeout"):
        run(X, 30, backend="cuda", **options)


@pytest.mark.parametrize("device", ["small", "rtx5090", "t4"])
@pytest.mark.one_device
def test_row_13_whole_searches_in_one_launch(device, knobs, iris, monkeypatch):
    """Not under a watchdog, and not where Ctrl-C would wait for long."""
    from gputabu.backend.cuda.search import DeviceSearch

    become(device)
    knobs.settings.watchdog = 2**20
    kernels = {}
    for max_iter in (60, 10**6):
        knobs.reset()
        equal(quantized.search, iris, 3, max_iter=max_iter, patience=15)
        kernels[max_iter] = set(knobs.stats()["kernels"])
    assert ("block_search" in kernels[60]) == (device == "t4")
    assert "block_search" not in kernels[10**6]
    if device != "t4":  # as before
        monkeypatch.setattr(DeviceSearch, "fits_a_launch", True)
        with pytest.raises(knobs.Violation, match=r"kernel block_search.*cudaErrorLaunchTimeout"):
            quantized.search(iris, 3, max_iter=400, backend="cuda")


def test_row_14_what_fails_in_a_capture_is_the_cause_and_frees_the_stream(knobs, iris, monkeypatch):
    import cupy

    become("small")  # by a graph
    search = partial(quantized.search, iris, 3, init=[0, 50, 100], max_iter=20)
    begun, ended, stream = [], [], cupy.cuda.Stream
    begin, end = stream.begin_capture, stream.end_capture
    monkeypatch.setattr(stream, "begin_capture", lambda self: (begun.append(self), begin(self)))
    monkeypatch.setattr(stream, "end_capture", lambda self: (ended.append(self), end(self))[1])
    inside = []
    for nth in itertools.count(1):  # every launch in turn
        begun.clear(), ended.clear()
        knobs.fail_next(launch=nth)
        try:
            search(backend="cuda")
        except cupy.cuda.runtime.CUDARuntimeError as error:
            inside += [nth] * len(begun)
            statuses = {error.status}
        if knobs.settings.fail_launch:  # there are no more
            break
        assert statuses == {719}
        assert begun == ended
        assert not any(each.is_capturing() for each in begun)
    knobs.fail_next()
    assert len(inside) >= 4  # the launches of an iteration, and those behind it
    same(search(backend="cuda"), search(backend="numpy"))

    def captured(stream, work):  # as before
        stream.begin_capture()
        work()
        return stream.end_capture()

    monkeypatch.setattr("gputabu.backend.cuda.search.captured", captured)
    knobs.fail_next(launch=inside[1])
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="StreamCaptureUnsupported"):
        search(backend="cuda")
    assert len(begun) == len(ended) + 1
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="StreamCaptureInvalidated"):
        end(begun[-1])


def test_row_14_ctrl_c_in_a_capture(iris, monkeypatch):
    from gputabu.backend.cuda.search import DeviceSearch

    become("small")
    streams, iteration = [], DeviceSearch._iteration

    def interrupted(self):
        iteration(self)
        if self.backend.stream.is_capturing():
            streams.append(self.backend.stream)
            raise KeyboardInterrupt

    monkeypatch.setattr(DeviceSearch, "_iteration", interrupted)
    with pytest.raises(KeyboardInterrupt):
        quantized.search(iris, 3, max_iter=20, backend="cuda")
    assert [stream.is_capturing() for stream in streams] == [False]


# -- shapes of launches on every architecture ------------------------------------------------------


@pytest.mark.one_device
def test_launch_shapes_of_every_device():
    """Over a sweep of sizes: grid, threads and shared memory within the limits; nothing is launched."""
    import cupy

    from gputabu.backend.arithmetic.fixed_point import Totals
    from gputabu.backend.cuda import launch, shapes
    from gputabu.backend.cuda.structs import Shape

    def static(file, name, real, **defines):
        module = cupy.RawModule(code=launch.source(file), options=launch.options(real, tuple(defines.items())))
        return module.get_function(name).shared_size_bytes

    for real in map(np.dtype, REALS):
        fixed = {
            "tiled": static("assign_tiled.cu", "assign_tiled", real),
            "survey1": static("tabu_argmin.cu", "survey", real, **shapes.survey_defines(1, 32)),
            "survey8": static("tabu_argmin.cu", "survey", real, **shapes.survey_defines(8, 32)),
            "trials": static("reassignment.cu", "try_labels", real),
            "assign": static("assign.cu", "assign", real, D=4),
        }
        sweep = itertools.product(
            (1, 4, 16, 31, 32, 33, 784), (1, 60, 256, 7000, 100_000), (1, 3, 400, 60_000), (False, True)
        )
        for (d, k, r, flag), limits in itertools.product(sweep, cupy._profiles.PROFILES.values()):
            shape, columns, most = Shape(r, k, d), Totals.columns(d, flag), limits["MaxSharedMemoryPerBlockOptin"]
            room = {name: most - size for name, size in fixed.items()}
            for name, form in forms_of(room, shape, columns, real, 2 * limits["MultiProcessorCount"], flag):
                assert 0 <= form.shared <= room[name], (name, limits, shape)
                assert 64 <= form.threads <= shapes.THREADS <= 256  # 255 registers each, the most there are, fit
                for size, axis in zip(form.grid, "XYZ", strict=False):
                    assert 1 <= size <= limits[f"MaxGridDim{axis}"]


def forms_of(room, shape, columns, real, blocks, flag):
    """Kernels with shared memory, and how they are launched over a few points or very many."""
    from gputabu.backend.cuda import shapes

    n = 2**32 - 1 if flag else 1
    if shape.d <= shapes.REGISTER_D:
        here = shape._replace(r=shapes.restarts_at_once(room["assign"], shape, columns, real))
        assert here.r >= min(shape.r, 200)  # a handful of launches
        yield "assign", shapes.assign(room["assign"], n, here, columns, real, blocks, flag)
    else:
        yield "tiled", shapes.assign_tiled(room["tiled"], n, shape, columns, real, blocks, flag)
    name = f"survey{shapes.survey_group(shape.r)}"
    yield name, shapes.survey(room[name], n, shape, real, blocks, flag)
    yield "trials", shapes.try_labels(room["trials"], n, shape.r, 20, shape.k, columns, real, blocks)


def test_whole_searches_are_launched_where_a_block_of_the_device_has_room():
    """The same sweep for `block_search`: taken where it fits and nobody need end it, and on every device by someone."""
    import cupy

    from gputabu.backend.arithmetic.fixed_point import Totals
    from gputabu.backend.cuda import launch
    from gputabu.backend.cuda.search import DeviceSearch
    from gputabu.backend.loops import QuantizedSettings

    code = launch.source("block_search.cu")
    taken = set()
    for real, weighted in itertools.product(map(np.dtype, REALS), (False, True)):
        fixed = cupy.RawModule(code=code, options=launch.options(real, ())).get_function("block_search")
        for (name, limits), n, d, k in itertools.product(
            cupy._profiles.PROFILES.items(), (2, 150, 1000, 6000, 2**32 - 1), (1, 4, 33, 784), (1, 3, 60, 7000)
        ):
            if k > n:
                continue
            room = limits["MaxSharedMemoryPerBlockOptin"] - fixed.shared_size_bytes
            backend = SimpleNamespace(
                points=SimpleNamespace(n=n, d=d, dtype=real), n_columns=Totals.columns(d, weighted), watched=False,
                blocks=2 * limits["MultiProcessorCount"], room=lambda *_, room=room: room,
            )  # fmt: skip
            settings = QuantizedSettings(100, 25, -1.0, False, 10, SimpleNamespace(timed=False))
            search = DeviceSearch(backend, None, np.zeros((3, k), np.int64), settings)
            if search.fits_a_launch:
                assert n * d * real.itemsize < search.block_bytes <= room
                taken.add(name)
            backend.watched = True
            assert not search.fits_a_launch
    assert taken == set(cupy._profiles.PROFILES)


def test_blocks_of_loops_that_stride_fit_any_axis():
    import cupy

    from gputabu.backend.cuda.backend import CudaBackend

    for limits, n in itertools.product(cupy._profiles.PROFILES.values(), (1, 2**32 - 1)):
        backend = object.__new__(CudaBackend)
        backend.blocks, backend.points = 2 * limits["MultiProcessorCount"], SimpleNamespace(d=10_000)
        assert 1 <= backend.spread(60_000 * n)[0] <= limits["MaxGridDimY"]
        assert 1 <= backend._columns(SimpleNamespace(n=n))[1] <= limits["MaxGridDimY"]
