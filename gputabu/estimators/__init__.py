"""scikit-learn estimators for the searches: check, convert, run, store."""

from gputabu.estimators.models import KMeans, QuantizedTabuKMeans, TabuKMeans, TabuSearchClustering
from gputabu.estimators.storage import load

__all__ = ["KMeans", "QuantizedTabuKMeans", "TabuKMeans", "TabuSearchClustering", "load"]
