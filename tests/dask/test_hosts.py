"""Hosts that fail while a fit runs on them: the right bits or one clear sentence, in time, and nothing left behind."""

from __future__ import annotations

import json
import queue
import signal
import subprocess
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("distributed")

import hosts_client
from hosts import Hosts, possible

import gputabu

reason = possible()
pytestmark = pytest.mark.skipif(bool(reason), reason=reason or "there are hosts")
#: Seconds to wait for anything at all, on a machine that is busy with other work.
HANGS = 300


class Fit:
    """A fit on the client's host, and what it prints."""

    def __init__(self, hosts: Hosts, paused: bool = False, checkpoint: Path | None = None) -> None:
        address = f"tcp://{hosts.address('scheduler')}:8786"
        arguments = [hosts_client.__file__, address, "0.05", "paused" if paused else "", str(checkpoint or "")]
        self.process = hosts.run("client", arguments, stdout=subprocess.PIPE)
        self.lines: queue.Queue[dict] = queue.Queue()
        self.warnings: list[str] = []
        self.iterations: list[int] = []
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        for line in self.process.stdout:
            self.lines.put(json.loads(line))
        self.lines.put({"error": "the client has ended"})

    def until(self, *names: str, iteration: int | None = None) -> dict:
        """What it prints next under one of these names; what comes before is noted."""
        deadline = time.monotonic() + HANGS
        while True:
            told = self.lines.get(timeout=max(0.0, deadline - time.monotonic()))
            if "warning" in told:
                self.warnings.append(told["warning"])
            if "iteration" in told:
                self.iterations.append(told["iteration"])
                if told["iteration"] == iteration:
                    return told
            if any(name in told for name in names):
                return told

    def interrupted_twice(self) -> float:
        """Press Ctrl-C twice; the seconds until it has ended by that."""
        self.process.send_signal(signal.SIGINT)
        time.sleep(0.5)
        begun = time.monotonic()
        self.process.send_signal(signal.SIGINT)
        assert self.until("error", "digest")["error"] == "KeyboardInterrupt"
        return time.monotonic() - begun


@pytest.fixture
def hosts(tmp_path):
    with Hosts(tmp_path) as made:
        yield made


@pytest.fixture(scope="module")
def expected():
    """The bits of the fit in memory."""
    model = gputabu.QuantizedTabuKMeans(**hosts_client.SETTINGS, random_state=0).fit(hosts_client.points())
    return hosts_client.digest(model.labels_, model)


def ended_well(fit: Fit, expected: str) -> None:
    assert fit.until("digest", "error") == {"digest": expected}
    assert fit.until("left") == {"left": 0}


def test_a_short_cut(hosts, expected):
    fit = Fit(hosts)
    fit.until(iteration=5)
    hosts.cut_for("worker1", 5.0)  # shorter than Dask's patience
    ended_well(fit, expected)


def test_a_cut_for_ever(hosts, expected, tmp_path):
    """The search says that it begins again; with a checkpoint no iteration is made twice."""
    fit = Fit(hosts, checkpoint=tmp_path / "fit.ckpt")
    fit.until(iteration=5)
    hosts.cut("worker1")
    ended_well(fit, expected)
    assert any("A worker was lost" in warning for warning in fit.warnings)
    assert fit.iterations[:40] == list(range(1, 41))  # those of the refinement follow


def test_a_frozen_worker(hosts):
    """Told after a while; Ctrl-C twice ends it, and the actors of the others are gone."""
    fit = Fit(hosts)
    fit.until(iteration=5)
    hosts.freeze("worker1")
    told = fit.until("warning")["warning"]
    assert "has given no sign for 2 seconds: it is frozen, or cut off" in told
    assert "distributed.scheduler.worker-ttl" in told
    assert fit.interrupted_twice() < 30
    assert fit.until("left") == {"left": 0}


def test_a_paused_worker(hosts, expected):
    fit = Fit(hosts, paused=True)
    ended_well(fit, expected)


def test_a_killed_scheduler(hosts):
    fit = Fit(hosts)
    fit.until(iteration=5)
    hosts.kill("scheduler")
    ended = fit.until("error", "digest")
    assert ended["error"] == "SchedulerLost"
    assert "The scheduler" in ended["message"]
    assert "checkpoint=" in ended["message"]


def test_a_client_cut_off(hosts):
    fit = Fit(hosts)
    fit.until(iteration=5)
    hosts.cut("client")
    ended = fit.until("error", "digest")
    assert ended["error"] == "SchedulerLost"
    assert "cannot be reached any more" in ended["message"]
