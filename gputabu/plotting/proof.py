"""The course of a proof: bound and J over time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gputabu.plotting.style import COLOURS, axes, titled

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def proof(certificate: Any, ax: Axes | None = None) -> Axes:
    """Draw the lower bound and J over time.

    Parameters
    ----------
    certificate : Certificate
    ax : matplotlib Axes, optional
        Where to draw; by default a new figure.

    Returns
    -------
    ax : matplotlib Axes
    """
    ax = axes(ax)
    seconds, bounds, inertias = certificate.history.T
    ax.step(seconds, inertias, where="post", color=COLOURS[4], lw=2, label="J")
    ax.step(seconds, bounds, where="post", color=COLOURS[0], lw=2, label="lower bound")
    ax.fill_between(seconds, bounds, inertias, step="post", color=COLOURS[5], alpha=0.3, lw=0, label="the best is here")
    ax.set(xlabel="seconds", ylabel="J")
    return titled(ax, f"Gap {100 * certificate.gap:.2g} %")
