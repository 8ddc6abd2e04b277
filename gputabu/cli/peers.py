"""K-Means and tabu iterations on a GPU, beside those of cuML, faiss and flash-kmeans where these are installed."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from gputabu.algorithms import lloyd, quantized

#: Runs so many iterations to their end.
Run = Callable[[int], Any]
#: Iterations of the two runs whose difference is measured.
ROUNDS = (5, 25)


def data(n: int, d: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    """Noise, on which K-Means takes long to converge: all make the iterations that are timed. And K rows of it."""
    X = np.random.default_rng(0).standard_normal((n, d), dtype=np.float32)
    return X, np.ascontiguousarray(X[:: n // k][:k])


def ours_lloyd(X: Any, start: np.ndarray) -> Run:
    return lambda rounds: lloyd.run(X, len(start), init=start, max_iter=rounds, backend="cuda")


def ours_tabu(X: Any, start: np.ndarray) -> Run:
    def run(rounds: int) -> Any:
        limits: dict[str, Any] = {"max_iter": rounds, "patience": rounds + 1}
        return quantized.search(X, len(start), init=start, **limits, refine="centroid", backend="cuda")

    return run


def cuml(X: Any, start: np.ndarray) -> Run:
    cluster = import_module("cuml.cluster")
    settings = {"n_clusters": len(start), "init": start, "n_init": 1, "tol": 0.0}
    return lambda rounds: cluster.KMeans(max_iter=rounds, **settings).fit(X)


def faiss(X: Any, start: np.ndarray) -> Run:
    library = import_module("faiss")
    if not hasattr(library, "get_num_gpus") or library.get_num_gpus() == 0:
        raise ImportError("this faiss has no GPU")
    host = X if isinstance(X, np.ndarray) else X.get()
    n, d = host.shape

    def run(rounds: int) -> Any:
        # By default it looks at 256 points per centre only.
        model = library.Kmeans(d, len(start), niter=rounds, gpu=1, max_points_per_centroid=n)
        return model.train(host, init_centroids=start)

    return run


def flash_kmeans(X: Any, start: np.ndarray) -> Run:
    torch, library = import_module("torch"), import_module("flash_kmeans")
    data, first = (torch.as_tensor(array)[None].cuda() for array in (X, start))

    def run(rounds: int) -> Any:
        settings = {"n_clusters": len(start), "max_iters": rounds, "tol": 0.0, "init_centroids": first.clone()}
        return library.batch_kmeans_Euclid(data, **settings)

    return run


OURS: dict[str, Callable[[Any, np.ndarray], Run]] = {"gputabu K-Means": ours_lloyd, "gputabu QM-TS": ours_tabu}
PEERS: dict[str, Callable[[Any, np.ndarray], Run]] = {"cuML": cuml, "faiss": faiss, "flash-kmeans": flash_kmeans}
#: What they are called where Python packages come from.
PACKAGES = {
    "cuML": ("cuml-cu12", "cuml-cu13", "cuml"),
    "faiss": ("faiss-gpu", "faiss-gpu-cu12", "faiss-gpu-cuvs", "faiss"),
    "flash-kmeans": ("flash-kmeans",),
}
