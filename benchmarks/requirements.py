"""What the predictions must show; `make roofline` with --check says of each whether they do."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from statistics import mean
from typing import Any

from trips import Unknown

SHAPES = ((1_000_000, 2, 10), (1_000_000, 8, 64), (1_000_000, 16, 64), (1_000_000, 16, 256), (1_000_000, 32, 100),
          (200_000, 128, 256), (1_000_000, 128, 1000), (1_000_000, 384, 1000), (1_000_000, 768, 1000))  # fmt: skip
ARCHITECTURES = (80, 89, 90)
#: An iteration of K-Means at (1M, 128, 1000), float32, as cuVS has published it; GPU not stated.
CUVS_MS = 13.9

#: Met or not, and a sentence.
Verdict = tuple[bool, str]


def check(case: Callable[..., Any], predicted: Callable[[Any], Any]) -> int:
    """Prints PASS or FAIL for each requirement; how many are not met."""
    missed = 0
    for kind in (_ratios, _cuvs, _restarts, _doubt, _relocation):
        verdicts = kind(case, predicted)
        while True:
            try:
                met, said = next(verdicts)
            except StopIteration:
                break
            except Unknown as error:
                met, said = False, f"nothing is known: {error}"
                verdicts = iter(())
            missed += not met
            print(f"{'PASS' if met else 'FAIL'}  {said}")
    return missed


def _tabu(case: Callable[..., Any], restarts: int = 1) -> Iterator[Any]:
    for arch in ARCHITECTURES:
        for n, d, k in SHAPES:
            yield case("tabu iteration", n, d, k, restarts, arch)


def _name(case: Any) -> str:
    return f"({case.n}, {case.d}, {case.k}) on sm_{case.arch}"


def _ratios(case: Callable[..., Any], predicted: Callable[[Any], Any]) -> Iterator[Verdict]:
    found = []
    for one in _tabu(case):
        row = predicted(one)[0]
        found.append(row.predicted_ms / row.bound_ms)
        yield found[-1] <= 2, f"tabu iteration {_name(one)}: {found[-1]:.2f} of its bound, at most 2"
    yield mean(found) <= 1.6, f"tabu iteration, mean of all: {mean(found):.2f} of the bound, at most 1.6"


def _cuvs(case: Callable[..., Any], predicted: Callable[[Any], Any]) -> Iterator[Verdict]:
    for arch in (80, 90):
        one = case("tabu iteration", 1_000_000, 128, 1000, 1, arch)
        ms = predicted(one)[0].predicted_ms
        yield ms < CUVS_MS, f"tabu iteration {_name(one)}: {ms:.2f} ms, below {CUVS_MS}"


def _restarts(case: Callable[..., Any], predicted: Callable[[Any], Any]) -> Iterator[Verdict]:
    for one in _tabu(case):
        row = predicted(one)[0]
        if row.limiter in ("DRAM", "L2"):
            ratio = predicted(replace(one, restarts=8))[0].predicted_ms / row.predicted_ms
            yield ratio < 8, f"8 restarts {_name(one)}, limited by {row.limiter}: {ratio:.2f} times one, below 8"


def _doubt(case: Callable[..., Any], predicted: Callable[[Any], Any]) -> Iterator[Verdict]:
    for one in _tabu(case):
        none, few, many = (predicted(replace(one, doubt=doubt))[0].predicted_ms for doubt in (0.0, 0.01, 0.1))
        yield few <= 1.1 * none, f"one in a hundred in doubt {_name(one)}: {few / none - 1:+.0%}, at most 10 %"
        yield many <= 1.6 * none, f"one in ten in doubt {_name(one)}: {many / none - 1:+.0%}, at most 60 %"


def _relocation(case: Callable[..., Any], predicted: Callable[[Any], Any]) -> Iterator[Verdict]:
    from launches import RECORDERS

    if "relocation iteration" not in RECORDERS:
        yield False, "relocation iteration: there is none on the device"
        return
    for arch in ARCHITECTURES:
        one = case("relocation iteration", 1_000_000, 16, 64, 1, arch)
        row = predicted(one)[0]
        ratio = row.predicted_ms / row.bound_ms
        yield ratio <= 3, f"relocation iteration {_name(one)}: {ratio:.2f} of what it must read, at most 3"
