from libc.stdint cimport int64_t

from ctrlchan.broker._decisions cimport Decisions
from ctrlchan.broker.handlers._hot cimport HotApi
from ctrlchan.broker.quota._replication_quota cimport ReplicationQuota
from ctrlchan.broker.replica._partition_state cimport Table
from ctrlchan.broker.replica._partitions cimport PartitionTable

cdef struct SessionCache


cdef class FetchApi(HotApi):
    cdef readonly PartitionTable partitions
    cdef Table* table
    cdef SessionCache* cache
    # What clients may fetch; without an authorizer ``is_restricted`` is False
    cdef Decisions decisions
    cdef bint is_restricted
    # Of what followers fetch that are not in sync
    cdef ReplicationQuota leader_quota
    # How replicas are selected for consumers: a ``Selection``
    cdef int selection
    # Requests (Fetch*) that a handler thread finds by their connection: it asks the user's selector, or converts records.
    # Guarded by the mutex of the cache
    cdef void* first_asking
    cdef void* last_asking
    # fetch.max.bytes
    cdef int64_t max_bytes
    # Counters: requests, requests that had to wait, waits that expired, and bytes of records, for consumers and for
    # followers
    cdef int64_t requests
    cdef int64_t waited
    cdef int64_t expired
    # Requests that wait now
    cdef int64_t waiting
    cdef int64_t bytes_replicated
