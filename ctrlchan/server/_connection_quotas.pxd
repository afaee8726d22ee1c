# How many connections a server may have, and how many may come in a second, as acceptors and processors ask. See the .pyx.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

from ctrlchan._c.clock_functions cimport Clock, ClockFunctions
from ctrlchan._c.locks cimport Mutex
from ctrlchan.server._idle_entries cimport Table
from ctrlchan.server._rates cimport Rate

cdef enum:
    IP_BUCKETS = 1024


# What becomes of a connection that an acceptor has. Also names of Python.
cpdef enum Admission:
    # It counts from now on.
    ADMITTED = 0
    # It waits until another one is closed, or a limit changes.
    NO_SLOT
    # It is closed at once: its address has too many.
    TOO_MANY_OF_IP
    # It is closed after a while: too many have come from its address.
    IP_THROTTLED


cdef struct IpCount:
    uint8_t ip[16]
    int64_t count
    IpCount* next


cdef struct IpLimit:
    uint8_t ip[16]
    int64_t limit


# Limits of some addresses, sorted by address, and of all others
cdef struct IpLimits:
    IpLimit* rows
    int64_t count
    int64_t others


# Of a listener, or of the whole server.
cdef struct ConnectionLimits:
    int64_t max_connections
    int64_t open
    # Connections in a second
    int64_t max_rate
    Rate rate
    # Throttle times of a listener: of connections that wait, and of those that are closed for their address
    Rate throttled
    Rate ip_throttled


cdef struct Quotas:
    Mutex mutex
    const ClockFunctions* clock
    # By how many open connections exceed the limit of the server. Read without the mutex.
    int64_t excess
    # All others are guarded by the mutex.
    # quota.window.num, quota.window.size.seconds; of metrics
    int32_t kept, metrics_kept
    int64_t window_ms, metrics_window_ms
    ConnectionLimits server
    ConnectionLimits* listeners
    int listener_count
    # The listener that the limits of the server do not hold for; -1: there is none
    int protected
    # Connections that processors are about to close because there are too many
    int64_t claimed
    # An acceptor waits for a connection to be closed.
    bint acceptors_wait
    IpLimits per_ip
    IpLimits ip_rates
    IpCount* buckets[IP_BUCKETS]
    # Rates of addresses that have a limit
    Table ip_sensors
    int64_t bytes_used, most_bytes, swept_ms
    uint32_t seed


# Count a connection that an acceptor has taken. Return for how many milliseconds it must wait.
cdef int64_t record_arrival(Quotas* quotas, int listener) noexcept nogil
# Let in a connection whose wait has ended, if it may come in. ``value``: with TOO_MANY_OF_IP the limit of its address, with
# IP_THROTTLED after how many milliseconds it is closed.
cdef Admission admit(Quotas* quotas, int listener, const uint8_t* ip, int64_t* value) noexcept nogil
# Count the end of a connection that was admitted. Return whether acceptors wait for it.
cdef bint give_back_slot(Quotas* quotas, int listener, const uint8_t* ip) noexcept nogil
# Return whether the caller, a processor of this listener, shall close one of its connections, and call ``end_claim`` then.
cdef bint claim_excess(Quotas* quotas, int listener) noexcept nogil
cdef void end_claim(Quotas* quotas) noexcept nogil


cdef class ConnectionQuotas:
    cdef Quotas* quotas
    cdef Clock clock
    # The samples of all rates but those of addresses
    cdef void* samples
