from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t

from ctrlchan.broker.log._batches cimport Batch


cdef enum:
    # ProducerStateEntry.NUM_BATCHES_TO_RETAIN
    BATCHES_KEPT = 5


# Where one batch of a producer is (BatchMetadata).
cdef struct KeptBatch:
    int64_t last_offset
    int64_t timestamp
    int32_t last_sequence
    int32_t offset_delta


# The state of one producer (ProducerStateEntry).
cdef struct Producer:
    # -1: a free place of the table
    int64_t producer_id
    int64_t last_timestamp
    # -1 without a transaction
    int64_t txn_first_offset
    # When the producer came, counted: the order of a snapshot depends on it.
    int64_t arrival
    int32_t coordinator_epoch
    int16_t epoch
    int8_t kept
    # The oldest one first
    KeptBatch batches[BATCHES_KEPT]


# What one batch does to the state of its producer.
cdef struct ProducerUpdate:
    # False for a batch without a producer id, and for a duplicate: ``update`` does nothing.
    bint is_due
    # The batch was appended before; it must not be written again.
    bint is_duplicate
    int64_t duplicate_first_offset
    int64_t duplicate_last_offset
    int64_t duplicate_timestamp
    # A marker ends a transaction that has records here.
    bint ends_txn
    bint is_aborted
    int64_t txn_first_offset
    Producer producer


cdef class ProducerStates:
    cdef Producer* table
    # A power of two, or 0
    cdef int64_t capacity
    cdef int64_t arrivals
    # Of the hash map that Kafka would have.
    cdef int64_t java_capacity
    cdef readonly int64_t expiration_ms
    # Producers in the table
    cdef readonly int64_t count
    # The offset after the last batch that the states know (mapEndOffset).
    cdef public int64_t end_offset
    # ``end_offset`` of the last snapshot
    cdef public int64_t snapshot_offset

    cdef Producer* find(self, int64_t producer_id) noexcept nogil
    cdef int check(
        self, const uint8_t* data, const Batch* batch, int origin, ProducerUpdate* update
    ) noexcept nogil
    cdef void update(self, const ProducerUpdate* update) noexcept nogil
    cdef int append(self, const uint8_t* data, const Batch* batch, int origin) noexcept nogil
    cdef void expire(self, int64_t now_ms) noexcept nogil
    cdef int64_t first_undecided(self) noexcept nogil
    cdef int encode(self, uint8_t** data, int64_t* size) noexcept nogil
    cdef int take_snapshot(self, int directory_fd, bint sync) noexcept nogil
    cdef void forget_all(self) noexcept nogil
    cdef bint add_snapshot(self, const uint8_t* data, int64_t now_ms) noexcept nogil
    cdef Producer* copy(self, int64_t* count) noexcept nogil
    cdef bint reserve(self) noexcept nogil
    cdef Producer* place(self, int64_t producer_id) noexcept nogil
    cdef void put(self, const Producer* producer) noexcept nogil


# Return a ProducerState of each, in the order in which they came. ``copied`` is what ``copy`` has returned, and is freed.
cdef list describe_producers(Producer* copied, int64_t count)
