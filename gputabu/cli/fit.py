"""`gputabu fit`: cluster a file."""

from __future__ import annotations

import json
import time
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer

import gputabu
from gputabu.cli import options
from gputabu.cli.app import Command, Debug, app, command, print_message
from gputabu.cli.output.output_folder import LABELS, MODEL, Folder
from gputabu.core.interrupts import Interrupts
from gputabu.core.validation import check_choice, check_int, check_n_clusters
from gputabu.data.files import ARRAYS, read
from gputabu.data.oddities import oddities
from gputabu.data.points import Points
from gputabu.data.preprocessing import Preprocessing
from gputabu.data.tables import Selection

if TYPE_CHECKING:
    from gputabu.cli.output.fit_summary import FitSummary

METHODS = {"tabu": "TabuKMeans", "quantized": "QuantizedTabuKMeans", "k-means": "KMeans"}
#: Parameters that a method does not have.
WITHOUT = {
    "k-means": ("effort", "patience", "target", "max_time"),
    "quantized": ("min_size", "max_size"),
}
STARTS = ("k-means++", "random")
FILES = (*LABELS.values(), "centres.csv", "centres-scaled.csv", MODEL, "report.html", "result.json")
UNWRITTEN = "Nothing was written: --out FOLDER keeps labels, centres, the model and a report."


def option(text: str, *names: str, metavar: str = "NUMBER") -> Any:
    return typer.Option(*names, help=text, metavar=metavar, show_default=False)


@app.command(cls=Command)
def fit(
    ctx: typer.Context,
    data: options.Data,
    n_clusters: Annotated[int, typer.Option("--n-clusters", "-k", metavar="K", help="Number of clusters.")],
    columns: options.Columns = None,
    id: options.Id = None,
    scale: options.Scale = None,
    out: options.Out = None,
    force: options.Force = False,
    as_json: options.Json = False,
    method: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="tabu (relocates centres: the lowest J), quantized (the paper's tabu search) or k-means alone.",
        ),
    ] = "tabu",
    restarts: Annotated[
        int | None, option("Searches from different starts. [default: 1; 10 with --init random]")
    ] = None,
    init: Annotated[
        str | None,
        option(
            "k-means++, random, or a file of centres like DATA. [default: k-means++; random for quantized]",
            metavar="NAME",
        ),
    ] = None,
    effort: Annotated[
        float | None, option("Work of the search; twice as much takes twice as long. [default: 10; 1 for quantized]")
    ] = None,
    max_iter: Annotated[int | None, option("Iterations of a search. [default: 300 for k-means]")] = None,
    patience: Annotated[
        int | None, option("Stop after so many without improvement. [default: 100 for quantized]")
    ] = None,
    max_time: Annotated[
        float | None, option("Use so many seconds, and return the best found.", metavar="SECONDS")
    ] = None,
    target: Annotated[float | None, option("Stop at this J.", metavar="J")] = None,
    refine: Annotated[
        str | None,
        option(
            "What improves the best found: hartigan (lower J), lloyd or centroid. [default: hartigan; for "
            "quantized lloyd]",
            metavar="NAME",
        ),
    ] = None,
    min_size: Annotated[int | None, option("Rows that a cluster has at the least.", metavar="ROWS")] = None,
    max_size: Annotated[int | None, option("Rows that a cluster has at the most.", metavar="ROWS")] = None,
    seed: options.Seed = 0,
    checkpoint: Annotated[
        Path | None,
        option(
            "Keep the state in a file; after the process was killed, the same command goes on from it.", metavar="FILE"
        ),
    ] = None,
    backend: options.Backend = "auto",
    device: options.Device = None,
    dtype: Annotated[
        str | None,
        option("float32 or float64. [default: as the file has it; float64 for text]", metavar="NAME"),
    ] = None,
    labels_format: Annotated[
        str | None, option("csv or npy. [default: npy for .npy and .npz, else csv]", metavar="NAME")
    ] = None,
    certify: Annotated[bool, typer.Option("--certify", help="Prove how far J can be from the best; a minute.")] = False,
    header: options.Header = None,
    delimiter: options.Delimiter = None,
    decimal: options.Decimal = None,
    thousands: options.Thousands = None,
    encoding: options.Encoding = None,
    missing: options.Missing = "error",
    array: options.Array = None,
    quiet: options.Quiet = False,
    debug: Debug = False,
) -> None:
    """Cluster the rows of a file.

    \b
    gputabu fit data.csv -k 10
    gputabu fit iris.csv -k 3 --id name --scale zscore --out found
    gputabu fit big.npy -k 100 --max-time 60
    zcat data.csv.gz | gputabu fit - -k 10 --json

    Prints what was found. With --out it also writes labels.csv (or .npy), centres.csv, model.npz (for predict),
    result.json and report.html into that folder. Ctrl-C ends the search with the best found so far, which is
    written; the exit code is then 130. So does SIGTERM, with 143.
    """
    parameters: dict[str, Any] = {"effort": effort, "max_iter": max_iter, "patience": patience, "max_time": max_time}
    parameters |= {"target": target, "refine": refine, "checkpoint": None if checkpoint is None else str(checkpoint)}
    parameters |= {"min_size": min_size, "max_size": max_size}
    parameters["n_init"] = None if restarts is None else check_int("--restarts", restarts, 1)
    given = check_known(method, {name: value for name, value in parameters.items() if value is not None})
    k = check_int("--n-clusters", n_clusters, 1)
    labels_kind = check_choice("--labels-format", labels_format or ("npy" if data.endswith(ARRAYS) else "csv"), LABELS)
    options.check_goes_with_out(out, force=force, labels_format=labels_format)
    folder = None if out is None else Folder(out, FILES, force)
    style = options.text_style(data, header, delimiter, decimal, thousands, encoding)
    table = options.read_table(data, Selection(columns, id), style, array, missing)
    check_n_clusters(k, len(table.values))
    preprocessing = Preprocessing.of(table, scale, dtype, missing, style)
    if init is not None:
        given["init"] = init if init in STARTS else read_centers(init, preprocessing)
    points = preprocessing.points(table)
    for said in oddities(table, points, k, scaled=scale is not None):
        warnings.warn(said, UserWarning, stacklevel=1)
    model = getattr(gputabu, METHODS[method])(k, **given, random_state=seed, backend=backend, device=device)
    model.set_params(progress=not quiet)
    model._checked(Points.of(points).shape, seed)  # here, so that messages have the options' words
    start = time.perf_counter()
    model.fit(points)
    seconds = time.perf_counter() - start
    certificate = model.certify(points, progress=not quiet) if certify else None
    from gputabu.cli.output.fit_summary import FitSummary

    summary = FitSummary(table, preprocessing, points, model, seconds, command(ctx), certificate)
    with Interrupts() as interrupts:  # results are always written; importing libraries for it cannot be interrupted
        message = UNWRITTEN if folder is None else write_files(summary, folder, labels_kind)
    if as_json:
        files = None if folder is None else {name: str(folder.path / name) for name in folder.written}
        typer.echo(json.dumps(summary.plain() | {"files": files}))
    else:
        typer.echo(f"{summary.text()}\n\n{message}")
    if summary.interrupted:
        print_message(ctx, "interrupted; this is the best found so far.")
    elif interrupts.asked:
        print_message(ctx, "interrupted when the search was over; all was written.")
    if summary.interrupted or interrupts.asked:
        raise typer.Exit(130)


def check_known(method: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """Return these parameters if the method has them."""
    check_choice("--method", method, METHODS)
    if unknown := [name for name in parameters if name in WITHOUT.get(method, ())]:
        raise ValueError(
            f"--{unknown[0].replace('_', '-')}={parameters[unknown[0]]} does not go with --method={method}."
        )
    return parameters


def read_centers(path: str, preprocessing: Preprocessing) -> np.ndarray:
    """Initial centres from a file, in the units of the data."""
    if not Path(path).exists():
        raise ValueError(f"--init={path} must be {', '.join(STARTS)} or a file of centres.")
    return preprocessing.points(read(path, preprocessing.selection(), preprocessing.style()))


def write_files(summary: FitSummary, folder: Folder, labels_kind: str) -> str:
    """Write all files, the slow report last, and return a sentence that lists them."""
    from gputabu.cli.output.report import fit_page

    folder.labels(summary.table, summary.model.labels_, labels_kind)
    folder.centers(summary.preprocessing, summary.model.cluster_centers_, summary.sizes)
    folder.model(summary.model, summary.preprocessing)
    folder.json("result.json", summary.plain())
    folder.text("report.html", fit_page(summary))
    return folder.listing()
