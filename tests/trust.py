"""Try to break it, for an hour, and write docs/reliability.md about it: `make trust`.

Every file of tests below runs by itself, with GPUTABU_EFFORT times its trials. What they count (`tally.tried`) is
added up and kept in .trust.json, so that some can be run again (`--only faults`) and the page has all. What `make
coverage` left in coverage.json is on the page too.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections import Counter
from importlib.util import find_spec
from pathlib import Path
from xml.etree import ElementTree

HERE = Path(__file__).parent
ROOT = HERE.parent
STATE, PAGE = ROOT / ".trust.json", ROOT / "docs" / "reliability.md"
#: What runs, and what the page calls it.
PARTS = {
    "properties": "Properties: what must hold for any data",
    "traps": "Traps that other packages fell into",
    "numerics": "Numbers at their limits",
    "proof_bounds": "Proofs: bounds beside the best possible",
    "faults": "Faults: the device, the disk, signals",
    "untrusted": "Files from anywhere",
    "together": "Many fits at once",
    "endurance": "Long runs",
    "checkpoint": "Fits that are killed and continued",
    "dask": "Workers that are killed",
    "hosts": "Hosts that fail, each also with Ctrl-C",
}
CHOSEN = {"dask": ["-k", "killed"], "traps": ["-m", "trap"]}
#: Parts that more trials teach little, or that take very long, get less effort; files from anywhere get ten minutes.
SHARE = {"properties": 2, "proof_bounds": 3, "numerics": 2, "traps": 0.1, "dask": 0.3, "hosts": 0.3, "untrusted": 6}
INTRODUCTION = """\
# Reliability

What was tried in order to break gputabu, how often, and what came of it. `make trust` writes this page; `make
test` makes the same trials in smaller numbers at every change. Every trial ends in one of these: the same bits,
the best found so far, or a clear error. Nothing here ran on a GPU: the CUDA backend is executed on the CPU, with
every access to memory checked.
"""
LIMITS = """\
## What is not promised

- A `.npy` file that is cut short while a fit works on a chunk of it ends the process (SIGBUS), as with any memory
  map. No file is left half-written. A change that is there before a chunk is begun is an error in a sentence.
- SIGTERM ends a Python program at once unless it has a handler; commands of `gputabu` have one. SIGKILL may leave
  a file whose name begins with a dot beside the one that was being written, and never half of that one.
- Text that is compressed, Parquet and compressed `.npz` files need memory for what they hold, which can be far
  more than their size; what lies about its size is refused. Models, `.npy` files and plain text need memory in
  proportion to theirs.
- Trials at random moments show what is likely, not what is possible.
"""


def run(part: str, effort: int) -> dict:
    """The trials of one file of tests: counts by row, whether all held, and how long it took."""
    begun = time.time()
    effort = max(1, round(effort * SHARE.get(part, 1)))
    with tempfile.TemporaryDirectory() as folder:
        environment = os.environ | {"GPUTABU_EFFORT": str(effort), "GPUTABU_TALLY": folder}
        report = Path(folder) / "report.xml"
        which = [str(HERE)] if part == "traps" else map(str, HERE.rglob(f"test_{part}.py"))
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", f"--junitxml={report}", *which]
        command += CHOSEN.get(part, [])
        code = subprocess.run(command, cwd=ROOT, env=environment).returncode
        counts, measured = tallied(Path(folder))
        if part == "traps":
            counts = trap_counts(report)
    told = {"rows": dict(counts), "measured": measured, "held": code == 0, "seconds": time.time() - begun}
    return told | {"effort": effort, "date": time.strftime("%Y-%m-%d", time.gmtime())}


def tallied(folder: Path) -> tuple[Counter[str], dict[str, dict[str, list[float]]]]:
    """What the processes of a run have counted, and measured."""
    counts: Counter[str] = Counter()
    measured: dict[str, dict[str, list[float]]] = {}
    for path in folder.glob("*.json"):
        told = json.loads(path.read_text())
        counts.update(told["rows"])
        for row, sentences in told["measured"].items():
            for sentence, values in sentences.items():
                measured.setdefault(row, {}).setdefault(sentence, []).extend(values)
    return counts, measured


def trap_counts(report: Path) -> Counter[str]:
    """How many tests of each trap have passed."""
    counts: Counter[str] = Counter()
    for case in ElementTree.parse(report).iter("testcase"):
        if case.find("failure") is None and case.find("error") is None and case.find("skipped") is None:
            counts.update(each.get("value", "") for each in case.iter("property") if each.get("name") == "trap")
    return counts


def page(parts: dict[str, dict]) -> str:
    """The page about what was tried."""
    sections = [INTRODUCTION, f"{versions(parts)}\n"]
    for part, title in PARTS.items():
        if part in parts:
            sections += [f"## {title}\n", table(parts[part])]
    return "\n".join([*sections, *covered(ROOT / "coverage.json"), LIMITS])


def versions(parts: dict[str, dict]) -> str:
    import gputabu

    numba = "numba" if find_spec("numba") else "without numba"
    dates = sorted({told["date"] for told in parts.values()})
    minutes = sum(told["seconds"] for told in parts.values()) / 60
    return (
        f"gputabu {gputabu.__version__}, {' to '.join(dict.fromkeys([dates[0], dates[-1]]))}, {minutes:.0f} minutes; "
        f"backends NumPy, {numba}, CUDA on the CPU; {platform.system()} {platform.machine()}, Python "
        f"{platform.python_version()}."
    )


def table(told: dict) -> str:
    lines = ["| tried | times | held |", "|---|---|---|"]
    held = "yes" if told["held"] else "**no**"
    for row, times in sorted(told["rows"].items()):
        said = [
            sentence.format(" to ".join(dict.fromkeys(f"{value:.2f}" for value in (min(values), max(values)))))
            for sentence, values in told["measured"].get(row, {}).items()
        ]
        lines.append(f"| {row} | {times:,} | {'; '.join([held, *said])} |")
    return "\n".join(lines) + "\n"


def covered(path: Path) -> list[str]:
    """What share of the lines and branches the tests run, where that was measured."""
    if not path.exists():
        return []
    told = json.loads(path.read_text())
    total = told["totals"]
    lines = total["covered_lines"] / total["num_statements"]
    branches = total["covered_branches"] / total["num_branches"]
    least = sorted(told["files"].items(), key=lambda item: item[1]["summary"]["percent_covered"])[:8]
    rows = [f"| `{name}` | {file['summary']['percent_covered']:.1f} % |" for name, file in least]
    head = (
        f"The tests run {lines:.1%} of the {total['num_statements']:,} statements of the package and take "
        f"{branches:.1%} of its {total['num_branches']:,} branches, on all backends together (`make coverage`). Files "
        "with the smallest share:\n"
    )
    return ["## Coverage\n", head, "\n".join(["| file | covered |", "|---|---|", *rows]) + "\n"]


def known() -> dict[str, dict]:
    """What the parts have come to that have been run."""
    return json.loads(STATE.read_text()) if STATE.exists() else {}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--effort", type=int, default=10, help="how many times the trials of `make test`")
    parser.add_argument("--only", nargs="*", choices=PARTS, default=list(PARTS), help="run these; none: write the page")
    options = parser.parse_args()
    for part in options.only:
        told = run(part, options.effort)
        STATE.write_text(json.dumps(known() | {part: told}, indent=1))  # others may run beside
    parts = known()
    PAGE.write_text(page(parts), encoding="utf-8")
    broken = [part for part in options.only if part in parts and not parts[part]["held"]]
    print("All held." if not broken else f"Did not hold: {', '.join(broken)}.", f"See {PAGE.relative_to(ROOT)}.")
    return len(broken)


if __name__ == "__main__":
    sys.exit(main())
