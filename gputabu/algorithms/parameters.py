"""What the plain functions have in common: the description of the parameters they share."""

from __future__ import annotations

from gputabu.core.docstrings import inserting

SHARED = {
    "data": """
        X : (N, d) array, on the host or on a GPU, a file or anything else that `gputabu.chunked` reads, or Points
        n_clusters : int
        weights : (N,) array, optional
        """,
    "restarts": """
        restarts : int or sequence of int
            How many restarts, or the numbers of those to run. Restart r does not depend on the others.
        """,
    "max_time": """
        max_time : float, optional
            Seconds after which the search stops with the best it has found; it uses them unless another limit is set.
            Only then may two runs differ. Refining the best may take a tenth of it more.
        """,
    "bounds": """
        min_size, max_size : int, optional
            What a cluster must have at the least and may have at the most. See docs/bounded-sizes.md. Labels are then
            not those of the nearest centres.
        size : {"count", "weight"}
            Whether sizes are numbers of points of positive weight, or sums of weights.
        """,
    "groups": """
        groups : (N,) array of int, optional
            Rows with the same number share a cluster ("must-link"); rows with a negative one are on their own. Labels
            are then not all those of the nearest centres. There is a copy of X with a row for each group.
        """,
    "execution": """
        seed : int
        backend : {"auto", "cuda", "numba", "numpy"}
            What computes. The result is the same, bit for bit. A backend asked for by name never falls back.
        device : int, sequence of int or "all", optional
            Which GPU, or several that share the rows. By default the current one, or the one that `X` is on.
        """,
    "watching": """
        labels_out : path or (N,) array of int32 or int64, optional
            Where to write the labels: an array, such as a memory map, or a new .npy file.
        checkpoint : path, optional
            A file that keeps the state of the search, written every half minute. If the file exists, the search goes
            on from it, with the same bits as if it had never stopped. It must be of the same points and parameters.
        progress : bool
            Show a progress bar on stderr, or a line every few seconds where that is no terminal.
        callback : function, optional
            Called with a `Progress` after every iteration. It ends the search by returning True. See
            `gputabu.Progress`.
        """,
}

documented = inserting(SHARED)
