"""ReplicationQuota: the rate of the bytes of throttled replicas, and its bound.

A broker has two, for replicas that it leads and that it follows. Which replicas are throttled, their partitions know; they
wait while the rate is above its bound, unless they are in sync. Processors and fetchers share a quota under its mutex.

Source: kafka.server.ReplicationQuotaManager (Kafka 3.9), with the samples of server/_rates.pxd.
"""

from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free

from ctrlchan._c.clock_functions cimport Clock, monotonic_ns_of
from ctrlchan._c.locks cimport CONNECTION_QUOTAS, close_mutex, lock, open_mutex, unlock
from ctrlchan.server._rates cimport open_rate, rate_bytes, record, simple_rate_of

from ctrlchan._c.clock_functions import SYSTEM_CLOCK

# Kafka's bound where there is no quota: Long.MaxValue
cdef double UNLIMITED = 9223372036854775807.0


cdef class ReplicationQuota:
    """The quota of one direction. All methods may be called by any thread.

    ``samples``, ``window_seconds``: replication.quota.window.num, replication.quota.window.size.seconds. ``clock``: None
    for the operating system's. Nothing is limited until ``limit``.
    """

    def __cinit__(self, *, int32_t samples=11, int64_t window_seconds=1, Clock clock=None):
        if samples < 1 or window_seconds < 1:
            raise ValueError("a rate has one sample of one second at least")
        open_mutex(&self.mutex, CONNECTION_QUOTAS)
        self.clock = clock or SYSTEM_CLOCK
        self.time = self.clock.functions
        self.bound = UNLIMITED
        self.samples = calloc(1, rate_bytes(samples))
        if self.samples == NULL:
            raise MemoryError()
        open_rate(&self.rate, samples, 1000 * window_seconds, self.samples)

    def __dealloc__(self):
        free(self.samples)
        close_mutex(&self.mutex)

    cdef bint exceeds(self) noexcept nogil:
        cdef bint is_exceeded
        lock(&self.mutex)
        is_exceeded = simple_rate_of(&self.rate, monotonic_ns_of(self.time) // 1000000) > self.bound
        unlock(&self.mutex)
        return is_exceeded

    cdef void count(self, int64_t size) noexcept nogil:
        lock(&self.mutex)
        record(&self.rate, <double>size, monotonic_ns_of(self.time) // 1000000)
        unlock(&self.mutex)

    @property
    def is_exceeded(self):
        """Whether the rate is above its bound."""
        cdef bint is_exceeded
        with nogil:
            is_exceeded = self.exceeds()
        return is_exceeded

    @property
    def byte_rate(self):
        """Bytes in a second."""
        cdef double rate
        with nogil:
            lock(&self.mutex)
            rate = simple_rate_of(&self.rate, monotonic_ns_of(self.time) // 1000000)
            unlock(&self.mutex)
        return rate

    def limit(self, bound):
        """Take another bound, in bytes in a second; None for no bound. What was counted stays."""
        cdef double new = UNLIMITED if bound is None else bound
        with nogil:
            lock(&self.mutex)
            self.bound = new
            unlock(&self.mutex)

    def record(self, int64_t size):
        """Count bytes of throttled replicas."""
        with nogil:
            self.count(size)
