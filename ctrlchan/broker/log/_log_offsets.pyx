"""The offsets of a log, and what its batches have said of leader epochs, producers and transactions."""

from libc.errno cimport EIO
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc, realloc

from ctrlchan._c.locks cimport lock, unlock
from ctrlchan.broker.log._batches cimport CONTROL, REPLICATION, TRANSACTIONAL, Batch
from ctrlchan.broker.log._log_files cimport (
    KAFKA_STORAGE_ERROR,
    NONE,
    OFFSET_OUT_OF_RANGE,
    LogFiles,
)
from ctrlchan.broker.log._producers cimport ProducerUpdate
from ctrlchan.broker.log._segment cimport (
    CORRUPT,
    DONE,
    NOT_FOUND,
    NO_MEMORY,
    STOPPED,
    Scan,
    Segment,
    add_aborted,
    find_offset,
    pread_all,
    scan_next,
    start_scan,
)

from ctrlchan.broker.log import names
from ctrlchan.broker.log._log_files import wall_ms
from ctrlchan.errors import KafkaError


cdef class LogOffsets(LogFiles):
    """Where a log begins and ends, up to where it may be read, and its leader epochs, producers and transactions."""

    def __dealloc__(self):
        free(self.ended)
        free(self.starts)

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
        self.lock()
        try:
            return self.last_stable_offset()
        finally:
            self.unlock()

    cdef int64_t set_high_watermark(self, int64_t offset) noexcept nogil:
        """Move the high watermark, within start and end of the log; return where it is."""
        cdef int64_t moved
        lock(&self.mutex)
        moved = self.move_high_watermark(offset)
        unlock(&self.mutex)
        return moved

    cdef int64_t move_high_watermark(self, int64_t offset) noexcept nogil:
        cdef int32_t i = 0
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
        self.lock()
        try:
            self.check_online()
            return self._increment_start(offset)
        finally:
            self.unlock()

    def _increment_start(self, int64_t offset):
        if offset > self.high_watermark_:
            raise KafkaError(
                OFFSET_OUT_OF_RANGE, f"{self.folder}: offset {offset} is above the high watermark {self.high_watermark_}"
            )
        if offset <= self.start_offset_:
            return False
        self.start_offset_ = offset
        self.recovery_point_ = max(self.recovery_point_, offset)
        self.epochs.truncate_start(offset)
        self.copy_epochs()
        self.producers.end_offset = max(self.producers.end_offset, offset)
        return True

    # -- leader epochs

    cdef int assign_epoch(self, int32_t epoch, int64_t start_offset) noexcept nogil:
        """Record a leader epoch and write its checkpoint; rare, so in Python."""
        with gil:
            try:
                self.epochs.assign(epoch, start_offset)
                self.copy_epochs()
            except OSError as error:
                return error.errno or EIO
            except BaseException as error:
                self.raised = error
                return STOPPED
        return DONE

    cdef int copy_epochs(self) except -1:
        """Note what the leader epochs are now. Requires the mutex."""
        cdef EpochStart* starts
        cdef int32_t i
        pairs = self.epochs.pairs()
        starts = <EpochStart*>realloc(self.starts, max(1, len(pairs)) * sizeof(EpochStart))
        if starts == NULL:
            raise MemoryError()
        self.starts, self.start_count, self.latest_epoch = starts, <int32_t>len(pairs), -1
        for i, (epoch, offset) in enumerate(pairs):
            starts[i].epoch, starts[i].offset = epoch, offset
            self.latest_epoch = epoch
        return 0

    def assign_leader_epoch(self, int32_t epoch):
        """Record that ``epoch`` begins at the end of the log: what a new leader does before it appends."""
        self.lock()
        try:
            self.check_online()
            self.check(self.assign_epoch(epoch, self.end_offset_))
        finally:
            self.unlock()

    cdef int find_end_of_epoch(self, int32_t epoch, int32_t* found_epoch, int64_t* end_offset) noexcept nogil:
        """Find what ``end_of_epoch`` returns. Returns Kafka's error code."""
        cdef int32_t i
        cdef int error = NONE
        lock(&self.mutex)
        found_epoch[0], end_offset[0] = -1, -1
        if self.failure or self.closed_:
            error = KAFKA_STORAGE_ERROR
        elif 0 <= epoch == self.latest_epoch:
            found_epoch[0], end_offset[0] = epoch, self.end_offset_
        elif 0 <= epoch < self.latest_epoch:
            # Most followers ask for one of the last epochs.
            i = self.start_count - 1
            while i > 0 and self.starts[i - 1].epoch > epoch:
                i -= 1
            found_epoch[0] = self.starts[i - 1].epoch if i > 0 else epoch
            end_offset[0] = self.starts[i].offset
        unlock(&self.mutex)
        return error

    def end_of_epoch(self, int32_t epoch):
        """Return the EpochEnd of a leader epoch (OffsetForLeaderEpoch)."""
        self.lock()
        try:
            return self.epochs.end_of(epoch, self.end_offset_)
        finally:
            self.unlock()

    # -- producers and transactions

    cdef int64_t last_stable_offset(self) noexcept nogil:
        """Return the offset below which all transactions have ended, and their markers are replicated."""
        cdef int64_t stable = self.high_watermark_
        cdef int32_t i
        if self.first_undecided >= 0:
            stable = min(stable, max(self.first_undecided, self.start_offset_))
        for i in range(self.ended_count):
            stable = min(stable, max(self.ended[i].first_offset, self.start_offset_))
        return stable

    cdef int take_update(self, Segment* segment, const Batch* batch, const ProducerUpdate* update) noexcept nogil:
        """Store what a written batch does to its producer, and to the transactions that readers wait for."""
        cdef Ended* ended
        cdef int64_t last_stable
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
        last_stable = self.first_undecided if self.first_undecided >= 0 else batch.base_offset + batch.last_offset_delta + 1
        return add_aborted(
            segment, batch.producer_id, update.txn_first_offset, batch.base_offset + batch.last_offset_delta, last_stable
        )

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
                result = pread_all(segment.fd, data, batch.size, position)
            if result == DONE:
                # A control batch without a marker changes no producer; it was acknowledged.
                self.replay_batch(NULL, data, &batch)
                result = scan_next(&scan, &batch, &position)
            free(data)
        return DONE if result == NOT_FOUND or result == CORRUPT else result

    def _replay(self, int64_t from_offset, int64_t end_offset):
        cdef int result
        with nogil:
            result = self.replay(from_offset, end_offset)
        return result

    def _clear_producers(self, int64_t end_offset):
        self.producers.clear()
        self.producers.end_offset = self.producers.snapshot_offset = end_offset
        self.ended_count = 0
        self.first_undecided = -1

    def _rebuild_producers(self, int64_t start_offset, int64_t end_offset, int64_t now_ms):
        """Bring the producers to where they were at ``end_offset``: the newest valid snapshot, and what follows it."""
        cdef int64_t base
        cdef int32_t i
        snapshots = []
        for offset in self._snapshots():
            if start_offset < offset <= end_offset:
                snapshots.append(offset)
            else:
                self._remove_snapshot(offset)
        if self.producers.count == 0 and self.producers.end_offset >= end_offset:
            # Nobody to forget.
            self._clear_producers(end_offset)
            self.producers.snapshot_offset = max(snapshots, default=start_offset)
        else:
            self._clear_producers(start_offset)
            while snapshots:
                newest = snapshots.pop()
                path = self.folder / f"{names.segment_name(newest)}{names.SNAPSHOT_SUFFIX}"
                try:
                    self.producers.load(path.read_bytes(), now_ms)
                except ValueError:
                    # As Kafka: the one before it, or all batches, will do.
                    path.unlink()
                    continue
                self.producers.end_offset = self.producers.snapshot_offset = newest
                break
            first = max(0, self.floor_segment(self.producers.end_offset))
            for i in range(first, self.count):
                base = max(self.segments[i].base_offset, self.producers.end_offset)
                if base >= end_offset:
                    break
                self.producers.end_offset = base
                if i >= self.count - 2 and base == self.segments[i].base_offset:
                    self.check(self.take_snapshot(True))
                after = self.segments[i + 1].base_offset if i + 1 < self.count else end_offset
                self.check(self._replay(base, min(after, end_offset)))
        self.producers.end_offset = end_offset
        self.first_undecided = self.producers.first_undecided()
        self.check(self.take_snapshot(True))

    def remove_expired_producers(self, now_ms=None):
        """Forget the producers that have appended nothing for producer.id.expiration.ms."""
        self.lock()
        try:
            self.producers.remove_expired(wall_ms() if now_ms is None else now_ms)
        finally:
            self.unlock()

    def last_batches(self):
        """Return the last offset of each producer's last batch, -1 for none, and its epoch, by producer id."""
        self.lock()
        try:
            return {
                one.producer_id: (one.batches[len(one.batches) - 1].last_offset if one.batches else -1, one.epoch)
                for one in self.producers.producers()
            }
        finally:
            self.unlock()
