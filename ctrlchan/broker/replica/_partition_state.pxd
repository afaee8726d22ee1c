# The partitions of one broker, for code that runs once per request.
#
# A PartitionState lies within its Partition, a Python object (``_partitions``). ``find_partition`` pins it, so that it outlives its removal
# until ``release_partition``. What its mutex guards is only touched by code without the GIL, so that no processor waits for
# Python. ``Rank`` in ``_c/locks.pxd`` has the order of the mutexes.

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t

from ctrlchan._c.clock_functions cimport ClockFunctions
from ctrlchan._c.locks cimport Condition, Mutex, lock, unlock
from ctrlchan.broker.log._batches cimport Appended, Marker, Rules
from ctrlchan.broker.log._verifications cimport TransactionOfBatch
from ctrlchan.server._processor cimport Network

cdef enum:
    TOPIC_ID_BYTES = 16


cdef enum WatchKind:
    # What a watcher waits for. Each is also woken when the partition gets another leader, goes offline or is removed.
    # An append: a follower's Fetch
    RECORDS_APPENDED
    # A high watermark of at least ``offset``: a consumer's Fetch, a Produce with acks=-1
    WATERMARK_MOVED
    # A last stable offset of at least ``offset``: the Fetch of a consumer with READ_COMMITTED. It moves with the high
    # watermark alone: a marker ends a transaction for consumers when it is replicated.
    STABLE_OFFSET_MOVED


# A parked request waits for something of one partition. The memory is the request's; all fields are written by ``watch``
# and ``unwatch``. Memory that was never watched is zero.
cdef struct Watcher:
    # NULL: ``unwatch`` has nothing to do
    PartitionState* partition
    # Guarded by the partition's mutex
    bint is_linked
    Watcher* earlier
    Watcher* later
    WatchKind kind
    int64_t offset
    Network* network
    uint64_t token


# What a leader knows of a follower (ReplicaState). Offsets are -1 until the follower has fetched.
cdef struct Follower:
    int32_t broker_id
    # In the ISR that the controller has committed
    bint in_isr
    # In the ISR that the controller was asked for
    bint is_joining
    int64_t start_offset
    int64_t end_offset
    # The end of the leader's log, and the time, when the follower fetched last
    int64_t leader_end_offset
    int64_t fetched_ms
    int64_t caught_up_ms
    int64_t broker_epoch


cdef struct PartitionState:
    Mutex mutex
    Table* table
    # The Partition, borrowed
    void* owner
    const uint8_t* name
    int32_t name_size
    int32_t index
    uint8_t topic_id[TOPIC_ID_BYTES]
    # __consumer_offsets and __transaction_state: a client may not append to them.
    bint is_internal

    # The rest is guarded by the mutex.
    # A Log, with a reference of this partition's; NULL without one
    void* log
    Rules rules
    int32_t min_insync_replicas
    # What this broker sends and gets of the partition counts for its replication quotas.
    bint leader_is_throttled
    bint follower_is_throttled
    # -1: none
    int32_t leader
    int32_t leader_epoch
    int32_t partition_epoch
    bint is_leader
    bint is_offline
    # Where the leader epoch begins
    int64_t epoch_start_offset
    Follower* followers
    int32_t follower_count
    # The committed ISR, this broker included
    int32_t* isr
    int32_t isr_size
    int32_t* replicas
    int32_t replica_count
    # The controller was asked for another ISR.
    bint isr_is_pending
    Watcher* watchers
    # The least offset that an append from Python waits for
    int64_t wanted_watermark
    # The start of the log in another log directory that is to take the place of this one; -1: there is none
    int64_t future_start_offset
    # The partition has listeners to the low watermark
    bint tells_low_watermark
    # Counters: appended records, their bytes, appends that failed, bytes of those whose batch is too large
    int64_t records_in
    int64_t bytes_in
    int64_t failed_appends
    int64_t bytes_rejected

    # Bytes of records in answers to consumers; changed with the functions of atomics.pxd
    int64_t bytes_out

    # Guarded by the table's mutex
    int64_t pins
    PartitionState* next_by_name
    PartitionState* next_by_id
    # Guarded by the mutex of the table's events
    int events
    PartitionState* next_event


# What the thread of a table has to do for a partition, as bits.
cdef enum:
    COMPLETE_APPENDS = 1
    ASK_FOR_ISR = 2
    REPORT_FAILURE = 4
    TELL_LOW_WATERMARK = 8


cdef struct Table:
    # Of the PartitionTable; never another one
    const ClockFunctions* clock
    Mutex mutex
    int32_t broker_id
    # Hash tables of lists. ``capacity``: a power of two
    PartitionState** by_name
    PartitionState** by_id
    int64_t capacity
    int64_t count
    # Ids of the live brokers; -1: not known, all count as live
    int32_t* live
    int32_t live_count
    # replica.lag.time.max.ms
    int64_t max_lag_ms
    # The table has an ``isr_wanted``, so leaders ask for ISRs.
    bint changes_isr
    # transaction.partition.verification.enable; False: the broker can ask no coordinator
    bint verifies_transactions

    Mutex event_mutex
    Condition event_condition
    PartitionState* first_event
    PartitionState* last_event
    # A new append has the earliest deadline.
    bint has_deadline
    bint closed


# What an append to the leader has done.
cdef struct AppendResult:
    int16_t error
    int64_t base_offset
    # -1 with create time
    int64_t append_time
    int64_t log_start_offset
    # The high watermark that acknowledges the records
    int64_t required_offset
    # With acks=-1: the high watermark has reached ``required_offset`` already.
    bint is_acknowledged


cdef PartitionState* find_partition(Table* table, const uint8_t* name, int64_t size, int32_t index) noexcept nogil
cdef PartitionState* find_partition_by_id(Table* table, const uint8_t* topic_id, int32_t index) noexcept nogil
cdef void release_partition(PartitionState* partition) noexcept nogil

cdef inline void lock_partition(PartitionState* partition) noexcept nogil:
    lock(&partition.mutex)


cdef inline void unlock_partition(PartitionState* partition) noexcept nogil:
    unlock(&partition.mutex)


# Add a watcher to the partition. Requires the partition's mutex, which the caller has held since it looked at the
# partition, so that no event is missed. A watcher that was woken may watch the same partition again.
cdef void watch(
    PartitionState* partition, Watcher* watcher, WatchKind kind, int64_t offset, Network* network, uint64_t token
) noexcept nogil
# Remove a watcher, whether it was woken or not. The mutex must not be held.
cdef void unwatch(Watcher* watcher) noexcept nogil

# An append that fails with it tells nothing of the broker. Kafka answers no start offset.
cdef bint is_expected(int16_t error) noexcept nogil
# Count an append of so many bytes that was refused. Requires the mutex.
cdef void count_refused(PartitionState* partition, int16_t error, int64_t size) noexcept nogil
# Append checked batches if this broker leads. Takes the mutex. Changes ``data`` in place. ``guard``: of a verified
# transaction, or NO_GUARD.
cdef void append_to_leader(
    PartitionState* partition, uint8_t* data, Appended* appended, int origin, int64_t guard, int required_acks,
    int64_t now_ms, AppendResult* result
) noexcept nogil
# Append a batch of a coordinator if this broker leads since ``leader_epoch``, has the only replica, and need not flush it.
# Takes the mutex. Return whether it is in the log.
cdef bint append_at_once(
    PartitionState* partition, uint8_t* data, int64_t size, int32_t leader_epoch, int64_t now_ms
) noexcept nogil
# Return whether ``append_at_once`` may append to a partition. Requires the mutex.
cdef bint is_only_replica(PartitionState* partition, int32_t leader_epoch) noexcept nogil
# Append the marker that ends a producer's transaction. Takes the mutex. ``marker.timestamp``: now.
cdef void append_marker_to_leader(
    PartitionState* partition, int64_t producer_id, int16_t producer_epoch, const Marker* marker, int required_acks,
    AppendResult* result
) noexcept nogil
# Return whether a transactional batch may be appended with ``guard``, and nobody is asked before: its producer has a
# transaction here, the coordinator is this broker and has confirmed it, or transactions are not verified. Takes the mutex.
cdef bint is_verified(PartitionState* partition, const TransactionOfBatch* batch, int64_t* guard) noexcept nogil
# Begin the verification of a producer's transaction; find its guard, NO_GUARD if none is needed. Takes the mutex. Returns
# an error code.
cdef int16_t verify_producer(
    PartitionState* partition, int64_t producer_id, int16_t epoch, int32_t sequence, int64_t* guard
) noexcept nogil
# Confirm the verification that has this guard, as the coordinator of the transactional id. Takes the mutex.
cdef void confirm_producer(
    PartitionState* partition, int64_t producer_id, int16_t epoch, int64_t guard, const uint8_t* transactional_id,
    int64_t size
) noexcept nogil
# Withdraw that. Takes the mutex.
cdef void withdraw_producer(PartitionState* partition, int64_t producer_id) noexcept nogil
# Return the error of an append: another leader, offline, a small ISR with acks=-1. Requires the mutex.
cdef int16_t error_of_leader(PartitionState* partition, int required_acks) noexcept nogil
cdef int64_t records_before_flush(const PartitionState* partition) noexcept nogil
# Return whether a request with acks=-1 can be answered, and set its error. Requires the mutex.
cdef bint is_acknowledged(PartitionState* partition, int64_t required_offset, int16_t* error) noexcept nogil
# Store a follower's offsets, move the high watermark, and ask for an ISR with the follower. Takes the mutex. Returns an
# error code: NOT_LEADER_OR_FOLLOWER, or UNKNOWN_LEADER_EPOCH for a broker that is no replica.
cdef int16_t update_follower(
    PartitionState* partition, int32_t replica_id, int64_t fetch_offset, int64_t start_offset, int64_t broker_epoch,
    int64_t now_ms
) noexcept nogil
# Milliseconds since 1970, by the table's clock.
cdef int64_t wall_ms(const Table* table) noexcept nogil

# What follows is for ``_partitions`` and ``_partition_roles``. These take the table's mutex.
cdef bint has_topic_id(const PartitionState* partition) noexcept nogil
# Return whether there is memory for the hash tables, or for the partition.
cdef bint open_table(Table* table) noexcept nogil
cdef bint add_partition(Table* table, PartitionState* partition) noexcept nogil
cdef void remove_partition(Table* table, PartitionState* partition) noexcept nogil
cdef void set_topic_id(Table* table, PartitionState* partition, const uint8_t* topic_id) noexcept nogil
# Return the memory of the ids before, which the caller frees.
cdef int32_t* set_live(Table* table, int32_t* ids, int32_t count) noexcept nogil
cdef bint is_live(Table* table, int32_t broker_id) noexcept nogil

# The partition's mutex is required.
cdef Follower* follower_of(PartitionState* partition, int32_t broker_id) noexcept nogil
cdef bint is_caught_up(
    const Follower* follower, int64_t leader_end_offset, int64_t now_ms, int64_t max_lag_ms
) noexcept nogil
# Have the thread of the table do something for the partition. The mutex may be held.
cdef void raise_event(PartitionState* partition, int events) noexcept nogil
cdef void advance(PartitionState* partition, bint appended, int64_t now_ms) noexcept nogil
cdef void wake(PartitionState* partition, bint everybody, bint appended, int64_t high_watermark) noexcept nogil
