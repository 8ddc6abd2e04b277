"""`gputabu accept`: whether this GPU computes what NumPy does, how fast, and all that a report of a fault needs."""

from __future__ import annotations

import json
import os
import platform
import time
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

import gputabu
from gputabu.backend import resolve
from gputabu.cli import options, peers, predictions
from gputabu.cli.accept_cases import cases
from gputabu.cli.app import Command, Debug, app, command
from gputabu.cli.equality import Outcome, tried
from gputabu.cli.output.acceptance_page import acceptance_page
from gputabu.core.validation import check_int

#: (N, d, K) of the speed that is measured, float32.
SHAPES = ((1_000_000, 16, 64), (1_000_000, 8, 64), (200_000, 128, 256), (1_000_000, 128, 1000))
QUICK, TINY = ((100_000, 16, 64),), ((600, 4, 5),)
#: Differences of two runs, of which the median counts.
REPEATS = 3
#: Environment variables that change what runs, by how they begin.
VARIABLES = ("CUDA_", "CUPY_", "GPUTABU_", "NUMBA_", "OMP_", "LD_LIBRARY_PATH", "LD_PRELOAD", "HOSTCUDA_",
             "NVIDIA_VISIBLE_DEVICES", "NVIDIA_DRIVER_CAPABILITIES", "NVIDIA_TF32_OVERRIDE")  # fmt: skip
#: Words in the names of variables that nobody should send.
SECRET = ("KEY", "TOKEN", "SECRET", "PASSWORD", "CREDENTIAL")
STAND_IN = (
    "This was hostcuda, which runs kernels on a CPU: it says nothing about a GPU, and its times mean nothing, so none "
    "is compared with what was predicted."
)
Folder = Annotated[Path, typer.Option(metavar="FOLDER", help="Where to leave the two files; older ones are replaced.")]


@app.command(cls=Command)
def accept(
    ctx: typer.Context,
    out: Folder = Path("acceptance"),
    quick: Annotated[bool, typer.Option("--quick", help="Fewer and smaller cases, one speed.")] = False,
    device: options.Device = None,
    as_json: options.Json = False,
    debug: Debug = False,
) -> None:
    """Try this GPU: compare it with NumPy bit for bit, measure it, and write a report.

    \b
    gputabu accept
    gputabu accept --quick --device 1 --out second-gpu

    It leaves acceptance.html, to be read, and acceptance.json, to be sent with a report of a fault. cuML, faiss and
    flash-kmeans are measured on the same points where they are installed. The exit code is 1 if a case fails, and 2
    where there is no GPU.
    """
    resolve("cuda")  # says why, where it cannot be used
    from gputabu.backend.cuda import diagnosis

    if device is not None:
        check_int("--device", device, 0, diagnosis.device_count() - 1)
    diagnosis.select(device)
    out.mkdir(parents=True, exist_ok=True)
    report = Report(out, command(ctx), quiet=as_json)
    report.found["environment"] = here = environment()
    report.found["prediction"] = predictions.explained(here["device"])
    wanted = cases(device, quick)
    for i, case in enumerate(wanted, start=1):
        report.begin(f"{case.group}: {case.name}")
        report.add(tried(case), f"{i}/{len(wanted)}")
    stand_in = diagnosis.is_stand_in()
    for shape in TINY if stand_in else QUICK if quick else SHAPES:
        report.begin(f"speed of {shape}")
        report.measured(speed(shape, here["device"], stand_in))
    report.end(STAND_IN if stand_in else "")
    if as_json:
        typer.echo(json.dumps(report.found))
    raise typer.Exit(0 if report.found["passed"] else 1)


class Report:
    """What was found so far. The JSON is written before every case, so that one which ends the process is known."""

    def __init__(self, folder: Path, typed: str, quiet: bool) -> None:
        self.folder, self.quiet = folder, quiet
        self.found: dict[str, Any] = {
            "verdict": "It did not come to an end.", "passed": False, "running": None, "command": typed,
            "written": time.strftime("%Y-%m-%d %H:%M:%S %z"), "cases": [], "speed": [],
        }  # fmt: skip

    def begin(self, name: str) -> None:
        self.found["running"] = name
        self._write()

    def add(self, outcome: Outcome, number: str) -> None:
        self.found["cases"].append(outcome.as_dict())
        told = f": {outcome.detail}" if outcome.detail else ""
        mark = {"passed": "ok", "failed": "FAILED", "skipped": "skipped"}[outcome.status]
        self._say(f"{number:>7}  {mark:<8}{outcome.group}: {outcome.name} ({outcome.seconds:.1f} s){told}")

    def measured(self, found: dict[str, Any]) -> None:
        self.found["speed"].append(found)
        self._say(f"speed of N={found['n']}, d={found['d']}, K={found['k']}, float32")
        for name, one in found["times"].items():
            predicted = prediction_text(one)
            took = f"{one['ms']:10.3f} ms an iteration" if one["ms"] is not None else one["note"]
            ratio = f", {one['ratio']:.2f} × gputabu K-Means" if one["ratio"] is not None else ""
            self._say(f"  {name:<18}{took}{ratio}{predicted}")

    def end(self, remark: str) -> None:
        statuses = [case["status"] for case in self.found["cases"]]
        times = [shape["times"][name] for shape in self.found["speed"] for name in peers.OURS]
        failed, broken = statuses.count("failed"), sum(one["failed"] for one in times)
        said = [verdict(failed, len(statuses), statuses.count("skipped"), broken), remark]
        self.found |= {"running": None, "passed": not failed + broken, "verdict": " ".join(filter(None, said))}
        self._write()
        page, numbers = self.folder / "acceptance.html", self.folder / "acceptance.json"
        page.write_text(acceptance_page(self.found), encoding="utf-8")
        self._say(f"\n{self.found['prediction']}")
        self._say(f"\n{self.found['verdict']}\nWritten: {page}, {numbers}")

    def _say(self, text: str) -> None:
        if not self.quiet:
            typer.echo(text)

    def _write(self) -> None:
        (self.folder / "acceptance.json").write_text(json.dumps(self.found, indent=1), encoding="utf-8")


def verdict(failed: int, count: int, skipped: int, broken: int) -> str:
    """The whole in a sentence or two."""
    left = f" ({skipped} could not be tried)" if skipped else ""
    if failed or broken:
        slow = f"; {broken} of the speeds could not be measured" if broken else ""
        advice = "Do not rely on this device; please report it with acceptance.json."
        return f"{failed} of {count} cases FAILED{left}{slow}. {advice}"
    return f"All {count - skipped} cases passed{left}: in each, this device gave the bits of NumPy."


def prediction_text(one: dict[str, Any]) -> str:
    """What was predicted of a speed, and how far that was off."""
    if one["predicted_ms"] is None:
        return ""
    off = f", measured is {one['ms'] / one['predicted_ms']:.2f} × that" if one["ms"] is not None else ""
    return f"; predicted {one['predicted_ms']:.3f} ms{off}"


def speed(shape: tuple[int, int, int], device: dict[str, Any], stand_in: bool) -> dict[str, Any]:
    """Milliseconds of an iteration of everyone on the same points, measured by CUDA's events; None says why not.

    Beside ours, what a model predicts for this device; nothing on a stand-in.
    """
    from gputabu.backend.cuda import diagnosis

    n, d, k = shape
    X, start = peers.data(n, d, k)
    times: dict[str, dict[str, Any]] = {}
    for name, prepare in (peers.OURS | peers.PEERS).items():
        model = None if stand_in else predictions.prediction(name, shape, device)
        one: dict[str, Any] = {"ms": None, "ratio": None, "predicted_ms": model.ms if model else None,
                               "kernels": model.kernels if model else (), "note": "", "failed": False}  # fmt: skip
        times[name] = one
        try:
            run = prepare(diagnosis.on_gpu(X), start)
            seconds = diagnosis.seconds_per_round(run, peers.ROUNDS, 1 if stand_in else REPEATS)
        except ImportError as error:
            one["note"] = f"not installed: {error}"
        except Exception as error:  # others may fail in any way, and ours is to be told
            one |= {"note": f"{type(error).__name__}: {' '.join(str(error).split())}"[:400], "failed": True}
        else:
            first = times["gputabu K-Means"]["ms"]
            if stand_in:
                one["note"] = "ran; a stand-in has no times"
            else:
                one["ms"] = 1000 * seconds
                one["ratio"] = None if name in peers.OURS or not first else 1000 * seconds / first
    return {"n": n, "d": d, "k": k, "dtype": "float32", "times": times}


def environment() -> dict[str, Any]:
    """Everything that a report of a fault needs."""
    from gputabu.backend.cuda import diagnosis

    versions = diagnosis.Versions.read()
    return {
        "gputabu": gputabu.__version__,
        "Python": platform.python_version(),
        "system": platform.platform(),
        "NumPy": np.__version__,
        "CuPy": diagnosis.CUPY,
        "numba": installed("numba"),
        "CUDA": str(versions),
        "too old": versions.too_old(),
        "device": diagnosis.device_details(),
        "others": {name: installed(*packages) for name, packages in peers.PACKAGES.items()},
        "variables": variables(os.environ),
    }


def variables(given: Mapping[str, str]) -> dict[str, str]:
    """Those of the environment that change what runs, and are nobody's secret."""
    known = {name: value for name, value in sorted(given.items()) if name.startswith(VARIABLES)}
    return {name: value for name, value in known.items() if not any(word in name.upper() for word in SECRET)}


def installed(*packages: str) -> str:
    """The version of the first of these that is there."""
    for name in packages:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return "not installed"
