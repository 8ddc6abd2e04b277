"""g++ in NVRTC's place: kernel text to shared object, cached by a hash of everything that went into it."""

import ctypes
import functools
import hashlib
import os
import pathlib
import re
import subprocess
import tempfile
import threading

from . import _hostcuda
from .cuda.compiler import CompileException

HERE = pathlib.Path(__file__).parent.parent
HEADER, FLUSH = HERE / "cuda_host.hpp", HERE / "flush.hpp"  # the second makes `float` a device's, so it is last
RUNTIME = ("runtime.cpp", "hooks.cpp", "requests.cpp")
# No contraction: the same bits as the device's _rn intrinsics. No GNU-unique symbols: two modules with the
# same template would share its __shared__ variables. Bsymbolic: a kernel may be named like one of libc.
FLAGS = ["-O2", "-ffp-contract=off", "-fPIC", "-shared", "-fno-gnu-unique", "-fno-strict-aliasing",
         "-Wl,-Bsymbolic", "-w"]  # fmt: skip
# The sanitizers' instrumentation without their libraries (-nodefaultlibs): hooks.cpp answers. No
# vectorisation and no loops made into memset, which would hide or merge accesses; no jump instead of a last call,
# which would hide from where it comes. -O1 counts the same accesses and runs as fast, and compiles sooner.
CHECKED = [
    "-O1",
    "-fsanitize=thread,bounds,alignment,shift,signed-integer-overflow,integer-divide-by-zero,float-cast-overflow",
    "--param=tsan-distinguish-volatile=1", "--param=tsan-instrument-func-entry-exit=0", "-nodefaultlibs",
    "-fno-tree-vectorize", "-fno-tree-loop-distribute-patterns", "-fno-optimize-sibling-calls",
]  # fmt: skip
SANITIZED = ["-g", "-fsanitize=address,undefined"]
IGNORED = re.compile(  # NVRTC's options that mean nothing here
    "--?(lineinfo|generate-line-info|G|fmad|use_fast_math|ftz|arch|gpu-architecture|restrict|default-device"
    "|maxrregcount|extra-device-vectorization|w)(=.*)?"
)
lock = threading.RLock()  # the runtime knows one launch, and its memory must not change meanwhile


class Argument(ctypes.Structure):
    _fields_ = [("kind", ctypes.c_char), ("bytes", ctypes.c_int), ("constant", ctypes.c_bool)]


class Entry(ctypes.Structure):
    _fields_ = [
        ("name", ctypes.c_char_p),
        ("call", ctypes.c_void_p),
        ("arguments", ctypes.POINTER(Argument)),
        ("count", ctypes.c_int),
    ]


def compiler():
    return os.environ.get("CXX", "g++")


@functools.cache
def compiler_version():
    return subprocess.run([compiler(), "--version"], capture_output=True, text=True, check=True).stdout


def cache_directory():
    default = pathlib.Path(os.environ.get("XDG_CACHE_HOME", pathlib.Path.home() / ".cache")) / "hostcuda"
    path = pathlib.Path(os.environ.get("HOSTCUDA_CACHE") or default)
    path.mkdir(parents=True, exist_ok=True)
    return path


def build(key, make):
    """The cached object for `key` (a list of strings); `make(path)` writes it if there is none."""
    digest = hashlib.sha256("\0".join([compiler_version(), *key]).encode()).hexdigest()
    target = cache_directory() / f"{digest[:40]}.so"
    if not target.exists():
        with tempfile.TemporaryDirectory(dir=cache_directory()) as folder:
            made = pathlib.Path(folder) / "made.so"
            make(made)
            os.replace(made, target)  # at once: another process may be waiting for the same
    return target


@functools.cache
def runtime():
    """The fibers and hooks, loaded so that kernel modules find their functions."""
    sources = [HERE / name for name in RUNTIME]
    texts = [path.read_text() for path in (*sources, HEADER, HERE / "state.hpp", HERE / "fibers.hpp", HERE / "mma.hpp")]

    def make(path):
        command = [compiler(), "-std=c++17", "-O3", "-fPIC", "-shared", "-o", path, *sources]
        subprocess.run(command, check=True)

    library = ctypes.CDLL(str(build(texts, make)), mode=ctypes.RTLD_GLOBAL)
    library.hostcuda_allocate.restype = ctypes.c_void_p
    library.hostcuda_allocate.argtypes = [ctypes.c_size_t, *[ctypes.c_int] * 3]
    library.hostcuda_free.argtypes = [ctypes.c_void_p]
    library.hostcuda_set_seed.argtypes = [ctypes.c_uint64]
    library.hostcuda_launch.restype = ctypes.c_char_p
    bases = ctypes.c_void_p(), ctypes.c_void_p()
    if not library.hostcuda_start(*map(ctypes.byref, bases)):
        raise MemoryError("hostcuda cannot reserve its address range.")
    library.arena, library.shadow = bases[0].value, bases[1].value
    library.hostcuda_set_seed(_hostcuda.settings.seed)
    library.hostcuda_set_mma(_hostcuda.settings.mma_error)
    library.hostcuda_check_global_races(_hostcuda.settings.global_races)
    library.hostcuda_count(_hostcuda.settings.count)
    return library


def translate(options):
    """NVRTC's options as g++'s."""
    kept, standard = [], 17
    for option in options:
        if found := re.fullmatch(r"-?-std=c\+\+(\d+)", option):
            standard = max(17, int(found[1]))
        elif match := re.fullmatch(r"--(define-macro|undefine-macro|include-path)=(.*)", option):
            kept.append({"d": "-D", "u": "-U", "i": "-I"}[match[1][0]] + match[2])
        elif option.startswith(("-D", "-U", "-I")):
            kept.append(option)
        elif not IGNORED.fullmatch(option):
            raise CompileException(f"hostcuda does not know the option {option!r}", "", "", options)
    return [*kept, f"-std=c++{standard}"]


def kernels_in(text):
    """Names of the kernels in preprocessed text. Templates have none: they come by name_expressions."""
    attribute = r"(?:__attribute__\s*\(\(.*?\)\)\s*)*"
    kernel = rf"__global__\s+{attribute}(?:static\s+|inline\s+)*void\s+{attribute}(\w+)\s*\("
    template = re.compile(r"template\s*<[^;{}]*$")
    return [m[1] for m in re.finditer(kernel, text) if not template.search(text, m.start() - 300, m.start())]


def initialised(declaration):
    """A declaration of shared variables, all zero: else g++ adds a flag to each of a type that has constructors."""
    names = re.split(r",(?![^\[]*\])", declaration[1])  # int a[2], b
    return f"static thread_local {', '.join(f'{name} = {{}}' for name in names)};"


class Module:
    """A loaded kernel module."""

    def __init__(self, code, options=(), name_expressions=()):
        settings = _hostcuda.settings
        variant = SANITIZED if settings.sanitize else CHECKED if settings.check else []
        options, expressions = tuple(options), list(name_expressions or ())
        flags = [*FLAGS, *variant, *(["-g1"] if settings.lines else []), *translate(options)]

        def run(command, text):
            command = [compiler(), *command]
            done = subprocess.run(command, input=text, capture_output=True, text=True, check=False)
            if done.returncode:
                raise CompileException(done.stderr, code, "kernel.cu", options)
            return done.stdout

        def make(path):
            # these two stay words while the text is preprocessed, and so mark the kernels and the shared variables
            text = f'#include "{HEADER}"\n#include "{FLUSH}"\n#undef __global__\n#undef __shared__\n'
            text += f'#line 1 "kernel.cu"\n{code}'
            text = run([*flags, "-E", "-xc++", "-"], text)
            table = "".join(f'hostcuda::kernel<&{e}>("{e}"), ' for e in [*kernels_in(text), *expressions])
            text = re.sub(r"\b__shared__\s+([^;{}=]+);", initialised, text)
            text = re.sub(r"\b__global__\b", "", text) + (
                '\n# 1 "entries"\nextern "C" {\n'
                f"extern const hostcuda::Kernel hostcuda_kernels[] = {{{table}{{}}}};\n"
                "void* hostcuda_anchor() { static thread_local char anchor; return &anchor; }\n}"
            )
            libraries = [] if settings.sanitize else ["-lm", "-lc", "-lgcc"]
            run([*flags, "-fpreprocessed", "-xc++", "-", "-xnone", "-o", str(path), *libraries], text)

        self.runtime = runtime()
        path = build([HEADER.read_text(), FLUSH.read_text(), code, *flags, *expressions], make)
        self.path, self.library = path, ctypes.CDLL(str(path))
        self.library.hostcuda_anchor.restype = ctypes.c_void_p
        self.entries = {}
        table = ctypes.addressof(ctypes.c_char.in_dll(self.library, "hostcuda_kernels"))
        while (entry := Entry.from_address(table)).name:
            # CuPy finds a kernel by its name only if C++ has not mangled it
            if entry.name.decode() in expressions or hasattr(self.library, entry.name.decode()):
                self.entries[entry.name.decode()] = entry
            table += ctypes.sizeof(Entry)

    def count_lines(self, name):
        """Tells _hostcuda.counts what the last launch asked of memory, by lines of the source."""
        width = len(_hostcuda.REQUESTS)
        number = self.runtime.hostcuda_places(None, None, None, 0)
        code, counted, offsets = (
            (kind * size)() for kind, size in ((ctypes.c_size_t, number), (ctypes.c_uint64, number * width),
                                               (ctypes.c_uint64, number))
        )  # fmt: skip
        self.runtime.hostcuda_places(code, counted, offsets, ctypes.c_size_t(number))
        # An address in the library, and where the file has it: both of one symbol.
        symbol = ctypes.addressof(ctypes.c_char.in_dll(self.library, "hostcuda_kernels"))
        base = symbol - symbol_offset(self.path, "hostcuda_kernels")
        for i, places in enumerate(lines_of(self.path, [place - base - 1 for place in code])):  # they return to `place`
            address = self.runtime.arena + offsets[i] if offsets[i] else 0
            _hostcuda.counts.by_line(name, places, counted[i * width : (i + 1) * width], address)

    @functools.cached_property
    def static_bytes(self):
        """Static shared memory of all kernels of the module, so of any: as ptxas says, or a few bytes more."""
        return -(-self.shared_segment(next(iter(self.entries.values())))[1] // 16) * 16

    def shared_segment(self, entry):
        """Start and size of the module's __shared__ variables, for this system thread."""
        start, size = ctypes.c_void_p(), ctypes.c_size_t()
        self.library.hostcuda_anchor()  # makes the segment exist
        code = ctypes.c_void_p(entry.call)
        self.runtime.hostcuda_thread_local_segment(code, ctypes.byref(start), ctypes.byref(size))
        return start, size.value


@functools.cache
def symbol_offset(path, name):
    """Where a shared object has a symbol."""
    table = subprocess.run(["nm", "-D", path], capture_output=True, text=True, check=True).stdout
    return next(int(line.split()[0], 16) for line in table.splitlines() if line.endswith(f" {name}"))


def lines_of(path, addresses):
    """Of each address the lines (file, number) that it comes from, the innermost first where functions were inlined."""
    command = ["addr2line", "-a", "-i", "-e", path, *map(hex, addresses)]
    said = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = []
    for line in said.splitlines():
        if line.startswith("0x"):
            found.append([])
        elif (place := re.match(r"(?:.*/)?([^/:]+):(\d+)", line)) and pathlib.Path(place[1]).suffix in (".cu", ".cuh"):
            found[-1].append((place[1], int(place[2])))
    return [tuple(places) for places in found]
