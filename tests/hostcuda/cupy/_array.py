"""cupy.ndarray: a device array that is no NumPy array, and says so."""

import math

import numpy as np

from . import _dlpack, _hostcuda, _order
from .cuda import device as _device
from .cuda.memory import Memory, MemoryPointer, UnownedMemory, check_read, host_view, mark_written, starts
from .cuda.stream import get_current_stream, refuse_in_capture, stream_of, submit, synchronise

REFUSAL = (
    "Implicit conversion to a NumPy array is not allowed. Please use `.get()` to construct a NumPy array explicitly."
)


class ndarray:
    __array_ufunc__ = None  # NumPy's operators give up, and ours raise
    __array_priority__ = 100
    __hash__ = None

    def __init__(self, shape, dtype=float, memptr=None, strides=None, order="C"):
        shape = tuple(int(n) for n in shape) if np.iterable(shape) else (int(shape),)
        dtype = np.dtype(dtype)
        if dtype.hasobject:
            raise ValueError(f"Unsupported dtype {dtype}")
        if strides is None and order == "F":
            strides = np.empty(shape, np.uint8, "F").strides
            strides = tuple(step * dtype.itemsize for step in strides)
        self.data = memptr or MemoryPointer(Memory(math.prod(shape) * dtype.itemsize), 0)
        self._view = host_view(self.data.ptr, shape, dtype, strides)
        self.base = None

    def _same_memory(self, view):
        """An array over the same memory, with the geometry of a NumPy view."""
        new = object.__new__(type(self))
        start = view.__array_interface__["data"][0] if view.size else self.data.ptr
        new.data = MemoryPointer(self.data.mem, start - self.data.mem.ptr)
        new._view, new.base = view, self if self.base is None else self.base
        return new

    shape = property(lambda self: self._view.shape)
    dtype = property(lambda self: self._view.dtype)
    strides = property(lambda self: self._view.strides)
    ndim = property(lambda self: self._view.ndim)
    size = property(lambda self: self._view.size)
    itemsize = property(lambda self: self._view.itemsize)
    nbytes = property(lambda self: self._view.nbytes)
    flags = property(lambda self: self._view.flags)
    T = property(lambda self: self._same_memory(self._view.T))
    device = property(lambda self: _device.Device(self.data.device_id))

    def __len__(self):
        return len(self._view)

    def __repr__(self):
        return f"<device array {self.shape} {self.dtype} on device {self.data.device_id}>"

    # ---- to the host and back: each of these is counted
    def __array__(self, dtype=None):
        raise TypeError(REFUSAL)

    def get(self, stream=None, order="C", out=None, blocking=True):
        refuse_in_capture()
        if out is None:
            out = np.empty(self.shape, self.dtype, order)
        elif not isinstance(out, np.ndarray) or out.dtype != self.dtype or out.shape != self.shape:
            raise TypeError("out must be a NumPy array of the same dtype and shape")
        stream = stream or get_current_stream()  # of the current device, wherever the array is
        landed = np.empty(self.shape, self.dtype)

        def action():
            check_read(self._view, "a copy to the host")
            landed[...] = self._view
            _hostcuda.counts.copy("device_to_host", self.nbytes)

        with self.device:
            number = submit(action, stream, "a copy to the host", self._uses(False))
            if blocking:
                synchronise(stream)
                out[...] = landed
            else:
                _order.written_later(stream._key, number, out, landed)
        return out

    def set(self, arr, stream=None):
        stream = stream or get_current_stream()
        number = self._copy_from(arr, stream)
        with self.device:
            _order.read_later(stream._key, number, arr)

    def _copy_from(self, arr, stream):
        """A copy from the host; the number of the operation."""
        refuse_in_capture()
        if not isinstance(arr, np.ndarray):
            raise TypeError("Only numpy.ndarray can be set to cupy.ndarray")
        if arr.dtype != self.dtype:
            raise TypeError(f"{arr.dtype} array cannot be set to {self.dtype} array")
        if arr.shape != self.shape:
            raise ValueError(f"Shape mismatch. Old shape: {self.shape}, new shape: {arr.shape}")
        if not (self.flags.c_contiguous or self.flags.f_contiguous):
            raise RuntimeError("Cannot set to non-contiguous array")

        def action():
            mark_written(self._view, "a copy from the host")
            self._view[...] = arr
            _hostcuda.counts.copy("host_to_device", self.nbytes)

        with self.device:
            return submit(action, stream, "a copy from the host", self._uses(True))

    def _uses(self, writes):
        return [(start, writes) for start in starts(self._view)]

    def item(self):
        return self.get().item()

    def __bool__(self):
        return bool(self.get())

    def __int__(self):
        return int(self.get())

    def __float__(self):
        return float(self.get())

    # ---- geometry: no memory is touched
    def __getitem__(self, slices):
        parts = slices if isinstance(slices, tuple) else (slices,)
        for part in parts:
            if not (part is None or part is ... or isinstance(part, slice | int | np.integer)):
                raise NotImplementedError("hostcuda indexes by slices and integers only")
        if not any(part is ... for part in parts):
            parts = (*parts, ...)  # an element is an array too, not a NumPy scalar
        return self._same_memory(self._view[parts])

    def view(self, dtype=None, type=None):
        return self._same_memory(self._view.view(dtype) if dtype is not None else self._view.view())

    def reshape(self, *shape, order="C", copy=None):
        shape = shape[0] if len(shape) == 1 and np.iterable(shape[0]) else shape
        view = self._view.reshape(shape, order=order) if self.size else np.empty(self.shape).reshape(shape)
        if self.size and not np.may_share_memory(view, self._view):  # a copy cannot be helped
            return self.copy().reshape(shape, order=order)
        return self._same_memory(view if self.size else view.astype(self.dtype))

    def ravel(self, order="C"):
        return self.reshape(-1, order=order)

    # ---- copies and fills on the device
    def copy(self, order="C"):
        new = ndarray(self.shape, self.dtype, order=layout(order, self))
        _submit_copy(new._view, self._view)  # from another device, too
        return new

    def astype(self, dtype, order="K", casting=None, subok=None, copy=True):
        if np.dtype(dtype) == self.dtype and not copy:
            return self
        new = ndarray(self.shape, dtype, order=layout(order, self))
        new[...] = self
        return new

    def fill(self, value):
        self[...] = value

    def __setitem__(self, slices, value):
        view = self[slices]._view
        if isinstance(value, ndarray):
            _check_device(self, value)
            _submit_copy(view, value._view)
        elif isinstance(value, np.ndarray) and value.ndim:
            raise TypeError(f"Unsupported type {type(value)}: assign a device array, or use set()")
        else:
            submit_kernel("cupy.fill", view, (), lambda: np.asarray(value).astype(view.dtype))

    # ---- other libraries
    @property
    def __cuda_array_interface__(self):
        strides = None if self.flags.c_contiguous else self.strides
        return {"shape": self.shape, "typestr": self.dtype.str, "descr": self.dtype.descr, "version": 3,
                "data": (self.data.ptr, False), "strides": strides,
                "stream": get_current_stream().ptr or 1}  # fmt: skip

    def __dlpack__(self, *, stream=None, max_version=None, dl_device=None, copy=None):
        if stream != -1:  # the consumer's waits for the current one, of whatever device
            _order.wait(stream_of(stream or 1)._key, _order.recorded(get_current_stream()._key))
        return _dlpack.export(self)

    def __dlpack_device__(self):
        return (_dlpack.CUDA, self.data.device_id)


def _check_device(*arrays):
    for array in arrays:
        if array.data.device_id != _device.current():
            raise ValueError(
                f"Array device must be same as the current device: array device = {array.data.device_id} "
                f"while current = {_device.current()}"
            )


def submit_kernel(name, out, inputs, compute):
    """One of CuPy's own kernels, done by NumPy: reads `inputs`, writes what `compute` gives into `out`."""

    def action():
        for view in inputs:
            check_read(view, name)
        result = compute()
        mark_written(out, name)
        out[...] = result
        _hostcuda.counts.kernel(name, sum(view.nbytes for view in inputs), out.nbytes)

    _hostcuda.counts.launches += 0 if get_current_stream().is_capturing() else 1
    submit(action, None, name, uses_of(out, *inputs))


def uses_of(out, *inputs):
    """As `submit` takes it: views that are read, and one that is written."""
    return [(start, False) for start in starts(*inputs)] + [(start, True) for start in starts(out)]


def layout(order, array):
    """The order that a copy of `array` has: "K" and "A" keep Fortran's."""
    return "F" if order == "F" or (order in ("K", "A") and array.flags.fnc) else "C"


def _submit_copy(out, source):
    same = source.dtype == out.dtype and source.shape == out.shape
    flat = same and source.flags.c_contiguous and out.flags.c_contiguous
    if not same:
        return submit_kernel("cupy.copy", out, (source,), lambda: source)

    def action():
        mark_written(out, "a copy", source)
        out[...] = source
        if flat:
            _hostcuda.counts.copy("device_to_device", out.nbytes)
        else:
            _hostcuda.counts.kernel("cupy.copy", out.nbytes, out.nbytes)

    _hostcuda.counts.launches += 0 if flat or get_current_stream().is_capturing() else 1
    submit(action, None, "a copy", uses_of(out, source))


def _refuse(self, other):
    raise TypeError("hostcuda has no operators on arrays: the package's arithmetic is in its kernels")


for _name in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "and", "or", "xor"):
    setattr(ndarray, f"__{_name}__", _refuse)
    setattr(ndarray, f"__r{_name}__", _refuse)
for _name in ("lt", "le", "gt", "ge", "eq", "ne"):
    setattr(ndarray, f"__{_name}__", _refuse)


def from_interface(obj):
    """A view of the memory of any object with __cuda_array_interface__."""
    face = obj.__cuda_array_interface__
    dtype, shape = np.dtype(face["typestr"]), tuple(face["shape"])
    if face.get("stream") is not None:
        synchronise(stream_of(face["stream"]))
    mem = UnownedMemory(face["data"][0], math.prod(shape) * dtype.itemsize, obj)
    return ndarray(shape, dtype, MemoryPointer(mem, 0), face.get("strides"))
