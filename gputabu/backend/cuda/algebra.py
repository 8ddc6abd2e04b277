"""Eigenvalues on a GPU, for proofs: the decomposition takes n³, bringing the matrix there and back n²."""

from __future__ import annotations

import cupy
import numpy as np

from gputabu.backend.numpy.algebra import Algebra


class CudaAlgebra(Algebra):
    """Decompositions on the current GPU; the rest on the host."""

    name = "cuda"

    def __init__(self, host: Algebra) -> None:
        self.sweep = host.sweep  # type: ignore[method-assign]
        self.device = cupy.cuda.Device()

    def eigh(self, matrix: np.ndarray, wanted: int) -> tuple[np.ndarray, np.ndarray]:
        """All eigenvalues, ascending, and their vectors."""
        with self.device:  # a thread has a current one of its own
            values, vectors = cupy.linalg.eigh(cupy.asarray(matrix))
            return cupy.asnumpy(values), cupy.asnumpy(vectors)
