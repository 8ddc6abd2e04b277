"""What hostcuda checks beside kernels: who uses memory first, when a copy ends, what is free, what a fork loses."""

from __future__ import annotations

import os

import numpy as np
import pytest
from conftest import GPU

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(GPU != "hostcuda", reason="about hostcuda itself")]
ADD = 'extern "C" __global__ void add(const float* a, float* b) { b[threadIdx.x] = a[threadIdx.x] + 1; }'


@pytest.fixture(autouse=True)
def cuda():
    """Two devices at rest, with nothing kept; hostcuda's settings are put back afterwards."""
    import cupy

    control = cupy._hostcuda
    before = vars(control.settings).copy()
    control.reset()
    control.settings.devices = 2
    for number in range(2):
        with cupy.cuda.Device(number) as device:
            device.synchronize()
            cupy.get_default_memory_pool().free_all_blocks()
    yield cupy
    vars(control.settings).update(before)
    control.fail_next()


def add(cuda, a, b, stream):
    cuda.RawKernel(ADD, "add")((1,), (len(a),), (a, b), stream=stream)


def streams(cuda):
    return [cuda.cuda.Stream(non_blocking=True) for _ in range(2)]


def unordered(cuda, what=r"kernel add on stream 0x\w+ of device 0 uses memory that .* on .* may still be using"):
    return pytest.raises(cuda._hostcuda.Violation, match=what)


def test_streams_must_wait_for_each_other(cuda):
    (one, two), event = streams(cuda), cuda.cuda.Event()
    with one:
        a, b = cuda.zeros(4, np.float32), cuda.zeros(4, np.float32)
    with unordered(cuda, f"kernel add on stream 0x{two.ptr:x} .* that zeros on stream 0x{one.ptr:x} of device 0 may"):
        add(cuda, a, b, two)
    event.record(one)
    with one:
        b.fill(2)  # behind the event
    two.wait_event(event)
    with unordered(cuda, "cupy.fill"):
        add(cuda, a, b, two)
    one.synchronize()
    add(cuda, a, b, two)
    with unordered(cuda, "a copy to the host"):
        b.get(stream=one)
    assert b.get(stream=two).tolist() == [1] * 4


def test_reads_need_no_order_and_writes_after_them_do(cuda):
    one, two = streams(cuda)
    a, b, c = (cuda.zeros(4, np.float32) for _ in range(3))
    cuda.cuda.Device().synchronize()
    add(cuda, a, b, one)
    add(cuda, a, c, two)  # both read a
    with unordered(cuda, "a copy from the host on stream"):
        a.set(np.ones(4, np.float32), stream=two)


def test_the_null_stream_waits_for_streams_that_block(cuda):
    for non_blocking in (False, True):
        stream = cuda.cuda.Stream(non_blocking=non_blocking)
        a, b = cuda.zeros(4, np.float32), cuda.zeros(4, np.float32)
        if non_blocking:
            with unordered(cuda):
                add(cuda, a, b, stream)
        else:
            add(cuda, a, b, stream)
            b.fill(3)


def test_recycled_memory_remembers_who_used_it(cuda):
    one, two = streams(cuda)
    with one:
        a, b = cuda.zeros(4, np.float32), cuda.zeros(4, np.float32)
        two.wait_event(one.record())
        add(cuda, a, b, two)
        del b
        fresh = cuda.empty(4, np.float32)  # the same block, in the order of `one`
        assert cuda.get_default_memory_pool().total_bytes() == 1024
        with unordered(cuda, "cupy.fill on stream .* uses memory that kernel add on stream"):
            fresh.fill(0)
        one.wait_event(two.record())
        fresh.fill(0)
        assert fresh.get().tolist() == [0] * 4


def test_memory_from_the_driver_is_nobodys(cuda):
    one, two = streams(cuda)
    with one:
        a = cuda.zeros(4, np.float32)
        del a
        cuda.get_default_memory_pool().free_all_blocks()  # which waits for the device
    with two:
        assert cuda.zeros(4, np.float32).get().tolist() == [0] * 4


def test_graphs_are_ordered_where_they_are_replayed(cuda):
    one, two = streams(cuda)
    a, b = cuda.zeros(4, np.float32), cuda.zeros(4, np.float32)
    cuda.cuda.Device().synchronize()
    with one:
        one.begin_capture()
        add(cuda, a, b, one)
        graph = one.end_capture()
    with two:
        b.fill(0)
    with unordered(cuda):
        graph.launch(one)
    one.wait_event(two.record())
    graph.launch(one)


def test_devices_are_waited_for_as_a_whole(cuda):
    with cuda.cuda.Device(1):
        stream = cuda.cuda.Stream(non_blocking=True)
        a, b = cuda.zeros(4, np.float32), cuda.zeros(4, np.float32)
        cuda.cuda.Device(0).synchronize()
        with unordered(cuda, "of device 1 uses memory that zeros on the null stream of device 1"):
            add(cuda, a, b, stream)
        cuda.cuda.Device(1).synchronize()
        add(cuda, a, b, stream)


def test_the_source_of_a_copy_must_stay(cuda):
    a, stream = cuda.empty(4, np.float32), cuda.cuda.get_current_stream()
    pinned = np.frombuffer(cuda.cuda.alloc_pinned_memory(16), np.float32, 4)
    for host in (pinned, np.empty(4, np.float32)):
        host[...] = 1
        a.set(host)
        stream.synchronize()
        host[...] = 2
        a.set(host)
        host[...] = 3
        with unordered(cuda, "the host changed the source of a copy from the host on the null stream of device 0"):
            stream.synchronize()
    a.set(np.ones(4, np.float32))
    with unordered(cuda, "the host let go of the source of a copy"):
        a.get()


def test_asarray_has_a_buffer_of_its_own(cuda):
    host = np.ones(1000, np.float32)
    a = cuda.asarray(host)
    host[...] = 2
    assert (a.get() == 1).all()
    assert cuda._hostcuda.stats()["pinned_bytes"] == 4096
    pinned = np.frombuffer(cuda.cuda.alloc_pinned_memory(16), np.float32, 4)
    pinned[...] = 1
    cuda.asarray(pinned)  # but none for memory that is pinned already
    pinned[...] = 2
    with unordered(cuda, "the host changed the source"):
        cuda.cuda.Device().synchronize()


def test_a_copy_to_the_host_is_there_when_it_was_waited_for(cuda):
    a, out = cuda.asarray(np.arange(4, dtype=np.float32)), np.zeros(4, np.float32)
    a.get(out=out, blocking=False)
    assert np.isnan(out).all()
    event = cuda.cuda.get_current_stream().record()
    assert np.isnan(out).all()
    event.synchronize()
    assert out.tolist() == [0, 1, 2, 3]


def test_an_export_waits_for_the_stream_of_the_current_device(cuda):
    with cuda.cuda.Device(1):
        theirs, a = cuda.cuda.Stream(non_blocking=True), cuda.zeros(4, np.float32)
    for current in (0, 1):
        with cuda.cuda.Device(current):
            a.__dlpack__(stream=theirs.ptr)
        with cuda.cuda.Device(1), theirs:
            if current == 0:
                with unordered(cuda, "a copy to the host on stream"):
                    a.get()
            else:
                assert a.get().tolist() == [0] * 4


def test_the_array_interface_names_a_stream_to_wait_for(cuda):
    one, two = streams(cuda)
    with one:
        a = cuda.zeros(4, np.float32)
        face = a.__cuda_array_interface__
    assert face["stream"] == one.ptr
    with two:
        there = cuda.asarray(type("Foreign", (), {"__cuda_array_interface__": face})())
        assert there.get().tolist() == [0] * 4


def test_the_pool_keeps_blocks_for_their_stream(cuda):
    pool, device = cuda.get_default_memory_pool(), cuda.cuda.Device()
    used, free = pool.used_bytes(), device.mem_info[0]
    one, two = streams(cuda)
    with one:
        a = cuda.empty(4096, np.uint8)
        del a
        assert pool.used_bytes() == used and pool.free_bytes() == 4096
        assert device.mem_info[0] == free - 4096  # kept is used, as the driver sees it
        a = cuda.empty(1024, np.uint8)  # a part of it
        assert pool.free_bytes() == 3072
    with two:
        b = cuda.empty(1024, np.uint8)  # none of it
        assert pool.total_bytes() == used + 4096 + 1024
    pool.free_all_blocks()
    assert pool.free_bytes() == 3072  # what a split left over stays
    del a, b
    pool.free_all_blocks(stream=one)
    assert pool.total_bytes() == used + 1024
    pool.free_all_blocks()
    assert device.mem_info[0] == free


def test_one_arena_s_blocks_make_room_for_another(cuda):
    one, two = streams(cuda)
    cuda._hostcuda.settings.memory = cuda.get_default_memory_pool().total_bytes() + 4096
    with one:
        cuda.empty(4096, np.uint8)
    with two:
        kept = cuda.empty(4096, np.uint8)
        with pytest.raises(cuda.cuda.memory.OutOfMemoryError):
            cuda.empty(1, np.uint8)
    assert kept.nbytes == 4096


def test_pinned_memory_is_limited_and_kept(cuda):
    cuda._hostcuda.settings.pinned = 8192
    a = cuda.cuda.alloc_pinned_memory(5000)
    with pytest.raises(cuda.cuda.runtime.CUDARuntimeError, match="cudaErrorMemoryAllocation"):
        cuda.cuda.alloc_pinned_memory(5000)
    cuda.asarray(np.zeros(5000, np.uint8))  # CuPy goes on without
    del a
    assert len(cuda.cuda.alloc_pinned_memory(5000)) == 5000
    assert len(cuda.cuda.alloc_pinned_memory(8000)) == 8000  # kept ones are given up for it


def test_a_fork_loses_cuda(cuda):
    child = os.fork()
    if child == 0:
        told = 0
        for call in (cuda.cuda.runtime.getDeviceCount, lambda: cuda.cuda.Device(0), lambda: cuda.empty(1)):
            try:
                call()
            except cuda.cuda.runtime.CUDARuntimeError as error:
                told += error.status == 3
        os._exit(told)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3


def test_a_driver_may_be_too_old(cuda):
    cuda._hostcuda.settings.driver = 11040
    with pytest.raises(cuda.cuda.runtime.CUDARuntimeError, match="cudaErrorInsufficientDriver"):
        cuda.cuda.runtime.getDeviceCount()
    assert cuda.cuda.runtime.driverGetVersion() == 11040
