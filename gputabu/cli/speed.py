"""How long an iteration takes here, beside scikit-learn's: in one process, on the same points, by turns."""

from __future__ import annotations

import statistics
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning

from gputabu.algorithms import lloyd, quantized
from gputabu.backend import open_backend
from gputabu.data.points import Points

#: Iterations of the runs whose difference is measured.
FEW, MANY = 2, 32
#: Seconds of a run of so many iterations.
Timing = Callable[[int], float]


def timed(call: Callable[..., Any], *arguments: Any, **options: Any) -> tuple[float, Any]:
    """Seconds that a call takes, and what it returns."""
    begun = time.perf_counter()
    found = call(*arguments, **options)
    return time.perf_counter() - begun, found


def per_iteration(
    X: np.ndarray, k: int, backends: Sequence[str], rounds: int, others: Mapping[str, Timing] | None = None
) -> dict[str, float]:
    """Milliseconds of all kinds of iteration by turns, so that a machine that drifts favours none; medians of rounds.

    A Lloyd iteration is a fraction of what 32 iterations take longer than 2: set-up and copies cancel, and thirty are
    enough for their noise not to matter. Where K-Means is done sooner, it is as many as it makes.
    """
    means = np.arange(k) * (len(X) // k)
    held = {backend: open_backend(Points.of(X), backend) for backend in backends}

    def fit(iterations: int) -> KMeans:  # tol=0: it must make all the iterations that are timed
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # that it found fewer clusters
            return KMeans(k, init=X[means], n_init=1, tol=0, algorithm="lloyd", max_iter=iterations).fit(X)

    def theirs(iterations: int) -> float:
        return timed(fit, iterations)[0]

    def ours(opened: Any, iterations: int) -> float:
        return timed(lloyd.descend, opened, X[means][None].astype(float), iterations)[0]

    last = MANY if (made := fit(MANY).n_iter_) == MANY else made - 1  # both are under way until then
    if last <= FEW:
        raise ValueError(f"{len(X)} points in {k} clusters settle in {made} iterations, too few to be measured.")

    def each(run: Timing) -> float:
        return (run(last) - run(FEW)) / (last - FEW)

    taken: dict[str, list[float]] = {"sklearn": []}
    for _ in range(rounds):
        taken["sklearn"].append(each(theirs))
        for backend, opened in held.items():
            with opened:  # only now: it holds BLAS at one thread
                taken.setdefault(f"tabu, {backend}", []).append(tabu_step(opened, means[None]))
                taken.setdefault(f"Lloyd, {backend}", []).append(each(partial(ours, opened)))
        for name, other in (others or {}).items():
            taken.setdefault(name, []).append(each(other))
    return {name: 1000 * statistics.median(times) for name, times in taken.items()}


def tabu_step(backend: Any, means: np.ndarray, typical: Callable[[list[float]], float] = statistics.median) -> float:
    """Seconds of one tabu iteration, assign and survey: typically, of ten."""
    plan = quantized.Plan()
    state = quantized.begin(backend, means, plan)
    taken = []
    for _ in range(10):
        seconds, state = timed(quantized.step, backend, state, plan)
        taken.append(seconds)
    return typical(taken)
