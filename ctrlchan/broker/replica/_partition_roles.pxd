# Who leads a partition, and its ISR: what the controller changes, and what a leader asks it for. Nothing needs the GIL. Each
# function takes the partition's mutex, which the caller must not hold.

from libc.stdint cimport int32_t, int64_t

from ctrlchan.broker.log._batches cimport Rules
from ctrlchan.broker.log._log cimport Log
from ctrlchan.broker.replica._partition_state cimport Follower, PartitionState


# Ids of brokers, in memory of its owner.
cdef struct Ids:
    int32_t* ids
    int32_t count


# Settings of a topic.
cdef struct TopicSettings:
    Rules rules
    int32_t min_insync_replicas
    # Of the partition
    bint leader_is_throttled
    bint follower_is_throttled


# A role for a partition. The function that takes it leaves in it what the partition had before: the caller frees the
# memory and gives the reference to the log back.
cdef struct Role:
    # A Log, with a reference; NULL: none
    void* log
    TopicSettings settings
    int32_t leader
    int32_t leader_epoch
    int32_t partition_epoch
    bint is_offline
    Ids replicas
    Ids isr
    # Of a leader: room for all replicas
    Follower* followers


# An ISR that a leader wants, with the epochs that it was made from. The caller frees ``isr``.
cdef struct Wish:
    Ids isr
    int32_t leader_epoch
    int32_t partition_epoch


# Lead from the end of the log. Nothing is done if the partition epoch is older. Returns a result of ``_parts``.
cdef int become_leader(PartitionState* partition, Role* role, int64_t now_ms) noexcept nogil
# Stop leading, and wake all requests that wait for the partition. A role without a log keeps the epochs. With a log,
# nothing is done if the partition epoch of the role is older.
cdef void resign(PartitionState* partition, Role* role) noexcept nogil
cdef void set_settings(PartitionState* partition, const TopicSettings* settings, int64_t now_ms) noexcept nogil

# Set the ISR that the controller has committed, and leave the former one in ``isr``. ``leader_epoch`` -1: any. Nothing is
# done if the partition has newer epochs.
cdef void commit_isr(
    PartitionState* partition, Ids* isr, int32_t partition_epoch, int32_t leader_epoch, int64_t now_ms
) noexcept nogil
# Note that the controller has refused the ISR that this broker wanted at these epochs.
cdef void refuse_isr(PartitionState* partition, int32_t leader_epoch, int32_t partition_epoch) noexcept nogil
# Find the ISR that ``expand_isr`` wants, or one without the followers that lag, which is pending from here on. Return
# whether one is wanted; -1 without memory.
cdef int larger_isr(PartitionState* partition, Wish* wish) noexcept nogil
cdef int smaller_isr(PartitionState* partition, Wish* wish, int64_t now_ms) noexcept nogil

# Use the log of another folder in place of the partition's if both have the same end; rename its folder to ``path``. Return
# a result of ``_parts``. ``former``: the log that was used before; NULL if it still is. ``is_moved``: the folder has the new
# name. The caller has given ``log`` a reference for the partition.
cdef int replace_log(
    PartitionState* partition, Log log, const char* path, void** former, bint* is_moved
) noexcept nogil
cdef void set_future_start(PartitionState* partition, int64_t offset) noexcept nogil
cdef int64_t low_watermark(PartitionState* partition) noexcept nogil
# Move the high watermark of a follower to the leader's, and wake the requests that read from the follower.
cdef void follow_watermark(PartitionState* partition, int64_t offset) noexcept nogil
