"""Pictures have what they promise in them, and a machine without Matplotlib is told what to install."""

from __future__ import annotations

import sys

import numpy as np
import pytest

from gputabu import KMeans, TabuKMeans, plotting, quantized, select_k

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
    model = TabuKMeans(2, random_state=0).fit(X)
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
    with pytest.raises(ValueError, match=r"\(4, 1\), but the model was fitted to \(5, 1\)"):
        plotting.clusters(X[:4], found, ax)


def test_many_points_are_thinned():
    shown = plotting._thinned(1_000_000)
    assert (len(shown), shown[0], shown[-1]) == (plotting.SHOWN, 0, 999_980)
    assert len(plotting._thinned(plotting.MANY)) == plotting.MANY


@pytest.mark.parametrize("model", [TabuKMeans, KMeans])
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
    ax = plotting.trace(TabuKMeans(3, max_iter=5).fit(iris))
    assert ax.figure.axes == [ax]
    plt.close(ax.figure)


def test_without_matplotlib_it_says_what_to_install(iris, monkeypatch):
    fitted = KMeans(3, random_state=0).fit(iris)
    monkeypatch.setitem(sys.modules, "matplotlib.pyplot", None)
    with pytest.raises(ImportError, match=r"needs Matplotlib: pip install 'gputabu\[plot\]'"):
        plotting.trace(fitted)
