"""How long kernels would take on devices that nobody here has: predicted from machine code, never measured.

The SASS of a compiled kernel is counted per loop and unit, times the trips of the loops for a shape, and held against
what a device can do in a clock; the model is calibrated on times that others have published. `bound` is what no kernel
of this kind can beat: bytes at the speed of DRAM, products at the peak of FFMA, or of tensor cores from d = 16 on.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tests" / "hostcuda"), str(ROOT)]  # hostcuda in CuPy's place: launches are recorded on it

from cycles import compiled, load_of, macros  # noqa: E402
from launches import RECORDERS, recorded  # noqa: E402
from throughput import DEVICES, Device, seconds  # noqa: E402
from trips import Unknown  # noqa: E402

README = ROOT / "kernels" / "README.md"
#: Kernels that multiply all points by all centres: fewer multiply-adds than that are a mistake of the count.
PRODUCTS = ("assign", "assign_tiled", "assign_tensor", "nearest_two")
MARKS = ("<!-- roofline: made by `make roofline` -->", "<!-- end of roofline -->")
SHAPES = ((1_000_000, 2, 10), (1_000_000, 8, 64), (1_000_000, 16, 64), (1_000_000, 16, 256), (1_000_000, 32, 100),
          (200_000, 128, 256), (1_000_000, 128, 1000), (1_000_000, 384, 1000), (1_000_000, 768, 1000))  # fmt: skip
#: What the counts of instructions are known to get wrong, found by reading them beside the source.
KNOWN_ERRORS = """\
Too high for `assign` and `assign_tiled`, by a factor of two and, on sm_90, up to eight: loops that the compiler has
unrolled in part, or made twice for a condition that does not change, are counted in full. Loads through a generic
pointer count as those of L2. Sectors and bank conflicts that hostcuda counts are not used yet."""
#: Published times in ms of a kernel with direct (x - c)² on a V100 (krulis-martin/cuda-kmeans): (N, d, K).
PUBLISHED = {(2**21, 32, 1024): 25.4, (2**21, 128, 1024): 100.0, (2**23, 16, 256): 14.3}
#: Such a kernel: a point in registers, centres from shared memory.
DIRECT = """#line 1 "direct.cu"
extern "C" __global__ void direct(const float* X, const float* centers, int* labels, int n, int k) {
    __shared__ float4 tile[CENTERS * D / 4];
    float x[D];
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    #pragma unroll
    for (int j = 0; j < D; ++j) x[j] = X[(long long)j * n + i];
    float best = 1e30f;
    int found = 0;
    for (int first = 0; first < k; first += CENTERS) {
        __syncthreads();
        for (int t = threadIdx.x; t < CENTERS * D / 4; t += blockDim.x)
            tile[t] = ((const float4*)centers)[first * D / 4 + t];
        __syncthreads();
        #pragma unroll 1
        for (int a = 0; a < CENTERS; ++a) {
            float sum = 0;
            #pragma unroll
            for (int j = 0; j < D / 4; ++j) {
                const float4 c = tile[a * (D / 4) + j];
                const float p = x[4 * j] - c.x, q = x[4 * j + 1] - c.y, r = x[4 * j + 2] - c.z, s = x[4 * j + 3] - c.w;
                sum += p * p; sum += q * q; sum += r * r; sum += s * s;
            }
            if (sum < best) { best = sum; found = first + a; }
        }
    }
    labels[i] = found;
}
"""


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


def bound_of(kernel: str, n: int, d: int, k: int, r: int, device: Device, dram: float) -> float:
    """Seconds that nothing can beat."""
    once = n * (4 * d + 8 * r) / (device.dram * 1e9)
    if kernel.startswith(("assign", "tensor_assign")):
        lanes = device.ffma if d < 16 else device.tensor
        return max(once, r * n * d * k / (lanes * device.sms * device.clock))
    return once if kernel == "survey" else dram / (device.dram * 1e9)


def predicted(what: str, n: int, d: int, k: int, r: int, arch: int, shares: dict[str, float]) -> list[Row]:
    """An iteration, and the kernels that it launches."""
    from gputabu.backend.cuda.launch import options
    from gputabu.backend.cuda.sources import source

    device, rows = DEVICES[arch], []
    bounds: dict[str, float] = {}
    for launch in recorded(what, d, k, r, device.profile, n):
        made = compiled(source(launch.file), launch.file, options(np.dtype(np.float32), launch.defines), arch)
        names = macros(made[launch.kernel].texts, dict(launch.defines))
        names |= {"n": n, "d": d, "k": k, "r": r, "columns": 2 * d + 1}
        names |= launch.names | shares
        load = load_of(made[launch.kernel], launch.file, names, launch.grid, launch.threads, launch.shared,
                       launch.per_point * n, device, arch)  # fmt: skip
        if launch.kernel in PRODUCTS and load.products < 0.9 * n * r * k * d:
            raise Unknown(f"{launch.kernel}: {load.products:.3g} multiply-adds counted, {n * r * k * d:.3g} needed")
        time, limiter, _ = seconds(load, device)
        bound = bound_of(launch.kernel, n, d, k, r, device, load.dram)
        bounds[launch.kernel] = bound
        rows.append(Row(launch.kernel, n, d, k, r, f"sm_{arch}", 1e3 * time, 1e3 * bound, limiter))
    longest = max(rows, key=lambda row: row.predicted_ms)
    bound = sum(time for kernel, time in bounds.items() if kernel.startswith("assign") or kernel == "survey")
    whole = sum(row.predicted_ms for row in rows)
    return [Row(what, n, d, k, r, f"sm_{arch}", whole, 1e3 * bound, longest.limiter), *rows]


def calibration() -> dict[tuple[int, int, int], float]:
    """Predicted milliseconds of the published cases."""
    found = {}
    for n, d, k in PUBLISHED:
        centers = min(64, 4096 // d)
        options = ("--std=c++17", f"-DD={d}", f"-DCENTERS={centers}")
        made = compiled(DIRECT, "direct.cu", options, 70)["direct"]
        names = {"n": n, "k": k, "D": d, "CENTERS": centers}
        load = load_of(made, "direct.cu", names, (n // 256,), 256, 0, n * (4.0 * d + 4), DEVICES[70], 70)
        found[n, d, k] = 1e3 * seconds(load, DEVICES[70])[0]
    return found


def markdown(rows: list[Row], shares: dict[str, float]) -> str:
    """The iterations as a table, with the kernel that takes longest."""
    said = ", ".join(f"{name} {value:.1%}" for name, value in shares.items())
    lines = [f"Predicted, not measured; float32, shares of points: {said}.", "", KNOWN_ERRORS, ""]
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


def calibration_lines(found: dict[tuple[int, int, int], float]) -> str:
    lines = ["Calibration: a direct (x - c)² kernel on a V100, published times (krulis-martin/cuda-kmeans):", ""]
    lines += ["| N | d | K | published ms | predicted ms | off by |", "|---|---|---|---|---|---|"]
    for (n, d, k), ms in PUBLISHED.items():
        mine = found[n, d, k]
        lines.append(f"| {n} | {d} | {k} | {ms} | {mine:.1f} | {mine / ms - 1:+.0%} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--arch", type=int, action="append", help="only this one, such as 80; may be repeated")
    parser.add_argument("--shape", action="append", metavar="N,D,K", help="instead of the usual ones; may be repeated")
    parser.add_argument("--what", action="append", choices=list(RECORDERS), help="only this kind of iteration")
    parser.add_argument("--restarts", type=int, default=1)
    parser.add_argument("--doubt", type=float, default=0.01, help="share of points in doubt (%(default)s)")
    parser.add_argument("--changed", type=float, default=0.01, help="share that changes cluster (%(default)s)")
    parser.add_argument("--out", type=Path, default=Path("roofline.json"), metavar="FILE")
    parser.add_argument("--readme", action="store_true", help="write the iterations into kernels/README.md")
    arguments = parser.parse_args()
    shapes = [tuple(map(int, text.split(","))) for text in arguments.shape or ()] or SHAPES
    shares = {"doubt": arguments.doubt, "changed": arguments.changed}
    rows = []
    try:
        said = calibration_lines(calibration())
        for arch in arguments.arch or [80, 89, 90]:
            for n, d, k in shapes:
                for what in arguments.what or RECORDERS:
                    rows += predicted(what, n, d, k, arguments.restarts, arch, shares)
                print(f"sm_{arch} {n, d, k}", file=sys.stderr, flush=True)
    except Unknown as error:
        sys.exit(str(error))
    arguments.out.write_text(json.dumps([asdict(row) for row in rows], indent=1) + "\n")
    print(f"{said}\n\n{markdown(rows, shares)}")
    if arguments.readme:
        whole = [row for row in rows if row.what in RECORDERS]
        before, rest = README.read_text().split(MARKS[0])
        section = f"{MARKS[0]}\n{said}\n\n{markdown(whole, shares)}\n{MARKS[1]}"
        README.write_text(before + section + rest.split(MARKS[1])[1])


if __name__ == "__main__":
    main()
