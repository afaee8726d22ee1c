"""Reading of a log: ranges of its files for Fetch, offsets for ListOffsets, aborted transactions."""

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport free

from ctrlchan._c.error_codes cimport KAFKA_STORAGE_ERROR, NONE, OFFSET_OUT_OF_RANGE
from ctrlchan._c.locks cimport lock, unlock
from ctrlchan.broker.log._batches cimport Batch
from ctrlchan.broker.log._log_loading cimport LogLoading
from ctrlchan.broker.log._indexes cimport offset_above
from ctrlchan.broker.log._parts cimport DONE, NOT_FOUND
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
from ctrlchan.broker.log._transaction_index cimport AbortedEntry, read_aborted

import os
from typing import NamedTuple

from ctrlchan.broker.log.records import offsets_and_timestamps
from ctrlchan.errors import KafkaError

cdef enum:
    LATEST_OFFSET = -1
    EARLIEST_OFFSET = -2
    LARGEST_TIMESTAMP = -3
    EARLIEST_LOCAL_OFFSET = -4

#: Timestamps of ListOffsets that stand for an offset.
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL = -1, -2, -3, -4
#: Up to where a reader may read.
READ_LOG_END, READ_HIGH_WATERMARK, READ_LAST_STABLE_OFFSET = range(3)


class AbortedTransaction(NamedTuple):
    """An entry of .txnindex."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


cdef class FileRange:
    """Whole batches of one file. The file stays open until ``close``, also when its segment is deleted."""

    cdef Range range

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


cdef class LogReads(LogLoading):
    """Finds what a Fetch, ListOffsets or a coordinator reads."""

    cdef int read_range(
        self, int64_t offset, int64_t max_bytes, Isolation isolation, bint whole_first, Range* found
    ) noexcept nogil:
        """Find the whole batches from the one that holds ``offset``, at most ``max_bytes``. Returns Kafka's error code.

        ``whole_first``: the first batch is returned also where it is larger. See ``Range`` for the reference.
        """
        cdef int error
        lock(&self.mutex)
        error = self.find_range(offset, max_bytes, isolation, whole_first, found)
        unlock(&self.mutex)
        return error

    cdef int find_range(
        self, int64_t offset, int64_t max_bytes, Isolation isolation, bint whole_first, Range* found
    ) noexcept nogil:
        cdef Segment* segment
        cdef int64_t limit_segment, limit_position, limit_offset, limit, position, end
        cdef bint is_last
        cdef int32_t i
        cdef int result
        self.require_mutex()
        found.segment = NULL
        found.fd = -1
        found.position = found.size = 0
        found.is_cut = found.is_older = False
        found.start_offset, found.end_offset = self.start_offset_, self.end_offset_
        found.high_watermark, found.last_stable_offset = self.high_watermark_, self.last_stable_offset()
        if self.failure or self.closed_:
            return KAFKA_STORAGE_ERROR
        if offset < self.start_offset_ or offset > self.end_offset_:
            return OFFSET_OUT_OF_RANGE
        limit_segment, limit_position = self.active().base_offset, self.active().size
        limit_offset = self.end_offset_
        if isolation != LOG_END:
            limit_offset = self.high_watermark_ if isolation == HIGH_WATERMARK else found.last_stable_offset
        if offset >= limit_offset:
            return NONE
        result = DONE
        if limit_offset < self.high_watermark_:
            result = self.locate(limit_offset, &limit_segment, &limit_position)
        elif limit_offset < self.end_offset_:
            if self.watermark_segment < 0:
                result = self.locate(self.high_watermark_, &self.watermark_segment, &self.watermark_position)
            limit_segment, limit_position = self.watermark_segment, self.watermark_position
        if result != DONE:
            return self.fail(result)
        for i in range(max(self.floor_segment(offset), 0), self.count):
            segment = self.segments[i]
            if segment.base_offset > limit_segment:
                return NONE
            is_last = segment.base_offset == limit_segment
            limit = limit_position if is_last else segment.size
            result = find_batches(
                segment, offset, max_bytes, limit, limit_offset if is_last else -1, whole_first, &position, &end
            )
            if result == NOT_FOUND:
                continue
            if result != DONE:
                return self.fail(result)
            if position >= limit:
                return NONE
            found.is_cut, found.is_older = end < limit, segment.base_offset < limit_segment
            if end > position:
                acquire(segment)
                found.segment, found.fd = segment, segment.fd
                found.position, found.size = position, end - position
            return NONE
        return NONE

    cdef int locate(self, int64_t offset, int64_t* base_offset, int64_t* position) noexcept nogil:
        """Find the segment and the position where the batch begins that holds the offset, or the end of the log."""
        cdef Batch batch
        cdef int32_t i
        cdef int result
        for i in range(max(self.floor_segment(offset), 0), self.count):
            result = find_offset(self.segments[i], offset, &batch, position)
            if result != NOT_FOUND:
                base_offset[0] = self.segments[i].base_offset
                return result
        base_offset[0], position[0] = self.active().base_offset, self.active().size
        return DONE

    def read_file_range(
        self, int64_t offset, int64_t max_bytes, *, int isolation=READ_LOG_END, bint whole_first=True
    ):
        """Return the FileRange of the whole batches from the one that holds ``offset``. Raises KafkaError."""
        cdef FileRange found = FileRange.__new__(FileRange)
        cdef int error
        if max_bytes < 0 or not 0 <= isolation <= 2:
            raise ValueError(f"max_bytes={max_bytes}, isolation={isolation}")
        with nogil:
            error = self.read_range(offset, max_bytes, <Isolation>isolation, whole_first, &found.range)
        if error != NONE:
            raise KafkaError(error)
        return found

    # -- aborted transactions

    cdef int find_aborted(
        self, int64_t offset, const Range* records, AbortedEntry** found, int32_t* count
    ) noexcept nogil:
        """Find the aborted transactions of what was read from ``offset`` on. Returns Kafka's error code.

        There may be some that begin behind the records. The caller frees ``found``, also after an error.
        """
        cdef int64_t end = -1
        cdef int32_t following
        cdef int result
        found[0] = NULL
        count[0] = 0
        lock(&self.mutex)
        result = offset_above(&records.segment.indexes, records.position + records.size, &end)
        if result == DONE and end < 0:
            following = self.floor_segment(records.segment.base_offset) + 1
            end = self.segments[following].base_offset if following < self.count else self.end_offset_
        if result == DONE:
            result = self.collect_aborted(offset, min(end, records.last_stable_offset), found, count)
        if result != DONE:
            result = self.fail(result)
        unlock(&self.mutex)
        return result

    cdef int collect_aborted(
        self, int64_t from_offset, int64_t end_offset, AbortedEntry** found, int32_t* count
    ) noexcept nogil:
        """Find the aborted transactions with records between the offsets. Requires the mutex."""
        cdef bint is_last = False
        cdef int32_t i
        cdef int result
        self.require_mutex()
        for i in range(max(self.floor_segment(from_offset), 0), self.count):
            result = read_aborted(&self.segments[i].transactions, from_offset, end_offset, found, count, &is_last)
            if result != DONE or is_last:
                return result
        return DONE

    def aborted_transactions(self, int64_t from_offset, int64_t end_offset):
        """Return (producer id, first offset) of the aborted transactions with records between the offsets."""
        return [(one.producer_id, one.first_offset) for one in self.aborted_entries(from_offset, end_offset)]

    def aborted_entries(self, int64_t from_offset, int64_t end_offset):
        """Return an AbortedTransaction for each aborted transaction with records between the offsets."""
        cdef AbortedEntry* found = NULL
        cdef int32_t i, count = 0
        cdef int result
        with nogil:
            result = self.lock_online()
            if result == DONE:
                result = self.collect_aborted(from_offset, end_offset, &found, &count)
            unlock(&self.mutex)
        try:
            self.check(result)
            return [
                AbortedTransaction(
                    found[i].producer_id, found[i].first_offset, found[i].last_offset, found[i].last_stable_offset
                )
                for i in range(count)
            ]
        finally:
            free(found)

    # -- offsets by timestamp

    def list_offset(self, int64_t timestamp):
        """Return (offset, timestamp, leader epoch) as ListOffsets asks for it, or None if no record is found.

        A timestamp: the first record of that time or later. LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL: as Kafka.
        The timestamp of an offset that is no record's, and an unknown leader epoch, are -1.
        """
        cdef Found found
        cdef int result
        with nogil:
            result = self.lock_online()
            if result == DONE:
                result = self.find_offset_of(timestamp, &found)
            unlock(&self.mutex)
        self.check(result)
        if timestamp in (EARLIEST, EARLIEST_LOCAL, LATEST):
            return found.offset, -1, found.epoch
        if found.segment == NULL:
            return None
        try:
            return self._first_record(
                <size_t>found.segment, found.position, found.size, found.timestamp, found.start_offset
            )
        finally:
            release(found.segment)

    cdef int find_offset_of(self, int64_t timestamp, Found* found) noexcept nogil:
        """Find offset and epoch of LATEST, EARLIEST and EARLIEST_LOCAL, else where ``_first_record`` begins.

        ``found.segment`` has a reference, which the caller gives back; NULL: there is no record. Requires the mutex.
        Returns a result of ``_parts``.
        """
        cdef Segment* segment = NULL
        cdef int32_t i
        cdef int result
        self.require_mutex()
        found.segment, found.start_offset, found.timestamp = NULL, self.start_offset_, timestamp
        if timestamp == LATEST_OFFSET:
            found.offset, found.epoch = self.end_offset_, self.epochs.latest()
            return DONE
        if timestamp == EARLIEST_OFFSET or timestamp == EARLIEST_LOCAL_OFFSET:
            found.offset, found.epoch = self.start_offset_, self.epochs.epoch_of(self.start_offset_)
            if timestamp == EARLIEST_OFFSET and self.epochs.count and self.epochs.starts[0].offset <= self.start_offset_:
                found.epoch = self.epochs.starts[0].epoch
            return DONE
        for i in range(self.count):
            if timestamp == LARGEST_TIMESTAMP:
                if segment == NULL or self.segments[i].max_timestamp > segment.max_timestamp:
                    segment = self.segments[i]
            elif self.segments[i].size > 0 and largest_timestamp(self.segments[i]) >= timestamp:
                segment = self.segments[i]
                break
        if segment == NULL:
            return DONE
        if timestamp == LARGEST_TIMESTAMP:
            found.timestamp = segment.max_timestamp
        result = find_timestamp(segment, found.timestamp, self.start_offset_, &found.position)
        if result == DONE:
            acquire(segment)
            found.segment, found.size = segment, segment.size
        return result

    def _first_record(self, size_t address, int64_t position, int64_t end, int64_t timestamp, int64_t start_offset):
        """Return the first record of ``timestamp`` or later from the batch at ``position`` on."""
        cdef Segment* segment = <Segment*>address
        cdef Scan scan
        cdef Batch batch
        cdef int result
        start_scan(&scan, segment.fd, position, end)
        while True:
            with nogil:
                result = scan_next(&scan, &batch, &position)
                while result == DONE and batch.max_timestamp < timestamp:
                    result = scan_next(&scan, &batch, &position)
            if result == NOT_FOUND:
                return None
            self.check(result)
            for offset, found in offsets_and_timestamps(os.pread(segment.fd, batch.size, position)):
                if found >= timestamp and offset >= start_offset:
                    return offset, found, batch.leader_epoch
