"""Reports of fit and select-k: whole by themselves, and in a real browser nothing clipped."""

from __future__ import annotations

import numpy as np
import pytest
from browser import WIDTHS, Outline
from conftest import blobs

import gputabu
from gputabu.cli.output import report
from gputabu.cli.output.fit_summary import FitSummary
from gputabu.data.preprocessing import Preprocessing
from gputabu.data.tables import Table

pytest.importorskip("matplotlib")
NAMES = ("<script>oops()</script>", "$x^2$ & more", "a name that goes on " * 4, "w")


@pytest.fixture(scope="module")
def pages() -> list[str]:
    table = Table("a folder/" + "long" * 30 + "<b>.csv", NAMES, True, blobs(400, 4, 6))
    preprocessing = Preprocessing.of(table, "zscore")
    points = preprocessing.points(table)
    model = gputabu.QuantizedTabuKMeans(6, n_init=3, random_state=0, max_iter=50, backend="numpy").fit(points)
    found = gputabu.select_k(points, range(1, 8), ["silhouette", "bic"], backend="numpy")
    command = "gputabu fit '<b>.csv' -k 6 --out " + "/very/long" * 20
    summary = FitSummary(table, preprocessing, points, model, 1.0, command)
    return [report.fit_page(summary), report.selection_page(found, table.source, command)]


def test_pages_stand_alone(pages):
    for page in pages:
        tags = Outline(page).seen
        assert not {"script", "link", "iframe", "b"} & {name for name, _ in tags}
        sources = [attributes["src"] for name, attributes in tags if name == "img"]
        assert len(sources) >= 3 and all(source.startswith("data:image/svg+xml;base64,") for source in sources)
        assert "gputabu fit &#x27;&lt;b&gt;.csv&#x27; -k 6" in page


def test_in_a_browser_nothing_is_clipped(pages, measured):
    for page in pages:
        found = measured(page)
        assert found["console"] == []
        for width in map(str, WIDTHS):
            assert found[width]["overflow"] <= 0, width
            # A table of many columns scrolls in its own box, and nothing else does.
            assert [
                text for text in found[width]["clipped"] if not text.startswith(("scrolls: cluster", "scrolls: K"))
            ] == []
            assert all(natural > 0 and shown > 250 for natural, shown in found[width]["images"])


def test_a_search_that_time_ended_is_not_promised_again(pages):
    assert "gives the same clusters, bit for bit" in pages[0]
    table = Table("a.csv", ("x",), True, np.arange(40.0)[:, None])
    model = gputabu.QuantizedTabuKMeans(3, random_state=0, max_time=0, backend="numpy").fit(table.values)
    assert "may end elsewhere" in report.fit_page(
        FitSummary(table, Preprocessing.of(table), table.values, model, 1.0, "gputabu")
    )
