"""Make the notebooks from their sources: x.ipynb from x.py (jupytext, percent format), without outputs.

python notebooks/sync.py          writes them
python notebooks/sync.py --check  says which are not what their sources make, and fails if there are any
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

import jupytext

HERE = Path(__file__).parent


def sources() -> list[Path]:
    """The notebooks, as scripts, in the order to read them."""
    return sorted(path for path in HERE.glob("*.py") if path.name != Path(__file__).name)


def made(source: Path) -> str:
    """The notebook that a source makes: the same text every time."""
    notebook = jupytext.read(source, fmt="py:percent")
    notebook.metadata = {
        "kernelspec": {"display_name": "Python 3", "language": "python", "name": "python3"},
        "language_info": {"name": "python"},
    }
    for number, cell in enumerate(notebook.cells):
        cell.id = f"cell-{number}"  # or it would be random
    return jupytext.writes(notebook, fmt="ipynb") + "\n"


def stale() -> list[Path]:
    """Notebooks that are not what their sources make, or have none."""
    wanted = {source.with_suffix(".ipynb"): made(source) for source in sources()}
    found = {path: path.read_text(encoding="utf-8") for path in HERE.glob("*.ipynb")}
    return sorted(path for path in wanted.keys() | found.keys() if wanted.get(path) != found.get(path))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing")
    if not parser.parse_args().check:
        for source in sources():
            source.with_suffix(".ipynb").write_text(made(source), encoding="utf-8")
    if wrong := stale():
        sys.exit(f"{', '.join(path.name for path in wrong)}: not what the source makes. Run make notebooks.")


if __name__ == "__main__":
    main()
