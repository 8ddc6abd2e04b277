"""Checks of parameters: an error is one sentence with the parameter, its value and what is allowed."""

from __future__ import annotations

import numbers
import warnings
from collections.abc import Collection

import numpy as np


class BackendUnavailable(RuntimeError):
    """A backend was asked for by name and cannot run here."""


#: Beyond these, weighted squares leave the range of float64.
LARGEST, SMALLEST = 1e100, 1e-100
#: Most points that sums of limbs can hold.
MOST = 2**35


def check_int(name: str, value: object, low: int, high: int | None = None) -> int:
    """Return `value` as an int in [low, high], or raise."""
    allowed = f"an integer >= {low}" if high is None else f"an integer from {low} to {high}"
    if not isinstance(value, numbers.Integral) or isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name}={value!r} must be {allowed}.")
    number = int(value)
    if number < low or (high is not None and number > high):
        raise ValueError(f"{name}={value!r} must be {allowed}.")
    return number


def check_real(name: str, value: object, low: float, below: float = np.inf) -> float:
    """Return `value` as a finite float >= low and < below, or raise."""
    allowed = f">= {low}" if np.isinf(below) else f">= {low} and < {below}"
    if not isinstance(value, numbers.Real) or isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name}={value!r} must be a number {allowed}.")
    number = float(value)
    if not (np.isfinite(number) and low <= number < below):
        raise ValueError(f"{name}={value!r} must be a finite number {allowed}.")
    return number


def check_flag(name: str, value: object) -> bool:
    """Return `value` if it is True or False."""
    if not isinstance(value, (bool, np.bool_)):
        raise TypeError(f"{name}={value!r} must be True or False.")
    return bool(value)


def check_choice(name: str, value: object, allowed: Collection[str]) -> str:
    """Return `value` if it is one of the words in `allowed`."""
    if not isinstance(value, str) or value not in allowed:
        raise ValueError(f"{name}={value!r} must be one of {', '.join(repr(word) for word in allowed)}.")
    return value


def check_optional(name: str, value: object, allowed: Collection[str]) -> str | None:
    """Return `value` if it is None or one of the words in `allowed`."""
    if value is not None and (not isinstance(value, str) or value not in allowed):
        raise ValueError(f"{name}={value!r} must be {' or '.join(map(repr, (None, *allowed)))}.")
    return value


def check_n_clusters(n_clusters: object, n_samples: int) -> int:
    """Return K, an integer from 1 to N."""
    k = check_int("n_clusters", n_clusters, 1)
    if n_samples < k:
        raise ValueError(f"n_samples={n_samples} should be >= n_clusters={k}.")
    return k


def check_matrix(X: object, name: str = "X") -> np.ndarray:
    """Return `X` as a C-contiguous (N, d) array of float32 or float64; if it is one, without a copy.

    Other numbers are widened to float64 (float16 to float32), with a warning if float64 cannot hold them.
    """
    if hasattr(X, "toarray") and hasattr(X, "nnz"):
        raise TypeError(f"{name} is a sparse matrix and must be dense: pass {name}.toarray().")
    check_unmasked(X, name)
    try:
        array = np.asarray(X)
        if array.dtype.kind not in "fiub":
            array = array.astype(np.float64) if array.dtype.kind == "O" else _not_numbers(name, array)
    except (TypeError, ValueError) as error:
        raise type(error)(f"{name} must be an array of real numbers: {error}.") from None
    check_shape(array.shape, name)
    dtype = float_for(array.dtype)
    if dtype != array.dtype:
        array = widen(array, dtype, name)
    array = np.ascontiguousarray(array)
    check_finite(array, name)
    return array


def check_unmasked(array: object, name: str) -> None:
    """Raise if values are masked: NumPy and scikit-learn would ignore the mask."""
    if np.ma.is_masked(array):
        raise ValueError(f"{name} is a masked array with {np.ma.count_masked(array)} masked values; it must have none.")


def check_shape(shape: tuple[int, ...], name: str = "X") -> None:
    """Raise unless there is at least one point with one feature."""
    if len(shape) != 2 or 0 in shape:
        raise ValueError(f"{name} has shape {shape} and must be (n_samples, n_features), both >= 1.")
    if shape[0] > MOST:
        raise ValueError(f"{name} has {shape[0]} rows; there may be at most 2^35, beyond which sums would overflow.")


def check_finite(array: np.ndarray, name: str, first: int | None = None) -> None:
    """Raise if `array` holds NaN, an infinity, or numbers whose squares float64 cannot hold.

    If the array is a part of X whose first row has the number `first`, the message says where the value is.
    """
    if first is not None and not max(-float(array.min()), float(array.max())) <= LARGEST:
        row, column = np.argwhere(~(np.abs(array) <= LARGEST))[0].tolist()
        raise ValueError(
            f"{name} contains {array[row, column]:g} in row {first + row}, column {column}; every value must be a "
            f"finite number, and at most {LARGEST:g} in absolute value."
        )
    check_range(float(array.min()), float(array.max()), name)  # NaN passes through min and max


def check_range(low: float, high: float, name: str) -> None:
    """As `check_finite`, from the least and the greatest value."""
    if not (np.isfinite(low) and np.isfinite(high)):
        kind = "NaN" if np.isnan(low) or np.isnan(high) else "infinity"
        raise ValueError(f"{name} contains {kind}; every value must be a finite number.")
    if max(-low, high) > LARGEST:
        worst = low if -low > high else high
        raise ValueError(f"{name} contains {worst:g}; absolute values must be at most {LARGEST:g}.")


def check_weights(weights: object, n_samples: int) -> np.ndarray | None:
    """Return `weights` as (N,) float64, or None for weights that are all one."""
    if weights is None:
        return None
    array = plain_weights(weights, n_samples)
    check_heaviest(float(array.max()))
    return None if array.min() == array.max() == 1 else array


def plain_weights(weights: object, n_samples: int) -> np.ndarray:
    """Return `weights` as (N,) float64, finite and >= 0. They may belong to a part of the points."""
    array = np.asarray(weights)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"sample_weight must hold numbers, got dtype {array.dtype}.")
    if array.ndim == 0:
        array = np.full(n_samples, array[()])
    if array.shape != (n_samples,):
        raise ValueError(f"sample_weight has shape {array.shape} and must be ({n_samples},).")
    array = np.ascontiguousarray(array, dtype=np.float64)
    if not np.isfinite(array).all():
        raise ValueError("sample_weight contains NaN or infinity; weights must be finite numbers >= 0.")
    if array.min(initial=0) < 0:
        raise ValueError(f"sample_weight contains {array.min():g}; weights must be finite numbers >= 0.")
    return array


def check_heaviest(weight: float) -> None:
    """Raise if the largest weight is zero, or if weighted squares would leave the range of float64."""
    if weight == 0:
        raise ValueError("sample_weight is zero everywhere; at least one weight must be > 0.")
    if not SMALLEST <= weight <= LARGEST:
        raise ValueError(f"sample_weight has maximum {weight:g}, which must be from {SMALLEST:g} to {LARGEST:g}.")


def check_indices(name: str, value: np.ndarray, n_samples: int) -> np.ndarray:
    """Return `value` as int64 row numbers in [0, N)."""
    if value.min() < 0 or value.max() >= n_samples:
        wrong = value.min() if value.min() < 0 else value.max()
        raise ValueError(f"{name} contains row {wrong}; rows must be from 0 to {n_samples - 1}.")
    return value.astype(np.int64)


def check_labels(name: str, value: np.ndarray, n_samples: int, n_clusters: int) -> np.ndarray:
    """Return `value` as (N,) int32 numbers of clusters in [0, K)."""
    if value.dtype.kind not in "iu" or value.shape != (n_samples,):
        allowed = f"{n_samples} integers from 0 to {n_clusters - 1}"
        raise ValueError(f"{name} has shape {value.shape} and dtype {value.dtype}; labels must be {allowed}.")
    if value.min() < 0 or value.max() >= n_clusters:
        wrong = value.min() if value.min() < 0 else value.max()
        raise ValueError(f"{name} contains label {wrong}; labels must be from 0 to {n_clusters - 1}.")
    return value.astype(np.int32)


def _not_numbers(name: str, array: np.ndarray) -> np.ndarray:
    raise TypeError(f"got dtype {array.dtype}")


def float_for(dtype: np.dtype) -> np.dtype:
    """float32 or float64, in native byte order: the dtype in which an array of `dtype` is clustered."""
    return np.dtype(np.float32 if dtype.kind == "f" and dtype.itemsize <= 4 else np.float64)


def widen(array: np.ndarray, dtype: np.dtype, name: str) -> np.ndarray:
    """A copy in `dtype`, with a warning if that cannot hold the values."""
    wide = array.astype(dtype)
    exact = array.dtype.itemsize < 8
    if not exact and not np.array_equal(wide.astype(array.dtype), array):
        warnings.warn(
            f"{name} has dtype {array.dtype} and values that float64 cannot hold; they were rounded.",
            UserWarning,
            stacklevel=4,
        )
    return wide
