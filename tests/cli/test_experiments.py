"""The paper's tables run again: what is computed, what is written, and what survives an interruption."""

from __future__ import annotations

import csv
import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import adjusted_rand_score, normalized_mutual_info_score
from typer.testing import CliRunner

from gputabu import cli, datasets, lloyd, quantized, reassignment
from gputabu.cli.output import markup
from gputabu.cli.reproduce import experiments
from gputabu.cli.reproduce import records as outcomes
from gputabu.cli.reproduce.paper import TABLES
from gputabu.cli.reproduce.verdicts import Sample, judge
from gputabu.core.results import Stop

pytest.importorskip("tqdm")
pytest.importorskip("matplotlib")
ENVIRONMENT = dict(os.environ)


@pytest.fixture(autouse=True)
def _only_iris(monkeypatch, tmp_path):
    """A machine with scikit-learn's Iris and no other data, and no network; TSC shortened, pictures left out."""
    monkeypatch.setattr(markup, "svg", lambda draw: "data:,")
    monkeypatch.delenv("GPUTABU_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(datasets, "download", unreachable)
    monkeypatch.setitem(experiments.METHODS, "TSC", short)


def short(X, k, **common):
    return reassignment.search(X, k, max_iter=20, **common)


def unreachable(name, folder):
    raise datasets.DataUnavailable(f"no {name} <here> & now")


def reproduce(out, *options, runs=2):
    return CliRunner().invoke(cli.app, ["reproduce", "--runs", str(runs), "--out", str(out), *options])


def stored(out) -> dict:
    return json.loads((out / "results.json").read_text())


def test_results_are_those_of_the_methods(tmp_path, iris):
    done = reproduce(tmp_path, "--tables", "I", "--seed", "3", runs=4)
    assert done.exit_code == 0, done.output
    methods = stored(tmp_path)["tables"]["I"]["methods"]
    found = {
        "K-Means": lloyd.run(iris, 3, init="random", restarts=4, seed=3),
        "K-Means++": lloyd.run(iris, 3, init="k-means++", trials=1, restarts=4, seed=3),
        "TSC": short(iris, 3, restarts=4, seed=3),
        "QM-TS": quantized.search(iris, 3, restarts=4, seed=3),
    }
    for name, clustering in found.items():
        entry = methods[name]
        assert entry["inertias"] == clustering.inertias.tolist()
        assert entry["labels"] == clustering.labels.tolist()
        assert entry["here"]["worst"] == clustering.inertias.max()
        assert entry["here"]["average"] == pytest.approx(clustering.inertias.mean(), rel=1e-15)
        assert entry["here"]["best"] == clustering.inertia
        assert entry["here"]["seconds"] == entry["seconds"] / 4
        assert entry["paper"]["average"] == TABLES["I"].rows[name].average
        classes = np.repeat([0, 1, 2], 50)
        assert entry["ari"] == pytest.approx(adjusted_rand_score(classes, clustering.labels))
        assert entry["nmi"] == pytest.approx(normalized_mutual_info_score(classes, clustering.labels))
        assert entry["best"] == np.minimum.accumulate(entry["best"]).tolist()
        assert len(entry["current"]) == clustering.n_iter + 1
    assert list(methods) == list(experiments.METHODS)


def test_methods_have_the_papers_parameters(monkeypatch):
    """Section V: IT_max = 400 and r_max = 100; NTS = 20, MTLS = 15, IT_max = 1000, P = 0.95."""
    monkeypatch.undo()
    asked = {}
    for module, name in ((lloyd, "run"), (quantized, "search"), (reassignment, "search")):
        monkeypatch.setattr(module, name, lambda X, k, _name=module.__name__, **given: asked.update({_name: given}))
    experiments.METHODS["K-Means"](None, 3, restarts=7)
    assert asked["gputabu.algorithms.lloyd"] == {"init": "random", "restarts": 7}
    experiments.METHODS["K-Means++"](None, 3)
    assert asked["gputabu.algorithms.lloyd"] == {"init": "k-means++", "trials": 1}
    experiments.METHODS["TSC"](None, 3)
    assert asked["gputabu.algorithms.reassignment"] == {"max_iter": 1000, "n_trials": 20, "tenure": 15, "keep": 0.95}
    experiments.METHODS["QM-TS"](None, 3)
    assert asked["gputabu.algorithms.quantized"] == {"init": "random", "max_iter": 400, "patience": 100}


def test_csv_has_every_run(tmp_path):
    reproduce(tmp_path, "--tables", "I", runs=3)
    with open(tmp_path / "results.csv", newline="") as file:
        rows = list(csv.DictReader(file))
    methods = stored(tmp_path)["tables"]["I"]["methods"]
    assert [row["run"] for row in rows] == ["0", "1", "2"] * len(methods)
    for name, entry in methods.items():
        assert [float(row["J"]) for row in rows if row["method"] == name] == entry["inertias"]
    assert {(row["table"], row["data"], row["k"]) for row in rows} == {("I", "iris", "3")}


def test_printed_beside_the_paper(tmp_path):
    done = reproduce(tmp_path, "--tables", "I")
    assert "Table I. Iris: N = 150, d = 4, K = 3" in done.output
    line = next(line for line in done.output.splitlines() if line.startswith("QM-TS"))
    cells = line.split()[1:]
    assert cells[1] == "78.85" and cells[4:8] == ["78.86", "78.85", "78.85", "3.58"]
    assert "QM-TS averages 78.85" in done.output
    assert str(tmp_path / "report.html") in done.output


def test_tables_without_data_are_skipped_with_the_reason(tmp_path):
    done = reproduce(tmp_path, "--tables", "i, III")
    assert done.exit_code == 0
    assert "skipped: no bavaria1 <here> & now" in done.output
    tables = stored(tmp_path)["tables"]
    assert list(tables) == ["I", "III"]
    assert tables["III"]["skipped"] == "no bavaria1 <here> & now" and tables["III"]["methods"] == {}
    assert "no bavaria1 &lt;here&gt; &amp; now" in (tmp_path / "report.html").read_text()


def test_no_table_at_all_is_a_failure(tmp_path):
    assert reproduce(tmp_path, "--tables", "V").exit_code == 1
    assert (tmp_path / "report.html").exists()


def test_resume_runs_only_what_is_missing(tmp_path, monkeypatch):
    reproduce(tmp_path, "--tables", "I,III")
    before = stored(tmp_path)["tables"]["I"]["methods"]
    del before["QM-TS"]
    whole = stored(tmp_path)
    del whole["tables"]["I"]["methods"]["QM-TS"]
    (tmp_path / "results.json").write_text(json.dumps(whole))

    def never(*_, **__):
        raise AssertionError("run again")

    monkeypatch.setitem(experiments.METHODS, "K-Means", never)
    done = reproduce(tmp_path, "--tables", "I,III", "--resume")
    assert done.exit_code == 0, done.output
    tables = stored(tmp_path)["tables"]
    after = tables["I"]["methods"]
    assert after.pop("QM-TS")["inertias"] and after == before
    assert tables["III"]["skipped"]
    again = reproduce(tmp_path, "--tables", "I", "--resume")  # nothing to do
    assert again.exit_code == 0 and "Table I. Iris" in again.output
    assert list(stored(tmp_path)["tables"]) == ["I", "III"]


def test_resume_tries_skipped_tables_again(tmp_path, monkeypatch):
    reproduce(tmp_path, "--tables", "III")
    points = np.random.default_rng(0).normal(size=(89, 3)) * 1e5
    iris = datasets.load("iris")
    monkeypatch.setattr(datasets, "load", lambda *_: replace(iris, name="bavaria1", points=points, labels=None))
    assert reproduce(tmp_path, "--tables", "III", "--resume").exit_code == 0
    table = stored(tmp_path)["tables"]["III"]
    assert table["skipped"] is None
    assert table["methods"]["QM-TS"]["ari"] is None


def test_without_resume_it_begins_anew(tmp_path):
    reproduce(tmp_path, "--tables", "I,III")
    reproduce(tmp_path, "--tables", "I", runs=1)
    assert list(stored(tmp_path)["tables"]) == ["I"]
    assert len(stored(tmp_path)["tables"]["I"]["methods"]["QM-TS"]["inertias"]) == 1


def test_resume_refuses_other_settings_and_other_files(tmp_path):
    reproduce(tmp_path, "--tables", "I")
    other = reproduce(tmp_path, "--tables", "I", "--resume", runs=3)
    assert other.exit_code == 2
    assert "--runs=2 and --seed=0" in " ".join(other.output.split())
    (tmp_path / "results.json").write_text('{"settings": {}, "tables": {"X": 1}}')
    broken = reproduce(tmp_path, "--resume")
    assert broken.exit_code == 2 and "not a file of results" in " ".join(broken.output.split())


@pytest.mark.parametrize("how", ["raised", "returned"])
def test_ctrl_c_keeps_what_is_finished(tmp_path, monkeypatch, how):
    """A search answers the first Ctrl-C by returning early; elsewhere Python raises."""
    search = experiments.METHODS["QM-TS"]

    def interrupted(*arguments, **options):
        if how == "raised":
            raise KeyboardInterrupt
        return replace(search(*arguments, **options), stop=Stop.INTERRUPTED)

    monkeypatch.setitem(experiments.METHODS, "QM-TS", interrupted)
    done = reproduce(tmp_path, "--tables", "I,III")
    assert done.exit_code == 130, done.output
    methods = stored(tmp_path)["tables"]["I"]["methods"]
    assert "K-Means" in methods and "QM-TS" not in methods
    assert "Interrupted" in (tmp_path / "report.html").read_text()
    monkeypatch.setitem(experiments.METHODS, "QM-TS", search)
    assert reproduce(tmp_path, "--tables", "I,III", "--resume").exit_code == 0
    after = stored(tmp_path)["tables"]["I"]["methods"]
    assert after["K-Means"] == methods["K-Means"] and "QM-TS" in after
    assert "Interrupted" not in (tmp_path / "report.html").read_text()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no SIGINT between processes")
def test_a_real_ctrl_c(tmp_path):
    out = tmp_path / "out"
    command = [sys.executable, "-c", "from gputabu.cli import main; main()", "reproduce"]
    options = ["--tables", "I", "--runs", "3000", "--out", str(out), "--backend", "numpy"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True, "env": ENVIRONMENT}
    with subprocess.Popen([*command, *options], **pipes) as process:
        deadline = time.monotonic() + 120
        while not (out / "results.json").exists() and time.monotonic() < deadline:
            time.sleep(0.05)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=120)
    assert process.returncode == 130, errors
    assert "--resume goes on from here" in errors
    assert "K-Means" in stored(out)["tables"]["I"]["methods"]
    assert sorted(path.name for path in out.iterdir()) == ["report.html", "results.csv", "results.json"]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--tables", "I,VII"], "tables='VII' must be one of I, II"),
        (["--runs", "0"], "runs=0 must be an integer >= 1"),
        (["--seed", "-1"], "seed=-1 must be"),
        (["--backend", "cuda"], "backend='cuda' cannot run here"),
        (["--backend", "abacus"], "backend='abacus' must be one of"),
    ],
)
def test_wrong_options_get_a_sentence(tmp_path, options, said):
    done = CliRunner().invoke(cli.app, ["reproduce", "--out", str(tmp_path / "out"), *options])
    assert done.exit_code == 2
    assert said in " ".join(done.output.replace("│", " ").split())
    assert not (tmp_path / "out").exists()


def test_without_the_extra_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr("gputabu.cli.reproduce.command.find_spec", lambda name: None)
    done = reproduce(tmp_path)
    assert done.exit_code == 2 and "gputabu[reproduce]" in done.output


@pytest.mark.parametrize(
    ("method", "average", "holds"),
    [
        ("QM-TS", 78.854, True),  # printed as 78.85
        ("QM-TS", 78.856, False),
        ("QM-TS", 1.0, True),
        ("K-Means", 90.5 * 1.149, True),
        ("K-Means", 90.5 * 1.151, False),
        ("K-Means++", 80.16 * 0.849, False),
        ("TSC", 282.94 * 0.81, True),
        ("TSC", 282.94 * 1.21, False),
    ],
)
def test_verdicts(method, average, holds):
    verdict = judge(TABLES["I"], method, Sample(average, 10.0, 100))
    assert verdict.holds is holds
    assert f"{average:.2f} ± 1," in verdict.text
    far = not holds or average == 1.0  # much better than the paper is worth a word, too
    assert ("standard errors apart" in verdict.text) is far


def test_a_deviation_is_weighed_against_chance():
    def text(deviation, runs=100):
        return judge(TABLES["I"], "K-Means", Sample(120.0, deviation, runs)).text

    assert "8.3 standard errors apart: chance does not" in text(25.0)  # 29.5 / (25 √(2/100))
    assert "1.0 standard errors apart: chance explains it" in text(200.0)
    assert "same J" in text(0.0)


def test_the_tables_are_the_papers():
    assert list(TABLES) == ["I", "II", "III", "IV", "V", "VI"]
    for table in TABLES.values():
        assert list(experiments.METHODS) == list(table.rows)
        assert all(row.best <= row.average <= row.worst for row in table.rows.values())
        source = datasets.SOURCES[table.dataset]
        assert source.preprocessing == table.preprocessing
        for row in table.rows.values():  # printed to three digits
            assert source.best_known[table.k] <= row.best * 1.005


def test_an_outcome_can_be_drawn_again(iris):
    found = quantized.search(iris, 3, restarts=3)
    again = outcomes.Outcome.of(found, 1.0, None).clustering(iris)
    np.testing.assert_array_equal(again.labels, found.labels)
    np.testing.assert_allclose(again.centers, found.centers)
    np.testing.assert_array_equal(again.center_indices, found.center_indices)
    assert (again.inertia, again.n_iter) == (found.inertia, found.n_iter)
