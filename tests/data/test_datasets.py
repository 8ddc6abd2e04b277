"""Data sets are found in the promised order, proven by their values, and never silently something else."""

from __future__ import annotations

import gzip
import http.server
import io
import os
import sys
import threading
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_iris

from gputabu import datasets, quantized
from gputabu.data.datasets import DataUnavailable

FOLDER = os.environ.get("GPUTABU_DATA")  # tests themselves see none
X = np.array([[0.5, 1.0], [-2.25, 1e-3], [3.0, 0.1]])


@pytest.fixture(autouse=True)
def _nowhere(monkeypatch, tmp_path):
    """A user without data, and without a network: no test may depend on this machine's."""
    monkeypatch.delenv("GPUTABU_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("no_proxy", "127.0.0.1")


@pytest.fixture
def toy(monkeypatch):
    """A made-up data set `toy`, three points in the plane."""
    source = datasets.Source((3, 2), "http://127.0.0.1:9/toy.txt", "none", datasets.digest(X), {2: 1.5})
    monkeypatch.setattr(datasets, "SOURCES", {**datasets.SOURCES, "toy": source})
    return source


def csv(values=X) -> str:
    return "\n".join(",".join(map(repr, row)) for row in values.tolist()) + "\n"


def put(folder: Path, content: str | bytes, name: str = "toy.csv") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content.encode() if isinstance(content, str) else content)
    return folder / name


def zipped(content: str, *more: str) -> bytes:
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w") as archive:
        for name in ("toy.csv", *more):
            archive.writestr(name, content)
    return held.getvalue()


SPACED = csv().replace(",", " ")
WRAPPINGS = {
    "csv": csv(),
    "N and d first": f"3 2\n{SPACED}",
    "names first": f"width,height\n{csv()}",
    "classes last": "\n".join(f"{row},7" for row in csv().splitlines()),
    "Windows": csv().replace("\n", "\r\n"),
    "gzip": gzip.compress(SPACED.encode()),
    "zip": zipped(csv()),
    "zip from a Mac": zipped(csv(), "__MACOSX/._toy.csv"),
}


@pytest.mark.parametrize("content", WRAPPINGS.values(), ids=WRAPPINGS)
def test_every_wrapping_gives_the_values(toy, tmp_path, content):
    put(tmp_path, content, "toy.txt")
    loaded = datasets.load("toy", data_home=tmp_path)
    np.testing.assert_array_equal(loaded.points, X)
    assert loaded.points.dtype == np.float64
    assert (loaded.ks, loaded.best_known, loaded.labels) == ((2,), {2: 1.5}, None)


WRONG = {
    "one last bit": csv(np.nextafter(X, 9)),
    "rows exchanged": csv(X[::-1]),
    "a row short": csv(X[:2]),
    "transposed": csv(X.T),
    "words": "<html>404</html>",
    "empty": "",
    "half a zip": zipped(csv())[:60],
    "half a gzip": gzip.compress(csv().encode())[:-9],
    "damaged gzip": b"\x1f\x8b" + b"\x08" + b"\x00" * 7 + b"\xff" * 20,
    "two files": zipped(csv(), "other.csv"),
    "not text": b"\xff\xfe\x00\x81",
}


@pytest.mark.parametrize("content", WRONG.values(), ids=WRONG)
def test_a_wrong_file_is_an_error(toy, tmp_path, content):
    path = put(tmp_path, content)
    with pytest.raises(
        DataUnavailable, match=r"toy.csv is not the data set 'toy': .*; remove it, or put http"
    ) as caught:
        datasets.load("toy", data_home=tmp_path)
    assert str(path) in str(caught.value)


def test_the_shape_counts():
    assert datasets.digest(X) != datasets.digest(X.reshape(2, 3))
    assert datasets.digest(np.array([[0.0]])) == datasets.digest(np.array([[-0.0]]))
    assert datasets.digest(np.asfortranarray(X)) == datasets.digest(X) == datasets.digest(X.astype(">f8"))


def test_search_order(toy, tmp_path, monkeypatch):
    """data_home, GPUTABU_DATA, the cache; a file in the origin's form counts as well as one in ours."""
    named, cache, home = tmp_path / "named", tmp_path / "cache" / "gputabu", tmp_path / "home"
    monkeypatch.setenv("GPUTABU_DATA", str(named))
    assert datasets.folders(home) == [home, named, cache]
    assert datasets.find("toy", home) is None
    for folder in (cache, named, home):
        path = put(folder, SPACED, "toy.txt")
        assert datasets.find("toy", home) == path
    assert datasets.find("toy") == named / "toy.txt"
    np.testing.assert_array_equal(datasets.load("toy", home).points, X)


class Quiet(http.server.BaseHTTPRequestHandler):
    content, asked = b"", 0

    def do_GET(self):
        type(self).asked += 1
        self.send_response(200 if self.path == "/toy.txt" else 404)
        self.end_headers()
        self.wfile.write(self.content)

    def log_message(self, *_):
        pass


@pytest.fixture
def server(toy, monkeypatch):
    """An origin that serves `content`."""
    pytest.importorskip("pooch")
    handler = type("Handler", (Quiet,), {"content": f"3 2\n{SPACED}".encode()})
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as serving:
        threading.Thread(target=serving.serve_forever, daemon=True).start()
        url = f"http://127.0.0.1:{serving.server_port}/toy.txt"
        monkeypatch.setattr(datasets, "SOURCES", {**datasets.SOURCES, "toy": replace(toy, url=url)})
        yield handler
        serving.shutdown()


def test_download_into_the_cache_once(server, tmp_path):
    for _ in range(2):
        np.testing.assert_array_equal(datasets.load("toy").points, X)
    assert server.asked == 1
    cache = tmp_path / "cache" / "gputabu"
    assert [path.name for path in cache.iterdir()] == ["toy.txt"]


def test_download_into_data_home(server, tmp_path):
    datasets.load("toy", tmp_path / "home")
    assert (tmp_path / "home" / "toy.txt").is_file()
    assert not (tmp_path / "cache").exists()


def test_a_wrong_download_is_an_error_and_leaves_nothing(server, tmp_path):
    server.content = csv(X + 1).encode()
    with pytest.raises(DataUnavailable, match=r"^http://127.0.0.1:\d+/toy.txt is not .*: it holds other values"):
        datasets.load("toy")
    assert list((tmp_path / "cache" / "gputabu").iterdir()) == []


def test_no_such_file_at_the_origin(server, monkeypatch):
    source = datasets.SOURCES["toy"]
    monkeypatch.setattr(datasets, "SOURCES", {"toy": replace(source, url=source.url.replace("toy", "gone"))})
    with pytest.raises(DataUnavailable, match=r"could not be downloaded .*404"):
        datasets.load("toy")


def test_without_network_it_says_what_to_put_where(toy, tmp_path):
    pytest.importorskip("pooch")
    home = tmp_path / "home"
    with pytest.raises(DataUnavailable) as caught:  # nothing listens on port 9
        datasets.load("toy", home)
    cache = tmp_path / "cache" / "gputabu"
    assert str(caught.value) == (
        f"The data set 'toy' is not in {home}, {cache} and could not be downloaded (ConnectionError): "
        f"put http://127.0.0.1:9/toy.txt as {home / 'toy.txt'}."
    )


def test_without_pooch_it_says_what_to_install(toy, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "pooch", None)
    wanted = r"pooch is not installed: pip install 'gputabu\[data\]', or put http://127.0.0.1:9/toy.txt as "
    with pytest.raises(DataUnavailable, match=wanted):
        datasets.load("toy")
    assert not (tmp_path / "cache").exists()


def test_a_folder_that_cannot_be_written_is_a_sentence(toy, tmp_path):
    pytest.importorskip("pooch")
    put(tmp_path, "", "home")
    with pytest.raises(DataUnavailable, match=r"could not be downloaded .*exists"):
        datasets.load("toy", tmp_path / "home")


def test_bad_names_get_a_sentence():
    with pytest.raises(ValueError, match="name='irish' must be one of 'iris', 'glass'"):
        datasets.load("irish")
    with pytest.raises(ValueError, match="preprocessing='std' must be one of 'raw', 'zscore'"):
        datasets.load("iris", preprocessing="std")


def test_iris_needs_no_file():
    iris, shipped = datasets.load("iris"), load_iris()
    np.testing.assert_array_equal(iris.points, shipped.data)
    np.testing.assert_array_equal(iris.labels, shipped.target)
    with pytest.raises(AttributeError):
        iris.name = "fisher"
    found = quantized.search(iris.points, 3, restarts=10)
    assert found.inertia == pytest.approx(iris.best_known[3], rel=1e-12)


def test_another_iris_is_noticed(monkeypatch):
    """UCI's own file differs from Fisher's in two rows."""
    shipped = load_iris()
    shipped.data[34, 3] = 0.1
    monkeypatch.setattr("sklearn.datasets.load_iris", lambda: shipped)
    with pytest.raises(DataUnavailable, match="has other values"):
        datasets.load("iris")


def test_zscore():
    values = datasets.zscore(np.array([[1.0, 5.0], [2.0, 5.0], [3.0, 5.0]]))
    np.testing.assert_array_equal(values, [[-1, 0], [0, 0], [1, 0]])  # a constant feature says nothing


def test_best_known_is_of_the_points_as_loaded(toy, monkeypatch, tmp_path):
    put(tmp_path, csv())
    scaled = replace(toy, preprocessing="zscore")
    assert datasets.load("toy", tmp_path, preprocessing="zscore").best_known == {}
    monkeypatch.setattr(datasets, "SOURCES", {"toy": scaled})
    raw = datasets.load("toy", tmp_path)
    assert (raw.best_known, raw.ks) == ({}, (2,))
    assert datasets.load("toy", tmp_path, preprocessing="zscore").best_known == {2: 1.5}


@pytest.fixture
def paper_folder():
    if not FOLDER:
        pytest.skip("GPUTABU_DATA is not set: the data sets are not part of the project")
    return FOLDER


@pytest.mark.data
@pytest.mark.parametrize("name", datasets.SOURCES)
def test_the_files_at_hand_are_the_data_sets(name, paper_folder):
    source, loaded = datasets.SOURCES[name], datasets.load(name, paper_folder)
    assert loaded.points.shape == source.shape
    assert loaded.labels is None or len(loaded.labels) == len(loaded.points)


@pytest.mark.data
def test_cloud_as_the_paper_has_it(paper_folder):
    cloud = datasets.load("cloud", paper_folder, preprocessing="zscore")
    found = quantized.search(cloud.points, 10, restarts=2, max_iter=20)
    assert cloud.best_known[10] < found.inertia < 1.2 * cloud.best_known[10]
