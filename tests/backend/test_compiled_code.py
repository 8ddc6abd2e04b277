"""Where compiled code is not on disk yet, "auto" takes NumPy for what it does sooner than compiling would take."""

from __future__ import annotations

import numpy as np
import pytest

import gputabu
from gputabu.backend import compiled_code
from gputabu.data.points import Points

pytestmark = pytest.mark.numba


@pytest.fixture
def cold(tmp_path, monkeypatch):
    """No compiled code on disk, as far as can be seen."""
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    return tmp_path


def test_the_first_fit_of_small_data_does_not_compile(cold, iris):
    first = gputabu.TabuKMeans(3, random_state=0).fit(iris)
    assert first.backend_ == "numpy"
    named = gputabu.TabuKMeans(3, random_state=0, backend="numba").fit(iris)  # which leaves word of it
    assert named.backend_ == "numba" and len(list(cold.glob("gputabu-*.compiled"))) == 1
    second = gputabu.TabuKMeans(3, random_state=0).fit(iris)
    assert second.backend_ == "numba" and second.inertia_ == first.inertia_
    np.testing.assert_array_equal(second.trace_.current, first.trace_.current)
    assert gputabu.TabuKMeans(3, random_state=0).fit(iris.astype(np.float32)).backend_ == "numpy"  # other code
    assert gputabu.KMeans(3, random_state=0).fit(iris).backend_ == "numpy"


def test_neither_do_predictions_and_the_choice_of_k(cold, iris, monkeypatch):
    opened = []
    label = gputabu.backend.NumpyBackend.label
    monkeypatch.setattr(
        gputabu.backend.NumpyBackend, "label", lambda self, c: opened.append(self.name) or label(self, c)
    )
    gputabu.KMeans(3, random_state=0, backend="numpy").fit(iris).set_params(backend="auto").predict(iris)
    assert opened[-1] == "numpy"
    assert gputabu.select_k(iris, [2, 3], ["bic", "gap"], references=2).best.backend == "numpy"
    gputabu.select_k(iris, [2, 3], backend="numba")
    assert gputabu.select_k(iris, [2, 3]).best.backend == "numba"


@pytest.mark.parametrize(
    ("rows", "clusters", "limits", "cheaper"),
    [
        (150, 3, {}, True),
        (150, 3, {"max_iter": 100_000}, False),
        (10**6, 50, {}, False),
        (150, 3, {"seconds": 5.0}, True),  # compiling would take most of it
        (150, 3, {"seconds": 60.0}, False),
        (10**7, 500, {"seconds": 5.0}, False),  # NumPy would get nowhere
    ],
)
def test_what_numpy_is_cheaper_for(rows, clusters, limits, cheaper, cold):
    points = Points.of(np.broadcast_to(np.zeros((1, 4)), (rows, 4)))
    assert compiled_code.cheaper_without(points, "relocation", clusters, **limits) is cheaper
    compiled_code.remember(points, "relocation")
    assert not compiled_code.cheaper_without(points, "relocation", clusters, **limits)
