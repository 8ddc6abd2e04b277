"""What a proof of how good a clustering is needs of a backend: eigenvalues, and steps towards a polyhedron."""

from __future__ import annotations

import numpy as np
from scipy import linalg

#: Up to this many rows all eigenvectors are computed: a part of them takes as long.
SMALL = 120


class Algebra:
    """Dense matrices of a few hundred or thousand rows. Bits may differ between backends here."""

    name = "numpy"

    def eigh(self, matrix: np.ndarray, wanted: int) -> tuple[np.ndarray, np.ndarray]:
        """At least the `wanted` largest eigenvalues of a symmetric matrix (n, n), ascending, and their vectors."""
        n = len(matrix)
        if n <= SMALL or wanted >= n // 2:
            return np.linalg.eigh(matrix)
        return linalg.eigh(matrix, subset_by_index=[n - wanted, n - 1], check_finite=False, driver="evr")

    def sweep(
        self,
        free: np.ndarray,
        places: np.ndarray,
        factors: np.ndarray,
        steps: np.ndarray,
        multipliers: np.ndarray,
        sweeps: int,
    ) -> None:
        """Steps towards the nearest point of {Y >= 0, Σ factors·Y[places] <= 0 for every row}; Y is max(free, 0).

        `free` (flat) and `multipliers` (m,) are updated; `places`, `factors` and `steps` are (m, p). All inequalities
        are taken at once here, with steps that are shorter where many share an entry.
        """
        shared = np.bincount(places.ravel(), minlength=len(free))
        scales = 1 / (factors * steps * shared[places]).sum(axis=1)
        for _ in range(sweeps):
            over = (factors * np.maximum(free[places], 0.0)).sum(axis=1)
            step = np.maximum(over * scales, -multipliers)
            multipliers += step
            free -= np.bincount(places.ravel(), (step[:, None] * steps).ravel(), minlength=len(free))
