# What is read of the segments of a log. All functions but those of ``FileRange`` require the mutex of the log.

from libc.stdint cimport int32_t, int64_t

from ctrlchan.broker.log._segment cimport Segment
from ctrlchan.broker.log._segments cimport Segments
from ctrlchan.broker.log._transaction_index cimport AbortedEntry


cdef enum Isolation:
    # Up to where a reader may read.
    LOG_END = 0
    HIGH_WATERMARK = 1
    LAST_STABLE_OFFSET = 2


# Where a batch begins: in which segment, and at which byte of it.
cdef struct Place:
    int64_t segment
    int64_t position


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


# Where the search for the first record of a time begins. ``segment`` has a reference of the reader's, as that of a Range.
cdef struct TimeSearch:
    Segment* segment
    int64_t position
    int64_t size
    int64_t timestamp
    int64_t start_offset
    # The timestamp is the largest one of the log.
    bint is_largest


cdef class FileRange:
    cdef Range range


cdef int find_place(Segments segments, int64_t offset, Place* place) noexcept nogil
cdef int find_range(
    Segments segments, int64_t offset, int64_t max_bytes, const Place* limit, int64_t limit_offset, bint whole_first,
    Range* found
) noexcept nogil
cdef int find_end(Segments segments, const Range* records, int64_t log_end, int64_t* end) noexcept nogil
cdef int find_aborted(
    Segments segments, int64_t from_offset, int64_t end_offset, AbortedEntry** found, int32_t* count
) noexcept nogil
cdef int begin_search(
    Segments segments, int64_t timestamp, bint is_largest, int64_t start_offset, TimeSearch* search
) noexcept nogil
# Return offset, timestamp and leader epoch of the record that is searched, or None. The mutex is not needed.
cdef object end_search(TimeSearch* search, int* result)
cdef list describe_aborted(AbortedEntry* found, int32_t count)
