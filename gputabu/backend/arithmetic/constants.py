"""Numbers that must agree everywhere: here for Python, and as macros for the CUDA kernels (`cuda.launch.MACROS`)."""

from __future__ import annotations

#: Bits in a limb. A sum of limbs stays below 2^63 for up to 2^35 points.
LIMB = 28
#: Two values of J closer than this, relatively, differ by the rounding of the centroids if by anything.
NOISE = 2.0**-40
#: Costs that are farther apart than this do not hang on the rounding of a few operations.
BEYOND = 1.0 + 2.0**-20
#: Squared distances are scaled to at most 2^KEY_BITS before they are rounded to float32 and compared as keys.
KEY_BITS = 100
#: A key value up to which a point counts as on its centre: 2^-40 of the box, as lengths.
ON_CENTER = 2.0**20
#: Rounding errors of fast scores and of canonical distances are at most (d + DOUBT_TERMS) roundoffs; DOUBT_FACTOR is
#: twice that bound, as two scores are compared, and a tenth for the bound's own arithmetic and higher orders.
DOUBT_FACTOR, DOUBT_TERMS = 2.2, 6
#: The same for the fast distances of the CUDA kernels, which add up squares of differences.
CUDA_DOUBT_TERMS = 8
#: Bits of the potential, Σ w d²: integers below 2^62 can be added to it without overflow.
POTENTIAL_BITS = 60
#: The grid of the potential is refined when fewer bits than these are in use.
ENOUGH_BITS = 40
#: Assignments under bounds: behind the last of a list of costs; the distance of what cannot be reached.
NEVER = 2**63 - 1
#: Why `transport.solve` returned: within the bounds; as many paths as it may make; a list has run out; points have to
#: be fetched; no path helps.
DONE, PAUSED, REFILL, FETCH, STUCK = range(5)
#: Entries of `Transport.status`: the least that was missing so far (weights), and paths since then.
LEAST, SINCE, N_STATUS = 0, 1, 2
