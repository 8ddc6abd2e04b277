"""Planted faults are caught, correct programs give the right numbers in any order of the threads."""

import gc
import importlib.util
import json
import os
import pathlib
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

HOSTCUDA = pathlib.Path(__file__).parents[1] / "hostcuda"
if not shutil.which(os.environ.get("CXX", "g++")):
    pytest.skip("hostcuda needs g++", allow_module_level=True)


def load(name, path):
    """Under a name of its own, so that whatever else is called cupy in this process is left alone."""
    folder = [str(path.parent)] if path.name == "__init__.py" else None
    spec = importlib.util.spec_from_file_location(name, path, submodule_search_locations=folder)
    sys.modules[name] = module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


cupy = load("hostcuda_cupy", HOSTCUDA / "cupy" / "__init__.py")
signatures = load("hostcuda_signatures", HOSTCUDA / "signatures.py")
hc = cupy._hostcuda
SEEDS = range(5)
PROGRAMS = cupy.RawModule(code=(HOSTCUDA / "programs.cu").read_text(), name_expressions=["twice<float>"])
PLANTED = cupy.RawModule(code=(HOSTCUDA / "planted.cu").read_text())
DATA = np.random.default_rng(0).integers(0, 16, 1000).astype(np.int32)


@pytest.fixture(autouse=True)
def checked():
    hc.set_check(True)
    hc.set_seed(0)
    hc.use_device("plain")
    hc.reset()
    yield
    hc.set_check(False)


@pytest.fixture(params=SEEDS)
def seed(request):
    hc.set_seed(request.param)
    hc.set_check(True, global_races=True)


def run(name, grid, block, *args, module=PROGRAMS, **options):
    module.get_function(name)(grid, block, args, **options)


def plant(name, block, *args, message, grid=(1,), **options):
    with pytest.raises(hc.Violation, match=message) as caught:
        run(name, grid, block, *args, module=PLANTED, **options)
    assert f"kernel {name}, block (" in str(caught.value)
    assert hc.stats()["violations"] == [str(caught.value)]
    return str(caught.value)


# ---- planted faults
def test_read_out_of_bounds():
    a, out = cupy.zeros(8, np.int32), cupy.empty(8, np.int32)
    text = plant("read_past", (4,), a, out, np.int32(5), message="reads 4 bytes out of bounds: by 0 bytes past")
    assert "of 32 bytes" in text and text.endswith("by thread (3,0,0)")


def test_write_out_of_bounds():
    a = cupy.zeros(8, np.int32)
    plant("write_past", (3,), a, np.int32(5), message="writes 4 bytes out of bounds: by 8 bytes past")
    hc.reset()
    plant("write_before", (1,), a, message="writes 4 bytes out of bounds: by 4 bytes before")


def test_far_out_of_bounds():
    plant("write_past", (2,), cupy.zeros(8, np.int32), np.int32(2**29), message="out of bounds")


def test_use_after_free():
    a, out = cupy.zeros(8, np.int32), cupy.empty(8, np.int32)
    pointer = np.uint64(a.data.ptr)
    del a
    plant("read_all", (8,), pointer, out, message="reads 4 bytes after free: .* a freed array of 32 bytes")


@pytest.mark.parametrize("name", ["shared_race", "warp_race", "lane_race", "read_then_write"])
def test_shared_race(name):
    block = 32 if name in ("lane_race", "read_then_write") else 64
    plant(name, (block,), cupy.empty(64, np.int32), message="race on byte .* of static shared memory")


@pytest.mark.parametrize("seed", SEEDS)
def test_missing_barrier_is_a_race(seed):
    hc.set_seed(seed)
    plant("missing_barrier", (64,), cupy.zeros(64, np.int32), cupy.empty(64, np.int32), message="race on byte")


def test_missing_barrier_depends_on_the_seed():
    hc.set_check(False)
    a, results = cupy.asarray(np.arange(64, dtype=np.int32)), set()
    for seed in SEEDS:
        hc.set_seed(seed)
        out = cupy.empty(64, np.int32)
        run("missing_barrier", (1,), (64,), a, out, module=PLANTED)
        results.add(out.get().tobytes())
    assert len(results) > 1


def test_global_race():
    a = cupy.empty(1, np.int32)
    run("global_race", (2,), (1,), a, module=PLANTED)  # the extra check is off
    hc.set_check(True, global_races=True)
    plant("global_race", (1,), a, grid=(2,), message=r"race on byte 0 of an array: written .* of block \(")


def test_divergent_barrier():
    out = cupy.empty(32, np.int32)
    text = plant("divergent", (32,), out, message="divergent barrier: no thread can go on")
    assert "16 wait at __syncthreads, line" in text and "16 wait at __syncwarp, line" in text and "(0,0,0)" in text
    hc.reset()
    plant("two_barriers", (32,), out, message="divergent barrier: thread .* line .* while thread")
    hc.reset()
    plant("outside_mask", (32,), out, message="mask 0x0000ffff leaves out the caller")


def test_a_failed_launch_leaves_the_next_alone():
    test_divergent_barrier()
    out = cupy.empty(1, np.int32)
    run("block_sum", (1,), (256,), cupy.asarray(DATA), out, np.int32(256))
    assert out.item() == DATA[:256].sum()


def test_read_of_memory_never_written():
    a, out = cupy.empty(8, np.int32), cupy.empty(8, np.int32)
    a[:4] = 0
    assert (a._view[4:] == -1).all()  # poison
    plant("read_all", (8,), a, out, message="reads memory never written: byte .* of an array of 32 bytes")
    hc.reset()
    plant("unwritten_shared", (32,), cupy.empty(32, np.int32), message="never written: byte .* of shared memory")
    with pytest.raises(hc.Violation, match="a copy to the host reads memory never written"):
        cupy.empty(3).get()


def test_shared_memory_out_of_bounds():
    out = cupy.empty(32, np.int32)
    plant("shared_past", (32,), out, np.int32(1), message="index out of the bounds of its array at kernel.cu:")
    hc.reset()
    text = "out of bounds: at byte .* of 64 bytes of shared memory"
    plant("dynamic_past", (32,), out, np.int32(0), shared_mem=64, message=text)
    hc.reset()
    plant("dynamic_past", (4,), out, np.int32(-1), shared_mem=64, message=text)


def test_undefined_arithmetic():
    a = cupy.zeros(8, np.float32)
    plant("overflow", (1,), a.view(np.int32), np.int32(2**16), message="overflow of a signed multiplication")
    hc.reset()
    plant("misaligned", (1,), a, a, message="misaligned pointer")
    hc.reset()
    plant("asserts", (1,), np.int32(0), message="assertion failed: n > 0")


TASK = np.dtype([("from", np.uint64), ("n", np.int32), ("to", np.uint64)], align=True)


def task(a, n, b):
    return np.array((a.data.ptr, n, b.data.ptr), TASK)


def test_structs_go_by_value_and_what_they_point_to_is_watched(monkeypatch):
    a, b = cupy.asarray(np.arange(8, dtype=np.float32)), cupy.empty(8, np.float32)
    run("copy_task", (1,), (8,), task(a, 8, b))
    np.testing.assert_array_equal(b.get(), a.get())
    for small, large in ((a[:5].copy(), b), (a, cupy.empty(5, np.float32))):
        with pytest.raises(hc.Violation, match=r"4 bytes out of bounds: by \d bytes past an array of 20 bytes"):
            run("copy_task", (1,), (8,), task(small, 8, large))
    fresh = cupy.empty(8, np.float32)
    with pytest.raises(hc.Violation, match="reads memory never written"):
        run("copy_task", (1,), (8,), task(fresh, 8, b))
    freed = task(cupy.zeros(8, np.float32), 8, b)
    with pytest.raises(hc.Violation, match="after free"):
        run("copy_task", (1,), (8,), freed)
    monkeypatch.setattr(hc.settings, "devices", 2)
    with cupy.cuda.Device(1):
        far = cupy.zeros(8, np.float32)
    with pytest.raises(ValueError, match="argument 0 of kernel copy_task is on device 1"):
        run("copy_task", (1,), (8,), task(a, 8, far))


def test_structs_must_have_the_kernel_s_width():
    a = cupy.zeros(8, np.float32)
    packed = task(a, 8, a).astype(np.dtype([(name, TASK[name]) for name in TASK.names]))  # not aligned as in C
    for wrong in (packed, np.int64(8), np.array(8), a):
        with pytest.raises(TypeError, match="argument 0 of kernel copy_task must be struct, 24 bytes"):
            run("copy_task", (1,), (8,), wrong)
    for wrong in (task(a, 8, a)[()], np.stack([task(a, 8, a)] * 2)):  # a scalar of NumPy, and two structs
        with pytest.raises(TypeError, match="Unsupported type"):
            run("copy_task", (1,), (8,), wrong)


def test_leak():
    kept = [cupy.zeros(100, np.float32)]
    with pytest.raises(hc.Violation, match="512 bytes of device memory are still alive"):
        hc.check_leaks()
    kept.clear()
    hc.check_leaks()


def test_arguments_must_have_the_kernel_s_width():
    a = cupy.zeros(8, np.float32)
    for wrong in (8, 8.0, np.int64(8), np.float32(8), a):
        with pytest.raises(TypeError, match="argument 2 of kernel copy must be integer, 4 bytes"):
            run("copy", (1,), (8,), a, a, wrong)
    with pytest.raises(TypeError, match="takes 3 arguments, 2 were given"):
        run("copy", (1,), (8,), a, a)
    with pytest.raises(TypeError, match="Unsupported type"):
        run("copy", (1,), (8,), a, np.zeros(8, np.float32), np.int32(8))
    with pytest.raises(cupy.cuda.driver.CUDADriverError):
        run("copy", (1, 65536), (8,), a, a, np.int32(8))


def test_strides_are_ignored_as_cupy_ignores_them():
    a, b = cupy.arange(8, dtype=np.float32), cupy.empty(4, np.float32)
    run("copy", (1,), (4,), a[::2], b, np.int32(4))
    assert b.get().tolist() == [0, 1, 2, 3]


def test_out_of_memory(monkeypatch):
    pool = cupy.get_default_memory_pool()
    kept = []
    while pool.free_bytes():  # what a split left over
        kept.append(cupy.empty(512, np.uint8))
        pool.free_all_blocks()
    monkeypatch.setattr(hc.settings, "memory", pool.total_bytes() + 4096)
    a = cupy.empty(4096, np.uint8)
    with pytest.raises(cupy.cuda.memory.OutOfMemoryError, match="Out of memory allocating 512 bytes"):
        cupy.empty(1)
    assert cupy.cuda.Device().mem_info[0] == 0
    del a
    cupy.empty(1)


def test_planned_failures():
    a = cupy.zeros(8, np.float32)
    hc.fail_next(allocation=2, launch=1)
    cupy.empty(1)
    with pytest.raises(cupy.cuda.memory.OutOfMemoryError):
        cupy.empty(1)
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError):
        run("add", (1,), (8,), a, np.float32(1), np.int32(8))
    run("add", (1,), (8,), a, np.float32(1), np.int32(8))


def test_capture_refuses_what_cannot_be_replayed():
    a, stream = cupy.zeros(1), cupy.cuda.Stream(non_blocking=True)
    with stream:
        refused = (lambda: cupy.empty(1), stream.synchronize, a.get, a.item, cupy.cuda.Device().synchronize)
        for action in (*refused, lambda: a.set(np.zeros(1)), lambda: cupy.cuda.alloc_pinned_memory(8)):
            stream.begin_capture()
            with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="StreamCaptureUnsupported"):
                action()
            with pytest.raises(cupy.cuda.runtime.CUDARuntimeError, match="StreamCaptureInvalidated"):
                stream.end_capture()


def test_cross_device_use(monkeypatch):
    monkeypatch.setattr(hc.settings, "devices", 2)
    with cupy.cuda.Device(1):
        a = cupy.zeros(8, np.float32)
    with pytest.raises(ValueError, match="argument 0 of kernel add is on device 1"):
        run("add", (1,), (8,), a, np.float32(1), np.int32(8))
    with pytest.raises(ValueError, match="Array device must be same"):
        cupy.zeros(8, np.float32)[...] = a
    with pytest.raises(cupy.cuda.runtime.CUDARuntimeError):
        cupy.cuda.Device(2)


def test_host_and_device_do_not_mix():
    a, host = cupy.zeros(3), np.zeros(3)
    for mix in (lambda: np.asarray(a), lambda: a + host, lambda: host + a, lambda: cupy.matmul(a, host)):
        with pytest.raises(TypeError):
            mix()
    with pytest.raises(TypeError):
        a[...] = host
    assert not isinstance(a, np.ndarray)


def test_compile_errors_and_unknown_names():
    with pytest.raises(cupy.cuda.compiler.CompileException, match=r"kernel\.cu:1:.*error"):
        cupy.RawModule(code="nonsense;").get_function("f")
    with pytest.raises(cupy.cuda.driver.CUDADriverError, match="NOT_FOUND"):
        PROGRAMS.get_function("twice")


# ---- correct programs, under five seeds with all checks on
def test_block_sum(seed):
    out = cupy.empty(4, np.int32)
    run("block_sum", (4,), (256,), cupy.asarray(DATA), out, np.int32(1000))
    assert out.get().tolist() == [DATA[i : i + 256].sum() for i in range(0, 1000, 256)]


def test_warp_sum(seed):
    out, parts = cupy.zeros(1, np.int32), cupy.empty(2, np.int32)
    run("warp_sum", (4,), (256,), cupy.asarray(DATA), out, np.int32(1000))
    assert out.item() == DATA.sum()
    run("syncwarp_sum", (1,), (64,), cupy.asarray(DATA), parts)
    assert parts.get().tolist() == [DATA[:32].sum(), DATA[32:64].sum()]


def test_shuffles(seed):
    out, lane = cupy.empty((4, 32), np.int32), np.arange(32)
    run("shuffles", (1,), (32,), out)
    expected = [np.where(lane + 3 < 32, lane + 3, lane), np.where(lane >= 3, lane - 3, lane)]
    assert (out.get() == [*expected, lane // 16 * 16 + 2, 31 - lane]).all()


def test_histogram(seed):
    bins = cupy.zeros(16, np.int32)
    run("histogram", (3,), (100,), cupy.asarray(DATA), bins, np.int32(1000))
    assert (bins.get() == np.bincount(DATA, minlength=16)).all()


def test_packed_min(seed):
    a, best = DATA.astype(np.float32) + 0.5, cupy.full(1, 2**64 - 1, np.uint64)
    run("packed_min", (8,), (128,), cupy.asarray(a), best, np.int32(1000))
    assert best.item() & 0xFFFFFFFF == a.argmin()


@pytest.mark.parametrize("n", [1, 31, 33, 50])
def test_early_return_and_partial_warp(seed, n):
    votes, last_warp = cupy.empty(6, np.int32), range((n - 1) // 32 * 32, n)
    run("early", (1,), (64,), np.int32(n), votes)
    assert votes.get().tolist() == [len(range(0, n, 3)), 1, 1, sum(i % 2 for i in last_warp), 1, 1]


def test_lanes_that_leave_are_not_waited_for(seed):
    out = cupy.empty(16, np.int32)
    run("half_leaves", (1,), (32,), out)
    assert out.get().tolist() == [22] * 16


def test_two_dimensional_blocks(seed):
    a = np.arange(20 * 13, dtype=np.float32).reshape(20, 13)
    b = cupy.empty((13, 20), np.float32)
    run("transpose", (2, 3), (8, 8), cupy.asarray(a), b, np.int32(20), np.int32(13))
    assert (b.get() == a.T).all()


def test_dynamic_shared_memory(seed):
    a, kernel = cupy.arange(100, dtype=np.float64), PROGRAMS.get_function("reverse")
    kernel((1,), (100,), (a,), shared_mem=800)
    assert (a.get() == np.arange(100)[::-1]).all()
    with pytest.raises(cupy.cuda.driver.CUDADriverError):
        kernel((1,), (100,), (a,), shared_mem=50 << 10)
    kernel.max_dynamic_shared_size_bytes = 60 << 10
    kernel((1,), (100,), (a,), shared_mem=50 << 10)


def test_last_block(seed):
    out, parts, arrived = cupy.empty(1, np.int32), cupy.empty(50, np.int32), cupy.zeros(1, np.uint32)
    run("last_block", (50,), (32,), cupy.asarray(DATA), parts, arrived, out)
    assert out.item() == DATA[:50].sum() * 2


def test_graph_replay(seed):
    a, b, stream = cupy.zeros(40, np.float32), cupy.zeros(40, np.float32), cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.Device().synchronize()
    hc.reset()
    with stream:
        stream.begin_capture()
        run("add", (2,), (32,), a, np.float32(1.5), np.int32(40))
        b[...] = a
        graph = stream.end_capture()
        stats = hc.stats()
        assert stats["launches"] == 0 and stats["kernels"] == {}
        for _ in range(3):
            graph.launch(stream)
        stream.synchronize()
    stats = hc.stats()
    assert (b.get() == 4.5).all()
    assert stats["graph_launches"] == 3 and stats["launches"] == 0 and stats["kernels"]["add"]["launches"] == 3
    assert stats["copies"]["device_to_device"] == {"count": 3, "bytes": 480}


def test_two_streams_and_pinned_copies(seed):
    n, streams = 100, [cupy.cuda.Stream(non_blocking=True) for _ in range(2)]
    pinned = [np.frombuffer(cupy.cuda.alloc_pinned_memory(4 * n), np.float32, n) for _ in streams]
    arrays = [cupy.empty(n, np.float32) for _ in streams]
    cupy.cuda.Device().synchronize()  # whoever had their memory before
    for i, (stream, host, a) in enumerate(zip(streams, pinned, arrays, strict=True)):
        host[...] = i
        with stream:
            runtime = cupy.cuda.runtime
            runtime.memcpyAsync(a.data.ptr, host.ctypes.data, a.nbytes, runtime.memcpyHostToDevice, stream.ptr)
            run("add", (4,), (32,), a, np.float32(2), np.int32(n), stream=stream)
            a.get(stream=stream, out=host)
    assert cupy.cuda.get_current_stream() is cupy.cuda.Stream.null
    assert [set(host.tolist()) for host in pinned] == [{2.0}, {3.0}]


def test_two_devices(seed, monkeypatch):
    monkeypatch.setattr(hc.settings, "devices", 2)
    arrays = []
    for device in range(2):
        with cupy.cuda.Device(device):
            arrays.append(cupy.full(8, device, np.float32))
            run("add", (1,), (8,), arrays[-1], np.float32(1), np.int32(8))
    assert [a.device.id for a in arrays] == [0, 1] and [a[0].item() for a in arrays] == [1, 2]
    assert cupy.cuda.Device().id == 0
    here = arrays[1].copy()  # from the other device
    assert here.device.id == 0 and here[0].item() == 2


def test_numbers(seed):
    out = cupy.empty(14)
    run("numbers", (1,), (1,), out, np.float32(1 + 1 / 4096))
    fused, rounded = 2 / 4096 + 2.0**-24, 2 / 4096
    assert out.get().tolist() == [2, 2**31 - 1, 0, 3, -1, 31, 64, 4, 2, 0.5, fused, rounded, -3, 4]


def test_templates():
    a = cupy.ones(4, np.float32)
    run("twice<float>", (1,), (4,), a)
    assert a.get().tolist() == [2] * 4


# ---- counts
def test_bytes_are_those_counted_by_hand():
    a, b, bins = cupy.zeros(1000, np.float32), cupy.empty(1000, np.float32), cupy.zeros(16, np.int32)
    hc.reset()
    run("copy", (4,), (256,), a, b, np.int32(1000))
    run("histogram", (2,), (100,), cupy.asarray(DATA), bins, np.int32(1000))
    kernels = hc.stats()["kernels"]
    one = {"launches": 1, "atomics": 0, "bytes_atomic": 0}
    assert kernels["copy"] == one | {"bytes_loaded": 4000, "bytes_stored": 4000}
    # an atomic is one load and one store; those in shared memory are not counted
    assert kernels["histogram"] == one | {
        "bytes_loaded": 4128,
        "bytes_stored": 128,
        "atomics": 32,
        "bytes_atomic": 128,
    }


def test_copies_allocations_and_synchronisations():
    hc.reset()
    a = cupy.asarray(np.ones(10))
    total = float(a[3]) + int(a[4]) + bool(a[5])
    stats = hc.stats()
    assert total == 3 and stats["allocations"] == 1 and stats["synchronisations"] == 3
    assert stats["copies"]["host_to_device"] == {"count": 1, "bytes": 80}
    assert stats["copies"]["device_to_host"] == {"count": 3, "bytes": 24}


def test_device_says_what_it_is(monkeypatch):
    device, runtime = cupy.cuda.Device(0), cupy.cuda.runtime
    with device:
        assert device.attributes["MultiProcessorCount"] > 0
    assert device.compute_capability == "86"
    assert device.mem_info == runtime.memGetInfo()
    assert runtime.getDeviceProperties(0)["name"] == b"hostcuda"
    assert runtime.getDeviceCount() == 1
    used = cupy.get_default_memory_pool().used_bytes()
    kept = cupy.empty(513, np.uint8)
    assert cupy.get_default_memory_pool().used_bytes() == used + 1024
    assert kept.device == device
    monkeypatch.setattr(hc.settings, "devices", 0)
    assert not cupy.cuda.is_available()


# ---- the array
def test_array_geometry():
    a = cupy.arange(24, dtype=np.int32).reshape(2, 3, 4)
    assert a[1, :, ::2].get().tolist() == np.arange(24).reshape(2, 3, 4)[1, :, ::2].tolist()
    assert not a[:, 1].flags.c_contiguous and cupy.ascontiguousarray(a[:, 1]).flags.c_contiguous
    assert a.ravel().data.ptr == a.data.ptr and a[1].data.ptr == a.data.ptr + 48
    assert a.astype(np.float64).get().dtype == np.float64
    assert a.view(np.uint32).dtype == np.uint32 and (a.T.reshape(-1).get() == a.get().T.reshape(-1)).all()
    a[0] = a[1]
    assert (a.get()[0] == a.get()[1]).all()
    assert cupy.concatenate([a, a]).shape == (4, 3, 4)
    x, out = cupy.asarray(np.eye(3)), cupy.empty((3, 3))
    cupy.matmul(x, x, out=out)
    assert (out.get() == np.eye(3)).all()


def test_fortran_order_is_kept():
    host = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    a = cupy.asarray(host)
    assert a.flags.f_contiguous and not a.flags.c_contiguous and (a.get() == host).all()
    assert a.astype(np.float32).flags.f_contiguous and cupy.empty_like(a).flags.f_contiguous
    assert cupy.ascontiguousarray(a).flags.c_contiguous and a.copy().flags.c_contiguous
    assert (cupy.ascontiguousarray(host).get() == host).all()


def test_other_libraries_share_memory():
    a = cupy.arange(6, dtype=np.float32).reshape(2, 3)

    class Other:
        __cuda_array_interface__ = a.__cuda_array_interface__

    assert cupy.asarray(Other()).data.ptr == a.data.ptr
    b = cupy.from_dlpack(a[:, 1:])
    assert b.data.ptr == a.data.ptr + 4 and b.strides == a.strides and (b.get() == a.get()[:, 1:]).all()
    del a
    assert b.get()[0, 0] == 1  # kept alive by its consumer
    del b, Other
    gc.collect()
    assert hc.leaked_bytes() == 0


def test_sparse_arrays_go_beyond_31_bits():
    a = cupy.empty(2**31 + 10, np.float32)  # only the pages it touches exist
    tail = a[2**31 :]
    tail.fill(1)
    run("add", (1,), (10,), tail, np.float32(1), np.int32(10))
    assert tail.get().tolist() == [2] * 10
    with pytest.raises(hc.Violation, match="out of bounds"):
        run("add", (1,), (11,), tail, np.float32(1), np.int32(11))


def test_launches_from_two_system_threads():
    def work(i):
        out = cupy.empty(4, np.int32)
        for _ in range(20):
            run("block_sum", (4,), (256,), cupy.asarray(DATA + np.int32(i)), out, np.int32(1000))
        return out.get().sum()

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(work, range(4))) == [DATA.sum() + 1000 * i for i in range(4)]


# ---- the tool as a command
def test_run_writes_statistics(tmp_path):
    script = (
        "import cupy, numpy as np\n"
        "k = cupy.RawKernel('extern \"C\" __global__ void one(int* a) { a[threadIdx.x] = 1; }', 'one')\n"
        "a = cupy.empty(4, np.int32); k((1,), (4,), (a,)); assert a.get().sum() == 4\n"
        "try: cupy.empty(1)\n"
        "except cupy.cuda.memory.OutOfMemoryError: print('planned')\n"
    )
    environment = os.environ | {
        "HOSTCUDA_CHECK": "1", "HOSTCUDA_STATS": str(tmp_path / "stats.json"), "HOSTCUDA_FAIL_ALLOC": "2",
    }  # fmt: skip
    done = subprocess.run(
        [HOSTCUDA / "run", sys.executable, "-c", script],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "planned\n", done.stderr
    stats = json.loads((tmp_path / "stats.json").read_text())
    assert stats["kernels"]["one"]["bytes_stored"] == 16 and stats["copies"]["device_to_host"]["count"] == 1
    assert stats["leaked_bytes"] == 512


def test_sanitizers_of_the_compiler():
    found = subprocess.check_output([os.environ.get("CXX", "g++"), "-print-file-name=libasan.so"], text=True)
    if not os.path.isabs(found):
        pytest.skip("the compiler has no libasan")
    script = (
        f"import cupy, numpy as np\ncode = open({str(HOSTCUDA / 'planted.cu')!r}).read()\n"
        "k, a = cupy.RawKernel(code, 'local_past'), cupy.empty(4, np.int32)\n"
        "k((1,), (1,), (a, np.int32(4)))\nprint(a[0].item(), flush=True)\nk((1,), (1,), (a, np.int32(5)))\n"
    )
    command, environment = (
        [HOSTCUDA / "run", sys.executable, "-c", script],
        os.environ | {"HOSTCUDA_SANITIZE": "1", "HOSTCUDA_CHECK": "0"},
    )
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout == "3\n", done.stderr
    assert "AddressSanitizer: stack-buffer-overflow" in done.stderr


def test_names_and_parameters_are_cupy_s():
    found = signatures.differences("hostcuda_cupy")
    if isinstance(found, str):
        pytest.skip(f"no real CuPy to compare with: {found}")
    assert found == []


def test_a_capture_forbids_nothing_to_other_threads():
    """CuPy captures in the relaxed mode: another thread may allocate and wait meanwhile."""
    stream, a = cupy.cuda.Stream(non_blocking=True), cupy.zeros(4, np.float32)
    cupy.cuda.get_current_stream().synchronize()
    with stream:
        stream.begin_capture()
        with ThreadPoolExecutor(1) as other:
            assert other.submit(lambda: cupy.zeros(3, np.float32).get().sum()).result() == 0
        run("add", (1,), (4,), a, np.float32(2), np.int32(4))
        graph = stream.end_capture()
    graph.launch(stream)
    stream.synchronize()
    assert (a.get() == 2).all()
