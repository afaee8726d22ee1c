# Reads Kafka's types from the bytes of a request. Every read checks its bound: a read that does not fit sets ``failed``,
# returns 0 or NULL, and so do all reads after it.

from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t

from ctrlchan._c.bytes cimport get_i16, get_i32, get_i64, get_uvarint


cdef struct Cursor:
    const uint8_t* at
    const uint8_t* end
    # Strings and arrays are compact, and tagged fields follow.
    bint flexible
    bint failed


cdef inline const uint8_t* take(Cursor* c, int64_t size) noexcept nogil:
    """Return ``size`` bytes and go on behind them; NULL if they are not there."""
    cdef const uint8_t* p = c.at
    if size < 0 or size > c.end - p:
        c.failed = True
        c.at = c.end
        return NULL
    c.at = p + size
    return p


cdef inline int16_t read_i16(Cursor* c) noexcept nogil:
    cdef const uint8_t* p = take(c, 2)
    return get_i16(p) if p != NULL else 0


cdef inline int32_t read_i32(Cursor* c) noexcept nogil:
    cdef const uint8_t* p = take(c, 4)
    return get_i32(p) if p != NULL else 0


cdef inline int64_t read_i64(Cursor* c) noexcept nogil:
    cdef const uint8_t* p = take(c, 8)
    return get_i64(p) if p != NULL else 0


cdef inline uint32_t read_uvarint(Cursor* c) noexcept nogil:
    cdef uint32_t value = 0
    cdef int size = get_uvarint(c.at, c.end, &value)
    if size <= 0:
        take(c, -1)
        return 0
    c.at += size
    return value


cdef inline int64_t read_size(Cursor* c, bint is_short) noexcept nogil:
    """Return the size of a string (``is_short``), bytes or an array, -1 for null."""
    if c.flexible:
        return <int64_t>read_uvarint(c) - 1
    return read_i16(c) if is_short else read_i32(c)


cdef inline const uint8_t* read_string(Cursor* c, int64_t* size) noexcept nogil:
    """Return the bytes of a string; NULL and a size of -1 for null."""
    size[0] = read_size(c, True)
    return take(c, size[0]) if size[0] >= 0 else NULL


cdef inline const uint8_t* read_bytes(Cursor* c, int64_t* size) noexcept nogil:
    """Return bytes; NULL and a size of -1 for null."""
    size[0] = read_size(c, False)
    return take(c, size[0]) if size[0] >= 0 else NULL


cdef inline void skip_tags(Cursor* c) noexcept nogil:
    """Skip the tagged fields where there are any."""
    cdef uint32_t count
    if not c.flexible:
        return
    count = read_uvarint(c)
    while count > 0 and not c.failed:
        read_uvarint(c)
        take(c, read_uvarint(c))
        count -= 1
