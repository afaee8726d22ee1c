# The quotas of users and client ids, as processors charge them. See the .pyx.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from ctrlchan._c.clock_functions cimport Clock, ClockFunctions
from ctrlchan._c.locks cimport Mutex
from ctrlchan.server._idle_entries cimport Table
from ctrlchan.server._rates cimport Rate


# What a quota limits. Also names of Python.
cpdef enum QuotaType:
    # Bytes of requests, bytes of answers
    PRODUCE = 0
    FETCH = 1
    # Percent of the time of a thread
    REQUEST = 2
    CONTROLLER_MUTATION = 3


cdef enum:
    QUOTA_TYPES = 4


cdef struct Limits
cdef struct UserName


# What a request is charged with, and what comes of it.
cdef struct Charge:
    # The number of the user, and the client id of the request
    int32_t user
    const uint8_t* client_id
    int64_t client_id_size
    # PRODUCE or FETCH, -1 for no bytes
    int quota_type
    int64_t size
    # The request quota does not hold for it; only the sum of all such requests is kept.
    bint is_exempt
    # Of threads of handlers, and of processors that received and sent before
    int64_t spent_ns
    int64_t network_ns
    # Of the clock of the quotas
    int64_t now_ns


cdef class ClientQuotas:
    cdef Mutex mutex
    cdef Clock clock
    cdef const ClockFunctions* time
    # quota.window.num, quota.window.size.seconds, and those of controller.quota.window; of metrics
    cdef int32_t kept, mutation_kept, metrics_kept
    cdef int64_t window_ms, mutation_window_ms, metrics_window_ms
    # Which levels have had quotas since the start (``Level``); 0: there was none. Read without the mutex.
    cdef int64_t levels
    # All guarded by the mutex
    cdef const Limits* limits
    # Of Sensor and of Client
    cdef Table sensors
    cdef Table clients
    # Rises when what clients know of their sensors is no longer true
    cdef int64_t version
    cdef int64_t bytes_used, most_bytes
    cdef int64_t swept_ms
    cdef uint32_t seed
    cdef Rate exempt
    cdef void* exempt_samples
    cdef UserName* users
    cdef int32_t user_count, user_room
    # Of the user's own class: whether there is one, and the UnknownClients
    cdef bint asks_python
    cdef void* unknown
    cdef int64_t unknown_count
    cdef int wake_fd
    # Guarded by the GIL
    cdef dict user_numbers
    cdef list user_names
    cdef object assign_in_python

    # Charge a request that is about to be answered. Return its throttle time in milliseconds: 0 for none. Where a Fetch is
    # throttled, its bytes do not count. Only where ``levels`` is not 0.
    cdef int32_t charge(self, const Charge* request) noexcept nogil
    # Return how many bytes a Fetch may be answered with: more would be throttled even if nothing else was fetched.
    cdef int64_t most_fetched(self, int32_t user, const uint8_t* client_id, int64_t size) noexcept nogil
    cdef ask_for(self, int32_t user, bytes client_id, int quota_type)
    # Give all sensors the bounds of the present quotas. Requires the mutex.
    cdef void limit_sensors(self) noexcept nogil
