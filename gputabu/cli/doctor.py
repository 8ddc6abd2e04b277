"""`gputabu doctor`: which backends run here, and whether their results equal NumPy's."""

from __future__ import annotations

import platform
import time
import warnings
from collections.abc import Callable
from functools import partial
from importlib.metadata import version
from importlib.util import find_spec
from typing import Annotated, Any

import numpy as np
import typer

import gputabu
from gputabu.algorithms import lloyd, quantized, reassignment
from gputabu.backend import cuda_unusable, numba_unusable, resolve
from gputabu.cli import equality
from gputabu.cli.app import Command, Debug, app
from gputabu.core.results import Clustering

#: J of the best known clustering of Iris with three clusters.
IRIS = 78.85144142614601
#: (N, d, K) of the data on which backends are compared. On a GPU, the first fits into one thread block, the second has
#: its rows in registers, and the third is read in tiles.
SHAPES = ((150, 4, 3), (3000, 16, 8), (1500, 40, 5))
#: Features and clusters of which the kernels are named.
DEFAULT_SHAPES = ((8, 64), (128, 1000))
METHODS: dict[str, Callable[..., Clustering]] = {
    "QM-TS": lambda X, k, backend: quantized.search(X, k, restarts=2, max_iter=20, backend=backend),
    "TSC": lambda X, k, backend: reassignment.search(X, k, restarts=2, max_iter=20, backend=backend),
    "K-Means": lambda X, k, backend: lloyd.run(X, k, restarts=2, backend=backend),
}
#: What GPUs differ in, by the name of the line that it gets.
ON_A_GPU = {
    "wide points": ("64 features, float32 and float64,", equality.wide_points),
    "float64": ("several restarts in float64", equality.double_precision),
    "many clusters": ("2500 clusters", equality.many_clusters),
    "many restarts": ("2000 restarts at once", equality.many_restarts),
    "threads": ("fits in two threads at once", equality.threads),
}


@app.command(cls=Command)
def doctor(
    require_cuda: Annotated[bool, typer.Option(help="Fail where CUDA cannot be used.")] = False,
    quick: Annotated[bool, typer.Option("--quick", help="Compile nothing: leave out comparisons with NumPy.")] = False,
    shape: Annotated[
        str | None, typer.Option(metavar="D,K", help="Features and clusters: say which kernels such points take.")
    ] = None,
    debug: Debug = False,
) -> None:
    """Say what is installed and which backend runs here, and test it on a small scale.

    \b
    gputabu doctor
    gputabu doctor --require-cuda     in a script that needs the GPU
    gputabu doctor --shape 384,1000   which kernels 384 features and K = 1000 take

    The exit code is 1 if a test fails.
    """
    sizes = DEFAULT_SHAPES if shape is None else (parsed(shape),)
    missing = cuda_unusable()
    print_line("gputabu", gputabu.__version__)
    print_line("Python", platform.python_version())
    print_line("NumPy", np.__version__)
    print_line("scikit-learn", version("scikit-learn"))
    print_line("CuPy", cupy_version())
    print_line("numba", "not installed" if find_spec("numba") is None else version("numba"))
    checks: dict[str, Callable[[], str]] = {"NumPy": reaches_optimum}
    if numba_unusable() is None and not quick:  # one dtype: compiling each takes time
        checks["compiled code"] = lambda: equals_numpy("numba", [np.float64])
    if missing is None:
        checks["device"] = describe_device
        checks |= {f"d={d}, K={k}": partial(name_kernels, d, k) for d, k in sizes}
    if missing is None and not quick:
        both: list[Any] = [np.float32, np.float64]
        checks |= {"kernels": compile_kernels, "CUDA": lambda: equals_numpy("cuda", both)}
        checks |= {name: partial(holds, text, check) for name, (text, check) in ON_A_GPU.items()}
    print_line("CUDA", cuda_versions())
    print_line("backend", f"auto takes {automatic()}: {missing or 'CuPy finds a usable GPU.'}")
    passed = [run(name, check) for name, check in checks.items()]
    if require_cuda and missing is not None:
        print_line("CUDA", f"FAILED: required, but {missing}")
    raise typer.Exit(0 if all(passed) and not (require_cuda and missing) else 1)


def print_line(subject: str, text: str) -> None:
    typer.echo(f"{subject:<14}{text}")


def run(name: str, check: Callable[[], str]) -> bool:
    """Run a check, print its result, and return whether it passed."""
    try:
        print_line(name, check())
    except Exception as error:  # any failure is a finding for the user
        reason = " ".join(str(error).split()) or "no reason given."
        print_line(name, f"FAILED: {type(error).__name__}: {reason[:400]}")
        return False
    return True


def automatic() -> str:
    """The backend that "auto" takes here, without its warning: the reason is printed beside it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", RuntimeWarning)
        return resolve("auto")


def cupy_version() -> str:
    if find_spec("cupy") is None:
        return "not installed"
    try:
        from gputabu.backend.cuda import diagnosis
    except Exception:  # `backend` says why
        return "installed, cannot be imported"
    return diagnosis.CUPY


def describe_device() -> str:
    from gputabu.backend.cuda import diagnosis

    facts = diagnosis.device_facts()
    return f"{facts['device']}; {facts['CUDA']}; {facts['memory']}"


def parsed(shape: str) -> tuple[int, int]:
    """Features and clusters."""
    try:
        d, k = map(int, shape.split(","))
    except ValueError:
        d = k = 0
    if d < 1 or k < 1:
        raise typer.BadParameter(f"--shape {shape!r} must be two positive integers D,K, such as 384,1000.")
    return d, k


def name_kernels(d: int, k: int) -> str:
    """Which kernels points of d features and K centres take, a line for each pass."""
    from gputabu.backend.cuda import diagnosis

    return ("\n" + 14 * " ").join(diagnosis.pass_kernels(d, k, np.dtype(np.float32)))


def cuda_versions() -> str:
    """The driver and the runtime, and which of them is too old; also where no GPU can be used."""
    if find_spec("cupy") is None:
        return "not asked, as CuPy is not installed"
    try:
        from gputabu.backend.cuda import diagnosis

        versions = diagnosis.Versions.read()
    except Exception as error:  # whatever CuPy raises without a driver
        return f"CuPy cannot say: {type(error).__name__}: {' '.join(str(error).split())[:200]}"
    return " ".join([f"{versions}.", *versions.too_old()])


def holds(text: str, check: Callable[[int | None], str | None]) -> str:
    """The same bits as NumPy's in a check of `equality`."""
    if found := check(None):
        raise AssertionError(found)
    return f"{text} equal NumPy's bit for bit: ok"


def compile_kernels() -> str:
    from gputabu.backend.cuda import diagnosis

    start = time.perf_counter()
    count = diagnosis.compile_all()
    return f"{count} modules compiled in {time.perf_counter() - start:.1f} s (CuPy keeps them for the next time)"


def reaches_optimum() -> str:
    """QM-TS on Iris must find the best known clustering."""
    from sklearn.datasets import load_iris

    inertia = quantized.search(load_iris().data, 3, restarts=10, backend="numpy").inertia
    if abs(inertia - IRIS) > 1e-9 * IRIS:
        raise AssertionError(f"QM-TS on Iris ends at J = {inertia:.10g} and not at {IRIS:.10g}.")
    return f"QM-TS on Iris reaches J = {inertia:.4f}, the best known: ok"


def equals_numpy(backend: str, dtypes: list[Any]) -> str:
    """Both backends must give the same bits."""
    for n, d, k in SHAPES:
        for dtype in dtypes:
            X = np.random.default_rng(d).normal(size=(n, d)).astype(dtype)
            for name, method in METHODS.items():
                difference = equality.difference(method(X, k, backend), method(X, k, "numpy"))
                if difference:
                    raise AssertionError(f"{name}, {n}×{d} {dtype.__name__}, K={k}: {difference}.")
    names = " and ".join(dtype.__name__ for dtype in dtypes)
    return f"{', '.join(METHODS)} equal NumPy's bit for bit, {len(SHAPES)} shapes, {names}: ok"
