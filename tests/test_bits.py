"""The bits of every search, written down: on any machine, backend, version and cut they are these.

A digest changes only where a search is meant to find something else; then it is a line of the changelog as well.
"""

from __future__ import annotations

import hashlib
from functools import partial

import numpy as np
import pytest

from gputabu import evolution, fuzzy, gmeans, lloyd, quantized, reassignment, relocation
from gputabu.algorithms.checkpoint import Stage
from gputabu.backend.loops import LloydRun, Loops, QuantizedRun
from gputabu.backend.numpy.backend import NumpyBackend
from gputabu.core.results import Stop

#: Sums and products of small integers, so that no library's random normals are part of this.
RNG = np.random.default_rng(20)
PLACES = RNG.integers(-40, 40, size=(7, 3))
X = (PLACES[RNG.integers(7, size=90)] + RNG.integers(-64, 65, size=(90, 3)) / 7) * np.array([1.0, 0.01, 30.0])
X[11] = X[55]
WEIGHTS = RNG.integers(0, 5, size=90) / 4
FAR = np.full((5, 3), 9e3)

CASES = {
    "K-Means": (lloyd.run, 6, {"restarts": 3}),
    "K-Means, weights": (lloyd.run, 6, {"weights": WEIGHTS, "restarts": 3, "init": "random", "seed": 4}),
    "K-Means, tolerance": (lloyd.run, 9, {"restarts": 3, "tol": 3e-2, "trials": 1, "init": "k-means++"}),
    "K-Means, empty clusters": (lloyd.run, 5, {"init": FAR, "weights": WEIGHTS, "refine": "hartigan"}),
    "K-Means, cut short": (lloyd.run, 8, {"restarts": [4, 2, 9], "max_iter": 3}),
    "K-Means, moves": (lloyd.run, 6, {"restarts": 3, "init": "random", "refine": "hartigan"}),
    "quantized": (quantized.search, 5, {"restarts": 3, "max_iter": 40}),
    "quantized, weights": (quantized.search, 4, {"weights": WEIGHTS, "restarts": 2, "patience": 9, "seed": 2}),
    "quantized, neighbours": (quantized.search, 6, {"n_neighbors": 3, "restarts": 2, "max_iter": 25}),
    "quantized, globally": (quantized.search, 5, {"scope": "global", "max_iter": 60, "restarts": 2}),
    "quantized, all tabu": (quantized.search, 9, {"max_iter": 99, "patience": 99, "init": "k-means++"}),
    "quantized, globally all tabu": (
        quantized.search,
        9,
        {"scope": "global", "max_iter": 70, "patience": 70, "weights": WEIGHTS},
    ),
    "quantized, to a target": (
        quantized.search,
        5,
        {"restarts": 4, "target": 9.6e5, "max_iter": 30, "refine": "centroid"},
    ),
    "quantized, moves": (quantized.search, 7, {"max_iter": 9, "refine": "hartigan", "weights": WEIGHTS}),
    "relocation": (relocation.search, 7, {"restarts": 3, "max_iter": 60, "patience": 50, "go_back": 6, "returns": 2}),
    "relocation, weights": (relocation.search, 6, {"weights": WEIGHTS, "max_iter": 50, "patience": 30, "seed": 1}),
    "relocation, forgetful": (
        relocation.search,
        5,
        {"tenure": 0, "candidates": 2, "max_iter": 40, "patience": 40, "go_back": 3},
    ),
    "relocation, to a target": (
        relocation.search,
        6,
        {"restarts": 3, "target": 6.2e5, "max_iter": 30, "init": "random", "refine": "lloyd"},
    ),
    "relocation, long tenure": (
        relocation.search,
        12,
        {"tenure": 11, "candidates": 20, "max_iter": 30, "init": "random"},
    ),
    "relocation, one candidate": (
        relocation.search,
        9,
        {"candidates": 1, "restarts": 3, "tenure": 0, "max_iter": 40, "patience": 40},
    ),
    "reassignment": (reassignment.search, 5, {"restarts": 2, "max_iter": 30, "n_trials": 5}),
    "reassignment, refined": (reassignment.search, 6, {"weights": WEIGHTS, "max_iter": 20, "refine": "lloyd"}),
}
BITS = {
    "K-Means": "3c608e1cc67cd5cd",
    "K-Means, weights": "6ed6479419fb026d",
    "K-Means, tolerance": "7047a6def5028a4b",
    "K-Means, empty clusters": "571eff68b5797641",
    "K-Means, cut short": "83e5109d19223e93",
    "K-Means, moves": "f586178fcf63c9da",
    "quantized": "7acd082f2b679db4",
    "quantized, weights": "ac6f4c2f58b9c6f3",
    "quantized, neighbours": "c59f91b7e3c7842a",
    "quantized, globally": "5e7b4e05ead3fd02",
    "quantized, all tabu": "969d9648a2ab670d",
    "quantized, globally all tabu": "eadfaa56d97a3f15",
    "quantized, to a target": "1de86e5aa76d184b",
    "quantized, moves": "ea077a36c64beea6",
    "relocation": "b9c3640481c960e2",
    "relocation, weights": "783e57284bf89945",
    "relocation, forgetful": "45609b42b5886e7b",
    "relocation, to a target": "da87f9ca411aec4f",
    "relocation, long tenure": "7b02bd808ce5c2c7",
    "relocation, one candidate": "436c6ed918733776",
    "reassignment": "e24096f298583f96",
    "reassignment, refined": "d05113cb74a59343",
}


#: The searches that the paper cites; the first argument behind X is K, where they have one.
GROUPS = np.where(RNG.random(90) < 0.3, RNG.integers(0, 6, size=90), -1)
ALL_MODES = ("threshold", "mutation", "divide")
FAMILY = {
    "improved": (reassignment.search, (5,), {"improve": "kmeans", "modes": ALL_MODES, "max_iter": 7, "n_trials": 4}),
    "swept": (reassignment.search, (4,), {"improve": "hartigan", "weights": WEIGHTS, "max_iter": 4, "n_trials": 4}),
    "packed": (reassignment.search, (4,), {"packing": True, "max_iter": 4, "n_trials": 4, "weights": WEIGHTS}),
    "linked": (relocation.search, (4,), {"groups": GROUPS, "max_iter": 9, "weights": WEIGHTS}),
    "fuzzy": (fuzzy.run, (5,), {"restarts": 2, "max_iter": 9, "weights": WEIGHTS}),
    "fuzzy by series": (fuzzy.run, (4,), {"m": 1.7, "max_iter": 6}),
    "tabu fuzzy": (fuzzy.search, (4,), {"m": 1.25, "max_iter": 3, "n_trials": 4, "refine_iter": 5}),
    "Gaussian": (gmeans.search, (), {"min_size": 8, "alpha": 0.05}),
    "evolution": (evolution.search, (), {"k_max": 6, "population": 4, "max_iter": 4, "weights": WEIGHTS}),
}
FAMILY_BITS = {
    "improved": "d587fa86155877c2",
    "swept": "bf1157d283c0685f",
    "packed": "cf5e709e4d2bad96",
    "linked": "5fe71972080c7b06",
    "fuzzy": "a11e013863e53154",
    "fuzzy by series": "e739ea4268dd1f5b",
    "tabu fuzzy": "78ab4b62eecc0bbf",
    "Gaussian": "e7ddd4125a534967",
    "evolution": "7161393537258d12",
}


def digest(found) -> str:
    trace = found.trace
    arrays = [found.labels, found.centers, found.inertias, trace.current, trace.best, trace.moves, trace.means]
    told = hashlib.blake2b(digest_size=8)
    for array in [*arrays, found.center_indices]:
        if array is not None:
            kind = "<f8" if array.dtype.kind == "f" else "<i8"
            told.update(np.where(np.isnan(array), -1, array).astype(kind).tobytes())
    told.update(f"{found.stop.name} {found.restart} {found.n_iter} {found.centers.dtype}".encode())
    return told.hexdigest()


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("pieces", ["whole", "in pieces"])
def test_the_bits_are_those_of_before(case, pieces, backend):
    search, k, options = CASES[case]
    if pieces == "in pieces":  # a few points and restarts at a time, by three threads
        backend = backend.tuned(piece_elements=200, threads=3)
    assert digest(search(X, k, backend=backend, **options)) == BITS[case]


@pytest.mark.parametrize("case", FAMILY)
@pytest.mark.one_device
def test_the_bits_of_the_family(case, backend):
    search, k, options = FAMILY[case]
    backend = backend.tuned(piece_elements=200, threads=3)
    assert digest(search(X, *k, backend=backend, **options)) == FAMILY_BITS[case]


@pytest.mark.parametrize(("dtype", "expected"), [(np.float32, "38f1c1e56320e437"), (np.float64, "2d2a44f3c7e09ad4")])
def test_the_bits_of_either_precision(dtype, expected, backend):
    found = relocation.search((X + 300).astype(dtype), 7, restarts=2, max_iter=20, backend=backend)
    assert digest(found) == expected


class WholeLoops(Loops):
    """Runs whole searches when it is asked to, as compiled backends do; pass by pass, so that NumPy can."""

    def __init__(self, backend, refines):
        self.backend, self.refines = backend, refines
        self.plain = NumpyBackend(backend.points)

    def quantized(self, means, settings):
        scope = SCOPES[settings.shared]
        neighbors, target = settings.n_neighbors, max(settings.target, 0.0)
        plan = quantized.Plan(settings.max_iter, settings.patience, scope, neighbors, target)
        best, stops, trace = quantized.explore(self.plain, means, plan, settings.monitor, Stage())
        stops = [None if stop is Stop.MAX_TIME else stop for stop in stops]
        centers = lloyd.descend(self.plain, self.plain.rows(best), settings.rounds).centers if self.refines else None
        return QuantizedRun(best, stops, trace.current, trace.best, trace.means, centers)

    def lloyd(self, centers, settings):
        points, scatter = self.plain.points, self.plain.scatter
        tol = settings.allowed and settings.allowed * float(points.total_weight) * points.d / scatter
        found = lloyd.descend(self.plain, centers, settings.max_iter, tol, settings.monitor, settings.traced)
        stops = [None if stop is Stop.MAX_TIME else stop for stop in found.stop]
        return LloydRun(found.centers, stops, found.trace.current, found.trace.moves)

    def relocation(self, centers, settings):
        return relocation.run_relocation(self.plain, centers, settings, settings.monitor, Stage())


class Whole(NumpyBackend):
    def __init__(self, points, refines=False):
        super().__init__(points)
        self.refines = refines

    @property
    def loops(self):
        return WholeLoops(self, self.refines)


SCOPES = {False: "cluster", True: "global"}


@pytest.mark.parametrize("case", [case for case in CASES if CASES[case][0] is not reassignment.search])
@pytest.mark.parametrize("refines", [False, True])
def test_the_bits_of_a_backend_that_runs_whole_searches(case, refines):
    search, k, options = CASES[case]
    options = options | {"backend": partial(Whole, refines=refines)}
    assert digest(search(X, k, **options)) == BITS[case]
    if search is not lloyd.run:
        assert search(X, k, **options | {"max_time": 0.0}).stop is Stop.MAX_TIME


def test_a_backend_that_runs_whole_searches_is_given_no_target_where_there_is_none():
    """J of small numbers is below 1 from the start."""
    plain = quantized.search(X / 1e4, 4, max_iter=12, patience=12)
    found = quantized.search(X / 1e4, 4, max_iter=12, patience=12, backend=Whole)
    assert 0 < plain.trace.current[0, 0] < 1 and plain.stop is Stop.MAX_ITER
    assert digest(found) == digest(plain)
