"""Every kernel compiles for every architecture without spilling a byte; the table of them is complete."""

import importlib.util
import json
import pathlib
import re
import subprocess
import sys

import pytest

ROOT = pathlib.Path(__file__).parents[2]
#: Architectures that get every form of every kernel; the others, kin of these, get fewer.
FULL, FEW = (70, 80, 90, 120), (75, 86, 89, 100)


def nvrtc_installed() -> bool:
    if importlib.util.find_spec("nvidia") is None:
        return False
    return importlib.util.find_spec("nvidia.cuda_nvrtc") is not None


@pytest.mark.skipif(not nvrtc_installed(), reason="NVRTC is not installed: pip install 'gputabu[kernels]'")
@pytest.mark.parametrize("arch", [*FULL, *FEW])
def test_compiles_without_spilling(arch):
    """In a process of its own: the script puts hostcuda in CuPy's place."""
    command = [sys.executable, str(ROOT / "benchmarks" / "kernel_table.py"), "--json", "--arch", str(arch)]
    command += ["--few"] if arch in FEW else []
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    usages = json.loads(done.stdout)
    assert {usage["kernel"] for usage in usages} == set(kernels())
    assert {usage["real"] for usage in usages} == {"float", "double"}
    spilling = [usage for usage in usages if usage["spilled"]]
    assert not spilling, "\n".join(map(str, spilling))


def kernels() -> list[str]:
    text = "\n".join(path.read_text() for path in (ROOT / "kernels").glob("*.cu"))
    return re.findall(r'extern "C" __global__ void (\w+)\(', text)


def rows() -> dict[str, str]:
    readme = (ROOT / "kernels" / "README.md").read_text()
    return dict(re.findall(r"^\| `(\w+)`[^|]*(\|.*)$", readme, re.MULTILINE))


def test_table_lists_every_kernel():
    assert set(rows()) == set(kernels()), "run make kernel-table"


def test_table_names_tests_that_exist():
    for kernel, row in rows().items():
        file = row.split("|")[-2].strip()
        assert list((ROOT / "tests").rglob(file)), kernel
