"""What every kernel takes on every architecture: registers, spilled bytes, shared memory, occupancy.

NVRTC compiles without a GPU, from the text and with the options that the package gives to CuPy. The shared
memory of a launch is read from launches on hostcuda. Occupancy is theoretical: what registers, shared memory
and threads leave of the warps that a multiprocessor can hold; nothing is timed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from nvrtc import REALS, Nvrtc, Usage, compiled
from sklearn.datasets import load_iris

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "kernels" / "README.md"
MARKS = ("<!-- kernel-table: made by `make kernel-table` -->", "<!-- end of kernel-table -->")
#: Forms of `assign`: numbers of coordinates around the powers of two that tile sizes like.
WIDTHS = (1, 2, 3, 4, 7, 8, 16, 17, 31, 32)
FEW_WIDTHS = (4, 16, 32)
#: Architectures whose machine code is that of another, to the bit; a test looks.
SAME_CODE = {89: 86}
#: What the README's table is made for.
TABLE_ARCH, TABLE_REAL, TABLE_D = 80, "float", 16


@dataclass(frozen=True)
class Limits:
    """Of one multiprocessor, from the technical specifications in the CUDA C++ Programming Guide."""

    warps: int
    blocks: int
    shared: int  # bytes
    reserved: int  # bytes of shared memory that the system takes of every block
    granule: int  # bytes in which shared memory is handed out
    registers: int = 65536


ARCHITECTURES = {
    70: Limits(64, 32, 96 << 10, 0, 256),
    75: Limits(32, 16, 64 << 10, 0, 256),
    80: Limits(64, 32, 164 << 10, 1024, 128),
    86: Limits(48, 16, 100 << 10, 1024, 128),
    89: Limits(48, 24, 100 << 10, 1024, 128),
    90: Limits(64, 32, 228 << 10, 1024, 128),
    100: Limits(64, 32, 228 << 10, 1024, 128),
    120: Limits(48, 24, 100 << 10, 1024, 128),
}


@dataclass(frozen=True)
class About:
    """The columns that no compiler knows; the README says what the letters mean."""

    what: str
    work: str
    read: str  # bytes per point
    written: str  # bytes per point
    tests: str


#: A file of tests that launches the kernel and compares what comes of it.
SEARCH, BACKEND, SEEDING, CUDA = "test_quantized.py", "test_contract.py", "test_seeding.py", "test_cuda.py"
LABELS, SINGLE = "test_reassignment.py", "test_hartigan.py"
LOOPS, ASSIGN = "test_loops.py", "test_assign.py"
TENSOR, SPLITS, PASSES = "test_assign_tensor.py", "test_splits.py", "test_relocation_passes.py"
BOUNDED = "test_transfers.py"
FUZZY, TRIALS = "test_fuzzy_passes.py", "test_trials.py"
# fmt: off
ABOUT = {
    "assign": About("nearest centre, d ≤ 32: labels, changed totals", "N·R·K·d", "s·d + 4R", "≤ 4R", ASSIGN),
    "assign_tiled": About("the same for any d, by tiles", "N·R·K·d", "R·(s·d·(⌈K/64⌉ + 2) + 4) at most",
                          "≤ R·(32d + 20), atomics", BACKEND),
    "half_centers": About("centres as halves, in the order of tensor cores", "R·K·d", "–", "–", TENSOR),
    "assign_resident": About("nearest centre on tensor cores, 16 ≤ d ≤ 48, all centres in shared memory", "N·R·K·d",
                             "s·d + 4R", "≤ 4R", TENSOR),
    "assign_tensor": About("nearest centre on tensor cores, d ≥ 16; lists points in doubt", "N·R·K·d", "s·d + 4R",
                           "≤ 4R", TENSOR),
    "decide_tensor": About("those in doubt, canonically", "m·K·d", "s·d + 8 of those in doubt", "≤ 4R", TENSOR),
    "tensor_check": About("whether tensor cores compute what they should", "–", "–", "–", TENSOR),
    "prepare": About("centroids, tabu stamps; clears for the survey", "R·K·(d + L)", "–", "–", CUDA),
    "fast_centers": About("fast form of given centres", "R·K·d", "–", "–", BACKEND),
    "gather": About("the centres behind `step`, where these are many numbers", "R·K·d", "–", "–", LOOPS),
    "step": About("accept, best so far, patience, tabu rows, next means", "R·K·(d + L)", "–", "–", CUDA),
    "neighbours_choose": About("the best of several neighbours", "R·M", "–", "–", LOOPS),
    "neighbours_step": About("the same as `step`, and the next neighbours", "R·K·(M·d + L)", "–", "–", LOOPS),
    "lloyd_means": About("centroids of K-Means, their shift, fingerprints of the clusters", "R·K·d", "–", "–", LOOPS),
    "lloyd_step": About("whether K-Means ends; its trace, fast form of the centres", "R·K·d", "–", "–", LOOPS),
    "hartigan_prepare": About("weights of the clusters, for single moves", "R·K", "–", "–", LOOPS),
    "hartigan_mark": About("moves found, at their rows", "m", "–", "4R of those that move", LOOPS),
    "hartigan_walk": About("single moves in the order of rows", "N·R + m·d", "4R", "4R of those that move", LOOPS),
    "survey": About("J, and per cluster the best free point", "N·R·d", "s·d·⌈R/8⌉ + 8R", "0", BACKEND),
    "block_search": About("whole restarts, one per block", "T·N·K·d per block", "s·d·R", "0", SEARCH),
    "try_labels": About("trial labellings: changes, fingerprints", "N·R·T", "4R + R·T·s·d of those that change",
                        "≤ R·T·(32d + 32), atomics", LABELS),
    "explain": About("scatter that each trial explains", "R·T·K·d", "–", "–", LABELS),
    "apply_trial": About("the accepted trial: labels, changed totals", "N·R", "R·(4 + s·d of those that change)",
                         "≤ R·(32d + 16), atomics", LABELS),
    "try_steps": About("labels by nearest centre of trials, moved on: totals, fingerprints", "N·R·T·K·d",
                       "R·T·s·d·K, cached", "R·T·32d, atomics", TRIALS),
    "member_keys": About("two random members of the clusters that trials split", "N·R·T", "4R",
                         "16R·T of those, atomics", TRIALS),
    "find_moves": About("every point's best move that lowers J", "N·R·K·d", "R·(s·d·K, cached, + 4)",
                        "16R of those that move", SINGLE),
    "relabel": About("labels of single points changed", "m", "–", "–", SINGLE),
    "nearest_two": About("the two nearest centres", "N·R·K·d", "s·d", "24R", PASSES),
    "price_labels": About("bounded sizes: labels by cost and price", "N·K·d", "s·d·K, cached, + 4", "4", BOUNDED),
    "list_members": About("points of the clusters whose lists are wanted", "N", "4", "8 of those", BOUNDED),
    "transfers": About("per pair of clusters the points that cost least to hand over", "2·N·K·d", "K·(s·d + 8), cached",
                       "–", BOUNDED),
    "reassign": About("labels by nearest centre or Hartigan's rule, changed totals", "N·R",
                      "R·(28 + s·d of those that change)", "R·(4 + 32d, atomics) of those that change", PASSES),
    "swap_gains": About("ΔJ of every candidate in place of every centre", "N·R·T·d", "R·(20 + s·d)", "0", PASSES),
    "relocation_potential": About("potential of tiles of rows, to draw candidates from", "N·R", "8R", "0", LOOPS),
    "relocation_draw": About("candidates of a relocation; flags of the turn", "R·T·(1024 + K)", "–", "–", LOOPS),
    "relocation_move": About("the best swap that is not tabu", "R·T·K", "–", "–", LOOPS),
    "relocation_step": About("centroids, J, best, elite, trace, whether it ends", "R·K·d", "–", "–", LOOPS),
    "bounds": About("box around the points; counts what is not finite", "N·d", "s·d", "0", BACKEND),
    "moments": About("totals of all points", "N·d", "s·d", "0", BACKEND),
    "fetch_rows": About("single points", "m·d", "–", "–", CUDA),
    "labels_of": About("labels of single points", "R·m", "–", "–", BACKEND),
    "mark": About("tabu stamps from a list of rows", "R·K·L", "–", "–", BACKEND),
    "pick_labels": About("labels of some restarts", "N·R", "4R", "4R", CUDA),
    "distances": About("distances to all centres", "N·K·d", "s·d·K, cached", "s·K", CUDA),
    "spreads": About("distances to the own centre, summed per cluster", "N·R·d", "R·(s·d + 4)", "0", BACKEND),
    "closest": About("nearest point to each centre, twice", "N·K·d", "s·d·K, cached", "0", SEARCH),
    "farthest": About("farthest point from its centre", "N·d", "s·d + 4", "0", CUDA),
    "lower_sq_dist": About("d² to the nearest seed so far", "N·R·d", "R·(s·d + 8)", "≤ 8R", SEEDING),
    "potential": About("its sum over tiles of rows, in integers", "N·R", "8R", "0", SEEDING),
    "seed_gains": About("what each of T trial seeds would gain", "N·R·T·d", "R·T·(s·d + 8)", "0", SEEDING),
    "fuzzy_sums": About("what fuzzy memberships sum up to", "3·N·R·K·d", "R·s·d·K/16, cached", "32·R·K·d/64, atomics",
                        FUZZY),
    "memberships": About("fuzzy memberships", "3·N·K·d", "s·d·K, cached", "s·K", FUZZY),
    "split_assign": About("the nearer of the two children of its cluster: labels, changed totals", "N·R·d",
                          "R·(s·d + 12)", "≤ R·(32d + 20), atomics", SPLITS),
    "axis_sums": About("a step of the power method in every cluster", "N·R·d", "R·(s·d + 4)", "R·16d, atomics", SPLITS),
    "histogram": About("points of clusters counted along their axis", "N·R·d", "R·(s·d + 4)", "8R, atomics", SPLITS),
    "locate": About("the row that a draw falls on", "1024 per draw", "–", "–", SEEDING),
}
# fmt: on


def occupancy(limits: Limits, registers: int, shared: int, threads: int) -> float:
    """Share of a multiprocessor's warps that can be resident, as NVIDIA's calculator has it."""
    warps = -(-threads // 32)
    per_warp = -(-registers * 32 // 256) * 256  # registers come in units of 256 per warp, warps in fours
    by_registers = limits.registers // per_warp // 4 * 4 // warps
    taken = -(-(shared + limits.reserved) // limits.granule) * limits.granule
    by_shared = limits.shared // taken if taken else limits.blocks
    return min(limits.blocks, limits.warps // warps, by_registers, by_shared) * warps / limits.warps


@dataclass(frozen=True)
class Launch:
    """How the package launches a kernel."""

    threads: int
    shared: int  # dynamic


def launches() -> dict[str, Launch]:
    """Kernels as they are launched for K = 32 and d = 16, or, where those differ, d = 64 or Iris; by form.

    Runs on hostcuda, which is told to have the shared memory of the table's architecture.
    """
    import cupy

    from gputabu.backend.cuda.launch import load, options

    always = {word for dtype in REALS.values() for word in options(dtype, ())}
    seen: dict[str, Launch] = {}
    call = cupy.RawKernel.__call__

    def recorded(kernel: Any, grid: Any, block: Any, args: Any, **more: Any) -> None:
        defines = [word[2:] for word in kernel.options if word not in always]
        form = f"{kernel.name} ({', '.join(defines)})" if defines else kernel.name
        seen.setdefault(form, Launch(int(np.prod(block)), more.get("shared_mem", 0)))
        call(kernel, grid, block, args, **more)

    cupy.RawKernel.__call__ = recorded
    for profile in ("a100", "v100"):  # sm_80, as TABLE_ARCH; and what is launched without tensor cores
        cupy._hostcuda.use_device(profile)
        cupy._hostcuda.attributes["MultiProcessorCount"] = 8  # fewer blocks: nothing here is about them
        load.cache_clear()
        run_all()
    cupy.RawKernel.__call__ = call
    return seen


def run_all() -> None:
    """Launch every kernel."""
    from gputabu import FuzzyCMeans, gmeans, lloyd, quantized, reassignment, relocation

    X = np.random.default_rng(0).normal(size=(4000, 64)).astype(np.float32)
    for data, k, restarts in ((X[:, :16], 32, 1), (X[:, :16], 32, 8), (X, 32, 1), (load_iris().data, 3, 1)):
        data = np.ascontiguousarray(data, np.float32)
        quantized.search(data, k, restarts=restarts, max_iter=2, patience=3, refine="centroid", backend="cuda")
    lloyd.run(X[:, :16].copy(), 32, max_iter=1, refine="hartigan", backend="cuda")
    reassignment.search(X[:, :16].copy(), 32, max_iter=1, backend="cuda")
    reassignment.search(X[:400, :16].copy(), 32, max_iter=1, modes=["divide"], improve="kmeans", backend="cuda")
    relocation.search(X[:, :16].copy(), 32, max_iter=1, backend="cuda")
    gmeans.search(np.concatenate([X[:, :16], X[:, :16] + 20]), max_iter=1, backend="cuda")
    FuzzyCMeans(32, max_iter=1, backend="cuda").fit(X[:, :16]).memberships(X[:, :16])


def readme_section(usages: Sequence[Usage], launched: dict[str, Launch]) -> str:
    columns = "kernel|what|operations|bytes read per point|written|registers|shared bytes|occupancy|tested by"
    lines = [
        MARKS[0],
        f"Registers, shared memory and occupancy: float32 on sm_{TABLE_ARCH} with d = {TABLE_D}, K = 32",
        "(`assign_tiled`: d = 64, `block_search`: Iris). Occupancy is theoretical, computed from registers,",
        "threads and shared memory; nothing here was timed. Bytes are those of the points and of what each has",
        "for itself, worked out by hand; centres and other small tables, which caches hold, are left out, and",
        "weights add 8. s is the size of a coordinate, L the length of a tabu row, T the number of iterations or",
        "trials, m of rows asked for.",
        "",
        f"| {columns.replace('|', ' | ')} |",
        "|---|---|---|---|---|---|---|---|---|",
        *(table_row(usage, launched) for usage in chosen(usages)),
        "",
        "All kernels in all forms, float32 and float64:",
        "",
        "| architecture | kernels compiled | most registers | largest stack frame | spilled bytes |",
        "|---|---|---|---|---|",
        *(summary_row(arch, usages) for arch in sorted({usage.arch for usage in usages})),
        MARKS[1],
    ]
    return "\n".join(lines)


def chosen(usages: Iterable[Usage]) -> list[Usage]:
    """A row per kernel, and per restarts that share a read in `survey`."""
    rows = [u for u in usages if u.arch == TABLE_ARCH and u.real == TABLE_REAL]
    rows = [u for u in rows if not u.defines.startswith("D=") or u.defines == f"D={TABLE_D}"]
    rows = [u for u in rows if "LANES=" not in u.defines or "LANES=8, MI=2, MIN_BLOCKS=2, NI=4" in u.defines]
    rows = [u for u in rows if "MODES=" not in u.defines]
    rows = [u for u in rows if "RESIDENT=" not in u.defines or "RESIDENT=1" in u.defines]
    rows = [u for u in rows if "TILE_N=" not in u.defines or u.defines == "QS=1, TILE_N=32, WORDS=1"]
    rows = [u for u in rows if "WIDTH=" not in u.defines or u.defines.endswith(f"WIDE=0, WIDTH={TABLE_D}")]
    return sorted(rows, key=lambda u: (list(ABOUT).index(u.kernel) if u.kernel in ABOUT else 0, u.defines))


def table_row(usage: Usage, launched: dict[str, Launch]) -> str:
    if usage.kernel not in ABOUT:
        sys.exit(f"{usage.kernel} of {usage.file} has no entry in ABOUT of benchmarks/kernel_table.py")
    about = ABOUT[usage.kernel]
    launch = launched.get(usage.form, Launch(256, 0))
    shared = usage.shared + launch.shared
    share = occupancy(ARCHITECTURES[usage.arch], usage.registers, shared, launch.threads)
    cells = [f"`{usage.kernel}`" + (f" {usage.defines}" if usage.defines else ""), about.what, about.work]
    cells += [about.read, about.written, str(usage.registers), str(shared), f"{share:.0%}", about.tests]
    return f"| {' | '.join(cells)} |"


def summary_row(arch: int, usages: Iterable[Usage]) -> str:
    mine = [usage for usage in usages if usage.arch == arch]
    most = max(mine, key=lambda usage: usage.registers)
    widest = f"{most.registers} ({most.form}, {most.real})"
    stack, spilled = max(usage.stack for usage in mine), sum(usage.spilled for usage in mine)
    return f"| sm_{arch} | {len(mine)} | {widest} | {stack} | {spilled} |"


def write_readme(section: str) -> None:
    text = README.read_text()
    before, rest = text.split(MARKS[0])
    README.write_text(before + section + rest.split(MARKS[1])[1])


def all_usages(nvrtc: Nvrtc, wanted: Sequence[int], widths: Sequence[int]) -> list[Usage]:
    """Of all kernels in all forms, each compiled once for all architectures that it has the same code on.

    By as many threads as there are processors: NVRTC lets go of the interpreter.
    """
    compile_for = sorted({SAME_CODE.get(arch, arch) for arch in wanted})
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        made = pool.map(lambda arch: (arch, list(compiled(nvrtc, arch, widths))), compile_for)
        found = dict(made)
    return [replace(usage, arch=arch) for arch in wanted for usage in found[SAME_CODE.get(arch, arch)]]


def print_table(usages: Iterable[Usage]) -> None:
    print(f"{'':7}{'kernel':22}{'real':8}{'registers':>9}{'shared':>8}{'stack':>7}{'spilled':>9}{'occupancy':>11}")
    for usage in usages:
        share = occupancy(ARCHITECTURES[usage.arch], usage.registers, usage.shared, 256)
        numbers = f"{usage.registers:>9}{usage.shared:>8}{usage.stack:>7}{usage.spilled:>9}{share:>11.0%}"
        print(f"sm_{usage.arch:<4}{usage.form:22}{usage.real:8}{numbers}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", type=int, action="append", help="only this one, such as 80; may be repeated")
    parser.add_argument("--few", action="store_true", help=f"assign for d of {FEW_WIDTHS} only")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--readme", action="store_true", help="write the table into kernels/README.md")
    arguments = parser.parse_args()
    # Not the real CuPy, even where there is one: launches are recorded on hostcuda.
    sys.path[:0] = [str(ROOT / "tests" / "hostcuda"), str(ROOT)]
    nvrtc = Nvrtc()
    known = [arch for arch in nvrtc.architectures() if arch in ARCHITECTURES]
    wanted = [arch for arch in known if not arguments.arch or arch in arguments.arch]
    widths = FEW_WIDTHS if arguments.few else WIDTHS
    usages = all_usages(nvrtc, wanted, widths)
    if arguments.json:
        print(json.dumps([asdict(usage) for usage in usages], indent=1))
    elif arguments.readme:
        write_readme(readme_section(usages, launches()))
        print(f"{len(usages)} kernels compiled, table written to {README.relative_to(ROOT)}")
    else:
        print_table(usages)


if __name__ == "__main__":
    main()
