"""Removes records from a log: retention, truncation, compaction."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memmove

from ctrlchan._c.clocks cimport NEVER
from ctrlchan._c.error_codes cimport KAFKA_STORAGE_ERROR
from ctrlchan._c.locks cimport lock, unlock
from ctrlchan.broker.log._batches cimport Batch
from ctrlchan.broker.log._log_files cimport LogFiles, Removed
from ctrlchan.broker.log._log_reads cimport LogReads
from ctrlchan.broker.log._files cimport change_suffix, flush_folder, modification_time
from ctrlchan.broker.log._indexes cimport bytes_of
from ctrlchan.broker.log._parts cimport DONE, NO_MEMORY, why
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
    truncate_segment,
)
from ctrlchan.broker.log._transaction_index cimport AbortedEntry, add_aborted

import os
from typing import NamedTuple

from ctrlchan.broker.log import names
from ctrlchan.broker.log._log_files import SEGMENT_KINDS, wall_ms
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
        cdef int result
        with nogil:
            result = self.lock_online()
            if result == DONE:
                result = self.roll_segment(self.end_offset_, now)
            unlock(&self.mutex)
        self.check(result)

    def delete_old_segments(self, now_ms=None):
        """Delete the segments that start offset, retention.bytes and retention.ms do not keep; return how many."""
        cdef int64_t now = wall_ms() if now_ms is None else now_ms
        cdef Removed removed = Removed(NULL, 0)
        cdef int result
        with self.changing:
            with nogil:
                result = self.lock_online()
                if result == DONE:
                    result = self.take_out_old(now, &removed)
                unlock(&self.mutex)
            deleted = removed.count
            self.delete_later(&removed)
        self.check(result)
        return deleted

    cdef int take_out_old(self, int64_t now_ms, Removed* removed) noexcept nogil:
        """Take out what ``delete_old_segments`` deletes. Returns a result of ``_parts``. Requires the mutex."""
        cdef int64_t excess
        cdef int32_t i = 0
        cdef int result
        self.require_mutex()
        if self.start_offset_ <= self.high_watermark_:
            while i + 1 < self.count and self.segments[i + 1].base_offset <= self.start_offset_:
                i += 1
        result = self.take_out_first(i, now_ms, removed)
        if result != DONE or not self.deletes_old:
            return result
        if self.retention_bytes >= 0:
            i = 0
            excess = self.size_locked() - self.retention_bytes
            while self.may_delete(i) and excess - self.segments[i].size >= 0:
                excess -= self.segments[i].size
                i += 1
            result = self.take_out_first(i, now_ms, removed)
        if result == DONE and self.retention_ms >= 0:
            i = 0
            while self.may_delete(i) and now_ms - largest_timestamp(self.segments[i]) > self.retention_ms:
                i += 1
            result = self.take_out_first(i, now_ms, removed)
        return result

    cdef bint may_delete(self, int32_t i) noexcept nogil:
        """Return whether a segment is below the high watermark and not the empty active one."""
        if i >= self.count or (i == self.count - 1 and self.segments[i].size == 0):
            return False
        return self.high_watermark_ >= (self.segments[i + 1].base_offset if i + 1 < self.count else self.end_offset_)

    cdef int take_out_first(self, int32_t number, int64_t now_ms, Removed* removed) noexcept nogil:
        """Take out the first segments; the log begins behind them. Returns a result of ``_parts``."""
        cdef int result = DONE
        if number == 0:
            return DONE
        if number == self.count:
            # There is always an active segment.
            result = self.roll_segment(self.end_offset_, now_ms)
        if result == DONE:
            # All these segments are below the high watermark.
            self.increment_start(self.segments[number].base_offset)
            result = self.take_out(0, number, removed)
        return result

    def truncate_to(self, int64_t offset):
        """Remove all records at ``offset`` and above; return whether any was removed."""
        cdef Removed removed = Removed(NULL, 0)
        cdef int64_t snapshot_offset, start_offset, first_offset = 0, now = wall_ms()
        cdef bytes data
        cdef const char* snapshot = NULL
        cdef int result
        cdef bint is_needed = False, has_producers = False
        if offset < 0:
            raise ValueError(f"cannot truncate to the negative offset {offset}")
        with self.changing:
            with nogil:
                result = self.lock_online()
                start_offset = min(self.start_offset_, offset)
                if result == DONE:
                    is_needed = offset < self.end_offset_
                    has_producers = not self.has_nobody_to_forget(offset)
                    first_offset = self.segments[0].base_offset
                    if not is_needed:
                        self.epochs.truncate_end(self.end_offset_)
                unlock(&self.mutex)
            self.check(result)
            if not is_needed:
                return False
            if first_offset > offset:
                self._truncate_fully(offset, offset)
                return True
            # A producer that comes meanwhile costs the reading of all batches.
            snapshot_offset, data = self.choose_snapshot(start_offset, offset, has_producers)
            if data is not None:
                snapshot = data
            with nogil:
                result = self.lock_online()
                if result == DONE:
                    result = self.truncate_segments(offset, now, &removed)
                if result == DONE:
                    result = self.rebuild_producers(
                        <const uint8_t*>snapshot, snapshot_offset, self.start_offset_, offset, now
                    )
                if result == DONE:
                    self.move_high_watermark(self.high_watermark_)
                unlock(&self.mutex)
            self.delete_later(&removed)
            self.check(result)
        return True

    cdef int truncate_segments(self, int64_t offset, int64_t now_ms, Removed* removed) noexcept nogil:
        """Remove the records at ``offset`` and above, but keep the states of producers. Requires the mutex."""
        cdef int64_t removed_bytes
        cdef int result
        self.require_mutex()
        result = self.take_out(self.floor_segment(offset) + 1, self.count, removed)
        if result == DONE:
            result = truncate_segment(self.active(), offset, now_ms, &removed_bytes)
        if result == DONE:
            self.set_end(offset)
            self.epochs.truncate_end(offset)
            self.start_offset_ = min(self.start_offset_, offset)
        return result

    def truncate_fully(self, int64_t offset, start_offset=None):
        """Remove all records; the next one has ``offset``. ``start_offset``: of the log, if it is another."""
        with self.changing:
            self._truncate_fully(offset, offset if start_offset is None else start_offset)

    def _truncate_fully(self, int64_t offset, int64_t start_offset):
        cdef Removed removed = Removed(NULL, 0)
        cdef int64_t now = wall_ms()
        cdef int result
        for snapshot in self._snapshots():
            self._remove_snapshot(snapshot)
        with nogil:
            result = self.lock_online()
            if result == DONE:
                result = self.begin_again(offset, start_offset, now, &removed)
                if result != DONE:
                    # A log without an active segment cannot be used any more.
                    self.fail(result)
            unlock(&self.mutex)
        self.delete_later(&removed)
        self.check(result)

    cdef int begin_again(self, int64_t offset, int64_t start_offset, int64_t now_ms, Removed* removed) noexcept nogil:
        """Put an empty segment in the place of all segments. Returns a result of ``_parts``. Requires the mutex."""
        cdef Segment* segment = NULL
        cdef int result
        self.require_mutex()
        result = self.take_out(0, self.count, removed)
        if result == DONE:
            segment = self.new_segment(offset, now_ms, &result)
        if segment != NULL:
            result = self.add_segment(segment)
        if result == DONE:
            result = self.epochs.clear_epochs()
        if result == DONE:
            self.start_offset_ = start_offset
            self.set_end(offset)
            self.clear_producers(offset)
            self.move_high_watermark(offset)
        return result

    cdef void set_end(self, int64_t offset) noexcept nogil:
        self.require_mutex()
        self.changes = self.changes + 1
        self.lowest_truncation = min(self.lowest_truncation, offset)
        self.end_offset_ = offset
        self.recovery_point_ = min(self.recovery_point_, offset)

    # -- compaction

    @property
    def change_count(self):
        """How often segments were removed or batches truncated."""
        return self.changes

    def take_lowest_truncation(self):
        """Return the lowest offset that the log was truncated to since the last call, or None if it was not."""
        cdef int64_t lowest
        with nogil:
            lock(&self.mutex)
            lowest, self.lowest_truncation = self.lowest_truncation, NEVER
            unlock(&self.mutex)
        return None if lowest == NEVER else lowest

    def describe_segments(self):
        """Return a SegmentInfo for each segment."""
        cdef Info* infos = NULL
        cdef int32_t i, count = 0
        cdef int result
        with nogil:
            result = self.lock_online()
            if result == DONE:
                infos = <Info*>calloc(max(1, self.count), sizeof(Info))
                count = self.count
                result = NO_MEMORY if infos == NULL else DONE
                for i in range(count if result == DONE else 0):
                    result = describe_segment(self.segments[i], &infos[i])
                    if result != DONE:
                        break
            unlock(&self.mutex)
        try:
            self.check(result)
            return [
                SegmentInfo(
                    infos[i].base_offset, infos[i].size, infos[i].first_timestamp, infos[i].largest_timestamp,
                    infos[i].modified_ns, infos[i].index_bytes, infos[i].time_index_bytes,
                )
                for i in range(count)
            ]
        finally:
            free(infos)

    def replace_segments(self, CleanedSegment cleaned not None, base_offsets, int64_t change_count):
        """Put a finished segment in the place of others, the first of which has its offset.

        ``change_count``: from when they were read. False where the log has changed since: nothing is done then.
        """
        cdef Removed replaced = Removed(NULL, 0)
        cdef int32_t i, number = len(base_offsets)
        cdef int result
        cdef bint is_done = False
        replaced.offsets = <int64_t*>calloc(number, sizeof(int64_t))
        if replaced.offsets == NULL:
            raise MemoryError()
        for i in range(number):
            replaced.offsets[i] = base_offsets[i]
        replaced.count = number
        with self.changing:
            with nogil:
                result = self.lock_online()
                if result == DONE and change_count == self.changes:
                    result = self.put_in_place(cleaned, &replaced, &is_done)
                unlock(&self.mutex)
            if not is_done:
                replaced.count = 0
            # The snapshot of the first segment stays.
            for i in range(1, replaced.count):
                self._remove_snapshot(replaced.offsets[i])
            self.delete_later(&replaced)
        self.check(result)
        return is_done

    cdef int put_in_place(self, CleanedSegment cleaned, const Removed* replaced, bint* is_done) noexcept nogil:
        """Do what ``replace_segments`` does. Returns a result of ``_parts``. Requires the mutex."""
        cdef int32_t first = self.floor_segment(replaced.offsets[0]), i
        cdef int result
        self.require_mutex()
        # Never the active segment.
        if first < 0 or first + replaced.count > self.count - 1:
            return DONE
        for i in range(replaced.count):
            if self.segments[first + i].base_offset != replaced.offsets[i]:
                return DONE
        result = change_suffix(&cleaned.segment.name, b".swap")
        # From here on a crash leaves the new segment, see _finish_swaps.
        if result == DONE:
            result = flush_folder(self.c_folder)
        for i in range(first, first + replaced.count):
            if result == DONE:
                result = change_suffix(&self.segments[i].name, b".deleted")
        if result == DONE:
            result = change_suffix(&cleaned.segment.name, b"")
        if result == DONE:
            result = flush_folder(self.c_folder)
        if result != DONE:
            return result
        for i in range(first, first + replaced.count):
            release(self.segments[i])
        self.segments[first] = cleaned.segment
        cleaned.segment = NULL
        memmove(
            &self.segments[first + 1], &self.segments[first + replaced.count],
            (self.count - first - replaced.count) * sizeof(Segment*),
        )
        self.count = self.count - (replaced.count - 1)
        self.watermark_segment = -1
        is_done[0] = True
        return DONE


# A SegmentInfo.
cdef struct Info:
    int64_t base_offset
    int64_t size
    int64_t first_timestamp
    int64_t largest_timestamp
    int64_t modified_ns
    int64_t index_bytes
    int64_t time_index_bytes


cdef int describe_segment(Segment* segment, Info* info) noexcept nogil:
    """Describe a segment, whose log is locked; return a result of ``_parts``."""
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


cdef class CleanedSegment:
    """A segment that the cleaner writes. It has no place in the log until ``Log.replace_segments``."""

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
        cdef AbortedEntry entry = AbortedEntry(
            one.producer_id, one.first_offset, one.last_offset, one.last_stable_offset
        )
        self.check(add_aborted(&self.segment.transactions, &entry))

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
