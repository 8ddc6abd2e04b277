"""How the site is built: `make docs`. Figures and the command line's reference are made anew each time."""

from __future__ import annotations

import html
import json
import re
import subprocess
import sys
from pathlib import Path

from sphinx.application import Sphinx

import gputabu

HERE = Path(__file__).parent
#: What is made at build time, and not kept.
MADE = HERE / "made"

project = "gputabu"
author = "The gputabu developers"
project_copyright = author
version = release = gputabu.__version__

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode", "sphinx_copybutton"]
exclude_patterns = ["made/*.md"]
smartquotes_action = "qe"  # not dashes: --out is an option
default_role = "py:obj"  # `name` in a docstring is a link where there is such a thing, and code elsewhere

autodoc_typehints = "none"  # the docstrings have them, in words
autodoc_member_order = "bysource"
strip_signature_backslash = True  # napoleon escapes the underscore of labels_ only then
napoleon_google_docstring = False
napoleon_use_ivar = True  # a line per attribute
napoleon_use_rtype = False

myst_enable_extensions = ["attrs_inline", "colon_fence", "deflist"]
myst_heading_anchors = 3

copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
copybutton_exclude = ".linenos, .gp, .go"

html_theme = "furo"
html_title = f"gputabu {version}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_show_sphinx = False
pygments_style, pygments_dark_style = "friendly", "monokai"


def make(app: Sphinx) -> None:
    """Draw the figures and write down the commands, as the package has them now."""
    python(HERE / "figures.py")
    told = python("-m", "typer", "gputabu.cli", "utils", "docs", "--name", "gputabu")
    _, mark, commands = told.partition("\n## ")  # the page has an introduction of its own
    commands = re.sub(r"\x08\n(.*?)\n(?=\n)", example, commands, flags=re.DOTALL)
    (MADE / "commands.md").write_text(mark + commands, encoding="utf-8")
    told = "\n".join(summary(path) for path in sorted(HERE.parent.glob("notebooks/*.ipynb")))
    (MADE / "notebooks.md").write_text(told, encoding="utf-8")


def example(found: re.Match[str]) -> str:
    """Lines of a help text that are not to be joined: a backspace is before them."""
    return f"```text\n{html.unescape(found[1])}\n```\n"


def summary(path: Path) -> str:
    """The title of a notebook and what it says of itself."""
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    title, *text = "".join(cells[0]["source"]).strip().split("\n\n")
    return f"#{title}\n\n`notebooks/{path.name}`\n\n" + "\n\n".join(text) + "\n"


def python(*arguments: str | Path) -> str:
    return subprocess.run([sys.executable, *arguments], stdout=subprocess.PIPE, text=True, check=True).stdout


def foreign(app: Sphinx, what: str, name: str, thing: object, skip: bool, options: object) -> bool | None:
    """Leave out what an estimator inherits from scikit-learn, which describes it."""
    module = getattr(getattr(thing, "fget", thing), "__module__", None) or ""
    return True if module.startswith("sklearn") else None


def setup(app: Sphinx) -> None:
    app.connect("builder-inited", make)
    app.connect("autodoc-skip-member", foreign)
