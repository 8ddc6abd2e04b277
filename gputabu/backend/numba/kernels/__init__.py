"""What numba compiles: passes over rows of points, and whole restarts on small data.

Each function is the twin of one in NumPy, named in its docstring, and gives the same bits. Floating-point operations
that decide anything are in float64, in the order written: numba neither reorders nor contracts them. The fast scores
are float32 whatever the points are. What they cannot tell apart is decided canonically, as in `arithmetic.certified`.

A name that ends in `_rows` is a pass over a piece of the points, for all restarts. `_block` is BLOCK points of one
restart at the most, and `_all` is all points of one restart.

Functions around inner loops take arrays one by one. With tuples of arrays in their place relocation was some percent
slower, and compiling takes longer.

Arrays that are only read arrive read-only, so that each function has one form per dtype of the points.
"""
