"""The frames of an animation: what a trace recorded of a search, at the iterations shown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gputabu.backend import on_gpu, open_backend, to_numpy
from gputabu.core.results import Trace
from gputabu.core.validation import check_int, check_matrix
from gputabu.data.points import Points
from gputabu.plotting.fitted_data import FittedData, fitted, trace_of
from gputabu.plotting.projection import Projection

#: Of more points, so many are drawn: every frame draws them again.
MAX_POINTS = 5000


@dataclass(frozen=True, slots=True)
class Frames:
    """F iterations of one restart, projected to the picture."""

    size: str  # of the problem, in words
    shown: np.ndarray  # (F,) iterations
    current: np.ndarray  # (T + 1,) J_n
    best: np.ndarray  # (T + 1,) J_b
    inertia: float  # J after refinement
    projection: Projection
    points: np.ndarray  # (n, 2)
    labels: np.ndarray  # (F + 1, n); the last row is the final clustering
    path: np.ndarray  # (F, K, 2) current centres
    final: np.ndarray  # (K, 2) final centres
    centers: np.ndarray  # (K, d) final centres
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
        centers: Mapping[int, Any] | None,
    ) -> Frames:
        """The frames of a row of the trace; `centers` are the centres from an iteration on, if not recorded there."""
        fitted_data, trace = FittedData.of(X, model), trace_of(model)[0]
        end = int(trace.n_iter[row]) + 1
        drawn = fitted_data.thinned(MAX_POINTS, MAX_POINTS)
        points = fitted_data.rows(drawn)
        projection = Projection.of(points, dims, fitted_data.names)
        means = trace.means[row, :end] if trace.means is not None and centers is None else None
        if centers is not None:
            path = _centers_per_iteration(centers, fitted_data.centers.shape, end)[shown]
        elif means is not None:
            path = fitted_data.rows(means[shown])
        else:
            path = np.broadcast_to(fitted_data.centers, (len(shown), *fitted_data.centers.shape))
        unrecorded = means is None and centers is None
        tabu = leaders = None
        if means is not None:
            tabu = [projection.places(fitted_data.rows(rows)) for rows in _tabu_rows(fitted_data, model, means, shown)]
            leaders = projection.places(fitted_data.rows(means[best_iteration(trace.best[row, :end])[shown]]))
        return cls(
            f"{fitted_data.points.n:,} points in {len(fitted_data.centers)} clusters" + ", as found" * unrecorded,
            shown,
            trace.current[row, :end],
            trace.best[row, :end],
            float(fitted(model, "inertias")[row]),
            projection,
            projection.spread_out(points),
            _labels(points, path, fitted_data.labels[drawn], unrecorded),
            projection.places(path),
            projection.places(fitted_data.centers),
            fitted_data.centers,
            tabu,
            leaders,
        )


def iterations(trace: Trace, row: int, frames: int) -> np.ndarray:
    """At most `frames` iterations, evenly spaced, and the one of the last improvement."""
    length = int(trace.n_iter[row])
    even = np.linspace(0, length, min(check_int("frames", frames, 2), length + 1)).astype(np.int64)
    return np.union1d(even, best_iteration(trace.best[row, : length + 1])[-1:])


def best_iteration(best: np.ndarray) -> np.ndarray:
    """For every iteration, the one in which its J_b was reached: (T + 1,) -> (T + 1,)."""
    improved = np.concatenate([[False], best[1:] < best[:-1]])
    return np.maximum.accumulate(np.where(improved, np.arange(len(best)), 0))


def tabu_rows(means: np.ndarray, spots: np.ndarray, shared: bool) -> Iterator[np.ndarray]:
    """The row numbers in the tabu list while M(t) is current, for every t: (T + 1, K) -> T + 1 times (n,).

    `spots` (T + 1, K) are equal for means at the same place.

    The list follows from the means alone. M(t) is pushed when the search leaves it. If a new mean is in its row, the
    deletion rule has freed it, and cut the row there. Only a mean that did not move may have stayed for another reason:
    its cluster is empty, because another mean is at the same place, or (in scope "global") other rows forbid the point.
    """
    rows: list[dict[int, None]] = [{} for _ in means[0]]  # in the order of pushing
    yield np.empty(0, np.int64)
    for t in range(1, len(means)):
        cuts = []
        for k, (old, new) in enumerate(zip(means[t - 1].tolist(), means[t].tolist(), strict=True)):
            stays = new == old and (
                spots[t - 1, k] in spots[t - 1, :k] or (shared and any(old in row for row in rows[:k] + rows[k + 1 :]))
            )
            cuts.append(new if new in rows[k] and not stays else None)
        for row, cut, old in zip(rows, cuts, means[t - 1].tolist(), strict=True):
            while cut in row:
                row.popitem()
            row[old] = None  # a row number that is in the row already keeps its place
        yield np.array(sorted(set().union(*rows)), np.int64)


def _tabu_rows(fitted_data: FittedData, model: Any, means: np.ndarray, shown: np.ndarray) -> list[np.ndarray]:
    """The row numbers that are tabu, for each iteration shown."""
    rows, index = np.unique(means, return_inverse=True)
    _, spot = np.unique(fitted_data.rows(rows), axis=0, return_inverse=True)
    spots = spot.reshape(-1)[index.reshape(means.shape)]
    iterations_shown = set(shown.tolist())
    shared = getattr(model, "scope", "cluster") == "global"
    return [tabu for t, tabu in enumerate(tabu_rows(means, spots, shared)) if t in iterations_shown]


def _labels(points: np.ndarray, path: np.ndarray, final: np.ndarray, unrecorded: bool) -> np.ndarray:
    """Clusters of the points (n, d) in every frame, followed by the final ones: (F + 1, n)."""
    if unrecorded:
        return np.broadcast_to(final, (len(path) + 1, len(final)))
    with open_backend(Points.of(points), "numpy") as backend:
        return np.stack([*(backend.fetch_labels(backend.label(centers[None]), 0) for centers in path), final])


def _centers_per_iteration(centers: Mapping[int, Any], shape: tuple[int, ...], length: int) -> np.ndarray:
    """The centres of every iteration, (T + 1, K, d): the latest in `centers` up to it."""
    checked = {}
    for t in sorted(check_int("centers", t, 0, length - 1) for t in centers):
        checked[t] = check_matrix(to_numpy(centers[t]) if on_gpu(centers[t]) else centers[t], "centers")
        if checked[t].shape != shape:
            raise ValueError(f"centers[{t}] has shape {checked[t].shape} and must be {shape}.")
    if 0 not in checked:
        raise ValueError(f"centers has iterations {list(checked)} and must begin with iteration 0.")
    latest = np.searchsorted(list(checked), np.arange(length), side="right") - 1
    return np.stack(list(checked.values())).astype(np.float64)[latest]
