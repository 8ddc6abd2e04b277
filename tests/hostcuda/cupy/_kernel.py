"""RawModule and RawKernel: compile with g++, check the arguments that CuPy would not, launch."""

import ctypes

import numpy as np

from . import _hostcuda, _profiles
from ._array import ndarray
from ._compile import Module, lock, runtime
from .cuda import device as _device
from .cuda.errors import CUDADriverError, CUDARuntimeError
from .cuda.memory import ARENA, MemoryPointer, find
from .cuda.stream import get_current_stream, submit

KINDS = {"f": "f", "V": "s", "c": "s"}  # of NumPy, as kernels know them; all others are integers


def arrays_of(value):
    """(start, bytes, device) of an array, or of the arrays that the words of a struct point to."""
    if isinstance(value, ndarray):
        return [find(value.data.ptr) or (0, 0, value.data.device_id)]
    if not isinstance(value, np.ndarray) or not value.dtype.names:
        return []
    start, data = runtime().arena, value.tobytes()
    words = np.frombuffer(data[: len(data) // 8 * 8], np.uint64).tolist()  # C aligns a pointer to its size
    found = [find(word) for word in words if start <= word < start + ARENA]
    return list(filter(None, found))


def pack(name, index, value, wanted):
    """The bytes of one argument, as CuPy passes it, if they are what the kernel takes."""
    kind, width = wanted.kind.decode(), wanted.bytes
    if value is None or isinstance(value, ndarray | MemoryPointer):
        given, data = ("p", 8), int(getattr(getattr(value, "data", value), "ptr", 0)).to_bytes(8, "little")
    elif isinstance(value, np.ndarray) and value.size == 1:  # CuPy passes it by value, a struct for example
        given = ("s" if value.dtype.names else KINDS.get(value.dtype.kind, "i"), value.dtype.itemsize)
        data = value.tobytes()
    elif isinstance(value, bool | int | float | np.generic) and not isinstance(value, np.void):
        # a Python int goes as long long, a float as double
        code = "?" if isinstance(value, bool) else "q" if isinstance(value, int) else "d"
        scalar = value if isinstance(value, np.generic) else np.array(value, code)[()]
        given = (KINDS.get(scalar.dtype.kind, "i"), scalar.dtype.itemsize)
        data = scalar.tobytes()
    else:
        raise TypeError(f"Unsupported type {type(value)}: argument {index} of kernel {name}")
    address_as_int = kind == "p" and given == ("i", 8)
    if given != (kind, width) and not address_as_int:
        words = {"p": "pointer", "i": "integer", "f": "float", "s": "struct"}
        raise TypeError(
            f"argument {index} of kernel {name} must be {words[kind]}, {width} bytes; "
            f"{type(value).__name__} is {words[given[0]]}, {given[1]} bytes"
        )
    return data


def _dimensions(sizes, limits):
    sizes = [int(n) for n in (sizes if np.iterable(sizes) else (sizes,))]
    sizes += [1] * (3 - len(sizes))
    if any(n < 1 or n > limit for n, limit in zip(sizes, limits, strict=True)):
        raise CUDADriverError(1)
    return sizes


class RawKernel:
    def __init__(self, code, name, options=(), backend="nvrtc", translate_cucomplex=False, *,
                 enable_cooperative_groups=False, jitify=None):  # fmt: skip
        self.code, self.name, self.options, self.backend = code, name, tuple(options), backend
        self._module = RawModule(code=code, options=self.options)

    def compile(self, log_stream=None):
        self._entry()

    def _entry(self):
        return self._module._find(self.name)

    @property
    def attributes(self):
        return {
            "max_threads_per_block": 1024, "shared_size_bytes": self.shared_size_bytes, "const_size_bytes": 0,
            "local_size_bytes": 0, "num_regs": 0, "ptx_version": 0, "binary_version": 0, "cache_mode_ca": 0,
            "max_dynamic_shared_size_bytes": self.max_dynamic_shared_size_bytes,
            "preferred_shared_memory_carveout": -1,
        }  # fmt: skip

    num_regs = local_size_bytes = property(lambda self: 0)
    max_threads_per_block = property(lambda self: 1024)

    @property
    def shared_size_bytes(self):
        return self._entry()[0].static_bytes

    @property
    def _function(self):
        """CuPy keeps one function per source and device, whoever asks for it."""
        return (self.code, self.options, self.name, _device.current())

    @property
    def max_dynamic_shared_size_bytes(self):
        return _profiles.most_dynamic(self._function, self.shared_size_bytes)

    @max_dynamic_shared_size_bytes.setter
    def max_dynamic_shared_size_bytes(self, value):
        _profiles.ask_dynamic(self._function, self.shared_size_bytes, value)

    def __call__(self, grid, block, args, *, shared_mem=0, stream=None):
        limits = _hostcuda.attributes
        grid = _dimensions(grid, [limits[f"MaxGridDim{axis}"] for axis in "XYZ"])
        block = _dimensions(block, [limits[f"MaxBlockDim{axis}"] for axis in "XYZ"])
        if np.prod(block) > limits["MaxThreadsPerBlock"]:
            raise CUDADriverError(1)
        module, entry = self._entry()
        _profiles.check_shared(self._function, self.shared_size_bytes, shared_mem)
        if len(args) != entry.count:
            raise TypeError(f"kernel {self.name} takes {entry.count} arguments, {len(args)} were given")
        uses = []
        for index, value in enumerate(args):
            for start, _, device in arrays_of(value):
                uses.append((start, not entry.arguments[index].constant))
                if device != _device.current():
                    raise ValueError(
                        f"argument {index} of kernel {self.name} is on device {device}, "
                        f"the launch on device {_device.current()}"
                    )
        packed = [pack(self.name, i, value, entry.arguments[i]) for i, value in enumerate(args)]
        stream = stream or get_current_stream()
        if _hostcuda.planned("fail_launch"):
            stream._break_capture()
            raise CUDARuntimeError(719)
        _hostcuda.counts.launches += 0 if stream.is_capturing() else 1
        action = lambda: launch(self.name, module, entry, grid, block, packed, shared_mem)  # noqa: E731
        submit(action, stream, f"kernel {self.name}", uses)


def launch(name, module, entry, grid, block, packed, shared_mem):
    buffers = [ctypes.create_string_buffer(data + bytes(16), len(data) + 16) for data in packed]
    pointers = (ctypes.c_void_p * (len(buffers) + 1))(*map(ctypes.addressof, buffers))
    counts = (ctypes.c_uint64 * (len(_hostcuda.BYTES) + len(_hostcuda.REQUESTS)))()
    with lock:
        start, size = module.shared_segment(entry)
        module.runtime.hostcuda_set_watchdog(ctypes.c_uint64(_profiles.longest_launch()))
        error = module.runtime.hostcuda_launch(
            ctypes.byref(entry), pointers, (ctypes.c_uint * 3)(*grid), (ctypes.c_uint * 3)(*block),
            ctypes.c_size_t(shared_mem), start, ctypes.c_size_t(size), counts,
        )  # fmt: skip
        if _hostcuda.settings.lines:
            module.count_lines(name)
    _hostcuda.counts.kernel(name, *counts)
    if error:
        raise _hostcuda.violation(error.decode())


class RawModule:
    def __init__(self, code=None, *, path=None, options=(), backend="nvrtc", translate_cucomplex=False,
                 enable_cooperative_groups=False, name_expressions=None, jitify=None):  # fmt: skip
        if code is None:
            raise NotImplementedError("hostcuda compiles source text; it loads no binaries")
        self.code, self.options, self.backend = code, tuple(options), backend
        self.name_expressions = name_expressions
        self._modules = {}  # one per variant of the checks

    def compile(self, log_stream=None):
        settings = _hostcuda.settings
        variant = (settings.check, settings.sanitize, settings.lines)
        if variant not in self._modules:
            self._modules[variant] = Module(self.code, self.options, self.name_expressions)
        return self._modules[variant]

    def _find(self, name):
        module = self.compile()
        if name not in module.entries:
            raise CUDADriverError(500)
        return module, module.entries[name]

    def get_function(self, name):
        self._find(name)
        kernel = RawKernel(self.code, name, self.options)
        kernel._module = self
        return kernel
