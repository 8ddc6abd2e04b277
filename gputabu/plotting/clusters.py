"""A clustering in pictures: the clusters, their sizes, and how well the points lie in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gputabu.backend import to_numpy
from gputabu.core.validation import check_int
from gputabu.plotting.fitted_data import Subject, fitted, labels_of, weights_of
from gputabu.plotting.projection import Plane
from gputabu.plotting.style import CENTRES, RINGS, axes, looks, mark, titled
from gputabu.selection.criteria import distances, silhouettes
from gputabu.selection.select_k import sample as sample_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: More points than MANY are thinned out to SHOWN; more would be ink on ink.
MANY, SHOWN = 100_000, 50_000
#: Clusters that there is room to number.
NUMBERED = 30


def clusters(
    X: Any, model: Any, ax: Axes | None = None, dims: Sequence[Any] | None = None, *, weights: Any = None
) -> Axes:
    """Draw the points, coloured by cluster, with the centres and the quantized means.

    Above 100 000 points, 50 000 of them at equal steps through the rows are drawn. With more clusters than colours,
    near ones have different colours.

    Parameters
    ----------
    X : (N, d) array-like
        The points that `model` was fitted to.
    model : fitted estimator or Clustering
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.
    dims : two features, by name or number, optional
        What to draw against what. By default the features where there are two, and otherwise the first two
        principal components of the points drawn. A single feature is drawn along a line; heights then mean nothing.
    weights : (N,) array-like, optional
        The area of a point is in proportion to its weight, up to ten times the average.

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
    subject = Subject.of(X, model, weights)
    shown = subject.thinned(MANY, SHOWN)
    drawn = subject.rows(shown)
    plane = Plane.of(drawn, dims, subject.names)
    ax = axes(ax)
    _scatter(ax, plane.apart(drawn), subject.labels[shown], subject.centers, subject.points.weights_at(shown))
    mark(ax, plane.places(subject.centers), "centres", **CENTRES)
    if subject.means is not None:
        mark(ax, plane.places(subject.rows(subject.means)), "quantized means", **RINGS)
    plane.name(ax)
    return titled(ax, f"{subject.points.n:,} points in {len(subject.centers)} clusters")


def sizes(model: Any, ax: Axes | None = None, *, weights: Any = None) -> Axes:
    """Draw how many points each cluster has, the largest first, beside an even share.

    Parameters
    ----------
    model : fitted estimator or Clustering
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.
    weights : (N,) array-like, optional
        Draw the sum of these weights in place of the number of points.

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
    """Draw the silhouettes of the points, cluster by cluster: how much nearer its own cluster is than the next.

    A silhouette is 1 deep inside a cluster, 0 between two, and negative where another cluster is nearer on average.
    No more than a few rows of the distances between points are held at a time.

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
        Where there are more points, silhouettes are those within a sample of this size. It costs its square.
    seed : int
        Of the sample; the same seed draws the same points.

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
    subject = Subject.of(X, model, weights)
    n = subject.points.n
    chosen = sample_of(subject.points, check_int("sample", sample, 2), check_int("seed", seed, 0, 2**64 - 1))
    labels = subject.labels[chosen]
    if (labels == labels[0]).all():
        raise ValueError(f"model has all points in cluster {labels[0]}; silhouettes need at least two clusters.")
    heavy, drawn = subject.points.weights_at(chosen), subject.rows(chosen)
    values = silhouettes(lambda some: distances(drawn[some], drawn), heavy, labels)
    mean = float(np.average(values, weights=heavy))
    ax = axes(ax)
    _knives(ax, values, labels, heavy / heavy.sum(), _colours(model))
    ax.axvline(mean, color="black", ls="--", lw=1, label=f"mean: {mean:.3f}")
    low = min(0.0, float(values.min()))
    ax.set(xlabel="silhouette", ylabel="cluster", xlim=(max(-1.0, low - 0.05), 1.0))
    some = f"{len(chosen):,} of {n:,}" if len(chosen) < n else f"{n:,}"
    return titled(ax, f"Silhouettes of {some} points")


def _knives(ax: Axes, values: np.ndarray, labels: np.ndarray, shares: np.ndarray, colours: np.ndarray) -> None:
    """A shape per cluster, the first on top: as high as its share of the weight, as wide as its silhouettes."""
    found = np.unique(labels)
    gap, top, ticks = 0.2 / len(found), 0.0, []
    for k in found:
        mine = np.flatnonzero(labels == k)
        mine = mine[np.argsort(-values[mine], kind="stable")]
        edges = top + np.concatenate([[0.0], np.cumsum(shares[mine])])
        ax.stairs(values[mine], edges, orientation="horizontal", fill=True, color=colours[k], lw=0)
        ticks.append((edges[0] + edges[-1]) / 2)
        top = edges[-1] + gap
    few = len(found) <= NUMBERED
    ax.set_yticks(ticks if few else [], [str(k) for k in found] if few else [])
    ax.set_ylim(top, -gap)


def _colours(model: Any) -> np.ndarray:
    return looks(to_numpy(fitted(model, "centers")))[0]


def _scatter(ax: Axes, places: np.ndarray, labels: np.ndarray, centers: np.ndarray, weights: np.ndarray) -> None:
    size = float(np.clip(40_000 / len(places), 3, 28)) * np.clip(weights / weights.mean(), 0.05, 10)
    colours, markers = looks(centers)
    for marker in dict.fromkeys(markers):  # all colours at once, so that no cluster lies on top of the others
        here = markers[labels] == marker
        # Rasterized: a vector file with every point would be too large to open.
        style: dict[str, Any] = {"marker": marker, "alpha": 0.7, "linewidths": 0, "rasterized": True}
        ax.scatter(places[here, 0], places[here, 1], s=size[here], c=colours[labels[here]], **style)
