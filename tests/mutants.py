"""Small changes of the code, and which of them no test notices: `make mutants`.

Reads what `mutmut run` left in mutants/, prints the share that was noticed and every change that was not. Fails where a
module falls below the share that its tests once reached. A line on which no change can be noticed says why, behind
`# pragma: no mutate`.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter

from mutmut.mutation.diff_apply import get_diff_for_mutant

#: What mutmut says of a mutant that was not noticed: no test failed, or none was run.
SURVIVED = ("survived", "no tests", "skipped", "suspicious", "not checked")
#: What must be noticed in every module. The rest are changes without effect, such as another size of a buffer.
LEAST = 0.9


def results() -> list[tuple[str, str]]:
    """Every mutant, and what became of it."""
    command = [sys.executable, "-m", "mutmut", "results", "--all", "true"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return sorted(re.findall(r"^\s*(\S+__mutmut_\d+): (.+)$", told, re.MULTILINE))


def module(name: str) -> str:
    return name.rsplit(".", 1)[0].replace(".", "/") + ".py"


def change(name: str) -> str:
    """The line of a mutant before and after."""
    lines = get_diff_for_mutant(name, path=module(name)).splitlines()[3:]
    before, after = ([line[1:].strip() for line in lines if line.startswith(sign)] for sign in "-+")
    return f"{' '.join(before)}  →  {' '.join(after)}"


def main() -> int:
    made, noticed = Counter[str](), Counter[str]()
    for name, status in results():
        made[module(name)] += 1
        if status in SURVIVED:
            print(f"{module(name)}: {change(name)}")
        else:
            noticed[module(name)] += 1
    for path in made:
        print(f"{path}: {noticed[path]} of {made[path]} noticed ({noticed[path] / made[path]:.1%})")
    return sum(noticed[path] < LEAST * made[path] for path in made)


if __name__ == "__main__":
    sys.exit(main())
