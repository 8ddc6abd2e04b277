"""Long runs: what a process holds, on the host and on the device, does not grow with what it has done."""

from __future__ import annotations

import gc
import time
import tracemalloc
from pathlib import Path

import numpy as np
import pytest
import tally
from conftest import GPU, blobs

from gputabu import KMeans, QuantizedTabuKMeans, quantized, relocation

X = blobs(60, 2, 4)
#: Bytes that Python's and NumPy's own caches may take meanwhile.
TRACED, RESIDENT = 100_000, 16 << 20
#: The effort from which on runs are really long.
LONG = 10


def resident() -> int:
    """Bytes of anonymous memory that the process has in use."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def long(least: int, most: int = 10_000) -> int:
    """How many times; so many as a release is to stand, where there is time for it."""
    return tally.trials(least) if tally.EFFORT < LONG else most


def check_pace(row: str, seconds: np.ndarray) -> None:
    """What is done last takes no longer than what was done first; only long runs tell."""
    tenth = len(seconds) // 10
    ratio = float(np.median(seconds[-tenth:]) / np.median(seconds[:tenth]))
    tally.measured(row, "the last tenth took {} times as long as the first", ratio)
    if tally.EFFORT >= LONG:
        assert ratio < 3  # machines drift; what grows with each of them would be far beyond


def held_after(run, seconds: np.ndarray) -> tuple[int, int]:
    """Bytes held after as many runs as there is room for their times, as Python counts them and as the system does."""
    for i in range(len(seconds)):
        begun = time.perf_counter()
        run(i)
        seconds[i] = time.perf_counter() - begun
    gc.collect()
    return tracemalloc.get_traced_memory()[0], resident()


def check_flat(row: str, run, times: int, grows: int = RESIDENT) -> None:
    """Half of the runs in use no more memory after the other half; the system may see it grow by so many bytes."""
    seconds = np.zeros(times)
    tracemalloc.start()
    try:
        run(0)
        first, second = (held_after(run, half) for half in np.split(seconds, 2))
    finally:
        tracemalloc.stop()
    assert second[0] - first[0] < TRACED, second[0] - first[0]
    assert second[1] - first[1] < grows, second[1] - first[1]
    check_pace(row, seconds)
    tally.tried(row, times)


@pytest.mark.parametrize("backend", ["numpy", pytest.param("numba", marks=pytest.mark.numba)])
def test_many_small_fits(backend):
    def fit(i):
        KMeans(3, random_state=i, backend=backend).fit(X).predict(X)
        if i % 10 == 0:
            QuantizedTabuKMeans(3, max_iter=5, random_state=i, backend=backend).fit(X)

    check_flat("small fits in one process, memory flat", fit, long(80))


@pytest.mark.gpu
@pytest.mark.skipif(GPU != "hostcuda", reason="counts what only hostcuda does")
@pytest.mark.one_device
def test_many_small_fits_on_a_device():
    import cupy

    def fit(i):
        QuantizedTabuKMeans(3, max_iter=4, random_state=i, backend="cuda").fit(X).predict(X)

    fit(0)
    cupy._hostcuda.reset()
    # hostcuda remembers every allocation that was freed, 66 a fit in 64 bytes each, to know it when it is used again.
    times = long(20)
    check_flat("small fits on a device, memory flat there and on the host", fit, times, RESIDENT + times * 66 * 64)
    assert cupy._hostcuda.leaked_bytes() == 0


@pytest.mark.parametrize("backend", ["numpy", pytest.param("numba", marks=pytest.mark.numba)])
@pytest.mark.parametrize("name", ["quantized", "relocation"])
def test_many_iterations(name, backend):
    """The tabu list and the trace grow, as they must; nothing else does, and no iteration takes longer for it."""
    search, least = {"quantized": (quantized.search, 600), "relocation": (relocation.search, 200)}[name]
    times = long(least, 100_000) if name == "quantized" else tally.trials(least)
    marks: list[float] = []
    held: list[int] = []

    def mark(progress):
        if progress.phase == "search":
            marks.append(time.perf_counter())
            if len(marks) in (times // 2, times):
                held.append(resident())

    found = search(X, 4, max_iter=times, patience=times, seed=0, backend=backend, callback=mark)
    assert found.n_iter == len(marks) == times
    assert np.all(np.diff(found.trace.best[0]) <= 0) and found.trace.current.shape[1] == times + 1
    assert held[1] - held[0] < RESIDENT, held
    check_pace(f"iterations in one search ({name})", np.diff(marks))
    tally.tried(f"iterations in one search ({name})", times)
