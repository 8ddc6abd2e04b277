"""The CUDA backend against NumPy, bit for bit, over shapes, seeds, devices, memory and arrays of other libraries."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import GPU, blobs, same
from hypothesis import given, settings
from hypothesis import strategies as st
from problems import draw_problem

from gputabu import KMeans, QuantizedTabuKMeans, lloyd, quantized
from gputabu.backend import open_backend
from gputabu.data.points import Points

pytestmark = pytest.mark.gpu
hostcuda = pytest.mark.skipif(GPU != "hostcuda", reason="changes what only hostcuda can: threads, memory, devices")


@pytest.fixture
def knobs():
    """hostcuda's settings, put back afterwards."""
    import cupy

    control = cupy._hostcuda
    before = vars(control.settings).copy()
    yield control
    vars(control.settings).update(before)
    control.set_seed(0)


@pytest.mark.parametrize("scope", ["cluster", "global"])
@pytest.mark.parametrize("restarts", [32, 3, 1])
@settings(max_examples=7)
@given(data=st.data())
def test_searches_equal_numpy(restarts, scope, data):
    X, k, weights, seed = draw_problem(data)
    options = {
        "weights": weights,
        "restarts": restarts,
        "init": data.draw(st.sampled_from(["random", "k-means++"]), "init"),
        "max_iter": 12,
        "scope": scope,
        "refine": data.draw(st.sampled_from(["lloyd", "centroid", "hartigan"]), "refine"),
        "seed": seed,
    }
    same(quantized.search(X, k, backend="cuda", **options), quantized.search(X, k, backend="numpy", **options))


@settings(max_examples=25)
@given(data=st.data())
def test_kmeans_equals_numpy(data):
    X, k, weights, seed = draw_problem(data)
    options = {
        "weights": weights,
        "restarts": data.draw(st.sampled_from([1, 3, 32]), "R"),
        "init": data.draw(st.sampled_from(["random", "k-means++"]), "init"),
        "refine": data.draw(st.sampled_from([None, "hartigan"]), "refine"),
        "seed": seed,
    }
    same(lloyd.run(X, k, backend="cuda", **options), lloyd.run(X, k, backend="numpy", **options))


@pytest.fixture(params=["block", "graph", "passes"])
def way(request, monkeypatch):
    """The three ways a search can run: in one launch, by a graph, pass by pass from the host."""
    from gputabu.backend.cuda import search as device_search

    if request.param != "block":
        monkeypatch.setattr(device_search.DeviceSearch, "block_bytes", 10**9)
    if request.param == "passes":
        monkeypatch.setattr(device_search.DeviceSearch, "bytes", 10**18)
    return request.param


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("scope", ["cluster", "global"])
def test_all_ways_of_a_search_are_equal(way, dtype, weighted, scope, iris):
    X = iris.astype(dtype)
    options = {"restarts": 3, "init": "random", "max_iter": 70, "scope": scope, "seed": 5}
    options["weights"] = np.random.default_rng(0).random(150) if weighted else None
    same(quantized.search(X, 4, backend="cuda", **options), quantized.search(X, 4, backend="numpy", **options))


@hostcuda
@pytest.mark.parametrize("seed", range(5))
def test_order_of_threads_changes_nothing(way, seed, knobs):
    knobs.set_seed(seed)
    X = np.rint(blobs(300, 3, 4) * 2)  # ties
    options = {"restarts": 2, "init": "random", "max_iter": 25}
    same(quantized.search(X, 5, backend="cuda", **options), quantized.search(X, 5, backend="numpy", **options))


@hostcuda
@pytest.mark.parametrize("seed", range(3))
def test_points_are_given_to_empty_clusters_without_a_race(way, seed, knobs):
    """Behind the empty ones comes a cluster that gives its point away: who reads its count late must find it whole."""
    knobs.set_seed(seed)
    X = np.array([[0.0], [0], [0], [-840], [-1680]], np.float32)
    options = {"init": [0, 1, 2, 3], "max_iter": 12}
    same(quantized.search(X, 4, backend="cuda", **options), quantized.search(X, 4, backend="numpy", **options))


@hostcuda
def test_no_races_on_global_memory(way, knobs):
    knobs.set_check(True, global_races=True)
    X = blobs(700, 3, 4, dtype=np.float32)
    options = {"restarts": 2, "max_iter": 12}
    same(quantized.search(X, 5, backend="cuda", **options), quantized.search(X, 5, backend="numpy", **options))


@hostcuda
def test_nothing_leaks(way, knobs, iris):
    import gc

    quantized.search(iris, 3, max_iter=20, backend="cuda")
    gc.collect()
    knobs.reset()
    for _ in range(3):
        quantized.search(iris, 3, max_iter=20, backend="cuda")
        lloyd.run(iris, 3, backend="cuda")
    gc.collect()
    assert knobs.leaked_bytes() == 0


@hostcuda
@pytest.mark.parametrize("seed", range(3))
def test_single_moves_know_no_order_and_no_races(seed, knobs):
    knobs.set_seed(seed)
    knobs.set_check(True, global_races=True)
    X = np.rint(blobs(600, 3, 4) * 2)  # ties
    options = {"restarts": 2, "init": "random", "refine": "hartigan"}
    same(lloyd.run(X, 9, backend="cuda", **options), lloyd.run(X, 9, backend="numpy", **options))


@pytest.mark.data
@pytest.mark.parametrize(
    ("name", "k"),
    [("iris", 3), ("glass", 6), ("bavaria1", 4), ("bavaria1", 5), ("cloud", 10), ("cloud", 25)],
)
def test_the_papers_cases(paper_data, name, k):
    X = paper_data(name)
    options = {"restarts": 2, "init": "random", "max_iter": 60, "seed": 1}
    same(quantized.search(X, k, backend="cuda", **options), quantized.search(X, k, backend="numpy", **options))


@hostcuda
@pytest.mark.parametrize("weighted", [False, True])
def test_points_that_do_not_fit_are_streamed(knobs, weighted):
    X = blobs(20_000, 8, 5, dtype=np.float32)  # 640 kB
    weights = np.random.default_rng(0).random(len(X)) if weighted else None
    options = {"weights": weights, "restarts": 2, "max_iter": 4, "patience": 4}
    whole = quantized.search(X, 5, backend="numpy", **options)
    knobs.settings.memory = 1_100_000 if weighted else 900_000
    with open_backend(Points.of(X, weights), "cuda") as opened:
        assert opened.chunks.resident is None
        assert 2 * opened.chunks.buffers[0].rows < len(X)
    same(quantized.search(X, 5, backend="cuda", **options), whole)
    same(lloyd.run(X, 5, weights=weights, backend="cuda"), lloyd.run(X, 5, weights=weights, backend="numpy"))


@hostcuda
def test_short_memory_halves_the_chunks_and_then_says_so(knobs):
    X = blobs(20_000, 8, 5, dtype=np.float32)
    options = {"restarts": 2, "max_iter": 3, "init": "random"}
    whole = quantized.search(X, 5, backend="numpy", **options)
    for nth in range(1, 30, 4):  # an allocation fails: the points make room
        knobs.reset()
        knobs.fail_next(allocation=nth)
        same(quantized.search(X, 5, backend="cuda", **options), whole)
    knobs.settings.memory = 100_000
    with pytest.raises(MemoryError, match="Out of device memory on device 0"):
        quantized.search(X, 5, backend="cuda")


@hostcuda
def test_another_device(knobs, iris):
    knobs.settings.devices = 2
    whole = quantized.search(iris, 3, restarts=3, max_iter=30, backend="numpy")
    same(quantized.search(iris, 3, restarts=3, max_iter=30, backend="cuda", device=1), whole)
    with pytest.raises(ValueError, match="device=2 must be an integer from 0 to 1"):
        QuantizedTabuKMeans(3, backend="cuda", device=2).fit(iris)
    with pytest.raises(ValueError, match="device=0 chooses a GPU"):
        QuantizedTabuKMeans(3, backend="numpy", device=0).fit(iris)


@pytest.mark.parametrize("model", [QuantizedTabuKMeans, KMeans])
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_device_arrays_in_and_out(model, dtype, iris):
    import cupy

    X = iris.astype(dtype)
    host = model(3, random_state=0, backend="numpy").fit(X)
    there = cupy.asarray(X)
    weights = cupy.asarray(np.ones(150))
    fitted = model(3, random_state=0).fit(there, sample_weight=weights)
    assert fitted.backend_ == "cuda"
    for ours, plain in (
        (fitted.labels_, host.labels_),
        (fitted.cluster_centers_, host.cluster_centers_),
        (fitted.predict(there), host.labels_),
        (fitted.transform(there), host.transform(X)),
    ):
        assert isinstance(ours, cupy.ndarray)
        assert ours.dtype == plain.dtype
        np.testing.assert_array_equal(ours.get(), plain)
    assert fitted.score(there) == host.score(X)
    assert isinstance(fitted.predict(X), np.ndarray)  # a host array in, a host array out
    np.testing.assert_array_equal(there.get(), X)  # untouched
    with pytest.raises(ValueError, match=r"3 features, but .* is expecting 4"):
        fitted.predict(cupy.asarray(X[:, :3].copy()))


def test_arrays_of_other_libraries_are_not_copied(iris):
    import cupy

    from gputabu.backend import as_points

    there = cupy.asarray(iris)

    class Interface:
        __cuda_array_interface__ = there.__cuda_array_interface__

    class Capsule:
        def __dlpack__(self, **options):
            return there.__dlpack__(**options)

        def __dlpack_device__(self):
            return there.__dlpack_device__()

    for foreign in (Interface(), Capsule()):
        points = as_points(foreign)
        assert points.chunks[0].data.ptr == there.data.ptr
        found = quantized.search(foreign, 3, max_iter=20)
        np.testing.assert_array_equal(
            found.labels.get(), quantized.search(iris, 3, max_iter=20, backend="numpy").labels
        )
    strided = cupy.asarray(np.repeat(iris, 2, axis=1))[:, ::2]
    assert as_points(strided).chunks[0].flags.c_contiguous
    for narrow, wide in ((np.float16, np.float32), (np.int16, np.float64)):
        assert as_points(cupy.asarray(iris.astype(narrow))).dtype == wide


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e120])
def test_bad_values_on_the_device(value, iris):
    import cupy

    bad = iris.copy()
    bad[3, 2] = value
    for call in (
        lambda: QuantizedTabuKMeans(3).fit(cupy.asarray(bad)),
        lambda: KMeans(3).fit(cupy.asarray(bad)),
        lambda: KMeans(3, random_state=0).fit(iris, None).predict(cupy.asarray(bad)),
    ):
        with pytest.raises(ValueError, match=r"X contains"):
            call()
    with pytest.raises(ValueError, match="backend='numpy' cannot read device arrays"):
        QuantizedTabuKMeans(3, backend="numpy").fit(cupy.asarray(iris))
    with pytest.raises(ValueError, match="has shape"):
        QuantizedTabuKMeans(3).fit(cupy.asarray(iris[0]))


@hostcuda
def test_rows_beyond_31_bits(knobs):
    """N·d and N·R past 2^31, over memory that is reserved and barely touched."""
    import cupy

    from gputabu.backend.cuda.launch import launch

    n, d = 2**31 + 512, 1
    X = cupy.empty((n, d), np.float32)
    X[n - 512 :] = 1.0
    tail = X[n - 512 :]
    wanted = cupy.asarray(np.array([n - 1, n - 512]))
    found = cupy.empty((2, d), np.float64)
    launch("measure.cu", "fetch_rows", np.dtype(np.float32), (1,), 32, (X, wanted, found, n, 0, 2, d))
    assert found.get().ravel().tolist() == [1.0, 1.0]
    # Labels of restart 1 begin past 2^31 when a row of labels is that long.
    labels = cupy.empty((2, n), np.int32)
    labels[:, n - 512 :] = -1
    with open_backend(Points((tail,)), "cuda") as opened, opened.device, opened.stream:
        centers = np.array([[[0.0], [2.5]], [[0.9], [5.0]]])
        where = cupy.asarray(centers)
        fast = opened.empty_fast(2, 2)
        origin = cupy.zeros(1, np.float64)
        unit, *trust = opened.trust(np.zeros(1), centers)
        launch("step.cu", "ready", np.dtype(np.float32), (2,), 32, (where, *fast, origin, 2, 1, unit, *trust))
        changed = cupy.zeros(2, np.int64)
        launch(
            "assign.cu", "assign", np.dtype(np.float32), (4,), 128,
            (tail, None, where, fast.near, fast.doubt, origin, None, labels, None, changed, None, 512, n - 512, n,
             2, 2, unit, 1.0, 0, 0, 0), 4096, D=1,
        )  # fmt: skip
        assert changed.get().tolist() == [512, 512]
        assert (labels[1, n - 512 :].get() == 0).all()


def test_launch_arguments_are_checked():
    import cupy

    from gputabu.backend.cuda.launch import launch, signatures

    assert signatures("assign.cu")["assign"][0] == ("real", True)
    out = cupy.empty((2, 1), np.float64)
    X = cupy.zeros((4, 2), np.float32)
    with pytest.raises(TypeError, match="contiguous array of float64"):
        launch("measure.cu", "fetch_rows", np.dtype(np.float64), (1,), 32, (X, out, out, 1, 0, 1, 1))
    with pytest.raises(TypeError, match="takes 7 arguments"):
        launch("measure.cu", "fetch_rows", np.dtype(np.float32), (1,), 32, (X,))
    with pytest.raises(TypeError, match="contiguous"):
        launch("measure.cu", "fetch_rows", np.dtype(np.float32), (1,), 32, (X[:, ::2], out, out, 1, 0, 1, 1))
