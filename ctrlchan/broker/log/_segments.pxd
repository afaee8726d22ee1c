cimport cython
from libc.stdint cimport int32_t, int64_t, uint64_t

from ctrlchan._c.locks cimport Mutex
from ctrlchan.broker.log._segment cimport Segment


# Of the configuration of a log.
cdef struct SegmentSettings:
    int64_t segment_bytes
    int64_t roll_ms
    int64_t jitter_ms
    # Sizes of indexes, from the next segment on
    int64_t index_bytes
    int64_t index_interval_bytes
    # Whether a new segment reserves its disk space
    bint preallocates


# The first offsets of segments that were taken out of a log: their files are to be deleted.
cdef struct Removed:
    int64_t* offsets
    int32_t count


# Segments with a reference each of the one who flushes them.
cdef struct Held:
    Segment** segments
    int32_t count


@cython.final
cdef class Segments:
    # Of the log; NULL while it is loaded
    cdef const Mutex* mutex
    cdef char* folder
    # In the order of their offsets. The last one is the active one, which gets what is appended.
    cdef Segment** at
    cdef int32_t count
    cdef int32_t room
    # How often segments were removed or batches truncated
    cdef int64_t changes
    cdef SegmentSettings settings
    cdef uint64_t seed

    cdef Segment* active(self) noexcept nogil
    cdef int32_t floor(self, int64_t offset) noexcept nogil
    cdef int64_t end_of(self, int32_t i, int64_t log_end) noexcept nogil
    cdef int64_t size_from(self, int32_t first) noexcept nogil
    cdef int64_t* copy_offsets(self, int32_t* count) noexcept nogil
    cdef int add(self, int64_t base_offset, int64_t now_ms) noexcept nogil
    cdef int roll(self, int64_t base_offset, int64_t now_ms) noexcept nogil
    cdef int take_out(self, int32_t first, int32_t end, Removed* removed) noexcept nogil
    cdef int truncate(self, int64_t offset, int64_t now_ms, Removed* removed) noexcept nogil
    cdef int replace(self, Segment* segment, const Removed* replaced, bint* is_done) noexcept nogil
    cdef int hold(self, int64_t from_offset, int32_t end, Held* held) noexcept nogil
    cdef int set_folder(self, const char* folder) noexcept nogil
    cdef void close(self) noexcept nogil


# Take offsets from Python code; the caller frees them. Return them to Python code, and free them.
cdef int set_offsets(Removed* removed, offsets) except -1
cdef list take_offsets(Removed* removed)
# Flush segments, and give their references and the memory back. The mutex is not needed.
cdef int flush_held(Held* held) noexcept nogil
