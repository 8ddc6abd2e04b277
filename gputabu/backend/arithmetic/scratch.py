"""Scratch memory: named buffers that are used again and again."""

from __future__ import annotations

import math
import threading
from typing import Any

import numpy as np


class Scratch(threading.local):
    """Named buffers, one set per thread, that only grow: fresh memory costs page faults."""

    def __init__(self) -> None:
        self.buffers: dict[tuple[str, Any], np.ndarray] = {}

    def __call__(self, name: str, shape: int | tuple[int, ...], dtype: Any) -> np.ndarray:
        """A C-contiguous array of unspecified content, valid until the thread asks for `name` again."""
        shape = (shape,) if isinstance(shape, int) else shape
        size = math.prod(shape)
        buffer = self.buffers.get((name, dtype))
        if buffer is None or buffer.size < size:
            buffer = self.buffers[name, dtype] = np.empty(size, dtype)
        return buffer[:size].reshape(shape)
