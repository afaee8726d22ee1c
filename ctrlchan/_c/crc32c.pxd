# CRC-32C (Castagnoli); see crc32c.h. A module that uses it calls ``crc32c_start`` when it is imported.

from libc.stdint cimport uint8_t, uint32_t

cdef extern from "_c/crc32c.h" nogil:
    void crc32c_start()
    uint32_t crc32c(const uint8_t* p, size_t n)
    uint32_t crc32c_by_table(uint32_t crc, const uint8_t* p, size_t n)
