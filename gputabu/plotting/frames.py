"""What a film is made of: what was recorded of a search, at the iterations that are shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gputabu.backend import on_gpu, open_backend, to_numpy
from gputabu.core.results import Trace
from gputabu.core.validation import check_int, check_matrix
from gputabu.data.points import Points
from gputabu.plotting.fitted_data import Subject, course_of, fitted
from gputabu.plotting.projection import Plane

#: More points than this are thinned out to as many: every frame draws them anew.
FILMED = 5000


@dataclass(frozen=True, slots=True)
class Footage:
    """F iterations of one restart, in the plane that they are drawn in."""

    size: str  # of the problem, in words
    shown: np.ndarray  # (F,) iterations
    current: np.ndarray  # (T + 1,) J_n
    best: np.ndarray  # (T + 1,) J_b
    inertia: float  # J after refinement
    plane: Plane
    points: np.ndarray  # (n, 2)
    labels: np.ndarray  # (F + 1, n); behind the last iteration those found
    path: np.ndarray  # (F, K, 2) centres held
    final: np.ndarray  # (K, 2) centres found
    centers: np.ndarray  # (K, d) centres found
    tabu: list[np.ndarray] | None  # F times (m, 2)
    leaders: np.ndarray | None  # (F, K, 2) the best quantized means so far

    @classmethod
    def of(
        cls,
        X: Any,
        model: Any,
        dims: Sequence[Any] | None,
        row: int,
        shown: np.ndarray,
        given: Mapping[int, Any] | None,
    ) -> Footage:
        """What is known of a row of the trace; `given` are the centres from an iteration on, where it is not."""
        subject, trace = Subject.of(X, model), course_of(model)[0]
        end = int(trace.n_iter[row]) + 1
        chosen = subject.thinned(FILMED, FILMED)
        points = subject.rows(chosen)
        plane = Plane.of(points, dims, subject.names)
        means = trace.means[row, :end] if trace.means is not None and given is None else None
        if given is not None:
            path = _filled(given, subject.centers.shape, end)[shown]
        elif means is not None:
            path = subject.rows(means[shown])
        else:
            path = np.broadcast_to(subject.centers, (len(shown), *subject.centers.shape))
        unknown = means is None and given is None
        tabu = leaders = None
        if means is not None:
            tabu = [plane.places(subject.rows(rows)) for rows in _tabu(subject, model, means, shown)]
            leaders = plane.places(subject.rows(means[leading(trace.best[row, :end])[shown]]))
        return cls(
            f"{subject.points.n:,} points in {len(subject.centers)} clusters" + ", as found" * unknown,
            shown,
            trace.current[row, :end],
            trace.best[row, :end],
            float(fitted(model, "inertias")[row]),
            plane,
            plane.apart(points),
            _labels(points, path, subject.labels[chosen], unknown),
            plane.places(path),
            plane.places(subject.centers),
            subject.centers,
            tabu,
            leaders,
        )


def iterations(trace: Trace, row: int, frames: int) -> np.ndarray:
    """At most `frames` iterations, evenly spaced, and that of the last improvement."""
    length = int(trace.n_iter[row])
    even = np.linspace(0, length, min(check_int("frames", frames, 2), length + 1)).astype(np.int64)
    return np.union1d(even, leading(trace.best[row, : length + 1])[-1:])


def leading(best: np.ndarray) -> np.ndarray:
    """The iteration that J_b of every iteration is from: (T + 1,) -> (T + 1,)."""
    improved = np.concatenate([[False], best[1:] < best[:-1]])
    return np.maximum.accumulate(np.where(improved, np.arange(len(best)), 0))


def forbidden(means: np.ndarray, spots: np.ndarray, shared: bool) -> Iterator[np.ndarray]:
    """The row numbers in the tabu list while M(t) is held, for every t: (T + 1, K) -> T + 1 times (n,).

    `spots` (T + 1, K) are the same for means that are at the same place.

    The means alone tell it. M(t) is pushed when the search leaves it; and a mean that was in its row came free by the
    deletion rule, which cuts the row there. Only a mean that stayed where it was may have stayed for another reason:
    its cluster is empty, as another mean is at the same place, or (in scope "global") other rows forbid the point.
    """
    rows: list[dict[int, None]] = [{} for _ in means[0]]  # in the order they were pushed
    yield np.empty(0, np.int64)
    for t in range(1, len(means)):
        cuts = []
        for k, (old, new) in enumerate(zip(means[t - 1].tolist(), means[t].tolist(), strict=True)):
            kept = new == old and (
                spots[t - 1, k] in spots[t - 1, :k] or (shared and any(old in row for row in rows[:k] + rows[k + 1 :]))
            )
            cuts.append(new if new in rows[k] and not kept else None)
        for row, cut, old in zip(rows, cuts, means[t - 1].tolist(), strict=True):
            while cut in row:
                row.popitem()
            row[old] = None  # where it is already, it stays in its place
        yield np.array(sorted(set().union(*rows)), np.int64)


def _tabu(subject: Subject, model: Any, means: np.ndarray, shown: np.ndarray) -> list[np.ndarray]:
    """Row numbers that are tabu in the iterations shown."""
    rows, where = np.unique(means, return_inverse=True)
    _, place = np.unique(subject.rows(rows), axis=0, return_inverse=True)
    spots = place.reshape(-1)[where.reshape(means.shape)]
    wanted = set(shown.tolist())
    shared = getattr(model, "scope", "cluster") == "global"
    return [held for t, held in enumerate(forbidden(means, spots, shared)) if t in wanted]


def _labels(points: np.ndarray, path: np.ndarray, found: np.ndarray, unknown: bool) -> np.ndarray:
    """Clusters of the points (n, d) in every frame, and in the end those found: (F + 1, n)."""
    if unknown:
        return np.broadcast_to(found, (len(path) + 1, len(found)))
    with open_backend(Points.of(points), "numpy") as backend:
        return np.stack([*(backend.fetch_labels(backend.label(centers[None]), 0) for centers in path), found])


def _filled(given: Mapping[int, Any], shape: tuple[int, ...], length: int) -> np.ndarray:
    """The centres of every iteration, (T + 1, K, d): those given for the latest up to it."""
    known = {}
    for t in sorted(check_int("centers", t, 0, length - 1) for t in given):
        known[t] = check_matrix(to_numpy(given[t]) if on_gpu(given[t]) else given[t], "centers")
        if known[t].shape != shape:
            raise ValueError(f"centers[{t}] has shape {known[t].shape} and must be {shape}.")
    if 0 not in known:
        raise ValueError(f"centers has iterations {list(known)} and must begin with iteration 0.")
    since = np.searchsorted(list(known), np.arange(length), side="right") - 1
    return np.stack(list(known.values())).astype(np.float64)[since]
