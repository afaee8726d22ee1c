"""One partition of a broker without Python objects: the lookup, the requests that wait, and the followers' offsets.

A processor finds a partition, appends and watches without the GIL (see the .pxd). ``_partitions.pyx`` has the Python
classes around it, and the thread that does what an event asks for. Source: kafka.cluster.Partition, kafka.cluster.Replica.
"""

cimport cython
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcmp, memcpy

from ctrlchan._c.clock_functions cimport wall_ms_of
from ctrlchan._c.clocks cimport NEVER
from ctrlchan._c.error_codes cimport (
    CORRUPT_MESSAGE,
    KAFKA_STORAGE_ERROR,
    MESSAGE_TOO_LARGE,
    NONE,
    NOT_ENOUGH_REPLICAS,
    NOT_ENOUGH_REPLICAS_AFTER_APPEND,
    NOT_LEADER_OR_FOLLOWER,
    RECORD_LIST_TOO_LARGE,
    UNKNOWN_LEADER_EPOCH,
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from ctrlchan._c.locks cimport lock, require, signal, unlock
from ctrlchan.broker.log._batches cimport COORDINATOR, MARKER_BYTES, Appended, Rules, check_batches, write_marker
from ctrlchan.broker.log._log cimport Log
from ctrlchan.broker.log._producers cimport NO_GUARD, NOT_VERIFIED
from ctrlchan.server._processor cimport Network, complete

cdef enum:
    # Of acks
    ALL = -1
    NO_EPOCH = -1
    NOT_KNOWN = -1

    LEAST_CAPACITY = 64


cdef int64_t wall_ms(const Table* table) noexcept nogil:
    return wall_ms_of(table.clock)


# -- the table


@cython.overflowcheck(False)
cdef inline uint64_t hash_of(const uint8_t* data, int64_t size, int32_t index) noexcept nogil:
    cdef uint64_t value = <uint64_t>0xcbf29ce484222325
    cdef int64_t i
    for i in range(size):
        value = (value ^ data[i]) * <uint64_t>0x100000001b3
    value = (value ^ <uint64_t>index) * <uint64_t>0x9e3779b97f4a7c15
    return value >> 32


cdef inline PartitionState** place_by_name(Table* table, const PartitionState* p) noexcept nogil:
    return &table.by_name[hash_of(p.name, p.name_size, p.index) & <uint64_t>(table.capacity - 1)]


cdef inline PartitionState** place_by_id(Table* table, const uint8_t* topic_id, int32_t index) noexcept nogil:
    return &table.by_id[hash_of(topic_id, TOPIC_ID_BYTES, index) & <uint64_t>(table.capacity - 1)]


cdef bint has_topic_id(const PartitionState* p) noexcept nogil:
    cdef int i
    for i in range(TOPIC_ID_BYTES):
        if p.topic_id[i]:
            return True
    return False


cdef PartitionState* find_partition(Table* table, const uint8_t* name, int64_t size, int32_t index) noexcept nogil:
    """Return the partition, pinned, or NULL."""
    cdef uint64_t hashed = hash_of(name, size, index)
    cdef PartitionState* p
    lock(&table.mutex)
    p = table.by_name[hashed & <uint64_t>(table.capacity - 1)]
    while p != NULL and (p.index != index or p.name_size != size or memcmp(p.name, name, size) != 0):
        p = p.next_by_name
    if p != NULL:
        p.pins += 1
    unlock(&table.mutex)
    return p


cdef PartitionState* find_partition_by_id(Table* table, const uint8_t* topic_id, int32_t index) noexcept nogil:
    """Return the partition, pinned, or NULL. A topic id of zero finds nothing."""
    cdef PartitionState* p
    lock(&table.mutex)
    p = place_by_id(table, topic_id, index)[0]
    while p != NULL and (p.index != index or memcmp(p.topic_id, topic_id, TOPIC_ID_BYTES) != 0):
        p = p.next_by_id
    if p != NULL:
        p.pins += 1
    unlock(&table.mutex)
    return p


cdef void pin(PartitionState* p) noexcept nogil:
    lock(&p.table.mutex)
    p.pins += 1
    unlock(&p.table.mutex)


cdef void release_partition(PartitionState* p) noexcept nogil:
    """Give back what ``find_partition`` has returned."""
    lock(&p.table.mutex)
    p.pins -= 1
    unlock(&p.table.mutex)


cdef void link_id(Table* table, PartitionState* p) noexcept nogil:
    """Make a partition with a topic id findable by it. Requires the table's mutex."""
    cdef PartitionState** place
    require(&table.mutex)
    if has_topic_id(p):
        place = place_by_id(table, p.topic_id, p.index)
        p.next_by_id = place[0]
        place[0] = p


cdef void unlink_id(Table* table, PartitionState* p) noexcept nogil:
    cdef PartitionState** place
    require(&table.mutex)
    if has_topic_id(p):
        place = place_by_id(table, p.topic_id, p.index)
        while place[0] != p:
            place = &place[0].next_by_id
        place[0] = p.next_by_id


cdef void link_name(Table* table, PartitionState* p) noexcept nogil:
    """Make a partition findable. Requires the table's mutex, and room."""
    require(&table.mutex)
    cdef PartitionState** place = place_by_name(table, p)
    p.next_by_name = place[0]
    place[0] = p
    table.count += 1
    link_id(table, p)


cdef void unlink_name(Table* table, PartitionState* p) noexcept nogil:
    cdef PartitionState** place = place_by_name(table, p)
    while place[0] != p:
        place = &place[0].next_by_name
    place[0] = p.next_by_name
    table.count -= 1
    unlink_id(table, p)


cdef bint reserve(Table* table) noexcept nogil:
    """Make room for one more partition; return whether there is memory for it. Requires the table's mutex."""
    require(&table.mutex)
    cdef PartitionState** names = table.by_name
    cdef PartitionState** ids = table.by_id
    cdef PartitionState** place
    cdef PartitionState* p
    cdef PartitionState* following
    cdef int64_t i, before = table.capacity, capacity = max(LEAST_CAPACITY, 2 * table.capacity)
    if table.count < table.capacity:
        return True
    table.by_name = <PartitionState**>calloc(capacity, sizeof(PartitionState*))
    table.by_id = <PartitionState**>calloc(capacity, sizeof(PartitionState*))
    if table.by_name == NULL or table.by_id == NULL:
        free(table.by_name)
        free(table.by_id)
        table.by_name, table.by_id = names, ids
        return False
    table.capacity = capacity
    for i in range(before):
        p = names[i]
        while p != NULL:
            following = p.next_by_name
            place = place_by_name(table, p)
            p.next_by_name = place[0]
            place[0] = p
            link_id(table, p)
            p = following
    free(names)
    free(ids)
    return True


cdef bint open_table(Table* table) noexcept nogil:
    cdef bint has_room
    lock(&table.mutex)
    has_room = reserve(table)
    unlock(&table.mutex)
    return has_room


cdef bint add_partition(Table* table, PartitionState* p) noexcept nogil:
    """Make a partition findable."""
    cdef bint has_room
    lock(&table.mutex)
    has_room = reserve(table)
    if has_room:
        link_name(table, p)
    unlock(&table.mutex)
    return has_room


cdef void remove_partition(Table* table, PartitionState* p) noexcept nogil:
    lock(&table.mutex)
    unlink_name(table, p)
    unlock(&table.mutex)


cdef void set_topic_id(Table* table, PartitionState* p, const uint8_t* topic_id) noexcept nogil:
    """Give its id to a partition that has none."""
    lock(&table.mutex)
    memcpy(p.topic_id, topic_id, TOPIC_ID_BYTES)
    link_id(table, p)
    unlock(&table.mutex)


cdef int32_t* set_live(Table* table, int32_t* ids, int32_t count) noexcept nogil:
    cdef int32_t* before
    lock(&table.mutex)
    before = table.live
    table.live, table.live_count = ids, count
    unlock(&table.mutex)
    return before


cdef bint is_live(Table* table, int32_t broker_id) noexcept nogil:
    cdef int32_t i
    cdef bint found
    lock(&table.mutex)
    found = table.live_count < 0
    for i in range(table.live_count):
        if table.live[i] == broker_id:
            found = True
            break
    unlock(&table.mutex)
    return found


cdef void raise_event(PartitionState* p, int events) noexcept nogil:
    """Queue an event for the table's thread; the partition is pinned until the thread has handled it."""
    cdef Table* table = p.table
    lock(&table.event_mutex)
    if not table.closed:
        if not p.events:
            pin(p)
            p.next_event = NULL
            if table.last_event != NULL:
                table.last_event.next_event = p
            else:
                table.first_event = p
            table.last_event = p
        p.events |= events
        signal(&table.event_condition)
    unlock(&table.event_mutex)


# -- watchers


cdef void watch(
    PartitionState* p, Watcher* watcher, WatchKind kind, int64_t offset, Network* network, uint64_t token
) noexcept nogil:
    """Complete the parked request ``token`` once. The request unwatches before it watches again or ends."""
    require(&p.mutex)
    if watcher.partition == NULL:
        pin(p)
    watcher.partition, watcher.kind, watcher.offset = p, kind, offset
    watcher.network, watcher.token = network, token
    watcher.is_linked = True
    watcher.earlier, watcher.later = NULL, p.watchers
    if p.watchers != NULL:
        p.watchers.earlier = watcher
    p.watchers = watcher


cdef void unlink_watcher(PartitionState* p, Watcher* watcher) noexcept nogil:
    require(&p.mutex)
    if watcher.earlier != NULL:
        watcher.earlier.later = watcher.later
    else:
        p.watchers = watcher.later
    if watcher.later != NULL:
        watcher.later.earlier = watcher.earlier
    watcher.is_linked = False


cdef void unwatch(Watcher* watcher) noexcept nogil:
    """Remove a watcher from its partition, whether it has completed its request or not."""
    cdef PartitionState* p = watcher.partition
    if p == NULL:
        return
    lock_partition(p)
    if watcher.is_linked:
        unlink_watcher(p, watcher)
    unlock_partition(p)
    watcher.partition = NULL
    release_partition(p)


cdef void wake(PartitionState* p, bint everybody, bint appended, int64_t high_watermark) noexcept nogil:
    """Complete the requests that wait for what has happened. Requires the mutex.

    ``high_watermark``: where it is now, -1 if it has not moved.
    """
    require(&p.mutex)
    cdef Watcher* watcher = p.watchers
    cdef Watcher* following
    cdef int64_t stable_offset = NOT_KNOWN
    cdef bint has_happened
    while watcher != NULL:
        following = watcher.later
        if everybody:
            has_happened = True
        elif watcher.kind == RECORDS_APPENDED:
            has_happened = appended
        elif watcher.kind == WATERMARK_MOVED or watcher.offset > high_watermark:
            has_happened = watcher.offset <= high_watermark
        else:
            if stable_offset == NOT_KNOWN:
                stable_offset = (<Log>p.log).find_stable_offset()
            has_happened = watcher.offset <= stable_offset
        if has_happened:
            unlink_watcher(p, watcher)
            complete(watcher.network, watcher.token)
        watcher = following
    if p.wanted_watermark != NEVER and (everybody or p.wanted_watermark <= high_watermark):
        p.wanted_watermark = NEVER
        raise_event(p, COMPLETE_APPENDS)
    # A follower that is not live any more holds nothing back. Source: DelayedDeleteRecords.
    if p.tells_low_watermark and (everybody or high_watermark >= 0):
        raise_event(p, TELL_LOW_WATERMARK)


# -- leaders and followers


cdef inline int32_t least_in_sync(const PartitionState* p) noexcept nogil:
    """Return min.insync.replicas, or the number of replicas where that is smaller."""
    return min(p.min_insync_replicas, p.follower_count + 1)


cdef Follower* follower_of(PartitionState* p, int32_t broker_id) noexcept nogil:
    require(&p.mutex)
    cdef int32_t i
    for i in range(p.follower_count):
        if p.followers[i].broker_id == broker_id:
            return &p.followers[i]
    return NULL


cdef bint is_caught_up(
    const Follower* follower, int64_t leader_end_offset, int64_t now_ms, int64_t max_lag_ms
) noexcept nogil:
    return follower.end_offset == leader_end_offset or now_ms - follower.caught_up_ms <= max_lag_ms


cdef int64_t move_watermark(PartitionState* p, int64_t now_ms) noexcept nogil:
    """Raise the high watermark to where all in-sync replicas are; return it, or -1 if it stays. Requires the mutex.

    Source: Partition.maybeIncrementLeaderHW.
    """
    require(&p.mutex)
    cdef int64_t end, offset
    cdef int32_t i
    cdef Follower* follower
    if p.isr_size < least_in_sync(p):
        return -1
    end = offset = (<Log>p.log).local.end_offset
    for i in range(p.follower_count):
        follower = &p.followers[i]
        if follower.end_offset < offset and (
            follower.in_isr or follower.is_joining
            or is_caught_up(follower, end, now_ms, p.table.max_lag_ms) and is_live(p.table, follower.broker_id)
        ):
            offset = follower.end_offset
    if offset <= (<Log>p.log).local.high_watermark:
        return -1
    return (<Log>p.log).set_high_watermark(offset)


cdef void advance(PartitionState* p, bint appended, int64_t now_ms) noexcept nogil:
    """Move the high watermark if possible, and wake the waiting requests. Requires the mutex, and a leader's log."""
    require(&p.mutex)
    cdef int64_t moved = move_watermark(p, now_ms)
    if appended or moved >= 0:
        wake(p, False, appended, moved)


cdef int16_t error_of_leader(PartitionState* p, int required_acks) noexcept nogil:
    """Return the error of an append to the partition, or NONE if this broker may append. Requires the mutex."""
    require(&p.mutex)
    if p.is_offline:
        return KAFKA_STORAGE_ERROR
    if not p.is_leader or p.log == NULL:
        return NOT_LEADER_OR_FOLLOWER
    if required_acks == ALL and p.isr_size < least_in_sync(p):
        return NOT_ENOUGH_REPLICAS
    return NONE


cdef int64_t records_before_flush(const PartitionState* p) noexcept nogil:
    """Return how many records may be appended before the log must be flushed. Requires the mutex, and a log."""
    require(&p.mutex)
    return (<Log>p.log).local.records_before_flush()


cdef void append_to_leader(
    PartitionState* p, uint8_t* data, Appended* appended, int origin, int64_t guard, int required_acks,
    int64_t now_ms, AppendResult* result
) noexcept nogil:
    """Append checked batches, move the high watermark and wake waiting requests. Source: Partition.appendRecordsToLeader.

    ``required_acks`` -1: refused if the ISR is too small.
    """
    lock_partition(p)
    append_locked(p, data, appended, origin, guard, required_acks, now_ms, result)
    unlock_partition(p)


cdef void append_locked(
    PartitionState* p, uint8_t* data, Appended* appended, int origin, int64_t guard, int required_acks,
    int64_t now_ms, AppendResult* result
) noexcept nogil:
    """As ``append_to_leader``. Requires the mutex."""
    require(&p.mutex)
    cdef int64_t bytes_in = appended.size
    if not p.table.verifies_transactions:
        guard = NOT_VERIFIED
    result.base_offset = result.append_time = result.log_start_offset = result.required_offset = -1
    result.is_acknowledged = False
    result.error = error_of_leader(p, required_acks)
    if result.error == NONE:
        result.error = <int16_t>(<Log>p.log).append_leader(
            data, appended, p.leader_epoch, origin, guard, now_ms
        )
        if result.error == NONE:
            p.records_in += appended.count
            p.bytes_in += bytes_in
            advance(p, True, now_ms)
            result.base_offset = appended.first_offset
            result.required_offset = appended.last_offset + 1
            # A duplicate has the timestamp that it was appended with.
            if p.rules.log_append_time or appended.size == 0:
                result.append_time = appended.header_timestamp
            if required_acks == ALL:
                result.is_acknowledged = is_acknowledged(p, result.required_offset, &result.error)
        elif result.error == KAFKA_STORAGE_ERROR:
            raise_event(p, REPORT_FAILURE)
        if result.error != KAFKA_STORAGE_ERROR:
            result.log_start_offset = (<Log>p.log).local.start_offset
    if result.error != NONE:
        count_refused(p, result.error, bytes_in)
        if result.error == NOT_ENOUGH_REPLICAS:
            result.log_start_offset = (<Log>p.log).local.start_offset


cdef bint is_expected(int16_t error) noexcept nogil:
    """Return whether an append that fails so tells nothing of the broker: Kafka does not count it, and answers no start offset.

    Source: ``ReplicaManager.appendToLocalLog``.
    """
    return (
        error == CORRUPT_MESSAGE
        or error == UNKNOWN_TOPIC_OR_PARTITION
        or error == NOT_LEADER_OR_FOLLOWER
        or error == MESSAGE_TOO_LARGE
        or error == RECORD_LIST_TOO_LARGE
        or error == KAFKA_STORAGE_ERROR
    )


cdef void count_refused(PartitionState* p, int16_t error, int64_t size) noexcept nogil:
    """Count an append that was refused. Requires the mutex."""
    require(&p.mutex)
    if error == MESSAGE_TOO_LARGE:
        p.bytes_rejected += size
    elif not is_expected(error):
        p.failed_appends += 1


cdef bint is_only_replica(PartitionState* p, int32_t leader_epoch) noexcept nogil:
    """Return whether an append is acknowledged at once: nobody follows the leader of this epoch. Requires the mutex."""
    require(&p.mutex)
    return error_of_leader(p, ALL) == NONE and p.leader_epoch == leader_epoch and p.follower_count == 0


cdef bint append_at_once(
    PartitionState* p, uint8_t* data, int64_t size, int32_t leader_epoch, int64_t now_ms
) noexcept nogil:
    """Append a batch of a coordinator if nobody has to be waited for, not even a flush. Return whether it was appended."""
    cdef Appended appended
    cdef AppendResult result
    cdef Rules rules
    result.is_acknowledged = False
    lock_partition(p)
    rules = p.rules
    rules.now_ms, rules.origin, rules.refuses_zstd = now_ms, COORDINATOR, False
    if (
        is_only_replica(p, leader_epoch)
        and check_batches(data, size, &rules, &appended) == NONE
        and not appended.needs_decompression
        and appended.count <= records_before_flush(p)
    ):
        append_locked(p, data, &appended, COORDINATOR, NO_GUARD, ALL, now_ms, &result)
    unlock_partition(p)
    return result.is_acknowledged and result.error == NONE


cdef void append_marker_to_leader(
    PartitionState* p, int64_t producer_id, int16_t producer_epoch, const Marker* marker, int required_acks,
    AppendResult* result
) noexcept nogil:
    """Build a control batch and append it.

    UNKNOWN_SERVER_ERROR: no batch has such a producer id or epoch (as MemoryRecordsBuilder).
    """
    cdef uint8_t data[MARKER_BYTES]
    cdef Appended appended
    cdef Rules rules
    result.base_offset = result.append_time = result.log_start_offset = result.required_offset = -1
    result.is_acknowledged = False
    if producer_id < 0 or producer_epoch == NO_EPOCH:
        result.error = UNKNOWN_SERVER_ERROR
        return
    write_marker(data, producer_id, producer_epoch, marker)
    lock_partition(p)
    result.error = error_of_leader(p, required_acks)
    rules = p.rules
    unlock_partition(p)
    rules.now_ms, rules.origin, rules.refuses_zstd = marker.timestamp, COORDINATOR, False
    if result.error == NONE:
        result.error = <int16_t>check_batches(data, MARKER_BYTES, &rules, &appended)
    if result.error == NONE:
        append_to_leader(p, data, &appended, COORDINATOR, NO_GUARD, required_acks, marker.timestamp, result)


cdef bint is_verified(PartitionState* p, const TransactionOfBatch* batch, int64_t* guard) noexcept nogil:
    cdef bint is_known
    guard[0] = NO_GUARD
    if not p.table.verifies_transactions:
        return True
    lock_partition(p)
    is_known = error_of_leader(p, 0) == NONE and (<Log>p.log).is_verified(batch, p.leader_epoch, guard)
    unlock_partition(p)
    return is_known


cdef void confirm_producer(
    PartitionState* p, int64_t producer_id, int16_t epoch, int64_t guard, const uint8_t* transactional_id, int64_t size
) noexcept nogil:
    lock_partition(p)
    if error_of_leader(p, 0) == NONE:
        (<Log>p.log).confirm_producer(producer_id, epoch, guard, transactional_id, size, p.leader_epoch)
    unlock_partition(p)


cdef void withdraw_producer(PartitionState* p, int64_t producer_id) noexcept nogil:
    lock_partition(p)
    if p.log != NULL:
        (<Log>p.log).withdraw_producer(producer_id)
    unlock_partition(p)


cdef int16_t verify_producer(
    PartitionState* p, int64_t producer_id, int16_t epoch, int32_t sequence, int64_t* guard
) noexcept nogil:
    """Source: Partition.maybeStartTransactionVerification."""
    cdef int16_t error
    guard[0] = NO_GUARD
    lock_partition(p)
    error = error_of_leader(p, 0)
    if error == NONE and p.table.verifies_transactions:
        error = <int16_t>(<Log>p.log).verify_producer(producer_id, epoch, sequence, wall_ms(p.table), guard)
    unlock_partition(p)
    return error


cdef bint is_acknowledged(PartitionState* p, int64_t required_offset, int16_t* error) noexcept nogil:
    """Return whether the wait for ``required_offset`` is over. Source: Partition.checkEnoughReplicasReachOffset."""
    require(&p.mutex)
    cdef int32_t i, in_sync = p.isr_size
    error[0] = error_of_leader(p, 0)
    if error[0] != NONE:
        return True
    if (<Log>p.log).local.high_watermark < required_offset:
        return False
    for i in range(p.follower_count):
        in_sync += p.followers[i].is_joining
    if in_sync < least_in_sync(p):
        error[0] = NOT_ENOUGH_REPLICAS_AFTER_APPEND
    return True


cdef int16_t update_follower(
    PartitionState* p, int32_t replica_id, int64_t fetch_offset, int64_t start_offset, int64_t broker_epoch,
    int64_t now_ms
) noexcept nogil:
    """Store a follower's offsets. Sources: Partition.updateFollowerFetchState, Replica.updateFetchStateOrThrow."""
    cdef Follower* follower
    cdef int64_t leader_end, before
    cdef int16_t error
    lock_partition(p)
    error = error_of_leader(p, 0)
    follower = follower_of(p, replica_id) if error == NONE else NULL
    if error == NONE and follower == NULL:
        error = UNKNOWN_LEADER_EPOCH
    if error == NONE:
        leader_end, before = (<Log>p.log).local.end_offset, follower.end_offset
        if fetch_offset >= leader_end:
            follower.caught_up_ms = max(follower.caught_up_ms, now_ms)
        elif fetch_offset >= follower.leader_end_offset:
            follower.caught_up_ms = max(follower.caught_up_ms, follower.fetched_ms)
        if p.tells_low_watermark and start_offset != follower.start_offset:
            raise_event(p, TELL_LOW_WATERMARK)
        follower.start_offset, follower.end_offset = start_offset, fetch_offset
        follower.leader_end_offset = max(follower.leader_end_offset, leader_end)
        follower.fetched_ms, follower.broker_epoch = now_ms, broker_epoch
        expand_isr(p, follower)
        if before != fetch_offset:
            advance(p, False, now_ms)
    unlock_partition(p)
    return error


cdef void expand_isr(PartitionState* p, Follower* follower) noexcept nogil:
    """Ask for an ISR with a follower that has caught up. Requires the mutex. Source: Partition.maybeExpandIsr."""
    require(&p.mutex)
    if (
        p.table.changes_isr
        and not p.isr_is_pending
        and not follower.in_isr
        and follower.end_offset >= (<Log>p.log).local.high_watermark
        and follower.end_offset >= p.epoch_start_offset
        and is_live(p.table, follower.broker_id)
    ):
        p.isr_is_pending = follower.is_joining = True
        raise_event(p, ASK_FOR_ISR)
