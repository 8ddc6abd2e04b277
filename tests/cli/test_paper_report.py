"""The report: everything escaped, nothing fetched, and in a real browser nothing clipped at the width of a phone."""

from __future__ import annotations

import html
import re

import numpy as np
import pytest
from browser import WIDTHS, Outline

from gputabu import datasets, quantized
from gputabu.cli.output import markup
from gputabu.cli.reproduce import paper_report as page
from gputabu.cli.reproduce.paper import TABLES
from gputabu.cli.reproduce.records import Experiment, Outcome, Results, Settings
from gputabu.core.results import Clustering

pytest.importorskip("matplotlib")


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
    assert markup.tag("p", "<b>", markup.tag("i", "&"), title='"') == '<p title="&quot;">&lt;b&gt;<i>&amp;</i></p>'
    assert markup.row("<", "<td>", markup.number("1")) == (
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
