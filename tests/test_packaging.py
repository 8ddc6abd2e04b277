"""The wheel is small, pure and complete, and importing the package imports nothing it does not need."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory) -> Path:
    """The wheel of this checkout; skips where it cannot be built, as without a network and hatchling."""
    if find_spec("build") is None or not (ROOT / "pyproject.toml").exists():
        pytest.skip("needs the package 'build' and a checkout")
    folder = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--outdir", str(folder), str(ROOT)]
    if find_spec("hatchling"):
        command.append("--no-isolation")
    ran = subprocess.run(command, capture_output=True, text=True)
    if ran.returncode and not find_spec("hatchling") and "hatchling" in ran.stdout + ran.stderr:
        pytest.skip("hatchling is not installed and could not be fetched")
    assert ran.returncode == 0, ran.stdout + ran.stderr
    (built,) = folder.glob("*.whl")
    return built


def test_the_wheel_is_pure_and_small(wheel):
    assert wheel.name.endswith("-py3-none-any.whl")
    assert wheel.stat().st_size < 700_000


def test_the_wheel_is_complete(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    sources = {path.relative_to(ROOT).as_posix() for path in (ROOT / "gputabu").rglob("*.py")}
    kernels = {f"gputabu/{path.relative_to(ROOT).as_posix()}" for path in (ROOT / "kernels").glob("*.*")}
    assert "gputabu/kernels/README.md" in kernels
    assert sources | kernels | {"gputabu/py.typed", "gputabu/cli/output/page.css"} <= names
    assert not any(name.startswith(("tests/", "benchmarks/")) for name in names)


def test_importing_imports_nothing_optional():
    """Also where it is installed: CuPy looks for a GPU, and Matplotlib takes a second. But numba: see `backend`."""
    code = """
import sys
import sklearn.base, sklearn.utils  # what scikit-learn imports is its business
optional = {"cupy", "matplotlib", "dask", "pooch", "tqdm"} - set(sys.modules)
import gputabu
print(*optional & set(sys.modules))
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == []
