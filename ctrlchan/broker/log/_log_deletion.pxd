from libc.stdint cimport int32_t, int64_t

from ctrlchan.broker.log._log_files cimport Removed
from ctrlchan.broker.log._log_reads cimport LogReads
from ctrlchan.broker.log._segment cimport Segment


cdef class CleanedSegment:
    # NULL: it has found its place in a log
    cdef Segment* segment
    cdef object log

    cdef int check(self, int result) except -1


cdef class LogDeletion(LogReads):
    # The lowest offset of a truncation
    cdef int64_t lowest_truncation

    cdef int take_out_old(self, int64_t now_ms, Removed* removed) noexcept nogil
    cdef int take_out_first(self, int32_t number, int64_t now_ms, Removed* removed) noexcept nogil
    cdef bint may_delete(self, int32_t i) noexcept nogil
    cdef int truncate_segments(self, int64_t offset, int64_t now_ms, Removed* removed) noexcept nogil
    cdef int begin_again(self, int64_t offset, int64_t start_offset, int64_t now_ms, Removed* removed) noexcept nogil
    cdef void set_end(self, int64_t offset) noexcept nogil
    cdef int put_in_place(self, CleanedSegment cleaned, const Removed* replaced, bint* is_done) noexcept nogil
