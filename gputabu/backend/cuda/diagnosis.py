"""What `gputabu doctor` and the kernel table ask of CUDA: the device, and every form of every kernel."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Self

import cupy
import numpy as np

from gputabu.backend.arithmetic.fixed_point import Totals
from gputabu.backend.cuda import shapes, tensor, version
from gputabu.backend.cuda.device import device_count as device_count
from gputabu.backend.cuda.launch import options
from gputabu.backend.cuda.shapes import GROUP, REGISTER_D, SPAN, survey_defines
from gputabu.backend.cuda.sources import source, source_folder
from gputabu.backend.cuda.structs import Shape

#: A kernel source and the constants it is compiled with.
Variant = tuple[str, tuple[tuple[str, int], ...]]
CUPY = cupy.__version__
#: Points that a large data set has at least: for as many, launches take all blocks.
SOME_POINTS = 1_000_000
#: The lowest compute capability that kernels are compiled for in the tests.
OLDEST = 70


def variants(widths: Sequence[int]) -> Iterator[Variant]:
    """Every source file in every form; `assign` has one for each number of coordinates, of which `widths`."""
    constants: dict[str, list[tuple[tuple[str, int], ...]]] = {
        "assign.cu": [
            (("D", d), *moved) for d in widths if d <= REGISTER_D for moved in ((), (("MOVED", 1),))[: 1 + (d % 4 == 0)]
        ],
        "reassignment.cu": [(), (("MODES", 1),)],
        "tabu_argmin.cu": [tuple(sorted(survey_defines(*form).items())) for form in _survey_forms(widths)],
        "assign_tensor.cu": [
            tuple(sorted({**form.defines, "RESIDENT": resident}.items())) for form, resident in _tensor_forms(widths)
        ],
        "assign_resident.cu": [tuple(sorted(form.defines.items())) for form in _resident_forms(widths)],
        "nearest_two.cu": [tuple(sorted(defines.items())) for defines in _rows_forms(widths, (0, 1))],
        "swap_gains.cu": [tuple(sorted(defines.items())) for defines in _rows_forms(widths, (None,))],
    }
    for path in sorted(source_folder().glob("*.cu")):
        for defines in constants.get(path.name, [()]):
            yield path.name, defines


def _survey_forms(widths: Sequence[int]) -> Iterator[tuple[int, int, bool, bool, bool]]:
    """Restarts, coordinates, whether these come in pairs, centres are in shared memory, and points have weights."""
    for r in (1, GROUP):
        yield from ((r, d, True, d % 3 != 0, d % 4 == 0) for d in widths if d <= SPAN)
        yield from ((r, 2 * SPAN, True, resident, not resident) for resident in (False, True))
        if len(widths) > 3:
            yield from (
                (r, SPAN, True, False, False),
                (r, SPAN, False, True, True),
                (r, 2 * SPAN + 2, True, False, True),
            )


def _rows_forms(widths: Sequence[int], products: Sequence[int | None]) -> Iterator[dict[str, int]]:
    """Forms of kernels whose warps have 32 points each, without or with `products` on tensor cores."""
    for d in (*(d for d in widths if d <= REGISTER_D), 0):
        for staged, warps in ((1, 4), (0, 4)) if d == 0 else ((1, 4),):
            form = {"D": d, "STAGED": staged, "WARPS": warps}
            for one in products:
                if d == 0 or d > 8 or not one:
                    yield form if one is None else form | {"TENSOR": one}


def _tensor_forms(widths: Sequence[int]) -> Iterator[tuple[tensor.TensorForm, int]]:
    """Forms of products on tensor cores, and whether all centres are in shared memory: of few or many `widths`."""
    small, wide = tensor.candidates(64, 16, 1)[0], tensor.candidates(1000, 128, 1)
    yield from ((small, 0), (wide[0], 0))
    if len(widths) > 3:
        yield from ((tensor.candidates(64, 32, 1)[0], 0), (tensor.candidates(5, 128, 1)[0], 1), (wide[0], 1))
        yield from ((form, 0) for form in wide[1:])
        yield from ((tensor.candidates(64, 16, 2)[0], 0), (tensor.candidates(300, 128, 2)[0], 0))


def _resident_forms(widths: Sequence[int]) -> Iterator[tensor.ResidentForm]:
    """Forms with all centres in shared memory: of few or many `widths`."""
    sizes = (
        ((1, 16), (1, 32), (1, 48), (2, 16), (2, 45), (2, 48), (1, 30), (1, 45))
        if len(widths) > 3
        else ((1, 16), (1, 32))
    )
    yield from (tensor.ResidentForm(words, d, tensor.WARPS) for words, d in sizes)


def compile_all(widths: Sequence[int] = (4, 16)) -> int:
    """Compile the kernels for the current device and both types; how many modules that were."""
    count = 0
    for file, defines in variants(widths):
        for real in (np.float32, np.float64):
            cupy.RawModule(code=source(file), options=options(np.dtype(real), defines)).compile()
            count += 1
    return count


def assign_kernel(d: int, k: int, real: np.dtype) -> str:
    """Which kernel finds the nearest of K centres on the current device, and why."""
    device = cupy.cuda.Device()
    shape = Shape(1, k, d)
    if d < tensor.LEAST_D:
        return f"assign, points in registers: d = {d} is below {tensor.LEAST_D}"
    if not tensor.usable(device):
        name = "assign, points in registers" if d <= REGISTER_D else "assign_tiled"
        return f"{name}: no tensor cores for products of 16 × 8 × 16 halves"
    room = tensor.room_of(device)
    form = tensor.form_of(room, shape, Totals.columns(d, weighted=False), real, words=1)
    if form is None:
        return f"assign_tiled: {d} features of 16 points do not fit into {room >> 10} KiB of shared memory"
    if isinstance(form, tensor.ResidentForm):
        return f"assign_resident, all {k} centres in shared memory, 32 points in the registers of a warp"
    return f"assign_tensor, {form.tile_m} points × {form.tile_n} centres at a time; those in doubt by decide_tensor"


def survey_kernel(d: int, k: int, real: np.dtype) -> str:
    """In which form J and the best free points of one restart are found, and why."""
    device, shape = cupy.cuda.Device(), Shape(1, k, d)
    blocks = int(device.attributes["MultiProcessorCount"])
    form = shapes.survey(tensor.room_of(device), SOME_POINTS, shape, real, blocks, keyed=True)
    where = "in shared memory" if form.resident else "from L2"
    said = f"{8 * k * d} bytes, and up to {shapes.TABLE >> 10} KiB are kept in shared memory where there is room"
    return f"survey, {survey_defines(1, d)['WIDTH']} coordinates at a time, centres {where}: {said}"


def pass_kernels(d: int, k: int, real: np.dtype) -> list[str]:
    """Of every pass that reads the points: which kernel a shape takes on the current device, and why."""
    return [
        assign_kernel(d, k, real),
        survey_kernel(d, k, real),
        "relocation by nearest_two, reassign and swap_gains: one form for any d and K",
        "seeding by lower_sq_dist, potential and seed_gains: one form for any d",
    ]


def device_facts() -> dict[str, str]:
    """The current device in words."""
    device = cupy.cuda.Device()
    free, total = device.mem_info
    capability = device.compute_capability
    return {
        "device": f"{device_name()}, compute capability {capability[:-1]}.{capability[-1]}",
        "CUDA": str(Versions.read()),
        "memory": f"{free / 2**30:.1f} of {total / 2**30:.1f} GiB free",
    }


def device_name() -> str:
    return cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)["name"].decode()


def is_stand_in() -> bool:
    """Whether this is hostcuda of our tests, which runs kernels on the CPU: its times mean nothing."""
    return device_name() == "hostcuda"


def device_details() -> dict[str, Any]:
    """The current device in numbers, for a report of a fault."""
    device = cupy.cuda.Device()
    free, total = device.mem_info
    return {
        "name": device_name(),
        "number": device.id,
        "compute_capability": device.compute_capability,
        "memory_free": int(free),
        "memory_total": int(total),
        "attributes": {name: int(value) for name, value in sorted(device.attributes.items())},
    }


@dataclass(frozen=True)
class Versions:
    """Of NVIDIA's driver, as the latest CUDA that it knows, of the CUDA runtime, and of the device if there is one."""

    driver: int  # 12090 is 12.9; 0 where there is no driver
    runtime: int
    capability: int | None  # 86 is 8.6

    @classmethod
    def read(cls) -> Self:
        runtime, capability = cupy.cuda.runtime, None
        try:
            if runtime.getDeviceCount():
                capability = int(cupy.cuda.Device().compute_capability)
        except runtime.CUDARuntimeError:
            pass  # no driver, or one that is too old
        return cls(int(runtime.driverGetVersion()), int(runtime.runtimeGetVersion()), capability)

    def too_old(self) -> list[str]:
        """What is too old to be used, in sentences."""
        found = []
        if self.driver and self.driver // 1000 < self.runtime // 1000:
            extra = "or the extra cuda12, " if self.driver >= 12000 else ""
            found.append(f"The driver is too old for this CuPy: take a newer driver, {extra}and try again.")
        if self.capability is not None and self.capability < OLDEST:
            found.append(f"The device is too old: kernels are made for {_capability(OLDEST)} and later.")
        return found

    def __str__(self) -> str:
        driver = f"driver {version(self.driver)}" if self.driver else "no driver"
        return f"{driver}, runtime {version(self.runtime)}"


def _capability(number: int) -> str:
    return f"compute capability {number // 10}.{number % 10}"


def on_gpu(X: np.ndarray, device: int | None = None) -> Any:
    """A copy of an array on a device, as CuPy's."""
    with cupy.cuda.Device(device):
        return cupy.asarray(X)


def select(device: int | None) -> None:
    """Make a device the current one of this thread; None leaves it as it is."""
    cupy.cuda.Device(device).use()


def seconds_on_device(work: Callable[[], object]) -> float:
    """What `work` takes between two events of the device: all streams have ended before either."""
    begun, ended = cupy.cuda.Event(), cupy.cuda.Event()
    cupy.cuda.runtime.deviceSynchronize()
    begun.record()
    work()
    cupy.cuda.runtime.deviceSynchronize()
    ended.record()
    ended.synchronize()
    return float(cupy.cuda.get_elapsed_time(begun, ended)) / 1000


def seconds_per_round(run: Callable[[int], object], rounds: tuple[int, int], repeats: int) -> float:
    """Seconds of a round by events, the median of several differences of two runs: what both have cancels."""
    few, many = rounds
    run(few)  # compiles, and fills the pools
    pairs = [[seconds_on_device(partial(run, count)) for count in rounds] for _ in range(repeats)]
    return statistics.median((long - short) / (many - few) for short, long in pairs)
