"""scikit-learn estimators over the plain functions: check, convert, call, store."""

from __future__ import annotations

import warnings
from functools import partial
from typing import Any, Self

import numpy as np
import sklearn.cluster
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags, check_array, check_random_state
from sklearn.utils._openmp_helpers import _openmp_effective_n_threads
from sklearn.utils._set_output import _get_output_config
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import check_is_fitted, validate_data

from gputabu import frames, lloyd, quantized, reassignment, relocation, tabu
from gputabu.backend import Devices, admit, hold, returned, to_numpy
from gputabu.fit_tasks import CallbackSupportMixin, fit_tasks, with_callbacks
from gputabu.mapped import labels_file, written
from gputabu.points import Points
from gputabu.reporting import shown
from gputabu.results import Clustering
from gputabu.sources import is_source
from gputabu.storage import Storable
from gputabu.validation import check_choice, check_int, check_n_clusters
from gputabu.watching import Callback, check_callback

#: What a move of `TabuKMeans` is.
NEIGHBOURHOODS = ("quantized", "relocation")
#: Labels that are looked at at a time.
PIECE = 1 << 20


class _Clusterer(
    Storable, CallbackSupportMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator
):
    """What a fitted clustering with centres can do."""

    n_clusters: int
    init: Any
    n_init: Any
    max_iter: int
    random_state: Any
    verbose: int
    checkpoint: Any
    progress: bool
    callback: Callback | None
    backend: str
    device: Devices

    # Where labels go is for the caller alone to say.
    __metadata_request__fit = {"labels_out": UNUSED}  # noqa: RUF012
    __metadata_request__predict = {"labels_out": UNUSED}  # noqa: RUF012

    @with_callbacks
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None, *, labels_out: Any = None) -> Self:
        """Find the clusters of `X`.

        Ctrl-C ends the search with the best clustering found so far; `stop_` then says so.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            An array of NumPy, CuPy, PyTorch, JAX or any library with DLPack, or a data frame of pandas, Polars, PyArrow
            or cuDF. float32 and float64 are clustered as they are; float16, bfloat16 and integers are widened.
            What is on a GPU stays there. Results are of the kind that came in; of frames they are arrays, NumPy's or,
            of cuDF, CuPy's, unless `set_output` asks for frames and series. The path of a file, or anything else that
            `gputabu.chunked` reads, is not brought into memory.
        y : ignored
        sample_weight : array-like of shape (n_samples,), optional
            Weights >= 0 of the samples, in any of these kinds. A sample of weight zero is labelled, and otherwise
            absent.
        labels_out : path or (n_samples,) array of int32 or int64, optional
            Where to write `labels_`: an array, such as a memory map, or a .npy file that is made.

        Returns
        -------
        self
        """
        points = self._admit(X, sample_weight, reset=True)
        k = check_n_clusters(self.n_clusters, points.n)
        verbose = check_int("verbose", int(self.verbose) if self.verbose is True else self.verbose, 0)
        restarts = self._restarts()
        out = labels_file(labels_out, points.n)
        steps = check_int("max_iter", self.max_iter, 1) * self._batches(points, k, restarts)
        tasks = fit_tasks(self, steps, {"X": X, "y": y, "metadata": {"sample_weight": sample_weight}})
        callback = self.callback if tasks is None else tasks.joined(check_callback(self.callback))
        with shown(verbose):
            found = self._search(points, k, restarts, self._seed(), callback)
        self._store(found).labels_ = (
            self._labelled(found.labels, X) if out is None else written(to_numpy(found.labels), out)
        )
        if tasks is not None:
            tasks.end()
        return self

    def predict(self, X: Any, *, labels_out: Any = None) -> Any:
        """The nearest cluster of every sample, the lowest number on ties.

        After `set_output(transform="pandas")` or `"polars"` it is a Series called "cluster", in pandas with the index
        of `X`; so are the `labels_` of fits from then on.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        labels_out : path or (n_samples,) array of int32 or int64, optional
            As for `fit`.

        Returns
        -------
        labels : array or Series of shape (n_samples,), int32
            Of the kind of `X`.

        Examples
        --------
        >>> import pandas as pd
        >>> from gputabu import KMeans
        >>> frame = pd.DataFrame({"x": [0.0, 1.0, 10.0]}, index=["a", "b", "c"])
        >>> model = KMeans(2, init=[0, 2]).set_output(transform="pandas").fit(frame)
        >>> model.predict(frame.loc[["c", "a"]])
        c    1
        a    0
        Name: cluster, dtype: int32
        """
        points = self._points(X)
        out = labels_file(labels_out, points.n)
        with hold(points, self.backend, self.device) as ops:
            labels = ops.fetch(ops.label(self._centers()[None]), 0)
        return self._labelled(returned(labels, points), X) if out is None else written(to_numpy(labels), out)

    def transform(self, X: Any) -> Any:
        """Euclidean distance of every sample to every centre.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        distances : array or, by `set_output`, data frame of shape (n_samples, n_clusters)
            Of the kind of `X`, and of its dtype; infinite where that is float32 and they are beyond its range.
        """
        points = self._points(X)
        with hold(points, self.backend, self.device) as ops:
            found = ops.distances(self._centers())
        wrapped = _get_output_config("transform", self)["dense"] != "default"  # by scikit-learn, which reads NumPy
        return to_numpy(found) if wrapped else returned(found, points)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Minus J of `X` at the centres found; higher is better.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
        y : ignored
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        score : float
        """
        with hold(self._points(X, sample_weight), self.backend, self.device) as ops:
            centers = self._centers()[None]
            return -float(ops.objective(centers, ops.label(centers))[0])

    def to_sklearn(self) -> sklearn.cluster.KMeans:
        """This clustering as a fitted `sklearn.cluster.KMeans`, for programs that know only that one.

        Centres, labels, inertia and names of features are the same. It predicts by scikit-learn's own arithmetic: a
        sample that is equally far from two centres, up to rounding, may get the other label. Like any KMeans of
        scikit-learn it wants samples in the dtype that it was fitted with. Fitted again, it goes on from these centres.

        Returns
        -------
        model : sklearn.cluster.KMeans

        Examples
        --------
        >>> from gputabu import TabuKMeans
        >>> plain = TabuKMeans(2, random_state=0).fit([[0.0], [1.0], [10.0], [11.0]]).to_sklearn()
        >>> plain.inertia_, len(set(plain.predict([[2.0], [9.0]])))
        (1.0, 2)
        """
        check_is_fitted(self)
        centers = to_numpy(self.cluster_centers_).copy()
        model = sklearn.cluster.KMeans(len(centers), init=centers.copy(), n_init=1)
        model.cluster_centers_ = centers
        if hasattr(self, "labels_"):  # which stay with Dask's workers
            model.labels_ = to_numpy(self.labels_).copy()
        model.inertia_, model.n_iter_, model.n_features_in_ = self.inertia_, self.n_iter_, self.n_features_in_
        if hasattr(self, "feature_names_in_"):
            model.feature_names_in_ = self.feature_names_in_.copy()
        model._n_features_out, model._n_threads = len(centers), _openmp_effective_n_threads()  # as its own `fit` does
        return model

    def _search(self, points: Points, k: int, restarts: int, seed: int, callback: Callback | None) -> Clustering:
        raise NotImplementedError

    def _batches(self, points: Points, k: int, restarts: int) -> int:
        """In how many batches the restarts run."""
        return len(list(tabu.batches(range(restarts), points.n)))

    def _restarts(self) -> int:
        """The number of restarts that `n_init` stands for, as in scikit-learn."""
        given = not isinstance(self.init, str)
        if isinstance(self.n_init, str) and self.n_init == "auto":
            return 1 if given or self.init == "k-means++" else 10
        restarts = check_int("n_init", self.n_init, 1)
        if given and restarts > 1:
            warnings.warn(
                f"init is an array, so n_init={restarts} restarts would be the same: only one is made.",
                RuntimeWarning,
                stacklevel=3,
            )
            return 1
        return restarts

    def _seed(self) -> int:
        seed = seed_of(self.random_state)
        if self.checkpoint is not None and seed != self.random_state:
            raise ValueError(
                f"random_state={self.random_state!r} must be an integer where there is a checkpoint, "
                "so that the fit can be continued."
            )
        return seed

    def _store(self, found: Clustering) -> Self:
        k = found.centers.shape[0]
        distinct = _count_distinct(to_numpy(found.labels), k)
        if distinct < k:
            warnings.warn(
                f"Number of distinct clusters ({distinct}) found smaller than n_clusters "
                f"({k}). Possibly due to duplicate points in X.",
                ConvergenceWarning,
                stacklevel=3,
            )
        self.labels_ = found.labels
        self.cluster_centers_ = found.centers
        self.inertia_ = found.inertia
        self.inertias_ = found.inertias
        self.n_iter_ = found.n_iter
        self.restart_ = found.restart
        self.trace_ = found.trace
        self.stop_ = found.stop
        self.backend_ = found.backend
        return self

    def _points(self, X: Any, sample_weight: Any = None) -> Points:
        check_is_fitted(self)
        return self._admit(X, sample_weight, reset=False)

    def _admit(self, X: Any, sample_weight: Any, reset: bool) -> Points:
        """Check `X` as scikit-learn does; arrays on a GPU and files, which it cannot read, as it would."""
        validate_data(self, X, reset=reset, skip_check_array=True, ensure_2d=False)  # only names
        check = partial(check_array, estimator=self, input_name="X", dtype="numeric", order="C")
        with np.errstate(invalid="ignore"):  # scikit-learn adds all values up, which may come to infinity less infinity
            points = admit(X, sample_weight, None if is_source(X) else check)
        if reset:
            self.n_features_in_ = points.d
        elif points.d != self.n_features_in_:
            raise ValueError(
                f"X has {points.d} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input."
            )
        return points

    def _labelled(self, labels: Any, X: Any) -> Any:
        """Labels in the kind that `X` came in, or as `set_output` asks for them: a Series with its index."""
        library = getattr(self, "_sklearn_output_config", {}).get("transform", "default")
        return labels if library == "default" else frames.labelled(to_numpy(labels), X, library)

    def _centers(self) -> np.ndarray:
        return to_numpy(self.cluster_centers_).astype(np.float64)

    @property
    def _n_features_out(self) -> int:
        return self.cluster_centers_.shape[0]

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags


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
        return len(list(tabu.batches(range(restarts), reassignment.width(points, k, self.n_trials))))

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


def _count_distinct(labels: np.ndarray, k: int) -> int:
    """How many of K clusters have samples; labels may be in a file, and are looked at in pieces."""
    seen = np.zeros(k, np.bool_)
    for a in range(0, len(labels), PIECE):
        seen[labels[a : a + PIECE]] = True
    return int(seen.sum())


def seed_of(random_state: Any) -> int:
    """The 64-bit seed that `random_state` stands for; an int is itself."""
    if isinstance(random_state, (int, np.integer)) and not isinstance(random_state, bool):
        return check_int("random_state", random_state, 0, 2**64 - 1)
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**63))
    try:
        return int(check_random_state(random_state).randint(2**31 - 1))
    except ValueError:
        allowed = "an integer from 0 to 2^64 - 1, a RandomState or Generator of NumPy, or None"
        raise ValueError(f"random_state={random_state!r} must be {allowed}.") from None
