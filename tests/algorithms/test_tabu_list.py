"""The tabu list, its deletion rule, the best so far, and batches, on cases that can be followed by hand."""

from __future__ import annotations

import numpy as np
import pytest

from gputabu.algorithms.restarts import POINT_BYTES, batches
from gputabu.algorithms.tabu_list import Best, RecentMoves, TabuList
from gputabu.backend.arithmetic.constants import NOISE
from gputabu.backend.arithmetic.rules import lowest
from gputabu.backend.tuning import Tuning


def filled(rows, shared: bool = False) -> TabuList:
    """One restart whose tabu rows hold these row numbers, in this order; all rows of one length."""
    memory = TabuList(1, len(rows), shared)
    for means in zip(*rows, strict=True):
        memory.push(np.array([means]))
    return memory


def test_a_row_holds_a_point_once():
    memory = filled([[5, 6, 5, 5], [7, 7, 7, 8]])
    assert memory.rows.tolist() == [[[5, 6], [7, 8]]]
    assert memory.length.tolist() == [[2, 2]]


def test_rows_of_a_cluster_are_its_own():
    memory = filled([[1, 2], [2, 2]])
    assert memory.rows.tolist() == [[[1, 2], [2, -1]]]


def test_nothing_is_forbidden_at_first():
    assert TabuList(3, 2, shared=False).rows.shape == (3, 2, 0)


@pytest.mark.parametrize("count", [16, 17, 33])
def test_rows_grow(count):
    memory = filled([range(count), [9] * count])
    assert memory.rows[0, 0].tolist() == list(range(count))
    assert memory.rows[0, 1].tolist() == [9] + [-1] * (count - 1)


def test_the_last_entry_inside_the_cluster_comes_free():
    """Points 3, 4, 5 were means; 5 has left the cluster. Deleting from the end frees 4; 5 goes too."""
    memory = filled([[3, 4, 5]])
    freed = memory.release(np.array([[[True, True, False]]]), np.array([[True]]))
    assert freed.tolist() == [[4]]
    assert memory.rows.tolist() == [[[3]]]
    memory.push(np.array([[8]]))
    assert memory.rows.tolist() == [[[3, 8]]]


def test_the_only_entry_comes_free():
    memory = filled([[3]])
    assert memory.release(np.array([[[True]]]), np.array([[True]])).tolist() == [[3]]
    assert memory.rows.shape == (1, 1, 0)


def test_rows_that_are_not_stuck_are_left_alone():
    memory = filled([[3, 4], [5, 6]])
    inside = np.ones((1, 2, 2), bool)
    assert memory.release(inside, np.array([[False, True]])).tolist() == [[-1, 6]]
    assert memory.rows.tolist() == [[[3, 4], [5, -1]]]
    assert memory.release(inside, np.array([[False, False]])).tolist() == [[-1, -1]]


def test_scope_global_frees_only_what_no_other_row_forbids():
    """Deleting 4 from row 0 frees nothing, because row 1 has it too; 3 is free once it is deleted as well."""
    memory = filled([[3, 4], [4, 9]], shared=True)
    inside = np.array([[[True, True], [False, False]]])
    stuck = np.array([[True, False]])
    assert memory.release(inside, stuck).tolist() == [[3, -1]]
    assert memory.rows.tolist() == [[[-1, -1], [4, 9]]]
    own = filled([[3, 4], [4, 9]], shared=False)
    assert own.release(inside, stuck).tolist() == [[4, -1]]


def test_scope_global_may_free_nothing():
    """Every member is in another row: the row stays as it is, and so will the mean."""
    memory = filled([[3, 4], [4, 3]], shared=True)
    inside = np.array([[[True, True], [False, False]]])
    assert memory.release(inside, np.array([[True, False]])).tolist() == [[-1, -1]]
    assert memory.rows.tolist() == [[[3, 4], [4, 3]]]


def test_take_keeps_and_separates():
    memory = TabuList(3, 1, shared=True)
    memory.push(np.array([[1], [2], [3]]))
    some = memory.take(np.array([2, 0]))
    assert some.shared
    assert some.rows[:, 0].tolist() == [[3], [1]]
    some.push(np.array([[4], [4]]))
    assert memory.rows[:, 0].tolist() == [[1], [2], [3]]


@pytest.mark.parametrize("shared", [False, True])
def test_memory_goes_on_from_its_rows(shared):
    memory = filled([[3, 4, 4], [4, 9, 7]], shared)
    again = TabuList.resumed(memory.rows.copy(), shared)
    assert again.shared is shared
    for each in (memory, again):
        assert (
            each.release(np.array([[[True, True, False], [False] * 3]]), np.array([[True, False]])).max() == 4 - shared
        )
        each.push(np.array([[5, 6]]))
        each.push(np.array([[5, 8]]))
    assert again.rows.tolist() == memory.rows.tolist()
    assert again.length.tolist() == memory.length.tolist()
    assert again.length.dtype == np.int64


def test_what_was_lately_done():
    recent = RecentMoves(2, 3)
    assert not recent.holds(np.array([[0, 1]])).any()
    for step, values in enumerate([(4, 7), (5, 8), (6, 9), (0, 0)]):
        recent.push(step, np.array(values))
    assert recent.ring.tolist() == [[0, 5, 6], [0, 8, 9]]
    assert recent.holds(np.array([[4, 5, 8]])).tolist() == [[False, True, False], [False, False, True]]
    assert recent.holds(np.array([[4, 6], [9, 7]])).tolist() == [[False, True], [True, False]]
    again = RecentMoves.resumed(recent.ring.copy())
    again.push(4, np.array([1, 2]))
    assert again.ring.tolist() == [[0, 1, 6], [0, 2, 9]]
    nothing = RecentMoves(2, 0)
    nothing.push(3, np.array([1, 2]))
    assert not nothing.holds(np.array([[1, 2]])).any()


def test_best_so_far():
    best = Best.start(np.array([5.0, 5.0]), np.array([[0, 1], [2, 3]]))
    best = best.updated(np.array([4.0, 6.0]), np.array([[4, 5], [6, 7]]))
    assert (best.cost.tolist(), best.stale.tolist()) == ([4.0, 5.0], [0, 1])
    assert best.means.tolist() == [[4, 5], [2, 3]]
    best = best.updated(np.array([4.0, 1.0]), np.array([[8, 8], [9, 9]]))  # no better is not better
    assert (best.cost.tolist(), best.stale.tolist()) == ([4.0, 1.0], [1, 0])
    assert best.means.tolist() == [[4, 5], [9, 9]]
    assert best.take(np.array([1])).means.tolist() == [[9, 9]]


def test_rounding_is_no_improvement():
    best = Best.start(np.array([1e8, 1e8, 0.0]), np.zeros((3, 1), int))
    cost = np.array([np.nextafter(1e8, 0), 1e8 * (1 - 3 * NOISE), 0.0])
    best = best.updated(cost, np.ones((3, 1), int))
    assert best.stale.tolist() == [1, 0, 1]
    assert best.cost.tolist() == [1e8, cost[1], 0.0]
    assert lowest(np.array([1e8, np.nextafter(1e8, 0), 2e8])) == 0
    assert lowest(np.array([2e8, 1e8, np.nextafter(1e8, 0)])) == 1


def test_batches_hold_every_restart_once():
    ten = Tuning(batch_bytes=10 * POINT_BYTES * 7)
    assert [list(batch) for batch in batches(range(25), 7, ten)] == [
        list(range(10)), list(range(10, 20)), list(range(20, 25)),
    ]  # fmt: skip
    assert [len(batch) for batch in batches([3, 1, 2], 10**9, ten)] == [1, 1, 1]
