"""Threads for the NumPy backend: tasks over blocks, scratch memory per thread, BLAS held to one thread.

NumPy releases the GIL in its inner loops, and order-free merges make it harmless which thread did what.
"""

from __future__ import annotations

import functools
import os
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sized
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from gputabu.backend.arithmetic.scratch import Scratch
from gputabu.core.interrupts import Interrupts

Task = TypeVar("Task")
Part = TypeVar("Part")


def thread_count() -> int:
    """Cores this process may use, or OMP_NUM_THREADS where that is less (as joblib sets it in workers)."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    wanted = os.environ.get("OMP_NUM_THREADS", "").split(",")[0]
    return max(1, min(cores, int(wanted))) if wanted.isdigit() and int(wanted) else cores


class Workers:
    """A context in which `map` runs tasks side by side and BLAS does not add threads of its own."""

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads or thread_count()
        self.scratch = Scratch()
        self._pool: ThreadPoolExecutor | None = None

    def __enter__(self) -> Workers:
        with Interrupts() as late:  # Ctrl-C half-way would leave BLAS with one thread for good
            _BLAS.hold()
            # Ctrl-C may still come before the caller's `with` has begun: then this object goes, and lets BLAS go.
            self._release = weakref.finalize(self, _release, os.getpid())
            self._release.atexit = False
        if late.asked:
            self.__exit__()
            raise KeyboardInterrupt
        return self

    def __exit__(self, *_: object) -> None:
        with Interrupts() as late:
            try:
                if self._pool is not None:
                    self._pool.shutdown()
                    self._pool = None
            finally:  # a second Ctrl-C may come here
                self._release()
        if late.asked:
            raise KeyboardInterrupt

    def map(self, run: Callable[[Iterable[Task]], Part], tasks: Iterable[Task]) -> list[Part]:
        """Deal the tasks to the threads; `run` gets an iterator over tasks and returns their merged part."""
        hands = min(self.threads, len(tasks)) if isinstance(tasks, Sized) else self.threads
        if hands <= 1:
            return [run(tasks)]
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self.threads - 1, thread_name_prefix="gputabu")
        dealt = _Dealt(tasks)
        others = [self._pool.submit(run, dealt) for _ in range(hands - 1)]
        try:
            mine = run(dealt)
        except BaseException:
            dealt.clear()  # nobody waits for the rest
            raise
        return [mine, *(other.result() for other in others)]


class _Dealt(Iterator[Task]):
    """Tasks as they are asked for: a thread that is held up leaves more of them to the others."""

    def __init__(self, tasks: Iterable[Task]) -> None:
        self.tasks, self.lock = iter(tasks), threading.Lock()

    def __next__(self) -> Task:
        with self.lock:
            return next(self.tasks)

    def clear(self) -> None:
        with self.lock:
            self.tasks = iter(())


class _Blas:
    """Holds BLAS at one thread while at least one fit is running in this process, then gives it back.

    Counted, because limits that overlap in two Python threads would otherwise restore each other's.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.holders = 0
        self.limit: Any = None
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(
                before=self.lock.acquire, after_in_parent=self.lock.release, after_in_child=self._begin_again
            )

    def _begin_again(self) -> None:
        """In a process that was forked: the fits that hold BLAS are those of the other."""
        self.holders = 0
        self._restore()
        self.lock.release()

    def hold(self) -> None:
        with self.lock:
            self.holders += 1
            if self.holders == 1:
                controller = _controller()
                self.limit = controller and controller.limit(limits=1)

    def release(self) -> None:
        with self.lock:
            self.holders -= 1
            if self.holders == 0:
                self._restore()

    def _restore(self) -> None:
        """Give BLAS its threads back. The fit that ends last need not be in the thread of the first, and from
        threadpoolctl 3.8 on only that one may, unless it is told otherwise.
        """
        if self.limit is not None:
            _release_control()
            self.limit.restore_original_limits()
            _release_control()
            self.limit = None


def _release_control() -> None:
    from threadpoolctl import OpenBLASController

    if hasattr(OpenBLASController, "clear_controlling_thread"):
        OpenBLASController.clear_controlling_thread(force=True)


@functools.cache
def _controller() -> Any:
    try:
        import scipy.linalg.cython_blas  # noqa: F401  # the BLAS of compiled code, which may not be NumPy's
        from threadpoolctl import ThreadpoolController

        return ThreadpoolController().select(user_api="blas")
    except Exception:  # an exotic BLAS it cannot read: slower, never wrong
        return None


_BLAS = _Blas()


def _release(process: int) -> None:
    """Let BLAS go, once for every hold; in a process that was forked nothing is held."""
    if os.getpid() == process:
        _BLAS.release()
