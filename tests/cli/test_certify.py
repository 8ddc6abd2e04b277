"""`gputabu certify`, `fit --certify` and `reproduce --certify`."""

from __future__ import annotations

import json
import signal

import numpy as np
import pytest
from sklearn.datasets import load_iris
from typer.testing import CliRunner

from gputabu import cli
from gputabu.cli.reproduce.command import proofs
from gputabu.selection.proof.admm import Admm


def run(*arguments):
    return CliRunner().invoke(cli.app, [str(argument) for argument in arguments])


@pytest.fixture
def iris_csv(tmp_path):
    path = tmp_path / "iris.csv"
    np.savetxt(path, load_iris().data, delimiter=",", header="a,b,c,d", comments="")
    return path


@pytest.fixture
def found(iris_csv, tmp_path):
    out = tmp_path / "found"
    assert run("fit", iris_csv, "-k", 3, "--quiet", "--out", out).exit_code == 0
    return out


def test_a_model_is_proven(iris_csv, found):
    done = run("certify", found, iris_csv, "--quiet", "--tolerance", 0.05)
    assert done.exit_code == 0 and done.stdout.startswith("Proven optimal to 5 %: no clustering into 3 has J below ")
    told = json.loads(run("certify", found, iris_csv, "--quiet", "--json", "--parts", 2, "--max-time", 2).stdout)
    assert told["lower_bound"] < told["inertia"] and told["method"].endswith("of 2 parts")


def test_other_data_are_refused(found, tmp_path):
    other = tmp_path / "other.csv"
    np.savetxt(other, 10 * load_iris().data, delimiter=",", header="a,b,c,d", comments="")
    done = run("certify", found, other)
    assert done.exit_code == 2 and "other data" in done.stderr and len(done.stderr.splitlines()) < 4


def test_ctrl_c_prints_the_best_so_far(iris_csv, found, monkeypatch):
    iterate = Admm.iterate

    def interrupted(self):
        iterate(self)
        if self.iterations == 60:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Admm, "iterate", interrupted)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        done = run("certify", found, iris_csv, "--quiet")
    finally:
        signal.signal(signal.SIGINT, before)
    assert done.exit_code == 130 and "better is possible" in done.stdout
    assert "interrupted; this is the best bound so far." in done.stderr


def test_a_fit_with_a_proof(iris_csv, tmp_path):
    out = tmp_path / "out"
    done = run("fit", iris_csv, "-k", 2, "--quiet", "--certify", "--out", out)
    assert done.exit_code == 0 and "proof       Proven optimal to 0.001 %" in done.stdout
    report = (out / "report.html").read_text()
    assert "Proven optimal to 0.001&nbsp;%" in report and "The proof: the best possible J" in report
    told = json.loads((out / "result.json").read_text())["certificate"]
    assert told["optimal"] and told["lower_bound"] <= told["inertia"]


@pytest.mark.data
def test_the_paper_s_cases():
    lines = proofs(["I"], 20.0, 0, None).splitlines()
    assert lines[0].split()[-1] == "proof" and "proven optimal in" in lines[1]
