"""Nearest centres on a GPU: which kernel a shape takes, and the launches that every search shares.

Points with few coordinates are in registers (`assign`), those with 16 or more are multiplied on tensor cores
(`assign_tensor`, then `decide_tensor` for points in doubt), and without these in tiles (`assign_tiled`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from gputabu.backend.arithmetic.certified import floor, unit_for
from gputabu.backend.arithmetic.constants import CUDA_DOUBT_TERMS, DOUBT_FACTOR
from gputabu.backend.cuda import shapes, tensor
from gputabu.backend.cuda.device import DeviceBackend
from gputabu.backend.cuda.points import DeviceChunk
from gputabu.backend.cuda.shapes import REGISTER_D, THREADS
from gputabu.backend.cuda.structs import Doubt, DoubtList, FastCenters, Grid, HalfCenters, Shape
from gputabu.backend.cuda.tensor import ResidentForm, TensorForm
from gputabu.core.caching import cached_property
from gputabu.core.log import log

#: Points in doubt that a list has room for; a chunk of one restart always fits.
LIST = 1 << 22
#: Share of points in doubt from which on halves are doubled: three products cost less than so many decisions.
MUCH_DOUBT = 0.1


class AssignCenters(NamedTuple):
    """Room for centres in the form that `assign` takes: in the type of the points, or as halves."""

    fast: FastCenters
    halves: HalfCenters | None
    form: ResidentForm | TensorForm | None


class CudaAssign(DeviceBackend):
    """The pass that labels come from."""

    #: Halves that a coordinate is made of on tensor cores.
    words = 1

    def doubt(self, offset: np.ndarray, centers: np.ndarray) -> Doubt:
        """How far fast distances to such centres, (..., d), can be trusted."""
        dtype, d = self.points.dtype, self.points.d
        reach = np.abs(centers - offset).reshape(-1, d).max(axis=0)  # (d)
        unit = unit_for(float(reach.max()), dtype)
        fast, exact = (DOUBT_FACTOR * (d + CUDA_DOUBT_TERMS) * np.finfo(t).eps / 2 for t in (dtype, np.float64))
        return Doubt(unit, float(fast), float(exact), floor(d, unit, dtype), tensor.half_unit(reach, dtype))

    def tensor_form(self, k: int) -> ResidentForm | TensorForm | None:
        """How tensor cores multiply with K centres, or None where they do not."""
        d, real = self.points.d, self.points.dtype
        if d < tensor.LEAST_D or not tensor.usable(self.device):
            return None
        return tensor.form_of(tensor.room_of(self.device), Shape(1, k, d), self.n_columns, real, self.words)

    # -- centres -----------------------------------------------------------------------------------

    def empty_fast(self, r: int, k: int) -> FastCenters:
        return FastCenters.empty(r, k, self.points.d, self.points.dtype)

    def empty_centers(self, r: int, k: int) -> AssignCenters:
        """Room for the form of R · K centres that `assign` takes."""
        form = self.tensor_form(k)
        if form is None:
            return AssignCenters(self.empty_fast(r, k), None, None)
        halves = HalfCenters.empty(r, form.words_of(k), form.padded(k), form.tile_n, form.qs, form.stages, form.words)
        return AssignCenters(FastCenters(None, None, None), halves, form)

    def make_fast(self, centers: Any, fast: FastCenters, offset: Any, doubt: Doubt) -> None:
        """Write the fast form of device centres (R, K, d)."""
        r, k, d = centers.shape
        if fast.centers is not None:
            self.launch("fast_centers.cu", "fast_centers", (r,), (centers, fast, offset, k, d, doubt))

    # -- launches ----------------------------------------------------------------------------------

    def launch_assign(
        self, chunk: DeviceChunk, centers: Any, ready: AssignCenters, grid: Grid, labels: Any, totals: Any,
        changed: Any, done: Any, doubt: Doubt,
    ) -> None:  # fmt: skip
        """Assign the points of a chunk; without totals only labels are wanted, and none are there before."""
        if ready.halves is not None:
            self._launch_halves(centers, ready, grid, done, doubt)
        whole = Shape(*centers.shape)
        count = self._restarts_at_once(whole, ready, chunk.n)
        for first in range(0, whole.r, count):
            here = slice(first, first + count)
            shape = whole._replace(r=min(count, whole.r - first))
            some = AssignCenters(_of(ready.fast, here), ready.halves and _of(ready.halves, here), ready.form)
            for part in self.parts(chunk, self._work(shape, ready)):
                args = (
                    labels[here], None if totals is None else totals[here], changed[here],
                    None if done is None else done[here], grid, self.rows_of(part), shape,
                )  # fmt: skip
                if some.halves is None:
                    self._launch_plain(part, centers[here], some.fast, args, doubt.unit)
                else:
                    self._launch_tensor(part, centers[here], some, args, doubt)

    def _work(self, shape: Shape, ready: AssignCenters) -> int:
        """Multiply-adds for a point."""
        if ready.form is None:
            return shapes.assign_work(shape)
        return shape.r * ready.form.padded(shape.k) * ready.form.depth

    def _restarts_at_once(self, shape: Shape, ready: AssignCenters, n: int) -> int:
        """How many of R restarts one launch has: what memory and, by one point per thread, a watchdog allow."""
        r, k, d = shape
        if self.watched:
            r = min(r, max(1, shapes.LAUNCH_WORK // (self.blocks * THREADS * k * d)))
        if isinstance(ready.form, ResidentForm):
            room, real = tensor.room_of(self.device), self.points.dtype
            while r > 1 and ready.form.shared(shape._replace(r=r), self.n_columns, real, private=False) > room:
                r -= 1
            return r
        if ready.form is not None:
            return min(r, max(1, LIST // n))
        if d > REGISTER_D:
            return r
        room = self.room("assign.cu", "assign", D=d)
        return shapes.restarts_at_once(room, shape._replace(r=r), self.n_columns, self.points.dtype)

    def _launch_plain(
        self, chunk: DeviceChunk, centers: Any, fast: FastCenters, args: tuple[Any, ...], unit: float
    ) -> None:
        totals, shape = args[1], args[-1]
        args = (chunk.X, chunk.weights, centers, fast, *args, unit, totals is None)
        sizes = (chunk.n, shape, self.n_columns, self.points.dtype, self.blocks, totals is not None)
        if shape.d > REGISTER_D:
            file, name = "assign_tiled.cu", "assign_tiled"
            tiled = shapes.assign_tiled(self.room(file, name), *sizes)
            self.launch(file, name, tiled.grid, (*args, tiled.private), tiled.shared)
        else:
            form = shapes.assign(self.room("assign.cu", "assign", D=shape.d), *sizes)
            moved = {} if unit == 1.0 else {"MOVED": 1}
            self.launch("assign.cu", "assign", form.grid, (*args, form.span, form.private), form.shared,
                        form.threads, D=shape.d, **moved)  # fmt: skip

    # -- tensor cores ------------------------------------------------------------------------------

    def _launch_halves(self, centers: Any, ready: AssignCenters, grid: Grid, done: Any, doubt: Doubt) -> None:
        """Write the halves of device centres (R, K, d)."""
        shape = Shape(*centers.shape)
        assert ready.halves is not None
        halves = ready.halves._replace(unit=doubt.half)
        self.launch("half_centers.cu", "half_centers", self.spread(32 * shape.r * shape.k),
                    (centers, halves, grid.offset, done, shape))  # fmt: skip

    def _launch_tensor(
        self, chunk: DeviceChunk, centers: Any, ready: AssignCenters, args: tuple[Any, ...], doubt: Doubt
    ) -> None:
        """Certified labels, and then those that are in doubt."""
        form, totals, shape = ready.form, args[1], args[-1]
        assert form is not None
        assert ready.halves is not None
        r, real, columns = shape.r, self.points.dtype, self.n_columns
        doubtful = self._doubt_list(r, chunk.n, rows=isinstance(form, TensorForm))
        tiles = -(-chunk.n // form.tile_m)
        args = (chunk.X, chunk.weights, centers, ready.halves._replace(unit=doubt.half), *args,
                tensor.half_doubt(form), doubtful, totals is None)  # fmt: skip
        if isinstance(form, ResidentForm):
            share = tensor.room_of(self.device) // form.defines["MIN_BLOCKS"]
            private = totals is not None and form.shared(shape, columns, real, private=True) <= share
            shared = form.shared(shape, columns, real, private)
            self.launch("assign_resident.cu", "assign_resident", (min(tiles, self.blocks),), (*args, private), shared,
                        32 * form.warps, **form.defines)  # fmt: skip
            return
        for name, listed in (("assign_tensor", False), ("decide_tensor", True)):
            share = tensor.room_of(self.device) // form.defines["MIN_BLOCKS"]
            resident = form.shared(shape, columns, real, True, False, listed) <= share
            private = not listed and totals is not None
            private = private and form.shared(shape, columns, real, resident, True, listed) <= share
            shared = form.shared(shape, columns, real, resident, private, listed)
            grid = (max(1, min(tiles, self.blocks // r)), r) if listed else (min(tiles, self.blocks),)
            self.launch("assign_tensor.cu", name, grid, (*args, private), shared,
                        **form.defines, RESIDENT=int(resident))  # fmt: skip

    def _doubt_list(self, r: int, n: int, rows: bool) -> DoubtList:
        """A list for n points of R restarts, or only their number. Lists too small are kept: a graph may know them."""
        lists = self.lists
        if not lists or len(lists[-1].count) < r or len(lists[-1].rows) < rows * r * n:
            lists.append(DoubtList.empty(r, rows * n))
        self.listed = r * n  # of the last pass
        return lists[-1]

    @cached_property
    def lists(self) -> list[DoubtList]:
        """Lists of points in doubt so far."""
        return []

    def adapted(self, centers: Any, ready: AssignCenters, offset: Any, doubt: Doubt) -> AssignCenters:
        """What the next pass with as many centres should take, behind a first one: more precision if that left much."""
        r, k, _ = centers.shape
        if ready.form is None or self.words > 1:
            return ready
        share = int(self.lists[-1].seen.get()[:r].sum()) / self.listed
        if share <= MUCH_DOUBT:
            return ready
        log.info("%.0f %% of the points were in doubt on tensor cores: halves are doubled", 100 * share)
        self.words = 2
        ready = self.empty_centers(r, k)
        self.make_fast(centers, ready.fast, offset, doubt)
        return ready


def _of(arrays: Any, restarts: slice) -> Any:
    """A tuple of arrays with an axis of restarts, for some of them."""
    return type(arrays)(
        *(value if value is None or isinstance(value, (int, float)) else value[restarts] for value in arrays)
    )
