"""Trial labellings on a GPU: words are made on the device, and of a trial only J and its fingerprint come back."""

from __future__ import annotations

from typing import Any

import cupy
import numpy as np

from gputabu.backend.arithmetic import rules
from gputabu.backend.arithmetic.keys import NO_KEY
from gputabu.backend.base import TrialCosts
from gputabu.backend.contract import Assignment, TrialBatch
from gputabu.backend.cuda import shapes, structs
from gputabu.backend.cuda.device import DeviceBackend, on_device, to_device
from gputabu.backend.cuda.launch import EXPLAINERS
from gputabu.backend.cuda.memory import upload
from gputabu.backend.cuda.shapes import THREADS
from gputabu.core.random import BLOCK

#: What a point's share of a draw takes, counted as multiply-adds.
DRAW_WORK = 32


class CudaReassignment(DeviceBackend):
    """The passes of trial labellings. Names and shapes are those of kernels/reassignment.cu.

    A thread has BLOCK points, which share a block of random words.
    """

    @on_device
    def evaluate_trials_partial(self, labels: Any, trials: TrialBatch) -> tuple[np.ndarray, np.ndarray]:
        change, fingerprints = self._draw_trials(labels, trials)
        return change.get(), fingerprints.get()

    @on_device
    def evaluate_trials(self, labels: Any, totals: np.ndarray, trials: TrialBatch) -> TrialCosts:
        """As the base class, with the scatter explained on the device: the changes of the totals stay there."""
        t, (r, k, _) = trials.n_trials, totals.shape
        device_totals, explained = to_device(totals), cupy.empty((r, t), np.float64)
        change, fingerprints = self._draw_trials(labels, trials)
        self.launch("reassignment.cu", "explain", (r * t,), (
            change, device_totals, explained, self.device_grid, k, self.points.d, t,
            self.weighted), threads=EXPLAINERS)  # fmt: skip
        return TrialCosts(np.maximum(self.scatter - explained.get(), 0.0), fingerprints.get())

    @on_device
    def apply_trial(
        self, labels: Any, best: Any, trials: TrialBatch, chosen: np.ndarray, better: np.ndarray
    ) -> Assignment:
        r, k = len(trials.restarts), trials.k
        batch, grid = self._batch(trials), self.device_grid
        given = None if trials.given is None else to_device(trials.given)
        pitch = 0 if given is None or len(given) == 1 else self.points.n
        which, noted = (cupy.asarray(np.asarray(array, np.int32)) for array in (chosen, better))
        totals, changed = cupy.zeros((r, k, self.n_columns), np.int64), cupy.zeros(r, np.int64)
        for chunk in self.pieces(r * (self.points.d + DRAW_WORK)):
            self.launch("reassignment.cu", "apply_trial", self.spread(r * -(-chunk.n // BLOCK)), (
                chunk.X, chunk.weights, labels, best, given, pitch, which, noted, totals, changed, batch, grid,
                self.rows_of(chunk), structs.Shape(r, k, self.points.d)), **_form(trials))  # fmt: skip
        return Assignment(totals.get(), changed.get())

    @on_device
    def evaluate_steps_partial(
        self, centers: np.ndarray, moves: tuple[np.ndarray, np.ndarray] | None, trials: TrialBatch
    ) -> tuple[np.ndarray, np.ndarray]:
        s, k, d = centers.shape
        batch, grid, slack = self._batch(trials), self.device_grid, rules.slack(self.bounds)
        device_centers = to_device(centers)
        between, mass = (None, None) if moves is None else map(to_device, moves)
        totals, fingerprints = cupy.zeros((s, k, self.n_columns), np.int64), cupy.zeros((s, 2), np.uint64)
        for chunk in self.pieces(s * (k * d + DRAW_WORK)):
            blocks = max(1, min(-(-chunk.n // THREADS), -(-8 * self.blocks // s)))
            self.launch("reassignment.cu", "try_steps", (s * blocks,), (
                chunk.X, chunk.weights, device_centers, between, mass, totals, fingerprints, batch, grid,
                self.rows_of(chunk), k, d, blocks, slack))  # fmt: skip
        return totals.get(), fingerprints.get()

    @on_device
    def member_keys_partial(self, labels: Any, clusters: np.ndarray, trials: TrialBatch) -> np.ndarray:
        (r, t), batch, wanted = clusters.shape, self._batch(trials), to_device(np.asarray(clusters, np.int32))
        keys = np.zeros((r, t, 2), np.uint64)
        keys[..., 0] = NO_KEY
        found = upload(keys)
        for chunk in self.pieces(r * t * DRAW_WORK):
            blocks = max(1, min(-(-chunk.n // (BLOCK * THREADS)), -(-8 * self.blocks // r)))
            self.launch("reassignment.cu", "member_keys", (r * blocks,), (
                chunk.weights, labels, wanted, found, batch, self.rows_of(chunk), blocks))  # fmt: skip
        return found.get()

    def _draw_trials(self, labels: Any, trials: TrialBatch) -> tuple[Any, Any]:
        """What each trial changes, on the device: totals (R, T, K, C) and fingerprints (R, T, 2)."""
        r, t, k = len(trials.restarts), trials.n_trials, trials.k
        batch, grid = self._batch(trials), self.device_grid
        change, fingerprints = cupy.zeros((r, t, k, self.n_columns), np.int64), cupy.zeros((r, t, 2), np.uint64)
        file, name, room = "reassignment.cu", "try_labels", self.room("reassignment.cu", "try_labels", **_form(trials))
        for chunk in self.pieces(r * t * (self.points.d + DRAW_WORK)):
            form = shapes.try_labels(room, chunk.n, r, t, k, self.n_columns, self.points.dtype, self.blocks)
            self.launch(file, name, form.grid, (
                chunk.X, chunk.weights, labels, change, fingerprints, batch, grid, self.rows_of(chunk), k,
                self.points.d, form.grid[0] // r, form.private), form.shared, **_form(trials))  # fmt: skip
        return change, fingerprints

    def _batch(self, trials: TrialBatch) -> structs.TrialBatch:
        quads = trials.pitch(self.points.n) // BLOCK
        restarts = cupy.asarray(trials.restarts)
        tables = (None if table is None else to_device(table) for table in (trials.centers, trials.cuts, trials.pairs))
        return structs.TrialBatch(
            restarts, trials.seed, trials.step, trials.limit, trials.first, quads, trials.n_trials, *tables
        )


def _form(trials: TrialBatch) -> dict[str, int]:
    """The form of the kernels that draw trials."""
    return {} if trials.centers is None and trials.cuts is None else {"MODES": 1}
