"""`gputabu bench`: the speed on this machine, compared with scikit-learn."""

from __future__ import annotations

import json
from typing import Annotated, Any

import numpy as np
import typer
from sklearn.cluster import KMeans
from threadpoolctl import threadpool_info

import gputabu
from gputabu.backend import cuda_unusable, numba_unusable
from gputabu.backend.numpy.threads import thread_count
from gputabu.cli import options
from gputabu.cli.app import Command, Debug, app
from gputabu.cli.reproduce.records import machine
from gputabu.cli.timing import per_iteration, timed
from gputabu.core.validation import check_choice, check_int, check_n_clusters
from gputabu.data.preprocessing import DTYPES

REMARK = """\
Times are those of this run on this machine, with whatever else it was doing.
What a first use compiles is not counted. A tabu iteration is two passes over
the points, a Lloyd iteration one. Fits have one start each, and their J would
be others from other starts and on your own data."""


def size(text: str) -> Any:
    return typer.Option(metavar="NUMBER", help=text)


@app.command(cls=Command)
def bench(
    rows: Annotated[int, size("Points.")] = 50_000,
    columns: Annotated[int, size("Features of a point.")] = 16,
    n_clusters: Annotated[int, typer.Option("--n-clusters", "-k", metavar="K", help="Number of clusters.")] = 32,
    dtype: Annotated[str, typer.Option(metavar="NAME", help="float32 or float64.")] = "float64",
    rounds: Annotated[int, size("Times everything is measured; medians are printed.")] = 3,
    seed: options.Seed = 0,
    as_json: options.Json = False,
    debug: Debug = False,
) -> None:
    """Measure iterations and whole fits on this machine, beside scikit-learn's.

    \b
    gputabu bench
    gputabu bench --rows 20000 --columns 4 -k 10 --json

    All run in this process, by turns, on the same points: iterations on points without clusters, where none ends early,
    and whole fits on --n-clusters round clusters that overlap. The default takes about a minute on two cores.
    """
    for name, value in {"--rows": rows, "--columns": columns, "--rounds": rounds}.items():
        check_int(name, value, 1)
    k = check_n_clusters(n_clusters, rows)
    checked_dtype, rng = check_choice("--dtype", dtype, DTYPES), np.random.default_rng(seed)
    unclustered = rng.standard_normal((rows, columns)).astype(checked_dtype)
    blobs = (unclustered + 2 * rng.standard_normal((k, columns))[rng.integers(k, size=rows)]).astype(checked_dtype)
    data = {"rows": rows, "columns": columns, "n_clusters": k, "dtype": dtype, "rounds": rounds, "seed": seed}
    backends = available()
    for backend in backends:  # compilation at the first use is not measured
        per_iteration(unclustered, k, [backend], 1)
    results = {
        "gputabu": gputabu.__version__,
        "machine": machine(),
        "threads": threads(),
        "data": data,
        "iterations": per_iteration(unclustered, k, backends, rounds),
        "fits": fits(blobs, k, seed, backends[0]),
    }
    typer.echo(json.dumps(results) if as_json else text(results))


def available() -> list[str]:
    """The backends that can run here, in the order of preference of `auto`."""
    unusable = {"cuda": cuda_unusable(), "numba": numba_unusable(), "numpy": None}
    return [name for name, reason in unusable.items() if reason is None]


def threads() -> dict[str, int]:
    pools = [info["num_threads"] for info in threadpool_info() if info["user_api"] == "openmp"]
    return {"gputabu": thread_count(), "sklearn": max(pools, default=1)}


def fits(X: np.ndarray, k: int, seed: int, backend: str) -> dict[str, dict[str, float]]:
    """Seconds and J of whole fits from one start each."""
    common: dict[str, Any] = {"random_state": seed % 2**32, "n_init": 1}
    models = {
        "sklearn KMeans": KMeans(k, tol=0, **common),  # until convergence, like ours
        "KMeans": gputabu.KMeans(k, backend=backend, **common),
        "QuantizedTabuKMeans": gputabu.QuantizedTabuKMeans(k, init="k-means++", backend=backend, **common),
        "TabuKMeans": gputabu.TabuKMeans(k, backend=backend, **common),
    }
    results = {}
    for name, model in models.items():
        model.fit(X)
        results[name] = {"seconds": timed(model.fit, X)[0], "inertia": float(model.inertia_)}
    return results


def text(results: dict[str, Any]) -> str:
    data, threads, times = results["data"], results["threads"], results["iterations"]
    lines = [
        f"{data['rows']:,} points, {data['columns']} columns, {data['n_clusters']} clusters, {data['dtype']}",
        f"threads: gputabu {threads['gputabu']}, scikit-learn {threads['sklearn']}",
        "",
        f"{'one iteration':24}{'ms':>10}{'times sklearn':>16}",
    ]
    for name, value in times.items():
        title = "Lloyd, scikit-learn" if name == "sklearn" else name
        lines.append(f"{title:24}{value:>10.2f}{value / times['sklearn']:>16.2f}")
    reference = results["fits"]["sklearn KMeans"]
    lines += ["", f"{'a whole fit':24}{'s':>10}{'times sklearn':>16}{'J':>14}{'times':>9}"]
    for name, fit in results["fits"].items():
        ratios = fit["seconds"] / reference["seconds"], fit["inertia"] / reference["inertia"]
        lines.append(f"{name:24}{fit['seconds']:>10.2f}{ratios[0]:>16.2f}{fit['inertia']:>14.6g}{ratios[1]:>9.4f}")
    return "\n".join([*lines, "", REMARK])
