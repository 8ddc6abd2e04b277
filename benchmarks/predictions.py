"""The predictions that ship with the package, for `gputabu accept` to print beside what it measures.

`make roofline ROOFLINE=--predictions` makes them, after every change of a kernel; nobody types them.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from requirements import ARCHITECTURES
from throughput import DEVICES

ROOT = Path(__file__).resolve().parent.parent
FILE, PAGE = ROOT / "gputabu" / "cli" / "predictions.json", ROOT / "docs" / "benchmarks.md"
MARKS = ("<!-- predictions: made by `make roofline ROOFLINE=--predictions` -->", "<!-- end of predictions -->")
KINDS = ("k-means iteration", "tabu iteration")


def write(case_of: Any, predicted: Any, architectures: Sequence[int] = ()) -> None:
    """Predict every kernel of an iteration for the shapes of `gputabu accept`, on every architecture of the model.

    The file is written when an architecture is done.
    """
    from gputabu.cli.accept import QUICK, SHAPES

    rows: list[dict[str, Any]] = []
    devices: dict[str, Any] = {}
    for arch in architectures or ARCHITECTURES:
        for n, d, k in (*QUICK, *SHAPES):
            for what in KINDS:
                print(f"{what}, {n, d, k}, sm_{arch}", file=sys.stderr, flush=True)
                case = case_of(what, n, d, k, 1, arch)
                sizes = {"arch": arch, "iteration": what, "n": n, "d": d, "k": k}
                rows += [
                    sizes | {"kernel": row.what, "ms": round(row.predicted_ms, 5), "limiter": row.limiter}
                    for row in predicted(case)[1:]
                ]
        one = DEVICES[arch]
        devices[str(arch)] = {"name": one.name, "sms": one.sms, "clock_ghz": one.ghz, "dram_gb_s": one.dram}
        head = json.dumps({"doubt": case.doubt, "changed": case.changed, "devices": devices})
        lines = ",\n".join(json.dumps(row) for row in rows)
        FILE.write_text(f'{head[:-1]}, "rows": [\n{lines}\n]}}\n')
    write_page()


def write_page() -> None:
    """The sums over kernels as a table, into the page on benchmarks."""
    found = json.loads(FILE.read_text())
    devices = found["devices"]
    sums: Counter[tuple[Any, ...]] = Counter()
    for row in found["rows"]:
        sums[row["iteration"], row["n"], row["d"], row["k"], row["arch"]] += row["ms"]
    names = (f"{one['name']} (sm_{arch})" for arch, one in devices.items())
    lines = [f"| predicted ms of a | N | d | K | {' | '.join(names)} |", "|---" * (4 + len(devices)) + "|"]
    for sizes in dict.fromkeys(key[:4] for key in sums):
        cells = (f"{sums[(*sizes, int(arch))]:.3f}" for arch in devices)
        lines.append(f"| {' | '.join(map(str, sizes))} | {' | '.join(cells)} |")
    before, rest = PAGE.read_text().split(MARKS[0])
    PAGE.write_text("\n".join([before + MARKS[0], *lines, MARKS[1] + rest.split(MARKS[1])[1]]))


if __name__ == "__main__":
    write_page()
