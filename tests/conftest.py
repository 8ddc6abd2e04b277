"""Fixtures: the backends that can run here, and small data sets with corners in them."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import browser
import numpy as np
import pytest
import tally
from hypothesis import HealthCheck, settings
from sklearn.datasets import load_iris
from traps import TRAPS

import gputabu.backend
from gputabu.backend.base import BackendBase
from gputabu.backend.numpy.backend import NumpyBackend
from gputabu.backend.tuning import Tuning
from gputabu.data.points import Points

HERE = Path(__file__).parent
# In the background of a shell Ctrl-C is ignored, and tests of it would wait for ever.
signal.signal(signal.SIGINT, signal.default_int_handler)
# A busy machine is no failure.
settings.register_profile(
    "gputabu",
    deadline=None,
    max_examples=tally.trials(100),
    derandomize=settings.default.derandomize and tally.EFFORT == 1,  # in CI; more trials are to find what is new
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("gputabu")


def find_gpu() -> tuple[str | None, str]:
    """What runs the tests of the CUDA backend: "device", "hostcuda" or None, and a line that says so."""
    try:
        import cupy

        if cupy.cuda.is_available():
            return (
                "device",
                f"the CUDA backend is tested on {cupy.cuda.runtime.getDeviceProperties(0)['name']}",
            )
    except Exception:  # no CuPy, or one that does not work here
        for name in [name for name in sys.modules if name.split(".")[0] == "cupy"]:
            del sys.modules[name]
    if shutil.which(os.environ.get("CXX", "g++")) is None:
        return (
            None,
            "the CUDA backend is not tested: there is neither a GPU nor g++ to run its kernels on the CPU",
        )
    os.environ.setdefault("HOSTCUDA_CHECK", "1")
    for name in [name for name in sys.modules if name.split(".")[0] == "cupy"]:
        del sys.modules[name]
    sys.path.insert(0, str(HERE / "hostcuda"))
    return (
        "hostcuda",
        "the CUDA backend is tested on the CPU by hostcuda, every access checked, on three devices",
    )


GPU, GPU_LINE = find_gpu()
CUDA_UNUSABLE = gputabu.backend.cuda_unusable
NUMBA = gputabu.backend.numba_unusable() is None
BACKENDS = [
    "numpy",
    pytest.param("numba", marks=pytest.mark.numba),
    pytest.param("numba, by passes", marks=pytest.mark.numba),
    pytest.param("cuda", marks=pytest.mark.gpu),
]


#: Devices that hostcuda plays. A test runs on each of them; one that takes long, on one. A test with a case for each
#: device deals them out, and `make trust` runs all on all. HOSTCUDA_DEVICE=… gives all tests the same.
DEVICES = ("t4", "a100", "small")
DEVICE = pytest.StashKey[str]()


def on_devices(items: list[pytest.Item]) -> list[pytest.Item]:
    """The tests, those of the CUDA backend on the devices that they are for."""
    cases: dict[str, list[str]] = {}
    for item in items:
        cases.setdefault(item.nodeid.split("[")[0], []).append(item.nodeid)
    dealt = {
        name: DEVICES[i % len(DEVICES)] for names in cases.values() for i, name in enumerate(sorted(names, key=draw))
    }
    found: list[pytest.Item] = []
    for item in items:
        if item.get_closest_marker("gpu") is None or GPU != "hostcuda":
            found.append(item)
            continue
        few = len(cases[item.nodeid.split("[")[0]]) < len(DEVICES) or tally.EFFORT > 1
        if chosen := device_of(item) or (None if few else dealt[item.nodeid]):
            item.stash[DEVICE] = chosen
            found.append(item)
        else:
            found += [copied(item, device) for device in DEVICES]
    return found


def device_of(item: pytest.Item) -> str | None:
    """The one device that a test is for: that of the environment or of its mark, or one drawn by its name."""
    mark, alone = item.get_closest_marker("device"), item.get_closest_marker("one_device")
    if chosen := os.environ.get("HOSTCUDA_DEVICE") or (mark and mark.args[0]):
        return chosen
    return DEVICES[draw(item.nodeid) % len(DEVICES)] if alone or not isinstance(item, pytest.Function) else None


def draw(name: str) -> int:
    return zlib.crc32(name.encode())


def copied(item: pytest.Function, device: str) -> pytest.Item:
    """The same test once more, for a device."""
    name = f"{item.originalname}@{device}"
    copy = pytest.Function.from_parent(
        item.parent,
        name=item.name.replace(item.originalname, name, 1),
        callspec=getattr(item, "callspec", None),
        callobj=item.obj,
        fixtureinfo=item._fixtureinfo,
        originalname=name,
    )
    copy.stash[DEVICE] = device
    return copy


def become(device: str) -> None:
    """Make hostcuda another device, for which kernels are loaded anew."""
    import cupy

    from gputabu.backend.cuda import launch

    control = cupy._hostcuda
    if control.settings.device != device or control.attributes != cupy._profiles.PROFILES[device]:
        control.use_device(device)
        launch.load.cache_clear()


LINES = [GPU_LINE] + ([] if NUMBA else ["the compiled CPU backend is not tested: numba is not installed"])


def pytest_report_header() -> list[str]:
    return LINES


def pytest_collection_modifyitems(config, items) -> None:
    """Tests of a backend that cannot run here are left out: one line, not a skip for each."""
    for item in items:  # for the page that `make trust` writes
        for mark in item.iter_markers("trap"):
            item.user_properties.append(("trap", f"trap {mark.args[0]:02}: {TRAPS[mark.args[0]]}"))
    missing = [name for name, there in (("gpu", GPU is not None), ("numba", NUMBA)) if not there]
    left_out = [item for item in items if any(item.get_closest_marker(name) for name in missing)]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    items[:] = on_devices(items)
    items.sort(key=lambda item: item.stash.get(DEVICE, ""))  # another device loads all kernels anew
    if os.environ.get("MUTANT_UNDER_TEST"):  # one that notices is enough: first those that notice most, then the quick
        known = Path("mutmut-stats.json")  # not there while mutmut makes it
        took = json.loads(known.read_text())["duration_by_test"] if known.exists() else {}
        items.sort(
            key=lambda item: ("/test_bits" not in item.nodeid or "pieces" in item.name, took.get(item.nodeid, 0))
        )


def pytest_terminal_summary(terminalreporter) -> None:
    for line in LINES:
        terminalreporter.write_line(line)


class Backend:
    """A backend with its sizes, as `backend=` takes it: a function that gives points to it."""

    def __init__(self, name: str, tuning: Tuning) -> None:
        self.name, self.tuning = name, tuning

    def __call__(self, points: Points) -> BackendBase:
        if self.name == "numpy":
            return NumpyBackend(points, self.tuning)
        if self.name == "numba":
            from gputabu.backend.numba.backend import NumbaBackend

            return NumbaBackend(points, self.tuning)
        from gputabu.backend.cuda.backend import CudaBackend

        return CudaBackend(points, tuning=self.tuning)

    def tuned(self, **sizes: Any) -> Backend:
        """The same one with other sizes."""
        return Backend(self.name, replace(self.tuning, **sizes))

    def __repr__(self) -> str:
        return self.name

    def __eq__(self, other: object) -> bool:
        return (
            str(other) == self.name
            if isinstance(other, str)
            else isinstance(other, Backend) and other.name == self.name
        )

    def __hash__(self) -> int:
        return hash(self.name)


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Backend:
    """A backend that runs here; tests that take it run once per backend.

    The compiled one does whole restarts of small data in one call, and leaves short passes to NumPy. Here no pass is
    short, so that all its code is tested on small data, and once more no data is small.
    """
    name, *by_passes = request.param.split(", ")
    sizes = {"small_data": 0, "medium_data": 0} if by_passes else {}
    return Backend(name, Tuning(short_pass=0, **sizes))


@pytest.fixture(autouse=True)
def _visible_backends(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Tests that are not about CUDA or numba see a machine without them, whatever this one has."""
    chosen = request.getfixturevalue("backend") if "backend" in request.fixturenames else "numpy"
    chosen = getattr(chosen, "name", chosen)  # a test may name it
    seen = {
        "cuda": chosen == "cuda" or request.node.get_closest_marker("gpu"),
        "numba": chosen == "numba" or request.node.get_closest_marker("numba"),
    }
    if seen["cuda"] and GPU == "hostcuda":
        device = request.node.stash[DEVICE]
        print(f"hostcuda is a device of the profile {device}")  # shown where the test fails
        become(device)
    monkeypatch.setattr(gputabu.backend, "cuda_unusable", lambda: None if seen["cuda"] else "CuPy is not installed.")
    monkeypatch.setattr(gputabu.backend, "numba_unusable", lambda: None if seen["numba"] else "numba is not installed.")
    monkeypatch.setattr(gputabu.backend, "installed", lambda name: bool(seen[name]))
    yield
    CUDA_UNUSABLE.cache_clear()  # who has it by another name may have asked while CuPy seemed not to be there


@pytest.fixture
def measured(tmp_path):
    """A function that measures a page in a browser."""
    if browser.CHROMIUM is None:
        pytest.skip("there is no Chromium on this machine to show the report")
    return lambda text: browser.measure(text, tmp_path)


@pytest.fixture
def iris() -> np.ndarray:
    return load_iris().data


@pytest.fixture
def paper_data():
    """A function that loads one of the paper's data sets, as the paper preprocessed it."""
    folder = os.environ.get("GPUTABU_DATA")
    if not folder:
        pytest.skip("GPUTABU_DATA is not set: the paper's data sets are not part of the project")

    def load(name: str) -> np.ndarray:
        X = np.loadtxt(Path(folder) / f"{name}.csv", delimiter=",")
        return (X - X.mean(axis=0)) / X.std(axis=0, ddof=1) if name == "cloud" else X

    return load


def blobs(n: int, d: int, k: int, seed: int = 0, dtype: type = np.float64) -> np.ndarray:
    """Points around k random centres."""
    rng = np.random.default_rng(seed)
    centers = rng.normal(scale=5, size=(k, d))
    return (centers[rng.integers(k, size=n)] + rng.normal(size=(n, d))).astype(dtype)


def same(a, b) -> None:
    """Assert that two clusterings are equal bit for bit."""
    np.testing.assert_array_equal(a.labels, b.labels)
    np.testing.assert_array_equal(a.centers, b.centers)
    assert a.centers.dtype == b.centers.dtype
    np.testing.assert_array_equal(a.inertias, b.inertias)
    np.testing.assert_array_equal(a.trace.current, b.trace.current)
    np.testing.assert_array_equal(a.trace.best, b.trace.best)
    np.testing.assert_array_equal(a.trace.moves, b.trace.moves)
    if a.center_indices is not None:
        np.testing.assert_array_equal(a.center_indices, b.center_indices)
        np.testing.assert_array_equal(a.trace.means, b.trace.means)
    assert (a.inertia, a.n_iter, a.stop, a.restart) == (b.inertia, b.n_iter, b.stop, b.restart)
