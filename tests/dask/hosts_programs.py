"""What runs on the hosts of test_hosts.py: a scheduler, workers, a fit, and one who looks what is left behind."""

from __future__ import annotations

import asyncio
import hashlib
import signal
import time
import warnings
from multiprocessing.connection import Connection
from typing import Any

import numpy as np

#: Of the scheduler.
PORT = 8786
#: The fit: long enough to be hit on its way, and without an early end.
SETTINGS = {"n_clusters": 4, "init": [0, 100, 200, 300], "max_iter": 40, "patience": 41, "backend": "numpy"}
#: Seconds from one iteration to the next.
PACE = 0.05
#: Patience of gputabu in these tests, in seconds.
TIMES = {"POLL": 0.2, "SILENCE": 2.0, "PAUSE_TIMEOUT": 2.0, "WORKER_TIMEOUT": 4.0}


def points() -> np.ndarray:
    return np.random.default_rng(0).normal(size=(600, 3))


def digest(labels: np.ndarray, model: Any) -> str:
    arrays = (labels, model.cluster_centers_, model.inertias_, model.trace_.current, model.trace_.means)
    return hashlib.sha256(b"".join(np.ascontiguousarray(array).tobytes() for array in arrays)).hexdigest()


def schedule(host: str) -> None:
    from distributed import Scheduler

    async def serve() -> None:
        async with Scheduler(host=host, port=PORT, dashboard=False) as scheduler:
            await scheduler.finished()

    asyncio.run(serve())


def work(scheduler: str, name: str, host: str, folder: str) -> None:
    from distributed import Worker

    options = {"nthreads": 1, "memory_limit": "2GB", "dashboard": False, "local_directory": folder}

    async def serve() -> None:
        async with Worker(scheduler, name=name, host=host, **options) as worker:
            await worker.finished()

    asyncio.run(serve())


def pause(dask_worker: Any) -> None:
    """As where its memory is full: the worker's own watch of its memory sees to it from now on."""
    dask_worker.memory_manager.memory_pause_fraction = 1e-6


def fit(tell: Connection, scheduler: str, paused: int, times: dict[str, float], parameters: dict[str, Any]) -> None:
    """One fit, which tells what happens as dicts; so many of its workers are paused, and hold points already."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    import dask
    import dask.array as da
    from distributed import Client, wait

    from gputabu.dask import QuantizedTabuKMeans, cluster

    for name, seconds in (TIMES | times).items():
        setattr(cluster, name, seconds)
    warnings.simplefilter("always")
    warnings.showwarning = lambda message, *_, **__: tell.send({"warning": str(message)})
    client = Client(scheduler)
    client.wait_for_workers(3)
    places = sorted(client.nthreads())
    X, own = da.from_array(points(), chunks=(200, 3)), []
    if paused:
        with dask.annotate(workers=lambda key: [places[key[1] % 3]]):
            X = client.persist(X, optimize_graph=False)
        wait(X)
        own = [str(future.key) for future in client.futures_of(X)]
        client.run(pause, workers=places[:paused])
        while [client.scheduler_info()["workers"][place]["status"] for place in places].count("paused") < paused:
            time.sleep(0.1)

    def heard(told: Any) -> None:
        tell.send({"iteration": told.iteration, "phase": told.phase})
        time.sleep(PACE)

    try:
        tell.send({"begun": True, "own": own})
        settings = SETTINGS | {"spread": "rows", "callback": heard, "random_state": 0} | parameters
        model = QuantizedTabuKMeans(**settings, client=client).fit(X)
        bits = digest(model.labels_.compute(), model)
        tell.send({"ended": bits, "stop": model.stop_.name, "n_iter": model.n_iter_})
    except (Exception, KeyboardInterrupt) as error:
        tell.send({"ended": type(error).__name__, "message": str(error)})
    signal.pause()  # still connected: nothing of the fit is to be left all the same


def _tasks(dask_scheduler: Any) -> list[str]:
    return [str(key) for key in dask_scheduler.tasks]


def look(tell: Connection, scheduler: str, own: list[str], seconds: float) -> None:
    """Tell what is left on the cluster besides `own`, once that is nothing or after so many seconds; and who works."""
    from distributed import Client

    client, deadline = Client(scheduler), time.monotonic() + seconds
    while (left := set(client.run_on_scheduler(_tasks)).difference(own)) and time.monotonic() < deadline:
        time.sleep(0.1)
    tell.send({"left": sorted(left), "workers": len(client.nthreads())})
    signal.pause()
