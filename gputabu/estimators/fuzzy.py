"""The estimators of fuzzy c-means."""

from __future__ import annotations

from typing import Any, NoReturn

from sklearn.utils.validation import check_is_fitted

from gputabu.algorithms.fuzzy import FuzzySearch, TabuFuzzySearch
from gputabu.algorithms.monitor import Callback
from gputabu.algorithms.restarts import Search
from gputabu.backend import BackendChoice, Devices, as_caller_array, open_backend
from gputabu.core.validation import check_int
from gputabu.data.points import Shape
from gputabu.estimators.base import Clusterer
from gputabu.estimators.parameters import documented


class FuzzyClusterer(Clusterer):
    """What the fuzzy estimators have in common: J and memberships of the fuzzy problem."""

    m: float

    def memberships(self, X: Any) -> Any:
        """To what degree every sample belongs to each cluster; every row adds up to one.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)

        Returns
        -------
        memberships : array of shape (n_samples, n_clusters)
            Of the kind and dtype of `X`. It is the one large array; to have less at a time, ask for fewer samples.
        """
        points = self._points(X)
        with open_backend(points, self.backend, self.device) as backend:
            return as_caller_array(backend.memberships(self._centers(), self.m), points)

    def score(self, X: Any, y: Any = None, sample_weight: Any = None) -> float:
        """Minus J of the fuzzy problem for `X` at the centres found; higher is better.

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
            return -float(backend.fuzzy_cost(self._centers()[None], self.m)[0])

    def certify(self, X: Any, sample_weight: Any = None, **options: Any) -> NoReturn:
        """Not for fuzzy clusterings: raises a TypeError."""
        check_is_fitted(self)
        raise TypeError(f"{type(self).__name__} cannot be certified: bounds are known for K-Means alone.")

    def to_sklearn(self) -> NoReturn:
        """Not for fuzzy clusterings: raises a TypeError."""
        check_is_fitted(self)
        raise TypeError(f"{type(self).__name__} has no counterpart in scikit-learn.")


@documented
class FuzzyCMeans(FuzzyClusterer):
    """Fuzzy c-means: every sample belongs to all clusters, to degrees that add up to one.

    Use it where clusters overlap and you want to know how much. No array of samples times clusters is made.

    Parameters
    ----------
    n_clusters : int, default=8
    m : float, default=2
        How fuzzy, from 1.01 to 100; near 1 it is K-Means. Powers of 1.25, 1.5, 2 and 3 are exact products and roots.
    init : {"k-means++", "random"}, (n_clusters, n_features) centres or (n_clusters,) row numbers
    n_init : int or "auto", default="auto"
        Restarts, all run at once. "auto" is 10 for init="random" and 1 otherwise.
    max_iter : int, default=300
    tol : float, default=1e-6
        Stop when no coordinate of a centre moves by more than `tol` times the root of the total variance.
    %(execution)s

    Attributes
    ----------
    %(attributes)s

    Notes
    -----
    `inertia_` and `score` are J of the fuzzy problem. `labels_` and `predict` are the clusters of highest membership,
    those of the nearest centres. Memberships are not kept; `memberships` computes them.

    References
    ----------
    Bezdek, "Pattern Recognition with Fuzzy Objective Function Algorithms", 1981.

    Examples
    --------
    >>> from gputabu import FuzzyCMeans
    >>> model = FuzzyCMeans(2, random_state=0).fit([[0.0], [1.0], [10.0], [11.0]])
    >>> sorted(model.memberships([[5.5], [0.0]]).round(2).ravel().tolist())
    [0.0, 0.5, 0.5, 1.0]
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        m: float = 2.0,
        init: Any = "k-means++",
        n_init: Any = "auto",
        max_iter: int = 300,
        tol: float = 1e-6,
        backend: BackendChoice = "auto",
        device: Devices = None,
        random_state: Any = None,
        verbose: int = 0,
        checkpoint: Any = None,
        progress: bool = False,
        callback: Callback | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.m = m
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.tol = tol
        self.backend = backend
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint
        self.progress = progress
        self.callback = callback

    def _search(self, shape: Shape, k: int, seed: int) -> Search:
        return FuzzySearch.checked(shape, k, m=self.m, init=self.init, max_iter=self.max_iter, tol=self.tol, seed=seed)


@documented
class TabuFuzzyCMeans(FuzzyClusterer):
    """Fuzzy c-means by tabu search, for `m` below 2, where plain fuzzy c-means often ends in poor local minima.

    An iteration tries to put a centre on another sample, and accepts the best trial that is not tabu, even if J rises.

    Parameters
    ----------
    n_clusters : int, default=8
    m : float, default=2
        How fuzzy, from 1.01 to 100.
    init : {"random", "k-means++"}, (n_clusters, n_features) centres or (n_clusters,) row numbers
    n_init : int or "auto", default="auto"
        Restarts, all run at once. "auto" is 10 for init="random" and 1 otherwise.
    max_iter : int, default=100
        Iterations of the tabu search; all are made.
    n_trials : int, default=20
        Trials per iteration (NTS).
    tenure : int, default=10
        Accepted centres that are tabu (MTLS).
    neighbours : {"swap", "shift"}, default="swap"
        How trials are made: a centre goes to a sample, and a step of fuzzy c-means follows; or all centres are shifted,
        as in the original, which is of historical interest.
    refine_iter : int, default=300
        Iterations of fuzzy c-means that refine the best centres.
    tol : float, default=1e-6
        Where they end, as for `FuzzyCMeans`.
    %(execution)s

    Attributes
    ----------
    %(attributes)s

    Notes
    -----
    `inertia_` and `score` are J of the fuzzy problem. `labels_` and `predict` are the clusters of highest membership,
    those of the nearest centres. Memberships are not kept; `memberships` computes them.

    References
    ----------
    Al-Sultan and Fedjki, "A tabu search-based algorithm for the fuzzy clustering problem", Pattern Recognition 30,
    1997.

    Examples
    --------
    >>> from gputabu import TabuFuzzyCMeans
    >>> model = TabuFuzzyCMeans(2, max_iter=5, random_state=0).fit([[0.0], [1.0], [10.0], [11.0]])
    >>> round(model.inertia_, 3)
    0.997
    """

    def __init__(
        self,
        n_clusters: int = 8,
        *,
        m: float = 2.0,
        init: Any = "random",
        n_init: Any = "auto",
        max_iter: int = 100,
        n_trials: int = 20,
        tenure: int = 10,
        neighbours: str = "swap",
        refine_iter: int = 300,
        tol: float = 1e-6,
        backend: BackendChoice = "auto",
        device: Devices = None,
        random_state: Any = None,
        verbose: int = 0,
        checkpoint: Any = None,
        progress: bool = False,
        callback: Callback | None = None,
    ) -> None:
        self.n_clusters = n_clusters
        self.m = m
        self.init = init
        self.n_init = n_init
        self.max_iter = max_iter
        self.n_trials = n_trials
        self.tenure = tenure
        self.neighbours = neighbours
        self.refine_iter = refine_iter
        self.tol = tol
        self.backend = backend
        self.device = device
        self.random_state = random_state
        self.verbose = verbose
        self.checkpoint = checkpoint
        self.progress = progress
        self.callback = callback

    def _search(self, shape: Shape, k: int, seed: int) -> Search:
        return TabuFuzzySearch.checked(
            shape, k, m=self.m, init=self.init, max_iter=self.max_iter, n_trials=self.n_trials, tenure=self.tenure,
            neighbours=self.neighbours, refine_iter=self.refine_iter, tol=self.tol, seed=seed,
        )  # fmt: skip

    def _restarts(self) -> int:
        """As for the other estimators, but restarts from given centres differ."""
        if isinstance(self.init, str) or self.n_init == "auto":
            return super()._restarts()
        return check_int("n_init", self.n_init, 1)
