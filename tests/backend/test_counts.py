"""What an iteration on the device may read, launch, copy and wait for; counted by hostcuda."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
if not shutil.which(os.environ.get("CXX", "g++")):
    pytest.skip("hostcuda needs g++", allow_module_level=True)


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """In a process of its own, where hostcuda is CuPy, whatever this one has."""
    file = tmp_path_factory.mktemp("counts") / "counts.json"
    command = [ROOT / "tests" / "hostcuda" / "run", sys.executable, ROOT / "benchmarks" / "counts.py"]
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    command += ["--n", "8000", "--json", file]
    done = subprocess.run(command, env=os.environ | {"PYTHONPATH": path}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(file.read_text())


def test_bytes_of_an_iteration(found):
    assert found["bytes"] <= found["byte_limit"]
    assert found["bytes"] > found["byte_limit"] / 2  # they were counted at all


@pytest.mark.parametrize("restarts", ["1", "8"])
def test_host_stays_out_of_the_loop(found, restarts):
    each = found["iteration"][restarts]
    assert each["launches"] <= 5
    assert each["graph_launches"] <= 1
    assert each["launches"] + each["graph_launches"] > 0
    assert 16 * each["device_to_host"] <= 1
    assert 16 * each["synchronisations"] <= 1
    assert each["allocations"] == 0


def test_restarts_share_the_reads_of_x(found):
    one = found["iteration"]["1"]["reads_of_x"]
    assert one == pytest.approx(2, abs=0.02)  # once to assign, once to survey
    assert found["iteration"]["8"]["reads_of_x"] <= one + 0.1


def test_paper_sized_data_takes_few_launches(found):
    assert found["iris"]["launches"] + found["iris"]["graph_launches"] <= 6


def test_passes_are_coalesced(found):
    rows = {(row["kernel"], row["d"]): row["ratio"] for row in found["coalescing"]}
    assert {("assign_resident", 16), ("survey", 16)} <= rows.keys()
    for (kernel, d), ratio in rows.items():
        if kernel in ("assign", "assign_resident", "survey") and d != 8:  # counted with the first pass, of a relocation
            assert 0.5 < ratio <= found["sector_limit"]
