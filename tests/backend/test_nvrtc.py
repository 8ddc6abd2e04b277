"""Every kernel compiles for every architecture without spilling a byte; the table of them is complete."""

import functools
import importlib.util
import json
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
from conftest import GPU

ROOT = pathlib.Path(__file__).parents[2]
#: Architectures that get every form of every kernel; the others, kin of these, get fewer.
FULL, FEW = (70, 80, 90, 120), (75, 86, 100)


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
    for usage in usages:  # registers come in units of 8 a thread; no block has more than 256 threads
        assert -(-usage["registers"] // 8) * 8 * 256 <= 65536, usage
    if GPU == "hostcuda":
        for usage in usages:
            check_static_shared(usage)


@pytest.mark.skipif(not nvrtc_installed(), reason="NVRTC is not installed: pip install 'gputabu[kernels]'")
@pytest.mark.parametrize("file", ["assign.cu", "assign_tensor.cu", "relocation.cu", "tabu_argmin.cu"])
def test_sm_89_has_the_machine_code_of_sm_86(file):
    """So that what is found of one holds for the other. In a process of its own, as above."""
    program = f"""
import sys
sys.path[:0] = [{str(ROOT / "benchmarks")!r}, {str(ROOT / "tests" / "hostcuda")!r}, {str(ROOT)!r}]
import nvrtc
from gputabu.backend.cuda import diagnosis
form = next(form for form in diagnosis.variants((16,)) if form[0] == {file!r})
one, other = (nvrtc.machine_code(nvrtc.Nvrtc(), arch, form, "float") for arch in (86, 89))
print(one == other, len(one))
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    same, count = done.stdout.split()
    assert same == "True" and int(count) > 0


def check_static_shared(usage) -> None:
    """What hostcuda refuses a launch by is what ptxas says, or a little more: all kernels of a file count."""
    text = (ROOT / "kernels" / usage["file"]).read_text()
    found = static_shared(usage["file"], usage["real"], re.sub(r"D=\d+", "D=4", usage["defines"]))
    assert usage["shared"] <= found, usage
    if text.count("__global__") == 1 and usage["kernel"] != "fast_centers":  # whose header has more
        assert found <= usage["shared"] + 16, usage


@functools.cache
def static_shared(file: str, real: str, defines: str) -> int:
    import cupy

    from gputabu.backend.cuda.launch import options
    from gputabu.backend.cuda.sources import signatures, source

    pairs = tuple((name, int(value)) for name, value in (word.split("=") for word in defines.split(", ") if word))
    dtype = np.dtype(np.float32 if real == "float" else np.float64)
    module = cupy.RawModule(code=source(file), options=options(dtype, pairs))
    return module.get_function(next(iter(signatures(file)))).shared_size_bytes


def kernels() -> list[str]:
    text = "\n".join(path.read_text() for path in (ROOT / "kernels").glob("*.cu"))
    return re.findall(r'extern "C" __global__ void (?:__launch_bounds__\([^)]*\)\s)?(\w+)\(', text)


def rows() -> dict[str, str]:
    readme = (ROOT / "kernels" / "README.md").read_text()
    return dict(re.findall(r"^\| `(\w+)`[^|]*(\|.*)$", readme, re.MULTILINE))


def test_table_lists_every_kernel():
    assert set(rows()) == set(kernels()), "run make kernel-table"


def test_table_names_tests_that_exist():
    for kernel, row in rows().items():
        file = row.split("|")[-2].strip()
        assert list((ROOT / "tests").rglob(file)), kernel
