# Records of format 2 without headers, as they are made of entries of formats 0 and 1. Callers check that there is room.

from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.string cimport memcpy

from ctrlchan.broker.log._batches cimport KeyValue
from ctrlchan.broker.log._varints cimport varint_size, write_varint, zigzag

cdef enum:
    # Attributes and the number of headers of a record, both 0
    ATTRIBUTES_BYTES = 1
    HEADERS_BYTES = 1


cdef inline int64_t body_size(uint64_t timestamp_delta, uint64_t offset_delta, const KeyValue* pair) noexcept nogil:
    """Return the bytes of a record without its size. The deltas are zig-zag numbers."""
    return (
        ATTRIBUTES_BYTES + varint_size(timestamp_delta) + varint_size(offset_delta) + HEADERS_BYTES
        + varint_size(zigzag(pair.key_size)) + max(pair.key_size, 0)
        + varint_size(zigzag(pair.value_size)) + max(pair.value_size, 0)
    )


cdef inline int64_t record_size(uint64_t timestamp_delta, uint64_t offset_delta, const KeyValue* pair) noexcept nogil:
    """Return the bytes of a record."""
    cdef int64_t body = body_size(timestamp_delta, offset_delta, pair)
    return varint_size(zigzag(body)) + body


cdef inline uint8_t* write_sized(uint8_t* out, const uint8_t* data, int32_t size) noexcept nogil:
    out = write_varint(out, zigzag(size))
    if size > 0:
        memcpy(out, data, size)
        out += size
    return out


cdef inline uint8_t* write_record(
    uint8_t* out, uint64_t timestamp_delta, uint64_t offset_delta, const KeyValue* pair
) noexcept nogil:
    """Write a record; return the byte after it. Sizes below 0 are -1."""
    out = write_varint(out, zigzag(body_size(timestamp_delta, offset_delta, pair)))
    out[0] = 0
    out = write_varint(out + ATTRIBUTES_BYTES, timestamp_delta)
    out = write_varint(out, offset_delta)
    out = write_sized(out, pair.key, pair.key_size)
    out = write_sized(out, pair.value, pair.value_size)
    out[0] = 0
    return out + HEADERS_BYTES
