"""Powers with the bits of `arithmetic.powers`."""

from __future__ import annotations

import math

import numpy as np

from gputabu.backend.arithmetic.powers import EXP_SERIES, LEAST, LOG_SERIES
from gputabu.backend.numba.kernels.fixed_point import rounded
from gputabu.backend.numba.kernels.jit import inner

SMALLEST = 2.0**LEAST
LOGS, EXPS = np.array(LOG_SERIES), np.array(EXP_SERIES)


@inner
def by_series(x, p):
    """2^(p log₂ x): `arithmetic.powers.by_series`."""
    if not x >= SMALLEST:
        return 0.0
    fraction, exponent = math.frexp(x)
    if fraction < 0.70703125:
        fraction *= 2.0
        exponent -= 1
    t = (fraction - 1.0) / (fraction + 1.0)
    square = t * t
    series = LOGS[0]
    for i in range(1, len(LOGS)):
        series = series * square + LOGS[i]
    y = (series * t + exponent) * p
    whole = rounded(y)
    if whole < LEAST:
        return 0.0
    rest = y - whole
    series = EXPS[0]
    for i in range(1, len(EXPS)):
        series = series * rest + EXPS[i]
    return math.ldexp(series, int(whole))


@inner
def raise_to(values, p, n):
    """The first n of the values become their powers: `arithmetic.powers.power`."""
    if p.whole < 0:
        for i in range(n):
            values[i] = by_series(values[i], p.value)
        return
    if p.whole == 1 and p.half == 0 and p.quarter == 0:
        return
    if p.whole == 2 and p.half == 0 and p.quarter == 0:
        for i in range(n):
            values[i] = values[i] * values[i]
        return
    for i in range(n):
        x, result = values[i], 1.0
        for _ in range(p.whole):
            result = result * x
        if p.half:
            result = result * math.sqrt(x)
        if p.quarter:
            result = result * math.sqrt(math.sqrt(x))
        values[i] = result
