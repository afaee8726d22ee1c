"""How records leave a log: retention, truncation, compaction."""

from libc.errno cimport EIO
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.string cimport memmove

from ctrlchan.broker.log._batches cimport Batch
from ctrlchan.broker.log._log_files cimport KAFKA_STORAGE_ERROR, NEVER, LogFiles, why
from ctrlchan.broker.log._log_reads cimport LogReads
from ctrlchan.broker.log._segment cimport (
    DONE,
    Scan,
    Segment,
    add_aborted,
    append,
    change_suffix,
    flush_segment,
    largest_timestamp,
    make_inactive,
    open_segment,
    release,
    scan_next,
    start_scan,
    truncate_segment,
)

import os
from typing import NamedTuple

from ctrlchan.broker.log import names
from ctrlchan.broker.log._log_files import SEGMENT_KINDS, wall_ms
from ctrlchan.broker.log.checkpoints import flush_folder
from ctrlchan.errors import KafkaError


class SegmentInfo(NamedTuple):
    """A segment as the cleaner sees it. ``first_timestamp``: the largest of its first batch, -1 where it has none."""

    base_offset: int
    size: int
    first_timestamp: int
    largest_timestamp: int
    modified_ns: int
    index_bytes: int
    time_index_bytes: int


cdef class LogDeletion(LogReads):
    """Deletes old segments, truncates, and puts compacted segments in the place of others."""

    # -- retention and truncation

    def roll(self, *, now_ms=None):
        """Begin a new active segment at the end of the log."""
        cdef int64_t now = wall_ms() if now_ms is None else now_ms
        self.lock()
        try:
            self.check_online()
            self.check(self.roll_segment(self.end_offset_, now))
        finally:
            self.unlock()

    def delete_old_segments(self, now_ms=None):
        """Delete the segments that start offset, retention.bytes and retention.ms do not keep; return how many."""
        cdef int64_t now = wall_ms() if now_ms is None else now_ms
        cdef int64_t excess
        cdef int32_t i
        self.lock()
        try:
            self.check_online()
            deleted = 0
            while self.count > 1 and self.segments[1].base_offset <= self.start_offset_ <= self.high_watermark_:
                deleted += self._delete_first(1, now)
            if not self.config.cleanup_delete:
                return deleted
            if self.config.retention_bytes >= 0:
                excess = self.size_locked() - self.config.retention_bytes
                i = 0
                while self._may_delete(i) and excess - self.segments[i].size >= 0:
                    excess -= self.segments[i].size
                    i += 1
                deleted += self._delete_first(i, now)
            if self.config.retention_ms >= 0:
                i = 0
                while self._may_delete(i) and now - largest_timestamp(self.segments[i]) > self.config.retention_ms:
                    i += 1
                deleted += self._delete_first(i, now)
            return deleted
        finally:
            self.unlock()

    def _may_delete(self, int32_t i):
        """Whether a segment is below the high watermark and not the empty active one."""
        if i >= self.count or (i == self.count - 1 and self.segments[i].size == 0):
            return False
        return self.high_watermark_ >= (self.segments[i + 1].base_offset if i + 1 < self.count else self.end_offset_)

    def _delete_first(self, int32_t number, int64_t now_ms):
        if number == 0:
            return 0
        if number == self.count:
            # There is always an active segment.
            self.check(self.roll_segment(self.end_offset_, now_ms))
        self._increment_start(self.segments[number].base_offset)
        self.remove_segments(0, number)
        return number

    def truncate_to(self, int64_t offset):
        """Remove all records at ``offset`` and above; return whether there was one."""
        cdef int64_t removed
        cdef int32_t keep
        if offset < 0:
            raise ValueError(f"cannot truncate to the negative offset {offset}")
        self.lock()
        try:
            self.check_online()
            if offset >= self.end_offset_:
                self.epochs.truncate_end(self.end_offset_)
                self.copy_epochs()
                return False
            if self.segments[0].base_offset > offset:
                self._truncate_fully(offset, offset)
                return True
            keep = self.floor_segment(offset) + 1
            self.remove_segments(keep, self.count)
            self.check(truncate_segment(self.active(), offset, wall_ms(), &removed))
            self._set_end(offset)
            self.epochs.truncate_end(offset)
            self.copy_epochs()
            self.start_offset_ = min(self.start_offset_, offset)
            self._rebuild_producers(self.start_offset_, offset, wall_ms())
            self.move_high_watermark(self.high_watermark_)
            return True
        finally:
            self.unlock()

    def truncate_fully(self, int64_t offset, start_offset=None):
        """Remove all records; the next one has ``offset``. ``start_offset``: of the log, if it is another."""
        self.lock()
        try:
            self.check_online()
            self._truncate_fully(offset, offset if start_offset is None else start_offset)
        finally:
            self.unlock()

    def _truncate_fully(self, int64_t offset, int64_t start_offset):
        cdef int error = DONE
        cdef Segment* segment
        self.remove_segments(0, self.count)
        segment = self.new_segment(offset, wall_ms(), &error)
        if segment == NULL:
            self.check(error)
        self.check(self.add_segment(segment))
        self.epochs.clear()
        self.copy_epochs()
        self.start_offset_ = start_offset
        self._set_end(offset)
        for snapshot in self._snapshots():
            self._remove_snapshot(snapshot)
        self._clear_producers(offset)
        self.move_high_watermark(offset)

    def _set_end(self, int64_t offset):
        self.changes += 1
        self.lowest_truncation = min(self.lowest_truncation, offset)
        self.end_offset_ = offset
        self.recovery_point_ = min(self.recovery_point_, offset)

    # -- compaction

    @property
    def change_count(self):
        """How often segments were removed or batches truncated."""
        return self.changes

    def take_lowest_truncation(self):
        """Return the lowest offset that the log was truncated to since the last call, None where it was not."""
        self.lock()
        try:
            lowest, self.lowest_truncation = self.lowest_truncation, NEVER
            return None if lowest == NEVER else lowest
        finally:
            self.unlock()

    def describe_segments(self):
        """Return a SegmentInfo for each segment."""
        cdef Segment* segment
        cdef Scan scan
        cdef Batch batch
        cdef int64_t position
        cdef int32_t i
        found = []
        self.lock()
        try:
            self.check_online()
            for i in range(self.count):
                segment = self.segments[i]
                first = -1
                start_scan(&scan, segment.fd, 0, segment.size)
                if scan_next(&scan, &batch, &position) == DONE:
                    first = batch.max_timestamp
                found.append(SegmentInfo(
                    segment.base_offset, segment.size, first, largest_timestamp(segment), os.fstat(segment.fd).st_mtime_ns,
                    segment.offsets.entries * segment.offsets.width, segment.times.entries * segment.times.width,
                ))
            return found
        finally:
            self.unlock()

    def replace_segments(self, CleanedSegment cleaned not None, base_offsets, int64_t change_count):
        """Put a finished segment in the place of others, the first of which has its offset.

        ``change_count``: from when they were read. False where the log has changed since: nothing is done then.
        """
        cdef Segment* segment
        cdef int32_t first, i, number = len(base_offsets)
        cdef int64_t due
        self.lock()
        try:
            self.check_online()
            first = self.floor_segment(base_offsets[0])
            if change_count != self.changes or [
                self.segments[i].base_offset for i in range(first, min(first + number, self.count - 1))
            ] != base_offsets:
                return False
            self.check(change_suffix(cleaned.segment, b".swap"))
            # From here on a crash leaves the new segment, see _finish_swaps.
            flush_folder(self.folder)
            due = min(wall_ms() + self.config.file_delete_delay_ms, NEVER)
            for i in range(first, first + number):
                segment = self.segments[i]
                self.check(change_suffix(segment, b".deleted"))
                name = names.segment_name(segment.base_offset)
                for kind in SEGMENT_KINDS:
                    self.deleted.append((due, self.folder / f"{name}{kind}{names.DELETED_SUFFIX}"))
                if i > first:
                    self._remove_snapshot(segment.base_offset)
            self.next_deletion_ms = min(self.next_deletion_ms, due)
            self.check(change_suffix(cleaned.segment, b""))
            flush_folder(self.folder)
            for i in range(first, first + number):
                release(self.segments[i])
            self.segments[first] = cleaned.segment
            cleaned.segment = NULL
            memmove(
                &self.segments[first + 1], &self.segments[first + number],
                (self.count - first - number) * sizeof(Segment*),
            )
            self.count -= number - 1
            self.watermark_segment = -1
            return True
        except OSError as raised:
            self.failure = raised.errno or EIO
            raise KafkaError(KAFKA_STORAGE_ERROR, str(raised)) from raised
        finally:
            self.unlock()


cdef class CleanedSegment:
    """A segment that the cleaner writes. It has no place in the log until ``Log.replace_segments``."""

    cdef Segment* segment
    cdef object log

    def __init__(self, LogFiles log not None, int64_t base_offset):
        cdef int error = DONE
        self.log = log
        self._remove(log, base_offset)
        self.segment = open_segment(
            log.c_folder, base_offset, b".cleaned", log.index_interval_bytes, log.index_bytes, 0, &error
        )
        if self.segment == NULL:
            raise KafkaError(KAFKA_STORAGE_ERROR, f"{log.folder}: {why(error)}")

    def __dealloc__(self):
        if self.segment != NULL:
            release(self.segment)

    cdef int check(self, int result) except -1:
        if result != DONE:
            raise KafkaError(KAFKA_STORAGE_ERROR, f"{self.log.folder}: {why(result)}")
        return 0

    def append(self, const uint8_t[::1] batch not None, int64_t first_offset, int64_t last_offset, int64_t max_timestamp):
        """Write one batch behind the others. Raises KafkaError."""
        cdef int result
        with nogil:
            result = append(
                self.segment, &batch[0], batch.shape[0], first_offset, last_offset, max_timestamp, last_offset
            )
        self.check(result)

    def add_aborted(self, one):
        """Add an AbortedTransaction to the transaction index."""
        self.check(add_aborted(
            self.segment, one.producer_id, one.first_offset, one.last_offset, one.last_stable_offset
        ))

    def finish(self, modified_ns):
        """Flush the files; ``modified_ns``: when the last replaced segment was written. Raises KafkaError and OSError."""
        self.check(make_inactive(self.segment))
        os.utime(self.segment.fd, ns=(modified_ns, modified_ns))
        cdef int result
        with nogil:
            result = flush_segment(self.segment)
        self.check(result)

    def abandon(self):
        """Delete the files where the segment has found no place in a log."""
        if self.segment != NULL:
            base_offset = self.segment.base_offset
            release(self.segment)
            self.segment = NULL
            self._remove(self.log, base_offset)

    @staticmethod
    def _remove(log, base_offset):
        for kind in SEGMENT_KINDS:
            (log.folder / f"{names.segment_name(base_offset)}{kind}{names.CLEANED_SUFFIX}").unlink(missing_ok=True)
