"""gputabu: K-Means clusterings found by tabu search, on GPU and CPU with the same bits.

Names are imported when they are first used: scikit-learn takes a second, which neither `gputabu --help` nor a program
that only reads a table should wait for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gputabu.algorithms import fuzzy, gmeans, lloyd, quantized, reassignment, relocation
    from gputabu.algorithms.monitor import Progress
    from gputabu.backend import BackendUnavailable
    from gputabu.core.results import Clustering, Stop, Trace
    from gputabu.data import datasets
    from gputabu.data.points import Points
    from gputabu.data.sources import chunked
    from gputabu.estimators import (
        FuzzyCMeans,
        GMeans,
        KMeans,
        QuantizedTabuKMeans,
        TabuAutoClustering,
        TabuFuzzyCMeans,
        TabuKMeans,
        TabuSearchClustering,
        load,
    )
    from gputabu.selection import evolution
    from gputabu.selection.proof.certificate import Certificate
    from gputabu.selection.proof.certify import certify
    from gputabu.selection.select_k import KSelection, select_k

__version__ = "0.1.0"

#: The modules that public names are in; those of whole rooms are modules themselves.
_PLACES = {
    "algorithms": ("fuzzy", "gmeans", "lloyd", "quantized", "reassignment", "relocation"),
    "algorithms.monitor": ("Progress",),
    "backend": ("BackendUnavailable",),
    "core.results": ("Clustering", "Stop", "Trace"),
    "data": ("datasets",),
    "data.points": ("Points",),
    "data.sources": ("chunked",),
    "estimators": (
        "FuzzyCMeans",
        "GMeans",
        "KMeans",
        "QuantizedTabuKMeans",
        "TabuAutoClustering",
        "TabuFuzzyCMeans",
        "TabuKMeans",
        "TabuSearchClustering",
        "load",
    ),
    "selection": ("evolution",),
    "selection.proof.certificate": ("Certificate",),
    "selection.proof.certify": ("certify",),
    "selection.select_k": ("KSelection", "select_k"),
}
_PLACE_OF = {name: place for place, names in _PLACES.items() for name in names}

__all__ = [
    "BackendUnavailable",
    "Certificate",
    "Clustering",
    "FuzzyCMeans",
    "GMeans",
    "KMeans",
    "KSelection",
    "Points",
    "Progress",
    "QuantizedTabuKMeans",
    "Stop",
    "TabuAutoClustering",
    "TabuFuzzyCMeans",
    "TabuKMeans",
    "TabuSearchClustering",
    "Trace",
    "certify",
    "chunked",
    "datasets",
    "evolution",
    "fuzzy",
    "gmeans",
    "lloyd",
    "load",
    "quantized",
    "reassignment",
    "relocation",
    "select_k",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACE_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    place = f"{__name__}.{_PLACE_OF[name]}"
    module = place in [f"{__name__}.{room}" for room in ("algorithms", "data", "selection")]
    globals()[name] = value = import_module(f"{place}.{name}") if module else getattr(import_module(place), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
