"""Who watches a search: Ctrl-C, a time limit, the caller's callback, a progress bar, a checkpoint.

An algorithm asks one thing, whether to stop (`Monitor.should_stop`), and reports one, how far it has come
(`Monitor.report`). A backend that runs whole restarts by itself reports now and then (`Monitor.report_restarts`), which
is enough for a bar. Where every iteration is wanted (`Monitor.every_iteration`), it is not asked to. What is worth
keeping in a checkpoint is done in stages (`Monitor.stage`).
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from gputabu.algorithms.checkpoint import Checkpoint, Stage
from gputabu.algorithms.progress import ProgressEstimate
from gputabu.algorithms.progress_bar import INTERVAL, Bar, Lines, open_bar
from gputabu.backend.compiled_code import listening
from gputabu.core.interrupts import Interrupts
from gputabu.core.log import log
from gputabu.core.results import Stop
from gputabu.core.validation import check_flag, check_real

#: Of the time for a search, what may be taken with the refinement of what it has found.
GRACE = 1.1
#: Seconds of a search after which it is said how long the rest may take.
EVIDENCE = 0.5
COMPILING = "compiling for the first fit of this kind on this machine"


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a search has come: what a callback is given after every iteration.

    A callback returns True to end the search, with the best found so far and `Stop.CALLBACK`, and False or None to go
    on; once it has ended a search it is not called again. As after Ctrl-C, refinement is then cut to one round of
    K-Means. An exception in it ends the search without a result. It changes no bit of the result.

    Attributes
    ----------
    phase : {"start", "sample", "search", "refine"}
        "search" is the algorithm itself. Iterations of K-Means before it are "start", those of K-Means or rounds of
        single moves behind it are "refine". "sample" is the search of a sample of many points, with J of the sample.
    iteration : int
        Iterations of the phase, this one included. All restarts of a batch make them together; the next batch
        begins again with 1.
    max_iter : int or None
        How many the phase may have; None for as many as other limits allow.
    best : float
        The lowest J so far, of all restarts.
    active : (A,) int array
        Numbers of the restarts that took part in this iteration.
    current : (A,) float64
        J of the solutions that they hold.
    done : int
        Restarts that have ended.
    restarts : int
        Restarts in all.
    n_clusters : int
    elapsed : float
        Seconds since the call.

    Examples
    --------
    >>> from gputabu import quantized
    >>> def enough(progress):
    ...     return progress.iteration == 2
    >>> quantized.search([[0.0], [1.0], [10.0], [11.0]], 2, callback=enough).stop.name
    'CALLBACK'
    """

    phase: str
    iteration: int
    max_iter: int | None
    best: float
    active: np.ndarray
    current: np.ndarray
    done: int
    restarts: int
    n_clusters: int
    elapsed: float


Callback = Callable[[Progress], Any]


class Monitor:
    """What a search asks and reports to. `opened` is the context in which it runs."""

    def __init__(
        self, callback: object = None, progress: object = False, max_time: object = None, checkpoint: object = None
    ) -> None:
        self.begun = time.perf_counter()
        self.callback = check_callback(callback)
        self.progress = check_flag("progress", progress)
        seconds = math.inf if max_time is None else check_real("max_time", max_time, 0)
        self.deadline, self.latest = self.begun + seconds, self.begun + seconds * GRACE
        self.interrupts = Interrupts()
        self.n_clusters, self.best = 0, math.inf
        self.batch = np.zeros(0, np.uint64)  # numbers of the restarts that run
        self.phase: str = "search"
        self.max_iter: int | None = 1
        self.pause = math.inf  # when a sample has had its share of the time
        self.estimate = ProgressEstimate(1, 1)
        self.constant = 0.0  # what J has more than is reported
        self._stopped = False  # by the callback
        self._cut = False  # a sample short, by time
        self._bar: Bar | Lines | None = None
        self._shown = -math.inf
        self._searching = self.begun  # since when the search makes iterations; compiling does not count
        self._compiling: float | None = None  # since when
        self._said = False  # that code is compiled
        self._lock = threading.Lock()
        self.checkpoint = None if checkpoint is None else Checkpoint(checkpoint, self._keeps_no_more)

    @contextmanager
    def opened(self, n_clusters: int, ledger: ProgressEstimate) -> Iterator[Monitor]:
        """A context in which the first Ctrl-C only asks to stop, a bar is shown if wanted, and a checkpoint is kept."""
        self.n_clusters, self.estimate = n_clusters, ledger
        with ExitStack() as stack:
            stack.enter_context(self.interrupts)
            if self.checkpoint is not None:
                stack.callback(self.checkpoint.close)
            if self.progress:
                self._bar = open_bar()
                stack.enter_context(self._bar)
                stack.callback(setattr, self, "_bar", None)
            stack.enter_context(listening(self._compile))
            yield self
            if self._bar is not None:
                self._bar.finish(self._text("search", 0), self.elapsed, complete=self.halted is None)

    # -- to be asked -----------------------------------------------------------------------------

    @property
    def elapsed(self) -> float:
        return time.perf_counter() - self.begun

    @property
    def halted(self) -> Stop | None:
        """Why the search must end at once, without refinement; None to go on."""
        return Stop.INTERRUPTED if self.interrupts.asked else Stop.CALLBACK if self._stopped else None

    @property
    def stop_reason(self) -> Stop:
        """Why a restart that was not finished has ended."""
        return self.halted or Stop.MAX_TIME

    @property
    def seconds(self) -> float:
        """What a search may take; infinite without a limit."""
        return self.deadline - self.begun

    @property
    def timed(self) -> bool:
        return self.deadline < math.inf

    @property
    def every_iteration(self) -> bool:
        """Whether every iteration is to be reported, or may be kept, as it is made."""
        return self.callback is not None or self.checkpoint is not None

    def should_hurry(self) -> bool:
        """Whether seeding and refinement must end too: halted, or well past the time limit."""
        return self.halted is not None or (self.timed and time.perf_counter() >= self.latest)

    def should_stop(self) -> bool:
        """Whether the search is to end: halted, or out of time, or of that for the sample that it is on."""
        now = time.perf_counter() if self.timed else -math.inf
        self._cut = self._cut or now >= self.pause
        return self.halted is not None or now >= min(self.deadline, self.pause)

    def _keeps_no_more(self) -> bool:
        """Whether what follows is no part of the search without a time limit. It never becomes false again."""
        return self.should_stop() or self._cut

    def report_due(self) -> bool:
        """Whether it is time to draw the bar again: never without one."""
        return self._bar is not None and time.perf_counter() - self._shown >= INTERVAL

    @contextmanager
    def on_sample(self, share: float) -> Iterator[None]:
        """A context in which the search is on a sample, whose J is none of all points, for a share of the time left."""
        best, self.best, now = self.best, math.inf, time.perf_counter()
        self.pause = now + share * max(self.deadline - now, 0.0)
        try:
            yield
        finally:
            self.best, self.pause = best, math.inf

    # -- to be told ------------------------------------------------------------------------------

    def batches(self, batches: Iterable[Sequence[int]]) -> Iterator[Sequence[int]]:
        """The batches of restarts in turn, until the search must end; the first in any case."""
        for i, batch in enumerate(batches):
            if i and self.should_stop():
                break
            self.batch = np.array(batch, np.uint64)
            self.estimate.begin(len(batch), first=i == 0)
            self.begin_phase("search", self.estimate.max_iter)
            yield batch

    def stage(self, name: str, work: Callable[[Stage], Any]) -> Any:
        """The result of a stage of the batch; with a checkpoint, from where it was left (`algorithms.checkpoint`)."""
        return work(Stage()) if self.checkpoint is None else self.checkpoint.stage(name, work)

    def batch_ended(self, made: np.ndarray, inertia: np.ndarray) -> None:
        """All restarts of the batch have ended, after so many iterations (R,), at J (R,)."""
        if self._bar is not None:
            self.begin_phase("search", self.max_iter)
            self._note(np.arange(len(made)), made, inertia, np.ones(len(made), np.bool_))

    def begin_k(self, n_clusters: int) -> None:
        """Another K begins."""
        self.n_clusters, self.best = n_clusters, math.inf

    def begin_phase(self, phase: str, max_iter: int | None) -> None:
        """Another phase begins. In "refine" no restart is searching any more."""
        if phase == "refine":
            self.estimate.ended[:] = True
        self.phase, self.max_iter = phase, max_iter
        if phase == "search" and self.estimate.iterations == 0:
            self._searching = time.perf_counter()

    def _compile(self, begun: bool) -> None:
        """The backend begins, or ends, to compile."""
        now = time.perf_counter()
        if not begun:
            self._searching += now - (now if self._compiling is None else self._compiling)
            self._compiling = None
            return
        self._compiling = now
        if self._bar is not None and (not self._said or isinstance(self._bar, Bar)):
            self._bar.say(COMPILING)
        if not self._said:
            log.info("%s: later ones begin at once", COMPILING)
        self._said = True

    def report(
        self, iteration: int, active: np.ndarray, cost: np.ndarray, best: np.ndarray, ended: np.ndarray,
        share: Any = 0.0,
    ) -> None:  # fmt: skip
        """An iteration of the restarts `active` (A,), positions in the batch, is made.

        J (A,), the best J (A,), which of them end with it (A,) bool, and the share of their effort that is spent (A,).
        """
        if self.callback is None and self._bar is None:
            return
        self._note(active, iteration, best, ended, share)
        if self.report_due():
            self._show(iteration)
        if self.callback is not None and not self._stopped:
            answer = self.callback(self._progress(iteration, active, cost))
            if answer is not None and not isinstance(answer, (bool, np.bool_)):
                raise TypeError(f"callback returned {answer!r}, which must be True to stop, or False or None to go on.")
            self._stopped = bool(answer)

    def report_restarts(self, made: np.ndarray, best: np.ndarray, ended: np.ndarray, share: Any = 0.0) -> None:
        """How far the restarts are: iterations made, best J, whether they have ended, share of effort, (R,) each.

        From any thread; J may be NaN where there is none yet.
        """
        with self._lock:
            self._note(np.arange(len(self.batch)), made, best, ended, share)
            self._show(int(made[~ended].max() if not ended.all() else made.max()))

    def _note(self, active: np.ndarray, made: Any, best: np.ndarray, ended: np.ndarray, share: Any = 0.0) -> None:
        best = best + self.constant
        self.best = float(np.fmin(self.best, np.fmin.reduce(best, initial=math.inf)))
        if self.phase == "search":
            self.estimate.note(active, made, best, ended, share)

    def _progress(self, iteration: int, active: np.ndarray, cost: np.ndarray) -> Progress:
        return Progress(
            self.phase, iteration, self.max_iter, self.best, self.batch[active].astype(np.int64), cost + self.constant,
            self.estimate.done, self.estimate.restarts, self.n_clusters, self.elapsed,
        )  # fmt: skip

    def _show(self, iteration: int) -> None:
        if self._bar is None:
            return
        self._shown = time.perf_counter()
        searched = self._shown - self._searching
        left = self.estimate.left(searched) if searched >= EVIDENCE else math.inf
        fraction, limit = self.estimate.fraction, self.estimate.limit
        if self.timed:
            remaining = max(0.0, self.deadline - time.perf_counter())
            fraction = max(fraction, self.elapsed / (self.elapsed + remaining))
            left, limit = min((left, limit), (remaining, "max_time"))
        left = left if self.phase == "search" else math.inf
        self._bar.show(fraction, self._text(self.phase, iteration), left, limit)

    def _text(self, phase: str, iteration: int) -> str:
        best = math.inf if self.pause < math.inf or phase == "sample" else self.best
        return self.estimate.text(phase, iteration or self.estimate.furthest, self.n_clusters, best)


def check_callback(callback: object) -> Callback | None:
    if callback is not None and not callable(callback):
        raise TypeError(f"callback={callback!r} must be a function of one argument, or None.")
    return callback
