# %% [markdown]
# # Scaling out
#
# Larger data, less memory, other machines. What changes is where the points come from and who computes. What
# does not change is the result: not one bit of it. This notebook shows what there is, and checks it.

# %%
import os
import tempfile
import time
import tracemalloc
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from gputabu import BackendUnavailable, Clustering, Points, plotting, quantized

TINY = os.environ.get("GPUTABU_TINY") == "1"  # small sizes, for tests
N = 2_000 if TINY else 100_000
ITERATIONS = 5 if TINY else 15
D, K = 8, 16


def points(n: int, dtype: type = np.float64) -> np.ndarray:
    """Sixteen clusters, four by four in the first two features."""
    rng = np.random.default_rng(0)
    centers = rng.normal(scale=2, size=(K, D))
    centers[:, :2] += 9 * np.array(np.divmod(np.arange(K), 4)).T
    return (centers[rng.integers(K, size=n)] + rng.normal(size=(n, D))).astype(dtype)


def search(X: object, **options: object) -> Clustering:
    usual = {"init": "k-means++", "max_iter": ITERATIONS, "patience": ITERATIONS, "seed": 0}
    return quantized.search(X, K, **usual | options)


def same(a: Clustering, b: Clustering) -> bool:
    """Whether two clusterings are equal to the last bit, and so was the way to them."""
    pairs = [(a.labels, b.labels), (a.centers, b.centers), (a.trace.current, b.trace.current)]
    return all(np.array_equal(one, other, equal_nan=True) for one, other in pairs)


def per_iteration(X: np.ndarray, **options: object) -> float:
    """Seconds per iteration of the search: the best of several long runs less that of short ones, in turns."""
    taken = {1: np.inf, 11: np.inf}
    for _ in range(1 if TINY else 7):
        for length in taken:
            begun = time.perf_counter()
            search(X, max_iter=length, patience=length, init=np.arange(K), refine="centroid", **options)
            taken[length] = min(taken[length], time.perf_counter() - begun)
    return max(taken[11] - taken[1], 1e-6) / 10


X = points(N)
found = search(X)
print(f"{N:,} points, {D} features, {K} clusters on {found.backend}: J = {found.inertia:.6g}")

# %% [markdown]
# ## Backends
#
# NumPy runs everywhere. numba compiles for the CPU. CUDA runs on an NVIDIA GPU. A backend asked for by name
# runs or says why it cannot; it never falls back.

# %%
seconds = {}
for backend in ("numpy", "numba", "cuda"):
    try:
        other = search(X, backend=backend)
    except BackendUnavailable as error:
        print(error)
        continue
    seconds[backend] = per_iteration(X, backend=backend)
    print(f"{backend}: {'the same bits' if same(found, other) else 'OTHER BITS'}")

# %% [markdown]
# ## Chunks, and files larger than memory
#
# Points come in chunks. They are never copied, and cutting them otherwise changes nothing. A memory-mapped
# `.npy` is an array like any other: its pages are read as passes go over them, and the system drops them when
# it needs the memory.

# %%
for rows in (N // 7, 1000):
    cut = search(Points.of(X, chunk_rows=rows))
    print(f"chunks of {rows:,} rows: {'the same bits' if same(found, cut) else 'OTHER BITS'}")

with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / "points.npy"
    np.save(path, X)
    mapped = np.load(path, mmap_mode="r")
    print(f"memory map: {'the same bits' if same(found, search(mapped)) else 'OTHER BITS'}")
    del mapped  # or some systems would not delete the file

# %% [markdown]
# ## float32
#
# Half the memory. The points are other points, rounded, so the result differs a little; what is summed over
# points is summed in integers, so that precision does not fade with N.

# %%
narrow = search(X.astype(np.float32))
print(f"{narrow.centers.dtype} centres, J differs by {abs(narrow.inertia / found.inertia - 1):.1e}")
print(f"{(narrow.labels != found.labels).sum():,} of {N:,} labels differ")

# %% [markdown]
# ## Restarts in a batch
#
# All restarts of a fit run at once and share each read of the points. Restart 3 of 8 is restart 3 on its own,
# so restarts can be dealt to several machines, and the results joined by hand: the lowest J wins.

# %%
small = X[: N // 10]
batch = search(small, restarts=8)
alone = [search(small, restarts=[number]) for number in range(8)]
print("each restart on its own:", all(a.inertia == J for a, J in zip(alone, batch.inertias, strict=True)))
print(f"best: restart {batch.restart} with J = {batch.inertia:.6g}")

# %% [markdown]
# ## Time and memory
#
# How both grow with N, on NumPy, where all memory can be traced. Time is that of an iteration of the search, two
# passes over the points. Memory is the peak of what a fit allocates beside the points themselves.

# %%
sizes = np.geomspace(N // 20, 4 * N, 5).astype(int)
grown = {}
for dtype in (np.float32, np.float64):
    some = points(sizes[-1], dtype)
    for n in sizes:
        tracemalloc.start()
        search(some[:n], backend="numpy", max_iter=2, refine="centroid")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        grown[dtype.__name__, n] = per_iteration(some[:n], backend="numpy"), peak

figure, axes = plt.subplots(1, 3, figsize=(14, 4.4), layout="constrained")
for name, colour in (("float32", "#E69F00"), ("float64", "#0072B2")):
    taken, peak = np.array([grown[name, n] for n in sizes]).T
    axes[0].loglog(sizes, 1e3 * taken, "o-", color=colour, label=name)
    axes[1].loglog(sizes, peak / 1e6, "o-", color=colour, label=f"fit, {name}")
    own = sizes * D * np.dtype(name).itemsize
    axes[1].loglog(sizes, own / 1e6, "--", color=colour, label=f"points, {name}")
axes[0].set(xlabel="points", ylabel="ms per iteration", title="Time on NumPy")
axes[1].set(xlabel="points", ylabel="MB", title="Memory beside the points, on NumPy")
axes[2].bar(list(seconds), [1e3 * each for each in seconds.values()], color="0.6", width=0.5)
axes[2].set(ylabel="ms per iteration", title=f"Backends, {N:,} points")
axes[0].legend(frameon=False)
axes[1].legend(frameon=False)
plt.show()

# %% [markdown]
# Most of the memory of small data is scratch: temporary arrays of each thread. They grow no further once they
# hold a million numbers. From there on memory follows what there is per point: labels and marks, and distances
# while a start is drawn. No array of N × K is made. Times are those of this machine in this minute.
#
# And the clusters, in the two features in which they lie four by four. Above 100 000 points a part of them is drawn;
# more would be ink on ink.

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 4.8), layout="constrained")
plotting.clusters(X, found, left, dims=[0, 1])
plotting.silhouette(X, found, right, sample=500 if TINY else 3000)
plt.show()
