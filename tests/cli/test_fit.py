"""`gputabu fit` and `gputabu predict`, in this process and in real ones: pipes, Ctrl-C, a terminal of 80 columns."""

from __future__ import annotations

import csv
import html
import json
import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from sklearn.datasets import load_iris
from typer.testing import CliRunner

import gputabu
from gputabu import cli
from gputabu.algorithms.checkpoint import Checkpoint

NAMES = ["sepal length", "sepal width", "petal length", "petal width"]
COMMAND = [sys.executable, "-m", "gputabu"]


@pytest.fixture
def iris_csv(tmp_path):
    path = tmp_path / "iris.csv"
    with path.open("w", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["plant", *NAMES])
        writer.writerows([f"p{i}", *row] for i, row in enumerate(load_iris().data.tolist()))
    return path


def run(*arguments, **options):
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments], **options)


def fit(*arguments, **options):
    return run("fit", *arguments, "--quiet", **options)


def rows(path):
    with path.open(newline="") as stream:
        return list(csv.reader(stream))


def test_fit_prints_and_writes_nothing(iris_csv, tmp_path):
    done = fit(iris_csv, "-k", 3, "--id", "plant")
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80
    facts = {line[:12].strip(): line[12:] for line in lines[: lines.index("")]}
    assert facts["J"] == "78.851441" and facts["clusters"] == "3" and facts["backend"] == "numpy"
    assert facts["columns"] == ", ".join(NAMES)
    model = gputabu.TabuKMeans(3, random_state=0).fit(load_iris().data)
    assert facts["iterations"] == str(model.n_iter_) and facts["stopped"] == str(model.stop_)
    table = lines[lines.index("") + 1 :]
    assert [line.split()[:2] for line in table[1:4]] == [
        [str(i), str(n)] for i, n in enumerate(np.bincount(model.labels_))
    ]
    assert lines[-1].startswith("Nothing was written: --out") and os.listdir(tmp_path) == ["iris.csv"]
    assert done.stderr == ""


def test_what_fit_leaves_and_predict_repeats(iris_csv, tmp_path):
    out = tmp_path / "out"
    done = fit(iris_csv, "-k", 3, "--id", "plant", "--scale", "robust", "--out", out, "--seed", 4)
    assert done.exit_code == 0, done.output
    names = {"labels.csv", "centres.csv", "centres-scaled.csv", "model.npz", "result.json", "report.html"}
    assert {path.name for path in out.iterdir()} == names
    labels = rows(out / "labels.csv")
    assert labels[0] == ["plant", "cluster"] and [row[0] for row in labels[1:3]] == ["p0", "p1"] and len(labels) == 151
    centres = rows(out / "centres.csv")
    assert centres[0] == ["cluster", "size", *NAMES]
    mine = [i for i, row in enumerate(labels[1:]) if row[1] == "0"]
    np.testing.assert_allclose(np.array(centres[1][2:], float), load_iris().data[mine].mean(axis=0))
    told = json.loads((out / "result.json").read_text())
    assert told["command"] == f"gputabu fit {iris_csv} -k 3 --id plant --scale robust --out {out} --seed 4 --quiet"
    assert told["parameters"]["random_state"] == 4 and told["sizes"] == [int(row[1]) for row in centres[1:]]
    # The same file, with its columns in another order and one more.
    other = tmp_path / "other.csv"
    with other.open("w", newline="") as stream:
        csv.writer(stream).writerows([[*row[::-1], i] for i, row in enumerate(rows(iris_csv))])
    for model in (out, out / "model.npz"):
        for data in (iris_csv, other):
            done = run("predict", model, data)
            assert done.exit_code == 0 and done.stdout == (out / "labels.csv").read_text()
    done = run("predict", out, "-", input=iris_csv.read_text())
    assert done.stdout == (out / "labels.csv").read_text()
    for name in ("found.csv", "found.npy"):
        assert run("predict", out, iris_csv, "--out", tmp_path / name).exit_code == 0
    assert (tmp_path / "found.csv").read_text() == (out / "labels.csv").read_text()
    np.testing.assert_array_equal(np.load(tmp_path / "found.npy"), [int(row[1]) for row in labels[1:]])
    done = run("predict", out, iris_csv, "--out", tmp_path / "found.csv")
    assert done.exit_code == 2 and "exists: --force replaces it" in done.stderr


def test_an_earlier_run_is_not_overwritten(iris_csv, tmp_path):
    out = tmp_path / "out"
    same = (iris_csv, "-k", 2, "--id", "plant", "--out", out)
    assert fit(*same).exit_code == 0
    (out / "notes.txt").write_text("mine")
    before = (out / "labels.csv").read_text()
    done = fit(*same, "-k", 3)
    assert done.exit_code == 2 and "of an earlier run: --force replaces them" in done.stderr
    assert (out / "labels.csv").read_text() == before
    assert fit(*same, "-k", 3, "--labels-format", "npy", "--force").exit_code == 0
    assert (out / "notes.txt").exists() and (out / "labels.npy").exists()
    assert not (out / "labels.csv").exists()  # those of another clustering
    (tmp_path / "file").touch()
    done = fit(iris_csv, "-k", 3, "--id", "plant", "--out", tmp_path / "file")
    assert done.exit_code == 2 and "is a file and must be a folder" in done.stderr


def test_arrays(tmp_path):
    X = load_iris().data.astype(">f4")
    np.save(tmp_path / "a.npy", np.asfortranarray(X))
    done = fit(tmp_path / "a.npy", "-k", 3, "--columns", "3-4", "--out", tmp_path / "out", "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["data"]["columns"] == ["3", "4"] and set(told["files"]) >= {"labels.npy", "report.html"}
    model = gputabu.TabuKMeans(3, random_state=0).fit(X[:, 2:].astype("f4"))
    assert told["inertia"] == model.inertia_
    np.testing.assert_array_equal(np.load(told["files"]["labels.npy"]), model.labels_)
    done = run("predict", tmp_path / "out", tmp_path / "a.npy", "--out", tmp_path / "again.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "again.npy"), model.labels_)


@pytest.mark.parametrize(
    ("options", "model"),
    [
        (["--method", "k-means", "--refine", "hartigan"], gputabu.KMeans(4, refine="hartigan", random_state=0)),
        (["--init", "random", "--restarts", 3, "--max-iter", 9, "--patience", 5, "--seed", 7],
         gputabu.TabuKMeans(4, init="random", n_init=3, max_iter=9, patience=5, random_state=7)),
        (["--target", 60, "--refine", "lloyd"], gputabu.TabuKMeans(4, target=60, refine="lloyd", random_state=0)),
        (["--method", "quantized", "--patience", 20], gputabu.QuantizedTabuKMeans(4, patience=20, random_state=0)),
    ],
)  # fmt: skip
def test_options_reach_the_model(options, model, iris_csv):
    told = json.loads(fit(iris_csv, "-k", 4, "--id", "plant", "--json", *options).stdout)
    assert told["inertia"] == model.fit(load_iris().data).inertia_ and told["files"] is None
    assert told["centers"] == model.cluster_centers_.tolist() and told["stop"] == str(model.stop_)
    for name, value in model.get_params().items():
        assert told["parameters"].get(name, value) == value or name == "n_clusters"


def test_a_fit_from_the_centres_of_another(iris_csv, tmp_path):
    common = (iris_csv, "-k", 3, "--id", "plant", "--scale", "zscore", "--method", "k-means")
    assert fit(*common, "--out", tmp_path / "out").exit_code == 0
    told = json.loads(fit(*common, "--init", tmp_path / "out" / "centres.csv", "--json").stdout)
    before = json.loads((tmp_path / "out" / "result.json").read_text())
    assert told["sizes"] == before["sizes"] and told["n_iter"] <= 2


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["-k", 3], "iris.csv, line 2, column 'plant': 'p0' is not a number; --columns chooses"),
        (["-k", 0, "--id", "plant"], "--n-clusters=0 must be an integer >= 1."),
        (["-k", 200, "--id", "plant"], "n_samples=150 should be >= --n-clusters=200."),
        (["-k", 3, "--id", "flower"], "--id=flower: "),
        (["-k", 3, "--columns", "petal"], "--columns=petal: "),
        (["-k", 3, "--id", "plant", "--scale", "log"], "--scale='log' must be one of"),
        (["-k", 3, "--id", "plant", "--restarts", 0], "--restarts=0 must be an integer >= 1."),
        (["-k", 3, "--id", "plant", "--method", "x"], "--method='x' must be one of 'tabu', 'quantized', 'k-means'."),
        (["-k", 3, "--id", "plant", "--method", "k-means", "--patience", 3], "--patience=3 does not go with --method"),
        (["-k", 3, "--id", "plant", "--init", "nowhere.csv"], "--init=nowhere.csv must be k-means++, random or a file"),
        (["-k", 3, "--id", "plant", "--refine", "n"], "--refine='n' must be one of"),
        (["-k", 3, "--id", "plant", "--delimiter", "::"], "--delimiter=:: must be one character, or one of tab"),
        (["-k", 3, "--id", "plant", "--backend", "cuda"], "--backend='cuda' cannot run here"),
        (["-k", 3, "--id", "plant", "--labels-format", "xml"], "--labels-format='xml' must be one of 'csv', 'npy'."),
        (["-k", "three"], "'-k'"),
    ],
)  # fmt: skip
def test_fit_says_what_is_wrong(options, message, iris_csv, tmp_path):
    done = fit(iris_csv, *options, "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert message in done.stderr and "Traceback" not in done.output and done.stdout == ""
    assert not (tmp_path / "out").exists()


def test_no_option_is_ignored(iris_csv, tmp_path):
    np.save(tmp_path / "a.npy", load_iris().data)
    for option in (["--decimal", ","], ["--thousands", "."], ["--encoding", "latin-1"], ["--header"]):
        done = fit(tmp_path / "a.npy", "-k", 3, *option)
        assert done.exit_code == 2 and f"{option[0]} goes with text, and {tmp_path}" in done.stderr
    for option in (["--labels-format", "npy"], ["--force"]):
        done = fit(iris_csv, "-k", 3, "--id", "plant", *option)
        assert done.exit_code == 2 and f"{option[0]} goes with --out." in done.stderr


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        ("a,b\n1,2\n", [], "standard input has no column 'sepal length'; it has a, b."),
        ("1,2,3,4\n", [], "standard input has no column 'sepal length'; it has 1, 2, 3, 4."),
        ("1,2,3,4\n", ["--columns", "1-3"], "standard input: 3 columns, where the model has 4."),
    ],
)
def test_predict_says_what_is_wrong(text, options, message, iris_csv, tmp_path):
    assert fit(iris_csv, "-k", 3, "--id", "plant", "--out", tmp_path / "out").exit_code == 0
    done = run("predict", tmp_path / "out", "-", *options, input=text)
    assert done.exit_code == 2 and message in done.stderr and done.stdout == ""
    done = run("predict", tmp_path / "out", "-", "--columns", "1-4", input="5,3.4,1.5,0.2\n")
    assert done.exit_code == 0 and done.stdout.splitlines()[0] == "row,cluster"
    assert run("predict", tmp_path / "no", iris_csv).exit_code == 2
    assert "is not a model" in run("predict", iris_csv, iris_csv).stderr


def test_hostile_names(tmp_path):
    names = ["<script>alert(1)</script>", "$\\frac{$", "\x1b[31mred"]
    path = tmp_path / "<b>&.csv"
    with path.open("w", newline="") as stream:
        csv.writer(stream).writerows([names, *np.random.default_rng(0).normal(size=(40, 3)).tolist()])
    for columns in ("1-3", "1-2", "2"):
        done = fit(path, "-k", 2, "--columns", columns, "--out", tmp_path / "out", "--force")
        assert done.exit_code == 0, done.output
        assert "\x1b" not in done.output
        page = (tmp_path / "out" / "report.html").read_text()
        assert page.count("<script") == 3 and "alert(1)</script>" not in page and "<b>" not in page
    assert html.escape(names[1]) in page and "&lt;b&gt;&amp;.csv: 2 clusters" in page


def test_many_clusters_and_columns_are_abbreviated(tmp_path):
    np.save(tmp_path / "a.npy", np.random.default_rng(0).normal(size=(300, 40)))
    done = fit(tmp_path / "a.npy", "-k", 130, "--method", "k-means", "--out", tmp_path / "out")
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= 80 and len(lines) < 45
    assert any(line.startswith("… and 115 smaller ones") for line in lines)
    page = (tmp_path / "out" / "report.html").read_text()
    assert "30 smaller clusters and 28 columns more are in centres.csv." in page
    assert len(rows(tmp_path / "out" / "centres.csv")) == 131


def test_one_cluster_and_one_column(tmp_path):
    done = fit("-", "-k", 1, "--out", tmp_path / "out", input="1\n2\n4\n")
    assert done.exit_code == 0, done.output
    assert "silhouette" not in done.stdout and (tmp_path / "out" / "report.html").read_text().count("<canvas") == 5


def test_without_matplotlib(iris_csv, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    done = fit(iris_csv, "-k", 3, "--id", "plant", "--out", tmp_path / "out")
    assert done.exit_code == 0 and done.stderr == ""
    assert (tmp_path / "out" / "report.html").read_text().count("<canvas") == 6


@pytest.fixture
def large_npy(tmp_path):
    path = tmp_path / "large.npy"
    np.save(path, np.random.default_rng(0).normal(size=(20_000, 8)))
    return path


def test_pipes(iris_csv, tmp_path):
    """Data through a pipe into fit, labels through one that closes early."""
    environment = os.environ | {"PYTHONWARNINGS": "error"}
    text = "".join(f"{i % 997},{20_000 * (i % 2)}\n" for i in range(20_000))
    ran = subprocess.run(
        [*COMMAND, "fit", "-", "-k", "2", "--method", "k-means", "--backend", "numpy", "--json", "--out", "o"],
        cwd=tmp_path,
        input=text, capture_output=True, text=True, env=environment, timeout=120,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    assert json.loads(ran.stdout)["data"]["rows"] == 20_000 and ran.stderr == ""
    (tmp_path / "data.csv").write_text(text)
    command = [*COMMAND, "predict", tmp_path / "o", tmp_path / "data.csv", "--backend", "numpy"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "row,cluster\n"
        process.stdout.close()
        assert process.stderr.read() == ""


def test_ctrl_c_leaves_the_best_so_far(large_npy, tmp_path):
    out = tmp_path / "out"
    command = [*COMMAND, "fit", large_npy, "-k", "20", "--max-iter", "1000000", "--patience", "1000000"]
    command += ["--backend", "numpy", "--out", out, "--checkpoint", tmp_path / "fit.ckpt"]
    code = "import runpy, signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    code += "runpy.run_module('gputabu', run_name='__main__')"  # whatever the tests were started with
    command[1:3] = ["-c", code]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    first = process.stderr.readline()  # no terminal: a line every few seconds
    process.send_signal(signal.SIGINT)
    printed, said = process.communicate(timeout=120)
    assert process.returncode == 130, said
    assert first.startswith("gputabu: ") and "interrupted; this is the best found so far." in said.splitlines()[-1]
    told = json.loads((out / "result.json").read_text())
    assert told["interrupted"] and "stopped     interrupted" in printed
    assert "Interrupted: this is the best found so far." in (out / "report.html").read_text()
    assert len(gputabu.load(out / "model.npz").labels_) == 20_000
    assert not [path for path in out.iterdir() if path.name.startswith(".")]
    name, state = Checkpoint(tmp_path / "fit.ckpt", bool).under_way
    assert name in ("sample 0", "search") and state["made"] >= 1  # from where it would go on


def test_a_checkpoint_is_gone_on_from(iris_csv, tmp_path):
    given = (iris_csv, "-k", 3, "--id", "plant", "--json", "--checkpoint", tmp_path / "fit.ckpt")
    first, second = (json.loads(fit(*given).stdout) for _ in range(2))
    assert (tmp_path / "fit.ckpt").exists()
    assert {**first, "seconds": 0} == {**second, "seconds": 0}
    other = fit(*given, "--scale", "zscore")
    assert other.exit_code == 2 and "fit.ckpt' is of a fit with other values of X; remove it" in other.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="there are no pseudo-terminals")
def test_a_terminal_of_80_columns(large_npy):
    import fcntl
    import pty
    import struct
    import termios

    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    command = [*COMMAND, "fit", str(large_npy), "-k", "20", "--backend", "numpy", "--max-time", "3"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=theirs, text=True)
    os.close(theirs)
    shown, until = b"", time.monotonic() + 120
    while time.monotonic() < until:
        try:
            part = os.read(ours, 4096)
        except OSError:  # the other end is closed
            break
        if not part:
            break
        shown += part
    os.close(ours)
    printed = process.communicate(timeout=60)[0]
    assert process.returncode == 0
    assert max(map(len, printed.splitlines())) <= 80 and "J  " in printed
    looks = [look for look in shown.decode().replace("\x1b[A", "").replace("\n", "\r").split("\r") if look.strip()]
    assert len(looks) > 2 and max(map(len, looks)) <= 80
    assert "J" in looks[-1]
