"""What a report lets its reader explore: the centres, a sample of the rows, an example of each cluster, and curves.

The page has the numbers as JSON, arrays packed in base64, and explorer.js draws them. Of many rows and columns it has a
part, so that it stays small; the files in the same folder have all.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from scipy.cluster.hierarchy import leaves_list, linkage, optimal_leaf_ordering

from gputabu.cli.output.fit_summary import FitSummary
from gputabu.cli.output.markup import Markup, tag
from gputabu.data.points import Points
from gputabu.plotting.fitted_data import trace_of
from gputabu.selection.select_k import sample

#: Colours of clusters: Okabe and Ito's, and then always the one that differs most from all before it, among those that
#: stand out on white and on the dark page.
COLOURS = (
    "#0072b2", "#e69f00", "#009e73", "#cc79a7", "#d55e00", "#56b4e9", "#9b00ff", "#36d800", "#b20064", "#ff17f7",
    "#6c5d00", "#2e36ff", "#937cff", "#ff006c", "#ff93ff", "#8bc993", "#834daa", "#ffa2a2", "#9b8b00", "#c900b9",
    "#9b5d64", "#007c00", "#7c8baa", "#006c64", "#0083ff", "#c1aae0", "#c90000", "#b99b83", "#00b21f", "#ff6c6c",
)  # fmt: skip
#: The programs that draw.
SCRIPTS = tuple(Path(__file__).with_name(name) for name in ("canvas.js", "explorer.js"))
#: Most columns on the page; numbers of all centres, and of all rows drawn, on it; most rows drawn.
COLUMNS, CENTRES, DRAWN, ROWS = 60, 60_000, 100_000, 4000
#: Principal components among the axes, where there are more than two columns.
COMPONENTS = 3
#: Points looked at at once.
BLOCK = 1 << 14
#: Clusters up to which a tree orders them.
LINKED = 300
#: Most restarts drawn, and values of a curve.
RESTARTS, VALUES = 30, 1000
#: The largest number that is packed as float32.
LARGEST = float(np.finfo(np.float32).max)
#: A relative difference up to this is no refinement: J is of centres in the dtype of the points.
ROUNDING = 1e-6


@dataclass(frozen=True, slots=True)
class Overview:
    """What one pass over the points tells.

    Attributes
    ----------
    mean, spread : (d,) array
        Of all points: their mean and standard deviation.
    medoids : (K,) array
        The row nearest to each centre, among those of its cluster; -1 for a cluster without rows.
    """

    mean: np.ndarray
    spread: np.ndarray
    medoids: np.ndarray

    @classmethod
    def of(cls, points: np.ndarray, labels: np.ndarray, centers: np.ndarray) -> Overview:
        k, d = centers.shape
        middle = centers.mean(axis=0)
        total, squares = np.zeros(d), np.zeros(d)
        least, medoids = np.full(k, np.inf), np.full(k, -1)
        for a in range(0, len(points), BLOCK):
            block, own = points[a : a + BLOCK].astype(np.float64), labels[a : a + BLOCK]
            sq_dist = ((block - centers[own]) ** 2).sum(axis=1)
            order = np.lexsort((sq_dist, own))  # the nearest row of each cluster comes first
            clusters, first = np.unique(own[order], return_index=True)
            nearest = order[first]
            nearer = sq_dist[nearest] < least[clusters]
            least[clusters[nearer]] = sq_dist[nearest[nearer]]
            medoids[clusters[nearer]] = a + nearest[nearer]
            total += (block - middle).sum(axis=0)
            squares += ((block - middle) ** 2).sum(axis=0)
        shift = total / len(points)
        return cls(middle + shift, np.sqrt(np.maximum(squares / len(points) - shift**2, 0)), medoids)


@dataclass(frozen=True, slots=True)
class Explored:
    """The numbers of a page."""

    columns: np.ndarray  # those that it has, in their order
    examples: list[tuple[int, str, np.ndarray]]  # cluster, id and values of its medoid, in the units of the table
    plain: dict[str, Any]

    @classmethod
    def of(cls, summary: FitSummary) -> Explored:
        points, labels = summary.points, np.asarray(summary.model.labels_)
        centers = np.asarray(summary.model.cluster_centers_, np.float64)
        k, d = centers.shape
        seen = Overview.of(points, labels, centers)
        standard = (centers - seen.mean) / np.where(seen.spread > 0, seen.spread, 1)
        columns = telling(standard, summary.sizes, min(d, COLUMNS, max(4, CENTRES // k)))
        n_axes = len(columns) + (COMPONENTS if d > 2 else 0)
        rows = sample(Points.of(points), min(ROWS, max(500, DRAWN // n_axes)), 0)
        drawn = points[rows].astype(np.float64)
        basis = principal(drawn, COMPONENTS) if d > 2 else np.empty((0, d))  # (p, d)
        middle = drawn.mean(axis=0)

        def places(those: np.ndarray) -> np.ndarray:
            """Columns in the units of the table, then components: (..., d) -> (..., axes)."""
            return np.hstack([summary.preprocessing.original(those)[:, columns], (those - middle) @ basis.T])

        mean = places(seen.mean[None])[0]
        found = seen.medoids >= 0
        medoids = np.full((k, len(columns)), np.nan)
        medoids[found] = summary.preprocessing.original(points[seen.medoids[found]].astype(np.float64))[:, columns]
        ids = [ids_of(summary, [row])[0] if row >= 0 else None for row in seen.medoids.tolist()]
        silhouettes = summary.silhouettes
        plain = {
            "names": [summary.table.names[j] for j in columns],
            "components": [f"principal component {i + 1}" for i in range(len(basis))],
            "id": summary.table.id or "row",
            "sizes": summary.sizes.tolist(),
            "order": by_similarity(standard).tolist(),
            "mean": packed(mean, np.float64),
            "spread": packed(summary.preprocessing.widths(seen.spread)[columns], np.float64),
            "centers": packed(places(centers) - mean),
            "medoids": ids,
            "rows": {"ids": ids_of(summary, rows), "labels": packed(labels[rows], np.int32), "of": len(points),
                     "values": packed(places(drawn) - mean)},
            "silhouettes": None if silhouettes is None else
            {"labels": packed(silhouettes[0], np.int32), "values": packed(silhouettes[1])},
        }  # fmt: skip
        named = zip(range(k), ids, medoids, strict=True)
        return cls(columns, [(i, id, values) for i, id, values in named if id is not None], plain)


def ids_of(summary: FitSummary, rows: Sequence[int] | np.ndarray) -> list[str]:
    """What names these rows: their ids, or their numbers in the file."""
    table = summary.table
    if table.ids is not None:
        return [str(table.ids[row]) for row in rows]
    return [str(row if table.rows is None else table.rows[row]) for row in rows]


def telling(standard: np.ndarray, sizes: np.ndarray, count: int) -> np.ndarray:
    """So many columns, in their order: those in which centres (K, d), in standard units, differ most."""
    between = (sizes[:, None] * standard**2).sum(axis=0)
    return np.sort(np.argsort(-between, kind="stable")[:count])


def principal(drawn: np.ndarray, count: int) -> np.ndarray:
    """The directions of largest variance of points (n, d): (count, d). The largest entry of each is positive."""
    basis = np.linalg.svd(drawn - drawn.mean(axis=0), full_matrices=False)[2][:count]
    signs = np.sign(np.take_along_axis(basis, np.abs(basis).argmax(axis=1)[:, None], axis=1))
    return basis * np.where(signs == 0, 1, signs)


def by_similarity(centers: np.ndarray) -> np.ndarray:
    """The clusters in an order in which neighbours are alike: by a tree, or, if there are many, by halving."""
    k = len(centers)
    if k < 3 or k > LINKED:
        return halved(np.arange(k), centers, np.ones(centers.shape[1]))
    tree = linkage(centers, "average")
    return leaves_list(optimal_leaf_ordering(tree, centers))


def halved(rows: np.ndarray, centers: np.ndarray, towards: np.ndarray) -> np.ndarray:
    """Rows in order along the direction in which they differ most, and so within each half."""
    if len(rows) < 2:
        return rows
    axis = principal(centers[rows], 1)[0]
    axis = axis if axis @ towards >= 0 else -axis
    rows = rows[np.argsort(centers[rows] @ axis, kind="stable")]
    if len(rows) <= 4:
        return rows
    half = len(rows) // 2
    return np.concatenate([halved(part, centers, axis) for part in (rows[:half], rows[half:])])


def packed(values: Any, dtype: Any = np.float32) -> str:
    """An array as text: little-endian, in base64. What float32 cannot hold is cut off."""
    values = np.clip(values, -LARGEST, LARGEST) if dtype is np.float32 else values
    return base64.b64encode(np.ascontiguousarray(values, np.dtype(dtype).newbyteorder("<")).tobytes()).decode()


# -- curves --------------------------------------------------------------------------------------


def curve(name: str, x: Any, y: Any, look: str = "main") -> dict[str, Any]:
    """A line of a picture; its look is one of "main", "current", "behind" and "dots"."""
    return {"name": name, "x": finite(x), "y": finite(y), "look": look}


def finite(values: Any) -> list[float | None]:
    """Numbers for JSON, which has no NaN."""
    return [float(value) if np.isfinite(value) else None for value in values]


def course(summary: FitSummary) -> dict[str, Any]:
    """J over the iterations: of the best restart, with others behind it. A start far above the rest is cut off."""
    trace, best_row = trace_of(summary.model)
    end = float(summary.model.inertia_)
    length = int(trace.n_iter[best_row]) + 1
    current, best = trace.current[best_row, :length], trace.best[best_row, :length]
    behind = [row for row in range(trace.n_restarts) if row != best_row][:RESTARTS]
    curves = [curve("", *thinned(trace.best[row, : trace.n_iter[row] + 1]), "behind") for row in behind]
    curves += [curve("J of the current solution", *thinned(current), "current")]
    curves += [curve("lowest J so far", *thinned(best))]
    low, high = min(end, float(best[-1])), float(current.max())
    usual = 2 * (float(np.quantile(current, 0.95)) - low)
    high = low + usual if usual < (high - low) / 2 else high
    name = "after refinement" if end < best[-1] * (1 - ROUNDING) else "in the end"
    return {
        "x": f"iteration; the search took {summary.seconds:.2f} s", "y": "J", "low": low, "high": high, "step": True,
        "curves": curves, "levels": [{"name": f"{name}: {end:.6g}", "y": end}],
    }  # fmt: skip


def thinned(values: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Iterations and values of a long curve: of every stretch the least and the greatest value, and both ends."""
    n = len(values)
    if n <= VALUES:
        return np.arange(n), values
    edges = np.arange(0, n, -(-2 * n // VALUES))
    stretches = [values[a:b] for a, b in zip(edges, [*edges[1:], n], strict=True)]
    chosen = {0, n - 1}
    for a, stretch in zip(edges.tolist(), stretches, strict=True):
        chosen |= {a + int(stretch.argmin()), a + int(stretch.argmax())}
    rows = np.array(sorted(chosen))
    return rows, values[rows]


def proof(certificate: Any) -> dict[str, Any]:
    """The lower bound and J over time."""
    seconds, bounds, inertias = certificate.history.T
    return {"x": "seconds", "y": "J", "step": True,
            "curves": [curve("J", seconds, inertias, "current"), curve("lower bound", seconds, bounds)]}  # fmt: skip


# -- elements of a page ----------------------------------------------------------------------------


def picture(name: str, caption: str, *above: Markup, **attributes: object) -> Markup:
    """A place for a picture, and what it says to those who cannot see it."""
    canvas = tag("canvas", id=name, role="img", aria_label=caption, **attributes)
    return tag("figure", *above, canvas, tag("figcaption", caption))


def chooser(name: str, label: str) -> Markup:
    """A choice that the program fills."""
    return tag("label", label, " ", tag("select", id=name))


def program(numbers: dict[str, Any]) -> Markup:
    """The numbers of a page and what draws them."""
    text = json.dumps(numbers, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c")
    return Markup(
        tag("script", Markup(text), type="application/json", id="explored")
        + "".join(tag("script", Markup(path.read_text(encoding="utf-8"))) for path in SCRIPTS)
        + tag("noscript", tag("p", "The pictures of this page are drawn by a script, which is switched off here."))
    )
