"""scikit-learn estimators for the searches: check, convert, run, store."""

from gputabu.estimators.evolution import TabuAutoClustering
from gputabu.estimators.fuzzy import FuzzyCMeans, TabuFuzzyCMeans
from gputabu.estimators.gmeans import GMeans
from gputabu.estimators.models import KMeans, QuantizedTabuKMeans, TabuKMeans, TabuSearchClustering
from gputabu.estimators.storage import load

__all__ = [
    "FuzzyCMeans",
    "GMeans",
    "KMeans",
    "QuantizedTabuKMeans",
    "TabuAutoClustering",
    "TabuFuzzyCMeans",
    "TabuKMeans",
    "TabuSearchClustering",
    "load",
]
