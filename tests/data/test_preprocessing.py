"""What was done to one table is done to another, to the same bits."""

from __future__ import annotations

import json

import numpy as np
import pytest
from sklearn.preprocessing import MinMaxScaler, RobustScaler, StandardScaler

import gputabu
from gputabu.data.preprocessing import Preprocessing
from gputabu.data.tables import Selection, Table

X = np.random.default_rng(0).normal(size=(30, 3)) * [1, 100, 0] + [0, 5, 7]  # the last column is constant
TABLE = Table("a.csv", ("x", "y", "z"), True, X, "key", [str(i) for i in range(30)])


@pytest.mark.parametrize(
    ("scale", "scaler"), [("zscore", StandardScaler), ("minmax", MinMaxScaler), ("robust", RobustScaler)]
)
def test_scales_are_scikit_learns(scale, scaler):
    preprocessing = Preprocessing.of(TABLE, scale)
    points = preprocessing.points(TABLE)
    np.testing.assert_allclose(points, scaler().fit_transform(X), rtol=0, atol=1e-14)
    np.testing.assert_allclose(preprocessing.original(points), X, rtol=1e-13)
    small = Preprocessing.of(TABLE, scale, "float32")
    assert small.points(TABLE).dtype == np.float32


def test_a_model_keeps_its_recipe(tmp_path):
    preprocessing = Preprocessing.of(TABLE, "robust", "float32")
    model = gputabu.KMeans(2, random_state=0).fit(preprocessing.points(TABLE))
    preprocessing.attach(model)
    model.save(tmp_path / "model.npz")
    again = gputabu.load(tmp_path / "model.npz")
    assert Preprocessing.attached(again) == preprocessing
    np.testing.assert_array_equal(again.predict(Preprocessing.attached(again).points(TABLE)), model.labels_)


def test_a_model_from_python_takes_all_columns_as_they_are():
    model = gputabu.KMeans(2, random_state=0).fit(X)
    assert Preprocessing.attached(model) == Preprocessing(("1", "2", "3"), False)
    pandas = pytest.importorskip("pandas")
    model.fit(pandas.DataFrame(X, columns=["x", "y", "z"]))
    assert Preprocessing.attached(model) == Preprocessing(("x", "y", "z"), True)


@pytest.mark.parametrize("text", ["{", "[]", "{}", '{"columns": ["x"], "center": [], "spread": [], "named": true}'])
def test_a_recipe_that_is_none(text):
    model = gputabu.KMeans(2, random_state=0).fit(X)
    model.recipe_ = text
    with pytest.raises(ValueError, match="the model's recipe_ "):
        Preprocessing.attached(model)


def test_selections():
    preprocessing = Preprocessing.of(TABLE)
    assert preprocessing.selection() == Selection(("x", "y", "z"), "key", id_needed=False)
    assert preprocessing.selection("1-3", "4") == Selection("1-3", "4")
    with pytest.raises(ValueError, match=r"a\.csv: 3 columns, where the model has 2"):
        Preprocessing(("x", "y"), True).points(TABLE)
    with pytest.raises(ValueError, match="scale='log' must be one of 'zscore', 'minmax', 'robust'"):
        Preprocessing.of(TABLE, "log")
    with pytest.raises(ValueError, match="dtype='int8' must be one of"):
        Preprocessing.of(TABLE, None, "int8")
    json.dumps(Preprocessing.of(TABLE, "zscore").center)
