# %% [markdown]
# # Quickstart
#
# K-Means looks for K centres with the least J, the sum of squared distances of the points to their centres. It
# stops at the first local minimum of J. gputabu searches on from there: it moves to worse solutions if need be,
# and never back.
#
# This notebook clusters Iris, looks at what was found, and shows where everything is.

# %%
import os

import matplotlib.pyplot as plt
from sklearn.datasets import load_iris

from gputabu import KMeans, QuantizedTabuKMeans, TabuKMeans, plotting

TINY = os.environ.get("GPUTABU_TINY") == "1"  # small sizes, for tests
RUNS = 10 if TINY else 100

# %% [markdown]
# ## Fit
#
# `TabuKMeans` is a scikit-learn estimator. It takes one centre away and puts it where it is needed most, again
# and again.

# %%
iris = load_iris(as_frame=True)
X = iris.data
model = TabuKMeans(n_clusters=3, random_state=0).fit(X)
print(f"J = {model.inertia_:.4f} after {model.n_iter_} iterations, on {model.backend_}")
print(f"It stopped because of this: {model.stop_}.")

# %% [markdown]
# `QuantizedTabuKMeans` is the search of the paper. Its centres are refined from *quantized means*: data points
# that the search moved within their clusters. Their row numbers are in `center_indices_`.

# %%
model = QuantizedTabuKMeans(n_clusters=3, random_state=0).fit(X)
X.iloc[model.center_indices_]

# %% [markdown]
# ## Look
#
# Four features are drawn in their first two principal components. The names of the columns serve as titles
# where two features are asked for with `dims`.

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
plotting.clusters(X, model, left)
plotting.clusters(X, model, right, dims=["petal length (cm)", "petal width (cm)"])
plt.show()

# %% [markdown]
# J falls quickly, then wanders. That is tabu search at work: points that were used are forbidden, so it has to
# go elsewhere, and the best solution is remembered.

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
plotting.trace(model, left)
plotting.silhouette(X, model, right)
plt.show()

# %% [markdown]
# ## Is it worth it?
#
# Three clusters are easy: most runs of K-Means find the best of them. Ten are not. Here are K-Means and tabu search,
# many times, from the same starts by K-Means++. Every run is a dot.

# %%
plain = KMeans(10, n_init=RUNS, random_state=0).fit(X)
tabu = TabuKMeans(10, n_init=RUNS, random_state=0).fit(X)
ax = plotting.boxes({"K-Means": plain.inertias_, "tabu search": tabu.inertias_}, best_known=tabu.inertia_)
ax.set_xlabel(f"{RUNS} runs each, from the same starts")
plt.show()
lower = (tabu.inertias_ < plain.inertias_).mean()
print(f"Tabu search ended lower than K-Means from the same start in {lower:.0%} of the runs.")

# %% [markdown]
# Each run of K-Means ends in another local minimum. The tabu search goes on from there, and nearly all of its runs
# end beside the best.
#
# ## Use
#
# The rest is as in scikit-learn: `predict`, `transform`, `score`, pipelines, `sample_weight`. Here weights
# count flowers of the last fifty rows ten times. Points are drawn as large as they weigh, and the centres move
# towards them.

# %%
weights = [1.0] * 100 + [10.0] * 50
heavy = TabuKMeans(3, random_state=0).fit(X, sample_weight=weights)
print("The first flower belongs to cluster", heavy.predict(X.iloc[[0]])[0])

figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.6), layout="constrained")
plotting.clusters(X, heavy, left, weights=weights)
plotting.sizes(heavy, right, weights=weights)
plt.show()
