"""Estimators for dask arrays and data frames: the search runs on the client, its passes over points on the workers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Self

import dask
import dask.array as da
import numpy as np
from sklearn.utils.validation import check_is_fitted, validate_data

import gputabu.estimators.models
from gputabu.algorithms.monitor import Callback
from gputabu.algorithms.restarts import merge, run_restarts
from gputabu.backend import as_caller_array, as_points, check_backend, open_backend, to_numpy
from gputabu.backend.arithmetic.fixed_point import Bounds, Grid, from_limbs
from gputabu.core.docstrings import inserting
from gputabu.core.interrupts import Interrupts
from gputabu.core.log import shown
from gputabu.core.results import Clustering
from gputabu.core.validation import check_choice, check_heaviest
from gputabu.dask.client import RemotePoints, awaited, ready
from gputabu.dask.cluster import SchedulerLost
from gputabu.dask.partitions import Partitions, as_array, client_of, paired, with_sizes
from gputabu.dask.worker import WorkerLost, chunk_of, points_of, weights_of
from gputabu.data.points import Points, Shape
from gputabu.estimators.base import Clusterer
from gputabu.estimators.sklearn_callbacks import fit_tasks, with_callbacks

#: What is divided among the workers: the rows of X, or the restarts, each on all of X.
SPREADS = ("auto", "restarts", "rows")
#: Bytes of X up to which "auto" copies it to every worker.
COPIED = 256 << 20
#: Number of rows to assume while it is unknown: the largest possible.
MANY = 2**35


documented = inserting({
    "workers": """
        n_clusters : int, default=8
        client : distributed.Client, optional
            By default the last one created.
        spread : {"auto", "rows", "restarts"}, default="auto"
            What the workers share. "rows": every partition stays where it is, and each pass runs on all workers.
            "restarts": all of `X` is copied to every worker, which runs some of the restarts alone. "auto" is
            "restarts" if `X` has at most 256 MiB, there are at least as many restarts as workers, and neither
            `progress`, `callback` nor `checkpoint` is used. The result is the same.
        """,
    "labels": """
        labels_ : dask array of shape (n_samples,), int32
            In the chunks of `X`; computed when asked for. Those of clusters of bounded size are on the client.
        """,
})  # fmt: skip


class _Distributed(Clusterer):
    """Makes an estimator fit, and predict for, points on workers."""

    _in_memory: type[Clusterer]  # the estimator for points in memory
    client: Any
    spread: str
    labels_: Any

    def __init__(self, n_clusters: int = 8, *, client: Any = None, spread: str = "auto", **parameters: Any) -> None:
        super().__init__(n_clusters, **parameters)
        self.client = client
        self.spread = spread

    @classmethod
    def _get_param_names(cls) -> list[str]:
        return sorted([*cls._in_memory._get_param_names(), "client", "spread"])

    def __sklearn_clone__(self) -> Self:
        return type(self)(**self.get_params(deep=False))  # a client cannot be copied

    def __getstate__(self) -> dict[str, Any]:
        state = super().__getstate__()
        return {**state, "client": None}  # it belongs to this process

    @with_callbacks
    def fit(self, X: Any, y: Any = None, sample_weight: Any = None) -> Self:
        """Find the clusters of `X`.

        Parameters are checked first, then every partition, on its worker, and then the search begins. If a worker is
        lost, the search restarts on those that are left, with the same result. With a `checkpoint`, which the client
        writes, it continues from there. A Ctrl-C before that still counts: the best found so far is returned if there
        is a `checkpoint`, and is lost without one, which raises KeyboardInterrupt.

        Parameters
        ----------
        X : dask array or data frame of shape (n_samples, n_features)
            Its partitions, NumPy's or CuPy's, are computed and kept on the workers until the end of the fit. They may
            have any size; empty ones are allowed.
        y : ignored
        sample_weight : dask array or series, array or scalar, optional
            Weights >= 0 of the samples. A sample of weight zero is labelled, and otherwise absent.

        Returns
        -------
        self
        """
        self._validate_params()
        array = self._as_dask_array(X, reset=True)
        verbose, restarts, seed = self._verbosity(), self._restarts(), self._seed()
        self._check(array, seed)
        limit = self._checked(Shape(MANY, array.shape[1], np.dtype(np.float32)), seed).max_iter
        steps = None if limit is None else limit * restarts  # if they ran one after the other
        tasks = fit_tasks(self, steps, {"X": X, "y": y, "metadata": {"sample_weight": sample_weight}})
        callback = self.callback if tasks is None else tasks.joined(self.callback)
        interrupts = Interrupts()
        with shown(verbose), Partitions(client_of(self.client), array, sample_weight) as data:
            clustering = data.run(
                lambda points: self._search_on_workers(data, points, restarts, seed, callback, interrupts)
            )
            sizes = data.X.chunks[0]
        self._store(clustering)
        if _is_bounded(self):  # labels do not follow from centres
            self.labels_ = da.from_array(clustering.labels, chunks=(sizes,))
        else:
            self.labels_ = self._lazy_labels(with_sizes(array, sizes))
        if tasks is not None:
            tasks.end()
        return self

    def fit_predict(self, X: Any, y: Any = None, sample_weight: Any = None, *, delayed: bool = True) -> da.Array:
        """`fit(X)`, then the `labels_`. For the parameters, see there and `predict`."""
        return self._persisted_unless(self.fit(X, sample_weight=sample_weight).labels_, delayed)

    def fit_transform(self, X: Any, y: Any = None, sample_weight: Any = None, *, delayed: bool = True) -> da.Array:
        """`fit(X)`, then `transform(X)`. For the parameters, see there."""
        return self.fit(X, sample_weight=sample_weight).transform(X, delayed=delayed)

    def predict(self, X: Any, *, delayed: bool = True) -> da.Array:  # type: ignore[override]
        """The nearest cluster of every sample, the lowest number on ties.

        Parameters
        ----------
        X : dask array or data frame of shape (n_samples, n_features)
        delayed : bool, default=True
            True computes the labels on demand. False computes them now, on the workers, where they stay.

        Returns
        -------
        labels : dask array of shape (n_samples,), int32
            In the chunks of `X`.
        """
        return self._persisted_unless(self._lazy_labels(self._as_dask_array(X, reset=False)), delayed)

    def transform(self, X: Any, *, delayed: bool = True) -> da.Array:
        """Euclidean distance of every sample to every centre.

        Parameters
        ----------
        X : dask array or data frame of shape (n_samples, n_features)
        delayed : bool, default=True
            As for `predict`.

        Returns
        -------
        distances : dask array of shape (n_samples, n_clusters)
            In the chunks of `X`.
        """
        array = self._as_dask_array(X, reset=False)
        centers, chunks = self._centers(), (array.chunks[0], (len(self.cluster_centers_),))
        distances = da.map_blocks(_distances, array, centers, self.backend, chunks=chunks, meta=array._meta)
        return self._persisted_unless(distances, delayed)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None, *, delayed: bool = False) -> Any:
        """Minus J of `X` at the centres found; higher is better. The same bits as in memory.

        Parameters
        ----------
        X : dask array or data frame of shape (n_samples, n_features)
        y : ignored
        sample_weight : dask array or series, array or scalar, optional
        delayed : bool, default=False
            True computes it on demand, and raises errors of partitions only then. False computes it now.

        Returns
        -------
        score : float, or dask array of shape ()
        """
        if delayed:
            return self._delayed_score(self._as_dask_array(X, reset=False), sample_weight)

        def score(points: RemotePoints) -> float:
            with open_backend(points, self.backend) as backend:
                centers = self._centers()[None]
                return -float(backend.objective(centers, backend.label(centers))[0])

        with Partitions(client_of(self.client), self._as_dask_array(X, reset=False), sample_weight) as data:
            return data.run(score)

    def _delayed_score(self, array: da.Array, sample_weight: Any) -> da.Array:
        """As `score`. The limbs of J of all partitions, on one common grid, are added in integers."""
        blocks = array.to_delayed().ravel()
        weights = [None] * len(blocks) if sample_weight is None else paired(sample_weight, array).to_delayed()
        partitions = [dask.delayed(_partition_points)(block, weights[i], i) for i, block in enumerate(blocks)]
        bounds = dask.delayed(_all_bounds)(
            [dask.delayed(_bounds)(points, self.backend) for points in partitions], self._centers()
        )
        costs = [dask.delayed(_cost_limbs)(points, self._centers(), bounds, self.backend) for points in partitions]
        return da.from_delayed(dask.delayed(_total_score)(costs, bounds), (), np.float64)

    def get_combined_model(self) -> Any:
        """The fitted model for points in memory, with no ties to the cluster.

        It has no `labels_`: they are as many as the points and stay on the workers. `labels_.compute()` of this
        estimator fetches them.

        Returns
        -------
        model : gputabu.TabuKMeans, gputabu.QuantizedTabuKMeans or gputabu.KMeans
        """
        check_is_fitted(self)
        model = self._unfitted()
        for name, value in vars(self).items():
            if name.endswith("_") and not name.startswith("_") and name != "labels_":
                setattr(model, name, value)
        return model

    def save(self, path: Any) -> None:
        """Write the combined model to a file that `gputabu.load` reads: see `gputabu.KMeans.save`."""
        self.get_combined_model().save(path)

    def _unfitted(self) -> Any:
        parameters = self.get_params(deep=False)
        return self._in_memory(**{name: parameters[name] for name in self._in_memory._get_param_names()})

    def _as_dask_array(self, X: Any, reset: bool) -> da.Array:
        """`X` as a dask array. Checks what is known without computing it."""
        if not reset:
            check_is_fitted(self)
        array = as_array(X)
        sample = X._meta if hasattr(X, "columns") else np.broadcast_to(0.0, (1, array.shape[1]))
        validate_data(self, sample, reset=reset, skip_check_array=True)  # names and number of features
        return array

    def _check(self, array: da.Array, seed: int) -> None:
        """Check all parameters, before anything is computed."""
        check_choice("spread", self.spread, SPREADS)
        check_backend(self.backend)
        if callable(self.init):
            raise ValueError("init is a function, which would need all of X; pass the centres that it returns.")
        if self.device is not None:
            raise ValueError(f"device={self.device!r} cannot go with Dask, where every worker has a GPU of its own.")
        n = MANY if np.isnan(array.shape[0]) else array.shape[0]
        self._checked(Shape(n, array.shape[1], np.dtype(np.float32)), seed)
        self._monitor(self.callback)
        if self.spread == "restarts" and self._watched(self.callback):
            what = "callback, progress and checkpoint"
            raise ValueError(f"{what} cannot go with spread='restarts', where nobody sees all of them.")

    def _watched(self, callback: Callback | None) -> bool:
        """Whether a callback, a progress bar or a checkpoint must see all restarts."""
        return callback is not None or self.progress or self.checkpoint is not None

    def _search_on_workers(
        self,
        data: Partitions,
        points: RemotePoints,
        restarts: int,
        seed: int,
        callback: Callback | None,
        interrupts: Interrupts,
    ) -> Clustering:
        """Search on the workers, which share either the rows or the restarts."""
        workers = sorted(data.cluster.running())
        small = points.n * points.d * points.dtype.itemsize <= COPIED
        search = self._checked(points.shape, seed)
        watched = self._watched(callback) or (getattr(self, "max_time", None) is not None and search.endless)
        if self.spread == "rows" or (self.spread == "auto" and (watched or not small or restarts < len(workers))):
            return self._search_by_rows(points, restarts, seed, callback, interrupts)
        shares = np.array_split(np.arange(restarts), min(restarts, len(workers) or 1))
        weights = None if points.weights is None else data.weights
        tasks = [
            data.submit(_run_on_worker, self._unfitted(), data.blocks, weights, share.tolist(), seed,
                        workers=[worker], allow_other_workers=True)
            for share, worker in zip(shares, workers, strict=False)
        ]  # fmt: skip
        ready(data.cluster, tasks)
        return merge([awaited(data.cluster, task) for task in tasks])

    def _search_by_rows(
        self, points: RemotePoints, restarts: int, seed: int, callback: Callback | None, interrupts: Interrupts
    ) -> Clustering:
        """Search here, with passes on the workers. A Ctrl-C that a lost worker left without an answer still counts."""
        monitor = self._monitor(callback)
        monitor.interrupts = interrupts
        try:
            return run_restarts(points, self._checked(points.shape, seed), restarts, monitor, backend=self.backend)
        except SchedulerLost:
            raise
        except WorkerLost:
            if interrupts.asked and self.checkpoint is None:  # the best found so far is lost, too
                raise KeyboardInterrupt from None
            raise

    def _lazy_labels(self, array: da.Array) -> da.Array:
        meta = array._meta.reshape(-1)[:0].astype(np.int32)
        return da.map_blocks(_labels, array, self._centers(), self.backend, drop_axis=1, meta=meta)

    def _persisted_unless(self, array: da.Array, delayed: bool) -> da.Array:
        return array if delayed else client_of(self.client).persist(array)


def _run_on_worker(
    model: Any, blocks: Sequence[Any], weights: Sequence[Any] | None, restarts: list[int], seed: int
) -> Clustering:
    """Run some of the restarts on a worker. In place of labels that follow from centres it returns those that occur."""
    chunks = [chunk_of(block, i) for i, block in enumerate(blocks)]
    points = points_of(chunks, None if weights is None else weights_of(weights, chunks))
    clustering = model._run(points, model._checked(points.shape, seed), restarts, None)
    labels = to_numpy(clustering.labels)
    labels = labels if _is_bounded(model) else np.unique(labels)
    return replace(clustering, labels=labels, centers=to_numpy(clustering.centers))


def _is_bounded(model: Any) -> bool:
    """Whether clusters have a least or a largest size."""
    return getattr(model, "min_size", None) is not None or getattr(model, "max_size", None) is not None


def _labels(block: Any, centers: np.ndarray, backend: str) -> Any:
    if len(block) == 0:
        return np.empty(0, np.int32)
    points = as_points(block)
    with open_backend(points, backend) as opened:
        return as_caller_array(opened.fetch_labels(opened.label(centers[None]), 0), points)


def _distances(block: Any, centers: np.ndarray, backend: str) -> Any:
    if len(block) == 0:
        return np.empty((0, len(centers)))
    points = as_points(block)
    with open_backend(points, backend) as opened:
        return as_caller_array(opened.distances(centers), points)


def _partition_points(block: Any, weights: Any, number: int) -> Points | None:
    """A partition as checked points; None if it is empty."""
    chunk = chunk_of(block, number)
    checked = None if weights is None else weights_of([weights], [chunk])
    return points_of([chunk], checked) if len(chunk) else None


def _bounds(points: Points | None, backend: str) -> Bounds | None:
    if points is None:
        return None
    with open_backend(points, backend) as opened:
        return opened.bounds_partial()


def _all_bounds(parts: Sequence[Bounds | None], centers: np.ndarray) -> Bounds:
    """The bounds of all points and the centres."""
    bounds = Bounds.merge([part for part in parts if part is not None])
    check_heaviest(bounds.weight)
    return bounds.joined(centers)


def _cost_limbs(points: Points | None, centers: np.ndarray, bounds: Bounds, backend: str) -> np.ndarray:
    if points is None:
        return np.zeros((3, 1), np.int64)
    grid = Grid.around(bounds, bounds.low)
    with open_backend(points, backend) as opened:
        opened.adopt_grid(bounds, grid)
        return opened.objective_partial(centers[None], opened.label(centers[None]), grid.cost)


def _total_score(costs: Sequence[np.ndarray], bounds: Bounds) -> float:
    return -float(from_limbs(*np.sum(costs, axis=0), exponents=Grid.around(bounds, bounds.low).cost)[0])


@documented
class TabuKMeans(_Distributed, gputabu.estimators.models.TabuKMeans):
    """`gputabu.TabuKMeans` for dask arrays and data frames, with the same bits.

    The search runs in the calling process. Workers hold the points, labels and distances. Messages are as large as the
    centres, and no worker waits for another.

    Parameters
    ----------
    %(workers)s
    **parameters
        See `gputabu.TabuKMeans`; `backend` is that of the workers. `device` cannot be set.

    Attributes
    ----------
    %(labels)s

    The other attributes are those of `gputabu.TabuKMeans`, as NumPy arrays.

    Examples
    --------
    >>> import dask.array as da
    >>> from distributed import Client
    >>> from sklearn.datasets import load_iris
    >>> from gputabu.dask import TabuKMeans
    >>> X = da.from_array(load_iris().data, chunks=(50, 4))
    >>> with Client(processes=False, n_workers=1, threads_per_worker=2, dashboard_address=":0") as client:
    ...     model = TabuKMeans(3, random_state=0).fit(X)
    ...     model.labels_.compute().shape
    (150,)
    >>> round(model.inertia_, 2), model.labels_.chunks
    (78.85, ((50, 50, 50),))
    >>> model.get_combined_model().predict([[5.1, 3.5, 1.4, 0.2]]).shape
    (1,)
    """

    _in_memory = gputabu.estimators.models.TabuKMeans


@documented
class QuantizedTabuKMeans(_Distributed, gputabu.estimators.models.QuantizedTabuKMeans):
    """`gputabu.QuantizedTabuKMeans` for dask arrays and data frames, with the same bits.

    Parameters
    ----------
    %(workers)s
    **parameters
        See `gputabu.QuantizedTabuKMeans`; `backend` is that of the workers. `device` cannot be set.

    Attributes
    ----------
    %(labels)s

    The other attributes are those of `gputabu.QuantizedTabuKMeans`, as NumPy arrays.

    Examples
    --------
    >>> import dask.array as da
    >>> from distributed import Client
    >>> from gputabu.dask import QuantizedTabuKMeans
    >>> X = da.from_array([[0.0], [1.0], [10.0], [11.0]], chunks=(3, 1))
    >>> with Client(processes=False, n_workers=1, threads_per_worker=2, dashboard_address=":0") as client:
    ...     model = QuantizedTabuKMeans(2, random_state=0).fit(X)
    >>> sorted(model.cluster_centers_.ravel().tolist())
    [0.5, 10.5]
    """

    _in_memory = gputabu.estimators.models.QuantizedTabuKMeans


@documented
class KMeans(_Distributed, gputabu.estimators.models.KMeans):
    """`gputabu.KMeans` for dask arrays and data frames, with the same bits.

    Parameters
    ----------
    %(workers)s
    **parameters
        See `gputabu.KMeans`; `backend` is that of the workers. `device` cannot be set.

    Attributes
    ----------
    %(labels)s

    The other attributes are those of `gputabu.KMeans`, as NumPy arrays.

    Examples
    --------
    >>> import dask.array as da
    >>> from distributed import Client
    >>> from gputabu.dask import KMeans
    >>> X = da.from_array([[0.0], [1.0], [10.0], [11.0]], chunks=(3, 1))
    >>> with Client(processes=False, n_workers=1, threads_per_worker=2, dashboard_address=":0") as client:
    ...     model = KMeans(2, random_state=0).fit(X)
    >>> sorted(model.cluster_centers_.ravel().tolist())
    [0.5, 10.5]
    """

    _in_memory = gputabu.estimators.models.KMeans
