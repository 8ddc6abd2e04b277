"""Predictions beside what `gputabu accept` measures: which are taken, how they are scaled; the table is whole."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gputabu.cli import accept, predictions

SHAPE = (1000, 2, 3)
ROW = {"iteration": "k-means iteration", "n": 1000, "d": 2, "k": 3}
#: Two devices of 10 and 20 multiprocessors; an iteration of two kernels.
PLANTED = {
    "doubt": 0.01,
    "changed": 0.01,
    "devices": {
        "80": {"name": "old", "sms": 10, "clock_ghz": 1.0, "dram_gb_s": 100},
        "90": {"name": "new", "sms": 20, "clock_ghz": 2.0, "dram_gb_s": 400},
    },
    "rows": [
        ROW | {"arch": 80, "kernel": "assign", "ms": 8.0, "limiter": "DRAM"},
        ROW | {"arch": 80, "kernel": "lloyd_step", "ms": 1.0, "limiter": "latency"},
        ROW | {"arch": 90, "kernel": "assign", "ms": 2.0, "limiter": "FFMA"},
    ],
}


@pytest.fixture
def planted(monkeypatch):
    monkeypatch.setattr(predictions, "table", lambda: PLANTED)


def device(capability, **attributes):
    return {"compute_capability": capability, "attributes": attributes}


def predicted(here, name="gputabu K-Means", shape=SHAPE):
    return predictions.prediction(name, shape, here)


def test_the_device_of_the_model_takes_what_was_predicted(planted):
    here = device(
        "80", MultiProcessorCount=10, ClockRate=1_000_000, MemoryClockRate=1_000_000, GlobalMemoryBusWidth=400
    )
    found = predicted(here)
    assert found.ms == pytest.approx(9.0) and found.kernels == ("assign", "lloyd_step")
    assert found.nearest == "old (sm_80)"


def test_each_kernel_is_scaled_by_what_limits_it(planted):
    memory = {"MemoryClockRate": 2_000_000, "GlobalMemoryBusWidth": 400}
    here = device("86", MultiProcessorCount=5, ClockRate=2_000_000, **memory)
    assert predicted(here).ms == pytest.approx(8.0 / 2 + 1.0)  # twice the DRAM, half as many at twice the clock
    assert predicted(device("120", MultiProcessorCount=40, ClockRate=2_000_000)).ms == pytest.approx(1.0)
    assert predicted(device("80", MultiProcessorCount=5)).ms == pytest.approx(8.0 + 2.0)  # a clock that nobody tells


def test_the_nearest_architecture_is_no_newer(planted):
    assert [predictions.nearest(arch) for arch in (70, 80, 86, 90, 120)] == [80, 80, 80, 90, 90]


def test_what_was_not_predicted(planted):
    here = device("80", MultiProcessorCount=10)
    assert predicted(here, "cuML") is None and predicted(here, shape=(1, 2, 3)) is None
    assert "a model computes" in predictions.explained(here) and "old (sm_80)" in predictions.explained(here)


def test_the_table_has_every_shape_that_is_measured():
    """`make roofline ROOFLINE=--predictions` makes it."""
    sources = Path(__file__).parents[2] / "kernels"
    kernels = set(re.findall(r"__global__ void (?:__launch_bounds__\([^)]*\)\s)?(\w+)\(", "\n".join(
        path.read_text(encoding="utf-8") for path in sources.glob("*.cu"))))  # fmt: skip
    for arch in map(int, predictions.table()["devices"]):
        for shape in (*accept.SHAPES, *accept.QUICK):
            for name in predictions.ITERATIONS:
                found = predicted(device(str(arch)), name, shape)
                assert found is not None and found.ms > 0, (arch, shape, name)
                assert set(found.kernels) <= kernels, "make roofline ROOFLINE=--predictions"
