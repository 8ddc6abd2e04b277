"""Data frames of pandas, Polars, cuDF and PyArrow: their values as arrays, and labels with their index.

They are read by narwhals, which scikit-learn uses too. cuDF takes the same code path, which was never run with it.
"""

from __future__ import annotations

from typing import Any

import narwhals as nw
import numpy as np
from narwhals import dependencies

#: Name of a column of labels.
NAME = "cluster"


def is_frame(X: object) -> bool:
    return dependencies.is_into_dataframe(X) or dependencies.is_polars_lazyframe(X)


def is_series(values: object) -> bool:
    return dependencies.is_into_series(values)


def matrix(frame: Any, name: str) -> Any:
    """The values of a frame, (N, d), as NumPy array (cuDF: CuPy array). Contiguous values are not copied."""
    if dependencies.is_polars_lazyframe(frame):
        raise TypeError(f"{name} is a LazyFrame and must have values: pass {name}.collect().")
    whole = nw.from_native(frame, eager_only=True)
    columns = list(whole.iter_columns())
    for column in columns:
        _check(column, f"{name} has column {column.name!r}", f"{name} has missing values in column {column.name!r}")
    if dependencies.is_cudf_dataframe(frame):
        return frame.to_cupy()
    dtypes = set(getattr(frame, "dtypes", ()))
    if len(dtypes) == 1 and isinstance(next(iter(dtypes)), np.dtype):  # perhaps contiguous
        return whole.to_numpy()
    return np.column_stack([column.to_numpy() for column in columns]) if columns else np.empty(whole.shape)


def vector(series: Any, name: str) -> Any:
    """The values of a series, (N,), as NumPy array (cuDF: CuPy array)."""
    column = nw.from_native(series, series_only=True)
    _check(column, f"{name} is a series", f"{name} has missing values")
    return series.to_cupy() if dependencies.is_cudf_series(series) else column.to_numpy()


def labelled(labels: np.ndarray, X: object, library: str) -> Any:
    """Labels as a Series of "pandas" or "polars"; in pandas with the index of `X`, if it has one."""
    if library == "polars":
        import polars

        return polars.Series(NAME, labels)
    import pandas

    index = X.index if isinstance(X, pandas.DataFrame) else None
    return pandas.Series(labels, index=index, name=NAME)


def _check(column: nw.Series[Any], where: str, if_missing: str) -> None:
    dtype = column.dtype
    if not (dtype.is_numeric() or dtype in (nw.Boolean, nw.Object)):  # objects may be numbers; they are checked later
        raise TypeError(f"{where} of dtype {dtype}; all must be numbers.")
    if column.null_count():
        raise ValueError(f"{if_missing}; every value must be a finite number.")
