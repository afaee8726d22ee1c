"""Who leads a partition, and its ISR. See the .pxd. Source: kafka.cluster.Partition."""

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport malloc

from ctrlchan._c.locks cimport require
from ctrlchan.broker.log._log cimport Log
from ctrlchan.broker.log._parts cimport DONE
from ctrlchan.broker.replica._partition_state cimport (
    TELL_LOW_WATERMARK,
    Follower,
    PartitionState,
    advance,
    follower_of,
    is_caught_up,
    is_live,
    lock_partition,
    raise_event,
    unlock_partition,
    wake,
)

cdef enum:
    NO_OFFSET = -1
    NO_EPOCH = -1


cdef bint contains(const Ids* ids, int32_t broker_id) noexcept nogil:
    cdef int32_t i
    for i in range(ids.count):
        if ids.ids[i] == broker_id:
            return True
    return False


cdef void use_settings(PartitionState* p, const TopicSettings* settings) noexcept nogil:
    """Requires the mutex."""
    require(&p.mutex)
    p.rules, p.min_insync_replicas = settings.rules, settings.min_insync_replicas
    p.leader_is_throttled, p.follower_is_throttled = settings.leader_is_throttled, settings.follower_is_throttled


cdef void take_role(PartitionState* p, Role* role) noexcept nogil:
    """Exchange log, replicas and ISR for those of the role."""
    cdef Ids ids
    if role.log != NULL and role.log != p.log:
        use_settings(p, &role.settings)
    role.log, p.log = p.log, role.log
    ids = role.replicas
    role.replicas.ids, role.replicas.count = p.replicas, p.replica_count
    p.replicas, p.replica_count = ids.ids, ids.count
    ids = role.isr
    role.isr.ids, role.isr.count = p.isr, p.isr_size
    p.isr, p.isr_size = ids.ids, ids.count
    p.leader, p.is_offline, p.isr_is_pending = role.leader, role.is_offline, False


cdef int become_leader(PartitionState* p, Role* role, int64_t now_ms) noexcept nogil:
    cdef int result = DONE
    lock_partition(p)
    if role.partition_epoch >= p.partition_epoch:
        result = lead(p, role, now_ms)
    unlock_partition(p)
    return result


cdef int lead(PartitionState* p, Role* role, int64_t now_ms) noexcept nogil:
    """Do what ``become_leader`` does. Requires the mutex."""
    require(&p.mutex)
    cdef Follower* follower
    cdef Follower* before
    cdef int32_t i, count = 0
    cdef bint is_new_leader = not p.is_leader, begins = is_new_leader or role.leader_epoch > p.leader_epoch
    cdef int result = DONE
    if begins:
        result = (<Log>role.log).begin_epoch(role.leader_epoch, &p.epoch_start_offset)
        if result != DONE:
            return result
    for i in range(role.replicas.count):
        if role.replicas.ids[i] == p.table.broker_id:
            continue
        follower = &role.followers[count]
        count += 1
        before = NULL if is_new_leader else follower_of(p, role.replicas.ids[i])
        if before != NULL:
            follower[0] = before[0]
        else:
            follower.broker_id = role.replicas.ids[i]
            follower.start_offset = follower.end_offset = follower.leader_end_offset = NO_OFFSET
            follower.broker_epoch = -1
        follower.in_isr, follower.is_joining = contains(&role.isr, follower.broker_id), False
        if begins:
            # One that is not in sync must not hold back the high watermark.
            follower.caught_up_ms = now_ms if follower.in_isr else 0
            if before != NULL:
                follower.leader_end_offset = p.epoch_start_offset
                follower.fetched_ms = follower.caught_up_ms
    p.follower_count = count
    role.followers, p.followers = p.followers, role.followers
    take_role(p, role)
    p.is_leader = True
    p.leader_epoch, p.partition_epoch = role.leader_epoch, role.partition_epoch
    advance(p, False, now_ms)
    return DONE


cdef void resign(PartitionState* p, Role* role) noexcept nogil:
    lock_partition(p)
    if role.log == NULL or role.partition_epoch >= p.partition_epoch:
        if role.log != NULL:
            p.leader_epoch, p.partition_epoch = role.leader_epoch, role.partition_epoch
        take_role(p, role)
        p.is_leader = False
        p.follower_count = 0
        wake(p, True, False, -1)
    unlock_partition(p)


cdef void set_settings(PartitionState* p, const TopicSettings* settings, int64_t now_ms) noexcept nogil:
    lock_partition(p)
    use_settings(p, settings)
    if p.is_leader:
        advance(p, False, now_ms)
    unlock_partition(p)


# -- the log


cdef int replace_log(
    PartitionState* p, Log log, const char* path, void** former, bint* is_moved
) noexcept nogil:
    """Source: Partition.maybeReplaceCurrentWithFutureReplica.

    Leaders append with the partition's mutex held, followers cannot append to a log that is retired.
    """
    cdef int result = DONE
    former[0], is_moved[0] = NULL, False
    lock_partition(p)
    if p.log != NULL and p.log != <void*>log and (<Log>p.log).retire(log.local.end_offset):
        result = log.succeed(<Log>p.log, p.leader_epoch if p.is_leader else NO_EPOCH)
        if result == DONE:
            result = log.move_folder(path, is_moved)
        if is_moved[0]:
            log.take_verifications(<Log>p.log)
            former[0], p.log = p.log, <void*>log
        else:
            (<Log>p.log).unretire()
    unlock_partition(p)
    return result


cdef void set_future_start(PartitionState* p, int64_t offset) noexcept nogil:
    lock_partition(p)
    if p.future_start_offset != offset:
        p.future_start_offset = offset
        if p.tells_low_watermark:
            raise_event(p, TELL_LOW_WATERMARK)
    unlock_partition(p)


# -- the ISR


cdef void commit_isr(
    PartitionState* p, Ids* isr, int32_t partition_epoch, int32_t leader_epoch, int64_t now_ms
) noexcept nogil:
    """Source: Partition.handleAlterPartitionUpdate."""
    cdef Ids before
    cdef int32_t i
    lock_partition(p)
    if p.is_leader and partition_epoch >= p.partition_epoch and leader_epoch in (-1, p.leader_epoch):
        for i in range(p.follower_count):
            p.followers[i].in_isr, p.followers[i].is_joining = contains(isr, p.followers[i].broker_id), False
        before.ids, before.count = p.isr, p.isr_size
        p.isr, p.isr_size = isr.ids, isr.count
        isr[0] = before
        p.partition_epoch, p.isr_is_pending = partition_epoch, False
        advance(p, False, now_ms)
    unlock_partition(p)


cdef void refuse_isr(PartitionState* p, int32_t leader_epoch, int32_t partition_epoch) noexcept nogil:
    cdef int32_t i
    lock_partition(p)
    if p.leader_epoch == leader_epoch and p.partition_epoch == partition_epoch:
        for i in range(p.follower_count):
            p.followers[i].is_joining = False
        p.isr_is_pending = False
    unlock_partition(p)


cdef bint begin_wish(PartitionState* p, Wish* wish) noexcept nogil:
    """Make room for the ids of a wish. Return False without memory. Requires the mutex."""
    require(&p.mutex)
    wish.isr.ids = <int32_t*>malloc((p.isr_size + p.follower_count + 1) * sizeof(int32_t))
    wish.isr.count = 0
    wish.leader_epoch, wish.partition_epoch = p.leader_epoch, p.partition_epoch
    return wish.isr.ids != NULL


cdef int larger_isr(PartitionState* p, Wish* wish) noexcept nogil:
    cdef int32_t i
    cdef int found = 0
    wish.isr.ids = NULL
    lock_partition(p)
    if p.isr_is_pending:
        found = 1 if begin_wish(p, wish) else -1
    if found > 0:
        for i in range(p.isr_size):
            wish.isr.ids[i] = p.isr[i]
        wish.isr.count = p.isr_size
        for i in range(p.follower_count):
            if p.followers[i].is_joining:
                wish.isr.ids[wish.isr.count] = p.followers[i].broker_id
                wish.isr.count += 1
    unlock_partition(p)
    return found


cdef int smaller_isr(PartitionState* p, Wish* wish, int64_t now_ms) noexcept nogil:
    cdef Follower* follower
    cdef int32_t i
    cdef int found = 0
    wish.isr.ids = NULL
    lock_partition(p)
    if p.is_leader and p.log != NULL and not p.isr_is_pending:
        found = 1 if begin_wish(p, wish) else -1
    if found > 0:
        for i in range(p.isr_size):
            follower = follower_of(p, p.isr[i])
            if p.isr[i] == p.table.broker_id or follower != NULL and is_caught_up(
                follower, (<Log>p.log).local.end_offset, now_ms, p.table.max_lag_ms
            ):
                wish.isr.ids[wish.isr.count] = p.isr[i]
                wish.isr.count += 1
        found = p.isr_is_pending = wish.isr.count < p.isr_size
    unlock_partition(p)
    return found


# -- watermarks


cdef int64_t low_watermark(PartitionState* p) noexcept nogil:
    """Return the least start offset of the leader's logs and of those of the live followers; -1: not known, or no leader."""
    cdef int64_t offset = NO_OFFSET
    cdef int32_t i
    lock_partition(p)
    if p.is_leader and p.log != NULL:
        offset = (<Log>p.log).local.start_offset
        for i in range(p.follower_count):
            if is_live(p.table, p.followers[i].broker_id):
                offset = min(offset, p.followers[i].start_offset)
        if p.future_start_offset != NO_OFFSET:
            offset = min(offset, p.future_start_offset)
    unlock_partition(p)
    return offset


cdef void follow_watermark(PartitionState* p, int64_t offset) noexcept nogil:
    lock_partition(p)
    if p.log != NULL and not p.is_leader:
        wake(p, False, False, (<Log>p.log).set_high_watermark(offset))
    unlock_partition(p)
