# %% [markdown]
# # The paper and its tables
#
# K. S. Gyamfi, J. Brusey and A. Hunt, *K-Means clustering using tabu search with quantized means*, 2016.
#
# **The problem.** K-Means falls into the nearest local minimum of J. Tabu search does not, but the classic one
# for clustering (TSC, Al-Sultan 1995) changes labels at random, one labelling among K^N. It needs many
# iterations and still ends high.
#
# **The idea.** Hold the centres to data points, the *quantized means*. A solution is then K row numbers. In
# every iteration each mean moves to the member of its cluster that lowers J most, among those it has not been
# at before. That member is the one nearest to the centroid of the cluster. When the search has gone on for long
# enough without a new best, K-Means refines the best solution.
#
# This notebook runs the paper's comparison again and puts it beside the printed numbers.

# %%
import os
import tempfile

import matplotlib.pyplot as plt

from gputabu import datasets, plotting
from gputabu.cli.reproduce import experiments
from gputabu.cli.reproduce.paper import TABLES
from gputabu.cli.reproduce.records import Settings

TINY = os.environ.get("GPUTABU_TINY") == "1"  # small sizes, for tests
RUNS = 2 if TINY else 20  # the paper: 100

# %% [markdown]
# ## The data
#
# Iris comes with scikit-learn. The other data sets are looked for on this machine and then downloaded. Where
# one cannot be had, its tables are left out, and a sentence says why.

# %%
available = {}
for table in TABLES.values():
    if TINY and table.dataset != "iris":
        continue
    try:
        available[table.number] = datasets.load(table.dataset, preprocessing=table.preprocessing)
    except datasets.DataUnavailable as error:
        print(f"Table {table.number} ({table.title}) is left out. {error}")
for number, data in available.items():
    n, d = data.points.shape
    print(f"Table {number}: {TABLES[number].title}, {n} points, {d} features, {TABLES[number].k} clusters")

# %% [markdown]
# ## The tables
#
# Four methods, each from random starts with the paper's parameters. All runs of a method are restarts of one
# batch, so the time per run is a share of the batch's. `gputabu reproduce` does the same on the command line,
# with 100 runs and a report.
#
# The times of the paper were measured in MATLAB on an Intel Core i5-2400.

# %%
with tempfile.TemporaryDirectory() as folder:
    results = experiments.begin(list(available), Settings(runs=RUNS, seed=1), folder)
    experiments.run(results, list(available), folder, say=print)

# %% [markdown]
# Averages of a few runs scatter: J has heavy tails. With 100 runs (`gputabu reproduce`) the averages settle.
#
# ## The pictures
#
# J of every run. TSC ends so far above the others that it would squeeze them into a line, so it is left out here.

# %%
columns = min(3, len(available))
rows = -(-len(available) // columns)
figure, axes = plt.subplots(rows, columns, figsize=(4.2 * columns, 3.6 * rows), layout="constrained", squeeze=False)
for ax, number in zip(axes.flat, available, strict=False):
    outcomes = results.tables[number].outcomes
    runs = {method: outcome.inertias for method, outcome in outcomes.items() if method != "TSC"}
    table = TABLES[number]
    plotting.boxes(runs, ax, best_known=available[number].best_known[table.k])
    ax.set_xlabel(f"Table {number}: {table.title}, K = {table.k}")
for ax in axes.flat[len(available) :]:
    ax.remove()
plt.show()

# %% [markdown]
# QM-TS has the lowest average, on Bavaria with five clusters level with K-Means++, and is seldom far from the best
# J known. Plain K-Means depends on luck.
#
# And TSC? Here is its course beside that of QM-TS on Iris. TSC makes a thousand iterations of twenty trials each.

# %%
found = {method: results.tables["I"].outcomes[method] for method in ("TSC", "QM-TS")}
X = available["I"].points
figure, axes = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
for ax, (method, outcome) in zip(axes, found.items(), strict=True):
    plotting.trace(outcome.clustering(X), ax)
    ax.set_xlabel(f"iteration of {method}")
plt.show()

# %% [markdown]
# QM-TS needs a handful of iterations to come near its best. TSC goes down slowly, step by random step, and is
# far from done when its iterations are used up.

# %%
figure, axes = plt.subplots(1, 2, figsize=(11, 4.4), layout="constrained")
for ax, (method, outcome) in zip(axes, found.items(), strict=True):
    plotting.clusters(X, outcome.clustering(X), ax)
    ax.text(0.98, 0.97, f"{method}: J = {min(outcome.inertias):.2f}", transform=ax.transAxes, ha="right", va="top")
plt.show()
