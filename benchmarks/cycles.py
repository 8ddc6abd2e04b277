"""What a launch does: the machine code of its kernel, times how often each loop of it runs."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Any

import numpy as np
from attribution import Counts
from kernel_table import ARCHITECTURES, occupancy
from nvrtc import ENTRY, Nvrtc
from requested import Lines, asked, kept
from sass import Kernel, disassemble, parse
from throughput import (
    FROM_DRAM,
    FROM_L2,
    Device,
    Load,
    clocks,
    generic_shared,
    latency_of,
    memory,
    pipe_of,
    products,
    waiting,
)  # fmt: skip
from trips import Statement, Unknown, evaluate, statements


@dataclass(frozen=True)
class Compiled:
    """A kernel for an architecture."""

    kernel: Kernel
    registers: int
    shared: int  # static
    texts: Mapping[str, str]  # of the files that it was made of
    rolled: Kernel  # the same, but for loops that are not unrolled


@cache
def compiled(text: str, file: str, options: tuple[str, ...], arch: int) -> dict[str, Compiled]:
    """All kernels of a source. nvdisasm no longer reads Volta's code; Turing's is of the same kind.

    It is compiled once more with loops that are not unrolled, to know what the others were unrolled by.
    """
    target = 75 if arch == 70 else arch
    words = (*options, "-ftz=true", f"-arch=sm_{target}", "-lineinfo", "--ptxas-options=-v")
    texts = _texts(text, file)
    code, log = machine_code(text, file, words)
    rolled, _ = machine_code(_rolled(text, file, texts), file, words)
    plain = parse(rolled)
    entries = {entry["kernel"]: entry for entry in ENTRY.finditer(log)}
    found = {}
    for name, kernel in parse(code).items():
        entry = entries[name]
        shared = re.search(r"(\d+) bytes smem", entry["rest"])
        static = int(shared[1]) if shared else 0
        found[name] = Compiled(kernel, int(entry["registers"]), static, texts, plain[name])
    return found


def machine_code(text: str, file: str, words: tuple[str, ...]) -> tuple[str, str]:
    """A disassembly, and what ptxas said; kept on disk."""

    def make() -> tuple[str, str]:
        cubin, log = Nvrtc().cubin_of(text, file, words)
        return disassemble(cubin), log

    code, log = kept(("machine code", text, file, *words), make)
    return code, log


def macros(texts: Mapping[str, str], given: Mapping[str, Any]) -> dict[str, Any]:
    """What sources define as numbers, or as expressions of these and of what is given."""
    names = dict(given)
    for text in texts.values():
        for name, value in re.findall(r"^#define (\w+) (\d+\b|\(.*\))", text, re.MULTILINE):
            with suppress(NameError, SyntaxError, TypeError):  # those that are not numbers
                names[name] = int(evaluate(value, names))
    return names


def _rolled(text: str, file: str, texts: Mapping[str, str]) -> str:
    """A source in which no loop is unrolled, unless a pragma says so."""

    def free(loop: Statement) -> bool:
        above = texts[loop.file].splitlines()[loop.line - 2] if loop.line > 1 else ""
        return loop.kind == "for" and "#pragma unroll" not in above

    lines = {(name, loop.line) for name, one in texts.items() for loop in statements(name, one) if free(loop)}
    out, number = [], 0
    for line in text.splitlines():
        if jump := re.match(r'#line (\d+) "(.+)"', line):
            file, number = jump[2], int(jump[1]) - 1
        else:
            number += 1
            if (file, number) in lines:
                line = re.sub(r"\bfor \(", '_Pragma("unroll 1") for (', line, count=1)
        out.append(line)
    return "\n".join(out)


def _texts(text: str, file: str) -> dict[str, str]:
    """The files that a joined source is made of, by their #line directives."""
    texts: dict[str, list[str]] = defaultdict(list)
    for line in text.splitlines():
        if jump := re.match(r'#line (\d+) "(.+)"', line):
            file = jump[2]
            texts[file] += [""] * (int(jump[1]) - 1 - len(texts[file]))
        else:
            texts[file].append(line)
    return {name: "\n".join(lines) for name, lines in texts.items()}


def said_above(text: str, kernel: str, what: str) -> str | None:
    """What the comment above a kernel says: `// bytes: EXPRESSION`, `// products: EXPRESSION`."""
    above = text[: text.index(f" {kernel}(")].splitlines()[:-1] if f" {kernel}(" in text else []
    for line in reversed(above):
        if not line.startswith("//"):
            return None
        if found := re.match(rf"// {what}: ([^;]+)", line):
            return found[1]
    return None


@dataclass(frozen=True)
class Run:
    """A launch of a kernel for a shape."""

    made: Compiled
    file: str
    names: Mapping[str, Any]  # sizes, arguments, macros, shares of points
    grid: tuple[int, ...]
    threads: int
    shared: int  # dynamic
    dram: float  # bytes of the arrays with an element for every point
    lines: Lines | None = None  # what hostcuda counted
    cached: bool = False  # these arrays are in L2

    @cached_property
    def counts(self) -> Counts:
        sizes = {f"grid_{axis}": size for axis, size in zip("xyz", (*self.grid, 1, 1), strict=False)}
        names = dict(self.names) | sizes | {"threads": self.threads, "blocks": int(np.prod(self.grid))}
        rolled = Counts(self.made.rolled, self.made.texts, names)
        return Counts(self.made.kernel, self.made.texts, names, rolled)

    def said(self, what: str) -> float | None:
        """What a comment says of this launch."""
        name = self.made.kernel.name
        text = said_above(self.made.texts.get(self.file, ""), name, what)
        if text is None:
            return None
        try:
            return evaluate(text, self.counts.names)
        except (NameError, SyntaxError, TypeError) as error:
            raise Unknown(f"{name}: // {what}: {text}: {error}") from error

    def sectors(self) -> float:
        """Of global memory, that loads ask for."""
        found = 0.0
        for number, block in enumerate(self.made.kernel.blocks):
            for one in block.code:
                known = asked(self.lines, one.places, True)
                if one.name in ("LDG", "LD") and not generic_shared(one, known) and not self.counts.idle(one):
                    each = known.sectors if known and known.sectors is not None else 4.0 * one.width
                    found += self.counts.times(number) * each
        return found * int(np.prod(self.grid)) * -(-self.threads // 32)

    def load(self, arch: int, device: Device) -> Load:
        """What it does on a device."""
        taken: Counter[str] = Counter()
        work: Counter[str] = Counter()
        issued = waits = moved = 0.0
        latency = FROM_L2 if self.cached or not self.dram else FROM_DRAM
        for number, block in enumerate(self.made.kernel.blocks):
            if not block.code or not (times := self.counts.times(number)):
                continue
            issued += times * len(block.code)
            latencies = {}
            for at, one in enumerate(block.code):
                pipe = pipe_of(one)
                if self.counts.idle(one):
                    taken["ISSUE"] += times
                elif pipe in ("SHARED", "GLOBAL"):
                    found = asked(self.lines, one.places, one.name.startswith("LD"))
                    turns, through = memory(one, found)
                    latencies[at] = latency_of(one, found, latency)
                    taken["SHARED"] += times * turns
                    moved += times * through
                else:
                    taken[pipe] += times * clocks(one, device)
                kind, count = products(one)
                work[kind] += times * count * (not self.counts.idle(one))
            waits += times * waiting(block, self.counts.loop_at[number] is not None, latencies)
        blocks = int(np.prod(self.grid))
        warps = blocks * -(-self.threads // 32)
        limits = ARCHITECTURES[arch]
        held = occupancy(limits, self.made.registers, self.made.shared + self.shared, self.threads) * limits.warps
        said = self.said("bytes")
        # What it does not ask for does not come from DRAM.
        dram = said if said is not None else min(self.dram, moved * warps)
        everything = {kind: count * warps for kind, count in work.items()}
        return Load(
            taken, issued, waits, warps, blocks, max(1, round(held)), dram, moved * warps, everything, self.cached
        )
