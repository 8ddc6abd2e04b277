"""`gputabu reproduce --related`: what the paper cites, in one table."""

from __future__ import annotations

import csv
from dataclasses import replace

import numpy as np
import pytest
from typer.testing import CliRunner

from gputabu import cli, datasets, gmeans, lloyd
from gputabu.cli.reproduce import related
from gputabu.core.results import Stop


@pytest.fixture(autouse=True)
def _only_iris_and_few(monkeypatch, tmp_path):
    """A machine with scikit-learn's Iris alone; methods that take long are left out."""

    def unreachable(name, folder):
        raise datasets.DataUnavailable(f"no {name} here")

    monkeypatch.delenv("GPUTABU_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(datasets, "download", unreachable)
    few = ("K-Means++", "TSC, packing, step", "fuzzy, m = 1.25", "G-means", "evolution, DB")
    monkeypatch.setattr(related, "METHODS", {name: related.METHODS[name] for name in few})


def run(out, *options):
    return CliRunner().invoke(cli.app, ["reproduce", "--related", "--out", str(out), *options])


def test_a_table_with_a_row_for_each_method(tmp_path, iris):
    done = run(tmp_path, "--tables", "i,III", "--runs", "3", "--seed", "4")
    assert done.exit_code == 0, done.output
    assert "Iris (Table I): N = 150, d = 4, K = 3" in done.output
    assert "skipped: no bavaria1 here" in done.output
    lines = {name: line for line in done.output.splitlines() for name in related.METHODS if line.startswith(name)}
    assert list(lines) == list(related.METHODS)
    assert lines["G-means"].split()[-4:-1] == ["2", "152.35", "152.35"]
    assert lines["TSC, packing, step"].split()[-4:-1] == ["3", "78.85", "78.85"]
    with (tmp_path / "related.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 3 * len(related.METHODS)
    mine = [float(row["J"]) for row in rows if row["method"] == "K-Means++"]
    assert mine == lloyd.run(iris, 3, trials=1, restarts=3, seed=4).inertias.tolist()
    assert {row["K"] for row in rows if row["method"] == "evolution, DB"} == {"2"}


def test_different_k_are_not_compared():
    alike, other = [(3, 10.0), (3, 20.0)], [(2, 10.0), (4, 20.0)]
    assert related.Row("I", "G-means", alike, 4.0).text.split()[-4:] == ["3", "15.00", "10.00", "2.000"]
    assert related.Row("I", "G-means", other, 4.0).text.split()[-4:] == ["2–4", "–", "–", "2.000"]


def test_j_of_labels(iris):
    found = gmeans.search(iris)
    assert related.within(iris, found.labels) == pytest.approx(found.inertia, rel=1e-12)
    assert related.within(np.ones((4, 2)), np.array([0, 0, 3, 3])) == 0


def test_ctrl_c_keeps_what_is_finished(tmp_path, monkeypatch):
    search = gmeans.search

    def interrupted(*arguments, **options):
        return replace(search(*arguments, **options), stop=Stop.INTERRUPTED)

    method = replace(related.METHODS["G-means"], runs=related.one_by_one(interrupted))
    monkeypatch.setitem(related.METHODS, "G-means", method)
    done = run(tmp_path, "--tables", "I", "--runs", "1")
    assert done.exit_code == 130
    assert "fuzzy" in (tmp_path / "related.csv").read_text()


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        (["--tables", "IX"], 2, "tables='IX' must be one of I, II"),
        (["--runs", "0"], 2, "runs=0 must be an integer >= 1"),
        (["--resume"], 2, "--resume cannot go with --related"),
        (["--certify", "3"], 2, "--certify cannot go with --related"),
        (["--tables", "III"], 1, "skipped"),
    ],
)
def test_what_cannot_be(options, code, said, tmp_path):
    done = run(tmp_path / "out", *options)
    assert done.exit_code == code
    assert said in " ".join(done.output.replace("│", " ").split())
    assert not (tmp_path / "out").exists()
