"""The estimators. Each has the parameters of one search, with scikit-learn's interface (`base`)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Self

from sklearn.utils._param_validation import StrOptions

from gputabu.algorithms.lloyd import LloydSearch
from gputabu.algorithms.monitor import Callback
from gputabu.algorithms.quantized import QuantizedSearch
from gputabu.algorithms.reassignment import ReassignmentSearch
from gputabu.algorithms.relocation import RelocationSearch
from gputabu.algorithms.restarts import Search
from gputabu.backend import BackendChoice, Devices
from gputabu.core.results import Clustering
from gputabu.core.validation import check_int
from gputabu.data.points import Shape
from gputabu.estimators.base import Clusterer
from gputabu.estimators.parameters import CONSTRAINTS, documented


@documented
class TabuKMeans(Clusterer):
    """K-Means clustering by a tabu search that relocates centres: what most people should use.

    An iteration removes one centre and puts a data point in its place, by the best such move, even if J rises. Recent
    moves may not be undone, so the search leaves the local minima in which K-Means gets stuck. The best solution is
    then refined by K-Means and by moves of single samples. For the lowest J give it time (`max_time`), above all with
    many clusters.

    Parameters
    ----------
    n_clusters : int, default=8
    init : {"k-means++", "random"}, function, (n_clusters, n_features) centres or (n_clusters,) row numbers
        Start of a restart. K-Means from there gives the first solution of the search. A function is called for each
        restart as `init(X, n_clusters, random_state=...)` and returns centres.
    n_init : int or "auto", default="auto"
        Restarts, all run at once. "auto" is 10 for init="random" or a function, and 1 otherwise. Restart r is the same
        whatever their number.
    effort : float, optional
        Work of the search: passes over the samples, in multiples of those of the K-Means that it begins with. The
        default is 10, and no limit where `max_iter` or `max_time` is given.
    max_iter : int, optional
        Iterations of the tabu search: moves of one centre each.
    patience : int, optional
        Iterations without improvement after which a restart stops.
    %(max_time)s
    %(target)s
    candidates : int, default=7
        Samples drawn per iteration as candidates for a centre.
    tenure : int, optional
        Number of moves for which a new centre may not be moved again; by default half of `n_clusters`.
    go_back : int, default=60
        Iterations without a better solution after which the search returns to the best recent one.
    returns : int, default=20
        Number of returns to the same solution after which the search gives it up.
    refine : {"hartigan", "lloyd"}, default="hartigan"
        Refine the best solution by K-Means ("lloyd"), or by K-Means and then single moves: samples change cluster, one
        at a time, until no such move lowers J.
    %(bounds)s
    %(execution)s

    Attributes
    ----------
    %(attributes)s

    See Also
    --------
    QuantizedTabuKMeans : The paper's search, quick with few clusters.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gputabu import KMeans, TabuKMeans
    >>> X = load_iris().data
    >>> model = TabuKMeans(3, random_state=0).fit(X)
    >>> round(model.inertia_, 2), model.predict([[5.1, 3.5, 1.4, 0.2]]).shape
    (78.85, (1,))
    >>> TabuKMeans(30, random_state=0).fit(X).inertia_ < KMeans(30, n_init=10, random_state=0).fit(X).inertia_
    True
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: Any = "k-means++",
        n_init: Any = "auto",
        effort: float | None = None,
        max_iter: int | None = None,
        patience: int | None = None,
        max_time: float | None = None,
        target: float = 0.0,
        candidates: int = 7,
        tenure: int | None = None,
        go_back: int = 60,
        returns: int = 20,
        refine: str = "hartigan",
        min_size: float | None = None,
        max_size: float | None = None,
        size: str = "count",
        backend: BackendChoice = "auto",
        device: Devices = None,
        random_state: Any = None,
        verbose: int = 0,
        checkpoint: Any = None,
        progress: bool = False,
        callback: Callback | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.init = init
        self.n_init = n_init
        self.effort = effort
        self.max_iter = max_iter
        self.patience = patience
        self.max_time = max_time
        self.target = target
        self.candidates = candidates
        self.tenure = tenure
        self.go_back = go_back
        self.returns = returns
        self.refine = refine
        self.min_size = min_size
        self.max_size = max_size
        self.size = size
        self.backend = backend
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint
        self.progress = progress
        self.callback = callback

    def _search(self, shape: Shape, k: int, seed: int) -> Search:
        return RelocationSearch.checked(
            shape, k, init=self.init, effort=self.effort, max_iter=self.max_iter, patience=self.patience,
            target=self.target, candidates=self.candidates, tenure=self.tenure, go_back=self.go_back,
            returns=self.returns, refine=self.refine, seed=seed,
        ).within(self.min_size, self.max_size, self.size)  # fmt: skip


@documented
class QuantizedTabuKMeans(Clusterer):
    """K-Means clustering by tabu search with quantized means (QM-TS): the paper's algorithm, with its settings.

    Centres are restricted to data points, the quantized means. An iteration moves each to the best sample of its own
    cluster that was not its mean before, even if J rises. The best solution is then refined by K-Means. Use it to
    reproduce the paper, or for a quick result with few clusters; `TabuKMeans` finds a lower J with many.

    Parameters
    ----------
    n_clusters : int, default=8
    init : {"random", "k-means++"}, function, (n_clusters, n_features) centres or (n_clusters,) row numbers
        Start of a restart. Centres that are not data points are moved to the nearest one. A function is called for
        each restart as `init(X, n_clusters, random_state=...)` and returns centres.
    n_init : int or "auto", default="auto"
        Restarts, all run at once. "auto" is 10 for init="random" or a function, and 1 otherwise. Restart r is the same
        whatever their number.
    effort : float, optional
        Work of a restart, in multiples of the paper's limits: 400 iterations, 100 without improvement. 1 by default.
    max_iter : int, optional
        Iterations of the tabu search (IT_max), where `effort` is not to decide.
    patience : int, optional
        Iterations without improvement after which a restart stops (r_max), 100 by default.
    %(max_time)s
        Where it is the only limit, more restarts follow until then.
    %(target)s
    refine : {"lloyd", "centroid", "hartigan"}, default="lloyd"
        Refine the best solution by K-Means, or only take the centroids of its clusters. "hartigan" is K-Means, then
        single moves: samples change cluster, one at a time, until no such move lowers J.
    scope : {"cluster", "global"}, default="cluster"
        Whether a former mean of a cluster is forbidden as a mean of that cluster, or of all clusters.
    n_neighbors : int, default=1
        Neighbours evaluated per iteration; the best of them is moved to.
    %(execution)s

    Attributes
    ----------
    %(attributes)s
    center_indices_ : ndarray of shape (n_clusters,)
        The quantized means from which the centres were refined: rows of `X`.

    See Also
    --------
    TabuKMeans : A search that finds better clusterings, above all with many clusters.

    References
    ----------
    Gyamfi, Brusey and Hunt, "K-Means Clustering using Tabu Search with Quantized Means", 2016.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gputabu import QuantizedTabuKMeans
    >>> X = load_iris().data
    >>> model = QuantizedTabuKMeans(3, random_state=0).fit(X)
    >>> round(model.inertia_, 2), X[model.center_indices_].shape
    (78.85, (3, 4))
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: Any = "random",
        n_init: Any = "auto",
        effort: float | None = None,
        max_iter: int | None = None,
        patience: int | None = None,
        max_time: float | None = None,
        target: float = 0.0,
        refine: str = "lloyd",
        scope: str = "cluster",
        n_neighbors: int = 1,
        backend: BackendChoice = "auto",
        device: Devices = None,
        random_state: Any = None,
        verbose: int = 0,
        checkpoint: Any = None,
        progress: bool = False,
        callback: Callback | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.init = init
        self.n_init = n_init
        self.effort = effort
        self.max_iter = max_iter
        self.patience = patience
        self.max_time = max_time
        self.target = target
        self.refine = refine
        self.scope = scope
        self.n_neighbors = n_neighbors
        self.backend = backend
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint
        self.progress = progress
        self.callback = callback

    def _search(self, shape: Shape, k: int, seed: int) -> Search:
        patience = 100 if self.patience is None and self.max_iter is not None else self.patience
        return QuantizedSearch.checked(
            shape, k, init=self.init, effort=self.effort, max_iter=self.max_iter, patience=patience,
            target=self.target, refine=self.refine, scope=self.scope, n_neighbors=self.n_neighbors, seed=seed,
        )  # fmt: skip

    def _store(self, clustering: Clustering) -> Self:
        self.center_indices_ = clustering.center_indices
        return super()._store(clustering)


@documented
class TabuSearchClustering(Clusterer):
    """Clustering by tabu search over labellings (TSC), the classic method that QM-TS is compared with.

    Each iteration tries random changes of the labels of some samples and moves to the best labelling that is not tabu.
    As it was published it needs many more iterations than `QuantizedTabuKMeans` and ends with a higher J. With
    `improve="kmeans"` it finds very good clusterings of small data in few iterations.

    Parameters
    ----------
    n_clusters : int, default=8
    init : "random" or (n_samples,) labels from 0 to n_clusters - 1, default="random"
        The first labelling of a restart.
    n_init : int or "auto", default="auto"
        Restarts, all run at once. "auto" is 10 for init="random" or a function, and 1 otherwise. Restart r is the same
        whatever their number. Restarts from given labels differ, too.
    max_iter : int, optional
        Iterations of the tabu search (IT_max), with `packing` of each level. All of them are made. By default 1000,
        with `improve` 60, with `packing` 100, with both 10.
    n_trials : int, default=20
        Trial labellings per iteration (NTS).
    tenure : int, default=15
        Number of accepted labellings for which one stays tabu (MTLS).
    keep : float, default=0.95
        Probability that a sample keeps its label in a trial (P), at least 0 and below 1.
    modes : sequence of {"threshold", "mutation", "divide"}, default=("threshold",)
        How trials are made, one mode per iteration, in turn. "threshold": samples take any other label. "mutation":
        labels of near clusters are likelier. "divide": a random cluster joins its nearest, and another is split.
    improve : {None, "kmeans", "hartigan"}, default=None
        Improve every trial before it is judged: by a step of K-Means, or by one and a sweep of single moves.
    packing : bool, default=False
        Let samples that are close together move as one at first, and release them step by step.
    refine : {"lloyd", "hartigan", None}, default="lloyd"
        Refine the best labelling by K-Means, by K-Means and then single moves (samples change cluster, one at a time,
        until no such move lowers J), or return it unchanged, as in the paper. Then a sample need not be in the cluster
        with the nearest centre: `labels_` differ from `predict(X)`, and `inertia_` is J of `labels_`, which is above
        `-score(X)`.
    %(execution)s

    Attributes
    ----------
    %(attributes)s

    Notes
    -----
    With `refine=None` a cluster may have no samples. Its centre is then the mean of all samples.

    References
    ----------
    Al-Sultan, "A tabu search approach to the clustering problem", Pattern Recognition 28, 1995.

    Modes and improvement after Liu et al., "A tabu search approach for the minimum sum-of-squares clustering problem",
    Information Sciences 178, 2008; packing after Sung and Jin, "A tabu-search-based heuristic for clustering", Pattern
    Recognition 33, 2000.

    Examples
    --------
    >>> from gputabu import TabuSearchClustering
    >>> model = TabuSearchClustering(2, max_iter=50, random_state=0).fit([[0.0], [1.0], [10.0], [11.0]])
    >>> model.inertia_, model.predict([[2.0], [9.0]]).tolist() == model.labels_[[0, 2]].tolist()
    (1.0, True)
    """

    _constraints = CONSTRAINTS | {"init": [StrOptions({"random"}), "array-like"]}

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: Any = "random",
        n_init: Any = "auto",
        max_iter: int | None = None,
        n_trials: int = 20,
        tenure: int = 15,
        keep: float = 0.95,
        modes: Sequence[str] = ("threshold",),
        improve: str | None = None,
        packing: bool = False,
        refine: str | None = "lloyd",
        backend: BackendChoice = "auto",
        device: Devices = None,
        random_state: Any = None,
        verbose: int = 0,
        checkpoint: Any = None,
        progress: bool = False,
        callback: Callback | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.n_trials = n_trials
        self.tenure = tenure
        self.keep = keep
        self.modes = modes
        self.improve = improve
        self.packing = packing
        self.refine = refine
        self.backend = backend
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint
        self.progress = progress
        self.callback = callback

    def _search(self, shape: Shape, k: int, seed: int) -> Search:
        return ReassignmentSearch.checked(
            shape, k, init=self.init, max_iter=self.max_iter, n_trials=self.n_trials, tenure=self.tenure,
            keep=self.keep, modes=self.modes, improve=self.improve, packing=self.packing, refine=self.refine, seed=seed,
        )  # fmt: skip

    def _restarts(self) -> int:
        """As for the other estimators, but restarts from given labels differ."""
        if isinstance(self.n_init, str) and self.n_init == "auto":
            return 10 if isinstance(self.init, str) else 1
        return check_int("n_init", self.n_init, 1)


@documented
class KMeans(Clusterer):
    """K-Means by Lloyd's algorithm, with the same bits on every backend.

    Parameters
    ----------
    n_clusters : int, default=8
    init : {"k-means++", "random"}, function, (n_clusters, n_features) centres or (n_clusters,) row numbers
        K-Means++ is the greedy variant with 2 + ln(n_clusters) draws per centre, as in scikit-learn. A function is
        called for each restart as `init(X, n_clusters, random_state=...)` and returns centres.
    n_init : int or "auto", default="auto"
        Restarts, all run at once. "auto" is 10 for init="random" or a function, and 1 otherwise.
    max_iter : int, default=300
    tol : float, default=0
        Stop when the centres together move less than `tol` times the mean variance of the features; 0
        stops only when no sample changes cluster.
    refine : {None, "hartigan"}, default=None
        "hartigan" continues after K-Means: samples move to another cluster, one at a time, until no such move
        lowers J. `n_iter_` and `trace_` are those of K-Means.
    %(bounds)s
    %(execution)s

    Attributes
    ----------
    %(attributes)s

    Examples
    --------
    >>> from gputabu import KMeans
    >>> model = KMeans(2, random_state=0).fit([[0.0], [1.0], [10.0], [11.0]])
    >>> sorted(model.cluster_centers_.ravel().tolist())
    [0.5, 10.5]
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: Any = "k-means++",
        n_init: Any = "auto",
        max_iter: int = 300,
        tol: float = 0.0,
        refine: str | None = None,
        min_size: float | None = None,
        max_size: float | None = None,
        size: str = "count",
        backend: BackendChoice = "auto",
        device: Devices = None,
        random_state: Any = None,
        verbose: int = 0,
        checkpoint: Any = None,
        progress: bool = False,
        callback: Callback | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.refine = refine
        self.min_size = min_size
        self.max_size = max_size
        self.size = size
        self.backend = backend
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint
        self.progress = progress
        self.callback = callback

    def _search(self, shape: Shape, k: int, seed: int) -> Search:
        return LloydSearch.checked(
            shape, k, init=self.init, max_iter=self.max_iter, tol=self.tol, refine=self.refine, seed=seed
        ).within(self.min_size, self.max_size, self.size)
