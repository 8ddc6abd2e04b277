"""`gputabu reproduce`: repeat the paper's tables."""

from __future__ import annotations

import time
from decimal import ROUND_CEILING, ROUND_FLOOR
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, NoReturn

import typer

import gputabu
from gputabu.backend import resolve
from gputabu.cli.app import Command, Debug, app
from gputabu.cli.options import Backend, DataHome
from gputabu.cli.reproduce import experiments, paper_report, related
from gputabu.cli.reproduce.paper import RUNS, TABLES
from gputabu.cli.reproduce.records import Settings
from gputabu.data import datasets
from gputabu.selection.proof.certificate import rounded


@app.command(cls=Command)
def reproduce(
    tables: Annotated[str, typer.Option(help="Numbers of the tables, with commas between.")] = ",".join(TABLES),
    runs: Annotated[
        int | None,
        typer.Option(help=f"Runs of each method: {RUNS}, with --related {related.RUNS}.", show_default=False),
    ] = None,
    backend: Backend = "auto",
    seed: Annotated[int, typer.Option(help="Of all random numbers.")] = 0,
    out: Annotated[Path, typer.Option(help="Folder of the results and the report.")] = Path("reproduction"),
    resume: Annotated[bool, typer.Option("--resume", help="Keep what is in the folder; run what is missing.")] = False,
    certify: Annotated[
        float, typer.Option(metavar="SECONDS", help="Also prove how far the best J is from the optimum: so long each.")
    ] = 0.0,
    relatives: Annotated[
        bool, typer.Option("--related", help="Instead run what the paper cites beside it, in one table.")
    ] = False,
    data_home: DataHome = None,
    debug: Debug = False,
) -> None:
    """Run the experiments of the paper again and print its tables beside ours.

    \b
    gputabu reproduce
    gputabu reproduce --tables I,III --runs 20 --out quick
    gputabu reproduce --related

    Ctrl-C ends it and keeps what is finished. The exit code is 0 if a table was run, 1 if none could be, 2 for a
    wrong option and 130 after Ctrl-C. Needs the extra "reproduce" of the package.
    """
    numbers = [number.strip().upper() for number in tables.split(",")]
    if relatives:
        run_related(numbers, Settings(related.RUNS if runs is None else runs, seed, resolve(backend)), out, data_home,
                    {"--resume": resume, "--certify": certify})  # fmt: skip
    if find_spec("matplotlib") is None:
        raise ImportError("matplotlib is not installed: pip install 'gputabu[reproduce]'.")
    results = experiments.begin(numbers, Settings(RUNS if runs is None else runs, seed, resolve(backend)), out, resume)
    start = time.perf_counter()
    experiments.run(results, numbers, out, data_home=data_home)
    report = paper_report.write(results, out, data_home)
    if certify and not results.interrupted:
        typer.echo(proofs(numbers, certify, seed, data_home))
    typer.echo(f"Every run: {out / 'results.csv'}, {out / 'results.json'}. The report: {report}")
    typer.echo(f"It took {(time.perf_counter() - start) / 60:.1f} minutes.")
    if results.interrupted:
        typer.echo("Interrupted; --resume goes on from here.", err=True)
        raise typer.Exit(130)
    raise typer.Exit(0 if any(results.tables[number].outcomes for number in numbers) else 1)


def run_related(
    numbers: list[str], settings: Settings, out: Path, data_home: Path | None, others: dict[str, object]
) -> NoReturn:
    """`--related`: run it, print it, and exit."""
    experiments.check_tables(numbers)
    if wrong := [name for name, value in others.items() if value]:
        raise ValueError(f"{wrong[0]} cannot go with --related.")
    rows, interrupted = related.run(numbers, settings.runs, settings.seed, settings.backend, data_home, typer.echo)
    if rows:
        typer.echo(f"\nEvery run: {related.write(rows, out)}")
    raise typer.Exit(130 if interrupted else 0 if rows else 1)


def proofs(numbers: list[str], seconds: float, seed: int, data_home: Path | None) -> str:
    """A table of the cases: the best J that TabuKMeans finds, and how far from the optimum it can be."""
    lines = [f"{'table':<6} {'data':<10} {'K':>3} {'J':>15} {'lower bound':>15} {'gap, %':>9}  proof"]
    for number in numbers:
        table = TABLES[number]
        X = datasets.load(table.dataset, data_home, table.preprocessing).points
        model = gputabu.TabuKMeans(table.k, n_init=4, max_iter=2000, random_state=seed).fit(X)
        found = model.certify(X, max_time=seconds)
        said = f"proven optimal in {found.seconds:.0f} s" if found.optimal else f"{found.seconds:.0f} s"
        bound, gap = rounded(found.lower_bound, 10, ROUND_FLOOR), rounded(100 * found.gap, 2, ROUND_CEILING)
        values = f"{found.inertia:>15.10g} {bound:>15} {gap:>9}"
        lines.append(f"{number:<6} {table.dataset:<10} {table.k:>3} {values}  {said}")
    return "\n".join(lines)
