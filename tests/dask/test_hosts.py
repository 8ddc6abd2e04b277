"""Hosts that fail while a fit runs on them: the right bits or one clear sentence, in time, and nothing left behind.

What each test tries runs at the same time, on clusters of their own: they mostly wait. Times are those of
docs/scaling.md, with the shorter patience of `hosts.PATIENCE` and `hosts_programs.TIMES`.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache

import pytest

pytest.importorskip("distributed")

import hosts_programs
import tally
from hosts import Hosts, impossible

import gputabu

reason = impossible()
pytestmark = pytest.mark.skipif(bool(reason), reason=reason or "there are hosts")
#: Seconds for what is done at once, on a machine that is busy with other work,
SOON = 30.0
#: and for what waits for Dask's patience with a connection, which is 12 s here.
PATIENCE = 12.0 + SOON
#: Dask gives up a frozen worker after at most twice its worker-ttl. With 5 s, a machine that is busy with other tests
#: lost workers that were not frozen.
TTL = {"distributed.scheduler.worker-ttl": "10s"}
FROZEN = 2 * 10.0 + SOON
#: Seconds after which something hangs.
HANGS = 90.0
LOST = "cannot be reached any more, and what its workers held for this client is lost"


class Fit:
    """A fit on a client's host, and what it tells."""

    def __init__(
        self, hosts: Hosts, paused: int = 0, client: str = "client", times: dict | None = None, **parameters: object
    ) -> None:
        self.hosts, self.client = hosts, client
        self.told, telling = multiprocessing.Pipe(duplex=False)
        self.process = hosts.run(client, hosts_programs.fit, telling, hosts.scheduler, paused, times or {}, parameters)
        telling.close()
        self.own: list[str] = []  # what the caller had on the cluster before
        self.warnings: list[str] = []
        self.iterations: list[int] = []  # of the search, without those of the refinement
        self.since = time.monotonic()

    def until(self, name: str, value: object = None, within: float = HANGS) -> dict:
        """What it tells next under this name, if need be of this value; what comes before is noted."""
        deadline = time.monotonic() + within
        while self.told.poll(max(0.0, deadline - time.monotonic())):
            try:
                told = self.told.recv()
            except EOFError:
                break
            self.own = told.get("own", self.own)
            if "warning" in told:
                self.warnings.append(told["warning"])
            if told.get("phase") == "search":
                self.iterations.append(told["iteration"])
            if name in told and value in (None, told[name]):
                return told
            if "ended" in told:
                raise AssertionError(f"it ended before it told of {name} {value}: {told}; warnings: {self.warnings}")
        if self.process.is_alive():
            os.kill(self.process.pid, signal.SIGUSR1)
            time.sleep(1.0)
        log = self.hosts.log(self.client).read_text()[-9000:]
        raise AssertionError(f"nothing is told of {name} {value}; warnings: {self.warnings}; log: {log}")

    def reached(self, iteration: int) -> Fit:
        self.until("iteration", iteration)
        return self

    def now(self) -> None:
        """Something happens to it: what follows is timed from here."""
        self.since = time.monotonic()

    def interrupt(self, times: int = 1) -> None:
        """Press Ctrl-C, with half a second in between."""
        for i in range(times):
            if i:
                time.sleep(0.5)
            self.now()
            os.kill(self.process.pid, signal.SIGINT)

    def ended(self, within: float) -> dict:
        """How it ended, in time, with nothing left on the cluster if there is one."""
        told = self.until("ended", within=within + HANGS)
        took = time.monotonic() - self.since
        assert took < within, (took, told)
        if self.hosts.processes["scheduler"][0].is_alive():
            assert left(self.hosts, self.own)["left"] == [], told
        return told

    def has_the_bits(self, within: float) -> None:
        assert self.ended(within) == {"ended": expected(), "stop": "MAX_ITER", "n_iter": 40}

    def has_the_best_so_far(self, within: float) -> None:
        check_best_so_far(self.ended(within))

    def is_interrupted(self, within: float) -> None:
        assert self.ended(within)["ended"] == "KeyboardInterrupt"

    def says(self, error: str, sentence: str, within: float) -> None:
        told = self.ended(within)
        assert told["ended"] == error, told
        assert sentence in told["message"]


def left(hosts: Hosts, own: Sequence[str] = ()) -> dict:
    """What is on the cluster, besides the caller's own, as the scheduler's host sees it."""
    told, telling = multiprocessing.Pipe(duplex=False)
    hosts.run("scheduler", hosts_programs.look, telling, hosts.scheduler, own, PATIENCE)
    telling.close()
    assert told.poll(HANGS)
    return told.recv()


def check_best_so_far(told: dict) -> None:
    assert told["stop"] == "INTERRUPTED", told
    assert told["ended"] == expected(told["n_iter"])


@cache
def expected(n_iter: int = 40) -> str:
    """The bits of the fit in memory, ended after so many iterations."""
    callback = None if n_iter == 40 else lambda told: told.phase == "search" and told.iteration == n_iter
    model = gputabu.QuantizedTabuKMeans(**hosts_programs.SETTINGS, random_state=0, callback=callback)
    model.fit(hosts_programs.points())
    return hosts_programs.digest(model.labels_, model)


@pytest.fixture
def at_once(tmp_path):
    """Tries things at the same time: functions of hosts, which each of them has for itself, and of a folder."""

    def run(what, *trials, settings=None):
        def one(number, trial):
            folder = tmp_path / f"{number}"
            with Hosts(folder, settings) as hosts:
                trial(hosts, folder)

        expected()
        with ThreadPoolExecutor(5) as pool:
            running = [pool.submit(one, i, trial) for i, trial in enumerate(trials * tally.EFFORT)]
        errors = []
        for trial, future in zip(trials * tally.EFFORT, running, strict=True):
            if error := future.exception():
                error.add_note(f"while trying: {trial.__name__}")
                errors.append(error)
        if errors:
            raise BaseExceptionGroup(what, errors)
        tally.tried(what, len(running))

    return run


def test_a_short_cut(at_once):
    """A worker's link is cut for 5 s, which is less than Dask's patience: the fit goes on."""

    def left_alone(hosts, _):
        fit = Fit(hosts).reached(5)
        hosts.cut_for("worker1", 5.0)
        fit.now()
        fit.has_the_bits(SOON)
        assert fit.iterations == list(range(1, 41))

    def ctrl_c(hosts, _):
        fit = Fit(hosts).reached(5)
        hosts.cut("worker1")
        fit.interrupt()
        time.sleep(5.0)
        hosts.cut("worker1", whole=True)
        fit.now()
        fit.has_the_best_so_far(SOON)

    def ctrl_c_twice(hosts, _):
        fit = Fit(hosts).reached(5)
        hosts.cut("worker1")
        fit.interrupt(2)
        fit.is_interrupted(SOON)

    at_once("a worker's link cut for 5 s", left_alone, ctrl_c, ctrl_c_twice)


def test_a_cut_for_ever(at_once):
    """The search says that it begins again; with a checkpoint no iteration is made twice."""

    def left_alone(hosts, _):
        fit = Fit(hosts).reached(5)
        hosts.cut("worker1")
        fit.now()
        fit.has_the_bits(PATIENCE)
        assert any("A worker was lost" in warning for warning in fit.warnings)

    def checkpoint(hosts, folder):
        fit = Fit(hosts, checkpoint=folder / "fit.ckpt").reached(5)
        hosts.cut("worker1")
        fit.now()
        fit.has_the_bits(PATIENCE)
        assert any("goes on from its checkpoint" in warning for warning in fit.warnings)
        assert fit.iterations == list(range(1, 41))

    def ctrl_c(hosts, _):
        """The best found so far is lost with the worker."""
        fit = Fit(hosts).reached(5)
        hosts.cut("worker1")
        fit.interrupt()
        fit.is_interrupted(PATIENCE)

    def ctrl_c_and_checkpoint(hosts, folder):
        fit = Fit(hosts, checkpoint=folder / "fit.ckpt").reached(5)
        hosts.cut("worker1")
        fit.interrupt()
        fit.has_the_best_so_far(PATIENCE)
        assert fit.iterations == list(range(1, len(fit.iterations) + 1))
        assert len(fit.iterations) < 40

    def ctrl_c_twice(hosts, _):
        fit = Fit(hosts).reached(5)
        hosts.cut("worker1")
        fit.interrupt(2)
        fit.is_interrupted(SOON)

    at_once("a worker's link cut for ever", left_alone, checkpoint, ctrl_c, ctrl_c_and_checkpoint, ctrl_c_twice)


def test_a_frozen_worker(at_once):
    """Told after a while, and given up when Dask does so."""

    def left_alone(hosts, _):
        fit = Fit(hosts).reached(5)
        hosts.freeze("worker1")
        fit.now()
        told = fit.until("warning")["warning"]
        assert "has given no sign for 2 seconds: it is frozen, or cut off" in told
        assert "distributed.scheduler.worker-ttl" in told
        assert time.monotonic() - fit.since < 2.0 + SOON
        fit.has_the_bits(FROZEN)

    def ctrl_c(hosts, _):
        fit = Fit(hosts).reached(5)
        hosts.freeze("worker1")
        fit.interrupt()
        fit.is_interrupted(FROZEN)

    def ctrl_c_and_checkpoint(hosts, folder):
        fit = Fit(hosts, checkpoint=folder / "fit.ckpt").reached(5)
        hosts.freeze("worker1")
        fit.interrupt()
        fit.has_the_best_so_far(FROZEN)

    at_once("a frozen worker", left_alone, ctrl_c, ctrl_c_and_checkpoint, settings=TTL)


def test_ctrl_c_twice_with_a_frozen_worker(at_once):
    """Also where Dask waits for minutes."""

    def ctrl_c_twice(hosts, _):
        fit = Fit(hosts).reached(5)
        hosts.freeze("worker1")
        fit.interrupt(2)
        fit.is_interrupted(SOON)

    at_once("a frozen worker", ctrl_c_twice)


def test_a_paused_worker(at_once):
    """Those that take work get its points; without any, one sentence."""

    def one_of_three(hosts, _):
        Fit(hosts, paused=1).has_the_bits(HANGS)

    def all_of_them(hosts, _):
        fit = Fit(hosts, paused=3)
        fit.until("begun")
        fit.now()
        fit.says("NoWorkers", "There was no worker that takes work for 4 seconds", 4.0 + SOON)

    def ctrl_c(hosts, _):
        fit = Fit(hosts, paused=3)
        fit.until("begun")
        time.sleep(1.0)
        fit.interrupt()
        fit.is_interrupted(SOON)

    at_once("paused workers", one_of_three, all_of_them, ctrl_c)


def test_no_worker_is_left(at_once):
    """It is waited for one by the clock, and once."""

    def killed(hosts, _):
        fit = Fit(hosts).reached(5)
        for worker in hosts.workers:
            hosts.kill(worker)
        fit.now()
        fit.says("NoWorkers", "There was no worker that takes work for 4 seconds", 4.0 + SOON)

    def ctrl_c(hosts, _):
        fit = Fit(hosts).reached(5)
        for worker in hosts.workers:
            hosts.kill(worker)
        fit.until("warning")
        fit.interrupt()
        fit.is_interrupted(SOON)

    at_once("all workers killed", killed, ctrl_c)


def test_a_killed_scheduler(at_once):
    """Noticed at once. A Ctrl-C before that does not hide it."""

    def left_alone(hosts, _):
        fit = Fit(hosts).reached(5)
        hosts.kill("scheduler")
        fit.now()
        fit.says("SchedulerLost", LOST, SOON)

    def ctrl_c(hosts, _):
        fit = Fit(hosts).reached(5)
        hosts.freeze("scheduler")
        fit.interrupt()
        time.sleep(0.5)
        hosts.kill("scheduler")
        fit.says("SchedulerLost", LOST, SOON)

    def ctrl_c_twice(hosts, _):
        fit = Fit(hosts).reached(5)
        hosts.freeze("scheduler")
        fit.interrupt(2)
        hosts.kill("scheduler")
        fit.is_interrupted(SOON)

    def frozen(hosts, _):
        fit = Fit(hosts, times={"SCHEDULER_TIMEOUT": 4.0}).reached(5)
        hosts.freeze("scheduler")
        fit.now()
        told = fit.until("ended", within=4.0 + SOON)
        assert told["ended"] == "SchedulerLost", told
        hosts.thaw("scheduler")
        assert left(hosts)["left"] == []

    at_once("the scheduler killed or frozen", left_alone, ctrl_c, ctrl_c_twice, frozen)


def test_a_client_cut_off(at_once):
    """Noticed after Dask's patience; the cluster drops what it held for the client."""

    def left_alone(hosts, _):
        fit = Fit(hosts).reached(5)
        hosts.cut("client")
        fit.now()
        fit.says("SchedulerLost", LOST, PATIENCE)

    def ctrl_c(hosts, _):
        fit = Fit(hosts).reached(5)
        hosts.cut("client")
        fit.interrupt()
        fit.says("SchedulerLost", LOST, PATIENCE)

    def ctrl_c_twice(hosts, _):
        fit = Fit(hosts).reached(5)
        hosts.cut("client")
        fit.interrupt(2)
        fit.is_interrupted(SOON)

    at_once("the client's link cut for ever", left_alone, ctrl_c, ctrl_c_twice)


# -- in `make trust` only ----------------------------------------------------------------------------------

long = pytest.mark.skipif(tally.EFFORT == 1, reason="takes minutes: part of make trust")
#: Dask's own patience with a connection.
USUAL = {f"distributed.comm.timeouts.{name}": "30s" for name in ("connect", "tcp")}


@long
def test_long_cuts(at_once):
    """A minute, with the patience that Dask has by itself. A worker that was given up does not come back."""

    def of_a_worker(hosts, _):
        fit = Fit(hosts).reached(5)
        fit.now()
        hosts.cut_for("worker1", 60.0)
        fit.has_the_bits(60.0 + SOON)
        assert left(hosts)["workers"] == 2

    def of_the_client(hosts, _):
        fit = Fit(hosts).reached(5)
        fit.now()
        hosts.cut("client")
        fit.says("SchedulerLost", LOST, 30.0 + SOON)
        time.sleep(max(0.0, fit.since + 60.0 - time.monotonic()))
        hosts.cut("client", whole=True)
        Fit(hosts).has_the_bits(HANGS)
        assert left(hosts)["workers"] == 3

    at_once("links cut for 60 s", of_a_worker, of_the_client, settings=USUAL)


@long
def test_two_clients(at_once):
    """Both lose the same worker, or one its link; each fit has its bits, and drops only what is its own."""

    def a_worker_cut(hosts, _):
        fits = [Fit(hosts, client=client) for client in ("client", "another")]
        for fit in fits:
            fit.reached(5)
        hosts.cut("worker1")
        for fit in fits:
            assert fit.until("ended")["ended"] == expected()
        assert left(hosts)["left"] == []

    def a_client_cut(hosts, _):
        one, other = Fit(hosts).reached(5), Fit(hosts, client="another")
        hosts.cut("client")
        assert other.until("ended")["ended"] == expected()
        one.now()
        one.says("SchedulerLost", LOST, PATIENCE)

    at_once("two clients at once", a_worker_cut, a_client_cut)


@long
def test_ctrl_c_at_any_moment(at_once):
    """Before or after a worker fails, with a checkpoint or without: the bits, the best so far, or as Ctrl-C ends it."""
    chance = random.Random()

    def any_moment(hosts, folder):
        fail = chance.choice([hosts.cut, hosts.freeze, hosts.kill])
        fit = Fit(hosts, **({"checkpoint": folder / "fit.ckpt"} if chance.random() < 0.5 else {}))
        fit.until("begun")
        moments = [(chance.uniform(0.0, 1.5), lambda: fail("worker1")), (chance.uniform(0.0, 1.5), fit.interrupt)]
        begun = time.monotonic()
        for moment, act in sorted(moments, key=lambda pair: pair[0]):
            time.sleep(max(0.0, begun + moment - time.monotonic()))
            act()
        told = fit.ended(PATIENCE)
        if told["ended"] not in ("KeyboardInterrupt", expected()):
            check_best_so_far(told)

    at_once("a worker fails and Ctrl-C, at random moments", *[any_moment] * 10, settings=TTL)
