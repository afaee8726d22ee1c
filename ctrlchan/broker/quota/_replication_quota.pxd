# How many bytes of throttled replicas a broker sends, or gets, in a second. See the .pyx.

from libc.stdint cimport int32_t, int64_t

from ctrlchan._c.clock_functions cimport Clock, ClockFunctions
from ctrlchan._c.locks cimport Mutex
from ctrlchan.server._rates cimport Rate


cdef class ReplicationQuota:
    cdef Mutex mutex
    cdef Clock clock
    cdef const ClockFunctions* time
    # Guarded by the mutex
    cdef double bound
    cdef Rate rate
    cdef void* samples

    # Return whether the rate is above its bound.
    cdef bint exceeds(self) noexcept nogil
    # Count bytes of throttled replicas.
    cdef void count(self, int64_t size) noexcept nogil
