# The clock that the owner of a server or of a table of partitions hands it: the operating system's, or a test's own.

from libc.stdint cimport int64_t

cdef extern from "_c/clock_functions.h" nogil:
    # A clock with more fields has this struct as its first one.
    ctypedef struct ClockFunctions:
        int64_t (*monotonic_ns)(const ClockFunctions*) noexcept nogil
        int64_t (*wall_ms)(const ClockFunctions*) noexcept nogil


# Its users keep a reference while they use ``functions``.
cdef class Clock:
    cdef const ClockFunctions* functions


cdef inline int64_t monotonic_ns_of(const ClockFunctions* clock) noexcept nogil:
    """Return nanoseconds that never go back."""
    return clock.monotonic_ns(clock)


cdef inline int64_t wall_ms_of(const ClockFunctions* clock) noexcept nogil:
    """Return the milliseconds since 1970."""
    return clock.wall_ms(clock)
