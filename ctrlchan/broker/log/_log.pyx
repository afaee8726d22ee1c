"""The log of one partition, made of parts: segments, leader epochs, producers.

Source: ``UnifiedLog``. Appends and reads run without the GIL under the log's mutex, on the thread of a processor; no Python
object is made for a record or a batch. Only this file locks the mutex, and nothing that needs the GIL is done under it, so
no processor waits for Python. A part has no lock: it is used while the mutex is held, which debug builds check. An I/O
error takes the log offline: every call after it is answered with KAFKA_STORAGE_ERROR.
"""

cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t
from libc.stdlib cimport free
from libc.string cimport memset

from ctrlchan._c.atomics cimport count_shared
from ctrlchan._c.clocks cimport NEVER, monotonic_ns, wall_clock_ms
from ctrlchan._c.error_codes cimport (
    KAFKA_STORAGE_ERROR,
    NONE,
    OFFSET_OUT_OF_RANGE,
    RECORD_LIST_TOO_LARGE,
    UNKNOWN_SERVER_ERROR,
)
from ctrlchan._c.locks cimport LOG, close_mutex, lock, open_mutex, unlock
from ctrlchan.broker.log._batches cimport CLIENT, REPLICATION, Appended, Checked, assign_offsets, check_replicated
from ctrlchan.broker.log._compaction cimport CleanedSegment, Info, copy_infos, create_cleaned, describe_infos
from ctrlchan.broker.log._files cimport rename_path
from ctrlchan.broker.log._leader_epochs cimport EpochStart
from ctrlchan.broker.log._loading cimport LogLoader
from ctrlchan.broker.log._local_log cimport LocalLog, LogSettings
from ctrlchan.broker.log._parts cimport DONE, OFFLINE, check_result, error_code, why
from ctrlchan.broker.log._producer_snapshots cimport choose_snapshot
from ctrlchan.broker.log._producers cimport NOT_VERIFIED, Producer, describe_producers
from ctrlchan.broker.log._reading cimport (
    FileRange,
    Isolation,
    Range,
    TimeSearch,
    begin_search,
    describe_aborted,
    end_search,
    find_aborted,
    find_end,
)
from ctrlchan.broker.log._segments cimport Held, Removed, SegmentSettings, flush_held, set_offsets, take_offsets
from ctrlchan.broker.log._transaction_index cimport AbortedEntry
from ctrlchan.broker.log._verifications cimport (
    TransactionOfBatch,
    Verifications,
    confirm_verification,
    free_verifications,
    withdraw_confirmation,
)

import logging
import os
import shutil
import threading
from pathlib import Path

from ctrlchan.broker.log import names
from ctrlchan.broker.log._leader_epochs import EpochEnd
from ctrlchan.broker.log._producer_snapshots import flush_snapshots, remove_snapshots, snapshot_offsets
from ctrlchan.broker.log.checkpoints import flush_folder
from ctrlchan.broker.log.deleted_files import DeletedFiles
from ctrlchan.errors import KafkaError
from ctrlchan.log_context import ContextLogger

logger = logging.getLogger("ctrlchan.broker")

cdef enum:
    LATEST_OFFSET = -1
    EARLIEST_OFFSET = -2
    LARGEST_TIMESTAMP = -3
    EARLIEST_LOCAL_OFFSET = -4

#: Timestamps of ListOffsets that stand for an offset.
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL = -1, -2, -3, -4
#: Up to where a reader may read.
READ_LOG_END, READ_HIGH_WATERMARK, READ_LAST_STABLE_OFFSET = range(3)
#: What ``Log.due`` returns, added up. DUE_FLUSH_ROLLED: only the segments before the active one.
DUE_OFFLINE, DUE_FLUSH, DUE_FLUSH_ROLLED, DUE_DELETION = 1, 2, 4, 8


@cython.final
cdef class Log:
    """The log of the partition whose folder is ``folder``.

    ``start_offset`` and ``recovery_point`` come from the checkpoints of the log directory. ``clean``: the log directory
    was closed in order, so nothing is recovered. ``producer_expiration_ms``: producer.id.expiration.ms. Raises
    LogDirectoryError for files that cannot be a log, KafkaError where the disk fails.
    """

    def __cinit__(self, *args, **kwargs):
        open_mutex(&self.mutex, LOG)

    def __dealloc__(self):
        close_mutex(&self.mutex)

    def __init__(
        self, folder, config, *, int64_t start_offset=0, int64_t recovery_point=0, bint clean=False,
        int64_t producer_expiration_ms=86_400_000
    ):
        cdef LogLoader loader
        cdef SegmentSettings segment_settings
        cdef LogSettings settings
        if self.local is not None:
            raise RuntimeError("a log is opened once")
        if start_offset < 0 or recovery_point < 0:
            raise ValueError(f"start offset {start_offset}, recovery point {recovery_point}: negative")
        self.changing = threading.RLock()
        self.deleted = DeletedFiles()
        self.folder = Path(folder)
        self.flushed_ms = wall_clock_ms()
        read_config(config, &segment_settings, &settings)
        self.config = config
        loader = LogLoader(self.folder, start_offset, recovery_point, producer_expiration_ms)
        self.local = loader.load(&segment_settings, clean)
        self.local.settings = settings
        self.deleted.add(self.folder, loader.removed, wall_clock_ms() + config.file_delete_delay_ms)
        # From here on other threads have the log.
        self.local.share(&self.mutex)

    def update_config(self, config):
        """Take new settings; the size of indexes counts from the next segment on."""
        cdef SegmentSettings segment_settings
        cdef LogSettings settings
        with self.changing:
            read_config(config, &segment_settings, &settings)
            self.config = config
            with nogil:
                lock(&self.mutex)
                self.local.segments.settings, self.local.settings = segment_settings, settings
                unlock(&self.mutex)

    def set_producer_expiration(self, int64_t expiration_ms):
        """Take another producer.id.expiration.ms, for the producers that are known, too."""
        with nogil:
            lock(&self.mutex)
            self.local.producers.expiration_ms = expiration_ms
            unlock(&self.mutex)

    # -- the mutex, and errors

    cdef int lock_online(self) noexcept nogil:
        """Lock the mutex; return DONE, or OFFLINE where the log may not be used any more. The mutex is locked then, too."""
        lock(&self.mutex)
        return OFFLINE if self.closed_ or self.failure else DONE

    cdef int lock_writable(self) noexcept nogil:
        """As ``lock_online``; OFFLINE also where another log has taken the place of this one."""
        cdef int result = self.lock_online()
        return OFFLINE if self.is_replaced else result

    cdef int check(self, int result) except -1:
        """Raise KafkaError for a result that is an error."""
        if result == OFFLINE:
            reason = "closed" if self.closed_ else "replaced by another log" if self.is_replaced else why(self.failure)
            raise KafkaError(KAFKA_STORAGE_ERROR, f"{self.folder}: {reason}")
        if result != DONE:
            self.fail(result)
        return check_result(result, self.folder)

    cdef int fail(self, int result) noexcept nogil:
        """Return Kafka's error code of a result, and take the log offline where the disk is at fault."""
        cdef int error = error_code(result)
        if error == KAFKA_STORAGE_ERROR and result != OFFLINE:
            self.failure = result
        return error

    @property
    def offline(self):
        """Whether an I/O error has ended the use of this log."""
        return self.failure != 0

    @property
    def closed(self):
        """Whether the files are closed."""
        return self.closed_

    @property
    def failure_text(self):
        """Why the log is offline, empty while it is online."""
        return why(self.failure) if self.failure else ""

    # -- offsets

    @property
    def start_offset(self):
        """The first offset that may be read."""
        return self.local.start_offset

    @property
    def end_offset(self):
        """The offset of the next record."""
        return self.local.end_offset

    @property
    def high_watermark(self):
        """The offset that consumers may read up to."""
        return self.local.high_watermark

    @property
    def recovery_point(self):
        """Everything below this offset survives a crash of the machine."""
        return self.local.recovery_point

    @property
    def stable_offset(self):
        """The last stable offset: what consumers of READ_COMMITTED may read up to."""
        cdef int64_t offset
        with nogil:
            offset = self.find_stable_offset()
        return offset

    cdef int64_t find_stable_offset(self) noexcept nogil:
        cdef int64_t offset
        lock(&self.mutex)
        offset = self.local.producers.stable_offset(self.local.high_watermark, self.local.start_offset)
        unlock(&self.mutex)
        return offset

    cdef int64_t set_high_watermark(self, int64_t offset) noexcept nogil:
        """Move the high watermark, within start and end of the log; return where it is."""
        lock(&self.mutex)
        offset = self.local.move_high_watermark(offset)
        unlock(&self.mutex)
        return offset

    def update_high_watermark(self, int64_t offset):
        """Move the high watermark, within start and end of the log; return where it is."""
        with nogil:
            offset = self.set_high_watermark(offset)
        return offset

    def increment_start_offset(self, int64_t offset):
        """Raise the first offset that may be read (DeleteRecords); return whether it was raised.

        Raises KafkaError OFFSET_OUT_OF_RANGE above the high watermark.
        """
        cdef int64_t high_watermark = 0
        cdef int result
        cdef bint is_raised = False
        with nogil:
            result = self.lock_writable()
            if result == DONE:
                high_watermark = self.local.high_watermark
                is_raised = self.local.start_offset < offset <= high_watermark
                if is_raised:
                    self.local.raise_start(offset)
            unlock(&self.mutex)
        self.check(result)
        if offset > high_watermark:
            raise KafkaError(
                OFFSET_OUT_OF_RANGE, f"{self.folder}: offset {offset} is above the high watermark {high_watermark}"
            )
        return is_raised

    # -- leader epochs

    cdef int begin_epoch(self, int32_t epoch, int64_t* start_offset) noexcept nogil:
        """Record that ``epoch`` begins at the end of the log, and find that. Returns a result."""
        cdef int result = self.lock_online()
        start_offset[0] = self.local.end_offset
        if result == DONE:
            result = self.local.epochs.assign_epoch(epoch, self.local.end_offset)
            if result != DONE:
                self.fail(result)
        unlock(&self.mutex)
        return result

    def leader_epochs(self):
        """Return all (leader epoch, start offset) pairs, ascending."""
        cdef EpochStart* starts
        cdef int32_t i, count
        with nogil:
            lock(&self.mutex)
            starts = self.local.epochs.copy(&count)
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
        self.local.epochs.find_end(epoch, self.local.end_offset, &end)
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

    # -- producers

    def remove_expired_producers(self, now_ms=None):
        """Forget the producers that have appended nothing for producer.id.expiration.ms."""
        cdef int64_t now = wall_clock_ms() if now_ms is None else now_ms
        with nogil:
            lock(&self.mutex)
            self.local.producers.expire(now)
            unlock(&self.mutex)

    def producer_states(self):
        """Return the ProducerState of all producers, in the order in which they came."""
        cdef Producer* copied
        cdef int64_t count
        with nogil:
            lock(&self.mutex)
            copied = self.local.producers.copy(&count)
            unlock(&self.mutex)
        return describe_producers(copied, count)

    cdef bint is_verified(
        self, const TransactionOfBatch* batch, int32_t leader_epoch, int64_t* guard
    ) noexcept nogil:
        """As ``ProducerStates.is_verified``."""
        cdef bint is_known
        lock(&self.mutex)
        is_known = self.local.producers.is_verified(batch, leader_epoch, guard)
        unlock(&self.mutex)
        return is_known

    cdef void confirm_producer(
        self, int64_t producer_id, int16_t epoch, int64_t guard, const uint8_t* transactional_id, int64_t size,
        int32_t leader_epoch
    ) noexcept nogil:
        """Confirm a verification, for the coordinator of the transactional id."""
        lock(&self.mutex)
        confirm_verification(
            &self.local.producers.verifications, producer_id, epoch, guard, transactional_id, size, leader_epoch
        )
        unlock(&self.mutex)

    cdef void withdraw_producer(self, int64_t producer_id) noexcept nogil:
        """Withdraw the confirmation of a producer's verification."""
        lock(&self.mutex)
        withdraw_confirmation(&self.local.producers.verifications, producer_id)
        unlock(&self.mutex)

    cdef int verify_producer(
        self, int64_t producer_id, int16_t epoch, int32_t sequence, int64_t now_ms, int64_t* guard
    ) noexcept nogil:
        """Begin the verification of a producer's transaction: see ``ProducerStates.verify``. Returns Kafka's error code."""
        cdef int result = self.lock_online()
        if result == DONE:
            guard[0] = self.local.producers.verify(producer_id, epoch, sequence, now_ms)
        unlock(&self.mutex)
        if result != DONE:
            return KAFKA_STORAGE_ERROR
        return UNKNOWN_SERVER_ERROR if guard[0] == NOT_VERIFIED else NONE

    # -- appending

    cdef int append_leader(
        self, uint8_t* data, Appended* appended, int32_t leader_epoch, int origin, int64_t guard, int64_t now_ms
    ) noexcept nogil:
        """Give checked batches their offsets and append them. Returns Kafka's error code.

        ``guard``: as for ``ProducerStates.check``. ``appended`` has the offsets afterwards. Batches that were appended before (an idempotent producer's) are not
        written again: ``appended`` has the offsets of then, their timestamp in ``header_timestamp``, and ``size`` 0.
        """
        cdef int error = NONE
        cdef int result = self.lock_online()
        if result == DONE and appended.size > self.local.segments.settings.segment_bytes:
            error = RECORD_LIST_TOO_LARGE
        elif result == DONE:
            assign_offsets(data, appended, self.local.end_offset, leader_epoch)
            result = self.local.append(data, appended, origin, guard, now_ms, &error)
        if result != DONE:
            error = self.fail(result)
        unlock(&self.mutex)
        return error

    cdef int append_follower(self, uint8_t* data, Appended* appended, int64_t now_ms) noexcept nogil:
        """Append a leader's batches with the offsets that they have. Returns Kafka's error code.

        UNKNOWN_SERVER_ERROR: they begin below the log's end (UnexpectedAppendOffsetException).
        """
        cdef int error = NONE
        cdef int result = self.lock_writable()
        if result == DONE and appended.first_offset < self.local.end_offset:
            error = UNKNOWN_SERVER_ERROR
        elif result == DONE and appended.size > self.local.segments.settings.segment_bytes:
            error = RECORD_LIST_TOO_LARGE
        elif result == DONE:
            result = self.local.append(data, appended, REPLICATION, NOT_VERIFIED, now_ms, &error)
        if result != DONE:
            error = self.fail(result)
        unlock(&self.mutex)
        return error

    def append_as_leader(self, Checked checked not None, int32_t leader_epoch, *, int origin=CLIENT, now_ms=None):
        """Append checked batches; return their first and last offset. Raises KafkaError.

        Batches of an idempotent producer that were appended before are not written again. ``origin``: as that of the
        ``AppendRules`` that they were checked with.
        """
        cdef uint8_t[::1] data = checked.data
        cdef int64_t now = wall_clock_ms() if now_ms is None else now_ms
        cdef int error
        if checked.appended.needs_decompression:
            raise ValueError("compressed records are not checked yet")
        with nogil:
            error = self.append_leader(&data[0], &checked.appended, leader_epoch, origin, NOT_VERIFIED, now)
        if error != NONE:
            raise KafkaError(error)
        return checked.appended.first_offset, checked.appended.last_offset

    def append_as_follower(self, data not None, *, now_ms=None):
        """Append batches from the leader as they are; return first and last offset. Raises KafkaError."""
        cdef uint8_t[::1] batches = bytearray(data)
        cdef int64_t now = wall_clock_ms() if now_ms is None else now_ms
        cdef Appended appended
        cdef int32_t epochs = self.local.epochs.count
        cdef int error
        if batches.shape[0] == 0:
            raise ValueError("no batch")
        with nogil:
            error = check_replicated(&batches[0], batches.shape[0], &appended)
            if error == NONE:
                error = self.append_follower(&batches[0], &appended, now)
        if error != NONE:
            raise KafkaError(error)
        if appended.has_old and epochs > 0:
            ContextLogger(logger, names.log_context("UnifiedLog", self.folder)).warning(
                "records of format 0 or 1 up to offset %d: the leader epochs before are forgotten", appended.last_offset
            )
        return appended.first_offset, appended.last_offset

    # -- reading

    cdef int read_range(
        self, int64_t offset, int64_t max_bytes, Isolation isolation, bint whole_first, Range* found
    ) noexcept nogil:
        """Find the whole batches from the one that holds ``offset``, at most ``max_bytes``. Returns Kafka's error code.

        ``whole_first``: the first batch is returned also where it is larger. See ``Range`` for the reference.
        """
        cdef int result = self.lock_online()
        self.local.describe(found)
        if result == DONE:
            result = self.local.read(offset, max_bytes, isolation, whole_first, found)
        if result != DONE:
            result = self.fail(result)
        unlock(&self.mutex)
        return result

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

    cdef int find_aborted(
        self, int64_t offset, const Range* records, AbortedEntry** found, int32_t* count
    ) noexcept nogil:
        """Find the aborted transactions of what was read from ``offset`` on. Returns Kafka's error code.

        There may be some that begin behind the records. The caller frees ``found``, also after an error.
        """
        cdef int64_t end
        cdef int result
        found[0], count[0] = NULL, 0
        lock(&self.mutex)
        result = find_end(self.local.segments, records, self.local.end_offset, &end)
        if result == DONE:
            result = find_aborted(self.local.segments, offset, min(end, records.last_stable_offset), found, count)
        if result != DONE:
            result = self.fail(result)
        unlock(&self.mutex)
        return result

    def aborted_entries(self, int64_t from_offset, int64_t end_offset):
        """Return an AbortedTransaction for each aborted transaction with records between the offsets."""
        cdef AbortedEntry* found = NULL
        cdef int32_t count = 0
        cdef int result
        with nogil:
            result = self.lock_online()
            if result == DONE:
                result = find_aborted(self.local.segments, from_offset, end_offset, &found, &count)
            unlock(&self.mutex)
        try:
            self.check(result)
            return describe_aborted(found, count)
        finally:
            free(found)

    def list_offset(self, int64_t timestamp):
        """Return (offset, timestamp, leader epoch) as ListOffsets asks for it, or None if no record is found.

        A timestamp: the first record of that time or later. LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL: as Kafka.
        The timestamp of an offset that is no record's, and an unknown leader epoch, are -1.
        """
        cdef TimeSearch search
        cdef int64_t offset = -1
        cdef int32_t epoch = -1
        cdef int result
        search.segment = NULL
        with nogil:
            result = self.lock_online()
            if result == DONE:
                if timestamp == LATEST_OFFSET:
                    offset, epoch = self.local.end_offset, self.local.epochs.latest()
                elif timestamp == EARLIEST_OFFSET or timestamp == EARLIEST_LOCAL_OFFSET:
                    offset = self.local.start_offset
                    epoch = self.local.epochs.epoch_of(offset)
                    if timestamp == EARLIEST_OFFSET and epoch >= 0:
                        epoch = self.local.epochs.starts[0].epoch
                else:
                    result = begin_search(
                        self.local.segments, timestamp, timestamp == LARGEST_TIMESTAMP, self.local.start_offset, &search
                    )
            unlock(&self.mutex)
        self.check(result)
        if offset >= 0:
            return offset, -1, epoch
        found = end_search(&search, &result)
        self.check(result)
        return found

    # -- retention and truncation

    def roll(self, *, now_ms=None):
        """Begin a new active segment at the end of the log."""
        cdef int64_t now = wall_clock_ms() if now_ms is None else now_ms
        cdef int result
        with nogil:
            result = self.lock_online()
            if result == DONE:
                result = self.local.roll(self.local.end_offset, now)
            unlock(&self.mutex)
        self.check(result)

    def delete_old_segments(self, now_ms=None):
        """Delete the segments that start offset, retention.bytes and retention.ms do not keep; return how many."""
        cdef int64_t now = wall_clock_ms() if now_ms is None else now_ms
        cdef Removed removed = Removed(NULL, 0)
        cdef int result, deleted = 0
        with self.changing:
            with nogil:
                result = self.lock_online()
                if result == DONE:
                    result = self.local.delete_old(now, &removed)
                unlock(&self.mutex)
            deleted = self.delete_later(&removed)
        self.check(result)
        return deleted

    cdef int delete_later(self, Removed* removed) except -1:
        """Let ``delete_files`` delete the files of removed segments after file.delete.delay.ms; return of how many.

        Requires ``changing``.
        """
        offsets = take_offsets(removed)
        self.deleted.add(self.folder, offsets, wall_clock_ms() + self.config.file_delete_delay_ms)
        return len(offsets)

    def delete_files(self, now_ms=None):
        """Delete the files of removed segments whose file.delete.delay.ms is over; return how many are left."""
        with self.changing:
            return self.deleted.delete(wall_clock_ms() if now_ms is None else now_ms)

    def truncate_to(self, int64_t offset):
        """Remove all records at ``offset`` and above; return whether any was removed."""
        cdef Removed removed = Removed(NULL, 0)
        cdef int64_t snapshot_offset, start_offset, first_offset = 0, now = wall_clock_ms()
        cdef bytes data
        cdef const char* snapshot = NULL
        cdef int result
        cdef bint is_needed = False, has_producers = False
        if offset < 0:
            raise ValueError(f"cannot truncate to the negative offset {offset}")
        with self.changing:
            with nogil:
                result = self.lock_writable()
                start_offset = min(self.local.start_offset, offset)
                if result == DONE:
                    is_needed = offset < self.local.end_offset
                    has_producers = not self.local.producers.has_nobody_to_forget(offset)
                    first_offset = self.local.segments.at[0].base_offset
                    if not is_needed:
                        self.local.epochs.truncate_end(self.local.end_offset)
                unlock(&self.mutex)
            self.check(result)
            if not is_needed:
                return False
            if first_offset > offset:
                self.truncate_fully(offset)
                return True
            # A producer that comes meanwhile costs the reading of all batches.
            snapshot_offset, data = choose_snapshot(self.folder, start_offset, offset, has_producers)
            if data is not None:
                snapshot = data
            with nogil:
                result = self.lock_writable()
                if result == DONE:
                    result = self.local.truncate(offset, <const uint8_t*>snapshot, snapshot_offset, now, &removed)
                unlock(&self.mutex)
            self.delete_later(&removed)
            self.check(result)
        return True

    def truncate_fully(self, int64_t offset, start_offset=None):
        """Remove all records; the next one has ``offset``. ``start_offset``: of the log, if it is another."""
        cdef Removed removed = Removed(NULL, 0)
        cdef int64_t start = offset if start_offset is None else start_offset, now = wall_clock_ms()
        cdef int result
        with self.changing:
            remove_snapshots(self.folder, snapshot_offsets(self.folder))
            with nogil:
                result = self.lock_writable()
                if result == DONE:
                    result = self.local.begin_again(offset, start, now, &removed)
                    if result != DONE:
                        # A log without an active segment cannot be used any more.
                        self.fail(result)
                unlock(&self.mutex)
            self.delete_later(&removed)
            self.check(result)

    # -- segments, and their compaction

    @property
    def segment_count(self):
        """The number of segments."""
        return self.local.segments.count

    @property
    def first_offset(self):
        """The first offset of the first segment; ``start_offset`` may be above it."""
        offsets = self.segment_offsets()
        return offsets[0] if offsets else self.local.start_offset

    @property
    def size(self):
        """The bytes of all segments' records."""
        cdef int64_t size
        with nogil:
            lock(&self.mutex)
            size = self.local.segments.size_from(0)
            unlock(&self.mutex)
        return size

    def segment_offsets(self):
        """Return the first offset of each segment."""
        cdef Removed copied
        with nogil:
            lock(&self.mutex)
            copied.offsets = self.local.segments.copy_offsets(&copied.count)
            unlock(&self.mutex)
        if copied.offsets == NULL:
            raise MemoryError()
        return take_offsets(&copied)

    def describe_segments(self):
        """Return a SegmentInfo for each segment."""
        cdef Info* infos = NULL
        cdef int32_t count = 0
        cdef int result
        with nogil:
            result = self.lock_online()
            if result == DONE:
                result = copy_infos(self.local.segments, &infos, &count)
            unlock(&self.mutex)
        try:
            self.check(result)
            return describe_infos(infos, count)
        finally:
            free(infos)

    @property
    def change_count(self):
        """How often segments were removed or batches truncated."""
        return self.local.segments.changes

    def take_lowest_truncation(self):
        """Return the lowest offset that the log was truncated to since the last call, or None if it was not."""
        cdef int64_t lowest
        with nogil:
            lock(&self.mutex)
            lowest, self.local.lowest_truncation = self.local.lowest_truncation, NEVER
            unlock(&self.mutex)
        return None if lowest == NEVER else lowest

    def create_cleaned(self, int64_t base_offset):
        """Return a new CleanedSegment. Raises KafkaError."""
        return create_cleaned(self.local.segments, self.folder, base_offset)

    def replace_segments(self, CleanedSegment cleaned not None, base_offsets, int64_t change_count):
        """Replace segments by a finished one that has the offset of the first of them.

        ``change_count``: from when they were read. False where the log has changed since: nothing is done then.
        """
        cdef Removed replaced = Removed(NULL, 0)
        cdef int result
        cdef bint is_done = False
        set_offsets(&replaced, base_offsets)
        with self.changing:
            with nogil:
                result = self.lock_online()
                if result == DONE and change_count == self.local.segments.changes:
                    result = self.local.replace(cleaned.segment, &replaced, &is_done)
                unlock(&self.mutex)
            if is_done:
                cleaned.segment = NULL
                # The snapshot of the first segment stays.
                remove_snapshots(self.folder, base_offsets[1:])
                self.delete_later(&replaced)
            free(replaced.offsets)
        self.check(result)
        return is_done

    # -- flushing and closing

    def flush(self, *, bint active=True):
        """Flush all records to the disk; ``active=False``: without those of the active segment.

        The mutex is not held while the disk works. Raises KafkaError.
        """
        self.flush_files(active, False)

    cdef int flush_files(self, bint active, bint is_closing) except -1:
        cdef Held held = Held(NULL, 0)
        cdef int64_t first = 0, end = 0, now = wall_clock_ms(), begin_ns = monotonic_ns()
        cdef int result
        with nogil:
            result = self.lock_online()
            if result == DONE and is_closing:
                result = self.local.finish()
            if result == DONE:
                self.local.wants_flush, self.flushed_ms = False, now
                result = self.local.epochs.save()
            if result == DONE:
                first = self.local.recovery_point
                end = self.local.end_offset if active else self.local.segments.active().base_offset
                # The indexes of the active segment were cut when the log is closed.
                if end > first or is_closing:
                    result = self.local.segments.hold(first, self.local.segments.count - (not active), &held)
            unlock(&self.mutex)
            if result == DONE:
                result = flush_held(&held)
        self.check(result)
        if end <= first:
            return 0
        try:
            flush_snapshots(self.folder, first, end)
            flush_folder(self.folder)
        except FileNotFoundError:
            # It is being deleted.
            pass
        with nogil:
            result = self.lock_online()
            if result == DONE:
                # A truncation in between has made the end smaller.
                self.local.recovery_point = max(self.local.recovery_point, min(end, self.local.end_offset))
                count_shared(&self.flushes, 1)
                count_shared(&self.flush_ns, monotonic_ns() - begin_ns)
            unlock(&self.mutex)
        return self.check(result)

    @property
    def flush_times(self):
        """How often there was something to flush, and the nanoseconds of that."""
        return self.flushes, self.flush_ns

    def flush_if_due(self):
        """Flush if flush.messages says so. The appending thread calls this before the records count. Raises KafkaError."""
        if self.local.records_before_flush() < 0:
            self.flush()

    def due(self, int64_t now_ms):
        """Return what a background thread should do: DUE_OFFLINE, DUE_FLUSH and DUE_DELETION, added up.

        No lock is taken: this is asked for each log once a second.
        """
        cdef int found = 0
        cdef bint is_overdue
        cdef int64_t unflushed = self.local.end_offset - self.local.recovery_point
        if self.failure:
            return DUE_OFFLINE
        if self.closed_:
            return 0
        is_overdue = unflushed > 0 and now_ms - self.flushed_ms >= self.local.settings.flush_ms
        if is_overdue or self.local.records_before_flush() < 0:
            found = DUE_FLUSH
        elif self.local.wants_flush:
            found = DUE_FLUSH_ROLLED
        return found + DUE_DELETION if self.deleted.next_ms <= now_ms else found

    def close(self):
        """Flush and close all files, so that the log needs no recovery. The log answers with an error afterwards."""
        if self.closed_:
            return
        try:
            self.flush_files(True, True)
        finally:
            self.close_files()

    def close_files(self):
        """Close all files as they are: the log needs recovery afterwards."""
        with nogil:
            lock(&self.mutex)
            self.closed_ = True
            self.local.segments.close()
            unlock(&self.mutex)

    def rename(self, name):
        """Rename the folder, as is done before a topic is deleted."""
        cdef bytes encoded
        cdef const char* path
        cdef int result
        cdef bint is_renamed = False
        with self.changing:
            folder = self.folder.with_name(name)
            encoded = os.fsencode(folder)
            path = encoded
            with nogil:
                result = self.move_folder(path, &is_renamed)
            if is_renamed:
                self.use_folder(folder)
            self.check(result)
            flush_folder(folder.parent)

    cdef int move_folder(self, const char* path, bint* is_moved) noexcept nogil:
        """Rename the folder. Returns a result. The caller holds ``changing``, and calls ``use_folder`` if it is moved."""
        cdef int result = self.lock_online()
        is_moved[0] = False
        if result == DONE:
            result = self.local.epochs.save()
        if result == DONE:
            result = rename_path(self.local.segments.folder, path)
            is_moved[0] = result == DONE
        if is_moved[0]:
            result = self.local.segments.set_folder(path)
        if is_moved[0] and result == DONE:
            result = self.local.epochs.move(path)
        unlock(&self.mutex)
        return result

    cdef use_folder(self, folder):
        """Note the name that the folder has got."""
        self.folder = folder
        self.deleted.move(folder)

    # -- a log that takes the place of another one

    cdef bint retire(self, int64_t end_offset) noexcept nogil:
        """Let nothing change the log any more if it ends at this offset. Return whether it does."""
        cdef bint is_retired
        is_retired = self.lock_writable() == DONE and self.local.end_offset == end_offset
        if is_retired:
            self.is_replaced = True
        unlock(&self.mutex)
        return is_retired

    cdef void unretire(self) noexcept nogil:
        lock(&self.mutex)
        self.is_replaced = False
        unlock(&self.mutex)

    cdef int succeed(self, Log other, int32_t leader_epoch) noexcept nogil:
        """Take the offsets of a log that is retired, and the epoch in which this broker leads, -1: it does not lead.

        Returns a result. A leader's epoch without records is in no batch.
        """
        cdef int64_t begins
        cdef int result = DONE
        self.set_high_watermark(other.local.high_watermark)
        lock(&self.mutex)
        if self.local.start_offset < other.local.start_offset <= self.local.high_watermark:
            self.local.raise_start(other.local.start_offset)
        unlock(&self.mutex)
        if leader_epoch >= 0:
            result = self.begin_epoch(leader_epoch, &begins)
        return result

    cdef void take_verifications(self, Log other) noexcept nogil:
        """Go on with the verifications of a log that is retired: batches of the same transactions are appended here."""
        cdef Verifications taken
        lock(&other.mutex)
        taken = other.local.producers.verifications
        memset(&other.local.producers.verifications, 0, sizeof(Verifications))
        unlock(&other.mutex)
        lock(&self.mutex)
        free_verifications(&self.local.producers.verifications)
        self.local.producers.verifications = taken
        unlock(&self.mutex)

    def delete(self):
        """Close the log and delete its folder."""
        self.close_files()
        shutil.rmtree(self.folder)


cdef int read_config(config, SegmentSettings* segments, LogSettings* log) except -1:
    """Take the settings that code without the GIL needs."""
    config.check()
    segments.segment_bytes, segments.roll_ms = config.segment_bytes, config.roll_ms
    segments.jitter_ms = min(config.segment_jitter_ms, config.roll_ms)
    segments.index_bytes, segments.index_interval_bytes = config.segment_index_bytes, config.index_interval_bytes
    segments.preallocates = config.preallocate
    log.flush_messages, log.flush_ms = config.flush_messages, config.flush_ms
    log.retention_bytes, log.retention_ms = config.retention_bytes, config.retention_ms
    log.deletes_old = config.cleanup_delete
    return 0
