"""Making arrays, and the few whole-array functions that are used."""

import numpy as np

from . import _order
from ._array import _check_device, from_interface, layout, ndarray, submit_kernel, uses_of
from .cuda import _pool
from .cuda.memory import mark_written, pinned_at
from .cuda.stream import get_current_stream, submit, synchronise

_PLAIN = (np.ndarray, np.generic, int, float, bool, list, tuple, range)


def empty(shape, dtype=float, order="C"):
    return ndarray(shape, dtype, order=order)


def full(shape, fill_value, dtype=None, order="C"):
    new = ndarray(shape, np.asarray(fill_value).dtype if dtype is None else dtype, order=order)
    new.fill(fill_value)
    return new


def zeros(shape, dtype=float, order="C"):
    new = ndarray(shape, dtype, order=order)
    view = new._view

    def action():  # CuPy calls memset here, and launches nothing
        mark_written(view, "zeros")
        view[...] = 0

    submit(action, None, "zeros", uses_of(view))
    return new


def ones(shape, dtype=float, order="C"):
    return full(shape, 1, dtype, order)


def empty_like(prototype, dtype=None, order="K", subok=None, shape=None):
    shape = prototype.shape if shape is None else shape
    return ndarray(shape, dtype or prototype.dtype, order=layout(order, prototype))


def zeros_like(a, dtype=None, order="K", subok=None, shape=None):
    new = empty_like(a, dtype, order, subok, shape)
    new.fill(0)
    return new


def arange(start, stop=None, step=1, dtype=None):
    values = np.arange(start, stop, step, dtype) if stop is not None else np.arange(0, start, step, dtype)
    new = ndarray(values.shape, values.dtype)
    submit_kernel("cupy.arange", new._view, (), lambda: values)
    return new


def array(obj, dtype=None, copy=True, order="K", subok=False, ndmin=0, *, blocking=False):
    if isinstance(obj, ndarray) or hasattr(obj, "__cuda_array_interface__"):
        found = obj if isinstance(obj, ndarray) else from_interface(obj)
        wanted = found.dtype if dtype is None else np.dtype(dtype)
        laid_out = (order != "C" or found.flags.c_contiguous) and (order != "F" or found.flags.f_contiguous)
        if not copy and wanted == found.dtype and laid_out:
            return found
        new = found.copy(order) if wanted == found.dtype else found.astype(wanted, order)
    else:
        if not isinstance(obj, _PLAIN) and not hasattr(obj, "__array__"):
            raise TypeError(f"Unsupported type {type(obj)}")
        host = np.asarray(obj, dtype, order=order)
        new = ndarray(host.shape, host.dtype, order=layout(order, host))
        _send(new, host)
        if blocking:
            synchronise()
    return new[(None,) * max(0, ndmin - new.ndim)] if new.ndim < ndmin else new


def _send(new, host):
    """A copy by way of a pinned buffer of that size. Where none can be had, CuPy counts on the driver to have one."""
    stream = get_current_stream()
    number, pinned = new._copy_from(host, stream), pinned_at(host.ctypes.data)
    buffer = None if pinned is not None else _pool.pin(host.nbytes)
    if buffer is not None:
        _pool.unpin(buffer)
    if pinned is not None:  # no buffer
        _order.read_later(stream._key, number, host)


def asarray(a, dtype=None, order=None, *, copy=None, blocking=False):
    return array(a, dtype, bool(copy), order or "K", blocking=blocking)


def ascontiguousarray(a, dtype=None):
    return array(a, dtype, False, "C", ndmin=1)


def asnumpy(a, stream=None, order="C", out=None, *, blocking=True):
    if isinstance(a, ndarray) or hasattr(a, "__cuda_array_interface__"):
        return asarray(a).get(stream, order, out, blocking)
    return np.asarray(a, order=order)


def concatenate(tup, axis=0, out=None, *, dtype=None, casting="same_kind"):
    if not all(isinstance(a, ndarray) for a in tup):
        raise TypeError("Only cupy arrays can be concatenated")
    _check_device(*tup)
    views = [a._view for a in tup]
    if out is None:
        like = np.concatenate([np.broadcast_to(np.empty((), v.dtype), v.shape) for v in views], axis, dtype=dtype)
        out = ndarray(like.shape, like.dtype)
    submit_kernel("cupy.concatenate", out._view, views, lambda: np.concatenate(views, axis))
    return out


def matmul(x1, x2, /, out=None, **kwargs):
    """cuBLAS's product."""
    if not (isinstance(x1, ndarray) and isinstance(x2, ndarray)):
        raise TypeError("matmul takes device arrays")
    _check_device(x1, x2, *([] if out is None else [out]))
    a, b = x1._view, x2._view
    if out is None:
        lead = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
        tail = (*a.shape[-2:-1], *(b.shape[-1:] if b.ndim > 1 else ()))
        out = ndarray((*lead, *tail), np.result_type(a, b))
    submit_kernel("cublas.gemm", out._view, (a, b), lambda: np.matmul(a, b))
    return out


ndarray.__matmul__ = lambda self, other: matmul(self, other)
