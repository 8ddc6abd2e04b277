"""The tool's own face, which CuPy does not have: settings, counts, planned failures."""

import atexit
import copy
import gc
import json
import os


class Violation(AssertionError):
    """A kernel, or a copy, did what the checks forbid."""


RUNTIME = 12090  # CUDA's version
#: What warps ask of memory, in the order of state.hpp's Counters.
REQUESTS = (
    "load_requests", "load_sectors", "load_least", "store_requests", "store_sectors", "store_least",
    "atomic_requests", "atomic_sectors", "atomic_least", "atomic_turns", "atomic_worst",
    "shared_requests", "shared_wavefronts", "shared_atomic_requests", "shared_atomic_turns", "shared_atomic_worst",
    "requests", "active_lanes",
)  # fmt: skip
BYTES = ("bytes_loaded", "bytes_stored", "atomics", "bytes_atomic")


class Settings:
    """What the environment says. The functions below change it between launches."""

    def __init__(self):
        def number(name, default):
            return int(os.environ.get(f"HOSTCUDA_{name}") or default)

        self.count = number("COUNT", 0) > 0
        self.lines = False  # count by lines of the source, too
        self.check = number("CHECK", 0) > 0 or self.count
        self.global_races = number("CHECK_GLOBAL", 0) > 0
        self.sanitize = number("SANITIZE", 0) > 0
        self.seed = number("SEED", 0)
        self.mma_error = number("MMA_ERROR", 0)  # 1: the worst that is allowed; 2: a wrong layout
        self.devices = number("DEVICES", 1)
        self.device = os.environ.get("HOSTCUDA_DEVICE") or "plain"  # which of _profiles
        self.memory = number("MEMORY", 64 << 30)
        self.sparse = number("SPARSE", 1 << 30)  # arrays from here on are neither poisoned nor tracked
        self.pinned = number("PINNED", 1 << 40)  # bytes that the host lets be pinned
        self.driver = number("DRIVER", RUNTIME)
        self.watchdog = number("WATCHDOG", 1 << 34)  # accesses in a launch, where the device has a watchdog
        self.fail_allocation = number("FAIL_ALLOC", 0)
        self.fail_launch = number("FAIL_LAUNCH", 0)


class Counts:
    """What happened since the last reset."""

    def __init__(self):
        self.kernels, self.violations = {}, []
        self.lines = {}  # of kernels: REQUESTS by the lines of the source, the innermost first, of an access
        directions = ("host_to_device", "device_to_host", "device_to_device")
        self.copies = {direction: {"count": 0, "bytes": 0} for direction in directions}
        self.pinned_bytes = 0  # at the most
        self.allocations = self.synchronisations = self.launches = self.graph_launches = 0

    def kernel(self, name, *counted):
        """Add one launch: its BYTES and REQUESTS, or the first of these."""
        keys = (*BYTES, *REQUESTS) if settings.count else BYTES
        found = self.kernels.setdefault(name, {})
        for key in ("launches", *keys):
            found.setdefault(key, 0)
        found["launches"] += 1
        for key, more in zip(keys, counted, strict=False):
            found[key] = max(found[key], more) if key.endswith("worst") else found[key] + more

    def by_line(self, name, places, counted, address):
        """Add what one launch asks for at one place of some lines, the last time at an address of global memory."""
        found = self.lines.setdefault(name, {}).setdefault(places, dict.fromkeys(REQUESTS, 0) | {"addresses": set()})
        found["addresses"] |= {address} - {0}
        for key, more in zip(REQUESTS, counted, strict=True):
            found[key] = max(found[key], more) if key.endswith("worst") else found[key] + more

    def copy(self, direction, nbytes):
        self.copies[direction]["count"] += 1
        self.copies[direction]["bytes"] += nbytes


settings = Settings()
counts = Counts()
live = {}  # pointer -> (bytes, device) of every allocation that is not freed
_known = set()  # pointers that were alive at the last reset
attributes = {}  # of every device, see _profiles; a test may change them


_process = None  # who began to use CUDA


def begin():
    """What any call into CUDA does first: begin to use it, or fail where it cannot be."""
    from .cuda.errors import CUDARuntimeError

    global _process
    if settings.driver < RUNTIME:
        raise CUDARuntimeError(35)
    if _process is None:
        _process = os.getpid()
    if _process != os.getpid():  # forked
        raise CUDARuntimeError(3)


def used(device):
    """Bytes alive on a device. Of a copy: other threads may allocate meanwhile."""
    return sum(size for size, where in list(live.values()) if where == device)


def stats():
    """The counts as in JSON. `launches` were asked for one by one; a graph's are in its kernels only."""
    found = copy.deepcopy({name: value for name, value in vars(counts).items() if name != "lines"})
    found["live_bytes"] = sum(size for size, _ in live.values())
    found["leaked_bytes"] = leaked_bytes()
    return found


def reset():
    """Start counting anew; what is alive now is no leak later."""
    from .cuda import _pool

    gc.collect()
    counts.__init__()
    _pool.forget_pinned()
    _known.clear()
    _known.update(live)


def leaked_bytes():
    """Bytes allocated since the last reset and still alive though garbage was collected."""
    gc.collect()
    return sum(size for pointer, (size, _) in live.items() if pointer not in _known)


def check_leaks():
    if leaked_bytes():
        raise Violation(f"{leaked_bytes()} bytes of device memory are still alive.")


def set_seed(seed):
    """Choose the order of threads and blocks from the next launch on."""
    from ._compile import runtime

    settings.seed = seed
    runtime().hostcuda_set_seed(seed)


def set_mma_error(mode):
    """How mma.sync errs: 0 as a device does, 1 as much as the bound allows, 2 by a wrong layout of its fragments."""
    from ._compile import runtime

    settings.mma_error = mode
    runtime().hostcuda_set_mma(mode)


def set_check(on, global_races=False):
    """Turn the access checks on or off; modules compiled from now on obey."""
    from ._compile import runtime
    from .cuda.memory import mark_all_written

    if on and not settings.check:
        mark_all_written()  # by kernels nobody watched
    settings.check, settings.global_races = on, on and global_races
    runtime().hostcuda_check_global_races(settings.global_races)


def set_count(on, lines=False):
    """Count what warps ask of memory, or stop. It takes the checks, and turns them on. `counts.lines` is by lines."""
    from ._compile import runtime

    if on and not settings.check:
        set_check(True)
    settings.count, settings.lines = on, on and lines
    runtime().hostcuda_count(on)


def use_device(name):
    """Be another device, one of _profiles; kernels must be loaded anew."""
    from ._profiles import use

    use(name)


def fail_next(allocation=0, launch=0):
    """Make the n-th allocation or launch from now fail; 0 is never."""
    settings.fail_allocation, settings.fail_launch = allocation, launch


def planned(what):
    """True for the event that was to fail."""
    left = getattr(settings, what)
    if left > 0:
        setattr(settings, what, left - 1)
    return left == 1


def violation(message):
    counts.violations.append(message)  # seen in the statistics even if the exception is swallowed
    return Violation(message)


def _write_stats():
    if os.environ.get("HOSTCUDA_STATS"):
        with open(os.environ["HOSTCUDA_STATS"], "w") as file:
            json.dump(stats(), file, indent=1)


atexit.register(_write_stats)
