"""What is read of a log's segments: ranges of files for Fetch, records by time for ListOffsets, aborted transactions.

Sources: ``LocalLog.read``, ``LogSegment``, ``UnifiedLog.fetchOffsetByTimestamp``.
"""

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free

from ctrlchan.broker.log._batches cimport FORMAT_0, Batch
from ctrlchan.broker.log._indexes cimport offset_above
from ctrlchan.broker.log._parts cimport DONE, NOT_FOUND, require_mutex
from ctrlchan.broker.log._segment cimport (
    Scan,
    Segment,
    acquire,
    find_batches,
    find_offset,
    find_timestamp,
    largest_timestamp,
    release,
    scan_next,
    start_scan,
)
from ctrlchan.broker.log._segments cimport Segments
from ctrlchan.broker.log._transaction_index cimport AbortedEntry, read_aborted

import os
from typing import NamedTuple

from ctrlchan.broker.log.records import offsets_and_timestamps


class AbortedTransaction(NamedTuple):
    """An entry of .txnindex."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


cdef class FileRange:
    """Whole batches of one file. The file stays open until ``close``, also when its segment is deleted."""

    def __dealloc__(self):
        self.close()

    @property
    def fd(self):
        return self.range.fd

    @property
    def position(self):
        return self.range.position

    @property
    def size(self):
        return self.range.size

    def read(self):
        """Return the bytes."""
        return os.pread(self.range.fd, self.range.size, self.range.position) if self.range.size else b""

    def close(self):
        """Give the file back."""
        if self.range.segment != NULL:
            release(self.range.segment)
            self.range.segment = NULL


# -- by offset


cdef int find_place(Segments segments, int64_t offset, Place* place) noexcept nogil:
    """Find where the batch begins that holds the offset, or the end of the log."""
    cdef Batch batch
    cdef int32_t i
    cdef int result
    require_mutex(segments.mutex)
    for i in range(max(segments.floor(offset), 0), segments.count):
        result = find_offset(segments.at[i], offset, &batch, &place.position)
        if result != NOT_FOUND:
            place.segment = segments.at[i].base_offset
            return result
    place.segment, place.position = segments.active().base_offset, segments.active().size
    return DONE


cdef int find_range(
    Segments segments, int64_t offset, int64_t max_bytes, const Place* limit, int64_t limit_offset, bint whole_first,
    Range* found
) noexcept nogil:
    """Find the whole batches from the one that holds ``offset``, at most ``max_bytes``, none from ``limit`` on.

    ``limit_offset``: of the batch at ``limit``. ``whole_first``: the first batch is found also where it is larger.
    ``found`` is empty before, and stays so where there is nothing to read.
    """
    cdef Segment* segment
    cdef int64_t limit_position, position, end
    cdef bint is_last
    cdef int32_t i
    cdef int result
    require_mutex(segments.mutex)
    for i in range(max(segments.floor(offset), 0), segments.count):
        segment = segments.at[i]
        if segment.base_offset > limit.segment:
            return DONE
        is_last = segment.base_offset == limit.segment
        limit_position = limit.position if is_last else segment.size
        result = find_batches(
            segment, offset, max_bytes, limit_position, limit_offset if is_last else -1, whole_first, &position, &end
        )
        if result == NOT_FOUND:
            continue
        if result != DONE or position >= limit_position:
            return result
        found.is_cut, found.is_older = end < limit_position, not is_last
        if end > position:
            acquire(segment)
            found.segment, found.fd = segment, segment.fd
            found.position, found.size = position, end - position
        return DONE
    return DONE


# -- aborted transactions


cdef int find_end(Segments segments, const Range* records, int64_t log_end, int64_t* end) noexcept nogil:
    """Find an offset that all records of a range are below."""
    cdef int result
    require_mutex(segments.mutex)
    result = offset_above(&records.segment.indexes, records.position + records.size, end)
    if result == DONE and end[0] < 0:
        end[0] = segments.end_of(segments.floor(records.segment.base_offset), log_end)
    return result


cdef int find_aborted(
    Segments segments, int64_t from_offset, int64_t end_offset, AbortedEntry** found, int32_t* count
) noexcept nogil:
    """Find the aborted transactions with records between the offsets. The caller frees ``found``, also after an error."""
    cdef bint is_last = False
    cdef int32_t i
    cdef int result
    require_mutex(segments.mutex)
    for i in range(max(segments.floor(from_offset), 0), segments.count):
        result = read_aborted(&segments.at[i].transactions, from_offset, end_offset, found, count, &is_last)
        if result != DONE or is_last:
            return result
    return DONE


cdef list describe_aborted(AbortedEntry* found, int32_t count):
    """Return an AbortedTransaction for each."""
    cdef int32_t i
    return [
        AbortedTransaction(found[i].producer_id, found[i].first_offset, found[i].last_offset, found[i].last_stable_offset)
        for i in range(count)
    ]


# -- by time


cdef int begin_search(
    Segments segments, int64_t timestamp, bint is_largest, int64_t start_offset, TimeSearch* search
) noexcept nogil:
    """Find the segment of the first record of ``timestamp`` or later, or of the largest timestamp; NULL: there is none.

    As by Kafka, the record of the largest timestamp may lie before ``start_offset``, in a segment that is still there.
    """
    cdef Segment* segment = NULL
    cdef int32_t i
    cdef int result
    require_mutex(segments.mutex)
    search.segment, search.timestamp, search.start_offset = NULL, timestamp, 0 if is_largest else start_offset
    search.is_largest = is_largest
    for i in range(segments.count):
        if is_largest:
            if segment == NULL or segments.at[i].max_timestamp > segment.max_timestamp:
                segment = segments.at[i]
        elif segments.at[i].size > 0 and largest_timestamp(segments.at[i]) >= timestamp:
            segment = segments.at[i]
            break
    if segment == NULL:
        return DONE
    if is_largest:
        search.timestamp = segment.max_timestamp
    result = find_timestamp(segment, search.timestamp, search.start_offset, &search.position)
    if result == DONE:
        acquire(segment)
        search.segment, search.size = segment, segment.size
    return result


cdef object end_search(TimeSearch* search, int* result):
    cdef Scan scan
    cdef Batch batch
    cdef int64_t position = 0
    if search.segment == NULL:
        return None
    try:
        start_scan(&scan, search.segment.fd, search.position, search.size)
        while True:
            with nogil:
                result[0] = scan_next(&scan, &batch, &position)
                while result[0] == DONE and batch.max_timestamp < search.timestamp:
                    result[0] = scan_next(&scan, &batch, &position)
            if result[0] != DONE:
                if result[0] == NOT_FOUND:
                    result[0] = DONE
                return None
            if search.is_largest and batch.magic == FORMAT_0:
                # Without timestamps none is the largest.
                return None
            for offset, found in offsets_and_timestamps(os.pread(search.segment.fd, batch.size, position)):
                if found >= search.timestamp and offset >= search.start_offset:
                    return offset, found, batch.leader_epoch
    finally:
        release(search.segment)
