"""Comparisons with NumPy, bit for bit: what `gputabu doctor` and `gputabu accept` try on a GPU."""

from __future__ import annotations

import threading
import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from gputabu.algorithms import lloyd, quantized, reassignment, relocation
from gputabu.core.results import Clustering

#: A search: (X, K, **options) to a clustering.
Search = Callable[..., Clustering]
SEARCHES: dict[str, Search] = {
    "QM-TS": quantized.search,
    "relocation": relocation.search,
    "TSC": reassignment.search,
    "K-Means": lloyd.run,
}


class Skipped(Exception):
    """A case that cannot be tried on this machine, and why."""


@dataclass(frozen=True)
class Case:
    """Something to try. `check` returns what differs from NumPy, or None."""

    group: str
    name: str
    check: Callable[[], str | None]


@dataclass(frozen=True)
class Outcome:
    """How a case went."""

    group: str
    name: str
    status: str  # passed, failed or skipped
    seconds: float
    detail: str = ""  # what differs, or the error in a sentence
    traceback: str = ""

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def tried(case: Case) -> Outcome:
    """Try a case; whatever it raises is its outcome."""
    begun = time.perf_counter()
    try:
        difference = case.check()
    except Skipped as reason:
        return Outcome(case.group, case.name, "skipped", time.perf_counter() - begun, str(reason))
    except Exception as error:  # whatever goes wrong here is what the user wants to be told
        told = f"{type(error).__name__}: {' '.join(str(error).split())}"[:1000]
        return Outcome(
            case.group, case.name, "failed", time.perf_counter() - begun, told, traceback.format_exc()[-8000:]
        )
    status = "passed" if difference is None else "failed"
    return Outcome(case.group, case.name, status, time.perf_counter() - begun, difference or "")


def points(n: int, d: int, k: int, dtype: Any = np.float64, seed: int = 0) -> np.ndarray:
    """Points around k centres, near enough for some to be between two."""
    rng = np.random.default_rng([n, d, k, seed])
    centers = rng.normal(scale=2, size=(k, d))
    return (centers[rng.integers(k, size=n)] + rng.normal(size=(n, d))).astype(dtype)


def compared(search: Search, X: np.ndarray, k: int, backend: Any = "cuda", **options: Any) -> str | None:
    """What a search finds otherwise than on NumPy. `device` among the options is for the first of the two."""
    device = options.pop("device", None)
    here = {} if callable(backend) or device is None else {"device": device}
    return difference(search(X, k, backend=backend, **here, **options), search(X, k, backend="numpy", **options))


def difference(one: Clustering, other: Clustering) -> str | None:
    """The first of the things compared that is not the same in both, where, and how."""
    pairs = {
        "labels": (one.labels, other.labels),
        "centres": (one.centers, other.centers),
        "traces of J": (one.trace.current, other.trace.current),
        "values of J": (one.inertias, other.inertias),
    }
    for name, (here, there) in pairs.items():
        if text := array_difference(here, there):
            return f"{name} differ from NumPy's: {text}"
    return None


def array_difference(here: Any, there: Any) -> str | None:
    """How many numbers differ, and the first of them; bit for bit, but any NaN is as good as another."""
    here, there = np.asarray(here), np.asarray(there)
    if here.shape != there.shape or here.dtype != there.dtype:
        return f"{here.shape} {here.dtype} and not {there.shape} {there.dtype}"
    wrong = np.argwhere((here != there) & ~((here != here) & (there != there)))
    if not len(wrong):
        return None
    first = tuple(int(i) for i in wrong[0])
    return f"{len(wrong)} of {here.size}, first at {first}: {here[first].item()!r} and not {there[first].item()!r}"


# ---- what a device may fail at, each by size: `doctor` is quick, `accept` is not


def wide_points(device: int | None, n: int = 400) -> str | None:
    """More features than a thread has registers for, in both types."""
    for k, dtype in ((32, np.float32), (8, np.float64)):
        X = points(n, 64, k, dtype)
        for name in ("QM-TS", "K-Means"):
            text = compared(SEARCHES[name], X, k, max_iter=4, device=device)
            if text:
                return f"{name}, {n}×64 {np.dtype(dtype)}, K={k}: {text}"
    return None


def double_precision(device: int | None, n: int = 1500) -> str | None:
    """float64 with several restarts: the largest tiles of the survey."""
    return compared(quantized.search, points(n, 20, 8), 8, restarts=3, max_iter=6, device=device)


def many_clusters(device: int | None, k: int = 2500) -> str | None:
    X = points(k + k // 5, 2, k // 10, np.float32)
    return compared(quantized.search, X, k, max_iter=2, refine="centroid", device=device)


def many_restarts(device: int | None, restarts: int = 2000, n: int = 60) -> str | None:
    options = {"restarts": restarts, "init": "random", "max_iter": 2, "device": device}
    return compared(lloyd.run, points(n, 4, 3, np.float32), 3, **options)


def threads(device: int | None, count: int = 2, rounds: int = 2) -> str | None:
    """Several threads at once on one GPU, with data of different shapes: they share its compiled kernels."""
    shapes = [(700 + 50 * i, 5 + 30 * (i % 2), 4 + 13 * i) for i in range(count)]
    told: list[str] = []

    def work(n: int, d: int, k: int) -> None:
        try:
            for seed in range(rounds):
                X = points(n, d, k, np.float32 if d < 32 else np.float64)
                text = compared(quantized.search, X, k, max_iter=5, seed=seed, restarts=2, device=device)
                if text:
                    told.append(f"{n}×{d}, K={k}: {text}")
        except Exception as error:  # in a thread it would be lost
            told.append(f"{n}×{d}, K={k}: {type(error).__name__}: {' '.join(str(error).split())}"[:600])

    workers = [threading.Thread(target=work, args=shape) for shape in shapes]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    return "; ".join(told) or None
