"""DLPack capsules, as far as CUDA arrays need them."""

import ctypes
import math

import numpy as np

CUDA = 2
CODES = {"i": 0, "u": 1, "f": 2, "c": 5, "b": 6}
_alive = {}  # address of a tensor -> what its memory needs, until its consumer lets go


class Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32), ("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes",
        ctypes.c_uint16), ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides",
        ctypes.POINTER(ctypes.c_int64)), ("byte_offset", ctypes.c_uint64), ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
    ]  # fmt: skip


_Callback = ctypes.CFUNCTYPE(None, ctypes.c_void_p)
_api = ctypes.pythonapi
_api.PyCapsule_New.restype, _api.PyCapsule_New.argtypes = (
    ctypes.py_object,
    [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p],
)
_api.PyCapsule_GetPointer.restype = ctypes.c_void_p
_api.PyCapsule_GetPointer.argtypes = [ctypes.py_object, ctypes.c_char_p]
_api.PyCapsule_SetName.argtypes = [ctypes.py_object, ctypes.c_char_p]
_delete = _Callback(lambda address: _alive.pop(address, None) and None)
_USED = b"used_dltensor"  # must outlive every capsule that bears it


def export(array):
    """A capsule for the consumer, who calls the deleter. One that nobody consumes keeps its array alive."""
    n = array.ndim
    shape = (ctypes.c_int64 * n)(*array.shape)
    strides = (ctypes.c_int64 * n)(*(step // array.itemsize for step in array.strides))
    kind = (CODES[array.dtype.kind], array.itemsize * 8, 1)
    deleter = ctypes.cast(_delete, ctypes.c_void_p)
    tensor = Tensor(array.data.ptr, CUDA, array.data.device_id, n, *kind, shape, strides, 0, None, deleter)
    _alive[ctypes.addressof(tensor)] = (tensor, shape, strides, array)
    return _api.PyCapsule_New(ctypes.addressof(tensor), b"dltensor", None)


class _Owner:
    """Holds a consumed tensor and lets go of it in the end."""

    def __init__(self, address):
        self.address = address

    def __del__(self):
        _Callback(Tensor.from_address(self.address).deleter)(self.address)


def from_dlpack(array, *, device=None, copy=None):
    from ._array import ndarray
    from .cuda.device import Device
    from .cuda.memory import MemoryPointer, UnownedMemory
    from .cuda.stream import get_current_stream

    if array.__dlpack_device__()[0] != CUDA:
        raise BufferError("from_dlpack takes arrays on a CUDA device; copy host arrays with asarray.")
    with Device(array.__dlpack_device__()[1]):  # the producer lets our stream there wait for its own
        capsule = array.__dlpack__(stream=get_current_stream().ptr or 1)
    address = _api.PyCapsule_GetPointer(capsule, b"dltensor")
    _api.PyCapsule_SetName(capsule, _USED)
    t = Tensor.from_address(address)
    dtype = np.dtype(f"{dict(map(reversed, CODES.items()))[t.code]}{t.bits // 8}")
    shape = tuple(t.shape[: t.ndim])
    strides = tuple(step * dtype.itemsize for step in t.strides[: t.ndim]) if t.strides else None
    mem = UnownedMemory((t.data or 0) + t.byte_offset, math.prod(shape) * dtype.itemsize, _Owner(address))
    found = ndarray(shape, dtype, MemoryPointer(mem, 0), strides)
    return found.copy() if copy else found
