"""Reads and writes the batches of a coordinator's topic natively.

Read are those that most batches are: uncompressed, and with records of clients. A coordinator writes a batch for each
change, so a partition of many groups or transactional ids has as many batches.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize
from libc.stdint cimport int16_t, int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from ctrlchan._c.bytes cimport put_uvarint, uvarint_size
from ctrlchan._c.error_codes cimport NONE
from ctrlchan.broker.coordinator.transaction._values cimport is_idle_value, is_plain_key, take_record
from ctrlchan.broker.log._batches cimport (
    COMPRESSION,
    CONTROL,
    HEADER_BYTES,
    OFFSET_AND_LENGTH_BYTES,
    TRANSACTIONAL,
    Batch,
    KeyValue,
    key_values,
    next_batch,
    next_key_value,
    write_crc,
    write_header,
)

from ctrlchan.broker.coordinator.common.topic import StoredBatch

cdef enum:
    MAGIC = 2
    # Of a record: its attributes, its timestamp delta of 0, the number of its headers
    FIXED_BYTES = 3


# -- reading


cdef bint is_plain(const uint8_t* at, Py_ssize_t size, Batch* batch) noexcept nogil:
    """Return whether a whole batch that is neither compressed nor a control batch is there."""
    return (
        next_batch(at, size, batch) == NONE
        and batch.size != 0
        and batch.magic == MAGIC
        and not batch.attributes & (COMPRESSION | CONTROL)
    )


def read_plain_batches(const uint8_t[::1] data not None, Py_ssize_t position, int most):
    """Return at most so many batches, each after the offset that follows it, and the position behind the last one.

    It ends before a batch that is compressed, a control batch, damaged or cut.
    """
    cdef Batch batch
    cdef const uint8_t* at
    cdef list pairs, found = []
    new = tuple.__new__
    while len(found) < most and 0 <= position < data.shape[0]:
        at = &data[position]
        if not is_plain(at, data.shape[0] - position, &batch):
            break
        pairs = key_values(at + HEADER_BYTES, at + batch.size, batch.count)
        if pairs is None:
            break
        # As StoredBatch(…), which takes three times as long.
        stored = new(
            StoredBatch,
            (batch.base_offset, pairs, batch.producer_id, bool(batch.attributes & TRANSACTIONAL), None),
        )
        found.append((batch.base_offset + batch.last_offset_delta + 1, stored))
        position += batch.size
    return found, position


cdef bint is_idle(const uint8_t* p, const Batch* batch) noexcept nogil:
    """Return whether all records of a plain batch are those of transactional ids without an open transaction."""
    cdef const uint8_t* end = p + batch.size
    cdef KeyValue found
    cdef int64_t left = batch.count
    p += HEADER_BYTES
    while left > 0:
        p = next_key_value(p, end, &found)
        if p == NULL or not is_plain_key(found.key, found.key_size):
            return False
        if found.value_size >= 0 and not is_idle_value(found.value, found.value_size):
            return False
        left -= 1
    return True


def take_idle_batches(dict ids not None, const uint8_t[::1] data not None, Py_ssize_t position, int most):
    """Take at most so many batches into `ids`, as ``take_idle`` takes their records.

    Return the position behind the last one and the offset after it, -1 if there was none. It ends before a batch with
    another record, and where ``read_plain_batches`` ends.
    """
    cdef Batch batch
    cdef KeyValue found
    cdef const uint8_t* at
    cdef const uint8_t* end
    cdef int64_t left, after = -1
    while most > 0 and 0 <= position < data.shape[0]:
        at = &data[position]
        if not is_plain(at, data.shape[0] - position, &batch) or not is_idle(at, &batch):
            break
        end, left = at + batch.size, batch.count
        at += HEADER_BYTES
        while left > 0:
            at = next_key_value(at, end, &found)
            value = None
            if found.value_size >= 0:
                value = PyBytes_FromStringAndSize(<const char*>found.value, found.value_size)
            take_record(ids, found.key, found.key_size, value)
            left -= 1
        after = batch.base_offset + batch.last_offset_delta + 1
        position += batch.size
        most -= 1
    return position, after


# -- writing


cdef inline int varint_size(Py_ssize_t number) noexcept nogil:
    """Return the bytes of a number that is not negative as a zigzag varint."""
    return uvarint_size(<uint32_t>number << 1)


cdef inline uint8_t* put_varint(uint8_t* p, Py_ssize_t number) noexcept nogil:
    return put_uvarint(p, <uint32_t>number << 1)


cdef inline Py_ssize_t bytes_size(bytes data):
    """Return the bytes of a key or a value with its size before it."""
    return 1 if data is None else varint_size(len(data)) + len(data)


cdef inline uint8_t* put_sized(uint8_t* p, bytes data):
    if data is None:
        # The varint -1
        p[0] = 1
        return p + 1
    p = put_varint(p, len(data))
    memcpy(p, PyBytes_AS_STRING(data), len(data))
    return p + len(data)


cdef inline Py_ssize_t record_size(Py_ssize_t index, bytes key, bytes value):
    """Return the bytes of a record without its size."""
    return FIXED_BYTES + varint_size(index) + bytes_size(key) + bytes_size(value)


def encode_batch(records not None, int64_t timestamp, producer=None):
    """Return a batch of the records. The log assigns its offsets and its leader epoch.

    `timestamp`: of every record, in milliseconds since 1970. `producer`: the batch is a part of its
    transaction; its sequence is 0, as in Kafka, because the log checks no sequences of coordinators.
    """
    cdef Py_ssize_t index = 0, size, total = HEADER_BYTES, count = len(records)
    cdef int64_t producer_id = -1
    cdef int16_t producer_epoch = -1
    cdef int32_t sequence = -1
    cdef uint8_t* at
    cdef uint8_t* p
    for key, value in records:
        size = record_size(index, key, value)
        total += varint_size(size) + size
        index += 1
    if total - OFFSET_AND_LENGTH_BYTES > 2**31 - 1:
        raise ValueError(f"a batch of {total} bytes")
    if producer is not None:
        producer_id, producer_epoch, sequence = producer.producer_id, producer.epoch, 0
    batch = PyBytes_FromStringAndSize(NULL, total)
    at = <uint8_t*>PyBytes_AS_STRING(batch)
    write_header(
        at,
        total,
        <int32_t>count,
        0 if producer is None else TRANSACTIONAL,
        timestamp,
        producer_id,
        producer_epoch,
        sequence,
    )
    p, index = at + HEADER_BYTES, 0
    for key, value in records:
        p = put_varint(p, record_size(index, key, value))
        p[0] = p[1] = 0
        p = put_varint(p + 2, index)
        p = put_sized(put_sized(p, key), value)
        p[0] = 0
        p += 1
        index += 1
    write_crc(at, total)
    return batch
