"""Files from anywhere: damaged, cut, forged. Each is read or refused in a sentence, in memory of its own size."""

from __future__ import annotations

import bz2
import gzip
import io
import json
import lzma
import os
import pickle
import resource
import subprocess
import sys
import tracemalloc
import warnings
import zipfile
from collections import Counter
from contextlib import contextmanager
from html.parser import HTMLParser
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest
import tally
import zarr
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyarrow import feather, parquet
from typer.testing import CliRunner

import gputabu
from gputabu import cli, plotting
from gputabu.data import files, sources
from gputabu.data.tables import Selection

ROWS = np.round(np.random.default_rng(0).normal(size=(40, 3)), 3)
#: What a reader may hold at once: text becomes Python's objects before it becomes numbers.
FACTOR, SLACK = 200, 32 << 20
#: Address space that libraries may reserve beside that.
RESERVE = 2 << 30


def in_memory(write) -> bytes:
    held = io.BytesIO()
    write(held)
    return held.getvalue()


def sound_files(folder: Path) -> dict[str, bytes]:
    """A whole file of every kind that is read, by name; `model` is what `save` writes."""
    body = "\n".join(f"r{i}," + ",".join(map(str, row)) for i, row in enumerate(ROWS.tolist()))
    text = f'id,"x",y,z\n{body}\n'.encode()
    columns = pa.table({"id": [f"r{i}" for i in range(40)]} | dict(zip("xyz", ROWS.T, strict=True)))
    gputabu.QuantizedTabuKMeans(3, max_iter=5, random_state=0).fit(ROWS).save(folder / "model")
    zarr.save_array(folder / "a.zarr", ROWS)
    return {
        "model": (folder / "model").read_bytes(),
        "a.csv": text,
        "a.csv.gz": gzip.compress(text, mtime=0),
        "a.csv.bz2": bz2.compress(text),
        "a.csv.xz": lzma.compress(text),
        "a.npy": in_memory(lambda file: np.save(file, ROWS)),
        "a.npz": in_memory(lambda file: np.savez(file, X=ROWS)),
        "packed.npz": in_memory(lambda file: np.savez_compressed(file, X=ROWS)),
        "a.parquet": in_memory(lambda file: parquet.write_table(columns, file)),
        "a.arrow": in_memory(lambda file: feather.write_feather(columns, file, compression="uncompressed")),
        "a.feather": in_memory(lambda file: feather.write_feather(columns, file)),
        "a.zarr/zarr.json": (folder / "a.zarr" / "zarr.json").read_bytes(),
        "a.zarr/c/0/0": (folder / "a.zarr" / "c" / "0" / "0").read_bytes(),
    }


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    return sound_files(tmp_path_factory.mktemp("sound"))


KINDS = ["model", "a.csv", "a.csv.gz", "a.csv.bz2", "a.csv.xz", "a.npy", "a.npz", "packed.npz", "a.parquet", "a.arrow"]
KINDS += ["a.feather", "a.zarr/zarr.json", "a.zarr/c/0/0"]


def readers(name: str, path: Path):
    """All ways in which the package reads such a file."""
    if name == "model":
        return [lambda: gputabu.load(path).predict(ROWS)]
    selection = None if name.endswith((".npy", ".npz")) else Selection(id="id")
    found = [lambda: files.read(path, selection)]
    if name.endswith((".npy", ".zarr")):
        found.append(lambda: sources.checked(sources.chunked(path, chunk_bytes=1 << 20)))
    if name.endswith(".parquet"):
        found.append(lambda: sources.checked(sources.chunked(path, chunk_bytes=200, columns=["x", "y", "z"])))
    return found[1:] if name.endswith(".zarr") else found


@contextmanager
def bounded(size: int):
    """Fail where more memory is asked for than files of this size may need."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + RESERVE, hard))
    tracemalloc.start()
    try:
        yield
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))
    assert peak <= FACTOR * size + SLACK


def refused_or_read(name: str, path: Path, size: int) -> list[str]:
    """Read a file in every way; what was said, in one sentence with its name, where it was refused."""
    said = []
    for read in readers(name, path):
        with bounded(size), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # numbers that are rounded, say
            try:
                read()
            except (ValueError, OSError) as error:
                said.append(str(error))
    for message in said:
        assert "\n" not in message.strip() and len(message) < 2000, message
        assert path.name in message or message.startswith("X "), message  # the latter about its values
    return said


NUMBER = st.sampled_from([0, 1, 2**31 - 1, 2**31, 2**32 - 1, 2**40, 2**63 - 1, 2**64 - 1])


@st.composite
def damages(draw, content: bytes) -> bytes:
    """The content of a file with a few things done to it."""
    made = bytearray(content)
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, max(0, len(made) - 1)))
        # Formats keep what matters at their beginning and their end.
        at = draw(st.sampled_from([at, at % 64, max(0, len(made) - 1 - at % 200)]))
        how = draw(st.sampled_from(["flip", "cut", "insert", "remove", "repeat", "number", "digits"]))
        if how == "flip" and made:
            made[at] ^= draw(st.integers(1, 255))
        elif how == "cut":
            del made[at:]
        elif how == "insert":
            made[at:at] = draw(st.binary(max_size=20))
        elif how == "remove":
            del made[at : at + draw(st.integers(1, 40))]
        elif how == "repeat":
            made[at:at] = made[at : at + draw(st.integers(1, 200))] * draw(st.integers(1, 3))
        elif how == "number":
            width = draw(st.sampled_from([4, 8]))
            made[at : at + width] = (draw(NUMBER) % 256**width).to_bytes(width, "little")
        else:  # a number in text, such as a shape
            digits = draw(st.sampled_from([b"1000000000000", b"-1", b"0", b"9" * 30, b"1e400", b"nan", b"[[", b"None"]))
            place = next((i for i in range(at, len(made)) if chr(made[i]).isdigit()), at)
            made[place : place + 1] = digits
    return bytes(made)


@pytest.mark.parametrize("name", KINDS)
def test_a_damaged_file_is_read_or_refused(name, sound, tmp_path):
    path = tmp_path / name
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = tmp_path / name.split("/")[0]
    if whole != path:
        for other in KINDS:
            if other.startswith(whole.name + "/"):
                (tmp_path / other).parent.mkdir(parents=True, exist_ok=True)
                (tmp_path / other).write_bytes(sound[other])

    @settings(max_examples=25 if tally.EFFORT == 1 else tally.trials(100))
    @given(damages(sound[name]))
    def fuzzed(content):
        path.write_bytes(content)
        refused_or_read(whole.name, whole, len(content))
        tally.tried("damaged files read or refused")

    path.write_bytes(sound[name])
    assert not refused_or_read(whole.name, whole, len(sound[name]))
    fuzzed()


LIES = ["(1000000000000, 3)", "(3, 1000000000000)", "(-40, -3)", "(-1, 3)", "(0, 3)", "(41, 3)", "(10**30, 3)"]
LIES += ["(40, 3, 1)", "(40.0, 3)", "(True, 3)", "()", "((40, 3),)", "'40'", "[40, 3]"]


def lying_npy(shape: str, descr: str = "'<f8'") -> bytes:
    shape = shape.replace("10**30", str(10**30))
    header = f"{{'descr': {descr}, 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + ROWS.tobytes()


def zipped(name: str, content: bytes, claimed: int | None = None) -> bytes:
    def write(file):
        with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(name, content)
            if claimed is not None:
                archive.filelist[0].file_size = claimed

    return in_memory(write)


@pytest.mark.parametrize("shape", LIES)
@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
def test_a_header_that_lies(shape, name, tmp_path):
    content = lying_npy(shape)
    if name == "a.npz":
        content = zipped("X.npy", content, 24 * 10**12 + 128 if "1000000000000" in shape else None)
    (tmp_path / name).write_bytes(content)
    said = refused_or_read(name, tmp_path / name, len(content))
    assert len(said) == len(readers(name, tmp_path / name))
    tally.tried("headers that lie")


@pytest.mark.parametrize("name", ["a.npz", "model"])
def test_an_entry_that_claims_to_be_packed_larger_than_the_file(name, tmp_path):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("model.json" if name == "model" else "X.npy", lying_npy("(40, 3)"))
        archive.filelist[0].compress_size = 50_000_000
    (tmp_path / name).write_bytes(file.getvalue())
    assert len(refused_or_read(name, tmp_path / name, len(file.getvalue()))) == 1
    tally.tried("headers that lie")


@pytest.mark.parametrize("name", ["a.npy", "a.npz"])
@pytest.mark.parametrize("content", [
    lying_npy("(40, 3)").replace(b"NUMPY\x01", b"NUMPY\x03"),  # a header of 600 MB
    lying_npy("(40, 3)").replace(b"NUMPY\x01", b"NUMPY\x02"),
    lying_npy("(20, 3)", "'<c16'"),
    b"\x93NUMPY",
], ids=["version 3", "version 2", "complex", "cut"])  # fmt: skip
def test_an_npy_file_that_is_none(name, content, tmp_path):
    (tmp_path / name).write_bytes(content)
    said = refused_or_read(name, tmp_path / name, len(content))
    assert len(said) == len(readers(name, tmp_path / name))
    tally.tried("headers that lie")


class Executed:
    """Something whose unpickling is noticed."""

    def __reduce__(self):
        return os.mkdir, (os.environ["GPUTABU_EXECUTED"],)


@pytest.mark.parametrize("name", ["model", "a.npy", "a.npz", "a.csv", "a.parquet", "a.feather", "a.zarr", "old.zarr"])
def test_nothing_in_a_file_is_executed(name, tmp_path, monkeypatch):
    monkeypatch.setenv("GPUTABU_EXECUTED", str(tmp_path / "executed"))
    code, path = pickle.dumps(Executed()), tmp_path / name
    objects = in_memory(lambda file: np.save(file, np.array([[Executed()]]), allow_pickle=True))
    if name == "a.npy":
        path.write_bytes(objects)
    elif name in ("a.npz", "model"):
        head = {"model.json": json.dumps({"version": 1, "estimator": "KMeans", "fitted": {"x_": {"array": "X"}},
                                          "parameters": {}, "output": {}})}  # fmt: skip
        path.write_bytes(in_memory(lambda file: _archive(file, {"X.npy": objects} | (head if name == "model" else {}))))
    elif name.endswith(".zarr"):
        zarr.save_array(path, ROWS, zarr_format=2 if name == "old.zarr" else 3)
        head = path / (".zarray" if name == "old.zarr" else "zarr.json")
        told = json.loads(head.read_text())
        if name == "old.zarr":
            told |= {"filters": [{"id": "pickle"}], "compressor": None}
        else:
            told["codecs"].append({"name": "numcodecs.pickle", "configuration": {}})
        head.write_text(json.dumps(told))
        for chunk in ("0.0", "c/0/0"):
            if (path / chunk).exists():
                (path / chunk).write_bytes(code)
    else:
        path.write_bytes(code)
    assert refused_or_read(name, path, 10_000)
    assert not (tmp_path / "executed").exists()
    tally.tried("files with code in them")


def _archive(file, members) -> None:
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)


@pytest.mark.parametrize("name", ["a.csv", "a.npy", "a.npz", "a.parquet", "a.feather", "model"])
def test_commands_refuse_in_a_sentence(name, sound, tmp_path):
    (tmp_path / "a.csv").write_bytes(sound["a.csv"])
    path = tmp_path / ("found" if name == "model" else f"damaged.{name.split('.')[1]}")

    @settings(max_examples=tally.trials(3))
    @given(damages(sound[name]))
    def fuzzed(content):
        path.write_bytes(content)
        command = ["predict", path, tmp_path / "a.csv", "--columns", "2-4"]
        if name != "model":
            command = ["fit", path, "-k", "2", "--method", "k-means", "--quiet", "--columns", "2-3"]
        done = CliRunner().invoke(cli.app, [*map(str, command), "--backend", "numpy"])
        assert done.exit_code in (0, 1, 2) and "Traceback" not in done.stderr
        if done.exit_code:
            assert done.stderr.startswith("gputabu ") and done.stderr.count("\n") == 1, done.stderr
        tally.tried("damaged files given to commands")

    fuzzed()


MARKS = st.sampled_from("<>&\"'$\\_^{}%\x00\x01\x1b\x7f\x85\u202e\ufffe \n")
HOSTILE = st.text(st.one_of(MARKS, st.characters(exclude_categories=["Cs"])), min_size=1, max_size=12)
HOSTILE = HOSTILE.map(lambda text: f"{text}</title><script>alert(1)</script>")


class Elements(HTMLParser):
    """What elements a page has, what they are loaded from, and the numbers that its script draws."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.names, self.sources, self.numbers = Counter(), [], ""
        self.feed(page)

    def handle_data(self, data):
        if self.lasttag == "script" and data.startswith("{"):
            self.numbers = data

    def handle_starttag(self, tag, attrs):
        self.names[tag] += 1
        assert not [name for name, _ in attrs if name.startswith("on")]
        self.sources += [value for name, value in attrs if name in ("src", "href")]


def test_pages_escape_what_comes_from_data(tmp_path):
    @settings(max_examples=tally.trials(2), phases=[Phase.generate])  # each takes a second
    @given(st.lists(HOSTILE, min_size=2, max_size=2, unique_by=lambda name: name.strip()), HOSTILE)
    def hostile(columns, stem):
        folder = tmp_path / "pages"
        folder.mkdir(exist_ok=True)
        path = folder / (stem.replace("/", "\N{FRACTION SLASH}").replace("\x00", "") + ".parquet")
        parquet.write_table(pa.table(dict(zip(columns, ROWS[:, :2].T, strict=True))), path)
        for command in (["fit", "-k", "2", "--max-iter", "2"], ["select-k", "--ks", "2:3"]):
            run = [command[0], str(path), *command[1:], "--quiet", "--backend", "numpy", "--out", str(tmp_path / "out")]
            done = CliRunner().invoke(cli.app, [*run, "--force"])
            assert done.exit_code == 0, done.output
            page = Elements((tmp_path / "out" / "report.html").read_text(encoding="utf-8"))
            assert page.names["script"] == 3 and page.names["title"] == page.names["h1"] == 1  # ours
            assert page.sources == [] and json.loads(page.numbers)["names"] == columns
        path.unlink()
        tally.tried("hostile names in pages and pictures")

    hostile()


def test_a_file_whose_name_is_no_text(tmp_path):
    path = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9.csv")  # in Latin-1
    np.savetxt(path, ROWS, delimiter=",")
    for command in (["fit", "-k", "2"], ["select-k", "--ks", "2:3"]):
        out = tmp_path / command[0]
        run = [command[0], path, *command[1:], "--quiet", "--backend", "numpy", "--out", str(out)]
        done = subprocess.run([sys.executable, "-m", "gputabu", *run], capture_output=True)
        assert done.returncode == 0, done.stderr
        assert "caf" in (out / "report.html").read_text(encoding="utf-8")
    tally.tried("hostile names in pages and pictures")


def test_a_film_escapes_its_name(tmp_path):
    film = plotting.animation(ROWS, gputabu.QuantizedTabuKMeans(2, max_iter=2, random_state=0).fit(ROWS), frames=2)
    path = plotting.write(film, tmp_path / "<script>alert(1)<\N{FRACTION SLASH}script>.html")
    assert "<title>&lt;script&gt;" in path.read_text(encoding="utf-8")
    tally.tried("hostile names in pages and pictures")
