"""Fits with a checkpoint, for processes that are killed: a module that is quick to import."""

from __future__ import annotations

import numpy as np

from gputabu import estimators
from gputabu.algorithms import checkpoint as checkpoints

KINDS = {
    "quantized": (estimators.QuantizedTabuKMeans, {"n_init": 2}),
    "relocation": (estimators.TabuKMeans, {"n_init": 2}),
    "K-Means": (estimators.KMeans, {"n_init": 4}),
    "reassignment": (estimators.TabuSearchClustering, {"n_init": 2, "n_trials": 4}),
}


def fit(name: str, backend: str, data: str, path: str) -> None:
    """Fit and leave everything that was found; the checkpoint is written after every iteration."""
    checkpoints.EVERY = 0.0
    kind, settings = KINDS[name]
    X = data if backend == "numpy" else np.load(data)
    model = kind(6, max_iter=15, init="random", random_state=5, checkpoint=path, backend=backend, **settings).fit(X)
    trace, indices = model.trace_, getattr(model, "center_indices_", None)
    found = {"labels": model.labels_, "centers": model.cluster_centers_, "inertias": model.inertias_}
    found |= {"current": trace.current, "best": trace.best, "moves": trace.moves, "stop": np.array(str(model.stop_))}
    found |= {} if indices is None else {"indices": indices, "means": trace.means}
    np.savez(f"{path}.npz", **found)
