"""What the kernels of an iteration ask of memory, line by line: counted by hostcuda, for few points and few centres.

Per request these counts hardly depend on how many points and centres there are: coalescing and bank conflicts come
of strides, which d and the form of a kernel decide.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from launches import arrays_of, be, calls
from sass import Place
from throughput import Asked

ROOT = Path(__file__).resolve().parent.parent
#: Products of a counted iteration, more or less: so many take seconds.
ENOUGH = 6_000_000
POINTS, CENTERS, BLOCKS = (300, 1200), 96, 4

#: Counts by the lines of an access, the innermost first.
Lines = Mapping[tuple[Place, ...], Mapping[str, float]]


def cache_folder() -> Path:
    """Where results of slow things are kept, by a hash of what went into them."""
    default = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache"))
    folder = default / "gputabu-roofline"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def kept(key: Iterable[object], make: Any) -> Any:
    """`make()`, a JSON value, or what it was the last time for this key."""
    digest = hashlib.sha256("\0".join(map(str, key)).encode()).hexdigest()
    file = cache_folder() / f"{digest[:40]}.json"
    if file.exists():
        return json.loads(file.read_text())
    found = make()
    made = file.with_suffix(f".{os.getpid()}")
    made.write_text(json.dumps(found))
    made.replace(file)  # at once: another process may look for it
    return found


@cache
def _sources() -> str:
    """All that a count depends on."""
    folders = ((ROOT / "kernels", "*.cu*"), (ROOT / "gputabu" / "backend" / "cuda", "*.py"),
               (ROOT / "tests" / "hostcuda", "*.[ch]pp"), (Path(__file__).parent, "launches.py"))  # fmt: skip
    files = [file for folder, names in folders for file in sorted(folder.glob(names))]
    return hashlib.sha256("\0".join(file.read_text() for file in files).encode()).hexdigest()


def counted_size(d: int, k: int, restarts: int) -> tuple[int, int]:
    """Points and centres of the iteration that is counted."""
    k = min(k, CENTERS)
    return max(POINTS[0], k + 1, min(POINTS[1], ENOUGH // (d * k * restarts))) | 1, k  # odd: as no other size


@cache
def requested(what: str, d: int, k: int, restarts: int, profile: str) -> dict[str, Lines]:
    """By kernel and line."""
    n, fewer = counted_size(d, k, restarts)
    key = ("requested", what, n, d, fewer, restarts, profile, _sources())
    found = kept(key, lambda: _counted(what, n, d, fewer, restarts, profile))
    return {
        kernel: {
            tuple((file, line) for file, line in places): counts | {"table": counts["table"] * k / fewer}
            for places, counts in lines
        }
        for kernel, lines in found.items()
    }


def _counted(what: str, n: int, d: int, k: int, restarts: int, profile: str) -> dict[str, Any]:
    import cupy

    from gputabu.backend.cuda import launch

    be(profile)
    asked = calls(what, n, d, k, restarts, BLOCKS)
    hostcuda = cupy._hostcuda
    hostcuda.reset()
    launch.load.cache_clear()
    hostcuda.set_count(True, lines=True)
    try:
        for call in asked:
            launch.launch(
                call.file, call.name, call.real, call.grid, call.block, call.args, call.shared, **call.defines
            )
    finally:
        hostcuda.set_count(False)
        hostcuda.set_check(False)
        launch.load.cache_clear()
    sizes = [(array.data.ptr, array.nbytes, array.size % n) for call in asked for array in arrays_of(call)]
    for lines in hostcuda.counts.lines.values():
        for counts in lines.values():  # of tables, which have no element for every point: their bytes
            at = counts.pop("addresses")
            found = [size if rest else 0 for a in at for start, size, rest in sizes if start <= a < start + size]
            counts["table"] = max(found) if found and all(found) else 0
    return {kernel: list(lines.items()) for kernel, lines in hostcuda.counts.lines.items()}


def asked(lines: Lines | None, places: tuple[Place, ...], loads: bool) -> Asked | None:
    """What a load, store or atomic at some lines asks for; nothing is known where it was not run."""
    if not lines:
        return None
    these = [counts for where, counts in lines.items() if where == places]
    these = these or [counts for where, counts in lines.items() if where[:1] == places[:1]]
    kinds = ("load",) if loads else ("store", "atomic")
    requests, sectors = (
        sum(one[f"{kind}_{what}"] for one in these for kind in kinds) for what in ("requests", "sectors")
    )
    shared, wavefronts = (sum(one[f"shared_{what}"] for one in these) for what in ("requests", "wavefronts"))
    table = max((one.get("table", 0) for one in these), default=0)
    averages = wavefronts / shared if shared else None, sectors / requests if requests else None
    return Asked(shared > requests, *averages, table)
