"""The image can be built and started, as far as its files can tell."""

from __future__ import annotations

import json
import re
import tomllib
from fnmatch import fnmatch
from pathlib import Path

import pytest
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
    assert bases == {"${BASE_IMAGE}", "runtime"}
    assert re.fullmatch(r"python:3\.\d+-slim", argument("BASE_IMAGE"))  # a name and a version; no registry, not latest
    assert argument("VERSION") == gputabu.__version__
    chosen = [argument("EXTRAS")] + [
        service["build"]["args"]["EXTRAS"] for service in COMPOSE["services"].values() if "args" in service["build"]
    ]
    for extras in chosen:
        assert set(extras.split(",")) <= set(PROJECT["optional-dependencies"])


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
