"""The reference backend, in NumPy."""
