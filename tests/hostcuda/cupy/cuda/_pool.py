"""CuPy's memory pool, as far as it decides what is free and who gets it.

The driver gives whole blocks. A freed one is kept in the arena of the stream it was allocated on, and handed out there
again: the smallest that is large enough, split. The driver counts what is kept as used, and so does `mem_info`. What a
split left over goes back only once it is whole. Addresses are not used again (hooks.cpp), but a chunk remembers who
used it.
"""

import bisect
import gc

from .. import _hostcuda, _order
from .._compile import lock


def _size(chunk):
    return chunk.size


class Chunk:
    """A part of a block; its neighbours are parts of the same."""

    __slots__ = ("arena", "before", "next", "previous", "size")

    def __init__(self, size, arena):
        self.size, self.arena = size, arena
        self.before, self.previous, self.next = [], None, None

    def split(self, size):
        """Cut off what is behind `size`; None if that is nothing."""
        if self.size == size:
            return None
        rest = Chunk(self.size - size, self.arena)
        rest.before, rest.previous, rest.next = list(self.before), self, self.next
        if rest.next:
            rest.next.previous = rest
        self.size, self.next = size, rest
        return rest

    def swallow_next(self):
        other = self.next
        self.size, self.next = self.size + other.size, other.next
        self.before = [_order.Uses([*self.before, *other.before])]
        if self.next:
            self.next.previous = self


class Pool:
    """The memory of one device."""

    def __init__(self):
        self.total = self.used = 0
        self._arenas = {}  # stream -> its free chunks, by size
        self._freed = []  # not yet in an arena: a chunk may be freed at any moment, the collector's too

    def allocate(self, size, stream, bound):
        """A chunk of `size` bytes, or None."""
        with lock:
            self._sort()
            if self.total > bound:  # a test has made the device smaller
                self.give_back()
            arena = self._arenas.setdefault(stream, [])
            place = bisect.bisect_left(arena, size, key=_size)
            if place < len(arena):
                chunk = arena.pop(place)
                rest = chunk.split(size)
                if rest:
                    bisect.insort(arena, rest, key=_size)
            else:
                chunk = self._from_driver(size, stream, bound)
            self.used += chunk.size if chunk else 0
            return chunk

    def free(self, chunk):
        self.used -= chunk.size
        self._freed.append(chunk)

    def give_back(self, stream=None):
        """Return whole blocks to the driver, of one arena or all."""
        with lock:
            self._sort()
            for arena in self._arenas.values() if stream is None else [self._arenas.get(stream, [])]:
                whole = [chunk for chunk in arena if chunk.previous is None and chunk.next is None]
                arena[:] = [chunk for chunk in arena if chunk not in whole]
                self.total -= sum(map(_size, whole))

    def _from_driver(self, size, stream, bound):
        for collect in (False, True):
            if self.total + size > bound:
                self.give_back()
            if self.total + size > bound and collect:
                gc.collect()
                self.give_back()
        if self.total + size > bound:
            return None
        self.total += size
        return Chunk(size, stream)

    def _sort(self):
        while self._freed:
            chunk = self._freed.pop()
            arena = self._arenas[chunk.arena]
            while chunk.next in arena:
                arena.remove(chunk.next)
                chunk.swallow_next()
            while chunk.previous in arena:
                arena.remove(chunk.previous)
                chunk = chunk.previous
                chunk.swallow_next()
            bisect.insort(arena, chunk, key=_size)


_pools = {}


def pool_of(device):
    return _pools.setdefault(device, Pool())


# ---- pinned memory: buffers of one size are kept for the next of that size, and never given back by themselves
UNIT = 512
_pinned = {}  # size -> how many are free
held = 0  # bytes that are pinned


def pin(size):
    """Whether so much can be pinned; rounded, as `unpin` wants it."""
    global held
    size = -(-size // UNIT) * UNIT
    with lock:
        if _pinned.get(size):
            _pinned[size] -= 1
            return size
        if held + size > _hostcuda.settings.pinned:
            _give_back_pinned()
        if held + size > _hostcuda.settings.pinned:
            return None
        held += size
        _hostcuda.counts.pinned_bytes = max(_hostcuda.counts.pinned_bytes, held)
        return size


def unpin(size):
    with lock:
        _pinned[size] = _pinned.get(size, 0) + 1


def forget_pinned():
    """Give back what is free, and count from what is in use."""
    with lock:
        _give_back_pinned()
        _hostcuda.counts.pinned_bytes = held


def _give_back_pinned():
    global held
    held -= sum(size * count for size, count in _pinned.items())
    _pinned.clear()
