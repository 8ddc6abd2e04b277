"""What the estimators have in common: the description of the parameters and attributes they share."""

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
            Seconds after which the search stops with the best it has found. Only then may two fits differ. Refining
            the best may take a tenth of it more.
        """,
    "execution": """
        backend : {"auto", "cuda", "numba", "numpy"}, default="auto"
            What computes. The result is the same, bit for bit. A backend asked for by name never falls back.
        device : int, sequence of int or "all", optional
            Which GPU, or several that share the rows. By default the current one, or the one that `X` is on.
        random_state : int, RandomState or None, default=None
        verbose : int, default=0
            1 logs the course of the fit, 2 every iteration.
        checkpoint : path, optional
            A file that keeps the state of the fit, written every half minute. If the file exists, the fit goes on from
            it, with the same bits as if it had never stopped. It must be of the same samples and parameters, and
            `random_state` an integer.
        progress : bool, default=False
            Show a progress bar on stderr, or a line every few seconds where that is no terminal.
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
            What computed it.
        """,
}

documented = inserting(SHARED)
