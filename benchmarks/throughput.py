"""What devices can do in a clock, and how long a kernel takes at that: a model, whose results are predictions.

Lanes per clock and multiprocessor are from the CUDA guides and published tables; the speed of L2 and latencies are
about what published microbenchmarks found. The units of a multiprocessor work side by side: the slowest decides, the
others add little. Arrays that every iteration reads again are in L2 where all that an iteration touches fits in
L2_SHARE of it; otherwise they come from DRAM.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from sass import Block, Instruction

#: The share of its peak that a busy pipe reaches, chosen by published times (calibration.py), and how sharply the
#: largest of several times decides, which is not calibrated.
EFFICIENCY, SHARPNESS = 0.78, 6.0
#: Not calibrated: the share of DRAM's peak that a copy reaches, the share of L2 that one iteration's arrays can have,
#: and seconds from the end of a kernel to the begin of the next in a graph (published figures are 1.2 to 1.6 µs).
DRAM_SHARE, L2_SHARE, GRAPH_GAP = 0.92, 0.75, 1.4e-6
#: Bytes of a table that L1 holds.
L1_TABLE = 48 << 10
#: Clocks until a result can be used. Global memory: of DRAM, of L2, and of L1.
LATENCY = {"FFMA": 4, "IMAD": 4, "INT": 4, "FLOAT64": 8, "TENSOR": 33, "SHARED": 29, "CONVERSION": 18, "CONVERT64": 18,
           "BARRIER": 20}  # fmt: skip
FROM_DRAM, FROM_L2, FROM_L1 = 500, 260, 35


@dataclass(frozen=True)
class Device:
    """A device, with lanes per clock and multiprocessor."""

    name: str
    profile: str  # of hostcuda
    sms: int
    ghz: float
    dram: float  # GB/s
    l2: float  # GB/s
    cache: float  # MB of L2
    ffma: int
    float64: int
    convert64: int
    tensor: int  # multiply-adds of FP16 with FP32 sums
    integer: int = 64
    synchronous: float = 1.0  # the share of `tensor` that mma.sync reaches: on Hopper only wgmma has all of it

    @property
    def clock(self) -> float:
        return self.ghz * 1e9


DEVICES = {
    70: Device("V100", "v100", 80, 1.53, 900, 2200, 6, 64, 32, 16, 512),
    80: Device("A100-40", "a100", 108, 1.41, 1555, 4000, 40, 64, 32, 16, 1024),
    89: Device("RTX 4090", "l4", 128, 2.52, 1008, 5000, 72, 128, 2, 2, 256),
    90: Device("H100 SXM", "h100", 132, 1.76, 3350, 5500, 50, 128, 64, 16, 2048, synchronous=0.62),
}
_NO_WORK = ("NOP", "BSSY", "BSYNC", "DEPBAR", "WARPSYNC", "YIELD", "ERRBAR", "LDGDEPBAR")
_PIPES = {
    "FFMA": ("FFMA", "FADD", "FMUL", "FFMA32I", "FADD32I", "FMUL32I", "HFMA2", "HADD2", "HMUL2"),
    "IMAD": ("IMAD", "IMUL"),
    "TENSOR": ("HMMA", "IMMA", "BMMA", "HGMMA"),
    "FLOAT64": ("DFMA", "DADD", "DMUL", "DSETP", "DMMA", "DMNMX"),
    "SHARED": ("SHFL", "LDSM", "MATCH", "LDS", "STS", "ATOMS"),
    "GLOBAL": ("LDG", "STG", "LD", "ST", "ATOM", "ATOMG", "RED", "LDL", "STL", "LDGSTS"),
    "BARRIER": ("BAR", "MEMBAR"),
    "ISSUE": _NO_WORK,
}
_PIPE_OF = {name: pipe for pipe, names in _PIPES.items() for name in names}
_CONVERSIONS = ("F2F", "F2I", "I2F", "FRND", "MUFU", "POPC", "FLO", "I2I", "F2IP", "BREV", "F2FP")


@dataclass(frozen=True)
class Asked:
    """What a load, store or atomic of a warp asks of memory on the average, as hostcuda counts it."""

    shared: bool  # rather than global memory
    wavefronts: float | None  # of shared memory; not known
    sectors: float | None  # of global memory; not known
    table: float = 0.0  # bytes of the array, where it has no element for every point


def pipe_of(instruction: Instruction) -> str:
    """Which unit executes an instruction."""
    name = instruction.name
    if name in _CONVERSIONS:
        wide = "64" in instruction.opcode
        return "CONVERT64" if wide else "CONVERSION"
    return _PIPE_OF.get(name, "INT")


def generic_shared(instruction: Instruction, asked: Asked | None) -> bool:
    """Whether an instruction that may ask either memory asks shared memory."""
    return instruction.name in ("LD", "ST", "ATOM") and asked is not None and asked.shared


def memory(instruction: Instruction, asked: Asked | None) -> tuple[float, float]:
    """Wavefronts of shared memory or L1, and bytes of L2, that one instruction of a warp takes."""
    name, width = instruction.name, instruction.width
    if name == "LDSM":
        matrices = instruction.opcode.rsplit(".", 1)[-1]
        return float(matrices) if matrices in ("2", "4") else 1.0, 0.0
    if name == "LDGSTS":
        return 2.0 * width, 128.0 * width
    if pipe_of(instruction) == "SHARED" or generic_shared(instruction, asked):
        known = asked.wavefronts if asked and name != "SHFL" else None
        return (float(width) if known is None else max(known, width / 2)), 0.0
    known = asked.sectors if asked else None
    sectors = 4.0 * width if known is None else known
    if in_l1(instruction, asked):
        return max(1.0, sectors / 4), 0.0
    changes = name in ("RED", "ATOM", "ATOMG")
    return max(1.0, sectors / 4), 32 * sectors * (2 if changes else 1)


def in_l1(instruction: Instruction, asked: Asked | None) -> bool:
    """Whether a load is of a table that L1 holds."""
    return instruction.name in ("LDG", "LD") and asked is not None and 0 < asked.table <= L1_TABLE


def latency_of(instruction: Instruction, asked: Asked | None, points: float) -> float:
    """Clocks until what was asked of memory is there; `points`: of arrays with an element for every point."""
    if generic_shared(instruction, asked) or pipe_of(instruction) == "SHARED":
        return LATENCY["SHARED"]
    if asked is None or not asked.table:
        return points
    return FROM_L1 if in_l1(instruction, asked) else FROM_L2


def clocks(instruction: Instruction, device: Device) -> float:
    """Clocks of a multiprocessor's unit that one instruction of a warp takes, other than those of memory."""
    pipe = pipe_of(instruction)
    if pipe == "TENSOR":
        rate = device.tensor * device.synchronous / (2 if "TF32" in instruction.opcode else 1)
        return tensor_size(instruction) / rate
    lanes = {"FFMA": device.ffma, "FLOAT64": device.float64, "CONVERT64": device.convert64, "CONVERSION": 16}
    return 32 / lanes.get(pipe, device.integer)


def products(instruction: Instruction) -> tuple[str, float]:
    """Multiply-adds of a warp's instruction, and of what kind."""
    pipe = pipe_of(instruction)
    if pipe == "TENSOR":
        return pipe, tensor_size(instruction)
    return pipe, 32.0 if instruction.name in ("FFMA", "DFMA", "DMUL", "FMUL") else 0.0


def tensor_size(instruction: Instruction) -> float:
    """Multiply-adds of a product of small matrices."""
    opcode = instruction.opcode
    return 16 * 8 * (16 if "16816" in opcode else 4 if "1684" in opcode else 8)


def waiting(block: Block, loops: bool, memory: Mapping[int, float]) -> float:
    """Clocks of a block of one warp alone, which issues in order and waits for operands; of a later round of a loop.

    `memory` has the latencies of instructions that ask memory, by their numbers.
    """
    ready: dict[str, float] = {}
    now = begun = 0.0
    for _ in range(2 if loops else 1):
        begun = now
        for number, instruction in enumerate(block.code):
            written, read = instruction.registers()
            pipe = pipe_of(instruction)
            now = max([now + 1, *(ready.get(name, 0.0) for name in read)])
            if pipe == "BARRIER":
                now += LATENCY["BARRIER"]
            for name in written:
                ready[name] = now + memory.get(number, LATENCY.get(pipe, 4))
    return now - begun + 1


@dataclass(frozen=True)
class Load:
    """What a launch does: per warp, and in bytes."""

    clocks: Mapping[str, float]  # of each pipe, per warp
    instructions: float  # per warp
    waits: float  # clocks of a warp alone
    warps: int  # of the launch
    blocks: int
    resident: int  # warps that a multiprocessor holds
    dram: float  # bytes
    l2: float
    products: Mapping[str, float]  # multiply-adds of each kind, of all lanes
    cached: bool = False  # the points are in L2


#: Names of limiters, by pipe. FFMA and IMAD are one pipe; shared memory and L1 are one memory.
LIMITERS = {"FFMA": "FFMA", "TENSOR": "tensor", "FLOAT64": "float64", "CONVERT64": "float64",
            "SHARED": "shared memory", "CONVERSION": "integer"}  # fmt: skip


def seconds(load: Load, device: Device, efficiency: float = EFFICIENCY) -> tuple[float, str, dict[str, float]]:
    """Predicted time, without the gap to the next kernel; what limits it; and the time of each limiter."""
    busy = min(device.sms, load.blocks)  # multiprocessors at work
    per_sm = load.warps / busy
    pipes: Counter[str] = Counter()
    for pipe, taken in load.clocks.items():
        pipes["FFMA" if pipe == "IMAD" else pipe] += taken
    times: Counter[str] = Counter()
    for pipe, taken in pipes.items():
        if name := LIMITERS.get(pipe):
            times[name] = max(times[name], taken * per_sm / device.clock / efficiency)
    # Float32 and integer instructions of a warp wait for each other: published times fit the sum of both, not the
    # larger. Four instructions of all kinds begin in a clock.
    more = "FFMA" if pipes["FFMA"] > pipes["INT"] else "integer"
    math = max(pipes["FFMA"] + pipes["INT"], load.instructions / 4)
    times[more] = max(times[more], math * per_sm / device.clock / efficiency)
    rounds = per_sm / min(load.resident, per_sm) if per_sm else 0.0
    times["latency"] = load.waits * rounds / device.clock
    times["DRAM"] = 0.0 if load.cached else load.dram / (device.dram * 1e9 * DRAM_SHARE)
    times["L2"] = max(load.l2, load.dram) / (device.l2 * 1e9)
    total = sum(time**SHARPNESS for time in times.values()) ** (1 / SHARPNESS)
    return total, max(times, key=lambda name: times[name]), dict(times)
