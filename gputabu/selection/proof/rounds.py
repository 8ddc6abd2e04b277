"""The rounds of a proof: solve for a while, compute the bound, exchange inequalities, look for better clusterings."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

from gputabu.backend.numpy.algebra import Algebra
from gputabu.selection.proof import closed_form
from gputabu.selection.proof.admm import Admm
from gputabu.selection.proof.bound import certified
from gputabu.selection.proof.cuts import violated
from gputabu.selection.proof.problem import Problem

#: Iterations of a round, inequalities that one may add per point, and how many there may be per point.
ITERATIONS, ADDED, MOST = 50, 15, 150
#: Violations that count, at first and when few are left, and slacks of inequalities that are dropped: as shares of the
#: median of the diagonal.
FIRST, LEAST, SLACK = 1e-3, 1e-5, 0.05
#: The proof ends after so many rounds in which the bound did not rise by this share of J.
PATIENCE, RISE = 12, 1e-7


class Watch:
    """Whether to go on: the time, Ctrl-C."""

    def __init__(self, deadline: float, asked: Callable[[], bool]) -> None:
        self.deadline, self.asked = deadline, asked

    @property
    def ended(self) -> bool:
        return self.asked() or time.perf_counter() >= self.deadline


def bound(
    problem: Problem,
    labels: np.ndarray,
    algebra: Algebra,
    watch: Watch,
    enough: Callable[[float], bool],
    seen: Callable[[Admm], None],
) -> float:
    """The best bound until time is up, `enough` says so, or it rises no more.

    `labels` are of the points of the problem. `enough` is asked with the best bound so far whenever there is one, and
    `seen` is given the solver's state after every round.
    """
    if problem.n <= problem.k:
        return 0.0
    best, prices = at_clustering(problem, labels, enough)
    if problem.k == 1 or enough(best):
        return best
    admm = Admm(problem, problem.start(labels), prices, algebra)
    idle, least = 0, FIRST
    while not watch.ended:
        try:
            for _ in range(ITERATIONS):
                admm.iterate()
                if watch.ended:
                    break
        except np.linalg.LinAlgError:  # eigenvalues that were not found
            break
        before, best = best, max(best, certified(problem, admm.prices, admm.cuts.exact_matrix(admm.penalty)))
        seen(admm)
        added = exchange(admm, least)
        if added < problem.n // 4:
            least = max(LEAST, least / 4)
        idle = 0 if best > before * (1 + RISE) or added > problem.n // 4 else idle + 1
        if enough(best) or idle >= PATIENCE:
            break
    return best


def at_clustering(problem: Problem, labels: np.ndarray, enough: Callable[[float], bool]) -> tuple[float, np.ndarray]:
    """The bound of the best dual point in closed form, and that point; the first that is enough."""
    zero = np.zeros((problem.n, problem.n))
    best, prices = certified(problem, zero, zero), zero
    for trial in closed_form.candidates(problem, labels) if problem.k > 1 else ():
        value = certified(problem, trial, zero)
        if value > best:
            best, prices = value, trial
        elif prices is not zero:  # it only falls from here
            break
        if enough(best):
            break
    return best, prices


def exchange(admm: Admm, least: float = FIRST) -> int:
    """Drop inequalities that do nothing, and use those violated most; how many are new."""
    Z = admm.Z()
    unit = float(np.median(np.diagonal(Z)))
    admm.cuts.drop(Z, SLACK * unit)
    many = min(ADDED, MOST - len(admm.cuts) // len(Z)) * len(Z)
    return admm.cuts.add(violated(Z, many, least * unit)) if many > 0 else 0
