"""What `gputabu doctor` and the kernel table ask of CUDA: the device, and every form of every kernel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import cupy
import numpy as np

from gputabu.backend.cuda.launch import options
from gputabu.backend.cuda.shapes import GROUP, REGISTER_D
from gputabu.backend.cuda.sources import source, source_folder

#: A kernel source and the constants it is compiled with.
Variant = tuple[str, tuple[tuple[str, int], ...]]
CUPY = cupy.__version__


def variants(widths: Sequence[int]) -> Iterator[Variant]:
    """Every source file in every form; `assign` has one for each number of coordinates, of which `widths`."""
    constants: dict[str, list[tuple[tuple[str, int], ...]]] = {
        "assign.cu": [(("D", d),) for d in widths if d <= REGISTER_D],
        "survey.cu": [(("RG", 1),), (("RG", GROUP),)],
    }
    for path in sorted(source_folder().glob("*.cu")):
        for defines in constants.get(path.name, [()]):
            yield path.name, defines


def compile_all(widths: Sequence[int] = (4, 16)) -> int:
    """Compile the kernels for the current device and both types; how many modules that were."""
    count = 0
    for file, defines in variants(widths):
        for real in (np.float32, np.float64):
            cupy.RawModule(code=source(file), options=options(np.dtype(real), defines)).compile()
            count += 1
    return count


def device_facts() -> dict[str, str]:
    """The current device in words."""
    device = cupy.cuda.Device()
    name = cupy.cuda.runtime.getDeviceProperties(device.id)["name"].decode()
    free, total = device.mem_info
    capability = device.compute_capability
    return {
        "device": f"{name}, compute capability {capability[:-1]}.{capability[-1]}",
        "CUDA": f"driver {_version(cupy.cuda.runtime.driverGetVersion())}, "
        f"runtime {_version(cupy.cuda.runtime.runtimeGetVersion())}",
        "memory": f"{free / 2**30:.1f} of {total / 2**30:.1f} GiB free",
    }


def _version(number: int) -> str:
    return f"{number // 1000}.{number % 1000 // 10}"
