"""Bad input, one by one: one sentence that names the parameter and the value, before any work."""

from __future__ import annotations

import warnings
from functools import partial

import numpy as np
import pytest
import sklearn.cluster
from scipy import sparse
from sklearn.utils._param_validation import InvalidParameterError

from gputabu import (
    FuzzyCMeans,
    GMeans,
    KMeans,
    Points,
    QuantizedTabuKMeans,
    TabuKMeans,
    TabuSearchClustering,
    chunked,
    lloyd,
    quantized,
    reassignment,
    relocation,
)

X = np.random.default_rng(0).normal(size=(20, 3))


def spoiled(value: float) -> np.ndarray:
    bad = X.copy()
    bad[7, 1] = value
    return bad


DATA = [
    (spoiled(np.nan), ValueError, "NaN"),
    (spoiled(np.inf), ValueError, "infinity"),
    (spoiled(-np.inf), ValueError, "infinity"),
    (spoiled(1e120), ValueError, r"1e\+120.*at most 1e\+100"),
    (X * 1e-200, ValueError, "spans only.*at least 1e-100"),
    (np.empty((0, 3)), ValueError, r"0, 3|0 sample"),
    (np.empty((20, 0)), ValueError, r"20, 0|0 feature"),
    (X[:, 0], ValueError, r"\(20,\)|1D array"),
    (X[None], ValueError, r"\(1, 20, 3\)|dim 3"),
    (np.full((20, 3), "a"), (TypeError, ValueError), "numbers|numeric|convert"),
    (X.astype(complex), (TypeError, ValueError), "[Cc]omplex|real numbers"),
    (sparse.csr_array(X), (TypeError, ValueError), "[Ss]parse"),
    ([[1.0, 2.0], [3.0]], ValueError, "inhomogeneous|real numbers"),
]


@pytest.mark.trap(5)
@pytest.mark.parametrize(("bad", "error", "message"), DATA)
@pytest.mark.parametrize(
    "fit",
    [
        lambda bad: QuantizedTabuKMeans(2).fit(bad),
        lambda bad: KMeans(2).fit(bad),
        lambda bad: quantized.search(bad, 2),
        lambda bad: lloyd.run(bad, 2),
        lambda bad: TabuSearchClustering(2).fit(bad),
        lambda bad: reassignment.search(bad, 2),
    ],
    ids=["QuantizedTabuKMeans", "KMeans", "search", "run", "TabuSearchClustering", "reassignment"],
)
def test_data(fit, bad, error, message):
    with pytest.raises(error, match=message):
        fit(bad)


PARAMETERS = [
    ({"n_clusters": 21}, ValueError, r"n_samples=20 should be >= n_clusters=21\."),
    ({"n_clusters": True}, TypeError, r"n_clusters=True must be"),
    ({"init": X[:3]}, ValueError, r"init has shape \(3, 3\).*\(2, 3\) or 2 row numbers"),
    ({"init": X[:2, :2]}, ValueError, r"init has shape \(2, 2\)"),
    ({"init": [0, 20]}, ValueError, r"init contains row 20; rows must be from 0 to 19\."),
    ({"init": [-1, 2]}, ValueError, r"init contains row -1"),
    ({"init": [0.5, 1.5]}, ValueError, r"init has shape \(2,\) and dtype float64"),
    ({"init": [0, 1, 2]}, ValueError, r"init has shape \(3,\)"),
    ({"init": np.full((2, 3), np.nan)}, ValueError, "init contains NaN"),
    ({"backend": "gpu"}, ValueError, r"backend='gpu' must be one of"),
]
TABU = [
    ({"patience": 0}, ValueError, r"patience=0 must be an integer >= 1\."),
    ({"refine": "best"}, ValueError, r"refine='best' must be one of 'lloyd', 'centroid', 'hartigan'\."),
    ({"scope": "all"}, ValueError, r"scope='all' must be one of 'cluster', 'global'\."),
    ({"n_neighbors": 0}, ValueError, r"n_neighbors=0 must be an integer >= 1\."),
]
LABELS = [
    (
        {"init": X[:2]},
        ValueError,
        r"init has shape \(2, 3\) and dtype float64; labels must be 20 integers from 0 to 1\.",
    ),
    ({"init": [[0], [1, 2]]}, ValueError, r"init has shape \(0,\) and dtype object; labels must be 20 integers"),
    ({"init": [0, 1]}, ValueError, r"init has shape \(2,\) and dtype int64; labels must be 20 integers"),
    ({"init": np.zeros(20)}, ValueError, r"init has shape \(20,\) and dtype float64; labels must be 20 integers"),
    ({"init": [0] * 19 + [2]}, ValueError, r"init contains label 2; labels must be from 0 to 1\."),
    ({"init": [0] * 19 + [-1]}, ValueError, r"init contains label -1; labels must be from 0 to 1\."),
    ({"n_trials": 0}, ValueError, r"n_trials=0 must be an integer >= 1\."),
    ({"tenure": 0}, ValueError, r"tenure=0 must be an integer >= 1\."),
    ({"keep": 1}, ValueError, r"keep=1 must be a finite number >= 0 and < 1\."),
    ({"keep": -0.1}, ValueError, r"keep=-0\.1 must be a finite number >= 0 and < 1\."),
    ({"keep": np.nan}, ValueError, r"keep=nan must be a finite number >= 0 and < 1\."),
    ({"keep": "most"}, TypeError, r"keep='most' must be a number >= 0 and < 1\."),
    ({"refine": "centroid"}, ValueError, r"refine='centroid' must be None or 'lloyd' or 'hartigan'\."),
]
LLOYD = [
    ({"refine": "lloyd"}, ValueError, r"refine='lloyd' must be None or 'hartigan'\."),
    ({"refine": 1}, ValueError, r"refine=1 must be None or 'hartigan'\."),
]


@pytest.mark.trap(4)
@pytest.mark.parametrize(
    ("model", "changes", "error", "message"),
    [(model, *row) for model in (QuantizedTabuKMeans, KMeans) for row in PARAMETERS]
    + [(QuantizedTabuKMeans, *row) for row in TABU]
    + [(KMeans, *row) for row in LLOYD]
    + [(TabuSearchClustering, *row) for row in PARAMETERS if "init" not in row[0]]
    + [(TabuSearchClustering, *row) for row in LABELS],
)
def test_parameters(model, changes, error, message):
    with pytest.raises(error, match=message):
        model(**{"n_clusters": 2, **changes}).fit(X)


#: What scikit-learn's K-Means checks as well.
SHARED = {
    "n_clusters": (0, -3, 2.0, "3", None),
    "init": ("best", 7, None),
    "n_init": (0, "many", 1.5),
    "max_iter": (0, 2.5, "x"),
    "tol": (-1e-3, np.nan, "small"),
    "random_state": (-1, "x", 2**64),
    "verbose": (-1, "much"),
}


@pytest.mark.parametrize("name", SHARED)
@pytest.mark.parametrize("model", [TabuKMeans, QuantizedTabuKMeans, KMeans, TabuSearchClustering, FuzzyCMeans, GMeans])
def test_what_scikit_learn_checks_gets_its_words(model, name):
    for value in SHARED[name] if name in model().get_params() else ():
        with pytest.raises(InvalidParameterError) as ours:
            model(**{name: value}).fit(X)
        with pytest.raises(InvalidParameterError) as theirs:
            sklearn.cluster.KMeans(**{name: value}).fit(X)
        subject, _, rest = str(ours.value).partition(" must be ")
        their_subject, _, their_rest = str(theirs.value).partition(" must be ")
        assert subject == their_subject.replace("of KMeans", f"of {model.__name__}")
        assert rest.rpartition(" Got ")[2] == their_rest.rpartition(" Got ")[2]
        if model is KMeans and name not in ("random_state", "init"):  # which may be more than there
            assert rest == their_rest


SEARCHES = [quantized.search, relocation.search, lloyd.run, reassignment.search]
WRONG = [
    *((search, "max_iter", 0, "an integer >= 1") for search in SEARCHES),
    *((search, "max_iter", 1.0, "an integer >= 1") for search in SEARCHES),
    *((search, "n_clusters", 0, "an integer >= 1") for search in SEARCHES),
    *((search, "restarts", 0, "an integer >= 1") for search in SEARCHES),
    *((search, "patience", 0, "an integer >= 1") for search in (quantized.search, relocation.search)),
    *((search, "max_time", -1, "a finite number >= 0") for search in (quantized.search, relocation.search)),
    *((search, "target", -0.5, "a finite number >= 0") for search in (quantized.search, relocation.search)),
    (quantized.search, "scope", "all", "one of 'cluster', 'global'"),
    (quantized.search, "n_neighbors", 0, "an integer >= 1"),
    (quantized.search, "refine", "best", "one of 'lloyd', 'centroid', 'hartigan'"),
    (relocation.search, "candidates", 0, "an integer >= 1"),
    (relocation.search, "tenure", -1, "an integer from 0 to 2"),
    (relocation.search, "tenure", 3, "an integer from 0 to 2"),
    (relocation.search, "go_back", 0, "an integer >= 1"),
    (relocation.search, "returns", 0, "an integer >= 1"),
    (relocation.search, "refine", "centroid", "one of 'hartigan', 'lloyd'"),
    (lloyd.run, "tol", -0.5, "a finite number >= 0"),
    (lloyd.run, "refine", "lloyd", "None or 'hartigan'"),
    (lloyd.run, "trials", 0, "an integer >= 1"),
]


@pytest.mark.parametrize(("search", "name", "value", "allowed"), WRONG)
def test_parameters_of_searches(search, name, value, allowed):
    with pytest.raises((ValueError, TypeError)) as caught:
        search(**{"X": X, "n_clusters": 3, name: value})
    assert str(caught.value) == f"{name}={value!r} must be {allowed}."


@pytest.mark.parametrize("search", SEARCHES)
def test_a_device_needs_a_backend_with_devices(search):
    with pytest.raises(ValueError, match=r"^device=0 chooses a GPU and cannot go with backend='numpy'\.$"):
        search(X, 2, device=0, backend="numpy")


@pytest.mark.parametrize(
    ("weights", "error", "message"),
    [
        (np.r_[-0.5, np.ones(19)], ValueError, r"sample_weight contains -0\.5; weights must be finite"),
        (np.r_[np.nan, np.ones(19)], ValueError, "sample_weight contains NaN"),
        (np.r_[np.inf, np.ones(19)], ValueError, "sample_weight contains NaN or infinity"),
        (np.zeros(20), ValueError, "sample_weight is zero everywhere"),
        (np.ones(19), ValueError, r"sample_weight has shape \(19,\) and must be \(20,\)"),
        (np.ones((20, 1)), ValueError, r"sample_weight has shape \(20, 1\)"),
        (["heavy"] * 20, TypeError, "sample_weight must hold numbers"),
        (np.full(20, 1e120), ValueError, r"sample_weight has maximum 1e\+120"),
    ],
)
@pytest.mark.parametrize("model", [QuantizedTabuKMeans(2), KMeans(2)])
def test_weights(model, weights, error, message):
    with pytest.raises(error, match=message):
        model.fit(X, sample_weight=weights)


def test_fewer_points_than_clusters_among_those_of_positive_weight(backend):
    """Zero-weight points are absent: clusters beyond the others stay empty, and a warning says so."""
    weights = np.r_[1.0, 1.0, np.zeros(18)]
    with pytest.warns(UserWarning, match="distinct clusters"):
        model = KMeans(5, random_state=0, backend=backend).fit(X, sample_weight=weights)
    assert model.inertia_ == 0
    assert np.isfinite(model.cluster_centers_).all()


@pytest.mark.parametrize(
    ("dtype", "kept"),
    [
        (np.float32, np.float32),
        (np.float64, np.float64),
        (np.float16, np.float32),
        (np.int8, np.float64),
        (np.uint16, np.float64),
        (np.int32, np.float64),
        (np.int64, np.float64),
        (np.bool_, np.float64),
        (">f4", np.float32),
        (">f8", np.float64),
    ],
)
@pytest.mark.parametrize("model", [QuantizedTabuKMeans, KMeans])
def test_dtypes_are_kept_or_widened(model, dtype, kept):
    data = (np.arange(40).reshape(20, 2) % 7).astype(dtype)
    fitted = model(2, random_state=0).fit(data)
    assert fitted.cluster_centers_.dtype == kept
    reference = model(2, random_state=0).fit(data.astype(np.float64))
    np.testing.assert_array_equal(fitted.labels_, reference.labels_)


@pytest.mark.parametrize("data", [np.array([[2**53 + 1], [0]]), np.array([[1 + np.finfo(np.longdouble).eps], [0]])])
def test_narrowing_is_said(data):
    if data.dtype == np.longdouble and data.itemsize == 8:
        pytest.skip("long double is float64 here")
    with pytest.warns(UserWarning, match="cannot hold"):
        Points.of(data)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        Points.of(np.rint(data // 2**53))


@pytest.mark.parametrize("take", [partial(quantized.search, n_clusters=2), KMeans(2).fit, Points.of, chunked])
def test_what_is_masked_is_not_read(take):
    """NumPy and scikit-learn read the values under a mask without a word."""
    masked = np.ma.masked_array(X, mask=np.zeros(X.shape, bool))
    take(masked)
    masked[3, 1] = masked[4, 0] = np.ma.masked
    with pytest.raises(ValueError, match=r"X is a masked array with 2 masked values; it must have none\."):
        take(masked)
    with pytest.raises(ValueError, match=r"sample_weight is a masked array with 1 masked values"):
        KMeans(2).fit(X, sample_weight=np.ma.masked_less(np.arange(len(X)), 1))


@pytest.mark.parametrize(
    ("restarts", "error", "message"),
    [
        ([], ValueError, r"restarts=\[\] must name at least one"),
        (0, ValueError, r"restarts=0 must be an integer >= 1\."),
        ([1.5], TypeError, r"restarts=1\.5 must be an integer"),
        ("12", TypeError, r"restarts='12' must be an integer"),
        ([2**64], ValueError, r"restarts=18446744073709551616 must be"),
        ([-1], ValueError, r"restarts=-1 must be"),
    ],
)
def test_restarts(restarts, error, message):
    with pytest.raises(error, match=message):
        quantized.search(X, 2, restarts=restarts)


def test_points_have_their_weights_already():
    points = Points.of(X)
    with pytest.raises(TypeError, match="X is a Points already"):
        quantized.search(points, 2, weights=np.ones(20))
    with pytest.raises(ValueError, match="chunk_rows=0 must be an integer >= 1"):
        Points.of(X, chunk_rows=0)


def test_extremes_do_not_warn():
    """Warnings are errors here: what overflows inside is meant to, and decided canonically."""
    QuantizedTabuKMeans(2, random_state=0).fit(np.array([[0], [3e38], [-3e38]], np.float32))
    lloyd.run(np.repeat([[0.0], [1e-99]], 5, axis=0), 3)
    fitted = QuantizedTabuKMeans(2, random_state=0).fit([[0.0], [1.0], [2.0], [1e100]], sample_weight=[1, 1, 1, 0])
    assert fitted.inertia_ == 0.5
    empty = lloyd.run([[0.0], [1.0], [2.0], [1e100]], 2, weights=[1, 1, 1, 0], init=[[0.0], [50.0]])
    assert empty.inertia == 0.5
    quantized.search([[1e-86], [0.0], [1e53]], 1, weights=[1, 2, 0], n_neighbors=2)
    relocation.search([[1e-86], [0.0], [2e-86], [1e53]], 2, weights=[1, 2, 1, 0], max_iter=3)
    lloyd.run([[1e-86], [0.0], [2e-86], [1e53]], 2, weights=[1, 2, 1, 0], init=[[0.0], [1.0]], refine="hartigan")


@pytest.mark.parametrize("model", [QuantizedTabuKMeans, TabuKMeans, KMeans])
@pytest.mark.parametrize(
    "X",
    [
        np.array([[1], [-1], [5], [6]], np.float32) * np.float32(2.0**-149),
        np.array([[-3e38, 3e38], [3e38, -3e38], [1e38, 3e38], [3e38, 3e38]], np.float32),
        np.array([[1e-308, 1], [0, 0], [0, 0.25], [5e-324, 0]]),
    ],
    ids=["denormal", "largest", "a denormal feature"],
)
def test_numbers_at_the_limits(X, model, backend):
    """Warnings are errors: a unit that float32 has not, sums and distances beyond it, a grid finer than numbers."""
    fitted = model(2, random_state=0, backend=backend).fit(X)
    assert len(set(fitted.labels_)) == 2
    for k in range(2):
        mean = X[fitted.labels_ == k].astype(float).mean(axis=0)
        np.testing.assert_allclose(fitted.cluster_centers_[k], mean.astype(X.dtype), rtol=1e-6, atol=1e-300)
    assert fitted.inertia_ == -fitted.score(X)
    assert (fitted.transform(X) >= 0).all()


def test_centres_that_float32_cannot_hold():
    """A cluster that stays empty keeps its centre, which would come back as infinity."""
    single = np.ones((5, 1), np.float32)
    with pytest.raises(
        ValueError, match=r"init contains -1e\+50; of X in float32, absolute values must be at most 3.4"
    ):
        lloyd.run(single, 2, init=[[0.0], [-1e50]])
    assert lloyd.run(single, 2, init=[[0.0], [-3e38]]).centers.tolist() == [[1.0], [np.float32(-3e38)]]


def test_one_message_is_one_sentence():
    with pytest.raises(ValueError, match="NaN") as caught:
        quantized.search(spoiled(np.nan), 2)
    assert "\n" not in str(caught.value)
