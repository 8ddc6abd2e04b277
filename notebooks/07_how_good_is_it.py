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
# Iris into three clusters. The bound rises from below until it meets J. On the right, a point of the curve is a
# valid bound too: whoever stops early has proven less, never something wrong.

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
    left.set_title(name)
    left.legend(loc="lower right")
    seconds, bounds, inertias = proof.history.T
    right.step(seconds, 100 * (inertias - bounds) / inertias, where="post", lw=2)
    right.set(yscale="log", xlabel="seconds", ylabel="gap, percent of J", title=f"{name}: what is left to gain")
    right.axhline(100 * proof.tolerance, color="0.5", ls="--")
    right.annotate("counts as optimal", (0, 100 * proof.tolerance), xytext=(4, 4), textcoords="offset points")
plt.show()

# %% [markdown]
# ## What it is good for: is it worth searching on?
#
# K-Means from ten random starts ends in ten clusterings of these blobs. Without a bound, one sees that some are
# better than others. With it, one sees that the best of them *is* the best, and how much the others lose. More
# restarts would be in vain.

# %%
X, _ = make_blobs(240, centers=8, cluster_std=1.0, center_box=(-12, 12), random_state=4)
starts = [KMeans(8, init="random", n_init=1, random_state=seed).fit(X) for seed in range(10)]
best = min(starts, key=lambda model: model.inertia_)
poor = max(starts, key=lambda model: model.inertia_)
proof = certify(X, TabuKMeans(8, random_state=0).fit(X), max_time=SECONDS)
print(proof)

# %%
figure, (left, middle, right) = plt.subplots(1, 3, figsize=(14, 4.4), layout="constrained")
values = np.sort([model.inertia_ for model in starts])
left.bar(range(1, 11), values, color="0.75")
left.axhline(proof.lower_bound, color="C3", lw=2, label="no clustering is below")
left.set(xlabel="run of K-Means, best first", ylabel="J", title="Ten runs and the bound")
left.legend()
plotting.clusters(X, best, middle)
middle.set_title(f"the best of ten, J = {best.inertia_:.0f}")
plotting.clusters(X, poor, right)
right.set_title(f"the worst of ten, J = {poor.inertia_:.0f}")
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
left.set_title("no clusters, and yet a best clustering")
without.plot(right)
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
right.set_title(f"{large.method.split(' of ')[-1]}, one after the other")
right.legend(loc="lower right")
plt.show()
