"""The style of pictures: colours, marks, legends, and the Axes to draw in."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from matplotlib.axes import Axes

#: Okabe and Ito's colours, which colour-blind people can tell apart; yellow, faint on white, comes last.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#F0E442")
#: When the colours are used up they repeat with another marker: 63 clusters differ.
MARKERS = "os^Dv<>ph"
#: The golden ratio: any number of its multiples, modulo 1, spread evenly.
GOLDEN = (5**0.5 - 1) / 2
#: Columns of a legend.
COLUMNS = 2
#: Marks of centres, visible on any colour.
CENTRES = {"marker": "X", "color": "black", "edgecolors": "white"}
RINGS = {"marker": "o", "facecolors": "none", "edgecolors": "black"}


def axes(ax: Axes | None) -> Axes:
    """`ax`, or the Axes of a new figure."""
    if ax is not None:
        return ax
    try:
        import matplotlib.pyplot as plt
    except ImportError as error:
        raise matplotlib_missing() from error
    return plt.subplots(layout="constrained")[1]


def matplotlib_missing() -> ImportError:
    return ImportError("gputabu.plotting needs Matplotlib: pip install 'gputabu[plot]'.")


def looks(centers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Colour and marker of every cluster, (K,) each. Of many clusters, neighbouring ones get different colours."""
    colour = np.arange(len(centers)) % len(COLOURS)
    if len(centers) > len(COLOURS):
        for i, center in enumerate(centers):
            nearest = np.full(len(COLOURS), np.inf)  # squared distance to the nearest centre of each colour
            np.minimum.at(nearest, colour[:i], ((centers[:i] - center) ** 2).sum(axis=1))
            colour[i] = nearest.argmax()
    uses = np.array(
        [(colour[:i] == shade).sum() for i, shade in enumerate(colour)]
    )  # how often each colour was used before
    return np.array(COLOURS)[colour], np.array(list(MARKERS))[uses % len(MARKERS)]


def mark(ax: Axes, places: np.ndarray, label: str, **style: Any) -> Any:
    """Draw marks that stand out from the points; many marks are smaller."""
    size = float(np.clip(1500 / max(len(places), 12), 40, 130))
    style = {"s": size, "linewidths": 1.5, "zorder": 3, **style}
    return ax.scatter(places[:, 0], places[:, 1], label=label, **style)


def spread(n: int) -> np.ndarray:
    """Numbers from -0.5 to 0.5, (n,), that spread points which would overlap on a line; always the same."""
    return np.arange(n) * GOLDEN % 1 - 0.5


def titled(ax: Axes, title: str) -> Axes:
    """Add the legend and, above it, the title."""
    ax.set_title(title, loc="left", pad=legend(ax))
    return ax


def legend(ax: Axes) -> float:
    """Add the legend above the axes, where it hides no data, and return the padding of the title in points."""
    from matplotlib import rcParams
    from matplotlib.font_manager import FontProperties

    rows = -(-len(ax.get_legend_handles_labels()[0]) // COLUMNS)
    if rows:
        style = {"ncols": COLUMNS, "frameon": False, "borderaxespad": 0, "columnspacing": 1.5}
        ax.legend(loc="lower left", bbox_to_anchor=(0, 1), **style)
        ax.yaxis.get_offset_text().set_horizontalalignment("right")  # a factor such as 1e11 goes beside it
    return 6 + 1.6 * FontProperties(size=rcParams["legend.fontsize"]).get_size_in_points() * rows
