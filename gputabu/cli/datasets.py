"""`gputabu datasets`: list the data sets."""

from __future__ import annotations

from textwrap import fill

import typer

from gputabu.cli.app import Command, Debug, app
from gputabu.cli.options import DataHome
from gputabu.data import datasets


@app.command("datasets", cls=Command)
def list_datasets(data_home: DataHome = None, debug: Debug = False) -> None:
    """List the data sets: their size, the best J known, where they are on this machine, on which terms.

    \b
    gputabu datasets
    gputabu datasets --data-home ~/data
    """
    typer.echo(f"{'name':<11}{'N':>6}{'d':>4}  {'K: best known J':<39} found")
    terms: dict[str, list[str]] = {}
    for name, source in datasets.SOURCES.items():
        best_known = ", ".join(f"{k}: {value:.8g}" for k, value in source.best_known.items())
        best_known += " (z-scores)" if source.preprocessing == "zscore" else ""
        place = datasets.find(name, data_home) or ("in scikit-learn" if name == "iris" else "not here")
        typer.echo(f"{name:<11}{source.shape[0]:>6}{source.shape[1]:>4}  {best_known:<39} {place}")
        terms.setdefault(source.terms, []).append(name)
    typer.echo("\nTerms, as stated at the origins:")
    for text, names in terms.items():
        typer.echo(fill(f"{', '.join(names)}: {text}", 80, initial_indent="  ", subsequent_indent="    "))
    typer.echo("\ngputabu.datasets.load(name) downloads what is not here.")
