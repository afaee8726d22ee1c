from libc.stdint cimport int16_t, int32_t, int64_t

from ctrlchan.broker.replication._hot cimport HotApi
from ctrlchan.broker.replication._partition_state cimport Table
from ctrlchan.broker.replication._partitions cimport PartitionTable

cdef struct SessionCache
cdef struct FetchSession
cdef struct Reading


cdef class FetchApi(HotApi):
    cdef readonly PartitionTable partitions
    cdef readonly object missing
    cdef Table* table
    cdef SessionCache* cache
    # fetch.max.bytes
    cdef int64_t max_bytes
    # Counters: requests, requests that had to wait, waits that expired, and bytes of records
    cdef int64_t requests
    cdef int64_t waited
    cdef int64_t expired
    # Requests that wait now
    cdef int64_t waiting
    cdef int64_t bytes_out

    cdef int16_t error_of_missing(self, bytes topic, bint is_id, int32_t index, int16_t otherwise) noexcept
    cdef void find_leaders(self, const FetchSession* session, Reading* reading, int32_t listener) noexcept
