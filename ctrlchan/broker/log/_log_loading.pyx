"""Loading and recovery of a log. Source: ``LogLoader``."""

from libc.stdint cimport int32_t, int64_t, uint8_t

from ctrlchan._c.error_codes cimport KAFKA_STORAGE_ERROR
from ctrlchan.broker.log._batches cimport Batch
from ctrlchan.broker.log._log_files cimport Removed
from ctrlchan.broker.log._log_offsets cimport LogOffsets
from ctrlchan.broker.log._indexes cimport are_sane, close_indexes, resize_indexes
from ctrlchan.broker.log._parts cimport DONE, OLD_FORMAT, OUT_OF_ORDER, why
from ctrlchan.broker.log._segment cimport (
    Scan,
    Segment,
    ends_whole,
    next_offset_of,
    open_segment,
    recover_segment,
    release,
    scan_next,
    start_scan,
    truncate_segment,
)
from ctrlchan.broker.log._transaction_index cimport transactions_are_sane

import os
import zlib

from ctrlchan.broker.log import names
from ctrlchan.broker.log._log_files import SEGMENT_KINDS, wall_ms
from ctrlchan.errors import KafkaError, LogDirectoryError


def _has_old_record(path):
    """Whether the file really begins with a record of format 0 or 1, and not with a batch whose magic byte is damaged."""
    with path.open("rb") as file:
        head = file.read(16)
        data = file.read(int.from_bytes(head[8:12]) - 4)
    return zlib.crc32(data) == int.from_bytes(head[12:16])


cdef struct Recovery:
    # The log, which the caller holds
    void* log
    Segment* segment


cdef int on_recovered(void* context, const uint8_t* data, const Batch* batch) noexcept nogil:
    """Take leader epoch and producer of a batch that recovery has found valid."""
    cdef Recovery* recovery = <Recovery*>context
    cdef int result
    if batch.leader_epoch > (<LogLoading>recovery.log).epochs.latest():
        result = (<LogLoading>recovery.log).epochs.assign_epoch(batch.leader_epoch, batch.base_offset)
        if result != DONE:
            return result
    return (<LogLoading>recovery.log).replay_batch(recovery.segment, data, batch)


cdef class LogLoading(LogOffsets):
    """Opens the segments of a folder, and recovers those that may not have been written whole."""

    def _load(self, int64_t start_offset, int64_t recovery_point, bint clean):
        """Open or recover all segments, and find start and end of the log, which is not shared yet."""
        cdef int64_t removed, end = start_offset, now = wall_ms()
        cdef Segment* segment
        cdef int32_t i
        cdef int error = DONE
        deleting = self.folder.name.endswith(names.DELETE_SUFFIX)
        try:
            self._finish_swaps()
            damaged = self._open_segments(now)
            # The first segment that is recovered deletes the snapshots behind it.
            self.producers.end_offset = -1
            if not clean and not deleting:
                # The others are recovered below, in their order: leader epochs must be found from the first on.
                damaged = [i for i in damaged if i < self.floor_segment(recovery_point)]
            for i in damaged:
                self.check(self._recover_segment(i, start_offset, now, &removed))
            if not clean and not deleting:
                self._recover(recovery_point, start_offset, now)
            elif clean and self.count > 0 and not ends_whole(self.active()):
                # The file was damaged after it was closed. Records behind the damage could not be read.
                self._recover(self.active().base_offset, start_offset, now)
            if self.count > 0:
                self.check(next_offset_of(self.active(), &end))
                if end < start_offset and not deleting:
                    # Files were deleted: the log ends before the start offset of the checkpoint.
                    self._remove_segments(0)
                    self.check(self.epochs.clear_epochs())
                    end = start_offset
            if self.count == 0:
                segment = self.new_segment(start_offset, now, &error)
                if segment == NULL:
                    self.check(error)
                self.check(self.add_segment(segment))
            for i in range(self.count if clean else 0):
                # Not those that recovery has written, which are flushed later.
                close_indexes(&self.segments[i].indexes)
            self.check(resize_indexes(&self.active().indexes, self.index_bytes))
        except OSError as raised:
            raise KafkaError(KAFKA_STORAGE_ERROR, str(raised)) from raised
        self.end_offset_ = end
        self.start_offset_ = self.high_watermark_ = max(start_offset, self.segments[0].base_offset)
        self.recovery_point_ = max(end if clean else min(recovery_point, end), self.start_offset_)
        self.watermark_segment = -1
        self.epochs.truncate_end(end)
        self.epochs.truncate_start(start_offset)
        if deleting:
            return
        # Recovery has left the producers as they were at the end of some segment.
        self.clear_producers(0)
        self._remove_stray_snapshots()
        if clean and not self._snapshots():
            # Written by a broker that knew no producers.
            for offset in [self.segments[i].base_offset for i in range(max(0, self.count - 2), self.count)] + [end]:
                self.producers.end_offset = offset
                self.check(self.take_snapshot(True))
        else:
            self.rebuild(self.start_offset_, end, now)

    def _finish_swaps(self):
        """Delete what waits for deletion, and end or undo the cleaner's replacement of segments."""
        cdef Segment* segment
        cdef int64_t next_offset
        cdef int error = DONE
        swaps, cleaned = [], []
        for name in os.listdir(self.folder):
            if name.endswith(names.DELETED_SUFFIX):
                os.unlink(self.folder / name)
            elif name.endswith(names.CLEANED_SUFFIX):
                cleaned.append((self._offset_of(name), name))
            elif name.endswith(names.SWAP_SUFFIX):
                swaps.append((self._offset_of(name), name))
        # The cleaner renames its segments to .swap from the last one to the first: one that is not renamed yet means
        # that those above it do not replace anything.
        first_cleaned = min(cleaned, default=None)
        for offset, name in list(swaps):
            if first_cleaned is not None and offset >= first_cleaned[0]:
                os.unlink(self.folder / name)
                swaps.remove((offset, name))
        for _, name in cleaned:
            os.unlink(self.folder / name)
        low = high = None
        for offset, name in swaps:
            if not name.endswith(names.LOG_SUFFIX + names.SWAP_SUFFIX):
                continue
            segment = open_segment(
                self.c_folder, offset, b".swap", self.index_interval_bytes, self.index_bytes, 0, &error
            )
            if segment == NULL:
                self.check(error)
            error = next_offset_of(segment, &next_offset)
            release(segment)
            self.check(error)
            low = offset if low is None else min(low, offset)
            high = next_offset if high is None else max(high, next_offset)
        if low is not None:
            # What the new segments replace.
            for name in os.listdir(self.folder):
                offset = names.offset_of(name)
                if not name.endswith(names.SWAP_SUFFIX) and offset is not None and low <= offset < high:
                    os.unlink(self.folder / name)
        for name in os.listdir(self.folder):
            if name.endswith(names.SWAP_SUFFIX):
                os.rename(self.folder / name, self.folder / name.removesuffix(names.SWAP_SUFFIX))

    def _offset_of(self, name):
        offset = names.offset_of(name)
        if offset is None:
            raise LogDirectoryError(f"{self.folder / name}: the name does not begin with an offset")
        return offset

    def _open_segments(self, int64_t now_ms):
        """Open all segments; return the places of those whose indexes are missing or not sane."""
        cdef Segment* segment
        cdef Scan scan
        cdef Batch batch
        cdef int64_t position
        cdef int result, error = DONE
        damaged = []
        present = sorted(os.listdir(self.folder))
        found = set(present)
        logs = {name for name in present if name.endswith(names.LOG_SUFFIX)}
        for name in present:
            for kind in SEGMENT_KINDS[1:]:
                if name.endswith(kind) and names.segment_name(self._offset_of(name)) + names.LOG_SUFFIX not in logs:
                    os.unlink(self.folder / name)
        for name in sorted(logs):
            offset = self._offset_of(name)
            if name != names.segment_name(offset) + names.LOG_SUFFIX:
                raise LogDirectoryError(f"{self.folder / name}: not 20 digits")
            missing = any(
                names.segment_name(offset) + kind not in found for kind in (names.INDEX_SUFFIX, names.TIME_INDEX_SUFFIX)
            )
            segment = self.new_segment(offset, now_ms, &error)
            if segment == NULL:
                self.check(error)
            self.check(self.add_segment(segment))
            start_scan(&scan, segment.fd, 0, segment.size)
            result = scan_next(&scan, &batch, &position)
            if result == OLD_FORMAT and _has_old_record(self.folder / name):
                raise LogDirectoryError(f"{self.folder / name}: {why(OLD_FORMAT)}")
            if result > 0:
                self.check(result)
            is_sane = are_sane(&segment.indexes, segment.size) and transactions_are_sane(&segment.transactions)
            if segment.size > 0 and (missing or not is_sane):
                damaged.append(self.count - 1)
        return damaged

    def _recover(self, int64_t recovery_point, int64_t start_offset, int64_t now_ms):
        """Recover the segments that may not have been flushed; what follows an invalid batch is deleted."""
        cdef int64_t removed
        cdef int32_t i
        cdef int result
        for i in range(max(self.floor_segment(recovery_point), 0), self.count):
            result = self._recover_segment(i, start_offset, now_ms, &removed)
            if result == OUT_OF_ORDER:
                # Kafka keeps no record of such a segment either.
                result = truncate_segment(self.segments[i], self.segments[i].base_offset, now_ms, &removed)
            self.check(result)
            if removed > 0:
                self._remove_segments(i + 1)
                return

    def _remove_segments(self, int32_t first):
        """Take the segments from ``first`` on out of the log."""
        cdef Removed removed = Removed(NULL, 0)
        cdef int result
        with nogil:
            result = self.take_out(first, self.count, &removed)
        self.delete_later(&removed)
        self.check(result)

    cdef int _recover_segment(self, int32_t i, int64_t start_offset, int64_t now_ms, int64_t* removed) except -100:
        """Recover a segment from its batches alone; return a result of ``_parts``."""
        cdef Recovery recovery
        cdef int result
        if self.producers.end_offset != self.segments[i].base_offset:
            self.rebuild(start_offset, self.segments[i].base_offset, now_ms)
        recovery.log, recovery.segment = <void*>self, self.segments[i]
        with nogil:
            result = recover_segment(self.segments[i], on_recovered, &recovery, removed)
            if result == DONE:
                # The next recovery need not read this segment again.
                result = self.take_snapshot(True)
        return result

    def _remove_stray_snapshots(self):
        """Delete the snapshots where no segment begins, but the last one where that is behind all segments."""
        cdef int32_t i
        bases = {self.segments[i].base_offset for i in range(self.count)}
        stray = [offset for offset in self._snapshots() if offset not in bases]
        for offset in stray:
            if offset != max(stray) or offset < self.active().base_offset:
                self._remove_snapshot(offset)
