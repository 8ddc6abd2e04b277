"""How long kernels would take on devices that nobody here has: predicted from machine code, never measured.

The SASS of a compiled kernel is counted per loop and unit (attribution.py), times the trips of the loops for a shape
(trips.py), with what hostcuda counts of its requests to memory (requested.py), and held against what a device can do in
a clock (throughput.py); the model is calibrated on times that others have published (calibration.py). `bound` is what
no kernel of this kind can beat: bytes at the speed of DRAM, products at the peak of FFMA, or of tensor cores from
d = 16 on.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / "hostcuda"), str(ROOT)]  # hostcuda in CuPy's place: launches are recorded on it

import calibration  # noqa: E402
import predictions  # noqa: E402
import requirements  # noqa: E402
from cycles import Run, compiled, macros  # noqa: E402
from launches import RECORDERS, Launch, be, calls, launch_of, recorded  # noqa: E402
from requested import BLOCKS, counted_size, requested  # noqa: E402
from throughput import DEVICES, GRAPH_GAP, L2_SHARE, Device, Load, seconds  # noqa: E402
from trips import Unknown  # noqa: E402

README = ROOT / "kernels" / "README.md"
MARKS = ("<!-- roofline: made by `make roofline` -->", "<!-- end of roofline -->")
#: Kernels that multiply all points by all centres, by the beginnings of their names; `// products:` above a kernel says
#: what it does instead.
PRODUCTS = ("assign", "nearest_two")
#: d·K up to which relocation is predicted unless it is asked for: to record it, all that comes before is run.
LONG = 40_000


@dataclass(frozen=True)
class Row:
    """A prediction."""

    what: str
    n: int
    d: int
    k: int
    restarts: int
    arch: str
    predicted_ms: float
    bound_ms: float
    limiter: str


@dataclass(frozen=True)
class Case:
    """What is to be predicted."""

    what: str
    n: int
    d: int
    k: int
    restarts: int
    arch: int
    doubt: float = 0.01  # shares of points
    changed: float = 0.01

    @property
    def device(self) -> Device:
        return DEVICES[self.arch]

    def row(self, what: str, time: float, bound: float, limiter: str) -> Row:
        sizes = self.n, self.d, self.k, self.restarts
        return Row(what, *sizes, f"sm_{self.arch}", 1e3 * time, 1e3 * bound, limiter)


def dram_seconds(case: Case, per_point: float) -> float:
    return case.n * per_point / (case.device.dram * 1e9)


def assign_bound(case: Case) -> float:
    """X and 8 bytes of every label from DRAM, or the products."""
    device, work = case.device, case.restarts * case.n * case.d * case.k
    lanes = device.ffma if case.d < 16 else device.tensor
    return max(dram_seconds(case, 4 * case.d + 8 * case.restarts), work / (lanes * device.sms * device.clock))


def survey_bound(case: Case) -> float:
    return dram_seconds(case, 4 * case.d + 8 * case.restarts)


def relocation_bound(case: Case, launches: list[Launch]) -> float:
    """What its passes must read: X for the two nearest centres, with these two (24 bytes) written, whenever they are
    looked for; X and these two for the candidates; these two and the labels to reassign."""
    point, two, label = 4 * case.d, 24 * case.restarts, 8 * case.restarts
    passes = {"nearest_two": point + two, "swap_gains": point + two, "reassign": two + label}
    return dram_seconds(case, sum(passes.get(launch.kernel, 0) for launch in launches))


def bound_of(case: Case, launches: list[Launch]) -> float:
    """Seconds that no iteration can beat."""
    if case.what == "relocation iteration":
        return relocation_bound(case, launches)
    return assign_bound(case) + (survey_bound(case) if case.what == "tabu iteration" else 0.0)


def kernel_bound(case: Case, kernel: str, load: Load) -> float:
    if kernel.startswith("assign") and load.products:
        return assign_bound(case)
    return survey_bound(case) if kernel == "survey" else load.dram / (case.device.dram * 1e9)


def run_of(case: Case, launch: Launch, cached: bool) -> Run:
    """A launch, with all that is known of it."""
    from gputabu.backend.cuda.launch import options
    from gputabu.backend.cuda.sources import source

    words = options(np.dtype(np.float32), launch.defines)
    made = compiled(source(launch.file), launch.file, words, case.arch)[launch.kernel]
    names = macros(made.texts, dict(launch.defines))
    names |= {"n": case.n, "d": case.d, "k": case.k, "r": case.restarts, "columns": 2 * case.d + 1}
    names |= launch.names | {"doubt": case.doubt, "changed": case.changed}
    names["listed"] = launch.kernel == "decide_tensor"  # the points in doubt alone
    lines = requested(case.what, case.d, case.k, case.restarts, case.device.profile).get(launch.kernel)
    per_point = launch.per_point * case.n
    return Run(made, launch.file, names, launch.grid, launch.threads, launch.shared, per_point, lines, cached)


def check_products(case: Case, run: Run) -> None:
    """The multiply-adds counted are those that the kernel must do: otherwise loops were counted wrongly."""
    name = run.made.kernel.name
    if not name.startswith(PRODUCTS):
        return
    said = run.said("products")
    k, d = -(-case.k // 64) * 64, -(-case.d // 16) * 16 if case.d >= 16 else case.d  # tiles may be padded
    least = case.n * case.restarts * case.k * case.d if said is None else said
    most = case.n * d * (case.restarts * k + 4) if said is None else said
    counted = max(run.load(case.arch, case.device).products.values(), default=0.0)
    if not 0.9 * least <= counted <= 1.3 * most:
        raise Unknown(
            f"{name} at d = {case.d}, K = {case.k} on sm_{case.arch}: {counted:.4g} multiply-adds were counted, where "
            f"{least:.4g} to {most:.4g} are needed. Are `// trips:` right? Or say it: // products: EXPRESSION"
        )


@cache
def predicted(case: Case) -> tuple[Row, ...]:
    """An iteration, and the kernels that it launches."""
    device, rows = case.device, []
    launches = recorded(case.what, case.d, case.k, case.restarts, device.profile, device.sms, case.n)
    touched = {address: size for launch in launches for address, size in launch.arrays.items()}
    cached = sum(touched.values()) * case.n <= L2_SHARE * device.cache * 2**20
    certain = Case(case.what, case.n, case.d, case.k, case.restarts, case.arch, 0.0, 0.0)
    for launch in launches:
        check_products(certain, run_of(certain, launch, cached))
        load = run_of(case, launch, cached).load(case.arch, device)
        time, limiter, _ = seconds(load, device)
        rows.append(case.row(launch.kernel, time + GRAPH_GAP, kernel_bound(case, launch.kernel, load), limiter))
    longest = max(rows, key=lambda row: row.predicted_ms)
    whole = sum(row.predicted_ms for row in rows) / 1e3
    return case.row(case.what, whole, bound_of(case, launches), longest.limiter), *rows


def sectors(case: Case) -> dict[str, tuple[float, float]]:
    """By kernel: the sectors of global memory that loads ask for, by the model and as hostcuda counts them.

    Of the few points and centres that hostcuda has counted; by the model none is in doubt or changes.
    """
    n, k = counted_size(case.d, case.k, case.restarts)
    small = Case(case.what, n, case.d, k, case.restarts, case.arch, 0.0, 0.0)
    be(case.device.profile)
    model: Counter[str] = Counter()
    for call in calls(case.what, n, case.d, k, case.restarts, BLOCKS):
        model[call.name] += run_of(small, launch_of(call, n), False).sectors()
    found = requested(case.what, case.d, k, case.restarts, case.device.profile)
    return {
        kernel: (count, sum(line["load_sectors"] for line in found.get(kernel, {}).values()))
        for kernel, count in model.items()
    }


def markdown(rows: list[Row], doubt: float, changed: float) -> str:
    """As a table."""
    lines = [
        f"Predicted, not measured; float32; of all points {doubt:.1%} are in doubt and {changed:.1%} change cluster.",
        "",
    ]
    lines += [
        "| what | N | d | K | R | architecture | predicted ms | bound ms | ratio | limiter |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        name = f"**{row.what}**" if row.what.endswith("iteration") else f"`{row.what}`"
        ratio = f"{row.predicted_ms / row.bound_ms:.2f}" if row.bound_ms > 1e-4 else "–"
        sizes = f"{row.n} | {row.d} | {row.k} | {row.restarts} | {row.arch}"
        lines.append(f"| {name} | {sizes} | {row.predicted_ms:.4f} | {row.bound_ms:.4f} | {ratio} | {row.limiter} |")
    return "\n".join(lines)


def loops(case: Case) -> str:
    """How often every loop is taken to run."""
    device, lines = case.device, []
    for launch in recorded(case.what, case.d, case.k, case.restarts, device.profile, device.sms, case.n):
        run = run_of(case, launch, False)
        load = run.load(case.arch, device)
        times = sorted(seconds(load, device)[2].items(), key=lambda pair: -pair[1])
        said = ", ".join(f"{name} {1e3 * time:.4f}" for name, time in times)
        grid = "×".join(map(str, launch.grid))
        lines += [f"{launch.kernel}: {grid} blocks of {launch.threads}, {load.resident} warps at a time; ms: {said}"]
        lines += run.counts.lines()
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", type=int, action="append", help="only this one, such as 80; may be repeated")
    parser.add_argument("--shape", action="append", metavar="N,D,K", help="instead of the usual ones; may be repeated")
    parser.add_argument("--what", action="append", choices=list(RECORDERS), help="only this kind of iteration")
    parser.add_argument("--restarts", type=int, default=1)
    parser.add_argument("--doubt", type=float, default=0.01, help="share of points in doubt (%(default)s)")
    parser.add_argument("--changed", type=float, default=0.01, help="share that changes cluster (%(default)s)")
    parser.add_argument("--loops", action="store_true", help="print how often every loop is taken to run instead")
    parser.add_argument("--check", action="store_true", help="say of each requirement whether it is met; exit 1 if not")
    parser.add_argument("--out", type=Path, default=Path("roofline.json"), metavar="FILE")
    parser.add_argument("--readme", action="store_true", help="write the iterations into kernels/README.md")
    parser.add_argument("--predictions", action="store_true", help="write those that `gputabu accept` shows instead")
    arguments = parser.parse_args()
    if arguments.predictions:
        predictions.write(Case, predicted, arguments.arch or ())
        return
    shapes = [tuple(map(int, text.split(","))) for text in arguments.shape or ()] or requirements.SHAPES
    cases = [
        Case(what, n, d, k, arguments.restarts, arch, arguments.doubt, arguments.changed)
        for arch in arguments.arch or requirements.ARCHITECTURES
        for n, d, k in shapes
        for what in arguments.what or RECORDERS
        if arguments.what or what != "relocation iteration" or d * k <= LONG
    ]
    rows: list[Row] = []
    unknown: dict[str, None] = {}
    for case in cases:
        print(f"{case.what}, {case.n, case.d, case.k}, sm_{case.arch}", file=sys.stderr, flush=True)
        try:
            if arguments.loops:
                print(f"{loops(case)}\n")
            else:
                rows += predicted(case)
        except Unknown as error:
            unknown[str(error)] = None
    if not arguments.loops:
        arguments.out.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
        report(rows, arguments)
    missed = requirements.check(Case, predicted) if arguments.check else 0
    if unknown or missed:
        sys.exit("\n".join(unknown) or 1)


def report(rows: list[Row], arguments: argparse.Namespace) -> None:
    said = calibration.report()
    print(f"{said}\n\n{markdown(rows, arguments.doubt, arguments.changed)}")
    if arguments.readme:
        whole = [row for row in rows if row.what in RECORDERS]
        before, rest = README.read_text().split(MARKS[0])
        section = f"{MARKS[0]}\n{said}\n\n{markdown(whole, arguments.doubt, arguments.changed)}\n{MARKS[1]}"
        README.write_text(before + section + rest.split(MARKS[1])[1])


if __name__ == "__main__":
    main()
