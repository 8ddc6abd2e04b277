"""Machine code of a kernel: instructions with the source lines they come from, basic blocks, loops and their nesting.

The text is what nvdisasm prints of a cubin that was compiled with -lineinfo. Loops are found in the control-flow
graph: an edge to a block that dominates its origin is a back edge, and closes a natural loop.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path

#: A file and a line of the source, the innermost first where functions were inlined.
Place = tuple[str, int]
_CODE = re.compile(r"^\s+/\*([0-9a-f]+)\*/\s+(?:@(!?U?P\w+)\s+)?([A-Z][\w.]*)\s*([^;]*?)\s*;")
_LABEL = re.compile(r"^([.$\w]+):")
_SECTION = re.compile(r"^\s*\.section\s+\.text\.(\w+)")
_LINE = re.compile(r'^\s*//## File "([^"]+)", line (\d+)(?: inlined at "([^"]+)", line (\d+))?')
_TARGET = re.compile(r"`\(([^)]+)\)")
_REGISTER = re.compile(r"\bU?R\d+|\bU?P\d\b")


def nvdisasm_path() -> Path | None:
    """The program of the wheel nvidia-cuda-nvdisasm, if that is installed."""
    spec = find_spec("nvidia")
    folders = [Path(folder) for folder in (spec.submodule_search_locations or ())] if spec else []
    return next((path for folder in folders for path in sorted(folder.glob("*/bin/nvdisasm"))), None)


def disassemble(cubin: bytes) -> str:
    """The text of all kernels of a cubin."""
    program = nvdisasm_path()
    if program is None:
        sys.exit("nvdisasm is not installed: pip install 'gputabu[kernels]'")
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = subprocess.run([program, "-c", "-gi", file.name], capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"nvdisasm: {done.stderr.strip()}")
    return done.stdout


@dataclass(frozen=True)
class Instruction:
    """One of them, with the lines of the source that it comes from."""

    predicate: str
    opcode: str
    operands: str
    places: tuple[Place, ...] = ()

    @property
    def name(self) -> str:
        return self.opcode.split(".")[0]

    @property
    def target(self) -> str | None:
        found = _TARGET.search(self.operands)
        return found[1] if found else None

    @property
    def jumps(self) -> bool:
        """A branch; also a call of a label within the kernel, which leaves a loop."""
        return self.name == "BRA" or (self.name == "CALL" and (self.target or "").startswith(".L"))

    @property
    def width(self) -> int:
        """Words of 32 bits that a load or a store moves."""
        return 4 if ".128" in self.opcode else 2 if ".64" in self.opcode else 1

    def registers(self) -> tuple[list[str], list[str]]:
        """Written, read; of wide operands the first only."""
        parts = self.operands.split(",")
        stores = self.name.startswith(("ST", "RED", "BAR", "BRA"))
        written = [] if stores else _REGISTER.findall(parts[0])
        if self.name.endswith("SETP"):
            written = _REGISTER.findall(",".join(parts[:2]))
        read = _REGISTER.findall(",".join(parts if stores else parts[1:])) + _REGISTER.findall(self.predicate)
        return written, read


@dataclass
class Block:
    """Instructions that are executed together."""

    code: list[Instruction] = field(default_factory=list)
    follow: list[int] = field(default_factory=list)


@dataclass
class Loop:
    """A natural loop: its blocks, those of inner loops too."""

    header: int
    blocks: set[int]
    latches: list[int]
    parent: Loop | None = None
    depth: int = 1


@dataclass
class Kernel:
    name: str
    blocks: list[Block]
    loops: list[Loop]

    def loop_of(self, block: int) -> Loop | None:
        """The innermost loop that has a block."""
        mine = [loop for loop in self.loops if block in loop.blocks]
        return max(mine, key=lambda loop: loop.depth, default=None)


def parse(text: str) -> dict[str, Kernel]:
    """The kernels of a disassembly. Subroutines of the compiler's, slow paths of divisions, are left out."""
    found: dict[str, Kernel] = {}
    for name, lines in _sections(text):
        blocks = _blocks(lines)
        found[name] = Kernel(name, blocks, find_loops([block.follow for block in blocks]))
    return found


def _sections(text: str) -> Iterator[tuple[str, list[str]]]:
    name, lines = "", list[str]()
    for line in text.splitlines():
        section = _SECTION.match(line)
        if section and name:
            yield name, lines
        if section:
            name, lines = section[1], []
        lines.append(line)
    if name:
        yield name, lines


def _blocks(lines: list[str]) -> list[Block]:
    blocks, labels = [Block()], dict[str, int]()
    places, reading, called = tuple[Place, ...](), False, False
    for line in lines:
        if noted := _LINE.match(line):
            # A line per level, from the inside out; each but the last says where it was inlined.
            places = (places if reading else ()) + ((Path(noted[1]).name, int(noted[2])),)
            reading = True
        elif label := _LABEL.match(line):
            called = called or label[1].startswith("$")
            if blocks[-1].code:
                blocks.append(Block())
            labels[label[1]] = len(blocks) - 1
        elif code := _CODE.match(line):
            reading = False
            if called:
                continue
            instruction = Instruction(code[2] or "", code[3], code[4], places)
            blocks[-1].code.append(instruction)
            if instruction.jumps or instruction.name in ("EXIT", "RET"):
                blocks.append(Block())
    for number, block in enumerate(blocks):
        last = block.code[-1] if block.code else None
        # BRA.DIV is taken by warps that are not together, which those of our kernels are at every collective.
        if last is not None and last.jumps and last.target in labels and last.opcode != "BRA.DIV":
            block.follow.append(labels[last.target])
        conditional = last is not None and (
            last.predicate or last.opcode == "BRA.DIV" or last.operands.startswith(("P", "!P", "UP", "!UP", "~"))
        )
        ends = last is not None and (last.jumps or last.name in ("EXIT", "RET")) and not conditional
        if not ends and number + 1 < len(blocks):
            block.follow.append(number + 1)
    for number in set(range(len(blocks))) - reachable(blocks):
        blocks[number] = Block()
    return blocks


def reachable(blocks: list[Block]) -> set[int]:
    """The blocks that control can come to."""
    found, stack = {0}, [0]
    while stack:
        new = set(blocks[stack.pop()].follow) - found
        found |= new
        stack += new
    return found


def dominators(follow: list[list[int]], start: int = 0) -> list[int]:
    """Of each node of a graph those that all ways to it from the start lead through, as bits; 0 if there is no way."""
    before: list[set[int]] = [set() for _ in follow]
    reached, stack = {start}, [start]
    while stack:
        node = stack.pop()
        for after in follow[node]:
            before[after].add(node)
            if after not in reached:
                reached.add(after)
                stack.append(after)
    everything = (1 << len(follow)) - 1
    found = [everything if node in reached else 0 for node in range(len(follow))]
    found[start] = 1 << start
    settled = False
    while not settled:
        settled = True
        for node in sorted(reached - {start}):
            common = everything
            for previous in before[node]:
                common &= found[previous]
            common |= 1 << node
            if common != found[node]:
                found[node], settled = common, False
    return found


def find_loops(follow: list[list[int]]) -> list[Loop]:
    """Natural loops of a graph that begins at node 0, outer ones first."""
    over = dominators(follow)
    reached = [node for node, above in enumerate(over) if above]
    before: list[set[int]] = [set() for _ in follow]
    for node in reached:
        for after in follow[node]:
            before[after].add(node)
    bodies: dict[int, list[tuple[set[int], int]]] = {}
    for node in reached:
        for header in follow[node]:
            if over[node] >> header & 1:
                bodies.setdefault(header, []).append((_body(header, node, before), node))
    found = [loop for header, ways in bodies.items() for loop in _with_header(header, ways)]
    found = [loop for loop in found if not _idles(loop, follow)]
    found.sort(key=lambda loop: -len(loop.blocks))
    for number, loop in enumerate(found):
        for outer in found[:number]:
            if loop.header in outer.blocks and loop.blocks < outer.blocks:
                loop.parent = outer  # the last is the smallest
        loop.depth = loop.parent.depth + 1 if loop.parent else 1
    return found


def _body(header: int, latch: int, before: list[set[int]]) -> set[int]:
    """The blocks from which the latch is reached without the header."""
    blocks, stack = {header}, [latch]
    while stack:
        inside = stack.pop()
        if inside not in blocks:
            blocks.add(inside)
            stack += before[inside]
    return blocks


def _with_header(header: int, ways: list[tuple[set[int], int]]) -> list[Loop]:
    """Loops that begin at one block: nested where one way back has all of the other, otherwise one loop."""
    found: list[Loop] = []
    for blocks, latch in sorted(ways, key=lambda way: len(way[0])):
        if found and not (blocks > found[-1].blocks and latch not in found[-1].blocks):
            found[-1].blocks |= blocks
            found[-1].latches.append(latch)
        else:
            found.append(Loop(header, set(blocks), [latch]))
    return found


def _idles(loop: Loop, follow: list[list[int]]) -> bool:
    """The branch to itself that every kernel ends with, to fill the cache of instructions."""
    return len(loop.blocks) == 1 and follow[loop.header] == [loop.header]
