"""Streams, events and graphs. Work runs when submitted, hence in order; under capture it is recorded."""

import itertools
import threading
import weakref

from .. import _hostcuda
from . import device as _device
from .errors import CUDARuntimeError

__all__ = ["Event", "Stream", "get_current_stream", "get_elapsed_time"]
_local = threading.local()
_pointers = itertools.count(0x100, 0x10)
_streams = weakref.WeakValueDictionary()  # by pointer, for the runtime's functions
_capturing = weakref.WeakSet()  # streams


def refuse_in_capture():
    """Allocations and synchronisations fail in the thread that captures. CuPy's mode leaves other threads alone."""
    if any(stream._capturer == threading.get_ident() for stream in list(_capturing)):
        raise CUDARuntimeError(900)


def submit(action, stream=None):
    """Run `action` in the order of its stream, or record it. It must hold pointers only, as a graph does."""
    stream = stream or get_current_stream()
    if stream._recorded is not None:
        stream._recorded.append(action)
    else:
        action()


def synchronise(stream=None):
    refuse_in_capture()
    _hostcuda.counts.synchronisations += 1


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
        def action():
            _hostcuda.counts.graph_launches += 1
            for each in self._actions:
                each()

        submit(action, stream)

    def upload(self, stream=None):
        pass


class Stream:
    def __init__(self, null=False, non_blocking=False, ptds=False, priority=None):
        self.ptr = 0 if null else next(_pointers)
        self.device_id = _device.current()
        self._recorded = None
        self._before = []
        _streams[self.ptr] = self

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
        return True

    def begin_capture(self, mode=None):
        if self.ptr == 0 or self._recorded is not None:
            raise CUDARuntimeError(900)  # the null stream cannot be captured
        self._recorded, self._capturer = [], threading.get_ident()
        _capturing.add(self)

    def end_capture(self):
        recorded, self._recorded = self._recorded, None
        if recorded is None:
            raise CUDARuntimeError(901)
        _capturing.discard(self)
        return Graph._from(recorded)

    def is_capturing(self):
        return self._recorded is not None

    def record(self, event=None):
        return event or Event()

    def wait_event(self, event):
        pass  # whatever was submitted before has run


class Event:
    def __init__(self, block=False, disable_timing=False, interprocess=False):
        self.ptr = next(_pointers)

    def record(self, stream=None):
        pass

    def synchronize(self):
        synchronise()

    @property
    def done(self):
        return True


def get_elapsed_time(start_event, end_event):
    """Milliseconds, and none of them: hostcuda knows no GPU time."""
    return 0.0


Stream.null = Stream(null=True)


def get_current_stream(device_id=-1):
    device = _device.current() if device_id == -1 else device_id
    return _local.__dict__.get("current", {}).get(device, Stream.null)


def stream_of(pointer):
    return _streams[pointer]
