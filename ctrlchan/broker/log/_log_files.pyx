"""The files of a log: its segments in their order, the mutex that guards them, and the end of all use after an I/O error.

The layers of a log stand on each other: ``_log_files``, ``_log_offsets``, ``_log_loading``, ``_log_reads``,
``_log_deletion``, and ``_log``, which appends.
"""

cimport cython
from libc.errno cimport ENOENT, errno
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memmove
from posix.fcntl cimport O_RDONLY
from posix.fcntl cimport open as open_fd
from posix.unistd cimport close as close_fd

from ctrlchan._c.clocks cimport NEVER
from ctrlchan._c.error_codes cimport KAFKA_STORAGE_ERROR
from ctrlchan._c.locks cimport LOG, close_mutex, lock, open_mutex, require, unlock
from ctrlchan.broker.log._files cimport PATH_BYTES, change_suffix, remove_files, rename_path, set_path
from ctrlchan.broker.log._indexes cimport resize_indexes
from ctrlchan.broker.log._parts cimport DONE, NO_MEMORY, OFFLINE, error_code, why
from ctrlchan.broker.log._segment cimport (
    Segment,
    make_inactive,
    open_segment,
    release,
)

import os
import threading
import time

from ctrlchan.broker.log import names
from ctrlchan.errors import KafkaError, LogDirectoryError

cdef enum:
    # Bytes; names of files follow in the segments' paths.
    LONGEST_FOLDER = 4096
    # With the suffix .deleted
    MARKED_BYTES = 4368

SEGMENT_KINDS = (names.LOG_SUFFIX, names.INDEX_SUFFIX, names.TIME_INDEX_SUFFIX, names.TXN_INDEX_SUFFIX)


def wall_ms():
    """Return the milliseconds since 1970."""
    return time.time_ns() // 1_000_000


cdef class LogFiles:
    """The segments of a log in its folder, its mutex, and what a failure of the disk does to it."""

    def __cinit__(self, *args, **kwargs):
        open_mutex(&self.mutex, LOG)
        self.changing = threading.RLock()

    def __dealloc__(self):
        cdef int32_t i
        for i in range(self.count):
            release(self.segments[i])
        free(self.segments)
        close_mutex(&self.mutex)

    def _set_folder(self, folder):
        """Set the folder of a log that is not shared yet."""
        encoded = os.fsencode(folder)
        if len(encoded) > LONGEST_FOLDER:
            raise LogDirectoryError(f"{folder}: the name is too long")
        self.folder, self.folder_bytes = folder, encoded
        self.c_folder = self.folder_bytes

    def _set_config(self, config):
        """Take the settings that code without the GIL needs. Requires ``changing``, or a log that is not shared."""
        cdef int64_t segment_bytes, roll_ms, jitter_ms, index_bytes, index_interval_bytes, flush_messages, flush_ms
        cdef int64_t retention_bytes, retention_ms
        cdef bint deletes_old
        config.check()
        segment_bytes, roll_ms = config.segment_bytes, config.roll_ms
        jitter_ms = min(config.segment_jitter_ms, config.roll_ms)
        index_bytes, index_interval_bytes = config.segment_index_bytes, config.index_interval_bytes
        flush_messages, flush_ms = config.flush_messages, config.flush_ms
        retention_bytes, retention_ms = config.retention_bytes, config.retention_ms
        deletes_old = config.cleanup_delete
        self.config = config
        with nogil:
            lock(&self.mutex)
            self.segment_bytes, self.roll_ms, self.jitter_ms = segment_bytes, roll_ms, jitter_ms
            self.index_bytes, self.index_interval_bytes = index_bytes, index_interval_bytes
            self.flush_messages, self.flush_ms = flush_messages, flush_ms
            self.retention_bytes, self.retention_ms, self.deletes_old = retention_bytes, retention_ms, deletes_old
            unlock(&self.mutex)

    def update_config(self, config):
        """Take new settings; the size of indexes counts from the next segment on."""
        with self.changing:
            self._set_config(config)

    # -- the mutex, and errors

    cdef void require_mutex(self) noexcept nogil:
        if self.is_shared:
            require(&self.mutex)

    cdef int lock_online(self) noexcept nogil:
        """Lock the mutex; return DONE, or OFFLINE where the log may not be used any more. The mutex is locked then, too."""
        lock(&self.mutex)
        return OFFLINE if self.closed_ or self.failure else DONE

    cdef int check(self, int result) except -1:
        """Raise KafkaError for a result of ``_parts`` that is an error."""
        if result == OFFLINE:
            raise KafkaError(KAFKA_STORAGE_ERROR, f"{self.folder}: {'closed' if self.closed_ else why(self.failure)}")
        if result != DONE:
            raise KafkaError(self.fail(result), f"{self.folder}: {why(result)}")
        return 0

    cdef int fail(self, int result) noexcept nogil:
        """Return Kafka's error code of a result, and take the log offline where the disk is at fault."""
        cdef int code = error_code(result)
        if code == KAFKA_STORAGE_ERROR:
            self.failure = result
        return code

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

    @property
    def segment_count(self):
        """The number of segments."""
        return self.count

    def segment_offsets(self):
        """Return the first offset of each segment."""
        cdef int64_t* offsets
        cdef int32_t i, count
        with nogil:
            lock(&self.mutex)
            count = self.count
            offsets = <int64_t*>malloc(max(1, count) * sizeof(int64_t))
            if offsets != NULL:
                for i in range(count):
                    offsets[i] = self.segments[i].base_offset
            unlock(&self.mutex)
        if offsets == NULL:
            raise MemoryError()
        try:
            return [offsets[i] for i in range(count)]
        finally:
            free(offsets)

    @property
    def size(self):
        """The bytes of all segments' records."""
        cdef int64_t size
        with nogil:
            lock(&self.mutex)
            size = self.size_locked()
            unlock(&self.mutex)
        return size

    cdef int64_t size_locked(self) noexcept nogil:
        cdef int64_t size = 0
        cdef int32_t i
        self.require_mutex()
        for i in range(self.count):
            size += self.segments[i].size
        return size

    cdef int add_segment(self, Segment* segment) noexcept nogil:
        """Add a segment behind the others; the log takes the reference."""
        cdef Segment** segments
        self.require_mutex()
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
        self.require_mutex()
        if self.active().base_offset == base_offset and self.active().size == 0:
            # A segment without a record is only rolled because its index has no room.
            return resize_indexes(&self.active().indexes, self.index_bytes)
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
        # Recovery of the new segment begins with the present states of the producers.
        self.producers.end_offset = base_offset
        return self.take_snapshot(False)

    cdef int take_out(self, int32_t first, int32_t end, Removed* removed) noexcept nogil:
        """Take segments out of the log and mark their files for deletion; add them to ``removed``. Requires the mutex.

        The caller gives ``removed`` to ``delete_later``, also after an error.
        """
        cdef char snapshot[PATH_BYTES]
        cdef char marked[MARKED_BYTES]
        cdef int64_t* offsets
        cdef int32_t i
        cdef int result = DONE, changed
        self.require_mutex()
        if end <= first:
            return DONE
        offsets = <int64_t*>realloc(removed.offsets, (removed.count + end - first) * sizeof(int64_t))
        if offsets == NULL:
            return NO_MEMORY
        removed.offsets = offsets
        for i in range(first, end):
            changed = change_suffix(&self.segments[i].name, b".deleted")
            result = changed if result == DONE else result
            snprintf(
                snapshot, PATH_BYTES, "%s/%020lld.snapshot", self.c_folder, <long long>self.segments[i].base_offset
            )
            snprintf(marked, MARKED_BYTES, "%s.deleted", snapshot)
            changed = rename_path(snapshot, marked)
            if result == DONE and changed != ENOENT:
                result = changed
            removed.offsets[removed.count] = self.segments[i].base_offset
            removed.count += 1
            release(self.segments[i])
        memmove(&self.segments[first], &self.segments[end], (self.count - end) * sizeof(Segment*))
        self.count = self.count - (end - first)
        self.changes = self.changes + 1
        return result

    cdef object delete_later(self, Removed* removed):
        """Let ``delete_files`` delete the files of removed segments after file.delete.delay.ms. Requires ``changing``."""
        cdef int64_t due = min(wall_ms() + self.config.file_delete_delay_ms, NEVER)
        cdef int32_t i
        for i in range(removed.count):
            name = names.segment_name(removed.offsets[i])
            for kind in (*SEGMENT_KINDS, names.SNAPSHOT_SUFFIX):
                self.deleted.append((due, self.folder / f"{name}{kind}{names.DELETED_SUFFIX}"))
        if removed.count:
            self.next_deletion_ms = min(self.next_deletion_ms, due)
        free(removed.offsets)
        removed.offsets = NULL
        removed.count = 0

    def close_files(self):
        """Close all files as they are: the log needs recovery afterwards."""
        cdef int32_t i
        with nogil:
            lock(&self.mutex)
            self.closed_ = True
            for i in range(self.count):
                release(self.segments[i])
            self.count = 0
            unlock(&self.mutex)

    def delete_files(self, now_ms=None):
        """Delete the files of removed segments whose file.delete.delay.ms is over; return how many are left."""
        now = wall_ms() if now_ms is None else now_ms
        with self.changing:
            due = [path for when, path in self.deleted if when <= now]
            self.deleted = [one for one in self.deleted if one[0] > now]
            self.next_deletion_ms = min([when for when, _ in self.deleted], default=NEVER)
            left = len(self.deleted)
            for path in due:
                path.unlink(missing_ok=True)
        return left

    cdef int rename_folder(self, const char* folder) noexcept nogil:
        """Rename the folder; return 0, an errno or a result of ``_parts``. Requires the mutex.

        ``folder`` is valid for as long as the log has it.
        """
        cdef int32_t i
        cdef int result = rename_path(self.c_folder, folder)
        self.require_mutex()
        if result != DONE:
            return result
        self.c_folder = folder
        for i in range(self.count):
            result = set_path(&self.segments[i].name, folder, self.segments[i].base_offset)
            if result != DONE:
                return result
        return DONE

    # -- snapshots of the producers

    cdef int take_snapshot(self, bint sync) noexcept nogil:
        """Write a snapshot of the producers at ``end_offset`` of theirs, if there is no newer one."""
        cdef int error, folder
        self.require_mutex()
        folder = open_fd(self.c_folder, O_RDONLY)
        if folder < 0:
            return errno
        error = self.producers.take_snapshot(folder, sync)
        close_fd(folder)
        return error

    def _snapshots(self):
        """Return the offsets of all snapshot files, ascending."""
        return sorted(
            offset
            for name in os.listdir(self.folder)
            if name.endswith(names.SNAPSHOT_SUFFIX) and (offset := names.offset_of(name)) is not None
        )

    def _remove_snapshot(self, offset):
        (self.folder / f"{names.segment_name(offset)}{names.SNAPSHOT_SUFFIX}").unlink(missing_ok=True)
