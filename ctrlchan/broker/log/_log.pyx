"""The log of one partition: segments, offsets, leader epochs, retention and recovery.

Source: ``UnifiedLog``, ``LocalLog``, ``LogLoader``. Appends and reads run without the GIL under the log's mutex, on the
thread of a processor; no Python object is made for a record or a batch. Nothing that needs the GIL is done under the
mutex, so no processor waits for Python. An I/O error takes the log offline: every call after it is answered with
KAFKA_STORAGE_ERROR.
"""

from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdlib cimport free, malloc

from ctrlchan._c.clocks cimport NEVER
from ctrlchan._c.error_codes cimport KAFKA_STORAGE_ERROR, NONE, RECORD_LIST_TOO_LARGE, UNKNOWN_SERVER_ERROR
from ctrlchan._c.locks cimport lock, unlock
from ctrlchan.broker.log._batches cimport (
    CLIENT,
    REPLICATION,
    Appended,
    Batch,
    Checked,
    assign_offsets,
    check_replicated,
    read_batch,
)
from ctrlchan.broker.log._log_deletion cimport LogDeletion
from ctrlchan.broker.log._producers cimport ProducerStates, ProducerUpdate
from ctrlchan.broker.log._parts cimport DONE, NO_MEMORY
from ctrlchan.broker.log._segment cimport (
    Segment,
    acquire,
    append,
    flush_segment,
    make_inactive,
    release,
    should_roll,
)

import os
import random
import shutil
from pathlib import Path

from ctrlchan.broker.log import names
from ctrlchan.broker.log._leader_epochs import LeaderEpochs
# Not used here: Python code takes all that has to do with a log from this module.
from ctrlchan.broker.log._log_deletion import CleanedSegment, SegmentInfo
from ctrlchan.broker.log._log_files import wall_ms
from ctrlchan.broker.log._log_reads import (
    EARLIEST,
    EARLIEST_LOCAL,
    LATEST,
    MAX_TIMESTAMP,
    READ_HIGH_WATERMARK,
    READ_LAST_STABLE_OFFSET,
    READ_LOG_END,
    AbortedTransaction,
    FileRange,
)
from ctrlchan.broker.log.checkpoints import flush_folder
from ctrlchan.errors import KafkaError

#: What ``Log.due`` returns, added up. DUE_FLUSH_ROLLED: only the segments before the active one.
DUE_OFFLINE, DUE_FLUSH, DUE_FLUSH_ROLLED, DUE_DELETION = 1, 2, 4, 8


cdef class Log(LogDeletion):
    """The log of the partition whose folder is ``folder``.

    ``start_offset`` and ``recovery_point`` come from the checkpoints of the log directory. ``clean``: the log directory
    was closed in order, so nothing is recovered. ``producer_expiration_ms``: producer.id.expiration.ms. Raises
    LogDirectoryError for files that cannot be a log, KafkaError where the disk fails.
    """

    def __init__(
        self, folder, config, *, int64_t start_offset=0, int64_t recovery_point=0, bint clean=False,
        int64_t producer_expiration_ms=86_400_000
    ):
        if self.segments != NULL or self.closed_:
            raise RuntimeError("a log is opened once")
        if start_offset < 0 or recovery_point < 0:
            raise ValueError(f"start offset {start_offset}, recovery point {recovery_point}: negative")
        self.deleted = []
        self.next_deletion_ms = self.lowest_truncation = NEVER
        self.flushed_ms = wall_ms()
        self.seed = random.getrandbits(64)
        self._set_folder(Path(folder))
        self._set_config(config)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.epochs = LeaderEpochs(self.folder)
        self.producers = ProducerStates(producer_expiration_ms)
        self.first_undecided = -1
        self._load(start_offset, recovery_point, clean)
        self.is_shared = True

    @property
    def first_offset(self):
        """The first offset of the first segment; ``start_offset`` may be above it."""
        cdef int64_t offset
        with nogil:
            lock(&self.mutex)
            offset = self.segments[0].base_offset if self.count > 0 else self.start_offset_
            unlock(&self.mutex)
        return offset

    def due(self, int64_t now_ms):
        """Return what a background thread should do: DUE_OFFLINE, DUE_FLUSH and DUE_DELETION, added up.

        No lock is taken: this is asked for each log once a second.
        """
        cdef int found = 0
        cdef int64_t unflushed = self.end_offset_ - self.recovery_point_
        if self.failure:
            return DUE_OFFLINE
        if self.closed_:
            return 0
        if unflushed >= self.flush_messages or (unflushed > 0 and now_ms - self.flushed_ms >= self.flush_ms):
            found = DUE_FLUSH
        elif self.wants_flush_:
            found = DUE_FLUSH_ROLLED
        if self.next_deletion_ms <= now_ms:
            found += DUE_DELETION
        return found

    # -- appending

    cdef int append_leader(
        self, uint8_t* data, Appended* appended, int32_t leader_epoch, int origin, int64_t now_ms
    ) noexcept nogil:
        """Give checked batches their offsets and append them. Returns Kafka's error code.

        ``appended`` has the offsets afterwards. Batches that were appended before (an idempotent producer's) are not
        written again: ``appended`` has the offsets of then, their timestamp in ``header_timestamp``, and ``size`` 0.
        """
        cdef int error = NONE
        lock(&self.mutex)
        if self.failure or self.closed_:
            error = KAFKA_STORAGE_ERROR
        elif appended.size > self.segment_bytes:
            error = RECORD_LIST_TOO_LARGE
        else:
            assign_offsets(data, appended, self.end_offset_, leader_epoch)
            error = self.write_batches(data, appended, origin, now_ms)
        unlock(&self.mutex)
        return error

    cdef int append_follower(self, uint8_t* data, Appended* appended, int64_t now_ms) noexcept nogil:
        """Append a leader's batches with the offsets that they have. Returns Kafka's error code.

        UNKNOWN_SERVER_ERROR: they begin below the log's end (UnexpectedAppendOffsetException).
        """
        cdef int error = NONE
        lock(&self.mutex)
        if self.failure or self.closed_:
            error = KAFKA_STORAGE_ERROR
        elif appended.first_offset < self.end_offset_:
            error = UNKNOWN_SERVER_ERROR
        elif appended.size > self.segment_bytes:
            error = RECORD_LIST_TOO_LARGE
        else:
            error = self.write_batches(data, appended, REPLICATION, now_ms)
        unlock(&self.mutex)
        return error

    cdef int write_batches(self, const uint8_t* data, Appended* appended, int origin, int64_t now_ms) noexcept nogil:
        """Append batches whose offsets are final: leader epochs, a new segment if needed, producers, one write."""
        cdef ProducerUpdate update
        cdef int result, error
        self.require_mutex()
        if appended.size <= 0:
            return NONE
        result = self.assign_epochs(data, appended.size)
        if result == DONE and should_roll(
            self.active(), appended.size, self.segment_bytes, self.roll_ms, now_ms, appended.max_timestamp,
            appended.last_offset
        ):
            result = self.roll_segment(max(appended.first_offset, self.end_offset_), now_ms)
        if result == DONE:
            error = self.check_producers(data, appended, origin, &update)
            if error != NONE or appended.size == 0:
                return error
            result = append(
                self.active(), data, appended.size, appended.first_offset, appended.last_offset,
                appended.max_timestamp, appended.offset_of_max_timestamp
            )
        if result != DONE:
            return self.fail(result)
        self.end_offset_ = appended.last_offset + 1
        result = self.update_producers(data, appended, origin, &update)
        self.producers.end_offset = self.end_offset_
        if result != DONE:
            return self.fail(result)
        if self.end_offset_ - self.recovery_point_ >= self.flush_messages:
            self.wants_flush_ = True
        return NONE

    cdef int check_producers(
        self, const uint8_t* data, Appended* appended, int origin, ProducerUpdate* update
    ) noexcept nogil:
        """Check all batches against the state of their producers; return Kafka's error code.

        ``update``: of the last batch. See ``append_leader`` for a duplicate.
        """
        cdef Batch batch
        cdef int64_t position = 0
        cdef int error
        while position < appended.size:
            read_batch(data + position, &batch)
            error = self.producers.check(data + position, &batch, origin, update)
            if error != NONE:
                return error
            if update.is_duplicate:
                appended.first_offset, appended.last_offset = update.duplicate_first_offset, update.duplicate_last_offset
                appended.header_timestamp = update.duplicate_timestamp
                appended.size = 0
                return NONE
            position += batch.size
        return NONE

    cdef int update_producers(
        self, const uint8_t* data, const Appended* appended, int origin, const ProducerUpdate* update
    ) noexcept nogil:
        """Update the state of the producers of written batches; ``update``: for the only batch."""
        cdef ProducerUpdate another
        cdef Batch batch
        cdef int64_t position = 0
        cdef int result = DONE
        while position < appended.size and result == DONE:
            read_batch(data + position, &batch)
            if appended.batches == 1:
                result = self.take_update(self.active(), &batch, update)
            elif self.producers.check(data + position, &batch, origin, &another) == NONE:
                result = self.take_update(self.active(), &batch, &another)
            position += batch.size
        return result

    cdef int assign_epochs(self, const uint8_t* data, int64_t size) noexcept nogil:
        """Record each leader epoch of the batches that is not the latest one."""
        cdef Batch batch
        cdef int64_t position = 0
        cdef int result
        while position < size:
            read_batch(data + position, &batch)
            if batch.leader_epoch != self.epochs.latest() and batch.leader_epoch >= 0:
                result = self.epochs.assign_epoch(batch.leader_epoch, batch.base_offset)
                if result != DONE:
                    return result
            position += batch.size
        return DONE

    def append_as_leader(self, Checked checked not None, int32_t leader_epoch, *, int origin=CLIENT, now_ms=None):
        """Append checked batches; return their first and last offset. Raises KafkaError.

        Batches of an idempotent producer that were appended before are not written again. ``origin``: as that of the
        ``AppendRules`` that they were checked with.
        """
        cdef uint8_t[::1] data = checked.data
        cdef int64_t now = wall_ms() if now_ms is None else now_ms
        cdef int error
        if checked.appended.needs_decompression:
            raise ValueError("compressed records are not checked yet")
        with nogil:
            error = self.append_leader(&data[0], &checked.appended, leader_epoch, origin, now)
        if error != NONE:
            raise KafkaError(error)
        return checked.appended.first_offset, checked.appended.last_offset

    def append_as_follower(self, data not None, *, now_ms=None):
        """Append batches from the leader as they are; return first and last offset. Raises KafkaError."""
        cdef uint8_t[::1] batches = bytearray(data)
        cdef int64_t now = wall_ms() if now_ms is None else now_ms
        cdef Appended appended
        cdef int error
        if batches.shape[0] == 0:
            raise ValueError("no batch")
        with nogil:
            error = check_replicated(&batches[0], batches.shape[0], &appended)
            if error == NONE:
                error = self.append_follower(&batches[0], &appended, now)
        if error != NONE:
            raise KafkaError(error)
        return appended.first_offset, appended.last_offset

    # -- flushing and closing

    def flush(self, *, bint active=True):
        """Flush all records to the disk; ``active=False``: without those of the active segment.

        The mutex is not held while the disk works. Raises KafkaError.
        """
        cdef Segment** unflushed = NULL
        cdef Segment* segment
        cdef int32_t i, number = 0
        cdef int64_t offset = 0, recovery_point = 0, now = wall_ms()
        cdef int result
        with nogil:
            result = self.lock_online()
            if result == DONE:
                recovery_point = self.recovery_point_
                result = self.begin_flush(active, now, &offset, &unflushed, &number)
            unlock(&self.mutex)
        self.check(result)
        if offset <= recovery_point:
            return
        with nogil:
            for i in range(number):
                segment = unflushed[i]
                if result == DONE:
                    result = flush_segment(segment)
                release(segment)
            free(unflushed)
        self._flush_snapshots(recovery_point, offset)
        self.check(result)
        with nogil:
            result = self.lock_online()
            if result == DONE:
                # A truncation in between has made the end smaller.
                self.recovery_point_ = max(self.recovery_point_, min(offset, self.end_offset_))
            unlock(&self.mutex)
        self.check(result)

    cdef int begin_flush(
        self, bint active, int64_t now_ms, int64_t* offset, Segment*** unflushed, int32_t* number
    ) noexcept nogil:
        """Find the segments that ``flush`` flushes, and the offset where they end; each has a reference of the caller's.

        ``unflushed``: memory that the caller frees. Returns a result of ``_parts``. Requires the mutex.
        """
        cdef int32_t i
        cdef int result
        self.require_mutex()
        self.wants_flush_ = False
        self.flushed_ms = now_ms
        result = self.epochs.save()
        if result != DONE:
            return result
        offset[0] = self.end_offset_ if active else self.active().base_offset
        if offset[0] <= self.recovery_point_:
            return DONE
        unflushed[0] = <Segment**>malloc(self.count * sizeof(Segment*))
        if unflushed[0] == NULL:
            return NO_MEMORY
        for i in range(max(self.floor_segment(self.recovery_point_), 0), self.count if active else self.count - 1):
            acquire(self.segments[i])
            unflushed[0][number[0]] = self.segments[i]
            number[0] += 1
        return DONE

    def flush_if_due(self):
        """Flush if flush.messages says so. The appending thread calls this before the records count. Raises KafkaError."""
        if self.end_offset_ - self.recovery_point_ >= self.flush_messages:
            self.flush()

    def _flush_snapshots(self, int64_t recovery_point, int64_t end_offset):
        """Flush the folder and the snapshots of the segments that are flushed."""
        try:
            for offset in self._snapshots():
                if recovery_point <= offset <= end_offset:
                    with open(self.folder / f"{names.segment_name(offset)}{names.SNAPSHOT_SUFFIX}", "rb") as file:
                        os.fsync(file.fileno())
            flush_folder(self.folder)
        except FileNotFoundError:
            # It is being deleted.
            pass

    def close(self):
        """Flush and close all files, so that the log needs no recovery. The log answers with an error afterwards."""
        cdef Segment* segment = NULL
        cdef int result
        if self.closed_:
            return
        try:
            with nogil:
                result = self.lock_online()
                if result == DONE:
                    result = self.take_snapshot(True)
                if result == DONE:
                    result = make_inactive(self.active())
                if result == DONE:
                    result = self.epochs.save()
                if result == DONE and self.recovery_point_ >= self.end_offset_:
                    segment = self.active()
                    acquire(segment)
                unlock(&self.mutex)
                if segment != NULL:
                    result = flush_segment(segment)
                    release(segment)
            self.check(result)
            if segment == NULL:
                self.flush()
        finally:
            self.close_files()

    def rename(self, name):
        """Rename the folder, as is done before a topic is deleted."""
        cdef bytes encoded
        cdef const char* path
        cdef int result
        with self.changing:
            folder = self.folder.with_name(name)
            encoded = os.fsencode(folder)
            path = encoded
            with nogil:
                result = self.lock_online()
                if result == DONE:
                    result = self.epochs.save()
                if result == DONE:
                    result = self.rename_folder(path)
                if result == DONE:
                    result = self.epochs.move(path)
                unlock(&self.mutex)
            if self.c_folder == path:
                # The bytes live as long as the log uses them, also after an error.
                self.folder, self.folder_bytes = folder, encoded
            self.check(result)
            flush_folder(folder.parent)
            self.deleted = [(due, folder / file.name) for due, file in self.deleted]

    def delete(self):
        """Close the log and delete its folder."""
        self.close_files()
        shutil.rmtree(self.folder)
