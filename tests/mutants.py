"""Small changes of the code that no test notices, with the reasons why none needs to: `make mutants`.

Reads what `mutmut run` left in mutants/, gives every survivor the first reason of survivors.toml that fits it, and
writes mutants.json, from which `make trust` makes a part of docs/reliability.md. Fails where a survivor has no reason,
or a reason no survivor.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

from mutmut.mutation.diff_apply import get_diff_for_mutant

HERE = Path(__file__).parent
#: What mutmut says of a mutant that was not noticed: no test failed, or none was run.
SURVIVED = ("survived", "no tests", "skipped", "suspicious", "not checked")


def results() -> list[tuple[str, str]]:
    """Every mutant, and what became of it."""
    command = [sys.executable, "-m", "mutmut", "results", "--all", "true"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return sorted(re.findall(r"^\s*(\S+__mutmut_\d+): (.+)$", told, re.MULTILINE))


def module(name: str) -> str:
    return name.rsplit(".", 1)[0].replace(".", "/") + ".py"


def function(name: str) -> str:
    """The function of a mutant: gputabu.algorithms.tabu_list.xǁMemoryǁpush__mutmut_3 is one of Memory.push."""
    return name.rsplit(".", 1)[1].split("__mutmut_")[0].removeprefix("x").replace("ǁ", ".").strip("._")


def change(name: str) -> str:
    """The line of a mutant before and after."""
    lines = get_diff_for_mutant(name, path=module(name)).splitlines()[3:]
    before, after = ([line[1:].strip() for line in lines if line.startswith(sign)] for sign in "-+")
    return f"{' '.join(before)} → {' '.join(after)}"


def main() -> int:
    reasons = tomllib.loads((HERE / "survivors.toml").read_text(encoding="utf-8"))["reason"]
    told: dict[str, dict] = {}
    fitting = set()
    for name, status in results():
        counts = told.setdefault(module(name), {"mutants": 0, "killed": 0, "survivors": []})
        counts["mutants"] += 1
        if status not in SURVIVED:
            counts["killed"] += 1
            continue
        line = f"{function(name)}: {change(name)}"
        fits = [i for i, reason in enumerate(reasons) if any(part in f"{module(name)} {line}" for part in reason["of"])]
        fitting.update(fits[:1])
        counts["survivors"].append({"change": line, "why": reasons[fits[0]]["why"] if fits else ""})
    (HERE / "mutants.json").write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    bare = [f"{path} {one['change']}" for path, each in told.items() for one in each["survivors"] if not one["why"]]
    idle = [reason["why"] for i, reason in enumerate(reasons) if i not in fitting]
    for path, each in told.items():
        print(f"{path}: {each['killed']} of {each['mutants']} noticed ({each['killed'] / each['mutants']:.1%})")
    for title, lines in (("Not noticed, and without a reason:", bare), ("Reasons without a survivor:", idle)):
        if lines:
            print(title, *lines, sep="\n  ")
    return len(bare) + len(idle) > 0


if __name__ == "__main__":
    sys.exit(main())
