"""The notebooks are what their sources make, have no outputs, and run."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

nbformat = pytest.importorskip("nbformat")
nbclient = pytest.importorskip("nbclient")
pytest.importorskip("jupytext")
pytest.importorskip("ipykernel")

ROOT = Path(__file__).parents[1]
FOLDER = ROOT / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


@pytest.fixture
def sync(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import sync

    yield sync
    sys.modules.pop("sync")


def test_they_are_what_their_sources_make(sync):
    assert NOTEBOOKS
    assert sync.stale() == []


def test_what_is_not_made_from_a_source_is_found(sync, tmp_path, monkeypatch):
    monkeypatch.setattr(sync, "HERE", tmp_path)
    source, notebook = tmp_path / "one.py", tmp_path / "one.ipynb"
    source.write_text("# %%\n1 + 1\n", encoding="utf-8")
    assert sync.stale() == [notebook]
    notebook.write_text(sync.made(source), encoding="utf-8")
    assert sync.stale() == []
    assert sync.made(source) == sync.made(source)  # to the letter
    source.write_text("# %%\n1 + 2\n", encoding="utf-8")
    assert sync.stale() == [notebook]
    source.unlink()
    assert sync.stale() == [notebook]


def test_the_readme_names_them_all():
    named = re.findall(r"\(notebooks/(\S+\.ipynb)\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert named == [path.name for path in NOTEBOOKS]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_runs(path, tmp_path, monkeypatch):
    """On tiny sizes, without a network; it ends with a picture, and nothing goes to stderr."""
    monkeypatch.setenv("GPUTABU_TINY", "1")
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    notebook = nbformat.read(path, as_version=4)
    assert all(cell.outputs == [] and cell.execution_count is None for cell in notebook.cells if "outputs" in cell)
    assert notebook.metadata.kernelspec.name == "python3"
    nbclient.NotebookClient(notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", [])]
    assert "image/png" in outputs[-1]["data"]
    assert [output.text for output in outputs if output.get("name") == "stderr"] == []
    assert not any("OTHER BITS" in output.get("text", "") for output in outputs)
    assert list(tmp_path.iterdir()) == []  # it leaves nothing behind
