"""gputabu: K-Means clusterings found by tabu search, on GPU and CPU with the same bits."""

from gputabu.backend import BackendUnavailable
from gputabu.estimators import KMeans, TabuKMeans, TabuSearchClustering
from gputabu.points import Points
from gputabu.results import Clustering, Stop, Trace
from gputabu.selection import KSelection, select_k
from gputabu.sources import chunked
from gputabu.storage import load
from gputabu.watching import Progress

__version__ = "0.1.0"

__all__ = [
    "BackendUnavailable",
    "Clustering",
    "KMeans",
    "KSelection",
    "Points",
    "Progress",
    "Stop",
    "TabuKMeans",
    "TabuSearchClustering",
    "Trace",
    "chunked",
    "load",
    "select_k",
]
