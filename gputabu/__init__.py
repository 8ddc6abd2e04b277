"""gputabu: K-Means clusterings found by tabu search, on GPU and CPU with the same bits."""

from gputabu.algorithms import lloyd, quantized, reassignment, relocation
from gputabu.algorithms.monitor import Progress
from gputabu.backend import BackendUnavailable
from gputabu.core.results import Clustering, Stop, Trace
from gputabu.data import datasets
from gputabu.data.points import Points
from gputabu.data.sources import chunked
from gputabu.estimators import KMeans, QuantizedTabuKMeans, TabuKMeans, TabuSearchClustering, load
from gputabu.selection.proof.certificate import Certificate
from gputabu.selection.proof.certify import certify
from gputabu.selection.select_k import KSelection, select_k

__version__ = "0.1.0"

__all__ = [
    "BackendUnavailable",
    "Certificate",
    "Clustering",
    "KMeans",
    "KSelection",
    "Points",
    "Progress",
    "QuantizedTabuKMeans",
    "Stop",
    "TabuKMeans",
    "TabuSearchClustering",
    "Trace",
    "certify",
    "chunked",
    "datasets",
    "lloyd",
    "load",
    "quantized",
    "reassignment",
    "relocation",
    "select_k",
]
