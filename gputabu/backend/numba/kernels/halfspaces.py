"""Steps towards the nearest point of a polyhedron, one inequality after the other."""

from __future__ import annotations

from gputabu.backend.numba.kernels.jit import compiled


@compiled
def sweep_inequalities(free, places, factors, steps, scales, multipliers, sweeps):
    """Hildreth's method for {Y >= 0, Σ factors·Y[places] <= 0 for every row}; Y is max(free, 0).

    `free` (flat) and `multipliers` (m,) are updated. `places`, `factors` and `steps` are (m, p), `scales` is (m,).
    """
    for _ in range(sweeps):
        for c in range(len(places)):
            excess = 0.0
            for e in range(places.shape[1]):
                value = free[places[c, e]]
                if value > 0:
                    excess += factors[c, e] * value
            step = excess * scales[c]
            if step < -multipliers[c]:
                step = -multipliers[c]
            if step != 0.0:
                multipliers[c] += step
                for e in range(places.shape[1]):
                    free[places[c, e]] -= step * steps[c, e]
