"""What compaction does to each record, without the GIL: which offset each key has last, and which records stay.

Sources: ``SkimpyOffsetMap``, ``Cleaner``, ``MemoryRecords.filterTo``. A record's layout is in ``records.py``.
"""

cimport cython
from libc.stdint cimport int32_t, int64_t, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

import os

from cpython.bytes cimport PyBytes_FromStringAndSize

cdef enum:
    # Results of functions that read records.
    DONE = 0
    FULL = 1
    MALFORMED = -1
    NO_MEMORY = -2
    # Most bytes of length, attributes and two deltas.
    HEAD = 31
    # As Kafka's map, for the same bytes of memory: 16 of the key's hash and 8 of the offset.
    SLOT_BYTES = 24
    WORDS = 3


# -- keys


@cython.overflowcheck(False)
cdef inline uint64_t rotated(uint64_t x, int bits) noexcept nogil:
    return (x << bits) | (x >> (64 - bits))


@cython.overflowcheck(False)
cdef inline void sip_round(uint64_t* v) noexcept nogil:
    v[0] += v[1]
    v[2] += v[3]
    v[1] = rotated(v[1], 13) ^ v[0]
    v[3] = rotated(v[3], 16) ^ v[2]
    v[0] = rotated(v[0], 32)
    v[2] += v[1]
    v[0] += v[3]
    v[1] = rotated(v[1], 17) ^ v[2]
    v[3] = rotated(v[3], 21) ^ v[0]
    v[2] = rotated(v[2], 32)


@cython.overflowcheck(False)
cdef void sip_hash(const uint64_t* key, const uint8_t* data, int64_t size, uint64_t* hashed) noexcept nogil:
    """SipHash-2-4 with 128 bits: without the key nobody finds two keys with one hash."""
    cdef uint64_t v[4]
    cdef uint64_t word
    cdef int64_t i
    cdef int r
    v[0] = key[0] ^ <uint64_t>0x736F6D6570736575
    v[1] = key[1] ^ <uint64_t>0x646F72616E646F6D ^ 0xEE
    v[2] = key[0] ^ <uint64_t>0x6C7967656E657261
    v[3] = key[1] ^ <uint64_t>0x7465646279746573
    for i in range(0, size - size % 8, 8):
        memcpy(&word, data + i, 8)
        v[3] ^= word
        sip_round(v)
        sip_round(v)
        v[0] ^= word
    word = <uint64_t>size << 56
    for r in range(<int>(size % 8)):
        word |= <uint64_t>data[size - size % 8 + r] << (8 * r)
    v[3] ^= word
    sip_round(v)
    sip_round(v)
    v[0] ^= word
    v[2] ^= 0xEE
    for r in range(4):
        sip_round(v)
    hashed[0] = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] ^= 0xDD
    for r in range(4):
        sip_round(v)
    hashed[1] = v[0] ^ v[1] ^ v[2] ^ v[3]


cdef class OffsetMap:
    """The last offset of each key, by the key's hash, in a fixed amount of memory.

    ``latest_offset``: all records up to it are in the map.
    """

    cdef uint64_t* table
    cdef uint64_t secret[2]
    cdef readonly int64_t slots
    cdef readonly int64_t count
    # Keys that may be in it.
    cdef readonly int64_t most
    cdef public int64_t latest_offset

    def __init__(self, int64_t memory, double load_factor=0.9):
        if self.table != NULL:
            raise RuntimeError("a map is made once")
        self.slots = memory // SLOT_BYTES
        self.most = <int64_t>(self.slots * load_factor)
        if self.most < 1 or self.most >= self.slots:
            raise ValueError(f"{memory} bytes with load factor {load_factor}: too little for a key")
        # Memory that no key needs is never touched.
        self.table = <uint64_t*>calloc(self.slots, SLOT_BYTES)
        if self.table == NULL:
            raise MemoryError()
        secret = os.urandom(16)
        memcpy(self.secret, <const char*>secret, 16)
        self.latest_offset = -1

    def __dealloc__(self):
        free(self.table)

    def clear(self):
        """Forget all keys."""
        if self.count:
            memset(self.table, 0, self.slots * SLOT_BYTES)
        self.count = 0
        self.latest_offset = -1

    def get(self, const uint8_t[::1] key not None):
        """Return the last offset of a key, -1 where it is not known."""
        cdef uint64_t* slot = self.find(&key[0] if key.shape[0] else NULL, key.shape[0])
        return <int64_t>slot[2] - 1

    cdef uint64_t* find(self, const uint8_t* key, int64_t size) noexcept nogil:
        """Return the slot of a key, or a free slot. The last word of a slot is the offset + 1, or 0."""
        cdef uint64_t hashed[2]
        cdef uint64_t* slot
        cdef int64_t i
        sip_hash(self.secret, key, size, hashed)
        i = <int64_t>(hashed[0] % <uint64_t>self.slots)
        while True:
            slot = self.table + i * WORDS
            if slot[2] == 0 or (slot[0] == hashed[0] and slot[1] == hashed[1]):
                slot[0], slot[1] = hashed[0], hashed[1]
                return slot
            i = i + 1 if i + 1 < self.slots else 0

    cdef int put(self, const uint8_t* key, int64_t size, int64_t offset) noexcept nogil:
        """Store the offset of a key; FULL where there is no room for it, as Kafka also for a known one."""
        cdef uint64_t* slot
        if self.count >= self.most:
            return FULL
        slot = self.find(key, size)
        if slot[2] == 0:
            self.count = self.count + 1
        slot[2] = <uint64_t>(offset + 1)
        return DONE


# -- records


# Where the parts of one record are.
cdef struct Parts:
    # The record with its length, from the attributes on, and behind the two deltas
    int64_t begin
    int64_t body
    int64_t rest
    int64_t end
    int64_t timestamp_delta
    int64_t offset_delta
    int64_t key
    # -1: null
    int64_t key_size
    int64_t value_size


@cython.overflowcheck(False)
cdef inline bint varint(const uint8_t* data, int64_t end, int64_t* position, int64_t* value) noexcept nogil:
    """Read a zigzag number of variable length; False where it does not end."""
    cdef uint64_t raw = 0
    cdef int shift = 0
    cdef uint8_t byte
    while position[0] < end and shift < 70:
        byte = data[position[0]]
        position[0] += 1
        raw |= <uint64_t>(byte & 0x7F) << shift if shift < 64 else 0
        if byte < 0x80:
            value[0] = <int64_t>(raw >> 1) ^ -<int64_t>(raw & 1)
            return True
        shift += 7
    return False


cdef int read_record(const uint8_t* data, int64_t size, int64_t* position, Parts* parts) noexcept nogil:
    """Read where the parts of the record at ``position`` are, and move behind it; DONE or MALFORMED."""
    cdef int64_t at = position[0], length
    parts.begin = at
    if not varint(data, size, &at, &length) or length < 1 or length > size - at:
        return MALFORMED
    parts.body, parts.end = at, at + length
    at += 1
    if not varint(data, parts.end, &at, &parts.timestamp_delta):
        return MALFORMED
    if not varint(data, parts.end, &at, &parts.offset_delta) or not 0 <= parts.offset_delta <= 0x7FFFFFFF:
        return MALFORMED
    parts.rest = at
    if not varint(data, parts.end, &at, &parts.key_size) or parts.key_size > parts.end - at:
        return MALFORMED
    parts.key = at
    at += max(parts.key_size, <int64_t>0)
    if not varint(data, parts.end, &at, &parts.value_size) or parts.value_size > parts.end - at:
        return MALFORMED
    position[0] = parts.end
    return DONE


cdef int add_all(
    OffsetMap offsets, const uint8_t* data, int64_t size, int32_t count, int64_t base_offset, int64_t from_offset
) noexcept nogil:
    cdef int64_t position = 0
    cdef int32_t i
    cdef Parts parts
    for i in range(count):
        if read_record(data, size, &position, &parts) != DONE:
            return MALFORMED
        if parts.key_size >= 0 and base_offset + parts.offset_delta >= from_offset:
            if offsets.put(data + parts.key, parts.key_size, base_offset + parts.offset_delta) == FULL:
                return FULL
    return DONE


def add_keys(
    OffsetMap offsets not None, const uint8_t[::1] records not None, int32_t count, int64_t base_offset,
    int64_t from_offset,
):
    """Put the keys of a batch's records into the map; return whether there was room for all.

    Records below ``from_offset`` are left out. Raises ValueError for records that do not fit into their batch.
    """
    cdef int result
    cdef const uint8_t* data = &records[0] if records.shape[0] else NULL
    with nogil:
        result = add_all(offsets, data, records.shape[0], count, base_offset, from_offset)
    if result == MALFORMED:
        raise ValueError("records that do not fit into their batch")
    return result == DONE


cdef bint is_kept(OffsetMap offsets, const uint8_t* data, const Parts* parts, int64_t offset, bint tombstones) noexcept nogil:
    """Whether a record stays: the last record of its key stays, unless it is an old tombstone."""
    if offset > offsets.latest_offset:
        return True
    if parts.key_size < 0 or (parts.value_size < 0 and not tombstones):
        return False
    return offset >= <int64_t>offsets.find(data + parts.key, parts.key_size)[2] - 1


@cython.overflowcheck(False)
cdef inline int64_t sum_of(int64_t one, int64_t other) noexcept nogil:
    """Return the sum as Java does it: a leader's batch may have any timestamps."""
    return <int64_t>(<uint64_t>one + <uint64_t>other)


@cython.overflowcheck(False)
cdef inline int64_t difference_of(int64_t one, int64_t other) noexcept nogil:
    return <int64_t>(<uint64_t>one - <uint64_t>other)


@cython.overflowcheck(False)
cdef int put_varint(uint8_t* out, int64_t value) noexcept nogil:
    cdef uint64_t raw = (<uint64_t>value << 1) ^ <uint64_t>(value >> 63)
    cdef int size = 0
    while raw > 0x7F:
        out[size] = <uint8_t>(raw & 0x7F | 0x80)
        raw >>= 7
        size += 1
    out[size] = <uint8_t>raw
    return size + 1


def kept_records(
    OffsetMap offsets not None, const uint8_t[::1] records not None, int32_t count, int64_t base_offset, bint tombstones,
):
    """Return which records of a batch stay: a byte for each (1: stays), how many, and whether a tombstone is one.

    ``tombstones``: their time is not over. Raises ValueError for records that do not fit into their batch.
    """
    cdef const uint8_t* data = &records[0] if records.shape[0] else NULL
    cdef int64_t position = 0
    cdef int32_t i, number = 0
    cdef bint has_tombstone = False
    cdef int result = DONE
    cdef Parts parts
    # Each record has at least seven bytes.
    if not 0 <= count <= records.shape[0]:
        raise ValueError("a number of records that do not fit into their batch")
    kept = bytearray(count)
    cdef uint8_t[::1] flags = kept
    with nogil:
        for i in range(count):
            result = read_record(data, records.shape[0], &position, &parts)
            if result != DONE:
                break
            if is_kept(offsets, data, &parts, base_offset + parts.offset_delta, tombstones):
                flags[i] = 1
                number += 1
                has_tombstone = has_tombstone or parts.value_size < 0
    if result != DONE:
        raise ValueError("records that do not fit into their batch")
    return bytes(kept), number, has_tombstone


def rebuilt(
    const uint8_t[::1] records not None, const uint8_t[::1] kept not None, int64_t old_base, int64_t append_time,
    int64_t delete_horizon,
):
    """Return the bytes of the records that stay, the batch's first and its largest timestamp.

    ``old_base``: what the timestamps of the records count from. ``append_time``: of all records, -1 where each has its own.
    The new timestamps count from ``delete_horizon``, or from the first record's where that is -1.
    """
    cdef int64_t position = 0, filled = 0, base = delete_horizon, largest = -1, timestamp, body
    cdef const uint8_t* data = &records[0] if records.shape[0] else NULL
    cdef uint8_t head[HEAD]
    cdef uint8_t* out
    cdef int32_t i
    cdef int result = DONE, size
    cdef Parts parts
    # The deltas of a record may be longer than before; nothing else grows.
    out = <uint8_t*>malloc(records.shape[0] + kept.shape[0] * (HEAD - 4) + 1)
    if out == NULL:
        raise MemoryError()
    with nogil:
        for i in range(<int32_t>kept.shape[0]):
            result = read_record(data, records.shape[0], &position, &parts)
            if result != DONE:
                break
            if not kept[i]:
                continue
            timestamp = sum_of(old_base, parts.timestamp_delta) if append_time < 0 else append_time
            if base < 0 and filled == 0:
                base = timestamp
            largest = max(largest, timestamp)
            size = put_varint(head, difference_of(timestamp, base))
            size += put_varint(head + size, parts.offset_delta)
            body = 1 + size + parts.end - parts.rest
            filled += put_varint(out + filled, body)
            out[filled] = data[parts.body]
            memcpy(out + filled + 1, head, size)
            memcpy(out + filled + 1 + size, data + parts.rest, parts.end - parts.rest)
            filled += body
    try:
        if result != DONE:
            raise ValueError("records that do not fit into their batch")
        return PyBytes_FromStringAndSize(<char*>out, filled), base, largest
    finally:
        free(out)
