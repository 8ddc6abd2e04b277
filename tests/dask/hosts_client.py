"""The client of test_hosts.py: one fit, slow enough to be hit on its way. Every line that it prints is JSON."""

from __future__ import annotations

import hashlib
import json
import signal
import sys
import time
import warnings

import numpy as np


def say(**told: object) -> None:
    print(json.dumps(told), flush=True)


def digest(labels: np.ndarray, model: object) -> str:
    arrays = (labels, model.cluster_centers_, model.inertias_, model.trace_.current, model.trace_.means)
    return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()


def points() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(600, 3))


#: The fit: long enough, and without an early end.
SETTINGS = {"n_clusters": 4, "init": [0, 100, 200, 300], "max_iter": 40, "patience": 41, "backend": "numpy"}


def actors(dask_scheduler: object) -> int:
    return sum(task.actor is not None and bool(task.actor) for task in dask_scheduler.tasks.values())


def pause(dask_worker: object) -> None:
    """As where its memory is full: the worker's own watch of its memory sees to it from now on."""
    dask_worker.memory_manager.memory_pause_fraction = 1e-6


def main() -> None:
    address, pace, paused, checkpoint = sys.argv[1:]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    import dask.array as da
    from distributed import Client

    from gputabu.dask import QuantizedTabuKMeans, cluster

    cluster.POLL, cluster.SILENCE, cluster.PAUSE_TIMEOUT = 0.2, 2.0, 2.0
    warnings.simplefilter("always")
    warnings.showwarning = lambda message, *_, **__: say(warning=str(message))
    client = Client(address, timeout="60s")
    client.wait_for_workers(3, timeout=60)
    places = sorted(client.nthreads())
    X = da.from_array(points(), chunks=(200, 3))
    if paused == "paused":  # with points that are there already
        blocks = [client.scatter(points()[200 * i : 200 * (i + 1)], workers=[places[i]]) for i in range(3)]
        X = da.concatenate([da.from_delayed(block, (200, 3), float) for block in blocks])
        client.run(pause, workers=[places[0]])
        while client.scheduler_info()["workers"][places[0]]["status"] != "paused":
            time.sleep(0.1)

    def heard(told: object) -> None:
        say(iteration=told.iteration)
        time.sleep(float(pace))

    kept = {"checkpoint": checkpoint} if checkpoint else {}
    try:
        say(begun=True)
        model = QuantizedTabuKMeans(**SETTINGS, **kept, random_state=0, client=client, callback=heard, spread="rows")
        model.fit(X)
        say(digest=digest(model.labels_.compute(), model))
    except (Exception, KeyboardInterrupt) as error:
        say(error=type(error).__name__, message=str(error))
    left, deadline = None, time.monotonic() + 10
    while client.status == "running" and left != 0 and time.monotonic() < deadline:
        left = client.run_on_scheduler(actors)
        time.sleep(0.1)
    say(left=left)
    sys.stdout.flush()
    import os

    os._exit(0)  # a client that is cut off takes its time to close


if __name__ == "__main__":
    main()
