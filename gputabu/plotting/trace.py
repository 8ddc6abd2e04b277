"""The trace of a search: J by iteration."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gputabu.core.validation import check_int
from gputabu.plotting.fitted_data import fitted, trace_of
from gputabu.plotting.style import COLOURS, axes, titled

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: The final J is of centres in the dtype of the points; a relative difference up to this is no refinement.
ROUNDING = 1e-6
#: Colours of J_n, J_b and the last improvement.
CURRENT, BEST, LAST = COLOURS[5], COLOURS[0], COLOURS[4]


def trace(model: Any, ax: Axes | None = None, restarts: Sequence[int] | None = None) -> Axes:
    """Draw J by iteration: current and best so far of the best restart, with the other restarts behind it.

    Parameters
    ----------
    model : fitted estimator or Clustering
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.
    restarts : sequence of int, optional
        Rows of the model's trace to draw behind the best one; by default all.

    Returns
    -------
    ax : matplotlib Axes

    Examples
    --------
    >>> from matplotlib.figure import Figure
    >>> from gputabu import TabuKMeans, plotting
    >>> model = TabuKMeans(2, init="random").fit([[0.0], [1.0], [10.0], [11.0]])
    >>> plotting.trace(model, Figure().subplots(), restarts=[]).get_title("left")
    'Course of the best of 10 restarts'
    """
    recorded, best_row = trace_of(model)
    behind = _behind(restarts, best_row, recorded.n_restarts)
    ax = axes(ax)
    if behind:
        labels = ["_nolegend_"] * (len(behind) - 1) + ["other restarts"]
        ax.plot(recorded.current[behind].T, color="0.75", lw=0.6, alpha=0.6, label=labels)
    length = recorded.n_iter[best_row] + 1
    _draw(ax, recorded.current[best_row, :length], recorded.best[best_row, :length], fitted(model, "inertia"))
    many = f"the best of {recorded.n_restarts} restarts" if recorded.n_restarts > 1 else "the search"
    return titled(ax, f"Course of {many}")


def _draw(ax: Axes, current: np.ndarray, best: np.ndarray, inertia: float) -> None:
    """Draw one restart: J_n, J_b, the last improvement, and the final J."""
    last = int(np.append(0, np.flatnonzero(best[1:] < best[:-1]) + 1)[-1])
    ax.plot(current, color=CURRENT, lw=0.9, label="$J_n$, current")
    ax.step(np.arange(len(best)), best, where="post", color=BEST, lw=2.2, label="$J_b$, best so far")
    label = f"last improvement: iteration {last}"
    ax.plot([last], [best[last]], "o", ms=7, mfc=LAST, mec="white", label=label, zorder=4)
    finish(ax, current, best, inertia)


def finish(ax: Axes, current: np.ndarray, best: np.ndarray, inertia: float) -> None:
    """Draw the final J, and scale the axes to this restart: others may start far above.

    Its own start may be far above, too. A few values far above the rest are cut off, and the axis says where J began.
    """
    end = "after refinement" if inertia < best[-1] * (1 - ROUNDING) else "in the end"
    ax.axhline(inertia, color="black", ls="--", lw=1, zorder=1.5, label=f"{end}: {inertia:.6g}")
    low, high = min(inertia, best[-1]), current.max()
    usual = 2 * (np.quantile(current, 0.95) - low)
    if usual < (high - low) / 2:
        high = low + usual
    margin = 0.05 * (high - low) or 0.05
    begun = f" (begun at {current[0]:.6g})" if current[0] > high else ""
    ax.set(ylim=(low - 2 * margin, high + margin), xlabel="iteration", ylabel=f"J{begun}")
    ax.locator_params(axis="x", integer=True)


def _behind(restarts: Sequence[int] | None, best_row: int, n_restarts: int) -> list[int]:
    rows = range(n_restarts) if restarts is None else restarts
    return [row for row in rows if check_int("restarts", row, 0, n_restarts - 1) != best_row]
