"""What a log does while its mutex is held: appends, reads, rolls, retention, truncation.

Source: ``LocalLog``, and what ``UnifiedLog`` does under its lock: leader epochs and producers change together with the
records. Nothing here needs the GIL or takes a lock. Functions return results (``_parts.pxd``).
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t

from ctrlchan._c.clocks cimport NEVER
from ctrlchan._c.error_codes cimport NONE, NOT_ENOUGH_REPLICAS
from ctrlchan._c.locks cimport Mutex
from ctrlchan.broker.log._batches cimport Appended
from ctrlchan.broker.log._indexes cimport no_descriptor
from ctrlchan.broker.log._leader_epochs cimport LeaderEpochs
from ctrlchan.broker.log._parts cimport DONE, OUT_OF_RANGE, require_mutex
from ctrlchan.broker.log._producer_snapshots cimport take_snapshot
from ctrlchan.broker.log._producer_updates cimport check_producers, has_abort, rebuild_producers, update_producers
from ctrlchan.broker.log._producers cimport ProducerStates, ProducerUpdate
from ctrlchan.broker.log._reading cimport HIGH_WATERMARK, LOG_END, Isolation, Place, Range, find_place, find_range
from ctrlchan.broker.log._segment cimport Segment, append, largest_timestamp, make_inactive, should_roll
from ctrlchan.broker.log._segments cimport Removed, Segments
from ctrlchan.broker.log._transaction_index cimport reserve_aborted


cdef int64_t MAX_INT32 = 0x7fffffff


cdef int64_t least_offset(const Appended* appended) noexcept nogil:
    """Return an offset that no record of an append is below.

    Of a batch of format 0 or 1 only the last offset is known. As in Kafka, it counts as one of 2^31 at most.
    """
    return appended.last_offset - MAX_INT32 if appended.begins_old else appended.first_offset


@cython.final
cdef class LocalLog:
    """The parts of a log, with its offsets."""

    def __init__(self, Segments segments not None, LeaderEpochs epochs not None, ProducerStates producers not None):
        self.segments, self.epochs, self.producers = segments, epochs, producers
        self.lowest_truncation = NEVER
        self.watermark.segment = -1

    cdef void share(self, const Mutex* mutex) noexcept nogil:
        """From here on other threads have the log, and each function is called with its mutex held."""
        self.mutex = self.segments.mutex = self.epochs.mutex = self.producers.mutex = mutex

    cdef int finish(self) noexcept nogil:
        """Write the files of a log that needs no recovery: a snapshot of the producers, trimmed indexes."""
        cdef int result
        require_mutex(self.mutex)
        result = take_snapshot(self.producers, self.segments.folder, True)
        return result if result != DONE else make_inactive(self.segments.active())

    # -- appends

    cdef int append(
        self, const uint8_t* data, Appended* appended, int origin, int64_t guard, int64_t now_ms, int* error
    ) noexcept nogil:
        """Append batches whose offsets are final: leader epochs, a new segment if needed, producers, one write.

        ``guard``: as for ``ProducerStates.check``. ``error``: Kafka's, of a producer; nothing is written then. See
        ``check_producers`` for a duplicate.
        """
        cdef ProducerUpdate update
        cdef int result
        require_mutex(self.mutex)
        error[0] = NONE
        if appended.size <= 0:
            return DONE
        result = self.epochs.assign_batches(data, appended.size)
        if result == DONE and should_roll(
            self.segments.active(), appended.size, self.segments.settings.segment_bytes, self.segments.settings.roll_ms,
            now_ms, appended.max_timestamp, appended.last_offset
        ):
            result = self.roll(max(least_offset(appended), self.end_offset), now_ms)
        if result != DONE:
            return result
        error[0] = check_producers(self.producers, data, appended, origin, guard, &update)
        if error[0] != NONE or appended.size == 0:
            return DONE
        if update.ends_txn and update.is_aborted if appended.batches == 1 else has_abort(data, appended):
            # Before the write: without a descriptor these batches alone are refused, and their sender tries again.
            result = reserve_aborted(&self.segments.active().transactions)
            if no_descriptor(result):
                error[0] = NOT_ENOUGH_REPLICAS
                return DONE
            if result != DONE:
                return result
        result = append(
            self.segments.active(), data, appended.size, appended.first_offset, appended.last_offset,
            appended.max_timestamp, appended.offset_of_max_timestamp
        )
        if result != DONE:
            return result
        self.end_offset = appended.last_offset + 1
        if self.records_before_flush() < 0:
            self.wants_flush = True
        return update_producers(self.producers, self.segments.active(), data, appended, origin, &update)

    cdef int64_t records_before_flush(self) noexcept nogil:
        """Return how many records may be appended before flush.messages asks for a flush; -1: it asks for one."""
        return self.settings.flush_messages - 1 - (self.end_offset - self.recovery_point)

    cdef int roll(self, int64_t base_offset, int64_t now_ms) noexcept nogil:
        """Begin a new active segment at ``base_offset``."""
        cdef int32_t before = self.segments.count
        cdef int result = self.segments.roll(base_offset, now_ms)
        if result != DONE or self.segments.count == before:
            return result
        self.wants_flush = True
        # Recovery of the new segment begins with the present states of the producers.
        self.producers.end_offset = base_offset
        return take_snapshot(self.producers, self.segments.folder, False)

    # -- reads

    cdef void describe(self, Range* found) noexcept nogil:
        """Begin a range: without records, with the offsets of the log."""
        require_mutex(self.mutex)
        found.segment, found.fd = NULL, -1
        found.position = found.size = 0
        found.is_cut = found.is_older = False
        found.start_offset, found.end_offset, found.high_watermark = self.start_offset, self.end_offset, self.high_watermark
        found.last_stable_offset = self.producers.stable_offset(self.high_watermark, self.start_offset)

    cdef int read(
        self, int64_t offset, int64_t max_bytes, Isolation isolation, bint whole_first, Range* found
    ) noexcept nogil:
        """Find the whole batches from the one that holds ``offset``, at most ``max_bytes``. ``describe`` comes first."""
        cdef Place limit
        cdef int64_t limit_offset = self.end_offset
        cdef int result = DONE
        require_mutex(self.mutex)
        if offset < self.start_offset or offset > self.end_offset:
            return OUT_OF_RANGE
        if isolation != LOG_END:
            limit_offset = self.high_watermark if isolation == HIGH_WATERMARK else found.last_stable_offset
        if offset >= limit_offset:
            return DONE
        if limit_offset < self.high_watermark:
            result = find_place(self.segments, limit_offset, &limit)
        elif limit_offset < self.end_offset:
            if self.watermark.segment < 0:
                result = find_place(self.segments, self.high_watermark, &self.watermark)
            limit = self.watermark
        else:
            limit.segment, limit.position = self.segments.active().base_offset, self.segments.active().size
        return result if result != DONE else find_range(
            self.segments, offset, max_bytes, &limit, limit_offset, whole_first, found
        )

    # -- where it begins and ends

    cdef int64_t move_high_watermark(self, int64_t offset) noexcept nogil:
        """Move the high watermark, within start and end of the log; return where it is."""
        require_mutex(self.mutex)
        self.high_watermark = min(max(offset, self.start_offset), self.end_offset)
        self.watermark.segment = -1
        self.producers.forget_replicated(self.high_watermark)
        return self.high_watermark

    cdef void raise_start(self, int64_t offset) noexcept nogil:
        """Raise the start offset to ``offset``, if it is below. The caller has checked the high watermark."""
        require_mutex(self.mutex)
        if offset > self.start_offset:
            self.start_offset = offset
            self.recovery_point = max(self.recovery_point, offset)
            self.epochs.truncate_start(offset)
            self.producers.end_offset = max(self.producers.end_offset, offset)

    cdef int delete_old(self, int64_t now_ms, Removed* removed) noexcept nogil:
        """Take out the first segments, as far as start offset, retention.bytes and retention.ms do not keep them."""
        cdef int32_t number = self.count_old(now_ms)
        cdef int result = DONE
        require_mutex(self.mutex)
        if number > 0 and number == self.segments.count:
            # There is always an active segment.
            result = self.roll(self.end_offset, now_ms)
        if number > 0 and result == DONE:
            # All these segments are below the high watermark.
            self.raise_start(self.segments.at[number].base_offset)
            result = self.segments.take_out(0, number, removed)
        return result

    cdef int32_t count_old(self, int64_t now_ms) noexcept nogil:
        """Return how many of the first segments are to be deleted."""
        cdef int64_t excess
        cdef int32_t i = 0
        if self.start_offset <= self.high_watermark:
            while i + 1 < self.segments.count and self.segments.at[i + 1].base_offset <= self.start_offset:
                i += 1
        if self.settings.deletes_old and self.settings.retention_bytes >= 0:
            excess = self.segments.size_from(i) - self.settings.retention_bytes
            while self.may_delete(i) and excess - self.segments.at[i].size >= 0:
                excess -= self.segments.at[i].size
                i += 1
        if self.settings.deletes_old and self.settings.retention_ms >= 0:
            while self.may_delete(i) and now_ms - largest_timestamp(self.segments.at[i]) > self.settings.retention_ms:
                i += 1
        return i

    cdef bint may_delete(self, int32_t i) noexcept nogil:
        """Return whether a segment is below the high watermark and not the empty active one."""
        if i >= self.segments.count or (i == self.segments.count - 1 and self.segments.at[i].size == 0):
            return False
        return self.high_watermark >= self.segments.end_of(i, self.end_offset)

    # -- truncation

    cdef int truncate(
        self, int64_t offset, const uint8_t* snapshot, int64_t snapshot_offset, int64_t now_ms, Removed* removed
    ) noexcept nogil:
        """Remove the records at ``offset`` and above; the first segment does not begin above it.

        See ``rebuild_producers`` for the snapshot.
        """
        cdef int result
        require_mutex(self.mutex)
        result = self.segments.truncate(offset, now_ms, removed)
        if result == DONE:
            self.set_end(offset)
            self.epochs.truncate_end(offset)
            self.start_offset = min(self.start_offset, offset)
            result = rebuild_producers(
                self.producers, self.segments, snapshot, snapshot_offset, self.start_offset, offset, now_ms
            )
        if result == DONE:
            self.move_high_watermark(self.high_watermark)
        return result

    cdef int begin_again(self, int64_t offset, int64_t start_offset, int64_t now_ms, Removed* removed) noexcept nogil:
        """Put an empty segment in the place of all segments. After an error the log cannot be used any more."""
        cdef int result
        require_mutex(self.mutex)
        result = self.segments.take_out(0, self.segments.count, removed)
        if result == DONE:
            result = self.segments.add(offset, now_ms)
        if result == DONE:
            result = self.epochs.clear_epochs()
        if result == DONE:
            self.start_offset = start_offset
            self.set_end(offset)
            self.producers.begin_at(offset)
            self.move_high_watermark(offset)
        return result

    cdef void set_end(self, int64_t offset) noexcept nogil:
        self.lowest_truncation = min(self.lowest_truncation, offset)
        self.end_offset = offset
        self.recovery_point = min(self.recovery_point, offset)

    # -- compaction

    cdef int replace(self, Segment* cleaned, const Removed* replaced, bint* is_done) noexcept nogil:
        """Put a segment of the cleaner in the place of others, as ``Segments.replace``."""
        require_mutex(self.mutex)
        # Batches move.
        self.watermark.segment = -1
        return self.segments.replace(cleaned, replaced, is_done)
