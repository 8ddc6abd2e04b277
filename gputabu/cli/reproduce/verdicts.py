"""Verdicts: whether a method reproduces the paper's result, in sentences with the numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gputabu.cli.reproduce.paper import RUNS, Table

#: Allowed relative deviation of an average from the paper's. QM-TS may be below it by any amount, but not above.
LIMITS = {"K-Means": 0.15, "K-Means++": 0.15, "TSC": 0.20}
#: Relative deviation of QM-TS below the paper's beyond which the verdict mentions it.
FAR = 0.15


@dataclass(frozen=True, slots=True)
class Sample:
    """J of several runs: average, deviation and number."""

    average: float
    deviation: float  # standard deviation with n − 1; 0 for a single run
    runs: int

    @property
    def error(self) -> float:
        """Standard error of the average."""
        return self.deviation / math.sqrt(self.runs)


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether the average of a method agrees with the paper's, and a sentence about it."""

    method: str
    holds: bool
    text: str


def judge(table: Table, method: str, sample: Sample) -> Verdict:
    """Compare the average of a method with the paper's."""
    paper = table.rows[method].average
    average, paper_average = (format(value, table.style) for value in (sample.average, paper))
    deviation, limit = sample.average / paper - 1, LIMITS.get(method, FAR)
    difference = f"{100 * abs(deviation):.1f} % {'above' if deviation > 0 else 'below'} the paper's {paper_average}"
    text = f"{method} averages {average} ± {sample.error:.2g}, "
    if method in LIMITS:
        holds = abs(deviation) <= limit
        text += f"{difference} (allowed: {100 * limit:.0f} %)."
    else:
        holds = float(average) <= paper  # with the digits that the paper prints
        text += f"{difference}." if abs(deviation) > limit or not holds else f"not above the paper's {paper_average}."
    return Verdict(method, holds, text if holds and abs(deviation) <= limit else f"{text} {explain(sample, paper)}")


def explain(sample: Sample, paper: float) -> str:
    """Whether chance explains a difference: J has heavy tails, so two averages of 100 runs may well differ."""
    if not sample.deviation:
        return "All runs here ended at the same J, so that chance does not explain it."
    errors = abs(sample.average - paper) / (sample.deviation * math.sqrt(1 / sample.runs + 1 / RUNS))
    text = f"If the paper's runs scattered as these do, the two averages are {errors:.1f} standard errors apart"
    if errors <= 3:
        return f"{text}: chance explains it."
    return f"{text}: chance does not explain it, so the paper's runs differ in something that it does not state."
