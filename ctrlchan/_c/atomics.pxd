# Memory that several threads change and read without a mutex; see atomics.h.

from libc.stdint cimport int64_t

cdef extern from "_c/atomics.h" nogil:
    # Return the sum.
    int64_t add_and_get(int64_t* number, int64_t more)
    int64_t load_number(const int64_t* number)
    void store_number(int64_t* number, int64_t value)
    const void* load_pointer(const void** place)
    void store_pointer(const void** place, const void* pointer)
    # Return whether the number was ``expected``, and is ``value`` now.
    bint exchange_if(int64_t* number, int64_t expected, int64_t value)
    # Counters: of one thread, of several, and their value for any thread
    void count(int64_t* counter, int64_t more)
    void count_shared(int64_t* counter, int64_t more)
    int64_t counted(const int64_t* counter)
