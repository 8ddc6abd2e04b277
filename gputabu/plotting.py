"""Pictures of a clustering and of the search that found it. Needs Matplotlib: the extra `gputabu[plot]`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from sklearn.utils.validation import check_is_fitted

from gputabu.backend import to_numpy
from gputabu.criteria import LARGEST_IS_BEST
from gputabu.points import Points
from gputabu.results import Clustering, Trace
from gputabu.validation import check_choice, check_int

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from gputabu.selection import KSelection

#: Okabe and Ito's colours, which colour-blind people tell apart; yellow, faint on white, comes last.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#F0E442")
#: When the colours are used up they come again with another marker: 63 clusters differ.
MARKERS = "os^Dv<>ph"
#: What criteria are called in a picture.
NAMES = {
    "bic": "BIC",
    "aic": "AIC",
    "silhouette": "silhouette",
    "calinski_harabasz": "Caliński–Harabasz",
    "gap": "gap statistic",
    "davies_bouldin": "Davies–Bouldin",
}  # in the order of COLOURS
#: More points than MANY are thinned out to SHOWN; more would be ink on ink.
MANY, SHOWN = 100_000, 50_000


def clusters(X: Any, model: Any, ax: Axes | None = None, dims: Sequence[Any] | None = None) -> Axes:
    """Draw the points, coloured by cluster, with the centres and the quantized means.

    Above 100 000 points, 50 000 of them at equal steps through the rows are drawn.

    Parameters
    ----------
    X : (N, d) array-like
        The points that `model` was fitted to.
    model : fitted estimator or Clustering
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.
    dims : two features, by name or number, optional
        What to draw against what. By default the features where there are two, and otherwise the first two
        principal components of the points drawn.

    Returns
    -------
    ax : matplotlib Axes

    Examples
    --------
    >>> from gputabu import TabuKMeans, plotting
    >>> X = [[0.0, 0.0], [0.0, 1.0], [9.0, 0.0], [9.0, 1.0]]
    >>> ax = plotting.clusters(X, TabuKMeans(2).fit(X))  # doctest: +SKIP
    """
    points = Points.of(to_numpy(X))
    labels, centers = (to_numpy(_fitted(model, name)) for name in ("labels", "centers"))
    means = _fitted(model, "center_indices")
    if len(labels) != points.n or centers.shape[1] != points.d:
        fitted = (len(labels), centers.shape[1])
        raise ValueError(f"X has shape {(points.n, points.d)}, but the model was fitted to {fitted}.")
    shown = _thinned(points.n)
    drawn = points.rows(shown)
    origin, basis, titles = _plane(drawn, dims, _names(X, model, points.d))
    ax = _axes(ax)
    _scatter(ax, (drawn - origin) @ basis.T, labels[shown])
    _mark(ax, (centers - origin) @ basis.T, "centres", marker="X", color="black", edgecolors="white")
    if means is not None:
        rings = (points.rows(means) - origin) @ basis.T
        _mark(ax, rings, "quantized means", marker="o", facecolors="none", edgecolors="black")
    ax.set(xlabel=titles[0], ylabel=titles[1], title=f"{points.n:,} points in {len(centers)} clusters")
    return _with_legend(ax, len(shown))


def trace(model: Any, ax: Axes | None = None, restarts: Sequence[int] | None = None) -> Axes:
    """Draw J per iteration: of the restart that won, its best so far, and the other restarts behind it.

    Parameters
    ----------
    model : fitted estimator or Clustering
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.
    restarts : sequence of int, optional
        Rows of the model's trace to draw behind the winning one; by default all.

    Returns
    -------
    ax : matplotlib Axes

    Examples
    --------
    >>> from gputabu import TabuKMeans, plotting
    >>> model = TabuKMeans(2, init="random").fit([[0.0], [1.0], [10.0], [11.0]])
    >>> ax = plotting.trace(model, restarts=[])  # doctest: +SKIP
    """
    course = _fitted(model, "trace")
    if not isinstance(course, Trace):
        raise TypeError(f"model={model!r} has no trace; fit an estimator of gputabu.")
    inertia, inertias = _fitted(model, "inertia"), _fitted(model, "inertias")
    won = int(np.flatnonzero(inertias == inertia)[0])
    behind = _behind(restarts, won, course.n_restarts)
    ax = _axes(ax)
    if behind:
        styles = ["_nolegend_"] * (len(behind) - 1) + ["other restarts"]
        ax.plot(course.current[behind].T, color="0.75", lw=0.6, alpha=0.6, label=styles)
    steps = course.n_iter[won] + 1
    _draw_course(ax, course.current[won, :steps], course.best[won, :steps], inertia)
    final = "after refinement" if course.means is not None else "in the end"
    ax.axhline(inertia, color="black", ls="--", lw=1, zorder=1.5, label=f"{final}: {inertia:.6g}")
    name = "Tabu search" if course.means is not None else "K-Means"
    many = f": best of {course.n_restarts} restarts" if course.n_restarts > 1 else ""
    ax.set(xlabel="iteration", ylabel="J", title=name + many)
    ax.locator_params(axis="x", integer=True)
    return _with_legend(ax, course.current[behind].size)


def boxes(inertias: Mapping[str, Sequence[float]], ax: Axes | None = None, best_known: float | None = None) -> Axes:
    """Draw J of many runs as a box plot per method: median, quartiles, range within 1.5 of their distance, the rest.

    Parameters
    ----------
    inertias : mapping of str to sequence of float
        J of every run, by method.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.
    best_known : float, optional
        The lowest J known, drawn as a line.

    Returns
    -------
    ax : matplotlib Axes

    Examples
    --------
    >>> from gputabu import plotting
    >>> ax = plotting.boxes({"K-Means": [90.0, 78.9, 78.9], "QM-TS": [78.9, 78.9, 78.9]})  # doctest: +SKIP
    """
    ax = _axes(ax)
    drawn = ax.boxplot(list(inertias.values()), widths=0.55, patch_artist=True)
    for box in drawn["boxes"]:
        box.set(facecolor=COLOURS[5], alpha=0.6)
    for median in drawn["medians"]:
        median.set(color=COLOURS[0], lw=2)
    for outliers in drawn["fliers"]:
        outliers.set(marker="o", ms=3.5, mfc="none", mec="0.3", mew=0.7)
    ax.set_xticks(range(1, len(inertias) + 1), list(inertias))
    if best_known is not None:
        ax.axhline(best_known, color="black", ls="--", lw=1, zorder=1, label=f"best known: {best_known:.6g}")
        ax.legend(loc="lower right", bbox_to_anchor=(1, 1), frameon=False)  # outside: boxes may be anywhere
    ax.ticklabel_format(axis="y", useOffset=False)
    ax.set(ylabel="J")
    return ax


def selection(found: KSelection, ax: Axes | None = None, criteria: Sequence[str] | None = None) -> Axes:
    """Draw criteria over K, and the K recommended.

    One criterion is drawn in its own units. Several are drawn from their worst value to their best, which is on top,
    with a dot on the best of each: where they agree, the dots are in line.

    Parameters
    ----------
    found : KSelection
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.
    criteria : sequence of str, optional
        Columns of `found.table`; by default the criteria that were asked for.

    Returns
    -------
    ax : matplotlib Axes

    Examples
    --------
    >>> from gputabu import plotting, select_k
    >>> found = select_k([[0.0], [1.0], [10.0], [11.0]], [1, 2, 3])
    >>> ax = plotting.selection(found, criteria=["bic", "aic"])  # doctest: +SKIP
    """
    chosen = list(found.asked if criteria is None else criteria)
    for name in chosen:
        check_choice("criteria", name, [name for name in NAMES if name in found.table])
    ax, ks, alone = _axes(ax), found.table["n_clusters"], len(chosen) == 1
    for i, name in enumerate(chosen):
        colour, values = COLOURS[list(NAMES).index(name)], found.table[name]
        if not alone:
            values = _scaled(values, LARGEST_IS_BEST[name])
        elif name == "gap":
            ax.errorbar(ks, values, found.table["gap_error"], fmt="none", color=colour, capsize=3)
        likes = found.recommended.get(name)
        label = NAMES[name] if likes is None else f"{NAMES[name]}: K = {likes}"
        ax.plot(ks, values, "o-", ms=4, color=colour, lw=1.3 if i else 2.2, zorder=3 - i / 10, label=label)
        # Rings where criteria agree.
        dot: dict[str, Any] = {"ms": 8 + 4 * i, "mec": "white", "mew": 1, "zorder": 4 - i / 10}
        ax.plot(ks[ks == likes], values[ks == likes], "o", mfc=colour, **dot)
    ax.axvline(found.n_clusters, color="black", ls="--", lw=1, zorder=1, label=f"recommended: K = {found.n_clusters}")
    ax.set(xlabel="number of clusters K", ylabel=_best_side(chosen), title=f"{NAMES[chosen[0]]} over K")
    ax.locator_params(axis="x", integer=True)
    if alone:
        return _with_legend(ax, len(ks))
    ax.set_title("Criteria over K, each from its worst to its best")
    ax.set_yticks([0, 1], ["worst", "best"])
    ax.set_ylim(-0.1 - 0.05 * (len(chosen) + 2), 1.1)  # the lines leave no room but below them
    ax.legend(loc="lower center", ncols=2, framealpha=0.9)
    return ax


def _best_side(chosen: list[str]) -> str:
    """The title of the vertical axis: which end of it is the good one."""
    if len(chosen) > 1:
        return ""
    if chosen == ["gap"]:
        return "gap, ± one error"
    return f"{NAMES[chosen[0]]} ({'highest' if LARGEST_IS_BEST[chosen[0]] else 'lowest'} is best)"


def _scaled(values: np.ndarray, largest: bool) -> np.ndarray:
    """From 0, the worst, to 1, the best."""
    low = np.min(values, where=~np.isnan(values), initial=np.inf)
    high = np.max(values, where=~np.isnan(values), initial=-np.inf)
    share = (values - low) / (high - low or 1.0)
    return share if largest else 1 - share


def _draw_course(ax: Axes, current: np.ndarray, best: np.ndarray, inertia: float) -> None:
    """One restart: J_n, J_b, and the iteration from which J_b stayed what it was."""
    improved = np.flatnonzero(best[1:] < best[:-1])
    last = int(improved[-1]) + 1 if len(improved) else 0
    ax.plot(current, color=COLOURS[5], lw=0.9, label="$J_n$, current")
    ax.step(np.arange(len(best)), best, where="post", color=COLOURS[0], lw=2.2, label="$J_b$, best so far")
    label = f"last improvement: iteration {last}"
    ax.plot([last], [best[last]], "o", ms=7, mfc=COLOURS[4], mec="white", label=label, zorder=4)
    # Other restarts may begin far above; the scale is that of this one.
    low, high = min(inertia, best[-1]), current.max()
    margin = 0.05 * (high - low) or 0.05
    ax.set_ylim(low - 2 * margin, high + margin)


def _scatter(ax: Axes, places: np.ndarray, labels: np.ndarray) -> None:
    size = float(np.clip(40_000 / len(places), 3, 28))
    colours = np.array(COLOURS)[labels % len(COLOURS)]
    turn = labels // len(COLOURS) % len(MARKERS)
    for i in np.unique(turn):  # all colours at once, so that no cluster lies on top of the others
        x, y = places[turn == i].T
        # Rasterized: a vector file with every point would be too large to open.
        style: dict[str, Any] = {"marker": MARKERS[i], "alpha": 0.7, "linewidths": 0, "rasterized": True}
        ax.scatter(x, y, s=size, c=colours[turn == i], **style)


def _with_legend(ax: Axes, size: int) -> Axes:
    """Add the legend where it covers least, unless looking for that place among `size` points takes long."""
    ax.legend(loc="best" if size <= 5000 else "upper right", framealpha=0.9)
    return ax


def _mark(ax: Axes, places: np.ndarray, label: str, **style: Any) -> None:
    size = float(np.clip(1500 / len(places), 40, 130))
    ax.scatter(places[:, 0], places[:, 1], s=size, label=label, linewidths=1.5, zorder=3, **style)


def _plane(drawn: np.ndarray, dims: Sequence[Any] | None, names: list[str]) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """What is drawn against what: an origin (d,), two directions (2, d) and their titles."""
    d = drawn.shape[1]
    if dims is None and d > 2:
        return _principal(drawn)
    if dims is not None and np.size(dims) != 2:
        raise ValueError(f"dims={dims!r} must be two features, by name or number.")
    columns = list(range(d)) if dims is None else [_column(dim, names) for dim in dims]
    basis = np.zeros((2, d))  # a single feature is drawn along a line
    basis[np.arange(len(columns)), columns] = 1
    return np.zeros(d), basis, [*(names[column] for column in columns), ""][:2]


def _principal(drawn: np.ndarray) -> tuple[np.ndarray, np.ndarray, list[str]]:
    """The mean and the two directions of largest variance."""
    mean = drawn.mean(axis=0)
    # R of QR has the singular values and right vectors of the data, and needs no (N, d) left ones.
    _, spread, axes = np.linalg.svd(np.linalg.qr(drawn - mean, mode="r"), full_matrices=False)
    axes = np.vstack([axes, np.zeros((1, drawn.shape[1]))])[:2]  # a single point has but one
    heaviest = np.abs(axes).argmax(axis=1)
    axes *= np.where(axes[np.arange(2), heaviest] < 0, -1, 1)[:, None]  # the same side up everywhere
    share = 100 * np.append(spread, 0.0)[:2] ** 2 / max((spread**2).sum(), np.finfo(float).tiny)
    return mean, axes, [f"principal component {i + 1} ({share[i]:.1f} %)" for i in range(2)]


def _column(dim: Any, names: list[str]) -> int:
    """The number of a feature given by name or number."""
    if not isinstance(dim, str):
        return check_int("dims", dim, 0, len(names) - 1)
    if dim not in names:
        raise ValueError(f"dims contains {dim!r}, which is none of the features {', '.join(names)}.")
    return names.index(dim)


def _names(X: Any, model: Any, d: int) -> list[str]:
    names = getattr(model, "feature_names_in_", getattr(X, "columns", None))
    return [f"feature {j}" for j in range(d)] if names is None else [str(name) for name in names]


def _fitted(model: Any, name: str) -> Any:
    """What a Clustering calls `name`, of one or of an estimator; None where the model has no such thing."""
    if isinstance(model, Clustering):
        return getattr(model, name)
    check_is_fitted(model)
    return getattr(model, "cluster_centers_" if name == "centers" else f"{name}_", None)


def _behind(restarts: Sequence[int] | None, won: int, n_restarts: int) -> list[int]:
    rows = range(n_restarts) if restarts is None else restarts
    return [row for row in rows if check_int("restarts", row, 0, n_restarts - 1) != won]


def _thinned(n: int) -> np.ndarray:
    """Row numbers of the points to draw."""
    return np.arange(n) if n <= MANY else np.arange(SHOWN) * n // SHOWN


def _axes(ax: Axes | None) -> Axes:
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise ImportError("gputabu.plotting needs Matplotlib: pip install 'gputabu[plot]'.") from error
    return plt.subplots(layout="constrained")[1]
