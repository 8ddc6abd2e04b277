"""The CUDA backend against NumPy, bit for bit, over shapes, seeds, devices, memory and arrays of other libraries."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import GPU, become, blobs, same
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


@pytest.mark.device("t4")  # the longest one; where there is a watchdog it would take twice as long
@pytest.mark.parametrize("scope", ["cluster", "global"])
@pytest.mark.parametrize("restarts", [32, 3, 1])
@settings(max_examples=7)
@given(data=st.data())
@pytest.mark.one_device
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
@pytest.mark.one_device
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

    if request.param == "block" and GPU == "hostcuda":
        become("t4")  # no watchdog: there a search is never one launch
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


@pytest.mark.trap(22)
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


@pytest.mark.trap(17)
@hostcuda
def test_no_races_on_global_memory(way, knobs):
    knobs.set_check(True, global_races=True)
    X = blobs(700, 3, 4, dtype=np.float32)
    options = {"restarts": 2, "max_iter": 12}
    same(quantized.search(X, 5, backend="cuda", **options), quantized.search(X, 5, backend="numpy", **options))


@hostcuda
@pytest.mark.one_device
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
@pytest.mark.one_device
def test_the_papers_cases(paper_data, name, k):
    X = paper_data(name)
    options = {"restarts": 2, "init": "random", "max_iter": 60, "seed": 1}
    same(quantized.search(X, k, backend="cuda", **options), quantized.search(X, k, backend="numpy", **options))


@hostcuda
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.one_device
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
@pytest.mark.one_device
def test_short_memory_halves_the_chunks_and_then_says_so(knobs):
    X = blobs(6_000, 8, 5, dtype=np.float32)
    options = {"restarts": 2, "max_iter": 3, "init": "random"}
    whole = quantized.search(X, 5, backend="numpy", **options)
    for nth in range(1, 30, 4):  # an allocation fails: the points make room
        knobs.reset()
        knobs.fail_next(allocation=nth)
        same(quantized.search(X, 5, backend="cuda", **options), whole)
    knobs.settings.memory = 30_000
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


@pytest.mark.trap(5)
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

    from gputabu.backend.cuda import shapes
    from gputabu.backend.cuda.launch import launch
    from gputabu.backend.cuda.structs import Chunk, Grid, Shape

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
        grid, doubt = Grid(cupy.zeros(1, np.float64)), opened.doubt(np.zeros(1), centers)
        opened.make_fast(where, fast, grid.offset, doubt)
        changed = cupy.zeros(2, np.int64)
        shape = Shape(2, 2, 1)
        form = shapes.assign(48 << 10, 512, shape, 3, np.dtype(np.float32), 1, False)
        launch(
            "assign.cu", "assign", np.dtype(np.float32), form.grid, form.threads,
            (tail, None, where, fast, labels, None, changed, None, grid, Chunk(512, n - 512, n), shape,
             doubt.unit, 0, form.span, 0), form.shared, D=1,
        )  # fmt: skip
        assert changed.get().tolist() == [512, 512]
        assert (labels[1, n - 512 :].get() == 0).all()


def test_launch_arguments_are_checked():
    import cupy

    from gputabu.backend.cuda.launch import launch
    from gputabu.backend.cuda.sources import Parameter, signatures

    assert signatures("assign.cu")["assign"][0] == Parameter("real", True, "X")
    out = cupy.empty((2, 1), np.float64)
    X = cupy.zeros((4, 2), np.float32)
    with pytest.raises(TypeError, match="contiguous array of float64"):
        launch("measure.cu", "fetch_rows", np.dtype(np.float64), (1,), 32, (X, out, out, 1, 0, 1, 1))
    with pytest.raises(TypeError, match="takes 7 arguments"):
        launch("measure.cu", "fetch_rows", np.dtype(np.float32), (1,), 32, (X,))
    with pytest.raises(TypeError, match="contiguous"):
        launch("measure.cu", "fetch_rows", np.dtype(np.float32), (1,), 32, (X[:, ::2], out, out, 1, 0, 1, 1))


def test_structs_are_checked_field_by_field():
    import cupy

    from gputabu.backend.cuda.launch import launch
    from gputabu.backend.cuda.structs import Doubt, FastCenters, Limits

    centers, offset = cupy.zeros((1, 2, 3)), cupy.zeros(3)
    fast, doubt = FastCenters.empty(1, 2, 3, np.dtype(np.float32)), Doubt(1.0, 0.0, 0.0, 0.0, 1.0)

    def make(fast, doubt):
        launch("fast_centers.cu", "fast_centers", np.dtype(np.float32), (1,), 32, (centers, fast, offset, 2, 3, doubt))

    make(fast, doubt)
    with pytest.raises(TypeError, match="Argument 1 of fast_centers, norms, must be a contiguous array of float32"):
        make(fast._replace(norms=cupy.zeros((1, 2))), doubt)
    with pytest.raises(TypeError, match="contiguous"):
        make(fast._replace(centers=cupy.zeros((1, 2, 6), np.float32)[..., ::2]), doubt)
    for wrong in (Limits(0.0, 1, 1, 1, False), tuple(doubt), 1.0):
        with pytest.raises(TypeError, match="Argument 5 of fast_centers must be a Doubt of unit, fast, exact, floor"):
            make(fast, wrong)
    with pytest.raises(TypeError, match="Argument 4 of fast_centers must be one number"):
        launch("fast_centers.cu", "fast_centers", np.dtype(np.float32), (1,), 32, (centers, fast, offset, 2, doubt, 3))


def test_every_struct_has_the_fields_and_the_layout_of_the_source():
    """The compiler says where it puts each field."""
    import cupy

    from gputabu.backend.cuda import sources, structs
    from gputabu.backend.cuda.launch import options

    known = {}
    for path in sources.source_folder().glob("*.cu"):
        known |= sources.structs(path.name)
    assert len(known) == 20
    real = np.dtype(np.float32)
    for name, struct in known.items():
        assert getattr(structs, name)._fields == struct.names
        places = " ".join(f"out[{i}] = __builtin_offsetof({name}, {f});" for i, f in enumerate(struct.names))
        text = f'extern "C" __global__ void look(idx* out) {{ {places} out[{len(struct.names)}] = sizeof({name}); }}'
        module = cupy.RawModule(code=f"{sources.source('iteration.cu')}\n{text}", options=options(real, ()))
        out, layout = cupy.empty(len(struct.names) + 1, np.int64), sources.layout(struct, real)
        module.get_function("look")((1,), (1,), (out,))
        assert out.get().tolist() == [*(layout.fields[f][1] for f in struct.names), layout.itemsize]


def test_declarations_that_cannot_be_read_are_refused(monkeypatch, tmp_path):
    from gputabu.backend.cuda import sources

    (tmp_path / "planted.cu").write_text(
        """#define WIDE_SHARED(ARRAY) \\
    ARRAY(int, labels, n) \\
    ARRAY(double, centers, k * (WIDTH + 1) / 2)
#define WIDTH 32
#define LATE_SHARED(ARRAY) \\
    ARRAY(double, centers, k * (WIDTH + 1) / 2) \\
    ARRAY(real, norms, k | 1)
struct Pair {
    const double* a;  // first
    int b, c;
};
extern "C" __global__ void take(Pair pair) {}
"""
    )
    monkeypatch.setattr(sources, "source_folder", lambda: tmp_path)
    with pytest.raises(ValueError, match="'int b, c' must be a type"):
        sources.structs("planted.cu")
    with pytest.raises(ValueError, match="in WIDE_SHARED, arrays of wide types must come first"):
        sources.shared_bytes("planted.cu", "WIDE_SHARED", np.dtype(np.float32), {"n": 3, "k": 2})
    assert sources.shared_bytes("planted.cu", "LATE_SHARED", np.dtype(np.float32), {"k": 3}) == 8 * 49 + 4 * 3
    with pytest.raises(NameError):
        sources.shared_bytes("planted.cu", "LATE_SHARED", np.dtype(np.float32), {})
    (tmp_path / "broken.cu").write_text("#define BROKEN_SHARED(ARRAY) ARRAY(int, a)")
    with pytest.raises(ValueError, match="BROKEN_SHARED must have rows"):
        sources.shared_bytes("broken.cu", "BROKEN_SHARED", np.dtype(np.float32), {})
