"""Data frames: the numbers of all their dtypes, sentences for what is no number, and labels with their index."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from conftest import blobs
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gputabu import KMeans, QuantizedTabuKMeans, lloyd, plotting, quantized, select_k
from gputabu.backend import as_points

X = blobs(60, 3, 4)
WHOLE = np.rint(X * 4)
NAMES = ["a", "b", "c"]
FRAMES = {
    "pandas": lambda array: pd.DataFrame(array, columns=NAMES, index=np.arange(60)[::-1] + 7),
    "nullable": lambda array: pd.DataFrame(array, columns=NAMES).convert_dtypes(),
    "arrow": lambda array: pd.DataFrame(array, columns=NAMES).convert_dtypes(dtype_backend="pyarrow"),
    "object": lambda array: pd.DataFrame(array, columns=NAMES, dtype=object),
    "polars": lambda array: pl.DataFrame(array, schema=NAMES),
    "pyarrow": lambda array: pa.table(dict(zip(NAMES, array.T, strict=True))),
}


@pytest.mark.parametrize("make", FRAMES.values(), ids=FRAMES)
@pytest.mark.parametrize("array", [X, X.astype(np.float32), WHOLE.astype(int)], ids=["float64", "float32", "int64"])
def test_frames_are_clustered_as_their_numbers(make, array):
    frame, weights = make(array), np.arange(60) % 3
    fitted = QuantizedTabuKMeans(4, random_state=0, max_iter=10).fit(frame, sample_weight=weights)
    wide = array.astype(float) if isinstance(frame, pd.DataFrame) and frame.dtypes.eq(object).all() else array
    expected = QuantizedTabuKMeans(4, random_state=0, max_iter=10).fit(wide, sample_weight=weights)
    np.testing.assert_array_equal(fitted.labels_, expected.labels_)
    np.testing.assert_array_equal(fitted.cluster_centers_, expected.cluster_centers_)
    assert fitted.cluster_centers_.dtype == expected.cluster_centers_.dtype
    assert fitted.feature_names_in_.tolist() == NAMES
    for found in (fitted.labels_, fitted.predict(frame), fitted.transform(frame), fitted.cluster_centers_):
        assert type(found) is np.ndarray  # as in scikit-learn, unless `set_output` says otherwise


@pytest.mark.parametrize("dtype", ["Float32", "float[pyarrow]"])
def test_float32_stays_float32_in_every_dress(dtype):
    frame = pd.DataFrame(X, columns=NAMES).astype(dtype)
    assert KMeans(4, random_state=0).fit(frame).cluster_centers_.dtype == np.float32


def test_integers_that_float64_cannot_hold_are_said():
    frame = pd.DataFrame({"a": [2**53 + 1, 0, 1]}).astype("Int64")
    with pytest.warns(UserWarning, match="values that float64 cannot hold"):
        KMeans(2).fit(frame)


def test_values_in_one_piece_are_not_copied():
    (chunk,) = as_points(pd.DataFrame(X, copy=False)).chunks
    assert np.shares_memory(chunk, X)


@pytest.mark.parametrize("make", [FRAMES["pandas"], FRAMES["nullable"], FRAMES["polars"]])
def test_names_are_checked(make):
    frame = make(X)
    fitted = KMeans(4, random_state=0).fit(frame)
    other = (
        pl.DataFrame(X, schema=["z", "b", "c"]) if isinstance(frame, pl.DataFrame) else frame.rename(columns={"a": "z"})
    )
    with pytest.raises(ValueError, match="The feature names should match those that were passed during fit"):
        fitted.predict(other)
    with pytest.raises(ValueError, match="Feature names must be in the same order"):
        fitted.predict(frame[["c", "b", "a"]])
    with pytest.warns(UserWarning, match="X does not have valid feature names"):
        fitted.predict(X)


@pytest.mark.parametrize(
    ("frame", "error", "message"),
    [
        (pd.DataFrame({"a": [1.0, np.nan]}), ValueError, "X has missing values in column 'a'; every value must be"),
        (pd.DataFrame({"a": [1, None]}, dtype="Int64"), ValueError, "X has missing values in column 'a'"),
        (pd.DataFrame({"a": [1, None]}, dtype="int64[pyarrow]"), ValueError, "X has missing values in column 'a'"),
        (pl.DataFrame({"a": [1, None]}), ValueError, "X has missing values in column 'a'"),
        (pl.DataFrame({"a": [1.0, float("nan")]}), ValueError, "X contains NaN"),
        (pa.table({"a": [1, None]}), ValueError, "X has missing values in column 'a'"),
        (
            pd.DataFrame({"a": [1], "b": pd.Categorical([2])}),
            TypeError,
            "X has column 'b' of dtype Categorical; all must",
        ),
        (pd.DataFrame({"a": ["1"]}), TypeError, "X has column 'a' of dtype String; all must be numbers"),
        (pd.DataFrame({"a": pd.to_datetime(["2020-02-02"])}), TypeError, "X has column 'a' of dtype Datetime"),
        (pd.DataFrame({"a": [1.0]}).astype(pd.SparseDtype(float)), TypeError, "X has column 'a' of dtype Unknown"),
        (pl.DataFrame({"a": ["x"]}), TypeError, "X has column 'a' of dtype String"),
        (pl.DataFrame({"a": ["x"]}).cast(pl.Categorical), TypeError, "X has column 'a' of dtype Categorical"),
        (pl.DataFrame({"a": [[1.0]]}), TypeError, r"X has column 'a' of dtype List\(Float64\)"),
        (pl.LazyFrame({"a": [1.0]}), TypeError, r"X is a LazyFrame and must have values: pass X\.collect\(\)"),
    ],
)
@pytest.mark.filterwarnings("ignore::polars.exceptions.PerformanceWarning")
def test_what_is_no_number_is_said(frame, error, message):
    for fit in (KMeans(1).fit, lambda frame: lloyd.run(frame, 1)):
        with pytest.raises(error, match=message):
            fit(frame)


@pytest.mark.parametrize(
    "weights",
    [
        pd.Series(np.arange(60) % 3, index=np.arange(60)[::-1]),
        pd.Series(np.arange(60) % 3, dtype="Int64"),
        pd.Series(np.arange(60) % 3, dtype="double[pyarrow]"),
        pl.Series(np.arange(60) % 3),
        pa.chunked_array([np.arange(60) % 3]),
        pa.array(np.arange(60) % 3),
    ],
    ids=lambda weights: f"{type(weights).__module__}.{type(weights).__name__}",
)
@pytest.mark.filterwarnings("ignore:Exporting an unversioned DLPack:DeprecationWarning")  # all that NumPy 2.0 knows
def test_weights_in_a_series(weights):
    expected = KMeans(4, random_state=0).fit(X, sample_weight=np.arange(60) % 3)
    for frame in (X, pd.DataFrame(X)):
        found = KMeans(4, random_state=0).fit(frame, sample_weight=weights)
        np.testing.assert_array_equal(found.cluster_centers_, expected.cluster_centers_)


@pytest.mark.parametrize("library", [pd, pl])
def test_weights_that_are_missing_or_no_numbers(library):
    with pytest.raises(ValueError, match="sample_weight has missing values; every value must be a finite number"):
        KMeans(1).fit([[1.0], [2.0]], sample_weight=library.Series([1.0, None]))
    with pytest.raises(TypeError, match="sample_weight is a series of dtype String; all must be numbers"):
        KMeans(1).fit([[1.0], [2.0]], sample_weight=library.Series(["x", "y"]))


INDEXES = {
    "numbers": np.arange(60)[::-1] + 7,
    "text": [f"row {i}" for i in range(60)],
    "dates": pd.date_range("2020-01-01", periods=60),
    "pairs": pd.MultiIndex.from_product([range(6), range(10)], names=["u", "v"]),
    "repeated": [0] * 60,
}


@pytest.mark.parametrize("index", INDEXES.values(), ids=INDEXES)
def test_labels_as_a_series_of_pandas(index):
    frame = pd.DataFrame(X, columns=NAMES, index=index)
    plain = KMeans(4, random_state=0).fit(frame)
    model = KMeans(4, random_state=0).set_output(transform="pandas")
    for found in (model.fit_predict(frame), model.labels_, model.predict(frame)):
        assert isinstance(found, pd.Series)
        assert (found.name, found.dtype) == ("cluster", np.int32)
        pd.testing.assert_index_equal(found.index, frame.index)
        np.testing.assert_array_equal(found.to_numpy(), plain.labels_)
    distances = model.transform(frame)
    pd.testing.assert_index_equal(distances.index, frame.index)
    np.testing.assert_array_equal(distances.to_numpy(), plain.transform(frame))
    some = frame.iloc[[5, 1]]
    pd.testing.assert_index_equal(model.predict(some).index, some.index)


def test_labels_as_a_series_of_polars():
    frame = pl.DataFrame(X, schema=NAMES)
    model = KMeans(4, random_state=0).set_output(transform="polars")
    for found in (model.fit_predict(frame), model.labels_, model.predict(frame)):
        assert isinstance(found, pl.Series)
        assert (found.name, found.dtype) == ("cluster", pl.Int32)
    assert isinstance(model.transform(frame), pl.DataFrame)
    assert frame.with_columns(model.labels_).columns == [*NAMES, "cluster"]


def test_the_output_asked_for_is_that_of_any_input():
    model = KMeans(4, random_state=0).set_output(transform="pandas")
    for given in (X, pl.DataFrame(X), X.tolist()):
        labels = model.fit_predict(given)
        assert isinstance(labels, pd.Series) and labels.index.tolist() == list(range(60))
    assert type(model.set_output(transform="default").predict(X)) is np.ndarray


def test_no_columns():
    for make in (pd.DataFrame, pl.DataFrame):
        with pytest.raises(ValueError, match=r"0 (sample|feature)\(s\)"):
            KMeans(1).fit(make())


def test_columns_of_several_dtypes():
    columns = {"a": [1, 2, 3], "b": [0.5, 1.5, 9.0], "c": [True, False, True]}
    expected = KMeans(2, random_state=0).fit(np.column_stack(list(columns.values())))
    for make in (pd.DataFrame, pl.DataFrame, pa.table):
        found = KMeans(2, random_state=0).fit(make(columns))
        np.testing.assert_array_equal(found.cluster_centers_, expected.cluster_centers_)


def test_in_a_pipeline():
    frame = FRAMES["pandas"](X)
    pipeline = make_pipeline(StandardScaler(), KMeans(4, random_state=0)).set_output(transform="pandas")
    labels = pipeline.fit_predict(frame)
    pd.testing.assert_index_equal(labels.index, frame.index)
    assert frame.assign(cluster=labels).groupby("cluster").size().sum() == 60


def test_what_else_reads_labels(tmp_path):
    frame = pd.DataFrame(X, columns=NAMES, index=INDEXES["text"])
    model = KMeans(4, random_state=0).set_output(transform="pandas").fit(frame)
    np.testing.assert_array_equal(model.to_sklearn().labels_, model.labels_)
    model.save(tmp_path / "m")
    pytest.importorskip("matplotlib").use("agg")
    plotting.clusters(frame, model)


def test_plain_functions_take_frames():
    expected = quantized.search(X, 4, max_iter=5)
    for make in FRAMES.values():
        found = quantized.search(make(X), 4, max_iter=5)
        assert type(found.labels) is np.ndarray
        assert found.inertia == expected.inertia
    assert select_k(pl.DataFrame(X), [2, 3]).n_clusters in (2, 3)


def test_starts_from_a_frame():
    expected = KMeans(4, init=X[:4]).fit(X)
    for make in (pd.DataFrame, pl.DataFrame):
        np.testing.assert_array_equal(KMeans(4, init=make(X[:4])).fit(X).labels_, expected.labels_)
