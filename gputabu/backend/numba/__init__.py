"""The compiled CPU backend, by numba."""
