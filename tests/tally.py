"""How hard the tests try, and how often each thing was tried: for docs/reliability.md, which `make trust` writes.

GPUTABU_EFFORT multiplies the number of trials (1 in `make test`). Where GPUTABU_TALLY names a folder, counts are left
there, one file per process.
"""

from __future__ import annotations

import atexit
import json
import os
from collections import Counter
from pathlib import Path

EFFORT = int(os.environ.get("GPUTABU_EFFORT", "1"))
_counts: Counter[str] = Counter()
_measured: dict[str, dict[str, list[float]]] = {}


def trials(least: int) -> int:
    """How many trials to make of something that is tried so often in `make test`."""
    return least * EFFORT


def tried(what: str, times: int = 1) -> None:
    """Count that `what` was tried and held; `what` is a row of the table."""
    _counts[what] += times


def measured(what: str, sentence: str, value: float) -> None:
    """Say on the page what was measured on the way; `sentence` has {} where the values of all runs go."""
    _measured.setdefault(what, {}).setdefault(sentence, []).append(value)


def _leave(folder: str) -> None:
    Path(folder).mkdir(parents=True, exist_ok=True)
    (Path(folder) / f"{os.getpid()}.json").write_text(json.dumps({"rows": _counts, "measured": _measured}))


if "GPUTABU_TALLY" in os.environ:
    atexit.register(_leave, os.environ["GPUTABU_TALLY"])
