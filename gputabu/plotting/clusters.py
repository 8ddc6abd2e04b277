"""Pictures of a clustering: the clusters, their sizes, and the silhouettes of the points."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gputabu.backend import to_numpy
from gputabu.core.validation import check_int
from gputabu.plotting.fitted_data import FittedData, fitted, labels_of, weights_of
from gputabu.plotting.projection import Projection
from gputabu.plotting.style import CENTRES, RINGS, axes, looks, mark, titled
from gputabu.selection.criteria import distances, silhouettes
from gputabu.selection.select_k import sample as sample_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Of more than MANY points, SHOWN are drawn; more would only overlap.
MANY, SHOWN = 100_000, 50_000
#: Largest number of clusters with numbers at the axis.
NUMBERED = 30


def clusters(
    X: Any, model: Any, ax: Axes | None = None, dims: Sequence[Any] | None = None, *, weights: Any = None
) -> Axes:
    """Draw the points, coloured by cluster, with the centres and the quantized means.

    Of more than 100 000 points, 50 000 at equal steps are drawn. If there are more clusters than colours, neighbouring
    clusters get different colours.

    Parameters
    ----------
    X : (N, d) array-like
        The points that `model` was fitted to.
    model : fitted estimator or Clustering
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.
    dims : two features, by name or number, optional
        The two axes. By default both features if there are two, and otherwise the first two principal components of
        the points drawn. A single feature is drawn along a line; heights then mean nothing.
    weights : (N,) array-like, optional
        The area of a point is proportional to its weight, up to ten times the average.

    Returns
    -------
    ax : matplotlib Axes

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from gputabu import TabuKMeans, plotting
    >>> X = [[0.0, 0.0], [0.0, 1.0], [9.0, 0.0], [9.0, 1.0]]
    >>> ax = plotting.clusters(X, TabuKMeans(2).fit(X), Figure().subplots())
    >>> ax.get_xlabel(), ax.get_ylabel()
    ('feature 0', 'feature 1')
    """
    fitted_data = FittedData.of(X, model, weights)
    shown = fitted_data.thinned(MANY, SHOWN)
    drawn = fitted_data.rows(shown)
    projection = Projection.of(drawn, dims, fitted_data.names)
    ax = axes(ax)
    _scatter(
        ax,
        projection.spread_out(drawn),
        fitted_data.labels[shown],
        fitted_data.centers,
        fitted_data.points.weights_at(shown),
    )
    mark(ax, projection.places(fitted_data.centers), "centres", **CENTRES)
    if fitted_data.means is not None:
        mark(ax, projection.places(fitted_data.rows(fitted_data.means)), "quantized means", **RINGS)
    projection.label_axes(ax)
    return titled(ax, f"{fitted_data.points.n:,} points in {len(fitted_data.centers)} clusters")


def sizes(model: Any, ax: Axes | None = None, *, weights: Any = None) -> Axes:
    """Draw the number of points in each cluster, the largest first, and an even share as a line.

    Parameters
    ----------
    model : fitted estimator or Clustering
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.
    weights : (N,) array-like, optional
        Draw the sum of these weights instead of the number of points.

    Returns
    -------
    ax : matplotlib Axes

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from gputabu import TabuKMeans, plotting
    >>> model = TabuKMeans(2).fit([[0.0], [1.0], [10.0]])
    >>> plotting.sizes(model, Figure().subplots()).get_title("left")
    'Sizes of 2 clusters, from 1 to 2'
    """
    labels, centers = labels_of(model), fitted(model, "centers")
    k = len(centers)
    counts = np.bincount(labels, weights_of(weights, len(labels)), minlength=k)
    order = np.argsort(-counts, kind="stable")
    ax = axes(ax)
    ax.bar(np.arange(k), counts[order], width=0.8 if k <= NUMBERED else 1.0, color=_colours(model)[order])
    even = counts.sum() / k
    ax.axhline(even, color="black", ls="--", lw=1, label=f"even share: {even:,.6g}")
    ax.set_xlim(-0.6, k - 0.4)
    if k <= NUMBERED:
        ax.set_xticks(np.arange(k), [str(number) for number in order], fontsize=None if k <= 15 else "x-small")
    else:
        ax.set_xticks([])
    ax.set(xlabel="cluster", ylabel="points" if weights is None else "weight")
    return titled(ax, f"Sizes of {k} clusters, from {counts.min():,.6g} to {counts.max():,.6g}")


def silhouette(
    X: Any, model: Any, ax: Axes | None = None, *, weights: Any = None, sample: int = 5000, seed: int = 0
) -> Axes:
    """Draw the silhouettes of the points by cluster: how much nearer the own cluster is than the next one.

    A silhouette is 1 deep inside a cluster, 0 between two, and negative where another cluster is nearer on average.
    Only a few rows of the distance matrix are in memory at a time.

    Parameters
    ----------
    X : (N, d) array-like
        The points that `model` was fitted to.
    model : fitted estimator or Clustering
        With two clusters or more.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.
    weights : (N,) array-like, optional
        A weight of w counts as w points.
    sample : int
        If there are more points, silhouettes are computed within a sample of this size. The cost is quadratic in it.
    seed : int
        Seed of the sample.

    Returns
    -------
    ax : matplotlib Axes

    References
    ----------
    Rousseeuw, "Silhouettes: a graphical aid to the interpretation and validation of cluster analysis", 1987.

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from gputabu import TabuKMeans, plotting
    >>> X = [[0.0, 0.0], [0.0, 1.0], [9.0, 0.0], [9.0, 1.0]]
    >>> plotting.silhouette(X, TabuKMeans(2).fit(X), Figure().subplots()).get_title("left")
    'Silhouettes of 4 points'
    """
    fitted_data = FittedData.of(X, model, weights)
    n = fitted_data.points.n
    rows = sample_of(fitted_data.points, check_int("sample", sample, 2), check_int("seed", seed, 0, 2**64 - 1))
    labels = fitted_data.labels[rows]
    if (labels == labels[0]).all():
        raise ValueError(f"model has all points in cluster {labels[0]}; silhouettes need at least two clusters.")
    sample_weights, drawn = fitted_data.points.weights_at(rows), fitted_data.rows(rows)
    values = silhouettes(lambda block: distances(drawn[block], drawn), sample_weights, labels)
    mean = float(np.average(values, weights=sample_weights))
    ax = axes(ax)
    _knives(ax, values, labels, sample_weights / sample_weights.sum(), _colours(model))
    ax.axvline(mean, color="black", ls="--", lw=1, label=f"mean: {mean:.3f}")
    low = min(0.0, float(values.min()))
    ax.set(xlabel="silhouette", ylabel="cluster", xlim=(max(-1.0, low - 0.05), 1.0))
    count = f"{len(rows):,} of {n:,}" if len(rows) < n else f"{n:,}"
    return titled(ax, f"Silhouettes of {count} points")


def _knives(ax: Axes, values: np.ndarray, labels: np.ndarray, shares: np.ndarray, colours: np.ndarray) -> None:
    """One shape per cluster, the first on top. Its height is the share of the weight, its width the silhouettes."""
    present = np.unique(labels)
    gap, top, ticks = 0.2 / len(present), 0.0, []
    for k in present:
        members = np.flatnonzero(labels == k)
        members = members[np.argsort(-values[members], kind="stable")]
        edges = top + np.concatenate([[0.0], np.cumsum(shares[members])])
        ax.stairs(values[members], edges, orientation="horizontal", fill=True, color=colours[k], lw=0)
        ticks.append((edges[0] + edges[-1]) / 2)
        top = edges[-1] + gap
    few = len(present) <= NUMBERED
    ax.set_yticks(ticks if few else [], [str(k) for k in present] if few else [])
    ax.set_ylim(top, -gap)


def _colours(model: Any) -> np.ndarray:
    return looks(to_numpy(fitted(model, "centers")))[0]


def _scatter(ax: Axes, places: np.ndarray, labels: np.ndarray, centers: np.ndarray, weights: np.ndarray) -> None:
    size = float(np.clip(40_000 / len(places), 3, 28)) * np.clip(weights / weights.mean(), 0.05, 10)
    colours, markers = looks(centers)
    for marker in dict.fromkeys(markers):  # all colours at once: no cluster covers the others
        marked = markers[labels] == marker
        # Rasterized: a vector file with every point would be too large to open.
        style: dict[str, Any] = {"marker": marker, "alpha": 0.7, "linewidths": 0, "rasterized": True}
        ax.scatter(places[marked, 0], places[marked, 1], s=size[marked], c=colours[labels[marked]], **style)
