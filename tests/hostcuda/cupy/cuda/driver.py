"""cupy.cuda.driver, as far as it is used."""

from .errors import CUDADriverError

__all__ = ["CUDADriverError"]
