# Writing strings, counts and lists. Nothing here holds the GIL or raises.
#
# The size pass has counted the bytes of a message. The write pass still checks every write against the end of
# its memory and every list against its values: columns that another thread changes in between cause an error,
# never a write or read out of bounds.

cdef enum:
    MAX_STRING = 32767  # bytes; Kafka's strings have an int16 length, and the compact ones keep that limit


cdef inline int64_t count_size(int64_t count, bint flexible) noexcept nogil:
    """Return the bytes of an array's count: int32, or in flexible versions a varint of count + 1."""
    return uvarint_size(<uint32_t>(count + 1)) if flexible else 4


cdef inline uint8_t* put_count(uint8_t* p, int64_t count, bint flexible) noexcept nogil:
    if flexible:
        return put_uvarint(p, <uint32_t>(count + 1))
    put_i32(p, <int32_t>count)
    return p + 4


cdef struct Text:
    # Length -1: null.
    int64_t length
    const uint8_t* data


cdef inline int load_string(const Strings* s, int64_t i, bint nullable, Text* text, int field, Fault* fault) noexcept nogil:
    """Load length and start of string ``i`` once each; -1 and a fault when it cannot be sent."""
    cdef int64_t start
    text.length = once_i32(s.lengths + i)
    text.data = NULL
    if text.length < 0:
        text.length = -1
        return 0 if nullable else fail(fault, R_NULL, field, -1)
    if text.length > MAX_STRING:
        return fail(fault, R_STRING_TOO_LONG, field, -1)
    start = once_i32(s.starts + i)
    if start < 0 or start + text.length > s.data_size:
        return fail(fault, R_STRING_RANGE, field, -1)
    text.data = s.data + start
    return 0


cdef inline int64_t text_size(const Text* text, bint flexible) noexcept nogil:
    """Return the bytes of a string on the wire, with its length."""
    if not flexible:
        return 2 + (text.length if text.length > 0 else 0)
    return uvarint_size(<uint32_t>(text.length + 1)) + (text.length if text.length > 0 else 0)


cdef int64_t string_size(const Strings* s, int64_t i, bint flexible, bint nullable, int field, Fault* fault) noexcept nogil:
    """Return the bytes of string ``i`` with its length; -1 and a fault when it cannot be sent or is not UTF-8."""
    cdef Text text
    if load_string(s, i, nullable, &text, field, fault) < 0:
        return -1
    if text.length > 0 and not utf8_valid(text.data, text.length):
        return fail(fault, R_UTF8, field, -1)
    return text_size(&text, flexible)


cdef inline uint8_t* put_string(uint8_t* p, const uint8_t* end, const Strings* s, int64_t i, bint flexible, bint nullable, int field, Fault* fault) noexcept nogil:
    """Write string ``i`` (null where the field is nullable); NULL and a fault when it changed since it was sized."""
    cdef Text text
    if load_string(s, i, nullable, &text, field, fault) < 0:
        return NULL
    if end - p < text_size(&text, flexible):
        fail(fault, R_CHANGED, field, -1)
        return NULL
    if flexible:
        p = put_uvarint(p, <uint32_t>(text.length + 1))
    else:
        put_i16(p, <int16_t>text.length)
        p += 2
    if text.length > 0:
        put_bytes(p, end, text.data, s.data + s.data_size, text.length)
        p += text.length
    return p


cdef uint8_t* put_list(uint8_t* p, const uint8_t* end, const Lists* lists, int64_t row, bint flexible) noexcept nogil:
    """Write one list with its count; NULL when it points outside its values or there is no room."""
    cdef int64_t start = 0
    cdef int64_t length = 0
    if lists.lengths != NULL:
        start = once_i32(lists.starts + row)
        length = once_i32(lists.lengths + row)
        if start < 0 or length < 0 or start + length > lists.n_values:
            return NULL
    if end - p < count_size(length, flexible) + 4 * length:
        return NULL
    p = put_count(p, length, flexible)
    swap_ints(p, lists.values + start, length)
    return p + 4 * length


cdef int list_fault(const Lists* lists, int64_t row, int field, Fault* fault) noexcept nogil:
    """Record why ``put_list`` returned NULL; 0 when the list itself is right."""
    if lists.lengths == NULL or list_in_bounds(lists, row):
        return 0
    return fail(fault, R_LIST_RANGE, field, row)
