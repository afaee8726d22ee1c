from libc.stdint cimport int32_t, int64_t, uint64_t

from ctrlchan._c.locks cimport Mutex
from ctrlchan.broker.log._producers cimport ProducerStates
from ctrlchan.broker.log._segment cimport Segment

# The first offsets of segments that were taken out of a log: their files are to be deleted.
cdef struct Removed:
    int64_t* offsets
    int32_t count


# Code without the GIL changes what the mutex guards. Python code that needs several steps holds ``changing``.
cdef class LogFiles:
    cdef Mutex mutex
    # False while the thread that loads the log is the only one that has it: no mutex is needed
    cdef bint is_shared
    # A threading.RLock. Guards ``deleted``, and changes of Python code from their first step to the last; taken first.
    cdef object changing
    cdef Segment** segments
    cdef int32_t count
    cdef int32_t room
    cdef ProducerStates producers
    # The errno or result that took the log offline, 0 while it is online
    cdef int failure
    cdef bint closed_
    # Of the configuration
    cdef int64_t segment_bytes, roll_ms, jitter_ms, index_bytes, index_interval_bytes, flush_messages, flush_ms
    cdef int64_t retention_bytes, retention_ms
    cdef bint deletes_old
    # When the next removed file is to be deleted
    cdef int64_t next_deletion_ms
    # How often segments were removed or batches truncated
    cdef int64_t changes
    # A part of the log waits for ``flush``: a rolled segment, or flush.messages
    cdef bint wants_flush_
    cdef readonly object folder
    cdef readonly object config
    cdef bytes folder_bytes
    cdef const char* c_folder
    cdef uint64_t seed
    # Due time and path of each file that waits for its deletion
    cdef list deleted

    cdef void require_mutex(self) noexcept nogil
    cdef int lock_online(self) noexcept nogil
    cdef int check(self, int result) except -1
    cdef int fail(self, int result) noexcept nogil
    cdef Segment* active(self) noexcept nogil
    cdef int32_t floor_segment(self, int64_t offset) noexcept nogil
    cdef int64_t size_locked(self) noexcept nogil
    cdef int add_segment(self, Segment* segment) noexcept nogil
    cdef Segment* new_segment(self, int64_t base_offset, int64_t now_ms, int* error) noexcept nogil
    cdef int roll_segment(self, int64_t base_offset, int64_t now_ms) noexcept nogil
    cdef int take_out(self, int32_t first, int32_t end, Removed* removed) noexcept nogil
    cdef object delete_later(self, Removed* removed)
    cdef int rename_folder(self, const char* folder) noexcept nogil
    cdef int take_snapshot(self, bint sync) noexcept nogil
