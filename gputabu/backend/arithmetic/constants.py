"""TODO."""

from __future__ import annotations

#: Two values of J closer than this, relatively, differ by the rounding of the centroids if by anything.
NOISE = 2.0**-40
