"""The compiled CPU backend: NumPy's passes as machine code, and whole restarts on small data.

`tiling` cuts the points into pieces and prepares what kernels are given; `backend`, `seeding`, `hartigan` and
`relocation` have the passes, as the files of the same names in `backend.numpy`; `restarts` has the loops; `kernels` is
what numba compiles.
"""
