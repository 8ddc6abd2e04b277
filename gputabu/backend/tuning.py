"""Sizes at which a backend changes its way of working. No bit of a result depends on them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Tuning:
    """Found by measurement; tests pass others, so that small data takes every way."""

    #: Threads of the CPU backends; None for as many as the process may use.
    threads: int | None = None
    #: Bytes that the labels and distances of a batch of restarts may take.
    batch_bytes: int = 1 << 28
    #: NumPy: elements of the largest scratch array of a piece of work. Larger than the caches would like: a piece must
    #: also pay for the Python around NumPy's loops, and for handing the GIL from thread to thread.
    piece_elements: int = 1 << 20
    #: numba: work of a pass (restarts times points times centres times features) that NumPy does in a millisecond.
    short_pass: int = 1 << 18
    #: numba: blocks in a piece at the least: handing one to compiled code costs as much as a block or two.
    piece_blocks: int = 8
    #: numba: work of an iteration (points times centres times features) up to which restarts run compiled as a whole.
    small_data: int = 1 << 22
    #: numba: the same for relocation, where every thread has a search of its own.
    medium_data: int = 1 << 26
    #: numba: iterations of relocation between two looks at the clock, at the most.
    longest_slice: int = 256
    #: numba: work between two looks at whether to stop early, about a twentieth of a second;
    slice_work: int = 1 << 27
    #: in relocation some milliseconds, as these searches are mostly ended by `max_time`.
    relocation_slice_work: int = 1 << 23
    #: numba: bytes that the tabu rows and traces of a batch of whole restarts may take.
    state_bytes: int = 1 << 29
    #: CUDA: share of the free device memory that the points may take; the rest is for labels, state and the driver.
    resident_share: float = 0.7
