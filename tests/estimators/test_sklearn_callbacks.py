"""scikit-learn's own callbacks, where it has them."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from gputabu import KMeans, QuantizedTabuKMeans, Stop, TabuSearchClustering
from gputabu.backend.numpy.backend import NumpyBackend
from gputabu.backend.tuning import Tuning

callback = pytest.importorskip("sklearn.callback", reason="scikit-learn has callbacks from 1.9 on")


class Count:
    """Counts the iterations, and ends the fit after `last` of them."""

    max_propagation_depth = None

    def __init__(self, last=None):
        self.last, self.iterations, self.log = last, 0, []

    def setup(self, estimator, context):
        self.log.append("setup")

    def teardown(self, estimator, context):
        self.log.append("teardown")

    def on_fit_task_begin(self, estimator, context):
        pass

    def on_fit_task_end(self, estimator, context, *, X=None):
        if context.task_name != "iteration":
            self.log.append(context.task_name)
            return False
        assert len(X) == 150 and context.parent.max_subtasks >= context.task_id + 1
        self.iterations += 1
        return self.iterations == self.last


@pytest.mark.parametrize(
    "model", [QuantizedTabuKMeans(3, max_iter=20), KMeans(3), TabuSearchClustering(3, max_iter=20)]
)
def test_iterations_are_tasks(model, iris, monkeypatch):
    plain = clone(model).set_params(random_state=0, init="random", n_init=3).fit(iris)
    count = Count()
    heard = clone(plain).set_callbacks(count).fit(iris)
    assert count.log == ["setup", "fit", "teardown"]
    assert count.iterations == plain.trace_.n_iter.max()
    np.testing.assert_array_equal(heard.trace_.current, plain.trace_.current)
    one_at_a_time = partial(NumpyBackend, tuning=Tuning(batch_bytes=1))
    clone(heard).set_params(backend=one_at_a_time).fit(iris)  # with the same callback
    assert count.iterations == plain.trace_.n_iter.max() + plain.trace_.n_iter.sum()


def test_both_kinds_of_callbacks_may_end_a_fit(iris):
    seen = []
    count = Count(4)
    model = QuantizedTabuKMeans(3, random_state=0, callback=lambda info: seen.append(info.iteration)).set_callbacks(
        count
    )
    assert model.fit(iris).stop_ is Stop.CALLBACK and seen == [1, 2, 3, 4]
    model.set_params(callback=lambda info: info.iteration == 2).set_callbacks(Count(4))
    assert model.fit(iris).n_iter_ == 2
    with pytest.raises(TypeError, match="callback=5"):
        model.set_params(callback=5).fit(iris)


def test_in_a_pipeline(iris):
    count = Count()
    make_pipeline(StandardScaler(), QuantizedTabuKMeans(3, max_iter=5, patience=5, random_state=0)).set_callbacks(
        count
    ).fit(iris)
    assert count.iterations == 5


def test_scikit_learns_progress_bar(iris, capsys):
    pytest.importorskip("rich")
    QuantizedTabuKMeans(3, max_iter=5, random_state=0).set_callbacks(callback.ProgressBar()).fit(iris)
    assert "QuantizedTabuKMeans - fit" in capsys.readouterr().out
