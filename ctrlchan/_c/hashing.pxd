# The hash of names that clients choose. A seed keeps them from finding names with one hash.

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t


@cython.overflowcheck(False)
cdef inline uint32_t mix(uint32_t value, const uint8_t* data, int64_t size) noexcept nogil:
    """Mix bytes into a hash, which begins with a random seed."""
    cdef int64_t i
    for i in range(size):
        value = (value ^ data[i]) * <uint32_t>16777619
        value ^= value >> 15
    return value * <uint32_t>2654435769
