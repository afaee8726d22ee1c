"""The offsets of a log, and the leader epochs, producers and transactions of its batches."""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc, realloc

from ctrlchan._c.error_codes cimport KAFKA_STORAGE_ERROR, NONE, OFFSET_OUT_OF_RANGE
from ctrlchan._c.locks cimport lock, unlock
from ctrlchan.broker.log._batches cimport CONTROL, REPLICATION, TRANSACTIONAL, Batch
from ctrlchan.broker.log._log_files cimport LogFiles
from ctrlchan.broker.log._leader_epochs cimport EpochStart
from ctrlchan.broker.log._producers cimport Producer, ProducerUpdate, describe_producers
from ctrlchan.broker.log._files cimport read_at
from ctrlchan.broker.log._parts cimport CORRUPT, DONE, NOT_FOUND, NO_MEMORY
from ctrlchan.broker.log._segment cimport (
    Scan,
    Segment,
    find_offset,
    scan_next,
    start_scan,
)
from ctrlchan.broker.log._transaction_index cimport AbortedEntry, add_aborted

from ctrlchan.broker.log import names
from ctrlchan.broker.log._leader_epochs import EpochEnd
from ctrlchan.broker.log._log_files import wall_ms
from ctrlchan.broker.log._producers import check_snapshot
from ctrlchan.errors import KafkaError


cdef class LogOffsets(LogFiles):
    """Where a log begins and ends, up to where it may be read, and its leader epochs, producers and transactions."""

    def __dealloc__(self):
        free(self.ended)

    @property
    def start_offset(self):
        """The first offset that may be read."""
        return self.start_offset_

    @property
    def end_offset(self):
        """The offset of the next record."""
        return self.end_offset_

    @property
    def high_watermark(self):
        """The offset that consumers may read up to."""
        return self.high_watermark_

    @property
    def recovery_point(self):
        """Everything below this offset survives a crash of the machine."""
        return self.recovery_point_

    @property
    def stable_offset(self):
        """The last stable offset: what consumers of READ_COMMITTED may read up to."""
        cdef int64_t offset
        with nogil:
            lock(&self.mutex)
            offset = self.last_stable_offset()
            unlock(&self.mutex)
        return offset

    cdef int64_t set_high_watermark(self, int64_t offset) noexcept nogil:
        """Move the high watermark, within start and end of the log; return where it is."""
        cdef int64_t moved
        lock(&self.mutex)
        moved = self.move_high_watermark(offset)
        unlock(&self.mutex)
        return moved

    cdef int64_t move_high_watermark(self, int64_t offset) noexcept nogil:
        cdef int32_t i = 0
        self.require_mutex()
        self.high_watermark_ = min(max(offset, self.start_offset_), self.end_offset_)
        self.watermark_segment = -1
        while i < self.ended_count:
            if self.ended[i].last_offset < self.high_watermark_:
                self.ended_count = self.ended_count - 1
                self.ended[i] = self.ended[self.ended_count]
            else:
                i += 1
        return self.high_watermark_

    def update_high_watermark(self, int64_t offset):
        """Move the high watermark, within start and end of the log; return where it is."""
        cdef int64_t moved
        with nogil:
            moved = self.set_high_watermark(offset)
        return moved

    def increment_start_offset(self, int64_t offset):
        """Raise the first offset that may be read (DeleteRecords); return whether it was raised.

        Raises KafkaError OFFSET_OUT_OF_RANGE above the high watermark.
        """
        cdef int64_t high_watermark = 0
        cdef int result
        cdef bint is_raised = False
        with nogil:
            result = self.lock_online()
            if result == DONE:
                high_watermark = self.high_watermark_
                is_raised = self.start_offset_ < offset <= high_watermark
                if is_raised:
                    self.increment_start(offset)
            unlock(&self.mutex)
        self.check(result)
        if offset > high_watermark:
            raise KafkaError(
                OFFSET_OUT_OF_RANGE, f"{self.folder}: offset {offset} is above the high watermark {high_watermark}"
            )
        return is_raised

    cdef void increment_start(self, int64_t offset) noexcept nogil:
        """Raise the start offset to ``offset``, if it is below. The caller has checked the high watermark."""
        self.require_mutex()
        if offset > self.start_offset_:
            self.start_offset_ = offset
            self.recovery_point_ = max(self.recovery_point_, offset)
            self.epochs.truncate_start(offset)
            self.producers.end_offset = max(self.producers.end_offset, offset)

    # -- leader epochs

    cdef int begin_epoch(self, int32_t epoch, int64_t* start_offset) noexcept nogil:
        """Do what ``assign_leader_epoch`` does, and find the end of the log. Returns a result of ``_parts``."""
        cdef int result = self.lock_online()
        start_offset[0] = self.end_offset_
        if result == DONE:
            result = self.epochs.assign_epoch(epoch, self.end_offset_)
            if result != DONE:
                self.fail(result)
        unlock(&self.mutex)
        return result

    def assign_leader_epoch(self, int32_t epoch):
        """Record that ``epoch`` begins at the end of the log: what a new leader does before it appends."""
        cdef int64_t start_offset
        cdef int result
        if epoch < 0:
            raise ValueError(f"leader epoch {epoch}")
        with nogil:
            result = self.begin_epoch(epoch, &start_offset)
        self.check(result)

    def leader_epochs(self):
        """Return all (leader epoch, start offset) pairs, ascending."""
        cdef EpochStart* starts
        cdef int32_t i, count
        with nogil:
            lock(&self.mutex)
            starts = self.epochs.copy(&count)
            unlock(&self.mutex)
        if starts == NULL:
            raise MemoryError()
        try:
            return [(starts[i].epoch, starts[i].offset) for i in range(count)]
        finally:
            free(starts)

    cdef int find_end_of_epoch(self, int32_t epoch, int32_t* found_epoch, int64_t* end_offset) noexcept nogil:
        """Find what ``end_of_epoch`` returns. Returns Kafka's error code."""
        cdef EpochStart end
        cdef int result = self.lock_online()
        self.epochs.find_end(epoch, self.end_offset_, &end)
        unlock(&self.mutex)
        found_epoch[0], end_offset[0] = end.epoch, end.offset
        return NONE if result == DONE else KAFKA_STORAGE_ERROR

    def end_of_epoch(self, int32_t epoch):
        """Return the EpochEnd of a leader epoch (OffsetForLeaderEpoch)."""
        cdef int32_t found_epoch
        cdef int64_t end_offset
        with nogil:
            self.find_end_of_epoch(epoch, &found_epoch, &end_offset)
        return EpochEnd(found_epoch, end_offset)

    # -- producers and transactions

    cdef int64_t last_stable_offset(self) noexcept nogil:
        """Return the offset below which all transactions have ended, and their markers are replicated."""
        cdef int64_t stable = self.high_watermark_
        cdef int32_t i
        self.require_mutex()
        if self.first_undecided >= 0:
            stable = min(stable, max(self.first_undecided, self.start_offset_))
        for i in range(self.ended_count):
            stable = min(stable, max(self.ended[i].first_offset, self.start_offset_))
        return stable

    cdef int take_update(self, Segment* segment, const Batch* batch, const ProducerUpdate* update) noexcept nogil:
        """Update the producer of a written batch, and the transactions that limit READ_COMMITTED readers."""
        cdef Ended* ended
        cdef AbortedEntry aborted
        self.require_mutex()
        self.producers.update(update)
        if batch.producer_id < 0 or not batch.attributes & (TRANSACTIONAL | CONTROL):
            return DONE
        self.first_undecided = self.producers.first_undecided()
        if not update.ends_txn:
            return DONE
        if self.ended_count == self.ended_room:
            ended = <Ended*>realloc(self.ended, (2 * self.ended_room + 4) * sizeof(Ended))
            if ended == NULL:
                return NO_MEMORY
            self.ended, self.ended_room = ended, 2 * self.ended_room + 4
        self.ended[self.ended_count].first_offset = update.txn_first_offset
        self.ended[self.ended_count].last_offset = batch.base_offset + batch.last_offset_delta
        self.ended_count = self.ended_count + 1
        if segment == NULL or not update.is_aborted:
            return DONE
        aborted.producer_id, aborted.first_offset = batch.producer_id, update.txn_first_offset
        aborted.last_offset = batch.base_offset + batch.last_offset_delta
        aborted.last_stable_offset = self.first_undecided if self.first_undecided >= 0 else aborted.last_offset + 1
        return add_aborted(&segment.transactions, &aborted)

    cdef int replay_batch(self, Segment* segment, const uint8_t* data, const Batch* batch) noexcept nogil:
        """Apply a batch that is in the log to its producer; CORRUPT for a control batch without a marker.

        ``segment``: its transaction index gets what the batch aborts; NULL: it has it.
        """
        cdef ProducerUpdate update
        if self.producers.check(data, batch, REPLICATION, &update) != NONE:
            return CORRUPT
        self.producers.end_offset = batch.base_offset + batch.last_offset_delta + 1
        return self.take_update(segment, batch, &update)

    cdef int replay(self, int64_t from_offset, int64_t end_offset) noexcept nogil:
        """Apply the batches from ``from_offset`` on, which lie in one segment, to the producers."""
        cdef Segment* segment = self.segments[max(self.floor_segment(from_offset), 0)]
        cdef Scan scan
        cdef Batch batch
        cdef int64_t position
        cdef uint8_t* data
        cdef int result = find_offset(segment, from_offset, &batch, &position)
        if result == DONE:
            start_scan(&scan, segment.fd, position, segment.size)
            result = scan_next(&scan, &batch, &position)
        while result == DONE and batch.base_offset < end_offset:
            data = NULL
            if batch.producer_id >= 0 and batch.attributes & CONTROL:
                data = <uint8_t*>malloc(batch.size)
                if data == NULL:
                    return NO_MEMORY
                result = read_at(segment.fd, data, batch.size, position)
            if result == DONE:
                # A control batch without a marker changes no producer; it was acknowledged.
                self.replay_batch(NULL, data, &batch)
                result = scan_next(&scan, &batch, &position)
            free(data)
        return DONE if result == NOT_FOUND or result == CORRUPT else result

    cdef void clear_producers(self, int64_t end_offset) noexcept nogil:
        self.require_mutex()
        self.producers.forget_all()
        self.producers.end_offset = self.producers.snapshot_offset = end_offset
        self.ended_count = 0
        self.first_undecided = -1

    cdef tuple choose_snapshot(self, int64_t start_offset, int64_t end_offset, bint is_read):
        """Return the newest snapshot of producers between the offsets: its offset, and its bytes if it ``is_read``.

        Offset -1: no snapshot. Snapshots of other offsets are deleted, and, as in Kafka, invalid ones that are read.
        Requires ``changing``.
        """
        snapshots = []
        for offset in self._snapshots():
            if start_offset < offset <= end_offset:
                snapshots.append(offset)
            else:
                self._remove_snapshot(offset)
        while snapshots:
            newest = snapshots.pop()
            if not is_read:
                return newest, None
            path = self.folder / f"{names.segment_name(newest)}{names.SNAPSHOT_SUFFIX}"
            data = path.read_bytes()
            try:
                check_snapshot(data)
            except ValueError:
                # The one before it, or all batches, will do.
                path.unlink()
                continue
            return newest, data
        return -1, None

    cdef int rebuild(self, int64_t start_offset, int64_t end_offset, int64_t now_ms) except -1:
        """Bring the producers of a log that is not shared yet to where they were at ``end_offset``."""
        cdef int64_t snapshot_offset
        cdef bytes data
        cdef const char* snapshot = NULL
        cdef int result
        snapshot_offset, data = self.choose_snapshot(start_offset, end_offset, True)
        if data is not None:
            snapshot = data
        with nogil:
            result = self.rebuild_producers(
                <const uint8_t*>snapshot, snapshot_offset, start_offset, end_offset, now_ms
            )
        return self.check(result)

    cdef bint has_nobody_to_forget(self, int64_t end_offset) noexcept nogil:
        """Return whether the log had no producers at ``end_offset`` because it has none behind it. Requires the mutex."""
        self.require_mutex()
        return self.producers.count == 0 and self.producers.end_offset >= end_offset

    cdef int rebuild_producers(
        self, const uint8_t* snapshot, int64_t snapshot_offset, int64_t start_offset, int64_t end_offset, int64_t now_ms
    ) noexcept nogil:
        """Bring the producers to where they were at ``end_offset``: a snapshot that is valid, and the batches behind it.

        ``snapshot_offset`` -1: there is no snapshot. ``snapshot`` NULL: it was not read; all batches serve as well.
        Returns a result of ``_parts``. Requires the mutex.
        """
        cdef int64_t base, after
        cdef int32_t i
        cdef int result = DONE
        self.require_mutex()
        if self.has_nobody_to_forget(end_offset):
            self.clear_producers(end_offset)
            self.producers.snapshot_offset = snapshot_offset if snapshot_offset >= 0 else start_offset
        else:
            self.clear_producers(start_offset)
            if snapshot != NULL:
                if not self.producers.add_snapshot(snapshot, now_ms):
                    return NO_MEMORY
                self.producers.end_offset = self.producers.snapshot_offset = snapshot_offset
            for i in range(max(0, self.floor_segment(self.producers.end_offset)), self.count):
                base = max(self.segments[i].base_offset, self.producers.end_offset)
                if base >= end_offset:
                    break
                self.producers.end_offset = base
                if i >= self.count - 2 and base == self.segments[i].base_offset:
                    result = self.take_snapshot(True)
                if result == DONE:
                    after = self.segments[i + 1].base_offset if i + 1 < self.count else end_offset
                    result = self.replay(base, min(after, end_offset))
                if result != DONE:
                    return result
        self.producers.end_offset = end_offset
        self.first_undecided = self.producers.first_undecided()
        return self.take_snapshot(True)

    def remove_expired_producers(self, now_ms=None):
        """Forget the producers that have appended nothing for producer.id.expiration.ms."""
        cdef int64_t now = wall_ms() if now_ms is None else now_ms
        with nogil:
            lock(&self.mutex)
            self.producers.expire(now)
            unlock(&self.mutex)

    def producer_states(self):
        """Return the ProducerState of all producers, in the order in which they came."""
        cdef Producer* copied
        cdef int64_t count
        with nogil:
            lock(&self.mutex)
            copied = self.producers.copy(&count)
            unlock(&self.mutex)
        return describe_producers(copied, count)

    def last_batches(self):
        """Return the last offset of each producer's last batch, -1 for none, and its epoch, by producer id."""
        return {
            one.producer_id: (one.batches[len(one.batches) - 1].last_offset if one.batches else -1, one.epoch)
            for one in self.producer_states()
        }
