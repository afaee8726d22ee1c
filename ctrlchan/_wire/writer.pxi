# Strings, counts and lists onto the wire. Nothing here holds the GIL or raises.
#
# The size pass has said how many bytes a message takes; the write pass checks every write against the end
# of the memory it was given and every list against its values all the same. So columns that another
# thread changes in between give an error, never a write or read out of bounds.

cdef enum:
    MAX_STRING = 32767  # bytes; Kafka's strings have an int16 length, and the compact ones keep that limit


cdef inline int64_t count_size(int64_t count, bint flexible) noexcept nogil:
    """Bytes of an array's count: int32, or in flexible versions a varint of count + 1."""
    return uvarint_size(<uint32_t>(count + 1)) if flexible else 4


cdef inline uint8_t* put_count(uint8_t* p, int64_t count, bint flexible) noexcept nogil:
    if flexible:
        return put_uvarint(p, <uint32_t>(count + 1))
    put_i32(p, <int32_t>count)
    return p + 4


cdef int64_t string_size(const Strings* s, int64_t i, bint flexible, bint nullable, int field, Fault* fault) noexcept nogil:
    """Bytes of string ``i`` with its length; -1 and a fault when it cannot be sent."""
    cdef int64_t length = s.lengths[i]
    if length < 0:
        if not nullable:
            return fail(fault, R_NULL, field, -1)
        return 1 if flexible else 2
    if length > MAX_STRING:
        return fail(fault, R_STRING_TOO_LONG, field, -1)
    if not string_in_bounds(s, i):
        return fail(fault, R_STRING_RANGE, field, -1)
    return length + (uvarint_size(<uint32_t>(length + 1)) if flexible else 2)


cdef uint8_t* put_string(uint8_t* p, const uint8_t* end, const Strings* s, int64_t i, bint flexible, bint nullable, int field, Fault* fault) noexcept nogil:
    """Write string ``i`` (null where it may be); NULL and a fault when it changed since it was sized."""
    cdef int64_t size = string_size(s, i, flexible, nullable, field, fault)
    cdef int64_t length = s.lengths[i]
    if size < 0:
        return NULL
    if end - p < size:
        fail(fault, R_CHANGED, field, -1)
        return NULL
    if flexible:
        p = put_uvarint(p, <uint32_t>(length + 1) if length >= 0 else 0)
    else:
        put_i16(p, <int16_t>length)
        p += 2
    if length > 0:
        memcpy(p, s.data + s.starts[i], length)
        p += length
    return p


cdef int64_t lists_size(const Lists* lists, const int64_t* rows, int64_t n, bint flexible, int field, Fault* fault) noexcept nogil:
    """Bytes of the selected rows' lists with their counts; -1 and a fault when a length is negative.

    One pass over the lengths alone, in a form that compilers vectorise: the bitwise OR of all lengths tells
    whether one is negative and whether every count fits one varint byte.
    """
    cdef int64_t i, total = 0
    cdef int32_t every = 0
    if lists.lengths == NULL:
        return n if flexible else 4 * n
    if rows == NULL:
        for i in range(n):
            every |= lists.lengths[i]
            total += lists.lengths[i]
    else:
        for i in range(n):
            every |= lists.lengths[rows[i]]
            total += lists.lengths[rows[i]]
    if every < 0:
        for i in range(n):
            if lists.lengths[i if rows == NULL else rows[i]] < 0:
                return fail(fault, R_NEGATIVE_LENGTH, field, i if rows == NULL else rows[i])
    total *= 4
    if not flexible:
        return total + 4 * n
    if every < 127:
        return total + n
    for i in range(n):
        total += uvarint_size(<uint32_t>lists.lengths[i if rows == NULL else rows[i]] + 1)
    return total


cdef inline uint8_t* put_list(uint8_t* p, const uint8_t* end, const Lists* lists, int64_t row, bint flexible) noexcept nogil:
    """Write one list with its count; NULL when it points outside its values or there is no room."""
    cdef int64_t start = 0
    cdef int64_t length = 0
    if lists.lengths != NULL:
        start = lists.starts[row]
        length = lists.lengths[row]
        if start < 0 or length < 0 or start + length > lists.n_values:
            return NULL
    if flexible and length <= 3 and start + 4 <= lists.n_values and end - p >= 16:
        if put_short_list(p, lists.values + start, length):
            return p + 1 + 4 * length
    if flexible and length < 127:
        if end - p < 1 + 4 * length:
            return NULL
        p[0] = <uint8_t>(length + 1)
        p += 1
    else:
        if end - p < count_size(length, flexible) + 4 * length:
            return NULL
        p = put_count(p, length, flexible)
    swap_ints(p, lists.values + start, length)
    return p + 4 * length


cdef int list_fault(const Lists* lists, int64_t row, int field, Fault* fault) noexcept nogil:
    """Say why ``put_list`` gave NULL; 0 when this list is not to blame."""
    if lists.lengths == NULL or list_in_bounds(lists, row):
        return 0
    return fail(fault, R_LIST_RANGE, field, row)
