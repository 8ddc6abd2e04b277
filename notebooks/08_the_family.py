# %% [markdown]
# # The family of tabu clusterers
#
# Tabu search for clustering is thirty years old. The paper cites its relatives, and this package has them all. Here
# they are in the order in which they appeared: what the idea was, how it looks, and what it is good for today.

# %%
import os

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_iris, load_wine, make_blobs
from sklearn.preprocessing import StandardScaler

from gputabu import (
    FuzzyCMeans,
    GMeans,
    KMeans,
    QuantizedTabuKMeans,
    TabuAutoClustering,
    TabuFuzzyCMeans,
    TabuKMeans,
    TabuSearchClustering,
    evolution,
    fuzzy,
    gmeans,
    plotting,
    reassignment,
)

TINY = os.environ.get("GPUTABU_TINY") == "1"  # small sizes, for tests
RUNS = 3 if TINY else 10
iris = load_iris().data
wine = StandardScaler().fit_transform(load_wine().data)

# %% [markdown]
# ## 1995: labels that change by chance (TSC)
#
# Al-Sultan's search holds a label for every point. A trial gives some five per cent of the points another label, any
# other. The best of twenty trials that is not tabu is accepted, and so on a thousand times. It does go downhill, but
# most changes are bad for most points, and a thousand iterations end far above one run of K-Means.
#
# ## 2008: improve a trial before you judge it
#
# Liu and others let a step of K-Means follow on every trial, and only then compare. The same search, with the same
# tabu list, arrives within a few iterations.

# %%
budget = 60 if TINY else 1000
plain = reassignment.search(wine, 6, restarts=RUNS, max_iter=budget)
improved = reassignment.search(wine, 6, restarts=RUNS, improve="kmeans", max_iter=20 if TINY else 60)
modes = ("threshold", "mutation", "divide")
varied = reassignment.search(wine, 6, restarts=RUNS, improve="kmeans", modes=modes, max_iter=20 if TINY else 60)
best = TabuKMeans(6, n_init=4, random_state=0).fit(wine).inertia_

figure, (left, right) = plt.subplots(1, 2, figsize=(13, 4.4), layout="constrained")
for found, color, name in (
    (plain, "0.6", "TSC, 1995"),
    (improved, "C0", "with a step of K-Means"),
    (varied, "C1", "and three kinds of trials"),
):
    for i, run in enumerate(found.trace.best):
        left.plot(np.arange(len(run)) + 1, run, color=color, alpha=0.7, lw=1.2, label=name if i == 0 else None)
left.axhline(best, color="k", lw=0.8, ls="--", label="the best known to TabuKMeans")
left.set(xscale="log", xlabel="iteration, plus one", ylabel="best J so far", title="Wine, standardised, K = 6")
left.legend()
for place, (found, color) in enumerate(((improved, "C0"), (varied, "C1"))):
    spread = 100 * (found.inertias / best - 1)
    right.scatter(np.full(len(spread), place) + np.linspace(-0.1, 0.1, len(spread)), spread, color=color)
right.set(xticks=[0, 1], xlim=(-0.5, 1.5), ylabel="percent above that", title="Where the improved ones end")
right.set_xticklabels(["threshold", "three kinds"])
plt.show()

# %% [markdown]
# The three kinds of trials, taken in turn: *threshold* is Al-Sultan's. In a *mutation*, near clusters are likelier. To
# *divide and merge*, a random cluster joins its nearest, and a random third one is split by two of its points. The last
# does what no change of single labels can: it takes a cluster from where there are too many to where there are too few.

# %%
X, truth = make_blobs(300, centers=7, cluster_std=0.8, center_box=(-9, 9), random_state=146)
caught = KMeans(7, init="random", n_init=1, random_state=2).fit(X)  # in a local minimum
labels, centers = np.array(caught.labels_), np.array(caught.cluster_centers_)
rng = np.random.default_rng(1)
chosen = rng.random(len(X)) < 0.2  # four times as many as usual, to be seen
threshold = np.where(chosen, (labels + rng.integers(1, 7, len(X))) % 7, labels)
reach = caught.transform(X)
weights = 1.5 * reach.max(axis=1, keepdims=True) - reach + 0.5
drawn = (weights.cumsum(axis=1) > rng.random((len(X), 1)) * weights.sum(axis=1, keepdims=True)).argmax(axis=1)
mutation = np.where(chosen, drawn, labels)
between = np.linalg.norm(centers[:, None] - centers, axis=2) + 99 * np.eye(7)
gone, into = np.unravel_index(between.argmin(), between.shape)  # by chance, in the search
cut = caught.transform(X)[np.arange(len(X)), labels]
cut = max(set(range(7)) - {gone, into}, key=lambda c: cut[labels == c].sum())
ends = X[labels == cut][[reach[labels == cut, cut].argmax(), reach[labels == cut, cut].argmin()]]
nearer = np.linalg.norm(X - ends[0], axis=1) < np.linalg.norm(X - ends[1], axis=1)
divide = np.where(labels == gone, into, np.where((labels == cut) & nearer, gone, labels))
improved_once = KMeans(7, init=[X[divide == c].mean(axis=0) for c in range(7)], max_iter=1).fit(X)

figure, axes = plt.subplots(1, 5, figsize=(17, 3.9), layout="constrained", sharex=True, sharey=True)
for ax, each, name in zip(
    axes,
    (labels, threshold, mutation, divide, np.array(improved_once.labels_)),
    ("K-Means is caught here", "threshold", "mutation", "divide and merge", "… and a step of K-Means"),
    strict=True,
):
    ax.scatter(*X.T, c=each, cmap="tab10", vmin=0, vmax=9, s=12)
    ax.set_title(name, loc="left")
    ax.set(xticks=[], yticks=[])
plt.show()

# %% [markdown]
# ## 2000: points that move together, and are released (packing)
#
# Sung and Jin let points that are close together move as one. With few packs the search is short; then the packs are
# taken apart again. Below are 150, 40 and 28 packs of the same points: a dot is as large as its pack is heavy. Packing
# alone takes TSC from hopeless to useful. With a step of K-Means it is hardly needed any more.

# %%
from gputabu.algorithms.packs import Merging  # noqa: E402

figure, axes = plt.subplots(1, 4, figsize=(16, 4), layout="constrained", sharex=True, sharey=True)
tree = Merging(X, np.ones(len(X)))
for ax, count in zip(axes, (300, 150, 40, 28), strict=True):
    tree.shrink(count)
    numbers = tree.numbers()
    means = np.array([X[numbers == pack].mean(axis=0) for pack in range(count)])
    ax.scatter(*X.T, c="0.85", s=6)
    for here, mean in zip(X, means[numbers], strict=True):
        ax.plot(*np.stack([here, mean]).T, color="0.8", lw=0.5, zorder=0)
    ax.scatter(*means.T, s=8 + 6 * np.bincount(numbers), color="C0", alpha=0.7)
    ax.set_title(f"{count} packs" if count < 300 else "300 points", loc="left")
    ax.set(xticks=[], yticks=[])
plt.show()
for name, options in (
    ("TSC", {}),
    ("packing", {"packing": True}),
    ("packing and a step", {"packing": True, "improve": "kmeans"}),
):
    found = reassignment.search(iris, 3, restarts=RUNS, max_iter=20 if TINY else None, **options)
    print(f"{name:20} average J on Iris: {found.inertias.mean():.2f}")

# %% [markdown]
# Whoever packs can also link: rows that must share a cluster are a pack that is never released. The points with a rim
# are three such groups, which the best clusters would part; on the right they are kept together by `groups=`. It works
# for `KMeans`, `TabuKMeans` and `TabuSearchClustering`.

# %%
even = np.random.default_rng(3).random((300, 2)) * [2, 1]
groups = np.full(len(even), -1)
for link, place in enumerate(([0.62, 0.25], [0.62, 0.75], [1.3, 0.5])):
    groups[np.linalg.norm((even - place) / [1.6, 1], axis=1).argsort()[:25]] = link
free = TabuKMeans(4, random_state=0).fit(even)
linked = TabuKMeans(4, random_state=0).fit(even, groups=groups)
figure, axes = plt.subplots(1, 2, figsize=(12, 3.6), layout="constrained", sharey=True)
for ax, model, name in zip(axes, (free, linked), ("free", "linked"), strict=True):
    ax.scatter(*even.T, c=model.labels_, cmap="tab10", vmin=0, vmax=9, s=10)
    for link in range(3):
        mine = groups == link
        ax.scatter(*even[mine].T, c=model.labels_[mine], cmap="tab10", vmin=0, vmax=9, s=42, edgecolors="k")
    ax.set_title(f"{name}: J = {model.inertia_:.2f}", loc="left")
    ax.set(xticks=[], yticks=[])
plt.show()

# %% [markdown]
# ## 1981 and 1997: clusters that overlap (fuzzy c-means, and its tabu search)
#
# Bezdek's fuzzy c-means gives every point to all clusters, to degrees. `m` says how much: near 1 it is K-Means, and
# at 3 everybody belongs everywhere. The darker, the higher is the highest membership.

# %%
Y, _ = make_blobs(400, centers=[(0, 0), (3.2, 0), (1.6, 2.6)], cluster_std=1.0, random_state=2)
grid = np.stack(np.meshgrid(np.linspace(-3.5, 6.5, 160), np.linspace(-3.5, 6, 150)), axis=-1)
figure, axes = plt.subplots(1, 3, figsize=(15, 4.2), layout="constrained", sharey=True)
for ax, m in zip(axes, (1.25, 2.0, 3.0), strict=True):
    model = FuzzyCMeans(3, m=m, n_init=5, random_state=0).fit(Y)
    highest = model.memberships(grid.reshape(-1, 2)).max(axis=1).reshape(grid.shape[:2])
    shade = ax.contourf(grid[..., 0], grid[..., 1], highest, levels=np.linspace(1 / 3, 1, 9), cmap="Greys", alpha=0.6)
    ax.scatter(*Y.T, c=model.labels_, cmap="tab10", vmin=0, vmax=9, s=9)
    ax.plot(*model.cluster_centers_.T, "k*", ms=13)
    ax.set_title(f"m = {m:g}: J = {model.inertia_:.0f}", loc="left")
figure.colorbar(shade, ax=axes, label="highest membership", format="%.2f", shrink=0.8)
plt.show()

# %% [markdown]
# Below m = 2 fuzzy c-means has local minima, as K-Means has. Al-Sultan and Fedjki shift all centres by chance and let
# the tabu list watch. In our trials that did not pay. What helps is to put one centre on another point, and to make one
# step, which is the default of `TabuFuzzyCMeans`.

# %%
rounds = 6 if TINY else 40
kinds = {"fuzzy c-means": fuzzy.run(wine, 6, m=1.25, restarts=RUNS, init="random")}
for name in ("shift", "swap"):
    kinds[f"tabu, {name}"] = fuzzy.search(wine, 6, m=1.25, restarts=RUNS, max_iter=rounds, neighbours=name)
lowest = min(found.inertia for found in kinds.values())
figure, ax = plt.subplots(figsize=(8, 3.4), layout="constrained")
for place, (name, found) in enumerate(kinds.items()):
    ax.scatter(100 * (found.inertias / lowest - 1), place + np.linspace(-0.15, 0.15, RUNS), label=name)
ax.set(yticks=range(3), xlabel="fuzzy J, percent above the lowest", title="Wine, K = 6, m = 1.25: where each run ends")
ax.set_yticklabels(kinds)
ax.invert_yaxis()
plt.show()

# %% [markdown]
# ## 2003: split until it looks Gaussian (G-means)
#
# Hamerly and Elkan ask of every cluster whether its points, seen along its longest axis, look Gaussian. If not, it is
# split in two. On the left are the rounds, on the right what the test sees. It needs clusters that are round and apart.

# %%
rounds = [gmeans.search(X, max_iter=r) for r in (1, 2, 3)]
figure, axes = plt.subplots(1, 4, figsize=(16, 4), layout="constrained")
for ax, found in zip(axes, rounds, strict=False):
    ax.scatter(*X.T, c=found.labels, cmap="tab20", s=10)
    ax.plot(*found.centers.T, "k+", ms=11, mew=2)
    ax.set_title(f"Round {found.n_iter}: {len(found.centers)} clusters", loc="left")
    ax.set(xticks=[], yticks=[])
line = np.linspace(-4, 4, 200)
for found, color, name in ((rounds[0], "C3", "after one round"), (rounds[-1], "C0", "at the end")):
    mine = X[found.labels == np.bincount(found.labels).argmax()]
    along = (mine - mine.mean(axis=0)) @ np.linalg.svd(mine - mine.mean(axis=0))[2][0]
    axes[3].hist(along / along.std(), np.linspace(-3, 3, 16), density=True, color=color, alpha=0.5, label=name)
axes[3].plot(line, np.exp(-(line**2) / 2) / np.sqrt(2 * np.pi), "k", lw=1)
axes[3].set_title("Along the axis of the largest", loc="left")
axes[3].legend(loc="upper left", fontsize=8)
plt.show()
print(
    f"G-means: {GMeans(random_state=0).fit(X).n_clusters_} clusters, of 7. Of Iris:", len(gmeans.search(iris).centers)
)

# %% [markdown]
# ## 2007: K as a gene (evolution with a tabu memory)
#
# Pan and Cheng let clusterings of different K live side by side. They change, mix and compete by a validity index; who
# comes too near to the best is tabu. The index decides what is found, so ask more than one. `select_k` does that for
# every K.

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(13, 4.2), layout="constrained")
for color, (index, name) in enumerate(zip(evolution.INDICES, ("PBM", "DB", "CH", "BIC"), strict=True)):
    found = evolution.search(X, index=index, max_iter=6 if TINY else 40)
    trace = found.trace.best[0]
    left.plot(trace / trace[-1], color=f"C{color}", label=f"{name}: K = {len(found.centers)}")
left.set(xlabel="generation", ylabel="index, as a share of its last value", title="The best so far")
left.legend()
model = TabuAutoClustering(index="calinski_harabasz", max_iter=6 if TINY else 40, random_state=0).fit(X)
plotting.clusters(X, model, right)
right.set_title(f"By CH: {model.n_clusters_} clusters", loc="left", pad=20)
plt.show()

# %% [markdown]
# ## 2016 and today
#
# QM-TS, the paper's search, keeps a data point for each cluster and moves it within its cluster. `TabuKMeans` takes
# centres away and puts them elsewhere. Both need no labels in their memory, and scale. Here is the whole family on one
# problem: what it found, and in which time.

# %%
import time  # noqa: E402

family = {
    "TabuKMeans": TabuKMeans(6),
    "QM-TS": QuantizedTabuKMeans(6),
    "K-Means": KMeans(6, init="random", n_init=10),
    "TSC": TabuSearchClustering(6, refine=None, max_iter=budget),
    "TSC, packing": TabuSearchClustering(6, refine=None, packing=True),
    "TSC, step, modes": TabuSearchClustering(6, refine=None, improve="kmeans", modes=modes),
    "TSC, packing, step": TabuSearchClustering(6, refine=None, improve="kmeans", packing=True),
    "tabu fuzzy, m = 1.25": TabuFuzzyCMeans(6, m=1.25, max_iter=5 if TINY else 50, n_init=2),
}
figure, ax = plt.subplots(figsize=(9, 4.6), layout="constrained")
for name, model in family.items():
    begun = time.perf_counter()
    model.set_params(random_state=0).fit(wine)
    seconds, labels = time.perf_counter() - begun, np.array(model.labels_)
    J = sum(((wine[labels == c] - wine[labels == c].mean(axis=0)) ** 2).sum() for c in range(6))
    ax.scatter(seconds, 100 * (J / best - 1) + 0.01, s=60)
    below = name in ("QM-TS", "TSC, step, modes")
    offset = (7, -11) if below else (7, 4)
    ax.annotate(name, (seconds, 100 * (J / best - 1) + 0.01), xytext=offset, textcoords="offset points", fontsize=9)
ax.set(xscale="log", yscale="log", xlabel="seconds (ten restarts where the start is random)",
       ylabel="J, percent above the best, plus 0.01", title="Wine, standardised, K = 6")  # fmt: skip
ax.margins(x=0.25, y=0.15)
plt.show()
