"""What a launch does: the machine code of its kernel, times how often each loop of it runs."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from kernel_table import ARCHITECTURES, occupancy
from nvrtc import ENTRY, Nvrtc
from sass import Block, Kernel, Loop, Place, disassemble, parse
from throughput import Device, Load, clocks, pipe_of, products, waiting
from trips import Statement, Unknown, evaluate, share, statements, trips

#: A loop of the source, and the calls that it was inlined by.
Key = tuple[Statement, tuple[Place, ...]]


@dataclass(frozen=True)
class Compiled:
    """A kernel for an architecture."""

    kernel: Kernel
    registers: int
    shared: int  # static
    texts: Mapping[str, str]  # of the files that it was made of
    single: Mapping[Key, int]  # the work of one round of each innermost loop


@cache
def compiled(text: str, file: str, options: tuple[str, ...], arch: int) -> dict[str, Compiled]:
    """All kernels of a source. nvdisasm no longer reads Volta's code; Turing's is of the same kind.

    It is compiled once more with loops that are not unrolled, to know what the others were unrolled by.
    """
    target = 75 if arch == 70 else arch
    words = (*options, "-ftz=true", f"-arch=sm_{target}", "-lineinfo", "--ptxas-options=-v")
    texts, nvrtc = _texts(text, file), Nvrtc()
    cubin, log = nvrtc.cubin_of(text, file, words)
    rolled, _ = nvrtc.cubin_of(_rolled(text, file, texts, options), file, words)
    singles = {name: Sources(kernel, texts).works() for name, kernel in parse(disassemble(rolled)).items()}
    entries = {entry["kernel"]: entry for entry in ENTRY.finditer(log)}
    found = {}
    for name, kernel in parse(disassemble(cubin)).items():
        entry = entries[name]
        shared = re.search(r"(\d+) bytes smem", entry["rest"])
        static = int(shared[1]) if shared else 0
        found[name] = Compiled(kernel, int(entry["registers"]), static, texts, singles[name])
    return found


def macros(texts: Mapping[str, str], given: Mapping[str, Any]) -> dict[str, Any]:
    """What sources define as numbers, or as expressions of these and of what is given."""
    names = dict(given)
    for text in texts.values():
        for name, value in re.findall(r"^#define (\w+) (\d+\b|\(.*\))", text, re.MULTILINE):
            with suppress(NameError, SyntaxError, TypeError):  # those that are not numbers
                names[name] = int(evaluate(value, names))
    return names


def _rolled(text: str, file: str, texts: Mapping[str, str], options: tuple[str, ...]) -> str:
    """A source in which no loop is unrolled whose trips are not constant, unless a pragma says so."""
    given = re.findall(r"-D(\w+)=(\d+)(?= |$)", " ".join(options))
    names = macros(texts, {name: int(value) for name, value in given})

    def varies(loop: Statement) -> bool:
        above = texts[loop.file].splitlines()[loop.line - 2] if loop.line > 1 else ""
        if loop.kind != "for" or "#pragma unroll" in above:
            return False
        try:
            trips(dataclasses.replace(loop, said=""), names)
        except Unknown:
            return True
        return False

    lines = {(name, loop.line) for name, one in texts.items() for loop in statements(name, one) if varies(loop)}
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


#: An atomic that is made of compare-and-swap: it is taken to succeed at once.
RETRY = Statement("while", "", 0, 0, 0, "", "1", 1)


#: Another way back to the head of a loop (`continue`): no loop of its own.
SAME = Statement("while", "", -1, -1, -1, "", "1", 1)


class Sources:
    """Which loops of the source the loops of a kernel are."""

    def __init__(self, kernel: Kernel, texts: Mapping[str, str]) -> None:
        self.kernel, self.texts = kernel, texts
        self.of: dict[int, Statement] = {}  # by loop
        for loop in kernel.loops:  # outer ones first
            self.of[id(loop)] = self._source(loop)

    def _around(self, places: tuple[Place, ...], kinds: tuple[str, ...]) -> list[Statement]:
        """The statements around an instruction, from the outside in, through the calls that were inlined."""
        found = []
        for file, line in reversed(places):
            if file in self.texts:
                found += [one for one in statements(file, self.texts[file]) if one.kind in kinds and line in one]
        return found

    def _own(self, loop: Loop) -> list[int]:
        return [block for block in sorted(loop.blocks) if self.kernel.loop_of(block) is loop]

    def _source(self, loop: Loop) -> Statement:
        """The loop of the source that a loop of the machine code is."""
        own = [one for block in self._own(loop) for one in self.kernel.blocks[block].code]
        if any(".CAS" in one.opcode for one in own):
            return RETRY
        taken, outer = set(), loop.parent
        while outer is not None:
            taken.add(self.of[id(outer)])
            outer = outer.parent
        for latch in loop.latches:
            around = self._around(self.kernel.blocks[latch].code[-1].places, ("for", "while"))
            if around and around[-1] not in taken:
                return around[-1]
            if around and loop.parent and loop.parent.header == loop.header and around[-1] is self.of[id(loop.parent)]:
                return SAME
        votes: Counter[Statement] = Counter()
        for instruction in own:
            around = [one for one in self._around(instruction.places, ("for", "while")) if one not in taken]
            votes.update(around[-1:])
        if not votes:
            places = self.kernel.blocks[loop.latches[0]].code[-1].places
            raise Unknown(f"{self.kernel.name}: a loop of no `for` of the source, at {places}")
        return votes.most_common(1)[0][0]

    def key(self, loop: Loop) -> Key:
        return self.of[id(loop)], self.kernel.blocks[loop.latches[0]].code[-1].places[1:]

    def innermost(self, loop: Loop) -> bool:
        """Only such loops are unrolled."""
        return all(inner.parent is not loop or self.of[id(inner)] in (RETRY, SAME) for inner in self.kernel.loops)

    def works(self) -> dict[Key, int]:
        """Of the innermost loops; the least where one was copied."""
        found: dict[Key, int] = {}
        for loop in filter(self.innermost, self.kernel.loops):
            found[self.key(loop)] = min(self.work(loop), found.get(self.key(loop), 1 << 30))
        return found

    def work(self, loop: Loop) -> int:
        """Instructions that unrolling repeats: arithmetic, or words of memory where there is none."""
        code = [one for block in loop.blocks for one in self.kernel.blocks[block].code]
        arithmetic = sum(pipe_of(one) in ("FFMA", "FLOAT64", "TENSOR", "CONVERT64") for one in code)
        return arithmetic or sum(one.width for one in code if pipe_of(one) in ("SHARED", "GLOBAL"))


class Counts(Sources):
    """How often the blocks of a kernel run, for one launch."""

    def __init__(self, made: Compiled, names: Mapping[str, Any]) -> None:
        super().__init__(made.kernel, made.texts)
        self.single, self.names = made.single, names
        self.rounds: dict[int, float] = {}  # by loop, per entry from outside
        groups: dict[Any, list[Loop]] = defaultdict(list)  # of one loop of the source: unrolled, and what remains
        for loop in self.kernel.loops:
            apart = id(loop) if self.of[id(loop)] in (RETRY, SAME) else id(loop.parent)
            groups[self.key(loop), apart].append(loop)
        for group in groups.values():
            self._share_out(group)

    def copies(self, loop: Loop) -> int:
        """How many rounds of the source a round of the machine code is."""
        single = self.single.get(self.key(loop), 0)
        return max(1, round(self.work(loop) / single)) if single and self.innermost(loop) else 1

    def _share_out(self, group: list[Loop]) -> None:
        source = self.of[id(group[0])]
        # Not where a branch that is never taken has the loop: nothing is known of it there.
        live = [loop for loop in group if self.share(self.kernel.blocks[loop.header]) > 0]
        self.rounds |= {id(loop): 0.0 for loop in group}
        if not live:
            return
        left = trips(source, self.names, self.texts.get(source.file, ""))
        sizes = sorted({self.copies(loop) for loop in live}, reverse=True)
        for size in sizes:
            rounds = left / size if size == sizes[-1] else left // size
            self.rounds |= {id(loop): rounds for loop in live if self.copies(loop) == size}
            left -= rounds * size

    def share(self, block: Block) -> float:
        """How often a block runs of the times that the code around it does."""
        found = 0.0
        for places in {one.places for one in block.code}:
            product = 1.0
            for branch in self._around(places, ("if", "beyond")):
                product *= share(branch, self.names)
            found = max(found, product)
        return found

    def times(self, number: int) -> float:
        """How often a warp runs a block."""
        product, loop = self.share(self.kernel.blocks[number]), self.kernel.loop_of(number)
        while loop is not None:
            product *= self.rounds[id(loop)]
            loop = loop.parent
        return product


def bytes_said(text: str, kernel: str) -> str | None:
    """What the comment above a kernel says of its traffic with DRAM: `// bytes: EXPRESSION`."""
    above = text[: text.index(f" {kernel}(")].splitlines()[:-1] if f" {kernel}(" in text else []
    for line in reversed(above):
        if not line.startswith("//"):
            return None
        if found := re.match(r"// bytes: (.+)", line):
            return found[1]
    return None


def load_of(
    made: Compiled, file: str, names: Mapping[str, Any], grid: tuple[int, ...], threads: int, shared: int,
    dram: float, device: Device, arch: int,
) -> Load:  # fmt: skip
    """What a launch does on a device."""
    blocks = int(np.prod(grid))
    sizes = {f"grid_{axis}": size for axis, size in zip("xyz", (*grid, 1, 1), strict=False)}
    counts = Counts(made, dict(names) | sizes | {"threads": threads, "blocks": blocks})
    taken: Counter[str] = Counter()
    issued = waits = moved = work = 0.0
    for number, block in enumerate(made.kernel.blocks):
        if not block.code or not (times := counts.times(number)):
            continue
        issued += times * len(block.code)
        waits += times * waiting(block, made.kernel.loop_of(number) is not None)
        for one in block.code:
            work += times * products(one)
            taken[pipe_of(one)] += times * clocks(one, device)
            moved += times * 128 * one.width if pipe_of(one) == "GLOBAL" else 0
    per_block = -(-threads // 32)
    held = occupancy(ARCHITECTURES[arch], made.registers, made.shared + shared, threads) * ARCHITECTURES[arch].warps
    said = bytes_said(made.texts.get(file, ""), made.kernel.name)
    dram = evaluate(said, counts.names) if said else dram
    warps = blocks * per_block
    return Load(taken, issued, waits, warps, blocks, max(1, round(held)), dram, moved * warps, work * warps)
