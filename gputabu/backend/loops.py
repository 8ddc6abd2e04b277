"""The second, optional interface of a backend: loops that it can run by itself, faster than pass by pass.

A loop must end where the passes, called one by one, would: same bits, same trace. A backend that cannot run one (data
too large, points streamed, no room) returns None, and the passes are called in turn.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from gputabu.core.results import Stop


class StopSignal(Protocol):
    """What a loop may ask about the search around it."""

    @property
    def timed(self) -> bool:
        """Whether there is a time limit at all."""

    def should_stop(self) -> bool:
        """Whether the search is to end: interrupted, or out of time."""

    def should_hurry(self) -> bool:
        """Whether what is before and behind the search is to end too."""

    def report_due(self) -> bool:
        """Whether somebody would like to see how far it is."""

    def report_restarts(self, made: np.ndarray, best: np.ndarray, ended: np.ndarray, share: Any = 0.0) -> None:
        """Iterations made, best J, whether it has ended, share of its effort, for every restart, (R,) each."""


@dataclass(frozen=True, slots=True)
class QuantizedSettings:
    """How a QM-TS search runs."""

    max_iter: int
    patience: int
    target: float  # J to stop at, negative for none
    shared: bool  # scope "global"
    rounds: int  # of K-Means that refines the best solution
    monitor: StopSignal
    n_neighbors: int = 1  # neighbours looked at per iteration


@dataclass(frozen=True, slots=True)
class QuantizedRun:
    """Where R searches ended, and their traces, as in `gputabu.core.results.Trace`."""

    means: np.ndarray  # (R, K) M_b
    stop: list[Stop | None]  # None where it was stopped early
    current: np.ndarray  # (R, T + 1)
    best: np.ndarray  # (R, T + 1)
    path: np.ndarray  # (R, T + 1, K)
    centers: np.ndarray | None  # (R, K, d) if M_b is refined already


@dataclass(frozen=True, slots=True)
class LloydSettings:
    """How K-Means runs."""

    max_iter: int
    allowed: float  # squared shift of all centres together at which to stop; 0 for never
    traced: bool
    monitor: StopSignal


@dataclass(frozen=True, slots=True)
class LloydRun:
    """Where R descents ended, and their traces, NaN and -1 behind the end."""

    centers: np.ndarray  # (R, K, d)
    stop: list[Stop | None]  # None where it was stopped early
    current: np.ndarray  # (R, T + 1) J at the first centres, then at the centroids; empty if not traced
    changed: np.ndarray  # (R, T)


@dataclass(frozen=True, slots=True)
class HartiganSettings:
    """How single moves are made."""

    max_rounds: int
    monitor: StopSignal


@dataclass(frozen=True, slots=True)
class HartiganRun:
    """Where R descents by single moves ended."""

    centers: np.ndarray  # (R, K, d), centroids
    moves: np.ndarray  # (R,) int64, how many were made


@dataclass(frozen=True, slots=True)
class RelocationSettings:
    """How a relocation search runs."""

    max_iter: int
    patience: int
    max_passes: np.ndarray  # (R,) int64: an iteration takes one pass for its candidates, and one per step
    target: float  # J to stop at
    tenure: int  # moves for which a centre that was placed stays
    candidates: int  # points drawn per iteration
    go_back: int  # iterations without a better solution after which to return to the elite
    returns: int  # returns to it after which to give it up
    seed: int
    numbers: np.ndarray  # (R,) uint64, of the restarts
    monitor: StopSignal
    steps: int = 3  # after a move: to the nearest centre, then by Hartigan's rule
    reach: float = 10.0  # more steps follow while so many like the last would reach the best J,
    more_steps: int = 30  # at the most,
    calm: int = 30  # once so many iterations have found nothing better


@dataclass(frozen=True, slots=True)
class RelocationRun:
    """Where R relocation searches ended, and their traces, NaN and -1 behind the end."""

    centers: np.ndarray  # (R, K, d), the best
    stop: list[Stop | None]  # None where it was stopped early
    current: np.ndarray  # (R, T + 1)
    best: np.ndarray  # (R, T + 1)
    moves: np.ndarray  # (R, T)
    passes: np.ndarray  # (R,) int64, how many were made


class Loops:
    """Whole restarts. The default runs none."""

    def plus_plus(self, first: np.ndarray, words: np.ndarray) -> np.ndarray | None:
        """K-Means++ behind rows (R,) by words (R, C, T), as `algorithms.seeding.grow`: (R, C) row numbers.

        -1 from where on every point is on a seed.
        """
        return None

    def quantized(self, means: np.ndarray, settings: QuantizedSettings) -> QuantizedRun | None:
        """QM-TS from means (R, K), as `algorithms.quantized.explore`."""
        return None

    def lloyd(self, centers: np.ndarray, settings: LloydSettings) -> LloydRun | None:
        """K-Means from centers (R, K, d), as `algorithms.lloyd.descend`."""
        return None

    def hartigan(self, centers: np.ndarray, settings: HartiganSettings) -> HartiganRun | None:
        """Single moves from centers (R, K, d), as `algorithms.hartigan.improve`."""
        return None

    def relocation(self, centers: np.ndarray, settings: RelocationSettings) -> RelocationRun | None:
        """Relocation from centers (R, K, d), as `algorithms.relocation_loop.run_relocation`."""
        return None
