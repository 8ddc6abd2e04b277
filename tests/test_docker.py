"""The image can be built and started, as far as its files can tell."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest
import typer
from packaging.requirements import Requirement
from typer.testing import CliRunner

import gputabu
from gputabu import cli

yaml = pytest.importorskip("yaml")

ROOT = Path(__file__).parents[1]
DOCKERFILE = (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8")
COMPOSE = yaml.safe_load((ROOT / "docker" / "compose.yaml").read_text(encoding="utf-8"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def instructions():
    """(instruction, rest) in order, with continued lines joined."""
    text = re.sub(r"^\s*#.*\n", "", DOCKERFILE, flags=re.MULTILINE).replace("\\\n", " ")
    return [tuple(line.split(maxsplit=1)) for line in text.splitlines() if line.strip()]


def stages():
    """What every stage does, with what the stage it builds on does before it: name -> [(instruction, rest)]."""
    found: dict[str, list] = {}
    for word, rest in instructions():
        if word == "FROM":
            base, _, stage = rest.split()
            found[stage] = list(found.get(base, []))
        elif found:
            found[stage].append((word, rest))
    return found


def last(stage, word):
    return [rest for each, rest in stages()[stage] if each == word][-1]


def argument(name):
    (value,) = [rest.partition("=")[2] for word, rest in instructions() if word == "ARG" and rest.startswith(name)]
    return value


@pytest.mark.parametrize("stage", ["runtime", "notebook"])
def test_images_run_as_a_user_in_data(stage):
    assert last(stage, "USER") == "1001"
    assert last(stage, "WORKDIR") == "/data"
    assert "doctor" in last("runtime", "HEALTHCHECK") and "urlopen" in last("notebook", "HEALTHCHECK")
    settings = " ".join(rest for word, rest in stages()[stage] if word == "ENV")
    for name in ("CUPY_CACHE_DIR=/cache", "NUMBA_CACHE_DIR=/cache", "NVIDIA_VISIBLE_DEVICES=all"):
        assert name in settings
    assert "NVIDIA_DRIVER_CAPABILITIES=compute,utility" in settings
    labels = last(stage, "LABEL")
    for name in ("title", "description", "licenses", "version", "revision"):
        assert f"org.opencontainers.image.{name}=" in labels


def test_what_starts_exists():
    (command,) = json.loads(last("runtime", "ENTRYPOINT"))
    assert command in PROJECT["scripts"]
    assert json.loads(last("notebook", "ENTRYPOINT")) == []
    assert json.loads(last("notebook", "CMD"))[:2] == ["jupyter", "lab"]
    assert "token" not in last("notebook", "CMD")  # Jupyter asks for one unless it is told otherwise


def test_what_is_copied_exists_and_is_not_ignored():
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split("\n")
    kept = [line[1:] for line in ignored if line.startswith("!")]
    copies = [rest.split() for word, rest in instructions() if word == "COPY" and not rest.startswith("--from")]
    assert copies
    for *sources, _ in copies:
        for source in sources:
            assert (ROOT / source).exists(), source
            assert any(fnmatch(source, name) or source.startswith(f"{name}/") for name in kept), source
    assert all((ROOT / name).exists() for name in kept)


def test_bases_and_extras_can_be_chosen():
    bases = {rest.split()[0] for word, rest in instructions() if word == "FROM"}
    assert bases == {"${BASE_IMAGE}", "build", "plain"}
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-\w+", argument("BASE_IMAGE"))  # a whole version, and no registry
    assert argument("VERSION") == gputabu.__version__
    chosen = [argument("EXTRAS")] + [
        service["build"]["args"]["EXTRAS"] for service in COMPOSE["services"].values() if "args" in service["build"]
    ]
    for extras in chosen:
        assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])


def test_versions_are_pinned_and_places_are_not():
    """Every package that an image may ask for by name has a version that the project allows, and nothing else."""
    lines = (ROOT / "docker" / "constraints.txt").read_text(encoding="utf-8").splitlines()
    assert lines[0].startswith("#") and lines[1:] == sorted(lines[1:])
    pinned = {}
    for line in lines[1:]:
        name, version = re.fullmatch(r"([a-z0-9-]+)==([\w.!+]+)", line).groups()
        pinned[name] = version
    extras = PROJECT["optional-dependencies"]
    names = ("cuda12", "cuda13", "cpu", "plot", "data", "notebook", "arrow", "dask", "zarr")
    build = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    wanted = [*build, *PROJECT["dependencies"], *(each for name in names for each in extras[name])]
    for requirement in map(Requirement, wanted):
        if requirement.name != "gputabu":
            assert requirement.specifier.contains(pinned[requirement.name]), requirement
    pin = runpy.run_path(str(ROOT / "docker" / "pin.py"), run_name="pin")
    assert all(set(each.split(",")) <= set(extras) for each in pin["EXTRAS"])
    settings = " ".join(rest for word, rest in stages()["build"] if word == "ENV")
    assert "PIP_CONSTRAINT=" in settings and "PIP_BUILD_CONSTRAINT=" in settings


def test_nothing_can_be_installed_in_the_images():
    for stage in ("runtime", "notebook"):
        commands = [rest for word, rest in stages()[stage] if word == "RUN"]
        assert any("strip.py --delete" in each for each in commands)
        assert not any(re.search(r"\b(pip|apt-get|conda)\b", each) for each in commands)
    assert all("--without-pip" in rest for word, rest in stages()["build"] if word == "RUN" and "venv" in rest)
    done = subprocess.run([sys.executable, ROOT / "docker" / "strip.py"], capture_output=True, text=True)
    assert done.returncode == 1 and "--delete" in done.stderr  # it does nothing by mistake


def test_what_the_page_says():
    page = (ROOT / "docker" / "README.md").read_text(encoding="utf-8")
    drivers = {int(cuda): int(least) for cuda, least in re.findall(r"^\| `cuda(\d+)` \| (\d+) \|", page, re.MULTILINE)}
    assert drivers == {12: 525, 13: 580}
    source = (ROOT / "gputabu" / "backend" / "cuda" / "__init__.py").read_text(encoding="utf-8")
    assert f"LEAST_DRIVERS = {drivers}" in source
    (job,) = (yaml.safe_load(block) for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL))
    (container,) = job["spec"]["template"]["spec"]["containers"]
    group = typer.main.get_command(cli.app)
    context = group.make_context("gputabu", container["args"][:1], resilient_parsing=True)
    group.get_command(context, "fit").make_context("fit", container["args"][1:], parent=context)  # its options exist
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
    mounted = {volume["name"] for volume in job["spec"]["template"]["spec"]["volumes"]}
    assert {mount["name"] for mount in container["volumeMounts"]} == mounted


def test_compose_reserves_a_gpu():
    services = COMPOSE["services"]
    assert set(services) == {"gputabu", "notebook", "gputabu-cpu", "notebook-cpu"}
    for name, service in services.items():
        assert re.fullmatch(rf"gputabu:{re.escape(gputabu.__version__)}(-\w+)*", service["image"])
        assert service["build"]["target"] == name.removesuffix("-cpu").replace("gputabu", "runtime")
        assert (ROOT / "docker" / service["build"]["context"] / service["build"]["dockerfile"]).exists()
        assert "1001" in service["user"]
        devices = service.get("deploy", {}).get("resources", {}).get("reservations", {}).get("devices", [])
        if name.endswith("-cpu"):
            assert devices == [] and service["profiles"] == ["cpu"]
        else:
            assert devices == [{"driver": "nvidia", "count": "all", "capabilities": ["gpu"]}]
        for port in service.get("ports", []):
            assert port.startswith("127.0.0.1:")


def test_the_health_check_compiles_nothing():
    words = json.loads(last("runtime", "HEALTHCHECK").partition("CMD")[2])
    assert words[0] == "gputabu"
    done = CliRunner().invoke(cli.app, words[1:])
    assert done.exit_code == 0, done.output
    assert "NumPy" in done.output and "compiled" not in done.output
