"""The leader epochs of one partition: the first offset of each epoch, and its checkpoint.

Nothing here needs the GIL: a processor that appends the first batch of an epoch records the epoch. The log locks its
mutex for all functions. Source: ``LeaderEpochFileCache``.
"""

cimport cython
from libc.errno cimport EINVAL
from libc.stdint cimport int32_t, int64_t, uint8_t
from libc.stdio cimport snprintf
from libc.stdlib cimport free, malloc, realloc
from libc.string cimport memcpy, memmove, strdup

from ctrlchan.broker.log._batches cimport FORMAT_2, Batch, read_batch
from ctrlchan.broker.log._files cimport replace_file
from ctrlchan.broker.log._parts cimport DONE, NO_MEMORY, require_mutex

import os
from pathlib import Path
from typing import NamedTuple

from ctrlchan.broker.log.checkpoints import LEADER_EPOCH_CHECKPOINT, read_epochs

UNDEFINED_EPOCH = -1
UNDEFINED_OFFSET = -1

cdef enum:
    NO_EPOCH = -1
    NO_OFFSET = -1
    # The longest line of a checkpoint: two numbers.
    LINE_BYTES = 33

cdef bytes CHECKPOINT = LEADER_EPOCH_CHECKPOINT.encode()
cdef const char* checkpoint_name = CHECKPOINT


class EpochEnd(NamedTuple):
    """The end of a leader epoch. Both are -1 where it is not known."""

    epoch: int
    end_offset: int


@cython.final
cdef class LeaderEpochs:
    """The (epoch, start offset) pairs of one partition, both ascending.

    The checkpoint is written at once when an epoch is assigned. After a truncation ``flush`` writes it: the log truncates
    too many entries again when it is loaded. Raises LogDirectoryError for a checkpoint that is malformed.
    """

    def __init__(self, folder):
        read = read_epochs(Path(folder) / LEADER_EPOCH_CHECKPOINT)
        if self.move(os.fsencode(folder)) != DONE:
            raise MemoryError()
        for epoch, start in read:
            if self.put(epoch, start) < 0:
                raise MemoryError()
        self.is_unsaved = self.pairs() != read

    def __dealloc__(self):
        free(self.starts)
        free(self.folder)

    cpdef int32_t latest(self) noexcept nogil:
        """Return the latest epoch, or -1 if there is no epoch."""
        return self.starts[self.count - 1].epoch if self.count else NO_EPOCH

    def pairs(self):
        """Return all (epoch, start offset) pairs."""
        cdef int32_t i
        return [(self.starts[i].epoch, self.starts[i].offset) for i in range(self.count)]

    cdef EpochStart* copy(self, int32_t* count) noexcept nogil:
        """Return a copy of the pairs, which the caller frees; NULL without memory."""
        cdef EpochStart* copied = <EpochStart*>malloc(max(1, self.count) * sizeof(EpochStart))
        require_mutex(self.mutex)
        count[0] = 0
        if copied != NULL:
            count[0] = self.count
            if self.count:
                memcpy(copied, self.starts, self.count * sizeof(EpochStart))
        return copied

    cdef int32_t count_up_to(self, int64_t offset) noexcept nogil:
        """Return how many epochs begin at the offset or below. Most callers ask for one of the last."""
        cdef int32_t i = self.count
        while i > 0 and self.starts[i - 1].offset > offset:
            i -= 1
        return i

    def assign(self, int32_t epoch, int64_t start_offset):
        """Record that ``epoch`` begins at ``start_offset``, and write the checkpoint if that is new. Raises OSError."""
        if epoch < 0 or start_offset < 0:
            raise ValueError(f"leader epoch {epoch} cannot begin at offset {start_offset}")
        check(self.assign_epoch(epoch, start_offset))

    cdef int assign_epoch(self, int32_t epoch, int64_t start_offset) noexcept nogil:
        cdef int is_new
        if epoch < 0 or start_offset < 0:
            return EINVAL
        is_new = self.put(epoch, start_offset)
        if is_new < 0:
            return NO_MEMORY
        if not is_new:
            return DONE
        self.is_unsaved = True
        return self.save()

    cdef int assign_batches(self, const uint8_t* data, int64_t size) noexcept nogil:
        """Record each leader epoch of the batches that is not the latest one.

        A batch of format 0 or 1 says nothing of epochs: all are removed, so that a replica with such batches is truncated
        to its high watermark when its leader changes, as in Kafka.
        """
        cdef Batch batch
        cdef int64_t position = 0
        cdef int result
        while position < size:
            read_batch(data + position, &batch)
            if batch.leader_epoch != self.latest() and batch.leader_epoch >= 0:
                result = self.assign_epoch(batch.leader_epoch, batch.base_offset)
                if result != DONE:
                    return result
            elif batch.magic < FORMAT_2 and self.count > 0:
                result = self.clear_epochs()
                if result != DONE:
                    return result
            position += batch.size
        return DONE

    cdef int put(self, int32_t epoch, int64_t start) noexcept nogil:
        cdef int32_t count = self.count
        cdef EpochStart* starts
        require_mutex(self.mutex)
        if count and epoch == self.starts[count - 1].epoch and start >= self.starts[count - 1].offset:
            return False
        while count and (self.starts[count - 1].epoch >= epoch or self.starts[count - 1].offset >= start):
            count -= 1
        if count == self.room:
            starts = <EpochStart*>realloc(self.starts, (2 * self.room + 4) * sizeof(EpochStart))
            if starts == NULL:
                return -1
            self.starts, self.room = starts, 2 * self.room + 4
        self.starts[count].epoch, self.starts[count].offset = epoch, start
        self.count = count + 1
        return True

    def end_of(self, int32_t epoch, int64_t log_end_offset):
        """Return the EpochEnd of the largest epoch that is not above ``epoch``: the start of the next epoch.

        An epoch before the first one ends where the first one starts; one above the latest is not known.
        """
        cdef EpochStart end
        self.find_end(epoch, log_end_offset, &end)
        return EpochEnd(end.epoch, end.offset)

    cdef void find_end(self, int32_t epoch, int64_t log_end_offset, EpochStart* end) noexcept nogil:
        """Find what ``end_of`` returns."""
        cdef int32_t above = self.count
        require_mutex(self.mutex)
        end.epoch, end.offset = NO_EPOCH, NO_OFFSET
        if epoch == NO_EPOCH:
            return
        if epoch == self.latest():
            end.epoch, end.offset = epoch, log_end_offset
            return
        while above > 0 and self.starts[above - 1].epoch > epoch:
            above -= 1
        if above < self.count:
            end.epoch = self.starts[above - 1].epoch if above else epoch
            end.offset = self.starts[above].offset

    cpdef int32_t epoch_of(self, int64_t offset) noexcept nogil:
        """Return the epoch of the offset, or -1 before the first epoch."""
        cdef int32_t count = self.count_up_to(offset)
        return self.starts[count - 1].epoch if count else NO_EPOCH

    cpdef void truncate_end(self, int64_t end_offset) noexcept nogil:
        """Remove the epochs that begin at ``end_offset`` or above."""
        require_mutex(self.mutex)
        while self.count and self.starts[self.count - 1].offset >= end_offset:
            self.count = self.count - 1
            self.is_unsaved = True

    cpdef void truncate_start(self, int64_t start_offset) noexcept nogil:
        """Remove the epochs before ``start_offset``; the epoch of ``start_offset`` begins there now."""
        cdef int32_t past = self.count_up_to(start_offset)
        require_mutex(self.mutex)
        if not past:
            return
        if past > 1 or self.starts[0].offset != start_offset:
            self.is_unsaved = True
        self.count = self.count - (past - 1)
        memmove(self.starts, self.starts + past - 1, self.count * sizeof(EpochStart))
        self.starts[0].offset = start_offset

    def clear(self):
        """Remove all epochs and write the checkpoint. Raises OSError."""
        check(self.clear_epochs())

    cdef int clear_epochs(self) noexcept nogil:
        self.count = 0
        self.is_unsaved = True
        return self.save()

    def flush(self):
        """Write the checkpoint if it has changed. Raises OSError."""
        check(self.save())

    cdef int save(self) noexcept nogil:
        cdef char* text
        cdef int64_t size
        cdef int32_t i
        cdef int error
        require_mutex(self.mutex)
        if not self.is_unsaved:
            return DONE
        text = <char*>malloc((self.count + 2) * <int64_t>LINE_BYTES)
        if text == NULL:
            return NO_MEMORY
        # Version and number of entries.
        size = snprintf(text, LINE_BYTES, "0\n%d\n", <int>self.count)
        for i in range(self.count):
            size += snprintf(
                text + size, LINE_BYTES, "%d %lld\n", <int>self.starts[i].epoch, <long long>self.starts[i].offset
            )
        error = replace_file(self.folder, checkpoint_name, text, size)
        free(text)
        if error == 0:
            self.is_unsaved = False
        return error

    cdef int move(self, const char* folder) noexcept nogil:
        """Record that the folder of the log has a new name."""
        cdef char* copied = strdup(folder)
        if copied == NULL:
            return NO_MEMORY
        free(self.folder)
        self.folder = copied
        return DONE


cdef int check(int result) except -1:
    if result == NO_MEMORY:
        raise MemoryError()
    if result != DONE:
        raise OSError(result, os.strerror(result))
    return 0
