from libc.stdint cimport int32_t, int64_t

from ctrlchan.broker.log._log_loading cimport LogLoading
from ctrlchan.broker.log._segment cimport Segment
from ctrlchan.broker.log._transaction_index cimport AbortedEntry


cdef enum Isolation:
    # Up to where a reader may read.
    LOG_END = 0
    HIGH_WATERMARK = 1
    LAST_STABLE_OFFSET = 2


# Whole batches of one file, and the offsets of the log when they were found. ``segment`` is NULL where ``size`` is 0;
# otherwise it has one reference of the reader's, who gives it back with ``release``.
cdef struct Range:
    Segment* segment
    int fd
    int64_t position
    int64_t size
    int64_t start_offset
    int64_t end_offset
    int64_t high_watermark
    int64_t last_stable_offset
    # More could be read but for ``max_bytes``
    bint is_cut
    # More can be read from a later segment
    bint is_older


# What ListOffsets asks for: offset and leader epoch of it, or where the search for a record begins.
cdef struct Found:
    int64_t offset
    int32_t epoch
    Segment* segment
    int64_t position
    int64_t size
    int64_t timestamp
    int64_t start_offset


cdef class LogReads(LogLoading):
    cdef int find_offset_of(self, int64_t timestamp, Found* found) noexcept nogil
    cdef int read_range(
        self, int64_t offset, int64_t max_bytes, Isolation isolation, bint whole_first, Range* found
    ) noexcept nogil
    cdef int find_range(
        self, int64_t offset, int64_t max_bytes, Isolation isolation, bint whole_first, Range* found
    ) noexcept nogil
    cdef int locate(self, int64_t offset, int64_t* base_offset, int64_t* position) noexcept nogil
    cdef int find_aborted(
        self, int64_t offset, const Range* records, AbortedEntry** found, int32_t* count
    ) noexcept nogil
    cdef int collect_aborted(
        self, int64_t from_offset, int64_t end_offset, AbortedEntry** found, int32_t* count
    ) noexcept nogil
