"""Whether a method does here what the paper says it does, in sentences that name the numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gputabu.cli.reproduce.paper import RUNS, Table

#: How far an average may be from the paper's, relatively. QM-TS may be below it by any amount, and not above.
LIMITS = {"K-Means": 0.15, "K-Means++": 0.15, "TSC": 0.20}
#: How far QM-TS may be below without a word about it.
FAR = 0.15


@dataclass(frozen=True, slots=True)
class Sample:
    """J of several runs in three numbers."""

    average: float
    deviation: float  # standard deviation with n − 1; 0 for a single run
    runs: int

    @property
    def error(self) -> float:
        """Standard error of the average."""
        return self.deviation / math.sqrt(self.runs)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the average of one method agrees with the paper's, and the sentence that says so."""

    method: str
    holds: bool
    text: str


def judge(table: Table, method: str, sample: Sample) -> Verdict:
    """Compare the average of a method with the paper's."""
    paper = table.rows[method].average
    ours, theirs = (format(value, table.style) for value in (sample.average, paper))
    off, limit = sample.average / paper - 1, LIMITS.get(method, FAR)
    apart = f"{100 * abs(off):.1f} % {'above' if off > 0 else 'below'} the paper's {theirs}"
    said = f"{method} averages {ours} ± {sample.error:.2g}, "
    if method in LIMITS:
        holds = abs(off) <= limit
        said += f"{apart} (allowed: {100 * limit:.0f} %)."
    else:
        holds = float(ours) <= paper  # at the precision that the paper prints
        said += f"{apart}." if abs(off) > limit or not holds else f"not above the paper's {theirs}."
    return Verdict(method, holds, said if holds and abs(off) <= limit else f"{said} {explain(sample, paper)}")


def explain(sample: Sample, paper: float) -> str:
    """How much of a difference chance explains: J has heavy tails, so two averages of 100 runs may well differ."""
    if not sample.deviation:
        return "All runs here ended at the same J, so that chance does not explain it."
    apart = abs(sample.average - paper) / (sample.deviation * math.sqrt(1 / sample.runs + 1 / RUNS))
    said = f"If the paper's runs scattered as these do, the two averages are {apart:.1f} standard errors apart"
    if apart <= 3:
        return f"{said}: chance explains it."
    return f"{said}: chance does not explain it, so the paper's runs differ in something that it does not state."
