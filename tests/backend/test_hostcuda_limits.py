"""hostcuda refuses what a device would: too much shared memory, launches that last, captures that fail."""

import threading

import numpy as np
import pytest
from test_hostcuda import HOSTCUDA, checked, cupy, hc, run  # noqa: F401

LIMITS = cupy.RawModule(code=(HOSTCUDA / "limits.cu").read_text())
STATIC = 40 << 10
DriverError, RuntimeError_ = cupy.cuda.driver.CUDADriverError, cupy.cuda.runtime.CUDARuntimeError


def refused():
    return pytest.raises(DriverError, match="INVALID_VALUE")


def fill(kibibytes, module=LIMITS):
    """A kernel with 40 KiB of its own takes these more."""
    out = cupy.empty(1, np.int32)
    module.get_function("fill_shared")((1,), (32,), (out, np.int32(kibibytes << 8)), shared_mem=kibibytes << 10)
    assert out.item() == 1


def test_static_and_dynamic_shared_memory_count_together():
    hc.use_device("t4")
    kernel = LIMITS.get_function("fill_shared")
    assert STATIC <= kernel.shared_size_bytes <= STATIC + 16
    fill(7)
    with refused():  # each is below 48 KiB, and nobody asked for more
        fill(9)
    kernel.max_dynamic_shared_size_bytes = 23 << 10
    fill(23)
    with refused():
        kernel.max_dynamic_shared_size_bytes = 25 << 10


@pytest.mark.parametrize("device", cupy._profiles.PROFILES)
def test_the_most_that_a_device_has(device):
    hc.use_device(device)
    most = cupy.cuda.Device().attributes["MaxSharedMemoryPerBlockOptin"]
    kernel = LIMITS.get_function("fill_shared")
    kernel.max_dynamic_shared_size_bytes = room = most - kernel.shared_size_bytes
    fill(room >> 10)
    with refused():
        fill((room >> 10) + 1)
    with refused():
        kernel.max_dynamic_shared_size_bytes = room + 1


def test_attributes_belong_to_the_function_not_to_the_object_or_the_thread():
    hc.use_device("a100")
    kernel = LIMITS.get_function("fill_shared")
    kernel.max_dynamic_shared_size_bytes = 100 << 10
    again = cupy.RawModule(code=LIMITS.code)
    fill(100, again)

    def lower():
        again.get_function("fill_shared").max_dynamic_shared_size_bytes = 50 << 10

    other = threading.Thread(target=lower)
    other.start()
    other.join()
    with refused():
        fill(100)
    assert kernel.max_dynamic_shared_size_bytes == 50 << 10
    hc.settings.devices = 2
    with cupy.cuda.Device(1):  # another context
        assert kernel.max_dynamic_shared_size_bytes == (48 << 10) - kernel.shared_size_bytes
    hc.settings.devices = 1


def test_watchdog_ends_long_launches(monkeypatch):
    monkeypatch.setattr(hc.settings, "watchdog", 10_000)
    a = cupy.zeros(1, np.int32)
    hc.use_device("t4")  # has none
    run("count_up", (1,), (1,), a, np.int32(6000), module=LIMITS)
    hc.use_device("small")
    run("count_up", (1,), (1,), a, np.int32(4000), module=LIMITS)
    with pytest.raises(hc.Violation, match=r"kernel count_up.* cudaErrorLaunchTimeout: .* after 10000 accesses"):
        run("count_up", (1,), (1,), a, np.int32(6000), module=LIMITS)


def test_a_capture_can_fail_in_the_middle():
    a, stream = cupy.zeros(1, np.int32), cupy.cuda.Stream(non_blocking=True)
    cupy.cuda.get_current_stream().synchronize()

    def count(times):
        run("count_up", (1,), (1,), a, np.int32(times), module=LIMITS)

    with stream:
        stream.begin_capture()
        count(1)
        hc.fail_next(launch=1)
        with pytest.raises(RuntimeError_, match="LaunchFailure"):
            count(1)
        for beyond in (lambda: count(1), stream.end_capture):  # the capture is lost, and so is its end
            with pytest.raises(RuntimeError, match="apture"):
                beyond()
        with pytest.raises(RuntimeError_, match="IllegalState"):
            stream.end_capture()
        stream.begin_capture()  # and again
        count(2)
        graph = stream.end_capture()
        graph.launch(stream)
        stream.synchronize()
    assert a.item() == 2


def test_a_capture_that_nobody_ends_holds_the_stream():
    stream = cupy.cuda.Stream(non_blocking=True)
    stream.begin_capture()
    with pytest.raises(RuntimeError_, match="CaptureUnsupported"):
        stream.synchronize()
    with pytest.raises(RuntimeError_, match="CaptureInvalidated"):
        stream.end_capture()
    stream.synchronize()


def test_threads_that_do_not_capture_may_allocate():
    stream, made = cupy.cuda.Stream(non_blocking=True), []
    stream.begin_capture()
    other = threading.Thread(target=lambda: made.append(cupy.zeros(3).get().tolist()))
    other.start()
    other.join()
    stream.end_capture()
    assert made == [[0, 0, 0]]


def test_devices_have_names():
    with pytest.raises(ValueError, match="HOSTCUDA_DEVICE='voodoo' must be one of plain, small, v100, t4"):
        hc.use_device("voodoo")
    hc.use_device("h100")
    assert cupy.cuda.Device().compute_capability == "90"
