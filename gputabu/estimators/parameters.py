"""Descriptions of the parameters and attributes that the estimators share."""

from __future__ import annotations

from gputabu.core.docstrings import inserting

SHARED = {
    "target": """
        target : float, default=0
            J at which a restart stops.
        """,
    "patience": """
        patience : int, optional
            Iterations without improvement after which a restart stops; by default a quarter of `max_iter`.
        """,
    "max_time": """
        max_time : float, optional
            Seconds after which the search stops with the best solution so far. Only then may two fits differ. The
            refinement of the best solution may take another tenth of this time.
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
