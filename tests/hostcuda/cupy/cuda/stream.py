"""Streams, events and graphs. Work runs when submitted, hence in order; under capture it is recorded."""

import itertools
import threading
import weakref

from .. import _hostcuda, _order
from . import device as _device
from .errors import CUDARuntimeError

__all__ = ["Event", "Stream", "get_current_stream", "get_elapsed_time"]
_local = threading.local()
_pointers = itertools.count(0x100, 0x10)
_streams = weakref.WeakValueDictionary()  # by pointer, for the runtime's functions
_capturing = weakref.WeakSet()  # streams


def refuse_in_capture():
    """Allocations and synchronisations fail in a thread that captures, as in the driver's mode for that."""
    mine = [stream for stream in list(_capturing) if stream._capturer == threading.get_ident()]
    for stream in mine:
        stream._break_capture()
    if mine:
        raise CUDARuntimeError(900)


def submit(action, stream=None, what="", uses=()):
    """Run `action` in the order of its stream, or record it. It must hold pointers only, as a graph does.

    `uses` are the arrays that it needs, see `_order`. Returns the number of the operation; None if it is recorded.
    """
    stream = stream or get_current_stream()
    if stream._broken:
        raise CUDARuntimeError(901)
    if stream._recorded is not None:
        return stream._recorded.append((action, what, uses))
    number = _order.submitted(stream._key, what, uses)
    action()
    return number


def synchronise(stream=None):
    refuse_in_capture()
    _hostcuda.counts.synchronisations += 1
    _order.host_waits(_order.recorded((stream or get_current_stream())._key))


class Graph:
    """The actions of one capture."""

    def __init__(self, *args, **kwargs):
        raise RuntimeError("A graph comes from Stream.end_capture().")

    @classmethod
    def _from(cls, actions):
        graph = cls.__new__(cls)
        graph._actions = tuple(actions)
        return graph

    def launch(self, stream=None):
        stream = stream or get_current_stream()

        def action():
            _hostcuda.counts.graph_launches += 1
            for each, what, uses in self._actions:
                _order.submitted(stream._key, what, uses)
                each()

        submit(action, stream)

    def upload(self, stream=None):
        pass


class Stream:
    def __init__(self, null=False, non_blocking=False, ptds=False, priority=None):
        self.ptr = 0 if null else next(_pointers)
        self.device_id = _device.current()
        self._recorded, self._broken = None, False
        self._before = []
        _streams[self.ptr] = self
        if not null:
            _order.begun(self._key, not non_blocking)
            weakref.finalize(self, _order.ended, self._key).atexit = False

    @property
    def _key(self):
        """As `_order` knows it: the null stream is that of the current device."""
        return (self.device_id if self.ptr else _device.current(), self.ptr)

    def use(self):
        _local.__dict__.setdefault("current", {})[_device.current()] = self
        return self

    def __enter__(self):
        self._before.append(get_current_stream())
        return self.use()

    def __exit__(self, *error):
        self._before.pop().use()

    def synchronize(self):
        synchronise(self)

    @property
    def done(self):
        _order.host_waits(_order.recorded(self._key))
        return True

    def begin_capture(self, mode=None):
        if self.ptr == 0 or self._recorded is not None:
            raise CUDARuntimeError(900)  # the null stream cannot be captured
        self._recorded, self._capturer = [], threading.get_ident()
        _capturing.add(self)

    def end_capture(self):
        (recorded, broken), (self._recorded, self._broken) = (self._recorded, self._broken), (None, False)
        if recorded is None:
            raise CUDARuntimeError(401)
        _capturing.discard(self)
        if broken:
            raise CUDARuntimeError(901)
        return Graph._from(recorded)

    def is_capturing(self):
        if self._broken:  # as CuPy says it
            raise RuntimeError("the stream was capturing, but an error has invalidated the capture sequence")
        return self._recorded is not None

    def _break_capture(self):
        """Whatever fails while a stream captures leaves nothing that could be replayed."""
        self._broken = self._recorded is not None

    def record(self, event=None):
        event = event or Event()
        event.record(self)
        return event

    def wait_event(self, event):
        _order.wait(self._key, event._clock)


class Event:
    def __init__(self, block=False, disable_timing=False, interprocess=False):
        self.ptr = next(_pointers)
        self._clock = {}  # one that was never recorded is waited for at once

    def record(self, stream=None):
        self._clock = _order.recorded((stream or get_current_stream())._key)

    def synchronize(self):
        refuse_in_capture()
        _hostcuda.counts.synchronisations += 1
        _order.host_waits(self._clock)

    @property
    def done(self):
        _order.host_waits(self._clock)
        return True


def get_elapsed_time(start_event, end_event):
    """Milliseconds, and none of them: hostcuda knows no GPU time."""
    return 0.0


Stream.null = Stream(null=True)


def get_current_stream(device_id=-1):
    device = _device.current() if device_id == -1 else device_id
    return _local.__dict__.get("current", {}).get(device, Stream.null)


def stream_of(pointer):
    """A stream by its pointer; 1 is the null stream, too."""
    return Stream.null if pointer in (0, 1) else _streams[pointer]
