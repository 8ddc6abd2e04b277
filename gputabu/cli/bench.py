"""`gputabu bench`: how fast it is on this machine, beside scikit-learn."""

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
from gputabu.cli.speed import per_iteration, timed
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
    kind, rng = check_choice("--dtype", dtype, DTYPES), np.random.default_rng(seed)
    loose = rng.standard_normal((rows, columns)).astype(kind)
    blobs = (loose + 2 * rng.standard_normal((k, columns))[rng.integers(k, size=rows)]).astype(kind)
    asked = {"rows": rows, "columns": columns, "n_clusters": k, "dtype": dtype, "rounds": rounds, "seed": seed}
    backends = available()
    for backend in backends:  # what is compiled at the first use is not measured
        per_iteration(loose, k, [backend], 1)
    found = {
        "gputabu": gputabu.__version__,
        "machine": machine(),
        "threads": threads(),
        "data": asked,
        "iterations": per_iteration(loose, k, backends, rounds),
        "fits": fits(blobs, k, seed, backends[0]),
    }
    typer.echo(json.dumps(found) if as_json else text(found))


def available() -> list[str]:
    """The backends that run here, in the order in which `auto` prefers them."""
    unusable = {"cuda": cuda_unusable(), "numba": numba_unusable(), "numpy": None}
    return [name for name, reason in unusable.items() if reason is None]


def threads() -> dict[str, int]:
    pools = [info["num_threads"] for info in threadpool_info() if info["user_api"] == "openmp"]
    return {"gputabu": thread_count(), "sklearn": max(pools, default=1)}


def fits(X: np.ndarray, k: int, seed: int, backend: str) -> dict[str, dict[str, float]]:
    """Seconds and J of whole fits from one start each."""
    common: dict[str, Any] = {"random_state": seed % 2**32, "n_init": 1}
    models = {
        "sklearn KMeans": KMeans(k, tol=0, **common),  # to the end, as ours
        "KMeans": gputabu.KMeans(k, backend=backend, **common),
        "QuantizedTabuKMeans": gputabu.QuantizedTabuKMeans(k, init="k-means++", backend=backend, **common),
        "TabuKMeans": gputabu.TabuKMeans(k, backend=backend, **common),
    }
    found = {}
    for name, model in models.items():
        model.fit(X)
        found[name] = {"seconds": timed(model.fit, X)[0], "inertia": float(model.inertia_)}
    return found


def text(found: dict[str, Any]) -> str:
    data, threads, times = found["data"], found["threads"], found["iterations"]
    lines = [
        f"{data['rows']:,} points, {data['columns']} columns, {data['n_clusters']} clusters, {data['dtype']}",
        f"threads: gputabu {threads['gputabu']}, scikit-learn {threads['sklearn']}",
        "",
        f"{'one iteration':24}{'ms':>10}{'times sklearn':>16}",
    ]
    for name, value in times.items():
        title = "Lloyd, scikit-learn" if name == "sklearn" else name
        lines.append(f"{title:24}{value:>10.2f}{value / times['sklearn']:>16.2f}")
    first = found["fits"]["sklearn KMeans"]
    lines += ["", f"{'a whole fit':24}{'s':>10}{'times sklearn':>16}{'J':>14}{'times':>9}"]
    for name, fit in found["fits"].items():
        ratios = fit["seconds"] / first["seconds"], fit["inertia"] / first["inertia"]
        lines.append(f"{name:24}{fit['seconds']:>10.2f}{ratios[0]:>16.2f}{fit['inertia']:>14.6g}{ratios[1]:>9.4f}")
    return "\n".join([*lines, "", REMARK])
