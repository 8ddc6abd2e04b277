"""Comparisons of methods, and of numbers of clusters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gputabu.core.validation import check_choice
from gputabu.plotting.style import COLOURS, axes, spread, titled
from gputabu.selection.criteria import LARGEST_IS_BEST

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from gputabu.selection.select_k import KSelection

#: Names of the criteria in pictures.
NAMES = {
    "bic": "BIC",
    "aic": "AIC",
    "silhouette": "silhouette",
    "calinski_harabasz": "Caliński–Harabasz",
    "gap": "gap statistic",
    "davies_bouldin": "Davies–Bouldin",
}  # in the order of COLOURS


def boxes(inertias: Mapping[str, Sequence[float]], ax: Axes | None = None, best_known: float | None = None) -> Axes:
    """Draw J of many runs as dots, with a box per method: median, quartiles, and range within 1.5 times their distance.

    Parameters
    ----------
    inertias : mapping of str to sequence of float
        J of every run, for each method.
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.
    best_known : float, optional
        The lowest J known, drawn as a line.

    Returns
    -------
    ax : matplotlib Axes

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from gputabu import plotting
    >>> runs = {"K-Means": [90.0, 78.9, 78.9], "QM-TS": [78.9, 78.9, 78.9]}
    >>> plotting.boxes(runs, Figure().subplots()).get_ylabel()
    'J'
    """
    ax = axes(ax)
    drawn = ax.boxplot(list(inertias.values()), widths=0.55, patch_artist=True, showfliers=False)
    for box in drawn["boxes"]:
        box.set(facecolor=COLOURS[5], alpha=0.6)
    for median in drawn["medians"]:
        median.set(color=COLOURS[0], lw=2)
    for place, values in enumerate(inertias.values(), start=1):
        x = place + 0.4 * spread(len(values))  # runs with the same J would hide each other
        ax.scatter(x, values, s=9, color="0.25", alpha=0.5, linewidths=0, zorder=3)
    ax.set_xticks(range(1, len(inertias) + 1), list(inertias))
    if best_known is not None:
        ax.axhline(best_known, color="black", ls="--", lw=1, zorder=1, label=f"best known: {best_known:.6g}")
    ax.ticklabel_format(axis="y", useOffset=False)
    ax.set(ylabel="J")
    return titled(ax, "")


def selection(found: KSelection, ax: Axes | None = None, criteria: Sequence[str] | None = None) -> Axes:
    """Draw criteria over K, and the K recommended.

    One criterion is drawn in its own units. Several are scaled from their worst value (bottom) to their best (top). A
    dot marks the best of each: where they agree, the dots are in line.

    Parameters
    ----------
    found : KSelection
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.
    criteria : sequence of str, optional
        Columns of `found.table`; by default the criteria asked for.

    Returns
    -------
    ax : matplotlib Axes

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from gputabu import plotting, select_k
    >>> found = select_k([[0.0], [1.0], [10.0], [11.0]], [1, 2, 3])
    >>> plotting.selection(found, Figure().subplots(), ["bic", "aic"]).get_xlabel()
    'number of clusters K'
    """
    chosen = list(found.asked if criteria is None else criteria)
    for name in chosen:
        check_choice("criteria", name, [name for name in NAMES if name in found.table])
    ax, alone = axes(ax), len(chosen) == 1
    for i, name in enumerate(chosen):
        _curve(ax, found, name, i, alone)
    ax.axvline(found.n_clusters, color="black", ls="--", lw=1, zorder=1, label=f"recommended: K = {found.n_clusters}")
    ax.set(xlabel="number of clusters K", ylabel=_best_side(chosen))
    ax.locator_params(axis="x", integer=True)
    if alone:
        return titled(ax, f"{NAMES[chosen[0]][0].upper()}{NAMES[chosen[0]][1:]} over K")
    ax.set_yticks([0, 1], ["worst", "best"])
    return titled(ax, "Criteria over K, each from its worst to its best")


def _curve(ax: Axes, selection: KSelection, name: str, i: int, alone: bool) -> None:
    """Draw the i-th criterion, in its own units if it is the only one."""
    ks, values, colour = selection.table["n_clusters"], selection.table[name], COLOURS[list(NAMES).index(name)]
    if not alone:
        values = _scaled(values, LARGEST_IS_BEST[name])
    elif name == "gap":
        ax.errorbar(ks, values, selection.table["gap_error"], fmt="none", color=colour, capsize=3)
    recommended = selection.recommended.get(name)
    label = NAMES[name] if recommended is None else f"{NAMES[name]}: K = {recommended}"
    ax.plot(ks, values, "o-", ms=4, color=colour, lw=1.3 if i else 2.2, zorder=3 - i / 10, label=label)
    # Rings where criteria agree.
    dot: dict[str, Any] = {"ms": 8 + 2.5 * i, "mec": "white", "mew": 1, "zorder": 4 - i / 10}
    ax.plot(ks[ks == recommended], values[ks == recommended], "o", mfc=colour, **dot)


def _best_side(chosen: list[str]) -> str:
    """The title of the vertical axis, which says which end is best."""
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
