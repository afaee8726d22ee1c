"""Entries of formats 0 and 1: what a record was before there were batches (KIP-31, KIP-32).

Layout of an entry, big-endian. ``crc`` is CRC-32 of all bytes after itself. A negative size means null.

    0  offset int64
    8  size int32, of what follows
    12 crc uint32
    16 magic int8: 0 or 1
    17 attributes int8: codec (3 bits), from format 1 on the type of the timestamp (0x08: append time)
    18 timestamp int64, from format 1 on
       key: its size int32, then its bytes
       value: as the key

An entry with a codec carries other entries: its value is their bytes, compressed. In format 1 their offsets count from 0,
and the offset of the entry is that of the last one; in format 0 they have their own offsets.

Source: LegacyRecord, AbstractLegacyRecordBatch.
"""

from libc.string cimport memcpy

from ctrlchan._c.bytes cimport get_i32, get_i64, put_i32, put_i64
from ctrlchan._c.crc32 cimport crc32, crc32_start

crc32_start()

cdef enum:
    # Within a record
    MAGIC_AT = 4
    ATTRIBUTES_AT = 5
    TIMESTAMP_AT = 6
    # Where the size of the key is
    KEY_AT_0 = 6
    KEY_AT_1 = 14
    SIZE_BYTES = 4
    NO_TIMESTAMP = -1


cdef Found read_entry(const uint8_t* p, const uint8_t* end, Entry* entry) noexcept nogil:
    if end - p < ENTRY_HEAD_BYTES:
        return END
    entry.offset, entry.record_size = get_i64(p), get_i32(p + 8)
    if entry.record_size < LEAST_RECORD_BYTES:
        return WRONG_SIZE
    if end - p - ENTRY_HEAD_BYTES < entry.record_size:
        return END
    entry.record = p + ENTRY_HEAD_BYTES
    entry.magic, entry.attributes = <int8_t>entry.record[MAGIC_AT], <int8_t>entry.record[ATTRIBUTES_AT]
    return ENTRY


cdef const uint8_t* end_of(const Entry* entry) noexcept nogil:
    return entry.record + entry.record_size


cdef bint has_valid_entry_crc(const Entry* entry) noexcept nogil:
    return crc32(entry.record + MAGIC_AT, entry.record_size - MAGIC_AT) == <unsigned int>get_i32(entry.record)


cdef int64_t entry_timestamp(const Entry* entry) noexcept nogil:
    return get_i64(entry.record + TIMESTAMP_AT) if entry.magic else NO_TIMESTAMP


cdef inline const uint8_t* read_sized(
    const uint8_t* p, const uint8_t* end, const uint8_t** data, int32_t* size
) noexcept nogil:
    """Read bytes behind their size; return the byte after them, NULL where they do not fit."""
    if end - p < SIZE_BYTES:
        return NULL
    size[0], data[0] = get_i32(p), p + SIZE_BYTES
    if size[0] <= 0:
        return data[0]
    return data[0] + size[0] if size[0] <= end - data[0] else NULL


cdef inline const uint8_t* key_of(const Entry* entry) noexcept nogil:
    """Return where the size of the key is, or should be."""
    return entry.record + (KEY_AT_1 if entry.magic else KEY_AT_0)


cdef bint read_key_size(const Entry* entry, int32_t* size) noexcept nogil:
    cdef const uint8_t* p = key_of(entry)
    if end_of(entry) - p < SIZE_BYTES:
        return False
    size[0] = get_i32(p)
    return True


cdef bint read_pair(const Entry* entry, KeyValue* pair) noexcept nogil:
    cdef const uint8_t* p = key_of(entry)
    p = read_sized(p, end_of(entry), &pair.key, &pair.key_size)
    return p != NULL and read_sized(p, end_of(entry), &pair.value, &pair.value_size) != NULL


cdef int64_t entry_size(int magic, const KeyValue* pair) noexcept nogil:
    return (
        ENTRY_HEAD_BYTES + (KEY_AT_1 if magic else KEY_AT_0) + 2 * SIZE_BYTES
        + <int64_t>max(pair.key_size, 0) + max(pair.value_size, 0)
    )


cdef inline uint8_t* write_sized(uint8_t* out, const uint8_t* data, int32_t size) noexcept nogil:
    put_i32(out, max(size, -1))
    if size > 0:
        memcpy(out + SIZE_BYTES, data, size)
    return out + SIZE_BYTES + max(size, 0)


cdef uint8_t* write_entry(
    uint8_t* out, int magic, int64_t offset, int attributes, int64_t timestamp, const KeyValue* pair
) noexcept nogil:
    cdef uint8_t* record = out + ENTRY_HEAD_BYTES
    cdef uint8_t* end
    record[MAGIC_AT], record[ATTRIBUTES_AT] = <uint8_t>magic, <uint8_t>attributes
    if magic:
        put_i64(record + TIMESTAMP_AT, timestamp)
    end = write_sized(record + (KEY_AT_1 if magic else KEY_AT_0), pair.key, pair.key_size)
    end = write_sized(end, pair.value, pair.value_size)
    put_i64(out, offset)
    put_i32(out + 8, <int32_t>(end - record))
    put_i32(record, <int32_t>crc32(record + MAGIC_AT, end - record - MAGIC_AT))
    return end
