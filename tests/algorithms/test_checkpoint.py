"""Checkpoints: whenever a fit is killed, and by whatever it is continued, the bits are those of one that was not."""

from __future__ import annotations

import io
import multiprocessing
import os
import random
import shutil
import signal
import time
import zipfile
from pathlib import Path

import kept_fits
import numpy as np
import pytest
import tally
from conftest import BACKENDS, Backend, blobs, same
from hypothesis import given
from hypothesis import strategies as st
from sklearn.base import clone

import gputabu
from gputabu import Points, Stop, lloyd, quantized, reassignment, relocation
from gputabu.algorithms import checkpoint as checkpoints
from gputabu.algorithms.checkpoint import Checkpoint
from gputabu.algorithms.restarts import POINT_BYTES, fingerprint
from gputabu.backend import open_backend
from gputabu.backend.tuning import Tuning

ROW = "Fit continued from a checkpoint"

X = blobs(40, 2, 4)
X[7] = X[31]
WEIGHTS = np.random.default_rng(1).integers(0, 4, 40) / 4

#: Every search, with what takes it through all of its stages.
SEARCHES = {
    "quantized": (quantized.search, {"restarts": 3, "max_iter": 6, "init": "k-means++"}),
    "quantized, globally": (
        quantized.search,
        {"restarts": 2, "max_iter": 8, "patience": 2, "scope": "global", "n_neighbors": 2, "refine": "hartigan"},
    ),
    "quantized, all tabu": (quantized.search, {"max_iter": 15, "patience": 15, "weights": WEIGHTS}),
    "relocation": (relocation.search, {"restarts": 3, "max_iter": 6, "patience": 3, "go_back": 2, "returns": 2}),
    "relocation, to a target": (relocation.search, {"restarts": 2, "max_iter": 9, "target": 140.0, "weights": WEIGHTS}),
    "K-Means": (lloyd.run, {"restarts": 3, "refine": "hartigan", "weights": WEIGHTS}),
    "K-Means, cut short": (lloyd.run, {"init": "random", "restarts": 2, "max_iter": 3}),
    "K-Means, given centres": (lloyd.run, {"init": np.full((4, 2), 9.0), "tol": 1e-4}),
    "reassignment": (reassignment.search, {"restarts": 3, "max_iter": 6, "n_trials": 3, "tenure": 2}),
    "reassignment, refined": (reassignment.search, {"max_iter": 4, "n_trials": 2, "refine": "lloyd"}),
}


@pytest.fixture(params=SEARCHES)
def run(request):
    """A search, as a function of how it is to be run."""
    search, settings = SEARCHES[request.param]
    return lambda **how: search(**{"X": X, "n_clusters": 4, "seed": 3} | settings | how)


@pytest.fixture
def written(monkeypatch):
    """All that is written to checkpoints, which is now done after every iteration."""
    files, write = [], Checkpoint.write

    def copied(self):
        write(self)
        files.append(self.path.read_bytes())

    monkeypatch.setattr(checkpoints, "EVERY", 0.0)
    monkeypatch.setattr("gputabu.core.archive.os.fsync", bool)  # no power fails here
    monkeypatch.setattr(Checkpoint, "write", copied)
    return files


#: Two restarts at a time.
SMALL = {"batch_bytes": 2 * POINT_BYTES * len(X)}
TWO_AT_A_TIME = Backend("numpy", Tuning(**SMALL))


def test_from_every_write_the_same_end(run, tmp_path, written, monkeypatch):
    """Whatever was written last when a process was killed."""
    whole = run(backend=TWO_AT_A_TIME)
    path = tmp_path / "fit.ckpt"
    same(run(checkpoint=path, backend=TWO_AT_A_TIME), whole)
    left = written.copy()
    assert len(left) > 4
    monkeypatch.setattr(checkpoints, "EVERY", np.inf)
    for content in left:
        path.write_bytes(content)
        same(run(checkpoint=path, backend=TWO_AT_A_TIME), whole)
        tally.tried(ROW)
    monkeypatch.setattr(Checkpoint, "stage", None)  # nothing is left to do
    same(run(checkpoint=path, backend=TWO_AT_A_TIME), whole)


#: What the file says of a fit, and the stages that it has; a file of today is read by the versions of tomorrow.
SAID = {"n_clusters": 4, "seed": 3, "n_samples": 40, "n_features": 2, "dtype": "float64"}
NAMES = {
    "quantized, globally": (
        {"search": "quantized", "init": "random", "restarts": 2, "max_iter": 8, "patience": 2, "target": 0.0}
        | {"scope": "global", "n_neighbors": 2, "refine": "hartigan"},
        ["seeds", "search", "refine", "moves"],
    ),
    "relocation": (
        {"search": "relocation", "init": "k-means++", "restarts": 3, "max_iter": 6, "patience": 3, "target": 0.0}
        | {"effort": None, "candidates": 7, "tenure": 2, "go_back": 2, "returns": 2, "refine": "hartigan"},
        ["seeds", "start", "search", "refine", "moves"],
    ),
    "relocation, to a target": (
        {"search": "relocation", "init": "k-means++", "restarts": 2, "max_iter": 9, "patience": None, "target": 140.0}
        | {"effort": None, "candidates": 7, "tenure": 2, "go_back": 60, "returns": 20, "refine": "hartigan"},
        ["seeds", "start", "search", "refine", "moves"],
    ),
    "K-Means": (
        {"search": "lloyd", "init": "k-means++", "restarts": 3, "max_iter": 300, "tol": 0.0, "trials": None}
        | {"refine": "hartigan"},
        ["seeds", "search", "moves"],
    ),
}


@pytest.mark.parametrize("case", NAMES)
def test_names_in_the_file_are_a_format(case, tmp_path, written, monkeypatch):
    search, settings = SEARCHES[case]
    asked, stage = [], Checkpoint.stage
    monkeypatch.setattr(Checkpoint, "stage", lambda self, name, work: asked.append(name) or stage(self, name, work))
    search(X, 4, seed=3, checkpoint=tmp_path / "fit.ckpt", backend="numpy", **settings)
    said, stages = NAMES[case]
    under_way = set()
    for content in written:
        (tmp_path / "some.ckpt").write_bytes(content)
        left = Checkpoint(tmp_path / "some.ckpt", bool)
        under_way |= set(left.under_way[:1] if left.under_way else ())
    assert len(left.identity.pop("X")) == 32
    assert left.identity == SAID | said
    assert asked == stages
    assert "refine" in under_way or "search" in under_way
    assert under_way <= set(stages) - {"moves"}


@pytest.mark.parametrize("backend", BACKENDS[1::2], indirect=True)
def test_one_backend_goes_on_where_another_was(run, backend, tmp_path, written):
    """From NumPy to another and back, which then reads the points from a file."""
    path = tmp_path / "fit.ckpt"
    whole = run(checkpoint=path, backend=TWO_AT_A_TIME)
    path.write_bytes(written[len(written) // 3])
    written.clear()
    same(run(checkpoint=path, backend=backend.tuned(**SMALL)), whole)
    path.write_bytes(written[len(written) // 2])
    np.save(tmp_path / "X.npy", X)
    mapped = gputabu.chunked(tmp_path / "X.npy", chunk_bytes=7 * X[0].nbytes)
    same(run(X=mapped, checkpoint=path, backend=TWO_AT_A_TIME), whole)
    tally.tried(ROW, 2)


class Stopped(Exception):
    pass


def test_an_exception_leaves_all_that_was_done(run, tmp_path):
    """Nothing was due to be written: it is on the way out, also if a callback raises."""
    whole, path, seen = run(backend=TWO_AT_A_TIME), tmp_path / "fit.ckpt", []

    def stop(progress):
        seen.append((progress.phase, progress.iteration, progress.done))
        if len(seen) % 3 == 0:
            raise Stopped

    for _ in range(100):
        try:
            found = run(checkpoint=path, callback=stop, backend=TWO_AT_A_TIME)
        except Stopped:
            continue
        break
    same(found, whole)
    assert len(seen) >= 3


def test_ctrl_c_leaves_a_checkpoint(run, tmp_path):
    path = tmp_path / "fit.ckpt"
    whole = run(backend=TWO_AT_A_TIME)
    for _ in range(60):
        asked = []

        def press(progress, asked=asked):
            asked.append(progress)
            if len(asked) == 2:
                os.kill(os.getpid(), signal.SIGINT)

        found = run(checkpoint=path, callback=press, backend=TWO_AT_A_TIME)
        if found.stop is not Stop.INTERRUPTED:
            break
    same(found, whole)


@pytest.mark.parametrize("name", ["quantized", "relocation"])
def test_time_is_that_of_a_call(name, tmp_path):
    search, settings = SEARCHES[name]
    settings = {"n_clusters": 4, "seed": 3, "backend": TWO_AT_A_TIME, **settings}
    whole, path = search(X, **settings), tmp_path / "fit.ckpt"
    first = search(X, checkpoint=path, max_time=0.0, **settings)
    assert first.stop is Stop.MAX_TIME
    for seconds in (0.01, 0.02, 0.05, None):
        found = search(X, checkpoint=path, max_time=seconds, **settings)
    same(found, whole)


OTHERS = {
    "n_clusters": 3,
    "seed": 4,
    "restarts": 2,
    "max_iter": 5,
    "refine": "centroid",
    "patience": 7,
    "target": 1.0,
    "scope": "global",
    "n_neighbors": 2,
    "init": [0, 1, 2, 3],
}


@pytest.mark.parametrize("name", OTHERS)
def test_another_parameter_is_said(name, tmp_path):
    settings = {"n_clusters": 4, "backend": "numpy", "max_iter": 6, "checkpoint": tmp_path / "fit.ckpt"}
    quantized.search(X, **settings)
    before = (tmp_path / "fit.ckpt").read_bytes()
    with pytest.raises(ValueError, match=rf"checkpoint='.*fit.ckpt' is of a fit with {name}=.*, and not .*; remove"):
        quantized.search(X, **settings | {name: OTHERS[name]})
    assert (tmp_path / "fit.ckpt").read_bytes() == before
    with pytest.raises(ValueError, match="is of a fit with search='quantized', and not 'lloyd'"):
        lloyd.run(X, 4, checkpoint=tmp_path / "fit.ckpt")


def test_other_points_are_said(tmp_path):
    path = tmp_path / "fit.ckpt"
    settings = {"n_clusters": 4, "checkpoint": path}
    lloyd.run(X, **settings)
    last, swapped, weights = X.copy(), X.copy(), np.ones(len(X))
    last[-1, 0] = np.nextafter(last[-1, 0], 9)
    swapped[[0, 1]] = X[[1, 0]]
    weights[3] = 2.0
    for other in (last, swapped, X[::-1].copy()):
        with pytest.raises(ValueError, match="is of a fit with other values of X; remove it to begin anew"):
            lloyd.run(other, **settings)
    with pytest.raises(ValueError, match="other values of X"):
        lloyd.run(X, weights=weights, **settings)
    with pytest.raises(ValueError, match="is of a fit with n_samples=40, and not 39"):
        lloyd.run(X[:-1], **settings)
    with pytest.raises(ValueError, match="is of a fit with dtype='float64', and not 'float32'"):
        lloyd.run(X.astype(np.float32), **settings)


def test_the_fingerprint_of_points_is_the_same_for_all(backend):
    """For any chunks, weights of one or none, and every backend."""
    with open_backend(Points.of(X), "numpy") as opened:
        expected = fingerprint(opened)
    for rows in (1, 7, 40):
        with open_backend(Points.of(X, None, rows), backend) as opened:
            assert fingerprint(opened) == expected


@pytest.fixture(scope="module")
def content(tmp_path_factory):
    """A checkpoint from the middle of a search."""
    path = tmp_path_factory.mktemp("kept") / "fit.ckpt"
    quantized.search(X, 4, max_iter=9, checkpoint=path, callback=lambda progress: progress.iteration == 5)
    return path.read_bytes()


def test_a_checkpoint_is_small(content, tmp_path):
    """It grows with K and the iterations, not with the points."""
    assert len(content) < 8000
    many = blobs(20_000, 2, 4)
    reassignment.search(many, 4, max_iter=3, checkpoint=tmp_path / "fit.ckpt")
    assert (tmp_path / "fit.ckpt").stat().st_size < 8000


@given(st.integers(0, 10**6))
def test_a_cut_checkpoint_is_said(content, tmp_path, length):
    path = tmp_path / "fit.ckpt"
    path.write_bytes(content[: length % len(content)])
    with pytest.raises(ValueError, match=r"checkpoint='.*fit.ckpt' is no checkpoint of gputabu, or is damaged"):
        Checkpoint(path, bool)
    tally.tried("Checkpoint damaged")


@given(st.integers(0, 10**6), st.integers(1, 255))
def test_a_flipped_byte_is_said_or_does_not_matter(content, tmp_path, at, bits):
    path, damaged = tmp_path / "fit.ckpt", bytearray(content)
    damaged[at % len(content)] ^= bits
    path.write_bytes(bytes(damaged))
    try:
        read = Checkpoint(path, bool)
    except ValueError as error:
        read = str(error)
    if isinstance(read, str):
        assert "is no checkpoint of gputabu, or is damaged" in read
    else:
        path.write_bytes(content)
        whole = Checkpoint(path, bool)
        assert [repr(getattr(read, part)) for part in checkpoints.CONTENT] == [
            repr(getattr(whole, part)) for part in checkpoints.CONTENT
        ]
    tally.tried("Checkpoint damaged")


def test_a_checkpoint_cannot_hold_code(tmp_path):
    path = tmp_path / "fit.ckpt"
    with path.open("wb") as file:
        np.savez(file, identity=np.array([print], object))
    with pytest.raises(ValueError, match="is no checkpoint of gputabu"):
        lloyd.run(X, 4, checkpoint=path)
    with zipfile.ZipFile(path, "w") as archive:
        array = io.BytesIO()
        np.save(array, np.array([print], object))
        archive.writestr("a.npy", array.getvalue())
        archive.writestr(checkpoints.HEAD, f'{{"version": {checkpoints.VERSION}, "identity": {{"array": "a"}}}}')
    with pytest.raises(ValueError, match="does not hold what it claims to"):
        lloyd.run(X, 4, checkpoint=path)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(checkpoints.HEAD, '{"version": 99}')
    with pytest.raises(ValueError, match="was saved by a newer gputabu"):
        lloyd.run(X, 4, checkpoint=path)


def test_searches_that_went_other_ways(tmp_path, monkeypatch):
    lloyd.run(X, 4, checkpoint=tmp_path / "fit.ckpt")
    monkeypatch.setattr(checkpoints, "VERSION", checkpoints.VERSION + 1)
    with pytest.raises(ValueError, match="was saved by an earlier gputabu, whose searches went other ways"):
        lloyd.run(X, 4, checkpoint=tmp_path / "fit.ckpt")


def test_where_a_checkpoint_cannot_be(tmp_path, monkeypatch):
    with pytest.raises(TypeError, match="checkpoint=3 must be a path, or None"):
        lloyd.run(X, 4, checkpoint=3)
    with pytest.raises(ValueError, match="cannot be written: there is no such folder"):
        lloyd.run(X, 4, checkpoint=tmp_path / "no" / "fit.ckpt")
    with pytest.raises(ValueError, match="is no checkpoint of gputabu"):
        lloyd.run(X, 4, checkpoint=tmp_path)
    whole = lloyd.run(X, 4)

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gputabu.core.archive.npy.write_array", full)
    with pytest.warns(RuntimeWarning, match="checkpoint='.*' cannot be written: No space left on device"):
        same(lloyd.run(X, 4, checkpoint=tmp_path / "fit.ckpt"), whole)
    monkeypatch.setattr("gputabu.core.archive.json.dumps", full)
    with pytest.raises(ValueError, match="cannot be written: No space left on device"):
        lloyd.run(X, 4, checkpoint=tmp_path / "other.ckpt")
    assert [path.name for path in tmp_path.iterdir()] == ["fit.ckpt"]


@pytest.mark.parametrize("kind", [gputabu.QuantizedTabuKMeans, gputabu.KMeans, gputabu.TabuSearchClustering])
def test_estimators(kind, tmp_path):
    path = str(tmp_path / "fit.ckpt")
    model = kind(4, max_iter=5, checkpoint=path, random_state=0).fit(X)
    again = clone(model).fit(X)
    plain = kind(4, max_iter=5, random_state=0).fit(X)
    for one in (model, again):
        np.testing.assert_array_equal(one.labels_, plain.labels_)
        assert one.inertia_ == plain.inertia_ and one.stop_ == plain.stop_
    with pytest.raises(ValueError, match="random_state=None must be an integer where there is a checkpoint"):
        kind(4, checkpoint=path).fit(X)
    with pytest.raises(ValueError, match="is of a fit with seed=0, and not 1"):
        kind(4, max_iter=5, checkpoint=path, random_state=1).fit(X)


@pytest.fixture(scope="module")
def processes():
    """Processes that are forked from one that has imported what they need."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["gputabu"])
    first = context.Process(target=bool)  # who waits for that one does not wait later
    first.start()
    first.join()
    return context


@pytest.mark.numba
@pytest.mark.parametrize("compiled", ["numpy", "numba"])
@pytest.mark.parametrize("name", kept_fits.KINDS)
def test_a_killed_process_goes_on(name, compiled, processes, tmp_path):
    """SIGKILL at random moments, then a fit that comes to its end: of a file, and in memory."""
    np.save(tmp_path / "X.npy", blobs(2000, 3, 6))
    chance = random.Random(name + compiled)

    def begin(path):
        process = processes.Process(target=kept_fits.fit, args=(name, compiled, str(tmp_path / "X.npy"), str(path)))
        process.start()
        return process

    begun = time.perf_counter()
    begin(tmp_path / "whole").join()
    took = time.perf_counter() - begun
    with np.load(tmp_path / "whole.npz") as whole:
        expected = dict(whole)
    for trial in range(tally.trials(1)):
        path, killed = tmp_path / f"{trial}", 0
        for _ in range(2):
            process = begin(path)
            time.sleep(chance.uniform(0, took))
            process.kill()
            process.join()
            killed += process.exitcode != 0
        begin(path).join()
        with np.load(f"{path}.npz") as found:
            for key, array in expected.items():
                np.testing.assert_array_equal(found[key], array)
        tally.tried("Fit killed and continued from its checkpoint", killed)


#: Searches that were left half-way, by the first program whose checkpoints have this version.
LEFT = {
    "quantized": (quantized.search, {"restarts": 2, "max_iter": 20}),
    "relocation": (relocation.search, {"restarts": 2, "max_iter": 20}),
    "reassignment": (reassignment.search, {"restarts": 2, "max_iter": 10, "n_trials": 3}),
    "lloyd": (lloyd.run, {"restarts": 2, "init": "random"}),
}


@pytest.mark.parametrize("name", LEFT)
def test_what_was_left_goes_on(name, tmp_path):
    search, options = LEFT[name]
    points = (np.arange(60) * 37 % 61).reshape(30, 2) / 4.0
    options = {"X": points, "n_clusters": 4, "seed": 3, "backend": "numpy", **options}
    shutil.copy(Path(__file__).parent / "saved" / f"{name}.ckpt", tmp_path / "fit.ckpt")
    iterations = []
    found = search(**options, checkpoint=tmp_path / "fit.ckpt", callback=lambda told: iterations.append(told.iteration))
    same(found, search(**options))
    assert iterations[0] > 1  # it did not begin anew
