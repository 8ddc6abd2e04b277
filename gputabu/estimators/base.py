"""The base class of the estimators: check, convert, run the search, store, predict."""

from __future__ import annotations

import warnings
from abc import ABC, abstractmethod
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, ClusterMixin, TransformerMixin
from sklearn.exceptions import ConvergenceWarning
from sklearn.utils import Tags, check_array, check_random_state
from sklearn.utils._openmp_helpers import _openmp_effective_n_threads
from sklearn.utils._set_output import _get_output_config
from sklearn.utils.metadata_routing import UNUSED
from sklearn.utils.validation import check_is_fitted, validate_data

from gputabu.algorithms.monitor import Callback, Monitor, check_callback
from gputabu.algorithms.restarts import Search, batches, run_restarts
from gputabu.backend import BackendChoice, Devices, as_caller_array, as_points, open_backend, to_numpy
from gputabu.backend.compiled_code import LABELS, cheaper_pass_without, remember
from gputabu.backend.tuning import Tuning
from gputabu.core.log import shown
from gputabu.core.results import Clustering
from gputabu.core.validation import check_int, check_n_clusters
from gputabu.data import frames
from gputabu.data.memmaps import labels_file, written
from gputabu.data.points import Points, Shape
from gputabu.data.sources import is_source
from gputabu.estimators.parameters import CONSTRAINTS
from gputabu.estimators.sklearn_callbacks import CallbackSupportMixin, fit_tasks, with_callbacks
from gputabu.estimators.storage import Storable
from gputabu.selection.proof.certificate import Certificate
from gputabu.selection.proof.certify import certify

if TYPE_CHECKING:
    import sklearn.cluster

#: Labels counted at once.
PIECE = 1 << 20


class Clusterer(
    Storable, CallbackSupportMixin, ClassNamePrefixFeaturesOutMixin, TransformerMixin, ClusterMixin, BaseEstimator, ABC
):
    """Base class of the estimators: they have centres, and predict by the nearest one."""

    n_clusters: int
    init: Any
    n_init: Any
    max_iter: Any
    random_state: Any
    verbose: int
    checkpoint: Any
    progress: bool
    callback: Callback | None
    backend: BackendChoice
    device: Devices

    _constraints = CONSTRAINTS

    # Only the caller can say where labels go.
    __metadata_request__fit = {"labels_out": UNUSED, "groups": UNUSED}  # noqa: RUF012
    __metadata_request__predict = {"labels_out": UNUSED}  # noqa: RUF012

    @with_callbacks
    def fit(
        self, X: Any, y: Any = None, sample_weight: Any = None, *, groups: Any = None, labels_out: Any = None
    ) -> Self:
        """Find the clusters of `X`.

        Ctrl-C ends the search with the best clustering found so far; `stop_` then says so.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            An array of NumPy, CuPy, PyTorch, JAX or any library with DLPack, or a data frame of pandas, Polars, PyArrow
            or cuDF. float32 and float64 are clustered as they are; float16, bfloat16 and integers are widened.
            Arrays on a GPU stay there. Results are arrays of the same kind; for frames they are NumPy arrays (for cuDF,
            CuPy arrays), unless `set_output` asks for frames and series. The path of a file, or anything else that
            `gputabu.chunked` reads, is not loaded into memory.
        y : ignored
        sample_weight : array-like of shape (n_samples,), optional
            Weights >= 0 of the samples, in any of these kinds. A sample of weight zero is labelled, but otherwise
            ignored.
        groups : array-like of int of shape (n_samples,), optional
            Samples with the same number share a cluster ("must-link"); those with a negative one are on their own. Such
            `labels_` need not be those of the nearest centres, which `predict` returns. For `TabuKMeans`, `KMeans` and
            `TabuSearchClustering`; where this has no meaning, it is an error.
        labels_out : path or (n_samples,) array of int32 or int64, optional
            Where to write `labels_`: an array, such as a memory map, or the path of a new .npy file.

        Returns
        -------
        self
        """
        self._validate_params()
        points = self._as_points(X, sample_weight, reset=True)
        verbose, restarts = self._verbosity(), self._restarts()
        search = self._checked(points.shape, self._seed())
        destination = labels_file(labels_out, points.n)
        limit = search.max_iter
        steps = None if limit is None else limit * self._n_batches(search, points, restarts)
        tasks = fit_tasks(self, steps, {"X": X, "y": y, "metadata": {"sample_weight": sample_weight}})
        callback = self.callback if tasks is None else tasks.joined(check_callback(self.callback))
        with shown(verbose):
            clustering = self._run(points, search, restarts, callback, groups)
        self._store(clustering)
        if destination is None:
            self.labels_ = self._labelled(clustering.labels, X)
        else:
            self.labels_ = written(to_numpy(clustering.labels), destination)
        if tasks is not None:
            tasks.end()
        return self

    def predict(self, X: Any, *, labels_out: Any = None) -> Any:
        """The nearest cluster of every sample, the lowest number on ties.

        After `set_output(transform="pandas")` or `"polars"` it returns a Series named "cluster", in pandas with the
        index of `X`. The `labels_` of later fits are such a Series too.

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
        destination = labels_file(labels_out, points.n)
        centers = self._centers()
        may_compile = self.backend != "auto" or not cheaper_pass_without(points, len(centers))
        with open_backend(points, self.backend, self.device, may_compile) as backend:
            labels = backend.fetch_labels(backend.label(centers[None]), 0)
            if backend.name == "numba":
                remember(points, LABELS)
        return (
            self._labelled(as_caller_array(labels, points), X)
            if destination is None
            else written(to_numpy(labels), destination)
        )

    def transform(self, X: Any) -> Any:
        """Euclidean distance of every sample to every centre.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        distances : array or, by `set_output`, data frame of shape (n_samples, n_clusters)
            Of the kind and dtype of `X`. Distances beyond the range of float32 are infinite there.
        """
        points = self._points(X)
        with open_backend(points, self.backend, self.device) as backend:
            distances = backend.distances(self._centers())
        wrapped = (
            _get_output_config("transform", self)["dense"] != "default"
        )  # by scikit-learn, which needs NumPy arrays
        return to_numpy(distances) if wrapped else as_caller_array(distances, points)

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
        with open_backend(self._points(X, sample_weight), self.backend, self.device) as backend:
            centers = self._centers()[None]
            return -float(backend.objective(centers, backend.label(centers))[0])

    def certify(self, X: Any, sample_weight: Any = None, **options: Any) -> Certificate:
        """Prove how far J of the clustering found can be above the best possible.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            What the model was fitted to.
        sample_weight : array-like of shape (n_samples,), optional
        **options
            Of `gputabu.certify`, such as `max_time`.

        Returns
        -------
        certificate : Certificate
        """
        check_is_fitted(self)
        return certify(X, self, sample_weight=sample_weight, **options)

    def to_sklearn(self) -> sklearn.cluster.KMeans:
        """This clustering as a fitted `sklearn.cluster.KMeans`, for programs that need that class.

        Centres, labels, inertia and names of features are the same. It predicts by scikit-learn's arithmetic: a sample
        that is equally far from two centres, up to rounding, may get the other label. Like any KMeans of scikit-learn
        it needs samples in the dtype that it was fitted with. Fitted again, it starts from these centres.

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
        import sklearn.cluster

        model = sklearn.cluster.KMeans(len(centers), init=centers.copy(), n_init=1)
        model.cluster_centers_ = centers
        if hasattr(self, "labels_"):  # with Dask, labels stay on the workers
            model.labels_ = to_numpy(self.labels_).copy()
        model.inertia_, model.n_iter_, model.n_features_in_ = self.inertia_, self.n_iter_, self.n_features_in_
        if hasattr(self, "feature_names_in_"):
            model.feature_names_in_ = self.feature_names_in_.copy()
        model._n_features_out, model._n_threads = (
            len(centers),
            _openmp_effective_n_threads(),
        )  # as `fit` of that class does
        return model

    @property
    def _parameter_constraints(self) -> dict[str, list[Any]]:
        """What scikit-learn checks of the parameters."""
        defaults = type(self)().get_params(deep=False)
        return {
            name: [*constraints, *([None] if defaults[name] is None else [])]
            for name, constraints in self._constraints.items()
            if name in defaults
        }

    @abstractmethod
    def _search(self, shape: Shape, k: int, seed: int) -> Search:
        """The search with these parameters, which are checked."""

    def _checked(self, shape: Shape, seed: int) -> Search:
        """`_search`, after checking that there are enough points for `n_clusters`."""
        return self._search(shape, check_n_clusters(self.n_clusters, shape.n), seed)

    def _monitor(self, callback: Callback | None) -> Monitor:
        return Monitor(callback, self.progress, getattr(self, "max_time", None), self.checkpoint)

    def _run(
        self,
        points: Points,
        search: Search,
        restarts: int | list[int],
        callback: Callback | None,
        groups: Any = None,
    ) -> Clustering:
        monitor = self._monitor(callback)
        return run_restarts(points, search, restarts, monitor, backend=self.backend, device=self.device, groups=groups)

    def _n_batches(self, search: Search, points: Points, restarts: int) -> int:
        """The largest number of batches that the restarts run in."""
        if callable(self.backend):  # it may have its own tuning
            return restarts
        return len(list(batches(range(restarts), search.width(points), Tuning())))

    def _verbosity(self) -> int:
        return check_int("verbose", int(self.verbose) if self.verbose is True else self.verbose, 0)

    def _restarts(self) -> int:
        """The number of restarts by `n_init`, as in scikit-learn."""
        explicit = not isinstance(self.init, str) and not callable(self.init)
        if isinstance(self.n_init, str) and self.n_init == "auto":
            return 1 if explicit or self.init == "k-means++" else 10
        restarts = check_int("n_init", self.n_init, 1)
        if explicit and restarts > 1:
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

    def _store(self, clustering: Clustering) -> Self:
        k = clustering.centers.shape[0]
        distinct = _count_distinct(to_numpy(clustering.labels), k)
        if distinct < k:
            warnings.warn(
                f"Number of distinct clusters ({distinct}) found smaller than n_clusters "
                f"({k}). Possibly due to duplicate points in X.",
                ConvergenceWarning,
                stacklevel=3,
            )
        self.labels_ = clustering.labels
        self.cluster_centers_ = clustering.centers
        self.inertia_ = clustering.inertia
        self.inertias_ = clustering.inertias
        self.n_iter_ = clustering.n_iter
        self.restart_ = clustering.restart
        self.trace_ = clustering.trace
        self.stop_ = clustering.stop
        self.backend_ = clustering.backend
        return self

    def _points(self, X: Any, sample_weight: Any = None) -> Points:
        check_is_fitted(self)
        return self._as_points(X, sample_weight, reset=False)

    def _as_points(self, X: Any, sample_weight: Any, reset: bool) -> Points:
        """Check `X` with scikit-learn. Arrays on a GPU and files, which it cannot read, get the same checks here."""
        validate_data(self, X, reset=reset, skip_check_array=True, ensure_2d=False)  # names only
        check = partial(check_array, estimator=self, input_name="X", dtype="numeric", order="C")
        with np.errstate(invalid="ignore"):  # scikit-learn sums all values, which may give infinity minus infinity
            points = as_points(X, sample_weight, None if is_source(X) else check)
        if reset:
            self.n_features_in_ = points.d
        elif points.d != self.n_features_in_:
            raise ValueError(
                f"X has {points.d} features, but {type(self).__name__} is expecting "
                f"{self.n_features_in_} features as input."
            )
        return points

    def _labelled(self, labels: Any, X: Any) -> Any:
        """Labels as they are, or, if `set_output` asks for it, as a Series with the index of `X`."""
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


def _count_distinct(labels: np.ndarray, k: int) -> int:
    """How many of K clusters have samples. Labels may be in a file, so they are read in pieces."""
    seen = np.zeros(k, np.bool_)
    for a in range(0, len(labels), PIECE):
        seen[labels[a : a + PIECE]] = True
    return int(seen.sum())


def seed_of(random_state: Any) -> int:
    """The 64-bit seed for `random_state`; an int is the seed itself."""
    if isinstance(random_state, (int, np.integer)) and not isinstance(random_state, bool):
        return check_int("random_state", random_state, 0, 2**64 - 1)
    if isinstance(random_state, np.random.Generator):
        return int(random_state.integers(2**63))
    try:
        return int(check_random_state(random_state).randint(2**31 - 1))
    except ValueError:
        allowed = "an integer from 0 to 2^64 - 1, a RandomState or Generator of NumPy, or None"
        raise ValueError(f"random_state={random_state!r} must be {allowed}.") from None
