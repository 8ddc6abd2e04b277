"""The cluster as the client sees it: how its workers are, whether its scheduler answers, when waiting is in vain."""

from __future__ import annotations

import asyncio
import threading
import time
import warnings
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
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

#: What the scheduler says of each worker, by address.
Workers = dict[str, dict[str, Any]]


class SchedulerLost(WorkerLost):
    """The scheduler is gone or cut off, and with it all that its workers held for this client."""


class NoWorkers(WorkerLost):
    """There is no worker that takes work."""


class Cluster:
    """A cluster, over the connection that its client has now.

    Once that is lost, so is all that the cluster held for the client, also where the client has another by now.
    """

    def __init__(self, client: Client) -> None:
        self.client, self._comm = client, client.scheduler_comm
        self._lock = threading.Lock()
        self._asked = 0.0
        self._answer: Future[dict[str, Any]] | None = None  # to the latest question

    def check(self) -> None:
        """Raise `SchedulerLost` if the connection is lost."""
        if self.client.status != "running" or self.client.scheduler_comm is not self._comm:
            raise self._lost()

    def ask(self, question: Callable[..., Any], **about: Any) -> Any:
        """The scheduler's answer; `question` is a method of the client's `scheduler`."""
        self.check()
        try:
            return self.client.sync(question, **about, callback_timeout=SCHEDULER_TIMEOUT)
        except (OSError, RuntimeError):  # no answer in time, no connection, or a client that is being closed
            raise self._lost() from None

    def running(self) -> set[str]:
        """Addresses of the workers that take work. Those whose memory is nearly full are paused and take none."""
        return able(self.ask(self.client.scheduler.identity, n_workers=-1)["workers"])

    def begin(self, question: Coroutine[Any, Any, Any]) -> Future[Any]:
        """Let the client's loop do it, without waiting."""
        return asyncio.run_coroutine_threadsafe(question, self.client.loop.asyncio_loop)  # type: ignore[union-attr]

    def look(self) -> Workers | None:
        """The workers as they were at most `POLL` seconds ago; None while the scheduler has not answered.

        It never waits for longer than that, and one question serves all who look at the same time.
        """
        self.check()
        with self._lock:
            if self._answer is None or (self._answer.done() and time.monotonic() - self._asked >= POLL):
                self._asked = time.monotonic()
                self._answer = self.begin(self.client.scheduler.identity(n_workers=-1))
            asked, answer = self._asked, self._answer
        try:
            return answer.result(POLL)["workers"]
        except TimeoutError:
            if time.monotonic() - asked < SCHEDULER_TIMEOUT:
                return None
        except (OSError, RuntimeError, CancelledError):
            pass
        raise self._lost()

    def confirm(self, given_up: Callable[[], bool] = lambda: False) -> None:
        """Raise `SchedulerLost` if that is why something is lost; wait for its answer, unless nobody waits any more."""
        while not given_up() and self.look() is None:
            pass  # `look` has waited

    def _lost(self) -> SchedulerLost:
        address = "" if self.client.scheduler is None else f" at {self.client.scheduler.address}"
        return SchedulerLost(
            f"The scheduler{address} cannot be reached any more, and what its workers held for this client is lost: "
            "fit again with a new client; a fit with checkpoint= goes on where it was."
        )


def able(workers: Workers) -> set[str]:
    """Those that take work."""
    return {address for address, worker in workers.items() if worker["status"] == "running"}


class Watchdog:
    """Called again and again by who waits for a worker, or for any. Raises `WorkerLost` where that is in vain."""

    def __init__(self, cluster: Cluster, worker: str | None = None) -> None:
        self.cluster, self.worker = cluster, worker
        self.ran = time.monotonic()  # when there was last a worker, or this one, that takes work

    def __call__(self) -> None:
        there, now = self.cluster.look(), time.monotonic()
        if there is None:
            return
        if self.worker is not None and self.worker not in there:
            raise WorkerLost(f"worker {self.worker} is gone")
        if able(there) if self.worker is None else self.worker in able(there):
            self.ran = now
        elif self.worker is not None:
            if now - self.ran >= PAUSE_TIMEOUT:
                status = there[self.worker]["status"]
                raise WorkerLost(
                    f"worker {self.worker} has been {status} for {PAUSE_TIMEOUT:g} seconds: its memory is full"
                )
        elif now - self.ran >= WORKER_TIMEOUT:
            raise NoWorkers(
                f"There was no worker that takes work for {WORKER_TIMEOUT:g} seconds: they are gone, or their "
                "memory is full."
            )


class Listener:
    """Called again and again by who waits for the answer of a worker, which may well be at work all the time."""

    def __init__(self, cluster: Cluster, worker: str) -> None:
        self.cluster, self.worker = cluster, worker
        self.sign, self.heard, self.told = None, time.monotonic(), False

    def __call__(self) -> None:
        there, now = self.cluster.look(), time.monotonic()
        if there is None:
            return
        if self.worker not in there:
            raise WorkerLost(f"worker {self.worker} is gone")
        sign = there[self.worker]["last_seen"]
        if sign != self.sign:  # by the scheduler's clock, so that only a change tells
            self.sign, self.heard = sign, now
        elif now - self.heard >= SILENCE and not self.told:
            self.told = True
            warnings.warn(
                f"Worker {self.worker} has given no sign for {SILENCE:g} seconds: it is frozen, or cut off. The work "
                "begins again on the others when Dask gives it up, which is set by distributed.scheduler.worker-ttl; "
                "Ctrl-C twice ends it at once.",
                RuntimeWarning,
                stacklevel=2,
            )
