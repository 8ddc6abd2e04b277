"""What `gputabu accept` tries: a sweep over shapes, and what devices were expected to fail at."""

from __future__ import annotations

import multiprocessing
import tempfile
import warnings
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import gputabu
from gputabu.algorithms import lloyd, quantized, reassignment, relocation
from gputabu.backend import open_backend
from gputabu.backend.tuning import Tuning
from gputabu.cli import equality
from gputabu.cli.equality import Case, Search, Skipped, array_difference, compared, points
from gputabu.data.points import Points

#: Numbers of the sweep: combined by chance, always in the same way.
AXES: dict[str, tuple[Any, ...]] = {
    "n": (60, 700, 5000, 30_000),
    "d": (1, 2, 4, 7, 16, 31, 32, 33, 64, 130),
    "k": (1, 2, 7, 32, 65, 300),
    "restarts": (1, 2, 3, 9, 40),
    "dtype": (np.float32, np.float64),
    "weighted": (False, True),
    "data": ("round", "repeated", "whole"),
    "way": ("resident", "streamed", "on the device"),
}
#: N·d·K·R at the most, for NumPy's sake.
WORK = 10**8
SEARCHES: dict[str, Search] = {
    "QM-TS": partial(quantized.search, max_iter=8),
    "QM-TS, global": partial(quantized.search, max_iter=8, scope="global", init="k-means++"),
    "relocation": partial(relocation.search, max_iter=8),
    "TSC": partial(reassignment.search, max_iter=8),
    "K-Means": partial(lloyd.run, max_iter=30),
    "K-Means and Hartigan": partial(lloyd.run, max_iter=30, init="random", refine="hartigan"),
}
#: Seconds after which a child process counts as hung.
PATIENCE = 120


def cases(device: int | None, quick: bool) -> list[Case]:
    """All of them, the likeliest to fail first."""
    return [*rows(device, quick), *sweep(device, 8 if quick else 72, 10**6 if quick else WORK)]


# ---- the sweep


def sweep(device: int | None, count: int, work: int) -> Iterator[Case]:
    """`count` combinations of the axes; every search and every way of holding the points gets its share."""
    rng, names = np.random.default_rng(17), list(SEARCHES)
    for i in range(count):
        one = {axis: values[int(rng.integers(len(values)))] for axis, values in AXES.items()}
        one["way"] = AXES["way"][i // len(names) % len(AXES["way"])]
        one["k"] = min(one["k"], one["n"])
        for axis in ("n", "restarts"):
            while one["n"] * one["d"] * one["k"] * one["restarts"] > work and one[axis] > (60, 1)[axis == "restarts"]:
                one[axis] = max(one[axis] // 2, (60, 1)[axis == "restarts"])
        one["k"] = min(one["k"], one["n"])
        name = names[i % len(names)]
        yield Case("sweep", f"{name}, {described(one)}", partial(once, SEARCHES[name], one, device, i))


def described(one: dict[str, Any]) -> str:
    words = [f"{one['n']}×{one['d']} {np.dtype(one['dtype'])}", f"K={one['k']}", f"R={one['restarts']}"]
    words += ["weights"] if one["weighted"] else []
    words += {"round": [], "repeated": ["repeated points"], "whole": ["whole numbers"]}[one["data"]]
    return ", ".join([*words, *([] if one["way"] == "resident" else [one["way"]])])


def once(search: Search, one: dict[str, Any], device: int | None, seed: int) -> str | None:
    """One search of the sweep."""
    n, d, k, rng = one["n"], one["d"], one["k"], np.random.default_rng(seed)
    X = points(n, d, k, one["dtype"], seed)
    if one["data"] == "repeated":
        X = X[rng.integers(max(k, n // 4), size=n)]
    elif one["data"] == "whole":  # ties
        X = np.rint(X)
    weights = rng.integers(0, 4, n) / 2 + (np.arange(n) < k) if one["weighted"] else None
    options = {"weights": weights, "restarts": one["restarts"], "seed": seed}
    if one["way"] == "on the device":
        return on_the_device(search, X, k, device, **options)
    backend: Any = "cuda" if one["way"] == "resident" else partial(streamed, device=device)
    return compared(search, X, k, backend, device=device, **options)


def on_the_device(search: Search, X: np.ndarray, k: int, device: int | None, **options: Any) -> str | None:
    """Points that are a device array come back as such."""
    from gputabu.backend.cuda import diagnosis

    there = search(diagnosis.on_gpu(X, device), k, **options)
    wanted = search(X, k, backend="numpy", **options)
    for name, array, other in (
        ("labels", there.labels, wanted.labels),
        ("centres", there.centers, wanted.centers),
        ("values of J", there.inertias, wanted.inertias),
    ):
        if text := array_difference(array.get() if hasattr(array, "get") else array, other):
            return f"{name} differ from NumPy's: {text}"
    return None


def streamed(held: Points, device: int | None = None) -> Any:
    """A backend that streams points through small buffers though they would fit."""
    from gputabu.backend.cuda.backend import CudaBackend

    backend = CudaBackend(held, device, Tuning(resident_share=0.0))
    backend.run(lambda: backend.chunks.shrink() and backend.chunks.shrink())
    return backend


# ---- the table of what was expected to fail


def rows(device: int | None, quick: bool) -> Iterator[Case]:
    """A case or more for each row; those that a run cannot provoke, such as a capture that fails, are left to tests."""
    big = 1 if quick else 4
    wanted: dict[str, Callable[[], str | None]] = {
        "1: float64, several restarts": partial(equality.double_precision, device, 1500 * big),
        "2: 64 features": partial(equality.wide_points, device, 400 * big),
        "3: denormal and huge float32": partial(far_scales, device),
        "3: transform of denormal distances": partial(tiny_distances, device),
        "4: many restarts": partial(equality.many_restarts, device, 2000 if quick else 12_000, 150),
        "5: many clusters": partial(equality.many_clusters, device, 1000 if quick else 9000),
        "6: threads": partial(equality.threads, device, 2 if quick else 6, 1 if quick else 5),
        "7: streamed points, after memory was given up": partial(streaming, device, 3000 * big),
        "8: a second fit keeps its points on the device": partial(stays_resident, device),
        "9: points from a file": partial(mapped, device),
        "11: a forked child": partial(forked),
        "12: every kernel compiles": compiles,
        "13: a long search in one launch": partial(long_search, device, 200 if quick else 3000),
        "15: points and labels on the device": partial(device_arrays, device),
    }
    for name, check in wanted.items():
        number, text = name.split(": ")
        yield Case(f"row {number}", text, check)


def far_scales(device: int | None) -> str | None:
    for e in (-149, -130, -100, 100, 122):
        for n, d, k in ((180, 4, 3), (900, 12, 5), (300, 40, 6)):
            X = np.ldexp(points(n, d, k), e).astype(np.float32)
            for search in (quantized.search, lloyd.run):
                text = compared(search, X, k, max_iter=5, init="random", device=device)
                if text:
                    return f"{n}×{d}·2^{e}: {text}"
    return None


def tiny_distances(device: int | None) -> str | None:
    X = np.outer(np.arange(60) ** 2, [1, 3]).astype(np.float32) * np.finfo(np.float32).smallest_subnormal
    centers = X[::20].astype(float)
    found = []
    for backend, where in (("cuda", device), ("numpy", None)):
        with open_backend(Points.of(X), backend, where) as opened:
            found.append(opened.distances(centers))
    return array_difference(*found)


def streaming(device: int | None, n: int) -> str | None:
    X = points(n, 6, 5, np.float32)
    weights = np.random.default_rng(0).random(n)
    backend = partial(streamed, device=device)
    for search in (quantized.search, lloyd.run):
        if text := compared(search, X, 5, backend, weights=weights, restarts=2, max_iter=6):
            return text
    return None


def stays_resident(device: int | None) -> str | None:
    """Blocks that CuPy keeps for later must not count as used."""
    held = Points.of(points(20_000, 8, 5, np.float32))
    for number in ("first", "second", "third"):
        with open_backend(held, "cuda", device) as opened:
            found: Any = opened
            if found.chunks.resident is None:
                return f"the {number} backend streams 20000×8 float32"
    return None


def mapped(device: int | None) -> str | None:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "points.npy"
        np.save(file, points(4000, 9, 6, np.float32))
        X = np.load(file, mmap_mode="r")
        text = compared(lloyd.run, X, 6, restarts=2, device=device)
        del X  # Windows does not remove a file that is open
    return text


def forked() -> str | None:
    """CUDA cannot be used in a child that was forked after it; "auto" must notice and compute the same elsewhere."""
    if "fork" not in multiprocessing.get_all_start_methods():
        raise Skipped("processes are not forked on this system")
    context, X = multiprocessing.get_context("fork"), points(500, 4, 3)
    lloyd.run(X, 3, backend="cuda")  # so that CUDA is in use
    inbox, outbox = context.Pipe(duplex=False)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # Python's, about forks beside threads
        child = context.Process(target=in_child, args=(X, outbox))
        child.start()
    found = inbox.recv() if inbox.poll(PATIENCE) else f"it did not answer within {PATIENCE} s"
    child.terminate()
    child.join()
    if isinstance(found, str):
        return f"a fit in the child failed: {found}"
    return array_difference(found, lloyd.run(X, 3, backend="numpy").labels)


def in_child(X: np.ndarray, outbox: Any) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outbox.send(lloyd.run(X, 3).labels)
    except Exception as error:
        outbox.send(f"{type(error).__name__}: {' '.join(str(error).split())}"[:600])


def compiles() -> str | None:
    from gputabu.backend.cuda import diagnosis

    diagnosis.compile_all((1, 4, 16, 32))
    return None


def long_search(device: int | None, iterations: int) -> str | None:
    """Displays end launches that take long."""
    X = points(150, 4, 3)
    return compared(quantized.search, X, 3, max_iter=iterations, patience=iterations, device=device)


def device_arrays(device: int | None) -> str | None:
    from gputabu.backend.cuda import diagnosis

    X = points(800, 6, 4, np.float32)
    there = diagnosis.on_gpu(X, device)
    here = gputabu.KMeans(4, random_state=0, backend="numpy").fit(X)
    fitted = gputabu.KMeans(4, random_state=0).fit(there)
    for name, array, other in (
        ("labels", fitted.labels_, here.labels_),
        ("predicted labels", fitted.predict(there), here.predict(X)),
        ("distances", fitted.transform(there), here.transform(X)),
    ):
        if text := array_difference(array.get(), other):
            return f"{name} differ from NumPy's: {text}"
    return None
