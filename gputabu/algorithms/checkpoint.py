"""Checkpoints: the state of a search in a file, so that it can continue after its process was killed.

A search runs batches of restarts, and each batch runs stages: seeds, the search itself, its refinement. The file has
the results of finished batches and stages, and the state of the current stage between two iterations. Labels are not
in it. They follow from the rest, so the file is small whatever the number of points. Random numbers are addressed and
need no state. A stage depends on its state alone, so a search that continues has the bits of one that never stopped.

Once a search is to end early, by Ctrl-C, time or callback, nothing more is kept, because what follows is cut short.
"""

from __future__ import annotations

import hashlib
import os
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gputabu.core.archive import DAMAGE, Reader, Refused, Writer
from gputabu.core.atomic_files import reason

#: Version of the format, and of the searches: one that goes another way cannot continue what an earlier one left.
VERSION = 2
#: The entry of the archive that says what the others are.
HEAD = "checkpoint.json"
#: The attributes of a checkpoint that are in its file.
CONTENT = ("identity", "batches", "stages", "under_way")
#: Seconds from one write to the next: little to lose, and much longer than a write takes.
EVERY = 30.0


class Stage:
    """A stage of a search: the state it was left in, and a function that keeps its state between iterations."""

    def __init__(self, state: Any = None, keeper: Callable[[Any], None] | None = None) -> None:
        self.state = state  # as `keep` got it; None to begin
        self.kept = keeper is not None  # whether there is a checkpoint at all
        self._keeper = keeper

    def keep(self, state: dict[str, Any]) -> None:
        """Keep this state to continue from. It must not change later; functions in it are called for their values."""
        if self._keeper is not None:
            self._keeper(state)


class Checkpoint:
    """The file of one search.

    Parameters
    ----------
    path : str or path
        Read, where there is such a file.
    over : function
        Whether the search is to end early.
    """

    def __init__(self, path: Any, over: Callable[[], bool]) -> None:
        if not isinstance(path, str | os.PathLike):
            raise TypeError(f"checkpoint={path!r} must be a path, or None.")
        self.path, self.over = Path(path), over
        self.identity: dict[str, Any] = {}  # of the search and its points
        self.batches: list[Any] = []  # what finished batches came to
        self.stages: dict[str, Any] = {}  # what finished stages of the batch under way came to
        self.under_way: Sequence[Any] | None = None  # name and state of a stage
        self._new = False  # whether there is something that is not in the file
        self._written = 0.0
        if self.path.exists():
            self._read()
        elif not self.path.absolute().parent.is_dir():
            raise ValueError(f"checkpoint='{self.path}' cannot be written: there is no such folder.")
        self._earlier = list(self.batches)  # which are not asked for yet

    def begin(self, identity: dict[str, Any]) -> None:
        """Raise if the file belongs to a search with another `identity`, or cannot be written."""
        for name in {**self.identity, **identity} if self.identity else ():
            there, here = self.identity.get(name), identity.get(name)
            if there != here:
                what = "other values of X" if name == "X" else f"{name}={there!r}, and not {here!r}"
                raise ValueError(
                    f"checkpoint='{self.path}' is of a fit with {what}; remove it to begin anew, or name another."
                )
        self.identity = identity
        try:
            self.write()
        except OSError as error:
            raise ValueError(f"checkpoint='{self.path}' cannot be written: {error.strerror}.") from None

    def earlier(self) -> Any:
        """The result of the next batch, if it was finished; None otherwise."""
        return self._earlier.pop(0) if self._earlier else None

    def finish(self, batch: Any) -> None:
        """The current batch has this result."""
        if not self.over():
            self.batches.append(batch)
            self.stages, self.under_way, self._new = {}, None, True

    def stage(self, name: str, work: Callable[[Stage], Any]) -> Any:
        """The result of a stage: as it was kept, or as `work` returns it, continuing where it was left."""
        if name in self.stages:
            return self.stages[name]
        left = self.under_way[1] if self.under_way is not None and self.under_way[0] == name else None
        found = work(Stage(left, partial(self._keep, name)))
        if not self.over():
            self.stages[name], self.under_way, self._new = found, None, True
        return found

    def _keep(self, name: str, state: Any) -> None:
        if self.over():
            return
        self.under_way, self._new = (name, state), True
        if time.monotonic() - self._written >= EVERY:
            self._try()

    def close(self) -> None:
        """Write what is not in the file yet; the search has ended, in whatever way."""
        if self._new and self.identity:
            self._try()

    def _try(self) -> None:
        """Write, and only warn if that fails: a search must not end because it cannot be kept."""
        try:
            self.write()
        except OSError as error:
            self._written = time.monotonic()
            warnings.warn(
                f"checkpoint='{self.path}' cannot be written: {error.strerror}.", RuntimeWarning, stacklevel=2
            )

    def write(self) -> None:
        writer = Writer()
        plain = {name: writer.plain(_made(getattr(self, name)), name) for name in CONTENT}
        writer.save(self.path, HEAD, {"version": VERSION, **plain})
        self._new, self._written = False, time.monotonic()

    def _read(self) -> None:
        try:
            with self.path.open("rb") as file:
                reader = Reader(file, self.path.stat().st_size)
                head = reader.head(HEAD, VERSION)
                if head["version"] < VERSION:
                    raise Refused("was saved by an earlier gputabu, whose searches went other ways.")
                for name in CONTENT:
                    setattr(self, name, reader.value(head[name]))
        except Refused as error:
            raise ValueError(f"checkpoint='{self.path}' {error}") from None
        except DAMAGE as error:
            what = f"is no checkpoint of gputabu, or is damaged ({reason(error)})"
            raise ValueError(f"checkpoint='{self.path}' {what}; remove it to begin anew.") from error


def _made(value: Any) -> Any:
    """The value, with functions in it replaced by what they return."""
    if callable(value):
        return value()
    if isinstance(value, dict):
        return {key: _made(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_made(item) for item in value]
    return value


def digest(*arrays: np.ndarray) -> str:
    content = hashlib.blake2b(digest_size=16)
    for array in arrays:
        content.update(repr((array.dtype.str, array.shape)).encode() + array.tobytes())
    return content.hexdigest()
