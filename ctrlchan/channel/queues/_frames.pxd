from libc.stdint cimport int32_t, int64_t


cdef class Frame:
    cdef readonly int64_t size
    cdef readonly int32_t prefix_size
    cdef readonly int32_t epoch_at
    cdef readonly int32_t controller_epoch
    cdef readonly int32_t expect_size
    cdef readonly bytes expect
    cdef readonly object success
    cdef public int64_t users
    cdef public int64_t pins
    cdef readonly int64_t offset
    cdef public object private
    # The part of a SEND command that is the same for every broker.
    cdef bytes rest
    # Where it lies while ``offset`` is not -1.
    cdef FrameMemory memory

    cdef place(self, FrameMemory memory, int64_t offset)


cdef class FrameMemory:
    cdef public object view
    cdef object map
    cdef readonly int64_t size
    cdef dict slots
    cdef list starts
    cdef list lengths
    cdef int64_t resident_free
    cdef int64_t slab_bytes
    cdef int64_t used_bytes
    cdef bint can_punch
    # Frames that lie here and have users, oldest first: Frame -> None.
    cdef dict frames
    # Ranges of frames that were freed without ever having a user: (offset, size).
    cdef list dropped

    cpdef tuple make_room(self, Frame frame, int64_t users=*)
    cpdef add_users(self, Frame frame, int64_t users=*)
    cpdef release(self, Frame frame, int64_t users=*)
    cpdef free(self, Frame frame)
    cpdef bint admit(self, Frame frame) except -1
    cdef move_in(self, Frame frame, int64_t offset)
    cdef evict(self, Frame frame)
    cdef free_dropped(self)
    cdef int64_t allocate(self, int64_t size) except -2
    cdef int64_t take(self, int64_t length)
    cdef give_back(self, int64_t offset, int64_t size)
    cdef give_range(self, int64_t start, int64_t length)
    cdef reset(self)
    cdef punch(self, int64_t start, int64_t length)
