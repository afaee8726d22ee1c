"""Memory that the parent writes and all senders read: request frames, each once, however many brokers get it.

One file without a name, mapped by everybody, so that the kernel takes it back when the last of them is gone,
however they went. It is sparse and larger than it will ever be filled; what was freed is kept for the next
frame up to a limit and then given back. The first page holds cells; the first of them is the fence.

Every method is called with the channel's lock held, but for writing into a frame that was just allocated.
"""

from __future__ import annotations

import mmap
import os
import tempfile
from bisect import bisect_left
from typing import Final

from ctrlchan.channel.queues._entries import Frame
from ctrlchan.errors import ChannelError

__all__ = ["Frame", "SharedMemory"]

_PAGE: Final = mmap.PAGESIZE
#: Frames up to this size share pages, in slots of powers of two.
_SLOT_MAX: Final = 4096
_SLOT_MIN_BITS: Final = 8
_SLAB: Final = 16 * _PAGE
#: Freed bytes that stay ours: the next frame finds its pages there instead of having them zeroed anew.
_KEEP: Final = 64 * 2**20
#: An address space that is too small for the file asked for is offered halves, down to this.
_SMALLEST: Final = 2**20

#: No epoch is fenced; every epoch is.
UNFENCED: Final = -(2**63)
ALL_FENCED: Final = 2**63 - 1


class SharedMemory:
    """``size`` is what was asked for; less when the platform does not give as much address space."""

    def __init__(self, size: int) -> None:
        self.fd = _nameless_file()
        try:
            self.size, self._map = _map(self.fd, size)
        except BaseException:
            os.close(self.fd)
            raise
        self.view = memoryview(self._map)
        self._cells = self.view[:8].cast("q")
        self.fence = UNFENCED
        self._slots: dict[int, list[int]] = {}
        # Free ranges of whole pages, ascending, never touching each other.
        self._starts = [_PAGE]
        self._lengths = [self.size - _PAGE]
        self._resident_free = 0
        self._slab_bytes = 0
        self._can_punch = _REMOVE is not None
        self._frames: dict[Frame, None] = {}
        #: Bytes of frames that lie here.
        self.used = 0

    @property
    def fence(self) -> int:
        """The highest controller epoch that senders must not send."""
        return self._cells[0]

    @fence.setter
    def fence(self, epoch: int) -> None:
        self._cells[0] = epoch

    @property
    def largest(self) -> int:
        """A frame above this is not worth waiting for: it might never find room."""
        return self.size // 2

    # -- frames

    def make_room(self, frame: Frame, users: int) -> tuple[memoryview | bytearray, int]:
        """Buffer and offset to write a new frame's bytes to. Private memory when there is no room here."""
        frame.users = users
        offset = self._allocate(frame.size)
        if offset < 0:
            frame.private = bytearray(frame.size)
            return frame.private, 0
        frame.place(offset)
        self._frames[frame] = None
        return self.view, offset

    def admit(self, frame: Frame) -> bool:
        """A sender is about to be told of it: it must lie here. False: there is no room yet."""
        return frame.offset >= 0 or self._admit(frame)

    def release(self, frame: Frame, users: int = 1) -> None:
        """So many users less."""
        frame.users -= users
        if frame.users == 0:
            self.free(frame)

    def free(self, frame: Frame) -> None:
        """It has no user any more."""
        frame.private = None
        if frame.offset >= 0:
            del self._frames[frame]
            self._free(frame.offset, frame.size)
            frame.offset = -1

    def _admit(self, frame: Frame) -> bool:
        assert frame.private is not None
        offset = self._allocate(frame.size)
        if offset < 0:
            # Frames that no sender was told of can wait outside; the youngest will be wanted last.
            for other in reversed(list(self._frames)):
                if other.pins == 0:
                    self._evict(other)
                    offset = self._allocate(frame.size)
                    if offset >= 0:
                        break
        if offset < 0:
            return False
        self.view[offset : offset + frame.size] = frame.private
        frame.place(offset)
        self._frames[frame] = None
        return True

    def _evict(self, frame: Frame) -> None:
        frame.private = bytearray(self.view[frame.offset : frame.offset + frame.size])
        del self._frames[frame]
        self._free(frame.offset, frame.size)
        frame.offset = -1

    # -- ranges

    def _allocate(self, size: int) -> int:
        if size <= _SLOT_MAX:
            bits = max(_SLOT_MIN_BITS, (size - 1).bit_length())
            slots = self._slots.get(bits)
            if not slots:
                slab = self._take(_SLAB)
                if slab < 0:
                    return -1
                self._slab_bytes += _SLAB
                # Popped from the end: lower addresses first.
                slots = self._slots[bits] = list(range(slab, slab + _SLAB, 1 << bits))[::-1]
            self.used += 1 << bits
            return slots.pop()
        length = _pages(size)
        offset = self._take(length)
        if offset < 0 and self.used == 0:
            self._reset()
            offset = self._take(length)
        if offset >= 0:
            self.used += length
        return offset

    def _take(self, length: int) -> int:
        """First fit: low addresses are used again and again, and stay resident."""
        for index, free in enumerate(self._lengths):
            if free >= length:
                start = self._starts[index]
                if free == length:
                    del self._starts[index], self._lengths[index]
                else:
                    self._starts[index] = start + length
                    self._lengths[index] = free - length
                self._resident_free = max(0, self._resident_free - length)
                return start
        return -1

    def _free(self, offset: int, size: int) -> None:
        if size <= _SLOT_MAX:
            bits = max(_SLOT_MIN_BITS, (size - 1).bit_length())
            self._slots[bits].append(offset)
            self.used -= 1 << bits
        else:
            length = _pages(size)
            self.used -= length
            self._give(offset, length)
        if self.used == 0 and self._slab_bytes > _KEEP:
            self._reset()

    def _give(self, start: int, length: int) -> None:
        if self._resident_free + length > _KEEP:
            self._punch(start, length)
        else:
            self._resident_free += length
        index = bisect_left(self._starts, start)
        if index < len(self._starts) and start + length == self._starts[index]:
            length += self._lengths[index]
            del self._starts[index], self._lengths[index]
        if index and self._starts[index - 1] + self._lengths[index - 1] == start:
            self._lengths[index - 1] += length
        else:
            self._starts.insert(index, start)
            self._lengths.insert(index, length)

    def _reset(self) -> None:
        """Nothing is in use: a burst of small frames must not shape the memory for ever."""
        self._slots.clear()
        self._slab_bytes = 0
        self._starts, self._lengths = [_PAGE], [self.size - _PAGE]
        self._punch(_PAGE, self.size - _PAGE)
        self._resident_free = 0

    def _punch(self, start: int, length: int) -> None:
        """Give the pages back; where that cannot be done they stay and are used again."""
        if self._can_punch and _REMOVE is not None:
            try:
                self._map.madvise(_REMOVE, start, length)
            except OSError:
                # A file system that keeps no holes.
                self._can_punch = False

    def close(self) -> None:
        """Nothing may be called any more. A frame that is being written this very moment has the mapping to
        itself, which goes with it."""
        del self._cells, self.view, self._map
        os.close(self.fd)


_REMOVE: Final[int | None] = getattr(mmap, "MADV_REMOVE", None)


def _pages(size: int) -> int:
    return -(-size // _PAGE) * _PAGE


def _nameless_file() -> int:
    """Memory as a file where the kernel has that, else a file that was unlinked."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create("ctrlchan", os.MFD_CLOEXEC)
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _map(fd: int, size: int) -> tuple[int, mmap.mmap]:
    size = _pages(size)
    while True:
        try:
            os.ftruncate(fd, size)
            return size, mmap.mmap(fd, size, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
        except OSError as problem:
            if size // 2 < _SMALLEST:
                raise ChannelError(f"no shared memory for requests: {problem}") from problem
            size = _pages(size // 2)
