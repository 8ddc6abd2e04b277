"""The figures of the site, computed by the package as it is.

`python docs/figures.py` draws those of the site into docs/made. With `--readme` it draws the README's picture instead,
docs/_static/kmeans-and-tabu.png, which is kept in the repository.
"""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from pathlib import Path

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection
from matplotlib.figure import Figure
from sklearn.datasets import load_iris, make_blobs

from gputabu import Clustering, QuantizedTabuKMeans, lloyd, plotting, quantized, relocation, select_k
from gputabu.backend.arithmetic.fixed_point import from_limbs, limbs
from gputabu.data.points import exponent
from gputabu.plotting.style import COLOURS, looks

BLUE, ORANGE, GREEN, PINK, RED, SKY, _ = COLOURS
#: So that a figure looks the same on every machine that has only Matplotlib's own fonts.
STYLE = {
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "svg.fonttype": "path",
    "svg.hashsalt": "gputabu",
}
#: The box of a number on a picture.
LABEL = {"boxstyle": "round,pad=0.2", "fc": "white", "ec": "none", "alpha": 0.8}
#: The same bits everywhere, so the figures may be computed by whatever is there; NumPy compiles nothing.
BACKEND = "numpy"


def minima() -> Figure:
    """J of K-Means from ten starts, each of which stops, and of one tabu search, which goes on."""
    X = load_iris().data
    plain = lloyd.run(X, 3, init="random", restarts=10, seed=6, backend=BACKEND)
    found = quantized.search(X, 3, init="random", seed=6, backend=BACKEND)
    figure = Figure(figsize=(8, 3), layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True, width_ratios=[1, 1.6])
    for course, steps in zip(plain.trace.current, plain.trace.n_iter, strict=True):
        left.plot(course[: steps + 1], color=BLUE, lw=1, alpha=0.6)
        left.plot([steps], [course[steps]], "o", ms=5, color=BLUE)
    left.set(title="K-Means, ten starts: each stops", xlabel="iteration", ylabel="J", ylim=(70, 240))
    right.plot(found.trace.current[0], color=SKY, lw=1.2, label="current J")
    right.step(
        range(found.trace.best.shape[1]), found.trace.best[0], where="post", color=BLUE, lw=2, label="best J so far"
    )
    right.axhline(found.inertia, color="black", lw=1, ls="--", label=f"refined by K-Means: {found.inertia:.2f}")
    right.set(title="Tabu search, one start: it moves on", xlabel="iteration")
    right.legend(frameon=False, loc="upper left")
    return figure


def headline() -> Figure:
    """25 blobs: the median of 100 K-Means starts, one tabu search, and J of all of them."""
    rng = np.random.default_rng(3)
    sizes, places = rng.integers(20, 160, 25), rng.uniform((0, 0), (16, 9), (25, 2))
    X, _ = make_blobs(sizes, centers=places, cluster_std=rng.uniform(0.15, 0.55, 25), random_state=3)
    plain = lloyd.run(X, 25, restarts=100, seed=0, backend=BACKEND)
    tabu = [relocation.search(X, 25, seed=seed, backend=BACKEND) for seed in range(10)]
    median = int(np.argsort(plain.inertias)[50])
    shown = lloyd.run(X, 25, restarts=[median], seed=0, backend=BACKEND)
    figure = Figure(figsize=(11, 3.1), layout="constrained")
    left, middle, right = figure.subplots(1, 3, width_ratios=[1.25, 1.25, 1])
    show_centres(left, X, shown, tabu[0])
    left.set_title(f"K-Means, the median of 100 starts: J = {shown.inertia:.0f}")
    show_centres(middle, X, tabu[0], shown)
    middle.set_title(f"TabuKMeans, one search: J = {tabu[0].inertia:.0f}")
    bins = np.arange(420, 500, 2)
    right.hist(plain.inertias, bins=bins, color=SKY, label="K-Means, 100 starts")
    right.hist([found.inertia for found in tabu], bins=bins, color=RED, label="TabuKMeans, 10 seeds")
    right.set(xlabel="J, lower is better", ylabel="runs", title="J of every run")
    right.legend(frameon=False)
    return figure


def show_centres(ax: Axes, X: np.ndarray, found: Clustering, other: Clustering) -> None:
    """Clusters and centres; a ring is around a centre that the other clustering does not have."""
    colours, _ = looks(found.centers)
    ax.scatter(*X.T, s=5, c=colours[found.labels], linewidths=0, alpha=0.7)
    ax.scatter(*found.centers.T, marker="X", s=32, c="black", edgecolors="white", linewidths=0.7, zorder=3)
    apart = np.linalg.norm(found.centers[:, None] - other.centers, axis=2).min(axis=1)
    lone = found.centers[apart > 0.3]
    ax.scatter(*lone.T, s=210, facecolors="none", edgecolors=RED, linewidths=1.8, zorder=4)
    frame(ax)


def scene() -> tuple[np.ndarray, Clustering]:
    """Few points in two clusters, and a search whose moves can be followed by eye."""
    X, _ = make_blobs([9, 10], centers=[(0, 0), (4.2, 0.6)], cluster_std=0.95, shuffle=False, random_state=7)
    return X, quantized.search(X, 2, init=[7, 11], max_iter=12, patience=12, backend=BACKEND)


def moves() -> Figure:
    """Three moves of QM-TS: each mean goes to the free member nearest to the centroid of its cluster."""
    X, found = scene()
    means = found.trace.means[0]  # (T + 1, K)
    figure = Figure(figsize=(8.4, 2.9), layout="constrained")
    axes = figure.subplots(1, 3, sharex=True, sharey=True)
    for t, ax in zip((1, 3, 5), axes, strict=True):  # in between they stay, each once
        show_move(ax, X, means[:t], means[t])
        ax.set_title(f"iteration {t}")
    figure.legend(*axes[-1].get_legend_handles_labels(), loc="outside lower center", ncols=5, frameon=False)
    return figure


def show_move(ax: Axes, X: np.ndarray, past: np.ndarray, chosen: np.ndarray) -> None:
    """The clusters of the means held, what is tabu, the centroids, and where the means go."""
    held, used = past[-1], past[:-1]  # (K,), (t, K)
    labels = np.linalg.norm(X[:, None] - X[held], axis=2).argmin(axis=1)
    ax.scatter(*X.T, s=26, c=[(SKY, ORANGE)[k] for k in labels], linewidths=0)
    centroids = np.array([X[labels == k].mean(axis=0) for k in range(len(held))])
    ax.scatter(*centroids.T, marker="+", s=70, c="black", label="centroid", zorder=3)
    ring = {"s": 95, "facecolors": "none", "linewidths": 1.6, "zorder": 3}
    ax.scatter(*X[held].T, edgecolors="black", label="quantized mean", **ring)
    ax.scatter(*X[chosen].T, edgecolors=RED, label="where it moves", **ring)
    ax.scatter(*X[used.ravel()].T, marker="x", s=48, c="black", linewidths=1.4, label="tabu", zorder=4)
    for a, b in zip(X[held], X[chosen], strict=True):
        ax.annotate("", b, a, arrowprops={"arrowstyle": "->", "color": RED, "shrinkA": 6, "shrinkB": 6, "lw": 1.3})
    frame(ax)


def frame(ax: Axes) -> None:
    """A map has no scales, but an edge."""
    ax.set(aspect="equal", xticks=[], yticks=[])
    ax.spines[:].set(visible=True, color="0.85")


def tabu_list() -> Figure:
    """The tabu list of the same search: a row per cluster, an entry per iteration, and J above it."""
    _, found = scene()
    trace = found.trace
    means, steps = trace.means[0], trace.means.shape[1]
    figure = Figure(figsize=(8.4, 3.2), layout="constrained")
    top, below = figure.subplots(2, 1, sharex=True, height_ratios=[1.5, 1])
    top.plot(trace.current[0], "o-", color=SKY, ms=4, label="current J")
    top.step(range(steps), trace.best[0], where="post", color=BLUE, lw=2, label="best J so far")
    top.set(ylabel="J")
    top.legend(frameon=False, loc="lower left", bbox_to_anchor=(0, 1), ncols=2)
    for k, colour in enumerate((SKY, ORANGE)):
        seen: set[int] = set()
        for t, row in enumerate(means[:, k].tolist()):
            again = row in seen  # freed by the deletion rule, or it could not move
            seen.add(row)
            box = {"boxstyle": "round,pad=0.35", "fc": colour, "ec": RED if again else "none", "alpha": 0.8}
            below.text(t, k, str(row), ha="center", va="center", bbox=box)
    below.set(xlabel="iteration", yticks=[0, 1], yticklabels=["cluster 0", "cluster 1"], ylim=(1.6, -0.6))
    below.set_xticks(range(steps))
    return figure


def relocated() -> Figure:
    """A minimum of K-Means with a centre too many here and one too few there, and what one relocation makes of it."""
    spots = [(0, 0), (1.6, 1.4), (7.5, 0), (6.2, 4.4)]
    X, _ = make_blobs(240, centers=spots, cluster_std=0.5, random_state=2)
    stuck = lloyd.run(X, 4, init=np.array([[0.5, 0.5], [7.0, 0.0], [8.0, 0.0], [6.2, 4.4]]), backend=BACKEND)
    found = relocation.search(X, 4, init=stuck.centers, max_iter=1, seed=0, backend=BACKEND)
    figure = Figure(figsize=(8.4, 2.9), layout="constrained")
    left, right = figure.subplots(1, 2, sharex=True, sharey=True)
    for ax, shown, title in ((left, stuck, "K-Means stops here"), (right, found, "one relocation later")):
        ax.scatter(*X.T, s=9, c=[COLOURS[k] for k in shown.labels], linewidths=0, alpha=0.7)
        ax.scatter(*shown.centers.T, marker="X", s=90, c="black", edgecolors="white", linewidths=1.2, zorder=3)
        ax.set_title(f"{title}: J = {shown.inertia:.0f}")
        frame(ax)
    crowded = stuck.centers[np.argsort(stuck.centers[:, 1])[:3]]
    gone = crowded[crowded[:, 0].argmax()]
    style = {"arrowstyle": "->", "color": RED, "lw": 1.6, "shrinkA": 9, "shrinkB": 3}
    left.annotate("", (1.6, 1.4), gone, arrowprops=style | {"connectionstyle": "arc3,rad=0.28"})
    left.text(4.3, 2.45, "taken away here, put there", color=RED, ha="center")
    return figure


def sums() -> Figure:
    """The sum of the same numbers in many orders: floats disagree, integers on a grid do not."""
    rng = np.random.default_rng(0)
    values = rng.normal(size=2000)
    orders = [rng.permutation(len(values)) for _ in range(1000)]
    floats = np.array([np.cumsum(values[order])[-1] for order in orders])
    e = exponent(np.abs(values).max())
    high, low = (part.astype(np.int64) for part in limbs(values.copy(), e, 2))
    whole = {from_limbs(np.cumsum(high[order])[-1], np.cumsum(low[order])[-1], exponents=e).item() for order in orders}
    figure = Figure(figsize=(8.4, 2.7), layout="constrained")
    left, right = figure.subplots(1, 2)
    ulps = (floats - np.median(floats)) / np.spacing(np.abs(np.median(floats)))
    left.hist(ulps, bins=60, color=ORANGE)
    left.set(title=f"added as floats: {len(np.unique(floats))} different sums", ylabel="orders of adding")
    left.set_xlabel("difference from the median, in last bits")
    right.bar([0], [len(orders)], width=0.12, color=GREEN)
    right.set(title=f"added as integers on a grid: {len(whole)}", xlim=(-1, 1), xticks=[0], xlabel="difference")
    return figure


def doubt() -> Figure:
    """Which centre is nearest: a fast product decides where it can, the canonical formula where it cannot."""
    rng = np.random.default_rng(3)
    X = rng.uniform((-3, -1.6), (3, 1.6), (260, 2))
    centers = np.array([[-1.2, 0.5], [1.2, -0.3]])
    gap = ((X[:, None] - centers) ** 2).sum(axis=2) @ [1, -1]
    unsure = np.abs(gap) < 0.9
    figure = Figure(figsize=(7, 3), layout="constrained")
    ax = figure.subplots()
    for sure, colour in ((gap <= -0.9, SKY), (gap >= 0.9, ORANGE)):
        ax.scatter(*X[sure].T, s=16, c=colour, linewidths=0)
    side = np.where(gap[unsure] <= 0, SKY, ORANGE)
    ax.scatter(
        *X[unsure].T, s=30, c=side, edgecolors="black", linewidths=1, label="in doubt: decided again, in float64"
    )
    ax.scatter(*centers.T, marker="X", s=110, c="black", edgecolors="white", zorder=3, label="centres")
    middle, (dx, dy) = centers.mean(axis=0), centers[1] - centers[0]
    half = 0.9 / (2 * np.hypot(dx, dy))  # the doubt, as a distance from the line between
    normal = np.array([dx, dy]) / np.hypot(dx, dy)
    for shift, style in ((-half, "--"), (0, "-"), (half, "--")):
        ax.axline(middle + shift * normal, middle + shift * normal + [-dy, dx], color="0.4", lw=1, ls=style)
    ax.set(xlim=(-3.1, 3.1), ylim=(-1.7, 1.7))
    frame(ax)
    ax.legend(loc="upper center", bbox_to_anchor=(0.5, 0), ncols=2, frameon=False)
    return figure


def tutorial() -> Figure:
    """What `plotting.clusters` and `plotting.trace` show of the tutorial's first fit."""
    iris = load_iris(as_frame=True).data
    model = QuantizedTabuKMeans(3, random_state=0, backend=BACKEND).fit(iris)
    figure = Figure(figsize=(9.6, 4), layout="constrained")
    left, right = figure.subplots(1, 2)
    plotting.clusters(iris, model, left)
    plotting.trace(model, right)
    return figure


def selection() -> Figure:
    """What `KSelection.plot` shows of the tutorial's choice of K."""
    X, _ = make_blobs(500, centers=5, cluster_std=0.3, random_state=1)
    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    select_k(X, range(1, 10), ["bic", "silhouette"], backend=BACKEND).plot(figure.subplots())
    return figure


def shards() -> Figure:
    """Ten clusters of a crowd, without bounds and all of the same size."""
    rng = np.random.default_rng(4)
    centers, share = rng.normal(scale=4, size=(7, 2)), rng.dirichlet(np.full(7, 0.7))
    X = centers[rng.choice(7, 1500, p=share)] + rng.normal(size=(1500, 2))
    return side_by_side(X, 10, {"min_size": 150, "max_size": 150}, "150 points each")


def districts() -> Figure:
    """Delivery districts: the towns of pcb3038 of TSPLIB where they are at hand, and made-up ones elsewhere."""
    path = Path(os.environ.get("GPUTABU_DATA", "")) / "tsplib3038.csv"
    if path.exists():
        X = np.loadtxt(path, delimiter=",")
    else:
        rng = np.random.default_rng(0)
        towns = rng.random((40, 2)) * [4000, 3000]
        X = towns[rng.choice(40, 3000, p=rng.dirichlet(np.full(40, 0.6)))] + rng.normal(scale=160, size=(3000, 2))
    most = int(np.ceil(1.02 * len(X) / 12))
    return side_by_side(X, 12, {"max_size": most}, f"at most {most} stops each", tours=True)


def side_by_side(X: np.ndarray, k: int, bounds: dict[str, int], title: str, tours: bool = False) -> Figure:
    """Clusters without and with bounds; the number of points is where the centre is."""
    figure = Figure(figsize=(8, 3.6), layout="constrained")
    colours = np.array([mpl.colors.to_rgb(mpl.colormaps["tab20"](i % 20)) for i in range(k)])
    for ax, limits, name in zip(figure.subplots(1, 2), ({}, bounds), ("no bounds", title), strict=True):
        found = relocation.search(X, k, max_iter=50, backend=BACKEND, **limits)
        order = np.lexsort(found.centers.T).argsort()  # colours by place, so that both sides can be compared
        for a, center in enumerate(found.centers):
            mine, colour = X[found.labels == a], colours[order[a]]
            if tours:
                lines = np.stack([mine, np.broadcast_to(center, mine.shape)], axis=1)
                ax.add_collection(LineCollection(lines, color=colour, lw=0.4, alpha=0.5))
            ax.plot(*mine.T, ".", ms=2.5, color=colour)
            ax.text(*center, str(len(mine)), ha="center", va="center", fontsize=8, bbox=LABEL)
        ax.set(title=f"{name}: J = {found.inertia:.4g}", xticks=[], yticks=[], aspect="equal")
    return figure


FIGURES: dict[str, Callable[[], Figure]] = {
    "minima": minima,
    "moves": moves,
    "tabu-list": tabu_list,
    "relocation": relocated,
    "sums": sums,
    "doubt": doubt,
    "tutorial": tutorial,
    "selection": selection,
    "shards": shards,
    "districts": districts,
}


def draw(folder: Path) -> None:
    """Write every figure into a folder, as SVG."""
    with mpl.rc_context(STYLE):
        for name, figure in FIGURES.items():
            figure().savefig(folder / f"{name}.svg", metadata={"Date": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--readme", action="store_true", help="draw the README's picture only")
    here = Path(__file__).parent
    if parser.parse_args().readme:
        with mpl.rc_context(STYLE):
            headline().savefig(here / "_static" / "kmeans-and-tabu.png", dpi=144, metadata={"Software": None})
    else:
        (here / "made").mkdir(exist_ok=True)
        draw(here / "made")


if __name__ == "__main__":
    main()
