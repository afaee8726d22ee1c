"""The log of one partition: segments, offsets, leader epochs, retention and recovery.

Source: ``UnifiedLog``, ``LocalLog``, ``LogLoader``. Appends and reads run without the GIL under the log's mutex, on the
thread of a processor; no Python object is made for a record or a batch. The GIL may be taken while the mutex is held
(a new leader epoch), so the mutex is only waited for without the GIL. An I/O error takes the log offline: every call
after it is answered with KAFKA_STORAGE_ERROR.
"""

cimport cython
from libc.errno cimport EIO, errno
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memmove
from posix.fcntl cimport O_RDONLY
from posix.fcntl cimport open as open_fd
from posix.unistd cimport close as close_fd

from ctrlchan.broker.log._batches cimport (
    CONTROL,
    CLIENT,
    REPLICATION,
    TRANSACTIONAL,
    Appended,
    Batch,
    Checked,
    assign_offsets,
    check_replicated,
    read_batch,
)
from ctrlchan.broker.log._producers cimport ProducerStates, ProducerUpdate
from ctrlchan.broker.log._segment cimport (
    CORRUPT,
    DONE,
    NO_MEMORY,
    NOT_FOUND,
    OLD_FORMAT,
    OUT_OF_ORDER,
    OVERFLOW,
    STOPPED,
    AbortedEntry,
    Scan,
    Segment,
    acquire,
    aborted_are_sane,
    add_aborted,
    append,
    change_suffix,
    close_indexes,
    ends_whole,
    find_batches,
    find_offset,
    find_timestamp,
    flush_segment,
    indexes_are_sane,
    largest_timestamp,
    make_inactive,
    move_segment,
    next_offset_of,
    offset_above,
    open_segment,
    pread_all,
    read_aborted,
    recover_segment,
    release,
    remove_files,
    resize_indexes,
    scan_next,
    should_roll,
    start_scan,
    truncate_segment,
)

import os
import random
import shutil
import time
import zlib
from pathlib import Path
from typing import NamedTuple

from ctrlchan.broker.log import names
from ctrlchan.broker.log._leader_epochs import LeaderEpochs
from ctrlchan.broker.log.checkpoints import flush_folder
from ctrlchan.broker.log.records import offsets_and_timestamps
from ctrlchan.errors import KafkaError, LogDirectoryError

cdef extern from "<pthread.h>" nogil:
    int pthread_mutex_init(pthread_mutex_t* mutex, void* attributes)
    int pthread_mutex_destroy(pthread_mutex_t* mutex)
    int pthread_mutex_lock(pthread_mutex_t* mutex)
    int pthread_mutex_unlock(pthread_mutex_t* mutex)

cdef enum:
    # Kafka's error codes.
    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    RECORD_LIST_TOO_LARGE = 18
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    KAFKA_STORAGE_ERROR = 56

    # Bytes; names of files follow in the segments' paths.
    LONGEST_FOLDER = 4096

cdef int64_t NEVER = 0x7fffffffffffffff

#: Timestamps of ListOffsets that stand for an offset.
LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL = -1, -2, -3, -4
#: Up to where a reader may read.
READ_LOG_END, READ_HIGH_WATERMARK, READ_LAST_STABLE_OFFSET = range(3)

#: What ``Log.due`` returns, added up. DUE_FLUSH_ROLLED: only the segments before the active one.
DUE_OFFLINE, DUE_FLUSH, DUE_FLUSH_ROLLED, DUE_DELETION = 1, 2, 4, 8


class AbortedTransaction(NamedTuple):
    """An entry of .txnindex."""

    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


class SegmentInfo(NamedTuple):
    """A segment as the cleaner sees it. ``first_timestamp``: the largest of its first batch, -1 where it has none."""

    base_offset: int
    size: int
    first_timestamp: int
    largest_timestamp: int
    modified_ns: int
    index_bytes: int
    time_index_bytes: int


SEGMENT_KINDS = (names.LOG_SUFFIX, names.INDEX_SUFFIX, names.TIME_INDEX_SUFFIX, names.TXN_INDEX_SUFFIX)


def _now_ms():
    return time.time_ns() // 1_000_000


def _has_old_record(path):
    """Whether the file really begins with a record of format 0 or 1, and not with a batch whose magic byte is damaged."""
    with path.open("rb") as file:
        head = file.read(16)
        data = file.read(int.from_bytes(head[8:12]) - 4)
    return zlib.crc32(data) == int.from_bytes(head[12:16])


cdef str why(int result):
    """Return the text of a result of ``_segment``."""
    if result > 0:
        return os.strerror(result)
    return {
        CORRUPT: "a batch whose header cannot be true",
        OLD_FORMAT: "records of format 0 or 1, where only format 2 is supported",
        OVERFLOW: "an offset that is too far from the first one of its segment",
        OUT_OF_ORDER: "an offset that is not above the one before it",
        NO_MEMORY: "out of memory",
    }.get(result, f"result {result}")


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


cdef struct Recovery:
    # The log, which the caller holds
    void* log
    Segment* segment


cdef int on_recovered(void* context, const uint8_t* data, const Batch* batch) noexcept nogil:
    """Take leader epoch and producer of a batch that recovery has found valid."""
    cdef Recovery* recovery = <Recovery*>context
    cdef int result
    if batch.leader_epoch > (<Log>recovery.log).latest_epoch:
        result = (<Log>recovery.log).assign_epoch(batch.leader_epoch, batch.base_offset)
        if result != DONE:
            return result
    return (<Log>recovery.log).replay_batch(recovery.segment, data, batch)


cdef class Log:
    """The log of the partition whose folder is ``folder``.

    ``start_offset`` and ``recovery_point`` come from the checkpoints of the log directory. ``clean``: the log directory
    was closed in order, so nothing is recovered. ``producer_expiration_ms``: producer.id.expiration.ms. Raises LogDirectoryError for files that cannot be a log, KafkaError
    where the disk fails.
    """

    def __cinit__(self, *args, **kwargs):
        pthread_mutex_init(&self.mutex, NULL)

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
        self.flushed_ms = _now_ms()
        self.seed = random.getrandbits(64)
        self._set_folder(Path(folder))
        self._set_config(config)
        self.folder.mkdir(parents=True, exist_ok=True)
        self.epochs = LeaderEpochs(self.folder)
        self.copy_epochs()
        self.producers = ProducerStates(producer_expiration_ms)
        self.first_undecided = -1
        self.lock()
        try:
            self._load(start_offset, recovery_point, clean)
        finally:
            self.unlock()

    def __dealloc__(self):
        cdef int32_t i
        for i in range(self.count):
            release(self.segments[i])
        free(self.segments)
        free(self.ended)
        free(self.starts)
        pthread_mutex_destroy(&self.mutex)

    def _set_folder(self, folder):
        encoded = os.fsencode(folder)
        if len(encoded) > LONGEST_FOLDER:
            raise LogDirectoryError(f"{folder}: the name is too long")
        self.folder, self.folder_bytes = folder, encoded
        self.c_folder = self.folder_bytes

    def _set_config(self, config):
        self.config = config.check()
        self.segment_bytes, self.roll_ms = config.segment_bytes, config.roll_ms
        self.jitter_ms = min(config.segment_jitter_ms, config.roll_ms)
        self.index_bytes, self.index_interval_bytes = config.segment_index_bytes, config.index_interval_bytes
        self.flush_messages, self.flush_ms = config.flush_messages, config.flush_ms

    # -- the mutex, and errors

    cdef void lock(self) noexcept:
        """Wait for the mutex without the GIL, which its owner may be waiting for."""
        with nogil:
            pthread_mutex_lock(&self.mutex)

    cdef void unlock(self) noexcept:
        pthread_mutex_unlock(&self.mutex)

    cdef int check_online(self) except -1:
        """Raise KafkaError when the log is offline or closed. Requires the mutex."""
        if self.closed_ or self.failure:
            raise KafkaError(KAFKA_STORAGE_ERROR, f"{self.folder}: {'closed' if self.closed_ else why(self.failure)}")
        return 0

    cdef int check(self, int result) except -1:
        """Raise KafkaError for a result of ``_segment`` that is an error. Requires the mutex."""
        if result == STOPPED and self.raised is not None:
            raised, self.raised = self.raised, None
            raise raised
        if result != DONE:
            raise KafkaError(self.fail(result), f"{self.folder}: {why(result)}")
        return 0

    cdef int fail(self, int result) noexcept nogil:
        """Return Kafka's error code of a result, and take the log offline where the disk is at fault."""
        if result == CORRUPT or result == NOT_FOUND:
            return CORRUPT_MESSAGE
        if result == OLD_FORMAT:
            return UNSUPPORTED_FOR_MESSAGE_FORMAT
        self.failure = result
        return KAFKA_STORAGE_ERROR

    # -- segments

    cdef Segment* active(self) noexcept nogil:
        return self.segments[self.count - 1]

    cdef int32_t floor_segment(self, int64_t offset) noexcept nogil:
        """Return the index of the last segment that does not begin above the offset, -1 for none."""
        cdef int32_t low = 0, high = self.count, middle
        # Most readers read new records.
        if self.count > 0 and self.segments[self.count - 1].base_offset <= offset:
            return self.count - 1
        while low < high:
            middle = (low + high) // 2
            if self.segments[middle].base_offset <= offset:
                low = middle + 1
            else:
                high = middle
        return low - 1

    cdef int add_segment(self, Segment* segment) noexcept nogil:
        """Add a segment behind the others; the log takes the reference."""
        cdef Segment** segments
        if self.count == self.room:
            segments = <Segment**>realloc(self.segments, (2 * self.room + 4) * sizeof(Segment*))
            if segments == NULL:
                release(segment)
                return NO_MEMORY
            self.segments, self.room = segments, 2 * self.room + 4
        self.segments[self.count] = segment
        self.count = self.count + 1
        return DONE

    @cython.overflowcheck(False)
    cdef Segment* new_segment(self, int64_t base_offset, int64_t now_ms, int* error) noexcept nogil:
        """Open the files of a segment, with a part of segment.jitter.ms that differs from segment to segment."""
        cdef uint64_t mixed = (<uint64_t>base_offset + self.seed) * <uint64_t>0x9E3779B97F4A7C15
        cdef Segment* segment = open_segment(
            self.c_folder, base_offset, b"", self.index_interval_bytes, self.index_bytes, now_ms, error
        )
        if segment != NULL and self.jitter_ms > 0:
            segment.roll_jitter_ms = <int64_t>((mixed >> 11) % <uint64_t>self.jitter_ms)
        return segment

    cdef int roll_segment(self, int64_t base_offset, int64_t now_ms) noexcept nogil:
        """Begin a new active segment at ``base_offset``."""
        cdef Segment* segment
        cdef int error
        if self.active().base_offset == base_offset and self.active().size == 0:
            # A segment without a record is only rolled because its index has no room.
            return resize_indexes(self.active(), self.index_bytes)
        error = remove_files(self.c_folder, base_offset)
        if error == DONE:
            error = make_inactive(self.active())
        if error != DONE:
            return error
        segment = self.new_segment(base_offset, now_ms, &error)
        if segment == NULL:
            return error
        self.wants_flush_ = True
        error = self.add_segment(segment)
        if error != DONE:
            return error
        # Recovery of the new segment begins with what the producers are now.
        self.producers.end_offset = base_offset
        return self.take_snapshot(False)

    cdef object remove_segments(self, int32_t first, int32_t end):
        """Take segments out of the log and mark their files for deletion."""
        cdef int32_t i
        cdef int result = DONE, changed
        cdef int64_t due = min(_now_ms() + self.config.file_delete_delay_ms, NEVER)
        for i in range(first, end):
            changed = change_suffix(self.segments[i], b".deleted")
            result = changed if result == DONE else result
            name = names.segment_name(self.segments[i].base_offset)
            snapshot = self.folder / f"{name}{names.SNAPSHOT_SUFFIX}"
            if snapshot.exists():
                os.rename(snapshot, f"{snapshot}{names.DELETED_SUFFIX}")
            for kind in (*SEGMENT_KINDS, names.SNAPSHOT_SUFFIX):
                self.deleted.append((due, self.folder / f"{name}{kind}{names.DELETED_SUFFIX}"))
            release(self.segments[i])
        if end > first:
            self.next_deletion_ms = min(self.next_deletion_ms, due)
            self.changes += 1
        memmove(&self.segments[first], &self.segments[end], (self.count - end) * sizeof(Segment*))
        self.count -= end - first
        self.check(result)

    # -- loading

    def _load(self, int64_t start_offset, int64_t recovery_point, bint clean):
        """Open or recover all segments, and find start and end of the log. Requires the mutex."""
        cdef int64_t removed, end = start_offset, now = _now_ms()
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
                # Damaged after it was closed: what is appended behind that could not be read.
                self._recover(self.active().base_offset, start_offset, now)
            if self.count > 0:
                self.check(next_offset_of(self.active(), &end))
                if end < start_offset and not deleting:
                    # Files were deleted that the checkpoint knows of.
                    self.remove_segments(0, self.count)
                    self.epochs.clear()
                    end = start_offset
            if self.count == 0:
                segment = self.new_segment(start_offset, now, &error)
                if segment == NULL:
                    self.check(error)
                self.check(self.add_segment(segment))
            for i in range(self.count if clean else 0):
                # Not those that recovery has written, which are flushed later.
                close_indexes(self.segments[i])
            self.check(resize_indexes(self.active(), self.index_bytes))
        except OSError as raised:
            raise KafkaError(KAFKA_STORAGE_ERROR, str(raised)) from raised
        self.end_offset_ = end
        self.start_offset_ = self.high_watermark_ = max(start_offset, self.segments[0].base_offset)
        self.recovery_point_ = max(end if clean else min(recovery_point, end), self.start_offset_)
        self.watermark_segment = -1
        self.epochs.truncate_end(end)
        self.epochs.truncate_start(start_offset)
        self.copy_epochs()
        if deleting:
            return
        # Recovery has left the producers as they were at the end of some segment.
        self._clear_producers(0)
        self._remove_stray_snapshots()
        if clean and not self._snapshots():
            # Written by a broker that knew no producers.
            for offset in [self.segments[i].base_offset for i in range(max(0, self.count - 2), self.count)] + [end]:
                self.producers.end_offset = offset
                self.check(self.take_snapshot(True))
        else:
            self._rebuild_producers(self.start_offset_, end, now)

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
            if (missing or not indexes_are_sane(segment) or not aborted_are_sane(segment)) and segment.size > 0:
                damaged.append(self.count - 1)
        return damaged

    cdef int _recover_segment(self, int32_t i, int64_t start_offset, int64_t now_ms, int64_t* removed) except -100:
        """Recover a segment from its batches alone; return a result of ``_segment``."""
        cdef Recovery recovery
        cdef int result
        if self.producers.end_offset != self.segments[i].base_offset:
            self._rebuild_producers(start_offset, self.segments[i].base_offset, now_ms)
        recovery.log, recovery.segment = <void*>self, self.segments[i]
        with nogil:
            result = recover_segment(self.segments[i], on_recovered, &recovery, removed)
            if result == DONE:
                # The next recovery need not read this segment again.
                result = self.take_snapshot(True)
        return result

    def _recover(self, int64_t recovery_point, int64_t start_offset, int64_t now_ms):
        """Recover the segments that may not have been flushed; what follows an invalid batch is deleted."""
        cdef int64_t removed
        cdef int32_t i
        cdef int result
        for i in range(max(self.floor_segment(recovery_point), 0), self.count):
            result = self._recover_segment(i, start_offset, now_ms, &removed)
            if result == OUT_OF_ORDER:
                # As Kafka: nothing of such a segment is kept.
                result = truncate_segment(self.segments[i], self.segments[i].base_offset, now_ms, &removed)
            self.check(result)
            if removed > 0:
                self.remove_segments(i + 1, self.count)
                return

    # -- producers

    def _snapshots(self):
        """Return the offsets of all snapshot files, ascending."""
        return sorted(
            offset
            for name in os.listdir(self.folder)
            if name.endswith(names.SNAPSHOT_SUFFIX) and (offset := names.offset_of(name)) is not None
        )

    def _remove_snapshot(self, offset):
        (self.folder / f"{names.segment_name(offset)}{names.SNAPSHOT_SUFFIX}").unlink(missing_ok=True)

    def _remove_stray_snapshots(self):
        """Delete the snapshots where no segment begins, but the last one where that is behind all segments."""
        cdef int32_t i
        bases = {self.segments[i].base_offset for i in range(self.count)}
        stray = [offset for offset in self._snapshots() if offset not in bases]
        for offset in stray:
            if offset != max(stray) or offset < self.active().base_offset:
                self._remove_snapshot(offset)

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

    def _replay(self, int64_t from_offset, int64_t end_offset):
        cdef int result
        with nogil:
            result = self.replay(from_offset, end_offset)
        return result

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

    cdef int replay_batch(self, Segment* segment, const uint8_t* data, const Batch* batch) noexcept nogil:
        """Apply a batch that is in the log to its producer; CORRUPT for a control batch without a marker.

        ``segment``: its transaction index gets what the batch aborts; NULL: it has it.
        """
        cdef ProducerUpdate update
        if self.producers.check(data, batch, REPLICATION, &update) != NONE:
            return CORRUPT
        self.producers.end_offset = batch.base_offset + batch.last_offset_delta + 1
        return self.take_update(segment, batch, &update)

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

    cdef int64_t last_stable_offset(self) noexcept nogil:
        """Return the offset below which all transactions have ended, and their markers are replicated."""
        cdef int64_t stable = self.high_watermark_
        cdef int32_t i
        if self.first_undecided >= 0:
            stable = min(stable, max(self.first_undecided, self.start_offset_))
        for i in range(self.ended_count):
            stable = min(stable, max(self.ended[i].first_offset, self.start_offset_))
        return stable

    cdef int take_snapshot(self, bint sync) noexcept nogil:
        """Write a snapshot of the producers at ``end_offset`` of theirs, if there is no newer one."""
        cdef int error, folder = open_fd(self.c_folder, O_RDONLY)
        if folder < 0:
            return errno
        error = self.producers.take_snapshot(folder, sync)
        close_fd(folder)
        return error

    def remove_expired_producers(self, now_ms=None):
        """Forget the producers that have appended nothing for producer.id.expiration.ms."""
        self.lock()
        try:
            self.producers.remove_expired(_now_ms() if now_ms is None else now_ms)
        finally:
            self.unlock()

    # -- appending

    cdef int append_leader(
        self, uint8_t* data, Appended* appended, int32_t leader_epoch, int origin, int64_t now_ms
    ) noexcept nogil:
        """Give checked batches their offsets and append them. Returns Kafka's error code.

        ``appended`` has the offsets afterwards. Batches that were appended before (an idempotent producer's) are not
        written again: ``appended`` has the offsets of then, their timestamp in ``header_timestamp``, and ``size`` 0.
        """
        cdef int error = NONE
        pthread_mutex_lock(&self.mutex)
        if self.failure or self.closed_:
            error = KAFKA_STORAGE_ERROR
        elif appended.size > self.segment_bytes:
            error = RECORD_LIST_TOO_LARGE
        else:
            assign_offsets(data, appended, self.end_offset_, leader_epoch)
            error = self.write_batches(data, appended, origin, now_ms)
        pthread_mutex_unlock(&self.mutex)
        return error

    cdef int append_follower(self, uint8_t* data, Appended* appended, int64_t now_ms) noexcept nogil:
        """Append a leader's batches with the offsets that they have. Returns Kafka's error code.

        UNKNOWN_SERVER_ERROR: they begin below the log's end (UnexpectedAppendOffsetException).
        """
        cdef int error = NONE
        pthread_mutex_lock(&self.mutex)
        if self.failure or self.closed_:
            error = KAFKA_STORAGE_ERROR
        elif appended.first_offset < self.end_offset_:
            error = UNKNOWN_SERVER_ERROR
        elif appended.size > self.segment_bytes:
            error = RECORD_LIST_TOO_LARGE
        else:
            error = self.write_batches(data, appended, REPLICATION, now_ms)
        pthread_mutex_unlock(&self.mutex)
        return error

    cdef int write_batches(self, const uint8_t* data, Appended* appended, int origin, int64_t now_ms) noexcept nogil:
        """Append batches whose offsets are final: leader epochs, a new segment if needed, producers, one write."""
        cdef ProducerUpdate update
        cdef int result, error
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
        """Store what the written batches do to their producers; ``update``: of the only batch."""
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
            if batch.leader_epoch != self.latest_epoch and batch.leader_epoch >= 0:
                result = self.assign_epoch(batch.leader_epoch, batch.base_offset)
                if result != DONE:
                    return result
            position += batch.size
        return DONE

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

    def append_as_leader(self, Checked checked not None, int32_t leader_epoch, *, int origin=CLIENT, now_ms=None):
        """Append checked batches; return their first and last offset. Raises KafkaError.

        Batches of an idempotent producer that were appended before are not written again. ``origin``: as that of the
        ``AppendRules`` that they were checked with.
        """
        cdef uint8_t[::1] data = checked.data
        cdef int64_t now = _now_ms() if now_ms is None else now_ms
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
        cdef int64_t now = _now_ms() if now_ms is None else now_ms
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

    # -- reading

    cdef int read_range(
        self, int64_t offset, int64_t max_bytes, Isolation isolation, bint whole_first, Range* found
    ) noexcept nogil:
        """Find the whole batches from the one that holds ``offset``, at most ``max_bytes``. Returns Kafka's error code.

        ``whole_first``: the first batch is returned also where it is larger. See ``Range`` for the reference.
        """
        cdef int error
        pthread_mutex_lock(&self.mutex)
        error = self.find_range(offset, max_bytes, isolation, whole_first, found)
        pthread_mutex_unlock(&self.mutex)
        return error

    cdef int find_range(
        self, int64_t offset, int64_t max_bytes, Isolation isolation, bint whole_first, Range* found
    ) noexcept nogil:
        cdef Segment* segment
        cdef int64_t limit_segment, limit_position, limit_offset, limit, position, end
        cdef bint is_last
        cdef int32_t i
        cdef int result
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
        pthread_mutex_lock(&self.mutex)
        result = offset_above(records.segment, records.position + records.size, &end)
        if result == DONE and end < 0:
            following = self.floor_segment(records.segment.base_offset) + 1
            end = self.segments[following].base_offset if following < self.count else self.end_offset_
        if result == DONE:
            result = self.collect_aborted(offset, min(end, records.last_stable_offset), found, count)
        if result != DONE:
            result = self.fail(result)
        pthread_mutex_unlock(&self.mutex)
        return result

    cdef int collect_aborted(
        self, int64_t from_offset, int64_t end_offset, AbortedEntry** found, int32_t* count
    ) noexcept nogil:
        """Find the aborted transactions with records between the offsets. Requires the mutex."""
        cdef bint is_last = False
        cdef int32_t i
        cdef int result
        for i in range(max(self.floor_segment(from_offset), 0), self.count):
            result = read_aborted(self.segments[i], from_offset, end_offset, found, count, &is_last)
            if result != DONE or is_last:
                return result
        return DONE

    cdef int find_end_of_epoch(self, int32_t epoch, int32_t* found_epoch, int64_t* end_offset) noexcept nogil:
        """Find what ``end_of_epoch`` returns. Returns Kafka's error code."""
        cdef int32_t i
        cdef int error = NONE
        pthread_mutex_lock(&self.mutex)
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
        pthread_mutex_unlock(&self.mutex)
        return error

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

    # -- offsets

    cdef int64_t set_high_watermark(self, int64_t offset) noexcept nogil:
        """Move the high watermark, within start and end of the log; return where it is."""
        cdef int64_t moved
        pthread_mutex_lock(&self.mutex)
        moved = self.move_high_watermark(offset)
        pthread_mutex_unlock(&self.mutex)
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

    cdef int64_t size_locked(self) noexcept nogil:
        cdef int64_t size = 0
        cdef int32_t i
        for i in range(self.count):
            size += self.segments[i].size
        return size

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

    @property
    def wants_flush(self):
        """Whether a background thread should call ``flush``: a segment was rolled, or flush.messages says so."""
        return self.wants_flush_

    @property
    def segment_count(self):
        """The number of segments."""
        return self.count

    @property
    def first_offset(self):
        """The first offset of the first segment; ``start_offset`` may be above it."""
        self.lock()
        try:
            return self.segments[0].base_offset if self.count > 0 else self.start_offset_
        finally:
            self.unlock()

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

    @property
    def size(self):
        """The bytes of all segments' records."""
        self.lock()
        try:
            return self.size_locked()
        finally:
            self.unlock()

    def segment_offsets(self):
        """Return the first offset of each segment."""
        cdef int32_t i
        self.lock()
        try:
            return [self.segments[i].base_offset for i in range(self.count)]
        finally:
            self.unlock()

    def update_high_watermark(self, int64_t offset):
        """Move the high watermark, within start and end of the log; return where it is."""
        cdef int64_t moved
        with nogil:
            moved = self.set_high_watermark(offset)
        return moved

    def update_config(self, config):
        """Take new settings; the size of indexes counts from the next segment on."""
        self.lock()
        try:
            self._set_config(config)
        finally:
            self.unlock()

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

    def assign_leader_epoch(self, int32_t epoch):
        """Record that ``epoch`` begins at the end of the log: what a new leader does before it appends."""
        self.lock()
        try:
            self.check_online()
            self.check(self.assign_epoch(epoch, self.end_offset_))
        finally:
            self.unlock()

    def end_of_epoch(self, int32_t epoch):
        """Return the EpochEnd of a leader epoch (OffsetForLeaderEpoch)."""
        self.lock()
        try:
            return self.epochs.end_of(epoch, self.end_offset_)
        finally:
            self.unlock()

    @property
    def stable_offset(self):
        """The last stable offset: what consumers of READ_COMMITTED may read up to."""
        self.lock()
        try:
            return self.last_stable_offset()
        finally:
            self.unlock()

    def aborted_transactions(self, int64_t from_offset, int64_t end_offset):
        """Return (producer id, first offset) of the aborted transactions with records between the offsets."""
        return [(one.producer_id, one.first_offset) for one in self.aborted_entries(from_offset, end_offset)]

    def aborted_entries(self, int64_t from_offset, int64_t end_offset):
        """Return an AbortedTransaction for each aborted transaction with records between the offsets."""
        cdef AbortedEntry* found = NULL
        cdef int32_t i, count = 0
        self.lock()
        try:
            self.check_online()
            self.check(self.collect_aborted(from_offset, end_offset, &found, &count))
            return [
                AbortedTransaction(
                    found[i].producer_id, found[i].first_offset, found[i].last_offset, found[i].last_stable_offset
                )
                for i in range(count)
            ]
        finally:
            self.unlock()
            free(found)

    def list_offset(self, int64_t timestamp):
        """Return (offset, timestamp, leader epoch) as ListOffsets asks for it, None where no record is found.

        A timestamp: the first record of that time or later. LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL: as Kafka.
        The timestamp of an offset that is no record's, and an unknown leader epoch, are -1.
        """
        cdef Segment* segment = NULL
        cdef int64_t position = 0
        cdef int32_t i
        self.lock()
        try:
            self.check_online()
            if timestamp == EARLIEST:
                first = self.epochs.earliest()
                return self.start_offset_, -1, first[0] if first and first[1] <= self.start_offset_ else -1
            if timestamp == EARLIEST_LOCAL:
                return self.start_offset_, -1, self.epochs.epoch_of(self.start_offset_)
            if timestamp == LATEST:
                return self.end_offset_, -1, self.epochs.latest
            for i in range(self.count):
                if timestamp == MAX_TIMESTAMP:
                    if segment == NULL or self.segments[i].max_timestamp > segment.max_timestamp:
                        segment = self.segments[i]
                elif self.segments[i].size > 0 and largest_timestamp(self.segments[i]) >= timestamp:
                    segment = self.segments[i]
                    break
            if segment == NULL:
                return None
            if timestamp == MAX_TIMESTAMP:
                timestamp = segment.max_timestamp
            self.check(find_timestamp(segment, timestamp, self.start_offset_, &position))
            acquire(segment)
            start_offset, size = self.start_offset_, segment.size
        finally:
            self.unlock()
        try:
            return self._first_record(<size_t>segment, position, size, timestamp, start_offset)
        finally:
            release(segment)

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

    # -- compaction

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
            due = min(_now_ms() + self.config.file_delete_delay_ms, NEVER)
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

    # -- retention, truncation, flushing

    def delete_old_segments(self, now_ms=None):
        """Delete the segments that start offset, retention.bytes and retention.ms do not keep; return how many."""
        cdef int64_t now = _now_ms() if now_ms is None else now_ms
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

    def delete_files(self, now_ms=None):
        """Delete the files of removed segments whose file.delete.delay.ms is over; return how many are left."""
        now = _now_ms() if now_ms is None else now_ms
        self.lock()
        try:
            due = [path for when, path in self.deleted if when <= now]
            self.deleted = [one for one in self.deleted if one[0] > now]
            self.next_deletion_ms = min([when for when, _ in self.deleted], default=NEVER)
            left = len(self.deleted)
        finally:
            self.unlock()
        for path in due:
            path.unlink(missing_ok=True)
        return left

    def roll(self, *, now_ms=None):
        """Begin a new active segment at the end of the log."""
        cdef int64_t now = _now_ms() if now_ms is None else now_ms
        self.lock()
        try:
            self.check_online()
            self.check(self.roll_segment(self.end_offset_, now))
        finally:
            self.unlock()

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
            self.check(truncate_segment(self.active(), offset, _now_ms(), &removed))
            self._set_end(offset)
            self.epochs.truncate_end(offset)
            self.copy_epochs()
            self.start_offset_ = min(self.start_offset_, offset)
            self._rebuild_producers(self.start_offset_, offset, _now_ms())
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
        segment = self.new_segment(offset, _now_ms(), &error)
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

    def flush(self, *, bint active=True):
        """Make all records survive a crash of the machine; ``active=False``: without those of the active segment.

        The mutex is not held while the disk works. Raises KafkaError.
        """
        cdef Segment** unflushed = NULL
        cdef Segment* segment
        cdef int32_t first, i, number = 0
        cdef int result = DONE
        cdef int64_t offset
        self.lock()
        try:
            self.check_online()
            self.wants_flush_ = False
            self.flushed_ms = _now_ms()
            self.epochs.flush()
            offset = self.end_offset_ if active else self.active().base_offset
            if offset <= self.recovery_point_:
                return
            first = max(self.floor_segment(self.recovery_point_), 0)
            unflushed = <Segment**>realloc(NULL, self.count * sizeof(Segment*))
            if unflushed == NULL:
                raise MemoryError()
            for i in range(first, self.count if active else self.count - 1):
                acquire(self.segments[i])
                unflushed[number] = self.segments[i]
                number += 1
        finally:
            self.unlock()
        with nogil:
            for i in range(number):
                segment = unflushed[i]
                if result == DONE:
                    result = flush_segment(segment)
                release(segment)
            free(unflushed)
        self._flush_snapshots(offset)
        self.lock()
        try:
            self.check(result)
            # A truncation in between has made the end smaller.
            self.recovery_point_ = max(self.recovery_point_, min(offset, self.end_offset_))
        finally:
            self.unlock()

    def _flush_snapshots(self, int64_t end_offset):
        """Flush the folder and the snapshots of the segments that are flushed."""
        try:
            for offset in self._snapshots():
                if self.recovery_point_ <= offset <= end_offset:
                    with open(self.folder / f"{names.segment_name(offset)}{names.SNAPSHOT_SUFFIX}", "rb") as file:
                        os.fsync(file.fileno())
            flush_folder(self.folder)
        except FileNotFoundError:
            # It is being deleted.
            pass

    def close(self):
        """Flush and close all files, so that the log needs no recovery. The log answers with an error afterwards."""
        cdef Segment* segment = NULL
        cdef int result = DONE
        if self.closed_:
            return
        try:
            self.lock()
            try:
                self.check_online()
                self.check(self.take_snapshot(True))
                self.check(make_inactive(self.active()))
                self.epochs.flush()
                if self.recovery_point_ >= self.end_offset_:
                    segment = self.active()
                    acquire(segment)
            finally:
                self.unlock()
            if segment == NULL:
                self.flush()
            else:
                with nogil:
                    result = flush_segment(segment)
                    release(segment)
                self.check(result)
        finally:
            self.close_files()

    def close_files(self):
        """Close all files as they are: the log needs recovery afterwards."""
        self.lock()
        try:
            self._close_files()
        finally:
            self.unlock()

    def _close_files(self):
        cdef int32_t i
        self.closed_ = True
        for i in range(self.count):
            release(self.segments[i])
        self.count = 0

    def rename(self, name):
        """Give the folder another name: what happens before a topic is deleted."""
        cdef int32_t i
        self.lock()
        try:
            self.check_online()
            folder = self.folder.with_name(name)
            self.epochs.flush()
            os.rename(self.folder, folder)
            flush_folder(folder.parent)
            self.deleted = [(due, folder / path.name) for due, path in self.deleted]
            self.epochs = LeaderEpochs(folder)
            self._set_folder(folder)
            for i in range(self.count):
                self.check(move_segment(self.segments[i], self.c_folder))
        finally:
            self.unlock()

    def delete(self):
        """Close the log and delete its folder."""
        self.close_files()
        shutil.rmtree(self.folder)


cdef class CleanedSegment:
    """A segment that the cleaner writes. It has no place in the log until ``Log.replace_segments``."""

    cdef Segment* segment
    cdef object log

    def __init__(self, Log log not None, int64_t base_offset):
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
