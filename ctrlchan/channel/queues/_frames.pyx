"""Frames, and the memory that they lie in.

Written in Cython because a signal handler may interrupt a call of the channel between any two Python
instructions. No method of ``FrameMemory`` runs Python code, so no method is ever interrupted half-way.

A frame without users is freed with its last reference, for example if the call that made it was interrupted.
"""

import mmap
from bisect import bisect_left

cimport cython

from ctrlchan.channel.wire import records

cdef int64_t PAGE = mmap.PAGESIZE

cdef enum:
    # Frames up to this size share pages, in slots of powers of two.
    SLOT_MAX = 4096
    SLOT_MIN_BITS = 8
    # Freed bytes that stay ours (64 MiB): the next frame finds its pages there instead of having them zeroed.
    KEEP = 67108864

cdef int64_t SLAB = 16 * PAGE
# Gives the pages of a shared mapping back; None where the system cannot.
cdef object REMOVE = getattr(mmap, "MADV_REMOVE", None)
cdef object pack_rest = records.COMMAND_REST.pack


@cython.no_gc
@cython.auto_pickle(False)
cdef class Frame:
    """An encoded request without correlation id and broker epoch, in shared or private memory.

    ``size`` bytes, of which ``prefix_size`` differ from broker to broker, the broker epoch at ``epoch_at``
    (0: none). ``expect``: the response bytes that mean ``success``; empty: every response must be decoded.

    ``users``: number of requests to single brokers that have no outcome yet, or that a sender may still be
    writing. ``pins``: how many of them were handed to a sender; a frame with pins cannot move.
    ``offset``: in shared memory, or -1; then ``private`` may hold the bytes, a bytearray or None.
    """

    def __init__(
        self, size, prefix_size, epoch_at, controller_epoch, bytes expect not None=b"", success=None
    ):
        self.size = size
        self.prefix_size = prefix_size
        self.epoch_at = epoch_at
        self.controller_epoch = controller_epoch
        self.expect = expect
        self.expect_size = len(expect)
        self.success = success
        self.offset = -1

    @property
    def has_bytes(self):
        """Whether the frame has bytes in memory; it has them until its last user is gone."""
        return self.offset >= 0 or self.private is not None

    def __dealloc__(self):
        if self.memory is not None and self.offset >= 0:
            # Any thread may come here; the memory takes the range back with the lock held.
            self.memory.dropped.append((self.offset, self.size))

    cdef place(self, FrameMemory memory, int64_t offset):
        """Note that the frame now lies in shared memory."""
        self.private = None
        self.memory = memory
        self.offset = offset
        self.rest = pack_rest(
            offset, self.size, self.prefix_size, self.controller_epoch, self.expect, 0
        )


cdef class FrameMemory:
    """Allocates memory for frames in ``mapping``: ``size`` bytes, without its first page.

    Every method is called with the channel's lock held.
    """

    def __init__(self, mapping, int64_t size):
        self.map = mapping
        self.view = memoryview(mapping)
        self.size = size
        self.slots = {}
        # Free ranges of whole pages, ascending, never touching each other.
        self.starts = [PAGE]
        self.lengths = [size - PAGE]
        self.can_punch = REMOVE is not None
        self.frames = {}
        self.dropped = []

    @property
    def used(self):
        """Bytes in use by frames."""
        self.free_dropped()
        return self.used_bytes

    # -- frames

    cpdef tuple make_room(self, Frame frame, int64_t users=0):
        """Return buffer and offset for the bytes of a new frame: private memory if there is no room."""
        cdef int64_t offset
        self.free_dropped()
        offset = self.allocate(frame.size)
        if offset < 0:
            frame.private = bytearray(frame.size)
            frame.users = users
            return frame.private, 0
        frame.place(self, offset)
        self.add_users(frame, users)
        return self.view, offset

    cpdef add_users(self, Frame frame, int64_t users=1):
        """Add users to a frame in shared or private memory."""
        frame.users += users
        if frame.users > 0 and frame.offset >= 0:
            self.frames[frame] = None

    cpdef release(self, Frame frame, int64_t users=1):
        """Remove users of a frame; without users its memory is freed."""
        frame.users -= users
        if frame.users == 0:
            self.free(frame)

    cpdef free(self, Frame frame):
        """Free the memory of a frame that has no user."""
        frame.private = None
        if frame.offset >= 0:
            self.frames.pop(frame, None)
            self.give_back(frame.offset, frame.size)
            frame.offset = -1

    cpdef bint admit(self, Frame frame) except -1:
        """Move the frame into shared memory, where senders can read it. False: there is no room yet."""
        cdef int64_t offset
        cdef Frame other
        if frame.offset >= 0:
            return True
        assert frame.private is not None
        self.free_dropped()
        offset = self.allocate(frame.size)
        if offset < 0:
            # Frames that no sender has can move out; the newest one will be needed last.
            for one in reversed(list(self.frames)):
                other = <Frame>one
                if other.pins == 0:
                    self.evict(other)
                    offset = self.allocate(frame.size)
                    if offset >= 0:
                        break
        if offset < 0:
            return False
        self.move_in(frame, offset)
        return True

    cdef move_in(self, Frame frame, int64_t offset):
        self.view[offset : offset + frame.size] = frame.private
        frame.place(self, offset)
        self.frames[frame] = None

    cdef evict(self, Frame frame):
        frame.private = bytearray(self.view[frame.offset : frame.offset + frame.size])
        del self.frames[frame]
        self.give_back(frame.offset, frame.size)
        frame.offset = -1

    cdef free_dropped(self):
        while self.dropped:
            offset, size = self.dropped.pop()
            self.give_back(offset, size)

    # -- ranges

    cdef int64_t allocate(self, int64_t size) except -2:
        cdef int64_t slab, length, offset
        cdef int bits
        cdef list slots
        if size <= SLOT_MAX:
            bits = slot_bits(size)
            slots = <list>self.slots.get(bits)
            if not slots:
                slab = self.take(SLAB)
                if slab < 0:
                    return -1
                self.slab_bytes += SLAB
                # Popped from the end: lower addresses first.
                slots = self.slots[bits] = list(range(slab, slab + SLAB, 1 << bits))[::-1]
            self.used_bytes += 1 << bits
            return slots.pop()
        length = pages(size)
        offset = self.take(length)
        if offset < 0 and self.used_bytes == 0:
            self.reset()
            offset = self.take(length)
        if offset >= 0:
            self.used_bytes += length
        return offset

    cdef int64_t take(self, int64_t length):
        """Allocate by first fit: low addresses are used again and again, and stay resident."""
        cdef Py_ssize_t index
        cdef int64_t start, free
        for index in range(len(self.lengths)):
            free = self.lengths[index]
            if free >= length:
                start = self.starts[index]
                if free == length:
                    del self.starts[index], self.lengths[index]
                else:
                    self.starts[index] = start + length
                    self.lengths[index] = free - length
                self.resident_free = max(0, self.resident_free - length)
                return start
        return -1

    cdef give_back(self, int64_t offset, int64_t size):
        cdef int64_t length
        cdef int bits
        if size <= SLOT_MAX:
            bits = slot_bits(size)
            self.slots[bits].append(offset)
            self.used_bytes -= 1 << bits
        else:
            length = pages(size)
            self.used_bytes -= length
            self.give_range(offset, length)
        if self.used_bytes == 0 and self.slab_bytes > KEEP:
            self.reset()

    cdef give_range(self, int64_t start, int64_t length):
        cdef Py_ssize_t index
        if self.resident_free + length > KEEP:
            self.punch(start, length)
        else:
            self.resident_free += length
        index = bisect_left(self.starts, start)
        if index < len(self.starts) and start + length == self.starts[index]:
            length += self.lengths[index]
            del self.starts[index], self.lengths[index]
        if index and self.starts[index - 1] + self.lengths[index - 1] == start:
            self.lengths[index - 1] += length
        else:
            self.starts.insert(index, start)
            self.lengths.insert(index, length)

    cdef reset(self):
        """Make all memory one free range again; nothing is in use."""
        self.slots.clear()
        self.slab_bytes = 0
        self.starts, self.lengths = [PAGE], [self.size - PAGE]
        self.punch(PAGE, self.size - PAGE)
        self.resident_free = 0

    cdef punch(self, int64_t start, int64_t length):
        """Give pages back to the system. Where that is impossible they stay and are used again."""
        if self.can_punch:
            try:
                self.map.madvise(REMOVE, start, length)
            except OSError:
                # The file system does not support holes.
                self.can_punch = False

    def close(self):
        """Forget all frames; no other method may be called after this.

        A caller that is still writing a frame keeps the mapping alive.
        """
        self.frames.clear()
        self.dropped.clear()
        self.view = self.map = None


cdef int64_t pages(int64_t size) noexcept:
    return (size + PAGE - 1) // PAGE * PAGE


cdef int slot_bits(int64_t size) noexcept:
    cdef int bits = SLOT_MIN_BITS
    while ((<int64_t>1) << bits) < size:
        bits += 1
    return bits
