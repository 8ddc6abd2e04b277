"""Pictures of a clustering and of the search that found it. Needs Matplotlib: the extra `gputabu[plot]`.

Every picture takes a fitted estimator or a `Clustering` and the Axes to draw in, and returns the Axes; `animation`
returns a film, which `write` puts into a file.
"""

from gputabu.plotting.comparison import boxes, selection
from gputabu.plotting.course import trace
from gputabu.plotting.film import animation, write
from gputabu.plotting.partition import clusters, silhouette, sizes

__all__ = ["animation", "boxes", "clusters", "selection", "silhouette", "sizes", "trace", "write"]
