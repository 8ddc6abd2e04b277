"""`Algebra` with compiled sweeps, which take one inequality after the other."""

from __future__ import annotations

import numpy as np

from gputabu.backend.numba.kernels.halfspaces import sweep_inequalities
from gputabu.backend.numpy.algebra import Algebra


class NumbaAlgebra(Algebra):
    name = "numba"

    def sweep(
        self,
        free: np.ndarray,
        places: np.ndarray,
        factors: np.ndarray,
        steps: np.ndarray,
        multipliers: np.ndarray,
        sweeps: int,
    ) -> None:
        sweep_inequalities(free, places, factors, steps, 1 / (factors * steps).sum(axis=1), multipliers, sweeps)
