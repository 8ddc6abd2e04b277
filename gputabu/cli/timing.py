"""Time per iteration, compared with scikit-learn: in one process, on the same points, in alternation."""

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

#: Iterations of the two runs whose difference is measured.
FEW, MANY = 2, 32
#: A function that returns the seconds of a run with so many iterations.
Timing = Callable[[int], float]


def timed(call: Callable[..., Any], *arguments: Any, **options: Any) -> tuple[float, Any]:
    """The seconds that a call takes, and its result."""
    start = time.perf_counter()
    result = call(*arguments, **options)
    return time.perf_counter() - start, result


def per_iteration(
    X: np.ndarray, k: int, backends: Sequence[str], rounds: int, others: Mapping[str, Timing] | None = None
) -> dict[str, float]:
    """Milliseconds of each kind of iteration, as medians of rounds; kinds alternate, so that drift favours none.

    A Lloyd iteration is timed by the difference between runs of 32 and 2: set-up and copies cancel, and thirty
    iterations are enough for their noise not to matter. If K-Means converges before, the longer run stops just before.
    """
    means = np.arange(k) * (len(X) // k)
    opened_backends = {backend: open_backend(Points.of(X), backend) for backend in backends}

    def fit(iterations: int) -> KMeans:  # tol=0: it must run all iterations that are timed
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ConvergenceWarning)  # about fewer clusters
            return KMeans(k, init=X[means], n_init=1, tol=0, algorithm="lloyd", max_iter=iterations).fit(X)

    def time_sklearn(iterations: int) -> float:
        return timed(fit, iterations)[0]

    def time_gputabu(opened: Any, iterations: int) -> float:
        return timed(lloyd.descend, opened, X[means][None].astype(float), iterations)[0]

    last = MANY if (n_iter := fit(MANY).n_iter_) == MANY else n_iter - 1  # neither has converged by then
    if last <= FEW:
        raise ValueError(f"{len(X)} points in {k} clusters settle in {n_iter} iterations, too few to be measured.")

    def one_iteration(run: Timing) -> float:
        return (run(last) - run(FEW)) / (last - FEW)

    times: dict[str, list[float]] = {"sklearn": []}
    for _ in range(rounds):
        times["sklearn"].append(one_iteration(time_sklearn))
        for backend, opened in opened_backends.items():
            with opened:  # only now: an open backend limits BLAS to one thread
                times.setdefault(f"tabu, {backend}", []).append(tabu_step(opened, means[None]))
                times.setdefault(f"Lloyd, {backend}", []).append(one_iteration(partial(time_gputabu, opened)))
        for name, run in (others or {}).items():
            times.setdefault(name, []).append(one_iteration(run))
    return {name: 1000 * statistics.median(seconds) for name, seconds in times.items()}


def tabu_step(backend: Any, means: np.ndarray, typical: Callable[[list[float]], float] = statistics.median) -> float:
    """Seconds of one tabu iteration (assign and survey): `typical` of ten."""
    plan = quantized.Plan()
    state = quantized.begin(backend, means, plan)
    times = []
    for _ in range(10):
        seconds, state = timed(quantized.step, backend, state, plan)
        times.append(seconds)
    return typical(times)
