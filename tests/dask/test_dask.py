"""Dask: the bits of the estimators in memory, whatever the partitions and workers, and whichever worker is killed."""

from __future__ import annotations

import logging
import os
import pickle
import random
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Future

import numpy as np
import pytest
import tally
from conftest import blobs
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import gputabu

dask, da = pytest.importorskip("dask"), pytest.importorskip("dask.array")
distributed = pytest.importorskip("distributed")

from gputabu.dask import (  # noqa: E402
    KMeans,
    QuantizedTabuKMeans,
    TabuKMeans,
    WorkerLost,
    cluster,
    estimators,
)
from gputabu.dask import client as remote  # noqa: E402
from gputabu.dask import worker as held  # noqa: E402
from gputabu.dask.partitions import Partitions  # noqa: E402

#: Partitions of 400 points: uneven, smaller than K, an empty one, one of a single row.
UNEVEN = (150, 3, 0, 1, 90, 120, 36)
PLAIN = {kind: getattr(gputabu, kind.__name__) for kind in (TabuKMeans, QuantizedTabuKMeans, KMeans)}
#: Seconds after which a fit counts as hanging, also where other work keeps the machine busy.
HANGS = 600


@pytest.fixture(scope="module")
def client():
    """Four workers, each a process that is started again when it dies: forked, as imports take seconds."""
    forked = {"distributed.worker.multiprocessing-method": "forkserver"}
    options = {"n_workers": 4, "threads_per_worker": 1, "dashboard_address": ":0", "silence_logs": logging.CRITICAL}
    with dask.config.set(forked):
        distributed.utils.get_mp_context().set_forkserver_preload(["distributed", "gputabu.dask"])
        with distributed.LocalCluster(**options) as local, distributed.Client(local) as client:
            yield client


@pytest.fixture(autouse=True)
def _soon(monkeypatch):
    """Whether a worker is still there is looked at more often."""
    monkeypatch.setattr(cluster, "POLL", 0.2)


def data(dtype=np.float64, weighted=False):
    X = blobs(400, 3, 5, dtype=dtype)
    X[7] = X[250]  # a tie across partitions
    weights = np.random.default_rng(1).integers(0, 4, 400) / 4
    weights[150:153] = 0  # a partition without weight
    return X, weights if weighted else None


def equal(model, plain) -> None:
    """Assert that a model of Dask is that of the points in memory, bit for bit."""
    np.testing.assert_array_equal(model.labels_.compute(), plain.labels_)
    for name in ("cluster_centers_", "inertias_", "center_indices_"):
        np.testing.assert_array_equal(getattr(model, name, None), getattr(plain, name, None))
    for name in ("current", "best", "moves", "means"):
        np.testing.assert_array_equal(getattr(model.trace_, name), getattr(plain.trace_, name))
    for name in ("inertia_", "n_iter_", "restart_", "stop_", "backend_", "n_features_in_"):
        assert getattr(model, name) == getattr(plain, name)


def fitted(kind, X, weights=None, **parameters):
    return PLAIN[kind](random_state=0, backend="numpy", **parameters).fit(X, sample_weight=weights)


@pytest.mark.trap(20)
@pytest.mark.parametrize("workers", [1, 2, 4])
@pytest.mark.parametrize("weighted", [False, True])
def test_the_bits_of_memory(workers, weighted, client):
    X, weights = data(np.float32 if weighted else np.float64, weighted)
    there = sorted(client.nthreads())[:workers]
    with dask.annotate(workers=lambda key: [there[key[1] % workers]]):
        lazy = client.persist(da.from_array(X, chunks=(UNEVEN, 3), name=False), optimize_graph=False)
    points = Partitions(client, lazy).points()
    assert len({part.worker for part in points.chunks}) == workers
    before = client.who_has(lazy)
    settings = {"n_clusters": 5, "init": "random", "n_init": 2, "max_iter": 4, "n_neighbors": 2}
    model = QuantizedTabuKMeans(random_state=0, backend="numpy", spread="rows", **settings).fit(
        lazy, sample_weight=weights
    )
    equal(model, fitted(QuantizedTabuKMeans, X, weights, **settings))
    assert model.labels_.chunks == (UNEVEN,)
    for chunk, holders in client.who_has(lazy).items():  # no point has moved; Dask may drop a copy that it made itself
        assert set(holders) <= set(before[chunk])


@pytest.mark.parametrize("settings", [
    {"kind": TabuKMeans, "max_iter": 3, "n_init": 2, "refine": "hartigan"},
    {"kind": KMeans, "tol": 1e-3, "refine": "hartigan"},
    {"kind": KMeans, "init": np.full((5, 3), 1e3)},  # empty clusters
])  # fmt: skip
def test_other_searches(settings, client):
    X, weights = data(weighted=True)
    kind = settings.pop("kind")
    lazy = da.from_array(X, chunks=((200, 200), (1, 2)))  # cut along the features, too
    given = da.from_array(weights, chunks=130)
    model = kind(5, random_state=0, backend="numpy", spread="rows", **settings).fit(lazy, sample_weight=given)
    equal(model, fitted(kind, X, weights, n_clusters=5, **settings))
    assert model.score(lazy, sample_weight=given) == -model.inertia_
    assert model.score(lazy, sample_weight=given, delayed=True).compute() == -model.inertia_


def test_fewer_values_than_clusters(client):
    X, weights = np.repeat([[0.0], [1.0], [2.0]], 4, axis=0), np.arange(12.0)
    settings = {"n_clusters": 5, "init": "random", "n_init": 1}
    with pytest.warns(UserWarning, match=r"distinct clusters \(3\)"):
        model = KMeans(random_state=0, backend="numpy", **settings, spread="rows").fit(
            da.from_array(X, chunks=5), sample_weight=weights
        )
    with pytest.warns(UserWarning, match=r"distinct clusters \(3\)"):
        equal(model, fitted(KMeans, X, weights, **settings))


@pytest.mark.parametrize("restarts", [1, 7])
def test_restarts_are_spread(restarts, client):
    X, weights = data(weighted=True)
    settings = {"n_clusters": 5, "init": "random", "n_init": restarts, "max_iter": 8}
    lazy = da.from_array(X, chunks=(UNEVEN, 3))
    plain = fitted(QuantizedTabuKMeans, X, weights, **settings)
    for spread in ("restarts", "auto"):
        model = QuantizedTabuKMeans(random_state=0, backend="numpy", spread=spread, client=client, **settings)
        equal(model.fit(lazy, sample_weight=weights), plain)


def test_data_frames(client):
    pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    X, weights = data()[0], data(weighted=True)[1]
    frame = pd.DataFrame(X, columns=["a", "b", "c"]).assign(w=weights)
    lazy = dd.from_pandas(frame, npartitions=3)
    lazy = lazy[lazy.a > -1e9]  # nobody knows how many are left
    model = KMeans(4, random_state=0, backend="numpy", spread="rows").fit(lazy[["a", "b", "c"]], sample_weight=lazy.w)
    equal(model, fitted(KMeans, X, weights, n_clusters=4))
    assert model.feature_names_in_.tolist() == ["a", "b", "c"]
    assert sum(model.labels_.chunks[0]) == 400
    np.testing.assert_array_equal(model.predict(lazy[["a", "b", "c"]]).compute(), model.labels_.compute())
    with pytest.raises(ValueError, match="feature names should match"):
        model.predict(lazy[["a", "c", "b"]])
    later = model.score(lazy[["a", "b", "c"]], sample_weight=lazy.w, delayed=True)
    assert later.compute() == -model.inertia_
    with pytest.raises(ValueError, match="sample_weight must have the partitions of X"):
        model.score(lazy[["a", "b", "c"]], sample_weight=weights, delayed=True)
    again = KMeans(4, random_state=0, backend="numpy", spread="rows").fit(lazy[["a", "b", "c"]], sample_weight=weights)
    assert again.inertia_ == model.inertia_


def test_what_a_fitted_model_can_do(client):
    X = data(np.float32)[0]
    lazy = da.from_array(X, chunks=(UNEVEN, 3))
    model = KMeans(4, random_state=0, backend="numpy")
    with pytest.raises(NotFittedError):
        model.predict(lazy)
    labels = model.fit_predict(lazy, delayed=False)
    plain = fitted(KMeans, X, n_clusters=4)
    assert len(distributed.futures_of(labels)) == len(UNEVEN)  # computed, and still on the workers
    np.testing.assert_array_equal(labels.compute(), plain.labels_)
    distances = model.transform(lazy)
    assert distances.chunks == (UNEVEN, (4,)) and distances.dtype == np.float32
    np.testing.assert_array_equal(distances.compute(), plain.transform(X))
    np.testing.assert_array_equal(model.fit_transform(lazy).compute(), plain.transform(X))
    assert model.score(lazy) == plain.score(X)
    later = model.score(lazy, delayed=True)
    assert isinstance(later, da.Array) and later.shape == () and later.compute() == plain.score(X)
    alone = model.get_combined_model()
    assert type(alone) is gputabu.KMeans and not hasattr(alone, "labels_")
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(alone)).predict(X), plain.labels_)
    with pytest.raises(ValueError, match="X has 2 features, but KMeans is expecting 3"):
        model.predict(lazy[:, :2])
    copy = clone(model.set_params(client=client, n_clusters=3))
    assert copy.client is client and copy.get_params() == model.get_params()


def never():
    raise AssertionError("X was computed")


@pytest.mark.parametrize(("settings", "message"), [
    ({"n_clusters": 0}, "The 'n_clusters' parameter of QuantizedTabuKMeans must be an int in the range"),
    ({"n_clusters": 20}, "n_samples=10 should be >= n_clusters=20"),
    ({"max_iter": 0}, "The 'max_iter' parameter of QuantizedTabuKMeans must be an int in the range"),
    ({"refine": "no"}, "refine='no' must be one of"),
    ({"init": "no"}, "The 'init' parameter of QuantizedTabuKMeans must be a str among"),
    ({"init": print}, "init is a function, which would need all of X"),
    ({"init": [[0.0]]}, r"init has shape \(1, 1\)"),
    ({"spread": "no"}, "spread='no' must be one of"),
    ({"backend": "no"}, "backend='no' must be one of"),
    ({"device": 0}, "device=0 cannot go with Dask"),
    ({"client": 3}, "client=3 must be a distributed.Client"),
])  # fmt: skip
def test_parameters_are_looked_at_first(settings, message, client):
    X = da.from_delayed(dask.delayed(never)(), (10, 2), float)
    with pytest.raises((TypeError, ValueError), match=message):
        QuantizedTabuKMeans(**{"n_clusters": 2, **settings}).fit(X)


def broken(block, block_info):
    """Ten rows of ones, the second partition of them with something wrong."""
    kinds = {"nan": np.nan, "inf": np.inf}
    where, what = block_info[0]["chunk-location"][0], float(block[0, 0])
    if where != 1:
        return np.ones((5, 2))
    if what < 0:
        return np.ones((5, 3)) if what == -1 else np.ones((5, 2), np.float32)
    return np.full((5, 2), list(kinds.values())[int(what)])


@pytest.mark.parametrize(("what", "message"), [
    (0, "Partition 1 of X contains NaN"),
    (1, "Partition 1 of X contains infinity"),
    (-1, "Partition 1 of X has 3 features, and partition 0 has 2"),
    (-2, "Partition 1 of X is float32 on the host, and partition 0 is float64 on the host"),
])  # fmt: skip
def test_bad_partitions(what, message, client):
    X = da.full((10, 2), float(what), chunks=(5, 2)).map_blocks(broken, meta=np.empty((0, 0)))
    with pytest.raises(ValueError, match=message):
        KMeans(2).fit(X)


@pytest.mark.parametrize(("weights", "message"), [
    (np.zeros(10), "sample_weight is zero everywhere"),
    (np.arange(10.0) - 4, "sample_weight contains -4"),
    (np.ones(9), r"sample_weight has shape \(9,\) and must be \(10,\)"),
    (np.full(10, 1e200), "sample_weight has maximum 1e\\+200"),
])  # fmt: skip
def test_bad_weights(weights, message, client):
    with pytest.raises(ValueError, match=message):
        KMeans(2).fit(da.ones((10, 2), chunks=(5, 2)), sample_weight=weights)


def test_what_is_no_dask_array(client):
    with pytest.raises(TypeError, match="X is of type ndarray and must be a dask array or data frame"):
        KMeans(2).fit(np.ones((4, 2)))
    with pytest.raises(ValueError, match=r"X has shape \(4,\) and must be"):
        KMeans(2).fit(da.ones(4))


def test_messages_do_not_grow_with_the_points(client, monkeypatch):
    """Neither there nor back."""
    sent, exchange, most = [], remote.RemoteShard.exchange, []

    def noted(*given):
        sent.extend([given[-1], exchange(*given)])
        return sent[-1]

    monkeypatch.setattr(remote.RemoteShard, "exchange", noted)
    for n in (400, 4000):
        sent.clear()
        X = da.from_array(blobs(n, 3, 5), chunks=(n // 2, 3))
        QuantizedTabuKMeans(5, n_init=1, max_iter=4, random_state=0, backend="numpy", spread="rows").fit(X)
        most.append(max(map(len, sent)))
    assert most[1] < most[0] * 1.5 < 4000


def test_a_message_that_comes_again_is_not_done_again():
    part = held.WorkerShard(0, [np.arange(4.0)[:, None]], None)
    ask = lambda serial, *message: pickle.loads(part.perform(serial, pickle.dumps((*message, []))))  # noqa: E731
    ask(1, "start", ("numpy", False))
    kept = ask(2, "blank_labels", (1,))
    centers = np.array([[[0.0], [3.0]]])
    first = ask(3, "assign", (centers, kept))
    np.testing.assert_array_equal(ask(3, "assign", (centers, kept)).totals, first.totals)
    assert first.changed == [4] and ask(4, "assign", (centers, kept)).changed == [0]
    np.testing.assert_array_equal(ask(5, "fetch_labels", (kept, 0)), [0, 0, 1, 1])
    with pytest.raises(WorkerLost, match="not here"):
        held.WorkerShard(0, [np.ones((1, 1))], None).perform(5, b"")
    with pytest.raises(pickle.PicklingError, match="stays on its worker"):
        pickle.dumps(part)


#: Workers that are threads of this process, as in a notebook.
THREADS = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}


def test_workers_that_are_threads():
    X, weights = data(weighted=True)
    settings = {"n_clusters": 5, "max_iter": 3}
    with distributed.Client(**THREADS) as local:
        lazy = da.from_array(X, chunks=(UNEVEN, 3))
        for spread in ("rows", "restarts"):
            model = TabuKMeans(random_state=0, backend="numpy", client=local, spread=spread, **settings)
            model.fit(lazy, sample_weight=weights)
            plain = fitted(TabuKMeans, X, weights, **settings)
            equal(model, plain)
            np.testing.assert_array_equal(model.transform(lazy).compute(), plain.transform(X))
            given = da.from_array(weights, chunks=(UNEVEN,))
            for delayed in (False, True):
                score = model.score(lazy, sample_weight=given, delayed=delayed)
                assert (score.compute() if delayed else score) == -plain.inertia_


@pytest.mark.gpu
def test_chunks_of_cupy():
    import cupy

    X = data(np.float32)[0]
    with distributed.Client(**THREADS) as local:
        lazy = da.from_array(X, chunks=((100, 0, 300), 3)).map_blocks(cupy.asarray)
        weights = da.from_array(data(weighted=True)[1], chunks=((100, 0, 300),)).map_blocks(cupy.asarray)
        model = KMeans(4, random_state=0, client=local, spread="rows").fit(lazy, sample_weight=weights)
    plain = fitted(KMeans, X, data(weighted=True)[1], n_clusters=4)
    labels = estimators._labels(cupy.asarray(X[:100]), plain.cluster_centers_.astype(float), "auto")
    assert model.backend_ == "cuda" and isinstance(labels, cupy.ndarray)
    assert model.inertia_ == plain.inertia_
    np.testing.assert_array_equal(model.cluster_centers_, plain.cluster_centers_)
    np.testing.assert_array_equal(labels.get(), plain.labels_[:100])


def within(seconds, work):
    """What `work` returns, or a failure if that takes too long: whatever hangs is left behind."""
    done = Future()

    def run():
        try:
            done.set_result(work())
        except BaseException as error:
            done.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return done.result(timeout=seconds)


def kill(client, worker) -> None:
    process = client.run(os.getpid, workers=[worker])[worker]
    os.kill(process, signal.SIGKILL)


def replenish(client) -> None:
    """Two workers at the least: a nanny that once fails to start one again, on a busy machine, does not try twice."""
    try:
        client.wait_for_workers(2, timeout=30)
    except TimeoutError:
        client.cluster.scale(len(client.cluster.worker_spec) + 2)
        client.wait_for_workers(2, timeout=HANGS)


@pytest.mark.trap(20)
@pytest.mark.filterwarnings("always:A worker was lost:RuntimeWarning")
def test_a_worker_is_killed(client, recwarn):
    """At any moment of a fit, by rows or by restarts: the result is the same."""
    X, weights = data(weighted=True)
    settings = {"n_clusters": 4, "init": [0, 100, 200, 300], "max_iter": 5, "backend": "numpy", "random_state": 0}
    plain = gputabu.QuantizedTabuKMeans(**settings).fit(X, sample_weight=weights)
    chance, took = random.Random(0), 0.0
    for trial in range(-2, tally.trials(20)):
        replenish(client)
        lazy = da.from_array(X, chunks=(UNEVEN, 3))
        model = QuantizedTabuKMeans(spread="rows" if trial % 5 else "restarts", client=client, **settings)
        victim = chance.choice(sorted(client.run(os.getpid, on_error="ignore").values()))
        strike = threading.Timer(chance.uniform(0, took), os.kill, (victim, signal.SIGKILL))
        begun = time.perf_counter()
        if trial >= 0:  # the first two are left alone, and tell how long a fit takes
            strike.start()
        within(HANGS, lambda: model.fit(lazy, sample_weight=weights))  # noqa: B023
        took = took if trial >= 0 else time.perf_counter() - begun
        equal(model, plain)
        if trial >= 0:
            strike.join()
            tally.tried("Dask worker killed in mid-fit")
    assert any("begins again" in str(warning.message) for warning in recwarn)  # some were hit on the way


def test_a_checkpoint_goes_on_elsewhere(client, tmp_path, monkeypatch):
    """From memory to workers and back; what was lost with a worker is not done again."""
    X, weights = data(weighted=True)
    lazy, path = da.from_array(X, chunks=(UNEVEN, 3)), tmp_path / "fit.ckpt"
    settings = {"n_clusters": 4, "init": "random", "n_init": 2, "max_iter": 9, "patience": 9, "random_state": 0}
    settings |= {"backend": "numpy"}
    plain = gputabu.QuantizedTabuKMeans(**settings).fit(X, sample_weight=weights)
    settings["checkpoint"] = path
    stopped = gputabu.QuantizedTabuKMeans(**settings, callback=lambda told: told.iteration == 3).fit(
        X, sample_weight=weights
    )
    assert stopped.stop_ is gputabu.Stop.CALLBACK
    seen = []

    def lose(told):
        seen.append(told.iteration)
        if seen == [4, 5]:
            raise WorkerLost("tried")

    model = QuantizedTabuKMeans(**settings, callback=lambda told: lose(told) or told.iteration == 7, client=client)
    with pytest.warns(RuntimeWarning, match=r"A worker was lost \(tried\): the work begins again"):
        assert model.fit(lazy, sample_weight=weights).stop_ is gputabu.Stop.CALLBACK
    assert seen == [4, 5, 6, 7]
    kept = path.read_bytes()
    equal(QuantizedTabuKMeans(**settings, client=client).fit(lazy, sample_weight=weights), plain)
    equal(QuantizedTabuKMeans(**settings, client=client).fit(lazy, sample_weight=weights), plain)  # as it was kept
    path.write_bytes(kept)
    again = gputabu.QuantizedTabuKMeans(**settings).fit(X, sample_weight=weights)
    np.testing.assert_array_equal(again.labels_, plain.labels_)
    assert again.inertia_ == plain.inertia_
    with pytest.raises(ValueError, match="progress and checkpoint cannot go with spread='restarts'"):
        QuantizedTabuKMeans(**settings, client=client, spread="restarts").fit(lazy)
    with pytest.raises(ValueError, match="is of a fit with other values of X"):
        QuantizedTabuKMeans(**settings, client=client).fit(lazy[::-1], sample_weight=weights[::-1])


PROGRAM = """
import sys, numpy as np, dask.array as da
from distributed import Client
from gputabu.algorithms import checkpoint
from gputabu.dask import QuantizedTabuKMeans
checkpoint.EVERY = 0.0
address, data, path = sys.argv[1:]
with Client(address) as client:
    X = da.from_array(np.load(data), chunks=(100, 3))
    print("begun", flush=True)
    model = QuantizedTabuKMeans(4, n_init=2, max_iter=30, random_state=0, backend="numpy", checkpoint=path).fit(X)
    np.savez(path + ".npz", labels=model.labels_.compute(), centers=model.cluster_centers_, inertias=model.inertias_,
             current=model.trace_.current, means=model.trace_.means)
"""


def test_a_killed_client_goes_on(client, tmp_path):
    X, chance = data()[0], random.Random(1)
    np.save(tmp_path / "X.npy", X)
    replenish(client)
    plain = gputabu.QuantizedTabuKMeans(4, init="random", n_init=2, max_iter=30, random_state=0, backend="numpy").fit(X)
    for trial in range(tally.trials(1)):
        path = tmp_path / f"{trial}"
        for attempt in range(2):
            given = [client.scheduler.address, tmp_path / "X.npy", path]
            process = subprocess.Popen([sys.executable, "-c", PROGRAM, *given], stdout=subprocess.PIPE)
            process.stdout.readline()
            if attempt == 0:
                time.sleep(chance.uniform(0.2, 1.5))
                process.kill()
            process.communicate(timeout=HANGS)
        with np.load(f"{path}.npz") as found:
            np.testing.assert_array_equal(found["labels"], plain.labels_)
            np.testing.assert_array_equal(found["centers"], plain.cluster_centers_)
            np.testing.assert_array_equal(found["current"], plain.trace_.current)
            np.testing.assert_array_equal(found["means"], plain.trace_.means)
            np.testing.assert_array_equal(found["inertias"], plain.inertias_)
        tally.tried("Fit killed and continued from its checkpoint")


def test_results_that_take_longer_than_a_look(client, monkeypatch):
    """Dask's client can fetch nothing more once it was told to give up fetching."""
    monkeypatch.setattr(cluster, "POLL", 1e-4)
    replenish(client)
    there, tasks = cluster.Cluster(client), client.map(np.full, [300_000] * 20, range(20))
    distributed.wait(tasks)
    for number, task in enumerate(tasks):
        assert (remote.awaited(there, task) == number).all()


def test_no_worker_by_the_clock(monkeypatch):
    """The time that is waited for a worker is counted as it passes, however seldom is looked."""
    monkeypatch.setattr(cluster, "POLL", 0.05)
    monkeypatch.setattr(cluster, "WORKER_TIMEOUT", 2.0)
    with distributed.Client(processes=False, n_workers=0, dashboard_address=":0") as client:
        task, begun = client.submit(int), time.monotonic()
        with pytest.raises(WorkerLost, match=r"here was no worker .*for 2 seconds"):
            within(HANGS, lambda: remote.awaited(cluster.Cluster(client), task))
        assert 2.0 <= time.monotonic() - begun < 20.0


@pytest.mark.filterwarnings("ignore:A worker was lost:RuntimeWarning")
def test_points_that_are_gone_for_good(client):
    """What was only in the memory of a worker cannot be computed again: one error, and no hang."""
    replenish(client)
    worker = sorted(client.nthreads())[0]
    (block,) = client.scatter([data()[0]], workers=[worker])
    lazy = da.from_delayed(block, (400, 3), float)
    kill(client, worker)
    with pytest.raises(WorkerLost, match="what was only in the memory of a worker is gone with it"):
        within(HANGS, lambda: KMeans(3, backend="numpy", client=client, spread="rows").fit(lazy))
