cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from ctrlchan._c.locks cimport Mutex
from ctrlchan.broker.log._batches cimport Appended
from ctrlchan.broker.log._local_log cimport LocalLog
from ctrlchan.broker.log._reading cimport Isolation, Range
from ctrlchan.broker.log._segments cimport Removed
from ctrlchan.broker.log._transaction_index cimport AbortedEntry
from ctrlchan.broker.log._verifications cimport TransactionOfBatch


@cython.final
cdef class Log:
    # Guards ``local`` with its parts, and the failure. No part locks it.
    cdef Mutex mutex
    cdef LocalLog local
    # The errno or result that took the log offline, 0 while it is online
    cdef int failure
    cdef bint closed_
    # Another log has taken its place (``Partition.replace_log``): it can be read, and does not change.
    cdef bint is_replaced
    # When the log was flushed last
    cdef int64_t flushed_ms
    # Guarded by the mutex: how often there was something to flush, and the time of that
    cdef int64_t flushes
    cdef int64_t flush_ns
    # A threading.RLock. Guards ``deleted``, and changes of Python code from their first step to the last; taken first.
    cdef object changing
    # A DeletedFiles
    cdef object deleted
    cdef readonly object folder
    cdef readonly object config

    cdef int lock_online(self) noexcept nogil
    cdef int lock_writable(self) noexcept nogil
    cdef int check(self, int result) except -1
    cdef int fail(self, int result) noexcept nogil
    cdef int64_t set_high_watermark(self, int64_t offset) noexcept nogil
    cdef int64_t find_stable_offset(self) noexcept nogil
    cdef bint retire(self, int64_t end_offset) noexcept nogil
    cdef void unretire(self) noexcept nogil
    cdef int succeed(self, Log other, int32_t leader_epoch) noexcept nogil
    cdef void take_verifications(self, Log other) noexcept nogil
    cdef int move_folder(self, const char* path, bint* is_moved) noexcept nogil
    cdef use_folder(self, folder)
    cdef int begin_epoch(self, int32_t epoch, int64_t* start_offset) noexcept nogil
    cdef int find_end_of_epoch(self, int32_t epoch, int32_t* found_epoch, int64_t* end_offset) noexcept nogil
    cdef int append_leader(
        self, uint8_t* data, Appended* appended, int32_t leader_epoch, int origin, int64_t guard, int64_t now_ms
    ) noexcept nogil
    cdef bint is_verified(
        self, const TransactionOfBatch* batch, int32_t leader_epoch, int64_t* guard
    ) noexcept nogil
    cdef void confirm_producer(
        self, int64_t producer_id, int16_t epoch, int64_t guard, const uint8_t* transactional_id, int64_t size,
        int32_t leader_epoch
    ) noexcept nogil
    cdef void withdraw_producer(self, int64_t producer_id) noexcept nogil
    cdef int verify_producer(
        self, int64_t producer_id, int16_t epoch, int32_t sequence, int64_t now_ms, int64_t* guard
    ) noexcept nogil
    cdef int append_follower(self, uint8_t* data, Appended* appended, int64_t now_ms) noexcept nogil
    cdef int read_range(
        self, int64_t offset, int64_t max_bytes, Isolation isolation, bint whole_first, Range* found
    ) noexcept nogil
    cdef int find_aborted(
        self, int64_t offset, const Range* records, AbortedEntry** found, int32_t* count
    ) noexcept nogil
    cdef int delete_later(self, Removed* removed) except -1
    cdef int flush_files(self, bint active, bint is_closing) except -1
