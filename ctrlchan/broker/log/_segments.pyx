"""The segments of a log and their files: their order, the active one; removal, truncation, replacement.

Sources: ``LogSegments``, ``LocalLog``. The log has one ``Segments`` and locks its mutex for all functions but
``flush_held``. They return results (``_parts.pxd``).
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint64_t
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memmove, strdup

from ctrlchan.broker.log._files cimport change_suffix, flush_folder, remove_files, rename_file, set_path
from ctrlchan.broker.log._indexes cimport resize_indexes
from ctrlchan.broker.log._parts cimport DONE, NO_MEMORY, require_mutex
from ctrlchan.broker.log._segment cimport (
    Segment,
    acquire,
    flush_segment,
    make_inactive,
    open_segment,
    release,
    reserve_segment,
    truncate_segment,
)

import os
import random

from ctrlchan.errors import LogDirectoryError

cdef enum:
    # Bytes; names of files follow in the segments' paths.
    LONGEST_FOLDER = 4096


@cython.final
cdef class Segments:
    """The segments in the folder of a log, none at first."""

    def __init__(self, folder):
        encoded = os.fsencode(folder)
        if len(encoded) > LONGEST_FOLDER:
            raise LogDirectoryError(f"{folder}: the name is too long")
        if self.set_folder(encoded) != DONE:
            raise MemoryError()
        self.seed = random.getrandbits(64)

    def __dealloc__(self):
        cdef int32_t i
        for i in range(self.count):
            release(self.at[i])
        free(self.at)
        free(self.folder)

    # -- what there is

    cdef Segment* active(self) noexcept nogil:
        return self.at[self.count - 1]

    cdef int32_t floor(self, int64_t offset) noexcept nogil:
        """Return the index of the last segment that does not begin above the offset, -1 for none."""
        cdef int32_t low = 0, high = self.count, middle
        # Most readers read new records.
        if self.count > 0 and self.at[self.count - 1].base_offset <= offset:
            return self.count - 1
        while low < high:
            middle = (low + high) // 2
            if self.at[middle].base_offset <= offset:
                low = middle + 1
            else:
                high = middle
        return low - 1

    cdef int64_t end_of(self, int32_t i, int64_t log_end) noexcept nogil:
        """Return where the segment behind one begins, or the end of the log."""
        return self.at[i + 1].base_offset if i + 1 < self.count else log_end

    cdef int64_t size_from(self, int32_t first) noexcept nogil:
        """Return the bytes of the records of the segments from ``first`` on."""
        cdef int64_t size = 0
        cdef int32_t i
        require_mutex(self.mutex)
        for i in range(first, self.count):
            size += self.at[i].size
        return size

    cdef int64_t* copy_offsets(self, int32_t* count) noexcept nogil:
        """Return the first offset of each segment in memory that the caller frees; NULL without memory."""
        cdef int64_t* offsets = <int64_t*>malloc(max(1, self.count) * sizeof(int64_t))
        cdef int32_t i
        require_mutex(self.mutex)
        count[0] = self.count if offsets != NULL else 0
        for i in range(count[0]):
            offsets[i] = self.at[i].base_offset
        return offsets

    # -- more segments

    @cython.overflowcheck(False)
    cdef int add(self, int64_t base_offset, int64_t now_ms) noexcept nogil:
        """Open the files of a segment behind the others; create missing files."""
        cdef uint64_t mixed = (<uint64_t>base_offset + self.seed) * <uint64_t>0x9E3779B97F4A7C15
        cdef Segment** at
        cdef Segment* segment
        cdef int error
        require_mutex(self.mutex)
        if self.count == self.room:
            at = <Segment**>realloc(self.at, (2 * self.room + 4) * sizeof(Segment*))
            if at == NULL:
                return NO_MEMORY
            self.at, self.room = at, 2 * self.room + 4
        segment = open_segment(
            self.folder, base_offset, b"", self.settings.index_interval_bytes, self.settings.index_bytes, now_ms, &error
        )
        if segment == NULL:
            return error
        if self.settings.preallocates and segment.size == 0:
            error = reserve_segment(segment, self.settings.segment_bytes)
            if error != DONE:
                release(segment)
                return error
        # A part of segment.jitter.ms that differs from segment to segment.
        if self.settings.jitter_ms > 0:
            segment.roll_jitter_ms = <int64_t>((mixed >> 11) % <uint64_t>self.settings.jitter_ms)
        self.at[self.count] = segment
        self.count = self.count + 1
        return DONE

    cdef int roll(self, int64_t base_offset, int64_t now_ms) noexcept nogil:
        """Begin a new active segment at ``base_offset``."""
        cdef int error
        require_mutex(self.mutex)
        if self.active().base_offset == base_offset and self.active().size == 0:
            # A segment without a record is only rolled because its index has no room.
            return resize_indexes(&self.active().indexes, self.settings.index_bytes)
        error = remove_files(self.folder, base_offset)
        if error == DONE:
            error = make_inactive(self.active())
        return error if error != DONE else self.add(base_offset, now_ms)

    # -- fewer segments

    cdef int take_out(self, int32_t first, int32_t end, Removed* removed) noexcept nogil:
        """Take segments out and mark their files and their snapshots for deletion; add them to ``removed``.

        The caller lets the files be deleted, also after an error.
        """
        cdef int64_t* offsets
        cdef int32_t i
        cdef int result = DONE, changed
        require_mutex(self.mutex)
        if end <= first:
            return DONE
        offsets = <int64_t*>realloc(removed.offsets, (removed.count + end - first) * sizeof(int64_t))
        if offsets == NULL:
            return NO_MEMORY
        removed.offsets = offsets
        for i in range(first, end):
            changed = change_suffix(&self.at[i].name, b".deleted")
            result = changed if result == DONE else result
            changed = rename_file(&self.at[i].name, b".snapshot", b"", b".deleted")
            result = changed if result == DONE else result
            removed.offsets[removed.count] = self.at[i].base_offset
            removed.count += 1
            release(self.at[i])
        close_gap(self, first, end)
        self.changes = self.changes + 1
        return result

    cdef int truncate(self, int64_t offset, int64_t now_ms, Removed* removed) noexcept nogil:
        """Remove the batches that hold ``offset`` or more. The first segment does not begin above it."""
        cdef int64_t removed_bytes
        cdef int result
        require_mutex(self.mutex)
        self.changes = self.changes + 1
        result = self.take_out(self.floor(offset) + 1, self.count, removed)
        return result if result != DONE else truncate_segment(self.active(), offset, now_ms, &removed_bytes)

    cdef int replace(self, Segment* segment, const Removed* replaced, bint* is_done) noexcept nogil:
        """Replace neighbouring segments, none of them active, by a segment of the cleaner.

        ``is_done``: the reference is taken, and the files of ``replaced`` are to be deleted. False without an error: these
        segments are not there any more.
        """
        cdef int32_t first = self.floor(replaced.offsets[0]), end = first + replaced.count, i
        cdef int result
        require_mutex(self.mutex)
        is_done[0] = False
        if first < 0 or end > self.count - 1:
            return DONE
        for i in range(first, end):
            if self.at[i].base_offset != replaced.offsets[i - first]:
                return DONE
        result = change_suffix(&segment.name, b".swap")
        # From here on a crash leaves the new segment: loading ends the replacement.
        if result == DONE:
            result = flush_folder(self.folder)
        for i in range(first, end):
            if result == DONE:
                result = change_suffix(&self.at[i].name, b".deleted")
        if result == DONE:
            result = change_suffix(&segment.name, b"")
        if result == DONE:
            result = flush_folder(self.folder)
        if result != DONE:
            return result
        for i in range(first, end):
            release(self.at[i])
        self.at[first] = segment
        close_gap(self, first + 1, end)
        is_done[0] = True
        return DONE

    # -- all segments

    cdef int hold(self, int64_t from_offset, int32_t end, Held* held) noexcept nogil:
        """Find the segments with offsets from ``from_offset`` on, up to the index ``end``, for ``flush_held``."""
        cdef int32_t i
        require_mutex(self.mutex)
        held.segments = <Segment**>malloc(self.count * sizeof(Segment*))
        if held.segments == NULL:
            return NO_MEMORY
        for i in range(max(self.floor(from_offset), 0), end):
            acquire(self.at[i])
            held.segments[held.count] = self.at[i]
            held.count += 1
        return DONE

    cdef int set_folder(self, const char* folder) noexcept nogil:
        """Take the name of the folder, for the segments too."""
        cdef char* copied = strdup(folder)
        cdef int32_t i
        cdef int result = DONE
        require_mutex(self.mutex)
        if copied == NULL:
            return NO_MEMORY
        free(self.folder)
        self.folder = copied
        for i in range(self.count):
            if result == DONE:
                result = set_path(&self.at[i].name, folder, self.at[i].base_offset)
        return result

    cdef void close(self) noexcept nogil:
        """Close the files of all segments as they are."""
        cdef int32_t i
        require_mutex(self.mutex)
        for i in range(self.count):
            release(self.at[i])
        self.count = 0


cdef void close_gap(Segments segments, int32_t first, int32_t end) noexcept nogil:
    """Let the segments from ``end`` on follow the first ones."""
    memmove(&segments.at[first], &segments.at[end], (segments.count - end) * sizeof(Segment*))
    segments.count = segments.count - (end - first)


cdef int set_offsets(Removed* removed, offsets) except -1:
    removed.offsets, removed.count = <int64_t*>malloc(len(offsets) * sizeof(int64_t)), 0
    if removed.offsets == NULL:
        raise MemoryError()
    for offset in offsets:
        removed.offsets[removed.count] = offset
        removed.count += 1
    return 0


cdef list take_offsets(Removed* removed):
    cdef int32_t i
    offsets = [removed.offsets[i] for i in range(removed.count)]
    free(removed.offsets)
    removed.offsets, removed.count = NULL, 0
    return offsets


cdef int flush_held(Held* held) noexcept nogil:
    cdef int result = DONE
    cdef int32_t i
    for i in range(held.count):
        if result == DONE:
            result = flush_segment(held.segments[i])
        release(held.segments[i])
    free(held.segments)
    return result
