"""Devices: which one is current, and what it says of itself."""

import threading

from .. import _hostcuda, _order
from .errors import CUDARuntimeError

__all__ = ["Device"]
_local = threading.local()


def current():
    return getattr(_local, "device", 0)


class Device:
    def __init__(self, device=None):
        _hostcuda.begin()
        self.id = current() if device is None else int(device)
        if not 0 <= self.id < _hostcuda.settings.devices:
            raise CUDARuntimeError(101)

    def use(self):
        _local.device = self.id

    def __enter__(self):
        stack = _local.__dict__.setdefault("stack", [])
        stack.append(current())
        self.use()
        return self

    def __exit__(self, *error):
        _local.device = _local.stack.pop()

    def synchronize(self):
        from .stream import refuse_in_capture

        refuse_in_capture()
        _hostcuda.counts.synchronisations += 1
        _order.host_waits(_order.everything_on(self.id))

    @property
    def attributes(self):
        return dict(_hostcuda.attributes)

    @property
    def mem_info(self):
        from ._pool import pool_of  # what the pool keeps is used, as the driver sees it

        return (_hostcuda.settings.memory - pool_of(self.id).total, _hostcuda.settings.memory)

    @property
    def compute_capability(self):
        a = _hostcuda.attributes
        return f"{a['ComputeCapabilityMajor']}{a['ComputeCapabilityMinor']}"

    def __int__(self):
        return self.id

    def __eq__(self, other):
        return isinstance(other, Device) and self.id == other.id

    def __hash__(self):
        return hash(self.id)

    def __repr__(self):
        return f"<CUDA Device {self.id}>"
