"""Batches as entries of format 0 or 1, which clients before Kafka 0.11 read.

An uncompressed batch becomes an entry for each record, a compressed one an entry that carries them, with the same codec.
What an older format has no place for is left out: headers, producers, transactions, control batches, and in format 0
timestamps. Aborted records stay: such clients have no isolation. An entry of the wanted format or of an older one stays
as it is.

Kafka converts lazily, has to promise the size of an answer before, and fills up what is missing with an entry that is cut.
Here the size is known when the answer is written, so that it has whole entries alone.

Source: RecordsUtil.downConvert, LazyDownConversionRecords, MemoryRecordsBuilder.
"""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint8_t
from libc.stdlib cimport free, realloc
from libc.string cimport memcpy, memset

from ctrlchan._c.clocks cimport monotonic_ns
from ctrlchan._c.error_codes cimport CORRUPT_MESSAGE, NONE, UNSUPPORTED_COMPRESSION_TYPE
from ctrlchan.broker.log._batches cimport (
    COMPRESSION,
    CONTROL,
    FORMAT_2,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    Batch,
    FullRecord,
    KeyValue,
    next_batch,
    next_record,
    read_batch,
)
from ctrlchan.broker.log.old_formats._entries cimport APPEND_TIME_FLAG, entry_size, write_entry

from typing import NamedTuple

from ctrlchan.broker.log import compression
from ctrlchan.broker.log.old_formats import wrappers
from ctrlchan.broker.log.old_formats._as_batch import as_batch
from ctrlchan.errors import KafkaError

cdef enum:
    ZSTD = 4
    NO_TIMESTAMP = -1
    ANY_OFFSET = -1
    FIRST_CAPACITY = 16384
    # An entry that carries more is not made: twice what a batch may have (``compression.py``)
    MOST_CARRIED_BYTES = 268435456
    # What ``convert_records`` has found beside an error code
    IS_FULL = -1
    NO_MEMORY = -2


class Converted(NamedTuple):
    """Converted batches. ``error``: why there are none, or 0. ``next_offset``: behind the last batch that was looked at, -1
    without one. ``records``, ``time_ns``, ``temporary_bytes``: what the conversion has cost (RecordValidationStats).
    """

    data: bytes
    error: int
    next_offset: int
    records: int
    time_ns: int
    temporary_bytes: int


# Entries in memory of their own.
cdef struct Output:
    uint8_t* data
    int64_t size
    int64_t capacity
    int32_t records
    # Of the records that were written
    int64_t last_offset
    int64_t max_timestamp


cdef uint8_t* room_for(Output* out, int64_t size) noexcept nogil:
    """Return room for so many bytes, or NULL without memory. The room is not counted yet."""
    cdef int64_t capacity
    cdef uint8_t* data
    if out.capacity - out.size < size:
        capacity = max(max(2 * out.capacity, out.size + size), FIRST_CAPACITY)
        data = <uint8_t*>realloc(out.data, capacity)
        if data == NULL:
            return NULL
        out.data, out.capacity = data, capacity
    return out.data + out.size


@cython.overflowcheck(False)
cdef int convert_records(
    const uint8_t* p, const uint8_t* end, const Batch* batch, int magic, int64_t first_offset, bint relative,
    int64_t limit, Output* out
) noexcept nogil:
    """Write the records of a batch, which are the bytes from ``p`` to ``end``; return an error code, IS_FULL or NO_MEMORY.

    ``first_offset``: records below are left out. ``relative``: offsets count from the first record. ``limit``: of ``out``;
    no entry ends behind it.
    """
    cdef FullRecord record
    cdef uint8_t* room
    cdef int64_t size, base_offset = 0
    cdef int32_t i, before = out.records
    cdef int attributes = APPEND_TIME_FLAG if magic and batch.attributes & LOG_APPEND_TIME else 0
    out.max_timestamp = NO_TIMESTAMP
    for i in range(batch.count):
        p = next_record(p, end, batch, &record)
        if p == NULL:
            return CORRUPT_MESSAGE
        if record.offset < first_offset:
            continue
        if relative and out.records == before:
            base_offset = record.offset
        # Kafka refuses to write another negative one.
        record.timestamp = max(record.timestamp, <int64_t>NO_TIMESTAMP)
        size = entry_size(magic, &record.pair)
        if out.size + size > limit:
            return IS_FULL
        room = room_for(out, size)
        if room == NULL:
            return NO_MEMORY
        write_entry(room, magic, record.offset - base_offset, attributes, record.timestamp, &record.pair)
        out.size += size
        out.records += 1
        out.last_offset, out.max_timestamp = record.offset, max(out.max_timestamp, record.timestamp)
    return NONE


cdef int wrap(
    const uint8_t[::1] records, const Batch* batch, int codec, int magic, int64_t limit, Output* out, int64_t* temporary
) except? -3:
    """Write an entry that carries the records of a batch, which are decompressed; return as ``convert_records``."""
    cdef Output inner
    cdef KeyValue pair
    cdef const uint8_t* begin
    cdef uint8_t* room
    cdef int64_t size, timestamp
    cdef int result
    cdef bint has_append_time = batch.attributes & LOG_APPEND_TIME != 0
    cdef bytes payload
    memset(&inner, 0, sizeof(Output))
    try:
        begin = &records[0] if records.shape[0] else NULL
        with nogil:
            result = convert_records(
                begin, begin + records.shape[0], batch, magic, ANY_OFFSET, magic > 0, MOST_CARRIED_BYTES, &inner
            )
        if result == IS_FULL:
            return CORRUPT_MESSAGE
        if result != NONE or inner.records == 0:
            return result
        # As Kafka counts: what is carried, and the entry without it.
        pair.key_size = pair.value_size = -1
        temporary[0] += inner.size + entry_size(magic, &pair)
        payload = wrappers.compress(codec, magic, PyBytes_FromStringAndSize(<const char*>inner.data, inner.size))
    finally:
        free(inner.data)
    pair.key, pair.key_size, pair.value, pair.value_size = NULL, -1, payload, <int32_t>len(payload)
    timestamp = batch.max_timestamp if has_append_time else inner.max_timestamp
    size = entry_size(magic, &pair)
    if out.size + size > limit:
        return IS_FULL
    room = room_for(out, size)
    if room == NULL:
        return NO_MEMORY
    write_entry(
        room, magic, inner.last_offset, codec | (APPEND_TIME_FLAG if magic and has_append_time else 0), timestamp, &pair
    )
    out.size += size
    out.records += inner.records
    return NONE


cdef int copy(const uint8_t[::1] entry, int64_t limit, Output* out) except? -3:
    """Write an entry as it is; return as ``convert_records``."""
    cdef uint8_t* room
    if out.size + entry.shape[0] > limit:
        return IS_FULL
    room = room_for(out, entry.shape[0])
    if room == NULL:
        raise MemoryError()
    memcpy(room, &entry[0], entry.shape[0])
    out.size += entry.shape[0]
    return NONE


cdef int convert_batch(
    const uint8_t[::1] view, const Batch* batch, int magic, int64_t fetch_offset, int64_t limit, Output* out,
    int64_t* temporary
) except? -3:
    """Convert one batch, which is no control batch; return as ``convert_records``. After an error ``out`` is as before."""
    cdef const uint8_t* p
    cdef const uint8_t[::1] carried
    cdef Batch upgraded
    cdef int64_t size = out.size
    cdef int32_t records = out.records
    cdef int codec = batch.attributes & COMPRESSION, result
    if batch.magic <= magic:
        return copy(view, limit, out)
    if codec == ZSTD:
        return UNSUPPORTED_COMPRESSION_TYPE
    temporary[0] += batch.size
    try:
        if batch.magic < FORMAT_2:
            view = as_batch(view).batch
            read_batch(&view[0], &upgraded)
            batch = &upgraded
            carried = view[HEADER_BYTES:]
        elif codec:
            carried = compression.decompress(codec, bytes(view[HEADER_BYTES:]))
    except (KafkaError, KeyError, compression.CorruptError, compression.TooLargeError):
        return CORRUPT_MESSAGE
    if codec:
        result = wrap(carried, batch, codec, magic, limit, out, temporary)
    else:
        p = &view[0]
        with nogil:
            result = convert_records(
                p + HEADER_BYTES, p + batch.size, batch, magic, fetch_offset, False, limit, out
            )
        temporary[0] += out.size - size
    if result > NONE:
        out.size, out.records = size, records
    elif result == NO_MEMORY:
        raise MemoryError()
    return result


@cython.overflowcheck(False)
def down_convert(data, *, int magic, int64_t fetch_offset, int64_t limit):
    """Return whole batches as a Converted: entries of format ``magic``, 0 or 1, or older ones that are there.

    ``fetch_offset``: records of uncompressed batches below are left out. ``limit``: of the bytes, but for the first batch,
    which is converted whole. What cannot be converted (zstd, a damaged batch) ends the entries; it is an error where it
    comes first.
    """
    cdef const uint8_t[::1] view = data
    cdef const uint8_t* begin = &view[0] if view.shape[0] else NULL
    cdef int64_t position = 0, next_offset = -1, temporary = 0, began = monotonic_ns(), most = 0
    cdef int result = NONE
    cdef Output out
    cdef Batch batch
    memset(&out, 0, sizeof(Output))
    try:
        while result == NONE and (out.size == 0 or out.size < most):
            result = next_batch(begin + position, view.shape[0] - position, &batch)
            if result != NONE or batch.size == 0:
                break
            if not batch.attributes & CONTROL:
                result = convert_batch(
                    view[position:position + batch.size], &batch, magic, fetch_offset, most if out.size else INT64_MAX,
                    &out, &temporary
                )
                most = most if most else max(limit, out.size) if out.size else 0
            next_offset = batch.base_offset + batch.last_offset_delta + 1
            position += batch.size
        return Converted(
            PyBytes_FromStringAndSize(<const char*>out.data, out.size) if out.size else b"",
            result if result > NONE and out.size == 0 else NONE, next_offset, out.records, monotonic_ns() - began,
            temporary,
        )
    finally:
        free(out.data)


def carry(const uint8_t[::1] batch not None, int codec, int magic):
    """Return an entry of format ``magic``, 0 or 1, that carries the records of an uncompressed batch of format 2.

    Raises KafkaError CORRUPT_MESSAGE.
    """
    cdef Output out
    cdef Batch header
    cdef int64_t temporary = 0
    cdef int result
    memset(&out, 0, sizeof(Output))
    read_batch(&batch[0], &header)
    try:
        result = wrap(batch[HEADER_BYTES:], &header, codec, magic, INT64_MAX, &out, &temporary)
        if result == NO_MEMORY:
            raise MemoryError()
        if result != NONE:
            raise KafkaError(result, f"the entry with offset {header.base_offset}: its records cannot be written again")
        return PyBytes_FromStringAndSize(<const char*>out.data, out.size)
    finally:
        free(out.data)
