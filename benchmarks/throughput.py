"""What devices can do in a clock, and how long a kernel takes at that: a model, whose results are predictions.

Lanes per clock and multiprocessor are from the CUDA guides and published tables; the speed of L2 is about what
published microbenchmarks found.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from sass import Block, Instruction

#: Constants that are calibrated (`make roofline` says how well that works): the share of its peak that a busy pipe
#: reaches, how sharply the largest of several times decides, the share of DRAM's peak, seconds of a launch in a graph.
EFFICIENCY, SHARPNESS, DRAM_SHARE, LAUNCH = 0.82, 6.0, 0.92, 2e-6
#: Clocks until a result can be used.
LATENCY = {
    "FFMA": 4,
    "INT": 4,
    "FLOAT64": 8,
    "TENSOR": 33,
    "SHARED": 29,
    "GLOBAL": 480,
    "CONVERSION": 18,
    "BARRIER": 20,
}


@dataclass(frozen=True)
class Device:
    """A device, with lanes per clock and multiprocessor."""

    name: str
    profile: str  # of hostcuda
    sms: int
    ghz: float
    dram: float  # GB/s
    l2: float  # GB/s
    ffma: int
    float64: int
    convert64: int
    tensor: int  # multiply-adds of FP16 with FP32 sums
    integer: int = 64

    @property
    def clock(self) -> float:
        return self.ghz * 1e9


DEVICES = {
    70: Device("V100", "v100", 80, 1.53, 900, 2200, 64, 32, 16, 512),
    80: Device("A100-40", "a100", 108, 1.41, 1555, 4000, 64, 32, 16, 1024),
    89: Device("RTX 4090", "l4", 128, 2.52, 1008, 5000, 128, 2, 2, 256),
    90: Device("H100 SXM", "h100", 132, 1.76, 3350, 5500, 128, 64, 16, 2048),
}
_NO_WORK = ("NOP", "BSSY", "BSYNC", "DEPBAR", "WARPSYNC", "YIELD", "ERRBAR")


def pipe_of(instruction: Instruction) -> str:
    """Which unit executes an instruction."""
    name, opcode = instruction.name, instruction.opcode
    if name in ("FFMA", "FADD", "FMUL", "FFMA32I", "FADD32I", "FMUL32I", "HFMA2", "HADD2", "HMUL2"):
        return "FFMA"
    if name in ("HMMA", "IMMA", "BMMA", "HGMMA"):
        return "TENSOR"
    if name in ("DFMA", "DADD", "DMUL", "DSETP", "DMMA", "DMNMX"):
        return "FLOAT64"
    if name in ("F2F", "F2I", "I2F", "FRND", "MUFU", "POPC", "FLO", "I2I", "F2IP", "BREV"):
        return "CONVERT64" if "64" in opcode else "CONVERSION"
    if name.startswith(("LDS", "STS", "ATOMS")) or name in ("SHFL", "LDSM", "VOTE", "MATCH", "R2UR"):
        return "SHARED"
    if name in ("LDG", "STG", "LD", "ST", "ATOM", "ATOMG", "RED", "LDL", "STL", "LDGSTS"):
        return "GLOBAL"
    if name in ("BAR", "MEMBAR"):
        return "BARRIER"
    return "INT" if name not in _NO_WORK else "ISSUE"


def clocks(instruction: Instruction, device: Device) -> float:
    """Clocks of a multiprocessor's unit that one instruction of a warp takes."""
    pipe, opcode = pipe_of(instruction), instruction.opcode
    if pipe == "TENSOR":
        return tensor_size(instruction) / (device.tensor / (2 if "TF32" in opcode else 1))
    if pipe in ("SHARED", "GLOBAL"):
        return 4.0 if opcode.startswith("LDSM") else float(instruction.width)
    lanes = {"FFMA": device.ffma, "FLOAT64": device.float64, "CONVERT64": device.convert64, "CONVERSION": 16}
    return 32 / lanes.get(pipe, device.integer)


def products(instruction: Instruction) -> float:
    """Multiply-adds of a warp's instruction."""
    if pipe_of(instruction) == "TENSOR":
        return tensor_size(instruction)
    return 32.0 if instruction.name in ("FFMA", "DFMA", "DMUL", "FMUL") else 0.0


def tensor_size(instruction: Instruction) -> float:
    """Multiply-adds of a product of small matrices."""
    opcode = instruction.opcode
    return 16 * 8 * (16 if "16816" in opcode else 4 if "1684" in opcode else 8)


def waiting(block: Block, loops: bool) -> float:
    """Clocks of a block of one warp alone, which issues in order and waits for operands; of a later round of a loop."""
    ready: dict[str, float] = {}
    now = begun = 0.0
    for _ in range(2 if loops else 1):
        begun = now
        for instruction in block.code:
            written, read = instruction.registers()
            pipe = pipe_of(instruction)
            now = max([now + 1, *(ready.get(name, 0.0) for name in read)])
            if pipe == "BARRIER":
                now += LATENCY["BARRIER"]
            if instruction.name == "LD":  # generic: tables that may be in shared memory
                pipe = "SHARED"
            for name in written:
                ready[name] = now + LATENCY.get(pipe, LATENCY["CONVERSION"] if "CONV" in pipe else 4)
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
    products: float = 0.0  # multiply-adds of all kinds, of all lanes


#: Names of limiters, by pipe.
LIMITERS = {"FFMA": "FFMA", "TENSOR": "tensor", "FLOAT64": "float64", "CONVERT64": "float64", "SHARED": "shared memory",
            "GLOBAL": "shared memory", "INT": "integer", "CONVERSION": "integer", "ISSUE": "integer"}  # fmt: skip


def seconds(load: Load, device: Device, launch: float = LAUNCH) -> tuple[float, str, dict[str, float]]:
    """Predicted time, what limits it, and the time of each limiter."""
    busy = min(device.sms, load.blocks)  # multiprocessors at work
    per_sm = load.warps / busy
    times: Counter[str] = Counter()
    for pipe, taken in load.clocks.items():
        name = LIMITERS.get(pipe)
        if name is not None:
            times[name] = max(times[name], taken * per_sm / device.clock / EFFICIENCY)
    times["integer"] = max(times["integer"], load.instructions / 4 * per_sm / device.clock / EFFICIENCY)
    rounds = per_sm / min(load.resident, per_sm) if per_sm else 0.0
    times["latency"] = load.waits * rounds / device.clock
    times["DRAM"] = load.dram / (device.dram * 1e9 * DRAM_SHARE)
    times["L2"] = load.l2 / (device.l2 * 1e9)
    total = sum(time**SHARPNESS for time in times.values()) ** (1 / SHARPNESS)
    return total + launch, max(times, key=lambda name: times[name]), dict(times)
