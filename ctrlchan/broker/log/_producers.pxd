cimport cython
from libc.stdint cimport int8_t, int16_t, int32_t, int64_t, uint8_t, uint32_t

from ctrlchan._c.locks cimport Mutex
from ctrlchan.broker.log._batches cimport Batch
from ctrlchan.broker.log._verifications cimport TransactionOfBatch, Verifications


cdef enum:
    # ProducerStateEntry.NUM_BATCHES_TO_RETAIN
    BATCHES_KEPT = 5

    # Verification guards that no verification has: of a batch that comes without one, and of one that needs none.
    NO_GUARD = 0
    NOT_VERIFIED = -1


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
    # With a transaction: its place in ``ProducerStates.open``
    int32_t open_place
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
    # The batch belongs to a transaction, or is a marker.
    bint is_transactional
    bint begins_txn
    # A marker ends a transaction that has records here.
    bint ends_txn
    bint is_aborted
    int64_t txn_first_offset
    int64_t last_offset
    Producer producer


# A transaction that has not ended, in the list of them. A place that no transaction has is in a list of free places.
cdef struct OpenTransaction:
    int64_t first_offset
    # -1: there is none
    int32_t earlier
    int32_t later


# A transaction whose marker may be above the high watermark.
cdef struct Ended:
    int64_t first_offset
    int64_t last_offset


cdef inline int64_t java_bucket(int64_t producer_id, int64_t java_capacity) noexcept nogil:
    """Return the bucket of a Long in a HashMap of ``java_capacity`` buckets."""
    cdef uint32_t low = <uint32_t>(producer_id ^ (producer_id >> 32))
    return (low ^ (low >> 16)) & (java_capacity - 1)


@cython.final
cdef class ProducerStates:
    # Of the log; NULL while it is loaded, and without a log
    cdef const Mutex* mutex
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
    # Transactions that consumers of READ_COMMITTED wait for. Those that have not ended: a list in ``open``, ordered by
    # first offset. Places are -1 where there is none. ``open_used``: places that are in a list
    cdef OpenTransaction* open
    cdef int32_t open_room
    cdef int32_t open_used
    cdef int32_t free_place
    cdef int32_t first_open
    cdef int32_t last_open
    # Those that have ended, in the order of their markers. One that began before all that ended earlier takes their
    # places, so the first one has the least first offset.
    cdef Ended* ended
    cdef int32_t ended_from
    cdef int32_t ended_count
    cdef int32_t ended_room
    # Producers whose transaction the coordinator is asked for
    cdef Verifications verifications

    cdef Producer* find(self, int64_t producer_id) noexcept nogil
    cdef bint copy_or_begin(self, int64_t producer_id, Producer* producer) noexcept nogil
    cdef int check(
        self, const uint8_t* data, const Batch* batch, int origin, int64_t guard, ProducerUpdate* update
    ) noexcept nogil
    cdef void update(self, const ProducerUpdate* update) noexcept nogil
    cdef int64_t verify(self, int64_t producer_id, int16_t epoch, int32_t sequence, int64_t now_ms) noexcept nogil
    cdef bint has_open_transaction(self, int64_t producer_id) noexcept nogil
    cdef bint is_verified(
        self, const TransactionOfBatch* batch, int32_t leader_epoch, int64_t* guard
    ) noexcept nogil
    cdef void expire(self, int64_t now_ms) noexcept nogil
    cdef bint reserve(self) noexcept nogil
    cdef Producer* put(self, const Producer* producer) noexcept nogil
    cdef void grow_java_capacity(self, int64_t producer_id) noexcept nogil
    cdef bint load(self, const Producer* producer) noexcept nogil
    cdef void forget_all(self) noexcept nogil
    cdef void begin_at(self, int64_t end_offset) noexcept nogil
    cdef bint has_nobody_to_forget(self, int64_t end_offset) noexcept nogil
    cdef Producer* copy(self, int64_t* count) noexcept nogil
    cdef Producer* place(self, int64_t producer_id) noexcept nogil
    cdef bint reserve_open(self) noexcept nogil
    cdef int32_t add_open(self, int64_t first_offset, int32_t earlier) noexcept nogil
    cdef void remove_open(self, int32_t place) noexcept nogil
    cdef bint sort_open(self) noexcept nogil
    cdef int64_t first_undecided(self) noexcept nogil
    cdef bint reserve_ended(self) noexcept nogil
    cdef void add_ended(self, int64_t first_offset, int64_t last_offset) noexcept nogil
    cdef int64_t stable_offset(self, int64_t high_watermark, int64_t start_offset) noexcept nogil
    cdef void forget_replicated(self, int64_t high_watermark) noexcept nogil


cdef bint is_expired(const Producer* producer, int64_t now_ms, int64_t expiration_ms) noexcept nogil
cdef void keep(Producer* producer, KeptBatch batch) noexcept nogil
cdef const KeptBatch* last_batch(const Producer* producer) noexcept nogil
# Return a ProducerState of each, in the order in which they came. ``copied`` is what ``copy`` has returned, and is freed.
cdef list describe_producers(Producer* copied, int64_t count)
