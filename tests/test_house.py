"""The house stays one that people find their way in: few entries, short modules, short functions, the same names."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "gputabu"
#: Lines of a module and of a function at the most. Compiled loops may be longer where splitting would hurt.
MODULE, FUNCTION = 500, 60
MODULES = sorted(PACKAGE.rglob("*.py"))
#: Passes that have a file of their own in every backend.
FAMILIES = ("tabu_argmin.py", "seeding.py", "hartigan.py", "relocation.py")


def name(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def test_few_entries():
    entries = [path.name for path in PACKAGE.iterdir() if path.name != "__pycache__"]
    assert len(entries) <= 12, sorted(entries)


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_modules_and_functions_are_short(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= MODULE
    if "numba/kernels" in name(path):
        return
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            documented = isinstance(node.body[0], ast.Expr) and isinstance(node.body[0].value, ast.Constant)
            begun = node.body[0].end_lineno if documented else node.lineno
            assert node.end_lineno - begun <= FUNCTION, node.name


@pytest.mark.parametrize("path", MODULES, ids=name)
def test_modules_say_what_they_are(path):
    said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    assert said and "TODO" not in said


def test_backends_have_the_same_files():
    for backend in ("numpy", "numba", "cuda"):
        assert {path.name for path in (PACKAGE / "backend" / backend).glob("*.py")} >= {"backend.py", *FAMILIES}


def test_tests_mirror_the_rooms():
    rooms = {path.name for path in PACKAGE.iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert rooms <= {path.name for path in Path(__file__).parent.iterdir()}
