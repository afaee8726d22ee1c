from libc.stdint cimport int32_t, int64_t, uint8_t

from ctrlchan.broker.log._batches cimport Appended
from ctrlchan.broker.log._log_deletion cimport LogDeletion
from ctrlchan.broker.log._producers cimport ProducerUpdate
from ctrlchan.broker.log._segment cimport Segment


cdef class Log(LogDeletion):
    # When the log was flushed last
    cdef int64_t flushed_ms

    cdef int append_leader(
        self, uint8_t* data, Appended* appended, int32_t leader_epoch, int origin, int64_t now_ms
    ) noexcept nogil
    cdef int append_follower(self, uint8_t* data, Appended* appended, int64_t now_ms) noexcept nogil

    cdef int write_batches(self, const uint8_t* data, Appended* appended, int origin, int64_t now_ms) noexcept nogil
    cdef int check_producers(
        self, const uint8_t* data, Appended* appended, int origin, ProducerUpdate* update
    ) noexcept nogil
    cdef int update_producers(
        self, const uint8_t* data, const Appended* appended, int origin, const ProducerUpdate* update
    ) noexcept nogil
    cdef int begin_flush(
        self, bint active, int64_t now_ms, int64_t* offset, Segment*** unflushed, int32_t* number
    ) noexcept nogil
    cdef int assign_epochs(self, const uint8_t* data, int64_t size) noexcept nogil
