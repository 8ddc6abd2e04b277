# %% [markdown]
# # Watching the search leave a local minimum
#
# K-Means is stuck when no point is nearer to another centre than to its own. That can be far from the best
# clustering. Here are two data sets on which it is stuck in plain view. In the first, tabu search with
# quantized means walks out. In the second it cannot, and relocation of centres can.

# %%
import os

import matplotlib.pyplot as plt
import numpy as np
from IPython.display import HTML

from gputabu import lloyd, plotting, quantized, relocation

TINY = os.environ.get("GPUTABU_TINY") == "1"  # small sizes, for tests
FRAMES = 3 if TINY else 30

# %% [markdown]
# ## Stuck
#
# Five round clusters. K-Means begins at five points drawn at random, and this draw was an unlucky one: two
# centres share a cluster, and another centre has to do for two.

# %%
rng = np.random.default_rng(1)
places = [(0.0, 0.0), (4.0, 0.0), (2.0, 3.2), (7.0, 3.0), (8.0, 0.0)]
X = np.concatenate([rng.normal(place, 0.9, size=(40, 2)) for place in places])

UNLUCKY = 11  # the number of the restart
stuck = lloyd.run(X, 5, init="random", restarts=[UNLUCKY])
best = lloyd.run(X, 5, init="k-means++", restarts=100)

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
plotting.clusters(X, stuck, left)
left.set_xlabel(f"K-Means from an unlucky start: J = {stuck.inertia:.1f}")
plotting.clusters(X, best, right)
right.set_xlabel(f"the best of 100 restarts: J = {best.inertia:.1f}")
plt.show()

# %% [markdown]
# ## Out, over the hill
#
# Now tabu search, from the very same five points. Restart 11 begins at the same place in every method, as
# random numbers are addressed by the number of the restart.
#
# White rings are the quantized means. Each moves to the point nearest to the centroid of its cluster, unless
# that point is tabu (crosses): a mean does not go where it has been. Near the centroid the free points are soon
# used up. So the means are pushed outward, J rises, and the boundaries between the clusters shift. At some
# iteration a mean gets hold of points of the neighbouring cluster, and J falls to a new valley. Stars are the
# best means so far.

# %%
found = quantized.search(X, 5, init="random", restarts=[UNLUCKY], max_iter=120, patience=30)
print(f"K-Means {stuck.inertia:.1f}, tabu search {found.inertia:.1f}, best known {best.inertia:.1f}")
film = plotting.animation(X, found, frames=FRAMES)
HTML(plotting.player(film))

# %% [markdown]
# The same without moving pictures. The rise before the fall is what K-Means cannot do.

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
plotting.clusters(X, found, left)
plotting.trace(found, right)
right.axhline(stuck.inertia, color="0.4", ls=":")
right.text(found.n_iter, stuck.inertia, "K-Means", ha="right", va="bottom", color="0.4")
plt.show()

# %% [markdown]
# ## Where it cannot leave
#
# A quantized mean moves within its own cluster. One whose cluster lies on an island has no way across the
# water. Here are four islands with four towns each. All sixteen centres begin on the first island.

# %%
rng = np.random.default_rng(4)
islands = np.array([[0.0, 0.0], [14.0, 1.0], [1.0, 11.0], [15.0, 12.0]])
towns = 1.3 * np.array([[-1.6, -1.4], [1.6, -1.5], [-1.4, 1.6], [1.5, 1.5]])
homes = (islands[:, None] + towns).reshape(-1, 2)
X = np.concatenate([rng.normal(home, 0.55, size=(45, 2)) for home in homes])
start = np.arange(16) * 11  # rows of the first island

plain = lloyd.run(X, 16, init=start)
walked = quantized.search(X, 16, init=start)
flown = relocation.search(X, 16, init=start, max_iter=60, patience=60)

figure, axes = plt.subplots(1, 3, figsize=(14, 4.4), layout="constrained")
for ax, name, each in zip(axes, ("K-Means", "QM-TS", "relocation"), (plain, walked, flown), strict=True):
    plotting.clusters(X, each, ax)
    ax.set_xlabel(f"{name}: J = {each.inertia:.0f}")
plt.show()

# %% [markdown]
# Relocation takes a centre away and puts it at a data point, wherever that lowers J most. It repairs one region
# after the other, and sixteen centres come to sixteen towns.
#
# A relocation search records J of every iteration, but not its centres. They can be had all the same. A search
# of t iterations is the beginning of a longer one, to the last bit. So the shorter searches, one for every
# improvement, give the best centres at that time, each refined by K-Means.

# %%
improved = np.flatnonzero(np.diff(flown.trace.best[0]) < 0) + 1
centers = {0: plain.centers}
for t in improved.tolist():
    centers[t] = relocation.search(X, 16, init=start, max_iter=t, patience=60, refine="lloyd").centers
print("J fell in iterations", improved.tolist())

# %%
film = plotting.animation(X, flown, centers=centers, frames=FRAMES)
HTML(plotting.player(film))

# %% [markdown]
# `plotting.write(film, "search.gif")` keeps a film as a file; `.html` works as well.
#
# Look at the stretch before the last improvement. One centre too many was left on one island, and one too few
# on another. For some iterations every move led back to the same J. What had been tried was forbidden, until
# the right move was left. A method that only goes downhill would have ended there.

# %%
figure, ax = plt.subplots(figsize=(9, 4.2), layout="constrained")
plotting.trace(flown, ax)
plt.show()
