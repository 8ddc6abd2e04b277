"""How close to the best known clusterings, in how much time: ours beside scikit-learn, bkmeans, flspp and faiss.

Everything runs on one thread, on the same data, in one process. Time is also given in fits: one fit is
KMeans(init="k-means++", n_init=1) of scikit-learn, measured here, so that the recorded rows of HG-means and MDEClust,
slow programs of other people that are not run here, can stand beside ours. The budgets of a case are what one fit of
bkmeans takes, multiples of that, and shares of what HG-means took. Peers start anew until the time is over. A peer that
is not installed is skipped: pip install bkmeans flspp superkmeans faiss-cpu.

--default compares what newcomers get: TabuKMeans(K).fit(X) and KMeans(K, n_init=10).fit(X), in processor time.

Data come through `gputabu.datasets.load`, or from a file: --file FILE --k K. The gap is there that to the best J of the
run, and the budget 200 fits.
"""

from __future__ import annotations

import os

for name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ[name] = "1"  # before anything that starts threads is imported

import argparse
import json
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.cluster import KMeans

from gputabu import TabuKMeans, datasets, relocation
from gputabu.backend import resolve
from gputabu.data import files

Start = Callable[[np.ndarray, int, int], np.ndarray]  # X, K, seed -> centres


@dataclass(frozen=True)
class Case:
    """A data set and a number of clusters, and what slow methods were recorded to reach: gap in percent and fits."""

    data: str
    k: int
    hgmeans: tuple[float, int] | None
    mdeclust: tuple[float, int] | None = None
    paper: bool = False  # a case of the paper: a second at the least
    fits: int = 0  # budget where HG-means was not recorded
    file: Path | None = None
    best: float | None = None  # J known, of data that `gputabu.datasets` does not have

    @property
    def name(self) -> str:
        return f"{self.data}_{self.k}"

    def budget(self, fit: float) -> float:
        """Seconds."""
        fits = self.fits if self.hgmeans is None else self.hgmeans[1]
        return max(fits * fit, 1.0 if self.paper else 0.0)


# fmt: off
CASES = [
    Case("iris", 3, (0.0, 12), (0.0, 17), paper=True),
    Case("glass", 6, (0.0, 48), (0.0, 66), paper=True),
    Case("bavaria1", 4, (0.0, 7), (0.0, 29), paper=True),
    Case("bavaria1", 5, (0.0, 7), (0.0, 27), paper=True),
    Case("bavaria2", 5, (0.0, 8), (0.0, 36), paper=True),
    Case("cloud", 10, (0.0005424, 356), (0.0, 351), paper=True),
    Case("cloud", 25, (0.08675, 1021), (0.001092, 1590), paper=True),
    Case("tsplib1060", 50, (0.125, 422)),
    Case("tsplib3038", 50, (0.0446, 665)),
    Case("image", 50, (0.03408, 1165)),
    Case("liver", 50, (1.026, 194)),
    Case("heart", 50, (0.6467, 238)),
    Case("breast", 50, (1.759, 235)),
    Case("a3", 50, (0.0, 180)),
    Case("letter", 50, None, fits=80),
    Case("tsplib1060", 10, (0.0, 134)),
    Case("tsplib3038", 10, (0.0, 148)),
    Case("image", 10, (0.0, 530)),
    Case("liver", 10, (0.0, 68)),
    Case("heart", 10, (0.0, 91)),
    Case("breast", 10, (0.0, 212)),
    Case("s4", 15, (1.211e-05, 262)),
    Case("unbalance", 8, (0.0, 149)),
    Case("norm25", 25, (0.0, 293)),
]
#: Large: <name>.npy in the folder GPUTABU_DATA.
LARGE = [
    Case("usa13509", 100, None, fits=80, best=1153912369460.7166),
    Case("d18512", 50, None, fits=80, best=2067810253.740801),
    Case("pla33810", 50, None, fits=80, best=34686154160935.535),
    Case("pla33810", 200, None, fits=80, best=7749462359396.486),
    Case("birch3", 100, None, fits=80, best=37148558560759.15),
    Case("debian12k", 50, None, fits=80, best=7966.696041542053),
    Case("debian12k", 300, None, fits=80, best=6591.429709742222),
]
# fmt: on
#: Gaps below this, in percent, are rounding.
NOTHING = 1e-8
#: The least gap that the picture shows, in percent.
FLOOR = 1e-3


@dataclass(frozen=True)
class Row:
    """Runs of one method on one case with the same budget, one per seed."""

    case: str
    method: str
    limit: str  # what the budget is: fits of bkmeans, or a share of HG-means' time
    budget: float  # seconds
    fit: float  # seconds
    J: list[float]
    gaps: list[float]  # percent above the best known
    seconds: list[float]


def sklearn_start(X: np.ndarray, k: int, seed: int) -> np.ndarray:
    return KMeans(k, init="k-means++", n_init=1, random_state=seed).fit(X).cluster_centers_


def ten_starts(X: np.ndarray, k: int, seed: int) -> np.ndarray:
    return KMeans(k, init="k-means++", n_init=10, random_state=seed).fit(X).cluster_centers_


def peers() -> dict[str, Start]:
    """What can be imported here."""
    found: dict[str, Start] = {"scikit-learn": sklearn_start, "n_init=10": ten_starts}
    try:
        from bkmeans import BKMeans

        found["bkmeans"] = lambda X, k, seed: BKMeans(n_clusters=k, random_state=seed).fit(X).cluster_centers_
    except ImportError as error:
        print(f"bkmeans is skipped: {error}")
    try:
        from flspp import FLSpp

        def local_search(X: np.ndarray, k: int, seed: int) -> np.ndarray:
            model = FLSpp(n_clusters=k, max_iter=100, local_search_iterations=20, random_state=seed)
            return np.asarray(model.fit(X).cluster_centers_)

        found["flspp"] = local_search
    except ImportError as error:
        print(f"flspp is skipped: {error}")
    try:
        from superkmeans import SuperKMeans

        def super_start(X: np.ndarray, k: int, seed: int) -> np.ndarray:
            model = SuperKMeans(
                k, X.shape[1], iters=100, seed=seed, n_threads=1, sampling_fraction=1.0, hierarchical=False
            )
            return np.asarray(model.train(X.astype(np.float32)), np.float64)

        found["SuperKMeans"] = super_start
    except ImportError as error:
        print(f"SuperKMeans is skipped: {error}")
    try:
        import faiss

        def faiss_start(X: np.ndarray, k: int, seed: int) -> np.ndarray:
            model = faiss.Kmeans(X.shape[1], k, niter=100, seed=seed + 1, min_points_per_centroid=1)
            model.train(X.astype(np.float32))
            return model.centroids.astype(np.float64)

        found["faiss"] = faiss_start
    except ImportError as error:
        print(f"faiss is skipped: {error}")
    return found


def objective(X: np.ndarray, centers: np.ndarray) -> float:
    """J at the centroids of the clusters of `centers`, by direct differences."""
    labels = np.empty(len(X), np.intp)
    for a in range(0, len(X), 1000):
        labels[a : a + 1000] = ((X[a : a + 1000, None] - centers) ** 2).sum(axis=2).argmin(axis=1)
    means = np.array([X[labels == k].mean(axis=0) if (labels == k).any() else c for k, c in enumerate(centers)])
    return float(((X - means[labels]) ** 2).sum())


def filled(start: Start, X: np.ndarray, k: int, seed: int, budgets: Sequence[float]) -> list[tuple[float, float]]:
    """The best of as many starts as each of the rising budgets allows, at least one, and the seconds they took."""
    best, number, spent, found = np.inf, 0, 0.0, []
    for budget in budgets:
        while number == 0 or spent * (number + 1) / number <= budget:
            begun = time.perf_counter()
            centers = start(X, k, 1000 * seed + number)
            spent += time.perf_counter() - begun
            best, number = min(best, objective(X, centers)), number + 1
        found.append((best, spent))
    return found


def ours(X: np.ndarray, k: int, seed: int, budget: float, backend: str, target: float = 0.0) -> tuple[float, float]:
    begun = time.perf_counter()
    found = relocation.search(X, k, max_time=budget, target=target, seed=seed, backend=backend)
    return found.inertia, time.perf_counter() - begun


def time_of_fit(start: Start, X: np.ndarray, k: int) -> float:
    """Seconds of one fit, on average over several seeds."""
    start(X, k, 0)
    seconds: list[float] = []
    while len(seconds) < 3 or (sum(seconds) < 1 and len(seconds) < 20):
        begun = time.perf_counter()
        start(X, k, len(seconds))
        seconds.append(time.perf_counter() - begun)
    return float(np.mean(seconds))


def load(case: Case) -> tuple[np.ndarray, float | None]:
    """The points, and the best J known."""
    if case.file is not None:
        return np.asarray(files.read(case.file).values, np.float64), None
    if case.best is not None:
        path = Path(os.environ.get("GPUTABU_DATA", ".")) / f"{case.data}.npy"
        if not path.exists():
            raise datasets.DataUnavailable(f"{path} does not exist")
        return np.load(path).astype(np.float64), case.best
    data = datasets.load(case.data, preprocessing="zscore" if case.data == "cloud" else "raw")
    return data.points, data.best_known[case.k]


def measure(case: Case, args: argparse.Namespace, backend: str, others: dict[str, Start]) -> list[Row]:
    X, least = load(case)
    relocation.search(X, case.k, max_iter=3, backend=backend)  # compiles what this size needs
    fit = time_of_fit(sklearn_start, X, case.k)
    short = time_of_fit(others.get("bkmeans", sklearn_start), X, case.k)
    known = 0.0 if least is None or not args.stop else least * (1 + NOTHING / 100)
    budgets = {f"{times:g} fits of bkmeans": times * short for times in args.times}
    budgets |= {f"{share:g} of HG-means' time": max(short, share * case.budget(fit)) for share in args.shares}
    budgets = dict(sorted(budgets.items(), key=lambda item: item[1]))
    found: list[tuple[str, str, list[tuple[float, float]]]] = []
    seeds = range(args.seeds)
    for limit, budget in budgets.items():
        found.append(("gputabu", limit, [ours(X, case.k, seed, budget, backend, known) for seed in seeds]))
    if case.hgmeans is not None and least is not None:
        longest, target = list(budgets)[-1], least * (1 + max(case.hgmeans[0], NOTHING) / 100)
        until = [ours(X, case.k, seed, budgets[longest], backend, target) for seed in seeds]
        found.append(("gputabu to HG-means", longest, until))
    for method, start in others.items():
        runs = [filled(start, X, case.k, seed, list(budgets.values())) for seed in seeds]
        for limit, there in zip(budgets, zip(*runs, strict=True), strict=True):
            found.append((method, limit, list(there)))
    best = min(J for _, _, runs in found for J, _ in runs) if least is None else least
    rows = []
    for method, limit, runs in found:
        J, seconds = (list(side) for side in zip(*runs, strict=True))
        gaps = [100 * (j / best - 1) for j in J]
        rows.append(Row(case.name, method, limit, budgets[limit], fit, J, gaps, seconds))
        show(rows[-1])
    for method, record in (("HG-means", case.hgmeans), ("MDEClust", case.mdeclust)):
        if record is not None:
            print(f"{case.name:14} {method:20} recorded: gap {record[0]:9.5f} % in {record[1]} fits")
    return rows


def show(row: Row) -> None:
    seconds = float(np.mean(row.seconds))
    print(
        f"{row.case:14} {row.method:20} J {min(row.J):.10g} … {max(row.J):.10g}  gap {np.mean(row.gaps):9.5f} % "
        f"(worst {max(row.gaps):.5f})  {seconds:7.2f} s = {seconds / row.fit:6.0f} fits of {row.budget / row.fit:.0f}",
        flush=True,
    )


def verdicts(rows: list[Row]) -> list[str]:
    """Where we are behind: HG-means with the largest budget, others with any."""
    lines = []
    recorded = {case.name: case for case in CASES}
    for name in dict.fromkeys(row.case for row in rows):
        there = [row for row in rows if row.case == name]
        mine = {row.limit: float(np.mean(row.gaps)) for row in there if row.method == "gputabu"}
        record = recorded[name].hgmeans if name in recorded else None
        last = list(mine)[-1]
        if "HG" in last and record is not None and mine[last] > max(record[0], NOTHING):
            lines.append(f"{name}: mean gap {mine[last]:.5f} % is above {max(record[0], NOTHING):.5f} %")
        for row in there:
            if "gputabu" not in row.method and np.mean(row.gaps) < mine[row.limit] - NOTHING:
                other = f"{row.method}: {np.mean(row.gaps):.5f} %"
                lines.append(f"{name}, {row.limit} ({row.budget:.2f} s): {mine[row.limit]:.5f} %, behind {other}")
    return lines or ["ahead, or at the best known, everywhere"]


def table(rows: list[Row], limit: str) -> str:
    """Mean gaps with one budget as a table in Markdown, a row per case."""
    methods = list(dict.fromkeys(row.method for row in rows if "to HG" not in row.method))
    recorded = {case.name: case for case in CASES}
    lines = [f"| case | seconds | fits | {' | '.join(methods)} | HG-means, fits |", "|---" * (len(methods) + 4) + "|"]
    for name in dict.fromkeys(row.case for row in rows):
        there = {row.method: row for row in rows if row.case == name and row.limit == limit}
        mine, record = there["gputabu"], recorded[name].hgmeans if name in recorded else None
        gaps = [_percent(float(np.mean(there[method].gaps))) if method in there else "–" for method in methods]
        known = "–" if record is None else f"{_percent(record[0])}, {record[1]}"
        lines.append(
            f"| {name} | {mine.budget:.2g} | {mine.budget / mine.fit:.0f} | **{gaps[0]}** | "
            f"{' | '.join([*gaps[1:], known])} |"
        )
    return "\n".join(lines) + "\n"


def _percent(gap: float) -> str:
    return "0" if abs(gap) < 5e-5 else f"{gap:.2g}"


def plot(rows: list[Row], path: Path) -> None:
    """Gap against time, a panel per case and a curve per method: below the lowest line nobody knows better."""
    import matplotlib.pyplot as plt

    names = list(dict.fromkeys(row.case for row in rows))
    methods = list(dict.fromkeys(row.method for row in rows if "to HG" not in row.method))
    columns = min(4, len(names))
    lines = -(-len(names) // columns)
    figure, axes = plt.subplots(lines, columns, squeeze=False, figsize=(3.4 * columns, 2.7 * lines + 0.6))
    for axis in axes.flat[len(names) :]:
        axis.set_visible(False)
    for axis, name in zip(axes.flat, names, strict=False):
        for i, method in enumerate(methods):
            there = [row for row in rows if row.case == name and row.method == method]
            axis.plot(
                [np.mean(row.seconds) / row.fit for row in there], [max(np.mean(row.gaps), FLOOR) for row in there],
                marker="o", markersize=5 if i == 0 else 3, linewidth=2.2 if i == 0 else 1, label=method,
                color="black" if i == 0 else f"C{i - 1}", zorder=3 if i == 0 else 2,
            )  # fmt: skip
        record = next((case.hgmeans for case in CASES if case.name == name), None)
        if record is not None:
            axis.plot(
                record[1], max(record[0], FLOOR), "*", color="black", fillstyle="none", markersize=9, label="HG-means"
            )
        axis.set(xscale="log", yscale="log", ylim=(FLOOR / 2, None))
        axis.set_title(name.replace("_", ", K = "), fontsize=10)
        axis.grid(alpha=0.25, which="major")
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8, which="both")
    labels = {
        label: handle for axis in axes.flat for handle, label in zip(*axis.get_legend_handles_labels(), strict=True)
    }
    figure.supxlabel("time, in fits of scikit-learn's KMeans", fontsize=9)
    figure.supylabel("mean gap to the best known J, in percent", fontsize=9)
    figure.legend(labels.values(), labels.keys(), loc="upper center", ncols=len(labels), fontsize=8, frameon=False)
    figure.tight_layout(rect=(0, 0, 1, 1 - 0.35 / (2.7 * lines + 0.6)))
    figure.savefig(path)
    plt.close(figure)


def newcomers(case: Case, seeds: int) -> tuple[float, list[float]]:
    """TabuKMeans(K) beside KMeans(K, n_init=10): the ratio of their processor times, and gaps of J in percent."""
    X, _ = load(case)
    TabuKMeans(case.k, effort=0.1, random_state=0).fit(X)  # compiles what this size needs
    seconds: dict[str, list[float]] = {"ours": [], "theirs": []}
    gaps = []
    for seed in range(seeds):
        J = {}
        for name, model in (("theirs", KMeans(case.k, n_init=10, random_state=seed)),
                            ("ours", TabuKMeans(case.k, random_state=seed))):  # fmt: skip
            begun = time.process_time()
            J[name] = model.fit(X).inertia_
            seconds[name].append(time.process_time() - begun)
        gaps.append(100 * (J["ours"] / J["theirs"] - 1))
    ours, theirs = (float(np.mean(seconds[name])) for name in ("ours", "theirs"))
    print(f"{case.name:14} {ours:7.3f} s, {ours / theirs:5.2f} of {theirs:7.3f} s; J {np.mean(gaps):+8.4f} % "
          f"(at worst {max(gaps):+.4f} %)", flush=True)  # fmt: skip
    return ours / theirs, gaps


def compare_defaults(cases: Sequence[Case], seeds: int) -> None:
    """A line per case, and all of them together."""
    found = []
    for case in cases:
        try:
            found.append(newcomers(case, seeds))
        except datasets.DataUnavailable as error:
            print(f"{case.name} is skipped: {error}")
    ratios, gaps = [ratio for ratio, _ in found], [gap for _, gaps in found for gap in gaps]
    print(f"J lower or equal to 1e-6 in {100 * np.mean(np.array(gaps) <= 1e-4):.1f} % of {len(gaps)} fits; "
          f"time {np.exp(np.mean(np.log(ratios))):.2f} in the geometric mean, {max(ratios):.2f} at worst")  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    every = CASES + LARGE
    parser.add_argument("--cases", nargs="*", default=[case.name for case in every])
    parser.add_argument("--file", type=Path, help="points to take instead: a .csv or anything that `gputabu fit` reads")
    parser.add_argument("--k", type=int, default=50, help="clusters, with --file")
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--times", type=float, nargs="+", default=[1.0, 4.0], help="fits of bkmeans")
    parser.add_argument("--shares", type=float, nargs="*", default=[0.5, 1.0], help="of the budget of HG-means")
    parser.add_argument("--default", action="store_true", help="TabuKMeans(K) beside KMeans(K, n_init=10) instead")
    parser.add_argument("--stop", action="store_true", help="ours stops at the best known J")
    parser.add_argument("--ours", action="store_true", help="no peers")
    parser.add_argument("--backend", default="auto")
    parser.add_argument("--out", type=Path, default=Path("quality"))
    args = parser.parse_args()
    warnings.filterwarnings("ignore", module="sklearn")
    backend = resolve(args.backend)
    others = {} if args.ours or args.default else peers()
    rows: list[Row] = []
    wanted = [case for case in every if case.name in args.cases]
    if args.file is not None:
        wanted = [Case(args.file.stem, args.k, None, fits=200, file=args.file)]
    if args.default:
        compare_defaults(wanted, args.seeds)
        return
    for case in wanted:
        try:
            rows += measure(case, args, backend, others)
        except datasets.DataUnavailable as error:
            print(f"{case.name} is skipped: {error}")
    args.out.mkdir(exist_ok=True)
    result: dict[str, Any] = {"backend": backend, "seeds": args.seeds, "rows": [asdict(row) for row in rows]}
    (args.out / "quality.json").write_text(json.dumps(result, indent=1))
    if rows:
        print(*verdicts(rows), sep="\n")
        for limit in dict.fromkeys(row.limit for row in rows):
            print(f"\nMean gap in percent within {limit}:\n\n{table(rows, limit)}")
        plot(rows, args.out / "quality.svg")


if __name__ == "__main__":
    main()
