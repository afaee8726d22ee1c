"""Descriptions of segments for the cleaner, and its cleaned segments. Source: ``Cleaner``."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc

from ctrlchan.broker.log._batches cimport Batch
from ctrlchan.broker.log._files cimport modification_time
from ctrlchan.broker.log._indexes cimport bytes_of
from ctrlchan.broker.log._parts cimport DONE, NO_MEMORY, check_result, require_mutex
from ctrlchan.broker.log._segment cimport (
    Scan,
    Segment,
    append,
    flush_segment,
    largest_timestamp,
    make_inactive,
    open_segment,
    release,
    scan_next,
    start_scan,
)
from ctrlchan.broker.log._segments cimport Segments
from ctrlchan.broker.log._transaction_index cimport AbortedEntry, add_aborted

import os
from typing import NamedTuple

from ctrlchan.broker.log import names


class SegmentInfo(NamedTuple):
    """A segment as the cleaner sees it. ``first_timestamp``: the largest of its first batch, -1 where it has none."""

    base_offset: int
    size: int
    first_timestamp: int
    largest_timestamp: int
    modified_ns: int
    index_bytes: int
    time_index_bytes: int


cdef int copy_infos(Segments segments, Info** infos, int32_t* count) noexcept nogil:
    cdef int32_t i
    cdef int result = DONE
    require_mutex(segments.mutex)
    infos[0], count[0] = <Info*>calloc(max(1, segments.count), sizeof(Info)), segments.count
    if infos[0] == NULL:
        return NO_MEMORY
    for i in range(segments.count):
        if result == DONE:
            result = describe_segment(segments.at[i], &infos[0][i])
    return result


cdef int describe_segment(Segment* segment, Info* info) noexcept nogil:
    cdef Scan scan
    cdef Batch batch
    cdef int64_t position
    info.base_offset, info.size, info.first_timestamp = segment.base_offset, segment.size, -1
    start_scan(&scan, segment.fd, 0, segment.size)
    if scan_next(&scan, &batch, &position) == DONE:
        info.first_timestamp = batch.max_timestamp
    info.largest_timestamp = largest_timestamp(segment)
    info.index_bytes, info.time_index_bytes = bytes_of(&segment.indexes.offsets), bytes_of(&segment.indexes.times)
    return modification_time(segment.fd, &info.modified_ns)


cdef list describe_infos(Info* infos, int32_t count):
    """Return a SegmentInfo for each."""
    cdef int32_t i
    return [
        SegmentInfo(
            infos[i].base_offset, infos[i].size, infos[i].first_timestamp, infos[i].largest_timestamp,
            infos[i].modified_ns, infos[i].index_bytes, infos[i].time_index_bytes,
        )
        for i in range(count)
    ]


cdef CleanedSegment create_cleaned(Segments segments, folder, int64_t base_offset):
    """Return a new CleanedSegment; files of an earlier one are deleted. Raises KafkaError."""
    cdef CleanedSegment cleaned = CleanedSegment.__new__(CleanedSegment)
    cdef int error = DONE
    remove_cleaned(folder, base_offset)
    cleaned.folder = folder
    cleaned.segment = open_segment(
        segments.folder, base_offset, b".cleaned", segments.settings.index_interval_bytes, segments.settings.index_bytes,
        0, &error,
    )
    cleaned.check(error)
    return cleaned


def remove_cleaned(folder, base_offset):
    for kind in (names.LOG_SUFFIX, names.INDEX_SUFFIX, names.TIME_INDEX_SUFFIX, names.TXN_INDEX_SUFFIX):
        (folder / f"{names.segment_name(base_offset)}{kind}{names.CLEANED_SUFFIX}").unlink(missing_ok=True)


cdef class CleanedSegment:
    """A segment that the cleaner writes. It has no place in the log until ``Log.replace_segments``."""

    def __dealloc__(self):
        if self.segment != NULL:
            release(self.segment)

    cdef int check(self, int result) except -1:
        return check_result(result, self.folder)

    def append(self, const uint8_t[::1] batch not None, int64_t first_offset, int64_t last_offset, int64_t max_timestamp):
        """Write one batch behind the others. Raises KafkaError."""
        cdef int result
        with nogil:
            result = append(
                self.segment, &batch[0], batch.shape[0], first_offset, last_offset, max_timestamp, last_offset
            )
        self.check(result)

    def add_aborted(self, one):
        """Add an AbortedTransaction to the transaction index. Raises KafkaError."""
        cdef AbortedEntry entry
        entry.producer_id, entry.first_offset, entry.last_offset, entry.last_stable_offset = one
        self.check(add_aborted(&self.segment.transactions, &entry))

    def finish(self, modified_ns):
        """Flush the files; ``modified_ns``: when the last replaced segment was written. Raises KafkaError and OSError."""
        cdef int result
        self.check(make_inactive(self.segment))
        os.utime(self.segment.fd, ns=(modified_ns, modified_ns))
        with nogil:
            result = flush_segment(self.segment)
        self.check(result)

    def abandon(self):
        """Delete the files where the segment has found no place in a log."""
        if self.segment != NULL:
            base_offset = self.segment.base_offset
            release(self.segment)
            self.segment = NULL
            remove_cleaned(self.folder, base_offset)
