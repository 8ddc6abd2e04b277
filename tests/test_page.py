"""The report: everything escaped, nothing fetched, and in a real browser nothing clipped at the width of a phone."""

from __future__ import annotations

import html
import json
import os
import re
import shutil
import subprocess
from html.parser import HTMLParser

import numpy as np
import pytest

from gputabu import datasets, markup, page, quantized
from gputabu.markup import row, tag
from gputabu.outcomes import Experiment, Outcome, Results, Settings
from gputabu.paper import TABLES
from gputabu.results import Clustering

pytest.importorskip("matplotlib")
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
WIDTHS = (400, 1280)


def invented(number: str) -> np.ndarray:
    """Points in place of a table's, of its shape and scale."""
    n, d = datasets.SOURCES[TABLES[number].dataset].shape
    scale = 1e5 if "e" in TABLES[number].style else 1.0
    return np.random.default_rng(n).normal(size=(n, d)) * scale


def outcome(found: Clustering, classes: np.ndarray | None) -> Outcome:
    return Outcome.of(found, 0.5, classes)


@pytest.fixture(scope="module")
def results() -> Results:
    """All kinds of tables: complete, with the note, interrupted, skipped, not begun."""
    settings = Settings(runs=3)
    tables = {number: Experiment(number) for number in ("I", "IV", "V", "VI", "II")}
    for number in ("I", "IV", "V"):
        X, k = invented(number), TABLES[number].k
        found = quantized.search(X, k, restarts=3, max_iter=10, backend="numpy")
        methods = ["K-Means"] if number == "V" else list(TABLES[number].rows)
        classes = np.repeat([0, 1, 2], 50) if number == "I" else None
        tables[number].outcomes = {method: outcome(found, classes) for method in methods}
    tables["VI"].skipped = "The file <script>alert('&')</script> lies in " + "/a/very/long/path" * 12 + "."
    return Results(settings, tables, interrupted=True)


@pytest.fixture(scope="module")
def report(results, tmp_path_factory) -> str:
    def load(name, data_home, preprocessing):
        if name == "cloud":
            raise datasets.DataUnavailable("gone since")
        number = "I" if name == "iris" else "IV"
        return datasets.Dataset(name, invented(number), None, (), {}, "", "", preprocessing)

    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(datasets, "load", load)
        return page.write(results, tmp_path_factory.mktemp("report")).read_text(encoding="utf-8")


class Outline(HTMLParser):
    """Tags opened and closed, and attributes of each."""

    VOID = ("meta", "img", "br")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open, self.seen = [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, name, attributes):
        self.seen.append((name, dict(attributes)))
        if name not in self.VOID:
            self.open.append(name)

    def handle_endtag(self, name):
        assert self.open.pop() == name


def test_the_page_stands_alone(report):
    tags = Outline(report).seen
    names = [name for name, _ in tags]
    assert not {"script", "link", "iframe", "object"} & set(names)
    images = [attributes for name, attributes in tags if name == "img"]
    assert images and all(image["src"].startswith("data:image/svg+xml;base64,") for image in images)
    assert all(image["alt"] for image in images)
    assert not [key for _, attributes in tags for key in attributes if key.startswith("on")]
    style = report[report.index("<style>") : report.index("</style>")]
    assert "url(" not in style and "@import" not in style
    targets = {attributes["href"] for name, attributes in tags if name == "a"}
    anchors = {f"#{attributes['id']}" for _, attributes in tags if "id" in attributes}
    assert {target for target in targets if target.startswith("#")} == anchors


def test_everything_is_escaped(report):
    assert "<script" not in report
    assert "The file &lt;script&gt;alert(&#x27;&amp;&#x27;)&lt;/script&gt;" in report
    assert tag("p", "<b>", tag("i", "&"), title='"') == '<p title="&quot;">&lt;b&gt;<i>&amp;</i></p>'
    assert row("<", "<td>", markup.number("1")) == (
        '<tr><th scope="row">&lt;</th><td>&lt;td&gt;</td><td class="number">1</td></tr>'
    )


def test_what_the_page_says(report, results):
    text = html.unescape(re.sub(r"<[^>]+>", " ", report[report.index("</style>") :])).replace("\xa0", " ")
    for number, experiment in results.tables.items():
        for verdict in experiment.verdicts:
            assert verdict.text in text
        assert f"Table {number}. {TABLES[number].title}" in text
    for words in ("misprint", "adjusted Rand index", "Interrupted", "divided by the number of runs", "z-scores", "GPL"):
        assert words in text
    captions = re.findall(r"<figcaption>(.*?)</figcaption>", report)
    assert sum("two principal components" in caption for caption in captions) == 2  # no points of Cloud
    assert sum("in the course of the best run" in caption for caption in captions) == 4
    assert sum(caption == "J of 3 runs of each method" for caption in captions) == 3


@pytest.mark.parametrize(
    ("outcomes", "skipped", "said"),
    [
        ({"K-Means": 90.5, "K-Means++": 80.0, "TSC": 283.0, "QM-TS": 78.85}, None, "agrees"),
        ({"K-Means": 90.5, "K-Means++": 80.0, "TSC": 83.0, "QM-TS": 78.9}, None, "differs: TSC, QM-TS"),
        ({"K-Means": 90.5}, None, "not run: K-Means++, TSC, QM-TS"),
        ({}, "no data", "skipped"),
    ],
)
def test_badges(outcomes, skipped, said):
    made = {
        name: Outcome([value], 1.0, "numpy", [0], None, [value], [value], None, None)
        for name, value in outcomes.items()
    }
    assert f">{said}<" in page.badge(Experiment("I", made, skipped))


MEASURE = """
const found = {};
for (const frame of document.querySelectorAll('iframe')) {
  const page = frame.contentDocument, root = page.documentElement, clipped = [];
  for (const element of page.body.querySelectorAll('*')) {
    if (element.closest('.scroll') && !element.matches('.scroll')) continue;  // scrolls in its own box
    if (element.matches('.scroll')) {  // it could, but at these widths it need not
      if (element.scrollWidth > element.clientWidth + 1) clipped.push('scrolls: ' + element.innerText.slice(0, 90));
      continue;
    }
    const box = element.getBoundingClientRect();
    if (element.scrollWidth > element.clientWidth + 1 && getComputedStyle(element).display !== 'inline'
        || box.right > root.clientWidth + 1 || box.left < -1) clipped.push(element.outerHTML.slice(0, 80));
  }
  found[frame.width] = {
    overflow: root.scrollWidth - root.clientWidth, clipped, text: page.body.innerText.length,
    images: [...page.images].map(image => [image.naturalWidth, image.getBoundingClientRect().width]),
    columns: getComputedStyle(page.querySelector('.figures')).gridTemplateColumns.split(' ').length,
  };
}
document.body.textContent = JSON.stringify(found);
"""


@pytest.fixture
def measured(tmp_path):
    """A function that shows a page in frames of all widths, in one window, and measures them when images are there."""
    if CHROMIUM is None:
        pytest.skip("there is no Chromium on this machine to show the report")

    def measure(text: str) -> dict:
        frames = [f'<iframe width="{width}" height="900" srcdoc="{html.escape(text)}"></iframe>' for width in WIDTHS]
        script = f"<script>onload = () => {{ {MEASURE} }};</script>"
        harness = tmp_path / "harness.html"
        harness.write_text(f"<!DOCTYPE html><meta charset='utf-8'>{''.join(frames)}{script}", encoding="utf-8")
        command = [
            CHROMIUM, "--headless", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync",
            "--disable-background-networking", "--disable-component-update", "--enable-logging=stderr",
            f"--user-data-dir={tmp_path / 'user'}", "--virtual-time-budget=10000", "--dump-dom", harness.as_uri(),
        ]  # fmt: skip
        if hasattr(os, "geteuid") and os.geteuid() == 0:
            command.insert(1, "--no-sandbox")
        ran = subprocess.run(command, capture_output=True, text=True, timeout=180)
        assert ran.returncode == 0, ran.stderr
        found = re.search(r"<body[^>]*>(.*)</body>", ran.stdout, re.DOTALL)
        return json.loads(html.unescape(found[1])) | {"console": re.findall(r".*CONSOLE.*", ran.stderr)}

    return measure


def test_in_a_browser_nothing_is_clipped(report, measured):
    found = measured(report)
    assert found["console"] == []
    for width in map(str, WIDTHS):
        assert found[width]["overflow"] <= 0, width
        assert found[width]["clipped"] == [], width
        assert found[width]["text"] > 3000
        assert len(found[width]["images"]) == report.count("<img")
        for natural, shown in found[width]["images"]:
            assert natural > 0 and shown > 250
    assert found["400"]["columns"] == 1 and found["1280"]["columns"] >= 2


def test_the_browser_notices_faults(report, measured):
    """Planted: a wide line, a broken picture, a script that fails."""
    faults = (
        "<p style='white-space: pre'>" + "x" * 90 + "</p><img src='data:image/png;base64,AAAA'><script>oops()</script>"
    )
    found = measured(report.replace("<main>", f"<main>{faults}", 1))
    assert found["400"]["overflow"] > 0 or found["400"]["clipped"]
    assert found["1280"]["overflow"] <= 0
    assert [natural for natural, _ in found["400"]["images"]].count(0) == 1
    assert "oops is not defined" in " ".join(found["console"])
