"""Small data sets with corners in them, drawn by hypothesis."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

WIDTHS = [1, 2, 3, 7, 15, 16, 17, 31, 33, 100, 129, 513]


def draw_problem(data):
    """A small data set with ties and duplicates, a K that fits no tile, weights or none."""
    n = data.draw(st.integers(1, 90), "N")
    d = data.draw(st.sampled_from(WIDTHS), "d")
    k = data.draw(st.integers(1, min(n, 21)), "K")
    seed = data.draw(st.integers(0, 2**31), "seed")
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    kind = data.draw(st.sampled_from(["noise", "grid", "duplicates", "far"]), "kind")
    if kind == "grid":
        X = np.rint(X)
    elif kind == "duplicates":
        X = X[rng.integers(n, size=n)]
    elif kind == "far":
        X = 1000 + 0.01 * X
    weights = rng.integers(0, 3, n) + rng.random(n) if data.draw(st.booleans(), "weighted") else None
    if weights is not None and data.draw(st.booleans(), "zeros"):
        weights[rng.integers(n)] = 0
        weights[0] = 1
    return X.astype(data.draw(st.sampled_from([np.float32, np.float64]), "dtype")), k, weights, seed
