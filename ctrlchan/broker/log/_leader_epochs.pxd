cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t

from ctrlchan._c.locks cimport Mutex


# The first offset of a leader epoch.
cdef struct EpochStart:
    int32_t epoch
    int64_t offset


# Functions that write return a result (``_parts.pxd``).
@cython.final
cdef class LeaderEpochs:
    # Of the log; NULL while it is loaded, and without a log
    cdef const Mutex* mutex
    cdef EpochStart* starts
    cdef int32_t count
    cdef int32_t room
    cdef bint is_unsaved
    # The folder of the log
    cdef char* folder

    cpdef int32_t latest(self) noexcept nogil
    cdef int assign_epoch(self, int32_t epoch, int64_t start_offset) noexcept nogil
    cdef int assign_batches(self, const uint8_t* data, int64_t size) noexcept nogil
    cdef void find_end(self, int32_t epoch, int64_t log_end_offset, EpochStart* end) noexcept nogil
    cpdef int32_t epoch_of(self, int64_t offset) noexcept nogil
    cpdef void truncate_end(self, int64_t end_offset) noexcept nogil
    cpdef void truncate_start(self, int64_t start_offset) noexcept nogil
    cdef int clear_epochs(self) noexcept nogil
    cdef int save(self) noexcept nogil
    cdef int move(self, const char* folder) noexcept nogil
    cdef EpochStart* copy(self, int32_t* count) noexcept nogil
    # -1: no memory; otherwise whether the epoch is new
    cdef int put(self, int32_t epoch, int64_t start) noexcept nogil
    cdef int32_t count_up_to(self, int64_t offset) noexcept nogil
