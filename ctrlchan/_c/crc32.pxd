# CRC-32 (IEEE 802.3); see crc32.h. A module that uses it calls ``crc32_start`` when it is imported.

from libc.stdint cimport uint8_t, uint32_t

cdef extern from "_c/crc32.h" nogil:
    void crc32_start()
    uint32_t crc32(const uint8_t* p, size_t n)
