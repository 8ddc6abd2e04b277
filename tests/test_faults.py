"""What goes wrong around a fit: launches, memory, compilers, disks, files under a map, signals at any moment.

Each ends in the same bits, in the best found so far, or in a clear error; never in a wrong result or half a file.
"""

from __future__ import annotations

import gc
import json
import random
import resource
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import tally
from conftest import GPU, blobs, same
from sklearn.base import clone
from threadpoolctl import threadpool_info
from typer.testing import CliRunner

import gputabu
from gputabu import KMeans, QuantizedTabuKMeans, TabuKMeans, cli, lloyd, plotting, quantized, relocation
from gputabu.cli.reproduce.records import Results, Settings
from gputabu.core.results import Stop

hostcuda = pytest.mark.skipif(GPU != "hostcuda", reason="plans failures that only hostcuda can")
X = blobs(120, 3, 4)
COMMAND = [sys.executable, "-m", "gputabu"]


# -- the device ----------------------------------------------------------------------------------

SEARCHES = {
    "QM-TS": lambda **given: quantized.search(X, 4, restarts=2, max_iter=20, seed=1, **given),
    "QM-TS, watched": lambda **given: quantized.search(X, 4, max_iter=3, callback=lambda _: None, **given),
    "relocation": lambda **given: relocation.search(X, 4, max_iter=4, seed=1, **given),
    "K-Means": lambda **given: lloyd.run(X, 4, seed=1, refine="hartigan", **given),
}


@pytest.fixture
def planned():
    """hostcuda's settings, put back afterwards."""
    import cupy

    control = cupy._hostcuda
    before = vars(control.settings).copy()
    yield control
    vars(control.settings).update(before)


def counted(control, search) -> tuple[int, int]:
    """Launches and allocations of a search."""
    control.reset()
    search(backend="cuda")
    found = control.stats()
    return sum(kernel["launches"] for kernel in found["kernels"].values()), found["allocations"]


@hostcuda
@pytest.mark.gpu
@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.one_device
def test_a_launch_that_fails_is_raised_and_forgotten(name, planned):
    search = SEARCHES[name]
    expected = search(backend="numpy")
    launches, _ = counted(planned, search)
    for nth in random.Random(name).sample(range(1, launches + 1), min(launches, tally.trials(3))):
        planned.reset()
        planned.fail_next(launch=nth)
        try:
            same(search(backend="cuda"), expected)  # the launch to fail was not ours, or never came
        except RuntimeError as error:
            assert "cudaErrorLaunchFailure" in str(error) or "capture" in str(error)  # noqa: PT017
        planned.fail_next()
        assert planned.leaked_bytes() == 0
        tally.tried("launches that fail")
    same(search(backend="cuda"), expected)


@hostcuda
@pytest.mark.gpu
@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.one_device
def test_every_allocation_may_fail(name, planned):
    search = SEARCHES[name]
    expected = search(backend="numpy")
    _, allocations = counted(planned, search)
    turns = range(1, allocations + 1)
    if tally.EFFORT == 1:
        turns = random.Random(name).sample(turns, min(allocations, 4))
    for nth in turns:
        planned.reset()
        planned.fail_next(allocation=nth)
        try:
            same(search(backend="cuda"), expected)
        except MemoryError as error:
            assert "Out of device memory on device 0" in str(error)  # noqa: PT017
        planned.fail_next()
        assert planned.leaked_bytes() == 0
        tally.tried("device allocations that fail, each in turn")


@hostcuda
@pytest.mark.gpu
@pytest.mark.one_device
def test_any_size_of_device_memory_is_enough_or_said_to_be_too_small(planned):
    expected = SEARCHES["QM-TS"](backend="numpy")
    draws = random.Random(0)
    for _ in range(tally.trials(4)):
        planned.reset()
        planned.settings.memory = int(2 ** draws.uniform(9, 18))
        try:
            same(SEARCHES["QM-TS"](backend="cuda"), expected)
        except MemoryError as error:
            assert "Out of device memory on device 0" in str(error)  # noqa: PT017
        assert planned.leaked_bytes() == 0
        tally.tried("sizes of device memory")


@hostcuda
@pytest.mark.gpu
def test_kernels_that_do_not_compile(monkeypatch):
    from gputabu.backend.cuda import launch as kernels

    kernels.load.cache_clear()
    whole = kernels.source
    monkeypatch.setattr(kernels, "source", lambda file: whole(file) + "\nthis is no C++\n")
    monkeypatch.setattr(kernels, "signatures", kernels.signatures)
    with pytest.raises(RuntimeError, match=r"^backend='cuda': \w+\.cu cannot be compiled"):
        SEARCHES["K-Means"](backend="cuda")
    monkeypatch.undo()
    same(SEARCHES["K-Means"](backend="cuda"), SEARCHES["K-Means"](backend="numpy"))  # the failure was not kept
    tally.tried("kernels that do not compile")


# -- the disk ------------------------------------------------------------------------------------


@contextmanager
def room_for(size: int):
    """Files of this process grow to `size` bytes and no further, as on a disk that is full."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    ignored = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, ignored)


def check_whole(folder: Path, n: int) -> set[str]:
    """Assert that every file of a command is whole, and none is left over; their names."""
    for path in folder.iterdir() if folder.exists() else ():
        content = path.read_bytes()
        assert not path.name.startswith("."), path
        if path.name == "labels.csv":
            assert content.count(b"\n") == n + 1
        elif path.name == "labels.npy":
            assert np.load(path).shape == (n,)
        elif path.suffix == ".csv":
            assert content.endswith(b"\n")
        elif path.suffix == ".json":
            json.loads(content)
        elif path.suffix == ".html":
            assert content.endswith(b"</html>\n")
        elif path.name == "model.npz":
            gputabu.load(path)
        else:
            raise AssertionError(f"nobody knows {path.name}")
    return {path.name for path in folder.iterdir()} if folder.exists() else set()


@pytest.fixture
def table(tmp_path) -> Path:
    path = tmp_path / "data.csv"
    np.savetxt(path, X, delimiter=",", header="a,b,c", comments="")
    return path


COMMANDS = {
    "fit": ["fit", "-k", "3", "--max-iter", "5", "--scale", "zscore", "--quiet"],
    "select-k": ["select-k", "--ks", "2:4", "--quiet"],
}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_disk_that_is_full_leaves_whole_files(name, table, tmp_path):
    command, *options = COMMANDS[name]
    draws = random.Random(name)
    for trial in range(tally.trials(2)):
        out = tmp_path / f"out{trial}"
        run = [command, str(table), *options, "--backend", "numpy", "--out", str(out)]
        assert CliRunner().invoke(cli.app, run).exit_code == 0 if trial % 2 else True
        before = {path.name: path.stat().st_mtime_ns for path in out.iterdir()} if out.exists() else {}
        with room_for(int(2 ** draws.uniform(0, 17))):
            done = CliRunner().invoke(cli.app, [*run, "--force"])
        assert done.exit_code in (0, 1), done.output
        if done.exit_code:
            assert f"gputabu {command}: {out}" in done.stderr and "File too large" in done.stderr
            assert "Traceback" not in done.stderr
        after = {path.name: path.stat().st_mtime_ns for path in out.iterdir()} if out.exists() else {}
        assert check_whole(out, len(X)) == set(after)
        old = {name for name in after if before.get(name) == after[name]}
        assert old in (set(), set(before))  # never files of two runs
        tally.tried("outputs onto a full disk")


@pytest.fixture(scope="module")
def outputs():
    """Every function that writes a file: its name, and what writes it."""
    model = QuantizedTabuKMeans(3, max_iter=4, random_state=0).fit(X)
    film = plotting.animation(X, model, frames=2)
    recorded = Results(Settings(runs=1, backend="numpy"))
    return {
        "model.npz": model.save,
        "labels.npy": lambda path: KMeans(3, random_state=0).fit(X, labels_out=path),
        "predicted.npy": lambda path: model.predict(X, labels_out=path),
        "film.gif": lambda path: plotting.write(film, path),
        "film.html": lambda path: plotting.write(film, path),
        "results.json": lambda path: recorded.write(path.parent),
    }


@pytest.mark.parametrize("name", ["model.npz", "labels.npy", "predicted.npy", "film.gif", "film.html", "results.json"])
def test_what_cannot_be_written_whole_leaves_what_was_there(name, outputs, tmp_path):
    write, path = outputs[name], tmp_path / name
    write(path)
    draws, size = random.Random(name), path.stat().st_size
    for _ in range(tally.trials(1)):
        path.write_bytes(b"before")
        with room_for(draws.randrange(size)), pytest.raises((OSError, ValueError), match=path.name):
            write(path)
        assert path.read_bytes() == b"before"
        assert not [other for other in tmp_path.iterdir() if other.name.startswith(".")]
        tally.tried("outputs onto a full disk")
    path.unlink()
    with pytest.raises((OSError, ValueError)):
        write(Path("/proc/nowhere") / name)  # a folder that root cannot write to either
    tally.tried("outputs into a folder that cannot be written to")


def test_a_fit_that_fails_leaves_no_labels(tmp_path):
    def stumble(progress):
        raise ZeroDivisionError

    (tmp_path / "old.npy").write_bytes(b"before")
    for name in ("old.npy", "new.npy"):
        with pytest.raises(ZeroDivisionError):
            QuantizedTabuKMeans(3, callback=stumble).fit(X, labels_out=tmp_path / name)
        gc.collect()
    assert [path.name for path in tmp_path.iterdir()] == ["old.npy"]
    assert (tmp_path / "old.npy").read_bytes() == b"before"
    first = KMeans(3, random_state=0).fit(X, labels_out=tmp_path / "old.npy").labels_
    kept = first.copy()
    KMeans(2, random_state=0).fit(X, labels_out=tmp_path / "old.npy")  # not into what the other has mapped
    np.testing.assert_array_equal(first, kept)


def test_standard_output_that_is_full(table):
    run = ["fit", str(table), "-k", "3", "--backend", "numpy", "--quiet"]
    with open("/dev/full", "w") as full:
        done = subprocess.run([*COMMAND, *run], stdout=full, stderr=subprocess.PIPE, text=True)
    assert done.returncode == 1 and done.stderr.count("\n") == 1 and "No space left on device" in done.stderr
    tally.tried("outputs onto a full disk")


# -- files that change under a map ---------------------------------------------------------------

CUT = """
import os, random, sys, threading, time
import numpy as np
from gputabu import KMeans, chunked
path, trials = sys.argv[1], int(sys.argv[2])
points, draws = np.load(path), random.Random(0)

def spoil(delay, change):
    time.sleep(delay)
    with open(path, "r+b") as file:
        file.truncate(100_000) if change == "cut" else file.write(b"x" * 1000)

def fit():
    try:
        model = KMeans(20, random_state=0, max_iter=30, tol=0, backend="numpy")
        return model.fit(chunked(path, chunk_bytes=1 << 16), labels_out=path + ".labels.npy")
    except ValueError as error:
        os._exit(3 if "was changed while it was being read" in str(error) else 4)

for trial in range(trials):
    np.save(path, points)
    os.utime(path, ns=(0, 0))
    child = os.fork()
    if child == 0:
        threading.Thread(target=spoil, args=(draws.uniform(0, 0.3), ["cut", "written"][trial % 2])).start()
        print(fit().inertia_, end=" ", flush=True)
        os._exit(0)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    print(code, int(os.path.exists(path + ".labels.npy")), flush=True)
    if code == 0:
        os.unlink(path + ".labels.npy")
"""


def test_a_file_that_changes_is_noticed_or_ends_the_process(tmp_path):
    path, points, trials = tmp_path / "points.npy", blobs(20_000, 4, 5), tally.trials(4)
    np.save(path, points)
    done = subprocess.run([sys.executable, "-c", CUT, str(path), str(trials)], capture_output=True, text=True)
    assert done.returncode == 0 and done.stdout.count("\n") == trials, done.stderr
    for line in done.stdout.splitlines():
        *inertia, code, labels = line.split()
        assert int(code) in (0, 3, -signal.SIGBUS) and (labels == "1") == (code == "0")
        if code == "0":  # it was done by then
            assert float(*inertia) == KMeans(20, random_state=0, max_iter=30, tol=0).fit(points).inertia_
        tally.tried("files that change under a fit")


# -- signals -------------------------------------------------------------------------------------


@contextmanager
def ctrl_c_after(seconds: float):
    """A Ctrl-C that comes so much later, unless the context has ended."""

    def send(number, frame):
        signal.raise_signal(signal.SIGINT)

    before = signal.signal(signal.SIGINT, signal.default_int_handler), signal.signal(signal.SIGALRM, send)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
        signal.signal(signal.SIGINT, before[0])
        signal.signal(signal.SIGALRM, before[1])


INTERRUPTED = {
    "quantized": QuantizedTabuKMeans(5, max_iter=60, n_init=2, random_state=0),
    "relocation": TabuKMeans(5, max_iter=60, refine="hartigan", random_state=0),
    "K-Means": KMeans(5, n_init=20, random_state=0, refine="hartigan"),
}


@pytest.mark.parametrize("name", INTERRUPTED)
def test_ctrl_c_at_any_moment(name, backend):
    """The whole result, the best so far, or KeyboardInterrupt: whatever comes back holds together."""
    points = blobs(400, 3, 6)
    model = clone(INTERRUPTED[name]).set_params(backend=backend)
    begun = time.perf_counter()
    whole = clone(model).fit(points)
    took, draws = time.perf_counter() - begun, random.Random(name)
    threads = threadpool_info()
    for _ in range(tally.trials(2 if backend == "cuda" else 6)):
        found = clone(model)
        try:
            with ctrl_c_after(draws.uniform(1e-4, 1.2 * took)):
                found.fit(points)
        except KeyboardInterrupt:
            tally.tried("Ctrl-C in a fit, at random moments")
            continue
        if found.stop_ is not Stop.INTERRUPTED:
            assert found.inertia_ == whole.inertia_
            np.testing.assert_array_equal(found.labels_, whole.labels_)
        np.testing.assert_array_equal(found.predict(points), found.labels_)
        assert found.inertia_ == -found.score(points)
        tally.tried("Ctrl-C in a fit, at random moments")
    assert threadpool_info() == threads
    np.testing.assert_array_equal(clone(model).fit(points).labels_, whole.labels_)


SIGNALLED = """
import os, random, signal, sys, time
from gputabu.cli import main
data, folder, trials, seed = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
draws, longest = random.Random(seed), 3.0
for trial in range(trials):
    number = draws.choice([signal.SIGINT, signal.SIGTERM])
    name = os.path.join(folder, str(trial))
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGINT, signal.default_int_handler)  # whatever the tests were started with
        for stream, ending in ((1, ".out"), (2, ".err")):
            os.dup2(os.open(name + ending, os.O_WRONLY | os.O_CREAT), stream)
        sys.argv = ["gputabu", "fit", data, "-k", "6", "--backend", "numpy", "--max-iter", "150", "--out", name]
        main()
    begun = time.perf_counter()
    time.sleep(draws.uniform(0, longest))
    os.kill(child, number)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    if code == 0:
        longest = time.perf_counter() - begun
    print(number, code, flush=True)
"""


def test_a_command_that_is_ended_at_any_moment(tmp_path):
    """Ctrl-C or SIGTERM: files whole, or not there; what they say holds together."""
    points = blobs(2000, 4, 8)
    np.save(tmp_path / "data.npy", points)
    trials = 3 if tally.EFFORT == 1 else tally.trials(10)
    run = [sys.executable, "-c", SIGNALLED, str(tmp_path / "data.npy"), str(tmp_path), str(trials), str(tally.EFFORT)]
    done = subprocess.run(run, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    ends = [tuple(map(int, line.split())) for line in done.stdout.splitlines()]
    assert len(ends) == trials
    for trial, (number, code) in enumerate(ends):
        said = (tmp_path / f"{trial}.err").read_text() if (tmp_path / f"{trial}.err").exists() else ""
        # By the signal itself before there is a command, and 1 is what the parser of options says.
        assert code in (0, 128 + number, -number) or (code == 1 and "Aborted" in said), (code, said)
        assert "Traceback" not in said or code == -number, said
        there = check_whole(tmp_path / str(trial), len(points))
        assert code != 0 or len(there) == 5
        if "model.npz" in there:
            model = gputabu.load(tmp_path / str(trial) / "model.npz")
            np.testing.assert_array_equal(model.predict(points), model.labels_)
            assert model.inertia_ == -model.score(points)
        tally.tried("Ctrl-C and SIGTERM to a command, at random moments")


def test_sigterm_leaves_the_best_so_far(tmp_path):
    """Also where Ctrl-C is ignored, as in the background of a shell."""
    np.save(tmp_path / "data.npy", blobs(5000, 4, 8))
    run = ["fit", tmp_path / "data.npy", "-k", "20", "--max-iter", "1000000", "--patience", "1000000"]
    run += ["--backend", "numpy", "--out", tmp_path / "out"]
    ignored = lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)  # noqa: E731
    with subprocess.Popen([*COMMAND, *run], stderr=subprocess.PIPE, text=True, preexec_fn=ignored) as process:
        process.stderr.readline()  # a line of progress
        process.terminate()
        said = process.communicate()[1]
    assert process.returncode == 143 and "interrupted; this is the best found so far." in said
    assert len(check_whole(tmp_path / "out", 5000)) == 5
    assert json.loads((tmp_path / "out" / "result.json").read_text())["interrupted"]
    tally.tried("Ctrl-C and SIGTERM to a command, at random moments")
