"""Checkpoints: whenever a fit is killed, and by whatever it is continued, the bits are those of one that was not."""

from __future__ import annotations

import numpy as np
import pytest
import tally
from conftest import blobs, same

import gputabu
from gputabu import checkpoints, lloyd, quantized, reassignment, relocation, tabu
from gputabu.checkpoints import Checkpoint

X = blobs(60, 2, 4)
X[7] = X[41]
WEIGHTS = np.random.default_rng(1).integers(0, 4, 60) / 4

#: Every search, with what takes it through all of its stages.
SEARCHES = {
    "quantized": (quantized.search, {"restarts": 3, "max_iter": 6, "init": "k-means++"}),
    "quantized, globally": (
        quantized.search,
        {"restarts": 2, "max_iter": 8, "patience": 2, "scope": "global", "n_neighbors": 2, "refine": "hartigan"},
    ),
    "quantized, all tabu": (quantized.search, {"max_iter": 40, "patience": 40, "weights": WEIGHTS}),
    "relocation": (relocation.search, {"restarts": 3, "max_iter": 6, "patience": 3, "go_back": 2, "returns": 2}),
    "relocation, to a target": (relocation.search, {"restarts": 2, "max_iter": 9, "target": 140.0, "weights": WEIGHTS}),
    "K-Means": (lloyd.run, {"restarts": 3, "refine": "hartigan", "weights": WEIGHTS}),
    "K-Means, given centres": (lloyd.run, {"init": np.full((4, 2), 9.0), "tol": 1e-4}),
    "reassignment": (reassignment.search, {"restarts": 3, "max_iter": 6, "n_trials": 3, "tenure": 2}),
    "reassignment, refined": (reassignment.search, {"max_iter": 4, "n_trials": 2, "refine": "lloyd"}),
}


@pytest.fixture(params=SEARCHES)
def run(request):
    """A search, as a function of how it is to be run."""
    search, settings = SEARCHES[request.param]
    return lambda **how: search(**{"X": X, "n_clusters": 4, "seed": 3} | settings | how)


@pytest.fixture
def written(monkeypatch):
    """All that is written to checkpoints, which is now done after every iteration."""
    files, write = [], Checkpoint.write

    def copied(self):
        write(self)
        files.append(self.path.read_bytes())

    monkeypatch.setattr(checkpoints, "EVERY", 0.0)
    monkeypatch.setattr(Checkpoint, "write", copied)
    return files


@pytest.mark.parametrize("at_once", [2, 10])
def test_from_every_write_the_same_end(run, at_once, tmp_path, written, monkeypatch):
    """Whatever was written last when a process was killed."""
    monkeypatch.setattr(tabu, "BATCH_BYTES", at_once * tabu.POINT_BYTES * len(X))
    whole = run(backend="numpy")
    path = tmp_path / "fit.ckpt"
    same(run(checkpoint=path, backend="numpy"), whole)
    left = written.copy()
    assert len(left) > 4
    monkeypatch.setattr(checkpoints, "EVERY", np.inf)
    for content in left:
        path.write_bytes(content)
        same(run(checkpoint=path, backend="numpy"), whole)
        tally.tried("Checkpoint continued after a write")
    monkeypatch.setattr(Checkpoint, "stage", None)  # nothing is left to do
    same(run(checkpoint=path, backend="numpy"), whole)
