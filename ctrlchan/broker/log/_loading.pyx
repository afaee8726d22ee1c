"""Loads a log: opens its segments, and recovers those that may not have been written whole. Source: ``LogLoader``.

No other thread has the log yet, so no mutex is needed.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t

from ctrlchan._c.clocks cimport wall_clock_ms
from ctrlchan._c.error_codes cimport KAFKA_STORAGE_ERROR
from ctrlchan.broker.log._batches cimport Batch
from ctrlchan.broker.log._indexes cimport are_sane, close_indexes, resize_indexes
from ctrlchan.broker.log._leader_epochs cimport LeaderEpochs
from ctrlchan.broker.log._local_log cimport LocalLog
from ctrlchan.broker.log._parts cimport DONE, OUT_OF_ORDER, check_result
from ctrlchan.broker.log._producer_snapshots cimport choose_snapshot, take_snapshot
from ctrlchan.broker.log._producer_updates cimport rebuild_producers, replay_batch
from ctrlchan.broker.log._producers cimport ProducerStates
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
from ctrlchan.broker.log._segments cimport Removed, Segments, SegmentSettings, take_offsets
from ctrlchan.broker.log._transaction_index cimport transactions_are_sane

import logging
import os

from ctrlchan.broker.log import names
from ctrlchan.broker.log._producer_snapshots import remove_stray_snapshots, snapshot_offsets
from ctrlchan.errors import KafkaError, LogDirectoryError
from ctrlchan.log_context import ContextLogger

logger = logging.getLogger("ctrlchan.broker")


@cython.final
cdef class LogLoader:
    """Loads the log in a folder, once. ``start_offset`` and ``recovery_point``: of the checkpoints.

    Raises LogDirectoryError for files that cannot be a log, KafkaError where the disk fails.
    """

    def __init__(self, folder, int64_t start_offset, int64_t recovery_point, int64_t producer_expiration_ms):
        self.folder, self.start_offset, self.recovery_point = folder, start_offset, recovery_point
        self.segments = Segments(folder)
        folder.mkdir(parents=True, exist_ok=True)
        self.epochs = LeaderEpochs(folder)
        self.producers = ProducerStates(producer_expiration_ms)
        self.removed = []
        self.now_ms = wall_clock_ms()

    cdef int check(self, int result) except -1:
        return check_result(result, self.folder)

    cdef LocalLog load(self, const SegmentSettings* settings, bint clean):
        """Open or recover all segments; return the parts, with start and end. ``clean``: the log was closed in order."""
        cdef LocalLog loaded = LocalLog(self.segments, self.epochs, self.producers)
        cdef Segments segments = self.segments
        cdef int64_t start = self.start_offset, end = start, removed
        cdef int32_t i, first
        deleting = self.folder.name.endswith(names.DELETE_SUFFIX)
        segments.settings = settings[0]
        try:
            finish_swaps(self.folder, segments)
            damaged = self.open_segments()
            first = segments.count if clean or deleting else max(segments.floor(self.recovery_point), 0)
            # The first segment that is recovered deletes the snapshots behind it.
            self.producers.end_offset = -1
            for i in damaged:
                # The others are recovered below, in their order: leader epochs must be found from the first on.
                if i < first:
                    self.check(self.recover(i, &removed))
            if clean and segments.count > 0 and not ends_whole(segments.active()):
                # The file was damaged after it was closed. Records behind the damage could not be read.
                first = segments.count - 1
            self.recover_from(first)
            if segments.count > 0:
                self.check(next_offset_of(segments.active(), &end))
                if end < start and not deleting:
                    # Files were deleted: the log ends before the start offset of the checkpoint.
                    self.remove_from(0)
                    self.check(self.epochs.clear_epochs())
                    end = start
            if segments.count == 0:
                self.check(segments.add(start, self.now_ms))
            for i in range(segments.count if clean else 0):
                # Not those that recovery has written, which are flushed later.
                close_indexes(&segments.at[i].indexes)
            self.check(resize_indexes(&segments.active().indexes, settings.index_bytes))
        except OSError as raised:
            raise KafkaError(KAFKA_STORAGE_ERROR, str(raised)) from raised
        loaded.end_offset = end
        loaded.start_offset = loaded.high_watermark = max(start, segments.at[0].base_offset)
        loaded.recovery_point = max(end if clean else min(self.recovery_point, end), loaded.start_offset)
        self.epochs.truncate_end(end)
        self.epochs.truncate_start(start)
        if not deleting:
            self.start_offset = loaded.start_offset
            self.load_producers(end, clean)
        return loaded

    cdef int load_producers(self, int64_t end_offset, bint clean) except -1:
        # Recovery has left the producers as they were at the end of some segment.
        self.producers.begin_at(0)
        bases = [self.segments.at[i].base_offset for i in range(self.segments.count)]
        remove_stray_snapshots(self.folder, set(bases))
        if not clean or snapshot_offsets(self.folder):
            return self.rebuild(end_offset)
        # Written by a broker that knew no producers.
        for offset in bases[max(0, len(bases) - 2):] + [end_offset]:
            self.producers.end_offset = offset
            self.check(take_snapshot(self.producers, self.segments.folder, True))
        return 0

    cdef list open_segments(self):
        """Open all segments; return the places of those whose indexes are missing or not sane."""
        cdef Segment* segment
        cdef Scan scan
        cdef Batch batch
        cdef int64_t position
        cdef int result
        damaged = []
        present = sorted(os.listdir(self.folder))
        found = set(present)
        logs = [name for name in present if name.endswith(names.LOG_SUFFIX)]
        for name in present:
            for kind in (names.INDEX_SUFFIX, names.TIME_INDEX_SUFFIX, names.TXN_INDEX_SUFFIX):
                if name.endswith(kind) and names.segment_name(offset_of(self.folder, name)) + names.LOG_SUFFIX not in found:
                    os.unlink(self.folder / name)
        for name in logs:
            offset = offset_of(self.folder, name)
            if name != names.segment_name(offset) + names.LOG_SUFFIX:
                raise LogDirectoryError(f"{self.folder / name}: not 20 digits")
            is_sane = all(
                [names.segment_name(offset) + kind in found for kind in (names.INDEX_SUFFIX, names.TIME_INDEX_SUFFIX)]
            )
            self.check(self.segments.add(offset, self.now_ms))
            segment = self.segments.active()
            start_scan(&scan, segment.fd, 0, segment.size)
            result = scan_next(&scan, &batch, &position)
            if result > 0:
                self.check(result)
            is_sane = is_sane and are_sane(&segment.indexes, segment.size) and transactions_are_sane(&segment.transactions)
            if segment.size > 0 and not is_sane:
                damaged.append(self.segments.count - 1)
        return damaged

    cdef int recover_from(self, int32_t first) except -1:
        """Recover the segments from ``first`` on; what follows an invalid batch is deleted."""
        cdef int64_t removed
        cdef int32_t i
        cdef int result
        for i in range(first, self.segments.count):
            result = self.recover(i, &removed)
            if result == OUT_OF_ORDER:
                # Kafka keeps no record of such a segment either.
                result = truncate_segment(self.segments.at[i], self.segments.at[i].base_offset, self.now_ms, &removed)
            self.check(result)
            if removed > 0:
                return self.remove_from(i + 1)
        return 0

    cdef int recover(self, int32_t i, int64_t* removed) except -100:
        """Recover a segment from its batches alone; return a result."""
        cdef Recovery recovery
        cdef Segment* segment = self.segments.at[i]
        cdef int result
        if self.producers.end_offset != segment.base_offset:
            self.rebuild(segment.base_offset)
        recovery.loader, recovery.segment = <void*>self, segment
        with nogil:
            result = recover_segment(segment, on_recovered, &recovery, removed)
            if result == DONE:
                # The next recovery need not read this segment again.
                result = take_snapshot(self.producers, self.segments.folder, True)
        if result == DONE and removed[0] > 0:
            ContextLogger(logger, names.log_context("LogLoader", self.folder)).warning(
                "%s%s: the batch at byte %d is damaged or cut: %d bytes from there on are removed",
                self.folder / names.segment_name(segment.base_offset), names.LOG_SUFFIX, segment.size, removed[0],
            )
        return result

    cdef int rebuild(self, int64_t end_offset) except -1:
        """Bring the producers to where they were at ``end_offset``."""
        cdef int64_t snapshot_offset
        cdef bytes data
        cdef const char* snapshot = NULL
        cdef int result
        snapshot_offset, data = choose_snapshot(self.folder, self.start_offset, end_offset, True)
        if data is not None:
            snapshot = data
        with nogil:
            result = rebuild_producers(
                self.producers, self.segments, <const uint8_t*>snapshot, snapshot_offset, self.start_offset, end_offset,
                self.now_ms,
            )
        return self.check(result)

    cdef int remove_from(self, int32_t first) except -1:
        """Take the segments from ``first`` on out of the log."""
        cdef Removed removed = Removed(NULL, 0)
        cdef int result
        with nogil:
            result = self.segments.take_out(first, self.segments.count, &removed)
        self.removed += take_offsets(&removed)
        return self.check(result)


cdef struct Recovery:
    # The LogLoader, which the caller holds
    void* loader
    Segment* segment


cdef int on_recovered(void* context, const uint8_t* data, const Batch* batch) noexcept nogil:
    """Take leader epoch and producer of a batch that recovery has found valid."""
    cdef Recovery* recovery = <Recovery*>context
    cdef int result = DONE
    if batch.leader_epoch > (<LogLoader>recovery.loader).epochs.latest():
        result = (<LogLoader>recovery.loader).epochs.assign_epoch(batch.leader_epoch, batch.base_offset)
    if result != DONE:
        return result
    return replay_batch((<LogLoader>recovery.loader).producers, recovery.segment, data, batch)


cdef int finish_swaps(folder, Segments segments) except -1:
    """Delete what waits for deletion, and end or undo the cleaner's replacement of segments."""
    cdef Segment* segment
    cdef int64_t next_offset
    cdef int error = DONE
    swaps, cleaned = [], []
    for name in os.listdir(folder):
        if name.endswith(names.DELETED_SUFFIX):
            os.unlink(folder / name)
        elif name.endswith(names.CLEANED_SUFFIX):
            cleaned.append((offset_of(folder, name), name))
        elif name.endswith(names.SWAP_SUFFIX):
            swaps.append((offset_of(folder, name), name))
    # The cleaner renames its segments to .swap from the last one to the first: one that is not renamed yet means
    # that those above it do not replace anything.
    first_cleaned = min(cleaned, default=None)
    for offset, name in list(swaps):
        if first_cleaned is not None and offset >= first_cleaned[0]:
            os.unlink(folder / name)
            swaps.remove((offset, name))
    for _, name in cleaned:
        os.unlink(folder / name)
    low = high = None
    for offset, name in swaps:
        if not name.endswith(names.LOG_SUFFIX + names.SWAP_SUFFIX):
            continue
        segment = open_segment(
            segments.folder, offset, b".swap", segments.settings.index_interval_bytes, segments.settings.index_bytes, 0,
            &error,
        )
        if segment == NULL:
            check_result(error, folder)
        error = next_offset_of(segment, &next_offset)
        release(segment)
        check_result(error, folder)
        low = offset if low is None else min(low, offset)
        high = next_offset if high is None else max(high, next_offset)
    if low is not None:
        # What the new segments replace.
        for name in os.listdir(folder):
            offset = names.offset_of(name)
            if not name.endswith(names.SWAP_SUFFIX) and offset is not None and low <= offset < high:
                os.unlink(folder / name)
    for name in os.listdir(folder):
        if name.endswith(names.SWAP_SUFFIX):
            os.rename(folder / name, folder / name.removesuffix(names.SWAP_SUFFIX))
    return 0


def offset_of(folder, name):
    """Return the offset with which the name of a file begins. Raises LogDirectoryError."""
    offset = names.offset_of(name)
    if offset is None:
        raise LogDirectoryError(f"{folder / name}: the name does not begin with an offset")
    return offset
