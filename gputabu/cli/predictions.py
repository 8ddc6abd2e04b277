"""What a model predicts for the speeds that `gputabu accept` measures; `make roofline` made its table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

FILE = Path(__file__).with_name("predictions.json")
#: What is measured, by the iteration that is predicted.
ITERATIONS = {"gputabu K-Means": "k-means iteration", "gputabu QM-TS": "tabu iteration"}


@dataclass(frozen=True)
class Speeds:
    """Of a device: what its times are scaled by."""

    dram: float  # GB/s
    clocks: float  # multiprocessors times GHz


@dataclass(frozen=True)
class Prediction:
    """Milliseconds of an iteration, and of which device the model has been told."""

    ms: float
    kernels: tuple[str, ...]
    nearest: str


@cache
def table() -> dict[str, Any]:
    """The predictions that ship with the package."""
    found: dict[str, Any] = json.loads(FILE.read_text(encoding="utf-8"))
    return found


def nearest(capability: int) -> int:
    """The newest predicted architecture that is not newer than the device, otherwise the oldest one."""
    known = sorted(map(int, table()["devices"]))
    return max((arch for arch in known if arch <= capability), default=known[0])


def speeds(attributes: Mapping[str, int], model: Speeds, sms: int) -> Speeds:
    """Of a device by its attributes; those of the model where the driver does not say."""
    count, rate = attributes.get("MultiProcessorCount", 0), attributes.get("ClockRate", 0)  # kHz
    memory, bits = attributes.get("MemoryClockRate", 0), attributes.get("GlobalMemoryBusWidth", 0)
    clocks = count * rate / 1e6 if rate else model.clocks * (count or sms) / sms
    return Speeds(2 * memory * bits / 8 / 1e6 or model.dram, clocks or model.clocks)  # two words a clock


def prediction(name: str, shape: tuple[int, int, int], device: Mapping[str, Any]) -> Prediction | None:
    """Of one iteration on a device, as `diagnosis.device_details` describes it; None where nothing was predicted.

    Each kernel's time is that on the nearest architecture, scaled by what limits it there: by the speed of DRAM, or
    else by multiprocessors times clock.
    """
    arch = nearest(int(device["compute_capability"]))
    one = table()["devices"][str(arch)]
    model = Speeds(one["dram_gb_s"], one["sms"] * one["clock_ghz"])
    here = speeds(device["attributes"], model, one["sms"])
    wanted = dict(zip(("n", "d", "k"), shape, strict=True)) | {"arch": arch, "iteration": ITERATIONS.get(name)}
    rows = [row for row in table()["rows"] if wanted.items() <= row.items()]
    if not rows:
        return None
    scales = {True: model.dram / here.dram, False: model.clocks / here.clocks}
    ms = sum(row["ms"] * scales[row["limiter"] == "DRAM"] for row in rows)
    return Prediction(ms, tuple(row["kernel"] for row in rows), f"{one['name']} (sm_{arch})")


def explained(device: Mapping[str, Any]) -> str:
    """What a prediction is, in sentences."""
    found, arch = table(), nearest(int(device["compute_capability"]))
    return (
        "Predicted is what a model computes from the machine code of the kernels; nobody has measured it. It is made "
        f"for {found['devices'][str(arch)]['name']} (sm_{arch}), with {found['doubt']:.0%} of the points in doubt and "
        f"{found['changed']:.0%} changing cluster, and scaled to this device: kernels that wait for DRAM by its speed, "
        "all others by multiprocessors times clock."
    )
