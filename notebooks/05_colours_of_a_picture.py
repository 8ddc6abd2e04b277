# %% [markdown]
# # The colours of a picture
#
# A photograph has tens of thousands of colours. Printed with sixteen, which sixteen should they be? That is
# K-Means: the points are pixels in red, green and blue, the centres are the palette, and J is the squared error
# of the picture.
#
# A palette shows what a local minimum costs. A colour too many in the background is a colour too few in the flower.

# %%
import os

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_image

from gputabu import KMeans, TabuKMeans

TINY = os.environ.get("GPUTABU_TINY") == "1"  # small sizes, for tests
STEP = 16 if TINY else 2  # every other pixel is enough
MOVES = 5 if TINY else 40
PALETTES = (4, 8) if TINY else (16, 64)

# %% [markdown]
# The picture comes with scikit-learn. Pixels of the same colour are one point with a weight. The result is the
# same, and there is less to do.

# %%
image = load_sample_image("flower.jpg")[::STEP, ::STEP]
colours, where, counts = np.unique(image.reshape(-1, 3), axis=0, return_inverse=True, return_counts=True)
colours = colours.astype(np.float32)
print(f"{image.shape[0]} × {image.shape[1]} pixels, {len(colours)} different colours")

# %% [markdown]
# ## Three ways to a palette
#
# K-Means from random pixels, K-Means from a K-Means++ start, and tabu search: sixty times a colour is taken
# away and put where it is needed most.

# %%
WAYS = {
    "K-Means, random start": lambda k: KMeans(k, init="random", n_init=1, random_state=0),
    "K-Means++": lambda k: KMeans(k, random_state=0),
    "tabu search": lambda k: TabuKMeans(k, max_iter=MOVES, patience=MOVES, refine="lloyd", random_state=0),
}
found = {(k, way): make(k).fit(colours, sample_weight=counts) for k in PALETTES for way, make in WAYS.items()}
for k in PALETTES:
    lowest = min(found[k, way].inertia_ for way in WAYS)
    for way in WAYS:
        error = found[k, way].inertia_
        rms = np.sqrt(error / counts.sum() / 3)
        print(f"{k:3} colours, {way:22} J = {error:.4g}, {error / lowest - 1:5.1%} above the lowest; error {rms:.2f}")


# %%
def painted(model: KMeans | TabuKMeans) -> np.ndarray:
    """The picture with the colours of a palette."""
    return model.cluster_centers_[model.labels_][where].reshape(image.shape)


def off(model: KMeans | TabuKMeans) -> np.ndarray:
    """How far every pixel is from its own colour."""
    return np.linalg.norm(painted(model) - image, axis=2)


def palette(ax: plt.Axes, model: KMeans | TabuKMeans) -> None:
    """Draw the palette, as wide as its colours are used, from dark to light."""
    used = np.bincount(model.labels_, counts, minlength=len(model.cluster_centers_))
    order = np.argsort(model.cluster_centers_ @ [0.3, 0.6, 0.1])
    edges = np.concatenate([[0.0], np.cumsum(np.sqrt(used[order]))])  # roots, or rare colours would not be seen
    ax.bar(edges[:-1], 1, np.diff(edges), align="edge", color=model.cluster_centers_[order] / 255)
    ax.set(xlim=(0, edges[-1]), ylim=(0, 1))
    ax.set_axis_off()


# %% [markdown]
# A random start costs more than a tenth of J. K-Means++ begins well, as it draws colours that are far from each
# other, and comes close. Relocation is the lowest or level with it.
#
# ## Few colours
#
# Above the picture, below it the palette, and at the bottom the error of every pixel: the brighter, the farther off.


# %%
def compare(k: int) -> None:
    figure, axes = plt.subplots(3, 3, figsize=(14, 6.7), height_ratios=[5, 0.5, 5], layout="constrained")
    worst = np.quantile(off(found[k, next(iter(WAYS))]), 0.995)
    for (above, strip, below), way in zip(axes.T, WAYS, strict=True):
        model = found[k, way]
        above.imshow(painted(model).astype(np.uint8))
        above.set_title(f"{way}: J = {model.inertia_:.4g}")
        palette(strip, model)
        drawn = below.imshow(off(model), cmap="magma", vmin=0, vmax=worst)
        above.set_axis_off()
        below.set_axis_off()
    figure.colorbar(drawn, ax=axes[2, :], label="distance from the true colour", shrink=0.8)
    plt.show()


compare(PALETTES[0])

# %% [markdown]
# ## More colours
#
# With more colours the pictures look alike, and the error maps still differ. Look at the bud in the lower right
# corner: from a random start there is no colour for its yellow and green.

# %%
compare(PALETTES[1])

# %% [markdown]
# ## Where the gain is
#
# Squared error saved by tabu search, pixel by pixel: blue where its palette is nearer to the photograph, red
# where that of K-Means from a random start is. Beside it the photograph itself.

# %%
figure, axes = plt.subplots(1, len(PALETTES) + 1, figsize=(14, 3.8), layout="constrained")
axes[0].imshow(image)
axes[0].set_title("the photograph")
for ax, k in zip(axes[1:], PALETTES, strict=True):
    saved = off(found[k, "K-Means, random start"]) ** 2 - off(found[k, "tabu search"]) ** 2
    reach = np.quantile(np.abs(saved), 0.99)
    drawn = ax.imshow(saved, cmap="RdBu", vmin=-reach, vmax=reach)
    ax.set_title(f"{k} colours: {saved.sum() / (off(found[k, 'K-Means, random start']) ** 2).sum():.0%} saved")
    figure.colorbar(drawn, ax=ax, shrink=0.8)
for ax in axes:
    ax.set_axis_off()
plt.show()
