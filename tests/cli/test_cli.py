"""The command itself; `doctor`, `select-k`, `datasets`, `bench`; and the script that will measure GPUs."""

import json
import os
import pathlib
import shutil
import subprocess
import sys

import numpy as np
import pytest
from typer.testing import CliRunner

import gputabu
import gputabu.cli.doctor
from gputabu import cli, datasets
from gputabu.cli.app import COMMANDS as HELP

ROOT = pathlib.Path(__file__).parents[2]
MISSING = "CuPy is not installed (here is how)."
COMMANDS = ("fit", "predict", "select-k", "bench", "reproduce", "datasets", "doctor", "accept")


@pytest.fixture
def without_cuda(monkeypatch):
    monkeypatch.setattr(cli.doctor, "cuda_unusable", lambda: MISSING)
    monkeypatch.setattr(cli.doctor, "numba_unusable", lambda: "numba is not installed.")
    monkeypatch.setattr(cli.doctor, "resolve", lambda name: "numpy")
    monkeypatch.setattr(cli.doctor, "find_spec", lambda name: None)


def doctor(*options):
    return CliRunner().invoke(cli.app, ["doctor", *options])


def on_hostcuda(*command):
    if not shutil.which(os.environ.get("CXX", "g++")):
        pytest.skip("hostcuda needs g++")
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return subprocess.run(
        [ROOT / "tests" / "hostcuda" / "run", sys.executable, *command],
        env=os.environ | {"PYTHONPATH": path, "HOSTCUDA_CHECK": "0"}, capture_output=True, text=True,
    )  # fmt: skip


@pytest.mark.usefixtures("without_cuda")
def test_doctor_without_cuda():
    done = doctor()
    assert done.exit_code == 0, done.output
    assert f"auto takes numpy: {MISSING}" in done.output
    assert "J = 78.8514" in done.output
    for subject in ("gputabu", "Python", "NumPy", "scikit-learn", "CuPy", "numba"):
        assert f"\n{subject} " in "\n" + done.output


@pytest.mark.numba
@pytest.mark.usefixtures("without_cuda")
def test_doctor_compares_compiled_code(monkeypatch):
    monkeypatch.setattr(cli.doctor, "numba_unusable", lambda: None)
    done = doctor()
    assert done.exit_code == 0, done.output
    assert "\ncompiled code QM-TS, TSC, K-Means equal NumPy's bit for bit" in done.output


@pytest.mark.usefixtures("without_cuda")
def test_doctor_requires_cuda():
    done = doctor("--require-cuda")
    assert done.exit_code == 1
    assert f"FAILED: required, but {MISSING}" in done.output


@pytest.mark.usefixtures("without_cuda")
def test_doctor_fails_in_a_sentence(monkeypatch):
    monkeypatch.setattr(cli.doctor, "IRIS", 1.0)
    done = doctor()
    assert done.exit_code == 1
    assert "FAILED: AssertionError: QM-TS on Iris ends at J = 78.85144143 and not at 1." in done.output
    assert "Traceback" not in done.output


def test_doctor_on_hostcuda():
    done = on_hostcuda("-c", "from gputabu.cli import main; main()", "doctor", "--require-cuda")
    assert done.returncode == 0, done.stdout + done.stderr
    for text in ("auto takes cuda", "compute capability 8.6", "modules compiled", "bit for bit", "GiB free"):
        assert text in done.stdout
    assert "FAILED" not in done.stdout
    for kernel in ("assign, points in", "assign_tensor, ", "survey, 8 coordinates", "nearest_two", "seed_gains"):
        assert kernel in done.stdout
    assert "centres in shared memory: 4096 bytes" in done.stdout and "centres from L2: 1024000 bytes" in done.stdout


def test_doctor_finds_a_backend_that_differs():
    """A planted fault: the CUDA backend is given other data."""
    code = (
        "from gputabu import cli; from gputabu.cli.doctor import METHODS; method = METHODS['K-Means']; "
        "METHODS['K-Means'] = lambda X, k, b: method(X + (b == 'cuda'), k, b); cli.main()"
    )
    done = on_hostcuda("-c", code, "doctor")
    assert done.returncode == 1
    assert "FAILED: AssertionError: K-Means, 150×4 float32, K=3: " in done.stdout


def test_help_names_the_commands():
    done = CliRunner().invoke(cli.app, ["--help"])
    assert done.exit_code == 0
    for name in COMMANDS:
        assert f"\n  {name} " in done.output
    assert "130 after Ctrl-C" in done.output


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_an_example_and_fits_80_columns(name):
    done = CliRunner().invoke(cli.app, [name, "--help"], env={"COLUMNS": "200"})
    assert done.exit_code == 0
    assert f"\n  gputabu {name}" in done.output
    assert max(map(len, done.output.splitlines())) <= 80


def test_the_help_has_the_first_sentence_of_every_command():
    for name, (_, text) in HELP.items():
        done = CliRunner().invoke(cli.app, [name, "--help"])
        assert " ".join(text.split()) in " ".join(done.output.split())


@pytest.mark.parametrize(
    "command",
    [
        ["--help"],
        ["fit", "--help"],
        ["fit", "nothing.csv", "-k", "3"],
        ["fit", "a.csv", "-k", "3"],
        ["fit", "a.csv", "-k", "0"],
        ["fit", "a.csv", "-k", "3", "--method", "k-means", "--patience", "3"],
        ["predict", "nothing", "a.csv"],
        ["select-k", "a.csv", "--criterion", "x"],
        ["nonsense"],
    ],
)
def test_help_and_errors_do_not_wait_for_libraries(command, tmp_path):
    (tmp_path / "a.csv").write_text("x,y\n1,2\n3,four\n")
    code = (
        "import sys; from gputabu.__main__ import main; sys.argv[0] = 'gputabu'\n"
        "try: main()\nexcept SystemExit: pass\n"
        "print(*sorted({'sklearn', 'scipy', 'numba', 'pandas', 'matplotlib'} & set(sys.modules)), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code, *command], cwd=tmp_path, capture_output=True, text=True)
    assert done.stderr.splitlines()[-1] == "", done.stderr


def test_methods_lack_what_the_command_says_they_lack():
    from gputabu.cli.fit import METHODS, WITHOUT

    options = ("effort", "max_iter", "patience", "max_time", "target", "refine", "checkpoint", "min_size", "max_size")
    for method, name in METHODS.items():
        known = getattr(gputabu, name)().get_params()
        assert sorted(WITHOUT.get(method, ())) == sorted(option for option in options if option not in known)


def test_ctrl_c_while_it_starts(tmp_path):
    (tmp_path / "typer.py").write_text("raise KeyboardInterrupt")
    code = "import gputabu.__main__ as start; start.main()"
    path = os.pathsep.join([str(tmp_path), str(ROOT)])
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=os.environ | {"PYTHONPATH": path}
    )
    assert (done.returncode, done.stderr) == (130, "gputabu: interrupted.\n")


def test_version():
    for command in (["-m", "gputabu", "--version"], ["-c", "from gputabu.cli import main; main()", "--version"]):
        done = subprocess.run([sys.executable, *command], capture_output=True, text=True, check=True)
        assert done.stdout == f"gputabu {gputabu.__version__}\n"


def test_completion():
    done = CliRunner().invoke(cli.app, [], prog_name="gputabu", env={"_GPUTABU_COMPLETE": "source_bash"})
    assert "_GPUTABU_COMPLETE=complete_bash" in done.output


class TestErrors:
    """One sentence, and an exit code that means something."""

    def run(self, monkeypatch, error, *options):
        def broken(*_):
            raise error

        monkeypatch.setattr(datasets, "find", broken)
        return CliRunner().invoke(cli.app, ["datasets", *options])

    @pytest.mark.parametrize(
        ("error", "code", "said"),
        [
            (ValueError("x=1 must\nbe 2."), 2, "x=1 must be 2."),
            (OSError(28, "No space left on device", "a.csv"), 1, "a.csv: No space left on device."),
            (MemoryError("Unable to allocate 9 TiB"), 1, "there is not enough memory: Unable to allocate 9 TiB."),
            (KeyError("x"), 1, "KeyError: 'x' (--debug shows where.)"),
            (KeyboardInterrupt(), 130, "interrupted."),
        ],
    )
    def test_a_sentence(self, monkeypatch, error, code, said):
        done = self.run(monkeypatch, error)
        assert (done.exit_code, done.stderr) == (code, f"gputabu datasets: {said}\n")
        assert "Traceback" not in done.output

    def test_debug_raises(self, monkeypatch):
        done = self.run(monkeypatch, ValueError("x"), "--debug")
        assert isinstance(done.exception, ValueError)


@pytest.mark.usefixtures("without_cuda")
def test_bench(monkeypatch):
    monkeypatch.setattr("gputabu.cli.bench.available", lambda: ["numpy"])
    asked = ["bench", "--rows", "600", "--columns", "3", "-k", "4", "--rounds", "1"]
    done = CliRunner().invoke(cli.app, [*asked, "--json"])
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert set(found["iterations"]) == {"sklearn", "tabu, numpy", "Lloyd, numpy"}
    assert all(fit["inertia"] > 0 and fit["seconds"] > 0 for fit in found["fits"].values())
    lines = cli.bench.text(found).splitlines()
    assert max(map(len, lines)) <= 80 and "Lloyd, scikit-learn" in lines[4] and lines[4].endswith("1.00")
    done = CliRunner().invoke(cli.app, ["bench", "--rows", "3", "-k", "4"])
    assert done.exit_code == 2 and "n_samples=3 should be >= --n-clusters=4" in done.stderr


@pytest.fixture
def blobs_csv(tmp_path):
    rng = np.random.default_rng(0)
    X = np.concatenate([rng.normal(size=(40, 2)) + center for center in ([0, 0], [20, 0], [0, 20])])
    path = tmp_path / "blobs.csv"
    np.savetxt(path, X, delimiter=",", header="x,y", comments="")
    return path


def select_k(*arguments):
    return CliRunner().invoke(cli.app, ["select-k", *map(str, arguments)])


def test_select_k_prints_a_table(blobs_csv):
    done = select_k(blobs_csv, "--ks", "1:5", "--criterion", "bic,davies-bouldin")
    assert done.exit_code == 0, done.output
    assert done.output.startswith("KSelection: 3 clusters by bic\n")
    assert len(done.output.splitlines()) == 8


def test_select_k_as_json_and_as_a_picture(blobs_csv, tmp_path):
    pytest.importorskip("matplotlib").use("Agg")
    done = select_k(blobs_csv, "--ks", "1,3", "--criterion", "silhouette", "--json", "--plot", tmp_path / "k.png")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert (told["n_clusters"], told["criterion"], told["backend"]) == (3, "silhouette", "numpy")
    assert [row["n_clusters"] for row in told["table"]] == [1, 3]
    assert told["table"][0]["silhouette"] is None
    assert (tmp_path / "k.png").read_bytes().startswith(b"\x89PNG")


def test_select_k_leaves_files(blobs_csv, tmp_path):
    pytest.importorskip("matplotlib")
    out = tmp_path / "out"
    done = select_k(blobs_csv, "--ks", "1:4", "--scale", "zscore", "--id", "x", "--out", out)
    assert done.exit_code == 0, done.output
    written = {"criteria.csv", "labels.csv", "centres.csv", "centres-scaled.csv", "result.json", "report.html"}
    assert {path.name for path in out.iterdir()} == written | {"model.npz"}
    labelled = CliRunner().invoke(cli.app, ["predict", str(out), str(blobs_csv)])
    assert labelled.stdout == (out / "labels.csv").read_text()
    told = json.loads((out / "result.json").read_text())
    assert told["command"].startswith(f"gputabu select-k {blobs_csv} --ks 1:4")
    assert len((out / "criteria.csv").read_text().splitlines()) == 5
    assert len((out / "labels.csv").read_text().splitlines()) == 121
    assert (out / "report.html").read_text().count("<canvas") == 10
    done = select_k(blobs_csv, "--out", out)
    assert done.exit_code == 2 and "of an earlier run: --force replaces them" in done.stderr


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--ks", "5:2"], "--ks=5:2 must go up."),
        (["--ks", "two"], "--ks=two must be like 2:12, 2:20:2 or 2,4,8."),
        (["--ks", "1:9:0"], "must be like"),
        (["--ks", "2:200"], "ks contains 200; numbers of clusters must be from 1 to n_samples=120."),
        (["--criterion", "elbow"], "criterion='elbow' must be one of"),
        (["--backend", "cuda"], "backend='cuda' cannot run here"),
    ],
)
def test_select_k_says_what_is_wrong(options, message, blobs_csv):
    done = select_k(blobs_csv, *options)
    assert done.exit_code == 2
    assert message in done.output
    assert "Traceback" not in done.output


def test_select_k_numbers():
    assert cli.select.parse_ks("2:5") == [2, 3, 4, 5]
    assert cli.select.parse_ks("2:9:3") == [2, 5, 8]
    assert cli.select.parse_ks("7") == [7]
    assert cli.select.parse_ks("8, 2") == [8, 2]


def test_datasets_are_listed(tmp_path, monkeypatch):
    monkeypatch.delenv("GPUTABU_DATA", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    (tmp_path / "glass.csv").touch()
    done = CliRunner().invoke(cli.app, ["datasets", "--data-home", str(tmp_path)])
    assert done.exit_code == 0, done.output
    lines = {line.split()[0]: line for line in done.output.splitlines() if line.strip()}
    assert "78.851441" in lines["iris"] and lines["iris"].endswith("in scikit-learn")
    assert lines["glass"].endswith(str(tmp_path / "glass.csv"))
    assert "10: 1503.0132, 25: 804.31067 (z-scores)" in lines["cloud"] and lines["cloud"].endswith("not here")
    assert "norm25: repository MIT" in done.output


def test_benchmark_claims_nothing_on_hostcuda():
    done = on_hostcuda(str(ROOT / "benchmarks" / "gpu.py"), "--tiny")
    assert done.returncode == 0, done.stderr
    assert "stand-in: times mean nothing" in done.stdout
    assert "graph launches" in done.stdout
    for unit in (" ms", "GB/s", "×"):
        assert unit not in done.stdout


@pytest.mark.gpu
@pytest.mark.device("a100")
@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ("8,64", "assign, points in registers"),
        ("16,64", "assign_resident, all 64 centres"),
        ("384,1000", "assign_tensor, 128 points"),
        ("9000,5", "assign_tiled: 9000"),
    ],
)
def test_doctor_names_the_kernel_of_a_shape(shape, said):
    done = doctor("--quick", "--shape", shape)
    assert done.exit_code == 0, done.output
    assert said in done.output


def test_doctor_refuses_a_shape_that_is_none():
    done = doctor("--shape", "12")
    assert done.exit_code != 0
    assert "must be two positive integers" in " ".join(done.output.split())
