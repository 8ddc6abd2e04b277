"""Pictures have what they promise in them, and a machine without Matplotlib is told what to install."""

from __future__ import annotations

import base64
import io
import re
import sys

import numpy as np
import pytest
from PIL import Image
from sklearn import cluster, metrics

from gputabu import KMeans, Points, QuantizedTabuKMeans, TabuKMeans, Trace, plotting, quantized, select_k
from gputabu.backend import open_backend
from gputabu.plotting import frames, style

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
plt = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture
def ax():
    figure, ax = plt.subplots()
    yield ax
    plt.close(figure)


def labels(ax) -> list[str]:
    return [text.get_text() for text in ax.get_legend().get_texts()]


def places(ax, label: str) -> np.ndarray:
    """Where the marks with this label in the legend are, (n, 2)."""
    return next(np.asarray(c.get_offsets()) for c in ax.collections if c.get_label() == label)


def test_clusters_in_two_features(ax):
    X = np.array([[0.0, 0.0], [0.0, 1.0], [9.0, 0.0], [9.0, 1.0]])
    model = QuantizedTabuKMeans(2, random_state=0).fit(X)
    assert plotting.clusters(X, model, ax) is ax
    assert labels(ax) == ["centres", "quantized means"]
    np.testing.assert_array_equal(places(ax, "centres"), model.cluster_centers_)
    np.testing.assert_array_equal(places(ax, "quantized means"), X[model.center_indices_])
    drawn = np.concatenate([c.get_offsets() for c in ax.collections if c.get_label() not in labels(ax)])
    np.testing.assert_array_equal(np.sort(drawn, axis=0), np.sort(X, axis=0))
    ax.figure.canvas.draw()


def test_clusters_of_more_features(iris, ax):
    model = KMeans(3, random_state=0).fit(iris)
    plotting.clusters(iris, model, ax)
    assert "principal component 1 (92.5 %)" in ax.get_xlabel()
    assert labels(ax) == ["centres"]  # K-Means has no quantized means


def test_clusters_in_chosen_features(iris, ax):
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(iris, columns=list("abcd"))
    model = KMeans(3, random_state=0).fit(frame)
    plotting.clusters(frame, model, ax, dims=["d", 0])
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("d", "a")
    np.testing.assert_allclose(places(ax, "centres"), model.cluster_centers_[:, [3, 0]])
    with pytest.raises(ValueError, match="'z', which is none of the features a, b, c, d"):
        plotting.clusters(frame, model, ax, dims=["a", "z"])
    with pytest.raises(ValueError, match="dims=5 must be"):
        plotting.clusters(frame, model, ax, dims=[0, 5])


def test_clusters_along_one_feature_and_of_another_set(ax):
    X = np.arange(5.0)[:, None]
    found = quantized.search(X, 2, max_iter=5)
    assert plotting.clusters(X, found, ax) is ax
    assert len(ax.get_yticks()) == 0  # heights mean nothing
    with pytest.raises(ValueError, match=r"\(4, 1\), but the model was fitted to \(5, 1\)"):
        plotting.clusters(X[:4], found, ax)


def test_many_points_are_thinned(ax, monkeypatch):
    drawing = sys.modules["gputabu.plotting.clusters"]  # `plotting.clusters` is the function
    monkeypatch.setattr(drawing, "MANY", 10)
    monkeypatch.setattr(drawing, "SHOWN", 5)
    X = np.arange(24.0).reshape(12, 2)
    plotting.clusters(X, KMeans(2, random_state=0).fit(X), ax)
    drawn = np.concatenate([c.get_offsets() for c in ax.collections if c.get_label() != "centres"])
    np.testing.assert_array_equal(np.sort(drawn[:, 0]), X[[0, 2, 4, 7, 9], 0])


def test_near_clusters_differ_in_colour():
    centers = np.arange(40.0)[:, None] % 20  # neighbours, and twice the same
    colours, markers = style.looks(centers)
    assert len(set(zip(colours, markers, strict=True))) == 40
    for i in range(40):
        near = (np.abs(centers - centers[i]).ravel() <= 1) & (np.arange(40) != i)
        assert colours[i] not in colours[near]
    assert style.looks(centers[:3])[0].tolist() == list(style.COLOURS[:3])


def test_weights_are_areas(ax):
    X = np.array([[0.0, 0.0], [0.0, 1.0], [9.0, 0.0]])
    model = KMeans(1, random_state=0).fit(X)
    plotting.clusters(X, model, ax, weights=[1.0, 3.0, 0.0])
    areas = ax.collections[0].get_sizes()
    assert areas[1] / areas[0] == pytest.approx(3)
    assert areas[2] < areas[0]


@pytest.mark.gpu
def test_device_arrays(iris, ax):
    import cupy

    X = cupy.asarray(iris)
    model = QuantizedTabuKMeans(3, init=[0, 60, 120], max_iter=5).fit(X)
    plotting.clusters(X, model, ax)
    plotting.sizes(model, ax)
    plotting.silhouette(X, model, ax)
    host = QuantizedTabuKMeans(3, init=[0, 60, 120], max_iter=5).fit(iris)
    here, there = (frames.Frames.of(*each, None, 0, np.arange(5), None) for each in ((iris, host), (X, model)))
    for name in ("points", "labels", "path", "final", "leaders"):
        np.testing.assert_array_equal(getattr(here, name), getattr(there, name))


def test_sizes(ax):
    model = KMeans(2, random_state=0).fit([[0.0], [1.0], [2.0], [10.0]])
    assert plotting.sizes(model, ax) is ax
    assert [bar.get_height() for bar in ax.patches] == [3, 1]  # the largest first
    assert labels(ax) == ["even share: 2"]
    assert ax.get_xticklabels()[0].get_text() == str(model.labels_[0])
    ax.clear()
    plotting.sizes(model, ax, weights=[1.0, 1.0, 1.0, 7.0])
    assert [bar.get_height() for bar in ax.patches] == [7, 3]
    with pytest.raises(ValueError, match=r"sample_weight has shape \(3,\) and must be \(4,\)"):
        plotting.sizes(model, ax, weights=[1.0, 1.0, 1.0])


def test_sizes_of_many_clusters(ax):
    X = np.arange(80.0)[:, None]
    plotting.sizes(KMeans(40, random_state=0).fit(X), ax)
    assert len(ax.patches) == 40
    assert len(ax.get_xticks()) == 0


def test_silhouettes_are_those_of_scikit_learn(iris, ax):
    model = KMeans(3, random_state=0).fit(iris)
    assert plotting.silhouette(iris, model, ax) is ax
    assert labels(ax) == [f"mean: {metrics.silhouette_score(iris, model.labels_):.3f}"]
    each = metrics.silhouette_samples(iris, model.labels_)
    for k, knife in enumerate(ax.patches):
        values, edges, _ = knife.get_data()
        np.testing.assert_allclose(values, np.sort(each[model.labels_ == k])[::-1], rtol=1e-12)
        assert edges[-1] - edges[0] == pytest.approx((model.labels_ == k).mean())
    with pytest.raises(ValueError, match="all points in cluster 0; silhouettes need at least two"):
        plotting.silhouette(iris, KMeans(1).fit(iris), ax)


def test_silhouettes_of_a_sample(iris, ax, monkeypatch):
    monkeypatch.setattr("gputabu.selection.criteria.SLICE", 500)  # rows by the dozen
    model = KMeans(3, random_state=0).fit(iris)
    plotting.silhouette(iris, model, ax, sample=60)
    assert ax.get_title("left") == "Silhouettes of 60 of 150 points"
    first = labels(ax)
    ax.clear()
    plotting.silhouette(iris, model, ax, sample=60)
    assert labels(ax) == first  # the same sample
    with pytest.raises(ValueError, match="sample=1 must be an integer >= 2"):
        plotting.silhouette(iris, model, ax, sample=1)


@pytest.mark.parametrize("model", [QuantizedTabuKMeans, KMeans])
def test_trace(model, iris, ax):
    fitted = model(3, random_state=0, init="random", n_init=4, max_iter=40).fit(iris)
    assert plotting.trace(fitted, ax) is ax
    drawn = {line.get_label(): line.get_ydata() for line in ax.lines}
    won = fitted.inertias_.argmin()
    steps = fitted.n_iter_ + 1
    np.testing.assert_array_equal(drawn["$J_n$, current"], fitted.trace_.current[won, :steps])
    np.testing.assert_array_equal(drawn["$J_b$, best so far"], fitted.trace_.best[won, :steps])
    assert "other restarts" in labels(ax)
    assert any(f"{fitted.inertia_:.6g}" in label for label in labels(ax))
    ax.figure.canvas.draw()


def test_a_start_far_above_does_not_flatten_the_trace(iris, ax):
    fitted = QuantizedTabuKMeans(3, init=[0, 1, 2], max_iter=60).fit(iris)
    plotting.trace(fitted, ax)
    assert ax.get_ylim()[1] < fitted.trace_.current[0, 0]
    assert ax.get_ylabel() == f"J (begun at {fitted.trace_.current[0, 0]:.6g})"


def test_trace_of_one_restart(iris, ax):
    plotting.trace(KMeans(3, random_state=0).fit(iris), ax)
    assert "other restarts" not in labels(ax)
    with pytest.raises(ValueError, match="restarts=7 must be an integer from 0 to 0"):
        plotting.trace(KMeans(3, random_state=0).fit(iris), ax, restarts=[7])


def test_boxes(ax):
    runs = {"K-Means": [3.0, 1.0, 2.0], "QM-TS": [1.0]}
    assert plotting.boxes(runs, ax, best_known=1.0) is ax
    assert [label.get_text() for label in ax.get_xticklabels()] == ["K-Means", "QM-TS"]
    assert labels(ax) == ["best known: 1"]
    heights = [line.get_ydata()[0] for line in ax.lines if len(set(line.get_ydata())) == 1]
    assert 2.0 in heights  # a median
    ax.figure.canvas.draw()
    plotting.boxes(runs, ax)


def test_selection_of_one_criterion(iris, ax):
    found = select_k(iris, range(1, 8), "gap", references=2)
    assert found.plot(ax) is ax
    curve = next(line for line in ax.lines if line.get_label().startswith("gap statistic: K = "))
    np.testing.assert_array_equal(curve.get_ydata(), found.table["gap"])
    assert f"recommended: K = {found.n_clusters}" in labels(ax)
    assert ax.get_ylabel() == "gap, ± one error"
    ax.figure.canvas.draw()


def test_selection_of_several_criteria(iris, ax):
    found = select_k(iris, range(1, 8), ["bic", "silhouette"])
    plotting.selection(found, ax)
    assert labels(ax)[:2] == [f"BIC: K = {found.n_clusters}", "silhouette: K = 2"]
    curves = {line.get_label(): line.get_ydata() for line in ax.lines}
    bic = curves[labels(ax)[0]]
    assert (bic[found.n_clusters - 1], bic.min()) == (1.0, 0.0)  # the best is on top
    assert np.isnan(curves["silhouette: K = 2"][0])
    with pytest.raises(ValueError, match="criteria='gap' must be one of 'bic'"):
        plotting.selection(found, ax, ["gap"])
    plt.close(plotting.selection(select_k(iris, [2]), criteria=["bic", "aic"]).figure)
    ax.figure.canvas.draw()


def test_a_figure_is_made_where_none_is_given(iris):
    ax = plotting.trace(QuantizedTabuKMeans(3, max_iter=5).fit(iris))
    assert ax.figure.axes == [ax]
    plt.close(ax.figure)


def test_without_matplotlib_it_says_what_to_install(iris, monkeypatch):
    fitted = KMeans(3, random_state=0).fit(iris)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    monkeypatch.setitem(sys.modules, "matplotlib.animation", None)
    for draw in (plotting.trace, lambda model: plotting.animation(iris, model)):
        with pytest.raises(ImportError, match=r"needs Matplotlib: pip install 'gputabu\[plot\]'"):
            draw(fitted)


def test_a_model_of_scikit_learn(iris, ax):
    model = cluster.KMeans(3, n_init=1, random_state=0).fit(iris)
    plotting.clusters(iris, model, ax)
    plotting.silhouette(iris, model, ax)
    with pytest.raises(TypeError, match="has no trace; fit an estimator of gputabu"):
        plotting.trace(model, ax)


def test_legends_are_not_over_the_data(iris, ax):
    for draw in (
        lambda: plotting.clusters(iris, QuantizedTabuKMeans(3, max_iter=5, random_state=0).fit(iris), ax),
        lambda: plotting.trace(KMeans(3, random_state=0).fit(iris), ax),
    ):
        ax.clear()
        draw()
        ax.figure.canvas.draw()
        assert ax.get_legend().get_window_extent().y0 >= ax.get_window_extent().y1
        assert ax.title.get_window_extent().y0 >= ax.get_window_extent().y1


@pytest.mark.parametrize("scope", quantized.SCOPES)
def test_the_means_tell_the_tabu_list(scope):
    """Of few points, duplicates among them: rows fill up, are cut, and clusters are empty."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 4, (14, 2)).astype(float)
    plan = quantized.Plan(scope=scope)
    released = 0
    for start in range(10):
        means = [rng.choice(14, 4, replace=False)]
        with open_backend(Points.of(X), "numpy") as opened:
            state = quantized.begin(opened, means[0][None], plan)
            held = [np.unique(state.tabu.rows)]
            for _ in range(40):
                rows = state.tabu.rows[0].copy()
                state = quantized.step(opened, state, plan)
                released += (rows == state.means[0][:, None]).any()
                means.append(state.means[0])
                held.append(np.unique(state.tabu.rows[state.tabu.rows >= 0]))
        path = np.array(means)
        spots = np.unique(X, axis=0, return_inverse=True)[1].ravel()[path]
        told = list(frames.tabu_rows(path, spots, scope == "global"))
        assert len(told) == len(held) == 41
        for t in range(41):
            np.testing.assert_array_equal(told[t], held[t], err_msg=f"start {start}, iteration {t}")
    assert released  # the deletion rule was at work


def test_a_film_of_a_tabu_search(iris, tmp_path):
    model = QuantizedTabuKMeans(3, init=[0, 1, 2], max_iter=12).fit(iris)
    seen = frames.Frames.of(iris, model, None, 0, np.arange(13), None)
    assert seen.tabu is not None and seen.leaders is not None
    means = model.trace_.means[0]
    for t in range(13):
        distances = ((iris[:, None] - iris[means[t]]) ** 2).sum(axis=2)
        np.testing.assert_array_equal(seen.labels[t], distances.argmin(axis=1))
        np.testing.assert_array_equal(seen.path[t], seen.projection.places(iris[means[t]]))
        lead = means[np.flatnonzero(model.trace_.current[0] == model.trace_.best[0, t])[0]]
        np.testing.assert_array_equal(seen.leaders[t], seen.projection.places(iris[lead]))
    np.testing.assert_array_equal(seen.labels[13], model.labels_)
    before = plt.get_fignums()
    path = plotting.write(plotting.animation(iris, model, frames=3), tmp_path / "search.gif")
    with Image.open(path) as gif:
        assert gif.n_frames >= 4  # the last picture stays
    path = plotting.write(plotting.animation(iris, model, frames=3), tmp_path / "search.html")
    assert path.read_text(encoding="utf-8").count("data:image/png") >= 4
    assert plt.get_fignums() == before  # no figure is left with pyplot


def test_a_film_has_the_last_improvement_in_it():
    trace = Trace(np.zeros((1, 101)), np.r_[9.0, np.full(36, 8.0), np.full(64, 7.0)][None], np.zeros((1, 100)))
    assert frames.iterations(trace, 0, 5).tolist() == [0, 25, 37, 50, 75, 100]
    assert frames.iterations(trace, 0, 1000).tolist() == list(range(101))


def test_a_film_of_what_was_not_recorded(iris):
    """The clusters found, or those of centres that are given."""
    model = TabuKMeans(3, max_iter=4, patience=4, random_state=0).fit(iris)
    shown = np.arange(3)
    seen = frames.Frames.of(iris, model, [0, 1], 0, shown, None)
    assert seen.size.endswith("as found") and seen.tabu is None
    assert (seen.labels == model.labels_).all()
    given = {0: iris[:3], 2: iris[[0, 60, 120]]}
    seen = frames.Frames.of(iris, model, [0, 1], 0, shown, given)
    np.testing.assert_array_equal(seen.path[0], iris[:3, :2])
    np.testing.assert_array_equal(seen.path[1], seen.path[0])
    np.testing.assert_array_equal(seen.path[2], iris[[0, 60, 120], :2])
    with pytest.raises(ValueError, match=r"centers has iterations \[2\] and must begin with iteration 0"):
        plotting.animation(iris, model, centers={2: iris[:3]})
    with pytest.raises(ValueError, match=r"centers\[0\] has shape \(2, 4\) and must be \(3, 4\)"):
        plotting.animation(iris, model, centers={0: iris[:2]})


def test_films_check_their_parameters(iris, tmp_path):
    model = QuantizedTabuKMeans(3, init=[0, 1, 2], max_iter=3).fit(iris)
    with pytest.raises(ValueError, match="restart=1 must be an integer from 0 to 0"):
        plotting.animation(iris, model, restart=1)
    with pytest.raises(ValueError, match="frames=1 must be an integer >= 2"):
        plotting.animation(iris, model, frames=1)
    figure = plt.figure()
    film = plotting.animation(iris, model, figure, frames=2)
    with pytest.raises(ValueError, match=r"path ending='.mp4' must be one of '.gif', '.html'"):
        plotting.write(film, tmp_path / "search.mp4")
    pages = film.to_jshtml(), plotting.player(film)
    pictures = [re.findall(r'"data:image/png;base64,([^"]+)"', page) for page in pages]
    assert len(pictures[0]) == len(pictures[1]) > 0
    assert sum(map(len, pictures[1])) < sum(map(len, pictures[0])) / 2  # fewer colours
    first, ours = (Image.open(io.BytesIO(base64.b64decode(each[0].replace("\\\n", "")))) for each in pictures)
    assert first.size == ours.size and np.abs(np.asarray(first.convert("RGB"), int) - ours.convert("RGB")).mean() < 2
    plt.close(figure)
