# The APIs that processors answer themselves.

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t

from ctrlchan._c.clock_functions cimport Clock, ClockFunctions
from ctrlchan.broker.metadata._snapshot cimport CurrentMetadata, Snapshot
from ctrlchan.broker.quota._client_quotas cimport ClientQuotas
from ctrlchan.server._processor cimport Answer, HotHandler, HotRequest, Network, NetworkThreads, Result


cdef enum:
    MOST_APIS = 8


cdef struct RequestHeader:
    int16_t key
    int16_t version
    bint flexible
    int32_t correlation_id
    # Of no bytes where the request has none
    const uint8_t* client_id
    int64_t client_id_size
    const uint8_t* body
    const uint8_t* end
    # Of the request, for the response
    int32_t throttle_time_ms
    # There are quotas: the client is charged.
    bint has_quotas


# As ``HotFunction``. ``context``: of the HotApi. QUEUE before anything was done: a handler thread of Python answers.
ctypedef Result (*ApiFunction)(
    void* context, HotRequest* request, RequestHeader* header, Answer* answer
) noexcept nogil

# Write the header of a response.
cdef void append_header(Answer* answer, const RequestHeader* header) noexcept nogil

# Charge a request that is about to be answered to the quotas of its client, and throttle the client if it has used too
# much: the header and the request get the time. Return whether it is throttled. ``quota_type`` -1: ``size`` does not count.
cdef bint charge(
    HotApi api, HotRequest* request, RequestHeader* header, int quota_type, int64_t size, bint is_exempt
) noexcept nogil


cdef struct Entry:
    int16_t key
    int16_t lowest
    int16_t highest
    int16_t flexible_from
    ApiFunction function
    void* context
    # Of requests that were answered here. All processors write them.
    int64_t answered
    int64_t bytes_in
    int64_t throttled_ms


cdef struct ListenerName:
    const uint8_t* bytes
    int64_t size


# One API. A subclass sets ``entry`` in __cinit__ or __init__.
cdef class HotApi:
    cdef Entry entry
    # Set before the first request: where parked requests wait, and the names of the listeners
    cdef Network* network
    cdef tuple listener_names
    cdef ListenerName* listeners
    # Leaders and endpoints of partitions that are not hosted
    cdef CurrentMetadata metadata
    cdef ClientQuotas quotas

    # As ``encode_endpoints``, for a client of a listener
    cdef uint8_t* endpoints(
        self, const Snapshot* metadata, int32_t listener, const int32_t* ids, int64_t count, int64_t* size
    ) noexcept nogil
    # As ``_snapshot.is_in_rack``, for a client of a listener
    cdef bint is_in_rack(
        self, const Snapshot* metadata, int32_t listener, int32_t broker_id, const uint8_t* rack, int64_t size
    ) noexcept nogil
    cdef set_listeners(self, names)


cdef class BrokerHandler(HotHandler):
    cdef Entry entries[MOST_APIS]
    cdef int count
    cdef tuple apis
    # Which entries have faults that a test wants: bit i for entry i. Read without a lock.
    cdef uint32_t faulty
    cdef object fault_answer
    cdef readonly ClientQuotas quotas
    # Of the server
    cdef Network* network
    # Whether processors measure the time of requests. Each of them may set it.
    cdef bint measures_time
    cdef Clock clock
    cdef const ClockFunctions* time

    cdef _set_clock(self, Clock clock)
