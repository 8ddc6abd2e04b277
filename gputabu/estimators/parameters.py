"""The parameters and attributes that the estimators share: how they are described, and what scikit-learn checks."""

from __future__ import annotations

from numbers import Integral, Real
from typing import Any

import numpy as np
from sklearn.utils._param_validation import Interval, StrOptions

from gputabu.algorithms.seeding import METHODS
from gputabu.core.docstrings import inserting

#: What scikit-learn's K-Means checks, it checks here too, and raises its `InvalidParameterError`. None is allowed where
#: it is the default. All other parameters are checked by the searches, as for the plain functions.
CONSTRAINTS: dict[str, list[Any]] = {
    "n_clusters": [Interval(Integral, 1, None, closed="left")],
    "init": [StrOptions(set(METHODS)), callable, "array-like"],
    "n_init": [StrOptions({"auto"}), Interval(Integral, 1, None, closed="left")],
    "max_iter": [Interval(Integral, 1, None, closed="left")],
    "tol": [Interval(Real, 0, None, closed="left")],
    "random_state": [Interval(Integral, 0, 2**64 - 1, closed="both"), np.random.RandomState, np.random.Generator],
    "verbose": ["verbose"],
}

SHARED = {
    "target": """
        target : float, default=0
            J at which a restart stops.
        """,
    "max_time": """
        max_time : float, optional
            Seconds after which the search stops with the best solution so far; it uses them unless another limit is
            set. Only then may two fits differ. Refining the best solution may take another tenth of this time.
        """,
    "bounds": """
        min_size, max_size : int, optional
            What a cluster must have at the least and may have at the most. `labels_` are then the best within these
            bounds, and need not be those of the nearest centres, which `predict` returns: new samples are not bounded.
        size : {"count", "weight"}, default="count"
            Whether a size is the number of samples (of positive weight), or the sum of their weights, which are not
            divided: bounds must then leave some room. See `docs/bounded-sizes.md`.
        """,
    "execution": """
        backend : {"auto", "cuda", "numba", "numpy"}, default="auto"
            All backends give the same result, bit for bit. A backend asked for by name never falls back.
        device : int, sequence of int or "all", optional
            Which GPU, or several that share the rows. By default the current one, or the one that `X` is on.
        random_state : int, RandomState or None, default=None
        verbose : int, default=0
            1 logs the progress of the fit, 2 every iteration.
        checkpoint : path, optional
            A file for the state of the fit, written every half minute. If the file exists, the fit continues from it,
            with the same bits as if it had never stopped. Samples and parameters must be the same, and `random_state`
            an integer.
        progress : bool, default=False
            Show a progress bar on stderr, or a line every few seconds if stderr is not a terminal.
        callback : function, optional
            Called with a `Progress` after every iteration. It ends the fit by returning True; `stop_` then says so.
        """,
    "attributes": """
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
            J, best J and moves per restart and iteration.
        stop_ : Stop
            Why the search stopped.
        backend_ : str
            The backend that computed it.
        """,
}

documented = inserting(SHARED)
