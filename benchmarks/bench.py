"""Quality on the paper's cases, speed against scikit-learn, batches against single fits, and memory.

The paper's data are read from the folder named by GPUTABU_DATA (iris.csv, glass.csv, bavaria1.csv, cloud.csv:
numbers without a header). Without it, Iris comes from scikit-learn and the rest is skipped.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.datasets import load_iris
from threadpoolctl import threadpool_info

from gputabu import Clustering, Points, QuantizedTabuKMeans, datasets, lloyd, quantized, reassignment
from gputabu.backend import numba_unusable, open_backend
from gputabu.backend.numpy.threads import thread_count
from gputabu.cli import timing as speeds
from gputabu.cli.reproduce.paper import TABLES
from gputabu.cli.timing import tabu_step, timed

try:
    import faiss
except ImportError:
    faiss = None

FOLDER = os.environ.get("GPUTABU_DATA", "")
RESTARTS = 100
#: The paper's four, as it had them: random starts, plain K-Means++ seeding, TSC without refinement.
METHODS: dict[str, Callable[..., Clustering]] = {
    "K-Means": lambda X, k, **on: lloyd.run(X, k, init="random", restarts=RESTARTS, **on),
    "K-Means++": lambda X, k, **on: lloyd.run(X, k, init="k-means++", trials=1, restarts=RESTARTS, **on),
    "TSC": lambda X, k, **on: reassignment.search(X, k, restarts=RESTARTS, **on),
    "QM-TS": lambda X, k, **on: quantized.search(X, k, init="random", restarts=RESTARTS, **on),
}


@dataclass(frozen=True)
class Case:
    """A table of the paper: worst, average and best J of each of METHODS, as printed."""

    table: str
    file: str
    k: int
    best_known: float
    style: str  # how the paper prints J
    paper: tuple[tuple[float, float, float], ...]

    @property
    def name(self) -> str:
        return f"{self.file.capitalize().rstrip('1')}-{self.k}"

    def load(self) -> np.ndarray | None:
        """The points, or None where they are not at hand."""
        if not FOLDER:
            return load_iris().data if self.file == "iris" else None
        path = Path(FOLDER) / f"{self.file}.csv"
        if not path.exists():
            return None
        X = np.loadtxt(path, delimiter=",")
        return (X - X.mean(axis=0)) / X.std(axis=0, ddof=1) if self.file == "cloud" else X


CASES = tuple(
    Case(
        table.number,
        table.dataset,
        table.k,
        datasets.SOURCES[table.dataset].best_known[table.k],
        table.style,
        tuple((row.worst, row.average, row.best) for row in map(table.rows.get, METHODS)),
    )
    for table in TABLES.values()
)
#: (N, d, K) of the speed section.
ROUNDS = 3
SIZES = (
    (100_000, 16, 64), (1_000_000, 8, 10), (20_000, 128, 256),
    (200_000, 32, 100), (5_000_000, 2, 5), (50_000, 64, 1000),
)  # fmt: skip
#: (N, d, K) of the growth section.
GROWTH = {
    "N": [(n, 16, 64) for n in (50_000, 158_000, 500_000, 1_580_000, 5_000_000)],
    "K": [(40_000, 128, k) for k in (200, 632, 2000, 6320, 20_000)],
    "d": [(20_000, d, 100) for d in (60, 190, 600, 1900, 6000)],
}
BACKENDS = ["numpy"] if numba_unusable() else ["numba", "numpy"]


def quality() -> list[dict[str, Any]]:
    """Worst, average and best J of 100 restarts, beside the paper's."""
    rows: list[dict[str, Any]] = []
    for case, X in at_hand(CASES):
        print(f"\n{case.name} (Table {case.table}), best known J {case.best_known:.8g}")
        print(f"{'':9}{'here:':>9}{'':18}{'paper:':>9}{'':18}{'avg gap':>9}")
        print(f"{'':9}{'worst      avg     best    worst      avg     best':>54}{'%':>9}{'ms/run':>8}")
        for (method, run), paper in zip(METHODS.items(), case.paper, strict=True):
            seconds, found = timed(run, X, case.k)
            row = summary(case, method, found, seconds) | {"paper": paper}
            values = [row["worst"], row["average"], row["best"], *paper]
            cells = "".join(f"{value:>9{case.style}}" for value in values)
            print(f"{method:9}{cells}{row['gap_percent']:>9.3f}{row['ms_per_run']:>8.2f}")
            rows.append(row)
        # QM-TS comes last. Its average is compared at the precision that the paper prints.
        row["at_or_below_paper"] = float(format(row["average"], case.style)) <= paper[1]
        print(f"QM-TS on average at or below the paper's: {yes(row['at_or_below_paper'])}")
    verdicts = [row["at_or_below_paper"] for row in rows if row["method"] == "QM-TS"]
    print(f"\nQM-TS on average at or below the paper's in {sum(verdicts)} of {len(verdicts)} cases")
    return rows


def summary(case: Case, method: str, found: Clustering, seconds: float) -> dict[str, Any]:
    average = float(found.inertias.mean())
    return {
        "case": case.name,
        "method": method,
        "worst": float(found.inertias.max()),
        "average": average,
        "best": float(found.inertias.min()),
        "gap_percent": 100 * (average / case.best_known - 1),
        "ms_per_run": 1000 * seconds / RESTARTS,
    }


def speed() -> list[dict[str, Any]]:
    """Milliseconds per iteration on standard normal points, ours and scikit-learn's."""
    pools = [info["num_threads"] for info in threadpool_info() if info["user_api"] == "openmp"]
    print(f"threads: gputabu {thread_count()}, scikit-learn {max(pools, default=1)}; median of {ROUNDS} rounds")
    print(f"{'':27}{'sklearn':>9}", end="")
    for backend in BACKENDS:
        print(f"{f'tabu, {backend}':>16}{f'Lloyd, {backend}':>16}", end="")
    print(f"{'faiss':>16}" if faiss else "")
    rows = []
    for n, d, k in SIZES:
        for dtype in (np.float32, np.float64):
            times = per_iteration(n, d, k, dtype)
            rows.append({"n": n, "d": d, "k": k, "dtype": np.dtype(dtype).name} | times)
            print(f"{n:>9}{d:>5}{k:>5}  {np.dtype(dtype).name:8}{times['sklearn']:>7.2f}ms", end="")
            for value in list(times.values())[1:]:
                print(f"{value:>9.2f}{value / times['sklearn']:>6.2f}x", end="")
            print(flush=True)
    known = {"n", "d", "k", "dtype", "sklearn"}
    for name in dict.fromkeys(name for row in rows for name in row if name not in known):  # faiss is not in all rows
        ratios = [row[name] / row["sklearn"] for row in rows if name in row]
        mean = statistics.geometric_mean(ratios)
        print(f"{name} iteration / scikit-learn's: geometric mean {mean:.2f}, worst {max(ratios):.2f}")
    return rows


def per_iteration(n: int, d: int, k: int, dtype: type) -> dict[str, float]:
    """Milliseconds of all kinds of iteration; of faiss as well, where it is installed."""
    X = np.random.default_rng(0).standard_normal((n, d), dtype=dtype)
    start = X[np.arange(k) * (n // k)]

    def of_faiss(rounds: int) -> float:
        model = faiss.Kmeans(d, k, niter=rounds, max_points_per_centroid=n, min_points_per_centroid=1)
        return timed(lambda: model.train(X, init_centroids=start))[0]

    others = {"Lloyd, faiss": of_faiss} if faiss and dtype is np.float32 else {}  # it knows no other
    return speeds.per_iteration(X, k, BACKENDS, ROUNDS, others)


def growth(plot: Path | None = None) -> list[dict[str, Any]]:
    """Milliseconds of a tabu iteration as N, K and d grow a hundredfold, and the exponents of a fit."""
    backend = BACKENDS[0]
    rows = []
    for axis, sizes in GROWTH.items():
        times = [least_step(backend, *size) for size in sizes]
        values = [size["NdK".index(axis)] for size in sizes]
        exponent = float(np.polyfit(np.log(values), np.log(times), 1)[0])
        others = ", ".join(f"{name} = {sizes[0]['NdK'.index(name)]}" for name in "NdK" if name != axis)
        cells = "".join(f"{value:>10}: {1000 * t:7.2f}" for value, t in zip(values, times, strict=True))
        print(f"{backend}, {others}; {axis} ={cells}   exponent {exponent:.2f}", flush=True)
        rows.append({"axis": axis, "fixed": others, "values": values, "seconds": times, "exponent": exponent})
    if plot is not None:
        draw_growth(rows, plot)
    return rows


def least_step(backend: str, n: int, d: int, k: int) -> float:
    """Seconds of the fastest of some tabu iterations.

    On K clusters: how many points change cluster, which costs time as well, would depend on N, K and d otherwise.
    """
    rng = np.random.default_rng(0)
    X = rng.standard_normal((n, d), dtype=np.float32)
    X += 20 * rng.standard_normal((k, d), dtype=np.float32)[np.arange(n) % k]
    with open_backend(Points.of(X), backend) as opened:
        return tabu_step(opened, np.arange(k)[None], min)


def draw_growth(rows: list[dict[str, Any]], file: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 3.4), layout="constrained")
    for axes, row in zip(figure.subplots(1, len(rows), sharey=True), rows, strict=True):
        ms = [1000 * seconds for seconds in row["seconds"]]
        axes.loglog(row["values"], ms, "o-")
        axes.loglog(row["values"], [ms[-1] * v / row["values"][-1] for v in row["values"]], ":", label="linear")
        axes.set(xlabel=row["axis"], title=f"{row['fixed']}\nexponent {row['exponent']:.2f}")
        axes.legend(frameon=False)
    figure.axes[0].set_ylabel("ms per tabu iteration")
    figure.savefig(file, dpi=150)
    print(f"plot written to {file}")


def restarts() -> list[dict[str, Any]]:
    """Seconds of 100 restarts of QM-TS against 100 of scikit-learn's KMeans from random starts."""
    rows = []
    for case, X in at_hand([case for case in CASES if case.name in ("Iris-3", "Glass-6", "Cloud-25")]):
        backend = BACKENDS[0]
        model = KMeans(case.k, init="random", n_init=RESTARTS, random_state=0)
        quantized.search(X, case.k, backend=backend)  # what is compiled at the first use is not counted
        pairs = [(timed(model.fit, X)[0], timed(all_at_once, X, case.k, backend)[0]) for _ in range(ROUNDS)]
        theirs, ours = (statistics.median(side) for side in zip(*pairs, strict=True))
        row = {"case": case.name, "sklearn_s": theirs, "qmts_s": ours, "ratio": ours / theirs}
        print(f"{case.name:10}scikit-learn {theirs:7.3f}   QM-TS, {backend} {ours:7.3f}   ratio {row['ratio']:.2f}")
        rows.append(row)
    return rows


def start() -> dict[str, float]:
    """Seconds to import, and of a first fit of Iris with nothing compiled yet, and with code kept on disk."""
    imports = [fresh(IMPORT) for _ in range(ROUNDS)]
    row = {"import_beyond_sklearn": statistics.median(imports)}
    if BACKENDS[0] == "numba":
        with tempfile.TemporaryDirectory() as folder:
            row["cold_first_fit"] = fresh(FIRST_FIT, NUMBA_CACHE_DIR=folder)
            row["warm_first_fit"] = statistics.median(fresh(FIRST_FIT, NUMBA_CACHE_DIR=folder) for _ in range(ROUNDS))
    for name, value in row.items():
        print(f"{name:24}{value:6.2f} s")
    return row


#: Programs that print seconds. The second prints what a first fit takes longer than a second one.
IMPORT = """
import time, sklearn.cluster
begun = time.perf_counter()
import gputabu
print(time.perf_counter() - begun)
"""
FIRST_FIT = """
import time
from sklearn.datasets import load_iris
import gputabu
X, taken = load_iris().data, []
for _ in range(2):
    begun = time.perf_counter()
    gputabu.QuantizedTabuKMeans(3, random_state=0, backend="numba").fit(X)
    taken.append(time.perf_counter() - begun)
print(taken[0] - taken[1])
"""


def fresh(program: str, **environment: str) -> float:
    """What a program prints, run by a Python of its own."""
    done = subprocess.run(
        [sys.executable, "-c", program], env=os.environ | environment, capture_output=True, text=True, check=True
    )
    return float(done.stdout)


def batch() -> list[dict[str, Any]]:
    """100 restarts at once (the mean of once before and once after) against one by one, on NumPy."""
    print(f"{'':10}{'batch s':>10}{'single s':>10}{'ratio':>8}  equal")
    rows = []
    for case, X in at_hand([case for case in CASES if case.name in ("Iris-3", "Glass-6", "Cloud-25")]):
        before, found = timed(all_at_once, X, case.k, "numpy")
        apart, singles = timed(one_by_one, X, case.k)
        after, _ = timed(all_at_once, X, case.k, "numpy")
        row = {"case": case.name, "batch_s": (before + after) / 2, "single_s": apart}
        row |= {"ratio": row["batch_s"] / apart, "equal": same(found, singles)}
        print(f"{case.name:10}{row['batch_s']:>10.2f}{apart:>10.2f}{row['ratio']:>8.3f}  {yes(row['equal'])}")
        rows.append(row)
    return rows


def all_at_once(X: np.ndarray, k: int, backend: str) -> Clustering:
    return quantized.search(X, k, init="random", restarts=RESTARTS, backend=backend)


def one_by_one(X: np.ndarray, k: int) -> list[Clustering]:
    return [quantized.search(X, k, init="random", restarts=[i], backend="numpy") for i in range(RESTARTS)]


def same(found: Clustering, singles: list[Clustering]) -> bool:
    """Whether the batch went the ways of the single fits and ended at the same bits."""
    won = singles[found.restart]
    pairs = [(won.centers, found.centers), (won.labels, found.labels)]
    for row, single in enumerate(singles):
        way = single.trace.means[0]
        pairs += [(way, found.trace.means[row, : len(way)]), (single.inertias, found.inertias[row : row + 1])]
    return all(np.array_equal(one, other) for one, other in pairs)


def memory() -> list[dict[str, Any]]:
    """Peak memory of a large fit, in a process of its own."""
    if platform.system() != "Linux":
        print("skipped: peak memory is read from /proc, which only Linux has")
        return []
    rows = []
    for backend in BACKENDS:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            row = {"backend": backend} | process.submit(large_fit, backend).result()
        print(f"QuantizedTabuKMeans(100), 2M×16 float32, {backend}: X is {row['x_mb']:.0f} MB, {row['seconds']:.0f} s")
        print(f"peak above X: {row['peak_above_x_mb']:.0f} MB (limit 600)")
        rows.append(row)
    return rows


def large_fit(backend: str) -> dict[str, float]:
    X = np.random.default_rng(0).standard_normal((2_000_000, 16), dtype=np.float32)
    before = resident_mb("VmRSS")
    # Only centroids, because K-Means takes long to converge on noise and holds the same arrays.
    model = QuantizedTabuKMeans(
        100, init="k-means++", max_iter=3, patience=3, refine="centroid", random_state=0, backend=backend
    )
    seconds, _ = timed(model.fit, X)
    return {"x_mb": X.nbytes / 1e6, "seconds": seconds, "peak_above_x_mb": resident_mb("VmHWM") - before}


def resident_mb(field: str) -> float:
    """Memory now (VmRSS) or at its peak (VmHWM). getrusage would also count the parent's peak before exec."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith(field))


def at_hand(cases: Any) -> list[tuple[Case, np.ndarray]]:
    """The cases whose data can be read; prints which cannot."""
    loaded = [(case, case.load()) for case in cases]
    missing = [case.name for case, X in loaded if X is None]
    if missing:
        why = "has no such files" if FOLDER else "is not set"
        print(f"skipped {', '.join(missing)}: GPUTABU_DATA {why}")
    return [(case, X) for case, X in loaded if X is not None]


def yes(value: bool) -> str:
    return "yes" if value else "NO"


SECTIONS: dict[str, Callable[..., Any]] = {
    "quality": quality,
    "speed": speed,
    "growth": growth,
    "restarts": restarts,
    "start": start,
    "batch": batch,
    "memory": memory,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", default=",".join(SECTIONS), metavar="LIST", help="of %(default)s")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the results to FILE")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="also draw the growth into FILE")
    arguments = parser.parse_args()
    wanted = arguments.only.split(",")
    if unknown := [name for name in wanted if name not in SECTIONS]:
        parser.error(f"--only: {', '.join(unknown)} is none of {', '.join(SECTIONS)}")
    results = {}
    for name in wanted:
        print(f"\n== {name}: {SECTIONS[name].__doc__}", flush=True)
        results[name] = growth(arguments.plot) if name == "growth" else SECTIONS[name]()
    if arguments.json:
        arguments.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
