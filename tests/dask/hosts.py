"""Hosts for tests: network namespaces, each with an address of its own, joined by a bridge that cuts cables.

Addresses are seen between these namespaces only; nothing outside of them can be reached, or reaches in. Programs are
forked from a process that has imported what they need, and go to their host.
"""

from __future__ import annotations

import ctypes
import faulthandler
import itertools
import multiprocessing
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import hosts_programs

#: Dask's own patience with a connection, 30 s by default; it allows no less than 11.
PATIENCE = {f"distributed.comm.timeouts.{name}": "12s" for name in ("connect", "tcp")}
NEW_NETWORK, DIE_WITH_PARENT = 0x40000000, 1  # of Linux: for setns and prctl

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["distributed", "gputabu.dask"])
_starting = threading.Lock()
_numbers = itertools.count()


def impossible() -> str:
    """Why there can be no such hosts here; empty if there can."""
    if shutil.which("ip") is None:
        return "network namespaces need the command ip (Debian: iproute2)"
    name = f"gputabu{os.getpid()}-try"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, text=True)
    if made.returncode:
        return f"network namespaces may not be made here: {made.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", name], check=True)
    return ""


class Hosts:
    """A scheduler, workers and room for clients, each on a host of its own. A context: all is removed behind it."""

    def __init__(self, folder: Path, settings: dict[str, Any] | None = None, workers: int = 3) -> None:
        self.folder, self.settings = folder, PATIENCE | (settings or {})
        self.workers = [f"worker{i}" for i in range(workers)]
        self.names = ["scheduler", "client", "another", *self.workers]
        self.prefix = f"gputabu{os.getpid()}-{next(_numbers)}"
        self.processes: dict[str, list[BaseProcess]] = {name: [] for name in self.names}

    def __enter__(self) -> Hosts:
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self._wire()
            self.run("scheduler", hosts_programs.schedule, self.address("scheduler"))
            for name in self.workers:
                self.run(name, hosts_programs.work, self.scheduler, name, self.address(name), str(self.folder / name))
        except BaseException:
            self.__exit__()
            raise
        return self

    def _wire(self) -> None:
        switch = self._space("switch")
        self._ip("netns", "add", switch)
        self._ip("-n", switch, "link", "add", "bridge", "type", "bridge", "forward_delay", "0")
        self._ip("-n", switch, "link", "set", "bridge", "up")
        for i, name in enumerate(self.names):
            space = self._space(name)
            self._ip("netns", "add", space)
            ends = ["name", "eth0", "netns", space, "type", "veth", "peer", "name", f"cable{i}"]
            self._ip("link", "add", *ends, "netns", switch)
            self._ip("-n", switch, "link", "set", f"cable{i}", "master", "bridge", "up")
            self._ip("-n", space, "addr", "add", f"{self.address(name)}/24", "dev", "eth0")
            for link in ("lo", "eth0"):
                self._ip("-n", space, "link", "set", link, "up")

    def __exit__(self, *_: object) -> None:
        for process in itertools.chain.from_iterable(self.processes.values()):
            process.kill()
            process.join()
        for name in ("switch", *self.names):
            subprocess.run(["ip", "netns", "del", self._space(name)], capture_output=True)

    @property
    def scheduler(self) -> str:
        return f"tcp://{self.address('scheduler')}:{hosts_programs.PORT}"

    def address(self, name: str) -> str:
        return f"10.213.0.{self.names.index(name) + 1}"

    def run(self, name: str, program: Callable[..., None], *arguments: Any) -> BaseProcess:
        """A program on a host."""
        given = (self._space(name), str(self.log(name)), self.settings, program, arguments)
        process = _context.Process(target=_go, args=given, daemon=True)
        with _starting:
            process.start()
        self.processes[name].append(process)
        return process

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def cut(self, name: str, whole: bool = False) -> None:
        """Pull the cable of a host, or plug it in again."""
        cable = f"cable{self.names.index(name)}"
        self._ip("-n", self._space("switch"), "link", "set", cable, "up" if whole else "down")

    def cut_for(self, name: str, seconds: float) -> None:
        self.cut(name)
        time.sleep(seconds)
        self.cut(name, whole=True)

    def freeze(self, name: str) -> None:
        self._signal(name, signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        self._signal(name, signal.SIGCONT)

    def kill(self, name: str) -> None:
        self._signal(name, signal.SIGKILL)
        for process in self.processes[name]:
            process.join()

    def _signal(self, name: str, number: int) -> None:
        for process in self.processes[name]:
            os.kill(process.pid, number)

    def _space(self, name: str) -> str:
        return f"{self.prefix}-{name}"

    def _ip(self, *arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)


def _go(space: str, log: str, settings: dict[str, Any], program: Callable[..., None], arguments: tuple) -> None:
    """In a process of its own: go to the host and run the program there."""
    import dask

    system = ctypes.CDLL(None, use_errno=True)
    system.prctl(DIE_WITH_PARENT, signal.SIGKILL)
    with open(f"/run/netns/{space}") as host:
        if system.setns(host.fileno(), NEW_NETWORK):
            raise OSError(ctypes.get_errno(), f"cannot go to {space}")
    with open(log, "a") as file:
        os.dup2(file.fileno(), 1)
        os.dup2(file.fileno(), 2)
    faulthandler.register(signal.SIGUSR1)  # for who wants to know where it hangs
    with dask.config.set(settings):
        program(*arguments)
