"""Every Python example of the README runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

README = Path(__file__).parents[1] / "README.md"
EXAMPLES = re.findall(r"^```python\n(.*?)^```", README.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def test_there_are_examples():
    assert EXAMPLES


@pytest.mark.parametrize("example", EXAMPLES, ids=range(1, len(EXAMPLES) + 1))
def test_example_runs(example, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # whatever it writes
    exec(compile(example, str(README), "exec"), {"__name__": "__main__"})
