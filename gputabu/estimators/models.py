"""scikit-learn estimators over the plain functions: check, convert, call, store."""

from __future__ import annotations

from typing import Any, Self

from gputabu.algorithms import lloyd, quantized, reassignment, relocation
from gputabu.algorithms.monitor import Callback
from gputabu.algorithms.restarts import batches
from gputabu.backend import Devices
from gputabu.core.results import Clustering
from gputabu.core.validation import check_choice, check_int
from gputabu.data.points import Points
from gputabu.estimators.base import _Clusterer

#: What a move of `TabuKMeans` is.
NEIGHBOURHOODS = ("quantized", "relocation")


class TabuKMeans(_Clusterer):
    """K-Means clustering by tabu search: with quantized means (QM-TS), or by relocation of centres.

    Tabu search leaves local minima because it always moves on, also to worse solutions, and never back. The best
    solution found is then refined. In the paper's neighbourhood centres are restricted to data points, and each moves
    within its own cluster. With neighbourhood="relocation" an iteration takes one centre away and puts a data point in
    its place, wherever that is best. Take "quantized" to reproduce the paper, or for a quick result with few clusters;
    take "relocation" for the lowest J, above all with many clusters, and give it time.

    Parameters
    ----------
    n_clusters : int, default=8
    neighbourhood : {"quantized", "relocation"}, default="quantized"
        What a move is: see above.
    init : {"k-means++", "random"}, (n_clusters, n_features) centres or (n_clusters,) row numbers
        Where a restart begins. The paper begins at random points; centres that are not data points are
        moved to the nearest one. Relocation begins with K-Means from there.
    n_init : int or "auto", default="auto"
        Restarts, all run at once. "auto" is 10 for init="random" and 1 otherwise. Restart r is the same
        whatever their number.
    max_iter : int, default=400
        Iterations of the tabu search (IT_max).
    patience : int, optional
        Iterations without improvement after which a restart stops (r_max); default max_iter / 4.
    max_time : float, optional
        Seconds after which the search stops, whatever it has found; only then may two fits differ. The refinement of
        the best may take a tenth of it more.
    target : float, default=0
        J at which a restart stops.
    refine : {"lloyd", "centroid", "hartigan"}, default="lloyd"
        Refine the best solution by K-Means, or only take the centroids of its clusters. "hartigan" is K-Means and then
        single moves: samples change cluster, one at a time, until no such move lowers J. Relocation does not take
        "centroid".
    scope : {"cluster", "global"}, default="cluster"
        Whether a point that was the mean of a cluster is forbidden to that cluster, or to all. Quantized only.
    n_neighbors : int, default=1
        Neighbours evaluated per iteration; the best of them is moved to. Quantized only.
    backend : {"auto", "cuda", "numba", "numpy"}, default="auto"
        Who computes. The result is the same, bit for bit. One asked for by name never falls back.
    device : int, sequence of int or "all", optional
        Which GPU, or several that share the rows; by default the current one, or the one that `X` is on.
    random_state : int, RandomState or None, default=None
    verbose : int, default=0
        1 logs the course of the fit, 2 every iteration.
    checkpoint : path, optional
        A file in which the state of a fit is kept, every half minute. Where there is one, the fit goes on from it, with
        the bits of a fit that was never stopped; it must be of the same samples and parameters, and `random_state` an
        integer.
    progress : bool, default=False
        Show a progress bar on stderr, or a line every few seconds where that is no terminal.
    callback : function, optional
        Called with a `Progress` after every iteration. It ends the fit by returning True; `stop_` then says so.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,), int32
    cluster_centers_ : ndarray of shape (n_clusters, n_features)
    inertia_ : float
        J, the sum of squared distances to the centres, weighted by `sample_weight`.
    center_indices_ : ndarray of shape (n_clusters,), or None
        The quantized means that the centres were refined from: rows of `X`. Relocation has none.
    inertias_ : ndarray of shape (n_restarts,)
        J of every restart.
    n_iter_ : int
        Iterations of the restart that won.
    restart_ : int
        Number of the restart that won.
    trace_ : Trace
        J, best J and moves per restart and iteration.
    stop_ : Stop
        Why the search stopped.
    backend_ : str
        What computed it.

    References
    ----------
    Gyamfi, Brusey and Hunt, "K-Means Clustering using Tabu Search with Quantized Means", 2016.

    Examples
    --------
    >>> from sklearn.datasets import load_iris
    >>> from gputabu import TabuKMeans
    >>> model = TabuKMeans(3, random_state=0).fit(load_iris().data)
    >>> round(model.inertia_, 2), model.predict([[5.1, 3.5, 1.4, 0.2]]).shape
    (78.85, (1,))
    >>> far = TabuKMeans(30, neighbourhood="relocation", max_time=5.0, random_state=0).fit(load_iris().data)
    >>> far.inertia_ < TabuKMeans(30, random_state=0).fit(load_iris().data).inertia_
    True
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        neighbourhood: str = "quantized",
        init: Any = "k-means++",
        n_init: Any = "auto",
        max_iter: int = 400,
        patience: int | None = None,
        max_time: float | None = None,
        target: float = 0.0,
        refine: str = "lloyd",
        scope: str = "cluster",
        n_neighbors: int = 1,
        backend: str = "auto",
        device: Devices = None,
        random_state: Any = None,
        verbose: int = 0,
        checkpoint: Any = None,
        progress: bool = False,
        callback: Callback | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.neighbourhood = neighbourhood
        self.init = init
        self.n_init = n_init
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

    def _search(self, points: Points, k: int, restarts: int, seed: int, callback: Callback | None) -> Clustering:
        both = {
            "init": self.init,
            "restarts": restarts,
            "max_iter": self.max_iter,
            "patience": self.patience,
            "refine": self.refine,
            "seed": seed,
            "max_time": self.max_time,
            "target": self.target,
            "backend": self.backend,
            "device": self.device,
            "checkpoint": self.checkpoint,
            "progress": self.progress,
            "callback": callback,
        }
        if check_choice("neighbourhood", self.neighbourhood, NEIGHBOURHOODS) == "relocation":
            return relocation.search(points, k, **both)
        return quantized.search(points, k, scope=self.scope, n_neighbors=self.n_neighbors, **both)

    def _store(self, found: Clustering) -> Self:
        self.center_indices_ = found.center_indices
        return super()._store(found)


class TabuSearchClustering(_Clusterer):
    """Clustering by tabu search over labellings (TSC), the classic that QM-TS is measured against.

    Each iteration tries random changes of the labels of some samples and moves to the best that is not among the
    latest labellings. It needs many more iterations than `TabuKMeans` and ends higher; use it to compare.

    Parameters
    ----------
    n_clusters : int, default=8
    init : "random" or (n_samples,) labels from 0 to n_clusters - 1, default="random"
        The labelling that a restart begins with.
    n_init : int or "auto", default="auto"
        Restarts, all run at once. "auto" is 10 for init="random" and 1 otherwise. Restart r is the same
        whatever their number; from labels that are given, restarts take different ways.
    max_iter : int, default=1000
        Iterations of the tabu search (IT_max), all of which are made.
    n_trials : int, default=20
        Trial labellings per iteration (NTS).
    tenure : int, default=15
        For how many accepted labellings one stays forbidden (MTLS).
    keep : float, default=0.95
        Probability that a sample keeps its label in a trial (P), at least 0 and below 1.
    refine : {"lloyd", "hartigan", None}, default="lloyd"
        Refine the best labelling by K-Means, by K-Means and then single moves (samples change cluster, one at a time,
        until no such move lowers J), or return it as it was found, as in the paper. Then a sample need not be
        in the cluster whose centre is nearest, so that `labels_` differ from `predict(X)`, and `inertia_` is J of
        `labels_`, above `-score(X)`.
    backend : {"auto", "cuda", "numba", "numpy"}, default="auto"
        Who computes. The result is the same, bit for bit. One asked for by name never falls back.
    device : int, sequence of int or "all", optional
        Which GPU, or several that share the rows; by default the current one, or the one that `X` is on.
    random_state : int, RandomState or None, default=None
    verbose : int, default=0
        1 logs the course of the fit, 2 every iteration.
    checkpoint : path, optional
        A file in which the state of a fit is kept, every half minute. Where there is one, the fit goes on from it, with
        the bits of a fit that was never stopped; it must be of the same samples and parameters, and `random_state` an
        integer.
    progress : bool, default=False
        Show a progress bar on stderr, or a line every few seconds where that is no terminal.
    callback : function, optional
        Called with a `Progress` after every iteration. It ends the fit by returning True; `stop_` then says so.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,), int32
    cluster_centers_ : ndarray of shape (n_clusters, n_features)
        Centroids of the clusters. One without samples, which refine=None may leave, has the mean of all.
    inertia_ : float
        J, the sum of squared distances to the centres of `labels_`, weighted by `sample_weight`.
    inertias_ : ndarray of shape (n_restarts,)
        J of every restart.
    n_iter_ : int
        Iterations of the restart that won.
    restart_ : int
        Number of the restart that won.
    trace_ : Trace
        J, best J and number of samples that changed cluster, per restart and iteration.
    stop_ : Stop
        Why the search stopped.
    backend_ : str
        What computed it.

    References
    ----------
    Al-Sultan, "A tabu search approach to the clustering problem", Pattern Recognition 28, 1995.

    Examples
    --------
    >>> from gputabu import TabuSearchClustering
    >>> model = TabuSearchClustering(2, max_iter=50, random_state=0).fit([[0.0], [1.0], [10.0], [11.0]])
    >>> model.inertia_, model.predict([[2.0], [9.0]]).tolist() == model.labels_[[0, 2]].tolist()
    (1.0, True)
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        init: Any = "random",
        n_init: Any = "auto",
        max_iter: int = 1000,
        n_trials: int = 20,
        tenure: int = 15,
        keep: float = 0.95,
        refine: str | None = "lloyd",
        backend: str = "auto",
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
        self.refine = refine
        self.backend = backend
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint
        self.progress = progress
        self.callback = callback

    def _search(self, points: Points, k: int, restarts: int, seed: int, callback: Callback | None) -> Clustering:
        return reassignment.search(
            points,
            k,
            init=self.init,
            restarts=restarts,
            max_iter=self.max_iter,
            n_trials=self.n_trials,
            tenure=self.tenure,
            keep=self.keep,
            refine=self.refine,
            seed=seed,
            backend=self.backend,
            device=self.device,
            checkpoint=self.checkpoint,
            progress=self.progress,
            callback=callback,
        )

    def _batches(self, points: Points, k: int, restarts: int) -> int:
        return len(list(batches(range(restarts), reassignment.width(points, k, self.n_trials))))

    def _restarts(self) -> int:
        """As for the others, but restarts from labels that are given are not the same."""
        if isinstance(self.n_init, str) and self.n_init == "auto":
            return 10 if isinstance(self.init, str) else 1
        return check_int("n_init", self.n_init, 1)


class KMeans(_Clusterer):
    """K-Means by Lloyd's algorithm, on every backend with the same bits.

    Parameters
    ----------
    n_clusters : int, default=8
    init : {"k-means++", "random"}, (n_clusters, n_features) centres or (n_clusters,) row numbers
        K-Means++ is the greedy variant with 2 + ln(n_clusters) draws per centre, as in scikit-learn.
    n_init : int or "auto", default="auto"
        Restarts, all run at once. "auto" is 10 for init="random" and 1 otherwise.
    max_iter : int, default=300
    tol : float, default=0
        Stop when the centres together move less than `tol` times the mean variance of the features; 0
        stops only when no sample changes cluster.
    refine : {None, "hartigan"}, default=None
        "hartigan" goes on where K-Means ended: samples move to another cluster, one at a time, until no such move
        lowers J. `n_iter_` and `trace_` are those of K-Means.
    backend : {"auto", "cuda", "numba", "numpy"}, default="auto"
        Who computes. The result is the same, bit for bit. One asked for by name never falls back.
    device : int, sequence of int or "all", optional
        Which GPU, or several that share the rows; by default the current one, or the one that `X` is on.
    random_state : int, RandomState or None, default=None
    verbose : int, default=0
        1 logs the course of the fit, 2 every iteration.
    checkpoint : path, optional
        A file in which the state of a fit is kept, every half minute. Where there is one, the fit goes on from it, with
        the bits of a fit that was never stopped; it must be of the same samples and parameters, and `random_state` an
        integer.
    progress : bool, default=False
        Show a progress bar on stderr, or a line every few seconds where that is no terminal.
    callback : function, optional
        Called with a `Progress` after every iteration. It ends the fit by returning True; `stop_` then says so.

    Attributes
    ----------
    labels_ : ndarray of shape (n_samples,), int32
    cluster_centers_ : ndarray of shape (n_clusters, n_features)
    inertia_ : float
        J, the sum of squared distances to the centres, weighted by `sample_weight`.
    inertias_ : ndarray of shape (n_restarts,)
        J of every restart.
    n_iter_ : int
        Iterations of the restart that won.
    restart_ : int
        Number of the restart that won.
    trace_ : Trace
        J, best J and number of samples that changed cluster, per restart and iteration.
    stop_ : Stop
        Why the search stopped.
    backend_ : str
        What computed it.

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
        backend: str = "auto",
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
        self.backend = backend
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint
        self.progress = progress
        self.callback = callback

    def _search(self, points: Points, k: int, restarts: int, seed: int, callback: Callback | None) -> Clustering:
        return lloyd.run(
            points,
            k,
            init=self.init,
            restarts=restarts,
            max_iter=self.max_iter,
            tol=self.tol,
            refine=self.refine,
            seed=seed,
            backend=self.backend,
            device=self.device,
            checkpoint=self.checkpoint,
            progress=self.progress,
            callback=callback,
        )
