"""Estimators for points on the workers of a Dask cluster, with the same bits as in memory (extra `dask`)."""

try:
    import dask.array  # noqa: F401
    import distributed  # noqa: F401
except ImportError as error:
    raise ImportError(f"gputabu.dask needs {error.name} (pip install 'gputabu[dask]').") from None

from gputabu.dask.client import WorkerLost
from gputabu.dask.cluster import SchedulerLost
from gputabu.dask.estimators import KMeans, QuantizedTabuKMeans, TabuKMeans

__all__ = ["KMeans", "QuantizedTabuKMeans", "SchedulerLost", "TabuKMeans", "WorkerLost"]
