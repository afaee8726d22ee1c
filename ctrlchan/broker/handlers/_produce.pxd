from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t

from ctrlchan.broker._decisions cimport Decisions
from ctrlchan.broker.log._batches cimport Appended
from ctrlchan.broker.handlers._hot cimport HotApi
from ctrlchan.broker.replica._partition_state cimport AppendResult, PartitionState, Watcher
from ctrlchan.broker.replica._partitions cimport PartitionTable


cdef enum:
    # Parts of a request that need no memory of their own.
    FEW_PARTS = 8


# The records of one partition in a request.
cdef struct Part:
    # Pinned
    PartitionState* partition
    uint8_t* records
    Appended appended
    # With which a transactional batch is appended
    int64_t guard
    AppendResult result
    # The number of its topic in the request
    int32_t topic
    # Where another broker leads
    int32_t leader
    int32_t leader_epoch
    # Waits for the in-sync replicas
    bint is_pending
    Watcher watcher


# A request. While it is parked, ``HotRequest.state`` points to a copy of it.
cdef struct Produce:
    int acks
    int32_t timeout_ms
    # NULL for null
    const uint8_t* transactional_id
    int64_t transactional_id_size
    # Of the transactional batches; -1: there is none so far
    int64_t producer_id
    int16_t producer_epoch
    # Of the request
    int32_t topics
    int32_t count
    int32_t room
    int32_t pending
    # ``few`` of the struct's memory, or memory of its own
    Part* parts
    Part few[FEW_PARTS]


cdef class ProduceApi(HotApi):
    cdef PartitionTable table
    # What clients may produce; without an authorizer ``is_restricted`` is False
    cdef Decisions decisions
    cdef bint is_restricted
    # Written by processors
    cdef int64_t requests
    cdef int64_t parked
    cdef int64_t expired
    # Parked now
    cdef int64_t parked_now
