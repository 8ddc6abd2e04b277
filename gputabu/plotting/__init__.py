"""Pictures of a clustering and of the search that found it. Needs Matplotlib: the extra `gputabu[plot]`.

Every function takes a fitted estimator or a `Clustering` and the Axes to draw in, and returns the Axes; `animation`
returns an animation, which `write` writes to a file.
"""

from gputabu.plotting.animation import animation, player, write
from gputabu.plotting.clusters import clusters, silhouette, sizes
from gputabu.plotting.comparison import boxes, selection
from gputabu.plotting.proof import proof
from gputabu.plotting.trace import trace

__all__ = ["animation", "boxes", "clusters", "player", "proof", "selection", "silhouette", "sizes", "trace", "write"]
