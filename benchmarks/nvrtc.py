"""Every kernel through NVRTC, which compiles without a GPU: what ptxas, a part of it, says of each."""

from __future__ import annotations

import ctypes
import re
import struct
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

REALS = {"float": np.dtype(np.float32), "double": np.dtype(np.float64)}


@dataclass(frozen=True)
class Usage:
    """What one kernel takes, as ptxas, which is part of NVRTC, says."""

    arch: int
    file: str
    kernel: str
    real: str
    defines: str
    registers: int
    shared: int  # static
    stack: int
    spilled: int  # bytes of stores and loads

    @property
    def form(self) -> str:
        return f"{self.kernel} ({self.defines})" if self.defines else self.kernel


def nvrtc_path() -> Path | None:
    """The library of the wheel nvidia-cuda-nvrtc-cu12, if that is installed."""
    if find_spec("nvidia") is None or (spec := find_spec("nvidia.cuda_nvrtc")) is None:
        return None
    folders = [Path(folder) / "lib" for folder in spec.submodule_search_locations or ()]
    return next((path for folder in folders for path in sorted(folder.glob("libnvrtc.so.*"))), None)


class Nvrtc:
    """The few calls of NVRTC that compiling takes."""

    def __init__(self) -> None:
        path = nvrtc_path()
        if path is None:
            sys.exit("NVRTC is not installed: pip install 'gputabu[kernels]'")
        self.library = ctypes.CDLL(str(path))
        self.library.nvrtcGetErrorString.restype = ctypes.c_char_p

    def call(self, name: str, *arguments: Any) -> None:
        status = getattr(self.library, name)(*arguments)
        if status:
            raise RuntimeError(f"{name}: {self.library.nvrtcGetErrorString(status).decode()}")

    def architectures(self) -> list[int]:
        """Those that this NVRTC can compile for: 80 is sm_80."""
        count = ctypes.c_int()
        self.call("nvrtcGetNumSupportedArchs", ctypes.byref(count))
        known = (ctypes.c_int * count.value)()
        self.call("nvrtcGetSupportedArchs", known)
        return list(known)

    def log_of(self, text: str, file: str, options: Sequence[str]) -> str:
        """Compile for real hardware and return what the compiler and ptxas said."""
        return self._compiled(text, file, options, "ProgramLog")

    def ptx_of(self, text: str, file: str, options: Sequence[str]) -> str:
        """Compile for a virtual architecture and return the PTX."""
        return self._compiled(text, file, options, "PTX")

    def cubin_of(self, text: str, file: str, options: Sequence[str]) -> tuple[bytes, str]:
        """Compile for real hardware and return the machine code, and what ptxas said."""
        return self._made(text, file, options, "CUBIN", "ProgramLog")

    def _compiled(self, text: str, file: str, options: Sequence[str], wanted: str) -> str:
        return self._made(text, file, options, wanted, "ProgramLog")[0].rstrip(b"\0").decode()

    def _made(self, text: str, file: str, options: Sequence[str], wanted: str, log: str) -> tuple[bytes, str]:
        program = ctypes.c_void_p()
        self.call("nvrtcCreateProgram", ctypes.byref(program), text.encode(), file.encode(), 0, None, None)
        words = (ctypes.c_char_p * len(options))(*(option.encode() for option in options))
        status = self.library.nvrtcCompileProgram(program, len(options), words)
        said = self._got(program, log).rstrip(b"\0").decode()
        found = b"" if status else self._got(program, wanted)
        self.call("nvrtcDestroyProgram", ctypes.byref(program))
        if status:
            raise RuntimeError(f"{file} {' '.join(options)} does not compile:\n{said}")
        return found, said

    def _got(self, program: ctypes.c_void_p, what: str) -> bytes:
        size = ctypes.c_size_t()
        self.call(f"nvrtcGet{what}Size", program, ctypes.byref(size))
        found = ctypes.create_string_buffer(size.value)
        self.call(f"nvrtcGet{what}", program, found)
        return found.raw


ENTRY = re.compile(
    r"Compiling entry function '(?P<kernel>\w+)'.*?(?P<stack>\d+) bytes stack frame, "
    r"(?P<stores>\d+) bytes spill stores, (?P<loads>\d+) bytes spill loads.*?"
    r"Used (?P<registers>\d+) registers(?P<rest>[^\n]*)",
    re.DOTALL,
)


def options(arch: int, defines: tuple[tuple[str, int], ...], real: str) -> list[str]:
    """As the package has them; CuPy adds -ftz=true and the architecture of the device."""
    from gputabu.backend.cuda.launch import options as launch_options

    return [*launch_options(REALS[real], defines), "-ftz=true", f"-arch=sm_{arch}"]


def machine_code(nvrtc: Nvrtc, arch: int, form: tuple[str, tuple[tuple[str, int], ...]], real: str) -> dict[str, bytes]:
    """Of the functions of a source file in one form: what their sections of the ELF file hold."""
    from gputabu.backend.cuda.sources import source

    file, defines = form
    elf, _ = nvrtc.cubin_of(source(file), file, options(arch, defines, real))
    (table,), (size, count, names) = struct.unpack_from("<Q", elf, 40), struct.unpack_from("<HHH", elf, 58)
    sections = [struct.unpack_from("<IIQQQQ", elf, table + i * size) for i in range(count)]
    start = sections[names][4]
    found = {}
    for name, _, _, _, offset, length in sections:
        word = elf[start + name : elf.index(b"\0", start + name)].decode()
        if word.startswith(".text."):
            found[word] = elf[offset : offset + length]
    return found


def compiled(nvrtc: Nvrtc, arch: int, widths: Sequence[int]) -> Iterator[Usage]:
    """Every kernel in every form, for one architecture."""
    from gputabu.backend.cuda import diagnosis
    from gputabu.backend.cuda.sources import source

    for file, defines in diagnosis.variants(widths):
        for real in REALS:
            words = ", ".join(f"{name}={value}" for name, value in defines)
            log = nvrtc.log_of(source(file), file, [*options(arch, defines, real), "--ptxas-options=-v"])
            for entry in ENTRY.finditer(log):
                shared = re.search(r"(\d+) bytes smem", entry["rest"])
                yield Usage(
                    arch, file, entry["kernel"], real, words, int(entry["registers"]),
                    int(shared[1]) if shared else 0, int(entry["stack"]),
                    int(entry["stores"]) + int(entry["loads"]),
                )  # fmt: skip
