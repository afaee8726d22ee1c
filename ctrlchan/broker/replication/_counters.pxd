# Counters that several threads add to and read. Their order against other memory does not matter.

from libc.stdint cimport int64_t

cdef extern from *:
    """
    #include <stdint.h>
    static inline void add(int64_t *number, int64_t more) { __atomic_add_fetch(number, more, __ATOMIC_RELAXED); }
    static inline int64_t value_of(const int64_t *number) { return __atomic_load_n(number, __ATOMIC_RELAXED); }
    """
    void add(int64_t* number, int64_t more) nogil
    int64_t value_of(const int64_t* number) nogil
