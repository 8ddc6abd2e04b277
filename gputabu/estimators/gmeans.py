"""The estimator of G-means."""

from __future__ import annotations

from typing import Any, Self

from gputabu.algorithms.gmeans import GaussianSearch
from gputabu.algorithms.monitor import Callback
from gputabu.algorithms.restarts import Search
from gputabu.backend import BackendChoice, Devices
from gputabu.core.results import Clustering
from gputabu.data.points import Shape
from gputabu.estimators.base import Clusterer
from gputabu.estimators.parameters import documented


@documented
class GMeans(Clusterer):
    """G-means: K-Means that finds the number of clusters, by splitting those that do not look Gaussian.

    Use it where clusters are round and apart, and K is unknown. It finds too many clusters in integer-valued data and
    too many where clusters overlap; with many features (32, say) it also splits a few clusters that are Gaussian.
    `select_k` compares values of K by several other criteria, and is the one to take where clusters are not like that.

    Parameters
    ----------
    alpha : float, default=0.0001
        Probability that a Gaussian cluster is split, at least 1e-100 and below 0.1.
    k_max : int, optional
        Clusters at the most; as many as there are samples by default.
    min_size : int, default=25
        Clusters that weigh less are not tested; at least 8.
    max_iter : int, default=100
        Rounds of splitting at the most.
    %(execution)s

    Attributes
    ----------
    n_clusters_ : int
        Clusters found.
    %(attributes)s

    Notes
    -----
    `sample_weight` counts as repetitions: a weight of 2 is two equal samples. Iterations of `n_iter_` and `trace_` are
    rounds; `trace_.moves` counts the clusters that were split.

    References
    ----------
    Hamerly and Elkan, "Learning the k in k-means", NIPS 2003.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gputabu import GMeans
    >>> model = GMeans(random_state=0).fit(load_iris().data)
    >>> model.n_clusters_, round(model.inertia_, 5)
    (2, 152.34795)
    """

    def __init__(
        self,
        *,
        alpha: float = 0.0001,
        k_max: int | None = None,
        min_size: int = 25,
        max_iter: int = 100,
        backend: BackendChoice = "auto",
        device: Devices = None,
        random_state: Any = None,
        verbose: int = 0,
        checkpoint: Any = None,
        progress: bool = False,
        callback: Callback | None = None,
    ) -> None:
        self.alpha = alpha
        self.k_max = k_max
        self.min_size = min_size
        self.max_iter = max_iter
        self.backend = backend
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint
        self.progress = progress
        self.callback = callback

    def _search(self, shape: Shape, k: int, seed: int) -> Search:
        return GaussianSearch.checked(
            shape, alpha=self.alpha, k_max=self.k_max, min_size=self.min_size, max_iter=self.max_iter, seed=seed
        )

    def _checked(self, shape: Shape, seed: int) -> Search:
        return self._search(shape, 1, seed)

    def _restarts(self) -> int:
        return 1

    def _store(self, clustering: Clustering) -> Self:
        self.n_clusters_ = len(clustering.centers)
        return super()._store(clustering)
