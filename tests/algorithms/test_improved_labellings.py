"""TSC with improvement, modes and packing: step by step against plain implementations, its laws and what it finds."""

from __future__ import annotations

import numpy as np
import oracle
import pytest
from conftest import blobs, same

from gputabu import Points, TabuSearchClustering, reassignment
from gputabu.algorithms import packs, reassignment_loop
from gputabu.algorithms.reassignment_loop import MODES, Course, Plan
from gputabu.backend import open_backend
from gputabu.backend.contract import TrialBatch

ALL = ("threshold", "mutation", "divide")


def random_labels(n, k, seed=0, restart=0):
    return [(word % 2**32) * k // 2**32 for word in oracle.trial_words(seed, restart, 0, 1, n)[0]]


def plain(X, w, k, labels, **options):
    options = {"modes": ("threshold",), "improve": None, "n_trials": 5, "tenure": 4, "keep": 0.8, "seed": 0, **options}
    return oracle.ImprovedLabelSearch(X, w, k, labels, restart=0, **options)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize(
    ("modes", "improve"),
    [(("mutation",), None), (("divide", "threshold"), None), (ALL, "kmeans"), (("divide", "mutation"), "hartigan")],
)
@pytest.mark.one_device
def test_equals_the_plain_search(modes, improve, weighted, backend):
    X, k = blobs(50, 2, 4), 2 if improve == "hartigan" and weighted else 4
    w = np.random.default_rng(1).integers(0, 4, 50) / 2 if weighted else None
    plan = Plan(9, 5, 4, 0.8, modes, improve)
    search = plain(X, np.ones(50) if w is None else w, k, random_labels(50, k), modes=modes, improve=improve)
    with open_backend(Points.of(X, w), backend) as opened:
        lot = TrialBatch(k, 0, np.zeros(1, np.uint64), 0, 1, 0)
        state = reassignment_loop.begin(opened, lot, plan, Course())
        for iteration in range(plan.max_iter + 1):
            if iteration:
                trials = reassignment_loop.prepared(opened, state, lot, plan, iteration)
                state = reassignment_loop.step(opened, state, trials, plan)
                search.iterate(iteration)
            assert opened.fetch_labels(state.labels, 0).tolist() == search.labels.tolist()
            assert (state.cost[0], state.best_cost[0]) == pytest.approx((search.cost, search.best), rel=1e-11)
        found = opened.fetch_labels(reassignment_loop.best_labels(opened, state, plan), 0)
        assert found.tolist() == search.best_labels.tolist()


@pytest.mark.one_device
def test_packing_equals_a_plain_one(backend):
    """Level by level: the plain search on the means of packs, whose weights are their numbers of points."""
    X, k, n_iter = blobs(60, 2, 3), 3, 4
    labels, path, bests = np.array(random_labels(60, k)), [], []
    start = plain(X, np.ones(60), k, labels)
    best, best_labels = start.cost, labels
    assert packs.counts(60, k) == [30, 15, 12, 15, 30]
    for number, size in enumerate([30, 15, 12, 15, 30, 60]):
        mine = plain_packs(X, size)
        means = np.array([X[mine == p].mean(axis=0) for p in range(size)])
        weights = np.bincount(mine).astype(float)
        constant = ((X - means[mine]) ** 2).sum()
        votes = [np.bincount(best_labels[mine == p], minlength=k).argmax() for p in range(size)]
        search = plain(means, weights, k, votes)
        better = search.best + constant < best * (1 - 1e-12)
        search.best, search.best_labels = (search.best, search.best_labels) if better else (best - constant, None)
        for i in range(n_iter + 1):
            if i:
                search.iterate(number * n_iter + i)
            if i or not number:
                path.append(search.cost + constant)
                bests.append(search.best + constant)
        if search.best_labels is not None:
            best, best_labels = search.best + constant, search.best_labels[mine]
    found = reassignment.search(X, k, max_iter=n_iter, n_trials=5, tenure=4, keep=0.8, packing=True, backend=backend)
    np.testing.assert_allclose(found.trace.current[0], path, rtol=1e-10)
    np.testing.assert_allclose(found.trace.best[0], bests, rtol=1e-10)
    assert found.labels.tolist() == best_labels.tolist()
    assert found.inertia == pytest.approx(best, rel=1e-12)


def plain_packs(X, size):
    """The pack of every row: the two with the nearest means merge, again and again."""
    members = [[i] for i in range(len(X))]
    while len(members) > size:
        means = np.array([X[mine].mean(axis=0) for mine in members])
        squares = ((means[:, None] - means) ** 2).sum(axis=2)
        squares[np.tril_indices(len(members))] = np.inf
        a, b = np.unravel_index(squares.argmin(), squares.shape)
        members[a] += members.pop(b)
    return np.array([next(p for p, mine in enumerate(members) if i in mine) for i in range(len(X))])


BRIEF = {"max_iter": 3, "n_trials": 4, "restarts": 3, "seed": 3}


@pytest.mark.parametrize(
    "options",
    [{"improve": "kmeans", "modes": ALL}, {"improve": "hartigan", "packing": True}, {"modes": ALL, "refine": "lloyd"}],
    ids=["improved", "packed", "modes"],
)
@pytest.mark.parametrize(("dtype", "weighted"), [(np.float32, True), (np.float64, False)])
@pytest.mark.one_device
def test_backends_chunks_and_batches_have_the_same_bits(options, dtype, weighted, backend):
    X = blobs(70, 3, 4, dtype=dtype)
    w = np.random.default_rng(3).integers(0, 3, 70) / 2 if weighted else None

    def run(rows=None, backend=backend, **more):
        return reassignment.search(Points.of(X, w, rows), 4, backend=backend, **{**BRIEF, **options, **more})

    whole = run(backend="numpy")
    for rows in (None, 40) if backend == "cuda" else (None, 1, 7, 1000):
        same(whole, run(rows))
    same(whole, run(backend=backend.tuned(batch_bytes=1)))
    alone = run(restarts=[1])
    assert alone.inertia == whole.inertias[1]
    np.testing.assert_array_equal(alone.trace.current[0], whole.trace.current[1])


@pytest.mark.parametrize(
    "options", [{"improve": "kmeans", "modes": ALL}, {"packing": True}, {"improve": "hartigan", "packing": True}]
)
def test_a_fit_goes_on_from_its_checkpoint(options, tmp_path, monkeypatch):
    monkeypatch.setattr("gputabu.algorithms.checkpoint.EVERY", 0.0)
    X, kept = blobs(90, 2, 4), tmp_path / "t.ckpt"
    options = {"n_trials": 4, "max_iter": 6, "restarts": 2, **options}
    for stop_at in (2, 5, 15):  # within a level, and in a later one

        def stop(progress, stop_at=stop_at):
            if progress.iteration == stop_at:
                raise RuntimeError

        if stop_at > options["max_iter"] and not options.get("packing"):
            break
        with pytest.raises(RuntimeError):
            reassignment.search(X, 4, checkpoint=kept, callback=stop, **options)
    same(reassignment.search(X, 4, checkpoint=kept, **options), reassignment.search(X, 4, **options))
    same(reassignment.search(X, 4, checkpoint=kept, **options), reassignment.search(X, 4, **options))  # it is finished


def test_iris_is_solved_every_time(iris):
    for options in ({"improve": "kmeans"}, {"improve": "hartigan"}, {"improve": "kmeans", "packing": True}):
        found = reassignment.search(iris, 3, restarts=10, backend="numpy", **options)
        np.testing.assert_allclose(found.inertias, 78.851441, atol=1e-5)
    packed = reassignment.search(iris, 3, restarts=10, packing=True, backend="numpy")
    assert packed.inertias.mean() == pytest.approx(79.42, abs=0.1)


@pytest.mark.data
def test_averages_are_within_the_bands(paper_data):
    """Of ten seeds each; the bands are those of a plain implementation, and what seeds scatter."""
    glass, bavaria = paper_data("glass"), paper_data("bavaria1")

    def average(X, k, **options):
        return reassignment.search(X, k, restarts=10, backend="numpy", **options).inertias.mean()

    assert average(glass, 6, improve="kmeans") == pytest.approx(346.4, rel=0.02)
    assert average(glass, 6, improve="kmeans", modes=ALL) == pytest.approx(336.10, rel=0.002)
    assert average(bavaria, 5, improve="kmeans", modes=ALL) == pytest.approx(5.97615e10, rel=1e-5)
    assert average(glass, 6, packing=True) == pytest.approx(354.6, rel=0.02)
    assert average(glass, 6, packing=True, improve="kmeans") == pytest.approx(336.13, rel=0.002)
    assert average(bavaria, 5, packing=True, improve="kmeans") == pytest.approx(5.97615e10, rel=1e-5)
    liver = reassignment.search(paper_data("liver"), 10, restarts=3, improve="kmeans", modes=("divide",))
    assert 127_400 < liver.inertias.mean() < 128_500


@pytest.mark.one_device
def test_what_is_returned(iris, backend):
    """The labels of an improved search are those that follow from its best centres, and J is theirs."""
    for improve in ("kmeans", "hartigan"):
        found = reassignment.search(iris, 4, improve=improve, modes=MODES, max_iter=8, n_trials=4, backend=backend)
        means = np.stack([iris[found.labels == c].mean(axis=0) for c in range(4)])
        np.testing.assert_allclose(found.centers, means, rtol=1e-12)
        assert found.inertia == pytest.approx(found.trace.best[0, -1], rel=1e-12)
        assert (np.diff(found.trace.best, axis=1) <= 0).all()


@pytest.mark.parametrize(("X", "k"), [(np.zeros((5, 2)), 2), (blobs(4, 2, 2), 4), (blobs(9, 1, 2), 1), ([[1.0]], 1)])
@pytest.mark.one_device
def test_corners(X, k, backend):
    for improve in (None, "kmeans", "hartigan"):
        found = reassignment.search(X, k, improve=improve, packing=True, max_iter=3, n_trials=3, backend=backend)
        assert np.isfinite(found.centers).all()
        assert found.inertia >= 0


def test_the_estimator(iris):
    model = TabuSearchClustering(3, improve="kmeans", packing=True, n_init=2, random_state=0).fit(iris)
    assert model.inertia_ == pytest.approx(78.851441, abs=1e-5)
    assert model.n_iter_ == 10 * len([75, 37, 18, 12, 18, 37, 75, 150])
    assert TabuSearchClustering(3, improve="kmeans", n_init=1).fit(iris).n_iter_ == 60


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"improve": "lloyd"}, "improve='lloyd' must be None or 'kmeans' or 'hartigan'"),
        ({"modes": "threshold"}, "modes='threshold' must be a sequence"),
        ({"modes": ()}, r"modes=\(\) must be a sequence"),
        ({"modes": ("split",)}, "modes='split' must be one of"),
        ({"packing": 1}, "packing=1 must be True or False"),
        ({"max_iter": 0}, "'max_iter' parameter of .* must"),
    ],
)
def test_bad_input(options, message):
    options = {"n_clusters": 3, **options}
    with pytest.raises((ValueError, TypeError), match=message):
        TabuSearchClustering(**options).fit(blobs(30, 2, 2))
