# The clocks of code without the GIL; see clocks.h.

from libc.stdint cimport int64_t

cdef extern from "_c/clocks.h" nogil:
    # A time that never comes
    const int64_t NEVER "INT64_MAX"
    int64_t monotonic_ns()
    int64_t wall_clock_ms()
