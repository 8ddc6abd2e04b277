"""The model of `make roofline`: loops of machine code, trips of source loops, and times that others have published."""

import dataclasses
import json
import pathlib
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "benchmarks"))

import cycles  # noqa: E402
import requested  # noqa: E402
import sass  # noqa: E402
import throughput  # noqa: E402
import trips  # noqa: E402
from nvrtc import nvrtc_path  # noqa: E402

INSTALLED = nvrtc_path() is not None and sass.nvdisasm_path() is not None
needs_compiler = pytest.mark.skipif(not INSTALLED, reason="pip install 'gputabu[kernels]'")

#: Two loops, one in the other, a branch in the inner one, and the idle branch that ends every kernel.
PLANTED = """
	.section	.text.planted,"ax",@progbits
.text.planted:
	//## File "/x/planted.cu", line 3
        /*0000*/                   MOV R1, RZ ;
.L_outer:
	//## File "/x/planted.cu", line 4
        /*0010*/                   MOV R2, RZ ;
.L_inner:
	//## File "/x/common.cuh", line 7 inlined at "/x/planted.cu", line 5
	//## File "/x/planted.cu", line 5
        /*0020*/                   FFMA R3, R2, R2, R3 ;
        /*0030*/              @P1 BRA `(.L_skip) ;
        /*0040*/                   DADD R6, R6, R8 ;
.L_skip:
	//## File "/x/planted.cu", line 4
        /*0050*/                   IADD3 R2, R2, 0x1, RZ ;
        /*0060*/              @!P0 BRA `(.L_inner) ;
	//## File "/x/planted.cu", line 3
        /*0070*/              @P2 BRA `(.L_outer) ;
        /*0080*/                   EXIT ;
.L_idle:
        /*0090*/                   BRA `(.L_idle);
"""
SOURCE = """\
void planted(int n) {
    const int all = gridDim.x * blockDim.x, me = blockIdx.x * blockDim.x + threadIdx.x;
    for (idx i = me; i < n; i += all)
        for (int j = 0; j < d; ++j)
            sum(j);
    if (resident)
        for (int t = threadIdx.x; t < 3; t += blockDim.x) copy(t);
    for (int a = 0; a < secret(n); ++a) {
        if (found == old) continue;  // beyond: warp(changed)
        change();
    }
    while (more()) { }  // trips: k / 2; half of them
    if (resident) {
        near();
    } else {
        far();
    }
    if (resident) near(); else far();
}
"""
NAMES = {"n": 1_000_000, "d": 16, "k": 64, "grid_x": 100, "threads": 256, "resident": 0, "changed": 0.01}


def test_loops_of_planted_code():
    kernel = sass.parse(PLANTED)["planted"]
    outer, inner = kernel.loops
    assert (outer.depth, inner.depth) == (1, 2)
    assert inner.parent is outer and inner.blocks < outer.blocks
    assert len(inner.blocks) == 3 and outer.blocks - inner.blocks
    places = kernel.blocks[inner.header].code[0].places
    assert places == (("common.cuh", 7), ("planted.cu", 5))
    assert [one.name for one in kernel.blocks[inner.header].code] == ["FFMA", "BRA"]


def test_loops_of_graphs():
    assert sass.find_loops([[1], [2], []]) == []
    whole, part = sass.find_loops([[1], [2], [3, 2], [1, 4], []])  # 2 is a loop of its own
    assert (whole.blocks, part.blocks) == ({1, 2, 3}, {2})
    outer, inner = sass.find_loops([[1], [2], [1, 3], [1, 4], []])  # with one head
    assert (outer.blocks, inner.blocks, inner.parent) == ({1, 2, 3}, {1, 2}, outer)
    [both] = sass.find_loops([[1], [2, 3], [1], [1, 4], []])  # two ways back are one loop
    assert both.blocks == {1, 2, 3} and both.latches == [2, 3]


def test_trips_and_shares():
    found = trips.statements("planted.cu", SOURCE)
    by_line = {one.line: one for one in found}
    stride, inner, branch, copy, unknown, leaves, rest = (by_line[line] for line in (3, 4, 6, 7, 8, 9, 12))
    assert trips.trips(stride, NAMES, SOURCE) == pytest.approx(1_000_000 / 25_600)
    assert 5 in stride and 6 not in stride and trips.trips(inner, NAMES, SOURCE) == 16
    assert trips.share(branch, NAMES) == 0 and trips.share(branch, NAMES | {"resident": 1}) == 1
    assert trips.trips(copy, NAMES, SOURCE) == 1 / 8  # one warp of the eight of a block
    assert 10 in leaves and 9 not in leaves and trips.share(leaves, NAMES) == pytest.approx(1 - 0.99**32)
    assert trips.trips(rest, NAMES, SOURCE) == 32
    both = [one for one in found if one.line == 13]
    assert [(one.kind, 14 in one, 16 in one) for one in both] == [("if", True, False), ("else", False, True)]
    assert [trips.share(one, NAMES) for one in both] == [0, 1]
    assert [trips.share(one, NAMES | {"resident": 1}) for one in both] == [1, 0]
    assert trips.share(by_line[18], NAMES) == 1  # in one line: not known
    with pytest.raises(trips.Unknown, match=r"planted\.cu:8"):
        trips.trips(unknown, NAMES, SOURCE)


def test_expressions():
    assert trips.evaluate("(sizeof(real) == 4 ? (D <= 8 ? 4 : D <= 16 ? 2 : 1) : 7)", {"D": 16}) == 2
    assert trips.evaluate("min((int)threads, shape.k > 1 ? shape.k : 5)", {"threads": 256, "k": 3}) == 3


# ---- planted kernels: what the compilers make of loops is found out, and counted right
PLANTED_CU = '#line 1 "planted.cu"\n' + (pathlib.Path(__file__).parent / "roofline_planted.cu").read_text()


def load_of(kernel, arch, lines=None, **names):
    """What a warp of a planted kernel is found to do."""
    made = cycles.compiled(PLANTED_CU, "planted.cu", ("--std=c++17",), arch)[kernel]
    run = cycles.Run(made, "planted.cu", names, (1,), 32, 0, 0.0, lines)
    return run.load(arch, throughput.DEVICES[arch])


def products(kernel, arch, **names):
    """Multiplications of a thread."""
    return pytest.approx(load_of(kernel, arch, **names).products["FFMA"] / 32, rel=1e-9)


@needs_compiler
@pytest.mark.parametrize("arch", [80, 90])
@pytest.mark.parametrize("n", [1, 10, 16, 103])
def test_products_of_planted_loops(arch, n):
    assert products("whole", arch, n=n) == 24
    assert products("in_part", arch, n=n) == n
    assert products("twice", arch, n=n, weight=False) == n
    assert products("twice", arch, n=n, weight=True) == 2 * n
    assert products("nested", arch, n=n, m=7) == 7 * n
    assert products("nested", arch, n=7, m=n) == 7 * n
    assert products("halved", arch, n=n) == n.bit_length()
    assert products("divergent", arch, n=n, doubt=0) == n
    assert products("divergent", arch, n=n, doubt=1) == 51 * n
    assert products("divergent", arch, n=n, doubt=0.01) == n + 50 * n * (1 - 0.99**32)


@needs_compiler
@pytest.mark.parametrize("arch", [80, 90])
def test_planted_requests(arch):
    """A wide load that all lanes share takes two wavefronts, one whose lanes are all in one bank 32."""
    found, places = {}, {}
    for number, line in enumerate(PLANTED_CU.splitlines()):
        places[line.strip()] = (("planted.cu", number),)
    none = dict.fromkeys(("load_requests", "load_sectors", "store_requests", "store_sectors", "atomic_requests",
                          "atomic_sectors", "shared_requests", "shared_wavefronts"), 0)  # fmt: skip
    found[places["const float4 c = tile[i];"]] = none | {"shared_requests": 10, "shared_wavefronts": 20}
    found[places["sum += words[threadIdx.x * 32 + i] * 3.0f;"]] = none | {"shared_requests": 1, "shared_wavefronts": 32}
    few, many = (load_of("banks", arch, found, n=n).clocks["SHARED"] for n in (10, 11))
    assert many - few == 2 + 32
    few, many = (load_of("banks", arch, n=n).clocks["SHARED"] for n in (10, 11))
    assert many - few == 4 + 1  # as if nothing were in conflict or shared


def test_shares_of_requests():
    loads = {"load_requests": 2, "load_sectors": 10, "shared_requests": 0, "shared_wavefronts": 0}
    counts = dict.fromkeys(("store_requests", "store_sectors", "atomic_requests", "atomic_sectors"), 0) | loads
    lines = {(("a.cu", 3),): counts | {"table": 64}, (("b.cuh", 1), ("a.cu", 4)): counts | {"load_sectors": 2}}
    assert requested.asked(lines, (("a.cu", 3),), True) == throughput.Asked(False, None, 5, 64)
    assert requested.asked(lines, (("b.cuh", 1), ("a.cu", 9)), True).sectors == 1  # the same line, called elsewhere
    assert requested.asked(lines, (("a.cu", 3),), False).sectors is None
    assert requested.asked(lines, (("a.cu", 5),), True) == throughput.Asked(False, None, None)


def test_counts_by_line():
    """In a process of its own, where hostcuda is CuPy: two wavefronts for all lanes together, 32 for one bank."""
    program = f"""
import cupy, numpy as np
cupy._hostcuda.set_count(True, lines=True)
kernel = cupy.RawModule(code={PLANTED_CU!r}, options=("--std=c++17",)).get_function("banks")
kernel((1,), (32,), (cupy.zeros(1024, "f4"), cupy.zeros(32, "f4"), np.int32(10)))
lines = cupy._hostcuda.counts.lines["banks"]
print([(line, counts["shared_requests"], counts["shared_wavefronts"], counts["load_sectors"])
       for ((file, line), *_), counts in sorted(lines.items())])
"""
    command = [ROOT / "tests" / "hostcuda" / "run", sys.executable, "-c", program]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    found = {line: counts for line, *counts in eval(done.stdout)}
    lines = [line.strip() for line in PLANTED_CU.splitlines()]
    assert found[lines.index("const float4 c = tile[i];")] == [10, 20, 0]
    assert found[lines.index("sum += words[threadIdx.x * 32 + i] * 3.0f;")] == [10, 320, 0]
    assert found[lines.index("words[t] = a[t];")] == [32, 32, 128]
    assert found[lines.index("tile[t] = ((const float4*)a)[t];")] == [8, 32, 128]


# ---- the model
def test_arrays_in_l2_are_faster():
    device = throughput.DEVICES[80]
    load = throughput.Load({"FFMA": 10.0}, 20.0, 100.0, 32000, 4000, 64, 1e9, 1e9, {})
    dram, limiter, _ = throughput.seconds(load, device)
    assert limiter == "DRAM" and dram == pytest.approx(1e9 / (1555e9 * throughput.DRAM_SHARE), rel=0.1)
    l2, limiter, _ = throughput.seconds(dataclasses.replace(load, cached=True), device)
    assert limiter == "L2" and l2 == pytest.approx(1e9 / 4000e9, rel=0.1)


def test_hopper_reaches_its_peak_by_wgmma_only():
    product = sass.Instruction("", "HMMA.16816.F32", "R0, R4, R8, R0")
    assert throughput.clocks(product, throughput.DEVICES[80]) == 2  # 16·8·16 / 1024
    assert throughput.clocks(product, throughput.DEVICES[90]) == pytest.approx(1 / 0.62)


@needs_compiler
def test_command(tmp_path):
    """In a process of its own: hostcuda is CuPy there. What it says of published times, and of iterations."""
    command = [sys.executable, ROOT / "benchmarks" / "roofline.py", "--arch", "80", "--shape", "1000000,16,64"]
    command += ["--what", "tabu iteration", "--what", "k-means iteration"]
    done = subprocess.run([*command, "--out", tmp_path / "out.json"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Predicted, not measured" in done.stdout
    offs = [line.split("|")[-3:-1] for line in done.stdout.splitlines()[8:11]]
    assert len(offs) == 3 and all(abs(int(off.strip(" %"))) <= 25 for pair in offs for off in pair)
    rows = json.loads((tmp_path / "out.json").read_text())
    assert {row["what"] for row in rows} >= {"tabu iteration", "k-means iteration", "survey"}
    names = {"what", "n", "d", "k", "restarts", "arch", "predicted_ms", "bound_ms", "limiter"}
    for row in rows:
        assert set(row) == names
        assert row["predicted_ms"] >= row["bound_ms"] >= 0
        assert row["arch"] == "sm_80" and (row["n"], row["d"], row["k"]) == (1_000_000, 16, 64)
        assert row["limiter"] in {
            "DRAM", "L2", "shared memory", "FFMA", "tensor", "float64", "integer", "latency"}  # fmt: skip


@needs_compiler
def test_loads_are_those_that_hostcuda_counts():
    """In a process of its own. What comes of the machine code and its loops, beside accesses that were made."""
    program = f"""
import sys
sys.path.insert(0, {str(ROOT / "benchmarks")!r})
import roofline
print([roofline.sectors(roofline.Case("tabu iteration", 10**6, d, 64, 1, 80)) for d in (8, 16)])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for found in eval(done.stdout):
        model, counted = found["survey"]
        assert 0.8 * counted < model < 1.2 * counted
        model, counted = found.get("assign", found.get("assign_resident"))
        assert 0.1 * counted < model < 2.5 * counted  # many points were not confirmed, in doubt or changed
