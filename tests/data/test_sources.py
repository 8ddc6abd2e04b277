"""Points that are read in chunks give the bits of points in memory, whatever they are read from."""

from __future__ import annotations

import os
import re
import tempfile

import numpy as np
import pytest
from conftest import GPU, blobs, same

from gputabu import KMeans, Points, QuantizedTabuKMeans, chunked, lloyd, quantized, reassignment, relocation, select_k
from gputabu.backend import open_backend
from gputabu.backend.sharded import ShardedBackend
from gputabu.backend.tuning import Tuning
from gputabu.data.sources import Source, Streamed, is_source, read_ahead

N = 3000
SEARCHES = {
    "quantized": lambda X, **o: quantized.search(X, 5, restarts=3, max_iter=8, **o),
    "k-means": lambda X, **o: lloyd.run(X, 5, restarts=2, refine="hartigan", **o),
    "relocation": lambda X, **o: relocation.search(X, 5, max_iter=5, **o),
    "reassignment": lambda X, **o: reassignment.search(X, 5, max_iter=3, keep=0.7, **o),
}


@pytest.fixture
def file(tmp_path):
    """A function that saves an array and returns its path."""

    def save(X, name="X.npy"):
        np.save(tmp_path / name, X)
        return tmp_path / name

    return save


def data(dtype=np.float64, weighted=False):
    weights = np.random.default_rng(1).integers(0, 4, N).astype(float) if weighted else None
    return blobs(N, 3, 5, dtype=dtype), weights


@pytest.mark.parametrize("method", SEARCHES)
@pytest.mark.parametrize(("dtype", "weighted"), [(np.float32, True), (np.float64, False)])
def test_files_change_nothing(method, dtype, weighted, file, backend):
    X, weights = data(dtype, weighted)
    path, search = file(X), SEARCHES[method]
    whole = search(X, weights=weights, backend="numpy")
    # Small, uneven, half of them, all but one; all of it is read into memory.
    rows = (1000, N - 1) if backend == "cuda" else (297, 1000, N // 2, N - 1, N)
    for chunk_rows in rows:
        source = chunked(path, chunk_bytes=chunk_rows * X.itemsize * 3)
        same(search(source, weights=weights, backend=backend), whole)


@pytest.mark.parametrize("rows", [1, 2])
def test_chunks_of_a_row_or_two(rows, file, iris):
    source = chunked(file(iris), chunk_bytes=rows * iris.itemsize * 4)
    same(quantized.search(source, 3, max_iter=4), quantized.search(iris, 3, max_iter=4))


def kinds(X, tmp_path):
    """X in everything that can be read in chunks."""
    import h5py
    import pyarrow as pa
    import pyarrow.dataset
    import pyarrow.parquet
    import zarr

    np.save(tmp_path / "c.npy", X)
    np.save(tmp_path / "f.npy", np.asfortranarray(X))
    zarr.create_array(tmp_path / "x.zarr", data=X, chunks=(100, 2))
    hdf5 = h5py.File(tmp_path / "x.h5", "w").create_dataset("X", data=X, chunks=(64, 3))
    table = pa.table({f"x{j}": X[:, j] for j in range(X.shape[1])})
    pa.parquet.write_table(table, tmp_path / "x.parquet", row_group_size=170)
    pa.parquet.write_table(table.append_column("name", pa.array(["a"] * len(X))), tmp_path / "named.parquet")
    cuts = np.split(X, [0, 1, 5, 370])
    return {
        "path": str(tmp_path / "c.npy"),
        "memory map": np.load(tmp_path / "c.npy", mmap_mode="r"),
        "by columns": tmp_path / "f.npy",
        "Zarr": tmp_path / "x.zarr",
        "Zarr array": zarr.open_array(tmp_path / "x.zarr", mode="r"),
        "HDF5": hdf5,
        "Parquet": tmp_path / "x.parquet",
        "dataset": pa.dataset.dataset(tmp_path / "x.parquet"),
        "function": lambda: iter(cuts),
        "iterable": cuts,
        "array": X,
        "columns": chunked(tmp_path / "named.parquet", columns=["x0", "x1", "x2"], chunk_bytes=2400),
    }


def test_every_kind_of_source(tmp_path):
    X, weights = (side[:600] for side in data(np.float32, True))
    whole = quantized.search(X, 5, weights=weights, max_iter=2)
    for name, kind in kinds(X, tmp_path).items():
        source = kind if isinstance(kind, Source) else chunked(kind, chunk_bytes=2400)
        points = Points.of(source, weights)
        assert points.out_of_core and points.dtype == np.float32, name
        wanted, part = np.array([[599, 0], [1, 599], [5, 4]]), points.part(10, 550)
        np.testing.assert_array_equal(points.rows(wanted), X[wanted])
        np.testing.assert_array_equal(part.rows(np.arange(540)), X[10:550])
        np.testing.assert_array_equal(np.concatenate([block.X for block in part.blocks(90)]), X[10:550])
        same(quantized.search(points, 5, max_iter=2), whole)


def test_what_is_recognised_as_it_is(tmp_path, iris):
    kind = kinds(iris[:, :3], tmp_path)
    assert [name for name in kind if not is_source(kind[name])] == ["iterable", "array"]
    assert not Points.of(kind["path"]).out_of_core  # small: it was read into memory
    assert not is_source([[1.0]]) and not is_source(iris)


@pytest.mark.parametrize("dtype", [np.float16, ">f4", np.int8, np.uint64, bool])
def test_other_numbers_are_widened_chunk_by_chunk(dtype, file):
    X = np.random.default_rng(0).integers(0, 2 if dtype is bool else 100, (500, 3)).astype(dtype)
    found = lloyd.run(chunked(file(X), chunk_bytes=999), 4)
    same(found, lloyd.run(X, 4))
    assert found.centers.dtype == (np.float32 if np.dtype(dtype).kind == "f" else np.float64)


def test_numbers_that_are_rounded_are_warned_of(file):
    X = np.full((10, 2), 2**53 + 1)
    X[0] = 0
    with pytest.warns(UserWarning, match="X has dtype int64 and values that float64 cannot hold"):
        Points.of(chunked(file(X), chunk_bytes=16))


def test_estimators(file, tmp_path):
    X, weights = data(np.float32, True)
    source = chunked(file(X), chunk_bytes=5000)
    model, read = (QuantizedTabuKMeans(5, max_iter=10, random_state=0) for _ in range(2))
    model.fit(X, sample_weight=weights)
    read.fit(source, sample_weight=weights, labels_out=tmp_path / "labels.npy")
    np.testing.assert_array_equal(np.load(tmp_path / "labels.npy"), model.labels_)
    np.testing.assert_array_equal(read.labels_, model.labels_)
    assert read.n_features_in_ == 3 and read.inertia_ == model.inertia_
    into = np.zeros(N, np.int64)
    assert read.predict(source, labels_out=into) is into
    np.testing.assert_array_equal(into, model.predict(X))
    np.testing.assert_array_equal(read.predict(source), into)
    np.testing.assert_array_equal(read.transform(source), model.transform(X))
    assert read.score(source, sample_weight=weights) == model.score(X, sample_weight=weights)
    with pytest.raises(ValueError, match="X has 2 features, but QuantizedTabuKMeans is expecting 3"):
        read.predict(chunked(X[:, :2].copy(), chunk_bytes=800))


def test_a_memory_map_is_fitted_as_it_is(file, tmp_path, monkeypatch):
    """Points and labels in files, without a word about chunks."""
    monkeypatch.setitem(chunked.__kwdefaults__, "chunk_bytes", 5000)
    X = data()[0]
    plain, path = KMeans(5, random_state=0).fit(X), file(X)
    for given in (
        str(path),
        np.load(path, mmap_mode="r"),
        np.memmap(path, X.dtype, "r", path.stat().st_size - X.nbytes, X.shape),
    ):
        labels = np.memmap(tmp_path / "labels", np.int32, "w+", shape=N)
        model = KMeans(5, random_state=0).fit(given, labels_out=labels)
        assert model.labels_ is labels
        np.testing.assert_array_equal(np.fromfile(tmp_path / "labels", np.int32), plain.labels_)
        np.testing.assert_array_equal(model.cluster_centers_, plain.cluster_centers_)


def test_select_k(file, iris):
    one, two = (select_k(X, [2, 3], ["bic", "silhouette"]) for X in (iris, chunked(file(iris), chunk_bytes=999)))
    for name, column in one.table.items():
        np.testing.assert_array_equal(two.table[name], column)
    np.testing.assert_array_equal(one.labels, two.labels)


@pytest.mark.parametrize("function", [lloyd.run, quantized.search, relocation.search, reassignment.search])
def test_functions_write_labels(function, iris, tmp_path):
    found = function(iris, 3, max_iter=5, labels_out=str(tmp_path / "labels.npy"))
    np.testing.assert_array_equal(np.load(tmp_path / "labels.npy"), function(iris, 3, max_iter=5).labels)
    assert isinstance(found.labels, np.memmap)


def test_labels_live_in_a_file(file):
    X, _ = data()
    with open_backend(Points.of(chunked(file(X), chunk_bytes=5000)), "numpy") as opened:
        labels = opened.blank_labels(2)
        kept = [
            labels,
            opened.take_labels(labels, np.array([1, 0, 1])),
            opened.fetch_labels(labels, 1),
            opened.infinite_sq_dist(1),
        ]
        for array in kept:
            assert isinstance(array.base, np.memmap) or isinstance(array.base.base, np.memmap)


def test_no_room_for_labels(file, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", full)
    with pytest.raises(OSError, match=rf"bytes cannot be had in {re.escape(tempfile.gettempdir())}: No space left"):
        lloyd.run(chunked(file(data()[0]), chunk_bytes=5000), 3)


@pytest.mark.parametrize(("value", "shown"), [(np.nan, "nan"), (-np.inf, "-inf"), (1e200, r"1e\+200")])
def test_bad_values_are_named(value, shown, file):
    X, _ = data()
    X[1234, 2] = value
    with pytest.raises(ValueError, match=f"X contains {shown} in row 1234, column 2; every value must be a finite"):
        KMeans(3).fit(chunked(file(X), chunk_bytes=5000))


def test_what_cannot_be_read(file, tmp_path):
    (tmp_path / "cut.npy").write_bytes(file(np.ones((100, 3))).read_bytes()[:1000])
    bad = {
        "cannot be read: No such file": (ValueError, tmp_path / "none.npy"),
        "none.parquet' cannot be read: No such": (ValueError, tmp_path / "none.parquet"),
        "must be an array or a file whose name ends in .npy": (ValueError, "points.csv"),
        "cannot be read: ": (ValueError, tmp_path / "cut.npy"),
        r"X has shape \(4,\) and must be": (ValueError, file(np.arange(4.0), "1.npy")),
        r"X has shape \(0, 4\) and must be": (ValueError, chunked(lambda: iter([np.empty((0, 4))]))),
        "2.npy' must be an array of real numbers: got": (ValueError, file(np.ones((2, 2), complex), "2.npy")),
        r"Chunk 1 of X has shape \(2, 3\) and dtype float64; all must be \(n, 2\)": (
            ValueError,
            lambda: iter([np.ones((2, 2)), np.ones((2, 3))]),
        ),
        "of dtype float64, whenever": (ValueError, lambda: iter([np.ones((2, 2)), np.ones((2, 2), np.float32)])),
    }
    for message, (error, X) in bad.items():
        with pytest.raises(error, match=message):
            KMeans(1).fit(X)
    for message, (error, call) in {
        "can be read only once; pass a function": (TypeError, lambda: chunked(iter([np.ones((2, 2))]))),
        "X of type int cannot be read in chunks": (TypeError, lambda: chunked(3)),
        "columns=.* can be chosen of Parquet": (ValueError, lambda: chunked("x.npy", columns=["a"])),
        "chunk_bytes=0 must be": (ValueError, lambda: chunked("x.npy", chunk_bytes=0)),
        "chunked already": (TypeError, lambda: chunked(chunked(np.ones((2, 2))))),
    }.items():
        with pytest.raises(error, match=message):
            call()


@pytest.mark.parametrize(
    ("labels_out", "message"),
    [
        (np.zeros(3, np.int32), r"labels_out has shape \(3,\) and dtype int32; it must be a writeable array of 150"),
        (np.zeros(150), "dtype float64; it must be"),
        ("labels.txt", "labels_out='labels.txt' must be an array, or a path that ends in .npy"),
        ("/nowhere/labels.npy", "cannot be written: No such file"),
    ],
)
def test_labels_that_cannot_be_written(labels_out, message, iris):
    for call in (lambda: KMeans(3).fit(iris, labels_out=labels_out), lambda: lloyd.run(iris, 3, labels_out=labels_out)):
        with pytest.raises(ValueError, match=message):
            call()


def test_a_file_that_is_cut_or_written_to(file):
    X, _ = data()
    for change in (lambda f: f.truncate(9000), lambda f: (f.seek(200), f.write(b"12345678"))):
        path = file(X)
        points = Points.of(chunked(path, chunk_bytes=5000))
        os.utime(path, ns=(0, 0))
        points = Points.of(chunked(path, chunk_bytes=5000))
        with open(path, "r+b") as held:
            change(held)
        with pytest.raises(ValueError, match=r"X\.npy was changed while it was being read"):
            lloyd.run(points, 3)


@pytest.mark.parametrize("rows", [N - 1, N + 1])
def test_a_function_that_yields_other_chunks(rows):
    X, _ = data()
    lengths = iter([N, N])  # when it is made and looked at

    def chunks():
        return iter(np.array_split(np.resize(X, (next(lengths, rows), 3)), 7))

    points = Points.of(chunked(chunks, chunk_bytes=5000))
    with pytest.raises(ValueError, match=f"X had {N} rows when it was first read, and {rows} now"):
        lloyd.run(points, 3)


def test_an_error_while_reading_is_raised(backend):
    def chunks():
        yield np.ones((50, 2))
        yield np.zeros((50, 2))
        if len(made) > 2:
            raise OSError("the disk is gone")
        made.append(1)

    made: list[int] = []
    points = Points.of(chunked(chunks, chunk_bytes=160))
    made += [1] * 3
    with pytest.raises(OSError, match="the disk is gone"):
        lloyd.run(points, 2, backend=backend)


def test_reading_is_ahead_by_one():
    seen: list[int] = []

    def numbers():
        for i in range(5):
            seen.append(i)
            yield i

    items = read_ahead(numbers())
    assert next(items) == 0
    items.close()
    assert seen == [0, 1]  # closing waits for what is under way


def test_small_chunks_are_joined():
    source = Streamed(lambda: (np.full((1, 2), float(i)) for i in range(10)), 64)
    assert [len(piece) for piece in source.read(0, None)] == [4, 4, 2]
    assert [piece[0, 0] for piece in source.read(3, 9)] == [3, 7]


def test_passes_read_once_and_potentials_not_at_all():
    X, _ = data()
    reads: list[int] = []

    def chunks():
        reads.append(1)
        return iter(np.array_split(X, 9))

    with open_backend(Points.of(chunked(chunks, chunk_bytes=8000)), "numpy") as opened:
        opened.grid  # noqa: B018
        min_sq_dist, labels, centers = opened.infinite_sq_dist(1), opened.blank_labels(1), X[None, :3].copy()
        opened.lower_sq_dist(X[:1], min_sq_dist)
        for count, call in (
            (1, lambda: opened.assign(centers, labels)),
            (1, lambda: opened.survey(centers, labels, np.full((1, 3, 0), -1), False, 1)),
            (0, lambda: opened.potential(min_sq_dist, np.array([20]))),
            (0, lambda: opened.sample(min_sq_dist, np.array([20]), np.array([[5]]))),
        ):
            reads.clear()
            call()
            assert len(reads) == count


@pytest.mark.gpu
@pytest.mark.skipif(GPU != "hostcuda", reason="limits memory as only hostcuda can")
@pytest.mark.parametrize("devices", [None, [0, 1]])
def test_streamed_through_devices(devices, monkeypatch, file):
    import cupy

    from gputabu.backend.cuda.backend import CudaBackend

    def streamed(points):
        """Nothing stays on a device."""
        tuning = Tuning(resident_share=0.0)
        if devices is None:
            return CudaBackend(points, tuning=tuning)
        cuts = [0, points.n // 2, points.n]
        return ShardedBackend(points, [CudaBackend(points.part(*cuts[i : i + 2]), i, tuning) for i in devices])

    X, weights = data(np.float32, True)
    whole = quantized.search(X, 5, weights=weights, max_iter=6, backend="numpy")
    monkeypatch.setattr(cupy._hostcuda.settings, "devices", 2)
    source = chunked(file(X), chunk_bytes=9000)
    with CudaBackend(Points.of(source), 0, Tuning(resident_share=0.0)) as opened:
        assert opened.chunks.resident is None and opened.chunks.buffers[0].rows == 750
    same(quantized.search(source, 5, weights=weights, max_iter=6, backend=streamed), whole)
