"""Progress in a terminal, without one, and beside messages; the bar closes however a search ends."""

from __future__ import annotations

import logging
import math
import os
import select
import subprocess
import sys
import time

import numpy as np
import pytest
from conftest import same

from gputabu import KMeans, QuantizedTabuKMeans, Stop, lloyd, quantized, relocation, select_k
from gputabu.algorithms import progress_bar as bars
from gputabu.algorithms.monitor import COMPILING, Monitor
from gputabu.algorithms.progress import ProgressEstimate
from gputabu.backend import compiled_code

FIT = """
import numpy as np
from gputabu import QuantizedTabuKMeans
X = np.random.default_rng(0).normal(size=(2000, 5)) * 1e6
QuantizedTabuKMeans(8, n_init=30, max_iter=100000, patience=100000, max_time=1.0, random_state=0, backend="numpy",
           progress=True, verbose=1).fit(X)
"""


def as_terminal(monkeypatch, capsys):
    """Make stderr a terminal; returns a function that gives what it has been sent so far."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    monkeypatch.setattr("gputabu.algorithms.monitor.INTERVAL", 0.0)
    sent = []

    def read() -> str:
        sent.append(capsys.readouterr().err)
        return "".join(sent)

    return read


@pytest.mark.skipif(sys.platform == "win32", reason="needs a pseudo-terminal")
def test_a_terminal_of_80_columns_never_wraps():
    import fcntl
    import pty
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    child = subprocess.Popen([sys.executable, "-c", FIT], stdin=theirs, stdout=theirs, stderr=theirs)
    os.close(theirs)
    out = b""
    while select.select([ours], [], [], 120)[0]:
        try:
            read = os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        if not read:
            break
        out += read
    os.close(ours)
    assert child.wait() == 0, out.decode()
    drawn = [part for part in out.decode().replace("\n", "\r").split("\r") if part.startswith("|")]
    assert drawn and all(len(part) <= 80 for part in drawn)
    assert any("/100000, best J " in part and part.endswith(" to max_time") for part in drawn)
    assert "30/30 restarts, 00:0" in drawn[-1] and " to " not in drawn[-1]
    messages = [line for line in out.decode().splitlines() if "gputabu: " in line]
    assert len(messages) == 2 and all(line.rsplit("\r", 1)[-1].startswith("gputabu: ") for line in messages)


def test_without_a_terminal_a_line_every_few_seconds(monkeypatch, capsys, iris, backend):
    monkeypatch.setattr("gputabu.algorithms.monitor.INTERVAL", 0.0)
    monkeypatch.setattr(bars, "LINE_INTERVAL", 0.0)
    monkeypatch.setattr("gputabu.algorithms.monitor.EVIDENCE", 0.0)
    found = quantized.search(iris, 3, restarts=2, max_iter=30, backend=backend, progress=True)
    same(found, quantized.search(iris, 3, restarts=2, max_iter=30, backend=backend))
    out, err = capsys.readouterr()
    assert out == ""
    for line in err.splitlines():
        assert line.startswith(("gputabu: iteration ", "gputabu: refining, iteration ", "gputabu: compiling for"))
    if backend == "numpy":
        first = "gputabu: iteration 1 of 30, best J "
        assert err.startswith(first) and ", 0 of 2 restarts, 00:0" in err.splitlines()[0]
    monkeypatch.setattr(bars, "LINE_INTERVAL", 1000.0)
    quantized.search(iris, 3, max_iter=30, backend=backend, progress=True)
    assert capsys.readouterr().err.removeprefix(f"gputabu: {COMPILING}\n") == ""


@pytest.mark.numba
def test_compiling_is_told_of():
    from gputabu.backend.numba.kernels.jit import compiled, inner

    @inner
    def twice(x):
        return 2 * x

    told = []
    with compiled_code.listening(told.append):
        assert compiled(lambda x: twice(x) + 1)(3) == 7
    assert told == [True, False]  # once, also of what is compiled within
    compiled(lambda x: x + 1)(1)
    assert len(told) == 2


class Shown:
    """A bar that keeps what it was told."""

    def __init__(self):
        self.said, self.left = [], []

    def show(self, fraction, text, left, limit=""):
        self.left.append((left, limit))

    def say(self, text):
        self.said.append(text)


def test_the_time_left_is_that_of_the_search(monkeypatch):
    """Not of what was compiled, read or seeded before, and not from a moment's evidence."""
    now = [100.0]
    monkeypatch.setattr("gputabu.algorithms.monitor.time.perf_counter", lambda: now[0])
    monitor, bar = Monitor(), Shown()
    with monitor.opened(5, ProgressEstimate(1, 1000)):
        monitor._bar = bar
        next(iter(monitor.batches([[0]])))
        now[0] += 30  # seeds
        monitor.begin_phase("start", 300)
        now[0] += 30
        monitor.begin_phase("search", 1000)
        compiled_code.tell(True)
        now[0] += 60
        compiled_code.tell(False)
        one, cost, going = np.array([0]), np.array([9.0]), np.array([False])
        for iteration in (1, 10, 100):
            now[0] = 220 + iteration * 0.01
            monitor._shown = -math.inf
            monitor.report(iteration, one, cost, cost, going)
        monitor._bar = None
    assert bar.said == [COMPILING]
    assert bar.left[:2] == [(math.inf, "max_iter")] * 2
    assert bar.left[2] == (pytest.approx(9.0), "max_iter")
    assert bars.duration(100) == "01:40" and bars.duration(1e6) == "more than a day"


@pytest.mark.numba
@pytest.mark.parametrize("search", [quantized.search, relocation.search, lloyd.run])
def test_whole_restarts_in_compiled_code_are_glanced_at(search, iris, monkeypatch, capsys):
    monkeypatch.setattr("gputabu.algorithms.monitor.INTERVAL", 0.0)
    monkeypatch.setattr(bars, "LINE_INTERVAL", 0.0)
    monkeypatch.setattr("gputabu.algorithms.monitor.Monitor.report", lambda *_: pytest.fail("pass by pass"))
    search(iris, 3, restarts=4, init="random", backend="numba", progress=True)
    lines = capsys.readouterr().err.splitlines()
    assert lines and any("best J 7" in line or "best J 14" in line for line in lines)


def test_the_bar_closes_however_a_search_ends(monkeypatch, capsys, iris):
    terminal = as_terminal(monkeypatch, capsys)
    from tqdm.auto import tqdm

    QuantizedTabuKMeans(3, max_iter=20, random_state=0, progress=True).fit(iris)
    assert "|" in terminal() and terminal().endswith("\n")
    stopped = QuantizedTabuKMeans(3, max_iter=20, progress=True, callback=lambda info: info.iteration == 2).fit(iris)
    assert stopped.stop_ is Stop.CALLBACK
    for error in (LookupError, KeyboardInterrupt):

        def fail(info, error=error):
            raise error

        with pytest.raises(error):
            KMeans(3, progress=True, callback=fail).fit(iris)
    assert not tqdm._instances
    assert terminal().endswith("\n")


def test_handlers_are_as_they_were(monkeypatch, capsys, iris):
    terminal = as_terminal(monkeypatch, capsys)
    handler = logging.StreamHandler(sys.stderr)
    logging.getLogger("gputabu").addHandler(handler)
    try:
        before = list(logging.getLogger("gputabu").handlers)
        QuantizedTabuKMeans(3, max_iter=5, progress=True, verbose=1).fit(iris)
        assert logging.getLogger("gputabu").handlers == before
    finally:
        logging.getLogger("gputabu").removeHandler(handler)
    assert "150 points" in terminal()


def test_a_bar_of_many_k(monkeypatch, capsys, iris):
    terminal = as_terminal(monkeypatch, capsys)
    select_k(iris, [2, 3, 4], ["gap"], references=2, progress=True)
    assert "4 clusters, 9/9 clusterings, 00:0" in terminal().replace("\r", "\n").splitlines()[-1]


def test_lines(capsys, monkeypatch):
    lines = bars.Lines()
    lines.show(0.5, "iteration 5 of 10", 3.0)
    assert capsys.readouterr().err == ""
    lines._last = time.monotonic() - 6
    lines.show(0.5, "iteration 5 of 10", 3700.0)
    lines.show(0.5, "iteration 6 of 10", math.inf)
    assert capsys.readouterr().err == "gputabu: iteration 5 of 10, 1:01:40 left\n"
