# %% [markdown]
# # Choosing K
#
# K-Means wants to be told the number of clusters. J does not help: it falls with every cluster more. Criteria
# weigh the fall of J against the price of a cluster. `select_k` clusters for every K, each begun from its
# neighbour, and computes them.

# %%
import os

import matplotlib.pyplot as plt
from sklearn.datasets import load_iris, make_blobs

from gputabu import TabuKMeans, plotting, select_k

TINY = os.environ.get("GPUTABU_TINY") == "1"  # small sizes, for tests
N = 200 if TINY else 3000
KS = range(1, 10) if TINY else range(1, 16)
REFERENCES = 2 if TINY else 10  # sets without clusters that the gap statistic compares with

# %% [markdown]
# ## A clear case
#
# Five blobs that a person would count as five.

# %%
places = [(-7, -2), (-3, 7), (-2, -8), (9, 2), (-8, -8)]
X, _ = make_blobs(N, centers=places, cluster_std=1.0, random_state=0)
criteria = ["bic", "aic", "silhouette", "calinski_harabasz", "davies_bouldin", "gap"]
found = select_k(X, KS, criteria, references=REFERENCES)
found

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(12, 5), layout="constrained")
plotting.selection(found, left)
plotting.clusters(X, found.best, right)
plt.show()

# %% [markdown]
# Every curve goes from its worst value to its best, which is on top. A large dot is what a criterion recommends.
# Where the dots are in line, the criteria agree. Here all six do.
#
# ## J alone
#
# The elbow of J is there if one knows where to look. BIC finds it without looking. So does the gap statistic, by
# another rule: it takes the first K whose gap the next one does not surpass by more than an error. A small bump on the
# way up would stop it too early, so draw the curve before you believe the number.

# %%
figure, axes = plt.subplots(1, 3, figsize=(14, 4.2), layout="constrained")
axes[0].plot(found.table["n_clusters"], found.table["inertia"], "o-", color="0.3")
axes[0].set(xlabel="number of clusters K", ylabel="J", title="J over K")
for ax, name in zip(axes[1:], ("bic", "gap"), strict=True):
    plotting.selection(found, ax, [name])
plt.show()

# %% [markdown]
# ## A case that is not clear
#
# Iris has three species, and two of them overlap. The silhouette asks for clusters that are well apart and
# finds two. BIC assumes round clusters of one spread, and the flowers are not round: it goes on splitting.
# Neither is wrong. They answer different questions.

# %%
iris = load_iris(as_frame=True).data
unclear = select_k(iris, range(1, 11), criteria, method="tabu", references=REFERENCES)
print({name: int(k) for name, k in unclear.recommended.items()})
plotting.selection(unclear)
plt.show()

# %% [markdown]
# So look at the clusterings themselves. A silhouette near 1 is a point deep inside its cluster, one near 0 lies
# between two. With two clusters nearly all points are well inside. With three the two species that overlap
# share a border. With four a cluster is cut in two for no visible reason.

# %%
figure, axes = plt.subplots(2, 3, figsize=(14, 8.6), layout="constrained")
for (above, below), k in zip(axes.T, (2, 3, 4), strict=True):
    model = TabuKMeans(k, random_state=0).fit(iris)
    plotting.clusters(iris, model, above)
    plotting.silhouette(iris, model, below)
plt.show()

# %% [markdown]
# ## In short
#
# Take BIC for round clusters of similar size, and where speed matters: it needs nothing but J. Take the
# silhouette to see how well clusters are apart. Take the gap statistic to ask whether there are clusters at
# all: it may answer one. And look at the pictures.
