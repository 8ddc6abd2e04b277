"""What is ordered after what: vector clocks over streams, events and the host, and the uses of memory they order.

Work runs here as soon as it is submitted, so nothing goes wrong by itself. Instead every operation gets a number, and a
clock says up to which number each stream is known to have ended: {stream: number}. A stream begins an operation after
all that the host has waited for; an event is the clock of a stream; the host has one clock for all its threads, as what
they tell each other cannot be seen. Streams are (device, pointer); pointer 0 is the null stream of its device.

Memory remembers who used it last. A block that the pool hands out again remembers it too, whoever used it before.
"""

import itertools
import threading
import weakref
import zlib

import numpy as np

from . import _hostcuda

lock = threading.RLock()
_numbers = itertools.count(1)
_host = {}  # the clock of the host
_clocks = {}  # stream -> its clock
_blocking = set()  # streams that wait for the null stream, and it for them
_ended = set()  # streams that nobody has any more
_blocks = {}  # start of a living allocation -> Uses
_copies = []  # host copies that may still be running


class Uses:
    """The last uses of some memory that later ones must be ordered after: {stream: (number, what)}."""

    __slots__ = ("reads", "writes")

    def __init__(self, before=()):
        self.reads, self.writes = {}, {}
        for uses in before:
            for stream, use in (*uses.reads.items(), *uses.writes.items()):
                self.writes[stream] = max(use, self.writes.get(stream, (0, "")))

    def check(self, clock, stream, what, writes):
        for other, (number, earlier) in (*self.writes.items(), *(self.reads.items() if writes else ())):
            if other != stream and other in _clocks and clock.get(other, 0) < number:
                raise _hostcuda.violation(
                    f"{what} on {name(stream)} uses memory that {earlier} on {name(other)} may still be using: "
                    "nothing orders the one after the other."
                )

    def add(self, stream, number, what, writes):
        if writes:
            self.reads, self.writes = {}, {stream: (number, what)}
        else:
            self.reads[stream] = (number, what)


def name(stream):
    device, pointer = stream
    return f"stream 0x{pointer:x} of device {device}" if pointer else f"the null stream of device {device}"


def begun(stream, blocking):
    _clocks[stream] = {}
    if blocking:
        _blocking.add(stream)


def ended(stream):
    """Nobody has the stream any more; its work goes on."""
    _ended.add(stream)


def allocated(start, before):
    """Memory is handed out that these uses were of, in whatever block it lies."""
    _blocks[start] = uses = Uses(before)
    return uses


def freed(start):
    _blocks.pop(start, None)


def submitted(stream, what, uses=()):
    """An operation on a stream that uses memory: [(start, whether it writes)]. Returns its number."""
    with lock:
        clock = _before_the_next(stream)
        found = [(_blocks[start], writes) for start, writes in dict(sorted(uses)).items() if start in _blocks]
        for memory, writes in found:
            memory.check(clock, stream, what, writes)
        clock[stream] = number = next(_numbers)
        for memory, writes in found:
            memory.add(stream, number, what, writes)
        return number


def recorded(stream):
    """The clock of an event."""
    with lock:
        return dict(_before_the_next(stream))


def wait(stream, event):
    """What comes next on a stream waits for an event."""
    with lock:
        _join(_before_the_next(stream), event)


def host_waits(event):
    """The host has waited for an event: host copies before it are done."""
    with lock:
        _join(_host, event)
        done = [copy for copy in _copies if _host.get(copy.stream, 0) >= copy.number]
        _copies[:] = [copy for copy in _copies if copy not in done]
        for stream in [s for s in _ended if _host.get(s, 0) >= _clocks[s].get(s, 0)]:
            _ended.discard(stream)
            _blocking.discard(stream)
            for clock in (_clocks, _host, *_clocks.values()):
                clock.pop(stream, None)
    for copy in done:
        copy.finish()


def everything_on(device):
    """The clock of an event behind all that was submitted to a device."""
    with lock:
        clock = {}
        for stream in [stream for stream in _clocks if stream[0] == device]:
            _join(clock, _clocks[stream])
        return clock


def _before_the_next(stream):
    """The clock of a stream, with what its next operation waits for anyway."""
    clock = _clocks.setdefault(stream, {})
    _join(clock, _host)
    null = (stream[0], 0)
    if stream in _blocking:
        _join(clock, _clocks.get(null, {}))
    elif stream == null:
        for other in _blocking:
            if other[0] == stream[0]:
                _join(clock, _clocks[other])
    return clock


def _join(clock, other):
    for stream, number in other.items():
        if clock.get(stream, 0) < number:
            clock[stream] = number


# ---- host memory, which a copy uses until its stream is waited for
def read_later(stream, number, array, owner=None):
    """A copy reads `array`, which must stay as it is until the host has waited."""
    while owner is None or getattr(owner, "base", None) is not None:
        owner = array if owner is None else owner.base
    if array.size:
        with lock:
            _copies.append(_Read(stream, number, array, owner))


def written_later(stream, number, array, values):
    """A copy writes `values` into `array` by the time the host has waited."""
    array[...] = np.frombuffer(b"\xff" * array.itemsize, array.dtype)  # poison
    with lock:
        _copies.append(_Write(stream, number, array, values))


class _Read:
    """Knows the memory by address and owner, so that memory let go too early is let go."""

    def __init__(self, stream, number, array, owner):
        from .cuda.memory import host_view

        self.stream, self.number, self.owner = stream, number, weakref.ref(owner)
        place = array.__array_interface__["data"][0], array.shape, array.dtype, array.strides
        self.sum = lambda: zlib.crc32(host_view(*place).tobytes())
        self.before = self.sum()

    def finish(self):
        if self.owner() is None or self.sum() != self.before:
            done = "let go of" if self.owner() is None else "changed"
            raise _hostcuda.violation(
                f"the host {done} the source of a copy from the host on {name(self.stream)} before it waited for it."
            )


class _Write:
    def __init__(self, stream, number, array, values):
        self.stream, self.number, self.array, self.values = stream, number, array, values

    def finish(self):
        self.array[...] = self.values
