"""Reports of fit and select-k: whole by themselves, and in a real browser they can be read and explored."""

from __future__ import annotations

import itertools
import json
import re

import browser
import numpy as np
import pytest
from browser import WIDTHS, Outline
from conftest import blobs

import gputabu
from gputabu.cli.output import explorer, report
from gputabu.cli.output.explorer import COLOURS, Overview
from gputabu.cli.output.fit_summary import FitSummary
from gputabu.cli.output.markup import STYLE
from gputabu.data.preprocessing import Preprocessing
from gputabu.data.tables import Table

NAMES = ("<script>oops()</script>", "$x^2$ & more", "a name that goes on " * 4, "w")
COMMAND = "gputabu fit '<b>.csv' -k 6 --out " + "/very/long" * 20


def summary_of(values, k, names=None, scale=None, ids=None, **parameters):
    names = names or tuple(f"column {j}" for j in range(values.shape[1]))
    table = Table("a folder/" + "long" * 30 + "<b>.csv", names, True, values, "</i>d" if ids else None, ids)
    preprocessing = Preprocessing.of(table, scale)
    points = preprocessing.points(table)
    model = gputabu.KMeans(k, random_state=0, backend="numpy", **parameters).fit(points)
    return FitSummary(table, preprocessing, points, model, 1.0, COMMAND)


@pytest.fixture(scope="module")
def pages() -> list[str]:
    summary = summary_of(blobs(400, 4, 6), 6, NAMES, "zscore", [f"<i>{i}" for i in range(400)])
    search = gputabu.QuantizedTabuKMeans(6, n_init=3, random_state=0, max_iter=50, backend="numpy")
    searched = FitSummary(
        summary.table, summary.preprocessing, summary.points, search.fit(summary.points), 1.0, COMMAND,
        search.certify(summary.points, max_time=1),
    )  # fmt: skip
    found = gputabu.select_k(summary.points, range(1, 8), ["silhouette", "bic", "gap"], backend="numpy")
    return [report.fit_page(searched), report.selection_page(found, summary)]


@pytest.fixture(scope="module")
def many_clusters() -> str:
    values = np.random.default_rng(0).normal(size=(12_000, 6))
    values[:, 0] += 1e9
    return report.fit_page(summary_of(values, 5000, init=np.arange(5000), max_iter=1))


@pytest.fixture
def chromium(tmp_path):
    if browser.CHROMIUM is None:
        pytest.skip("there is no Chromium on this machine to show the report")
    opened = browser.Browser(tmp_path)
    yield opened
    opened.close()


def test_pages_stand_alone(pages):
    for page in pages:
        tags = Outline(page).seen
        assert not {"link", "iframe", "b", "i", "img"} & {name for name, _ in tags}
        scripts = [attributes for name, attributes in tags if name == "script"]
        assert scripts == [{"type": "application/json", "id": "explored"}, {}, {}]
        assert not any(name.startswith("on") or name in ("src", "href") for _, one in tags for name in one)
        assert "gputabu fit &#x27;&lt;b&gt;.csv&#x27; -k 6" in page
        numbers = json.loads(re.search(r'id="explored">(.*?)</script>', page)[1])
        assert numbers["names"] == list(NAMES) and sum(numbers["sizes"]) == 400


def test_in_a_browser_nothing_is_clipped(pages, many_clusters, measured):
    for page in (*pages, many_clusters):
        found = measured(page)
        assert found["console"] == []
        for width in map(str, WIDTHS):
            assert found[width]["overflow"] <= 0, width
            # A table of many columns scrolls in its own box, and nothing else does.
            assert [
                text for text in found[width]["clipped"] if not text.startswith(("scrolls: cluster", "scrolls: K"))
            ] == []


DRAWN = "document.getElementById('{}').toDataURL()"
BOX = "document.querySelector('.tip').getBoundingClientRect()"
PICTURES = ("heat", "scatter", "sizes", "silhouettes")


def drawn(page, *names):
    return [page.run(DRAWN.format(name)) for name in names or PICTURES]


@pytest.mark.parametrize(("width", "dark"), [(400, True), (1280, False)])
def test_a_click_changes_every_picture(pages, chromium, width, dark):
    for page in pages:
        chromium.show(page, width, dark=dark)
        first = drawn(chromium)
        assert chromium.run("document.getElementById('chosen').hidden")
        for name, x, y in (("heat", 0.5, 0.9), ("sizes", 0.4, 0.8), ("silhouettes", 0.3, 0.5)):
            chromium.click(f"#{name}", x, y)
            assert "Cluster" in chromium.run("document.getElementById('chosen').innerText")
            assert all(a != b for a, b in zip(first, drawn(chromium), strict=True)), name
            assert chromium.run("document.querySelectorAll('tr.chosen').length") == 2  # in both tables
            chromium.run("dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape'}))")
            assert drawn(chromium) == first
        chromium.run("document.querySelector('tr[data-cluster=\"3\"]').click()")
        assert chromium.run("chosen") == 3
        chromium.run("document.querySelector('#chosen button').click()")  # to the nearest one
        assert chromium.run("chosen") not in (3, None)
        assert chromium.faults == []


def test_the_mouse_tells_of_what_is_under_it(pages, chromium):
    chromium.show(pages[0], 1280)
    tip = "document.querySelector('.tip').hidden ? '' : document.querySelector('.tip').innerText"
    said = []
    for name, x, y in (("heat", 0.3, 0.9), ("sizes", 0.4, 0.8), ("silhouettes", 0.3, 0.5), ("course", 0.5, 0.5)):
        chromium.move(f"#{name}", x, y)
        said.append(chromium.run(tip))
        assert chromium.run(f"((box) => box.left >= 0 && box.right <= 1280 && box.top >= 0)({BOX})")
    assert "standard deviations from the mean" in said[0] and " rows, " in said[1]
    assert "silhouettes of" in said[2] and "lowest J so far: " in said[3]
    # A row of the scatter, where it was drawn.
    place = chromium.run(
        "(({box, canvas}) => [box.px(rows.values[5 * axisNames.length + columns]) / canvas.clientWidth,"
        " box.py(rows.values[5 * axisNames.length + columns + 1]) / canvas.clientHeight])"
        "(pictures.find(one => one.canvas.id === 'scatter'))"
    )
    chromium.move("#scatter", *place)
    assert re.match(r"</i>d <i>\d+\ncluster \d", chromium.run(tip))
    chromium.click("#scatter", *place)
    assert chromium.run("chosen !== null")


def test_axes_and_orders_can_be_chosen(pages, chromium):
    chromium.show(pages[0], 1280)
    change = "(one => {{ one.value = {1}; one.dispatchEvent(new Event('change')); }})(document.getElementById('{0}'))"
    seen = [drawn(chromium, "scatter")]
    for name, value in (("across", 0), ("up", 3), ("across", 2)):
        chromium.run(change.format(name, value))
        seen.append(drawn(chromium, "scatter"))
    assert all(a != b for a, b in itertools.combinations(seen, 2))
    seen = [drawn(chromium, "heat")]
    for value in (1, 2, 4):
        chromium.run(change.format("heat-order", value))
        seen.append(drawn(chromium, "heat"))
    assert all(a != b for a, b in itertools.combinations(seen, 2))
    assert chromium.faults == []


def test_thousands_of_clusters(many_clusters, chromium):
    """The page stays small, and every cluster can be reached."""
    assert len(many_clusters) < 1_500_000
    chromium.show(many_clusters, 1280)
    before = chromium.run(DRAWN.format("heat"))
    chromium.run("document.getElementById('heat-box').scrollTop = 40000")
    chromium.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
    assert chromium.run(DRAWN.format("heat")) != before
    chromium.click("#heat", 0.5, 0.5)
    assert "Cluster" in chromium.run("document.getElementById('chosen').innerText")
    assert chromium.run("document.querySelectorAll('tr[data-cluster]').length") == 200
    assert chromium.run("document.documentElement.scrollHeight") < 4500  # pictures are not below a long table
    assert chromium.faults == []
    mean = chromium.run("mean[0]")
    assert abs(mean - 1e9) < 1 and chromium.run("Math.abs(valueOf(7, 0) - mean[0]) < 10")  # nothing is lost to float32


def luminance(colour: str) -> float:
    shares = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    linear = np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)
    return float(linear @ [0.2126, 0.7152, 0.0722])


def contrast(a: str, b: str) -> float:
    low, high = sorted(map(luminance, (a, b)))
    return (high + 0.05) / (low + 0.05)


def test_thirty_clusters_have_colours_that_differ():
    """By OKLab, whose distances are those that eyes see; a hundredth is just seen."""
    shares = np.array([[int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)] for colour in COLOURS])
    linear = np.where(shares <= 0.04045, shares / 12.92, ((shares + 0.055) / 1.055) ** 2.4)
    cones = np.array([[0.4122, 0.5363, 0.0514], [0.2119, 0.6807, 0.1074], [0.0883, 0.2817, 0.6300]])
    opponents = np.array([[0.2105, 0.7936, -0.0041], [1.9780, -2.4286, 0.4506], [0.0259, 0.7828, -0.8087]])
    seen = np.cbrt(linear @ cones.T) @ opponents.T
    apart = np.sqrt(((seen[:, None] - seen) ** 2).sum(axis=-1)) + np.eye(len(COLOURS))
    assert len(COLOURS) == 30 and apart.min() > 0.11
    for paper in ("#ffffff", "#14181e"):
        assert min(contrast(colour, paper) for colour in COLOURS) > 1.9


def test_texts_can_be_read_in_light_and_in_dark():
    style = STYLE.read_text(encoding="utf-8")
    colour = r"--(\w+): (#[0-9a-f]+)"
    themes = [dict(re.findall(colour, block)) for block in re.findall(r":root \{(.*?)\}", style, re.DOTALL)]
    assert len(themes) == 2
    for theme in themes:
        paper = "#ffffff" if theme["paper"] == "#fff" else theme["paper"]
        assert contrast(theme["ink"], paper) > 7 and contrast(theme["quiet"], paper) > 4.5
        assert contrast(theme["link"], paper) > 4.5 and contrast(theme["ink"], theme["soft"]) > 7


def test_the_overview_of_all_points():
    X = blobs(40_000, 3, 5).astype(np.float32)
    labels = np.arange(len(X)) % 4
    labels[labels == 2] = 0  # a cluster without rows
    centers = np.array([X[labels == k].mean(axis=0) if k != 2 else [9, 9, 9] for k in range(4)], np.float64)
    seen = Overview.of(X, labels, centers)
    np.testing.assert_allclose(seen.mean, X.mean(axis=0, dtype=np.float64))
    np.testing.assert_allclose(seen.spread, X.std(axis=0, dtype=np.float64))
    sq_dist = ((X - centers[labels]) ** 2).sum(axis=1)
    for k in (0, 1, 3):
        assert labels[seen.medoids[k]] == k and sq_dist[seen.medoids[k]] == sq_dist[labels == k].min()
    assert seen.medoids[2] == -1


@pytest.mark.parametrize("k", [1, 2, 40, 400, 3000])
def test_clusters_that_are_alike_are_neighbours(k):
    places = np.random.default_rng(0).permutation(k)
    centers = np.column_stack([places, np.sin(places)]).astype(float)
    order = explorer.by_similarity(centers)
    assert sorted(order) == list(range(k))
    if k > 2:
        assert np.abs(np.diff(centers[order, 0])).mean() < 3


def test_long_curves_keep_their_extremes():
    values = np.random.default_rng(0).normal(size=50_000)
    values[31_234] = 99
    at, kept = explorer.thinned(values)
    assert len(kept) < 2 * explorer.VALUES and kept.max() == 99 and kept.min() == values.min()
    assert at[0] == 0 and at[-1] == 49_999
    np.testing.assert_array_equal(values[at], kept)


def test_a_search_that_time_ended_is_not_promised_again(pages):
    assert "gives the same clusters, bit for bit" in pages[0]
    table = Table("a.csv", ("x",), True, np.arange(40.0)[:, None])
    model = gputabu.QuantizedTabuKMeans(3, random_state=0, max_time=0, backend="numpy").fit(table.values)
    assert "may end elsewhere" in report.fit_page(
        FitSummary(table, Preprocessing.of(table), table.values, model, 1.0, "gputabu")
    )
