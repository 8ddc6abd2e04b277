"""The cluster as the client sees it: how its workers are, whether its scheduler answers, when waiting is in vain."""

from __future__ import annotations

import threading
import time
import warnings
import weakref
from typing import Any

from distributed import Client

from gputabu.dask.worker import WorkerLost

#: Seconds between two looks at the workers.
POLL = 1.0
#: Seconds to wait for a worker if there is none that takes work,
WORKER_TIMEOUT = 60.0
#: for one that is to hold points and takes no work, because its memory is full,
PAUSE_TIMEOUT = 10.0
#: and for an answer of the scheduler.
SCHEDULER_TIMEOUT = 60.0
#: Seconds without a sign of a worker after which the user is told who is waited for.
SILENCE = 30.0


class SchedulerLost(WorkerLost):
    """The scheduler is gone or cut off, and with it all that its workers held for this client."""


class Connection:
    """The connection that a client has now. Once it is lost, so is all that the cluster held for the client."""

    def __init__(self, client: Client) -> None:
        self.client, self.comm = client, client.scheduler_comm

    def check(self) -> None:
        """Raise if it is lost, also where the client has another by now."""
        if self.client.status != "running" or self.client.scheduler_comm is not self.comm:
            raise _scheduler_lost(self.client)


def workers(client: Client) -> dict[str, dict[str, Any]]:
    """What the scheduler knows of each worker, by address, and at most `POLL` seconds old."""
    with _lock:
        asked, known = _latest.get(client, (-POLL, None))
        if time.monotonic() - asked >= POLL:
            known = _ask(client)
            _latest[client] = (time.monotonic(), known)
    if known is None:
        raise _scheduler_lost(client)
    return known


def running(client: Client) -> set[str]:
    """Addresses of the workers that take work. Those whose memory is nearly full are paused and take none."""
    return {address for address, worker in workers(client).items() if worker["status"] == "running"}


#: The latest answers of schedulers, None where there was none: shards ask one after the other, and would all wait.
_latest: weakref.WeakKeyDictionary[Client, tuple[float, dict[str, dict[str, Any]] | None]] = weakref.WeakKeyDictionary()
_lock = threading.Lock()


def _ask(client: Client) -> dict[str, dict[str, Any]] | None:
    if client.status not in ("running", "connecting") or client.scheduler is None:
        return None
    try:
        return client.sync(client.scheduler.identity, n_workers=-1, callback_timeout=SCHEDULER_TIMEOUT)["workers"]
    except (OSError, RuntimeError):  # no answer in time, no connection, or a client that is being closed
        return None


def _scheduler_lost(client: Client) -> SchedulerLost:
    address = "" if client.scheduler is None else f" at {client.scheduler.address}"
    return SchedulerLost(
        f"The scheduler{address} cannot be reached any more, and what its workers held for this client is lost: fit "
        "again with a new client; a fit with checkpoint= goes on where it was."
    )


class Watchdog:
    """Called again and again by who waits for a worker, or for any. Raises `WorkerLost` where that is in vain."""

    def __init__(self, client: Client, worker: str | None = None) -> None:
        self.client, self.worker = client, worker
        self.ran = time.monotonic()  # when there was last a worker, or this one, that takes work

    def __call__(self) -> None:
        there, now = workers(self.client), time.monotonic()
        able = {address for address, worker in there.items() if worker["status"] == "running"}
        if self.worker is not None and self.worker not in there:
            raise WorkerLost(f"worker {self.worker} is gone")
        if able if self.worker is None else self.worker in able:
            self.ran = now
        elif self.worker is not None and now - self.ran >= PAUSE_TIMEOUT:
            status = there[self.worker]["status"]
            raise WorkerLost(
                f"worker {self.worker} has been {status} for {PAUSE_TIMEOUT:g} seconds: its memory is full"
            )
        elif now - self.ran >= WORKER_TIMEOUT:
            raise WorkerLost(f"there was no worker that takes work for {WORKER_TIMEOUT:g} seconds")


class Listener:
    """Called again and again by who waits for the answer of a worker, which may well be at work all the time."""

    def __init__(self, client: Client, worker: str) -> None:
        self.client, self.worker = client, worker
        self.sign, self.heard, self.told = None, time.monotonic(), False

    def __call__(self) -> None:
        worker, now = workers(self.client).get(self.worker), time.monotonic()
        if worker is None:
            raise WorkerLost(f"worker {self.worker} is gone")
        if worker["last_seen"] != self.sign:  # by the scheduler's clock, so that only a change tells
            self.sign, self.heard = worker["last_seen"], now
        elif now - self.heard >= SILENCE and not self.told:
            self.told = True
            warnings.warn(
                f"Worker {self.worker} has given no sign for {SILENCE:g} seconds: it is frozen, or cut off. The work "
                "begins again on the others when Dask gives it up, which is set by distributed.scheduler.worker-ttl; "
                "Ctrl-C twice ends it at once.",
                RuntimeWarning,
                stacklevel=2,
            )
