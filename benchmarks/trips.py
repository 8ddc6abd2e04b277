"""How often each part of a kernel runs: loops and branches of the CUDA source, in terms of the shape of a problem.

The trips of `for (int a = 0; a < k; ++a)` are read from the line, where its names are sizes, arguments of the launch or
macros. Where they are not, a comment on the line says it: `// trips: EXPRESSION`. A branch that is not always taken
has `// share: EXPRESSION`, and one that leaves (`if (found == old) continue;`) `// beyond: EXPRESSION`, the share that
goes on. Both are shares of warps: `warp(p)` is the share of those in which at least one of 32 lanes is in, each with
probability p. What follows a semicolon is for people. A branch on arguments of the launch alone (`if (resident)`) needs
no comment.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

_KEYWORD = re.compile(r"\b(for|while|if)\b\s*(?=\()")
_SAID = re.compile(r"//.*?\b(trips|share|beyond): ([^;\n]+)")
_ELSE = re.compile(r"\s*else\b")
_HEADER = re.compile(r"(?:[\w:]+\s+)?(\w+) = (.+?)$")
_CAST = re.compile(r"\((?:int|idx|unsigned|word|real|double|float|size_t)\)")
_RENAMED = {"threadIdx.x": "0", "blockIdx.x": "0", "blockIdx.y": "0", "blockDim.x": "threads"}


class Unknown(Exception):
    """A loop whose trips nobody has said."""


@dataclass(frozen=True)
class Statement:
    """A loop or a branch of the source, and the lines that it governs."""

    kind: str  # for, while, if, else, beyond
    file: str
    line: int
    first: int
    last: int
    header: str
    said: str  # what the comment says
    rolled: bool  # by `#pragma unroll 1`

    def __contains__(self, line: object) -> bool:
        return isinstance(line, int) and self.first <= line <= self.last


def _blanked(text: str) -> str:
    """Without comments, strings and directives, at the same places."""
    out = re.sub(r'//[^\n]*|/\*.*?\*/|"[^"\n]*"', lambda found: re.sub(r"[^\n]", " ", found[0]), text, flags=re.DOTALL)
    return re.sub(r"^#(?:[^\n]*\\\n)*[^\n]*", lambda found: re.sub(r"[^\n]", " ", found[0]), out, flags=re.MULTILINE)


def _closed(text: str, start: int) -> int:
    """Behind the bracket that closes the one at `start`."""
    depth = 0
    for at in range(start, len(text)):
        depth += (text[at] in "({[") - (text[at] in ")}]")
        if depth == 0:
            return at + 1
    return len(text)


def _begin(text: str, start: int) -> int:
    """Where a statement has its first word, from `start` on."""
    found = re.compile(r"[\s{]*").match(text, start)
    return found.end() if found else start


def _end(text: str, start: int) -> int:
    """Behind the statement that begins at `start`."""
    start += len(text[start:]) - len(text[start:].lstrip())
    if text[start : start + 1] == "{":
        return _closed(text, start)
    if keyword := _KEYWORD.match(text, start):
        end = _end(text, _closed(text, keyword.end()))
        rest = _ELSE.match(text, end)
        return _end(text, rest.end()) if keyword[1] == "if" and rest else end
    at = start
    while at < len(text) and text[at] != ";":
        at = _closed(text, at) if text[at] in "({[" else at + 1
    return at + 1


def _block_end(text: str, start: int) -> int:
    """The bracket that closes the block around `start`."""
    depth = 0
    for at in range(start, len(text)):
        depth += (text[at] == "{") - (text[at] == "}")
        if depth < 0:
            return at
    return len(text)


@cache
def statements(file: str, text: str) -> tuple[Statement, ...]:
    """Loops and branches of a file, outer ones first."""
    lines, code, found = text.splitlines(), _blanked(text), []

    def line_of(at: int) -> int:
        return code.count("\n", 0, at) + 1

    for keyword in _KEYWORD.finditer(code):
        open_, line = keyword.end(), line_of(keyword.start())
        close = _closed(code, open_)
        end = _end(code, close)
        notes = dict(_SAID.findall(lines[line - 1]))
        header = " ".join(code[open_ + 1 : close - 1].split())
        rolled = line > 1 and bool(re.match(r"\s*#pragma unroll 1\b", lines[line - 2]))
        leaves = re.match(r"\s*\{?\s*(continue|return|break)\b", code[close:end])
        kind, first, last = keyword[1], line, line_of(end - 1)
        if kind == "if" and leaves and "beyond" in notes:
            kind, first, last = "beyond", last + 1, line_of(_block_end(code, end)) - 1
        else:
            first = line if kind != "if" else line_of(close + len(code[close:]) - len(code[close:].lstrip()))
        said = notes.get({"for": "trips", "while": "trips", "if": "share", "beyond": "beyond"}[kind], "").strip()
        if kind == "if" and (other := _ELSE.match(code, end)):
            begin, finish = (line_of(at) for at in (_begin(code, other.end()), _end(code, other.end()) - 1))
            if begin > last:  # where both are in one line nothing can be told
                found.append(Statement("else", file, line, begin, finish, header, said, rolled))
            else:
                header = said = ""
        found.append(Statement(kind, file, line, first, last, header, said, rolled))
    return tuple(sorted(found, key=lambda one: (one.first, -one.last)))


def resolved(expression: str, names: Mapping[str, Any], text: str, line: int) -> str:
    """An expression in which local names of the source are replaced by what they were declared as, above the line."""
    above = _blanked("\n".join(text.splitlines()[:line]))
    for _ in range(8):
        for name in re.findall(r"(?<![.\w])[a-z]\w*\b(?!\s*[(.\[])", expression):
            declared = list(re.finditer(rf"(?<![.\w]){name} = ", above))
            if name not in names and declared:
                start = at = declared[-1].end()
                while at < len(above) and above[at] not in ",;":
                    at = _closed(above, at) if above[at] in "({[" else at + 1
                value = " ".join(above[start:at].split())
                expression = re.sub(rf"(?<![.\w]){name}\b", lambda _, value=value: f"({value})", expression)
                break
        else:
            break
    return expression


def _choices(text: str) -> str:
    """`a ? b : c` as Python has it, also within brackets."""
    parts, at = [""], 0  # around ? and :, of the outermost level
    while at < len(text):
        if text[at] in "([":
            end = _closed(text, at)
            parts[-1] += text[at] + ", ".join(map(_choices, text[at + 1 : end - 1].split(", "))) + text[end - 1 : end]
            at = end
        elif text[at] in "?:":
            parts += [text[at], ""]
            at += 1
        else:
            parts[-1] += text[at]
            at += 1
    if "?" not in parts:
        return "".join(parts)
    condition, rest, depth = parts[0], parts[2:], 0
    for number, part in enumerate(rest):
        depth += (part == "?") - (part == ":")
        if depth < 0:
            yes, no = "".join(rest[:number]), "".join(rest[number + 1 :])
            return f"(({_choices(yes)}) if ({condition}) else ({_choices(no)}))"
    raise SyntaxError(text)


def evaluate(expression: str, names: Mapping[str, Any]) -> float:
    """A C or Python expression of sizes; NameError or SyntaxError where that cannot be."""
    text = _CAST.sub("", expression.replace("sizeof(real)", "4"))
    for word, value in _RENAMED.items():
        text = text.replace(word, value)
    text = re.sub(r"gridDim\.([xyz])", r"grid_\1", text)
    text = re.sub(r"\b\w+\.([a-z_]\w*)", r"\1", text)  # shape.k
    text = text.replace("&&", " and ").replace("||", " or ").replace("->", ".")
    text = re.sub(r"!(?!=)", " not ", text)
    text = _choices(text)
    tools = {"min": min, "max": max, "ceil": math.ceil, "log2": math.log2, "warp": any_of_warp, "__builtins__": {}}
    return float(eval(text.strip(), tools, dict(names)))  # of our own sources


def any_of_warp(share: float) -> float:
    """The share of warps in which at least one lane is in."""
    return 1.0 - (1.0 - share) ** 32


def trips(loop: Statement, names: Mapping[str, Any], text: str = "") -> float:
    """How often a warp goes round, on the average of all warps; `text` is that of the file."""
    where = f"{loop.file}:{loop.line}"
    try:
        if loop.said:
            return max(0.0, evaluate(loop.said, names))
        begin, condition, step = (part.strip() for part in loop.header.split(";"))
        begun = _HEADER.match(begin.split(",")[0]) if begin.count("(") == begin.count(")") else None
        begun = _HEADER.match(begin) if begun is None or begun[2].count("(") != begun[2].count(")") else begun
        assert begun is not None
        limit = re.match(rf"{begun[1]} (<|<=) (.+)$", condition)
        stride = re.match(rf"(?:\+\+{begun[1]}|{begun[1]}\+\+|{begun[1]} \+= ([^,]+|.+))(?:,|$)", step)
        assert limit is not None
        assert stride is not None
        first, last, pace = (
            resolved(part, names, text, loop.line - 1) for part in (begun[2], limit[2], stride[1] or "1")
        )
        own = re.sub(r"threadIdx\.x (/|>>) \w+", "0", first)
        first, unit = own.replace("threadIdx.x", "0"), 32 if "threadIdx.x" in own else 1
        extent = evaluate(last, names) - evaluate(first, names) + (limit[1] == "<=")
        rounds = math.ceil(extent / unit) * unit / evaluate(pace, names)
        differ = "Idx" in begun[2] or "Idx" in own  # warps begin at different places: their mean
        return max(0.0, rounds if differ else math.ceil(rounds))
    except (AssertionError, AttributeError, NameError, SyntaxError, TypeError, ValueError, ZeroDivisionError) as error:
        raise Unknown(f"{where}: how often does this loop run? Say it: // trips: EXPRESSION ({error})") from error


def share(branch: Statement, names: Mapping[str, Any]) -> float:
    """How often a branch is taken, of 1; always where nobody has said."""
    known = _known(branch, names)
    if branch.kind == "else":  # lanes of one warp may go both ways
        return 0.0 if known == 1.0 else 1.0
    return 1.0 if known is None else known


def _known(branch: Statement, names: Mapping[str, Any]) -> float | None:
    if branch.said:
        try:
            return min(1.0, max(0.0, evaluate(branch.said, names)))
        except (NameError, SyntaxError, TypeError) as error:
            raise Unknown(f"{branch.file}:{branch.line}: {branch.said!r}: {error}") from error
    try:
        return 1.0 if evaluate(branch.header, names) else 0.0
    except (NameError, SyntaxError, TypeError, ValueError, ZeroDivisionError, AttributeError):
        return None
