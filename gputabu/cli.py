"""The command line: what runs here (`doctor`), which K (`select-k`), which data there are, the paper's tables."""

from __future__ import annotations

import json
import platform
import time
import warnings
from collections.abc import Callable
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import gputabu
from gputabu import BackendUnavailable, datasets, experiments, lloyd, page, quantized, reassignment
from gputabu.backend import NAMES as BACKENDS
from gputabu.backend import cuda_unusable, numba_unusable, resolve
from gputabu.criteria import LARGEST_IS_BEST
from gputabu.files import read_points
from gputabu.outcomes import Settings
from gputabu.paper import RUNS, TABLES
from gputabu.results import Clustering
from gputabu.selection import KSelection

app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, no_args_is_help=True)

#: J of the best known clustering of Iris with three clusters.
IRIS = 78.85144142614601
#: (N, d, K) of the data on which backends are compared: small enough for one thread block; one with its rows
#: in registers; one by tiles.
SHAPES = ((150, 4, 3), (3000, 16, 8), (1500, 40, 5))
METHODS: dict[str, Callable[..., Clustering]] = {
    "QM-TS": lambda X, k, backend: quantized.search(X, k, restarts=2, max_iter=20, backend=backend),
    "TSC": lambda X, k, backend: reassignment.search(X, k, restarts=2, max_iter=20, backend=backend),
    "K-Means": lambda X, k, backend: lloyd.run(X, k, restarts=2, backend=backend),
}


@app.callback()
def commands() -> None:
    """K-Means clusterings found by tabu search, on GPU and CPU with the same bits."""


@app.command()
def doctor(
    require_cuda: Annotated[bool, typer.Option(help="Fail where CUDA cannot be used.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Compile nothing: leave out comparisons with NumPy.")] = False,
) -> None:
    """Say what is installed and which backend runs here, and test it on a small scale."""
    missing = cuda_unusable()
    say("gputabu", gputabu.__version__)
    say("Python", platform.python_version())
    say("NumPy", np.__version__)
    say("scikit-learn", version("scikit-learn"))
    say("CuPy", cupy_version())
    say("numba", "not installed" if find_spec("numba") is None else version("numba"))
    checks: dict[str, Callable[[], str]] = {"NumPy": reaches_optimum}
    if numba_unusable() is None and not quick:  # one dtype: each takes its time to compile
        checks["compiled code"] = lambda: equals_numpy("numba", [np.float64])
    if missing is None:
        checks["device"] = describe_device
    if missing is None and not quick:
        both: list[Any] = [np.float32, np.float64]
        checks |= {"kernels": compile_kernels, "CUDA": lambda: equals_numpy("cuda", both)}
    say("backend", f"auto takes {automatic()}: {missing or 'CuPy finds a usable GPU.'}")
    passed = [run(name, check) for name, check in checks.items()]
    if require_cuda and missing is not None:
        say("CUDA", f"FAILED: required, but {missing}")
    raise typer.Exit(0 if all(passed) and not (require_cuda and missing) else 1)


DataHome = Annotated[Path | None, typer.Option(help="Folder to look for data sets in first, and to download into.")]


@app.command("datasets")
def list_datasets(data_home: DataHome = None) -> None:
    """List the data sets: their size, the best J known, where they are on this machine, on which terms."""
    typer.echo(f"{'name':<11}{'N':>6}{'d':>4}  {'K: best known J':<39} found")
    terms: dict[str, list[str]] = {}
    for name, source in datasets.SOURCES.items():
        known = ", ".join(f"{k}: {value:.8g}" for k, value in source.best_known.items())
        known += " (z-scores)" if source.preprocessing == "zscore" else ""
        here = datasets.find(name, data_home) or ("in scikit-learn" if name == "iris" else "not here")
        typer.echo(f"{name:<11}{source.shape[0]:>6}{source.shape[1]:>4}  {known:<39} {here}")
        terms.setdefault(source.terms, []).append(name)
    typer.echo("\nTerms, as stated at the origins:")
    for text, names in terms.items():
        typer.echo(f"  {', '.join(names)}: {text}")
    typer.echo("\ngputabu.datasets.load(name) downloads what is not here.")


@app.command()
def reproduce(
    tables: Annotated[str, typer.Option(help="Numbers of the tables, with commas between.")] = ",".join(TABLES),
    runs: Annotated[int, typer.Option(help="Runs of each method.")] = RUNS,
    backend: Annotated[str, typer.Option(help=f"What computes: {', '.join(BACKENDS)}.")] = "auto",
    seed: Annotated[int, typer.Option(help="Of all random numbers.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder of the results and the report.")] = Path("reproduction"),
    resume: Annotated[bool, typer.Option("--resume", help="Keep what is in the folder; run what is missing.")] = False,
    data_home: DataHome = None,
) -> None:
    """Run the experiments of the paper again and print its tables beside ours.

    Ctrl-C ends it and keeps what is finished. The exit code is 0 if a table was run, 1 if none could be, 2 for a
    wrong option and 130 after Ctrl-C. Needs the extra "reproduce" of the package.
    """
    if missing := [name for name in ("matplotlib", "tqdm") if find_spec(name) is None]:
        raise typer.BadParameter(f"{missing[0]} is not installed: pip install 'gputabu[reproduce]'.")
    try:
        numbers = [number.strip().upper() for number in tables.split(",")]
        results = experiments.begin(numbers, Settings(runs, seed, resolve(backend)), out, resume)
    except (ValueError, BackendUnavailable) as error:
        raise typer.BadParameter(str(error)) from error
    begun = time.perf_counter()
    experiments.run(results, numbers, out, data_home=data_home)
    report = page.write(results, out, data_home)
    typer.echo(f"Every run: {out / 'results.csv'}, {out / 'results.json'}. The report: {report}")
    typer.echo(f"It took {(time.perf_counter() - begun) / 60:.1f} minutes.")
    if results.interrupted:
        typer.echo("Interrupted; --resume goes on from here.", err=True)
        raise typer.Exit(130)
    raise typer.Exit(0 if any(results.tables[number].outcomes for number in numbers) else 1)


@app.command("select-k")
def select_k(
    data: Annotated[Path, typer.Argument(help="Points, a row each: a .npy file, or numbers as text (CSV).")],
    ks: Annotated[str, typer.Option(help="Numbers of clusters: 2:12 (both included), 2:20:2 or 2,4,8.")] = "2:12",
    criterion: Annotated[
        str, typer.Option(help=f"One or more of {', '.join(LARGEST_IS_BEST)}, with commas; the first decides.")
    ] = "bic",
    method: Annotated[str, typer.Option(help="k-means, or tabu for tabu search.")] = "k-means",
    restarts: Annotated[int, typer.Option(help="Starts per number of clusters.")] = 1,
    seed: Annotated[int, typer.Option(help="Seed of the random numbers.")] = 0,
    backend: Annotated[str, typer.Option(help=f"What computes: {', '.join(BACKENDS)}.")] = "auto",
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    plot: Annotated[Path | None, typer.Option(help="Draw the criteria into this file (.png, .pdf, .svg).")] = None,
) -> None:
    """Choose the number of clusters in a file of points."""
    try:
        asked = [name.strip().replace("-", "_") for name in criterion.split(",")]
        options: dict[str, Any] = {"method": method, "restarts": restarts, "seed": seed, "backend": backend}
        found = gputabu.select_k(read_points(data), numbers(ks), asked, **options)
        typer.echo(as_text(found) if as_json else repr(found))
        if plot is not None:
            found.plot().figure.savefig(plot)
    except (ValueError, TypeError, OSError, ImportError, BackendUnavailable) as error:
        typer.echo(f"gputabu select-k: {error}", err=True)
        raise typer.Exit(2) from None


def numbers(text: str) -> list[int]:
    """What --ks stands for: first:last, first:last:step, or numbers with commas."""
    try:
        values = [int(part) for part in text.replace(":", ",").split(",")]
        if ":" not in text:
            return values
        first, last, step = [*values, 1][:3]
        if text.count(":") > 2 or "," in text or step < 1:
            raise ValueError
    except ValueError:
        raise ValueError(f"--ks={text} must be like 2:12, 2:20:2 or 2,4,8.") from None
    if last < first:
        raise ValueError(f"--ks={text} must go up.")
    return list(range(first, last + 1, step))


def as_text(found: KSelection) -> str:
    """The result as JSON; what is not a number is null."""
    columns = {
        name: [None if np.isnan(value) else value for value in column.tolist()] for name, column in found.table.items()
    }
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    told = {"n_clusters": found.n_clusters, "criterion": found.criterion, "recommended": found.recommended}
    told |= {"interrupted": found.interrupted, "backend": found.best.backend, "table": rows}
    return json.dumps(told, indent=2)


def say(subject: str, text: str) -> None:
    typer.echo(f"{subject:<14}{text}")


def run(name: str, check: Callable[[], str]) -> bool:
    """Whether a check passes; prints what it found."""
    try:
        say(name, check())
    except Exception as error:  # whatever goes wrong here is what the user wants to be told
        reason = " ".join(str(error).split()) or "no reason given."
        say(name, f"FAILED: {type(error).__name__}: {reason[:400]}")
        return False
    return True


def automatic() -> str:
    """What backend="auto" stands for here, without its warning: the reason is printed beside it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return resolve("auto")


def cupy_version() -> str:
    if find_spec("cupy") is None:
        return "not installed"
    try:
        from gputabu.backend import diagnosis
    except Exception:  # `backend` says why
        return "installed, cannot be imported"
    return diagnosis.CUPY


def describe_device() -> str:
    from gputabu.backend import diagnosis

    facts = diagnosis.device_facts()
    return f"{facts['device']}; {facts['CUDA']}; {facts['memory']}"


def compile_kernels() -> str:
    from gputabu.backend import diagnosis

    begun = time.perf_counter()
    count = diagnosis.compile_all()
    return f"{count} modules compiled in {time.perf_counter() - begun:.1f} s (CuPy keeps them for the next time)"


def reaches_optimum() -> str:
    """QM-TS on Iris must find the best known clustering."""
    from sklearn.datasets import load_iris

    found = quantized.search(load_iris().data, 3, restarts=10, backend="numpy").inertia
    if abs(found - IRIS) > 1e-9 * IRIS:
        raise AssertionError(f"QM-TS on Iris ends at J = {found:.10g} and not at {IRIS:.10g}.")
    return f"QM-TS on Iris reaches J = {found:.4f}, the best known: ok"


def equals_numpy(backend: str, dtypes: list[Any]) -> str:
    """Both backends must give the same bits."""
    for n, d, k in SHAPES:
        for dtype in dtypes:
            X = np.random.default_rng(d).normal(size=(n, d)).astype(dtype)
            for name, method in METHODS.items():
                difference = first_difference(method(X, k, backend), method(X, k, "numpy"))
                if difference:
                    raise AssertionError(f"{name}, {n}×{d} {dtype.__name__}, K={k}: {difference} differ from NumPy's.")
    names = " and ".join(dtype.__name__ for dtype in dtypes)
    return f"{', '.join(METHODS)} equal NumPy's bit for bit, {len(SHAPES)} shapes, {names}: ok"


def first_difference(one: Clustering, other: Clustering) -> str | None:
    """The first of the things compared that is not the same in both."""
    pairs = {
        "labels": (one.labels, other.labels),
        "centres": (one.centers, other.centers),
        "traces of J": (one.trace.current, other.trace.current),
        "values of J": (one.inertias, other.inertias),
    }
    return next((name for name, pair in pairs.items() if not np.array_equal(*pair, equal_nan=True)), None)


def main() -> None:
    """Entry point of the command `gputabu`."""
    app()
