"""The CUDA backend: the passes of the contract as raw kernels (kernels/*.cu), launched through CuPy.

Only this room imports CuPy. `sources` reads the kernels, `launch` compiles and launches them, `structs` has what they
take by value, `points` keeps or streams the points, `device` is the base of the backend. The passes are in files named
as in `numpy` and `numba`; `search` runs whole QM-TS searches on the device.
"""
