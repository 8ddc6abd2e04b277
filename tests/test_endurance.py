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

from gputabu import KMeans, TabuKMeans, quantized, relocation

X = blobs(60, 2, 4)
#: Bytes that Python's and NumPy's own caches may take meanwhile.
TRACED, RESIDENT = 100_000, 16 << 20
#: The effort from which on runs are really long.
LONG = 10


def resident() -> int:
    """Bytes of anonymous memory that the process has in use."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith("RssAnon"))


def held_after(run, times: int) -> tuple[int, int]:
    """Bytes held after so many runs, as Python counts them and as the system does."""
    for i in range(times):
        run(i)
    gc.collect()
    return tracemalloc.get_traced_memory()[0], resident()


def check_flat(run, times: int) -> None:
    """Half of the runs in use no more memory after the other half."""
    tracemalloc.start()
    try:
        run(0)
        first = held_after(run, times // 2)
        second = held_after(run, times - times // 2)
    finally:
        tracemalloc.stop()
    assert second[0] - first[0] < TRACED, second[0] - first[0]
    assert second[1] - first[1] < RESIDENT, second[1] - first[1]


@pytest.mark.parametrize("backend", ["numpy", pytest.param("numba", marks=pytest.mark.numba)])
def test_many_small_fits(backend):
    def fit(i):
        KMeans(3, random_state=i, backend=backend).fit(X).predict(X)
        if i % 10 == 0:
            TabuKMeans(3, max_iter=5, random_state=i, backend=backend).fit(X)

    times = tally.trials(80) if tally.EFFORT < LONG else 10_000
    check_flat(fit, times)
    tally.tried("small fits in one process, memory flat", times)


@pytest.mark.gpu
@pytest.mark.skipif(GPU != "hostcuda", reason="counts what only hostcuda does")
def test_many_small_fits_on_a_device():
    import cupy

    def fit(i):
        TabuKMeans(3, max_iter=4, random_state=i, backend="cuda").fit(X).predict(X)

    fit(0)
    cupy._hostcuda.reset()
    for i in range(tally.trials(10)):
        fit(i)
        tally.tried("small fits on a device, its memory flat")
    assert cupy._hostcuda.leaked_bytes() == 0


@pytest.mark.parametrize("backend", ["numpy", pytest.param("numba", marks=pytest.mark.numba)])
@pytest.mark.parametrize("name", ["quantized", "relocation"])
def test_many_iterations(name, backend, capsys):
    """The tabu list and the trace grow, as they must; nothing else does, and no iteration takes longer for it."""
    search, least = {"quantized": (quantized.search, 600), "relocation": (relocation.search, 200)}[name]
    times = 100_000 if name == "quantized" and tally.EFFORT >= LONG else tally.trials(least)
    marks: list[float] = []
    found = search(
        X, 4, max_iter=times, patience=times, seed=0, backend=backend,
        callback=lambda progress: marks.append(time.perf_counter()) if progress.phase == "search" else None,
    )  # fmt: skip
    assert found.n_iter == len(marks) == times
    assert np.all(np.diff(found.trace.best[0]) <= 0) and found.trace.current.shape[1] == times + 1
    tally.tried("iterations in one search", times)
    if tally.EFFORT > 1:
        steps = np.diff(marks)
        tenth = len(steps) // 10
        ratio = np.median(steps[-tenth:]) / np.median(steps[:tenth])
        with capsys.disabled():
            print(f"\n{name} on {backend}: the last tenth of {times} iterations takes {ratio:.2f} times the first")
