"""The estimator of the evolution in which K is a variable."""

from __future__ import annotations

from typing import Any, Self

from gputabu.algorithms.monitor import Callback
from gputabu.algorithms.restarts import Search
from gputabu.backend import BackendChoice, Devices
from gputabu.core.results import Clustering
from gputabu.data.points import Shape
from gputabu.estimators.base import Clusterer
from gputabu.estimators.parameters import documented
from gputabu.selection.evolution import EvolutionSearch


@documented
class TabuAutoClustering(Clusterer):
    """Clustering that finds the number of clusters, by an evolution with a tabu memory.

    Clusterings of different K live side by side, change, mix, and compete by a validity index. Use it where you trust
    one of these indices; `select_k` computes several for every K, and shows how sure they are.

    Parameters
    ----------
    index : {"pbm", "davies_bouldin", "calinski_harabasz", "bic"}, default="pbm"
        What decides which clustering is better.
    k_min : int, default=2
        Clusters at the least; at least 2.
    k_max : int, optional
        Clusters at the most; by default the root of the number of samples, rounded down.
    population : int, default=10
        Individuals that live at a time; at least 2.
    max_iter : int, default=40
        Generations; all of them are made.
    %(execution)s

    Attributes
    ----------
    n_clusters_ : int
        Clusters found.
    validity_ : float
        The index of what was found.
    %(attributes)s

    Notes
    -----
    `trace_` has the index after every generation, not J: of the best child, and of the best so far. `trace_.moves` has
    how many children lived on.

    References
    ----------
    Pan and Cheng, "Evolution-based tabu search approach to automatic clustering", IEEE Transactions on Systems, Man,
    and Cybernetics C 37, 2007.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gputabu import TabuAutoClustering
    >>> model = TabuAutoClustering(random_state=0).fit(load_iris().data)
    >>> model.n_clusters_, round(model.validity_, 4)
    (3, 25.1754)
    """

    def __init__(
        self,
        *,
        index: str = "pbm",
        k_min: int = 2,
        k_max: int | None = None,
        population: int = 10,
        max_iter: int = 40,
        backend: BackendChoice = "auto",
        device: Devices = None,
        random_state: Any = None,
        verbose: int = 0,
        checkpoint: Any = None,
        progress: bool = False,
        callback: Callback | None = None,
    ) -> None:
        self.index = index
        self.k_min = k_min
        self.k_max = k_max
        self.population = population
        self.max_iter = max_iter
        self.backend = backend
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint
        self.progress = progress
        self.callback = callback

    def _search(self, shape: Shape, k: int, seed: int) -> Search:
        return EvolutionSearch.checked(
            shape, index=self.index, k_min=self.k_min, k_max=self.k_max, population=self.population,
            max_iter=self.max_iter, seed=seed,
        )  # fmt: skip

    def _checked(self, shape: Shape, seed: int) -> Search:
        return self._search(shape, 1, seed)

    def _restarts(self) -> int:
        return 1

    def _store(self, clustering: Clustering) -> Self:
        self.n_clusters_, self.validity_ = len(clustering.centers), clustering.validity
        return super()._store(clustering)
