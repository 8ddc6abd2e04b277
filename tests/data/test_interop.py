"""Arrays of all kinds: the same bits as from NumPy, and results of the kind that came in, where it was."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from conftest import blobs

from gputabu import (
    BackendUnavailable,
    KMeans,
    QuantizedTabuKMeans,
    TabuSearchClustering,
    lloyd,
    plotting,
    quantized,
    select_k,
)
from gputabu.backend import as_points, to_numpy
from gputabu.data.interop import as_array, on_gpu

X = blobs(80, 3, 4)
WEIGHTS = np.random.default_rng(0).integers(0, 4, 80) / 2


class Tensor:
    """An array of a library that knows nothing of NumPy: only DLPack leads in and out."""

    def __init__(self, array):
        self.array, self.shape, self.dtype = array, array.shape, array.dtype

    def __dlpack__(self, **options):
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self):
        return self.array.__dlpack_device__()

    def __array_namespace__(self):
        return SimpleNamespace(from_dlpack=from_dlpack)

    def __array__(self, *_, **__):
        raise AssertionError("nobody should copy")


class Capsule:
    """Speaks DLPack and belongs to no library, so that results cannot be of its kind."""

    def __init__(self, array):
        self.__dlpack__, self.__dlpack_device__ = array.__dlpack__, array.__dlpack_device__


def from_dlpack(array) -> Tensor:
    return Tensor(array)


def check_kind(make, read, kind, X=X, **parameters) -> None:
    """Assert that all that a fit returns is of `kind` and equal to what NumPy gets."""
    points, weights = make(X), make(WEIGHTS)
    model = QuantizedTabuKMeans(4, random_state=0, max_iter=10, **parameters)
    expected = QuantizedTabuKMeans(4, random_state=0, max_iter=10).fit(X, sample_weight=WEIGHTS)
    fitted = model.fit(points, sample_weight=weights)
    results = {
        "labels_": (fitted.labels_, expected.labels_),
        "cluster_centers_": (fitted.cluster_centers_, expected.cluster_centers_),
        "predict": (fitted.predict(points), expected.labels_),
        "fit_predict": (fitted.fit_predict(points, sample_weight=weights), expected.labels_),
        "transform": (fitted.transform(points), expected.transform(X)),
        "fit_transform": (fitted.fit_transform(points, sample_weight=weights), expected.transform(X)),
    }
    for name, (found, wanted) in results.items():
        assert isinstance(found, kind), name
        np.testing.assert_array_equal(read(found), wanted, err_msg=name)
        assert read(found).dtype == wanted.dtype
    assert fitted.score(points, sample_weight=weights) == expected.score(X, sample_weight=WEIGHTS)
    assert (fitted.inertia_, fitted.n_features_in_) == (expected.inertia_, X.shape[1])
    np.testing.assert_array_equal(fitted.trace_.current, expected.trace_.current)
    np.testing.assert_array_equal(to_numpy(fitted.cluster_centers_), expected.cluster_centers_)
    with pytest.raises(ValueError, match="X has 2 features, but QuantizedTabuKMeans is expecting 3"):
        fitted.predict(make(X[:, :2]))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_dlpack_in_and_out(dtype):
    check_kind(Tensor, lambda found: found.array, Tensor, X.astype(dtype))


def test_results_are_numpys_where_a_library_takes_nothing():
    check_kind(Capsule, np.asarray, np.ndarray)


def test_nothing_is_copied_and_nothing_touched():
    given = X.copy()
    (chunk,) = as_points(Tensor(given)).chunks
    assert np.shares_memory(chunk, given)
    KMeans(4, random_state=0).fit(Tensor(given), sample_weight=Tensor(WEIGHTS))
    np.testing.assert_array_equal(given, X)


@pytest.mark.parametrize("dtype", [np.float16, np.int8, np.uint32, np.int64, bool])
@pytest.mark.parametrize("kind", [np.asarray, Tensor])
def test_other_numbers_are_widened(dtype, kind):
    narrow = X > 0 if dtype is bool else (X * 4).astype(dtype)
    wide = narrow.astype(np.float32 if dtype is np.float16 else np.float64)
    found = KMeans(4, random_state=0).fit(kind(narrow))
    expected = KMeans(4, random_state=0).fit(wide)
    assert to_numpy(found.labels_).tolist() == expected.labels_.tolist()
    assert to_numpy(found.cluster_centers_).dtype == wide.dtype


@pytest.mark.parametrize("view", [X.T.copy().T, X[::-1], np.repeat(X, 2, axis=1)[:, ::2]])
def test_any_strides(view):
    found = KMeans(4, random_state=0).fit(Tensor(view))
    np.testing.assert_array_equal(found.labels_.array, KMeans(4, random_state=0).fit(view.copy()).labels_)


def test_plain_functions_answer_in_kind():
    for found in (quantized.search(Tensor(X), 4, max_iter=5), lloyd.run(Tensor(X), 4, weights=Tensor(WEIGHTS))):
        assert isinstance(found.labels, Tensor) and isinstance(found.centers, Tensor)
    chosen = select_k(Tensor(X), [2, 3])
    assert isinstance(chosen.labels, Tensor) and isinstance(chosen.centers[2], Tensor)


def test_starts_of_any_kind():
    for init in (X[:4], np.arange(4)):
        found, expected = KMeans(4, init=Tensor(init)).fit(X), KMeans(4, init=init).fit(X)
        np.testing.assert_array_equal(found.labels_, expected.labels_)
    labels = np.arange(80) % 4
    found = TabuSearchClustering(4, init=Tensor(labels), max_iter=5, random_state=0).fit(X)
    expected = TabuSearchClustering(4, init=labels, max_iter=5, random_state=0).fit(X)
    np.testing.assert_array_equal(found.labels_, expected.labels_)


def test_pandas_gets_numpys_numbers_whatever_came_in():
    fitted = KMeans(4, random_state=0).set_output(transform="pandas").fit(Tensor(X))
    assert type(fitted.transform(Tensor(X))).__module__.startswith("pandas")
    assert fitted.labels_.tolist() == fitted.predict(X).tolist()


def test_models_of_tensors_are_saved_and_drawn(tmp_path):
    from gputabu import load

    fitted = KMeans(4, random_state=0).fit(Tensor(X))
    fitted.save(tmp_path / "m")
    np.testing.assert_array_equal(load(tmp_path / "m").predict(X), fitted.labels_.array)
    np.testing.assert_array_equal(fitted.to_sklearn().labels_, fitted.labels_.array)
    pytest.importorskip("matplotlib").use("agg")
    plotting.clusters(Tensor(X), fitted)


@pytest.mark.parametrize(
    ("bad", "error", "message"),
    [
        (X.astype(complex), ValueError, "Complex data not supported"),
        (X[0], ValueError, "Expected 2D array, got 1D array"),
        (np.where(X[0, 0] == X, np.nan, X), ValueError, "NaN"),
        (np.empty((0, 3)), ValueError, r"0 sample\(s\)"),
    ],
)
def test_bad_arrays(bad, error, message):
    with pytest.raises(error, match=message):
        KMeans(2).fit(Tensor(bad))


def test_arrays_that_cannot_be_read():
    class Elsewhere(Tensor):
        def __dlpack_device__(self):
            return (8, 0)  # Metal

        def __dlpack__(self, **_):
            raise BufferError("the array is on another device.")

    for argument in ({"X": Elsewhere(X)}, {"X": X, "sample_weight": Elsewhere(WEIGHTS)}):
        *_, name = argument
        with pytest.raises(TypeError, match=f"{name} is a Elsewhere that cannot be read as an array: .+"):
            KMeans(2).fit(**argument)


def test_an_array_on_a_gpu_needs_cupy():
    class Far(Tensor):
        def __dlpack_device__(self):
            return (2, 0)

    assert on_gpu(Far(X))
    with pytest.raises(BackendUnavailable, match="backend='cuda' cannot run here: CuPy is not installed"):
        KMeans(2).fit(Far(X))


@pytest.mark.gpu
def test_cupy_in_and_out():
    import cupy

    check_kind(cupy.asarray, cupy.asnumpy, cupy.ndarray)
    device = cupy.asarray(X)
    assert as_array(device) is device
    assert as_points(device).chunks[0].data.ptr == device.data.ptr


@pytest.mark.gpu
def test_tensors_on_a_gpu_stay_there():
    import cupy

    check_kind(lambda array: Tensor(cupy.asarray(array)), lambda found: found.array.get(), Tensor)
    device = cupy.asarray(X)
    fitted = KMeans(4, random_state=0).fit(Tensor(device))
    assert isinstance(fitted.labels_.array, cupy.ndarray)
    assert fitted.labels_.array.device == device.device
    assert as_points(Tensor(device)).chunks[0].data.ptr == device.data.ptr


@pytest.mark.gpu
def test_cudas_array_interface():
    import cupy

    class Interface:
        """As numba's device arrays: the older protocol only."""

        def __init__(self, array):
            self.array, self.__cuda_array_interface__ = array, array.__cuda_array_interface__

    check_kind(lambda array: Interface(cupy.asarray(array)), cupy.asnumpy, cupy.ndarray)


@pytest.mark.gpu
def test_models_of_device_arrays_are_saved_as_host_arrays(tmp_path):
    import cupy

    from gputabu import load

    fitted = KMeans(4, random_state=0).fit(cupy.asarray(X))
    fitted.save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert isinstance(again.labels_, np.ndarray) and isinstance(again.cluster_centers_, np.ndarray)
    np.testing.assert_array_equal(again.set_params(backend="numpy").predict(X), fitted.labels_.get())
    np.testing.assert_array_equal(fitted.to_sklearn().labels_, fitted.labels_.get())


@pytest.mark.gpu
def test_weights_may_be_elsewhere_than_points():
    import cupy

    expected = KMeans(4, random_state=0).fit(X, sample_weight=WEIGHTS)
    for points, weights in ((cupy.asarray(X), WEIGHTS), (X, cupy.asarray(WEIGHTS)), (Tensor(X), cupy.asarray(WEIGHTS))):
        found = KMeans(4, random_state=0, backend="cuda").fit(points, sample_weight=weights)
        assert isinstance(found.labels_, type(points))
        np.testing.assert_array_equal(to_numpy(found.labels_), expected.labels_)


def torch_devices() -> list[str]:
    """Where PyTorch's tensors can be tested here."""
    try:
        import torch
    except ImportError:
        return []
    return ["cpu", "cuda"] if torch.cuda.is_available() else ["cpu"]


@pytest.fixture(params=torch_devices() or [pytest.param("", marks=pytest.mark.skip(reason="needs PyTorch"))])
def torch(request, monkeypatch):
    """PyTorch, and where its tensors are made."""
    if request.param == "cuda":
        monkeypatch.setattr("gputabu.backend.cuda_unusable", lambda: None)
    library = pytest.importorskip("torch")
    return SimpleNamespace(library=library, tensor=lambda array: library.tensor(array, device=request.param))


def test_torch_in_and_out(torch):
    check_kind(torch.tensor, lambda found: found.cpu().numpy(), torch.library.Tensor)
    check_kind(torch.tensor, lambda found: found.cpu().numpy(), torch.library.Tensor, X.astype(np.float32))
    given = torch.tensor(X)
    assert KMeans(4, random_state=0).fit(given).labels_.device == given.device
    assert torch.library.equal(given, torch.tensor(X))


def test_tensors_that_torch_does_not_export(torch):
    expected = KMeans(4, random_state=0).fit(X)
    for given in (
        torch.tensor(X).requires_grad_(),
        torch.library.nn.Parameter(torch.tensor(X)),
        torch.tensor(X.T.copy()).T,
        torch.tensor(np.repeat(X, 2, axis=1))[:, ::2],
    ):
        weights = torch.tensor(WEIGHTS).requires_grad_()
        found = KMeans(4, random_state=0).fit(given)
        np.testing.assert_array_equal(found.labels_.cpu().numpy(), expected.labels_)
        assert not found.cluster_centers_.requires_grad
        np.testing.assert_array_equal(
            KMeans(4, random_state=0).fit(given, sample_weight=weights).labels_.cpu().numpy(),
            KMeans(4, random_state=0).fit(X, sample_weight=WEIGHTS).labels_,
        )
    with pytest.raises(TypeError, match="X is a Tensor that cannot be read as an array"):
        KMeans(2).fit(torch.tensor(X).to_sparse())


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "int8", "int64", "bool"])
def test_narrow_tensors(torch, dtype):
    narrow = torch.tensor(X > 0 if dtype == "bool" else X).to(getattr(torch.library, dtype))
    wide = narrow.float().cpu().numpy() if "float" in dtype else narrow.cpu().numpy()
    found = KMeans(4, random_state=0).fit(narrow)
    expected = KMeans(4, random_state=0).fit(wide)
    np.testing.assert_array_equal(found.labels_.cpu().numpy(), expected.labels_)
    np.testing.assert_array_equal(found.cluster_centers_.cpu().numpy(), expected.cluster_centers_)


def test_jax_in_and_out():
    numpy = pytest.importorskip("jax.numpy")
    wide = X.astype(np.float32)
    check_kind(lambda array: numpy.asarray(array, dtype=np.float32), np.asarray, numpy.ndarray, wide)
    found = KMeans(4, random_state=0).fit(numpy.asarray(wide, dtype="bfloat16"))
    expected = KMeans(4, random_state=0).fit(np.asarray(numpy.asarray(wide, dtype="bfloat16"), dtype=np.float32))
    np.testing.assert_array_equal(np.asarray(found.labels_), expected.labels_)
