"""Hosts for tests: network namespaces, each with an address of its own, joined by a bridge that cuts cables.

Addresses are seen between these namespaces only; nothing outside of them can be reached, or reaches in.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

#: Dask's own patience with a connection, 30 s by default; it allows no less than 11.
TIMES = {"COMM__TIMEOUTS__CONNECT": "12s", "COMM__TIMEOUTS__TCP": "12s"}


def possible() -> str:
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
    """A scheduler, workers and room for a client, each on a host of its own. A context: all is removed behind it."""

    def __init__(self, folder: Path, workers: int = 3) -> None:
        self.folder, self.names = folder, ["scheduler", "client", *(f"worker{i}" for i in range(workers))]
        self.prefix, self.processes = f"gputabu{os.getpid()}", dict[str, subprocess.Popen]()

    def __enter__(self) -> Hosts:
        self._ip("netns", "add", self._space("switch"))
        self._ip("-n", self._space("switch"), "link", "add", "bridge", "type", "bridge", "forward_delay", "0")
        self._ip("-n", self._space("switch"), "link", "set", "bridge", "up")
        for i, name in enumerate(self.names):
            space = self._space(name)
            self._ip("netns", "add", space)
            ends = ["name", "eth0", "netns", space, "type", "veth", "peer", "name", f"cable{i}"]
            self._ip("link", "add", *ends, "netns", self._space("switch"))
            self._ip("-n", self._space("switch"), "link", "set", f"cable{i}", "master", "bridge", "up")
            self._ip("-n", space, "addr", "add", f"{self.address(name)}/24", "dev", "eth0")
            for link in ("lo", "eth0"):
                self._ip("-n", space, "link", "set", link, "up")
        self.start("scheduler", "distributed.cli.dask_scheduler", "--port", "8786", "--no-dashboard", "--no-show")
        for name in self.names[2:]:
            options = ["--no-nanny", "--nthreads", "1", "--no-dashboard", "--memory-limit", "2GB", "--name", name]
            options += ["--preload", "gputabu.dask"]  # which takes seconds, in which a worker gives no sign
            self.start(name, "distributed.cli.dask_worker", f"tcp://{self.address('scheduler')}:8786", *options)
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait()
            if process.stdout:
                process.stdout.close()
        for name in ("switch", *self.names):
            subprocess.run(["ip", "netns", "del", self._space(name)], capture_output=True)

    def address(self, name: str) -> str:
        return f"10.213.0.{self.names.index(name) + 1}"

    def start(self, name: str, module: str, *options: str) -> None:
        """A program of Dask on a host."""
        space = ["--host", self.address(name), "--local-directory", str(self.folder / name)]
        if name == "scheduler":
            space = space[:2]
        self.run(name, ["-m", module, *options, *space], stdout=subprocess.DEVNULL)

    def run(self, name: str, arguments: list[str], **options: object) -> subprocess.Popen:
        """Python on a host; a signal to it is one to the program."""
        environment = os.environ | {f"DASK_DISTRIBUTED__{key}": value for key, value in TIMES.items()}
        command = ["ip", "netns", "exec", self._space(name), sys.executable, *arguments]
        with (self.folder / f"{name}.log").open("w") as log:
            self.processes[name] = subprocess.Popen(command, env=environment, stderr=log, text=True, **options)
        return self.processes[name]

    def cut(self, name: str, whole: bool = False) -> None:
        """Pull the cable of a host, or plug it in again."""
        cable = f"cable{self.names.index(name)}"
        self._ip("-n", self._space("switch"), "link", "set", cable, "up" if whole else "down")

    def cut_for(self, name: str, seconds: float) -> None:
        self.cut(name)
        time.sleep(seconds)
        self.cut(name, whole=True)

    def freeze(self, name: str) -> None:
        os.kill(self.processes[name].pid, signal.SIGSTOP)

    def kill(self, name: str) -> None:
        self.processes[name].kill()

    def _space(self, name: str) -> str:
        return f"{self.prefix}-{name}"

    def _ip(self, *arguments: str) -> None:
        subprocess.run(["ip", *arguments], check=True, capture_output=True, text=True)
