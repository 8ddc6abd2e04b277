"""Choosing K (section I): cluster for every K and take the best by a criterion."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from gputabu.algorithms.monitor import Callback, Monitor
from gputabu.algorithms.progress import SweepEstimate
from gputabu.algorithms.restarts import announce
from gputabu.backend import Devices, as_caller_array, as_caller_arrays, as_points, open_backend
from gputabu.backend.arithmetic.fixed_point import Bounds
from gputabu.backend.base import BackendBase
from gputabu.backend.compiled_code import cheaper_without, remember
from gputabu.core import random as draws
from gputabu.core.random import Purpose
from gputabu.core.results import Clustering
from gputabu.core.validation import check_choice, check_int
from gputabu.data.points import Points
from gputabu.selection import criteria
from gputabu.selection.criteria import LARGEST_IS_BEST, RELATIVE, Fit, Silhouette
from gputabu.selection.sweep import METHODS, Plan, Sweep, SweepStep

#: What is remembered of code that was compiled for it.
NAME = "select_k"
#: Sample size for silhouettes.
SAMPLE = 2000
#: Rows of a reference set drawn at once.
DRAWN = 1 << 16


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class KSelection:
    """The clusterings of several K, and the recommended one.

    Attributes
    ----------
    n_clusters : int
        The recommended K.
    criterion : str
        The criterion that recommends it: the first one asked for, unless an interrupt left it no K to judge.
    table : dict of str to (M,) array
        A row per K: "n_clusters", "inertia" (J), and a column per criterion computed; "gap" comes with "gap_error".
        NaN where a criterion is not defined. `pandas.DataFrame(selection.table)` is a data frame.
    recommended : dict of str to int
        The K that each computed criterion recommends.
    asked : tuple of str
        The criteria asked for.
    best : Clustering
        The recommended clustering. Its restart 0 is the one that continues the clustering of another K.
    centers : dict of int to (K, d) array
        The centres of every K.
    interrupted : bool
        Whether Ctrl-C or a callback ended the search early. The table then has fewer rows, at least one.
    """

    n_clusters: int
    criterion: str
    table: dict[str, np.ndarray]
    recommended: dict[str, int]
    asked: tuple[str, ...]
    best: Clustering
    centers: dict[int, Any]
    interrupted: bool

    @property
    def labels(self) -> Any:
        """(N,) int32, of the recommended clustering."""
        return self.best.labels

    @property
    def remarks(self) -> tuple[str, ...]:
        """What to keep in mind about the recommended K, in sentences; often nothing."""
        ks, said = self.table["n_clusters"], []
        least = 2 if self.criterion in RELATIVE else 1  # that the criterion can judge
        if len(ks) > 1 and self.n_clusters in (ks[0], ks[-1]) and self.n_clusters > least:
            end, way = ("least", "smaller") if self.n_clusters == ks[0] else ("largest", "larger")
            said.append(f"K = {self.n_clusters} is the {end} that was tried: {way} ones may be better still.")
        others = {name: k for name, k in self.recommended.items() if k != self.n_clusters}
        if others:
            listed = ", ".join(f"{name} {k}" for name, k in others.items())
            said.append(
                f"Criteria disagree, as they often do ({listed}): look where J bends over K, and which of these "
                "clusterings says something about the data."
            )
        return tuple(said)

    def plot(self, ax: Any = None) -> Any:
        """Draw the criteria over K; see `gputabu.plotting.selection`."""
        from gputabu import plotting

        return plotting.selection(self, ax)

    def __repr__(self) -> str:
        until = "; interrupted" if self.interrupted else ""
        lines = [f"KSelection: {self.n_clusters} clusters by {self.criterion}{until}"]
        columns = {name: [f"{value:.5g}" for value in column] for name, column in self.table.items()}
        heads = {name: ["", "K"] if name == "n_clusters" else ["", *name.split("_")][-2:] for name in columns}
        widths = {name: max(map(len, [*heads[name], *column])) for name, column in columns.items()}
        for line in (0, 1):  # two title lines: all criteria fit into 80 columns
            lines.append("  " + "  ".join(f"{heads[name][line]:>{width}}" for name, width in widths.items()))
        for i, k in enumerate(self.table["n_clusters"]):
            mark = "*" if k == self.n_clusters else " "
            lines.append(f"{mark} " + "  ".join(f"{columns[name][i]:>{width}}" for name, width in widths.items()))
        return "\n".join(lines)


def select_k(
    X: object,
    ks: Iterable[int],
    criterion: str | Sequence[str] = "bic",
    *,
    weights: object = None,
    method: str = "k-means",
    restarts: int = 1,
    references: int = 10,
    seed: int = 0,
    backend: str = "auto",
    device: Devices = None,
    progress: bool = False,
    callback: Callback | None = None,
) -> KSelection:
    """Cluster `X` for every K in `ks` and recommend one.

    Parameters
    ----------
    X : (N, d) array, on the host or on a GPU, a file or anything else that `gputabu.chunked` reads, or Points
    ks : iterable of int
        The numbers of clusters to try, from 1 to N, in any order.
    criterion : str or sequence of str
        The criterion that decides. Of several the first decides, and the others are computed too. AIC, BIC,
        "calinski_harabasz" and "davies_bouldin" are always computed, the costly "silhouette" and "gap" on request.
        `gputabu.GMeans` needs no values of K: it asks whether clusters look Gaussian. Take it where they are round
        and apart, and a criterion elsewhere.

        - "bic", "aic" (least): the information criteria for spherical Gaussians of one variance and equal weight,
          −2L + p ln N and −2L + 2p with L = −N ln K − (N·d/2) (ln(2πJ/(N·d)) + 1) and p = K·d + 1. They
          are meant for K well below N. K = N leaves no variance to estimate and is never recommended. J counts at
          least as much as the rounding of X can cause, so the criteria are finite where J = 0.
        - "silhouette" (largest): mean silhouette, on a random sample of 2000 points if N is larger.
        - "calinski_harabasz" (largest), "davies_bouldin" (least): as in scikit-learn. These two and the silhouette
          are defined for K from 2 to N − 1, and NaN otherwise.
        - "gap": the gap statistic: the first K whose gap is at least the next one's minus its standard error.
          It compares J with J of points spread evenly over the box of `X`. K = 1 may win if it is in `ks`.
    weights : (N,) array, optional
        A weight of w counts as w points, also in the criteria, where the sum of weights is the number of points.
    method : {"k-means", "tabu"}
        "tabu" continues each K-Means result with a tabu search (QM-TS) from the points nearest to its centres.
    restarts : int
        Starts per K: the first continues the clustering of the K before, the others are K-Means++.
    references : int
        Number of reference sets for the gap statistic. Each costs as much as `X` itself.
    seed : int
    backend : {"auto", "cuda", "numba", "numpy"}
    device : int, sequence of int or "all", optional
        Which GPU, or several that share the rows; by default the current one, or the one that `X` is on.
    progress : bool
        Show a progress bar on stderr, or a line every few seconds if stderr is not a terminal.
    callback : function, optional
        Called with a `Progress`, which has the K as `n_clusters`, after every iteration. It ends the search by
        returning True. See `gputabu.Progress`.

    Returns
    -------
    KSelection
        After Ctrl-C or a stop by the callback it holds the K that are finished, and `interrupted` is True.

    References
    ----------
    Pelleg and Moore, "X-means: extending K-means with efficient estimation of the number of clusters", ICML 2000.
    Tibshirani, Walther and Hastie, "Estimating the number of clusters in a data set via the gap statistic", 2001.

    Examples
    --------
    >>> from sklearn.datasets import make_blobs
    >>> from gputabu import select_k
    >>> X, _ = make_blobs(500, centers=5, cluster_std=0.3, random_state=1)
    >>> selection = select_k(X, range(1, 10))
    >>> selection.n_clusters, selection.criterion, selection.labels.shape
    (5, 'bic', (500,))
    """
    monitor = Monitor(callback, progress)
    points = as_points(X, weights)
    plan = Plan(
        check_ks(ks, points.n),
        check_choice("method", method, METHODS),
        check_int("restarts", restarts, 1),
        check_int("seed", seed, 0, 2**64 - 1),
    )
    asked = check_criteria(criterion, plan.ks, points.total_weight)
    check_int("references", references, 1)
    estimate = SweepEstimate(plan.ks, 1 + references * ("gap" in asked), restarts)
    clusters = sum(plan.ks) * plan.restarts * estimate.times
    may_compile = backend != "auto" or not cheaper_without(points, NAME, clusters)
    opening = partial(open_backend, backend=backend, device=device, compiled=may_compile)
    with opening(points) as opened, monitor.opened(plan.ks[0], estimate):
        announce(points, plan.ks[-1], range(restarts), opened.name)
        steps = Sweep(opened, plan, monitor).run()
        measures = Measures(opened, seed, "silhouette" in asked)
        rows = [measures.row(step) for step in steps]
        table = {name: np.array([row[name] for row in rows]) for name in rows[0]}
        if "gap" in asked:
            finished = replace(plan, ks=plan.ks[: len(steps)])
            reference_sets = (reference_points(points, opened.bounds, seed, number) for number in range(references))
            reference_inertias = [
                values for reference in reference_sets if (values := inertias(reference, finished, opening, monitor))
            ]
            table["gap"], table["gap_error"] = criteria.gap(
                np.maximum(table["inertia"], measures.least), reference_inertias
            )
        recommended = recommendations(table, points.total_weight)
        deciding = next((name for name in (*asked, "bic") if name in recommended), asked[0])
        if opened.name == "numba":
            remember(points, NAME)
        step = steps[plan.ks.index(recommended.get(deciding, plan.ks[0]))]
        best = replace(step.clustering, labels=opened.fetch_labels(opened.label(step.centers[None]), 0))
        return KSelection(
            n_clusters=len(step.centers),
            criterion=deciding,
            table=table,
            recommended=recommended,
            asked=asked,
            best=as_caller_arrays(best, points),
            centers={len(step.centers): as_caller_array(step.clustering.centers, points) for step in steps},
            interrupted=monitor.halted is not None,
        )


class Measures:
    """Measures the clusterings: one row of the table for each."""

    def __init__(self, backend: BackendBase, seed: int, silhouette: bool) -> None:
        points = backend.points
        self.backend = backend
        self.least = criteria.least_inertia(backend.bounds, points.total_weight, points.dtype)
        self.sample = sample(points, SAMPLE, seed)
        self.silhouette = Silhouette(backend.rows(self.sample), points.weights_at(self.sample)) if silhouette else None

    def row(self, step: SweepStep) -> dict[str, float]:
        """One row of the table. It takes two passes over the points."""
        backend, centers = self.backend, step.centers[None]
        labels = backend.blank_labels(1)
        totals = backend.assign(centers, labels).totals
        fit = Fit(
            k=len(step.centers),
            d=backend.points.d,
            weight=backend.points.total_weight,
            inertia=max(step.inertia, self.least),
            scatter=backend.scatter,
            centers=step.centers,
            weights=backend.grid.weights(totals)[0],
            spreads=backend.spreads(centers, labels)[0],
        )
        row = {
            "n_clusters": fit.k,
            "inertia": step.inertia,
            "bic": criteria.bic(fit),
            "aic": criteria.aic(fit),
            "calinski_harabasz": criteria.calinski_harabasz(fit),
            "davies_bouldin": criteria.davies_bouldin(fit),
        }
        if self.silhouette is not None:
            defined = criteria.judges("silhouette", fit.k, fit.weight)
            row["silhouette"] = (
                self.silhouette.mean(backend.fetch_labels(labels, 0)[self.sample]) if defined else math.nan
            )
        return row


def sample(points: Points, size: int, seed: int) -> np.ndarray:
    """Row numbers of at most `size` points of positive weight: one at random from each of `size` equal row ranges."""
    rows = None if points.weights is None else np.flatnonzero(np.concatenate(points.weights) > 0)
    n = points.n if rows is None else len(rows)
    edges = np.arange(min(n, size) + 1) * n // min(n, size)
    words = draws.words(seed, 0, len(edges) - 1, purpose=Purpose.SAMPLE)
    chosen = edges[:-1] + draws.below(words, np.diff(edges))
    return chosen if rows is None else rows[chosen]


def reference_points(points: Points, bounds: Bounds, seed: int, number: int) -> Points:
    """A reference set for the gap statistic: as many points, with the same weights, spread evenly over the box."""
    X = np.empty((points.n, points.d), points.dtype)
    for step, a in enumerate(range(0, points.n, DRAWN)):
        block = X[a : a + DRAWN]
        words = draws.words(seed, number, block.size, purpose=Purpose.REFERENCE, step=step)
        block[...] = bounds.low + draws.uniforms(words).reshape(block.shape) * (bounds.high - bounds.low)
    return Points.of(X, None if points.weights is None else np.concatenate(points.weights))


def inertias(points: Points, plan: Plan, opening: Callable[[Points], BackendBase], monitor: Monitor) -> list[float]:
    """J for every K; empty if interrupted."""
    if monitor.halted:
        return []
    with opening(points) as opened:
        least = criteria.least_inertia(opened.bounds, points.total_weight, points.dtype)
        values = [max(step.inertia, least) for step in Sweep(opened, plan, monitor).run()]
    return [] if monitor.halted else values


def recommendations(table: dict[str, np.ndarray], weight: float) -> dict[str, int]:
    """The K that each criterion of the table recommends, the lowest on ties; criteria that judge no K are left out."""
    recommended = {}
    for name, largest in LARGEST_IS_BEST.items():
        if name not in table:
            continue
        judged = [criteria.judges(name, int(k), weight) for k in table["n_clusters"]]
        rows = np.flatnonzero(judged & np.isfinite(table[name]))
        values = table[name][rows]
        if len(rows) == 0:
            continue
        best = int((-values if largest else values).argmin())
        if name == "gap":
            best = criteria.within_one_error(values, table["gap_error"][rows])
        recommended[name] = int(table["n_clusters"][rows[best]])
    return recommended


def check_ks(ks: object, n_samples: int) -> list[int]:
    """The numbers of clusters, ascending, each once."""
    if isinstance(ks, (str, bytes)) or not isinstance(ks, Iterable):
        raise TypeError(f"ks={ks!r} must be a sequence of integers from 1 to n_samples={n_samples}.")
    numbers = sorted({check_int("ks", k, 1) for k in ks})
    if not numbers:
        raise ValueError("ks is empty and must hold at least one number of clusters.")
    if numbers[-1] > n_samples:
        raise ValueError(f"ks contains {numbers[-1]}; numbers of clusters must be from 1 to n_samples={n_samples}.")
    return numbers


def check_criteria(criterion: object, ks: list[int], weight: float) -> tuple[str, ...]:
    """The criteria asked for. Each must be able to judge at least one of `ks`."""
    names = [criterion] if isinstance(criterion, str) or not isinstance(criterion, Iterable) else list(criterion)
    if not names:
        raise ValueError(f"criterion={criterion!r} must name at least one of {', '.join(map(repr, LARGEST_IS_BEST))}.")
    asked = tuple(dict.fromkeys(check_choice("criterion", name, LARGEST_IS_BEST) for name in names))
    for name in asked:
        if not any(criteria.judges(name, k, weight) for k in ks):
            allowed = "from 2 to less" if name in RELATIVE else "less"
            raise ValueError(
                f"ks={ks} has no K that criterion={name!r} can judge; it must be {allowed} than the number of points "
                f"(the sum of their weights), {weight:g}."
            )
    return asked
