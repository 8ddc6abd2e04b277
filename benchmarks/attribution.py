"""Which loops of the source the loops of machine code are, and how often each block runs in a launch.

A compiler unrolls loops in part, and makes code twice for a condition that does not change. Both are found in the
graph. Loops of one statement that follow each other, unrolled and what remains, share its trips. Two ways on from a
branch that have the same lines of the source are alternatives: one of them runs. It is the one without code that is
known never to run for this launch, otherwise the one that takes longer.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any

from sass import Block, Instruction, Kernel, Loop, Place, dominators
from throughput import pipe_of
from trips import Statement, Unknown, share, statements, trips

#: A loop of the source, and the calls that it was inlined by.
Key = tuple[Statement, tuple[Place, ...]]
#: How much each line works: arithmetic or not.
Work = Counter[tuple[bool, tuple[Place, ...]]]
#: An atomic that is made of compare-and-swap: it is taken to succeed at once.
RETRY = Statement("while", "", 0, 0, 0, "", "1", False)
#: Another way back to the head of a loop (`continue`): no loop of its own.
SAME = Statement("while", "", -1, -1, -1, "", "1", False)


def works(instruction: Instruction) -> int:
    """What unrolling repeats: arithmetic, and words of memory."""
    if pipe_of(instruction) in ("SHARED", "GLOBAL"):
        return instruction.width
    return int(is_arithmetic(instruction))


def is_arithmetic(instruction: Instruction) -> bool:
    name = instruction.name
    return (
        pipe_of(instruction) in ("FFMA", "FLOAT64", "TENSOR", "CONVERT64", "CONVERSION") and name != "HFMA2"
    )  # a move


def work_of(kernel: Kernel, blocks: Iterable[int], times: Callable[[int, Instruction], float] | None = None) -> Work:
    """What blocks do; `times`: how often an instruction of a block counts."""
    found: Work = Counter()
    for number in blocks:
        for one in kernel.blocks[number].code:
            found[is_arithmetic(one), one.places] += works(one) * (times(number, one) if times else 1)
    return +found


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

    @cached_property
    def loop_at(self) -> list[Loop | None]:
        """The innermost loop of every block."""
        return [self.kernel.loop_of(number) for number in range(len(self.kernel.blocks))]

    def _own(self, loop: Loop) -> list[int]:
        return [block for block in sorted(loop.blocks) if self.loop_at[block] is loop]

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


class Counts(Sources):
    """How often the blocks of a kernel run, for one launch.

    `rolled` are those of the same kernel where no loop is unrolled; without it, this is taken to be such a kernel.
    """

    def __init__(
        self, kernel: Kernel, texts: Mapping[str, str], names: Mapping[str, Any], rolled: Counts | None = None
    ) -> None:
        super().__init__(kernel, texts)
        self.names, self.rolled = names, rolled
        self._known: dict[tuple[Place, ...], float] = {}
        self.shares = self._settled([self._share(block) for block in kernel.blocks])
        self.chosen = [1.0] * len(kernel.blocks)  # less than 1 where there is an alternative
        self.rounds: dict[int, float] = {}  # by loop, per entry from outside
        groups: dict[Any, list[Loop]] = defaultdict(list)  # of one loop of the source: unrolled, and what remains
        for loop in kernel.loops:
            apart = id(loop) if self.of[id(loop)] in (RETRY, SAME) else id(loop.parent)
            groups[self.key(loop), apart].append(loop)
        for loop in reversed(kernel.loops):  # each as if it were alone; inner ones first
            self._share_out([loop])
        for number in range(len(kernel.blocks)):
            self._choose(number, list(groups.values()))
        for group in groups.values():
            self._share_out(group, last=True)

    # ---- loops
    @cached_property
    def single(self) -> dict[Key, Work]:
        """What a round of each loop does; of a loop that was made twice the longer one."""
        found: dict[Key, Work] = {}
        for loop in self.kernel.loops:
            work = self._work(loop.blocks, loop)
            if work.total() > found.get(self.key(loop), Counter()).total():
                found[self.key(loop)] = work
        return found

    def _work(self, blocks: Iterable[int], within: Loop | None) -> Work:
        """What blocks of a loop do in a round of it."""

        def times(number: int, one: Instruction) -> float:
            return self.chosen[number] * self._rounds(number, within) * self._share_at(one.places)

        return work_of(self.kernel, blocks, times)

    def _ratio(self, work: Work, loop: Loop) -> float:
        """How many rounds of a loop of the source are as much work: of most of its lines.

        By arithmetic, if there is any: loads are moved out of loops.
        """
        single = self.rolled.single.get(self.key(loop), Counter()) if self.rolled else Counter()
        arithmetic = any(kind for kind, _ in single)
        ratios = [work[line] / count for line, count in single.items() if line[0] == arithmetic]
        return statistics.median_high(ratios) if ratios else 0.0

    def copies(self, loop: Loop) -> int:
        """How many rounds of the source a round of the machine code is. Only innermost loops are unrolled."""
        if self.rolled is None or self.of[id(loop)].rolled or not self.innermost(loop):
            return 1
        return max(1, round(self._ratio(self._work(loop.blocks, loop), loop)))

    def _peeled(self, loop: Loop) -> tuple[int, list[int]]:
        """Rounds that were put in front of a loop or behind it, and the blocks that have them."""
        if self.rolled is None or self.of[id(loop)].rolled or not self.innermost(loop):
            return 0, []
        lines = self.rolled.single.get(self.key(loop), Counter())
        beside = []
        for number, outer in enumerate(self.loop_at):
            work = work_of(self.kernel, [number])
            if outer is loop.parent and 2 * sum(work[line] for line in lines) > work.total():
                beside.append(number)
        return round(self._ratio(self._work(beside, loop.parent), loop)), beside

    def _share_out(self, group: list[Loop], last: bool = False) -> None:
        source = self.of[id(group[0])]
        # Not where a branch that is never taken has the loop: nothing is known of it there.
        live = [loop for loop in group if self.shares[loop.header] > 0 and self.chosen[loop.header] > 0]
        self.rounds |= {id(loop): 0.0 for loop in group}
        if not live:
            return
        try:
            left = trips(source, self.names, self.texts.get(source.file, ""))
        except Unknown:
            if self.rolled is not None:
                raise
            left = 1.0
        if len(group) > 1 or self.copies(live[0]) > 1:
            peeled, blocks = self._peeled(live[0])
            if peeled > left and last:  # not all of them run
                for number in blocks:
                    self.chosen[number] *= left / peeled
            left = max(0.0, left - peeled)
        sizes = sorted({self.copies(loop) for loop in live}, reverse=True)
        for size in sizes:
            these = [loop for loop in live if self.copies(loop) == size]
            rounds = left / size if size == sizes[-1] else left // size
            # Of one size and one behind the other: none of them has all the trips.
            self.rounds |= {id(loop): rounds / (len(these) if size == sizes[-1] else 1) for loop in these}
            left -= rounds * size

    # ---- branches
    def _share(self, block: Block) -> float:
        """How often a block runs of the times that the code around it does, by its lines alone: by most of them.

        Not by those with a predicate, and by those that never run only if there are no others.
        """
        shares = [self._share_at(one.places) for one in block.code if one.places]
        free = [self._share_at(one.places) for one in block.code if one.places and (one.jumps or not one.predicate)]
        positive = [share for share in free if share] or [share for share in shares if share]
        return statistics.median_low(positive) if positive else 0.0 if shares else 1.0

    def _share_at(self, places: tuple[Place, ...]) -> float:
        if places not in self._known:
            branches = self._around(places, ("if", "else", "beyond"))
            self._known[places] = math.prod(share(branch, self.names) for branch in branches)
        return self._known[places]

    def idle(self, instruction: Instruction) -> bool:
        """Whether its predicate is always false."""
        return bool(instruction.predicate) and self._share_at(instruction.places) == 0

    def _settled(self, shares: list[float]) -> list[float]:
        """Shares that fit the graph: compilers move instructions, and blocks have lines that are not theirs.

        Of two blocks of one loop, each of which is on all ways through the other, one runs as often as the other: the
        larger share is that of both. No block runs more often than one that all ways to it lead through.
        """
        follow = [block.follow for block in self.kernel.blocks]
        end = len(follow)
        back: list[list[int]] = [[] for _ in range(end + 1)]
        for number, after in enumerate(follow):
            for other in after or [end]:
                back[other].append(number)
        above, below = dominators(follow), dominators(back, end)
        found = list(shares)
        for number in range(end):
            for other in range(number):
                if (
                    above[number] >> other & 1
                    and below[other] >> number & 1
                    and self.loop_at[number] is self.loop_at[other]
                ):
                    found[number] = found[other] = max(found[number], found[other])
        return [min(found[other] for other in range(end) if above[number] >> other & 1 or other == number)
                for number in range(end)]  # fmt: skip

    def _impossible(self, blocks: set[int]) -> bool:
        """Whether code that never runs in this launch lies where it cannot be avoided: this was made for others."""
        code = [one for number in blocks if self.shares[number] for one in self.kernel.blocks[number].code]
        return any(works(one) and not one.predicate and not self._share_at(one.places) for one in code)

    def _reached(self, start: int, loop: Loop | None) -> set[int]:
        """Blocks that can follow in the same round of a loop."""
        found, stack = set[int](), [start]
        while stack:
            number = stack.pop()
            outside = loop is not None and (number not in loop.blocks or number == loop.header)
            if number not in found and not outside:
                found.add(number)
                stack += self.kernel.blocks[number].follow
        return found

    def _choose(self, number: int, groups: list[list[Loop]]) -> None:
        """If the ways on from a block are alternatives, settle how often each is taken."""
        ways = list(dict.fromkeys(self.kernel.blocks[number].follow))
        if len(ways) != 2 or not self.chosen[number]:
            return
        first, second = (self._reached(way, self.loop_at[number]) for way in ways)
        apart = first - second, second - first
        works = [work_of(self.kernel, blocks) for blocks in apart]
        common = works[0].keys() & works[1].keys()
        if not common or 2 * len(common) < min(map(len, works)):
            return
        known = {places for _, places in common}
        for blocks, taken in zip(apart, self._taken(ways, apart, groups), strict=True):
            for block in blocks:
                lines = [one.places in known for one in self.kernel.blocks[block].code if one.places]
                if not taken or 2 * sum(lines) >= len(lines):
                    self.chosen[block] *= taken

    def _taken(
        self, ways: list[int], apart: tuple[set[int], set[int]], groups: list[list[Loop]]
    ) -> tuple[float, float]:
        """The shares of two alternatives."""
        shares = [self.shares[way] for way in ways]
        dead = [self._impossible(blocks) for blocks in apart]
        if min(shares) == 0 < max(shares):
            return float(shares[0] > 0), float(shares[1] > 0)
        if dead[0] != dead[1]:
            return float(not dead[0]), float(not dead[1])
        if shares[0] == shares[1]:  # lines that only one of them has may tell
            works = [work_of(self.kernel, blocks) for blocks in apart]
            own = [works[0].keys() - works[1].keys(), works[1].keys() - works[0].keys()]
            shares = [max((self._share_at(places) for _, places in lines), default=max(shares)) for lines in own]
        if shares[0] != shares[1]:  # the rare one is known
            rare = min(shares) / max(shares)
            return (rare, 1 - rare) if shares[0] < shares[1] else (1 - rare, rare)
        works = [work_of(self.kernel, blocks).keys() for blocks in apart]
        if works[0] < works[1] or works[1] < works[0]:  # one leaves something out, as if there were no rounds of a loop
            return float(works[1] < works[0]), float(works[0] < works[1])
        costs = [self._cost(blocks, groups) for blocks in apart]
        return float(costs[0] >= costs[1]), float(costs[0] < costs[1])

    def _cost(self, blocks: set[int], groups: list[list[Loop]]) -> float:
        """Instructions of a way on that is taken."""
        before = dict(self.rounds)
        for group in groups:
            if mine := [loop for loop in group if loop.header in blocks]:
                self._share_out(mine)
        found = sum(self.times(number) * len(self.kernel.blocks[number].code) for number in blocks)
        self.rounds = before
        return found

    # ---- results
    def _rounds(self, number: int, within: Loop | None = None) -> float:
        """How often a block is met in a round of a loop, or in the kernel."""
        product, loop = 1.0, self.loop_at[number]
        while loop is not None and loop is not within:
            product *= self.rounds[id(loop)]
            loop = loop.parent
        return product

    def times(self, number: int) -> float:
        """How often a warp runs a block."""
        return self.shares[number] * self.chosen[number] * self._rounds(number)

    def lines(self) -> Iterator[str]:
        """Every loop, for people."""
        for loop in sorted(self.kernel.loops, key=lambda loop: loop.header):
            source = self.of[id(loop)]
            if source in (RETRY, SAME):
                continue
            code = [one for block in self._own(loop) for one in self.kernel.blocks[block].code]
            pipes = ", ".join(f"{count} {name}" for name, count in Counter(map(pipe_of, code)).most_common())
            rounds = f"{self.rounds[id(loop)]:.4g} rounds of {self.copies(loop)}, {self.times(loop.header):.4g} in all"
            yield f"{'  ' * loop.depth}{source.file}:{source.line} {source.kind} ({source.header}): {rounds}; {pipes}"
