"""The compiled CPU backend: what the tests over all backends do not see."""

import ast
import json
import logging
import multiprocessing
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from conftest import Backend, blobs, same

import gputabu
from gputabu import KMeans, Points, lloyd, quantized, relocation
from gputabu.algorithms.monitor import Monitor
from gputabu.backend.loops import QuantizedSettings
from gputabu.backend.numpy.backend import NumpyBackend
from gputabu.backend.tuning import Tuning

jit = pytest.importorskip("gputabu.backend.numba.kernels.jit", exc_type=ImportError)
from numba.core import caching  # noqa: E402

from gputabu.backend.numba import tiling  # noqa: E402
from gputabu.backend.numba.backend import NumbaBackend  # noqa: E402
from gputabu.backend.numba.kernels.assign import assign_rows  # noqa: E402
from gputabu.backend.numba.kernels.restart import run_restart  # noqa: E402
from gputabu.backend.numba.kernels.seeding import seed_rows  # noqa: E402
from gputabu.backend.numba.kernels.tabu_argmin import survey_rows  # noqa: E402

pytestmark = pytest.mark.numba
#: The compiled backend with no pass left to NumPy.
COMPILED = Backend("numba", Tuning(short_pass=0))


@pytest.mark.trap(22)
@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize(("n", "d", "k"), [(5000, 3, 7), (3000, 20, 300), (9000, 1, 2)])
def test_passes_equal_numpy_for_any_threads(threads, n, d, k):
    """Few features are swept, many go through BLAS; more centres than a tile; several pieces and blocks."""
    tuning = Tuning(threads=threads, short_pass=0, piece_blocks=1)
    X, weights = blobs(n, d, 5, seed=d), np.random.default_rng(0).integers(0, 3, n).astype(float)
    points = Points.of(X, weights, chunk_rows=n // 2 + 1)
    centers = X[None, :k].astype(float)
    tabu = np.arange(k).reshape(1, k, 1)
    found = []
    for opened in (NumbaBackend(points, tuning), NumpyBackend(points)):
        with opened:
            labels = opened.blank_labels(1)
            change = opened.assign(centers, labels)
            seen = opened.survey(centers, labels, tabu, False, 2)
            found.append(
                (labels, change.totals, change.changed, seen.cost, seen.index, seen.inside, opened.label(centers))
            )
    for ours, theirs in zip(*found, strict=True):
        np.testing.assert_array_equal(ours, theirs)


@pytest.mark.parametrize("far", [0.0, 1e6, 1e25, 1e60])
def test_what_float32_cannot_tell_is_decided_canonically(far):
    """Points a few 2^-52 from the middle between centres, alone and beside one far outlier that ruins the scores."""
    steps = np.arange(-40, 41) * 2.0**-50
    X = np.stack([1.5 + steps, 3.0 - steps], axis=1)
    X = np.concatenate([X, [[1.0, 3.0], [2.0, 3.0], [1.5, 2.5], [far, far]]])
    centers = np.array([[[1.0, 3.0], [2.0, 3.0], [1.5, 2.5], [1.5, 3.5], [far, far]]])
    with COMPILED(Points.of(X)) as ours, NumpyBackend(Points.of(X)) as theirs:
        np.testing.assert_array_equal(ours.label(centers), theirs.label(centers))
        labels = ours.blank_labels(1), theirs.blank_labels(1)
        ours.assign(centers, labels[0])
        theirs.assign(centers, labels[1])
        np.testing.assert_array_equal(*labels)


def test_centres_outside_the_box_of_the_points():
    """Whole restarts leave these to the passes, whose scores may not be trusted for centres so far out."""
    X = blobs(600, 3, 4)
    for scale in (1e2, 1e15, 1e30):
        init = np.random.default_rng(0).normal(scale=scale, size=(5, 3))
        same(lloyd.run(X, 5, init=init, backend=COMPILED), lloyd.run(X, 5, init=init, backend="numpy"))


def test_read_only_points_are_not_another_type(tmp_path):
    X = blobs(700, 4, 3)
    np.save(tmp_path / "x.npy", X)
    quantized.search(X, 3, backend=COMPILED, max_iter=5)
    entries = [run_restart, assign_rows, survey_rows, seed_rows]
    before = [len(entry.signatures) for entry in entries]
    found = quantized.search(np.load(tmp_path / "x.npy", mmap_mode="r"), 3, backend=COMPILED, max_iter=5)
    same(found, quantized.search(X, 3, backend="numpy", max_iter=5))
    assert [len(entry.signatures) for entry in entries] == before


def test_long_traces_are_made_pass_by_pass(iris):
    whole = quantized.search(iris, 3, max_iter=30, backend="numba")
    same(quantized.search(iris, 3, max_iter=30, backend=COMPILED.tuned(state_bytes=10)), whole)


@pytest.mark.parametrize("search", [quantized.search, relocation.search])
def test_a_restart_goes_on_where_a_slice_ended(iris, search):
    whole = search(iris, 3, init="random", restarts=4, max_iter=30, backend="numba")
    sliced = COMPILED.tuned(slice_work=1, relocation_slice_work=1)
    same(search(iris, 3, init="random", restarts=4, max_iter=30, backend=sliced), whole)


def test_once_interrupted_every_restart_has_a_first_result(iris):
    with NumbaBackend(Points.of(iris)) as opened:
        means = np.array([[0, 60, 120], [1, 2, 3]])
        found = opened.loops.quantized(means, QuantizedSettings(50, 20, -1.0, False, 1, Monitor(max_time=0)))
    assert found is not None
    np.testing.assert_array_equal(found.means, means)
    assert found.current.shape == (2, 1)
    assert found.stop == [None, None]


def test_threads_follow_omp_and_numba(monkeypatch):
    points = Points.of([[1.0], [2.0], [3.0]])
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert NumbaBackend(points).workers.threads == 1
    monkeypatch.delenv("OMP_NUM_THREADS")
    monkeypatch.setattr(tiling.config, "NUMBA_NUM_THREADS", 1)
    assert NumbaBackend(points).workers.threads == 1


def fit_in_child(queue):
    queue.put(KMeans(3, random_state=0, backend="numba").fit(blobs(4000, 5, 3)).inertia_)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system does not fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_after_a_fit_is_safe():
    ours = KMeans(3, random_state=0, backend="numba").fit(blobs(4000, 5, 3)).inertia_
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    child = context.Process(target=fit_in_child, args=(queue,))
    child.start()
    assert queue.get(timeout=120) == ours
    child.join(timeout=60)
    assert child.exitcode == 0


def test_compilation_is_said_once(caplog):
    announcer = tiling._Announcer()
    ours = SimpleNamespace(data={"dispatcher": SimpleNamespace(py_func=assign_rows.py_func)})
    other = SimpleNamespace(data={"dispatcher": SimpleNamespace(py_func=len_of)})
    with caplog.at_level(logging.INFO, "gputabu"):
        announcer.on_start(other)
        announcer.on_start(ours)
        announcer.on_start(ours)
    assert [record.message[:9] for record in caplog.records] == ["compiling"]


def len_of(x):
    return len(x)


# -- machine code on disk --------------------------------------------------------------------------


def without_cache(monkeypatch, caplog) -> str:
    """Compile a function that cannot be kept on disk: it runs, and the log has the reason, which is returned."""
    jit.source_cache.cache_clear()
    monkeypatch.setattr(jit.Uncached, "reason", None)
    entry = jit.compiled(len_of)
    jit.source_cache.cache_clear()
    assert entry(np.zeros(3)) == 3
    announced = SimpleNamespace(data={"dispatcher": SimpleNamespace(py_func=assign_rows.py_func)})
    with caplog.at_level(logging.INFO, "gputabu"):
        tiling._Announcer().on_start(announced)
    (message,) = (record.getMessage() for record in caplog.records)
    assert message.startswith("compiling the numba backend; it takes some seconds in every process")
    assert message.endswith(f"({jit.Uncached.reason})")
    return jit.Uncached.reason


def test_code_is_compiled_where_nothing_can_be_kept(monkeypatch, caplog):
    def refuse(self, function):
        raise RuntimeError("cannot cache function: no locator available")

    monkeypatch.setattr(caching.FunctionCache, "__init__", refuse)
    assert without_cache(monkeypatch, caplog) == "RuntimeError: cannot cache function: no locator available"


def test_code_is_compiled_where_there_are_no_sources(monkeypatch, caplog, tmp_path):
    monkeypatch.setattr(jit, "SOURCES", (tmp_path / "nothing.py",))
    assert without_cache(monkeypatch, caplog).startswith("FileNotFoundError")


def test_code_is_compiled_where_numba_has_no_such_keys(monkeypatch, caplog):
    monkeypatch.setattr(caching, "FunctionCache", SimpleNamespace())
    assert without_cache(monkeypatch, caplog) == "TypeError: numba's cache makes its keys in another way"


def test_code_is_compiled_where_numba_has_no_such_cache(monkeypatch, caplog):
    monkeypatch.setattr(caching, "NullCache", int)
    assert without_cache(monkeypatch, caplog) == "TypeError: numba's functions have another kind of cache"


def test_an_option_that_numba_does_not_know_is_left_out():
    assert jit.NO_WRAPPERS
    assert jit.accepted(no_such_option=True) == {}


def test_every_source_of_compiled_code_is_in_its_key():
    """Kernels import nothing of ours that the hash does not know."""
    package = Path(gputabu.__file__).parent
    for source in Path(jit.__file__).parent.glob("*.py"):
        assert source in jit.SOURCES
        for node in ast.walk(ast.parse(source.read_text())):
            names = [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            for name in (name for name in names if name.split(".")[0] == "gputabu" and source.name != "jit.py"):
                assert package.joinpath(*name.split(".")[1:]).with_suffix(".py") in jit.SOURCES, (source, name)


PROBE = """
import json, sys
import numpy as np
from numba.core import event
from gputabu.backend.numba.kernels.probe import total

class Counter(event.Listener):
    count = 0
    def on_start(self, event): self.count += 1
    def on_end(self, event): pass

counter = Counter()
event.register("numba:compile", counter)
print(json.dumps([total(np.arange(4.0)), counter.count, sum(total.stats.cache_hits.values())]))
"""
CALLER = """
from gputabu.backend.arithmetic.constants import NOISE
from gputabu.backend.numba.kernels.jit import compiled
from gputabu.backend.numba.kernels.callee import twice

@compiled
def total(x):
    result = NOISE
    for i in range(len(x)):
        result += twice(x[i])
    return result
"""
CALLEE = """
from gputabu.backend.numba.kernels.jit import inner

@inner
def twice(x):
    return 2.0 * x
"""


@pytest.fixture
def probe(tmp_path):
    """A copy of the package with two kernels more; a function that runs them in a process of its own."""
    package = tmp_path / "gputabu"
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(Path(gputabu.__file__).parent, package, ignore=ignored)
    for empty in (package / "__init__.py", package / "backend" / "__init__.py"):  # import nothing that is not asked for
        empty.write_text("")
    folder = package / "backend" / "numba" / "kernels"
    (folder / "probe.py").write_text(CALLER)
    (folder / "callee.py").write_text(CALLEE)
    environment = {**os.environ, "PYTHONPATH": str(tmp_path), "NUMBA_CACHE_DIR": str(tmp_path / "cache")}
    environment.pop("NUMBA_DISABLE_JIT", None)

    def run() -> tuple[float, bool, bool]:
        """The result, whether anything was compiled, and whether it came from the disk."""
        command = [sys.executable, "-c", PROBE]
        done = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, check=True)
        value, compiled, hits = json.loads(done.stdout)
        return value, compiled > 0, hits > 0

    return package, run


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_compiled_code_is_loaded_until_a_source_changes(probe):
    package, run = probe
    noise = 2.0**-40
    assert run() == (12.0 + noise, True, False)
    assert run() == (12.0 + noise, False, True)
    edit(package / "backend" / "numba" / "kernels" / "callee.py", "2.0 * x", "3.0 * x")  # a callee in another file
    assert run() == (18.0 + noise, True, False)
    assert run() == (18.0 + noise, False, True)
    edit(package / "backend" / "arithmetic" / "constants.py", "NOISE = 2.0**-40", "NOISE = 1.0")  # a constant
    assert run() == (19.0, True, False)
    assert run() == (19.0, False, True)
