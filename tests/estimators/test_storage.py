"""Models outlast the process: round trips bit for bit, and files that are not what they should be."""

from __future__ import annotations

import io
import json
import pickle
import subprocess
import sys
import tracemalloc
import zipfile
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import sklearn.cluster
from conftest import blobs
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import gputabu
from gputabu import KMeans, QuantizedTabuKMeans, TabuKMeans, TabuSearchClustering, load

MODELS = [
    partial(QuantizedTabuKMeans, max_iter=20),
    partial(TabuKMeans, max_iter=20, max_time=60.0),
    partial(TabuSearchClustering, max_iter=20),
    KMeans,
]
X = blobs(60, 3, 4)


def identical(a, b) -> None:
    """Assert that two fitted models are the same in every attribute, type and bit."""
    assert type(a) is type(b)
    assert repr(a) == repr(b)
    assert vars(a).keys() == vars(b).keys()
    for name in vars(a):
        one, two = getattr(a, name), getattr(b, name)
        if name == "trace_":
            for part in ("current", "best", "moves", "means"):
                np.testing.assert_array_equal(getattr(one, part), getattr(two, part))
        elif isinstance(one, np.ndarray):
            np.testing.assert_array_equal(one, two)
            assert (one.dtype, one.flags.writeable) == (two.dtype, two.flags.writeable)
        else:
            assert (one, type(one)) == (two, type(two))


@pytest.fixture(scope="module")
def saved(tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("model") / "model.npz"
    QuantizedTabuKMeans(3, max_iter=5, random_state=0, backend="numpy").fit(X).save(path)
    return path.read_bytes()


def forged(saved: bytes, path, **changed: object) -> None:
    """Write a sound archive with some entries of model.json replaced."""
    source = zipfile.ZipFile(io.BytesIO(saved))
    with zipfile.ZipFile(path, "w") as target:
        for name in source.namelist():
            content = source.read(name)
            if name == "model.json":
                content = json.dumps(json.loads(content) | changed)
            target.writestr(name, content)


def attempt(path) -> tuple[object, str]:
    """The model in a file, or the sentence that there is instead."""
    try:
        return load(path), ""
    except ValueError as error:
        return None, str(error)


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_what_is_loaded_is_what_was_saved(model, dtype, tmp_path):
    data = X.astype(dtype)
    fitted = model(4, random_state=2**63, n_init=2).fit(data)
    fitted.save(tmp_path / "m.npz")
    again = load(tmp_path / "m.npz")
    identical(fitted, again)
    np.testing.assert_array_equal(again.predict(data), fitted.predict(data))
    np.testing.assert_array_equal(again.transform(data), fitted.transform(data))
    identical(clone(again).fit(data), fitted)


def test_loaded_where_another_backend_runs(tmp_path, backend):
    KMeans(4, random_state=0, backend=backend.name).fit(X).save(tmp_path / "m")
    again = load(tmp_path / "m")
    assert again.backend_ == backend.name
    np.testing.assert_array_equal(again.set_params(backend="numpy").predict(X), again.labels_)


def test_names_output_and_starts_are_kept(tmp_path):
    frame = pd.DataFrame(X, columns=["a", "b", "c ü"])
    for init in (X[:4], X[:4].tolist(), [0, 1, 2, 3]):
        fitted = KMeans(4, init=init).set_output(transform="pandas").fit(frame)
        fitted.save(tmp_path / "m")
        again = load(str(tmp_path / "m"))
        assert again.feature_names_in_.tolist() == ["a", "b", "c ü"]
        assert again.feature_names_in_.dtype == object
        np.testing.assert_array_equal(again.init, init)
        assert isinstance(again.transform(frame), pd.DataFrame)
        with pytest.raises(ValueError, match="feature names"):
            again.predict(frame.rename(columns={"a": "z"}))


@pytest.mark.parametrize("name", ["model", "model.npz", "model.npz.npz", "модель.dat", "a b.zip"])
def test_the_name_is_kept(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    KMeans(2).fit(X).save(name)
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert load(name).n_clusters == 2


def test_equal_models_are_equal_files(tmp_path):
    for name in "ab":
        KMeans(2, random_state=0).fit(X).save(tmp_path / name)
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_numpy_reads_the_arrays(tmp_path):
    fitted = KMeans(2).fit(X)
    fitted.save(tmp_path / "m.npz")
    with np.load(tmp_path / "m.npz") as file:
        np.testing.assert_array_equal(file["cluster_centers_"], fitted.cluster_centers_)


@pytest.mark.parametrize("state", [np.random.RandomState(0), np.random.default_rng(0)])
def test_what_cannot_be_kept_is_said(state, tmp_path):
    fitted = KMeans(2, random_state=state).fit(X)
    with pytest.warns(UserWarning, match="random_state=.* cannot be kept in a file.* default of random_state") as said:
        fitted.save(tmp_path / "m")
    assert said[0].filename == __file__
    assert load(tmp_path / "m").random_state is None


def test_a_model_must_be_fitted(tmp_path):
    for act in (lambda: KMeans(2).save(tmp_path / "m"), KMeans(2).to_sklearn):
        with pytest.raises(NotFittedError):
            act()
    assert list(tmp_path.iterdir()) == []


def test_classes_of_ones_own(tmp_path, saved):
    class Mine(KMeans):
        pass

    Mine(2).fit(X).save(tmp_path / "m")
    assert type(load(tmp_path / "m")) is Mine
    Same = type("KMeans", (KMeans,), {"__init__": KMeans.__init__})
    with pytest.raises(TypeError, match=r"the name stands for gputabu\.estimators\.models\.KMeans"):
        Same(2).fit(X).save(tmp_path / "n")
    forged(saved, tmp_path / "o", estimator="Yours")
    with pytest.raises(ValueError, match=r"o holds a 'Yours', which is none of .*KMeans, .*import the module"):
        load(tmp_path / "o")


def test_pickle_and_clone_go_on(tmp_path, saved):
    (tmp_path / "m").write_bytes(saved)
    again = load(tmp_path / "m")
    identical(pickle.loads(pickle.dumps(again)), again)
    assert clone(again).get_params() == again.get_params()


def test_loads_where_there_is_neither_numba_nor_cupy(tmp_path, saved):
    (tmp_path / "m").write_bytes(saved)
    np.save(tmp_path / "X.npy", X)
    code = """
import sys
sys.modules["numba"] = sys.modules["cupy"] = None
import gputabu, numpy as np
print(gputabu.load("m").predict(np.load("X.npy")).tolist())
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=tmp_path)
    assert json.loads(ran.stdout) == load(tmp_path / "m").predict(X).tolist()


def test_a_backend_that_is_not_here_is_replaced_and_said(tmp_path, saved):
    parameters = {"n_clusters": 3, "backend": "cuda", "device": 1}
    forged(saved, tmp_path / "m", parameters=parameters)
    with pytest.warns(RuntimeWarning, match="backend='cuda' cannot run here: .* has backend='auto' instead") as said:
        again = load(tmp_path / "m")
    assert said[0].filename == __file__
    assert (again.backend, again.device) == ("auto", None)
    np.testing.assert_array_equal(again.predict(X), again.labels_)


def test_a_file_that_is_cut_short(tmp_path, saved):
    path = tmp_path / "m"
    for length in [*range(0, len(saved), 37), len(saved) - 1]:
        path.write_bytes(saved[:length])
        with pytest.raises(ValueError, match="m is not a model saved by gputabu, or is damaged: "):
            load(path)


@settings(max_examples=300)
@given(st.data())
def test_flipped_bytes_are_found_or_do_no_harm(saved, tmp_path, data):
    damaged = bytearray(saved)
    for at in data.draw(st.sets(st.integers(0, len(saved) - 1), min_size=1, max_size=3)):
        damaged[at] ^= data.draw(st.integers(1, 255))
    path = tmp_path / "damaged"
    path.write_bytes(damaged)
    found, said = attempt(path)
    assert (said.startswith(str(path)) and "\n" not in said) == (found is None)
    if found is not None:  # a date, say
        path.write_bytes(saved)
        identical(found, load(path))


@pytest.mark.parametrize(
    "content",
    [b"", b"PK\x05\x06" + bytes(18), b"not a model", pickle.dumps({"model": 1}), b"\x93NUMPY\x01\x00v\x00{'descr'"],
)
def test_foreign_files(content, tmp_path):
    (tmp_path / "m").write_bytes(content)
    with pytest.raises(ValueError, match="m is not a model saved by gputabu, or is damaged: "):
        load(tmp_path / "m")


def test_foreign_archives(tmp_path):
    np.savez(tmp_path / "a.npz", x=X)
    np.savez_compressed(tmp_path / "b.npz", x=np.zeros(10**7))
    with pytest.raises(ValueError, match=r"a\.npz is not a model saved by gputabu, or is damaged"):
        load(tmp_path / "a.npz")
    with pytest.raises(ValueError, match="it is compressed"):
        load(tmp_path / "b.npz")


def test_no_file(tmp_path):
    with pytest.raises(FileNotFoundError):
        load(tmp_path / "m")


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"version": 2}, r"was saved by a newer gputabu \(version 2 of the format, and this one reads up to 1\)"),
        ({"version": "x"}, "is damaged"),
        ({"version": None}, "is damaged"),
        ({"estimator": "os.system"}, "holds a 'os.system', which is none of .*KMeans, "),
        ({"estimator": ["KMeans"]}, "is damaged"),
        ({"parameters": {"speed": 3}}, "has a parameter 'speed' that QuantizedTabuKMeans does not know"),
        ({"parameters": []}, "is damaged"),
        ({"fitted": {}}, "is damaged"),
        ({"fitted": {"fit": 1}}, "'fit' is not the name of a fitted attribute"),
        ({"fitted": {"__class__": 1}}, "'__class__' is not the name"),
        ({"fitted": {"labels_": {"pickle": "labels_"}}}, "it holds a 'pickle', which nobody knows"),
        ({"fitted": {"labels_": {"array": "nothing"}}}, "is damaged"),
        ({"fitted": {"labels_": {"array": "model"}}}, "is damaged"),
        ({"output": {"deep": {}}}, "is damaged"),
    ],
)
def test_forged_heads(changed, message, saved, tmp_path):
    forged(saved, tmp_path / "m", **changed)
    with pytest.raises(ValueError, match=message):
        load(tmp_path / "m")


@pytest.mark.parametrize(
    "changed",
    [
        {"n_features_in_": 7},
        {"feature_names_in_": {"names": ["a"]}},
        {"labels_": {"array": "trace_.moves"}},
        {"labels_": {"array": "cluster_centers_"}},
        {"cluster_centers_": {"array": "labels_"}},
        {"cluster_centers_": {"array": "trace_.moves"}},
        {"cluster_centers_": "text"},
        {"stop_": None},
        {"stop_": {"stop": "NEVER"}},
        {"trace_": {"trace": {"other": None}}},
    ],
)
def test_models_that_do_not_hold_together(changed, saved, tmp_path):
    fitted = json.loads(zipfile.ZipFile(io.BytesIO(saved)).read("model.json"))["fitted"]
    forged(saved, tmp_path / "m", fitted=fitted | changed)
    with pytest.raises(ValueError, match="is damaged: "):
        load(tmp_path / "m")


def test_deeply_nested_heads(tmp_path):
    with zipfile.ZipFile(tmp_path / "m", "w") as file:
        file.writestr("model.json", "[" * 100_000)
    with pytest.raises(ValueError, match="is damaged"):
        load(tmp_path / "m")


@pytest.mark.parametrize("shape", ["(10**9, 10**9)", "(1000000000000,)", "(-1, -24)", "(0,)", "(3, 3, 3)"])
def test_memory_is_bounded_by_the_file_whatever_a_header_claims(shape, saved, tmp_path):
    shape = str(eval(shape))
    header = f"{{'descr': '<f8', 'fortran_order': False, 'shape': {shape}, }}".ljust(117) + "\n"
    centers = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header.encode() + bytes(72)
    forge_member(saved, tmp_path / "m", "cluster_centers_.npy", centers)
    tracemalloc.start()
    with pytest.raises(ValueError, match=r"cluster_centers_\.npy does not hold what it claims to"):
        load(tmp_path / "m")
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 2e6


def test_objects_are_not_read(saved, tmp_path):
    content = io.BytesIO()
    np.lib.format.write_array(content, np.array([object()], dtype=object).astype(str).astype(object))
    forge_member(saved, tmp_path / "m", "cluster_centers_.npy", content.getvalue())
    with pytest.raises(ValueError, match="does not hold what it claims to"):
        load(tmp_path / "m")


def forge_member(saved: bytes, path, member: str, content: bytes) -> None:
    """Write a sound archive with one of its files replaced."""
    source = zipfile.ZipFile(io.BytesIO(saved))
    with zipfile.ZipFile(path, "w") as target:
        for name in source.namelist():
            target.writestr(name, content if name == member else source.read(name))


def test_an_archive_that_claims_more_than_it_is_long(tmp_path, saved):
    """Many entries for the same bytes, as in the known bombs."""
    with zipfile.ZipFile(tmp_path / "m", "w") as file:
        file.writestr("model.json", b" " * 10_000)
        for i in range(100):
            entry = zipfile.ZipInfo(f"{i}.npy")
            entry.file_size = entry.compress_size = 10_000
            entry.header_offset, entry.CRC = 0, file.getinfo("model.json").CRC
            file.filelist.append(entry)
    with pytest.raises(ValueError, match="it claims to hold more than it is long"):
        load(tmp_path / "m")


def test_a_disk_that_is_full_leaves_the_old_file(tmp_path, monkeypatch, saved):
    path = tmp_path / "m"
    path.write_bytes(saved)

    def full(*_, **__):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("gputabu.core.archive.npy.write_array", full)
    with pytest.raises(OSError, match="No space left"):
        KMeans(2).fit(X).save(path)
    assert path.read_bytes() == saved and list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_not_there(tmp_path):
    with pytest.raises(FileNotFoundError) as raised:
        KMeans(2).fit(X).save(tmp_path / "no" / "m")
    assert raised.value.filename == str(tmp_path / "no" / "m")


@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_to_sklearn(model, dtype):
    frame = pd.DataFrame(X.astype(dtype), columns=list("abc"))
    fitted = model(4, random_state=0).fit(frame)
    plain = fitted.to_sklearn()
    assert type(plain) is sklearn.cluster.KMeans
    np.testing.assert_array_equal(plain.predict(frame), fitted.labels_)
    np.testing.assert_array_equal(plain.labels_, fitted.labels_)
    np.testing.assert_array_equal(plain.cluster_centers_, fitted.cluster_centers_)
    np.testing.assert_allclose(plain.transform(frame), fitted.transform(frame), rtol=1e-3)
    assert plain.score(frame) == pytest.approx(fitted.score(frame), rel=1e-5)
    assert (plain.inertia_, plain.n_iter_, plain.n_clusters) == (fitted.inertia_, fitted.n_iter_, 4)
    assert (plain.n_features_in_, plain.feature_names_in_.tolist()) == (3, list("abc"))
    assert plain.get_feature_names_out().tolist() == [f"kmeans{k}" for k in range(4)]
    with pytest.raises(ValueError, match="feature names"):
        plain.predict(frame.rename(columns={"a": "z"}))
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(plain)).predict(frame), fitted.labels_)
    assert clone(plain).fit(frame).inertia_ == pytest.approx(fitted.inertia_, rel=1e-5)


def test_to_sklearn_is_independent():
    fitted = KMeans(3, random_state=0).fit(X)
    plain = fitted.to_sklearn()
    plain.cluster_centers_[:], plain.labels_[:] = 0, 0
    assert fitted.cluster_centers_.any() and fitted.labels_.any()
    assert not hasattr(plain, "feature_names_in_")


def test_load_is_public():
    assert gputabu.load is load


#: Models that version 0.1.0 saved, when TabuKMeans was both searches.
OLD = {"quantized": QuantizedTabuKMeans, "relocation": TabuKMeans, "kmeans": KMeans}


@pytest.mark.parametrize("name", OLD)
def test_models_of_the_first_version_are_read(name, tmp_path):
    points = (np.arange(60) * 37 % 61).reshape(30, 2) / 4.0
    model = load(Path(__file__).parent / "saved" / f"{name}.npz")
    assert type(model) is OLD[name] and model.n_clusters == 3 and model.random_state == 0
    assert "neighbourhood" not in model.get_params()
    np.testing.assert_array_equal(model.predict(points), model.labels_)
    again = clone(model).fit(points)  # the same search, with the same bits
    np.testing.assert_array_equal(again.trace_.current, model.trace_.current)
    model.save(tmp_path / "again.npz")
    assert repr(load(tmp_path / "again.npz")) == repr(model)
