"""The relaxation of `certify` solved by SCS, to compare: the same inequalities, the same bound of a dual point.

pip install scs
OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 python benchmarks/proof_scs.py --cases iris_3,glass_6 --max-time 150
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import scs
from proof import points
from scipy import sparse

import gputabu
from gputabu.selection.proof import cuts as inequalities
from gputabu.selection.proof import problem as problems
from gputabu.selection.proof.bound import certified

#: As of `certify`: inequalities added in a round per point, violations that count, slack of those dropped.
ADDED, LEAST, SLACK = 15, 1e-3, 0.05


class Program:
    """The variable is the lower triangle of Y, column by column."""

    def __init__(self, problem: problems.Problem) -> None:
        self.problem, n, s = problem, problem.n, problem.roots
        self.columns, self.rows = np.triu_indices(n)
        self.off = self.rows != self.columns
        self.place = np.zeros((n, n), np.int64)
        self.place[self.rows, self.columns] = self.place[self.columns, self.rows] = np.arange(len(self.rows))
        costs = (problem.costs * (s[:, None] * s))[self.rows, self.columns] * np.where(self.off, 2.0, 1.0)
        self.scale = costs.max()
        self.costs = costs / self.scale
        many = len(costs)
        ones = sparse.csc_matrix(
            (np.tile(s, n) / np.repeat(s, n), (np.repeat(np.arange(n), n), self.place.ravel())), (n, many)
        )
        trace = sparse.csc_matrix((np.ones(n), (np.zeros(n, int), np.diagonal(self.place))), (1, many))
        self.equal = sparse.vstack([ones, trace])
        self.sides = np.r_[np.ones(n), problem.k]
        self.positive = -sparse.identity(many, format="csr")[np.flatnonzero(self.off)]
        self.definite = -sparse.diags(np.where(self.off, np.sqrt(2), 1.0))

    def solve(self, cuts: inequalities.Cuts, seconds: float, x: np.ndarray | None, y: np.ndarray | None) -> dict:
        """SCS's answer, begun at the last x and y if there are any."""
        m, many, unit = len(cuts), len(self.costs), self.problem.weights[0]
        rows = np.repeat(np.arange(m), cuts.places.shape[1])
        columns = self.place.ravel()[cuts.places.ravel()]
        stars = sparse.csc_matrix((unit * cuts.factors.ravel(), (rows, columns)), (m, many))
        A = sparse.vstack([self.equal, self.positive, stars, self.definite]).tocsc()
        b = np.r_[self.sides, np.zeros(int(self.off.sum()) + m + many)]
        cone = {"z": len(self.sides), "l": int(self.off.sum()) + m, "s": [self.problem.n]}
        options = {"eps_abs": 1e-7, "eps_rel": 1e-7, "max_iters": 2000, "time_limit_secs": seconds, "verbose": False}
        solver = scs.SCS({"A": A, "b": b, "c": self.costs}, cone, **options)
        if x is None or y is None:
            return solver.solve(warm_start=False)
        begin = len(self.sides) + int(self.off.sum())
        return solver.solve(warm_start=True, x=x, y=np.r_[y[:begin], cuts.multipliers, y[-many:]], s=b - A @ x)


def run(case: str, limit: float) -> None:
    """Rounds of solving and adding inequalities until the gap is 0.001 % or time is up."""
    name, k = case.split("_")
    X = points(name)
    inertia = gputabu.TabuKMeans(int(k), n_init=4, max_iter=2000, max_time=60, random_state=0).fit(X).inertia_
    problem = problems.make(X, None, int(k))
    program, cuts, n, s = Program(problem), inequalities.Cuts(problem), problem.n, problem.roots
    begun, busy, best, x, y = time.perf_counter(), time.process_time(), 0.0, None, None
    first = len(program.sides)
    last = first + int(program.off.sum())
    while (left := limit - time.perf_counter() + begun) > 0 and inertia - best > 1e-5 * inertia:
        answer = program.solve(cuts, max(1.0, left), x, y)
        x, y = answer["x"], answer["y"]
        prices, Z = np.zeros((n, n)), np.zeros((n, n))
        prices[program.rows[program.off], program.columns[program.off]] = np.maximum(y[first:last], 0) / 2
        prices = program.scale * (prices + prices.T) / (s[:, None] * s)
        cuts.multipliers[:] = np.maximum(y[last : last + len(cuts)], 0)
        best = max(best, certified(problem, prices, cuts.exact_matrix(program.scale * problem.weights[0])))
        seconds = f"{time.perf_counter() - begun:.0f} s, {time.process_time() - busy:.1f} of a processor"
        print(
            f"{case}: gap {100 * (inertia - best) / inertia:.2g} % with {len(cuts)} inequalities, {seconds}", flush=True
        )
        Z[program.rows, program.columns] = Z[program.columns, program.rows] = x
        Z /= s[:, None] * s
        unit = np.median(np.diagonal(Z))
        cuts.drop(Z, SLACK * unit)
        cuts.add(inequalities.violated(Z, ADDED * n, LEAST * unit))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default="bavaria1_5,bavaria1_4,iris_3,glass_6")
    parser.add_argument("--max-time", type=float, default=150.0, help="seconds for each case")
    arguments = parser.parse_args()
    for case in arguments.cases.split(","):
        run(case, arguments.max_time)


if __name__ == "__main__":
    main()
