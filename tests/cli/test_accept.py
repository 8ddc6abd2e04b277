"""`gputabu accept`: the report, cases that fail or end the process, and machines without a GPU; on hostcuda, tiny."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from browser import WIDTHS, Outline
from typer.testing import CliRunner

from gputabu import BackendUnavailable, cli
from gputabu.cli import accept_cases, equality
from gputabu.cli.accept import variables, verdict
from gputabu.cli.output.acceptance_page import acceptance_page

ROOT = Path(__file__).parents[2]


def accept(folder, *options, before=""):
    """Run the command on hostcuda; `before` is done first in the same process."""
    if not shutil.which(os.environ.get("CXX", "g++")):
        pytest.skip("hostcuda needs g++")
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    code = f"from gputabu import cli\nfrom gputabu.cli import accept, equality\n{before}\ncli.main()"
    command = [ROOT / "tests" / "hostcuda" / "run", sys.executable, "-c", code, "accept", "--quick", "--out", folder]
    environment = os.environ | {"PYTHONPATH": path, "HOSTCUDA_CHECK": "0"}
    return subprocess.run([*map(str, command), *options], env=environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    folder = tmp_path_factory.mktemp("acceptance")
    done = accept(folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, json.loads((folder / "acceptance.json").read_text()), (folder / "acceptance.html").read_text()


def test_every_case_passes_on_hostcuda(ran):
    said, found, page = ran
    assert found["passed"] and found["running"] is None
    assert {case["status"] for case in found["cases"]} <= {"passed", "skipped"}
    assert found["verdict"].startswith(f"All {len(found['cases'])} cases passed")
    assert found["verdict"] in said and found["verdict"].split(":")[0] in page
    groups = {case["group"] for case in found["cases"]}
    assert {"sweep", *(f"row {i}" for i in (1, 2, 3, 4, 5, 6, 7, 8, 9, 11, 12, 13, 15))} == groups


def test_a_stand_in_claims_no_times(ran):
    said, found, page = ran
    assert "says nothing about a GPU" in found["verdict"] and "none is compared with what was predicted" in said
    assert "Predicted is what a model computes" in said and found["prediction"] in page
    assert all(one["predicted_ms"] is None for shape in found["speed"] for one in shape["times"].values())
    assert all(one["ms"] is one["ratio"] is None for shape in found["speed"] for one in shape["times"].values())
    assert not re.search(r"[\d.]+ ms|\d ×", said) and not re.search(r"\d ×<", page)
    assert {"gputabu K-Means", "gputabu QM-TS", "cuML", "faiss", "flash-kmeans"} == set(found["speed"][0]["times"])
    assert not any(one["failed"] for one in found["speed"][0]["times"].values())


def test_the_report_has_what_a_fault_needs(ran):
    _, found, page = ran
    here = found["environment"]
    assert here["Python"] in page and here["CuPy"] in page and here["CUDA"] == "driver 12.9, runtime 12.9"
    assert here["device"]["attributes"]["MaxSharedMemoryPerBlockOptin"] > 0
    assert here["device"]["memory_total"] >= here["device"]["memory_free"] > 0
    assert "HOSTCUDA_CHECK" in here["variables"]
    Outline(page.replace("<!DOCTYPE html>", ""))


PLANTED = """
from gputabu.algorithms import lloyd
import numpy as np
X = np.arange(12.0)[:, None]
def raises(): raise RuntimeError("planted\\n  fault")
accept.cases = lambda device, quick: [
    equality.Case("planted", "other data", lambda: equality.difference(
        lloyd.run(X + 1, 3, backend="cuda"), lloyd.run(X, 3, backend="numpy"))),
    equality.Case("planted", "an error", raises),
    equality.Case("planted", "none", lambda: None),
]
"""


def test_cases_that_fail_do_not_end_the_run(tmp_path):
    done = accept(tmp_path, "--json", before=PLANTED)
    assert done.returncode == 1, done.stderr
    found = json.loads(done.stdout)
    assert found == json.loads((tmp_path / "acceptance.json").read_text())
    assert [case["status"] for case in found["cases"]] == ["failed", "failed", "passed"]
    assert found["cases"][0]["detail"].startswith("centres differ from NumPy's: 3 of 3, first at (0, 0): ")
    assert found["cases"][1]["detail"] == "RuntimeError: planted fault"
    assert "in raises" in found["cases"][1]["traceback"]
    assert found["verdict"].startswith("2 of 3 cases FAILED.")
    page = (tmp_path / "acceptance.html").read_text()
    assert "What failed" in page and "RuntimeError: planted fault" in page


def test_a_case_that_ends_the_process_is_known(tmp_path):
    before = "import os\naccept.cases = lambda *_: [equality.Case('planted', 'the end', lambda: os._exit(7))]"
    assert accept(tmp_path, before=before).returncode == 7
    found = json.loads((tmp_path / "acceptance.json").read_text())
    assert found["running"] == "planted: the end" and not found["passed"]


def test_a_device_that_is_not_there(tmp_path):
    done = accept(tmp_path, "--device", "3")
    assert done.returncode == 2
    assert done.stderr.strip() == "gputabu accept: --device=3 must be an integer from 0 to 0."


def test_without_a_gpu_it_is_one_sentence(tmp_path, monkeypatch):
    def missing(name):
        raise BackendUnavailable("backend='cuda' cannot run here: CuPy is not installed.")

    monkeypatch.setattr(cli.accept, "resolve", missing)
    done = CliRunner().invoke(cli.app, ["accept", "--out", str(tmp_path / "none")])
    assert done.exit_code == 2
    assert done.output.strip() == "gputabu accept: backend='cuda' cannot run here: CuPy is not installed."
    assert not (tmp_path / "none").exists()


def test_verdicts():
    assert verdict(0, 9, 0, 0) == "All 9 cases passed: in each, this device gave the bits of NumPy."
    assert verdict(0, 9, 2, 0).startswith("All 7 cases passed (2 could not be tried)")
    assert verdict(1, 9, 0, 0).startswith("1 of 9 cases FAILED. Do not rely")
    assert "; 2 of the speeds could not be measured." in verdict(0, 9, 0, 2)


def test_nobodys_secret_is_written():
    given = {"CUDA_VISIBLE_DEVICES": "0", "NVIDIA_API_KEY": "x", "CUPY_TOKEN": "x", "HOME": "x", "OMP_NUM_THREADS": "2"}
    assert variables(given) == {"CUDA_VISIBLE_DEVICES": "0", "OMP_NUM_THREADS": "2"}


def test_differences_are_told():
    one = np.array([1.0, np.nan, 2.0])
    assert equality.array_difference(one, one.copy()) is None
    assert equality.array_difference(one, np.array([1.0, np.nan, 3.0])) == "1 of 3, first at (2,): 2.0 and not 3.0"
    assert equality.array_difference(one, one[:2]) == "(3,) float64 and not (2,) float64"
    assert equality.array_difference(one, one.astype(np.float32)) == "(3,) float64 and not (3,) float32"


def test_the_sweep_reaches_every_axis():
    found = [case.check.args[1] for case in accept_cases.sweep(None, 72, accept_cases.WORK)]
    for axis, values in accept_cases.AXES.items():
        if axis not in ("n", "restarts", "k"):  # these are made smaller for NumPy's sake
            assert {one[axis] for one in found} == set(values), axis
    for one in found:
        assert one["k"] <= one["n"] and one["restarts"] >= 1
    assert max(one["d"] * one["k"] * one["n"] * one["restarts"] for one in found) <= accept_cases.WORK
    assert len({case.name for case in accept_cases.sweep(None, 72, accept_cases.WORK)}) == 72


@pytest.mark.gpu
@pytest.mark.parametrize(
    ("driver", "runtime", "capability", "told"),
    [
        (12090, 12090, 86, []),
        (12020, 12090, 70, []),  # a minor version may differ
        (11080, 12090, None, ["driver is too old"]),
        (12080, 13000, None, ["take a newer driver, or the extra cuda12,"]),
        (12090, 12090, 61, ["device is too old: kernels are made for compute capability 7.0"]),
        (0, 12090, None, []),
    ],
)
def test_what_is_too_old(driver, runtime, capability, told):
    from gputabu.backend.cuda.diagnosis import Versions

    versions = Versions(driver, runtime, capability)
    found = versions.too_old()
    assert len(found) == len(told) and all(part in text for part, text in zip(told, found, strict=True))
    assert str(versions).startswith("driver " if driver else "no driver, runtime 12.9")


def times(ms, ratio=None, note="", predicted=None):
    return {"ms": ms, "ratio": ratio, "predicted_ms": predicted, "kernels": [], "note": note, "failed": False}


def test_a_page_with_everything_in_it(ran, measured):
    found = json.loads(json.dumps(ran[1]))
    found["cases"][0] |= {"status": "failed", "detail": "labels differ: 1 < 2", "traceback": "Trace\n  <line>"}
    found["cases"][1] |= {"status": "skipped", "detail": "processes are not forked on this system"}
    found["passed"], found["environment"]["too old"] = False, ["The driver is too old."]
    found["speed"][0]["times"] |= {
        "gputabu K-Means": times(1.5, predicted=1.2),
        "cuML": times(3.0, 2.0),
        "faiss": times(None, None, "no"),
    }
    page = acceptance_page(found)
    assert "1 &lt; 2" in page and "&lt;line&gt;" in page and "The driver is too old." in page
    assert "2.00 ×" in page and "1.500" in page and "1.200" in page and "1.25 ×" in page
    shown = measured(page.replace("</main>", '<div class="figures"></div></main>'))  # what the measure looks for
    assert shown["console"] == []
    for width in map(str, WIDTHS):
        assert shown[width]["overflow"] <= 0, width
        clipped = [" ".join(text.split()) for text in shown[width]["clipped"]]
        allowed = ("scrolls: group", "scrolls: ms")
        assert [text for text in clipped if text != "scrolls:" and not text.startswith(allowed)] == []  # one is folded
