# What batches do to the producers of a log: while they are appended, and when they are read again.
# All functions require the mutex of the log.

from libc.stdint cimport int64_t, uint8_t

from ctrlchan.broker.log._batches cimport Appended, Batch
from ctrlchan.broker.log._producers cimport ProducerStates, ProducerUpdate
from ctrlchan.broker.log._segment cimport Segment
from ctrlchan.broker.log._segments cimport Segments


cdef int check_producers(
    ProducerStates producers, const uint8_t* data, Appended* appended, int origin, int64_t guard, ProducerUpdate* update
) noexcept nogil
cdef bint has_abort(const uint8_t* data, const Appended* appended) noexcept nogil
cdef int update_producers(
    ProducerStates producers, Segment* segment, const uint8_t* data, const Appended* appended, int origin,
    const ProducerUpdate* update
) noexcept nogil
cdef int replay_batch(
    ProducerStates producers, Segment* segment, const uint8_t* data, const Batch* batch
) noexcept nogil
cdef int rebuild_producers(
    ProducerStates producers, Segments segments, const uint8_t* snapshot, int64_t snapshot_offset, int64_t start_offset,
    int64_t end_offset, int64_t now_ms
) noexcept nogil
