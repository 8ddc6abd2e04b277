"""The documents keep their word: their code runs, their links lead somewhere, the site builds without a warning."""

from __future__ import annotations

import contextlib
import doctest
import io
import re
import shlex
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
import typer
from markdown_it import MarkdownIt
from typer.testing import CliRunner

import gputabu
from gputabu import cli, plotting

ROOT = Path(__file__).parents[1]
PAGES = sorted(
    path
    for pattern in ("*.md", "docs/**/*.md", "docker/*.md", "kernels/*.md", "notebooks/*.md", "tests/*/*.md")
    for path in ROOT.glob(pattern)
    if "made" not in path.parts
)
#: Commands that take long; their options are checked, and no more.
COSTLY = ("reproduce", "doctor", "bench", "accept")
#: Public names that the package does not list in `__all__`.
FUNCTIONS = [
    "quantized.search", "relocation.search", "reassignment.search", "lloyd.run", "evolution.search", "datasets.load",
]  # fmt: skip


def tokens(page):
    return MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8"))


def name(page):
    return page.relative_to(ROOT).as_posix()


def blocks(page):
    """The code on a page: its language, its text and the line before it. Indented code is shell's."""
    for token in tokens(page):
        if token.type in ("fence", "code_block"):
            yield token.info.strip() or "sh", token.content, token.map[0]


def commands(text):
    """The calls of gputabu among lines of shell, as lists of words."""
    for line in text.replace("\\\n", " ").splitlines():
        if line.startswith("gputabu "):
            words = shlex.split(line, comments=True)
            end = next((i for i, word in enumerate(words) if word in ("|", ">", "&&", ";")), len(words))
            yield words[1:end]


def run_command(words):
    """Check the options of a command, and run it unless it takes long or reads a file that the page has not made."""
    group = typer.main.get_command(cli.app)
    context = group.make_context("gputabu", words[:1], resilient_parsing=True)
    parsed = group.get_command(context, words[0]).make_context(words[0], list(words[1:]), parent=context)
    files = [parsed.params[name] for name in ("data", "model") if name in parsed.params]
    if words[0] not in COSTLY and all(Path(file).exists() for file in files):
        done = CliRunner().invoke(cli.app, words)
        assert done.exit_code == 0, f"gputabu {shlex.join(words)}: {done.output}"


def run_session(text, names, page, line):
    """Run what is after the prompts, and compare what it prints."""
    options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    test = doctest.DocTestParser().get_doctest(text, names, name(page), str(page), line)
    told = io.StringIO()
    runner = doctest.DocTestRunner(optionflags=options)
    runner.run(test, out=told.write, clear_globs=False)
    names.update(test.globs)
    assert not runner.failures, told.getvalue()


CODE = [page for page in PAGES if any(language in ("python", "pycon", "sh") for language, *_ in blocks(page))]


@pytest.mark.parametrize("page", CODE, ids=name)
def test_code_runs(page, tmp_path, monkeypatch):
    """From top to bottom in one folder, as a reader would."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    names = {"__name__": "__main__"}
    for language, text, line in blocks(page):
        if language == "python":
            exec(compile("\n" * (line + 1) + text, str(page), "exec"), names)
        elif language == "pycon":
            run_session(text, names, page, line)
        elif language == "sh":
            for words in commands(text):
                run_command(words)


def test_the_test_runs_code():
    """What it is told to run, it runs."""
    found = [language for page in CODE for language, *_ in blocks(page)]
    assert found.count("python") > 5 and found.count("pycon") > 5
    run = [words for page in CODE for language, text, _ in blocks(page) if language == "sh" for words in commands(text)]
    assert {"fit", "predict", "select-k", "doctor"} <= {words[0] for words in run}
    with contextlib.redirect_stderr(io.StringIO()), pytest.raises(Exception, match="--no-such-option"):
        run_command(["doctor", "--no-such-option"])
    with pytest.raises(AssertionError, match="Expected"):
        run_session(">>> 1 + 1\n3\n", {}, PAGES[0], 0)


def anchors(page):
    """What a heading can be linked by."""
    parsed = tokens(page)
    headings = [parsed[i + 1].content for i, token in enumerate(parsed) if token.type == "heading_open"]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def links(page):
    inside = [child for token in tokens(page) for child in token.children or ()]
    return [child.attrs["href"] for child in inside if child.type == "link_open"] + [
        child.attrs["src"] for child in inside if child.type == "image"
    ]


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_somewhere(page):
    for link in links(page):
        parts = urlsplit(link)
        if parts.scheme:
            assert parts.scheme in ("http", "https") and "." in parts.netloc, link
            continue
        target = page.parent / unquote(parts.path) if parts.path else page
        assert target.exists(), f"{link} is not there"
        if parts.fragment and target.suffix == ".md":
            assert parts.fragment in anchors(target), f"{link}: there is no such heading"


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built as `make docs` builds it."""
    pytest.importorskip("sphinx")
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going", "docs", str(folder)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 0 and not ran.stderr, ran.stderr
    return folder


def test_every_public_name_is_in_the_reference(site):
    from sphinx.util.inventory import InventoryFile

    with (site / "objects.inv").open("rb") as file:
        inventory = InventoryFile.load(file, "", lambda uri, path: path)
    documented = {each for domain, names in inventory.items() if domain.startswith("py:") for each in names}
    public = [*gputabu.__all__, *FUNCTIONS, *(f"plotting.{each}" for each in plotting.__all__)]
    assert {f"gputabu.{each}" for each in public} <= documented


def test_every_command_is_in_the_reference(site):
    text = (site / "command-line.html").read_text(encoding="utf-8")
    group = typer.main.get_command(cli.app)
    for command in group.commands.values():
        for parameter in command.params:
            for option in parameter.opts:
                assert not option.startswith("--") or option in text, f"gputabu {command.name} {option}"


def test_the_site_works_offline(site):
    """Nothing is fetched from elsewhere: no script, style, font or image."""
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not re.findall(r"<(?:script|img|iframe)[^>]+src=\"(?:https?:)?//", text), page
        assert not re.findall(r"<link[^>]+rel=\"(?:stylesheet|preload)\"[^>]+href=\"(?:https?:)?//", text), page
    for style in site.rglob("*.css"):
        assert not re.findall(r"url\(['\"]?(?:https?:)?//|@import", style.read_text(encoding="utf-8")), style
