"""K-Means that was caught at one K is freed by the K beside it."""

from __future__ import annotations

import numpy as np
import pytest
from conftest import blobs

from gputabu.algorithms.monitor import Monitor
from gputabu.backend import open_backend
from gputabu.data.points import Points
from gputabu.selection.sweep import Plan, Sweep

#: Pairs of points at the ends of two lines.
PAIRS = np.array([[0.0, 0], [0, 1], [10, 0], [10, 1], [100, 0], [100, 1], [110, 0], [110, 1]])


@pytest.fixture
def pairs():
    with open_backend(Points.of(PAIRS)) as opened:
        yield Sweep(opened, Plan([3, 4, 5], "k-means", 1, 0), Monitor())


def test_merging_from_above(pairs):
    caught = pairs.fit(np.array([[[50.0, 0], [100, 0.5], [110, 0.5]]]) * [1, 1])
    best = pairs.fit(PAIRS[None, [0, 2, 4, 6]])
    worse = pairs.fit(np.array([[[5.0, 0], [5, 1], [105, 0.5]]]))
    pairs.steps = [worse, best]
    pairs.merge(0)
    assert pairs.steps[0].inertia == pytest.approx(caught.inertia) == pytest.approx(102.0)
    assert worse.inertia > 103


def test_no_pass_where_merging_leads_nowhere(pairs, monkeypatch):
    pairs.run()
    monkeypatch.setattr(Sweep, "fit", lambda *_: pytest.fail("nothing to gain"))
    for i in (1, 0):
        pairs.merge(i)
    for i in (1, 2):
        pairs.split(i)


def test_splitting_from_below(pairs):
    good = pairs.fit(np.array([[[5.0, 0.5], [100, 0.5], [110, 0.5]]]))
    bad = pairs.fit(np.array([[[5.0, 0], [5, 1], [105, 0], [105, 1]]]))
    assert bad.inertia > good.inertia
    pairs.steps = [good, bad]
    pairs.split(1)
    assert pairs.steps[1].inertia == pytest.approx(2.0)


def test_restarts_are_as_alone():
    """The fresh starts of a K are those of K-Means++ at that K."""
    X = blobs(200, 2, 6, seed=1)
    with open_backend(Points.of(X)) as opened:
        few, many = (Sweep(opened, Plan([4, 6], "k-means", r, 7), Monitor()) for r in (1, 3))
        np.testing.assert_array_equal(many.starts(4)[:1], few.starts(4))
        for sweep in (few, many):
            sweep.steps = [few.fit(few.starts(4))]
        np.testing.assert_array_equal(many.starts(6)[:1], few.starts(6))
        assert many.starts(6).shape == (3, 6, 2)
