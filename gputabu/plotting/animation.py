"""Animation of a search: the centres move, the curve of J grows, and tabu points are marked.

An animation can show what the trace has recorded. QM-TS records the quantized means of every iteration, from which the
tabu list follows (`frames.tabu_rows`). Relocation, TSC and K-Means record only J; their animation shows the final
clusters, unless the caller passes the centres of iterations.
"""

from __future__ import annotations

import base64
import html
import io
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gputabu.core.atomic_files import replace_text, replacing
from gputabu.core.validation import check_choice, check_int
from gputabu.plotting import trace as trace_plot
from gputabu.plotting.fitted_data import trace_of
from gputabu.plotting.frames import Frames, iterations
from gputabu.plotting.style import CENTRES, legend, looks, mark, matplotlib_missing, titled

if TYPE_CHECKING:
    from matplotlib.animation import FuncAnimation
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

#: Number of earlier frames in the tail of a centre.
TAIL = 6
#: Number of frames that show the final clustering.
FINAL_FRAMES = 4
#: Colours of a frame.
FEW = 128


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
    """Animate a search: the clusters on the left, J on the right, and at the end the final clustering.

    For QM-TS (`QuantizedTabuKMeans`) it shows the quantized means of every iteration, their clusters, the tabu points,
    and the best means so far. Other methods record only J; for them it shows the final clusters, or those of `centers`.

    Parameters
    ----------
    X : (N, d) array-like
        The points that `model` was fitted to. If there are more than 5000, 5000 at equal steps are drawn.
    model : fitted estimator or Clustering
    figure : matplotlib Figure, optional
        Where to draw; by default a new figure that pyplot does not manage, so a notebook shows only the animation.
        Pass `pyplot.figure()` to see it in a window.
    dims : two features, by name or number, optional
        The two axes, as in `clusters`.
    restart : int, optional
        Row of the model's trace; by default that of the best restart. Only for it the refined clustering is shown.
    centers : mapping of int to (K, d) array-like, optional
        The centres from an iteration on, starting with 0, if the search did not record them.
    frames : int
        Largest number of iterations to show, evenly spaced; the last improvement is shown in any case.
    interval : int
        Milliseconds between frames.

    Returns
    -------
    animation : matplotlib FuncAnimation
        `IPython.display.HTML(player(animation))` shows it in a notebook; `write(animation, "search.gif")` keeps it.

    Examples
    --------
    >>> from gputabu import TabuKMeans, plotting
    >>> X = [[0.0, 0.0], [0.0, 1.0], [9.0, 0.0], [9.0, 1.0]]
    >>> animation = plotting.animation(X, TabuKMeans(2, max_iter=2, random_state=0).fit(X))
    >>> "data:image/png" in animation.to_jshtml()
    True
    """
    try:
        from matplotlib.animation import FuncAnimation
    except ImportError as error:
        raise matplotlib_missing() from error
    trace, best_row = trace_of(model)
    row = best_row if restart is None else check_int("restart", restart, 0, trace.n_restarts - 1)
    check_int("interval", interval, 1)
    shown = iterations(trace, row, frames)
    scene = Scene(Frames.of(X, model, dims, row, shown, centers), _figure(figure))
    order = [*range(len(shown)), *[len(shown)] * (FINAL_FRAMES if row == best_row else 0)]
    return FuncAnimation(scene.figure, scene.draw, order, init_func=lambda: (), interval=interval, repeat_delay=1500)


def write(film: FuncAnimation, path: Any, fps: int = 6) -> Path:
    """Write an animation to a file: .gif, or .html, a self-contained page with buttons.

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
    >>> animation = plotting.animation(X, TabuKMeans(2, max_iter=2, random_state=0).fit(X))
    >>> plotting.write(animation, getfixture("tmp_path") / "search.gif").name
    'search.gif'
    """
    from matplotlib.animation import PillowWriter

    path = Path(path)
    check_int("fps", fps, 1, 50)
    if check_choice("path ending", path.suffix, (".gif", ".html")) == ".gif":
        with replacing(path) as temporary:
            film.save(temporary, writer=PillowWriter(fps=fps))
        return path
    page = player(film, fps, once=False)
    title = html.escape(path.stem)
    replace_text(path, f'<!DOCTYPE html>\n<meta charset="utf-8">\n<title>{title}</title>\n{page}')
    return path


def player(film: FuncAnimation, fps: int = 6, once: bool = True) -> str:
    """An animation as HTML with buttons, for a notebook. Its frames have few colours, which makes it a fifth as large.

    Parameters
    ----------
    film : FuncAnimation
        From `animation`.
    fps : int
        Frames per second.
    once : bool
        Whether it plays once, and not in a loop.

    Returns
    -------
    page : str

    Examples
    --------
    >>> from gputabu import TabuKMeans, plotting
    >>> X = [[0.0, 0.0], [0.0, 1.0], [9.0, 0.0], [9.0, 1.0]]
    >>> film = plotting.animation(X, TabuKMeans(2, max_iter=2, random_state=0).fit(X))
    >>> "data:image/png" in plotting.player(film)
    True
    """
    from matplotlib import rc_context

    check_int("fps", fps, 1, 50)
    with rc_context({"animation.embed_limit": 1000}):  # MB; beyond the limit Matplotlib leaves out frames
        page = film.to_jshtml(fps=fps, default_mode="once" if once else "loop")
    return re.sub(r'(?<="data:image/png;base64,)[^"]+', lambda found: _with_few_colours(found[0]), page)


def _with_few_colours(frame: str) -> str:
    """A PNG in base64, in lines of JavaScript, as a smaller one."""
    from PIL import Image

    picture = Image.open(io.BytesIO(base64.b64decode(frame.replace("\\\n", ""))))
    small = io.BytesIO()
    picture.convert("RGB").quantize(FEW, dither=Image.Dither.NONE).save(small, "png", optimize=True)
    return base64.b64encode(small.getvalue()).decode()


class Scene:
    """The figure of an animation, and the artists that change."""

    def __init__(self, frames: Frames, figure: Figure) -> None:
        self.frames, self.figure = frames, figure
        self.colours = looks(frames.centers)[0]
        left, right = figure.subplots(1, 2, width_ratios=[1.15, 1])
        self._clusters(left)
        self._trace(right)
        for ax in (left, right):
            ax.get_legend().set_in_layout(False)  # it fits below the title; the axes of a narrow figure keep their size
        figure.draw_without_rendering()
        figure.set_layout_engine("none")  # the axes must not move

    def _clusters(self, ax: Axes) -> None:
        """The points and all marks. The legend is the same in every frame."""
        frames, empty = self.frames, np.empty((0, 2))
        size = float(np.clip(6000 / len(frames.points), 4, 28))
        self.dots = ax.scatter(frames.points[:, 0], frames.points[:, 1], s=size, alpha=0.6, linewidths=0)
        self.tails = ax.plot(*np.empty((2, 1, len(frames.final))), color="black", lw=0.9, alpha=0.6, zorder=2.5)
        self.marks = {}
        if frames.tabu is not None:
            self.marks["tabu"] = mark(ax, empty, "tabu", marker="x", color="0.25", s=14, linewidths=0.8, zorder=2)
            self.marks["means"] = mark(ax, empty, "quantized means", marker="o", color="white", edgecolors="black")
            star = {"marker": "*", "color": trace_plot.LAST, "edgecolors": "white", "linewidths": 0.8, "s": 150}
            self.marks["best"] = mark(ax, empty, "best means so far", **star)
        self.marks["final"] = mark(ax, empty, "centres", **{**CENTRES, "zorder": 4})
        frames.projection.label_axes(ax)
        titled(ax, frames.size)

    def _trace(self, ax: Axes) -> None:
        """J of the whole search in grey, to set the scale, and the curves that grow."""
        frames = self.frames
        ax.plot(frames.current, color="0.85", lw=0.7)
        (self.line,) = ax.plot([], [], color=trace_plot.CURRENT, lw=1.1, label="$J_n$, current")
        (self.steps,) = ax.step([], [], where="post", color=trace_plot.BEST, lw=2.2, label="$J_b$, best so far")
        (self.now,) = ax.plot([], [], "o", ms=7, mfc=trace_plot.LAST, mec="white", zorder=4, label="now")
        trace_plot.finish(ax, frames.current, frames.best, frames.inertia)
        self.title = ax.set_title("iteration 0", loc="left", pad=legend(ax))

    def draw(self, frame: int) -> Sequence[Any]:
        """Draw a frame; the one after the last iteration is the final clustering."""
        frames, final = self.frames, frame == len(self.frames.shown)
        i = min(frame, len(frames.shown) - 1)
        t = int(frames.shown[i])
        self.dots.set_facecolor(self.colours[frames.labels[frame]])
        self._move(i, final)
        self.line.set_data(np.arange(t + 1), frames.current[: t + 1])
        self.steps.set_data(np.arange(t + 1), frames.best[: t + 1])
        inertia = frames.inertia if final else frames.current[t]
        self.now.set_data([t], [inertia])
        self.title.set_text(f"found: J = {inertia:.6g}" if final else f"iteration {t}: J = {inertia:.6g}")
        return ()

    def _move(self, i: int, final: bool) -> None:
        """Move the marks to their places in frame i, or in the final clustering."""
        frames, empty = self.frames, np.empty((0, 2))
        trail = frames.path[max(0, i - TAIL) : i + 1]  # (n, K, 2)
        for k, tail in enumerate(self.tails):
            tail.set_data(*(empty if final else trail[:, k]).T)
        if frames.tabu is None or frames.leaders is None:
            self.marks["final"].set_offsets(frames.final if final else frames.path[i])
            return
        self.marks["tabu"].set_offsets(empty if final else frames.tabu[i])
        self.marks["means"].set_offsets(empty if final else frames.path[i])
        self.marks["best"].set_offsets(frames.leaders[i])
        self.marks["final"].set_offsets(frames.final if final else empty)


def _figure(figure: Figure | None) -> Figure:
    from matplotlib.figure import Figure as Unmanaged

    if figure is None:
        return Unmanaged(figsize=(9.5, 4.5), layout="constrained")
    figure.set_layout_engine("constrained")
    return figure
