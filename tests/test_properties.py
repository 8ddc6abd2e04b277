"""What must hold for any data, over all searches and backends.

Where nothing may change, nothing must be rounded either: `exact_cases` draws integers times a number that every weight
of a cluster divides. Then centroids, distances and J are integers, a tie is a tie, and the searches go the same way
step by step however the data is moved, scaled or repeated.
"""

from __future__ import annotations

import inspect
import math
import tempfile
import warnings
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path

import numpy as np
import oracle
import pytest
import tally
from conftest import blobs, same
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from sklearn.exceptions import ConvergenceWarning

from gputabu import (
    KMeans,
    Points,
    QuantizedTabuKMeans,
    TabuKMeans,
    TabuSearchClustering,
    chunked,
    lloyd,
    load,
    quantized,
    reassignment,
    relocation,
    select_k,
)
from gputabu.backend.arithmetic.constants import NOISE

SEARCHES = {
    "K-Means": lloyd.run,
    "single moves": partial(lloyd.run, refine="hartigan"),
    "quantized": partial(quantized.search, max_iter=12),
    "neighbours": partial(quantized.search, max_iter=8, scope="global", n_neighbors=2, refine="hartigan"),
    "relocation": partial(relocation.search, max_iter=8),
    "labellings": partial(reassignment.search, max_iter=8, keep=0.7, refine="lloyd"),
}
MODELS = [
    partial(QuantizedTabuKMeans, max_iter=12),
    partial(TabuKMeans, max_iter=8),
    KMeans,
    partial(TabuSearchClustering, max_iter=8),
]
METHODS = st.sampled_from(sorted(SEARCHES))
CENTRES = st.sampled_from(sorted(SEARCHES.keys() - {"labellings"}))  # searches that draw no words for rows
TABU = st.sampled_from(["quantized", "neighbours", "relocation"])


def holds(row: str, least: int, **drawn):
    """A test of a property that takes the backend and what is drawn; the kernels on the CPU are slow, and try less."""

    def decorate(check):
        def test(backend):
            @settings(max_examples=tally.trials(max(2, least // 5) if backend == "cuda" else least))
            @given(**drawn)
            def once(**values):
                check(backend=backend, **values)
                tally.tried(row)

            once()

        test.__name__, test.__doc__ = check.__name__, inspect.getdoc(check)
        return test

    return decorate


@dataclass(frozen=True)
class Case:
    """Points that nothing is rounded of, and how to cluster them."""

    X: np.ndarray
    k: int
    weights: np.ndarray | None
    init: object
    unit: int  # what coordinates are multiples of

    def cluster(self, method: str, backend: str):
        init = "random" if method == "labellings" else self.init
        return SEARCHES[method](self.X, self.k, weights=self.weights, init=init, backend=backend)


@st.composite
def exact_cases(draw, weighted: bool | None = None, given_rows: bool = False) -> Case:
    dtype = draw(st.sampled_from([np.float32, np.float64]), "dtype")
    total = 8 if dtype is np.float32 else 16
    heavy = draw(st.booleans(), "weighted") if weighted is None else weighted
    n = draw(st.integers(2, total // 2 if heavy else total), "N")
    k = draw(st.integers(1, min(n, 4)), "K")
    width = draw(st.sampled_from([1, 3, 20]), "width")  # few values make ties and duplicates
    d = draw(st.integers(1, 3), "d")
    unit = math.lcm(*range(1, total + 1))
    X = draw(arrays(np.int64, (n, d), elements=st.integers(-width, width)), "X") * unit
    weights = draw(arrays(np.int64, n, elements=st.integers(1, 2)), "weights") if heavy else None
    rows = st.permutations(range(n)).map(lambda order: order[:k])
    init = draw(rows if given_rows else st.one_of(st.sampled_from(["random", "k-means++"]), rows), "init")
    return Case(X.astype(dtype), k, weights, init, unit)


def alike(a, b, scale: float = 1.0) -> None:
    """The same course and end, J times `scale`."""
    np.testing.assert_array_equal(a.labels, b.labels)
    np.testing.assert_array_equal(a.inertias * scale, b.inertias)
    np.testing.assert_array_equal(a.trace.current * scale, b.trace.current)
    np.testing.assert_array_equal(a.trace.best * scale, b.trace.best)
    np.testing.assert_array_equal(a.trace.moves, b.trace.moves)
    assert (a.n_iter, a.stop, a.restart) == (b.n_iter, b.stop, b.restart)
    if a.center_indices is not None:
        np.testing.assert_array_equal(a.trace.means, b.trace.means)
        np.testing.assert_array_equal(a.center_indices, b.center_indices)


# -- what changes nothing ------------------------------------------------------------------------


@holds("translation by a grid step", 25, case=exact_cases(), method=METHODS, steps=st.integers(-300, 300))
def test_a_translation_moves_the_centres_alone(case, method, steps, backend):
    shift = case.X.dtype.type(steps * case.unit)
    here, there = (replace(case, X=X).cluster(method, backend) for X in (case.X, case.X + shift))
    alike(here, there)
    np.testing.assert_array_equal(here.centers + shift, there.centers)


@holds("scaling by a power of two", 25, case=exact_cases(), method=METHODS, data=st.data())
def test_a_scale_changes_J_by_its_square(case, method, data, backend):
    """From denormal float32 to the largest, and as far in float64 as squares go."""
    limits = (-149, 110) if case.X.dtype == np.float32 else (-330, 300)
    e = data.draw(st.one_of(st.sampled_from(limits), st.integers(*limits)), "exponent")
    here, there = (replace(case, X=X).cluster(method, backend) for X in (case.X, np.ldexp(case.X, e)))
    alike(here, there, 4.0**e)
    np.testing.assert_array_equal(np.ldexp(here.centers, e), there.centers)


@holds(
    "weights scaled by a power of two", 15, case=exact_cases(weighted=True), method=METHODS, e=st.integers(-200, 200)
)
def test_a_scale_of_weights_changes_J_alone(case, method, e, backend):
    here, there = (replace(case, weights=w).cluster(method, backend) for w in (case.weights, case.weights * 2.0**e))
    alike(here, there, 2.0**e)
    np.testing.assert_array_equal(here.centers, there.centers)


@holds("a constant feature changes nothing", 20, case=exact_cases(), method=METHODS, data=st.data())
def test_a_constant_feature_changes_nothing(case, method, data, backend):
    value = data.draw(st.floats(-(2.0**50), 2.0**50, width=32), "value")
    at = data.draw(st.integers(0, case.X.shape[1]), "column")
    wide = np.insert(case.X, at, value, axis=1)
    here, there = (replace(case, X=X).cluster(method, backend) for X in (case.X, wide))
    alike(here, there)
    np.testing.assert_array_equal(np.insert(here.centers, at, value, axis=1), there.centers)


@holds("rows in another order", 15, seed=st.integers(0, 2**32), weighted=st.booleans())
def test_the_order_of_rows_changes_no_bit_of_kmeans(seed, weighted, backend):
    X, rng = blobs(60, 3, 4, seed), np.random.default_rng(seed)
    weights, order = rng.random(60) if weighted else np.ones(60), rng.permutation(60)
    here = lloyd.run(X, 4, weights=weights, init=X[:4], backend=backend)
    there = lloyd.run(X[order], 4, weights=weights[order], init=X[:4], backend=backend)
    np.testing.assert_array_equal(here.labels[order], there.labels)
    np.testing.assert_array_equal(here.centers, there.centers)
    assert (here.inertia, here.n_iter) == (there.inertia, there.n_iter)


@holds("zero weight is an absent row", 25, case=exact_cases(), method=CENTRES, data=st.data())
def test_a_row_of_weight_zero_is_labelled_and_otherwise_absent(case, method, data, backend):
    n, d = case.X.shape
    kept = np.sort(data.draw(st.permutations(range(n + 3)), "rows")[:n])
    X = data.draw(arrays(case.X.dtype, (n + 3, d), elements=st.floats(-1e9, 1e9, width=32)), "absent")
    weights = np.zeros(n + 3)
    X[kept], weights[kept] = case.X, 1 if case.weights is None else case.weights
    init = case.init if isinstance(case.init, str) else kept[case.init]
    without = case.cluster(method, backend)
    found = replace(case, X=X, weights=weights, init=init).cluster(method, backend)
    np.testing.assert_array_equal(found.labels[kept], without.labels)
    np.testing.assert_array_equal(found.centers, without.centers)
    np.testing.assert_array_equal(found.trace.current, without.trace.current)
    np.testing.assert_array_equal(found.trace.best, without.trace.best)
    if found.center_indices is not None:
        np.testing.assert_array_equal(found.center_indices, kept[without.center_indices])
    assert found.inertia == without.inertia


@holds("K-Means in rational arithmetic", 25, case=exact_cases(given_rows=True), repeated=st.booleans())
def test_kmeans_is_that_of_exact_arithmetic(case, repeated, backend):
    """Also where weights are written as repeated rows. An empty cluster would take one of them, or all."""
    X, weights = case.X, np.ones(len(case.X), int) if case.weights is None else case.weights
    expected = oracle.lloyd(oracle.exact(X), [Fraction(int(w)) for w in weights], oracle.exact(X[case.init]))
    assume(expected is not None)
    labels, centers, J = expected
    start = X[case.init]
    if repeated:
        X, labels, weights = np.repeat(X, weights, axis=0), np.repeat(labels, weights), None
    found = lloyd.run(X, case.k, weights=weights, init=start, backend=backend)
    np.testing.assert_array_equal(found.labels, labels)
    assert oracle.exact(found.centers) == centers
    assert found.inertia == float(J)
    if repeated:
        tally.tried("a weight of two is a row twice")


@holds(
    "a far outlier gets a cluster of its own", 20, case=exact_cases(given_rows=True), e=st.integers(2, 13),
    method=st.sampled_from(["K-Means", "quantized"]),
)  # fmt: skip
def test_a_far_outlier_leaves_the_others_alone(case, method, e, backend):
    unit = math.lcm(case.unit, 9, 17)  # one point more: its weight must divide them too
    X = case.X.astype(np.float64) / case.unit * unit
    far = np.concatenate([X, [[20.0 * unit * 2**e] * X.shape[1]]])
    weights = None if case.weights is None else np.append(case.weights, 1)
    without = replace(case, X=X).cluster(method, backend)
    found = replace(case, X=far, k=case.k + 1, weights=weights, init=[*case.init, len(X)]).cluster(method, backend)
    assert found.labels.tolist() == [*without.labels, case.k]
    np.testing.assert_array_equal(found.centers[:-1], without.centers)
    assert found.inertia == pytest.approx(without.inertia, rel=1e-12)


# -- corners -------------------------------------------------------------------------------------


@holds("as many clusters as points", 15, method=CENTRES, data=st.data())
def test_as_many_clusters_as_points_leave_nothing(method, data, backend):
    values = st.lists(st.tuples(*[st.integers(-50, 50)] * 2), min_size=1, max_size=8, unique=True)
    X = np.array(data.draw(values, "X"), np.float64)
    found = SEARCHES[method](X, len(X), seed=data.draw(st.integers(0, 9)), backend=backend)
    assert sorted(found.labels) == list(range(len(X)))
    assert found.inertia == 0
    np.testing.assert_allclose(found.centers[found.labels], X, rtol=0, atol=1e-14)


@holds("all points equal", 15, method=METHODS, dtype=st.sampled_from([np.float32, np.float64]), data=st.data())
def test_equal_points_are_one_cluster(method, dtype, data, backend):
    numbers = (
        st.floats(width=32, allow_nan=False, allow_infinity=False) if dtype is np.float32 else st.floats(-1e100, 1e100)
    )
    point = data.draw(st.lists(numbers, min_size=1, max_size=3), "point")
    n, k = data.draw(st.integers(3, 9), "N"), data.draw(st.integers(1, 3), "K")
    found = SEARCHES[method](np.array([point] * n, dtype), k, backend=backend)
    assert found.inertia == 0
    assert set(found.labels) == {0}
    np.testing.assert_array_equal(found.centers, np.array([point] * k, dtype))


@holds("many points of K values", 15, method=TABU, data=st.data())
def test_as_many_values_as_clusters_leave_nothing(method, data, backend):
    values = np.array(data.draw(st.lists(st.tuples(*[st.integers(-9, 9)] * 2), min_size=1, max_size=4, unique=True)))
    times = data.draw(st.lists(st.integers(1, 60), min_size=len(values), max_size=len(values)), "times")
    X = np.repeat(values.astype(float), times, axis=0)
    found = SEARCHES[method](X, len(values), init="k-means++", backend=backend)
    assert found.inertia == 0
    np.testing.assert_allclose(found.centers[found.labels], X, rtol=0, atol=1e-14)


# -- the optimum, and ways down to it ------------------------------------------------------------


def best_on_a_line(values: list[int], k: int) -> Fraction:
    """The least J of at most k clusters of integers: clusters are stretches of the sorted ones."""
    values = sorted(values)

    def scatter(part: list[int]) -> Fraction:
        return sum(v * v for v in part) - Fraction(sum(part) ** 2, len(part))

    best = [Fraction(0)] + [None] * len(values)
    for _ in range(k):
        best = [Fraction(0)] + [
            min(best[a] + scatter(values[a:b]) for a in range(b) if best[a] is not None)
            for b in range(1, len(values) + 1)
        ]
    return best[-1]


def test_the_optimum_by_hand():
    assert best_on_a_line([11, 0, 10, 1], 2) == 1
    assert best_on_a_line([0, 1, 5], 1) == Fraction(14)
    assert best_on_a_line([3, 3, 7], 3) == 0


@holds(
    "never below the optimum on a line", 20, method=METHODS, seed=st.integers(0, 99),
    values=st.lists(st.integers(-40, 40), min_size=2, max_size=12), k=st.integers(1, 4),
)  # fmt: skip
def test_no_search_is_below_the_optimum(method, seed, values, k, backend):
    k = min(k, len(values))
    found = SEARCHES[method](np.array(values, float)[:, None], k, seed=seed, backend=backend)
    least = best_on_a_line(values, k)
    points, ones = oracle.exact(np.array(values)[:, None]), [Fraction(1)] * len(values)
    assert oracle.objective(points, ones, found.labels, k) >= least
    assert found.inertia >= float(least) * (1 - 1e-14)


@holds(
    "relocation finds the optimum on a line", 15, seed=st.integers(0, 99),
    values=st.lists(st.integers(-40, 40), min_size=2, max_size=12), k=st.integers(1, 4),
)  # fmt: skip
def test_relocation_finds_the_optimum(seed, values, k, backend):
    k = min(k, len(values))
    X = np.array(values, float)[:, None]
    found = relocation.search(X, k, max_iter=60, patience=60, seed=seed, backend=backend)
    assert found.inertia == pytest.approx(float(best_on_a_line(values, k)), rel=1e-13, abs=1e-25)


@holds("refinement never raises J", 15, case=exact_cases(), seed=st.integers(0, 99))
def test_refinement_never_raises_J(case, seed, backend):
    run = partial(quantized.search, case.X, case.k, weights=case.weights, init=case.init, seed=seed, backend=backend)
    search, lloyds, moves = (run(max_iter=4, refine=refine) for refine in ("centroid", "lloyd", "hartigan"))
    assert moves.inertia <= lloyds.inertia <= search.inertia <= search.trace.best[0, -1]
    np.testing.assert_array_equal(search.trace.best, moves.trace.best)


@holds("the best so far never rises", 25, case=exact_cases(), method=METHODS)
def test_the_best_so_far_is_the_least_so_far(case, method, backend):
    found = case.cluster(method, backend)
    current, best = found.trace.current[0], found.trace.best[0]
    assert (np.diff(best) <= 0).all()
    np.testing.assert_allclose(best, np.minimum.accumulate(current), rtol=2 * NOISE, atol=NOISE * current[0])
    assert found.inertia <= best[-1] * (1 + NOISE) + NOISE * current[0]


# -- odd data ------------------------------------------------------------------------------------


@st.composite
def odd_points(draw) -> tuple[np.ndarray, np.ndarray | None]:
    """Numbers from the whole range of a dtype, features of wild scales, outliers, far offsets; and weights or none."""
    dtype = draw(st.sampled_from([np.float32, np.float64]), "dtype")
    n, d = draw(st.integers(3, 24), "N"), draw(st.sampled_from([1, 2, 3, 17, 33]), "d")
    rng = np.random.default_rng(draw(st.integers(0, 2**32), "seed"))
    kind = draw(st.sampled_from(["any", "wild", "outlier", "far", "denormal", "largest", "repeated"]), "kind")
    X = rng.normal(size=(n, d))
    if kind == "any":
        limit = float(np.float32(3e38)) if dtype is np.float32 else 1e100
        X = draw(arrays(dtype, (n, d), elements=st.floats(-limit, limit, width=32 if dtype is np.float32 else 64)), "X")
    elif kind == "wild":
        X = np.ldexp(X, rng.integers(-100, 100, d))
    elif kind == "outlier":
        X[rng.integers(n)] *= 2.0 ** rng.integers(10, 100)
    elif kind == "far":
        X += 2.0 ** rng.integers(10, 60)
    elif kind == "denormal":
        X *= 1e-43 if dtype is np.float32 else 1e-98
    elif kind == "largest":
        X *= (3e38 if dtype is np.float32 else 9.99e99) / np.abs(X).max()
    else:
        X = X[rng.integers(3, size=n)]
    X = X.astype(dtype)
    assume(not 0 < np.ptp(X.astype(float), axis=0).max() < 1e-100)  # which is refused
    weights = rng.integers(0, 3, n) * rng.random(n) if draw(st.booleans(), "weighted") else None
    if weights is not None:
        weights[0] = 1
        assume(not 0 < np.ptp(X[weights > 0].astype(float), axis=0).max() < 1e-100)
    return X, weights


@holds("odd data, with the bits of NumPy", 40, points=odd_points(), method=METHODS, k=st.integers(1, 4))
def test_odd_data_gives_the_bits_of_numpy(points, method, k, backend):
    X, weights = points
    k = min(k, len(X))
    found, expected = (SEARCHES[method](X, k, weights=weights, backend=name) for name in (backend, "numpy"))
    same(found, expected)
    assert np.isfinite(found.inertia) and found.inertia >= 0
    assert np.isfinite(found.centers).all()


@holds(
    "labels_ is predict(X), inertia_ is -score(X)",
    25,
    points=odd_points(),
    model=st.sampled_from(MODELS),
    k=st.integers(1, 4),
)
def test_what_is_stored_is_consistent_on_odd_data(points, model, k, backend):
    X, weights = points
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = model(min(k, len(X)), random_state=0, backend=backend.name).fit(X, sample_weight=weights)
    np.testing.assert_array_equal(fitted.labels_, fitted.predict(X))
    assert fitted.inertia_ == -fitted.score(X, sample_weight=weights)
    squares = sum((x[:, None].astype(float) - c) ** 2 for x, c in zip(X.T, fitted.cluster_centers_.T, strict=True))
    np.testing.assert_array_equal(fitted.labels_, squares.argmin(axis=1))
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(fitted.transform(X), np.sqrt(squares).astype(X.dtype))


@holds(
    "odd data in chunks, in memory and read anew for every pass", 20,
    points=odd_points(), method=METHODS, k=st.integers(1, 4), rows=st.integers(1, 9), read=st.booleans(),
)  # fmt: skip
def test_chunks_of_odd_data_change_nothing(points, method, k, rows, read, backend):
    X, weights = points
    search = partial(SEARCHES[method], n_clusters=min(k, len(X)), backend=backend)
    if read:
        found = search(chunked(X, chunk_bytes=rows * X.shape[1] * X.itemsize), weights=weights)
    else:
        found = search(Points.of(X, weights, chunk_rows=rows))
    same(found, search(X, weights=weights))


@holds("saved and loaded", 10, points=odd_points(), model=st.sampled_from(MODELS), k=st.integers(1, 4))
def test_what_is_loaded_is_what_was_saved(points, model, k, backend):
    X, weights = points
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore", ConvergenceWarning)
        fitted = model(min(k, len(X)), random_state=0, backend=backend.name).fit(X, sample_weight=weights)
        fitted.save(Path(folder) / "model.npz")
        loaded = load(Path(folder) / "model.npz")
    assert loaded.get_params() == fitted.get_params() and loaded.stop_ is fitted.stop_
    for name in ("labels_", "cluster_centers_", "inertias_"):
        np.testing.assert_array_equal(getattr(loaded, name), getattr(fitted, name))
    np.testing.assert_array_equal(loaded.trace_.current, fitted.trace_.current)
    np.testing.assert_array_equal(loaded.predict(X), fitted.labels_)
    assert loaded.inertia_ == fitted.inertia_ == -loaded.score(X, sample_weight=weights)


# -- arrays of any layout ------------------------------------------------------------------------


def layouts(X: np.ndarray, folder) -> dict[str, np.ndarray]:
    """The same numbers, laid out differently in memory or in a file."""
    np.save(folder / "X.npy", X)
    swapped = X.dtype.newbyteorder()
    unaligned = np.zeros(X.nbytes + 1, np.uint8)[1:].view(X.dtype).reshape(X.shape)
    unaligned[...] = X
    return {
        "Fortran's order": np.asfortranarray(X),
        "strided": np.repeat(np.repeat(X, 3, axis=0), 2, axis=1)[::3, ::2],
        "backwards": X[::-1, ::-1].copy()[::-1, ::-1],
        "mapped": np.load(folder / "X.npy", mmap_mode="r"),
        "of the other byte order": X.astype(swapped),
        "unaligned": unaligned,
        "a file": folder / "X.npy",
    }


def results(X, weights, start, backend) -> list:
    """What all searches and estimators make of points."""
    found = []
    for method, search in SEARCHES.items():
        init = np.arange(40) % 3 if method == "labellings" else start
        each = search(X, 3, weights=weights, init=init, backend=backend)
        found += [each.labels, each.centers, each.inertia, each.trace.current]
    for model in MODELS:
        fitted = model(3, random_state=0, backend=backend).fit(X, sample_weight=weights)
        found += [fitted.labels_, fitted.cluster_centers_, fitted.predict(X), fitted.transform(X)]
        found += [fitted.inertia_, fitted.score(X, sample_weight=weights)]
    return [*found, select_k(X, [2, 3], weights=weights, backend=backend).table["bic"]]


@pytest.mark.trap(25)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.one_device
def test_layout_changes_nothing_and_is_left_alone(dtype, backend, tmp_path):
    X = blobs(40, 3, 3, dtype=dtype)
    weights, start = np.random.default_rng(0).random(40), X[:3].copy()
    expected = results(X.copy(), weights.copy(), start.copy(), backend)
    for name, other in list(layouts(X, tmp_path).items())[:: 4 if backend == "cuda" else 1]:
        heavy = np.repeat(weights, 2)[::2] if name == "strided" else weights.astype(weights.dtype.newbyteorder())
        theirs = [array for array in (other, heavy, start) if isinstance(array, np.ndarray)]
        before = [(array.copy(), array.dtype, array.strides) for array in theirs]
        for array in theirs:
            array.flags.writeable = False
        for a, b in zip(results(other, heavy, start, backend), expected, strict=True):
            np.testing.assert_array_equal(a, b, err_msg=name)
        for array, (copy, *form) in zip(theirs, before, strict=True):
            np.testing.assert_array_equal(array, copy)
            assert [array.dtype, array.strides] == form
        tally.tried("any layout of arrays, which are left alone")


# -- the choice of K -----------------------------------------------------------------------------


@holds("the choice of K scales", 8, seed=st.integers(0, 2**32), e=st.integers(-200, 200), weighted=st.booleans())
def test_criteria_scale_with_the_data(seed, e, weighted, backend):
    """J by the square, what compares clusters with each other not at all; AIC and BIC by the same for every K."""
    X, rng = blobs(30, 2, 3, seed), np.random.default_rng(seed)
    weights = rng.integers(1, 4, 30) if weighted else None
    names = ["calinski_harabasz", "davies_bouldin", "silhouette"]
    ks = [1, 2, 3, 4]
    here, there = (select_k(Y, ks, names, weights=weights, backend=backend) for Y in (X, np.ldexp(X, e)))
    np.testing.assert_array_equal(here.table["inertia"] * 4.0**e, there.table["inertia"])
    for name in names:
        np.testing.assert_array_equal(here.table[name], there.table[name])
    for name in ("aic", "bic"):
        difference = there.table[name] - here.table[name]
        np.testing.assert_allclose(difference, difference[0], rtol=1e-9, atol=1e-9)
    assert here.recommended == there.recommended
    np.testing.assert_array_equal(here.labels, there.labels)
