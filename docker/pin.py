"""Pin what the images are made of: writes constraints.txt, a version for every package that their extras need.

    python docker/pin.py

It asks pip what it would install now, with wheels alone, and installs nothing. The versions are those of this machine's
Python and platform; run it with the Python that the images have.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tomllib
from pathlib import Path

HERE = Path(__file__).parent
#: What images may be made of. The two CUDAs cannot be installed together.
EXTRAS = ("cuda12,cpu,reproduce,notebook,arrow,dask,zarr", "cuda13,cpu,reproduce")
#: Which has another version for each CUDA, and follows from the packages that are pinned.
UNPINNED = ("cuda-toolkit", "gputabu")


def resolved(*requirements: str) -> dict[str, str]:
    """What pip would install for these: names and versions."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "--quiet", "--report", "-"]
    report = subprocess.run([*command, *requirements], cwd=HERE.parent, stdout=subprocess.PIPE, check=True).stdout
    packages = [each["metadata"] for each in json.loads(report)["install"]]
    return {one["name"].lower().replace("_", "-").replace(".", "-"): one["version"] for one in packages}


def main() -> None:
    build = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))["build-system"]["requires"]
    found = resolved(*build)
    for extras in EXTRAS:
        found = resolved(f".[{extras}]") | found
    lines = sorted(f"{name}=={version}\n" for name, version in found.items() if name not in UNPINNED)
    head = f"# Made by docker/pin.py, with Python {sys.version_info.major}.{sys.version_info.minor}.\n"
    (HERE / "constraints.txt").write_text(head + "".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
