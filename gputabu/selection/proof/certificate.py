"""What a proof returns: a lower bound on J of all clusterings, beside J of the one that was found."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import ROUND_CEILING, ROUND_FLOOR, Context
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Certificate:
    """How far J of a clustering can be from the best possible.

    Attributes
    ----------
    lower_bound : float
        No clustering of these points into `n_clusters` clusters has a lower J. This holds in exact arithmetic.
    inertia : float
        J of the clustering, of `labels` if they are not None, with the centroids as centres.
    gap : float
        (inertia − lower_bound) / inertia, at least 0; 0.01 is one percent. The best possible J is lower than
        `inertia` by at most this share.
    optimal : bool
        Whether the gap is at most `tolerance`.
    tolerance : float
    n_clusters : int
    method : str
        How the bound was computed.
    seconds : float
    stop : str
        Why it ended.
    history : (T, 3) float64
        Seconds, bound and J whenever a bound was computed.
    labels : (N,) int64 or None
        A better clustering, if the proof came upon one.
    """

    lower_bound: float
    inertia: float
    gap: float
    optimal: bool
    tolerance: float
    n_clusters: int
    method: str
    seconds: float
    stop: str
    history: np.ndarray
    labels: np.ndarray | None

    def __str__(self) -> str:
        found = "" if self.labels is None else " It is better than the one given: see labels."
        which = "this one" if self.labels is None else "one that was found on the way"
        if self.inertia == 0:
            return f"Proven optimal: J of {which} is 0.{found}" if found else "Proven optimal: J is 0."
        how = f"{self.method}, {self.seconds:.1f} s"
        if self.lower_bound == 0:
            return f"Nothing was proven ({how}).{found}"
        gap = f"{rounded(100 * self.gap, 2, ROUND_CEILING)} %"
        bound = rounded(self.lower_bound, 10, ROUND_FLOOR)
        said = f"At most {gap} better is possible"
        if self.optimal:
            said = f"Proven optimal to {100 * self.tolerance:.2g} %"
        return (
            f"{said}: no clustering into {self.n_clusters} has J below {bound}, and {which} has {self.inertia:.10g} "
            f"(gap {gap}; {how}).{found}"
        )

    def __repr__(self) -> str:
        return f"<Certificate: {self}>"

    def plain(self) -> dict[str, Any]:
        """The numbers, for JSON."""
        names = "lower_bound", "inertia", "gap", "optimal", "tolerance", "n_clusters", "method", "seconds", "stop"
        return {name: getattr(self, name) for name in names} | {"better_clustering_found": self.labels is not None}

    def plot(self, ax: Any = None) -> Any:
        """Draw bound and J over time; see `gputabu.plotting.proof`."""
        from gputabu import plotting

        return plotting.proof(self, ax)


def rounded(value: float, digits: int, way: str) -> str:
    """`value` with so many digits, rounded up or down: what is printed is as true as what was proven."""
    return f"{float(Context(prec=digits, rounding=way).create_decimal(value)):.{digits}g}"
