cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t

from ctrlchan._c.locks cimport Mutex
from ctrlchan.broker.log._batches cimport Appended
from ctrlchan.broker.log._leader_epochs cimport LeaderEpochs
from ctrlchan.broker.log._producers cimport ProducerStates
from ctrlchan.broker.log._reading cimport Isolation, Place, Range
from ctrlchan.broker.log._segment cimport Segment
from ctrlchan.broker.log._segments cimport Removed, Segments


# Of the configuration of a log; the segments have their own.
cdef struct LogSettings:
    int64_t flush_messages
    int64_t flush_ms
    int64_t retention_bytes
    int64_t retention_ms
    bint deletes_old


@cython.final
cdef class LocalLog:
    # Of the log; NULL while it is loaded
    cdef const Mutex* mutex
    cdef Segments segments
    cdef LeaderEpochs epochs
    cdef ProducerStates producers
    cdef LogSettings settings
    # The offsets may be read without the mutex: the first one that may be read, and that of the next record
    cdef int64_t start_offset
    cdef int64_t end_offset
    # Consumers may read up to it.
    cdef int64_t high_watermark
    # Everything below it survives a crash of the machine.
    cdef int64_t recovery_point
    # Where the high watermark is; segment -1: not known
    cdef Place watermark
    # A part of the log waits to be flushed: a rolled segment, or flush.messages
    cdef bint wants_flush
    # The lowest offset of a truncation since the cleaner has asked
    cdef int64_t lowest_truncation

    cdef void share(self, const Mutex* mutex) noexcept nogil
    cdef int append(
        self, const uint8_t* data, Appended* appended, int origin, int64_t guard, int64_t now_ms, int* error
    ) noexcept nogil
    cdef int64_t records_before_flush(self) noexcept nogil
    cdef void describe(self, Range* found) noexcept nogil
    cdef int read(
        self, int64_t offset, int64_t max_bytes, Isolation isolation, bint whole_first, Range* found
    ) noexcept nogil
    cdef int64_t move_high_watermark(self, int64_t offset) noexcept nogil
    cdef void raise_start(self, int64_t offset) noexcept nogil
    cdef int roll(self, int64_t base_offset, int64_t now_ms) noexcept nogil
    cdef int delete_old(self, int64_t now_ms, Removed* removed) noexcept nogil
    cdef int truncate(
        self, int64_t offset, const uint8_t* snapshot, int64_t snapshot_offset, int64_t now_ms, Removed* removed
    ) noexcept nogil
    cdef int begin_again(self, int64_t offset, int64_t start_offset, int64_t now_ms, Removed* removed) noexcept nogil
    cdef int finish(self) noexcept nogil
    cdef int32_t count_old(self, int64_t now_ms) noexcept nogil
    cdef bint may_delete(self, int32_t i) noexcept nogil
    cdef void set_end(self, int64_t offset) noexcept nogil
    cdef int replace(self, Segment* cleaned, const Removed* replaced, bint* is_done) noexcept nogil
