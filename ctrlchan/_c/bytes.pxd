# Big-endian numbers, Kafka's varints and UTF-8; see bytes.h. Callers check bounds.

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t

cdef extern from "_c/bytes.h" nogil:
    void put_i16(uint8_t* p, int16_t value)
    void put_i32(uint8_t* p, int32_t value)
    void put_i64(uint8_t* p, int64_t value)
    int16_t get_i16(const uint8_t* p)
    int32_t get_i32(const uint8_t* p)
    int64_t get_i64(const uint8_t* p)
    void swap_ints(void* to, const void* source, int64_t n)
    void put_bytes(uint8_t* p, const uint8_t* p_end, const uint8_t* source, const uint8_t* source_end, int64_t n)
    int uvarint_size(uint32_t value)
    uint8_t* put_uvarint(uint8_t* p, uint32_t value)
    int get_uvarint(const uint8_t* p, const uint8_t* end, uint32_t* value)
    bint utf8_valid(const uint8_t* p, int64_t n)
