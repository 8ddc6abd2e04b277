# %% [markdown]
# # How good is it?
#
# Every package returns a J. None says how far it is from the best possible. `certify` does. It computes a number
# that J of *no* clustering of these points into K clusters is below, valid in exact arithmetic. Where bound and J
# meet, the clustering is proven optimal.

# %%
import os

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_iris, make_blobs

from gputabu import KMeans, TabuKMeans, certify, datasets, plotting

TINY = os.environ.get("GPUTABU_TINY") == "1"  # small sizes, for tests
SECONDS = 2 if TINY else 60  # for each proof
POINTS = 400 if TINY else 10_000

# %% [markdown]
# ## A proof
#
# The bound rises from below until it meets J. Every step on the way is a valid bound: whoever stops early has
# proven less, never something wrong. On the right is the gap between the two, in percent.

# %%
cases = {"Iris, K = 3": (load_iris().data, 3)}
try:
    cases |= {} if TINY else {"Glass, K = 6": (datasets.load("glass").points, 6)}
except datasets.DataUnavailable as error:
    print(f"Glass is left out. {error}")
proofs = {}
for name, (X, k) in cases.items():
    proofs[name] = TabuKMeans(k, n_init=3, random_state=0).fit(X).certify(X, max_time=SECONDS)
    print(f"{name}. {proofs[name]}")

# %%
figure, axes = plt.subplots(len(proofs), 2, figsize=(12, 4.2 * len(proofs)), layout="constrained", squeeze=False)
for (left, right), (name, proof) in zip(axes, proofs.items(), strict=True):
    plotting.proof(proof, left)
    left.set_title(f"{name}: gap {100 * proof.gap:.2g} %", loc="left")
    left.legend(loc="lower right")
    seconds, bounds, inertias = proof.history.T
    right.step(seconds, 100 * (inertias - bounds) / inertias, where="post", lw=2)
    right.set(yscale="log", xlabel="seconds", ylabel="gap, percent of J", title="What may be left to gain")
    right.axhline(100 * proof.tolerance, color="0.5", ls="--")
    right.annotate("counts as optimal", (0, 100 * proof.tolerance), xytext=(4, 4), textcoords="offset points")
plt.show()

# %% [markdown]
# ## What it is good for: is it worth searching on?
#
# K-Means from ten random starts ends in ten clusterings of these blobs. The two best agree, which looks like
# success. The bound says otherwise: a tenth of J is left. `TabuKMeans` finds it, and its clustering is proven. From
# here on, to search would be in vain. A proof may come upon the better clustering by itself, and says so.

# %%
X, _ = make_blobs(240, centers=8, cluster_std=1.0, center_box=(-12, 12), random_state=4)
runs = sorted(
    (KMeans(8, init="random", n_init=1, random_state=seed).fit(X) for seed in range(10)), key=lambda m: m.inertia_
)
tabu = TabuKMeans(8, random_state=0).fit(X)
proof = tabu.certify(X, max_time=SECONDS)
print(certify(X, runs[0], max_time=SECONDS))
print(proof)

# %%
figure, (left, middle, right) = plt.subplots(1, 3, figsize=(14, 4.4), layout="constrained")
left.bar(range(1, 11), [run.inertia_ for run in runs], color="0.75", label="K-Means, best first")
left.bar(0, tabu.inertia_, color="C0", label="TabuKMeans")
left.axhline(proof.lower_bound, color="C3", lw=1.5, label="no clustering is below")
left.set(xlabel="run", ylabel="J", title="Ten runs, a search, and the bound", xticks=range(11))
left.legend()
for ax, model, name in [(middle, runs[0], "The best run of K-Means"), (right, tabu, "Proven optimal")]:
    plotting.clusters(X, model, ax)
    ax.set_title(f"{name}: J = {model.inertia_:.0f}", loc="left", pad=20)
plt.show()

# %% [markdown]
# ## What it does not say
#
# A proof is about J and this K, not about whether clusters are there. Points without any clusters have a best
# clustering too, and it can be proven. And a gap that stays open does not mean that the clustering is bad: the
# bound may be what is not good enough. Without clusters it takes longest to close.

# %%
rng = np.random.default_rng(0)
even = rng.random((60 if TINY else 150, 2))
model = TabuKMeans(4, random_state=0).fit(even)
without = model.certify(even, max_time=SECONDS)
print(without)
figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.4), layout="constrained")
plotting.clusters(even, model, left)
left.set_title("No clusters, and yet a best clustering", loc="left", pad=20)
without.plot(right)
right.set_title(f"Gap {100 * without.gap:.2g} %", loc="left")
right.legend(loc="lower right")
plt.show()

# %% [markdown]
# ## Many points
#
# Time grows with N³, so many points are bounded in parts, each of which looks like the whole. The bounds of the
# parts add up to one for all, because a clustering of all points is a clustering of every part. Where clusters
# are well apart, a part is proven at once, by a formula.

# %%
X, _ = make_blobs(POINTS, centers=10, cluster_std=0.5, center_box=(-20, 20), random_state=0)
model = TabuKMeans(10, random_state=0).fit(X)
large = model.certify(X, max_time=SECONDS, parts=4 if TINY else "auto")
print(large)
figure, (left, right) = plt.subplots(1, 2, figsize=(12, 4.4), layout="constrained")
plotting.clusters(X, model, left)
large.plot(right)
right.set_title(f"Gap {100 * large.gap:.2g} %: {len(large.history)} parts, which add up", loc="left")
right.legend(loc="lower right")
plt.show()
