"""A search as a film: the centres move, J is drawn as it goes, and what is forbidden is marked.

What can be shown is what was recorded. Of QM-TS that is all of it: the quantized means of every iteration, which also
tell the tabu list (`footage.forbidden`). Relocation, TSC and K-Means record J only; their film has the clusters that
were found in the end, unless the centres on the way are given.
"""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gputabu.core.atomic_files import replace_text, replacing
from gputabu.core.validation import check_choice, check_int
from gputabu.plotting import trace as course
from gputabu.plotting.fitted_data import course_of
from gputabu.plotting.frames import Footage, iterations
from gputabu.plotting.style import CENTRES, lacking, legend, looks, mark, titled

if TYPE_CHECKING:
    from matplotlib.animation import FuncAnimation
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Frames that the tail of a centre goes back.
TAIL = 6
#: Frames for which the last picture stays.
HELD = 4


def animation(
    X: Any,
    model: Any,
    figure: Figure | None = None,
    dims: Sequence[Any] | None = None,
    *,
    restart: int | None = None,
    centers: Mapping[int, Any] | None = None,
    frames: int = 60,
    interval: int = 150,
) -> FuncAnimation:
    """A film of the search: the clusters on the left, J on the right, and in the end the clustering found.

    Of QM-TS (`TabuKMeans`) every quantized mean is shown where the search had it, with the clusters it makes, the
    points that are tabu and the best means so far. Other methods record J only. Of them the clusters found in the end
    are shown, or those of `centers`.

    Parameters
    ----------
    X : (N, d) array-like
        The points that `model` was fitted to. Above 5000, as many at equal steps through the rows are drawn.
    model : fitted estimator or Clustering
    figure : matplotlib Figure, optional
        Where to draw; by default a new one that pyplot does not manage, so that a notebook shows the film only. Pass
        `pyplot.figure()` to see it in a window.
    dims : two features, by name or number, optional
        What to draw against what, as in `clusters`.
    restart : int, optional
        Row of the model's trace; by default the one that won. Only that one is shown to the end of its refinement.
    centers : mapping of int to (K, d) array-like, optional
        The centres held from an iteration on, beginning with 0, where a search has not recorded them.
    frames : int
        How many iterations to show at the most, evenly spaced; the last improvement is among them.
    interval : int
        Milliseconds between frames.

    Returns
    -------
    film : matplotlib FuncAnimation
        `film.to_jshtml()` is HTML with buttons for a notebook; `write(film, "search.gif")` is a file.

    Examples
    --------
    >>> from gputabu import TabuKMeans, plotting
    >>> X = [[0.0, 0.0], [0.0, 1.0], [9.0, 0.0], [9.0, 1.0]]
    >>> film = plotting.animation(X, TabuKMeans(2, max_iter=2, random_state=0).fit(X))
    >>> "data:image/png" in film.to_jshtml()
    True
    """
    try:
        from matplotlib.animation import FuncAnimation
    except ImportError as error:
        raise lacking() from error
    recorded, won = course_of(model)
    row = won if restart is None else check_int("restart", restart, 0, recorded.n_restarts - 1)
    check_int("interval", interval, 1)
    shown = iterations(recorded, row, frames)
    scene = Scene(Footage.of(X, model, dims, row, shown, centers), _figure(figure))
    order = [*range(len(shown)), *[len(shown)] * (HELD if row == won else 0)]
    return FuncAnimation(scene.figure, scene.draw, order, init_func=lambda: (), interval=interval, repeat_delay=1500)


def write(film: FuncAnimation, path: Any, fps: int = 6) -> Path:
    """Write a film to a file: .gif, or .html, a page with buttons that needs nothing else.

    Parameters
    ----------
    film : FuncAnimation
        From `animation`.
    path : path
    fps : int
        Frames per second.

    Returns
    -------
    path : Path

    Examples
    --------
    >>> from gputabu import TabuKMeans, plotting
    >>> X = [[0.0, 0.0], [0.0, 1.0], [9.0, 0.0], [9.0, 1.0]]
    >>> film = plotting.animation(X, TabuKMeans(2, max_iter=2, random_state=0).fit(X))
    >>> plotting.write(film, getfixture("tmp_path") / "search.gif").name
    'search.gif'
    """
    from matplotlib import rc_context
    from matplotlib.animation import PillowWriter

    path = Path(path)
    check_int("fps", fps, 1, 50)
    if check_choice("path ending", path.suffix, (".gif", ".html")) == ".gif":
        with replacing(path) as aside:
            film.save(aside, writer=PillowWriter(fps=fps))
        return path
    with rc_context({"animation.embed_limit": 1000}):  # MB; beyond the limit frames would be left out
        page = film.to_jshtml(fps=fps)
    title = html.escape(path.stem)
    replace_text(path, f'<!DOCTYPE html>\n<meta charset="utf-8">\n<title>{title}</title>\n{page}')
    return path


class Scene:
    """The figure of a film and what moves in it."""

    def __init__(self, footage: Footage, figure: Figure) -> None:
        self.footage, self.figure = footage, figure
        self.colours = looks(footage.centers)[0]
        left, right = figure.subplots(1, 2, width_ratios=[1.15, 1])
        self._clusters(left)
        self._course(right)
        for ax in (left, right):
            ax.get_legend().set_in_layout(False)  # there is room below the title; a narrow figure keeps its axes
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # the axes stay where they are

    def _clusters(self, ax: Axes) -> None:
        """The points and all marks, so that the legend is that of every frame."""
        footage, none = self.footage, np.empty((0, 2))
        size = float(np.clip(6000 / len(footage.points), 4, 28))
        self.dots = ax.scatter(footage.points[:, 0], footage.points[:, 1], s=size, alpha=0.6, linewidths=0)
        self.tails = ax.plot(*np.empty((2, 1, len(footage.final))), color="black", lw=0.9, alpha=0.6, zorder=2.5)
        self.marks = {}
        if footage.tabu is not None:
            self.marks["tabu"] = mark(ax, none, "tabu", marker="x", color="0.25", s=14, linewidths=0.8, zorder=2)
            self.marks["held"] = mark(ax, none, "quantized means", marker="o", color="white", edgecolors="black")
            star = {"marker": "*", "color": course.LAST, "edgecolors": "white", "linewidths": 0.8, "s": 150}
            self.marks["leaders"] = mark(ax, none, "best means so far", **star)
        self.marks["final"] = mark(ax, none, "centres", **{**CENTRES, "zorder": 4})
        footage.plane.name(ax)
        titled(ax, footage.size)

    def _course(self, ax: Axes) -> None:
        """J of the whole search faintly, as the scale, and the curves that grow."""
        footage = self.footage
        ax.plot(footage.current, color="0.85", lw=0.7)
        (self.line,) = ax.plot([], [], color=course.CURRENT, lw=1.1, label="$J_n$, current")
        (self.steps,) = ax.step([], [], where="post", color=course.BEST, lw=2.2, label="$J_b$, best so far")
        (self.now,) = ax.plot([], [], "o", ms=7, mfc=course.LAST, mec="white", zorder=4, label="now")
        course.finish(ax, footage.current, footage.best, footage.inertia)
        self.said = ax.set_title("iteration 0", loc="left", pad=legend(ax))

    def draw(self, frame: int) -> Sequence[Any]:
        """Show a frame; the one behind the last iteration is the clustering found."""
        footage, over = self.footage, frame == len(self.footage.shown)
        i = min(frame, len(footage.shown) - 1)
        t = int(footage.shown[i])
        self.dots.set_facecolor(self.colours[footage.labels[frame]])
        self._move(i, over)
        self.line.set_data(np.arange(t + 1), footage.current[: t + 1])
        self.steps.set_data(np.arange(t + 1), footage.best[: t + 1])
        level = footage.inertia if over else footage.current[t]
        self.now.set_data([t], [level])
        self.said.set_text(f"found: J = {level:.6g}" if over else f"iteration {t}: J = {level:.6g}")
        return ()

    def _move(self, i: int, over: bool) -> None:
        """Put the marks where they are in frame i, or in the end."""
        footage, none = self.footage, np.empty((0, 2))
        behind = footage.path[max(0, i - TAIL) : i + 1]  # (n, K, 2)
        for k, tail in enumerate(self.tails):
            tail.set_data(*(none if over else behind[:, k]).T)
        if footage.tabu is None or footage.leaders is None:
            self.marks["final"].set_offsets(footage.final if over else footage.path[i])
            return
        self.marks["tabu"].set_offsets(none if over else footage.tabu[i])
        self.marks["held"].set_offsets(none if over else footage.path[i])
        self.marks["leaders"].set_offsets(footage.leaders[i])
        self.marks["final"].set_offsets(footage.final if over else none)


def _figure(figure: Figure | None) -> Figure:
    from matplotlib.figure import Figure as Unmanaged

    if figure is None:
        return Unmanaged(figsize=(9.5, 4.5), layout="constrained")
    figure.set_layout_engine("constrained")
    return figure
